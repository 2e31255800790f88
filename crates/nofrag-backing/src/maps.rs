//! `/proc/PID/maps`, as far as placement needs it: the places of areas, their protections, and Linux's names for them.

use std::fs;
use std::io;
use std::str::FromStr;

use nofrag::mmap::Protection;
use rustix::process::Pid;
use thiserror::Error;

/// `vm.max_map_count` where it cannot be read.
const USUAL_LIMIT: u64 = 65_530;

/// Returns the number of areas that the kernel allows a process (`vm.max_map_count`).
#[must_use]
pub fn max_map_count() -> u64 {
    let text = fs::read_to_string("/proc/sys/vm/max_map_count").ok();
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL_LIMIT)
}

/// One line of `/proc/PID/maps`, that is, one area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapsLine {
    pub start: u64,
    /// One above the last address.
    pub end: u64,
    pub protection: Protection,
    /// The file, or the name in brackets; empty for plain anonymous memory.
    pub name: String,
}

/// The text is no line of `/proc/PID/maps`: it has no range, or no permissions.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("no line of /proc/PID/maps: {0:?}")]
pub struct NotMaps(pub String);

impl MapsLine {
    /// Returns true if the area is the stack of the first thread, which grows down.
    #[must_use]
    pub fn is_stack(&self) -> bool {
        self.name == "[stack]"
    }
}

impl FromStr for MapsLine {
    type Err = NotMaps;

    fn from_str(line: &str) -> Result<MapsLine, NotMaps> {
        let parse = || {
            let mut fields = line.splitn(6, ' ');
            let (start, end) = fields.next()?.split_once('-')?;
            let permissions = fields.next()?.as_bytes();
            let bits = [(b'r', Protection::READ.0), (b'w', 2), (b'x', 4)];
            let allowed =
                bits.iter().zip(permissions).filter(|((letter, _), seen)| letter == *seen);
            Some(MapsLine {
                start: u64::from_str_radix(start, 16).ok()?,
                end: u64::from_str_radix(end, 16).ok()?,
                protection: Protection(allowed.map(|((_, bit), _)| bit).sum()),
                name: fields.nth(3).unwrap_or_default().trim_start().to_owned(),
            })
        };
        parse().filter(|parsed| parsed.start < parsed.end).ok_or_else(|| NotMaps(line.to_owned()))
    }
}

/// Returns all areas of process `pid`, ascending.
///
/// # Errors
/// The system refuses (other user, a process that may not be traced), or the process has gone.
pub fn of_process(pid: Pid) -> io::Result<Vec<MapsLine>> {
    let text = fs::read_to_string(format!("/proc/{}/maps", pid.as_raw_nonzero()))?;
    text.lines().map(|line| line.parse().map_err(io::Error::other)).collect()
}

/// Returns the number of areas of this process.
///
/// # Errors
/// There is no `/proc`.
pub fn own_count() -> io::Result<usize> {
    Ok(fs::read_to_string("/proc/self/maps")?.lines().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_range_permissions_and_perhaps_a_name() {
        let line =
            "7ffff7ff7000-7ffff7ffb000 r--p 00000000 00:00 0                          [vvar]";
        let parsed: MapsLine = line.parse().unwrap();
        assert_eq!((parsed.start, parsed.end), (0x7fff_f7ff_7000, 0x7fff_f7ff_b000));
        assert_eq!((parsed.protection, parsed.name.as_str()), (Protection::READ, "[vvar]"));
        let line = "00400000-00401000 r-xp 00000000 00:01 1034 /memfd:a b (deleted)";
        let parsed: MapsLine = line.parse().unwrap();
        assert_eq!(parsed.protection, Protection::READ_EXECUTE);
        assert_eq!(parsed.name, "/memfd:a b (deleted)");
        let bare: MapsLine = "1000-2000 -w-p 00000000 00:00 0 ".parse().unwrap();
        assert_eq!((bare.protection, bare.name.as_str()), (Protection(2), ""));
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for line in ["", "1000", "1000-2000", "2000-1000 r--p", "x-y r--p", "1000-1000 r--p 0 0 0"]
        {
            assert_eq!(line.parse::<MapsLine>(), Err(NotMaps(line.to_owned())));
        }
    }
}
