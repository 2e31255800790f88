//! The answer of a replay on one screen: what can be said, each figure that is off and used, and what the policies do.

use nofrag_show::host::trace::not_whole;
use nofrag_show::{Cell, Section, cells, count, table_of};

use super::cautions::UNCONFIRMED;
use super::outcome::{Fidelity, ReplayReport, Verdict};
use super::present::{
    beside, confirmed, mixing, of_recording, policies_of, price, success, written,
};

/// The most policies in an answer.
const MOST_POLICIES: usize = 8;

/// Returns the sections of the answer, the most important first.
#[must_use]
pub fn answer(report: &ReplayReport) -> Vec<Section> {
    let [first, second] = match &report.fidelity {
        Some(fidelity) => [can_be_said(fidelity), policies(report, fidelity)],
        None => [success(report), price(report)],
    };
    let mut sections = vec![heading(report)];
    sections.extend(report.against.iter().filter_map(beside));
    sections.extend(first);
    // Runs under other rules stand beside their kernels already, where there are some.
    if report.against.is_empty() {
        sections.extend([second, mixing(report)].into_iter().flatten());
    }
    sections
}

fn heading(report: &ReplayReport) -> Section {
    let verdict = match &report.fidelity {
        Some(Fidelity { answers, .. }) => {
            let holds = answers.iter().filter(|answer| answer.verdict == Verdict::Holds).count();
            format!("Replay: {holds} of {} questions can be answered", answers.len())
        }
        None => "Replay: how far it can be trusted is not known".to_owned(),
    };
    let is_told = |caution: &&String| !caution.starts_with(UNCONFIRMED);
    let mut lines = vec![of_recording(report)];
    // Names that stand for others come first.
    let told: Vec<String> = report.cautions.iter().take_while(is_told).cloned().collect();
    let others = report.cautions.len().saturating_sub(told.len());
    lines.extend(told);
    lines.push(format!("{others} cautions: --all shows them"));
    let title = match not_whole(report.recorded.loss()) {
        Some(loss) => {
            lines.insert(0, verdict);
            loss
        }
        None => verdict,
    };
    Section::Lines { title, lines }
}

/// Returns a row for each question, and for each figure that it rests on and that does not hold.
fn can_be_said(fidelity: &Fidelity) -> Option<Section> {
    let rows = fidelity.answers.iter().flat_map(|answer| {
        fidelity.behind(answer).enumerate().map(move |(number, figure)| {
            let name = match number {
                0 => answer.query.what().to_owned(),
                _ => format!("  rests on {}", figure.name),
            };
            cells![name, count(figure.recorded), figure.replayed, written(figure.verdict)]
        })
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    let off = fidelity.figures.iter().filter(|figure| figure.verdict == Verdict::Off);
    let caption = match off.filter(|figure| figure.carries.is_empty()).count() {
        0 => String::new(),
        1 => "One more figure is OFF that no question rests on.".to_owned(),
        unused => format!("{unused} more figures are OFF that no question rests on."),
    };
    let title = format!("What can be said: {} replayed, beside the kernel itself", fidelity.preset);
    table_of(&title, &caption, 1, &["question", "kernel", "replay", "verdict"], rows)
}

/// Returns the middle of what each policy does, where it can be said, with a word on the difference.
fn policies(report: &ReplayReport, fidelity: &Fidelity) -> Option<Section> {
    let more = match report.runs.len().saturating_sub(MOST_POLICIES) {
        0 => String::new(),
        hidden => format!(" {hidden} more policies: --all shows them."),
    };
    let values = match report.repeats {
        1 => "One start value".to_owned(),
        repeats => format!("The middle of {repeats} start values"),
    };
    let caption = format!(
        "{values}. Less and more: than under {}, outside the range of all start values; = is no \
         difference.{more} {}",
        fidelity.preset,
        confirmed(report)
    );
    policies_of(report, MOST_POLICIES, &caption, |says, run, query| {
        let median = run.answer(query).median;
        Cell::About(median, format!("{}{}", count(median), says.difference(run, query)))
    })
}
