//! Runs of 2 MiB after random churn, with compaction and without.

use crate::apparatus::churn::{Churn, ChurnPlan, churn};

use crate::figures::{self, Aim};
use crate::oracle::{Claims, Relation};
use crate::report::Report;
use crate::scenario::Extent;

/// Bytes of memory of a default run, and of a full one.
const BYTES: u64 = 128 << 20;
const BYTES_OF_FULL_RUN: u64 = 512 << 20;

/// Churns memory at 80 % live, moves it together while a thread uses it, and takes all runs that can be had.
///
/// # Errors
/// The reason why it cannot be done here.
pub(super) fn run(seed: u64, extent: Extent, report: &mut Report) -> Result<(), String> {
    let bytes = if extent == Extent::Full { BYTES_OF_FULL_RUN } else { BYTES };
    let plan = ChurnPlan { bytes, churn: 2, seed };
    let found = churn(&plan).map_err(|error| error.to_string())?;
    judge(&found, report);
    Ok(())
}

fn judge(found: &Churn, report: &mut Report) {
    let Churn { possible, before, obtained, collapsed, live, pages, moved, stayed, .. } = *found;
    let percent = |blocks: u64| 100.0 * blocks as f64 / possible.max(1) as f64;
    let least = figures::backing().target(Aim::Obtainable).target;
    let claims = &mut report.oracles;
    let text = format!(
        "target: runs of 2 MiB that could be taken after random churn ({live} of {pages} pages live), in percent of \
         the {possible} possible, with compaction under a user ({moved} pages moved, {stayed} stayed, {collapsed} \
         runs made huge pages)"
    );
    claims.ratio("target/obtainable", text, percent(obtained), Relation::AtLeast(least));
    let text = "the same without compaction";
    claims.ratio("obtainable/without", text, percent(before), Relation::AtMost(5.0));
    let text = "pages that held something else after compaction";
    claims.exact("obtainable/contents", text, found.corrupted as f64, Relation::NONE);
    report.notes.push(format!(
        "compaction under a user: an access took {} ns alone and {} ns meanwhile (medians), p99.9 {} and {} ns",
        found.access_alone.p50_ns,
        found.access_compacting.p50_ns,
        found.access_alone.p999_ns,
        found.access_compacting.p999_ns
    ));
}
