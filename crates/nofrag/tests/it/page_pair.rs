//! A page allocator and the naive model of it under the same steps, compared after each one.

use super::page_bench::order;
use super::page_naive::{Marks, Naive, NaiveEvent};
use nofrag::check::Check;
use nofrag::event::{Event, EventSink};
use nofrag::page::{
    Choice, FallbackRules, Fixes, FragmentationPolicy, MemoryMap, Migratetype, MinFree, NodeId,
    NodeMap, NodeMask, PageAllocator, PageConfig, PageEvent, PageRequest, PerCpuRules, PfnRange,
    RequestFlags, ZoneKind, ZoneMap,
};
use nofrag::units::{Nanos, Order, PageCount, Pfn};
use std::cell::RefCell;
use std::rc::Rc;

/// An event sink that keeps the events of a page allocator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(pub(crate) Rc<RefCell<Vec<PageEvent>>>);

impl EventSink for Log {
    fn record(&self, event: Event) {
        if let Event::Page(event) = event {
            self.0.borrow_mut().push(event);
        }
    }
}

impl Log {
    /// Returns the fragmentation events since the last call, as the model writes them.
    pub(crate) fn take_fragmentation(&self) -> Vec<NaiveEvent> {
        let told = self.0.take();
        let events = told.into_iter().filter_map(|event| match event {
            PageEvent::ExternalFragmentation(event) => Some(event),
            _ => None,
        });
        let naive = |event: nofrag::page::ExtFrag| NaiveEvent {
            pfn: event.pfn.0,
            zone: event.zone.index(),
            alloc_order: event.alloc_order.get(),
            fallback_order: event.fallback_order.get(),
            alloc: event.alloc_migratetype,
            fallback: event.fallback_migratetype,
            change_ownership: event.change_ownership,
        };
        events.map(naive).collect()
    }
}

/// Returns a zone of `pages` frames from `start` on.
pub(crate) fn zone(kind: ZoneKind, start: u64, pages: u64) -> ZoneMap {
    ZoneMap::new(kind, Pfn(start), PageCount(pages))
}

pub(crate) fn range(start: u64, pages: u64) -> PfnRange {
    PfnRange { start: Pfn(start), pages: PageCount(pages) }
}

pub(crate) fn node(cpus: &[u32], zones: &[ZoneMap]) -> NodeMap {
    NodeMap { cpus: cpus.to_vec(), zones: zones.to_vec() }
}

/// Returns a machine of these nodes.
pub(crate) fn machine(nodes: &[NodeMap]) -> MemoryMap {
    MemoryMap::new(nodes.to_vec(), &[]).expect("the map is sound")
}

/// Returns small machines of every shape, by name.
pub(crate) fn machines() -> Vec<(&'static str, MemoryMap)> {
    use ZoneKind::{Dma, Dma32, Movable, Normal};
    let holed = ZoneMap {
        holes: vec![range(1024 + 300, 5), range(1024 + 1500, 700), range(1024 + 4000, 96)],
        reserved: vec![range(1024, 1), range(1024 + 2600, 130), range(1024 + 3071, 2)],
        ..zone(Normal, 1024, 5000)
    };
    vec![
        ("one zone", machine(&[node(&[0, 1], &[zone(Normal, 0, 4096)])])),
        (
            "two zones",
            machine(&[node(&[0, 1], &[zone(Dma32, 1024, 2048), zone(Normal, 3072, 2048)])]),
        ),
        (
            "two nodes",
            machine(&[
                node(&[0, 5], &[zone(Dma32, 0, 1024), zone(Normal, 1024, 2048)]),
                node(&[3], &[zone(Normal, 3072, 2048)]),
            ]),
        ),
        (
            "two nodes with Normal alone",
            machine(&[
                node(&[0], &[zone(Normal, 0, 2048)]),
                node(&[1], &[zone(Normal, 2048, 2048)]),
            ]),
        ),
        (
            "zones that share pageblocks",
            machine(&[node(&[0, 1], &[zone(Dma32, 1124, 2500), zone(Normal, 3624, 2301)])]),
        ),
        ("holes", machine(&[node(&[0], &[holed])])),
        (
            "four zones",
            machine(&[node(
                &[2, 9],
                &[
                    zone(Movable, 5120, 1024),
                    zone(Dma, 16, 500),
                    zone(Normal, 2560, 2560),
                    zone(Dma32, 1024, 1536),
                ],
            )]),
        ),
        ("too small for groups", machine(&[node(&[0], &[zone(Normal, 100, 1300)])])),
        (
            "a node without memory and one without CPUs",
            machine(&[
                node(&[0, 1], &[]),
                node(&[], &[zone(Dma32, 0, 1536), zone(Normal, 1536, 1536)]),
                node(&[2], &[zone(Normal, 3072, 1024)]),
            ]),
        ),
    ]
}

/// One operation, for the allocator and for the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    kind: u8,
    cpu: u8,
    size: u8,
    mobility: u8,
    flags: u8,
    which: u16,
}

pub(crate) const KINDS: usize = 7;

impl Step {
    pub(crate) const BYTES: usize = 7;

    pub(crate) fn from_bytes(bytes: [u8; Step::BYTES]) -> Step {
        let [kind, cpu, size, mobility, flags, low, high] = bytes;
        Step { kind, cpu, size, mobility, flags, which: u16::from_le_bytes([low, high]) }
    }

    fn request(self, map: &MemoryMap) -> PageRequest {
        const ORDERS: [u8; 24] =
            [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 9, 9, 10];
        let size = Order::new(ORDERS[usize::from(self.size) % ORDERS.len()]);
        let migratetype = Migratetype::MOBILITY[usize::from(self.mobility) % 3];
        let request = PageRequest::new(size.expect("it is one"), migratetype);
        let mut flags = match self.flags & 3 {
            0 => RequestFlags::NONE,
            1 => RequestFlags::HIGH.with(RequestFlags::KSWAPD_RECLAIM),
            _ => RequestFlags::RECLAIM,
        };
        if self.flags & 0x1c == 4 {
            flags = flags.with(RequestFlags::THIS_NODE);
        }
        let nodes = map.nodes().len();
        let kinds = [ZoneKind::Normal, ZoneKind::Movable, ZoneKind::Normal, ZoneKind::Dma32];
        PageRequest {
            zone: kinds[usize::from(self.flags >> 5) % kinds.len()],
            node: self
                .which
                .is_multiple_of(5)
                .then(|| NodeId((usize::from(self.which) % nodes) as u8)),
            nodes: match self.which % 16 {
                3 => NodeMask::only(NodeId((usize::from(self.cpu) % nodes) as u8)),
                _ => NodeMask::ALL,
            },
            ..request.flags(flags)
        }
    }
}

/// An allocator and its model.
pub(crate) struct Pair {
    map: MemoryMap,
    pages: PageAllocator<Log>,
    log: Log,
    pub(crate) naive: Naive,
    /// Blocks in use, in the order in which they were handed out.
    held: Vec<u64>,
    /// Number of steps of each kind that changed anything.
    pub(crate) changes: [u64; KINDS],
    /// Number of fragmentation events that both have told.
    pub(crate) seen: u64,
}

/// Returns the policy as far as the model knows it: per-CPU lists of single pages, and no kswapd that could be awake.
pub(crate) fn modelled(policy: FragmentationPolicy) -> FragmentationPolicy {
    let fixes = policy.fixes.without(Fixes::SKIP_AWAKE_NODES);
    FragmentationPolicy { per_cpu: PerCpuRules::Single, choice: Choice::Recent, fixes, ..policy }
}

impl Pair {
    /// Makes an allocator and its model with the same memory, all of it free.
    pub(crate) fn new(map: &MemoryMap, policy: FragmentationPolicy, min_pages: u64) -> Pair {
        let marks = Marks { min_pages, scale_factor: 10, ratio: [256, 256, 32, 0, 0] };
        let config = PageConfig {
            min_free: MinFree::Pages(min_pages),
            ..PageConfig::new(map.clone(), policy)
        };
        let log = Log::default();
        let pages = PageAllocator::with_events(&config, log.clone()).expect("the map is sound");
        let naive = Naive::new(map, policy, marks);
        let mut pair = Pair {
            map: map.clone(),
            pages,
            log,
            naive,
            held: Vec::new(),
            changes: [0; KINDS],
            seen: 0,
        };
        pair.compare();
        pair
    }

    /// Does one step on the allocator and on its model, and compares them.
    pub(crate) fn step(&mut self, step: Step) {
        let kind = usize::from(step.kind) % KINDS;
        let cpus = self.map.cpus();
        let cpu = cpus.by_rank(usize::from(step.cpu) % cpus.len()).expect("the rank is below");
        let changed = match kind {
            0 | 1 => self.alloc(cpu, step.request(&self.map)),
            // A burst of one type empties its lists; only then others are touched.
            2 => {
                let request = step.request(&self.map);
                (0..step.which % 64).filter(|_| self.alloc(cpu, request)).count() > 0
            }
            3 => self.free(cpu, usize::from(step.which)),
            4 => {
                (0..step.which % 64)
                    .filter(|n| {
                        self.free(cpu, usize::from(step.which / 64 + n * u16::from(step.size)))
                    })
                    .count()
                    > 0
            }
            5 => self.set_movable(usize::from(step.which), step.flags & 3 != 0),
            _ => self.drain(cpu),
        };
        self.changes[kind] += u64::from(changed);
        self.compare();
    }

    fn alloc(&mut self, cpu: nofrag::cpu::CpuId, request: PageRequest) -> bool {
        let ours = self.pages.alloc(Nanos(0), cpu, request).ok().map(|pfn| pfn.0);
        let naive = self.naive.alloc(cpu.id(), &request);
        assert_eq!(ours, naive, "{request:?} is served differently");
        self.held.extend(naive);
        naive.is_some()
    }

    fn free(&mut self, cpu: nofrag::cpu::CpuId, which: usize) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let pfn = self.held.swap_remove(which % self.held.len());
        assert_eq!(self.pages.free(cpu, Pfn(pfn)), Ok(()), "frame {pfn}");
        self.naive.free(cpu.id(), pfn);
        true
    }

    fn set_movable(&mut self, which: usize, movable: bool) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let pfn = self.held[which % self.held.len()];
        assert_eq!(self.pages.set_movable(Pfn(pfn), movable), Ok(()), "frame {pfn}");
        self.naive.set_movable(pfn, movable);
        true
    }

    fn drain(&mut self, cpu: nofrag::cpu::CpuId) -> bool {
        self.pages.drain(cpu);
        self.naive.drain(cpu.id());
        true
    }

    fn compare(&mut self) {
        if let Err(violation) = self.pages.check() {
            panic!("{violation}");
        }
        let events = std::mem::take(&mut self.naive.events);
        self.seen += events.len() as u64;
        assert_eq!(self.log.take_fragmentation(), events, "fragmentation events");
        let infos: Vec<_> = self.pages.zones().collect();
        assert_eq!(infos.len(), self.naive.zones.len(), "zones");
        for (number, (info, zone)) in infos.iter().zip(&self.naive.zones).enumerate() {
            let marks = info.watermarks;
            let ours = (info.node.index(), info.kind, info.managed.0, info.boost.0);
            assert_eq!(ours, (zone.node, zone.kind, zone.managed, zone.boost), "zone {number}");
            assert_eq!([marks.min, marks.low, marks.high], [zone.min, zone.low, zone.high]);
            assert_eq!(info.lowmem_reserve, zone.reserve, "zone {number}");
            assert_eq!(info.free.0, self.naive.free_pages(number), "zone {number}");
            for o in 0..=10 {
                let blocks = |list| self.pages.free_blocks(info.id, order(o), list);
                let naive = |list| self.naive.free_blocks(number, o, list);
                assert_eq!(
                    Migratetype::ALL.map(blocks),
                    Migratetype::ALL.map(naive),
                    "zone {number}, order {o}"
                );
            }
        }
        if self.naive.policy.fallback != FallbackRules::Loose {
            assert_eq!(self.naive.list_mismatches(), 0, "blocks on lists of another type");
        }
        let (ours, naive) = (self.pages.counters(), self.naive.counts);
        assert_eq!(ours.allocations.iter().sum::<u64>(), naive.allocations);
        assert_eq!(ours.frees, naive.frees);
        assert_eq!(ours.mistyped.iter().sum::<u64>(), naive.mistyped, "mistyped");
        assert_eq!(ours.boosts, naive.boosts, "boosts");
        assert_eq!(ours.spread_given_up, naive.spread_given_up, "spread given up");
    }
}
