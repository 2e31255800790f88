//! The face of the page allocator: allocating, freeing, and questions about the whole machine.

use alloc::vec::Vec;

use super::attempt::Attempt;
use super::boost::KernelRole;
use super::build::Settings;
use super::event::{PageCounters, PageEvent};
use super::frames::{FrameIndex, Frames, Kind, Tag};
use super::kcompactd::KcompactdBox;
use super::kswapd::KswapdBox;
use super::map::{MapError, MemoryMap, NodeId, ZoneKind};
use super::migratetype::Migratetype;
use super::per_cpu::Slot;
use super::policy::{Fixes, FragmentationPolicy};
use super::request::{PageRequest, RequestFlags};
use super::walk::{AllocFlags, Mark, Path, Walk};
use super::zone::{Watermarks, Zone, ZoneId};
use super::zonelist::Zonelist;
use crate::cpu::CpuId;
use crate::errors::errors;
use crate::event::{Event, EventSink};
use crate::units::{Nanos, Order, PageCount, Pfn};

/// Configuration of a [`PageAllocator`]: memory map, policy and settings.
#[derive(Clone, Debug)]
pub struct PageConfig {
    pub map: MemoryMap,
    pub policy: FragmentationPolicy,
    pub min_free: MinFree,
    /// Distance between watermarks, in 1/10000 of a zone (`watermark_scale_factor`), 1 to 3000.
    pub watermark_scale_factor: u32,
    /// `lowmem_reserve_ratio`, by kind of zone: a zone withholds, from requests that could use higher zones, the pages
    /// of those zones divided by this number; 0 withholds nothing.
    pub lowmem_reserve_ratio: [u32; ZoneKind::COUNT],
    pub role: KernelRole,
}

/// Size of the reserve of free pages (`min_free_kbytes`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinFree {
    /// The kernel's formula: the square root of 16 times the low memory in KiB.
    Formula,
    /// The recommendation of khugepaged when transparent huge pages are on: eleven pageblocks per zone, at most a
    /// twentieth of low memory.
    #[default]
    HugePages,
    Pages(u64),
}

impl PageConfig {
    /// Returns the kernel's defaults, with transparent huge pages on.
    #[must_use]
    pub const fn new(map: MemoryMap, policy: FragmentationPolicy) -> PageConfig {
        PageConfig {
            map,
            policy,
            min_free: MinFree::HugePages,
            watermark_scale_factor: 10,
            lowmem_reserve_ratio: [256, 256, 32, 0, 0],
            role: KernelRole::Main,
        }
    }
}

errors! {
    /// Error of making a page allocator, or of changing its settings.
    #[non_exhaustive]
    pub enum PageConfigError {
        /// The memory map contradicts itself.
        Map(error: MapError) => "{error}",
        /// `watermark_scale_factor` is not between 1 and 3000.
        WatermarkScaleFactor(factor: u32) =>
            "watermark_scale_factor is {factor}; it must be 1 to 3000",
        /// The policy has no boost whose factor could be set.
        NoBoost => "the policy does not boost watermarks",
        /// No memory for the metadata.
        OutOfMetadata => "no memory for the metadata of frames",
    }

    /// Error of freeing a block.
    #[non_exhaustive]
    pub enum FreeError {
        /// The frame is not managed memory of the map.
        Unknown(pfn: Pfn) => "frame {pfn} is not managed",
        DoubleFree(pfn: Pfn) => "frame {pfn} is free already",
        /// The frame lies inside a block that begins at `head`.
        NotAHead {
            head: Pfn,
        } => "the frame's block begins at frame {head}",
    }
}

/// State of a zone, counted in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneInfo {
    pub id: ZoneId,
    pub node: NodeId,
    pub kind: ZoneKind,
    /// Frames that have memory behind them.
    pub present: PageCount,
    /// Frames that the allocator hands out.
    pub managed: PageCount,
    /// Free pages, those of per-CPU lists not included.
    pub free: PageCount,
    /// Watermarks as they stand without the boost.
    pub watermarks: Watermarks,
    /// Pages by which the boost raises the watermarks.
    pub boost: PageCount,
    /// Pages that the zone withholds from requests, by the kind of the highest zone that a request can use.
    pub lowmem_reserve: [u64; ZoneKind::COUNT],
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: NodeId,
    /// Zones that requests from this node try, best first.
    pub(super) zonelist: Zonelist,
    pub(super) kswapd: KswapdBox,
    pub(super) kcompactd: KcompactdBox,
}

/// The page frames of a machine.
///
/// Always true:
/// 1. Every managed frame belongs to one block, which begins at a multiple of its size.
/// 2. A block lies in one zone.
/// 3. Two free buddies whose types may mix are one block. (Whole pageblocks of a reserve or of isolated memory stay
///    apart from others.)
/// 4. Under strict lists a free block is on the list of its pageblocks' type. Under the loose rules of 4.20 to 6.9 it
///    may be on any.
/// 5. A list links its blocks forwards and backwards, and counts them.
/// 6. A zone knows the free pages of each type, and which lists are empty.
/// 7. A pageblock counts its free pages, and those in use that may be moved.
/// 8. Per-CPU lists hold free blocks of their order, and count their pages.
/// 9. Managed pages are free, on per-CPU lists, on their way, or in use. (On their way: taken by compaction as targets,
///    or moved from.)
/// 10. A boost stays below its bound, and exempt zones have none.
/// 11. The reserve for requests that may not wait is counted in pageblocks.
/// 12. What a zone keeps from others grows with the zone that they could have used. (`lowmem_reserve` never falls from
///     one kind of zone to the next higher.)
/// 13. Compaction knows how many pages it has set aside, and keeps none for itself.
///
/// [`check`](crate::check::Check::check) verifies all of them in O(frames).
///
/// A CPU is known by its rank in [`MemoryMap::cpus`]. A CPU beyond them, as from another map, has no lists: its blocks
/// come from the zones and return there, and its requests begin with node 0.
///
/// ```
/// use nofrag::page::{
///     FragmentationPolicy, MemoryMap, Migratetype, PageAllocator, PageConfig, PageRequest,
/// };
/// use nofrag::units::{Nanos, Order, PageCount};
///
/// let map = MemoryMap::pc(PageCount(1 << 18), 4)?; // 1 GiB, four CPUs
/// let cpu = map.cpus().get(0).ok_or("there is no CPU 0")?;
/// let policy = FragmentationPolicy::preset("linux-7.2-defrag")?.policy;
/// let mut pages = PageAllocator::new(&PageConfig::new(map, policy))?;
///
/// let request = PageRequest::new(Order::ZERO, Migratetype::Unmovable);
/// let Ok(pfn) = pages.alloc(Nanos(0), cpu, request) else {
///     panic!("all memory is free");
/// };
/// // A page of another kind does not come from the same pageblock.
/// let Ok(other) = pages.alloc(Nanos(0), cpu, PageRequest::user(Order::ZERO)) else {
///     panic!("there is still memory");
/// };
/// assert_ne!(pfn.0 >> 9, other.0 >> 9);
/// pages.free(cpu, pfn)?;
/// pages.free(cpu, other)?;
/// assert_eq!(pages.counters().events(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PageAllocator<E: EventSink = ()> {
    pub(super) frames: Frames,
    pub(super) zones: Vec<Zone>,
    pub(super) nodes: Vec<Node>,
    /// The node of each CPU, by rank.
    pub(super) cpu_nodes: Vec<NodeId>,
    /// True if the machine has a zone DMA32, even an empty one: `CONFIG_ZONE_DMA32`.
    pub(super) has_dma32: bool,
    pub(super) policy: FragmentationPolicy,
    pub(super) role: KernelRole,
    pub(super) settings: Settings,
    /// Time of the last warning that a request takes long.
    pub(super) warned: Option<Nanos>,
    pub(super) counters: PageCounters,
    pub(super) events: E,
}

/// Returns the type of the list of a CPU to which blocks of pageblocks of this type go: HIGHATOMIC and CMA blocks go to
/// the movable ones.
pub(super) fn listed_as(migratetype: Migratetype) -> Migratetype {
    match migratetype {
        Migratetype::HighAtomic | Migratetype::Cma => Migratetype::Movable,
        other => other,
    }
}

impl<E: EventSink> PageAllocator<E> {
    /// Takes a block from the first zone that may serve the request, and returns its first frame.
    ///
    /// # Errors
    /// The [`Attempt`] to go on with on the slow path, if no zone has such a block above its low watermark.
    #[expect(
        clippy::result_large_err,
        reason = "misses are rare, and without an allocation no box"
    )]
    pub fn alloc(&mut self, now: Nanos, cpu: CpuId, request: PageRequest) -> Result<Pfn, Attempt> {
        let flags = self.fast_flags(cpu, &request);
        let Walk::Block(frame) = self.walk(cpu, &request, flags) else {
            return Err(Attempt::new(self, now, cpu, request));
        };
        Ok(self.handed_out(frame, &request))
    }

    pub(super) fn fast_flags(&self, cpu: CpuId, request: &PageRequest) -> AllocFlags {
        let flags = AllocFlags::at(Mark::Low);
        let flags = flags.with(self.fragment_flags(cpu, request, Path::Fast));
        let skips = self.policy.fixes.has(Fixes::SKIP_AWAKE_NODES) && self.nodes.len() > 1;
        let bits = [
            (request.flags.has(RequestFlags::CMA), AllocFlags::CMA),
            (skips, AllocFlags::SKIP_AWAKE),
        ];
        bits.into_iter().fold(flags, |flags, (set, bit)| if set { flags.with(bit) } else { flags })
    }

    /// Counts a block that leaves the allocator, reports it to the events, and returns its frame number.
    pub(super) fn handed_out(&mut self, frame: FrameIndex, request: &PageRequest) -> Pfn {
        let pfn = self.frames.pfn(frame);
        let PageRequest { order, migratetype, .. } = *request;
        self.counters.allocations[migratetype.index()] += 1;
        self.count_mistyped(frame, migratetype);
        self.events.record(Event::Page(PageEvent::Allocated { pfn, order, migratetype }));
        pfn
    }

    /// Frees the block in use that begins at `pfn`.
    ///
    /// # Errors
    /// [`FreeError`]; nothing has changed then.
    pub fn free(&mut self, cpu: CpuId, pfn: Pfn) -> Result<(), FreeError> {
        let (frame, tag) = self.in_use(pfn)?;
        let migratetype = self.frames.block(frame).migratetype;
        self.free_found(cpu, frame, tag, migratetype);
        Ok(())
    }

    /// Frees the block in use at `frame`. `migratetype` is the type that its pageblock has, or had when the caller read
    /// it.
    pub(super) fn free_found(
        &mut self,
        cpu: CpuId,
        frame: FrameIndex,
        tag: Tag,
        migratetype: Migratetype,
    ) {
        let (pfn, order) = (self.frames.pfn(frame), tag.order());
        if tag.is_movable() {
            self.frames.each_block(frame, order, |block, pages| block.movable -= pages);
        }
        if tag.kind() == Kind::Leaving {
            self.frames.set_tag(frame, Tag::new(Kind::Left, order));
        } else {
            self.give(cpu, frame, order, migratetype);
        }
        self.counters.frees += 1;
        self.events.record(Event::Page(PageEvent::Freed { pfn, order }));
    }

    /// Puts an unused block onto a list of the CPU, or of its zone if CPUs keep no such blocks. `migratetype`, the type
    /// of its pageblock, decides which one.
    pub(super) fn give(
        &mut self,
        cpu: CpuId,
        frame: FrameIndex,
        order: Order,
        migratetype: Migratetype,
    ) {
        let id = self.zone_of(frame);
        match Slot::of(order, listed_as(migratetype), self.policy.per_cpu) {
            Some(slot) if self.has_lists(cpu) => {
                self.give_cached(cpu, id, frame, slot, migratetype);
            }
            _ => {
                let zone = &mut self.zones[id.index()];
                zone.free_block(&mut self.frames, frame, order);
            }
        }
    }

    /// Returns the zone of a frame; `None` between zones. O(1), but O(zones) in pageblocks that zones share.
    pub(super) fn zone_at(&self, frame: FrameIndex) -> Option<ZoneId> {
        let zone = self.zones.get(usize::from(self.frames.block(frame).zone));
        let found = match zone {
            Some(zone) if zone.has(frame) => Some(zone),
            _ => self.zones.iter().find(|zone| zone.has(frame)),
        };
        found.map(|zone| zone.id)
    }

    /// Returns the zone of a frame with memory.
    pub(super) fn zone_of(&self, frame: FrameIndex) -> ZoneId {
        self.zone_at(frame).expect("a frame with memory lies in a zone")
    }

    /// Returns the first frame and the tag of the block in use that begins at `pfn`.
    pub(super) fn in_use(&self, pfn: Pfn) -> Result<(FrameIndex, Tag), FreeError> {
        let frame = self.frames.index(pfn).ok_or(FreeError::Unknown(pfn))?;
        let tag = self.frames.tag(frame);
        match tag.kind() {
            Kind::Used | Kind::Leaving => Ok((frame, tag)),
            Kind::Absent => Err(FreeError::Unknown(pfn)),
            Kind::Free | Kind::PerCpu | Kind::Target | Kind::Left => {
                Err(FreeError::DoubleFree(pfn))
            }
            Kind::Inside => Err(self.inside(pfn, frame)),
        }
    }

    /// Returns the error of freeing a frame in the middle of a block.
    fn inside(&self, pfn: Pfn, frame: FrameIndex) -> FreeError {
        let (head, tag) = self.frames.head_of(frame).expect("a block begins before the frame");
        match tag.kind() {
            Kind::Used | Kind::Leaving => FreeError::NotAHead { head: self.frames.pfn(head) },
            _ => FreeError::DoubleFree(pfn),
        }
    }

    /// Declares whether the content of the block in use at `pfn` may be moved. A new block may not: if a page moves
    /// before its owner has published its address, the owner writes to the old place (docs/sources/pages.md#b-21).
    ///
    /// # Errors
    /// [`FreeError`] when no block in use begins there.
    pub fn set_movable(&mut self, pfn: Pfn, movable: bool) -> Result<(), FreeError> {
        let (frame, tag) = self.in_use(pfn)?;
        if tag.is_movable() != movable {
            let order = tag.order();
            match movable {
                true => self.frames.each_block(frame, order, |block, pages| block.movable += pages),
                false => {
                    self.frames.each_block(frame, order, |block, pages| block.movable -= pages)
                }
            }
            self.frames.set_tag(frame, tag.with_movable(movable));
        }
        Ok(())
    }

    /// Returns all counts since the allocator was made.
    #[must_use]
    pub fn counters(&self) -> &PageCounters {
        &self.counters
    }

    /// Returns the policy that the allocator follows.
    #[must_use]
    pub fn policy(&self) -> &FragmentationPolicy {
        &self.policy
    }

    /// Returns the state of all zones, by [`ZoneId`].
    pub fn zones(&self) -> impl Iterator<Item = ZoneInfo> + '_ {
        self.zones.iter().map(Zone::info)
    }

    /// Returns the bytes of metadata on the heap, for all frames, zones and CPUs together. O(zones).
    #[must_use]
    pub fn metadata_bytes(&self) -> usize {
        let zones = self.zones.iter().map(Zone::metadata_bytes).sum::<usize>();
        let nodes = self.nodes.iter().map(|node| node.zonelist.metadata_bytes()).sum::<usize>();
        self.frames.metadata_bytes()
            + zones
            + self.zones.capacity() * size_of::<Zone>()
            + nodes
            + self.nodes.capacity() * size_of::<Node>()
            + self.cpu_nodes.capacity() * size_of::<NodeId>()
    }
}
