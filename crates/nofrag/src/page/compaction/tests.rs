//! Zones as strings of cells, eight to a pageblock: `m` movable pages, `h` the same with every second one free, `u`
//! pages that must not move, `M` one movable block of 64 pages, `.` free pages.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::check::Check;
use crate::cpu::{CpuId, CpuSet};
use crate::page::allocator::{MinFree, PageConfig};
use crate::page::map::{MemoryMap, NodeId, NodeMap, PfnRange, ZoneKind, ZoneMap};
use crate::page::owner::Move;
use crate::page::request::PageRequest;
use crate::page::walk::{AllocFlags, Walk};
use crate::units::PageCount;

/// Pages that a cell of a picture stands for.
const CELL: u64 = 64;
const CELL_ORDER: Order = Order::new(6).expect("64 pages are a block");
pub(in crate::page) const ZONE: ZoneId = ZoneId(0);
pub(in crate::page) const ALL: PageBudget = PageBudget { pages: u64::MAX };

/// An owner that moves what it is asked to.
pub(in crate::page) struct Willing;

impl Migrate for Willing {
    fn migrate(&mut self, _: Pfn, _: Pfn, _: Order) -> bool {
        true
    }
}

pub(in crate::page) fn cpu() -> CpuId {
    CpuSet::first(1).expect("there is memory").by_rank(0).expect("it has one CPU")
}

fn config(pages: u64, policy: FragmentationPolicy) -> PageConfig {
    let zones = vec![ZoneMap::new(ZoneKind::Normal, Pfn(0), PageCount(pages))];
    let map = MemoryMap::new(vec![NodeMap { cpus: vec![0], zones }], &[]).expect("a plain map");
    PageConfig { min_free: MinFree::Pages(0), ..PageConfig::new(map, policy) }
}

/// Takes a block whatever the watermarks say.
fn take(pages: &mut PageAllocator, order: Order) -> Option<Pfn> {
    match pages.walk(cpu(), &PageRequest::user(order), AllocFlags::NO_WATERMARKS) {
        Walk::Block(frame) => Some(pages.frames.pfn(frame)),
        _ => None,
    }
}

/// Makes the zone of a picture.
pub(in crate::page) fn draw(picture: &str, policy: FragmentationPolicy) -> PageAllocator {
    let cells: Vec<char> = picture.chars().filter(|c| !c.is_whitespace()).collect();
    assert_eq!(cells.len() % 8, 0, "whole pageblocks");
    let mut pages = PageAllocator::new(&config(cells.len() as u64 * CELL, policy)).expect("small");
    while take(&mut pages, CELL_ORDER).is_some() {}
    for (index, &cell) in cells.iter().enumerate() {
        let first = index as u64 * CELL;
        if matches!(cell, 'm' | 'h' | 'u') {
            for frame in first..first + CELL {
                let tag = Tag::new(Kind::Used, Order::ZERO);
                pages.frames.set_tag(frame as FrameIndex, tag);
            }
        }
        for frame in first..first + CELL {
            match cell {
                'm' | 'h' => pages.set_movable(Pfn(frame), true).expect("in use"),
                'M' if frame == first => pages.set_movable(Pfn(frame), true).expect("in use"),
                _ => {}
            }
            if cell == '.' && frame == first || cell == 'h' && frame % 2 == 1 {
                pages.free(cpu(), Pfn(frame)).expect("in use");
            }
        }
    }
    pages.drain_all();
    pages.check().expect("sound");
    pages
}

/// Draws a zone; `?` for cells that no picture begins with.
pub(in crate::page) fn picture(pages: &PageAllocator) -> String {
    let mut drawn = String::new();
    for first in (0..u64::from(pages.zones[0].end)).step_by(CELL as usize) {
        if first > 0 && first % Order::PAGEBLOCK.pages() == 0 {
            drawn.push(' ');
        }
        let (mut free, mut movable, mut fixed) = (0, 0, 0);
        let mut frame = first as FrameIndex;
        while u64::from(frame) < first + CELL {
            let (head, tag) = head(&pages.frames, frame);
            let end = head + tag.order().pages() as FrameIndex;
            let inside = u64::from(end).min(first + CELL) - u64::from(frame);
            match tag.kind() {
                Kind::Free => free += inside,
                Kind::Used if tag.is_movable() => movable += inside,
                _ => fixed += inside,
            }
            frame = end;
        }
        drawn.push(match (free, movable, fixed) {
            (CELL, 0, 0) => '.',
            (0, CELL, 0) if pages.frames.tag(first as FrameIndex).order() == CELL_ORDER => 'M',
            (0, CELL, 0) => 'm',
            (0, 0, CELL) => 'u',
            (32, 32, 0) => 'h',
            _ => '?',
        });
    }
    drawn
}

/// Returns the block to which a frame belongs.
fn head(frames: &Frames, frame: FrameIndex) -> (FrameIndex, Tag) {
    let starts = Order::all().map(|order| frame & !(order.pages() as FrameIndex - 1));
    let head = { starts }.find(|&start| frames.tag(start) != Tag::INSIDE).expect("a head");
    (head, frames.tag(head))
}

pub(in crate::page) fn finish(pages: &mut PageAllocator, job: Job) -> CompactionResult {
    let run = Compaction::new(pages, ZONE, job).on(cpu());
    ended(pages, run)
}

fn ended(pages: &mut PageAllocator, mut run: Compaction) -> CompactionResult {
    loop {
        match run.step(pages, ALL) {
            CompactionStep::Migrate(moves) => {
                run.migrated(pages, moves.carry_out(&mut Willing));
                pages.check().expect("sound");
            }
            CompactionStep::Continue => {}
            CompactionStep::Done(result) => return result,
        }
    }
}

const EVERYTHING: Job = Job { goal: Goal::Everything, mode: Mode::Background, cma: Cma::Usable };

pub(in crate::page) fn block(order: u8, migratetype: Migratetype, mode: Mode) -> Job {
    let order = Order::new(order).expect("a test names orders");
    Job { goal: Goal::Block(order, migratetype), mode, cma: Cma::Useless }
}

#[track_caller]
fn check_run(before: &str, job: Job, after: &str, result: CompactionResult) {
    let mut pages = draw(before, FragmentationPolicy::LINUX_7_2);
    assert_eq!(finish(&mut pages, job), result, "{before}");
    assert_eq!(picture(&pages), after, "from {before}");
    assert_eq!(pages.zones[0].compaction.in_flight, 0);
}

#[test]
fn everything_moves_to_the_top() {
    let complete = CompactionResult::Complete;
    let check = |before, after| check_run(before, EVERYTHING, after, complete);
    check("m.m.m.m. ........ m.m.m.m.", "........ ........ mmmmmmmm");
    check("hhhhhhhh hhhhhhhh hhhhhhhh", "........ hhhhhhhh mmmmmmmm");
    check("m....... m....... ........ m.......", "........ ........ ........ mmm.....");
    check_run("mmmmmmmm mmmmmmmm", EVERYTHING, "mmmmmmmm mmmmmmmm", complete);
    check_run("........ ........", EVERYTHING, "........ ........", complete);
}

#[test]
fn what_must_not_move_stays() {
    let complete = CompactionResult::Complete;
    check_run("m.u.m.m. ........ m.m.m.u.", EVERYTHING, "..u..... ........ mmmmmmu.", complete);
    check_run("uuuuuuuu u.u.u.u.", EVERYTHING, "uuuuuuuu u.u.u.u.", complete);
}

#[test]
fn the_emptiest_pageblock_that_can_be_emptied_moves_into_the_fullest() {
    let job = block(9, Migratetype::Movable, Mode::SyncLight);
    let check = |before: &str, after: &str, result| {
        let mut pages = draw(before, FragmentationPolicy::NOFRAG);
        assert_eq!(finish(&mut pages, job), result, "{before}");
        assert_eq!(picture(&pages), after, "from {before}");
    };
    let (success, complete) = (CompactionResult::Success, CompactionResult::Complete);
    let in_turn = |result| matches!(result, CompactionResult::Captured(_));
    check("uuuuuuu. uuuuuuu. u.......", "uuuuuuu. uuuuuuu. u.......", complete);
    check("m.mmmmmm m.mmmmmm", "m.mmmmmm m.mmmmmm", complete);
    check("........ m.......", "........ m.......", success);
    for (before, after) in [
        ("mmmmmmm. m.m.m... mm.mm.mm", "mmmmmmmm uuuuuuuu mmmmmmmm"),
        ("mmmmmmm. u....... m.m.m... mm.mm.mm", "mmmmmmmm u....... uuuuuuuu mmmmmmmm"),
        ("mmmmmmmm u....... m.m.m...", "mmmmmmmm ummm.... uuuuuuuu"),
    ] {
        let mut pages = draw(before, FragmentationPolicy::NOFRAG);
        assert!(in_turn(finish(&mut pages, job)), "from {before}");
        assert_eq!(picture(&pages), after, "from {before}: the block was kept for the caller");
        assert_eq!(pages.counters.moved, 192);
    }
}

/// Checks where our scanners move what, and how many frames each of them looks at.
#[track_caller]
fn check_ours(before: &str, job: Job, after: &str, result: CompactionResult, looks: [u64; 2]) {
    let mut pages = draw(before, FragmentationPolicy::NOFRAG);
    assert_eq!(finish(&mut pages, job), result, "{before}");
    assert_eq!(picture(&pages), after, "from {before}");
    let PageCounters { migrate_scanned, free_scanned, .. } = pages.counters;
    assert_eq!([migrate_scanned, free_scanned], looks, "from {before}");
    assert_eq!(pages.zones[0].compaction.in_flight, 0);
}

#[test]
fn ours_moves_everything_to_the_top_but_into_no_whole_pageblock() {
    let complete = CompactionResult::Complete;
    let check = |before, after, looks| check_ours(before, EVERYTHING, after, complete, looks);
    check("m.m.m.m. ........ m.m.m.m.", "........ ........ mmmmmmmm", [260, 512]);
    check("hhhhhhhh hhhhhhhh hhhhhhhh", "........ hhhhhhhh mmmmmmmm", [513, 512]);
    check("m....... m....... ........ m.......", "........ ........ ........ mmm.....", [130, 192]);
    check("m.m.m.m.", "m.m.m.m.", [0; 2]);
    check("m.u.m.m. ........ m.m.m.u.", "m.u.m.m. ........ m.m.m.u.", [0; 2]);
    check("M....... ........ m.m.m.m.", "........ ........ m.m.m.mM", [2, 1]);
    check("M....... ........ hhhhhhhh", "M....... ........ hhhhhhhh", [4, 0]);
    check("M....... hhhhhhhh M.....m.", "........ ........ MMmmmmm.", [514, 259]);
    check("M.M.m... mM......", "........ mMMMm...", [69, 133]);
}

#[test]
fn ours_makes_a_block_of_each_order_as_the_caller_may_wait() {
    let (complete, at_768) = (CompactionResult::Complete, CompactionResult::Captured(Pfn(768)));
    let at_512 = CompactionResult::Captured(Pfn(512));
    let check = |order, mode, before, after, result, looks| {
        check_ours(before, block(order, Migratetype::Movable, mode), after, result, looks);
    };
    use Mode::{Async, SyncFull, SyncLight};
    let before = "mumu.umu muhuhhmu mumumumh umu.umuh";
    check(7, Async, before, "mumu.umu muhuuumu mumumumh umumumuh", at_768, [644, 256]);
    let after = ".u.u.u.u mumumhmu mumumumm umumumum";
    check(7, SyncLight, before, after, complete, [449, 1344]);
    check(7, SyncFull, before, after, complete, [449, 1344]);
    let before = "MumuMumu mumuhuMu mumumumu umu.umuh";
    check(7, Async, before, before, complete, [591, 0]);
    check(7, SyncLight, before, ".u.uMumu mumumuMu mumumumu umuMumum", complete, [259, 899]);
    let before = "m.um.um. hhhh.umu mumumumh umu.umuh";
    let after = "m.um.um. uuuu.umu mumumumm umumumum";
    check(8, Async, before, after, at_512, [510, 1024]);
    check(8, SyncLight, before, after, at_512, [255, 1024]);
    let after = "..u..u.. mmhh.umu mumumumm umumumum";
    check(8, SyncFull, before, after, complete, [323, 1152]);
    let before = "hhhhhhhu M.M.m.m. hhhhmmmm u.u.m.m. mmm.mmm.";
    let after = "hhhhhhhu uuuuuuuu mmmmmmmm u.u.m.m. mmmMmmmM";
    check(9, Async, before, after, at_512, [266, 130]);
    check(9, SyncLight, before, after, at_512, [133, 130]);
    let after = "hhhhhhhu uuuuuuuu hhhhmmmm umumm.m. mmmMmmmM";
    check(9, SyncFull, before, after, at_512, [133, 258]);
    let before = "hhhhhhhh uuuuuuuu hhhhhhhh m.m.m.m. u.u.u.u. h.h.h.h.";
    let after = "........ uuuuuuuu mmmmmmmm m.m.m.m. umumu.u. ........";
    check(10, Async, before, after, complete, [1027, 384]);
    check(10, SyncLight, before, after, complete, [768, 384]);
    let after = "........ uuuuuuuu ........ ....m.m. umumumum mmmmmmmm";
    check(10, SyncFull, before, after, complete, [1155, 1024]);
}

/// A block of 64 pages finds no place as large: the pages behind it move on, and then another pageblock is emptied.
#[test]
fn a_block_without_a_place_ends_no_run() {
    let job = block(9, Migratetype::Movable, Mode::SyncLight);
    let captured = CompactionResult::Captured(Pfn(512));
    check_ours(
        "Mm...... hhhhhhhh uuuuuuuu",
        job,
        "Mmmmmm.. uuuuuuuu uuuuuuuu",
        captured,
        [578, 385],
    );
}

#[test]
fn a_page_without_a_place_ends_the_run() {
    let mut pages = draw("m....... hhhhhhhh", FragmentationPolicy::NOFRAG);
    let job = block(9, Migratetype::Movable, Mode::SyncLight);
    let mut run = Compaction::new(&mut pages, ZONE, job);
    let CompactionStep::Migrate(moves) = run.step(&mut pages, ALL) else { panic!("pages move") };
    run.migrated(&mut pages, moves.carry_out(&mut Willing));
    // The fullest pageblock serves first, and is full then.
    (32..256).for_each(|_| _ = take(&mut pages, Order::ZERO).expect("there is memory"));
    assert_eq!(picture(&pages), "h....... m???????");
    let scanned = pages.counters.migrate_scanned;
    let result = run.step(&mut pages, ALL);
    assert_eq!(result, CompactionStep::Done(CompactionResult::Complete));
    assert_eq!(pages.counters.migrate_scanned - scanned, 1);
}

/// Of a list 33 blocks are looked at: those below the source pageblock's end serve nobody.
#[test]
fn a_large_block_looks_for_a_place_at_a_part_of_the_list() {
    for (free, moved) in [(32, 2), (33, 0)] {
        let mut pages = draw("uuuuuuuu uuuuuuuu uuuuuuuu", FragmentationPolicy::NOFRAG);
        let pair_order = Order::new(1).expect("an order");
        // Pairs of pages in use throughout, one of which can move; `free` others are free beside it.
        for pair in 0..3 * 256 {
            pages.frames.set_tag(2 * pair, Tag::new(Kind::Used, pair_order));
            pages.frames.set_tag(2 * pair + 1, Tag::INSIDE);
        }
        pages.set_movable(Pfn(0), true).expect("it is in use");
        let freed = (0..20).map(|pair| 1024 + 4 * pair);
        for pfn in freed.chain((0..free).map(|pair| 2 + 4 * pair)) {
            pages.free(cpu(), Pfn(pfn)).expect("it is in use");
        }
        pages.drain_all();
        pages.check().expect("sound");
        finish(&mut pages, block(2, Migratetype::Movable, Mode::SyncLight));
        assert_eq!(pages.counters.moved, moved, "{free} free below");
    }
}

#[test]
fn a_captured_block_is_free_again_when_the_run_is_given_up() {
    let mut pages = draw("hhhhhhhh hhhhhhhh", FragmentationPolicy::NOFRAG);
    let job = block(9, Migratetype::Movable, Mode::SyncLight);
    let mut run = Compaction::new(&mut pages, ZONE, job);
    while run.captured == NONE {
        let CompactionStep::Migrate(moves) = run.step(&mut pages, ALL) else {
            panic!("pages move")
        };
        run.migrated(&mut pages, moves.carry_out(&mut Willing));
    }
    assert_eq!(pages.zones[0].compaction.in_flight, 512);
    run.abandon(&mut pages);
    assert_eq!(pages.zones[0].compaction.in_flight, 0);
    pages.check().expect("sound");
    assert_eq!(picture(&pages), "mmmmmmmm ........");
}

#[test]
fn a_run_ahead_is_for_policies_that_work_ahead() {
    for (policy, works) in
        [(FragmentationPolicy::LINUX_4_20, false), (FragmentationPolicy::LINUX_7_2, true)]
    {
        let mut pages = draw("hhhhhhhh hhhhhhhh", policy);
        assert_eq!(Compaction::ahead(&mut pages, ZONE).is_some(), works);
        assert!(Compaction::ahead(&mut pages, ZoneId(1)).is_none());
    }
}

#[test]
fn a_run_for_a_block_is_one_over_a_zone_that_there_is() {
    let mut pages = draw("hhhhhhhh hhhhhhhh", FragmentationPolicy::NOFRAG);
    let of_block = |pages: &mut PageAllocator, zone| {
        let (order, migratetype) = (Order::PAGEBLOCK, Migratetype::Movable);
        Compaction::for_block(pages, zone, order, migratetype, Mode::SyncLight)
    };
    assert!(of_block(&mut pages, ZoneId(1)).is_none());
    let run = of_block(&mut pages, ZONE).expect("there is such a zone");
    assert!(matches!(ended(&mut pages, run), CompactionResult::Captured(_)));
}

/// Pages 0, 8, 12 and so on are in use, 2 to 4 are missing: eight in a row become free behind them.
#[test]
fn ours_steps_over_holes_in_a_pageblock() {
    for (mode, first) in [(Mode::SyncLight, Kind::Free), (Mode::Async, Kind::Used)] {
        let holes = vec![PfnRange { start: Pfn(2), pages: PageCount(3) }];
        let zone = ZoneMap::new(ZoneKind::Normal, Pfn(0), PageCount(1024));
        let zones = vec![ZoneMap { holes, ..zone }];
        let map = MemoryMap::new(vec![NodeMap { cpus: vec![0], zones }], &[]).expect("a map");
        let policy = FragmentationPolicy::NOFRAG;
        let config = PageConfig { min_free: MinFree::Pages(0), ..PageConfig::new(map, policy) };
        let mut pages = PageAllocator::new(&config).expect("small");
        let taken: Vec<Pfn> = core::iter::from_fn(|| take(&mut pages, Order::ZERO)).collect();
        assert_eq!(taken.len(), 1024 - 3);
        for &pfn in &taken {
            pages.set_movable(pfn, true).expect("in use");
            if pfn.0 % 4 > 0 {
                pages.free(cpu(), pfn).expect("in use");
            }
        }
        pages.drain_all();
        let result = finish(&mut pages, block(3, Migratetype::Movable, mode));
        assert_eq!(result, CompactionResult::Captured(Pfn(8)));
        assert_eq!(pages.frames.tag(0).kind(), first, "who does not wait empties whole windows");
    }
}

#[test]
fn one_pageblock_is_not_moved_within_itself() {
    check_run("m.m.m.m.", EVERYTHING, "m.m.m.m.", CompactionResult::Complete);
}

#[test]
fn larger_blocks_move_as_a_whole() {
    let complete = CompactionResult::Complete;
    check_run("M....... ........ m.m.m.m.", EVERYTHING, "........ ........ mMm.m.m.", complete);
    let mut pages = draw("M....... ........ m.m.m.m.", FragmentationPolicy::LINUX_6_1);
    finish(&mut pages, EVERYTHING);
    assert_eq!(pages.counters.moved, 0, "until 6.1 only single pages are");
}

#[test]
fn a_run_for_one_block_ends_when_there_is_one() {
    let job = block(9, Migratetype::Movable, Mode::SyncLight);
    let before = "m.m.m.m. m.m.m.m. m.m.m.m. m.m.m.m.";
    let mut pages = draw(before, FragmentationPolicy::LINUX_7_2);
    let CompactionResult::Captured(pfn) = finish(&mut pages, job) else {
        panic!("{}", picture(&pages));
    };
    let cells = picture(&pages);
    assert_eq!(cells.split(' ').nth(pfn.0 as usize / 512), Some("uuuuuuuu"), "{cells}");
    assert_eq!(pages.counters.moved, 256, "no more than one pageblock was emptied");
    pages.free(cpu(), pfn).expect("it is in use");
    pages.check().expect("sound");
}

#[derive(Clone, Copy)]
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 32) % bound
    }
}

/// Runs under random interference: the owner allocates, frees, pins and refuses between a step and its report.
struct World {
    pages: PageAllocator,
    live: BTreeMap<u64, Order>,
    chance: Chance,
    run: Option<Compaction>,
}

impl World {
    fn anybody(&mut self) -> Option<(u64, Order)> {
        let from = self.chance.below(self.pages.zones[0].end.into());
        self.live.range(from..).next().map(|(&pfn, &order)| (pfn, order))
    }

    fn act(&mut self) {
        if self.chance.below(8) < 5 { self.interfere() } else { self.compact() }
    }

    /// Performs a random operation that is not compaction.
    fn interfere(&mut self) {
        match self.chance.below(5) {
            0 | 1 => {
                let order = Order::new(self.chance.below(4) as u8).expect("it is small");
                if let Some(pfn) = take(&mut self.pages, order) {
                    assert_eq!(self.live.insert(pfn.0, order), None, "handed out twice");
                    let movable = self.chance.below(5) > 0;
                    self.pages.set_movable(pfn, movable).expect("it is in use");
                }
            }
            2 | 3 => {
                if let Some((pfn, _)) = self.anybody() {
                    self.pages.free(cpu(), Pfn(pfn)).expect("it is in use");
                    self.live.remove(&pfn);
                }
                let any = Pfn(self.chance.below(self.pages.zones[0].end.into()));
                let live = self.live.contains_key(&any.0);
                assert!(live || self.pages.free(cpu(), any).is_err(), "nobody has {any}");
            }
            _ => {
                if let Some((pfn, _)) = self.anybody() {
                    let movable = self.chance.below(5) > 0;
                    self.pages.set_movable(Pfn(pfn), movable).expect("it is in use");
                }
            }
        }
    }

    fn compact(&mut self) {
        let Some(mut run) = self.run.take() else {
            let goals = [
                Goal::Everything,
                Goal::Block(Order::PAGEBLOCK, Migratetype::Movable),
                Goal::Block(Order::COSTLY, Migratetype::Unmovable),
                Goal::WholeBlocks,
            ];
            let goal = goals[self.chance.below(4) as usize];
            let modes = [Mode::Async, Mode::SyncLight, Mode::SyncFull, Mode::Background];
            let mode = modes[self.chance.below(4) as usize];
            let job = Job { goal, mode, cma: Cma::Useless };
            self.run = Some(Compaction::new(&mut self.pages, ZONE, job));
            return;
        };
        if self.chance.below(20) == 0 {
            return run.abandon(&mut self.pages);
        }
        let budget = PageBudget { pages: 1 + self.chance.below(300) };
        match run.step(&mut self.pages, budget) {
            CompactionStep::Continue => {}
            CompactionStep::Migrate(moves) => {
                for _ in 0..self.chance.below(4) {
                    self.interfere();
                }
                let results = MoveResults(self.chance.below(1 << 32) as u32);
                for (index, pair) in moves.pairs().iter().enumerate() {
                    assert_eq!(self.pages.frames.tag(pair.to.0 as u32).kind(), Kind::Target);
                    if results.moved(index) && self.live.remove(&pair.from.0).is_some() {
                        assert_eq!(self.live.insert(pair.to.0, pair.order), None);
                    }
                }
                run.migrated(&mut self.pages, results);
            }
            CompactionStep::Done(result) => {
                if let CompactionResult::Captured(pfn) = result {
                    let order = self.pages.frames.tag(pfn.0 as FrameIndex).order();
                    assert_eq!(self.live.insert(pfn.0, order), None, "captured twice");
                }
                return;
            }
        }
        self.run = Some(run);
    }
}

#[test]
fn no_page_is_lost_or_handed_out_twice_whatever_happens_during_a_move() {
    for policy in [FragmentationPolicy::LINUX_4_20, FragmentationPolicy::LINUX_7_2] {
        for seed in 0..5 {
            let pages = draw("hhhhhhhh m.m.u.m. hhhuhhhh MMMM.... hhhhhhhh", policy);
            let live = (0..u64::from(pages.zones[0].end)).filter_map(|pfn| {
                let tag = pages.frames.tag(pfn as FrameIndex);
                (tag.kind() == Kind::Used).then(|| (pfn, tag.order()))
            });
            let live = live.collect();
            pages.check().expect("sound");
            let mut world = World { pages, live, chance: Chance(seed), run: None };
            for step in 0..2_000 {
                world.act();
                if let Err(law) = world.pages.check() {
                    panic!("seed {seed} step {step}: {law}");
                }
            }
            if let Some(run) = world.run.take() {
                run.abandon(&mut world.pages);
            }
            assert_eq!(world.pages.zones[0].compaction.in_flight, 0);
            for &pfn in world.live.keys() {
                world.pages.free(cpu(), Pfn(pfn)).expect("it is in use");
            }
            world.pages.drain_all();
            world.pages.check().expect("sound");
            assert_eq!(world.pages.zones[0].lists.total(), 5 * 512, "seed {seed}");
        }
    }
}

fn moved(picture: &str, job: Job) -> u64 {
    let mut pages = draw(picture, FragmentationPolicy::LINUX_7_2);
    finish(&mut pages, job);
    pages.counters.moved
}

#[test]
fn who_does_not_wait_leaves_windows_alone_that_cannot_become_whole() {
    let mixed = "uhuhhhuh uhuhuhuh uhuhuhuh";
    assert_eq!(moved(mixed, block(7, Migratetype::Movable, Mode::Async)), 64, "one window");
    assert!(moved(mixed, block(7, Migratetype::Movable, Mode::SyncLight)) > 64);
    let spoilt = "uhhhhhhh hhhhhhhh uuuuuuuu m.m.m.m. m.m.m.m.";
    // The block that is kept as it becomes whole is noticed a piece later.
    let once = moved(spoilt, block(9, Migratetype::Movable, Mode::Async));
    assert_eq!(once, 256 + 32, "one pageblock and a piece");
    assert!(moved(spoilt, block(9, Migratetype::Movable, Mode::SyncLight)) > once);
}

#[test]
fn ours_moves_nothing_out_of_pageblocks_that_cannot_become_whole() {
    let picture = "hhhhhhhu hhhhuhhh hhhhhhhh hhhhhhhh hhhhhhhh hhhhhhhh";
    let job = Job { goal: Goal::WholeBlocks, mode: Mode::Background, cma: Cma::Useless };
    let run = |policy| {
        let mut pages = draw(picture, policy);
        pages.zones[0].marks.high = 1024;
        (finish(&mut pages, job), pages.counters.moved)
    };
    let ours = run(FragmentationPolicy::NOFRAG);
    assert_eq!(ours, (CompactionResult::Success, 512), "two pageblocks of 256 pages");
    let (result, moved) = run(FragmentationPolicy::LINUX_7_2_DEFRAG);
    assert_eq!(result, CompactionResult::Complete, "where to move to was used up in vain");
    assert!(moved > 512);
}

#[test]
fn which_pageblocks_are_emptied_for_whom() {
    use Migratetype::{Movable, Reclaimable, Unmovable};
    let check = |policy, order, start, mode, cma, expected: &[Migratetype]| {
        let mut pages = draw("........", policy);
        let run = Compaction::new(&mut pages, ZONE, Job { cma, ..block(order, start, mode) });
        let ground = Ground::of(&mut pages, ZONE);
        let types = [Unmovable, Movable, Reclaimable, Migratetype::Cma].into_iter();
        let allowed: Vec<_> = types.filter(|&each| run.sources_allowed(&ground, each)).collect();
        assert_eq!(allowed, expected, "order {order} {start} {mode:?} {cma:?}");
        run.abandon(&mut pages);
    };
    let all = [Unmovable, Movable, Reclaimable, Migratetype::Cma];
    let (old, new) = (FragmentationPolicy::LINUX_6_12, FragmentationPolicy::LINUX_7_2);
    for start in [Unmovable, Reclaimable] {
        check(old, 9, start, Mode::Async, Cma::Useless, &[start]);
        check(new, 8, start, Mode::Async, Cma::Useless, &[start]);
        check(new, 9, start, Mode::Async, Cma::Useless, &[Movable]);
    }
    check(old, 3, Movable, Mode::Async, Cma::Useless, &[Movable, Migratetype::Cma]);
    check(new, 3, Movable, Mode::Async, Cma::Useless, &[Movable]);
    check(new, 3, Movable, Mode::Async, Cma::Usable, &[Movable, Migratetype::Cma]);
    check(old, 3, Movable, Mode::SyncLight, Cma::Useless, &all);
    check(new, 3, Movable, Mode::SyncFull, Cma::Useless, &[Unmovable, Movable, Reclaimable]);
}

#[test]
fn what_was_seen_is_not_looked_at_again_until_kswapd_sleeps() {
    let mut pages = draw("huhuhuhu huhuhuhu uuuuuuuu hhhhhhhh", FragmentationPolicy::LINUX_7_2);
    let job = block(9, Migratetype::Movable, Mode::SyncLight);
    let scanned = |pages: &mut PageAllocator, job| {
        let before = pages.counters.migrate_scanned;
        assert_eq!(finish(pages, job), CompactionResult::Complete);
        pages.counters.migrate_scanned - before
    };
    assert!(scanned(&mut pages, job) >= 512);
    assert_eq!(scanned(&mut pages, job), 0, "all is marked");
    assert!(pages.frames.block(0).skip);
    // The first run has moved everything into the last pageblock, where it cannot move on.
    pages.set_movable(Pfn(64), true).expect("it is in use");
    pages.forget_scans(NodeId(0));
    assert!(!pages.frames.block(0).skip);
    assert!(!pages.zones[0].compaction.went_through, "once is enough");
}

#[test]
fn a_full_run_looks_at_what_others_have_marked() {
    let mut pages = draw("hhhhhhhh uuuuuuuu uuuuuuuu hhhhhhhh", FragmentationPolicy::LINUX_7_2);
    for block in 0..4 {
        pages.frames.block_mut(block * 512).skip = true;
    }
    finish(&mut pages, block(10, Migratetype::Movable, Mode::SyncLight));
    assert_eq!(pages.counters.moved, 0);
    finish(&mut pages, block(10, Migratetype::Movable, Mode::SyncFull));
    assert_eq!(pages.counters.moved, 256);
}

#[test]
fn positions_are_kept_between_runs() {
    let mut pages = draw("huhuhuhu huhuhuhu uuuuuuuu hhhhhhhh", FragmentationPolicy::LINUX_7_2);
    let job = block(9, Migratetype::Movable, Mode::SyncLight);
    let mut run = Compaction::new(&mut pages, ZONE, job);
    while pages.zones[0].compaction.at.sources[1] == 0 {
        match run.step(&mut pages, PageBudget { pages: 64 }) {
            CompactionStep::Migrate(moves) => {
                run.migrated(&mut pages, moves.carry_out(&mut Willing));
            }
            CompactionStep::Continue => {}
            CompactionStep::Done(result) => panic!("{result:?}"),
        }
    }
    run.abandon(&mut pages);
    let compaction = &pages.zones[0].compaction;
    assert_eq!(compaction.positions().0.sources[1], compaction.at.sources[1]);
    let run = Compaction::new(&mut pages, ZONE, job);
    assert_eq!(run.positions(), (Pfn(1024), Pfn(1536)), "one behind the next is where it goes on");
    run.abandon(&mut pages);
    assert_eq!(finish(&mut pages, job), CompactionResult::Partial);
    let Positions { sources, targets, .. } = pages.zones[0].compaction.at;
    assert_eq!((sources, targets), ([0; 2], 1536), "the next begins at the ends");
}

#[test]
fn what_is_kept_as_it_becomes_free() {
    let wish = |order, migratetype| Capture {
        order: Order::new(order).expect("an order"),
        migratetype,
        frame: NONE,
    };
    let check = |wanted: (u8, Migratetype), freed: (u8, Migratetype), kept| {
        let order = Order::new(freed.0).expect("an order");
        let found = wish(wanted.0, wanted.1).keep(8, order, freed.1);
        assert_eq!(found, kept, "{wanted:?} of {freed:?}");
    };
    use Migratetype::{Isolate, Movable, Reclaimable, Unmovable};
    check((3, Movable), (3, Movable), Kept::Yes);
    check((3, Movable), (3, Unmovable), Kept::Yes);
    check((3, Unmovable), (3, Reclaimable), Kept::Yes);
    check((9, Unmovable), (9, Movable), Kept::Yes);
    check((3, Unmovable), (3, Movable), Kept::No);
    check((3, Movable), (2, Movable), Kept::No);
    check((3, Movable), (4, Movable), Kept::No);
    check((3, Movable), (3, Migratetype::Cma), Kept::No);
    check((3, Movable), (3, Isolate), Kept::No);
    let mut twice = wish(3, Movable);
    assert_eq!(twice.keep(8, Order::COSTLY, Movable), Kept::Yes);
    assert_eq!(twice.keep(16, Order::COSTLY, Movable), Kept::No, "one is enough");
}

#[test]
fn a_kept_block_of_another_type_is_an_event_since_7_2() {
    for (policy, events) in
        [(FragmentationPolicy::LINUX_7_2, 1), (FragmentationPolicy::LINUX_6_12, 0)]
    {
        let mut pages = draw("huhuhuhu huhuhuhu", policy);
        pages.set_block_type(Pfn(0), Migratetype::Reclaimable).expect("there is one");
        let job = block(6, Migratetype::Movable, Mode::SyncLight);
        assert!(matches!(finish(&mut pages, job), CompactionResult::Captured(_)));
        assert_eq!(pages.counters.events_of(Migratetype::Movable), events);
    }
}

#[test]
fn moving_into_half_a_pageblock_makes_it_movable() {
    let mut pages = draw("hhhhhhhh uuuuuuuu uuuu....", FragmentationPolicy::LINUX_4_20);
    pages.frames.block_mut(1024).migratetype = Migratetype::Unmovable;
    let job = block(9, Migratetype::Movable, Mode::SyncLight);
    assert_eq!(finish(&mut pages, job), CompactionResult::Captured(Pfn(0)));
    assert_eq!(pages.frames.block(1024).migratetype, Migratetype::Movable);
}

#[test]
fn targets_are_taken_above_the_minimum_alone() {
    let mut pages = draw("hhhhhhhh hhhhhhhh", FragmentationPolicy::LINUX_7_2);
    pages.zones[0].marks.min = 512;
    finish(&mut pages, EVERYTHING);
    assert_eq!(pages.counters.moved, 0);
    pages.zones[0].marks.min = 510;
    finish(&mut pages, EVERYTHING);
    assert!(pages.counters.moved > 0);
}

#[test]
fn a_dropped_run_is_seen_as_pages_under_way() {
    let mut pages = draw("hhhhhhhh hhhhhhhh", FragmentationPolicy::LINUX_7_2);
    let mut run = Compaction::new(&mut pages, ZONE, EVERYTHING);
    let CompactionStep::Migrate(moves) = run.step(&mut pages, ALL) else { panic!("pages move") };
    assert_eq!(run.step(&mut pages, ALL), CompactionStep::Migrate(moves), "the same again");
    drop(run);
    assert_eq!(pages.zones[0].compaction.in_flight, 32);
    pages.check().expect("nothing is lost");
    let Move { from, to, .. } = moves.pairs()[0];
    assert!(pages.free(cpu(), to).is_err());
    pages.free(cpu(), from).expect("it is the owner's");
    pages.check().expect("nothing is lost");
}
