//! Random operations on a space of virtual areas, under each preset, against a map of what is busy and what is stale.
//!
//! One thread: interleavings are the model checker's. The pages behind the space remember which of them were freed and
//! not flushed, so that handing one out too early is seen at once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;

use arbitrary::{Arbitrary, Unstructured};
use nofrag::check::Check;
use nofrag::cpu::{CpuId, CpuSet};
use nofrag::ranges::{AlignOne, Span};
use nofrag::units::Vpn;
use nofrag::vmap::{
    Area, AreaError, AreaRequest, AreaState, Budget, CpuHandle, Epoch, FreeAreaError, Guard,
    LazyLimit, Mapper, RamArea, VmapConfig, VmapPolicy, VmapSpace, Wait,
};

use crate::model::Runs;
use crate::steps;

/// Runs the operations in `data` on the preset that its first byte chooses; panics when a promise is broken.
pub fn run(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else { return };
    let presets: Vec<_> = VmapPolicy::presets().collect();
    let preset = presets[usize::from(choice) % presets.len()];
    // A low limit, so that short inputs reach the purge too.
    let policy = VmapPolicy { lazy_limit: LazyLimit::Pages(u64::from(choice)), ..preset.policy };
    let cpus = CpuSet::first(1 + u32::from(choice) % 3).expect("there is memory enough");
    let span = Span::new(0x100, 0x100 + 700).expect("the space is not empty");
    let config = VmapConfig { span, cpus, policy };
    let space = VmapSpace::new(config, StalePages::default(), ()).expect("the policy is sound");
    drive(rest, preset.name == "nofrag", &space);
}

/// Pages that remember which of them were cleared and not flushed.
#[derive(Debug, Default)]
struct StalePages {
    stale: RefCell<BTreeMap<u64, u64>>,
}

impl StalePages {
    fn must_be_fresh(&self, area: Span) {
        for (&start, &end) in self.stale.borrow().iter() {
            let meets = start < area.end() && area.start() < end;
            assert!(!meets, "{area:?} was handed out before {start:#x}..{end:#x} was flushed");
        }
    }
}

impl Mapper for StalePages {
    type Context = ();
    type Error = Infallible;

    fn install(&self, _area: RamArea, _context: &()) -> Result<(), Infallible> {
        Ok(())
    }

    fn clear(&self, area: Span) {
        let before = self.stale.borrow_mut().insert(area.start(), area.end());
        assert_eq!(before, None, "{area:?} was cleared twice");
    }

    fn flush(&self, ranges: &[Span]) -> Epoch {
        assert!(ranges.windows(2).all(|pair| pair[0].end() <= pair[1].start()), "{ranges:?}");
        let covered = |start: u64, end: u64| {
            let area = Span::new(start, end).expect("an area has a page");
            ranges.iter().any(|range| range.covers(area))
        };
        self.stale.borrow_mut().retain(|&start, &mut end| !covered(start, end));
        Epoch(0)
    }

    fn completed(&self) -> Epoch {
        Epoch(0)
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Wish {
    cpu: u8,
    pages: u8,
    align: u8,
    bounds: Option<(u8, u8)>,
    guarded: bool,
    patient: bool,
}

impl Wish {
    fn request(self, span: Span) -> AreaRequest {
        // Mostly small; the largest ones are near the size of the space.
        let pages = match self.pages {
            0..200 => u64::from(self.pages % 20),
            _ => u64::from(self.pages - 199) * 16,
        };
        let align = match self.align {
            0..150 => 1,
            150..250 => 1 << (self.align % 10),
            _ => u64::from(self.align % 2) * 3,
        };
        let at = |byte: u8| span.start() + u64::from(byte) * 3 - 20;
        let align_one = if self.guarded { AlignOne::Byte } else { AlignOne::Number };
        let within = self.bounds.and_then(|(a, b)| Span::new(at(a.min(b)), at(a.max(b))).ok());
        AreaRequest {
            pages,
            align,
            align_one,
            within,
            guard: if self.guarded { Guard::Page } else { Guard::None },
            wait: if self.patient { Wait::MayReclaim } else { Wait::Never },
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Step {
    Alloc(Wish),
    /// Takes the fast path of a CPU, or gives the one that is out back.
    Handle {
        cpu: u8,
    },
    AllocByHandle(Wish),
    FreeByHandle {
        which: u8,
    },
    /// Frees the start of a live area.
    Free {
        cpu: u8,
        which: u8,
    },
    /// Frees whatever stands at a page.
    FreeAt {
        cpu: u8,
        page: u16,
    },
    FreeDeferred {
        cpu: u8,
        which: u8,
    },
    Find {
        page: u16,
    },
    Purge {
        areas: u8,
    },
    PurgeAll,
    Group {
        cpu: u8,
        pieces: [(u8, u8); 3],
        align: u8,
    },
}

/// So many steps of one input are run.
const MOST_STEPS: usize = 400;

fn drive(data: &[u8], is_exact: bool, space: &VmapSpace<StalePages>) {
    let mut driver = Driver { space, is_exact, handle: None, busy: BTreeMap::new() };
    let mut input = Unstructured::new(data);
    for _ in 0..MOST_STEPS {
        if input.is_empty() {
            break;
        }
        let Ok(step) = Step::arbitrary(&mut input) else { break };
        steps::count();
        driver.step(step);
        driver.compare();
    }
}

/// Through what an area was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Space,
    Handle,
}

struct Driver<'a> {
    space: &'a VmapSpace<StalePages>,
    /// Whether an existing place is never missed.
    is_exact: bool,
    /// The one that is out.
    handle: Option<CpuHandle<'a, StalePages>>,
    /// Busy areas by first page.
    busy: BTreeMap<u64, Area>,
}

impl<'a> Driver<'a> {
    fn cpu(&self, byte: u8) -> CpuId {
        let cpus = self.space.cpus();
        cpus.by_rank(usize::from(byte) % cpus.len()).expect("the rank is below the count")
    }

    fn take_handle(&self, cpu: u8) -> CpuHandle<'a, StalePages> {
        let cpu = self.cpu(cpu);
        let handle = self.space.cpu(cpu).expect("no handle is out");
        assert!(self.space.cpu(cpu).is_err(), "two handles for one CPU");
        handle
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Alloc(wish) => {
                let request = wish.request(self.space.span());
                let cpu = self.cpu(wish.cpu);
                let result = self.space.alloc(cpu, &request);
                let held = self.handle.as_ref().is_some_and(|handle| handle.cpu() == cpu);
                if result == Err(AreaError::CpuHeld) {
                    assert!(held, "{cpu:?} is not held");
                } else {
                    self.judge(&request, result, Origin::Space);
                }
            }
            Step::Handle { cpu } => match self.handle.take() {
                Some(handle) => drop(handle),
                None => self.handle = Some(self.take_handle(cpu)),
            },
            Step::AllocByHandle(wish) => {
                let request = wish.request(self.space.span());
                let mut handle = match self.handle.take() {
                    Some(handle) => handle,
                    None => self.take_handle(wish.cpu),
                };
                let result = handle.alloc(&request);
                self.judge(&request, result, Origin::Handle);
                self.handle = Some(handle);
            }
            Step::FreeByHandle { which } => {
                if let (Some(start), Some(handle)) = (self.pick(which), &mut self.handle) {
                    let freed = handle.free(Vpn(start));
                    assert_eq!(freed.ok(), self.busy.remove(&start), "free {start:#x}");
                }
            }
            Step::Free { cpu, which } => {
                if let Some(start) = self.pick(which) {
                    let freed = self.space.free(self.cpu(cpu), Vpn(start));
                    assert_eq!(freed.ok(), self.busy.remove(&start), "free {start:#x}");
                }
            }
            Step::FreeDeferred { cpu, which } => {
                if let Some(start) = self.pick(which) {
                    let freed = self.space.free_deferred(self.cpu(cpu), Vpn(start));
                    assert_eq!(freed.ok(), self.busy.remove(&start), "free {start:#x}");
                }
            }
            Step::FreeAt { cpu, page } => self.free_at(cpu, u64::from(page % 1024)),
            Step::Find { page } => {
                let page = u64::from(page % 1024);
                assert_eq!(self.space.find(Vpn(page)), self.covering(page), "find {page:#x}");
            }
            Step::Purge { areas } => {
                let lazy = self.space.lazy_pages().get();
                let done = self.space.step(Budget { areas: areas.into() });
                assert_eq!(self.space.lazy_pages().get(), lazy - done.pages, "lazy pages");
                assert_eq!(done.more, self.space.lazy_pages().get() > 0, "more");
            }
            Step::PurgeAll => {
                self.space.purge_all();
                assert_eq!(self.space.lazy_pages().get(), 0, "a full purge leaves nothing lazy");
                let free: u64 = self.holes().total();
                let busy: u64 = self.busy.values().map(|area| area.span().len()).sum();
                let tiled = free + busy == self.space.span().len();
                assert!(self.handle.is_some() || tiled, "a full purge leaves a pool");
            }
            Step::Group { cpu, pieces, align } => self.group(cpu, pieces, align),
        }
    }

    fn holes(&self) -> Runs {
        let mut holes = Runs::default();
        for hole in self.space.holes().expect("there is memory enough") {
            holes.add(hole);
        }
        holes
    }

    fn pick(&self, which: u8) -> Option<u64> {
        let at = usize::from(which) % self.busy.len().max(1);
        self.busy.keys().nth(at).copied()
    }

    /// The busy area that covers `page`.
    fn covering(&self, page: u64) -> Option<Area> {
        let (_, area) = self.busy.range(..=page).next_back()?;
        area.span().contains(page).then_some(*area)
    }

    /// Panics unless `result` is an answer to `request` that the preset allows; notes the area.
    fn judge(&mut self, request: &AreaRequest, result: Result<Area, AreaError>, origin: Origin) {
        let span = self.space.span();
        match result {
            Ok(area) => {
                assert!(request.pages > 0 && request.align.is_power_of_two(), "{request:?}");
                assert_eq!((area.pages.get(), area.guard), (request.pages, request.guard));
                assert_eq!(area.start.get() % request.align, 0, "{request:?} got {area:?}");
                let within = request.within.unwrap_or(span);
                assert!(
                    within.covers(area.span()) && span.covers(area.span()),
                    "{request:?} got {area:?}"
                );
                self.note(area);
            }
            Err(AreaError::ZeroSize) => assert_eq!(request.pages, 0),
            Err(AreaError::AlignNotPowerOfTwo) => assert!(!request.align.is_power_of_two()),
            Err(AreaError::OutsideSpace) => {
                let within = request.within.expect("the whole space is not outside itself");
                assert_eq!(within.intersection(span), None, "{request:?}");
            }
            Err(AreaError::Exhausted { .. }) => {
                // The Linux designs may miss a place. A patient request was preceded by a full purge, which empties all
                // pools but those of a handle that is out; the handle itself gives them back.
                let pools_empty = self.handle.is_none() || origin == Origin::Handle;
                if self.is_exact && pools_empty && request.wait == Wait::MayReclaim {
                    assert_eq!(self.lowest_place(request), None, "{request:?} missed a place");
                }
            }
            Err(AreaError::WouldBlock) => assert_eq!(request.wait, Wait::Never, "{request:?}"),
            Err(why) => panic!("{request:?}: {why:?}"),
        }
    }

    fn note(&mut self, area: Area) {
        self.space.mapper().must_be_fresh(area.span());
        let other =
            self.busy.values().find(|other| other.span().intersection(area.span()).is_some());
        assert_eq!(other, None, "{area:?} overlaps");
        self.busy.insert(area.start.get(), area);
    }

    /// The lowest place among what is not busy.
    fn lowest_place(&self, request: &AreaRequest) -> Option<u64> {
        let span = self.space.span();
        let bounds = request.within.map_or(Some(span), |within| within.intersection(span))?;
        let mut free = Runs::default();
        free.add(span);
        for area in self.busy.values() {
            free.remove(area.span());
        }
        let total = request.pages + request.guard.pages();
        free.iter()
            .filter_map(|hole| hole.intersection(bounds)?.lowest_fit(total, request.align))
            .min()
    }

    fn free_at(&mut self, cpu: u8, page: u64) {
        let result = self.space.free(self.cpu(cpu), Vpn(page));
        match self.covering(page) {
            Some(area) if area.start.get() == page => {
                assert_eq!(result, Ok(area));
                self.busy.remove(&page);
            }
            Some(area) => assert_eq!(result, Err(FreeAreaError::NotAStart { start: area.start })),
            None if !self.space.span().contains(page) => {
                assert_eq!(result, Err(FreeAreaError::Foreign));
            }
            None => assert!(
                matches!(result, Err(FreeAreaError::NotAllocated | FreeAreaError::DoubleFree)),
                "free {page:#x}: {result:?}"
            ),
        }
    }

    fn group(&mut self, cpu: u8, pieces: [(u8, u8); 3], align: u8) {
        let align = 1 << (align % 6);
        let offsets = pieces.map(|(offset, _)| u64::from(offset) / align * align);
        let sizes = pieces.map(|(_, size)| u64::from(size % 24));
        let Ok(base) = self.space.alloc_group(self.cpu(cpu), &offsets, &sizes, align) else {
            return;
        };
        assert_eq!(base.get() % align, 0, "the base is misaligned");
        for (offset, size) in offsets.into_iter().zip(sizes) {
            let start = base.get() + offset;
            let area = self.space.find(Vpn(start)).expect("each piece is an area");
            assert_eq!((area.start.get(), area.total_pages().get()), (start, size));
            self.note(area);
        }
    }

    /// Panics when the space's books differ from the model's.
    fn compare(&self) {
        if let Err(violation) = self.space.check() {
            panic!("{violation}");
        }
        let records = self.space.areas().expect("there is memory enough");
        let busy = records.iter().filter(|record| record.state == AreaState::Busy);
        assert!(busy.map(|record| &record.area).eq(self.busy.values()), "the busy areas differ");
    }
}
