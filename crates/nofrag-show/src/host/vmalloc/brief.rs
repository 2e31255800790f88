//! The report of `nofrag host vmalloc` on one screen: findings, what would still succeed, and who holds the space. The
//! rest is in [`super::text`], which `--all` shows.

use nofrag_host::source::Root;
use nofrag_host::vmalloc::{RegionReport, VmallocReport};

use super::{callers, kinds, text};
use crate::host::parts;
use crate::{Look, hole_map};

/// The way to what is left out.
const REST: &str =
    "--all shows holes by size, how bounds are known, more callers, and the findings in full.";

/// Rows of the callers that hold most, where no number is asked for.
const MOST_CALLERS: usize = 5;

/// Returns the report of the files below `root` that fits on one screen, unless `max_callers` asks for more rows.
#[must_use]
pub fn brief(
    report: &VmallocReport,
    root: &Root,
    max_callers: Option<usize>,
    look: Look,
) -> String {
    let findings: Vec<_> = report.findings.iter().collect();
    let mut sections =
        vec![text::heading(report, root, look), parts::brief_findings(&findings, look)];
    if report.totals.areas > 0 {
        sections.push(text::lazy(report, look));
    }
    sections.extend(
        report.no_regions_because.as_ref().map(|why| look.wrapped("Holes are not shown: ", why)),
    );
    let hidden = report.findings.iter().find(|finding| finding.id == "addresses-hidden");
    sections.extend(hidden.map(|finding| parts::advice("  ", finding, look)));
    sections.extend(parts::brief_missing(&report.missing, look));
    sections.extend(report.regions.iter().map(|each| region(each, look)));
    if report.totals.areas > 0 {
        sections.push(callers(report, max_callers.unwrap_or(MOST_CALLERS)).text("", look));
        sections.push(kinds(report).text("", look) + &text::nodes(report, look));
    }
    parts::on_screen(sections, REST, max_callers, look)
}

/// Draws a region, and says which request would succeed in it.
fn region(region: &RegionReport, look: Look) -> String {
    text::place(region, look)
        + &hole_map(|cells| region.draw(cells), "unpurged", look)
        + &text::largest_request(region, look)
}
