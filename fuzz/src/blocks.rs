//! Random small mappings under each preset, against a list of what is mapped.
//!
//! One thread: interleavings are the model checker's. Behind the space stands a mapper that knows what is behind each
//! page, and whose flushes complete late, so that handing a page out too early is seen at once.

use std::cell::RefCell;
use std::collections::BTreeMap;

use arbitrary::{Arbitrary, Unstructured};
use nofrag::check::Check;
use nofrag::cpu::{CpuId, CpuSet};
use nofrag::ranges::Span;
use nofrag::units::{PageCount, Vpn};
use nofrag::vmap::{
    Area, AreaRequest, BlockGeometry, BlockPolicy, Budget, CpuHandle, Epoch, FreeAreaError,
    LazyLimit, MapRamError, Mapper, Piece, RamArea, UnmapRamError, VmapConfig, VmapPolicy,
    VmapSpace,
};

use crate::steps;

/// Runs the operations in `data` on the preset and the geometry that its first two bytes choose; panics when a promise
/// is broken.
pub fn run(data: &[u8]) {
    let [choice, shape, rest @ ..] = data else { return };
    let presets: Vec<_> = VmapPolicy::presets().collect();
    let preset = presets[usize::from(*choice) % presets.len()];
    let (slots, max_pages) = [(64, 32), (128, 64), (16, 8)][usize::from(shape % 3)];
    let geometry = BlockGeometry::new(slots, max_pages).expect("these are powers of two");
    let policy = VmapPolicy {
        // A low limit, so that short inputs reach the purge too.
        lazy_limit: LazyLimit::Pages(u64::from(*choice)),
        blocks: BlockPolicy { geometry, ..preset.policy.blocks },
        ..preset.policy
    };
    let cpus = CpuSet::new([0, 2, 5]).expect("there is memory enough");
    // Neither begins nor ends where a block does.
    let span = Span::sized(0x105, u64::from(slots) * 6).expect("the space is not empty");
    let config = VmapConfig { span, cpus, policy };
    let book = Book { lag: u32::from(shape / 3 % 4), ..Book::default() };
    let space = VmapSpace::new(config, book, ()).expect("the policy is sound");
    let (live, areas, is_exact) = (Vec::new(), Vec::new(), preset.name == "nofrag");
    let mut driver = Driver { space: &space, is_exact, handle: None, live, areas };
    driver.run(rest);
    driver.end();
}

/// What is behind a page; nothing if it has no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    /// It is mapped.
    Live,
    /// It was cleared when so many flushes had begun.
    Stale(u64),
}

#[derive(Debug, Default)]
struct Pages {
    behind: BTreeMap<u64, Behind>,
    /// The flushes that have not completed, by number.
    under_way: BTreeMap<u64, Vec<Span>>,
    begun: u64,
    asked: u32,
}

impl Pages {
    fn map(&mut self, area: Span) {
        for page in area.start()..area.end() {
            let before = self.behind.insert(page, Behind::Live);
            assert_eq!(before, None, "page {page:#x} of {area:?} was handed out too early");
        }
    }

    fn complete_oldest(&mut self) {
        let Some((number, ranges)) = self.under_way.pop_first() else { return };
        self.asked = 0;
        self.behind.retain(|&page, behind| match *behind {
            Behind::Stale(begun) => begun >= number || !ranges.iter().any(|it| it.contains(page)),
            Behind::Live => true,
        });
    }
}

/// Every flush completes when somebody has asked for it more than `lag` times.
#[derive(Debug, Default)]
struct Book {
    pages: RefCell<Pages>,
    lag: u32,
}

impl Mapper for Book {
    /// Whether to refuse.
    type Context = bool;
    type Error = ();

    fn install(&self, area: RamArea, refused: &bool) -> Result<(), ()> {
        self.pages.borrow_mut().map(area.span());
        if *refused { Err(()) } else { Ok(()) }
    }

    fn clear(&self, area: Span) {
        let mut pages = self.pages.borrow_mut();
        let now = Behind::Stale(pages.begun);
        for page in area.start()..area.end() {
            let before = pages.behind.insert(page, now);
            assert_eq!(before, Some(Behind::Live), "page {page:#x} of {area:?} was cleared");
        }
    }

    fn flush(&self, ranges: &[Span]) -> Epoch {
        assert!(ranges.windows(2).all(|pair| pair[0].end() <= pair[1].start()), "{ranges:?}");
        let mut pages = self.pages.borrow_mut();
        pages.begun += 1;
        let epoch = pages.begun;
        pages.under_way.insert(epoch, ranges.to_vec());
        if self.lag == 0 {
            pages.complete_oldest();
        }
        Epoch(epoch)
    }

    fn completed(&self) -> Epoch {
        let mut pages = self.pages.borrow_mut();
        pages.asked += 1;
        if pages.asked > self.lag {
            pages.complete_oldest();
        }
        let oldest = pages.under_way.keys().next().copied();
        Epoch(oldest.map_or(pages.begun, |oldest| oldest - 1))
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Step {
    Map {
        cpu: u8,
        pages: u8,
        how: u8,
    },
    Unmap {
        cpu: u8,
        which: u8,
    },
    /// Claims something about a page.
    Claim {
        cpu: u8,
        page: u16,
        pages: u8,
    },
    /// Claims something about the first or the second page of a mapping.
    ClaimNear {
        cpu: u8,
        which: u8,
        pages: u8,
        second: bool,
    },
    /// Takes the fast path of a CPU, or gives the one that is out back.
    Handle {
        cpu: u8,
    },
    Alloc {
        cpu: u8,
        pages: u8,
    },
    Free {
        cpu: u8,
        which: u8,
    },
    FreeAt {
        cpu: u8,
        page: u16,
    },
    Find {
        page: u16,
    },
    Read {
        page: u16,
        pages: u16,
    },
    Aliases,
    Purge {
        areas: u8,
    },
    PurgeAll,
}

/// So many steps of one input are run.
const MOST_STEPS: usize = 400;

struct Driver<'a> {
    space: &'a VmapSpace<Book>,
    /// Whether an existing place is never missed.
    is_exact: bool,
    /// The one that is out.
    handle: Option<CpuHandle<'a, Book>>,
    /// What is mapped.
    live: Vec<(RamArea, CpuId)>,
    /// Plain areas.
    areas: Vec<Area>,
}

impl Driver<'_> {
    fn run(&mut self, data: &[u8]) {
        let mut input = Unstructured::new(data);
        for _ in 0..MOST_STEPS {
            if input.is_empty() {
                break;
            }
            let Ok(step) = Step::arbitrary(&mut input) else { break };
            steps::count();
            self.step(step);
            self.compare();
        }
    }

    fn cpu(&self, byte: u8) -> CpuId {
        let cpus = self.space.cpus();
        cpus.by_rank(usize::from(byte) % cpus.len()).expect("the rank is below the count")
    }

    fn page(&self, number: u16) -> u64 {
        self.space.span().start() - 10 + u64::from(number) % (self.space.span().len() + 20)
    }

    fn max_small(&self) -> u64 {
        u64::from(self.space.policy().blocks.geometry.max_pages())
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Map { cpu, pages, how } => self.map(cpu, u64::from(pages % 80), how),
            Step::Unmap { cpu, which } => self.unmap(cpu, which),
            Step::Claim { cpu, page, pages } => {
                let (start, pages) = (Vpn(self.page(page)), PageCount(pages.into()));
                self.claim(cpu, RamArea { start, pages });
            }
            Step::ClaimNear { cpu, which, pages, second } => {
                let Some(&(area, _)) = self.live.get(usize::from(which)) else { return };
                let start = Vpn(area.start.get() + u64::from(second));
                self.claim(cpu, RamArea { start, pages: PageCount(pages.into()) });
            }
            Step::Handle { cpu } => match self.handle.take() {
                Some(handle) => drop(handle),
                None => self.handle = Some(self.space.cpu(self.cpu(cpu)).expect("none is out")),
            },
            Step::Alloc { cpu, pages } => {
                let request = AreaRequest::new(1 + u64::from(pages % 40));
                if let Ok(area) = self.space.alloc(self.cpu(cpu), &request) {
                    self.space.mapper().pages.borrow_mut().map(area.span());
                    self.areas.push(area);
                }
            }
            Step::Free { cpu, which } => {
                if self.areas.is_empty() {
                    return;
                }
                let area = self.areas.swap_remove(usize::from(which) % self.areas.len());
                assert_eq!(self.space.free(self.cpu(cpu), area.start), Ok(area));
            }
            Step::FreeAt { cpu, page } => self.free_at(cpu, self.page(page)),
            Step::Find { page } => self.find(self.page(page)),
            Step::Read { page, pages } => {
                let range = Span::sized(self.page(page), 1 + u64::from(pages % 700));
                self.read(range.expect("the range has a page"));
            }
            Step::Aliases => {
                self.space.unmap_aliases();
                let pages = self.space.mapper().pages.borrow();
                let fresh = pages.behind.values().all(|behind| *behind == Behind::Live);
                assert!(fresh, "a stale translation survived: {pages:?}");
            }
            Step::Purge { areas } => drop(self.space.step(Budget { areas: areas.into() })),
            Step::PurgeAll => {
                self.space.purge_all();
                assert_eq!(self.space.lazy_pages().get(), 0, "a full purge leaves nothing lazy");
            }
        }
    }

    fn map(&mut self, cpu: u8, pages: u64, how: u8) {
        let by = self.cpu(cpu);
        let refused = how.is_multiple_of(16);
        let (by, outcome) = match &mut self.handle {
            Some(handle) if how % 4 == 1 => (handle.cpu(), handle.map_ram(pages, &refused)),
            _ if how % 4 == 2 => (by, self.space.try_map_ram(by, pages, &refused)),
            _ => (by, self.space.map_ram(by, pages, &refused)),
        };
        match outcome {
            Ok(area) => {
                assert!(pages > 0 && !refused && area.pages.get() == pages, "{area:?}");
                assert!(self.space.span().covers(area.span()), "{area:?}");
                self.live.push((area, by));
            }
            Err(MapRamError::ZeroSize) => assert_eq!(pages, 0),
            Err(MapRamError::Install(())) => assert!(refused),
            Err(MapRamError::CpuHeld) => assert!(self.handle.is_some()),
            Err(MapRamError::WouldBlock) => assert_eq!(how % 4, 2),
            Err(MapRamError::Exhausted { .. }) => self.judge_exhaustion(pages, how % 4 == 2),
            Err(why) => panic!("{pages} pages: {why:?}"),
        }
    }

    /// Refused although it may wait: then blocks of others hold every place. Linux may miss one.
    fn judge_exhaustion(&self, pages: u64, impatient: bool) {
        if impatient || !self.is_exact || self.handle.is_some() {
            return;
        }
        let slots = u64::from(self.space.policy().blocks.geometry.slots());
        let (size, align) = if pages <= self.max_small() { (slots, slots) } else { (pages, 1) };
        let holes = self.space.holes().expect("there is memory enough");
        let place = holes.into_iter().find(|hole| hole.lowest_fit(size, align).is_some());
        assert_eq!(place, None, "{pages} pages were refused");
    }

    fn unmap(&mut self, cpu: u8, which: u8) {
        if self.live.is_empty() {
            return;
        }
        let (area, _) = self.live.swap_remove(usize::from(which) % self.live.len());
        let by = self.cpu(cpu);
        let outcome = match &mut self.handle {
            Some(handle) if which.is_multiple_of(2) => handle.unmap_ram(area),
            _ => self.space.unmap_ram(by, area),
        };
        assert_eq!(outcome, Ok(()), "{area:?}");
    }

    fn covering(&self, page: u64) -> Option<(RamArea, CpuId)> {
        self.live.iter().find(|(area, _)| area.span().contains(page)).copied()
    }

    /// Claims that `area` is mapped, which may even be so.
    fn claim(&mut self, cpu: u8, area: RamArea) {
        let span = self.space.span();
        let outcome = self.space.unmap_ram(self.cpu(cpu), area);
        let start = area.start.get();
        match (self.covering(start), outcome) {
            (_, Err(UnmapRamError::Foreign)) => {
                let inside = span.contains(start) && start + area.pages.get() <= span.end();
                assert!(!inside, "{area:?} lies inside");
            }
            (Some((mapping, _)), Ok(())) => {
                assert_eq!(mapping, area);
                self.live.retain(|&(other, _)| other != area);
            }
            (Some((mapping, _)), Err(UnmapRamError::WrongSize { pages })) => {
                assert!(mapping.start == area.start && mapping.pages != area.pages);
                assert_eq!(pages, mapping.pages);
            }
            (Some((mapping, _)), Err(UnmapRamError::NotAStart { start })) => {
                assert!(mapping.start == start && start != area.start);
            }
            (None, Err(UnmapRamError::NotMapped | UnmapRamError::DoubleUnmap)) => {}
            (mapping, outcome) => panic!("{area:?} with {mapping:?}: {outcome:?}"),
        }
    }

    fn free_at(&mut self, cpu: u8, page: u64) {
        let outcome = self.space.free(self.cpu(cpu), Vpn(page));
        let area = self.areas.iter().position(|area| area.span().contains(page));
        match area.map(|at| (at, self.areas[at])) {
            Some((at, area)) if area.start.get() == page => {
                assert_eq!(outcome, Ok(area));
                self.areas.swap_remove(at);
            }
            Some((_, Area { start, .. })) => {
                assert_eq!(outcome, Err(FreeAreaError::NotAStart { start }));
            }
            None => assert!(outcome.is_err(), "page {page:#x}: {outcome:?}"),
        }
    }

    fn find(&self, page: u64) {
        let found = self.space.find(Vpn(page));
        match self.covering(page) {
            Some((area, by)) => {
                let found = found.expect("every live mapping is found");
                assert_eq!((found.start, found.pages, found.cpu), (area.start, area.pages, by));
            }
            None => {
                let area = self.areas.iter().find(|area| area.span().contains(page));
                assert_eq!(found, area.copied(), "page {page:#x}");
            }
        }
    }

    fn read(&self, range: Span) {
        let mut told = range.start();
        self.space.read(range, |piece| {
            let (Piece::Live(part) | Piece::Hole(part)) = piece;
            assert_eq!(part.start(), told, "pieces ascend without gaps");
            told = part.end();
            for page in part.start()..part.end() {
                let mapped = self.covering(page).is_some();
                assert_eq!(matches!(piece, Piece::Live(_)), mapped, "page {page:#x}: {piece:?}");
            }
        });
        assert_eq!(told, range.end(), "the pieces tile the range");
    }

    /// Panics when the space's books differ from the list.
    fn compare(&self) {
        if let Err(violation) = self.space.check() {
            panic!("{violation}");
        }
        let geometry = self.space.policy().blocks.geometry;
        let classes = self.space.policy().blocks.classes;
        let small = self.live.iter().map(|(area, _)| area.pages.get());
        let small = small.filter(|&pages| pages <= self.max_small());
        let live: u64 = small.map(|pages| u64::from(classes.round(pages as u32))).sum();
        let stats = self.space.block_stats();
        assert_eq!(stats.live_pages, live, "live pages of blocks");
        let all = stats.live_pages + stats.dirty_pages + stats.free_pages;
        assert_eq!(all, stats.blocks * u64::from(geometry.slots()), "pages of blocks");
        let pages = self.space.mapper().pages.borrow();
        let live = pages.behind.values().filter(|behind| **behind == Behind::Live).count() as u64;
        let mapped: u64 = self.live.iter().map(|(area, _)| area.pages.get()).sum();
        let areas: u64 = self.areas.iter().map(|area| area.total_pages().get()).sum();
        assert_eq!(live, mapped + areas, "what is mapped");
    }

    /// Ends everything: all space comes back.
    fn end(mut self) {
        self.handle = None;
        let by = self.cpu(0);
        for (area, _) in self.live.drain(..) {
            assert_eq!(self.space.unmap_ram(by, area), Ok(()), "{area:?}");
        }
        for area in self.areas.drain(..) {
            assert_eq!(self.space.free(by, area.start), Ok(area));
        }
        self.space.purge_all();
        assert_eq!(self.space.stats().largest_hole, self.space.span().len(), "pages leaked");
        assert_eq!(self.space.mapper().pages.borrow().behind.len(), 0, "pages are left");
    }
}
