//! Virtual areas over page frames: scattered frames at adjacent addresses.
//!
//! [`Mapped`] is the core's [`VmapSpace`] with memory behind its numbers. [`vmalloc`](Mapped::vmalloc) takes frames
//! from wherever they are free, and shows them at adjacent addresses, so that memory in pieces serves large requests.
//! [`map_ram`](Mapped::map_ram) does the same with the caller's own frames. All addresses are one reservation, in which
//! a call replaces the old contents in one step; there is never a hole into which another thread might map.
//!
//! **Cost.** An area costs a call for each run of frames that lie in a row: blocks are sorted, and frames of
//! unfragmented memory make one run. Ending an area costs no call. Later one call makes all freed areas inaccessible
//! between which no live one lies (docs/decisions/0011 and the module of the core say when that is).
//!
//! **The law** of the core holds for memory too: detach, flush, only then reuse, both of addresses and of frames. An
//! area that was freed shows its old frames until its flush, and no others; after it every access is a fault.
//!
//! **The kernel's limit** on mappings (`vm.max_map_count`) is heeded: areas take at most half of it. At the budget
//! freed areas are flushed; `vmalloc` then looks for larger blocks, which need fewer mappings; then it refuses.
//!
//! **Huge pages.** An area that asks for them ([`Grain::Huge`]) begins at a multiple of 2 MiB and has whole blocks of 2
//! MiB as far as there are any, so that the kernel can map each with one entry: at once after [`Mapped::collapse`].
//!
//! **Fork.** A child shares the frames and keeps the mappings as they are. It must not use the `Mapped` itself.
//!
//! Bottom up: `reserved` (the addresses), `mapper` (the areas and their frames), `request` (requests, results and
//! errors).

mod mapper;
mod request;
mod reserved;

use std::cmp::Reverse;
use std::iter::repeat_n;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nofrag::check::{Check, Violation};
use nofrag::cpu::CpuId;
use nofrag::page::{Migratetype, Move};
use nofrag::ranges::Span;
use nofrag::units::{Order, PageCount, Pfn, Vpn};
use nofrag::vmap::{
    Area, AreaRequest, FreeAreaError, MapRamError, UnmapRamError, VmapConfig, VmapSpace,
};
use rustix::io::Errno;

use crate::frames::{Effort, FrameBlock, FrameError, FrameRequest, Frames, Use};
use crate::limits::max_map_count;
use crate::sys;
use mapper::{Owner, PageMapper};
use reserved::{Advice, Reserved};

pub use mapper::{MapCounters, MapFramesError, Relocation};
pub use request::{
    Grain, MappedConfig, MappedError, Mobility, ShownFrames, VfreeError, VmallocArea, VmallocError,
    VmallocRequest,
};

/// The first address of a reservation is a multiple of this: room for the core's blocks of 4 MiB.
const ALIGN: usize = 4 << 20;

/// Virtual areas over page frames, for any number of threads.
///
/// Always true: the laws of the [`VmapSpace`] and of the [`Frames`], and:
///
/// 1. An area shows exactly its blocks, in their order, and each of them is held for it.
/// 2. A page that belongs to no area, or only to one that was flushed, is inaccessible.
/// 3. Areas on the books do not overlap.
/// 4. The kernel's mappings inside are at most one more than are counted.
///
/// ```
/// use std::sync::Arc;
/// use nofrag_backing::frames::{Frames, FramesConfig};
/// use nofrag_backing::mapped::{Mapped, MappedConfig, VmallocRequest};
///
/// let frames = Arc::new(Frames::new(&FramesConfig::new(64 << 20))?);
/// let owner = frames.owners().by_rank(0).expect("there is one");
/// let mapped = Mapped::new(frames, &MappedConfig::new(1 << 30))?;
/// let area = mapped.vmalloc(owner, &VmallocRequest::new(1_000_000))?;
/// let bytes = mapped.address(area.start()).expect("it is an area's");
/// // SAFETY: the area is ours, and lives on.
/// unsafe { bytes.add(999_999).write(1) };
/// mapped.vfree(owner, area)?;
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Mapped {
    space: VmapSpace<PageMapper>,
    id: u64,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Mapped {
    /// Makes a space over `frames`, with a CPU for each of their owners.
    ///
    /// # Errors
    /// [`MappedError`]; nothing is left behind.
    pub fn new(frames: Arc<Frames>, config: &MappedConfig) -> Result<Mapped, MappedError> {
        let bytes = config.bytes.checked_next_multiple_of(ALIGN as u64);
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok()).ok_or(Errno::NOMEM)?;
        if bytes == 0 {
            return Err(MappedError::Empty);
        }
        let reserved = Reserved::new(bytes, ALIGN)?;
        let (cpus, span) = (frames.owners().clone(), reserved.pages());
        let budget = config.mappings.unwrap_or_else(|| max_map_count() / 2);
        let mapper = PageMapper::new(frames, reserved, budget);
        let config = VmapConfig { span, cpus, policy: config.policy };
        let space = VmapSpace::new(config, mapper, ())?;
        // Relaxed: a unique number; nothing is read by its order.
        Ok(Mapped { space, id: NEXT.fetch_add(1, Ordering::Relaxed) })
    }

    /// Allocates memory at adjacent addresses, as long as enough frames are free, wherever they are. An inaccessible
    /// page follows. Pages are mapped when they are touched first, or by [`populate`](Self::populate).
    ///
    /// # Errors
    /// [`VmallocError`].
    pub fn vmalloc(
        &self,
        owner: CpuId,
        request: &VmallocRequest,
    ) -> Result<VmallocArea, VmallocError> {
        let pages = request.bytes.div_ceil(1 << sys::PAGE);
        let align = if request.grain == Grain::Huge { Order::PAGEBLOCK.pages() } else { 1 };
        let area = self.space.alloc(owner, &AreaRequest::new(pages).align(align))?;
        match self.back(owner, &area, request) {
            Ok(()) => Ok(VmallocArea { area, space: self.id }),
            Err(why) => {
                let freed = self.space.free(owner, area.start);
                freed.expect("it was handed out above, and nobody knows of it");
                Err(why)
            }
        }
    }

    /// Puts frames behind an area.
    fn back(
        &self,
        owner: CpuId,
        area: &Area,
        request: &VmallocRequest,
    ) -> Result<(), VmallocError> {
        let mut blocks = self.gather_anyhow(owner, area.pages, request)?;
        let mapped = match self.back_with(area, &blocks) {
            Err(MapFramesError::MappingBudget { .. }) => {
                self.settle();
                self.back_with(area, &blocks)
            }
            other => other,
        };
        let mapped = match mapped {
            Err(MapFramesError::MappingBudget { .. }) if request.grain == Grain::Page => {
                self.give_back(owner, &blocks);
                let fewer = request.grain(Grain::Largest);
                blocks = self.gather_anyhow(owner, area.pages, &fewer)?;
                self.back_with(area, &blocks)
            }
            other => other,
        };
        if let Err(why) = mapped {
            self.give_back(owner, &blocks);
            return Err(why.into());
        }
        if request.mobility == Mobility::Movable {
            self.set_uses(area.start, Mobility::Movable);
        }
        Ok(())
    }

    fn back_with(&self, area: &Area, blocks: &[FrameBlock]) -> Result<(), MapFramesError> {
        self.mapper().map(area.start.0, area.pages.0, blocks, Owner::Area)
    }

    fn give_back(&self, owner: CpuId, blocks: &[FrameBlock]) {
        self.frames().free_bulk(owner, blocks).expect("they were handed out for this area");
    }

    /// Takes frames; if there are not enough, those of freed areas too.
    fn gather_anyhow(
        &self,
        owner: CpuId,
        pages: PageCount,
        request: &VmallocRequest,
    ) -> Result<Vec<FrameBlock>, FrameError> {
        self.gather(owner, pages, request, Effort::AtHand).or_else(|_| {
            self.settle();
            self.gather(owner, pages, request, Effort::Reclaim)
        })
    }

    /// Takes as many frames as the area has pages, or none, in the order in which they are to be mapped: larger blocks
    /// first, each kind by ascending frames, so that they make few runs.
    fn gather(
        &self,
        owner: CpuId,
        pages: PageCount,
        request: &VmallocRequest,
        effort: Effort,
    ) -> Result<Vec<FrameBlock>, FrameError> {
        let migratetype = match request.mobility {
            Mobility::Pinned => Migratetype::Unmovable,
            Mobility::Movable => Migratetype::Movable,
        };
        let wanted = FrameRequest { order: Order::ZERO, migratetype, fill: request.fill, effort };
        let mut blocks = Vec::new();
        let mut left = pages.0;
        let result = self.gather_large(owner, request.grain, wanted, &mut left, &mut blocks);
        let large = blocks.len();
        let result = result.and_then(|()| self.gather_pages(owner, wanted, left, &mut blocks));
        if let Err(why) = result {
            self.give_back(owner, &blocks);
            return Err(why);
        }
        blocks[..large].sort_unstable_by_key(|block| (Reverse(block.order), block.pfn));
        blocks[large..].sort_unstable_by_key(|block| block.pfn);
        Ok(blocks)
    }

    /// Takes the large blocks that the grain asks for, as far as there are any.
    fn gather_large(
        &self,
        owner: CpuId,
        grain: Grain,
        wanted: FrameRequest,
        left: &mut u64,
        blocks: &mut Vec<FrameBlock>,
    ) -> Result<(), FrameError> {
        let smallest = match grain {
            Grain::Page => return Ok(()),
            Grain::Largest => Order::ZERO,
            Grain::Huge => Order::PAGEBLOCK,
        };
        let largest = if grain == Grain::Huge { Order::PAGEBLOCK } else { Order::MAX };
        let orders =
            smallest.and_larger().rev().filter(|order| (Order::ZERO..=largest).contains(order));
        for order in orders {
            while *left >= order.pages() {
                let request = FrameRequest { order, ..wanted };
                blocks.try_reserve(1).map_err(|_| FrameError::OutOfMetadata)?;
                match self.frames().alloc(owner, request) {
                    Ok(block) => blocks.push(block),
                    Err(FrameError::Exhausted { .. }) => break,
                    Err(why) => return Err(why),
                }
                *left -= order.pages();
            }
        }
        Ok(())
    }

    fn gather_pages(
        &self,
        owner: CpuId,
        wanted: FrameRequest,
        left: u64,
        blocks: &mut Vec<FrameBlock>,
    ) -> Result<(), FrameError> {
        let none = FrameBlock { pfn: Pfn(0), order: Order::ZERO };
        let start = blocks.len();
        // So that a request for more frames than exist does not take memory for its list first.
        if left > self.frames().len().0 {
            return Err(self.frames().exhausted(Order::ZERO));
        }
        blocks.try_reserve_exact(left as usize).map_err(|_| FrameError::OutOfMetadata)?;
        blocks.extend(repeat_n(none, left as usize));
        let got = self.frames().alloc_bulk(owner, wanted, &mut blocks[start..]);
        let got = got.inspect_err(|_| blocks.truncate(start))?;
        blocks.truncate(start + got);
        while blocks.len() < start + left as usize {
            blocks.push(self.frames().alloc(owner, wanted)?);
        }
        Ok(())
    }

    /// Gives memory back. Its frames are free, and its addresses inaccessible, after a flush.
    ///
    /// # Errors
    /// [`VfreeError`] for an area of another space.
    pub fn vfree(&self, owner: CpuId, area: VmallocArea) -> Result<(), VfreeError> {
        if !self.is_mine(&area) {
            return Err(VfreeError(FreeAreaError::Foreign));
        }
        Ok(self.space.free(owner, area.start()).map(drop)?)
    }

    /// Shows the caller's frames at adjacent addresses, in the order of `blocks`, without a guard page. The frames stay
    /// the caller's; frames that it gives back are free when their last mapping has been flushed.
    ///
    /// # Errors
    /// See [`MapRamError`].
    pub fn map_ram(
        &self,
        owner: CpuId,
        blocks: &[FrameBlock],
    ) -> Result<ShownFrames, MapRamError<MapFramesError>> {
        let sum = |sum: u64, block: &FrameBlock| sum.checked_add(block.order.pages());
        let pages = blocks.iter().try_fold(0, sum).unwrap_or(u64::MAX);
        let shown = match self.space.map_ram(owner, pages, blocks) {
            Err(MapRamError::Install(MapFramesError::MappingBudget { .. })) => {
                self.settle();
                self.space.map_ram(owner, pages, blocks)
            }
            other => other,
        };
        Ok(ShownFrames { area: shown?, space: self.id })
    }

    /// Ends a mapping of the caller's frames. They are shown until a flush.
    ///
    /// # Errors
    /// [`UnmapRamError::Foreign`] for a mapping of another space, and [`UnmapRamError::UnknownCpu`].
    pub fn unmap_ram(&self, owner: CpuId, shown: ShownFrames) -> Result<(), UnmapRamError> {
        if shown.space != self.id {
            return Err(UnmapRamError::Foreign);
        }
        self.space.unmap_ram(owner, shown.area)
    }

    /// Flushes everything that was freed: addresses become inaccessible, and frames free.
    pub fn settle(&self) {
        self.space.unmap_aliases();
        self.space.purge_all();
        self.mapper().retry();
    }

    /// Returns the address of a page of the space, valid as long as the space lives; `None` if it has no such page.
    ///
    /// To read or write there is sound in an area that belongs to the caller, and as far as no other thread writes to
    /// it at the same time.
    #[must_use]
    pub fn address(&self, vpn: Vpn) -> Option<*mut u8> {
        self.mapper().reserved.address(vpn).map(<*mut _>::cast)
    }

    /// Maps all pages of an area now, in one call, so that no touch has to.
    ///
    /// # Errors
    /// [`MappedError::Foreign`], and errors of `madvise`; `NOMEM` or `FAULT` when there is no memory.
    pub fn populate(&self, area: &VmallocArea) -> Result<(), MappedError> {
        if !self.is_mine(area) {
            return Err(MappedError::Foreign);
        }
        let start = area.start().0;
        Ok(self.advise(start..start + area.pages().0, Advice::PopulateWrite)?)
    }

    /// Returns true if an area is of this space, and not of one that has or had the same addresses. As it is not given
    /// up yet, it is in use then.
    fn is_mine(&self, area: &VmallocArea) -> bool {
        area.space == self.id
    }

    /// Lets the kernel put huge pages where an area has whole aligned blocks of 2 MiB: returns the number of these
    /// blocks, and of those that have one now. An area of another space has none.
    pub fn collapse(&self, area: &VmallocArea) -> Collapsed {
        let mut collapsed = Collapsed::default();
        if !self.is_mine(area) {
            return collapsed;
        }
        let mut at = area.start().0;
        for block in self.blocks(area.start()) {
            let end = at + block.order.pages();
            for start in (at..end).step_by(Order::PAGEBLOCK.pages() as usize) {
                let whole = Order::PAGEBLOCK.pages();
                if start.is_multiple_of(whole) && start + whole <= end {
                    collapsed.whole += 1;
                    match self.advise(start..start + whole, Advice::Collapse) {
                        Ok(()) => collapsed.huge += 1,
                        Err(error) => collapsed.error = Some(error),
                    }
                }
            }
            at = end;
        }
        collapsed
    }

    fn advise(&self, pages: Range<u64>, advice: Advice) -> Result<(), Errno> {
        self.mapper().reserved.advise(pages, advice)
    }

    /// Returns the blocks of the area that begins at `start`, in the order of addresses; none if there is no such area.
    /// Other processes can map the same by the blocks' offsets in the file; frames that are [`Mobility::Movable`] do
    /// not stay.
    #[must_use]
    pub fn blocks(&self, start: Vpn) -> Vec<FrameBlock> {
        let shown = self.mapper().shown(start);
        shown.map_or_else(Vec::new, |shown| shown.content().blocks.clone())
    }

    /// Keeps the frames of an area where they are, or lets them be moved. A move that has begun is over first. An area
    /// of another space is left alone.
    pub fn set_mobility(&self, area: &VmallocArea, mobility: Mobility) {
        if self.is_mine(area) {
            self.set_uses(area.start(), mobility);
        }
    }

    fn set_uses(&self, start: Vpn, mobility: Mobility) {
        let Some(shown) = self.mapper().shown(start) else { return };
        let content = shown.content();
        let mut vpn = start;
        for block in &content.blocks {
            let used_for = match mobility {
                Mobility::Pinned => Use::Pinned,
                Mobility::Movable => Use::Mapped { vpn },
            };
            // A block that its user has given back by its number is not moved.
            let _ = self.frames().set_use(block.pfn, used_for);
            vpn.0 += block.order.pages();
        }
    }

    /// Exchanges a block of an area for one that was set aside for it: for [`Residents`](crate::frames::Residents).
    /// `exchange` keeps writers away, copies, maps the new block over the old one in one step, and lets writers go on;
    /// or it leaves everything as it was, and returns `false`. Meanwhile the area does not end, and no other user has
    /// the new block; so `exchange` asks for nothing that may move frames. Returns true if the exchange was made.
    pub fn relocate(&self, pair: Move, exchange: impl FnOnce(&Relocation<'_>) -> bool) -> bool {
        let Some(Use::Mapped { vpn }) = self.frames().use_of(pair.from) else { return false };
        let Some(area) = self.space.find(vpn) else { return false };
        self.mapper().exchange(area.start, pair, exchange)
    }

    /// Returns the frames behind the space.
    #[must_use]
    pub fn frames(&self) -> &Arc<Frames> {
        self.mapper().frames()
    }

    /// Returns the pages of the space.
    #[must_use]
    pub fn span(&self) -> Span {
        self.space.span()
    }

    /// Returns the counts of mappings and flushes so far.
    #[must_use]
    pub fn counters(&self) -> MapCounters {
        self.mapper().counters()
    }

    /// Returns the most mappings that areas take at present, and the most that they may take.
    #[must_use]
    pub fn mappings(&self) -> (u64, u64) {
        self.mapper().mappings()
    }

    /// Returns the mapper. Not public: through it any area could be replaced.
    fn mapper(&self) -> &PageMapper {
        self.space.mapper()
    }
}

impl Check for Mapped {
    fn check(&self) -> Result<(), Violation> {
        self.space.check()?;
        self.mapper().check()?;
        self.frames().check()
    }
}

/// Result of [`Mapped::collapse`]: huge pages that could be, and those that are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collapsed {
    /// Places that could have a huge page.
    pub whole: u64,
    pub huge: u64,
    /// The system's last error for a place that has none.
    pub error: Option<Errno>,
}
