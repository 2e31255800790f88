//! The text of one report: its sections, its notes, its claims; and its answer on one screen.

use nofrag_show::{
    Cell, Look, Section, Table, Tone, cells, count, duration, number, plain, ratio, screen_for,
    text_for, wrapped,
};

use crate::figures::RatioRange;
use crate::oracle::{ClaimKind, ClaimVerdict, Oracle};
use crate::report::{Report, Settings, shortened};
use crate::scenario::Scenario;
use nofrag_show::Origin;

/// The claims that a summary lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claims {
    /// Failed claims, and the number of those that held.
    Counted,
    Listed,
}

/// Returns the text of one report, as a file has it.
#[must_use]
pub fn summary(scenario: &Scenario, report: &Report, origin: &Origin, claims: Claims) -> String {
    summary_for(scenario, report, origin, claims, Look::FILE)
}

/// Returns the text of one report, for this place.
#[must_use]
pub fn summary_for(
    scenario: &Scenario,
    report: &Report,
    origin: &Origin,
    claims: Claims,
    look: Look,
) -> String {
    let mut lines = wrapped(&format!("{}: {}", report.scenario, scenario.about), look.text_width());
    for text in circumstances(report, origin) {
        lines.extend(wrapped(&text, look.text_width() - 2).iter().map(|line| format!("  {line}")));
    }
    let head = lines.join("\n") + "\n\n";
    let mut sections = (scenario.present)(report);
    sections.push(Section::Lines { title: "Notes".to_owned(), lines: report.notes.clone() });
    sections.push(match claims {
        Claims::Counted => counted(&report.oracles),
        Claims::Listed => Section::Table(oracles(&report.oracles)),
    });
    head + &text_for(&sections, look)
}

/// Returns the document, machine, program and settings of a report.
fn circumstances(report: &Report, origin: &Origin) -> [String; 4] {
    let Origin { processor, cpus, kernel, rustc, profile, revision, .. } = origin;
    [
        report.document.clone(),
        format!("{processor}, {cpus} CPUs; {kernel}"),
        format!("{rustc}, profile {profile}; nofrag {revision}"),
        conditions(report),
    ]
}

/// The most failing claims that an answer has in full.
const MOST: usize = 4;

/// Returns the answer of one report on one screen: the claims that hold, those that do not, what weakens the figures,
/// and the first table, if it fits. `asked` are the designs that the run was asked for.
#[must_use]
pub fn answer_for(
    scenario: &Scenario,
    report: &Report,
    origin: &Origin,
    asked: &[String],
    look: Look,
) -> String {
    let lines = |title: String, lines: Vec<String>| Section::Lines { title, lines };
    let [document, machine, _, conditions] = circumstances(report, origin);
    let mut sections = vec![lines(
        verdict(report),
        vec![format!("{}: {document}", scenario.about), machine, conditions],
    )];
    let failing: Vec<&Oracle> = not_held(&report.oracles).collect();
    let mut claims: Vec<String> = failing.iter().take(MOST).map(|oracle| told(oracle)).collect();
    let likewise: Vec<&str> = failing.iter().skip(MOST).map(|oracle| oracle.id.as_str()).collect();
    claims
        .extend((!likewise.is_empty()).then(|| format!("likewise: {}", shortened(&likewise, FEW))));
    let Tally { withdrawn, .. } = Tally::of(&report.oracles);
    claims.extend((withdrawn > 0).then(|| format!("{withdrawn} are withdrawn: --all says why")));
    if !claims.is_empty() {
        sections.push(lines("Claims that do not hold, or have no verdict".to_owned(), claims));
    }
    let mut trust = scenario.stand_ins(asked);
    trust.extend(report.weaknesses());
    let (trust, others): (Vec<_>, Vec<_>) =
        report.notes.iter().cloned().partition(|note| trust.contains(note));
    let notes = |title: &str, notes: Vec<String>| {
        (!notes.is_empty()).then(|| lines(title.to_owned(), notes))
    };
    sections.extend(notes("How far to trust it", trust));
    let is_table = |section: &Section| matches!(section, Section::Table(_));
    sections.extend((scenario.present)(report).into_iter().find(is_table));
    sections.extend(notes("Notes", others));
    let next =
        "--all shows the whole result, --check lists every claim, --report FILE.html draws it.";
    screen_for(&sections, next, look)
}

/// Returns the claims that do not hold, the broken ones first.
fn not_held(oracles: &[Oracle]) -> impl Iterator<Item = &Oracle> {
    let with = |verdict| oracles.iter().filter(move |oracle| oracle.verdict() == verdict);
    with(ClaimVerdict::Broken).chain(with(ClaimVerdict::NotHere))
}

/// Returns a claim that does not hold, with its figures.
fn told(oracle: &Oracle) -> String {
    let Oracle { id, claim, measured, relation, .. } = oracle;
    let verdict = if oracle.is_broken() { "BROKEN" } else { "not here" };
    format!("{verdict}: {id}: {claim}; measured {}, must be {relation}", plain(*measured))
}

/// Number of names in a list of many.
const FEW: usize = 8;

/// Returns the verdict on a report in a line: the scenario with the claims that hold.
#[must_use]
pub fn verdict(report: &Report) -> String {
    let broken = if report.broken().next().is_some() { "BROKEN: " } else { "" };
    format!("{}: {broken}{}", report.scenario, Tally::of(&report.oracles).in_words("others"))
}

/// Returns the verdict on several reports: the number of claims that hold, and the names of those that do not.
#[must_use]
pub fn total(reports: &[&Report]) -> Section {
    let tally = Tally::of(reports.iter().flat_map(|report| &report.oracles));
    let title = tally.in_words("that depend on the machine");
    let mut lines = Vec::new();
    for (verdict, word) in [(ClaimVerdict::Broken, "BROKEN"), (ClaimVerdict::NotHere, "not here")] {
        for Report { scenario, oracles, .. } in reports {
            let with = oracles.iter().filter(|oracle| oracle.verdict() == verdict);
            let ids: Vec<&str> = with.map(|oracle| oracle.id.as_str()).collect();
            lines.extend(
                (!ids.is_empty()).then(|| format!("{word}: {scenario}: {}", shortened(&ids, FEW))),
            );
        }
    }
    Section::Lines { title, lines }
}

/// Returns the settings of a report, and its duration.
#[must_use]
pub fn conditions(report: &Report) -> String {
    let Settings { mode, seed, repeats, loops, threads, conditions, .. } = &report.settings;
    let took = duration(report.elapsed_s);
    if conditions.is_empty() {
        let loops = count(*loops as f64);
        return format!(
            "mode {mode}, seed {seed}, {repeats} repetitions of up to {loops} loops, {threads} threads; {took} in all"
        );
    }
    let conditions = conditions.join("; ");
    format!("mode {mode}; {conditions}; {threads} threads; {took} in all")
}

/// Number of judged claims of one kind, and of those that hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Claims that have a verdict.
    pub all: usize,
    pub held: usize,
}

/// Numbers of claims by kind and verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Claims that must hold everywhere.
    pub exact: Judged,
    /// Claims of the other kinds.
    pub others: Judged,
    pub withdrawn: usize,
}

impl Tally {
    /// Counts the claims of `oracles`.
    #[must_use]
    pub fn of<'a>(oracles: impl IntoIterator<Item = &'a Oracle>) -> Tally {
        let mut tally = Tally::default();
        for oracle in oracles {
            let judged = match (oracle.verdict(), oracle.kind) {
                (ClaimVerdict::Withdrawn(_), _) => {
                    tally.withdrawn += 1;
                    continue;
                }
                (_, ClaimKind::Exact) => &mut tally.exact,
                (_, ClaimKind::Ratio | ClaimKind::Environment) => &mut tally.others,
            };
            judged.all += 1;
            judged.held += usize::from(oracle.verdict() == ClaimVerdict::Holds);
        }
        tally
    }

    /// Returns the numbers in a line, in which claims that are not exact have this name.
    fn in_words(self, name: &str) -> String {
        let Tally { exact, others, withdrawn } = self;
        let others = match others.all {
            0 => String::new(),
            all => format!(", {} of {all} {name}", others.held),
        };
        let withdrawn = match withdrawn {
            0 => String::new(),
            withdrawn => format!(", {withdrawn} withdrawn"),
        };
        format!("{} of {} exact claims hold{others}{withdrawn}", exact.held, exact.all)
    }
}

/// Shows the number of claims that held, those that did not, and the reason why others have no verdict.
fn counted(claims: &[Oracle]) -> Section {
    let Tally { exact, others, .. } = Tally::of(claims);
    let mut lines: Vec<String> = not_held(claims).map(told).collect();
    lines.extend(withdrawals(claims));
    Section::Lines {
        title: format!(
            "Claims: {} of {} exact ones hold, {} of {} that depend on the host (--check lists them)",
            exact.held, exact.all, others.held, others.all
        ),
        lines,
    }
}

/// Returns the number of withdrawn claims with the reason; `None` where none was withdrawn.
pub(crate) fn withdrawals(oracles: &[Oracle]) -> Option<String> {
    let Tally { withdrawn, .. } = Tally::of(oracles);
    let why = oracles.iter().find_map(|oracle| oracle.withdrawn)?;
    Some(format!("{withdrawn} claims {}", why.reason()))
}

/// Shows an interval of ratios.
pub(crate) fn ratio_range(range: RatioRange) -> Cell {
    let low = ratio(range.low);
    let text = match range.high {
        None => format!("over {low}"),
        Some(high) if ratio(high).to_string() == low.to_string() => low.to_string(),
        Some(high) => format!("{}..{}", number(range.low), ratio(high)),
    };
    Cell::about(low, text)
}

/// Shows all oracles as a table.
#[must_use]
pub fn oracles(oracles: &[Oracle]) -> Table {
    let Tally { exact, .. } = Tally::of(oracles);
    let withdrawn = withdrawals(oracles).map_or_else(String::new, |why| format!(" {why}."));
    Table {
        title: format!("Claims: {} of {} exact ones hold", exact.held, exact.all),
        caption: format!(
            "A row is one claim that this run confirms or refutes. \"exact\" must hold everywhere and decides \
             --check; \"ratio\" holds on a quiet machine; \"host\" depends on the machine.{withdrawn}"
        ),
        texts: 2,
        header: ["", "claim", "measured", "must be"].map(str::to_owned).to_vec(),
        rows: oracles.iter().map(oracle_row).collect(),
    }
}

fn oracle_row(oracle: &Oracle) -> Vec<Cell> {
    let kind = match oracle.kind {
        ClaimKind::Exact => "exact",
        ClaimKind::Ratio => "ratio",
        ClaimKind::Environment => "host",
    };
    let (tone, verdict) = match oracle.verdict() {
        ClaimVerdict::Withdrawn(_) => (Tone::Plain, "withdrawn".to_owned()),
        ClaimVerdict::Holds => (Tone::Good, format!("{kind}: ok")),
        ClaimVerdict::Broken => (Tone::Bad, format!("{kind}: BROKEN")),
        ClaimVerdict::NotHere => (Tone::Warning, format!("{kind}: no")),
    };
    // Identifier and claim share a column, which may wrap: beside a long identifier the claim would have a letter a
    // line.
    let claim = format!("{}: {}", oracle.id, oracle.claim);
    let bound = Cell::About(oracle.relation.bound(), oracle.relation.to_string());
    cells![Cell::judged(tone, verdict), claim, plain(oracle.measured), bound]
}

#[cfg(test)]
mod tests {
    use nofrag_show::text;

    use super::*;
    use crate::oracle::{Relation, Withdrawn};
    use nofrag_show::COLUMNS;

    #[test]
    fn ratio_ranges_say_when_they_are_open() {
        let shown = |low, high| ratio_range(RatioRange { low, high }).to_string();
        assert_eq!(shown(3.2, Some(3.9)), "3.20..3.90x");
        assert_eq!(shown(3.35, Some(3.351)), "3.35x");
        assert_eq!(shown(325.0, None), "over 325x");
    }

    #[test]
    fn nothing_is_wider_than_a_hundred_columns() {
        let long = "word ".repeat(60);
        let oracle =
            Oracle::judge("id", ClaimKind::Exact, long.as_str(), 2.0, Relation::AtMost(1.0));
        let lines = Section::Lines { title: "Notes".to_owned(), lines: vec![long] };
        let text = text(&[Section::Table(oracles(&[oracle])), lines]);
        for line in text.lines() {
            assert!(line.chars().count() <= COLUMNS as usize, "{line}");
        }
        assert!(text.contains("BROKEN") && text.contains("0 of 1 exact"), "{text}");
    }

    #[test]
    fn withdrawn_claims_are_counted_apart_and_say_why() {
        let claim = |id: &str, kind, withdrawn| {
            let judged = Oracle::judge(id, kind, "is one", 2.0, Relation::Equals(1.0));
            Oracle { withdrawn, ..judged }
        };
        let why = Some(Withdrawn::AgainstKernels);
        let claims = [claim("a", ClaimKind::Ratio, None), claim("b", ClaimKind::Exact, why)];
        assert_eq!(
            Tally::of(&claims),
            Tally { others: Judged { all: 1, held: 0 }, withdrawn: 1, ..Tally::default() }
        );
        let (few, all) = (text(&[counted(&claims)]), text(&[Section::Table(oracles(&claims))]));
        assert!(few.contains("not here: a") && !few.contains(": b:"), "{few}");
        for text in [few, all] {
            assert!(text.contains("0 of 0 exact") && text.contains("1 claims withdrawn"), "{text}");
            assert!(text.contains("re-measured against") && !text.contains("BROKEN"), "{text}");
        }
    }
}
