//! The random driver of threads on a space with blocks: they map, hand their mappings to each other, unmap mappings of
//! others, flush and purge, while the book watches each page. For threads at full speed, for schedules by a seed, and
//! for every interleaving of short programs.

use super::block_support::{
    Behind, BlockSpace, Frames, PageBook, block_space, cpu_of, gappy_cpus, last_clear,
};
use super::choices::Random;
use nofrag::check::Check;
use nofrag::ranges::Span;
use nofrag::units::{PageCount, Vpn};
use nofrag::vmap::{
    Area, AreaError, AreaRequest, Budget, CpuHandle, Guard, MapRamError, Piece, RamArea,
    UnmapRamError, VmapPolicy,
};
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(loom)]
use loom::sync::Mutex;
#[cfg(not(loom))]
use std::sync::Mutex;

/// A mapping or an area on its way to the thread that ends it.
#[derive(Clone, Copy, Debug)]
enum Parcel {
    Mapping { area: Area, frames: Frames },
    Plain(Area),
}

pub(crate) struct Town {
    space: BlockSpace,
    post: Mutex<Vec<Parcel>>,
    tags: AtomicU64,
}

/// The state of one thread.
pub(crate) struct Citizen<'a> {
    town: &'a Town,
    /// The rank of its CPU.
    rank: usize,
    random: Random,
    handle: Option<CpuHandle<'a, PageBook>>,
    /// The last mappings that it ended, and when they were cleared.
    ended: Vec<(Span, u64)>,
}

impl Town {
    pub(crate) fn new(
        policy: VmapPolicy,
        bounds: Span,
        book: impl FnOnce(PageBook) -> PageBook,
    ) -> Town {
        let book = book(PageBook::new(bounds, 2));
        let space = block_space(policy, gappy_cpus(), book);
        Town { space, post: Mutex::new(Vec::new()), tags: AtomicU64::new(1) }
    }

    fn take_parcel(&self, random: &mut Random) -> Option<Parcel> {
        let mut post = self.post.lock().unwrap();
        let at = random.below(post.len().max(1) as u64) as usize;
        (at < post.len()).then(|| post.swap_remove(at))
    }

    fn send(&self, parcel: Parcel) {
        self.post.lock().unwrap().push(parcel);
    }

    /// Verifies that a mapping's pages still have its contents.
    fn check_contents(&self, area: Area, frames: Frames) {
        for (index, at) in (area.span().start()..area.span().end()).enumerate() {
            let content = Behind::Content(frames.content(index as u64));
            assert_eq!(self.space.mapper().behind(at), content, "page {at:#x} of {area:?}");
        }
    }

    /// Does what the choices say, for the CPU of this rank.
    pub(crate) fn live(&self, rank: usize, random: Random, times: u32) {
        let mut citizen = Citizen::new(self, rank, random);
        (0..times).for_each(|_| citizen.act());
    }

    /// Verifies, when all threads have ended, that everything comes back.
    pub(crate) fn close(&self) {
        let Town { space, post, .. } = self;
        space.check().unwrap_or_else(|broken| panic!("{broken}"));
        let by = cpu_of(space, 1);
        for parcel in post.lock().unwrap().drain(..) {
            match parcel {
                Parcel::Mapping { area, .. } => space.unmap_ram(by, ram(area)).unwrap(),
                Parcel::Plain(area) => drop(space.free(by, area.start).unwrap()),
            }
        }
        space.purge_all();
        space.check().unwrap_or_else(|broken| panic!("{broken}"));
        assert_eq!(space.block_stats().blocks, 0, "a block leaked");
        assert_eq!(space.stats().largest_hole, space.span().len(), "pages leaked");
        assert!(!space.mapper().has_stale_pages());
    }
}

/// Carries out a short random program: some operations, then some by each of two modelled threads.
#[cfg(loom)]
pub(crate) fn program(town: Town, seed: u64, before: u32, beside: u32) {
    let town = loom::sync::Arc::new(town);
    let choices = move |rank: u64| Random::new(64 * seed + rank);
    town.live(2, choices(2), before);
    let other = town.clone();
    let thread = loom::thread::spawn(move || other.live(1, choices(1), beside));
    town.live(0, choices(0), beside);
    thread.join().unwrap();
    town.close();
}

fn ram(area: Area) -> RamArea {
    RamArea { start: area.start, pages: area.pages }
}

impl<'a> Citizen<'a> {
    /// Returns a thread that works for the CPU of this rank.
    pub(crate) fn new(town: &'a Town, rank: usize, random: Random) -> Citizen<'a> {
        Citizen { town, rank, random, handle: None, ended: Vec::new() }
    }

    fn map(&mut self) {
        let by = cpu_of(&self.town.space, self.rank);
        let most = u64::from(self.town.space.policy().blocks.geometry.max_pages());
        let pages = match self.random.below(12) {
            0 => 1 + most + self.random.below(2 * most),
            1..=4 => 1,
            _ => 1 + self.random.below(most),
        };
        let tag = self.town.tags.fetch_add(1, Ordering::Relaxed);
        let frames = Frames { tag, refused: self.random.below(40) == 0 };
        let impatient = self.random.below(4) == 0;
        let outcome = match &mut self.handle {
            Some(handle) => handle.map_ram(pages, &frames),
            None if impatient => self.town.space.try_map_ram(by, pages, &frames),
            None => self.town.space.map_ram(by, pages, &frames),
        };
        match outcome {
            Ok(RamArea { start, pages }) => {
                let area = Area { start, pages, guard: Guard::None, cpu: by };
                self.town.send(Parcel::Mapping { area, frames });
            }
            Err(MapRamError::Install(_)) => assert!(frames.refused),
            Err(MapRamError::CpuHeld) => assert!(self.handle.is_none()),
            Err(MapRamError::WouldBlock) => assert!(impatient),
            Err(MapRamError::Exhausted { .. }) => {}
            Err(why) => panic!("{pages} pages: {why}"),
        }
    }

    fn alloc(&mut self) {
        let space = &self.town.space;
        let request = AreaRequest::new(1 + self.random.below(20));
        let outcome = match &mut self.handle {
            Some(handle) => handle.alloc(&request),
            None => space.alloc(cpu_of(space, self.rank), &request),
        };
        match outcome {
            Ok(area) => {
                let tag = self.town.tags.fetch_add(1, Ordering::Relaxed);
                space.mapper().fill(area.span(), Frames::new(tag));
                self.town.send(Parcel::Plain(area));
            }
            Err(AreaError::Exhausted { .. } | AreaError::CpuHeld) => {}
            Err(why) => panic!("{why}"),
        }
    }

    fn end_something(&mut self) {
        let Some(parcel) = self.town.take_parcel(&mut self.random) else { return };
        let space = &self.town.space;
        let by = cpu_of(space, self.rank);
        match parcel {
            Parcel::Mapping { area, frames } => {
                self.town.check_contents(area, frames);
                let outcome = match &mut self.handle {
                    Some(handle) => handle.unmap_ram(ram(area)),
                    None => space.unmap_ram(by, ram(area)),
                };
                assert_eq!(outcome, Ok(()), "{area:?}");
                self.ended.push((area.span(), last_clear()));
            }
            Parcel::Plain(area) => {
                assert_eq!(space.free(by, area.start), Ok(area));
                self.ended.push((area.span(), last_clear()));
            }
        }
    }

    /// Looks at a mapping that no other thread can end meanwhile, and claims wrong things about it.
    fn inspect(&mut self) {
        let Some(parcel) = self.town.take_parcel(&mut self.random) else { return };
        let space = &self.town.space;
        let by = cpu_of(space, self.rank);
        if let Parcel::Mapping { area, frames } = parcel {
            let last = Vpn(area.span().end() - 1);
            assert_eq!(space.find(last), Some(area));
            let wrong = RamArea { start: area.start, pages: PageCount(area.pages.get() + 1) };
            let refusal = space.unmap_ram(by, wrong);
            let outside = wrong.span().end() > space.span().end();
            let expected = UnmapRamError::WrongSize { pages: area.pages };
            assert!(refusal == Err(expected) || outside, "{area:?}: {refusal:?}");
            if area.pages.get() > 1 {
                let inside = RamArea { start: last, pages: PageCount(1) };
                let refusal = UnmapRamError::NotAStart { start: area.start };
                assert_eq!(space.unmap_ram(by, inside), Err(refusal));
            }
            let mut live = 0;
            space.read(area.span(), |piece| {
                if let Piece::Live(part) = piece {
                    live += part.len();
                }
            });
            assert_eq!(live, area.pages.get(), "{area:?} is read");
            self.town.check_contents(area, frames);
        }
        self.town.send(parcel);
    }

    /// Flushes aliases; afterwards no translation is left of the mappings that this thread ended before.
    fn flush_aliases(&mut self) {
        self.town.space.unmap_aliases();
        for (span, time) in self.ended.drain(..) {
            for at in span.start()..span.end() {
                let behind = self.town.space.mapper().behind(at);
                assert_ne!(behind, Behind::Stale(time), "page {at:#x} of {span:?}");
            }
        }
    }

    fn toggle_handle(&mut self) {
        let space = &self.town.space;
        match self.handle.take() {
            Some(handle) => drop(handle),
            None => self.handle = space.cpu(cpu_of(space, self.rank)).ok(),
        }
    }

    fn read_all(&self) {
        let bounds = self.town.space.span();
        let mut told = bounds.start();
        self.town.space.read(bounds, |piece| {
            let (Piece::Live(part) | Piece::Hole(part)) = piece;
            assert_eq!(part.start(), told, "pieces ascend without gaps");
            told = part.end();
        });
        assert_eq!(told, bounds.end(), "the pieces tile the space");
    }

    pub(crate) fn act(&mut self) {
        match self.random.below(40) {
            0..=13 => self.map(),
            14..=26 => self.end_something(),
            27..=29 => self.inspect(),
            30..=31 => self.alloc(),
            32..=33 => self.toggle_handle(),
            34..=35 => self.flush_aliases(),
            36 => drop(self.town.space.purge_all()),
            37 => drop(self.town.space.step(Budget { areas: 3 })),
            38 => self.read_all(),
            _ => {
                let stats = self.town.space.block_stats();
                let slots = u64::from(self.town.space.policy().blocks.geometry.slots());
                assert!(stats.live_pages <= stats.blocks * slots);
            }
        }
    }
}
