//! Parts of the texts and pages of all subjects: files that could not be read, and findings.

use nofrag_host::finding::{Finding, Severity};
use nofrag_host::machine::huge::Basis;
use nofrag_host::machine::verdict::{State, Verdict};
use nofrag_host::source::Missing;

use crate::page::axis::Scale;
use crate::page::bars::{Bar, BarPanel, Bars};
use crate::page::{Card, Drawing, Figure, Headline, Item, Part, Tile};
use crate::{Cell, Look, Origin, Table, Tone, bytes, cells, count, plural, screen, sentence};

/// Lists the files that could not be read; `None` if there are none.
pub fn missing(missing: &[Missing], look: Look) -> Option<String> {
    let lines = missing.iter().map(|missing| look.wrapped("Not read: ", &missing.to_string()));
    let text: String = lines.collect();
    (!text.is_empty()).then_some(text)
}

/// Lists the files that could not be read, those of one reason together, the first of many.
pub(super) fn brief_missing(missing: &[Missing], look: Look) -> Option<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for missing in missing {
        // Below a captured host's folder the paths are those of a live one.
        let from = ["/proc/", "/sys/"].iter().find_map(|root| missing.path.find(root));
        let path = from.map_or(missing.path.as_str(), |from| &missing.path[from..]);
        match reasons.iter_mut().find(|(why, _)| *why == missing.why) {
            Some((_, paths)) => paths.push(path),
            None => reasons.push((&missing.why, vec![path])),
        }
    }
    if reasons.is_empty() {
        return None;
    }
    /// Files of one reason that are named.
    const MOST: usize = 4;
    let named = |(why, paths): &(&str, Vec<&str>)| {
        let names = paths[..paths.len().min(MOST)].join(", ");
        match paths.len().saturating_sub(MOST) {
            0 => format!("{names} ({why})"),
            more => format!("{names} and {} ({why})", plural(more as u64, "other", "others")),
        }
    };
    let reasons: Vec<String> = reasons.iter().map(named).collect();
    let text = format!("{}. `--all` says what each costs.", reasons.join("; "));
    Some(look.hanging("Not read: ", 2, &text))
}

/// Lists the files that could not be read, for a page; `None` if there are none.
pub(super) fn missing_item(missing: &[Missing]) -> Option<Item> {
    let row = |it: &Missing| cells![&it.path, &it.why, it.costs];
    let caption = "A row is a file that could not be had, and what this page lacks for want of it.";
    let rows = missing.iter().map(row).collect();
    Table::of("Not read", caption, 3, ["file", "why", "it costs"], rows).map(Item::Table)
}

fn urgency(severity: Severity) -> (Tone, &'static str) {
    match severity {
        Severity::Warning => (Tone::Warning, "warning"),
        Severity::Note => (Tone::Note, "note"),
    }
}

/// Returns the findings as a numbered list.
pub(super) fn findings<'a>(findings: impl IntoIterator<Item = &'a Finding>, look: Look) -> String {
    let mut findings = findings.into_iter().peekable();
    if findings.peek().is_none() {
        return "Findings: none\n".to_owned();
    }
    let mut text = String::from("Findings\n");
    for (index, finding) in findings.enumerate() {
        let (tone, severity) = urgency(finding.severity);
        let first = format!("{:2}. {severity} {}: ", index + 1, finding.id);
        let evidence = look.hanging(&first, 4, &sentence(&finding.evidence));
        // Colour comes last: it has no width.
        text += &evidence.replacen(severity, &look.tinted(tone, severity), 1);
        text += &advice("    ", finding, look);
    }
    text
}

/// Lists warnings in full, the most urgent first, and notes by name.
pub(super) fn brief_findings(findings: &[&Finding], look: Look) -> String {
    const MOST: usize = 3;
    let warnings = findings.iter().filter(|each| each.severity == Severity::Warning).count();
    let shown = warnings.min(MOST);
    let mut text = match shown {
        0 => String::new(),
        shown => self::findings(findings[..shown].iter().copied(), look),
    };
    let more: Vec<&str> = findings[shown..].iter().map(|finding| finding.id).collect();
    if !more.is_empty() {
        let more = format!("{}; `--all` says why", more.join(", "));
        text += &look.hanging("Notes: ", 2, &sentence(&more));
    }
    text
}

/// Returns the sections that are not empty, on one screen with `next`, the way to the rest; all of them where a number
/// of `rows` was asked for.
pub(super) fn on_screen(
    mut sections: Vec<String>,
    next: &str,
    rows: Option<usize>,
    look: Look,
) -> String {
    sections.retain(|section| !section.is_empty());
    let parts = sections.into_iter().map(|section| section + "\n");
    match rows {
        None => screen(parts, next, look),
        Some(_) => parts.collect::<String>() + &look.wrapped("", next),
    }
}

/// Returns the findings as cards.
pub(super) fn cards(findings: &[Finding]) -> Item {
    let title = "Findings".to_owned();
    if findings.is_empty() {
        return Item::Lines { title, lines: vec!["none".to_owned()] };
    }
    let card = |finding: &Finding| {
        let (tone, word) = urgency(finding.severity);
        Card {
            tone,
            name: format!("{word}, {}", finding.id),
            evidence: sentence(&finding.evidence),
            consequence: sentence(&finding.consequence),
            help: sentence(&finding.help),
        }
    };
    Item::Findings { title, findings: findings.iter().map(card).collect() }
}

/// Returns the tone of a verdict.
fn tone_of(verdict: &Verdict) -> Tone {
    match (verdict.severity(), verdict.state) {
        (Some(Severity::Warning), _) => Tone::Bad,
        (Some(Severity::Note), _) => Tone::Warning,
        (None, State::InUse) => Tone::Plain,
        (None, _) => Tone::Good,
    }
}

/// Returns the verdict in a sentence, its first words in their tone.
pub(super) fn verdict(verdict: &Verdict, look: Look) -> String {
    let words = verdict.words();
    let mut evidence = sentence(&verdict.evidence());
    if verdict.basis == Basis::FreePages {
        evidence += " The bounds are weak, since types are not known.";
    }
    let text = look.hanging(&format!("{words}: "), 2, &evidence);
    // Colour comes last: it has no width.
    text.replacen(words, &look.tinted(tone_of(verdict), words), 1)
}

/// Returns the verdict with what follows from it, and the findings that say something else.
pub(super) fn verdict_with<'a>(
    about: Option<&Verdict>,
    findings: &'a [Finding],
    look: Look,
) -> (String, Vec<&'a Finding>) {
    let Some(about) = about else { return (String::new(), findings.iter().collect()) };
    let is_said = |finding: &&Finding| about.findings().contains(&finding.id);
    let (said, others): (Vec<&Finding>, Vec<&Finding>) = findings.iter().partition(is_said);
    let first = match said.first() {
        Some(finding) => advice("  ", finding, look),
        None => about.where_it_is().map_or_else(String::new, |(follows, help)| {
            let help = help.map(|help| look.wrapped("  Do: ", &sentence(&help)));
            look.wrapped("  So: ", &sentence(&follows)) + &help.unwrap_or_default()
        }),
    };
    (verdict(about, look) + &first, others)
}

/// Says what follows from a finding, and what to do.
pub(super) fn advice(indent: &str, finding: &Finding, look: Look) -> String {
    look.wrapped(&format!("{indent}So: "), &sentence(&finding.consequence))
        + &look.wrapped(&format!("{indent}Do: "), &sentence(&finding.help))
}

/// Returns the verdict in a line with its tone.
pub(super) fn verdict_line(verdict: &Verdict) -> (String, Tone) {
    (format!("{}: {}", verdict.words(), verdict.evidence()), tone_of(verdict))
}

/// Returns the headline of a page about pages: the most urgent finding, else the verdict.
pub(super) fn headline_of(verdict: Option<&Verdict>, findings: &[Finding]) -> Headline {
    let headline = headline(findings);
    let first = findings.iter().find(|finding| finding.severity == Severity::Warning);
    match (verdict, first) {
        (Some(verdict), None) => {
            let (says, tone) = verdict_line(verdict);
            Headline { tone, says: sentence(&says), ..headline }
        }
        // The same, but by its name.
        (Some(verdict), Some(first)) if verdict.findings().contains(&first.id) => {
            Headline { says: sentence(&verdict_line(verdict).0), ..headline }
        }
        _ => headline,
    }
}

/// Returns the headline of the findings.
pub(super) fn headline(findings: &[Finding]) -> Headline {
    match findings.iter().find(|finding| finding.severity == Severity::Warning) {
        Some(first) => Headline {
            tone: Tone::Bad,
            says: format!("{} needs attention: {}.", first.id, first.evidence),
            advice: sentence(&first.help),
        },
        None => Headline {
            tone: Tone::Good,
            says: "Nothing needs attention.".to_owned(),
            advice: match findings.len() {
                0 => "There are no findings.".to_owned(),
                _ => "The notes below say what is easily misread.".to_owned(),
            },
        },
    }
}

/// Returns the only part of a page about one subject.
pub(super) fn part(id: &str, title: &str, origin: &Origin, items: Vec<Item>) -> Part {
    Part {
        id: id.to_owned(),
        title: title.to_owned(),
        lead: Vec::new(),
        command: origin.command.clone(),
        headline: None,
        items,
    }
}

/// Returns a number that stands out by itself.
pub(super) fn tile(value: impl ToString, what: impl Into<String>) -> Tile {
    Tile { tone: Tone::Plain, value: value.to_string(), what: what.into() }
}

/// Returns a count that stands out by itself.
pub(super) fn tile_of(value: u64, what: &str) -> Tile {
    tile(count(value as f64), what)
}

/// Returns a drawing with its title and its explanation.
pub(super) fn figure(title: impl Into<String>, says: impl Into<String>, drawing: Drawing) -> Item {
    Item::Figure(Figure { title: title.into(), says: says.into(), drawing })
}

/// Returns bars of one linear scale, in panels with a name; `None` without bars.
pub(super) fn bars(
    title: impl Into<String>,
    says: impl Into<String>,
    panels: impl IntoIterator<Item = (String, Vec<Bar>)>,
) -> Option<Item> {
    let panels = panels.into_iter().filter(|(_, bars)| !bars.is_empty());
    let panels: Vec<BarPanel> = panels.map(|(name, bars)| BarPanel { name, bars }).collect();
    let drawing = |panels| Drawing::Bars(Bars { lengths: Scale::Linear, panels });
    (!panels.is_empty()).then(|| figure(title, says, drawing(panels)))
}

/// Returns a bar of `value` bytes or pieces, with the text beside it.
pub(super) fn bar(name: impl Into<String>, value: u64, text: impl ToString) -> Bar {
    Bar { name: name.into(), value: value as f64, text: text.to_string() }
}

/// Returns the name of the `count` entries of a list that are not shown.
pub(super) fn others(count: usize) -> String {
    format!("({})", plural(count as u64, "other", "others"))
}

/// Returns a size; zero is written as "none".
pub(super) fn size_or_none(size: u64) -> Cell {
    if size == 0 { "none".into() } else { bytes(size).into() }
}

/// Returns a name, or a placeholder if it is not known.
pub(super) fn known(value: Option<&String>) -> &str {
    value.map_or("(unknown)", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Colour;

    #[test]
    fn only_the_severity_of_a_finding_is_coloured() {
        let finding = |severity| Finding {
            severity,
            id: "a-warning-note",
            evidence: "evidence".to_owned(),
            consequence: "consequence".to_owned(),
            help: "help".to_owned(),
        };
        let list = [finding(Severity::Warning), finding(Severity::Note)];
        let plain = findings(&list, Look::FILE);
        let coloured = findings(&list, Look { colour: Colour::Ansi, ..Look::FILE });
        let expected = plain
            .replace(" warning a", " \x1b[33mwarning\x1b[0m a")
            .replace(" note a", " \x1b[36mnote\x1b[0m a");
        assert_ne!(plain, coloured);
        assert_eq!(coloured, expected);
    }
}
