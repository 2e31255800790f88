//! The prefixes of a line of the kernel log: quotes, priorities, dates, host names, times, callers.
//!
//! ```text
//! [  123.456789] text                                  dmesg
//! [Sun Nov 22 00:00:01 2026] text                      dmesg -T
//! <4>[  123.456789][  T123] text                       the raw log, with the caller
//! kern  :warn  : [  123.456789] text                   dmesg -x
//! Nov 22 00:00:01 host kernel: [  123.456789] text     syslog
//! > text                                               mail
//! ```

/// A line of the log without its prefixes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LogLine<'a> {
    /// Seconds since boot, where the line has them.
    pub(super) seconds: Option<f64>,
    pub(super) text: &'a str,
}

/// Takes the prefixes off a line of the log.
pub(super) fn log_line(line: &str) -> LogLine<'_> {
    let mut text = line.trim_start_matches(['>', ' ', '\t']);
    if let Some((before, after)) = text.split_once("kernel:")
        // Only in front of the text: a date and a host's name.
        && before.split_ascii_whitespace().count() <= 6
        && !before.contains("mode:")
    {
        text = after.trim_start();
    }
    if let Some(rest) = text.strip_prefix('<')
        && let Some((priority, rest)) = rest.split_once('>')
        && !priority.is_empty()
        && priority.bytes().all(|byte| byte.is_ascii_digit())
    {
        text = rest;
    }
    if let Some((facility, rest)) = text.split_once('[')
        && facility.starts_with("kern ")
    {
        text = &text[text.len() - rest.len() - 1..];
    }
    let mut seconds = None;
    while let Some((inside, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let inside = inside.trim();
        match inside.parse() {
            Ok(time) => seconds = seconds.or(Some(time)),
            Err(_) if is_date(inside) || is_caller(inside) => {}
            Err(_) => break,
        }
        text = rest.trim_start();
    }
    LogLine { seconds: seconds.filter(|time: &f64| time.is_finite()), text: text.trim() }
}

/// Returns true for a date such as `Sun Nov 22 00:00:01 2026`.
fn is_date(text: &str) -> bool {
    text.contains(':') && text.split_ascii_whitespace().count() >= 4
}

/// Returns true for a caller: a thread such as `T123`, or a CPU such as `C0`.
fn is_caller(text: &str) -> bool {
    let digits = text.strip_prefix(['T', 'C']);
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_stands_before_the_text() {
        for (line, seconds) in [
            ("Mem-Info:", None),
            ("[  123.450000] Mem-Info:", Some(123.45)),
            ("[    0.000000] Mem-Info:", Some(0.0)),
            ("[Sun Nov 22 00:00:01 2026] Mem-Info:", None),
            ("<4>[  123.450000][  T123] Mem-Info:", Some(123.45)),
            ("<6>Mem-Info:", None),
            ("kern  :warn  : [  123.450000] Mem-Info:", Some(123.45)),
            ("Nov 22 00:00:01 host kernel: [  123.450000] Mem-Info:", Some(123.45)),
            ("2026-11-22T00:00:01+0000 host kernel: Mem-Info:", None),
            ("> > [  123.45] Mem-Info:", Some(123.45)),
            ("[  123.450000] [   T42] Mem-Info:", Some(123.45)),
        ] {
            assert_eq!(log_line(line), LogLine { seconds, text: "Mem-Info:" }, "{line}");
        }
    }

    #[test]
    fn what_looks_alike_stays() {
        for text in [
            "[<ffffffff81000000>] ? f+0x1/0x2",
            "[ 1234]     0  1234 1 2 bash",
            "a [x] b",
            "[",
            "<x> y",
        ] {
            let kept = log_line(text).text;
            assert!(text.ends_with(kept) && !kept.is_empty(), "{text}: {kept}");
        }
        assert_eq!(log_line("").text, "");
    }
}
