//! `/proc/PID/maps`, as far as tests need it: the places of areas and their protections.

use std::fs;

use nofrag::mmap::Protection;

/// One line of `/proc/self/maps`, that is, one area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MapsLine {
    pub(crate) start: u64,
    /// One above the last address.
    pub(crate) end: u64,
    pub(crate) protection: Protection,
    /// The file, or the name in brackets; empty for plain anonymous memory.
    pub(crate) name: String,
}

/// Returns all areas of this process, ascending.
pub(crate) fn own() -> Vec<MapsLine> {
    let text = fs::read_to_string("/proc/self/maps").expect("there is /proc");
    text.lines().map(|line| parsed(line).expect("a line has a range and permissions")).collect()
}

fn parsed(line: &str) -> Option<MapsLine> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?.as_bytes();
    let bits = [(b'r', 1), (b'w', 2), (b'x', 4)];
    let allowed = bits.iter().zip(permissions).filter(|((letter, _), seen)| letter == *seen);
    Some(MapsLine {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        protection: Protection(allowed.map(|((_, bit), _)| bit).sum()),
        name: fields.nth(3).unwrap_or_default().trim_start().to_owned(),
    })
}

#[test]
fn a_line_has_a_range_permissions_and_perhaps_a_name() {
    let line = "7ffff7ff7000-7ffff7ffb000 r--p 00000000 00:00 0                          [vvar]";
    let MapsLine { start, end, protection, name } = parsed(line).unwrap();
    assert_eq!((start, end), (0x7fff_f7ff_7000, 0x7fff_f7ff_b000));
    assert_eq!((protection, name.as_str()), (Protection::READ, "[vvar]"));
    let bare = parsed("1000-2000 -w-p 00000000 00:00 0 ").unwrap();
    assert_eq!((bare.protection, bare.name.as_str()), (Protection(2), ""));
    assert_eq!(parsed("1000-2000"), None);
}
