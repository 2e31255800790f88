//! The text of `perf script`.
//!
//! ```text
//! # os release : 6.18.5
//!            rustc 26315/26319 [000] 38671.649602: 1 kmem:mm_page_alloc: page=0x1f32e1 pfn=0x1f32e1 order=0 ..
//!        perf-exec 26496 [001] 38673.651669: PERF_RECORD_LOST lost 279
//!     ffffffff8161f42b __alloc_frozen_pages_noprof+0x26b ([kernel.kallsyms])
//! ```
//!
//! A line has the name of a thread, which may have blanks, its number (after that of its process, with `-F pid,tid`),
//! the CPU, if it was recorded, the time, perhaps a period, and the event with its group. Call chains, comments and
//! perf's own records are skipped, except records of losses: perf loses events when its buffers are full, reports that
//! in the text only with `--show-lost-events`, and warns elsewhere. Lines keep their order.

use super::kinds::EventKind;
use super::meta::TraceMeta;
use super::text::{Head, Line, time};

/// Parses a line of the text of `perf script`.
pub(super) fn line(text: &str) -> Line<'_> {
    let trimmed = text.trim();
    if trimmed.is_empty() || trimmed.starts_with('#') || is_frame(text) {
        return Line::Blank;
    }
    // Lines of perf's standard error, where it was saved too.
    match trimmed {
        "Warning:" | "Check IO/CPU overload!" => return Line::Blank,
        _ if trimmed.starts_with("Processed ") && trimmed.contains(" lost ") => {
            return Line::Lost(0, None);
        }
        _ => {}
    }
    let Some(head) = head(trimmed) else { return Line::Unreadable };
    match head.rest.strip_prefix("PERF_RECORD_") {
        Some(record) if record.starts_with("LOST") => Line::Lost(head.cpu, lost(record)),
        Some(_) => Line::Blank,
        None => Line::Event(head),
    }
}

/// Parses the fields of a line before its event.
fn head(line: &str) -> Option<Head<'_>> {
    split(line).and_then(|(before, at, rest)| {
        let (before, cpu) = match before.strip_suffix(']') {
            Some(before) => {
                let (before, cpu) = before.rsplit_once('[')?;
                (before.trim_end(), cpu.parse().ok()?)
            }
            None => (before, 0),
        };
        let (comm, thread) = before.rsplit_once(char::is_whitespace)?;
        let thread = thread.rsplit('/').next().unwrap_or(thread);
        Some(Head { comm: comm.trim(), pid: thread.parse().ok()?, cpu, at, rest })
    })
}

/// Splits a line at its time, into the part before, the time and the part behind: the first word that is a time, ends
/// in a colon and follows a CPU or a thread.
fn split(line: &str) -> Option<(&str, u64, &str)> {
    /// Most words that are tried: a name has 15 bytes, and few of its words can look like a time.
    const WORDS: usize = 24;
    let mut end = 0;
    let words = line.split_ascii_whitespace().map(|word| {
        let from = end + line[end..].find(word).expect("it is a word of the line");
        end = from + word.len();
        (from, end)
    });
    words.take(WORDS).find_map(|(from, end)| {
        let word = &line[from..end];
        let (at, _) = time(word).filter(|(_, rest)| rest.is_empty() && word.contains('.'))?;
        let before = line[..from].trim_end();
        let last = before.rsplit(char::is_whitespace).next().unwrap_or(before);
        let last = last.strip_prefix('[').and_then(|cpu| cpu.strip_suffix(']')).unwrap_or(last);
        let is_number = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'/' | b'-');
        let follows = !last.is_empty() && last.bytes().all(is_number);
        follows.then(|| (before, at, group_of(period(line[end..].trim_start()))))
    })
}

/// Returns the text without the period before it, if there is one.
fn period(text: &str) -> &str {
    match text.split_once(' ') {
        Some((period, rest)) if period.bytes().all(|byte| byte.is_ascii_digit()) => {
            rest.trim_start()
        }
        _ => text,
    }
}

/// Returns the event without its group, if both belong to a known tracepoint; else the unchanged text, which names no
/// known one.
fn group_of(text: &str) -> &str {
    let Some((group, event)) = text.split_once(':') else { return text };
    let name = event.split([':', ' ']).next().unwrap_or(event);
    let known = EventKind::from_name(name).is_some_and(|kind| kind.info().group == group);
    if known { event } else { text }
}

/// Returns the number of lost events in a record: `LOST lost 279`, `LOST_SAMPLES lost 12`.
fn lost(record: &str) -> Option<u64> {
    record.split_once(" lost ")?.1.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns true for a frame of a call chain: an address in deeper columns than any name of a thread, without a time.
fn is_frame(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    let address = words.next().unwrap_or("");
    line.starts_with([' ', '\t'])
        && address.len() >= 4
        && address.bytes().all(|byte| byte.is_ascii_hexdigit())
        && head(line.trim()).is_none()
}

/// Returns true if `head` can be the beginning of a text of `perf script`.
pub(super) fn begins(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    if text.starts_with("# ========\n# captured on") {
        return true;
    }
    // The last line may be cut.
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let first = lines.map(line).find(|line| *line != Line::Blank);
    matches!(first, Some(Line::Event(head)) if head.rest.contains(':'))
}

/// Returns the facts from the comments at the beginning, and the facts that such a text lacks.
pub(super) fn meta(head: &[u8]) -> TraceMeta {
    let text = String::from_utf8_lossy(head);
    let comment = |name: &str| {
        let mut lines = text.lines().take_while(|line| line.starts_with('#'));
        let value = lines.find_map(|line| {
            line.strip_prefix("# ")?.strip_prefix(name)?.trim_start().strip_prefix(':')
        });
        value.map(|value| value.trim().to_owned())
    };
    let mut missing = Vec::new();
    let has = |found: fn(&Line<'_>) -> bool| text.lines().map(line).any(|line| found(&line));
    if !has(|line| matches!(line, Line::Lost(..))) {
        missing.push(
            "whether perf lost events is not known: `perf script --show-lost-events` prints what it knows of them"
                .to_owned(),
        );
    }
    let cpus = comment("nrcpus online").and_then(|count| count.parse().ok()).unwrap_or(0);
    let has_cpu = |line: &str| split(line).is_some_and(|(before, ..)| before.ends_with(']'));
    if !text.lines().any(has_cpu) {
        missing.push("the text has no CPUs: every event counts as one of CPU 0".to_owned());
    }
    TraceMeta {
        release: comment("os release"),
        command: comment("cmdline"),
        cpus: (0..cpus).collect(),
        missing,
        ..TraceMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_head(text: &str, expected: (&str, i32, u16, u64)) {
        let Line::Event(head) = line(text) else { panic!("{text}: {:?}", line(text)) };
        assert_eq!((head.comm, head.pid, head.cpu, head.at), expected, "{text}");
        assert!(head.rest.starts_with("mm_page_free: page="), "{text}: {}", head.rest);
    }

    #[test]
    fn lines_of_all_forms_have_a_head() {
        let event = "kmem:mm_page_free: page=0x503a18 pfn=0x503a18 order=0";
        let at = 36_951_514_452_000;
        check_head(
            &format!("            bash 17216 [000] 36951.514452:  {event}"),
            ("bash", 17216, 0, at),
        );
        check_head(
            &format!("lto cw8k 1 17216 [013] 36951.514452: {event}"),
            ("lto cw8k 1", 17216, 13, at),
        );
        check_head(
            &format!("rustc 26315/26319 [001] 36951.514452967:     1   {event}"),
            ("rustc", 26319, 1, at + 967),
        );
        check_head(&format!("a [b] 1.5: x 7 36951.514452: {event}"), ("a [b] 1.5: x", 7, 0, at));
        check_head(&format!(":-1    -1 [000] 36951.514452: {event}"), (":-1", -1, 0, at));
    }

    #[test]
    fn what_is_no_event_is_told_apart() {
        assert_eq!(line("\tffffffff8161f42b __alloc+0x26b ([kernel.kallsyms])"), Line::Blank);
        assert_eq!(line("    7f34b304a000 [unknown] (/usr/lib/libc.so.6)"), Line::Blank);
        assert_eq!(line("ls 3 [000] 3.382854: PERF_RECORD_COMM exec: ls:30016/30016"), Line::Blank);
        assert_eq!(
            line(":3 3 [001] 3.382854: PERF_RECORD_LOST lost 114"),
            Line::Lost(1, Some(114))
        );
        assert_eq!(
            line("a 3 [001] 3.382854: PERF_RECORD_LOST_SAMPLES lost x"),
            Line::Lost(1, None)
        );
        assert_eq!(line("Processed 208079 events and lost 1934 chunks!"), Line::Lost(0, None));
        assert_eq!(line("a 3 [001] some words"), Line::Unreadable);
        // An event of the same name in another group is another event.
        let Line::Event(head) = line("a 3 [001] 1.5: probe:mm_page_free: (ff) pfn=1") else {
            panic!()
        };
        assert!(head.rest.starts_with("probe:"));
    }

    #[test]
    fn the_beginning_shows_what_it_is() {
        assert!(begins(b"# ========\n# captured on    : Sun Nov 22\n"));
        assert!(begins(b"a 3 [001] 1.5: kmem:mm_page_free: pfn=1\na 3 ["));
        assert!(!begins(b"a-3 [001] d..1. 1.5: mm_page_free: pfn=1 order=0\n"));
        assert!(!begins(b"some text: of another kind\n"));
        let meta =
            meta(b"# os release : 6.18.5\n# nrcpus online : 2\n# cmdline : perf record -a \n");
        assert_eq!((meta.release.as_deref(), meta.cpus.len()), (Some("6.18.5"), 2));
        assert_eq!(meta.command.as_deref(), Some("perf record -a"));
        assert_eq!(meta.missing.len(), 2);
    }
}
