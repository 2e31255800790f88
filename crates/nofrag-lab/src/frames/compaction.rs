//! Runs of compaction: the engine makes each of the kernel's runs from the same state, on a copy of itself, while other
//! tasks repeat their operations beside it; its moves in their order and its end are compared.

use nofrag::cpu::CpuId;
use nofrag::event::EventSink;
use nofrag::page::{
    Compaction, CompactionImage, CompactionMode, CompactionResult, CompactionStep, Migratetype,
    MoveResults, PageAllocator, PageBudget, ScanStep, ZoneId,
};
use nofrag::units::{Order, Pfn};

use super::events::{Event, Fields, Line};
use super::follow::NO_PICTURE;

/// A run as a kernel made it.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) zone: ZoneId,
    /// The order of the block that the run is to free; `None` if kcompactd works ahead of need.
    pub(super) order: Option<Order>,
    pub(super) migratetype: Migratetype,
    pub(super) mode: CompactionMode,
    /// Moves that succeeded, in order: from frame, to frame.
    pub(super) moved: Vec<(Pfn, Pfn)>,
    /// Pages that were isolated to be moved, as the events count them.
    pub(super) taken: u64,
    /// The end of the run; `None` if no event tells it.
    pub(super) end: Option<End>,
}

/// The end of a run: the frames at which both scanners stopped, and the kernel's word for the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) source: u64,
    pub(super) target: u64,
    pub(super) status: String,
}

/// The engine's version of a run.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) moved: Vec<(Pfn, Pfn)>,
    pub(super) taken: u64,
    pub(super) end: End,
    /// The block that the run kept for its caller when it became free.
    pub(super) captured: Option<Pfn>,
    pub(super) log: Vec<ScanStep>,
    pub(super) memory: Option<CompactionImage>,
    pub(super) marks: Vec<(Pfn, bool)>,
}

/// Returns the kernel's run that begins at this line; its `end` is `None` if the events do not reach it.
pub(super) fn run_at(
    lines: &[Line],
    begin: usize,
    zone: ZoneId,
    order: Option<Order>,
    mode: CompactionMode,
) -> Run {
    let task = &lines[begin].task;
    let mut run = Run {
        zone,
        order,
        // kcompactd works for all types.
        migratetype: match mode {
            CompactionMode::Background => Migratetype::Unmovable,
            _ => Migratetype::Movable,
        },
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

/// The engine's own run beside the kernel's, on a copy of the engine.
pub(super) struct Beside<'r> {
    run: &'r Run,
    machine: Compaction,
    moved: Vec<(Pfn, Pfn)>,
    taken: u64,
    log: Vec<ScanStep>,
    /// Number of pieces of pageblocks in which the run has looked for sources.
    pieces: usize,
    result: Option<CompactionResult>,
}

/// The least work at a time, so that other tasks can act in between.
const STEP: PageBudget = PageBudget { pages: 1 };

impl<'r> Beside<'r> {
    /// Begins the run on a CPU; `None` if the engine would not make it.
    pub(super) fn begin<E: EventSink>(
        pages: &mut PageAllocator<E>,
        cpu: CpuId,
        run: &'r Run,
    ) -> Option<Self> {
        let machine = match run.order {
            Some(order) => {
                Compaction::for_block(pages, run.zone, order, run.migratetype, run.mode)?
            }
            None => Compaction::ahead(pages, run.zone)?,
        };
        let mut machine = machine.on(cpu);
        machine.keep_log();
        Some(Beside {
            run,
            machine,
            moved: Vec::new(),
            taken: 0,
            log: Vec::new(),
            pieces: 0,
            result: None,
        })
    }

    /// Goes on until `moved` pages were moved and `pieces` pieces of pageblocks were searched for sources, or the run
    /// is over.
    pub(super) fn go_on<E: EventSink>(
        &mut self,
        pages: &mut PageAllocator<E>,
        moved: usize,
        pieces: usize,
    ) {
        while self.result.is_none() && (self.moved.len() < moved || self.pieces < pieces) {
            self.step(pages);
        }
    }

    fn step<E: EventSink>(&mut self, pages: &mut PageAllocator<E>) {
        match self.machine.step(pages, STEP) {
            CompactionStep::Migrate(moves) => {
                let mut results = MoveResults::default();
                for (index, pair) in moves.pairs().iter().enumerate() {
                    self.taken += pair.order.pages();
                    if self.run.moved.iter().any(|&(moved, _)| moved == pair.from) {
                        results.0 |= 1 << index;
                        self.moved.push((pair.from, pair.to));
                    }
                }
                self.machine.migrated(pages, results);
            }
            CompactionStep::Continue => {}
            CompactionStep::Done(result) => self.result = Some(result),
        }
        let log = self.machine.take_log();
        let looks = log.iter().filter(|step| matches!(step, ScanStep::Piece { .. }));
        self.pieces += looks.count();
        self.log.extend(log);
    }

    /// Goes on to the end of the run.
    pub(super) fn finish<E: EventSink>(mut self, pages: &mut PageAllocator<E>) -> Made {
        let result = loop {
            match self.result {
                Some(result) => break result,
                None => self.step(pages),
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
        let (source, target) = self.machine.positions();
        let after = pages.image().expect(NO_PICTURE).zones.swap_remove(self.run.zone.index());
        Made {
            moved: self.moved,
            taken: self.taken,
            end: End { source: source.0, target: target.0, status: status.to_owned() },
            captured,
            log: self.log,
            memory: pages.compaction_memory(self.run.zone),
            marks: after.pageblocks.iter().map(|block| (block.pfn, block.skip)).collect(),
        }
    }
}

/// Returns the first frames of the pageblocks that a kernel's run marks to be skipped, inferred from the ranges that
/// its scanners for sources and for targets looked at.
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

/// Reads the first frame of `range=(0x7600 ~ 0x7800)` and the one behind its last.
pub(super) fn range(fields: &Fields) -> Option<(u64, u64)> {
    let inside = fields.0.split_once("range=(")?.1.split_once(')')?.0;
    let (first, behind) = inside.split_once('~')?;
    let hex = |text: &str| u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok();
    Some((hex(first)?, hex(behind)?))
}
