//! Helpers of the tests of blocks: every preset at a small geometry, and a book of the content behind each page.

use crate::memory::served;
use nofrag::cpu::{CpuId, CpuSet};
use nofrag::ranges::Span;
use nofrag::vmap::{
    BlockGeometry, BlockPolicy, Epoch, LazyLimit, Mapper, Preset, RamArea, VmapConfig, VmapPolicy,
    VmapSpace,
};
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The state of the memory behind one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// Nothing, and no translation of it is cached anywhere.
    Nothing,
    /// The content of a mapped page.
    Content(u64),
    /// Nothing any more, but translations of the content that was cleared at this time may be cached.
    Stale(u64),
}

impl Behind {
    fn pack(self) -> u64 {
        match self {
            Behind::Nothing => 0,
            Behind::Content(content) => content << 2 | 1,
            Behind::Stale(time) => time << 2 | 2,
        }
    }

    fn unpack(word: u64) -> Behind {
        match word & 3 {
            0 => Behind::Nothing,
            1 => Behind::Content(word >> 2),
            _ => Behind::Stale(word >> 2),
        }
    }
}

/// The object that a test maps: pages whose contents follow from the tag, which a test uses once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frames {
    pub(crate) tag: u64,
    /// True if the book refuses to install these pages.
    pub(crate) refused: bool,
}

impl Frames {
    pub(crate) const fn new(tag: u64) -> Frames {
        Frames { tag, refused: false }
    }

    /// Returns the content of page `index`.
    pub(crate) fn content(self, index: u64) -> u64 {
        self.tag << 16 | index
    }
}

/// The book's own reason not to install.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the book was told to refuse")
    }
}

/// A flush that has begun.
#[derive(Debug)]
struct Flight {
    ranges: Vec<Span>,
    /// The flush covers pages that were cleared before this time.
    began: u64,
}

#[derive(Debug, Default)]
struct Flights {
    /// Under way, the oldest first.
    under_way: VecDeque<Flight>,
    completed: u64,
    /// Number of calls of [`Mapper::completed`] since the last flush completed.
    asked: u32,
}

/// The time of pages that are just being cleared: no flush covers them.
const NEVER: u64 = (1 << 62) - 1;

#[cfg(not(loom))]
std::thread_local! {
    static LAST_CLEAR: Cell<u64> = const { Cell::new(0) };
}

// The model's threads are coroutines of one thread.
#[cfg(loom)]
loom::thread_local! {
    static LAST_CLEAR: Cell<u64> = Cell::new(0);
}

/// Returns the time of the last clear that this thread has called for.
pub(crate) fn last_clear() -> u64 {
    LAST_CLEAR.with(Cell::get)
}

/// The calls of the space to the book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// A call before pages are mapped.
    Install,
    /// A call before mappings are taken away.
    Clear,
}

/// A mapper that knows the content behind each page and accepts no mistake:
///
/// 1. Only a page behind which there is nothing is mapped: neither a live one nor a stale one.
/// 2. Only a live page is cleared.
/// 3. A stale page is stale until a flush that covers it, and that began after it was cleared, has *completed*.
///
/// Flushes complete late: each one when [`Mapper::completed`] has been asked for it more than `lag` times.
pub(crate) struct PageBook {
    span: Span,
    pages: Vec<AtomicU64>,
    /// Counts clears and flushes, so that each of them has a time.
    clock: AtomicU64,
    pub(crate) flushes: AtomicU64,
    lag: u32,
    flights: Mutex<Flights>,
    pause: Box<dyn Fn(Call) + Send + Sync>,
}

impl PageBook {
    pub(crate) fn new(span: Span, lag: u32) -> PageBook {
        PageBook {
            span,
            pages: (0..span.len()).map(|_| AtomicU64::new(Behind::Nothing.pack())).collect(),
            clock: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            lag,
            flights: Mutex::default(),
            pause: Box::new(|_| ()),
        }
    }

    /// Returns the same book, which calls `pause` first wherever the space calls it.
    pub(crate) fn pausing(self, pause: impl Fn(Call) + Send + Sync + 'static) -> PageBook {
        PageBook { pause: Box::new(pause), ..self }
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn words(&self, span: Span) -> impl Iterator<Item = (u64, &AtomicU64)> {
        assert!(self.span.covers(span), "{span:?} lies outside the space");
        let first = (span.start() - self.span.start()) as usize;
        (span.start()..span.end()).zip(&self.pages[first..first + span.len() as usize])
    }

    pub(crate) fn span(&self) -> Span {
        self.span
    }

    /// Returns the state of page `at`.
    pub(crate) fn behind(&self, at: u64) -> Behind {
        let word = &self.pages[(at - self.span.start()) as usize];
        Behind::unpack(word.load(Ordering::SeqCst))
    }

    /// Returns the state of every page, by ascending address.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, Behind)> {
        self.words(self.span).map(|(at, word)| (at, Behind::unpack(word.load(Ordering::SeqCst))))
    }

    pub(crate) fn has_stale_pages(&self) -> bool {
        self.all().any(|(_, behind)| matches!(behind, Behind::Stale(_)))
    }

    /// Puts contents behind the pages of `area`: as a user of a plain area does.
    pub(crate) fn fill(&self, area: Span, frames: Frames) {
        for (index, (at, word)) in self.words(area).enumerate() {
            let content = Behind::Content(frames.content(index as u64));
            if let Err(found) = self.replace(word, Behind::Nothing, content) {
                panic!("page {at:#x} of {area:?} was handed out while it was {found:?}");
            }
        }
    }

    /// Puts `new` into the place of `old`, or returns the state that stands there instead.
    fn replace(&self, word: &AtomicU64, old: Behind, new: Behind) -> Result<(), Behind> {
        let (old, new) = (old.pack(), new.pack());
        let swapped = word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst);
        swapped.map(drop).map_err(Behind::unpack)
    }

    fn complete_oldest(&self, flights: &mut Flights) {
        let Some(flight) = flights.under_way.pop_front() else { return };
        for range in flight.ranges {
            for (_, word) in self.words(range) {
                let seen = Behind::unpack(word.load(Ordering::SeqCst));
                if matches!(seen, Behind::Stale(time) if time < flight.began) {
                    let done = self.replace(word, seen, Behind::Nothing);
                    done.expect("a stale page stays as it is until its flush completes");
                }
            }
        }
        flights.completed += 1;
        flights.asked = 0;
    }

    /// Completes every flush that has begun.
    pub(crate) fn settle(&self) {
        let mut flights = self.flights.lock().unwrap();
        while !flights.under_way.is_empty() {
            self.complete_oldest(&mut flights);
        }
    }
}

impl Mapper for PageBook {
    type Context = Frames;
    type Error = Refused;

    /// A mapping that is refused was half done by then; the book takes all of it for mapped, and waits for it to be
    /// cleared.
    fn install(&self, area: RamArea, frames: &Frames) -> Result<(), Refused> {
        (self.pause)(Call::Install);
        self.fill(area.span(), *frames);
        if frames.refused { Err(Refused) } else { Ok(()) }
    }

    fn clear(&self, area: Span) {
        (self.pause)(Call::Clear);
        for (at, word) in self.words(area) {
            let before = Behind::unpack(word.swap(Behind::Stale(NEVER).pack(), Ordering::SeqCst));
            let live = matches!(before, Behind::Content(_));
            assert!(live, "page {at:#x} of {area:?} was cleared while it was {before:?}");
        }
        // Only a flush that begins from here on covers them.
        let time = self.tick();
        LAST_CLEAR.with(|last| last.set(time));
        let cleared = Behind::Stale(time).pack();
        for (_, word) in self.words(area) {
            word.store(cleared, Ordering::SeqCst);
        }
    }

    fn flush(&self, ranges: &[Span]) -> Epoch {
        for pair in ranges.windows(2) {
            assert!(pair[0].end() <= pair[1].start(), "flushed ranges ascend and are disjoint");
        }
        let mut flights = self.flights.lock().unwrap();
        let epoch = self.flushes.fetch_add(1, Ordering::SeqCst) + 1;
        let began = self.tick();
        // The book's memory is not the space's.
        served(|| flights.under_way.push_back(Flight { ranges: ranges.to_vec(), began }));
        if self.lag == 0 {
            self.complete_oldest(&mut flights);
        }
        Epoch(epoch)
    }

    fn completed(&self) -> Epoch {
        let mut flights = self.flights.lock().unwrap();
        flights.asked += 1;
        if flights.asked > self.lag {
            self.complete_oldest(&mut flights);
        }
        Epoch(flights.completed)
    }
}

pub(crate) type BlockSpace = VmapSpace<PageBook>;

/// Blocks of 64, 128 and 1024 pages.
pub(crate) const GEOMETRIES: [BlockGeometry; 3] =
    [geometry(64, 32), geometry(128, 64), geometry(1024, 64)];

pub(crate) const fn geometry(slots: u32, max_pages: u32) -> BlockGeometry {
    BlockGeometry::new(slots, max_pages).unwrap()
}

/// Returns every preset, Pen's single changes included, with this geometry and a lazy limit that a small test reaches.
pub(crate) fn presets_with(
    geometry: BlockGeometry,
    lazy_limit: u64,
) -> impl Iterator<Item = Preset> {
    let patched = [1, 2, 3].map(|patch| {
        VmapPolicy::preset(&format!("linux-3.19+patch{patch}")).expect("the preset has a name")
    });
    VmapPolicy::presets().chain(patched).map(move |preset| Preset {
        policy: VmapPolicy {
            lazy_limit: LazyLimit::Pages(lazy_limit),
            blocks: BlockPolicy { geometry, ..preset.policy.blocks },
            ..preset.policy
        },
        ..preset
    })
}

/// Returns a set of CPUs with gaps.
pub(crate) fn gappy_cpus() -> CpuSet {
    CpuSet::new([0, 2, 5]).unwrap()
}

pub(crate) fn block_space(policy: VmapPolicy, cpus: CpuSet, book: PageBook) -> BlockSpace {
    VmapSpace::new(VmapConfig { span: book.span, cpus, policy }, book, ()).unwrap()
}

pub(crate) fn cpu_of(space: &BlockSpace, rank: usize) -> CpuId {
    space.cpus().by_rank(rank).unwrap()
}

/// Returns a mapping of `pages` pages that must succeed, with contents that no other mapping of the test has.
pub(crate) fn must_map(space: &BlockSpace, by: CpuId, pages: u64) -> RamArea {
    static TAGS: AtomicU64 = AtomicU64::new(1 << 32);
    let frames = Frames::new(TAGS.fetch_add(1, Ordering::Relaxed));
    space.map_ram(by, pages, &frames).unwrap_or_else(|why| panic!("{pages} pages: {why}"))
}
