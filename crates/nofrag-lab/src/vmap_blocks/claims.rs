//! Claims that a run must confirm.
//!
//! The engine's locks for a block follow from the algorithms and are exact. Waits in the model follow from the
//! algorithms and from the stated costs: they are ratios. Conflicts of real threads depend on the machine.

use super::catalogue::{GLOBAL, MODEL, MODELS, NODES, OURS, PER_CPU};
use super::locks::LockKind;
use super::names::{self, Column};
use crate::oracle::{Claims, Oracle, Relation};
use crate::report::{Measurement, Report};

/// Name of the claims that need a second processor.
const REAL_THREADS: &str = "conflicts of real threads";

/// Judges the claims that the plan allows.
pub(super) fn judge(report: &mut Report) {
    let mut claims = Vec::new();
    turnover(report, &mut claims);
    contentions(report, &mut claims);
    match nofrag_show::cpus() {
        0 | 1 => report.skip(REAL_THREADS, "one processor"),
        _ => threads(report, &mut claims),
    }
    report.oracles.extend(claims);
}

/// Returns a count of the locks of one kind; one that `row` does not have is zero, since its program was run.
pub(super) fn lock_of(row: &Measurement, kind: LockKind, column: Column) -> f64 {
    row.count(names::of_lock(kind, column)).unwrap_or(0.0)
}

/// Returns the contentions of the locks of one kind, if the program was run under the design.
fn contended(report: &Report, program: &str, design: &str, kind: LockKind) -> Option<f64> {
    Some(lock_of(report.measurement(program, design)?, kind, Column::Contentions))
}

/// Judges how many locks are taken for a block from its creation to its end.
fn turnover(report: &Report, claims: &mut Vec<Oracle>) {
    let rows = |designs: &'static [&str]| {
        report.measurements.iter().filter(move |row| {
            MODELS.contains(&row.program.as_str()) && designs.contains(&row.design.as_str())
        })
    };
    let taken = |row: &Measurement, kind| lock_of(row, kind, Column::Acquisitions);
    let linux: Vec<_> = rows(&[GLOBAL, PER_CPU, NODES]).collect();
    for (id, kind) in [("index", LockKind::BlockIndex), ("area", LockKind::AreaBusy)] {
        let twice = |row: &&&Measurement| {
            row.count(names::BLOCKS).is_some_and(|blocks| taken(row, kind) == 2.0 * blocks)
        };
        let deviations = (linux.len() - linux.iter().filter(twice).count()) as f64;
        let claim = format!(
            "each of Linux's blocks takes the lock {} twice, when it comes and when it goes; rows of the model that \
             deviate",
            kind.into_str()
        );
        let measured = (!linux.is_empty()).then_some(deviations);
        claims.exact(format!("block-{id}"), claim, measured, Relation::NONE);
    }
    let ours: Vec<f64> = rows(&[OURS]).map(|row| taken(row, LockKind::BlockIndex)).collect();
    let measured = (!ours.is_empty()).then(|| ours.iter().sum());
    let claim = "our index of blocks has no lock; acquisitions";
    claims.exact("ours-index", claim, measured, Relation::NONE);
}

/// Judges the waits in the model.
fn contentions(report: &Report, claims: &mut Vec<Oracle>) {
    let contended = |design, kind| contended(report, MODEL, design, kind);
    let rank = |kind| {
        let own = contended(GLOBAL, kind)?;
        let more = |other: &&LockKind| contended(GLOBAL, **other).is_some_and(|n| n > own);
        Some(1.0 + LockKind::ALL.iter().filter(more).count() as f64)
    };
    let claim = "under the global index the area lock is contended most; its rank";
    claims.ratio("area-first", claim, rank(LockKind::AreaBusy), Relation::Equals(1.0));
    let claim = "and the index lock comes second; its rank";
    claims.ratio("index-second", claim, rank(LockKind::BlockIndex), Relation::Equals(2.0));
    // Where no CPU waits, the ratio is at least that of a single wait.
    let fewer = |kind| Some(contended(GLOBAL, kind)? / contended(PER_CPU, kind)?.max(1.0));
    let claim =
        "an index per CPU takes its lock's contentions away: before over after (published: 83)";
    let index = fewer(LockKind::BlockIndex);
    claims.ratio("index-contentions", claim, index, Relation::AtLeast(20.0));
    let others =
        [("area", LockKind::AreaBusy), ("free", LockKind::AreaFree), ("lazy", LockKind::AreaLazy)];
    for (id, kind) in others {
        let claim = format!("but not those of the lock {}: before over after", kind.into_str());
        let near_one = Relation::Between(0.67, 1.5);
        claims.ratio(format!("{id}-remains"), claim, fewer(kind), near_one);
    }
    let all =
        |design| LockKind::ALL.iter().map(|kind| contended(design, *kind)).sum::<Option<f64>>();
    let ours = all(PER_CPU).zip(all(OURS)).map(|(linux, ours)| linux / ours.max(1.0));
    let claim = "all contentions of linux-6.4 over all of ours";
    claims.ratio("ours-contentions", claim, ours, Relation::AtLeast(20.0));
}

/// Judges the conflicts of real threads: the part of docs/sources/vmap.md#oracle-15 that few processors show.
fn threads(report: &Report, claims: &mut Vec<Oracle>) {
    let program = "threads_64p";
    let index = |design| contended(report, program, design, LockKind::BlockIndex);
    let fewer = index(GLOBAL).zip(index(PER_CPU)).map(|(before, after)| before / after.max(1.0));
    let claim =
        "threads_64p: contended acquisitions of the index lock, global over per CPU (95 elsewhere)";
    claims.host("turnover-threads", claim, fewer, Relation::AtLeast(10.0));
    for program in ["threads_1p", "threads_5p", program] {
        let conflicts = report.count(program, OURS, names::CONFLICTS_PER_PAIR);
        let conflicts = conflicts.map(|per_pair| 1e6 * per_pair);
        let claim = format!("{program}: lock conflicts of ours per million pairs");
        let id = format!("ours-conflicts-{program}");
        claims.host(id, claim, conflicts, Relation::AtMost(1000.0));
    }
}
