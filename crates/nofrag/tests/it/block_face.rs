//! The duties of every engine of blocks to its callers, whatever areas it stands on: flushes, readers, wrong claims,
//! and spaces too small for it.

use crate::block_support::{
    Behind, BlockSpace, Frames, GEOMETRIES, PageBook, block_space, cpu_of, gappy_cpus, must_map,
    presets_with,
};
use crate::vmap_support::span;
use nofrag::check::Check;
use nofrag::event::{Event, EventSink, Function};
use nofrag::ranges::Span;
use nofrag::units::{PageCount, Vpn};
use nofrag::vmap::{
    AliasProgress, AreaRequest, BlockIndex, Epoch, FreeAreaError, Guard, MapRamError, Mapper,
    Piece, Preset, RamArea, UnmapRamError, VmapConfig, VmapPolicy, VmapSpace,
};
use std::hint::spin_loop;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Returns every preset with the smallest blocks, in a space of `pages` pages.
fn spaces(pages: u64) -> impl Iterator<Item = (Preset, BlockSpace)> {
    presets_with(GEOMETRIES[0], 1 << 40).map(move |preset| {
        let book = PageBook::new(span(0x1000, pages), 0);
        (preset, block_space(preset.policy, gappy_cpus(), book))
    })
}

#[test]
fn aliases_are_flushed_whatever_the_areas_are() {
    let mut accepted = 0;
    for areas in VmapPolicy::presets() {
        for Preset { policy: VmapPolicy { blocks, .. }, name } in presets_with(GEOMETRIES[0], 1) {
            let policy = VmapPolicy { blocks, ..areas.policy };
            let book = PageBook::new(span(0x1000, 1 << 12), 3);
            let config = VmapConfig { span: book.span(), cpus: gappy_cpus(), policy };
            let Ok(space) = VmapSpace::<_, ()>::new(config, book, ()) else { continue };
            accepted += 1;
            let by = cpu_of(&space, 0);
            let (gone, _stays) = (must_map(&space, by, 4), must_map(&space, by, 4));
            space.unmap_ram(by, gone).unwrap();
            space.unmap_aliases();
            let stale = space.mapper().has_stale_pages();
            assert!(!stale, "areas of {}, blocks of {name}", areas.name);
        }
    }
    assert!(accepted > VmapPolicy::presets().count());
}

/// Stops a thread that frees a block, once, between the index and the list of lazy areas.
#[derive(Default)]
struct Gate {
    reached: AtomicBool,
    open: AtomicBool,
}

impl EventSink for &Gate {
    fn record(&self, event: Event) {
        if event == Event::Entered(Function::FreeBlock) {
            self.reached.store(true, Ordering::SeqCst);
            while !self.open.load(Ordering::SeqCst) {
                spin_loop();
            }
        }
    }
}

#[test]
fn an_alias_flush_covers_a_block_that_is_just_leaving() {
    for preset in presets_with(GEOMETRIES[0], 1 << 40) {
        if preset.policy.blocks.index == BlockIndex::Direct {
            continue; // keeps its block
        }
        let gate = Gate::default();
        let book = PageBook::new(span(0x1000, 1 << 12), 0);
        let config = VmapConfig { span: book.span(), cpus: gappy_cpus(), policy: preset.policy };
        let space = VmapSpace::new(config, book, &gate).unwrap();
        let by = space.cpus().by_rank(0).unwrap();
        let [early, late] = [1, 2].map(|tag| space.map_ram(by, 32, &Frames::new(tag)).unwrap());
        space.unmap_ram(by, early).unwrap();
        let behind = thread::scope(|threads| {
            threads.spawn(|| space.unmap_ram(by, late).unwrap());
            while !gate.reached.load(Ordering::SeqCst) {
                spin_loop();
            }
            space.unmap_aliases();
            let behind = space.mapper().behind(early.start.get());
            gate.open.store(true, Ordering::SeqCst);
            behind
        });
        assert_eq!(behind, Behind::Nothing, "{}", preset.name);
        space.unmap_aliases();
        space.check().unwrap();
    }
}

/// Returns the pieces of `range` that a reader is told; asserts that they leave nothing out and come back to nothing.
fn pieces_of(space: &BlockSpace, range: Span, mut meanwhile: impl FnMut()) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut told = range.start();
    space.read(range, |piece| {
        let (Piece::Live(part) | Piece::Hole(part)) = piece;
        assert_eq!(part.start(), told, "{piece:?}");
        told = part.end();
        pieces.push(piece);
        meanwhile();
    });
    assert_eq!(told, range.end());
    pieces
}

/// Returns the live pages among `pieces`.
fn live_pages(pieces: &[Piece]) -> Vec<u64> {
    let live = pieces.iter().filter_map(|piece| match piece {
        Piece::Live(live) => Some(live.start()..live.end()),
        Piece::Hole(_) => None,
    });
    live.flatten().collect()
}

/// Reads more runs than are noted in one hold of a block's lock; the reader's callback asks the space about each.
#[test]
fn a_reader_may_use_the_space() {
    for preset in presets_with(GEOMETRIES[2], 1 << 40) {
        let book = PageBook::new(span(0x1000, 1 << 13), 0);
        let space = block_space(preset.policy, gappy_cpus(), book);
        let by = cpu_of(&space, 0);
        let all: Vec<_> = (0..1024).map(|_| must_map(&space, by, 1)).collect();
        let (gone, stay): (Vec<_>, Vec<_>) =
            all.iter().partition(|area| area.start.get() % 7 % 2 == 0);
        gone.iter().for_each(|area| space.unmap_ram(by, *area).unwrap());
        let mut expected: Vec<_> = stay.iter().map(|area| area.start.get()).collect();
        expected.sort_unstable();
        let inside = || assert!(space.find(stay[0].start).is_some());
        let pieces = pieces_of(&space, space.span(), inside);
        assert_eq!(live_pages(&pieces), expected, "{}", preset.name);
    }
}

/// While a reader is told of the first mapping, its block goes, and a large mapping takes the place.
#[test]
fn a_reader_goes_on_while_the_space_changes() {
    for preset in presets_with(GEOMETRIES[2], 1 << 40) {
        let book = PageBook::new(span(0, 1 << 16), 0);
        let space = block_space(preset.policy, gappy_cpus(), book);
        let by = cpu_of(&space, 0);
        let mut areas: Vec<_> = (0..16).map(|_| must_map(&space, by, 64)).collect();
        let _next_block = must_map(&space, by, 64);
        pieces_of(&space, Span::ALL, || {
            if areas.is_empty() {
                return;
            }
            areas.drain(..).for_each(|area| space.unmap_ram(by, area).unwrap());
            space.purge_all();
            must_map(&space, by, 1000);
            for _ in 0..200 {
                must_map(&space, by, 5);
            }
        });
        space.check().unwrap_or_else(|broken| panic!("{}: {broken}", preset.name));
    }
}

/// Reads more large mappings than are noted at a time, between blocks and plain areas.
#[test]
fn large_mappings_are_read_as_live() {
    for (preset, space) in spaces(1 << 13) {
        let by = cpu_of(&space, 0);
        let mut expected = Vec::new();
        for round in 0..80 {
            let area = must_map(&space, by, if round % 3 == 0 { 20 } else { 65 });
            match round % 5 {
                0 => space.unmap_ram(by, area).unwrap(),
                1 => drop(space.alloc(by, &AreaRequest::new(3)).unwrap()),
                _ => {}
            }
            if round % 5 != 0 {
                expected.push(area.span());
            }
        }
        let mut pages: Vec<_> = expected.iter().flat_map(|area| area.start()..area.end()).collect();
        pages.sort_unstable();
        let told = live_pages(&pieces_of(&space, space.span(), || ()));
        assert_eq!(told, pages, "{}", preset.name);
        for area in expected {
            let part = Span::new(area.start() + 1, area.end() - 1).unwrap();
            let told = live_pages(&pieces_of(&space, part, || ()));
            assert!(told.into_iter().eq(part.start()..part.end()), "{}", preset.name);
        }
    }
}

/// Reads 2^44 pages with one mapping among them; block by block this would take minutes.
#[test]
fn a_reader_passes_over_what_is_empty() {
    let config = |policy| VmapConfig { span: span(0, 1 << 44), cpus: gappy_cpus(), policy };
    for policy in [VmapPolicy::NOFRAG, VmapPolicy::LINUX_6_11] {
        let space: VmapSpace = VmapSpace::new(config(policy), (), ()).unwrap();
        let by = space.cpus().by_rank(0).unwrap();
        let area = space.map_ram(by, 64, &()).unwrap();
        let mut live = Vec::new();
        space.read(space.span(), |piece| {
            if let Piece::Live(part) = piece {
                live.push(part);
            }
        });
        assert_eq!(live, [area.span()]);
    }
}

#[test]
fn a_group_with_a_mapping_in_it_is_not_freed() {
    for (preset, space) in spaces(1 << 12) {
        let by = cpu_of(&space, 0);
        let plain = space.alloc(by, &AreaRequest::new(4).guard(Guard::None)).unwrap();
        space.mapper().fill(plain.span(), Frames::new(1));
        for pages in [4, 100] {
            let ram = must_map(&space, by, pages);
            let base = plain.start.min(ram.start);
            let offsets = [plain.start, ram.start].map(|start| start.get() - base.get());
            let refused = space.free_group(by, base, &offsets);
            assert_eq!(refused, Err(FreeAreaError::IsRam), "{}", preset.name);
            assert_eq!(space.find(plain.start), Some(plain), "{}", preset.name);
            space.unmap_ram(by, ram).unwrap();
        }
    }
}

/// A mapper that refuses to install, but not before it was told to go on.
#[derive(Default)]
struct SlowRefusal {
    installing: Mutex<Option<RamArea>>,
    go_on: AtomicBool,
}

impl Mapper for SlowRefusal {
    type Context = ();
    type Error = ();

    fn install(&self, area: RamArea, _context: &()) -> Result<(), ()> {
        *self.installing.lock().unwrap() = Some(area);
        while !self.go_on.load(Ordering::SeqCst) {
            spin_loop();
        }
        Err(())
    }

    fn clear(&self, _area: Span) {}

    fn flush(&self, _ranges: &[Span]) -> Epoch {
        Epoch(0)
    }

    fn completed(&self) -> Epoch {
        Epoch(0)
    }
}

/// A thread unmaps what another is still installing. The mistake is its own: the one that maps gets the mapper's
/// refusal, and no panic.
#[test]
fn a_mapping_that_others_unmapped_while_it_was_installed_is_refused_all_the_same() {
    for preset in presets_with(GEOMETRIES[0], 1 << 40) {
        for pages in [1, 40] {
            let config = VmapConfig {
                span: span(0x1000, 1 << 12),
                cpus: gappy_cpus(),
                policy: preset.policy,
            };
            let space: VmapSpace<SlowRefusal> =
                VmapSpace::new(config, SlowRefusal::default(), ()).unwrap();
            let [one, other] = [0, 1].map(|rank| space.cpus().by_rank(rank).unwrap());
            thread::scope(|threads| {
                let mapping = threads.spawn(|| space.map_ram(one, pages, &()));
                let area = loop {
                    if let Some(area) = *space.mapper().installing.lock().unwrap() {
                        break area;
                    }
                    spin_loop();
                };
                space.unmap_ram(other, area).unwrap();
                space.mapper().go_on.store(true, Ordering::SeqCst);
                let outcome = mapping.join().expect("a wrong unmapping elsewhere is no panic here");
                assert_eq!(outcome, Err(MapRamError::Install(())), "{}", preset.name);
            });
            space.purge_all();
            space.check().unwrap();
        }
    }
}

#[test]
fn spans_of_impossible_mappings_do_not_panic() {
    let span_of = |start, pages| RamArea { start: Vpn(start), pages: PageCount(pages) }.span();
    assert_eq!(span_of(10, 5), Span::new(10, 15).unwrap());
    let last = Span::new(u64::MAX - 1, u64::MAX).unwrap();
    assert_eq!([span_of(u64::MAX, 5), span_of(u64::MAX, 0)], [last; 2]);
    assert_eq!(span_of(7, 0), Span::new(7, 8).unwrap());
    assert_eq!(span_of(3, u64::MAX), Span::new(3, u64::MAX).unwrap());
}

#[test]
fn a_handle_that_must_not_wait_does_not_reclaim() {
    for (preset, space) in spaces(256) {
        let whole = space.alloc(cpu_of(&space, 0), &AreaRequest::new(256).guard(Guard::None));
        space.mapper().fill(space.span(), Frames::new(1));
        let start = whole.unwrap().start;
        space.free(cpu_of(&space, 0), start).unwrap();
        let mut handle = space.cpu(cpu_of(&space, 1)).unwrap();
        let refused = handle.try_map_ram(5, &Frames::new(2));
        assert_eq!(refused, Err(MapRamError::WouldBlock), "{}", preset.name);
        let area = handle.map_ram(5, &Frames::new(2)).unwrap();
        handle.unmap_ram(area).unwrap();
        let area = handle.try_map_ram(5, &Frames::new(3)).unwrap();
        handle.unmap_ram(area).unwrap();
    }
}

/// In 60 pages not one block fits: small mappings are areas of their own.
#[test]
fn a_space_smaller_than_a_block_maps_all_the_same() {
    for (preset, space) in spaces(60) {
        let by = cpu_of(&space, 0);
        let areas = [1, 32, 20].map(|pages| must_map(&space, by, pages));
        for area in areas {
            assert_eq!(space.find(area.start).unwrap().pages, area.pages, "{}", preset.name);
            let told = pieces_of(&space, area.span(), || ());
            assert_eq!(told, [Piece::Live(area.span())], "{}", preset.name);
            let longer = RamArea { pages: PageCount(area.pages.get() + 1), ..area };
            let refused = space.unmap_ram(by, longer);
            assert!(matches!(
                refused,
                Err(UnmapRamError::WrongSize { .. } | UnmapRamError::Foreign)
            ));
            space.unmap_ram(by, area).unwrap();
            assert!(space.unmap_ram(by, area).is_err(), "{}", preset.name);
        }
        let refused = Frames { refused: true, ..Frames::new(1) };
        assert!(matches!(space.map_ram(by, 2, &refused), Err(MapRamError::Install(_))));
        let mut handle = space.cpu(by).unwrap();
        let area = handle.map_ram(30, &Frames::new(2)).unwrap();
        handle.unmap_ram(area).unwrap();
        drop(handle);
        space.purge_all();
        space.check().unwrap();
        assert_eq!(space.stats().largest_hole, 60, "{}", preset.name);
    }
}

/// Two CPUs each fill two of our blocks, and keep one mapping in one of them; what came back serves again.
#[test]
fn counts_of_our_blocks_are_summed_over_cpus() {
    let preset = presets_with(GEOMETRIES[0], 1 << 40).find(|it| it.name == "nofrag").unwrap();
    let book = PageBook::new(span(0, 1 << 12), 0);
    let space = block_space(preset.policy, gappy_cpus(), book);
    let by = |rank| cpu_of(&space, rank);
    let map = |rank, times| -> Vec<RamArea> {
        (0..times).map(|_| must_map(&space, by(rank), 32)).collect()
    };
    let mut areas = [map(0, 4), map(1, 4)];
    let counts = || space.counters().blocks;
    let made = counts();
    assert_eq!((made.maps, made.created, made.longest_list), (8, 4, 2));
    assert_eq!(made.search_steps, 4, "a new block is looked at");
    assert_eq!(made.failed_searches, 4, "each is made after one search has failed");
    for _ in 0..3 {
        for of_one in &mut areas {
            space.unmap_ram(by(2), of_one.pop().unwrap()).unwrap();
        }
    }
    let AliasProgress { blocks, returned, .. } = space.unmap_aliases();
    assert_eq!((blocks, returned), (4, 0));
    let flushed = counts();
    assert_eq!((flushed.alias_flushes, flushed.flushes), (1, 2), "one flush for each CPU");
    assert_eq!((flushed.visited, flushed.max_visited_per_hold), (4, 2));
    assert_eq!((flushed.recycled_pages, flushed.returned), (6 * 32, 0));
    let stats = space.block_stats();
    assert_eq!((stats.blocks, stats.live_pages, stats.free_pages), (4, 2 * 32, 6 * 32));
    let again = [map(0, 2), map(1, 2)];
    assert_eq!((counts().created, counts().search_steps), (4, 4 + 4));
    for area in areas.into_iter().chain(again).flatten() {
        space.unmap_ram(by(2), area).unwrap();
    }
    assert_eq!(space.block_stats().dirty_pages, 6 * 32);
    space.purge_all();
    let purged = counts();
    assert_eq!((purged.returned, purged.purged, purged.visited), (4, 4, 8));
}

/// A slot that was unmapped and collected, and waits for its flush, is free by its own byte; after the flush nobody can
/// tell any more that it was unmapped.
#[test]
fn what_waits_for_its_flush_cannot_be_unmapped_again() {
    for geometry in GEOMETRIES {
        let preset = presets_with(geometry, 1 << 40).find(|it| it.name == "nofrag").unwrap();
        let space = block_space(preset.policy, gappy_cpus(), PageBook::new(span(0, 1 << 14), 0));
        let by = cpu_of(&space, 0);
        let first = must_map(&space, by, 32);
        (1..geometry.slots() / 32).for_each(|_| _ = must_map(&space, by, 32));
        space.unmap_ram(by, first).unwrap();
        assert_eq!(space.unmap_ram(by, first), Err(UnmapRamError::DoubleUnmap));
        // The block is used up, so that its dirty slots are looked for.
        let other = must_map(&space, by, 32);
        assert_eq!(space.block_stats().dirty_pages, 32, "fewer than a block has: not flushed");
        assert_eq!(space.unmap_ram(by, first), Err(UnmapRamError::DoubleUnmap));
        space.unmap_aliases();
        assert_eq!(space.unmap_ram(by, first), Err(UnmapRamError::NotMapped));
        space.unmap_ram(by, other).unwrap();
    }
}

/// Of its four blocks, none of which has anything left, each CPU keeps the one that it cuts from, and one more.
#[test]
fn a_flush_says_how_many_blocks_it_gave_back() {
    let preset = presets_with(GEOMETRIES[0], 1 << 40).find(|it| it.name == "nofrag").unwrap();
    let space = block_space(preset.policy, gappy_cpus(), PageBook::new(span(0, 1 << 12), 0));
    for by in [0, 1].map(|rank| cpu_of(&space, rank)) {
        let areas: Vec<RamArea> = (0..8).map(|_| must_map(&space, by, 32)).collect();
        areas.into_iter().for_each(|area| space.unmap_ram(by, area).unwrap());
    }
    let AliasProgress { blocks, returned, .. } = space.unmap_aliases();
    assert_eq!((blocks, returned, space.block_stats().blocks), (8, 4, 4));
}

/// A mapping of slots 240 to 272 ends in the second group of 256, and another begins with the third.
#[test]
fn what_ends_in_the_next_group_hides_nothing_of_the_one_after_it() {
    let preset = presets_with(GEOMETRIES[2], 1 << 40).find(|it| it.name == "nofrag").unwrap();
    let space = block_space(preset.policy, gappy_cpus(), PageBook::new(span(0, 1 << 14), 0));
    let by = cpu_of(&space, 0);
    let sizes = [64, 64, 64, 48, 32, 64, 64, 64, 48, 16];
    let areas = sizes.map(|pages| must_map(&space, by, pages));
    let first = |at: usize| areas[at].start.get() - areas[0].start.get();
    assert_eq!((first(4), first(9)), (240, 512), "these sizes are not rounded");
    [4, 9].into_iter().for_each(|at| space.unmap_ram(by, areas[at]).unwrap());
    space.unmap_aliases();
    let stats = space.block_stats();
    assert_eq!((stats.dirty_pages, stats.live_pages), (0, 6 * 64 + 2 * 48));
    space.check().unwrap();
}
