//! Runs of 2 MiB after random churn, with compaction and without.

use crate::apparatus::churn::{Churn, ChurnPlan, churn};

use crate::figures;
use crate::oracle::{ClaimKind, Oracle, Relation};
use crate::report::Report;

/// Bytes of memory of a default run, and of a full one.
const BYTES: u64 = 128 << 20;
const BYTES_OF_FULL_RUN: u64 = 512 << 20;

/// Amount of memory that is churned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChurnSize {
    Default,
    Full,
}

/// Churns memory at 80 % live, moves it together while a thread uses it, and takes all runs that can be had.
///
/// # Errors
/// The reason why it cannot be done here.
pub(super) fn run(seed: u64, size: ChurnSize, report: &mut Report) -> Result<(), String> {
    let bytes = if size == ChurnSize::Full { BYTES_OF_FULL_RUN } else { BYTES };
    let plan = ChurnPlan { bytes, churn: 2, seed };
    let found = churn(&plan).map_err(|error| error.to_string())?;
    judge(&found, report);
    Ok(())
}

fn judge(found: &Churn, report: &mut Report) {
    let Churn { possible, before, obtained, collapsed, live, pages, moved, stayed, .. } = *found;
    let percent = |blocks: u64| 100.0 * blocks as f64 / possible.max(1) as f64;
    let least = figures::backing().target("obtainable").map_or(95.0, |target| target.target);
    let mut claim = |id: &str, kind, claim: String, measured: f64, relation| {
        report.oracles.push(Oracle::judge(id, kind, claim, measured, relation));
    };
    let text = format!(
        "target: runs of 2 MiB that could be taken after random churn ({live} of {pages} pages live), in percent of \
         the {possible} possible, with compaction under a user ({moved} pages moved, {stayed} stayed, {collapsed} \
         runs made huge pages)"
    );
    claim("target/obtainable", ClaimKind::Ratio, text, percent(obtained), Relation::AtLeast(least));
    let text = "the same without compaction".to_owned();
    claim("obtainable/without", ClaimKind::Ratio, text, percent(before), Relation::AtMost(5.0));
    let text = "pages that held something else after compaction".to_owned();
    let lost = found.corrupted as f64;
    claim("obtainable/contents", ClaimKind::Exact, text, lost, Relation::Equals(0.0));
    report.notes.push(format!(
        "compaction under a user: an access took {} ns alone and {} ns meanwhile (medians), p99.9 {} and {} ns",
        found.access_alone.p50_ns,
        found.access_compacting.p50_ns,
        found.access_alone.p999_ns,
        found.access_compacting.p999_ns
    ));
}
