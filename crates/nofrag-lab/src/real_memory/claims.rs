//! Claims that a run must confirm: rules of the kernel, and the targets of the library.

use super::areas::Limit;
use super::catalogue::{LOADS, Program};
use super::names;
use super::pressure::Tails;
use super::runs::Areas;
use crate::figures::{self, Aim};
use crate::oracle::{Claims, Oracle, Relation};
use crate::report::{Measurement, Report};

/// Returns the ratio of the first median to the second.
pub(super) fn times_faster(slow: &Measurement, fast: &Measurement) -> f64 {
    slow.time.median / fast.time.median
}

/// Judges the measurements of the programs.
/// Source: docs/sources/backing.md#oracle-7, #oracle-8.
pub(super) fn judge(report: &mut Report) {
    let mut oracles = Vec::new();
    for program in LOADS.map(|load| load.into_str()) {
        for design in [names::PARKED, names::ARENA] {
            let calls = report.count(program, design, names::CALLS);
            let claim = format!("{program}: system calls of parked reuse, {design}");
            oracles.exact(format!("calls/{program}/{design}"), claim, calls, Relation::NONE);
        }
        let bounds = [(names::PARKED, 90.0), (names::PURGE_BLOCK, 4.0)];
        for (design, least) in bounds {
            // Where every page is touched, faults decide, and only a way that keeps its pages gains.
            if program == Program::TouchAll.into_str() && design == names::PURGE_BLOCK {
                continue;
            }
            let claim = format!("{program}: {design} over mmap + munmap, times");
            let id = format!("gain/{program}/{design}");
            oracles.ratio(id, claim, gain(report, program, design), Relation::AtLeast(least));
        }
    }
    targets(report, &mut oracles);
    report.oracles.extend(oracles);
}

/// Returns how many times faster a design is than mmap + munmap in this run.
fn gain(report: &Report, program: &str, design: &str) -> Option<f64> {
    let [each, other] = [names::MAP_EACH, design].map(|it| report.measurement(program, it));
    Some(times_faster(each?, other?))
}

/// Judges the library's targets for the cost of each way of handing out runs, relative to mmap + munmap in this run.
fn targets(report: &Report, oracles: &mut Vec<Oracle>) {
    let wanted = [
        (Aim::ParkedFirst, Program::TouchFirst, names::ARENA),
        (Aim::ParkedAll, Program::TouchAll, names::ARENA),
        (Aim::Decay1, Program::TouchFirst, names::ARENA_DECAY),
        (Aim::Decay2, Program::TouchFirst2, names::ARENA_DECAY),
    ];
    let figures = figures::backing();
    for (aim, program, design) in wanted {
        let (id, target): (&str, _) = (aim.into(), figures.target(aim));
        let claim = format!("target: {}; {} when first measured", target.what, target.then);
        let least = Relation::AtLeast(target.target);
        oracles.ratio(
            format!("target/{id}"),
            claim,
            gain(report, program.into_str(), design),
            least,
        );
    }
}

/// Judges the number of areas that an arena takes.
pub(super) fn areas(areas: &Areas, report: &mut Report) {
    let Areas { runs, blocks, before, after, mappings, budget } = *areas;
    let most = figures::backing().target(Aim::AreasPerBlock).target;
    let each = after.saturating_sub(before) as f64 / blocks.max(1) as f64;
    let claim = format!(
        "target: areas of the process per block of 4 MiB, for {runs} random runs in {blocks} blocks ({before} areas \
         before, {after} after)"
    );
    report.oracles.exact("target/areas-per-block", claim, each, Relation::AtMost(most));
    let claim = "mappings of the arena: within its budget";
    let most = Relation::AtMost(budget as f64);
    report.oracles.exact("target/budget", claim, mappings as f64, most);
}

/// Judges the time of an allocation beside a purge, relative to that alone.
pub(super) fn pressure(tails: &Tails, report: &mut Report) {
    let most = figures::backing().target(Aim::PurgeTail).target;
    let claim = format!(
        "target: p99.9 of allocation beside a purge ({} ns) over that alone ({} ns); {} purges of {} pages",
        tails.beside_purge.p999_ns, tails.alone.p999_ns, tails.purges, tails.pages_purged
    );
    report.oracles.ratio("target/purge-tail", claim, tails.ratio(), Relation::AtMost(most));
    let claim = format!(
        "p99.9 of allocation beside a purge of its own arena over that beside a purge of another arena ({} ns)",
        tails.beside_other.p999_ns
    );
    // The kernel sets this time, but rounds differ.
    let most = Relation::AtMost(2.0);
    report.oracles.ratio("purge-tail/own", claim, tails.over_control(), most);
    let claim = "pages that were purged meanwhile";
    let purged = tails.pages_purged as f64;
    report.oracles.exact("purged-meanwhile", claim, purged, Relation::AtLeast(1.0));
}

/// Judges that one mapping for each run ends far below a hundred thousand.
pub(super) fn map_limit(limit: &Limit, report: &mut Report) {
    let Limit { mapped, expected, limit } = *limit;
    let claim = format!(
        "isolated mappings of one page before the first refusal, less what a limit of {limit} areas lets expect \
         ({expected})"
    );
    let off = mapped as f64 - expected as f64;
    let near = Relation::Between(-2.0, 2.0);
    report.oracles.exact("map-limit", claim, off, near);
    let tables = figures::backing().tables;
    let published = figures::figure(&tables, "map-limit", "map-each", &figures::MAPPED);
    let published = published.expect("the file has it");
    report.notes.push(format!(
        "a mapping for each run: the kernel refused after {mapped} isolated pages, with a limit of {limit} areas \
         (published: {published})"
    ));
}
