//! Single statements about the kernel, tried here.

use nofrag_backing::moving::{Fill, Method};
use rustix::io::Errno;

use crate::apparatus::Trouble;
use crate::apparatus::properties::{
    adjacent_maps, collapses, filling, punches, references_after_a_move, scattered_purges,
    shared_page,
};
use crate::oracle::{Claims, Oracle, Relation};
use crate::report::Report;

/// Number of rounds of timed statements.
const ROUNDS: u64 = 60;

/// Tries the statements; one that cannot be tried here becomes a note.
pub(super) fn run(report: &mut Report) {
    type Trial = fn(&mut Vec<Oracle>) -> Result<(), Trouble>;
    let trials: [(&str, Trial); 7] = [
        ("private-page", private_page),
        ("references", references),
        ("page-tables", page_tables),
        ("neighbours", neighbours),
        ("huge-pages", huge_pages),
        ("scattered", scattered),
        ("punched", punched),
    ];
    for (oracle, trial) in trials {
        if let Err(why) = trial(&mut report.oracles) {
            report.skip(oracle, why);
        }
    }
}

/// Returns the median of some samples, in nanoseconds; the upper one of two.
fn median(mut samples: Vec<u64>) -> f64 {
    samples.sort_unstable();
    samples.get(samples.len() / 2).map_or(f64::NAN, |median| *median as f64)
}

/// Number of one-page mappings that lie in a row, in memory and in their file.
const NEIGHBOURS: usize = 1_024;

/// Judges that mappings which are neighbours in memory and in their file are one area
/// (docs/sources/backing.md#oracle-2).
fn neighbours(oracles: &mut Vec<Oracle>) -> Result<(), Trouble> {
    let areas = adjacent_maps(NEIGHBOURS)?;
    let claim = format!(
        "areas of {NEIGHBOURS} mappings of one page at adjacent addresses with consecutive offsets"
    );
    oracles.exact("neighbours", claim, areas as f64, Relation::AtMost(1.0));
    Ok(())
}

/// Number of huge pages that are made of small ones of a file in memory.
const COLLAPSED: usize = 16;

/// Judges that `MADV_COLLAPSE` makes huge pages of a memfd (docs/sources/backing.md#oracle-6).
fn huge_pages(oracles: &mut Vec<Oracle>) -> Result<(), Trouble> {
    let made = collapses(COLLAPSED)?.iter().filter(|made| made.is_ok()).count();
    let claim =
        format!("of {COLLAPSED} blocks of a memfd those that MADV_COLLAPSE made huge pages");
    oracles.host("huge-pages", claim, made as f64, Relation::Equals(COLLAPSED as f64));
    Ok(())
}

/// Judges that `process_madvise` purges scattered runs faster than a call for each (docs/sources/backing.md#oracle-9).
fn scattered(oracles: &mut Vec<Oracle>) -> Result<(), Trouble> {
    let found = scattered_purges(1, ROUNDS as u32)?;
    let gain = median(found.singly) / median(found.in_vectors);
    let claim = "64 scattered runs of one page purged one by one, over process_madvise of all, another processor busy \
                ";
    // 35 on one machine, 2.3 to 3.0 on another of as many processors: the price of an interrupt decides.
    oracles.host("scattered", claim, gain, Relation::AtLeast(1.0));
    Ok(())
}

/// Judges that punching a whole huge page is cheaper than punching 16 pages out of one
/// (docs/sources/backing.md#oracle-11).
fn punched(oracles: &mut Vec<Oracle>) -> Result<(), Trouble> {
    let found = punches(ROUNDS as u32 / 4)?;
    let share = median(found.whole) / median(found.part);
    let claim = "punching a whole huge page over punching 16 pages out of it";
    // An eighth on one machine, 0.60 to 0.75 on another.
    oracles.host("punched", claim, share, Relation::AtMost(1.0));
    Ok(())
}

/// Returns the number of an error; 0 for success.
fn number(outcome: Result<(), Errno>) -> f64 {
    outcome.map_or_else(|error| f64::from(error.raw_os_error()), |()| 0.0)
}

/// Judges that `UFFDIO_MOVE` refuses a page that a child shares, and not one that a pipe refers to
/// (docs/sources/backing.md#oracle-4).
fn private_page(oracles: &mut Vec<Oracle>) -> Result<(), Trouble> {
    let page = shared_page()?;
    let claims = [
        (
            "private-page/child",
            "a child shares",
            page.with_child,
            f64::from(Errno::BUSY.raw_os_error()),
        ),
        ("private-page/pipe", "a pipe refers to", page.with_pipe, 0.0),
    ];
    for (id, who, outcome, expected) in claims {
        let claim =
            format!("UFFDIO_MOVE of a page that {who}: the number of the error (Linux 6.18)");
        oracles.host(id, claim, number(outcome), Relation::Equals(expected));
    }
    Ok(())
}

/// Judges that after a move the area reads the new page, a pipe and another mapping the old one
/// (docs/sources/backing.md#oracle-5).
fn references(oracles: &mut Vec<Oracle>) -> Result<(), Trouble> {
    let found = references_after_a_move(Method::WriteProtect(Fill::OnFault))?;
    let claims = [
        (
            "references/area",
            "the area that moved reads what was written before",
            found.area,
            found.old,
        ),
        (
            "references/pipe",
            "a pipe that refers to the page reads what was written later",
            found.pipe,
            found.new,
        ),
        (
            "references/other",
            "another mapping of the page reads what was written later",
            found.other_area,
            found.new,
        ),
    ];
    for (id, claim, read, wrong) in claims {
        let claim = format!("after a move: {claim}");
        let measured = f64::from(u8::from(read == wrong));
        oracles.exact(id, claim, measured, Relation::NONE);
    }
    Ok(())
}

/// Judges that `UFFDIO_CONTINUE` takes at most half the time of populating the same pages
/// (docs/sources/backing.md#oracle-10).
fn page_tables(oracles: &mut Vec<Oracle>) -> Result<(), Trouble> {
    let found = filling(64, ROUNDS)?;
    let ratio = median(found.by_request) / median(found.by_populate).max(1.0);
    let claim = "UFFDIO_CONTINUE of 64 pages over MADV_POPULATE_WRITE of them";
    oracles.ratio("page-tables", claim, ratio, Relation::AtMost(0.5));
    Ok(())
}
