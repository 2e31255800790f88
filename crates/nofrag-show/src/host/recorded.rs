//! `nofrag record`: the summary of a recording.

use nofrag_host::record::{CommandReport, Ended, Recorded};

use super::parts::known;
use super::trace::extfrag;
use crate::{Look, Table, bytes_text, cells, facts, fixed, wrapped};

/// Returns the summary as text.
#[must_use]
pub fn text(recorded: &Recorded, look: Look) -> String {
    let mut text = heading(recorded) + "\n" + &kinds(recorded, look) + "\n";
    for sentence in sentences(recorded) {
        text += &wrapped(&sentence, look.text_width()).join("\n");
        text += "\n";
    }
    let table: Vec<_> = extfrag(&recorded.extfrag).into_iter().collect();
    text + &crate::text_for(&table, look)
}

fn heading(recorded: &Recorded) -> String {
    let mut rows = vec![
        ("file", recorded.output.display().to_string()),
        ("size", size(recorded)),
        ("kernel", known(recorded.release.as_ref()).to_owned()),
        (
            "traced",
            format!(
                "{:.1} s, of which {:.1} s until the state at the start was read; ended: {}",
                recorded.seconds,
                recorded.start_snapshot_seconds,
                ended(recorded)
            ),
        ),
        (
            "events",
            format!(
                "{}, {:.0} per second; {} lost",
                recorded.events,
                recorded.events as f64 / recorded.seconds.max(1e-9),
                recorded.lost
            ),
        ),
        (
            "raw pages",
            format!("{}, {}", bytes_text(recorded.raw_bytes), each(recorded.raw_bytes, recorded)),
        ),
        (
            "recorder",
            format!(
                "{:.2} s of CPU time, {:.2} s of them for the snapshots",
                recorded.recorder_cpu_seconds, recorded.snapshot_cpu_seconds
            ),
        ),
    ];
    if let Some(report) = &recorded.command {
        rows.push(("command", command(report)));
    }
    facts(&rows)
}

/// Returns the size of the file, and the part of it that is events.
fn size(recorded: &Recorded) -> String {
    let all = bytes_text(recorded.bytes);
    match recorded.event_bytes {
        None => format!("{all}, {}", each(recorded.bytes, recorded)),
        Some(events) => {
            let rest = bytes_text(recorded.bytes.saturating_sub(events));
            format!(
                "{all}: events {}, {}; snapshots {rest}",
                bytes_text(events),
                each(events, recorded)
            )
        }
    }
}

/// Returns the bytes for each event.
fn each(bytes: u64, recorded: &Recorded) -> String {
    match recorded.events {
        0 => "no events".to_owned(),
        events => format!("{:.2} bytes/event", bytes as f64 / events as f64),
    }
}

fn ended(recorded: &Recorded) -> String {
    match &recorded.ended {
        Ended::Elapsed if recorded.command.is_some() => {
            "the time was over, and so the command was ended".to_owned()
        }
        Ended::Elapsed => "the time was over".to_owned(),
        Ended::Command => "the command had ended".to_owned(),
        Ended::Signal(name) => format!("by {name}"),
        Ended::Failed(why) => format!("cut short: {why}"),
    }
}

fn command(report: &CommandReport) -> String {
    let end = match (report.exit_code, report.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => format!("still running as process {}", report.pid),
    };
    format!(
        "{}: {end}; {:.2} s, {:.2} s user, {:.2} s system",
        report.words.join(" "),
        report.seconds,
        report.user_seconds,
        report.system_seconds
    )
}

fn kinds(recorded: &Recorded, look: Look) -> String {
    let mut table = Table::new(&["event", "count", "per second"]);
    for kind in &recorded.by_kind {
        let rate = kind.events as f64 / recorded.seconds.max(1e-9);
        let name = format!("{}:{}", kind.group, kind.name);
        table.row(cells![name, kind.events, fixed(rate, 1)]);
    }
    table.text("", look)
}

fn sentences(recorded: &Recorded) -> Vec<String> {
    let mut sentences = Vec::new();
    if recorded.lost > 0 || recorded.gaps > 0 {
        let places = match recorded.gaps {
            0 => ", the kernel does not say where: what is computed from the others".to_owned(),
            gaps => {
                format!(" in {gaps} places, and the file says where: what is computed across a gap")
            }
        };
        sentences.push(format!(
            "{} events were lost{places} is tainted. Record again with larger buffers (--buffer-kib {}), a faster \
             disk, or fewer kinds of events.",
            recorded.lost,
            recorded.buffer_kib_per_cpu.saturating_mul(4),
        ));
    }
    if recorded.unstored > 0 {
        sentences.push(format!(
            "{} more events were read and could not be stored: the file does not have them, and nothing above counts \
             them.",
            recorded.unstored
        ));
    }
    if recorded.unreadable > 0 {
        sentences.push(format!("{} records could not be understood.", recorded.unreadable));
    }
    let removed = recorded.removed_stale.iter();
    sentences.extend(removed.map(|name| {
        format!("Removed the instance {name}, left behind by a recording that was killed.")
    }));
    sentences.extend(recorded.missing.iter().map(|what| format!("Missing: {what}.")));
    sentences
}
