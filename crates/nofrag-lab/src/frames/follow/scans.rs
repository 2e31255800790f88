//! The ranges that the scanners of a compaction run look at, piece by piece, and the pageblocks that they leave out.
//!
//! Events tell each piece that a kernel looked at: its range, how many frames it counted, how many pages it took. A
//! pageblock without a piece was left out; only the engine tells why. Quick searches jump, so a pageblock without a
//! piece of the kernel's and without a reason of the engine's was not reached, and is not compared.

use std::collections::{BTreeMap, BTreeSet};

use nofrag::page::{Passed, ScanStep};
use nofrag::units::{Order, Pfn};

use super::super::compaction::range;
use super::super::events::{Block, Event, Fields, Line};
use super::super::names;
use super::super::outcome::{Score, Scores};
use crate::key::Key;

/// A part of a pageblock that a scanner looked at: its frames, how many were scanned, and the pages taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    from: u64,
    to: u64,
    scanned: u64,
    taken: u64,
}

impl Piece {
    fn of(fields: &Fields) -> Option<Piece> {
        let (from, to) = range(fields)?;
        let (scanned, taken) = (fields.number("nr_scanned")?, fields.number("nr_taken")?);
        Some(Piece { from, to, scanned, taken })
    }

    fn block(self) -> u64 {
        self.from / Order::PAGEBLOCK.pages()
    }
}

impl std::fmt::Display for Piece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Piece { from, to, scanned, taken } = self;
        write!(f, "{from:#x} to {to:#x}: {scanned} scanned, {taken} taken")
    }
}

/// Pieces, takes and omissions of the scanners of one run.
#[derive(Debug, Default)]
struct Scanned {
    sources: Vec<Piece>,
    targets: Vec<Piece>,
    /// Pieces of quick searches for targets.
    searches: Vec<Piece>,
    /// Free blocks taken, in order.
    isolated: Vec<(Pfn, Order)>,
    /// Pageblocks left out, by their number.
    passed: BTreeMap<u64, Passed>,
}

impl Scanned {
    fn of_kernel(lines: &[Line], begin: usize) -> Scanned {
        let mut scanned = Scanned::default();
        let task = &lines[begin].task;
        for line in lines[begin + 1..].iter().filter(|line| line.task == *task) {
            match &line.event {
                Event::SourcesIsolated(fields) => scanned.sources.extend(Piece::of(fields)),
                Event::TargetsIsolated(fields) => scanned.targets.extend(Piece::of(fields)),
                Event::TargetsSearched(fields) => scanned.searches.extend(Piece::of(fields)),
                Event::Isolated(Block { pfn, order }) => scanned.isolated.push((*pfn, *order)),
                Event::CompactionEnds(_) => break,
                _ => {}
            }
        }
        scanned
    }

    fn of_engine(log: &[ScanStep]) -> Scanned {
        let mut scanned = Scanned::default();
        let piece =
            |from: Pfn, to: Pfn, scanned, taken| Piece { from: from.0, to: to.0, scanned, taken };
        for step in log {
            match *step {
                ScanStep::Piece { from, to, scanned: frames, taken } => {
                    scanned.sources.push(piece(from, to, frames, taken));
                }
                ScanStep::Targets { from, to, scanned: frames, taken } => {
                    scanned.targets.push(piece(from, to, frames, taken));
                }
                ScanStep::Searched { from, to, scanned: frames, taken } => {
                    scanned.searches.push(piece(from, to, frames, taken));
                }
                ScanStep::Isolated { pfn, order } => scanned.isolated.push((pfn, order)),
                ScanStep::Passed { pfn, why } => {
                    scanned.passed.insert(pfn.0 / Order::PAGEBLOCK.pages(), why);
                }
                _ => {}
            }
        }
        scanned
    }
}

/// The first difference: the quantity, the kernel's value, the engine's value.
pub(super) type Differing = (&'static str, String, String);

/// Returns the quantity of the pageblocks that are left out for this reason.
const fn passed(why: Passed) -> Key {
    match why {
        Passed::Absent => names::PASSED_ABSENT,
        Passed::Marked => names::PASSED_MARKED,
        Passed::Huge => names::PASSED_HUGE,
        Passed::Type => names::PASSED_TYPE,
    }
}

/// Compares the run that a kernel begins at this line with the steps of the engine's scanners. Quick searches count
/// where the kernel tells of any: until 6.1 none does.
pub(super) fn judge(
    scores: &mut Scores,
    lines: &[Line],
    begin: usize,
    log: &[ScanStep],
) -> Vec<Differing> {
    let (kernel, engine) = (Scanned::of_kernel(lines, begin), Scanned::of_engine(log));
    let piece = |piece: &Piece| piece.to_string();
    let block = |&(pfn, order): &(Pfn, Order)| format!("{:#x} of order {order}", pfn.0);
    let mut pieces =
        |score, what, theirs, ours| in_order(scores.at(score), what, theirs, ours, piece);
    let mut found = vec![
        pieces(names::SOURCES, "piece of sources", &kernel.sources, &engine.sources),
        pieces(names::TARGETS, "piece of targets", &kernel.targets, &engine.targets),
    ];
    let searches = (!kernel.searches.is_empty())
        .then(|| pieces(names::SEARCHES, "search for targets", &kernel.searches, &engine.searches));
    let (theirs, ours) = (&kernel.isolated, &engine.isolated);
    let isolated = scores.at(names::ISOLATED);
    found.push(in_order(isolated, "free block taken", theirs, ours, block));
    found.extend([judge_blocks(scores, &kernel, &engine), searches.flatten()]);
    found.into_iter().flatten().collect()
}

fn judge_blocks(scores: &mut Scores, kernel: &Scanned, engine: &Scanned) -> Option<Differing> {
    let blocks = |pieces: &[Piece]| pieces.iter().map(|p| p.block()).collect::<BTreeSet<_>>();
    let (theirs, ours) = (blocks(&kernel.sources), blocks(&engine.sources));
    for block in theirs.union(&ours) {
        scores.at(names::LOOKED).count(theirs.contains(block) && ours.contains(block));
    }
    for (block, &why) in engine.passed.iter().filter(|(block, _)| !ours.contains(block)) {
        scores.at(passed(why)).count(!theirs.contains(block));
    }
    let &block = theirs.symmetric_difference(&ours).next()?;
    let looked = |blocks: &BTreeSet<u64>| match blocks.contains(&block) {
        true => "looked at".to_owned(),
        false => match engine.passed.get(&block) {
            Some(why) if blocks == &ours => format!("left out: {why:?}"),
            _ => "not looked at".to_owned(),
        },
    };
    let at = block * Order::PAGEBLOCK.pages();
    let told = |blocks| format!("pageblock {at:#x} {}", looked(blocks));
    Some(("pageblock for sources", told(&theirs), told(&ours)))
}

/// Compares two sequences place by place; returns their first difference.
fn in_order<T: PartialEq>(
    score: &mut Score,
    what: &'static str,
    kernel: &[T],
    engine: &[T],
    show: impl Fn(&T) -> String,
) -> Option<Differing> {
    let most = kernel.len().max(engine.len());
    let mut first = None;
    for at in 0..most {
        let same = kernel.get(at) == engine.get(at);
        score.count(same);
        if !same {
            first.get_or_insert(at);
        }
    }
    let at = first?;
    let told = |list: &[T]| match list.get(at) {
        Some(each) => format!("{} of {}: {}", at + 1, list.len(), show(each)),
        None => format!("only {}", list.len()),
    };
    Some((what, told(kernel), told(engine)))
}

#[cfg(test)]
mod tests {
    use super::super::super::events;
    use super::*;

    const RUN: &str = "\
1.0 task-1 mm_compaction_begin: zone_start=0x1000 migrate_pfn=0x1000 free_pfn=0x2000 zone_end=0x2200, mode=sync
1.1 task-1 mm_compaction_isolate_migratepages: range=(0x1000 ~ 0x1200) nr_scanned=512 nr_taken=2
1.2 task-2 mm_compaction_isolate_migratepages: range=(0x1600 ~ 0x1800) nr_scanned=512 nr_taken=0
1.3 task-1 isofree: pfn=0x1e00 order=1
1.4 task-1 mm_compaction_isolate_freepages: range=(0x1e00 ~ 0x1e02) nr_scanned=2 nr_taken=2
1.5 task-1 mm_compaction_end: migrate_pfn=0x1e00 free_pfn=0x1e00 mode=sync status=complete
";

    fn judged(log: &[ScanStep]) -> (Scores, Vec<Differing>) {
        let lines = events::read(RUN).expect("they are events");
        let mut scores = Scores::default();
        let found = judge(&mut scores, &lines, 0, log);
        (scores, found)
    }

    const ALL: [Key; 4] = [names::SOURCES, names::TARGETS, names::ISOLATED, names::LOOKED];

    fn same_log() -> Vec<ScanStep> {
        let (pfn, order) = (Pfn(0x1e00), Order::new(1).expect("an order"));
        vec![
            ScanStep::Piece { from: Pfn(0x1000), to: Pfn(0x1200), scanned: 512, taken: 2 },
            ScanStep::Passed { pfn: Pfn(0x1200), why: Passed::Marked },
            ScanStep::Isolated { pfn, order },
            ScanStep::Targets { from: pfn, to: Pfn(0x1e02), scanned: 2, taken: 2 },
        ]
    }

    #[test]
    fn the_same_pieces_in_the_same_order_are_the_same() {
        let (mut scans, found) = judged(&same_log());
        assert_eq!(found, []);
        let all = ALL.map(|what| *scans.at(what));
        assert_eq!(all, [Score { same: 1, of: 1 }; 4], "another task's piece is not this run's");
        let passed = [Passed::Absent, Passed::Marked, Passed::Huge, Passed::Type].map(passed);
        let passed = passed.map(|what| *scans.at(what)).map(|score| (score.same, score.of));
        assert_eq!(passed, [(0, 0), (1, 1), (0, 0), (0, 0)]);
    }

    #[test]
    fn a_frame_more_is_a_difference_with_both_sides() {
        let mut log = same_log();
        log[0] = ScanStep::Piece { from: Pfn(0x1000), to: Pfn(0x1200), scanned: 511, taken: 2 };
        let (mut scans, found) = judged(&log);
        assert_eq!(*scans.at(names::SOURCES), Score { same: 0, of: 1 });
        let (what, kernel, engine) = &found[0];
        assert_eq!(*what, "piece of sources");
        assert!(kernel.contains("512 scanned") && engine.contains("511 scanned"), "{found:?}");
    }

    #[test]
    fn a_pageblock_left_out_that_the_kernel_looked_at_is_told_with_the_reason() {
        let mut log = same_log();
        log[0] = ScanStep::Passed { pfn: Pfn(0x1000), why: Passed::Type };
        let (mut scans, found) = judged(&log);
        assert_eq!(*scans.at(names::LOOKED), Score { same: 0, of: 1 });
        assert_eq!(*scans.at(passed(Passed::Type)), Score { same: 0, of: 1 });
        let told =
            found.iter().find(|found| found.0 == "pageblock for sources").expect("it is told");
        assert_eq!(told.1, "pageblock 0x1000 looked at");
        assert_eq!(told.2, "pageblock 0x1000 left out: Type");
    }

    #[test]
    fn what_only_one_side_has_counts() {
        let (mut scans, found) = judged(&[]);
        let all = ALL.map(|what| *scans.at(what));
        assert_eq!(all, [Score { same: 0, of: 1 }; 4]);
        assert_eq!(found.len(), 4);
    }
}
