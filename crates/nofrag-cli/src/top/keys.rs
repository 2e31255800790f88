//! The meaning of the keys, and their reading.
//!
//! Keys are read here and not by crossterm. Its reader does not come back in two cases: once the terminal has gone away
//! it reads the end for ever, on a whole core, and after the beginning of a sequence without an end it waits for the
//! rest. A signal that asks the command to end would not be seen in either. Here a read happens only when bytes are
//! there, and a sequence that is not complete soon is dropped.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The meaning of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// End the command in order.
    Quit,
    /// Stop like any other job of the shell.
    Suspend,
    /// Look no more, or go on.
    Pause,
    /// Halve the time from look to look.
    Faster,
    /// Double the time from look to look.
    Slower,
    /// Follow the next smaller order.
    Smaller,
    /// Follow the next larger order.
    Larger,
    /// Read `pagetypeinfo` once, at its cost.
    Types,
    /// Sort the rows in the next way.
    Sort,
    /// Show the keys, or the host again.
    Help,
    /// Show the host again.
    Back,
    /// No meaning: the key is not known.
    Unknown,
}

/// The keys with their meaning, as they are shown.
pub(super) const SHOWN: [(&str, &str); 9] = [
    ("q", "quit (also Ctrl-C)"),
    ("space", "pause, and go on"),
    ("+", "look twice as often"),
    ("-", "look half as often"),
    ("left", "follow the next smaller order"),
    ("right", "follow the next larger order"),
    ("t", "read pagetypeinfo once: pageblocks by type; it costs milliseconds and holds locks"),
    ("s", "sort rows: as listed, worst first, by name"),
    ("h", "show this, or the host again (also Esc)"),
];

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// No input in time, or a signal came first.
    Nothing,
    /// Keys in the order of their pressing.
    Keys(Vec<Key>),
    /// No more input will come: the terminal has gone away.
    Gone,
}

/// The keys of the terminal.
pub(super) struct Keyboard {
    terminal: File,
}

/// Time that the rest of a sequence may take: a slow line tears it apart, no one types that fast.
const REST: Duration = Duration::from_millis(50);

/// The longest sequence: more bytes were pasted.
const LONGEST: usize = 256;

const ESCAPE: u8 = 0x1b;

impl Keyboard {
    /// Opens the keys of standard input, or, where that is not a terminal, of the terminal of the process.
    pub(super) fn open() -> io::Result<Keyboard> {
        let stdin = io::stdin();
        let terminal = if stdin.is_terminal() {
            File::from(stdin.as_fd().try_clone_to_owned()?)
        } else {
            File::open("/dev/tty")?
        };
        Ok(Keyboard { terminal })
    }

    /// Returns the input within `time`.
    pub(super) fn wait(&self, time: Duration) -> io::Result<Heard> {
        let mut bytes = Vec::new();
        let mut patience = time;
        while bytes.len() < LONGEST && self.is_there(patience)? {
            let mut part = [0; LONGEST];
            match (&self.terminal).read(&mut part) {
                Ok(0) => return Ok(Heard::Gone),
                Ok(read) => bytes.extend_from_slice(&part[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // EIO, which has no kind: the other side of the terminal is closed.
                Err(error)
                    if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) =>
                {
                    return Ok(Heard::Gone);
                }
                Err(error) => return Err(error),
            }
            if is_whole(&bytes) {
                break;
            }
            patience = REST;
        }
        Ok(if bytes.is_empty() { Heard::Nothing } else { Heard::Keys(keys(&bytes)) })
    }

    /// Returns true if a read would return at once, after waiting up to `time` for it; a signal ends the wait.
    fn is_there(&self, time: Duration) -> io::Result<bool> {
        let time = Timespec::try_from(time).map_err(io::Error::other)?;
        let mut polled = [PollFd::new(&self.terminal, PollFlags::IN)];
        match poll(&mut polled, Some(&time)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns true if the last key is there as a whole, as far as that can be told.
fn is_whole(bytes: &[u8]) -> bool {
    let Some(at) = bytes.iter().rposition(|&byte| byte == ESCAPE) else { return true };
    match &bytes[at + 1..] {
        [] => false,
        [b'[' | b'O', rest @ ..] => rest.iter().any(|byte| is_final(*byte)),
        _ => true,
    }
}

/// Returns true if a sequence ends with this byte (ECMA-48, 5.4).
fn is_final(byte: u8) -> bool {
    (0x40..=0x7e).contains(&byte)
}

/// Returns the keys in the bytes of a terminal.
fn keys(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((key, rest)) = first(bytes) {
        keys.push(key);
        bytes = rest;
    }
    keys
}

/// Returns the first key, and the bytes after it.
fn first(bytes: &[u8]) -> Option<(Key, &[u8])> {
    let (&byte, rest) = bytes.split_first()?;
    let key = match byte {
        ESCAPE => return Some(escaped(rest)),
        3 | b'q' => Key::Quit,
        26 => Key::Suspend,
        b' ' | b'p' => Key::Pause,
        b'+' | b'=' => Key::Faster,
        b'-' | b'_' => Key::Slower,
        b't' => Key::Types,
        b's' => Key::Sort,
        b'h' | b'?' => Key::Help,
        // The rest of a letter of several bytes belongs to it.
        0x80.. => {
            let more = rest.iter().take_while(|byte| (0x80..0xc0).contains(*byte)).count();
            return Some((Key::Unknown, &rest[more..]));
        }
        _ => Key::Unknown,
    };
    Some((key, rest))
}

/// Returns the key behind an escape character, and the bytes after it.
fn escaped(bytes: &[u8]) -> (Key, &[u8]) {
    match bytes {
        [] => (Key::Back, bytes),
        [b'[' | b'O', rest @ ..] => {
            let Some(end) = rest.iter().position(|byte| is_final(*byte)) else {
                return (Key::Unknown, &[]);
            };
            let key = match rest[end] {
                b'C' => Key::Larger,
                b'D' => Key::Smaller,
                _ => Key::Unknown,
            };
            (key, &rest[end + 1..])
        }
        // Another key, with Alt.
        [_, rest @ ..] => (Key::Unknown, rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_what_is_shown() {
        for (name, _) in SHOWN {
            let bytes = match name {
                "space" => " ",
                "left" => "\x1b[D",
                "right" => "\x1b[C",
                letter => letter,
            };
            let found = keys(bytes.as_bytes());
            assert!(found.len() == 1 && found[0] != Key::Unknown, "{name}: {found:?}");
        }
    }

    #[test]
    fn bytes_are_keys() {
        use Key::*;

        let check = |bytes: &[u8], expected: &[Key]| {
            assert_eq!(keys(bytes), expected, "{:?}", bytes.escape_ascii().to_string());
        };
        check(b"", &[]);
        check(b"q", &[Quit]);
        check(b"\x03\x1a", &[Quit, Suspend]);
        check(b"\x1b", &[Back]);
        check(b"\x1bq", &[Unknown]);
        check(b"\x1b[C\x1bOD\x1b[1;5Ct", &[Larger, Smaller, Larger, Types]);
        // F5, a mouse, a sequence without an end, a letter of two bytes and one that is torn.
        check(b"\x1b[15~h", &[Unknown, Help]);
        check(b"\x1b[<0;1;1M", &[Unknown]);
        check(b"\x1b[12", &[Unknown]);
        check("\u{e4}h".as_bytes(), &[Unknown, Help]);
        check(b"\xc3", &[Unknown]);
        check(b"cC", &[Unknown, Unknown]);
    }

    #[test]
    fn a_sequence_without_its_end_is_waited_for() {
        for (bytes, expected) in [
            (&b"q"[..], true),
            (b"\x1b", false),
            (b"\x1b[", false),
            (b"\x1b[1;", false),
            (b"\x1b[1;5C", true),
        ] {
            assert_eq!(is_whole(bytes), expected, "{:?}", bytes.escape_ascii().to_string());
        }
        assert!(is_whole(b"\x1bx") && is_whole(b"\x1b[Cq") && !is_whole(b"q\x1b"));
    }
}
