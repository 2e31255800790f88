//! `map_ram` where something is missing: a CPU that is gone, a mapper that refuses, memory, space.

use super::block_support::{
    Behind, BlockSpace, Frames, GEOMETRIES, PageBook, Refused, block_space, cpu_of, gappy_cpus,
    must_map, presets_with,
};
use super::memory::{heap_calls, refusing_at_random, without_memory};
use super::vmap_support::{StaleBook, cpu, space_of, span};
use nofrag::check::Check;
use nofrag::cpu::{CpuId, CpuSet};
use nofrag::ranges::Span;
use nofrag::units::{PageCount, Vpn};
use nofrag::vmap::{
    AreaRequest, BlockPolicy, Budget, CpuHandle, Epoch, Guard, MapRamError, Mapper, Preset,
    RamArea, SizeClasses, UnmapRamError, VmapConfig, VmapPolicy, VmapSpace,
};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Room for four blocks of 64 pages, and nothing else.
const FOUR_BLOCKS: u64 = 4 * 64;

/// The wait for a thing that happens at once or never: long enough for the busiest of machines.
const PATIENCE: Duration = Duration::from_secs(60);

fn small_spaces(lag: u32) -> impl Iterator<Item = (Preset, BlockSpace)> {
    presets_with(GEOMETRIES[0], 1 << 40).map(move |preset| {
        let book = PageBook::new(span(0x1000, FOUR_BLOCKS), lag);
        (preset, block_space(preset.policy, gappy_cpus(), book))
    })
}

/// Maps 16 pages at a time until the space is exhausted.
fn map_all(space: &BlockSpace, by: CpuId) -> Vec<RamArea> {
    let mut areas = Vec::new();
    for tag in 1..1000 {
        match space.map_ram(by, 16, &Frames::new(tag << 20)) {
            Ok(area) => areas.push(area),
            Err(MapRamError::Exhausted { .. }) => return areas,
            Err(why) => panic!("{why}"),
        }
    }
    panic!("more was mapped than there is space");
}

fn check_all_comes_back(name: &str, space: &BlockSpace) {
    space.purge_all();
    space.check().unwrap_or_else(|broken| panic!("{name}: {broken}"));
    assert_eq!(space.block_stats().blocks, 0, "{name}: a block is left");
    assert_eq!(space.stats().largest_hole, space.span().len(), "{name}");
    assert!(!space.mapper().has_stale_pages(), "{name}");
}

/// Returns the pages that can be mapped at least: Linux's search for an aligned place pads the size by the alignment,
/// so a space of four blocks may serve only three.
fn least_pages(preset: Preset) -> usize {
    if preset.name == "nofrag" { FOUR_BLOCKS as usize } else { FOUR_BLOCKS as usize - 64 }
}

#[test]
fn the_half_used_block_of_a_cpu_that_went_away_is_reclaimed() {
    for (preset, space) in small_spaces(1) {
        let (here, gone) = (cpu_of(&space, 0), cpu_of(&space, 2));
        let area = must_map(&space, gone, 10);
        space.unmap_ram(here, area).unwrap();
        let areas = map_all(&space, here);
        assert!(areas.len() * 16 >= least_pages(preset), "{}: {}", preset.name, areas.len());
        areas.into_iter().for_each(|area| space.unmap_ram(here, area).unwrap());
        check_all_comes_back(preset.name, &space);
    }
}

#[test]
fn what_a_cpu_that_went_away_has_mapped_keeps_its_block_only_until_it_is_unmapped() {
    for (preset, space) in small_spaces(1) {
        let (here, gone) = (cpu_of(&space, 0), cpu_of(&space, 1));
        let (kept, ended) = (must_map(&space, gone, 1), must_map(&space, gone, 20));
        space.unmap_ram(here, ended).unwrap();
        let areas = map_all(&space, here);
        assert_eq!(space.find(kept.start).map(|area| area.cpu), Some(gone), "{}", preset.name);
        let record = space.blocks().unwrap().into_iter().find(|block| block.owner == gone);
        assert_eq!(record.unwrap().live, 1, "{}", preset.name);
        space.unmap_ram(here, kept).unwrap();
        let more = map_all(&space, here);
        assert!(!more.is_empty(), "{}: its block was reclaimed", preset.name);
        for area in areas.into_iter().chain(more) {
            space.unmap_ram(here, area).unwrap();
        }
        check_all_comes_back(preset.name, &space);
    }
}

#[test]
fn a_handle_that_is_dropped_leaves_its_blocks_to_others() {
    for (preset, space) in small_spaces(1) {
        let (here, there) = (cpu_of(&space, 0), cpu_of(&space, 2));
        let mut handle = space.cpu(there).unwrap();
        let areas: Vec<RamArea> =
            (1..=10).map(|tag| handle.map_ram(11, &Frames::new(tag)).unwrap()).collect();
        drop(handle);
        areas.into_iter().for_each(|area| space.unmap_ram(here, area).unwrap());
        let areas = map_all(&space, here);
        assert!(areas.len() * 16 >= least_pages(preset), "{}: {}", preset.name, areas.len());
        areas.into_iter().for_each(|area| space.unmap_ram(here, area).unwrap());
        check_all_comes_back(preset.name, &space);
    }
}

/// Idle blocks of a CPU that is held cannot be taken from outside; its holder gives them back when it next needs a
/// block, or at the latest when it ends.
#[test]
fn a_held_cpu_gives_idle_blocks_back_when_it_is_asked() {
    for (preset, space) in small_spaces(1) {
        let (here, there) = (cpu_of(&space, 0), cpu_of(&space, 2));
        let mut handle = space.cpu(there).unwrap();
        let idle: Vec<RamArea> =
            (1..=8).map(|tag| handle.map_ram(16, &Frames::new(tag)).unwrap()).collect();
        idle.into_iter().for_each(|area| space.unmap_ram(here, area).unwrap());
        let areas = map_all(&space, here);
        drop(handle);
        let more = map_all(&space, here);
        let pages = (areas.len() + more.len()) * 16;
        assert!(pages >= least_pages(preset), "{}: {pages}", preset.name);
        for area in areas.into_iter().chain(more) {
            space.unmap_ram(here, area).unwrap();
        }
        check_all_comes_back(preset.name, &space);
    }
}

/// Slots that a handle keeps count as dirty, are refused a second time, and are flushed by others.
#[test]
fn a_handle_keeps_what_it_unmaps_until_it_looks() {
    let (_, space) = small_spaces(0).find(|(preset, _)| preset.name == "nofrag").unwrap();
    let (here, there) = (cpu_of(&space, 0), cpu_of(&space, 2));
    let foreign = must_map(&space, here, 3);
    let mut handle = space.cpu(there).unwrap();
    let [first, second, third] =
        [5, 20, 3].map(|pages| handle.map_ram(pages, &Frames::new(pages)).unwrap());
    for area in [first, third, foreign] {
        handle.unmap_ram(area).unwrap();
    }
    let wrong = RamArea { pages: PageCount(19), ..second };
    let pages = PageCount(20);
    assert_eq!(handle.unmap_ram(wrong), Err(UnmapRamError::WrongSize { pages }));
    for area in [first, third] {
        assert_eq!(handle.unmap_ram(area), Err(UnmapRamError::DoubleUnmap));
        assert_eq!(space.unmap_ram(here, area), Err(UnmapRamError::NotMapped));
    }
    let stats = space.block_stats();
    assert_eq!((stats.live_pages, stats.dirty_pages), (20, 5 + 3 + 3));
    assert!(space.mapper().has_stale_pages());
    space.unmap_aliases();
    assert!(!space.mapper().has_stale_pages());
    assert_eq!(space.block_stats().dirty_pages, 5 + 3);
    drop(handle);
    assert_eq!(space.unmap_ram(here, first), Err(UnmapRamError::DoubleUnmap));
    space.unmap_ram(here, second).unwrap();
    check_all_comes_back("nofrag", &space);
}

#[test]
fn a_handle_keeps_slots_of_one_block_and_not_of_another() {
    let (_, space) = small_spaces(0).find(|(preset, _)| preset.name == "nofrag").unwrap();
    let mut handle = space.cpu(cpu_of(&space, 2)).unwrap();
    let [_, kept, other] =
        [32, 32, 16].map(|pages| handle.map_ram(pages, &Frames::new(pages)).unwrap());
    assert_ne!(kept.start.get() / 64, other.start.get() / 64);
    handle.unmap_ram(kept).unwrap();
    let page = |block: RamArea, slot: u64| RamArea {
        start: Vpn(block.start.get() / 64 * 64 + slot),
        pages: PageCount(1),
    };
    assert_eq!(handle.unmap_ram(page(kept, 40)), Err(UnmapRamError::DoubleUnmap));
    assert_eq!(handle.unmap_ram(page(other, 40)), Err(UnmapRamError::NotMapped));
}

/// Whatever sizes are rounded to, and with a mapper that clears nothing.
#[test]
fn a_handle_keeps_all_slots_of_what_it_unmaps() {
    let all = [SizeClasses::PowerOfTwo, SizeClasses::Quarters, SizeClasses::Eighths];
    for classes in all.into_iter().chain([SizeClasses::Exact]) {
        let blocks = BlockPolicy { classes, geometry: GEOMETRIES[0], ..BlockPolicy::NOFRAG };
        let policy = VmapPolicy { blocks, ..VmapPolicy::NOFRAG };
        let config = VmapConfig { span: span(64, FOUR_BLOCKS), cpus: gappy_cpus(), policy };
        let space: VmapSpace = VmapSpace::new(config, (), ()).unwrap();
        let mut handle = space.cpu(space.cpus().by_rank(0).unwrap()).unwrap();
        let area = handle.map_ram(21, &()).unwrap();
        let wrong = RamArea { pages: PageCount(20), ..area };
        let pages = area.pages;
        assert_eq!(handle.unmap_ram(wrong), Err(UnmapRamError::WrongSize { pages }));
        handle.unmap_ram(area).unwrap();
        assert_eq!(handle.unmap_ram(area), Err(UnmapRamError::DoubleUnmap));
        assert_eq!(space.block_stats().dirty_pages, u64::from(classes.round(21)), "{classes:?}");
        drop(handle);
        space.check().unwrap();
        space.purge_all();
        assert_eq!(space.block_stats().blocks, 0);
    }
}

/// While a handle lives, a purge by another CPU cannot take its idle block; the handle gives it back at its next look
/// for slots.
#[test]
fn a_handle_gives_back_what_a_purge_has_asked_for() {
    let preset = presets_with(GEOMETRIES[0], 1 << 40).find(|preset| preset.name == "nofrag");
    let book = PageBook::new(span(0x1000, 2 * 64), 0);
    let space = block_space(preset.unwrap().policy, gappy_cpus(), book);
    let (here, there) = (cpu_of(&space, 0), cpu_of(&space, 2));
    let mut handle = space.cpu(there).unwrap();
    let mut tag = 0;
    let mut map = |pages| {
        tag += 1;
        handle.map_ram(pages, &Frames::new(tag)).unwrap()
    };
    // One block stays half used; of the other one nothing is in use, but its window is used up.
    let [kept, ended] = [map(32), map(32)];
    let idle = map(32);
    space.unmap_ram(here, ended).unwrap();
    space.unmap_ram(here, idle).unwrap();
    let refusal = space.map_ram(here, 8, &Frames::new(100)).unwrap_err();
    assert!(matches!(refusal, MapRamError::Exhausted { .. }), "{refusal}");
    let rest = [map(16), map(16)];
    rest.into_iter().for_each(|area| space.unmap_ram(here, area).unwrap());
    let small = map(16);
    assert_eq!(small.start.get() / 64, kept.start.get() / 64, "in the block that is in use");
    let granted = space.map_ram(here, 8, &Frames::new(101));
    assert!(granted.is_ok(), "the idle block was given back: {granted:?}");
}

/// Areas in the pools of a handle become a block when there is no other place, and the other way round.
#[test]
fn a_handle_turns_its_pools_into_blocks_and_back() {
    for (preset, space) in small_spaces(0) {
        let mut handle = space.cpu(cpu_of(&space, 1)).unwrap();
        let request = AreaRequest::new(16).guard(Guard::None);
        let alloc = |handle: &mut CpuHandle<'_, PageBook>| {
            let area =
                handle.alloc(&request).unwrap_or_else(|why| panic!("{}: {why}", preset.name));
            space.mapper().fill(area.span(), Frames::new(1));
            area.start
        };
        for _ in 0..2 {
            let areas = [(); FOUR_BLOCKS as usize / 16].map(|()| alloc(&mut handle));
            for start in areas {
                handle.free(start).unwrap();
            }
            space.step(Budget { areas: usize::MAX });
            // The handle moves flushed areas into its pools.
            let area = alloc(&mut handle);
            handle.free(area).unwrap();
            let area = handle.map_ram(20, &Frames::new(2));
            let area = area.unwrap_or_else(|why| panic!("{}: {why}", preset.name));
            handle.unmap_ram(area).unwrap();
        }
        drop(handle);
        check_all_comes_back(preset.name, &space);
    }
}

/// The holder itself never sees exhaustion while its own blocks are idle.
#[test]
fn a_held_cpu_reclaims_its_own_blocks() {
    for (preset, space) in small_spaces(1) {
        let mut handle = space.cpu(cpu_of(&space, 1)).unwrap();
        for tag in 1..=500 {
            // In turn so large that it takes an area, and small.
            let pages = if tag % 5 == 0 { 100 } else { 1 + tag % 32 };
            let area = handle.map_ram(pages, &Frames::new(tag));
            let area = area.unwrap_or_else(|why| panic!("{}, {pages}: {why}", preset.name));
            handle.unmap_ram(area).unwrap();
        }
        drop(handle);
        check_all_comes_back(preset.name, &space);
    }
}

#[test]
fn a_mapping_that_could_not_be_installed_is_undone() {
    for (preset, space) in small_spaces(2) {
        let by = cpu_of(&space, 1);
        for tag in 1..=2000 {
            let pages = 1 + tag % 70;
            let outcome = space.map_ram(by, pages, &Frames { tag, refused: true });
            assert_eq!(outcome, Err(MapRamError::Install(Refused)), "{}: {tag}", preset.name);
            let left = space.mapper().all().find(|(_, it)| matches!(it, Behind::Content(_)));
            assert_eq!(left, None, "{}: what was half installed is cleared", preset.name);
            assert_eq!(space.block_stats().live_pages, 0, "{}", preset.name);
        }
        let mut handle = space.cpu(by).unwrap();
        for tag in 3000..=4000 {
            let outcome = handle.map_ram(1 + tag % 70, &Frames { tag, refused: true });
            assert_eq!(outcome, Err(MapRamError::Install(Refused)), "{}: {tag}", preset.name);
        }
        drop(handle);
        check_all_comes_back(preset.name, &space);
    }
}

#[test]
fn an_exhausted_space_recovers() {
    for (preset, space) in small_spaces(1) {
        let mut most = 0;
        for round in 0..6 {
            let by = cpu_of(&space, round % 3);
            let areas = map_all(&space, by);
            assert!(areas.len() * 16 >= least_pages(preset), "{}: {round}", preset.name);
            let outcome = space.try_map_ram(by, 16, &Frames::new(7));
            let exhausted = matches!(outcome, Err(MapRamError::Exhausted { .. }));
            assert!(exhausted, "{}: there is nothing to reclaim: {outcome:?}", preset.name);
            areas.iter().for_each(|&area| space.unmap_ram(by, area).unwrap());
            most = most.max(areas.len());
        }
        assert_eq!(map_all(&space, cpu_of(&space, 0)).len(), most, "{}", preset.name);
    }
}

#[test]
fn who_must_not_wait_is_told_when_waiting_would_help() {
    for (preset, space) in small_spaces(1) {
        let by = cpu_of(&space, 0);
        let areas = map_all(&space, by);
        areas.into_iter().for_each(|area| space.unmap_ram(by, area).unwrap());
        let flushes = space.mapper().flushes.load(Ordering::SeqCst);
        let outcome = space.try_map_ram(cpu_of(&space, 1), 16, &Frames::new(5));
        assert_eq!(outcome, Err(MapRamError::WouldBlock), "{}", preset.name);
        assert_eq!(space.mapper().flushes.load(Ordering::SeqCst), flushes, "{}", preset.name);
        must_map(&space, cpu_of(&space, 1), 16);
    }
}

/// A flush that takes long: meanwhile none of its pages is handed out, and a caller that must not wait does not wait
/// for it.
#[test]
fn while_a_flush_is_under_way_its_pages_are_not_handed_out() {
    for (preset, space) in small_spaces(u32::MAX) {
        let by = cpu_of(&space, 0);
        let mut areas = Vec::new();
        while let Ok(area) = space.try_map_ram(by, 16, &Frames::new(1 + areas.len() as u64)) {
            areas.push(area);
        }
        areas.iter().for_each(|&area| space.unmap_ram(by, area).unwrap());
        // Its end lets the flush complete, however long the attempts take.
        let (attempts, ended) = mpsc::channel::<()>();
        let waited = std::thread::scope(|scope| {
            let attempts = attempts;
            let flusher = scope.spawn(|| space.unmap_aliases());
            let space = &space;
            let settler = scope.spawn(move || {
                // An attempt that waits for the flush would wait for ever.
                let over = ended.recv_timeout(2 * PATIENCE);
                while !flusher.is_finished() {
                    space.mapper().settle();
                    std::thread::yield_now();
                }
                over == Err(RecvTimeoutError::Timeout)
            });
            let started = Instant::now();
            while space.mapper().flushes.load(Ordering::SeqCst) == 0 {
                assert!(started.elapsed() < PATIENCE, "{}: no flush", preset.name);
                std::thread::yield_now();
            }
            for tag in 100..130 {
                let by = cpu_of(space, tag as usize % 3);
                // The book refuses a page whose flush has not completed.
                if let Ok(area) = space.try_map_ram(by, 16, &Frames::new(tag)) {
                    space.unmap_ram(by, area).unwrap();
                }
            }
            drop(attempts);
            settler.join().unwrap()
        });
        assert!(!waited, "{}: `try_map_ram` waited", preset.name);
    }
}

fn check_without_memory(preset: Preset) {
    let space = space_of(preset.policy, span(0x33, 3000), 2);
    let by = cpu(&space, 0);
    let mut live: Vec<RamArea> = Vec::new();
    let mut refused = 0;
    for round in 0..3000_u64 {
        let pages = 1 + round * 7 % 80;
        let books = || (space.areas().unwrap(), space.blocks().unwrap(), space.block_stats());
        let before = books();
        let outcome = match round % 3 {
            0 => space.map_ram(by, pages, &()),
            1 => without_memory(|| space.map_ram(by, pages, &())),
            _ => without_memory(|| space.try_map_ram(by, pages, &())),
        };
        match outcome {
            Ok(area) => live.push(area),
            Err(MapRamError::OutOfMetadata) => {
                refused += 1;
                // One that may wait may have purged before.
                assert!(round % 3 == 1 || books() == before, "{}: {round}", preset.name);
            }
            Err(MapRamError::Exhausted { .. } | MapRamError::WouldBlock) => {}
            Err(why) => panic!("{}: {why}", preset.name),
        }
        while live.len() > 40 {
            let area = live.swap_remove(round as usize % live.len());
            let unmapped = without_memory(|| space.unmap_ram(by, area));
            unmapped.expect("unmapping needs no memory");
        }
        match round % 301 {
            200 => drop(without_memory(|| space.unmap_aliases())),
            300 => drop(without_memory(|| space.purge_all())),
            _ => {}
        }
        space.check().unwrap_or_else(|broken| panic!("{}, {round}: {broken}", preset.name));
    }
    assert!(refused > 0, "{}: the heap refused at least once", preset.name);
    for area in live {
        without_memory(|| space.unmap_ram(by, area)).unwrap();
    }
    space.purge_all();
    space.check().unwrap();
    assert_eq!(space.stats().largest_hole, 3000, "{}", preset.name);
}

#[test]
fn mapping_without_memory_changes_nothing() {
    presets_with(GEOMETRIES[1], 300).for_each(check_without_memory);
}

#[test]
fn a_space_for_blocks_is_not_set_up_without_memory() {
    for preset in presets_with(GEOMETRIES[2], 300) {
        let span = span(0, 1 << 16);
        let (config, book) = (config_of(preset, span), StaleBook::new(span));
        assert!(without_memory(|| VmapSpace::new(config, book, ()).is_err()), "{}", preset.name);
    }
}

/// On a heap that refuses at random, setting up a space succeeds or fails cleanly: the set of CPUs was once copied
/// without asking for memory, after all that could be refused.
#[test]
fn a_space_for_blocks_is_set_up_whole_or_not() {
    for preset in presets_with(GEOMETRIES[2], 300) {
        let span = span(0, 1 << 16);
        let made = |seed| {
            let (config, book) = (config_of(preset, span), StaleBook::new(span));
            refusing_at_random(seed, 24, || VmapSpace::new(config, book, ())).is_ok()
        };
        let made = (0..300).filter(|&seed| made(seed)).count();
        assert!((1..300).contains(&made), "{}: {made} of 300", preset.name);
    }
}

fn config_of(preset: Preset, span: Span) -> VmapConfig {
    VmapConfig { span, cpus: CpuSet::new([0, 2, 5]).unwrap(), policy: preset.policy }
}

/// A mapper that has nothing to clear, but translations to flush; the test tells the book itself of each unmapping.
struct FlushOnly(PageBook);

impl Mapper for FlushOnly {
    const CLEARS: bool = false;

    type Context = Frames;
    type Error = Refused;

    fn install(&self, area: RamArea, frames: &Frames) -> Result<(), Refused> {
        self.0.install(area, frames)
    }

    fn clear(&self, area: Span) {
        panic!("{area:?} is cleared by a mapper that has said it has nothing to clear");
    }

    fn flush(&self, ranges: &[Span]) -> Epoch {
        self.0.flush(ranges)
    }

    fn completed(&self) -> Epoch {
        self.0.completed()
    }
}

#[test]
fn pages_that_are_not_cleared_wait_for_their_flush_too() {
    for preset in presets_with(GEOMETRIES[0], 200) {
        let bounds = span(0x1000, 600);
        let mapper = FlushOnly(PageBook::new(bounds, 2));
        let space = VmapSpace::new(config_of(preset, bounds), mapper, ()).unwrap();
        let by = space.cpus().by_rank(0).unwrap();
        let mut live = Vec::new();
        for tag in 1..=3000 {
            let area = space.map_ram(by, 1 + tag * 11 % 40, &Frames::new(tag));
            live.push(area.unwrap_or_else(|why| panic!("{}: {why}", preset.name)));
            if live.len() > 4 {
                let area: RamArea = live.swap_remove(tag as usize % 4);
                space.mapper().0.clear(area.span());
                space.unmap_ram(by, area).unwrap();
            }
        }
        space.check().unwrap();
    }
}

/// Unmaps wrong ranges in a space that ends near the highest number, so that start plus size wraps around.
#[test]
fn claims_that_wrap_around_are_refused() {
    for preset in presets_with(GEOMETRIES[0], 200) {
        let bounds = span(u64::MAX - 600, 600);
        let space = block_space(preset.policy, gappy_cpus(), PageBook::new(bounds, 0));
        let by = cpu_of(&space, 0);
        let area = must_map(&space, by, 5);
        for pages in [0, 4, 6, 33, 600, u64::MAX / 2, u64::MAX] {
            let wrong = RamArea { pages: PageCount(pages), ..area };
            let refusal = space.unmap_ram(by, wrong).unwrap_err();
            let known = [UnmapRamError::WrongSize { pages: area.pages }, UnmapRamError::Foreign];
            assert!(known.contains(&refusal), "{}, {pages} pages: {refusal:?}", preset.name);
        }
        for start in [0, 1, bounds.start() - 1, u64::MAX] {
            let wrong = RamArea { start: Vpn(start), pages: PageCount(5) };
            assert_eq!(space.unmap_ram(by, wrong), Err(UnmapRamError::Foreign), "{}", preset.name);
        }
        assert_eq!(space.find(area.start).map(|found| found.pages), Some(area.pages));
        space.unmap_ram(by, area).unwrap();
        check_all_comes_back(preset.name, &space);
    }
}

/// A handle has the CPU's pools, too: what is too large for a block comes from there.
#[test]
fn a_handle_maps_what_is_too_large_for_a_block() {
    for (preset, space) in small_spaces(0) {
        let mut handle = space.cpu(cpu_of(&space, 1)).unwrap();
        let area = handle.map_ram(100, &Frames::new(1)).unwrap();
        handle.unmap_ram(area).unwrap();
        drop(handle);
        check_all_comes_back(preset.name, &space);
    }
}

#[test]
fn a_size_that_cannot_be_names_the_largest_range() {
    for (preset, space) in small_spaces(0) {
        let outcome = space.map_ram(cpu_of(&space, 0), FOUR_BLOCKS + 1, &Frames::new(1));
        let largest = FOUR_BLOCKS;
        assert_eq!(outcome, Err(MapRamError::Exhausted { largest }), "{}", preset.name);
    }
}

#[test]
fn an_alias_flush_waits_for_late_flushes() {
    for (preset, space) in small_spaces(5) {
        let by = cpu_of(&space, 0);
        for pages in [1, 40] {
            let area = must_map(&space, by, pages);
            space.unmap_ram(by, area).unwrap();
            space.unmap_aliases();
            assert!(!space.mapper().has_stale_pages(), "{}: {pages} pages", preset.name);
        }
    }
}

/// An alias flush visits a CPU whose blocks are taken into a handle meanwhile.
#[test]
fn handles_come_and_go_while_aliases_are_flushed() {
    for (preset, space) in small_spaces(0) {
        std::thread::scope(|scope| {
            let space = &space;
            let flusher = scope.spawn(move || {
                for _ in 0..300 {
                    space.unmap_aliases();
                }
            });
            let by = cpu_of(space, 0);
            while !flusher.is_finished() {
                let mut handle = space.cpu(by).unwrap();
                // As many as make the engine give blocks back.
                let areas = [(); 6].map(|()| handle.map_ram(32, &Frames::new(1)).unwrap());
                drop(handle);
                areas.into_iter().for_each(|area| space.unmap_ram(by, area).unwrap());
            }
        });
        check_all_comes_back(preset.name, &space);
    }
}

/// The mapping that a refusal leaves behind may exceed the lazy limit; but a caller that must not wait does not drain
/// it.
#[test]
fn undoing_a_refused_mapping_flushes_nothing() {
    for preset in presets_with(GEOMETRIES[0], 0) {
        let book = PageBook::new(span(0x1000, 8 * FOUR_BLOCKS), 0);
        let space = block_space(preset.policy, gappy_cpus(), book);
        for pages in [32, 32, 100, 32, 32] {
            let refused = Frames { tag: 1, refused: true };
            let outcome = space.try_map_ram(cpu_of(&space, 0), pages, &refused);
            assert_eq!(outcome, Err(MapRamError::Install(Refused)), "{}", preset.name);
            let flushes = space.mapper().flushes.load(Ordering::SeqCst);
            assert_eq!(flushes, 0, "{}: {pages} pages", preset.name);
        }
        check_all_comes_back(preset.name, &space);
    }
}

/// Pages unmapped in the only block, below the place up to which slots were cut from it, are mapped again.
#[test]
fn the_last_block_serves_again_before_exhaustion_is_reported() {
    let preset = presets_with(GEOMETRIES[0], 1 << 40).find(|it| it.name == "nofrag").unwrap();
    let book = PageBook::new(span(0x1000, 64), 1);
    let space = block_space(preset.policy, gappy_cpus(), book);
    let by = cpu_of(&space, 0);
    let [kept, ended, last] = [8, 32, 16].map(|pages| must_map(&space, by, pages));
    space.unmap_ram(by, ended).unwrap();
    let again = must_map(&space, by, 32);
    assert_eq!(again, ended);
    [kept, again, last].into_iter().for_each(|area| space.unmap_ram(by, area).unwrap());
    check_all_comes_back(preset.name, &space);
}

/// A search counts although no block can be made after it: here it fails before the purge that a refusal calls for and
/// after it. A list offers it the one block with free slots, too few; our bins offer none.
#[test]
fn a_search_before_a_refusal_is_counted() {
    for ((preset, space), (_, twin)) in small_spaces(0).zip(small_spaces(0)) {
        let by = cpu_of(&space, 0);
        let fits = map_all(&twin, cpu_of(&twin, 0)).len();
        (1..fits).for_each(|_| _ = must_map(&space, by, 16));
        let before = space.counters().blocks;
        let refused = space.map_ram(by, 32, &Frames::new(1));
        assert!(matches!(refused, Err(MapRamError::Exhausted { .. })), "{}", preset.name);
        let after = space.counters().blocks;
        assert_eq!(after.failed_searches - before.failed_searches, 2, "{}", preset.name);
        let offered = if preset.name == "nofrag" { 0 } else { 2 };
        assert_eq!(after.search_steps - before.search_steps, offered, "{}", preset.name);
    }
}

/// Nothing has been unmapped: the blocks are searched once, and one is made.
#[test]
fn a_search_that_nothing_came_back_before_is_not_made_again() {
    for (preset, space) in small_spaces(0) {
        for made in 1..=3 {
            (0..2).for_each(|_| _ = must_map(&space, cpu_of(&space, 0), 32));
            let counts = space.counters().blocks;
            assert_eq!((counts.created, counts.failed_searches), (made, made), "{}", preset.name);
        }
    }
}

/// The records of blocks grow by doubling. A block that made room for itself alone would move the masks of all
/// before it.
#[test]
fn blocks_are_added_without_moving_the_records_of_others() {
    for geometry in GEOMETRIES {
        let preset = presets_with(geometry, 1 << 40).find(|it| it.name == "nofrag").unwrap();
        let slots = geometry.slots();
        let book = PageBook::new(span(0, 256 * u64::from(slots)), 0);
        let space = block_space(preset.policy, gappy_cpus(), book);
        let by = cpu_of(&space, 0);
        let full = slots / 32;
        let add = |blocks| (0..blocks * full).for_each(|_| _ = must_map(&space, by, 32));
        add(65);
        let calls = heap_calls(|| add(63));
        assert!(calls < 4 * 63, "{slots} slots: {calls} requests for memory, about three a block");
    }
}
