//! Single statements of the specification about what the kernel does, tried here.

use nofrag_backing::moving::measure::{
    MeasureError, filling, references_after_a_move, shared_page,
};
use nofrag_backing::moving::{Fill, Method};
use rustix::io::Errno;

use crate::oracle::{Kind, Oracle, Relation};
use crate::report::Report;

/// Rounds of what is timed.
const ROUNDS: u64 = 60;

/// Tries them; what cannot be tried here is a note.
pub(super) fn run(report: &mut Report) {
    let skipped = [
        ("oracle 4", private_page(report)),
        ("oracle 5", references(report)),
        ("oracle 10", page_tables(report)),
    ];
    for (oracle, tried) in skipped {
        if let Err(why) = tried {
            report.notes.push(format!("skipped: {oracle}: {why}"));
        }
    }
}

/// The number of an error; 0 for success.
fn number(outcome: Result<(), Errno>) -> f64 {
    outcome.map_or_else(|error| f64::from(error.raw_os_error()), |()| 0.0)
}

fn private_page(report: &mut Report) -> Result<(), MeasureError> {
    let page = shared_page()?;
    let claims = [
        (
            "oracle-4/child",
            "a child shares",
            page.with_child,
            f64::from(Errno::BUSY.raw_os_error()),
        ),
        ("oracle-4/pipe", "a pipe refers to", page.with_pipe, 0.0),
    ];
    for (id, who, outcome, expected) in claims {
        let claim = format!(
            "UFFDIO_MOVE of a page that {who}: the number of the error (oracle 4, Linux 6.18)"
        );
        let equals = Relation::Equals(expected);
        report.oracles.push(Oracle::judge(id, Kind::Environment, claim, number(outcome), equals));
    }
    Ok(())
}

fn references(report: &mut Report) -> Result<(), MeasureError> {
    let found = references_after_a_move(Method::WriteProtect(Fill::OnFault))?;
    let claims = [
        (
            "oracle-5/area",
            "the area that moved reads what was written before",
            found.area,
            found.old,
        ),
        (
            "oracle-5/pipe",
            "a pipe that refers to the page reads what was written later",
            found.pipe,
            found.new,
        ),
        (
            "oracle-5/other",
            "another mapping of the page reads what was written later",
            found.other_area,
            found.new,
        ),
    ];
    for (id, claim, read, wrong) in claims {
        let claim = format!("after a move: {claim} (oracle 5)");
        let measured = f64::from(u8::from(read == wrong));
        report.oracles.push(Oracle::judge(id, Kind::Exact, claim, measured, Relation::Equals(0.0)));
    }
    Ok(())
}

fn page_tables(report: &mut Report) -> Result<(), MeasureError> {
    let found = filling(64, ROUNDS)?;
    let ratio = found.by_request.median_ns as f64 / found.by_populate.median_ns.max(1) as f64;
    let claim = "UFFDIO_CONTINUE of 64 pages over MADV_POPULATE_WRITE of them (oracle 10)";
    let most = Relation::AtMost(0.5);
    report.oracles.push(Oracle::judge("oracle-10", Kind::Ratio, claim, ratio, most));
    Ok(())
}
