//! What the pages of all subjects share: broken lines, tables, pictures, findings.

use nofrag_host::finding::{Finding, Severity};
use nofrag_host::source::Missing;
use nofrag_show::Tone;

use nofrag_show::Look;

pub(crate) use nofrag_show::{Numbers, hole_map};

/// The files that could not be read; none without one.
pub(super) fn missing(missing: &[Missing], look: Look) -> Option<String> {
    let lines = missing.iter().map(|missing| {
        let text = format!("{}: {}; it costs {}", missing.path, missing.why, missing.costs);
        wrapped("Not read: ", &text, look)
    });
    let text: String = lines.collect();
    (!text.is_empty()).then_some(text)
}

/// The findings as a numbered list.
pub(super) fn findings(findings: &[Finding], look: Look) -> String {
    if findings.is_empty() {
        return "Findings: none\n".to_owned();
    }
    let mut text = String::from("Findings\n");
    for (index, finding) in findings.iter().enumerate() {
        let (tone, severity) = match finding.severity {
            Severity::Warning => (Tone::Warning, "warning"),
            Severity::Note => (Tone::Note, "note"),
        };
        let first = format!("{:2}. {severity} {}: ", index + 1, finding.id);
        let evidence = hanging(&first, 4, &sentence(&finding.evidence), look);
        // Colour comes last: it has no width.
        text += &evidence.replacen(severity, &look.tinted(tone, severity), 1);
        text += &wrapped("    So: ", &sentence(&finding.consequence), look);
        text += &wrapped("    Do: ", &sentence(&finding.help), look);
    }
    text
}

/// `text` with a full stop.
pub(crate) fn sentence(text: &str) -> String {
    format!("{text}.")
}

/// A count with its noun.
pub(super) fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A share of a whole; a dash of nothing.
pub(super) fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        whole => format!("{:.1} %", part as f64 * 100.0 / whole as f64),
    }
}

/// `lead` and `text`, broken at spaces; what follows the first line is indented as far as `lead`.
pub(crate) fn wrapped(lead: &str, text: &str, look: Look) -> String {
    hanging(lead, lead.chars().count(), text, look)
}

/// `lead` and `text`, broken at spaces; what follows the first line is indented by `indent`.
pub(crate) fn hanging(lead: &str, indent: usize, text: &str, look: Look) -> String {
    nofrag_show::hanging(lead, indent, text, look.width)
}

#[cfg(test)]
mod tests {
    use nofrag_show::Colour;

    use super::*;

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
