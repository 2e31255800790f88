//! The rules of the scanners, one by one, on pictures as in `compaction/tests.rs`.

use alloc::vec;

use super::*;
use crate::check::Check;
use crate::page::allocator::PageAllocator;
use crate::page::compaction::tests::{ALL, ZONE, block, cpu, draw, finish, picture};
use crate::page::compaction::{CompactionStep, Job};
use crate::page::event::Wiper;
use crate::page::map::NodeId;
use crate::page::owner::MoveResults;
use crate::page::policy::FragmentationPolicy;

/// Returns the job of a background run for a huge page.
fn huge() -> Job {
    block(9, Migratetype::Movable, Mode::Background)
}

fn newest(picture: &str) -> PageAllocator {
    draw(picture, FragmentationPolicy::LINUX_7_2)
}

/// Begins a run, and returns it with its first moves as pairs of frames: from, to.
fn begin(pages: &mut PageAllocator, job: Job) -> (Compaction, Vec<(u64, u64)>) {
    let mut run = Compaction::new(pages, ZONE, job);
    run.keep_log();
    let moves = moves(&mut run, pages);
    (run, moves)
}

fn moves(run: &mut Compaction, pages: &mut PageAllocator) -> Vec<(u64, u64)> {
    match run.step(pages, ALL) {
        CompactionStep::Migrate(moves) => {
            moves.pairs().iter().map(|pair| (pair.from.0, pair.to.0)).collect()
        }
        step => panic!("{step:?}: {}", picture(pages)),
    }
}

/// Returns a letter for each pageblock: `s` if it is marked to be passed by, else `-`.
fn marks(pages: &PageAllocator) -> alloc::string::String {
    let mark = |block| if pages.frames.block(block * BLOCK as FrameIndex).skip { 's' } else { '-' };
    (0..pages.zones[0].end / BLOCK as FrameIndex).map(mark).collect()
}

#[test]
fn the_first_run_of_a_zone_that_begins_with_frame_0_begins_at_its_end() {
    let mut pages = newest("hhhhhhhh uuuuuuuu uuuuuuuu hhhhhhhh");
    let run = Compaction::new(&mut pages, ZONE, huge());
    assert_eq!(run.positions(), (Pfn(0), Pfn(1536)));
    run.abandon(&mut pages);
}

#[test]
fn what_has_moved_away_is_taken_by_whoever_runs_there_and_the_pageblock_does_not_become_whole() {
    let meddled = |meddles: bool| {
        let mut pages = newest("hhhhhhhh uuuuuuuu uuuuuuuu hhhhhhhh");
        let mut run = Compaction::new(&mut pages, ZONE, huge()).on(cpu());
        let first = moves(&mut run, &mut pages);
        run.migrated(&mut pages, MoveResults(u32::MAX));
        if meddles {
            let request = crate::page::PageRequest::user(Order::ZERO);
            let taken =
                pages.alloc(crate::units::Nanos(0), cpu(), request).expect("a page is free");
            assert_eq!(Some(taken.0), first.last().map(|pair| pair.0), "the last to be freed");
        }
        loop {
            match run.step(&mut pages, ALL) {
                CompactionStep::Migrate(_) => {
                    run.migrated(&mut pages, MoveResults(u32::MAX));
                }
                CompactionStep::Continue => {}
                CompactionStep::Done(result) => {
                    pages.check().expect("sound");
                    return result == CompactionResult::Success;
                }
            }
        }
    };
    assert!(meddled(false), "all of the pageblock can be moved");
    assert!(!meddled(true), "a page of it is in use again");
}

#[test]
fn the_pageblock_above_a_source_scanner_between_two_is_no_target() {
    let everything = Job { goal: super::super::Goal::Everything, ..huge() };
    let mut pages = newest("m.m.m.m. m.m.m.m.");
    assert_eq!(finish(&mut pages, everything), CompactionResult::Complete);
    // The first piece had room above it; the second took all of the pageblock, so that the scanner stood at its end,
    // and found no more than what was left of the pool.
    assert_eq!(picture(&pages), "h.m.m.h. mmm.m.m.");
}

#[test]
fn the_second_piece_of_a_pageblock_takes_all_of_it_from_its_end() {
    let mut pages = newest("hhhhhhhh uuuuuuuu uuuuuuuu hhhhhhhh");
    let (mut run, first) = begin(&mut pages, huge());
    let from: Vec<_> = first.iter().map(|pair| pair.0).collect();
    assert_eq!(from, (0..32).rev().map(|page| 2 * page).collect::<Vec<_>>());
    run.migrated(&mut pages, MoveResults(u32::MAX));
    assert_eq!(moves(&mut run, &mut pages)[0].0, 510);
    let pieces = run.take_log().into_iter().filter_map(|step| match step {
        ScanStep::Piece { from, to, taken, .. } => Some((from.0, to.0, taken)),
        _ => None,
    });
    assert_eq!(pieces.collect::<Vec<_>>(), [(0, 63, 32), (63, 512, 224)]);
    run.abandon(&mut pages);
}

#[test]
fn a_pageblock_is_marked_with_the_first_page_taken_at_its_start() {
    for (at_start, expected) in [(true, "s---"), (false, "----")] {
        let mut pages = newest("hhhhhhhh uuuuuuuu uuuuuuuu hhhhhhhh");
        pages.set_movable(Pfn(0), at_start).expect("it is in use");
        let (run, _) = begin(&mut pages, huge());
        assert_eq!(marks(&pages), expected);
        run.abandon(&mut pages);
    }
}

#[test]
fn a_pageblock_in_which_nothing_was_taken_is_marked() {
    let mut pages = newest("uuuuuuuu hhhhhhhh uuuuuuuu uuuuuuuu hhhhhhhh");
    pages.set_movable(Pfn(512), false).expect("it is in use");
    let (run, first) = begin(&mut pages, huge());
    assert_eq!(marks(&pages), "s----");
    assert!((512..1024).contains(&first[0].0));
    run.abandon(&mut pages);
}

#[test]
fn a_pageblock_that_a_quick_search_picks_is_marked_and_so_passed_by() {
    let mut pages = newest(".m.m.m.m .m.m.m.m .m.m.m.m .m.m.m.m .m.m.m.m .m.m.m.m");
    let mut run = Compaction::new(&mut pages, ZONE, huge());
    let picked = run.quick_source(&mut Ground::of(&mut pages, ZONE));
    let marked = pages.frames.block(picked as FrameIndex).skip;
    assert!(marked, "with nothing taken");
    run.abandon(&mut pages);
    pages.frames.block_mut(picked as FrameIndex).skip = false;
    let (run, first) = begin(&mut pages, huge());
    assert!(pages.frames.block(picked as FrameIndex).skip);
    assert_ne!(block_start(first[0].0), picked, "the mark that picked it keeps it from being used");
    run.abandon(&mut pages);
}

#[test]
fn a_target_that_was_seen_to_its_end_is_marked() {
    // On the list of movable blocks a quick search finds what is free, and on another the scanner does.
    for quick in [true, false] {
        let mut pages = newest("hhhhhhhh uuuuuuuu uuuuuuuu hhhhhhhh");
        if !quick {
            pages.set_block_type(Pfn(1536), Migratetype::Unmovable).expect("it is whole");
            pages.frames.block_mut(1536).migratetype = Migratetype::Movable;
        }
        let (mut run, first) = begin(&mut pages, huge());
        assert!(first.iter().all(|&(_, to)| to >= 1536));
        assert_eq!(marks(&pages), "s---", "half of it is left");
        run.migrated(&mut pages, MoveResults(u32::MAX));
        moves(&mut run, &mut pages);
        assert_eq!(marks(&pages), "s--s", "quick: {quick}");
        run.abandon(&mut pages);
    }
}

/// A proactive run of a real 6.1 left 71 of 120 pageblocks marked that had no mark, and positions.
#[test]
fn a_proactive_run_heeds_no_marks_and_leaves_some() {
    let mut pages = newest("uuuuuuuu huuuuuuu uuuuuuuu uuuuuuuu hhhhhhhh");
    pages.set_movable(Pfn(0), false).expect("it is in use");
    pages.frames.block_mut(512).skip = true;
    let job = Job { goal: super::super::Goal::Score(0), ..huge() };
    let (mut run, first) = begin(&mut pages, job);
    assert!((512..1024).contains(&first[0].0), "the mark is not heeded");
    pages.frames.block_mut(512).skip = false;
    assert_eq!(marks(&pages), "s----", "no mark with the first page taken");
    // Behind the pageblock that follows the one left, as in the kernel (0x106000 after a run that came to 0x105e00).
    assert_eq!(pages.zones[0].compaction.at.sources, [1024; 2]);
    run.migrated(&mut pages, MoveResults(u32::MAX));
    run.abandon(&mut pages);
    let mut pages = newest("uuuuuuuu hhhhhhhh uuuuuuuu uuuuuuuu hhhhhhhh");
    finish(&mut pages, job);
    assert_eq!(marks(&pages), "s---s", "targets too");
}

/// Marks all pageblocks of a zone, and returns which marks are left after kswapd has gone to sleep. `met` says whether
/// a caller's run has met its scanners.
fn wiped(before: &str, met: bool, change: impl Fn(&mut PageAllocator)) -> alloc::string::String {
    let mut pages = newest(before);
    change(&mut pages);
    for block in 0..pages.zones[0].end / BLOCK as FrameIndex {
        pages.frames.block_mut(block * BLOCK as FrameIndex).skip = true;
    }
    pages.zones[0].compaction.went_through = met;
    pages.forget_scans(NodeId(0));
    pages.wipe_marks(ZONE, Wiper::Kswapd);
    marks(&pages)
}

#[test]
fn marks_are_wiped_only_where_every_eighth_frame_shows_something() {
    let movable = |frame| {
        move |pages: &mut PageAllocator| {
            pages.set_movable(Pfn(frame), true).expect("it is in use");
        }
    };
    let full = "uuuuuuuu uuuuuuuu uuuuuuuu uuuuuuuu";
    assert_eq!(wiped(full, true, |_| {}), "ssss");
    assert_eq!(wiped(full, true, movable(64)), "-sss");
    assert_eq!(wiped(full, true, movable(65)), "ssss", "between two samples");
    // From above, free blocks count, and from below they do once there is a source.
    assert_eq!(wiped("uuuuuuuu uuuuuuuu uuuuuuuu u......u", true, |_| {}), "sss-");
    assert_eq!(wiped("uuuuuuuu u......u uuuuuuuu uuuuuuuu", true, |_| {}), "ssss");
    assert_eq!(wiped("muuuuuuu u......u uuuuuuuu uuuuuuuu", true, |_| {}), "--ss");
}

#[test]
fn marks_are_wiped_only_after_a_callers_run_has_met_its_scanners() {
    let before = "muuuuuuu uuuuuuuu uuuuuuuu u......u";
    assert_eq!(wiped(before, false, |_| {}), "ssss");
    assert_eq!(wiped(before, true, |_| {}), "-ss-");
    let mut pages = newest(before);
    pages.zones[0].compaction.went_through = true;
    pages.wipe_marks(ZONE, Wiper::Kswapd);
    pages.frames.block_mut(0).skip = true;
    pages.wipe_marks(ZONE, Wiper::Kswapd);
    assert_eq!(marks(&pages), "s---", "none has since");
    for (mode, met) in [(Mode::Background, false), (Mode::SyncLight, true)] {
        let mut pages = newest("huhuhuhu huhuhuhu uuuuuuuu hhhhhhhh");
        let job = block(9, Migratetype::Movable, mode);
        assert_eq!(finish(&mut pages, job), CompactionResult::Complete);
        assert_eq!(pages.zones[0].compaction.went_through, met, "{mode:?}");
    }
}

/// Returns the free blocks of a size on the list of movable ones, in the order in which they are taken.
fn listed(pages: &mut PageAllocator, order: Order) -> Vec<u64> {
    let ground = Ground::of(pages, ZONE);
    ground.listed(order).map(u64::from).collect()
}

#[test]
fn a_quick_search_for_sources_leaves_what_it_has_seen_last() {
    let mut pages = newest("m.m.m.m. m.m.m.m. m.m.m.m. m.m.m.m. m.m.m.m. m.m.m.m.");
    let size = Order::new(6).expect("64 pages are a block");
    let mut before = listed(&mut pages, size);
    let mut run = Compaction::new(&mut pages, ZONE, huge());
    run.keep_log();
    let picked = run.quick_source(&mut Ground::of(&mut pages, ZONE));
    let [ScanStep::Turned { pfn, inclusive: true }] = run.take_log()[..] else {
        panic!("one turn")
    };
    assert_eq!(block_start(pfn.0), picked);
    let seen = before.iter().position(|&frame| frame == pfn.0).expect("it was listed");
    before.rotate_left(seen + 1);
    assert_eq!(listed(&mut pages, size), before);
    run.abandon(&mut pages);
}

#[test]
fn a_quick_search_for_targets_begins_the_next_one_behind_what_it_has_seen() {
    let mut pages = newest("m.m.m.m. m.m.m.m. m.m.m.m. m.m.m.m. m.m.m.m. m.m.m.m.");
    let size = Order::new(6).expect("64 pages are a block");
    let mut before = listed(&mut pages, size);
    let mut run = Compaction::new(&mut pages, ZONE, huge());
    run.keep_log();
    assert!(run.quick_targets(&mut Ground::of(&mut pages, ZONE)));
    let found = match run.take_log()[..] {
        [
            ScanStep::Turned { pfn, inclusive: false },
            ScanStep::Isolated { pfn: same, order },
            ScanStep::Searched { scanned, taken: 64, .. },
        ] => {
            assert!(scanned > 64, "the block, and what came before it on the list");
            assert_eq!((same, order), (pfn, size));
            pfn.0
        }
        ref steps => panic!("{steps:?}"),
    };
    let at = before.iter().position(|&frame| frame == found).expect("it was listed");
    let preferred = block_start(2560 - 2560 / 4);
    let lower = before[at + 1..].iter().all(|&frame| frame < preferred);
    assert!(found >= preferred && lower, "the last of those in the top quarter");
    before.rotate_left(at);
    assert_eq!(listed(&mut pages, size), before[1..], "the next target is the one before it");
    run.abandon(&mut pages);
}

#[test]
fn until_6_1_pages_move_one_by_one_and_take_the_place_of_one_that_stayed() {
    let mut pages = draw("hhhhhhhh uuuuuuuu uuuuuuuu hhhhhhhh", FragmentationPolicy::LINUX_6_1);
    let (mut run, first) = begin(&mut pages, huge());
    assert_eq!(first.len(), 1);
    run.migrated(&mut pages, MoveResults(0));
    let second = moves(&mut run, &mut pages);
    assert_eq!(second, vec![(first[0].0 - 2, first[0].1)], "the next page, to the same place");
    run.migrated(&mut pages, MoveResults(1));
    let third = moves(&mut run, &mut pages);
    assert_eq!(third[0].0, second[0].0 - 2);
    assert_ne!(third[0].1, second[0].1, "that place is taken");
    run.abandon(&mut pages);
    let mut pages = newest("hhhhhhhh uuuuuuuu uuuuuuuu hhhhhhhh");
    let (run, first) = begin(&mut pages, huge());
    assert_eq!(first.len(), 32, "a piece at once");
    run.abandon(&mut pages);
}

/// A real 6.1 took free pages of an unmovable pageblock in this way.
#[test]
fn after_a_first_search_in_vain_who_waits_uses_the_middle_of_what_is_left_whatever_its_type() {
    let before = "uuuuuuuu hhhhhhhh uuuuuuuu hhhhhhhh uuuuuuuu uuuuuuuu uuuuuuuu";
    for (mode, uses) in [(Mode::SyncLight, true), (Mode::Async, false), (Mode::Background, false)] {
        let mut pages = newest(before);
        pages.set_block_type(Pfn(1536), Migratetype::Unmovable).expect("it is whole");
        let mut run = Compaction::new(&mut pages, ZONE, block(9, Migratetype::Movable, mode));
        match run.step(&mut pages, ALL) {
            CompactionStep::Migrate(moves) if uses => {
                let targets = 1536..2048;
                assert!(moves.pairs().iter().all(|pair| targets.contains(&pair.to.0)));
            }
            CompactionStep::Done(_) if !uses => assert_eq!(picture(&pages), before, "{mode:?}"),
            step => panic!("{mode:?}: {step:?}"),
        }
        run.abandon(&mut pages);
    }
}

#[test]
fn a_block_that_a_batch_frees_on_its_way_is_on_no_list_before_its_move_ends() {
    for policy in [FragmentationPolicy::LINUX_6_1, FragmentationPolicy::LINUX_7_2] {
        let mut pages = draw("uuuuuuuu hhhhhhhh uuuuuuuu uuuuuuuu hhhhhhhh", policy);
        let free = |pages: &PageAllocator| pages.zones().next().expect("there is one").free.0;
        let before = free(&pages);
        let (mut run, first) = begin(&mut pages, huge());
        // Until 6.1 the second has been taken, and waits for its turn.
        assert_eq!(first[0].0, 574);
        for pfn in [574, 572].map(Pfn) {
            pages.free_as(cpu(), pfn, Migratetype::Movable).expect("it is in use");
            assert_eq!(pages.cached_as(pfn), None, "{pfn}");
            assert!(pages.free_as(cpu(), pfn, Migratetype::Movable).is_err(), "{pfn}");
        }
        run.migrated(&mut pages, MoveResults(u32::MAX));
        run.abandon(&mut pages);
        pages.drain_all();
        assert_eq!(pages.check(), Ok(()));
        assert_eq!(free(&pages), before + 2);
    }
}

#[test]
fn the_lists_of_cpus_are_given_back_once_a_window_lies_behind() {
    let mut pages = newest("hhhhhhhh uuuuuuuu uuuuuuuu hhhhhhhh");
    pages.free(cpu(), Pfn(600)).expect("it is in use");
    assert_eq!(pages.cached_as(Pfn(600)), Some(Migratetype::Movable));
    let (mut run, _) = begin(&mut pages, huge());
    run.migrated(&mut pages, MoveResults(u32::MAX));
    moves(&mut run, &mut pages);
    assert!(pages.cached_as(Pfn(600)).is_some(), "it does not yet");
    run.migrated(&mut pages, MoveResults(u32::MAX));
    while let CompactionStep::Migrate(_) = run.step(&mut pages, ALL) {
        run.migrated(&mut pages, MoveResults(u32::MAX));
    }
    assert_eq!(pages.cached_as(Pfn(600)), None);
    assert!(run.take_log().contains(&ScanStep::Drained));
    run.abandon(&mut pages);
}

#[test]
fn what_else_is_free_in_a_pageblock_goes_along_where_lists_are_strict() {
    let mut pages = newest("uuuuuuuu uuuuuuuu uuuuuuuu");
    pages.set_block_type(Pfn(1024), Migratetype::Unmovable).expect("it is a pageblock");
    for frame in (1024..1280).chain(1408..1472) {
        pages.free(cpu(), Pfn(frame)).expect("in use");
    }
    pages.drain_all();
    let mut pool = Pool::EMPTY;
    let taken =
        Ground::of(&mut pages, ZONE).isolate(1024, Order::new(8).expect("small"), &mut pool);
    assert_eq!(taken, 256, "{}", picture(&pages));
    assert_eq!(pages.block_type(Pfn(1408)), Some(Migratetype::Movable));
    pages.check().expect("sound");
}
