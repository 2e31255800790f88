//! `map_ram` and `unmap_ram` of a preset and a list of what is mapped, under the same random steps. The list knows of
//! blocks only what the space reports. The book knows the content behind each page, and which translations are stale.
//!
//! One thread: interleavings are the model checker's.

use super::block_support::{Behind, BlockSpace, Frames, PageBook, Refused, cpu_of};
use super::choices::Choices;
use super::starving::Heap;
use super::vmap_support::span;
use nofrag::check::Check;
use nofrag::cpu::{CpuId, CpuSet};
use nofrag::ranges::{AlignRule, Index, Span};
use nofrag::units::{PageCount, Vpn};
use nofrag::vmap::{
    Area, AreaError, AreaKind, AreaRecord, AreaRequest, AreaState, BlockGeometry, BlockRecord,
    BlockStats, Budget, CpuHandle, FreeAreaError, Guard, HandOverError, Layout, MapRamError, Piece,
    Preset, RamArea, UnmapRamError, VmapStats, Wait,
};
use std::sync::atomic::Ordering;

/// A live mapping, its contents, and the CPU that made it.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    area: RamArea,
    frames: Frames,
    by: CpuId,
}

/// A space, the list of its live mappings, and the choices that drive both.
pub(crate) struct Pair<'a> {
    space: &'a BlockSpace,
    preset: Preset,
    live: Vec<Mapping>,
    /// Areas that `alloc` gave out.
    plain: Vec<(Area, Frames)>,
    /// The last mappings that ended.
    ended: Vec<RamArea>,
    /// By rank, the handle of each CPU that is held.
    handles: Vec<Option<CpuHandle<'a, PageBook>>>,
    pub(crate) choices: Choices<'a>,
    heap: Heap,
    tags: u64,
    handed_over: bool,
    step: u64,
    /// Steps between two full comparisons.
    check_every: u64,
}

/// Everything that a refused operation must leave alone. How much memory records take does not belong to it.
type Books = (Vec<AreaRecord>, Vec<BlockRecord>, BlockStats, VmapStats);

impl<'a> Pair<'a> {
    pub(crate) fn new(
        space: &'a BlockSpace,
        preset: Preset,
        choices: Choices<'a>,
        check_every: u64,
    ) -> Pair<'a> {
        Pair {
            space,
            preset,
            live: Vec::new(),
            plain: Vec::new(),
            ended: Vec::new(),
            handles: space.cpus().iter().map(|_| None).collect(),
            choices,
            heap: Heap::AMPLE,
            tags: 0,
            handed_over: false,
            step: 0,
            check_every,
        }
    }

    /// Returns the same pair with a heap that refuses.
    pub(crate) fn on(self, heap: Heap) -> Pair<'a> {
        Pair { heap, ..self }
    }

    fn geometry(&self) -> BlockGeometry {
        self.preset.policy.blocks.geometry
    }

    fn is_small(&self, pages: u64) -> bool {
        pages <= u64::from(self.geometry().max_pages())
    }

    fn bounds(&self) -> Span {
        self.space.span()
    }

    fn cpu(&mut self) -> CpuId {
        let cpus = self.space.cpus().len() as u64;
        cpu_of(self.space, self.choices.below(cpus) as usize)
    }

    fn frames(&mut self) -> Frames {
        self.tags += 1;
        Frames { tag: self.tags, refused: self.choices.below(50) == 0 }
    }

    fn books(&self) -> Books {
        let (areas, blocks) = (self.space.areas().unwrap(), self.space.blocks().unwrap());
        let sums = BlockStats { metadata_bytes: 0, ..self.space.block_stats() };
        (areas, blocks, sums, self.space.stats())
    }

    /// Returns the mapping that covers page `at`.
    fn covering(&self, at: u64) -> Option<Mapping> {
        self.live.iter().find(|mapping| mapping.area.span().contains(at)).copied()
    }

    /// Returns the plain area that covers page `at`.
    fn plain_at(&self, at: u64) -> Option<Area> {
        self.plain.iter().map(|&(area, _)| area).find(|area| area.span().contains(at))
    }

    /// Returns the block that covers page `at`, as the space reports it.
    fn block_at(&self, at: u64) -> Option<BlockRecord> {
        let slots = u64::from(self.geometry().slots());
        let blocks = self.space.blocks().unwrap();
        blocks.into_iter().find(|block| at.wrapping_sub(block.start.get()) < slots)
    }

    fn map(&mut self) {
        let pages = match self.choices.below(40) {
            0 => 0,
            1 => self.bounds().len() + self.choices.below(3),
            2..=3 => 65 + self.choices.below(240),
            4..=15 => 1 + self.choices.below(4),
            _ => 1 + self.choices.below(64),
        };
        let (by, frames) = (self.cpu(), self.frames());
        let impatient = self.choices.below(4) == 0;
        let held = self.handles[by.rank()].is_some();
        let handle = if impatient { None } else { self.handles[by.rank()].take() };
        let (mut heap, mut space) = (self.heap, self.space);
        match handle {
            Some(mut handle) => {
                let map = |it: &mut CpuHandle<'_, _>| it.map_ram(pages, &frames);
                let outcome = heap.attempt(&mut handle, map, |_| self.compare());
                self.handles[by.rank()] = Some(handle);
                assert_ne!(outcome, Err(MapRamError::CpuHeld), "the caller is the holder");
                self.judge_map(by, pages, frames, outcome);
            }
            _ if impatient => {
                let (books, flushes) = (self.books(), self.flushes());
                let map = |it: &mut &BlockSpace| it.try_map_ram(by, pages, &frames);
                let outcome = heap.attempt(&mut space, map, |_| self.compare());
                assert_eq!(self.flushes(), flushes, "who must not wait does not flush");
                // Ours collects on the way what others have freed.
                let refused = !matches!(outcome, Ok(_) | Err(MapRamError::Install(_)));
                if refused && !self.is_sharded() && heap.is_ample() {
                    assert_eq!(self.books(), books, "nothing changed: {outcome:?}");
                }
                match outcome {
                    Err(MapRamError::WouldBlock) => assert!(pages > 0),
                    Err(MapRamError::CpuHeld) => assert!(held && self.is_sharded()),
                    _ => self.judge_map(by, pages, frames, outcome),
                }
            }
            _ => {
                let map = |it: &mut &BlockSpace| it.map_ram(by, pages, &frames);
                let outcome = heap.attempt(&mut space, map, |_| self.compare());
                self.judge_map(by, pages, frames, outcome);
                if heap.is_ample() {
                    self.judge_exhaustion(by, pages, outcome);
                }
            }
        }
        self.heap = heap;
    }

    fn is_sharded(&self) -> bool {
        self.preset.policy.layout == Layout::Shards
    }

    fn flushes(&self) -> u64 {
        self.space.mapper().flushes.load(Ordering::SeqCst)
    }

    fn judge_map(
        &mut self,
        by: CpuId,
        pages: u64,
        frames: Frames,
        outcome: Result<RamArea, MapRamError<Refused>>,
    ) {
        match outcome {
            Ok(area) => {
                assert!(pages > 0 && !frames.refused);
                self.check_new(Mapping { area, frames, by }, pages);
            }
            Err(MapRamError::ZeroSize) => assert_eq!(pages, 0),
            Err(MapRamError::Install(Refused)) => assert!(frames.refused),
            Err(MapRamError::Exhausted { largest }) => {
                assert!(pages > 0);
                assert_eq!(largest, self.space.stats().largest_hole);
            }
            Err(why) => panic!("{pages} pages: {why}"),
        }
    }

    fn check_new(&mut self, mapping: Mapping, pages: u64) {
        let Mapping { area, by, .. } = mapping;
        assert_eq!(area.pages.get(), pages);
        assert!(self.bounds().covers(area.span()), "{area:?} lies outside the space");
        // That no page was live or stale has been verified by the book, when it was installed.
        if self.is_small(pages) {
            let block = self.block_at(area.start.get()).expect("a small mapping lies in a block");
            assert_eq!(block.owner, by, "{area:?} lies in another CPU's block");
            let last = self.block_at(area.span().end() - 1);
            assert_eq!(last, Some(block), "{area:?} lies in two blocks");
        }
        self.live.push(mapping);
    }

    /// Verifies that a request that may reclaim is refused only when there really is no place for it.
    fn judge_exhaustion(
        &self,
        by: CpuId,
        pages: u64,
        outcome: Result<RamArea, MapRamError<Refused>>,
    ) {
        if !matches!(outcome, Err(MapRamError::Exhausted { .. })) || pages > self.bounds().len() {
            return;
        }
        assert!(self.handles[by.rank()].is_none(), "a held CPU is refused at once");
        if self.handles.iter().any(Option::is_some) {
            return; // whose blocks, and what it has freed, nobody else can purge
        }
        assert_eq!(self.space.lazy_pages(), PageCount(0), "everything was purged");
        let slots = u64::from(self.geometry().slots());
        let (size, align) = if self.is_small(pages) { (slots, slots) } else { (pages, 1) };
        // Linux's search for an aligned place pads the size, up to 5.15 for an alignment of one page too; before 5.2 it
        // does not go back for a hole that is exactly as long as the longest one that it has passed.
        let index = self.preset.policy.index;
        let pads_for_one =
            [Index::CachedScan, Index::AugmentedTree(AlignRule::Padded)].contains(&index);
        let pads = !self.is_sharded() && (align > 1 || pads_for_one);
        let size = if pads { size + align } else { size };
        let place = self.free_runs().into_iter().find(|run| run.lowest_fit(size, align).is_some());
        assert_eq!(place, None, "{}: {pages} pages were refused", self.preset.name);
    }

    /// Returns the runs that a full purge makes free: everything but mappings, areas, and blocks in which something is
    /// mapped.
    fn free_runs(&self) -> Vec<Span> {
        let slots = u64::from(self.geometry().slots());
        let small = self.live.iter().filter(|mapping| self.is_small(mapping.area.pages.get()));
        let blocks = small.map(|mapping| span(mapping.area.start.get() / slots * slots, slots));
        let large = self.live.iter().map(|mapping| mapping.area.span());
        let plain = self.plain.iter().map(|(area, _)| area.span());
        let mut taken: Vec<Span> = blocks.chain(large).chain(plain).collect();
        taken.sort_unstable();
        let mut runs = Vec::new();
        let mut free_from = self.bounds().start();
        for span in taken {
            runs.extend(Span::new(free_from, span.start().max(free_from)));
            free_from = free_from.max(span.end());
        }
        runs.extend(Span::new(free_from, self.bounds().end()));
        runs
    }

    fn unmap(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let at = self.choices.below(self.live.len() as u64) as usize;
        let Mapping { area, .. } = self.live.swap_remove(at);
        let by = self.cpu();
        // No caller can do anything about an unmapping that is refused memory, so none is.
        let outcome = self.heap.run(|| match &mut self.handles[by.rank()] {
            Some(handle) => handle.unmap_ram(area),
            None => self.space.unmap_ram(by, area),
        });
        assert_eq!(outcome, Ok(()), "{area:?}");
        if self.block_at(area.start.get()).is_some() {
            let known = [UnmapRamError::DoubleUnmap, UnmapRamError::NotMapped];
            // A flush on the way may have made the pages free again.
            let stale = matches!(self.space.mapper().behind(area.start.get()), Behind::Stale(_));
            // A handle alone knows what it keeps.
            let is_kept = self.handles.iter().any(Option::is_some);
            self.check_refusal(area, if stale && !is_kept { &known[..1] } else { &known });
        }
        if self.ended.len() == 8 {
            self.ended.remove(0);
        }
        self.ended.push(area);
    }

    /// Verifies that unmapping `area` is refused for one of the `expected` reasons, and changes nothing.
    fn check_refusal(&mut self, area: RamArea, expected: &[UnmapRamError]) {
        let by = self.cpu();
        let books = self.books();
        let refusal = match &mut self.handles[by.rank()] {
            Some(handle) => handle.unmap_ram(area),
            None => self.space.unmap_ram(by, area),
        };
        let refusal = refusal.expect_err("it is not mapped like that");
        assert!(expected.contains(&refusal), "{area:?}: {refusal:?} instead of {expected:?}");
        assert_eq!(self.books(), books, "{area:?} was refused, and something changed");
    }

    fn wrong_unmap(&mut self) {
        let pages = PageCount(match self.choices.below(6) {
            0 => 0,
            1 => u64::MAX - self.choices.below(100),
            2 => 65 + self.choices.below(200),
            _ => 1 + self.choices.below(64),
        });
        let at = match self.choices.below(8) {
            0 => self.bounds().start().wrapping_sub(1 + self.choices.below(2000)),
            1 => self.bounds().end().wrapping_add(self.choices.below(2000)),
            2 if !self.ended.is_empty() => {
                self.ended[self.choices.below(self.ended.len() as u64) as usize].start.get()
            }
            3..=6 if !self.live.is_empty() => {
                let area = self.live[self.choices.below(self.live.len() as u64) as usize].area;
                let inside = self.choices.below(area.pages.get());
                area.start.get() + if self.choices.below(2) == 0 { inside } else { 0 }
            }
            _ => self.bounds().start() + self.choices.below(self.bounds().len()),
        };
        let area = RamArea { start: Vpn(at), pages };
        let inside = at.checked_add(pages.get()).is_some_and(|end| end <= self.bounds().end());
        let mut expected = match self.covering(at) {
            _ if !self.bounds().contains(at) => vec![UnmapRamError::Foreign],
            Some(mapping) if mapping.area == area => return,
            Some(Mapping { area, .. }) if area.start.get() == at => {
                vec![UnmapRamError::WrongSize { pages: area.pages }]
            }
            Some(Mapping { area, .. }) => vec![UnmapRamError::NotAStart { start: area.start }],
            None if self.plain_at(at).is_some() => vec![UnmapRamError::NotMapped],
            None => vec![UnmapRamError::NotMapped, UnmapRamError::DoubleUnmap],
        };
        if !inside {
            expected.push(UnmapRamError::Foreign); // either reason is one
        }
        self.check_refusal(area, &expected);
    }

    /// Verifies that a CPU of another, larger set is refused.
    fn unknown_cpu(&mut self) {
        let stranger = CpuSet::first(64).unwrap().by_rank(40).unwrap();
        let (books, frames) = (self.books(), self.frames());
        for pages in [1, 100] {
            let outcome = self.space.map_ram(stranger, pages, &frames);
            assert_eq!(outcome, Err(MapRamError::UnknownCpu));
        }
        if let Some(mapping) = self.live.first() {
            let outcome = self.space.unmap_ram(stranger, mapping.area);
            assert_eq!(outcome, Err(UnmapRamError::UnknownCpu));
        }
        assert_eq!(self.books(), books);
    }

    fn alloc(&mut self) {
        let (by, frames) = (self.cpu(), Frames::new(self.tags + 1));
        self.tags += 1;
        let request = AreaRequest::new(1 + self.choices.below(90));
        let request = if self.choices.below(3) == 0 { request.guard(Guard::None) } else { request };
        let request = if self.choices.below(3) == 0 { request.wait(Wait::Never) } else { request };
        let outcome = match &mut self.handles[by.rank()] {
            Some(handle) => handle.alloc(&request),
            None => self.space.alloc(by, &request),
        };
        match outcome {
            Ok(area) => {
                self.space.mapper().fill(area.span(), frames);
                self.plain.push((area, frames));
            }
            Err(AreaError::Exhausted { .. } | AreaError::WouldBlock) => {}
            Err(why) => panic!("{request:?}: {why}"),
        }
    }

    fn free(&mut self) {
        if self.plain.is_empty() {
            return;
        }
        let at = self.choices.below(self.plain.len() as u64) as usize;
        let (area, _) = self.plain.swap_remove(at);
        let by = self.cpu();
        assert_eq!(self.space.free(by, area.start), Ok(area));
    }

    /// Frees at a random page, and verifies that only the start of a plain area is accepted.
    fn free_at(&mut self) {
        let (by, at) =
            (self.cpu(), self.bounds().start() + self.choices.below(self.bounds().len()));
        let outcome = self.space.free(by, Vpn(at));
        match self.plain_at(at) {
            Some(area) if area.start.get() == at => {
                assert_eq!(outcome, Ok(area));
                self.plain.retain(|&(other, _)| other != area);
            }
            Some(Area { start, .. }) => {
                assert_eq!(outcome, Err(FreeAreaError::NotAStart { start }));
            }
            None => assert!(outcome.is_err(), "page {at:#x}: {outcome:?}"),
        }
    }

    /// Verifies that a mapping of `map_ram` is not freed as a plain area.
    fn wrong_free(&mut self) {
        let by = self.cpu();
        let Some(&Mapping { area, .. }) = self.live.first() else { return };
        let books = self.books();
        let refusal = self.space.free(by, area.start).expect_err("it is no plain area");
        if !self.is_small(area.pages.get()) {
            assert_eq!(refusal, FreeAreaError::IsRam);
        }
        assert_eq!(self.books(), books);
    }

    fn toggle_handle(&mut self) {
        let by = self.cpu();
        match self.handles[by.rank()].take() {
            Some(handle) => drop(handle),
            None => self.handles[by.rank()] = Some(self.space.cpu(by).unwrap()),
        }
    }

    fn hand_over(&mut self) {
        let (from, to) = (self.cpu(), self.cpu());
        let held = [from, to].iter().any(|cpu| self.handles[cpu.rank()].is_some());
        match self.space.hand_over(from, to) {
            Err(why) => assert!(why == HandOverError::Held && (held || from == to)),
            Ok(count) => {
                assert!(!held && from != to);
                let blocks = self.space.blocks().unwrap();
                let of = |cpu| blocks.iter().filter(|block| block.owner == cpu).count() as u64;
                assert!(count <= of(to));
                self.handed_over |= count > 0;
                assert!(!self.is_sharded() || of(from) == 0, "{blocks:?}");
            }
        }
    }

    fn flush_aliases(&mut self) {
        self.space.unmap_aliases();
        let stale = self.space.mapper().all().find(|(_, it)| matches!(it, Behind::Stale(_)));
        assert_eq!(stale, None, "every stale translation is flushed");
    }

    fn find(&mut self, at: u64) {
        let found = self.space.find(Vpn(at));
        let expected = match self.covering(at) {
            Some(Mapping { area: RamArea { start, pages }, by, .. }) => {
                // A block that was handed over is known by the CPU that took it.
                let handed = self.handed_over && self.is_small(pages.get());
                let cpu = if handed { found.map_or(by, |area| area.cpu) } else { by };
                Some(Area { start, pages, guard: Guard::None, cpu })
            }
            None => self.plain_at(at),
        };
        assert_eq!(found, expected, "page {at:#x}");
    }

    fn find_some(&mut self) {
        let anywhere = self.choices.below(self.bounds().len() + 20);
        self.find(self.bounds().start().wrapping_sub(10).wrapping_add(anywhere));
        if let Some(&Mapping { area, .. }) = self.live.last() {
            self.find(area.start.get());
            self.find(area.span().end() - 1);
        }
    }

    /// Verifies that a reader of `range` copies, page by page, a mapping's content, or zero.
    fn read(&mut self) {
        let start = self.bounds().start() + self.choices.below(self.bounds().len());
        let Ok(range) = Span::sized(start, 1 + self.choices.below(400)) else { return };
        let mut told = range.start();
        let mut copy = Vec::new();
        self.space.read(range, |piece| {
            let (Piece::Live(part) | Piece::Hole(part)) = piece;
            assert_eq!(part.start(), told, "pieces ascend without gaps");
            told = part.end();
            copy.extend((part.start()..part.end()).map(|at| match piece {
                Piece::Hole(_) => 0,
                Piece::Live(_) => match self.space.mapper().behind(at) {
                    Behind::Content(content) => content,
                    other => panic!("page {at:#x} is told as live, but is {other:?}"),
                },
            }));
        });
        assert_eq!(told, range.end(), "the pieces tile the range");
        let expected = (range.start()..range.end()).map(|at| match self.covering(at) {
            Some(it) => it.frames.content(at - it.area.start.get()),
            None => 0,
        });
        assert!(expected.eq(copy), "{range:?} reads wrong");
    }

    /// Compares the space's reports of its blocks with the mappings.
    fn compare_blocks(&self) {
        let slots = u64::from(self.geometry().slots());
        let blocks = self.space.blocks().unwrap();
        let mut sums = BlockStats { blocks: blocks.len() as u64, ..BlockStats::default() };
        for block in &blocks {
            assert_eq!(block.start.get() % slots, 0, "{block:?} is aligned to its size");
            assert!(self.bounds().covers(span(block.start.get(), slots)), "{block:?}");
            let all = u64::from(block.free) + u64::from(block.dirty) + u64::from(block.live);
            assert_eq!(all, slots, "{block:?}");
            assert!(self.space.cpus().iter().any(|cpu| cpu == block.owner), "{block:?}");
            let live = self.live.iter().map(|mapping| mapping.area).filter(|area| {
                area.start.get().wrapping_sub(block.start.get()) < slots
                    && self.is_small(area.pages.get())
            });
            let classes = self.preset.policy.blocks.classes;
            let live: u32 = live.map(|area| classes.round(area.pages.get() as u32)).sum();
            assert_eq!(block.live, live, "{block:?}");
            sums.free_pages += u64::from(block.free);
            sums.dirty_pages += u64::from(block.dirty);
            sums.live_pages += u64::from(block.live);
        }
        let BlockStats { listed_longest, metadata_bytes, .. } = self.space.block_stats();
        let expected = BlockStats { listed_longest, metadata_bytes, ..sums };
        assert_eq!(self.space.block_stats(), expected);
        let areas = self.space.areas().unwrap();
        let busy = |kind| {
            let of_kind = areas.iter().filter(move |record: &&AreaRecord| {
                record.state == AreaState::Busy && record.kind == kind
            });
            of_kind.map(|record| record.area.start).collect::<Vec<_>>()
        };
        let starts: Vec<Vpn> = blocks.iter().map(|block| block.start).collect();
        assert_eq!(busy(AreaKind::Block), starts);
        let mut large: Vec<Vpn> = self
            .live
            .iter()
            .map(|mapping| mapping.area)
            .collect::<Vec<_>>()
            .into_iter()
            .filter(|area| !self.is_small(area.pages.get()))
            .map(|area| area.start)
            .collect();
        large.sort_unstable();
        assert_eq!(busy(AreaKind::Ram), large);
        let mut plain: Vec<Vpn> = self.plain.iter().map(|(area, _)| area.start).collect();
        plain.sort_unstable();
        assert_eq!(busy(AreaKind::Plain), plain);
    }

    /// Compares the content behind each page with the mappings.
    fn compare_pages(&self) {
        let mut contents = vec![None; self.bounds().len() as usize];
        let mappings = self.live.iter().map(|mapping| (mapping.area.span(), mapping.frames));
        let plain = self.plain.iter().map(|&(area, frames)| (area.span(), frames));
        for (area, frames) in mappings.chain(plain) {
            let first = (area.start() - self.bounds().start()) as usize;
            for index in 0..area.len() {
                contents[first + index as usize] = Some(frames.content(index));
            }
        }
        for ((at, behind), expected) in self.space.mapper().all().zip(contents) {
            let content = match behind {
                Behind::Content(content) => Some(content),
                Behind::Nothing | Behind::Stale(_) => None,
            };
            assert_eq!(content, expected, "page {at:#x}");
        }
    }

    fn compare(&self) {
        if let Err(broken) = self.space.check() {
            panic!("{broken}");
        }
        self.compare_blocks();
        self.compare_pages();
    }

    /// Does one step; panics when space and list differ by more than the preset allows.
    pub(crate) fn step(&mut self) {
        // The space fills up and empties in turn.
        let fills = (self.step / 150).is_multiple_of(2);
        match self.choices.below(100) {
            0..=31 => self.map(),
            32..=45 if fills => self.map(),
            32..=65 => self.unmap(),
            66..=77 => self.wrong_unmap(),
            78..=82 => self.alloc(),
            83..=88 => self.free(),
            89..=91 => self.read(),
            92..=93 => self.toggle_handle(),
            94 => self.hand_over(),
            95 => self.flush_aliases(),
            96 => {
                self.heap.run(|| self.space.purge_all());
                let lazy = self.space.lazy_pages().get();
                let held = self.handles.iter().any(Option::is_some);
                let excused = held || !self.heap.is_ample();
                assert!(lazy == 0 || excused, "a full purge leaves nothing lazy");
            }
            97 if self.choices.one_in(2) => self.free_at(),
            97 => drop(self.space.step(Budget { areas: 1 + self.step as usize % 5 })),
            98 => self.wrong_free(),
            _ => self.unknown_cpu(),
        }
        self.find_some();
        if self.step.is_multiple_of(self.check_every) {
            self.compare();
        }
        self.step += 1;
    }

    /// Ends all mappings and areas, and verifies that all space comes back and nothing is stale.
    pub(crate) fn end(mut self) {
        self.handles.iter_mut().for_each(|handle| *handle = None);
        let by = cpu_of(self.space, 0);
        for Mapping { area, .. } in std::mem::take(&mut self.live) {
            self.space.unmap_ram(by, area).unwrap();
        }
        for (area, _) in std::mem::take(&mut self.plain) {
            self.space.free(by, area.start).unwrap();
        }
        self.space.purge_all();
        self.compare();
        assert_eq!(self.space.block_stats().blocks, 0, "no block is left");
        let stats = self.space.stats();
        assert_eq!((stats.holes, stats.largest_hole), (1, self.bounds().len()));
        assert!(!self.space.mapper().has_stale_pages());
    }
}
