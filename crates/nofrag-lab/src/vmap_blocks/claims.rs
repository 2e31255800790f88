//! Claims that a run must confirm.
//!
//! The engine's locks for a block, and ours for an unmapping, follow from the algorithms and are exact. Waits in the
//! model follow from the algorithms and from the stated costs: they are ratios. Conflicts of real threads depend on the
//! machine.

use super::caller::Failure;
use super::catalogue::{Design, GLOBAL, MODEL, MODELS, NODES, OURS, PER_CPU};
use super::locks::LockKind;
use super::model::{self, Readings, Simulated, SimulationSize};
use super::names::{self, Column};
use super::turns::{BlocksPlan, model_space};
use crate::oracle::{ClaimKind, Oracle, Relation};
use crate::report::{Measurement, Report};
use crate::scenario::RunError;

/// A claim without its verdict: kind, id, sentence, measured number (`None` if a row for it was not run), relation.
type Claim = (ClaimKind, String, String, Option<f64>, Relation);

const NONE: Relation = Relation::Equals(0.0);

/// Name of the claims that need a second processor.
const REAL_THREADS: &str = "conflicts of real threads";

/// Judges the claims that the plan allows.
pub(super) fn judge(plan: &BlocksPlan, report: &mut Report) -> Result<(), RunError> {
    let mut claims = Vec::new();
    turnover(report, &mut claims);
    contentions(report, &mut claims);
    match nofrag_show::cpus() {
        0 | 1 => report.skip(REAL_THREADS, "one processor"),
        _ => threads(report, &mut claims),
    }
    if let Some(ours) = plan.designs.iter().find(|design| design.name == OURS) {
        let trouble = |failure: Failure| RunError::Engine {
            design: OURS.to_owned(),
            program: "the locks of an unmapping".to_owned(),
            why: failure.to_string(),
        };
        unmappings(plan, ours, &mut claims).map_err(trouble)?;
    }
    for (kind, id, claim, measured, relation) in claims {
        let judged = measured.map(|measured| Oracle::judge(id, kind, claim, measured, relation));
        report.oracles.extend(judged);
    }
    Ok(())
}

fn lock(
    report: &Report,
    program: &str,
    design: &str,
    kind: LockKind,
    column: Column,
) -> Option<f64> {
    lock_of(report.measurement(program, design)?, kind, column)
}

/// Returns a count of the locks of one kind; one that `row` does not have is zero, since its program was run.
pub(super) fn lock_of(row: &Measurement, kind: LockKind, column: Column) -> Option<f64> {
    Some(row.count(&names::of_lock(kind, column)).unwrap_or(0.0))
}

/// Judges how many locks are taken for a block from its creation to its end.
fn turnover(report: &Report, claims: &mut Vec<Claim>) {
    let rows = |designs: &'static [&str]| {
        report.measurements.iter().filter(move |row| {
            MODELS.contains(&row.program.as_str()) && designs.contains(&row.design.as_str())
        })
    };
    let taken = |row: &Measurement, kind| lock_of(row, kind, Column::Acquisitions).unwrap_or(0.0);
    let linux: Vec<_> = rows(&[GLOBAL, PER_CPU, NODES]).collect();
    for (id, kind) in [("index", LockKind::BlockIndex), ("area", LockKind::AreaBusy)] {
        let twice = |row: &&&Measurement| {
            row.count(names::BLOCKS).is_some_and(|blocks| taken(row, kind) == 2.0 * blocks)
        };
        let deviations = (linux.len() - linux.iter().filter(twice).count()) as f64;
        let text = format!(
            "each of Linux's blocks takes the lock {} twice, when it comes and when it goes; rows of the model that \
             deviate",
            kind.name()
        );
        let measured = (!linux.is_empty()).then_some(deviations);
        claims.push((ClaimKind::Exact, format!("block-{id}"), text, measured, NONE));
    }
    let ours: Vec<f64> = rows(&[OURS]).map(|row| taken(row, LockKind::BlockIndex)).collect();
    let text = "our index of blocks has no lock; acquisitions".to_owned();
    let measured = (!ours.is_empty()).then(|| ours.iter().sum());
    claims.push((ClaimKind::Exact, "ours-index".to_owned(), text, measured, NONE));
}

/// Judges the waits in the model.
fn contentions(report: &Report, claims: &mut Vec<Claim>) {
    let contended = |design, kind| lock(report, MODEL, design, kind, Column::Contentions);
    let rank = |kind| {
        let own = contended(GLOBAL, kind)?;
        let more = |other: &&LockKind| contended(GLOBAL, **other).is_some_and(|n| n > own);
        Some(1.0 + LockKind::ALL.iter().filter(more).count() as f64)
    };
    let mut claim = |id: &str, claim: String, measured, relation| {
        claims.push((ClaimKind::Ratio, id.to_owned(), claim, measured, relation));
    };
    let text = "under the global index the area lock is contended most; its rank".to_owned();
    claim("area-first", text, rank(LockKind::AreaBusy), Relation::Equals(1.0));
    let text = "and the index lock comes second; its rank".to_owned();
    claim("index-second", text, rank(LockKind::BlockIndex), Relation::Equals(2.0));
    // Where no CPU waits, the ratio is at least that of a single wait.
    let fewer = |kind| Some(contended(GLOBAL, kind)? / contended(PER_CPU, kind)?.max(1.0));
    let text =
        "an index per CPU takes its lock's contentions away: before over after (published: 83)";
    claim(
        "index-contentions",
        text.to_owned(),
        fewer(LockKind::BlockIndex),
        Relation::AtLeast(20.0),
    );
    let others =
        [("area", LockKind::AreaBusy), ("free", LockKind::AreaFree), ("lazy", LockKind::AreaLazy)];
    for (id, kind) in others {
        let text = format!("but not those of the lock {}: before over after", kind.name());
        claim(&format!("{id}-remains"), text, fewer(kind), Relation::Between(0.67, 1.5));
    }
    let all =
        |design| LockKind::ALL.iter().map(|kind| contended(design, *kind)).sum::<Option<f64>>();
    let ours = all(PER_CPU).zip(all(OURS)).map(|(linux, ours)| linux / ours.max(1.0));
    let text = "all contentions of linux-6.4 over all of ours".to_owned();
    claim("ours-contentions", text, ours, Relation::AtLeast(20.0));
}

/// Judges the conflicts of real threads: the part of docs/sources/vmap.md#oracle-15 that few processors show.
fn threads(report: &Report, claims: &mut Vec<Claim>) {
    let program = "threads_64p";
    let index = |design| lock(report, program, design, LockKind::BlockIndex, Column::Contentions);
    let fewer = index(GLOBAL).zip(index(PER_CPU)).map(|(before, after)| before / after.max(1.0));
    let text =
        "threads_64p: contended acquisitions of the index lock, global over per CPU (95 elsewhere)";
    let id = "turnover-threads".to_owned();
    claims.push((ClaimKind::Environment, id, text.to_owned(), fewer, Relation::AtLeast(10.0)));
    for program in ["threads_1p", "threads_5p", program] {
        let conflicts =
            report.measurement(program, OURS).and_then(|row| row.count(names::CONFLICTS_PER_PAIR));
        let conflicts = conflicts.map(|per_pair| 1e6 * per_pair);
        let text = format!("{program}: lock conflicts of ours per million pairs");
        let id = format!("ours-conflicts-{program}");
        claims.push((ClaimKind::Environment, id, text, conflicts, Relation::AtMost(1000.0)));
    }
}

/// Judges the locks of our unmappings, one by one.
fn unmappings(plan: &BlocksPlan, ours: &Design, claims: &mut Vec<Claim>) -> Result<(), Failure> {
    // More pages than a block has, so that blocks fill up and turn over.
    let size =
        SimulationSize { readings: Readings::Always, ..SimulationSize::stated(1, 600, plan.seed) };
    let space = model_space(ours, 4)?;
    let Simulated { in_unmaps, taken, pairs, .. } = model::run(&space, size)?;
    let shared = |counts: &super::locks::LockCounts| {
        let shared = counts.iter().filter(|(kind, _)| !kind.is_private());
        shared.map(|(_, lock)| lock.acquisitions).sum::<u64>() as f64
    };
    let text = format!("{OURS}: {pairs} unmappings, read one by one, take shared locks; how many");
    claims.push((
        ClaimKind::Exact,
        "ours-unmap-shared".to_owned(),
        text,
        Some(shared(&in_unmaps)),
        NONE,
    ));
    let text = format!("{OURS}: and locks of any kind");
    let all = in_unmaps.acquisitions() as f64;
    claims.push((ClaimKind::Exact, "ours-unmap-locks".to_owned(), text, Some(all), NONE));
    let text = format!("{OURS}: shared locks taken per page, maps included");
    let per_page = shared(&taken) / pairs as f64;
    claims.push((
        ClaimKind::Exact,
        "ours-shared".to_owned(),
        text,
        Some(per_page),
        Relation::AtMost(0.05),
    ));
    Ok(())
}
