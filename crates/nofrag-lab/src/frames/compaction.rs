//! Runs of compaction: the engine makes each of the kernel's runs from the same state, on a copy of itself, and what it
//! moves where, in which order, and how it ends is compared.

use nofrag::page::{
    Compaction, CompactionImage, CompactionMode, CompactionResult, CompactionStep, Image,
    Migratetype, MoveResults, PageAllocator, PageBudget, PageConfig, ScanStep, ZoneId,
};
use nofrag::units::{Order, Pfn};

use super::events::{Event, Fields, Line};

/// A run as a kernel made it.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) zone: ZoneId,
    pub(super) order: Order,
    pub(super) migratetype: Migratetype,
    pub(super) mode: CompactionMode,
    /// Moves that succeeded, in order.
    pub(super) moved: Vec<(Pfn, Pfn)>,
    /// Pages that were taken, as the events count them.
    pub(super) taken: u64,
    /// Where the scanners were at the end, and how it ended.
    pub(super) end: Option<End>,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) source: u64,
    pub(super) target: u64,
    pub(super) status: String,
}

/// What the engine made of a run.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) moved: Vec<(Pfn, Pfn)>,
    pub(super) taken: u64,
    pub(super) end: End,
    /// The block that was kept as it became free.
    pub(super) captured: Option<Pfn>,
    /// What the scanners did.
    pub(super) log: Vec<ScanStep>,
    pub(super) memory: Option<CompactionImage>,
    pub(super) marks: Vec<(Pfn, bool)>,
}

/// The kernel's run that begins at this line; `None` if it has no end.
pub(super) fn run_at(
    lines: &[Line],
    begin: usize,
    zone: ZoneId,
    order: Order,
    mode: CompactionMode,
) -> Run {
    let task = &lines[begin].task;
    let mut run = Run {
        zone,
        order,
        migratetype: Migratetype::Movable,
        mode,
        moved: Vec::new(),
        taken: 0,
        end: None,
    };
    for line in lines[begin + 1..].iter().filter(|line| line.task == *task) {
        match &line.event {
            Event::Moved { from, to } => run.moved.push((*from, *to)),
            Event::SourcesIsolated(fields) => {
                run.taken += fields.number("nr_taken").unwrap_or(0);
            }
            Event::CompactionEnds(fields) => {
                run.end = Some(End {
                    source: fields.number("migrate_pfn").unwrap_or(0),
                    target: fields.number("free_pfn").unwrap_or(0),
                    status: fields.get("status").unwrap_or("").to_owned(),
                });
                break;
            }
            _ => {}
        }
    }
    run
}

/// Makes the run on a copy.
pub(super) fn make(config: &PageConfig, image: &Image, run: &Run) -> Option<Made> {
    let mut pages = PageAllocator::restore(config, image, ()).ok()?;
    let mut machine =
        Compaction::for_block(&mut pages, run.zone, run.order, run.migratetype, run.mode)?;
    machine.keep_log();
    let kernel_moved = |from: Pfn| run.moved.iter().any(|&(moved, _)| moved == from);
    let (mut moved, mut taken) = (Vec::new(), 0);
    let result = loop {
        match machine.step(&mut pages, PageBudget { pages: u64::MAX }) {
            CompactionStep::Migrate(moves) => {
                let mut results = MoveResults::default();
                for (index, pair) in moves.pairs().iter().enumerate() {
                    taken += pair.order.pages();
                    if kernel_moved(pair.from) {
                        results.0 |= 1 << index;
                        moved.push((pair.from, pair.to));
                    }
                }
                machine.migrated(&mut pages, results);
            }
            CompactionStep::Continue => {}
            CompactionStep::Done(result) => break result,
        }
    };
    let status = match result {
        CompactionResult::Partial => "partial_skipped",
        CompactionResult::Complete => "complete",
        CompactionResult::Success | CompactionResult::Captured(_) => "success",
    };
    let captured = match result {
        CompactionResult::Captured(pfn) => Some(pfn),
        _ => None,
    };
    let (source, target) = machine.positions();
    let memory = pages.compaction_memory(run.zone);
    let after = pages.image().zones.swap_remove(run.zone.index());
    Some(Made {
        moved,
        taken,
        end: End { source: source.0, target: target.0, status: status.to_owned() },
        captured,
        log: machine.take_log(),
        memory,
        marks: after.pageblocks.iter().map(|block| (block.pfn, block.skip)).collect(),
    })
}

/// The marks that a kernel's run leaves, by its own pieces: `(first frame, last frame, taken)` of the source scanner,
/// and of the target scanner.
pub(super) fn marks_of(lines: &[Line], begin: usize) -> Vec<Pfn> {
    let task = &lines[begin].task;
    let block = Order::PAGEBLOCK.pages();
    let mut marks = Vec::new();
    let mut expected = None;
    for line in lines[begin + 1..].iter().filter(|line| line.task == *task) {
        match &line.event {
            Event::SourcesIsolated(fields) => {
                let Some((first, behind)) = range(fields) else { continue };
                let taken = fields.number("nr_taken").unwrap_or(0);
                let aligned = first % block == 0;
                let jumped = expected.is_some_and(|expected| expected != first);
                if aligned && (taken > 0 || behind % block == 0) || jumped {
                    marks.push(Pfn(first & !(block - 1)));
                }
                expected = Some(behind);
            }
            Event::TargetsIsolated(fields) => {
                let Some((first, behind)) = range(fields) else { continue };
                if behind % block == 0 {
                    marks.push(Pfn(first & !(block - 1)));
                }
            }
            Event::CompactionEnds(_) => break,
            _ => {}
        }
    }
    marks
}

/// `range=(0x7600 ~ 0x7800)`
pub(super) fn range(fields: &Fields) -> Option<(u64, u64)> {
    let inside = fields.0.split_once("range=(")?.1.split_once(')')?.0;
    let (first, behind) = inside.split_once('~')?;
    let hex = |text: &str| u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok();
    Some((hex(first)?, hex(behind)?))
}
