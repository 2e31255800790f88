//! Withdrawn results of this scenario. [`crate::kernels`] sets the simulation beside kernels' runs.
//!
//! The document judges the order of its own trees: 4.20 and the patches, in events. Nothing that was published judges
//! later presets and ours. Under the same workload the simulation reproduces some of the kernels' counts and not the
//! rest, so huge pages, reclaim and the events of later presets are shown, marked, and no claim is made of them.

use super::catalogue::Program;
use super::names;
use super::view::View;
use crate::figures::{self, Gorman2018};
use crate::key::Key;
use crate::oracle::Withdrawn;
use crate::report::Measurement;
use crate::tables::row_of;
use crate::world::heard::QUARTERS;
use nofrag_show::{Cell, Section, cells, count, table_of};

pub(super) const WHY: Withdrawn = Withdrawn::AgainstKernels;

/// Returns true if counts under a design are withdrawn: all designs but the trees of the document.
pub(super) fn is_withdrawn(design: &str) -> bool {
    !Gorman2018::DESIGNS.contains(&design)
}

/// The caption of a table, by the part of it that is withdrawn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Caption<'a> {
    /// The rows of designs that the document does not judge; they are marked.
    Rows(&'a str),
    Whole(&'a str),
}

/// Returns the caption of a table that is withdrawn whole.
pub(super) fn caption(text: &str) -> String {
    format!("{text} All of it is {}.", WHY.label())
}

/// The mark of rows and columns of withdrawn designs.
pub(super) const MARK: char = '‡';

/// Returns the legend of the mark.
pub(super) fn mark() -> String {
    format!("{MARK} {}.", WHY.label())
}

/// The published table of that.
const MARKED: &str = "compaction for huge pages";

/// Shows how often compaction gave a block, by the number of pageblocks that it was told to pass by, in a kernel and
/// here.
pub(super) fn by_marks(view: View<'_>) -> Option<Section> {
    let case = view.cases(Program::SMadvise).into_iter().next()?;
    let kernels = figures::kernels_2018().tables;
    let there = figures::published(&kernels);
    let kernel = there.measurements.iter().filter(|row| row.program == MARKED);
    let place = &kernels.iter().find(|table| table.program == MARKED)?.place;
    let here = view.designs().iter().filter_map(|design| view.row(&case, design));
    let row = |row: &Measurement| {
        let of_quarter = |quarter: usize| {
            let [runs, gave] = names::marked_runs(quarter).map(|key| row.count(key));
            Some(gave_of(gave?, runs?))
        };
        row_of(&row.design, (0..QUARTERS).map(|quarter| of_quarter(quarter).into()).collect())
    };
    table_of(
        &format!("Compaction for huge pages by the share of marked pageblocks, {case}"),
        &format!(
            "A row is the kernel or a design: runs over a zone that gave a block, of all runs that began with so many \
             of the zone's pageblocks marked to be passed by; the kernel's in a zone of 368 MiB ({place}), ours \
             medians over seeds."
        ),
        1,
        &["", "0-25 %", "25-50 %", "50-75 %", "75-100 %"],
        kernel.chain(here).filter_map(row).collect(),
    )
}

fn gave_of(gave: f64, runs: f64) -> Cell {
    let [gave, runs] = [gave, runs].map(count);
    Cell::about(gave, format!("{gave} of {runs}"))
}

/// Shows why runs of compaction for huge pages gave no block.
pub(super) fn why_in_vain(view: View<'_>) -> Option<Section> {
    let columns = [
        ("unseen", names::NOTHING_EXAMINED),
        ("fixed", names::NOTHING_MOVED),
        ("in vain", names::NO_WHOLE_BLOCK),
        ("no place", names::NO_TARGET),
        ("deferred", names::DEFERRED),
        ("unsuitable", names::UNSUITABLE),
        ("at hand", names::SATISFIED),
    ];
    counted(
        view,
        "Why compaction for huge pages gave no block",
        "A row is one design: medians over seeds. Runs over a zone: unseen, the scanners met and nothing was examined; \
         fixed, what was examined could not be moved; in vain, pages were moved and no block became whole; no place, \
         none was found to move to. Zones that were left alone: deferred, unsuitable, or with a block at hand.",
        &columns,
    )
}

/// Shows who wipes marks while huge pages are asked for, and the work of kswapd then.
pub(super) fn who_wipes(view: View<'_>) -> Option<Section> {
    let columns = [
        ("first %", names::MARKED_AT_FIRST),
        ("by kswapd", names::WIPED_BY_KSWAPD),
        ("by a pause", names::WIPED_AFTER_PAUSE),
        ("wakes", names::WAKES_WHILE_HUGE),
        ("reclaimed", names::KSWAPD_WHILE_HUGE),
        ("by callers", names::DIRECT_WHILE_HUGE),
        ("events", names::EVENTS_WHILE_HUGE),
    ];
    counted(
        view,
        "Who wiped marks while huge pages were asked for",
        "A row is one design: medians over seeds. Pageblocks marked before the first huge page was asked for, in \
         percent; in kernel 6.1, 95 to 98 (docs/sources/pages.md#guest-skip-marks). From then on: times that marks \
         were wiped by kswapd going to sleep, and by the try after the longest pause; wakes of kswapd; pages that it \
         reclaimed, and that callers did; events below order 9. `nofrag run extfrag-kernels` has what kernels \
         reclaimed in this phase.",
        &columns,
    )
}

/// Builds a table of counts of the designs: titles of columns, and keys of counts.
fn counted(view: View<'_>, title: &str, caption: &str, columns: &[(&str, Key)]) -> Option<Section> {
    let case = view.cases(Program::SMadvise).into_iter().next()?;
    let row = |design: &String| {
        let row = view.row(&case, design)?;
        let cells = columns.iter().map(|(_, key)| row.count(key).map(count).map(Cell::from));
        let cells: Option<Vec<Cell>> = cells.collect();
        Some([cells![design], cells?].concat())
    };
    let titles = columns.iter().map(|(title, _)| *title);
    table_of(
        &format!("{title}, {case}"),
        caption,
        1,
        ["design"].into_iter().chain(titles),
        view.designs().iter().filter_map(row).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_s_trees_stay_and_all_others_are_withdrawn() {
        for design in ["linux-4.20", "linux-4.20+patch1", "linux-4.20+patch5"] {
            assert!(!is_withdrawn(design), "{design}");
        }
        for design in ["linux-5.0", "linux-6.1", "linux-7.2-defrag", "nofrag"] {
            assert!(is_withdrawn(design), "{design}");
        }
    }
}
