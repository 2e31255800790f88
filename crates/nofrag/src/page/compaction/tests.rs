//! Zones as strings of cells, eight to a pageblock: `m` movable pages, `h` the same with every second one free, `u`
//! pages that must not move, `M` one movable block of 64 pages, `.` free pages.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::cpu::CpuId;
use crate::page::allocator::{MinFree, PageConfig};
use crate::page::map::{MemoryMap, NodeMap, ZoneKind, ZoneMap};
use crate::page::request::PageRequest;
use crate::page::walk::{AllocFlags, Mark, Walk};
use crate::units::PageCount;

/// Pages of a cell.
const CELL: u64 = 64;
const CELL_ORDER: Order = Order::new(6).expect("64 pages are a block");
const ZONE: ZoneId = ZoneId(0);
const ALL: PageBudget = PageBudget { pages: u64::MAX };

/// An owner that moves what it is asked to.
struct Willing;

impl Migrate for Willing {
    fn migrate(&mut self, _: Pfn, _: Pfn, _: Order) -> bool {
        true
    }
}

fn cpu(pages: &PageAllocator) -> CpuId {
    let _ = pages;
    CPUS.with(|cpus| cpus.iter().next().expect("there is one"))
}

std::thread_local! {
    static CPUS: crate::cpu::CpuSet = crate::cpu::CpuSet::new([0]).expect("one number");
}

fn config(pages: u64, policy: FragmentationPolicy) -> PageConfig {
    let zones = vec![ZoneMap::new(ZoneKind::Normal, Pfn(0), PageCount(pages))];
    let map = MemoryMap::new(vec![NodeMap { cpus: vec![0], zones }], &[]).expect("a plain map");
    PageConfig { min_free: MinFree::Pages(0), ..PageConfig::new(map, policy) }
}

/// Takes a block whatever the marks say.
fn take(pages: &mut PageAllocator, order: Order) -> Option<Pfn> {
    let mut flags = AllocFlags::at(Mark::Min);
    flags.mark = None;
    match pages.walk(cpu(pages), &PageRequest::user(order), flags) {
        Walk::Page(pfn) => Some(pfn),
        _ => None,
    }
}

/// The zone of a picture.
fn draw(picture: &str, policy: FragmentationPolicy) -> PageAllocator {
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
                pages.free(cpu(&pages), Pfn(frame)).expect("in use");
            }
        }
    }
    pages.drain_all();
    sound(&pages);
    pages
}

/// The picture of a zone; `?` for cells that no picture begins with.
fn picture(pages: &PageAllocator) -> String {
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

fn sound(pages: &PageAllocator) {
    let (mut frame, mut free, mut targets) = (0, 0, 0);
    while frame < pages.zones[0].end {
        let tag = pages.frames.tag(frame);
        assert_ne!(tag, Tag::INSIDE, "frame {frame} belongs to no block");
        match tag.kind() {
            Kind::Free => free += tag.order().pages(),
            Kind::Target => targets += tag.order().pages(),
            _ => {}
        }
        frame += tag.order().pages() as FrameIndex;
    }
    let zone = &pages.zones[0];
    assert_eq!((free, targets), (zone.lists.total(), zone.compaction.in_flight));
}

/// The block to which a frame belongs.
fn head(frames: &Frames, frame: FrameIndex) -> (FrameIndex, Tag) {
    let starts = Order::all().map(|order| frame & !(order.pages() as FrameIndex - 1));
    let head = { starts }.find(|&start| frames.tag(start) != Tag::INSIDE).expect("a head");
    (head, frames.tag(head))
}

fn finish(pages: &mut PageAllocator, job: Job) -> CompactionResult {
    let mut run = Compaction::new(pages, ZONE, job);
    loop {
        match run.step(pages, ALL) {
            CompactionStep::Migrate(moves) => {
                run.migrated(pages, moves.carry_out(&mut Willing));
                sound(pages);
            }
            CompactionStep::Continue => {}
            CompactionStep::Done(result) => return result,
        }
    }
}

const EVERYTHING: Job = Job { goal: Goal::Everything, mode: Mode::Background, cma: Cma::Usable };

fn block(order: u8, migratetype: Migratetype, mode: Mode) -> Job {
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
    check_run("m.m.m.m. m.m.m.m.", EVERYTHING, "........ mmmmmmmm", complete);
    check_run("hhhhhhhh hhhhhhhh", EVERYTHING, "........ mmmmmmmm", complete);
    check_run("mm...... mm...... mm......", EVERYTHING, "........ ........ mmmmmm..", complete);
    check_run("mmmmmmmm mmmmmmmm", EVERYTHING, "mmmmmmmm mmmmmmmm", complete);
    check_run("........ ........", EVERYTHING, "........ ........", complete);
}

#[test]
fn what_must_not_move_stays() {
    let complete = CompactionResult::Complete;
    check_run("m.u.m.m. m.m.m.u.", EVERYTHING, "..u..... mmmmmmu.", complete);
    check_run("uuuuuuuu u.u.u.u.", EVERYTHING, "uuuuuuuu u.u.u.u.", complete);
}

#[test]
fn one_pageblock_is_not_moved_within_itself() {
    check_run("m.m.m.m.", EVERYTHING, "m.m.m.m.", CompactionResult::Complete);
}

#[test]
fn larger_blocks_move_as_a_whole() {
    let complete = CompactionResult::Complete;
    check_run("M....... m.m.m.m.", EVERYTHING, "........ m.m.m.mM", complete);
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
    pages.free(cpu(&pages), pfn).expect("it is in use");
    sound(&pages);
}
