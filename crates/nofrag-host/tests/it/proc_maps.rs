//! The parser of `/proc/PID/maps` and `smaps` against named lines, arbitrary bytes and its own rendering.

use nofrag_host::proc_maps::{
    Access, Area, MAX_LINE, MapKind, Parsed, Problem, Sharing, count, parse,
};
use proptest::prelude::*;

fn read(text: &str) -> Parsed {
    parse(text.as_bytes()).unwrap()
}

fn area(line: &str) -> Area {
    let parsed = read(&format!("{line}\n"));
    assert_eq!(parsed.malformed, [], "{line:?}");
    parsed.areas.into_iter().next().unwrap()
}

fn check_problem(line: &str, expected: Problem) {
    let parsed = read(&format!("1000-2000 r--p 0 00:00 0\n{line}\n"));
    let problems: Vec<_> = parsed.malformed.iter().map(|m| (m.line, m.problem)).collect();
    assert_eq!((parsed.areas.len(), problems), (1, vec![(2, expected)]), "{line:?}");
    assert!(!expected.help().is_empty());
}

#[test]
fn malformed_lines_have_a_type() {
    check_problem("no", Problem::NoRange);
    check_problem("3000 rw-p 0 00:00 0", Problem::NoRange);
    check_problem("0x3000-0x4000 rw-p 0 00:00 0", Problem::NoRange);
    check_problem("3000-40000000000000000 rw-p 0 00:00 0", Problem::NoRange);
    check_problem("-4000 rw-p 0 00:00 0", Problem::NoRange);
    check_problem("3000-3000 rw-p 0 00:00 0", Problem::EmptyRange);
    check_problem("4000-3000 rw-p 0 00:00 0", Problem::EmptyRange);
    check_problem("3000-3800 rw-p 0 00:00 0", Problem::Unaligned);
    check_problem("1000-3000 rw-p 0 00:00 0", Problem::OutOfOrder);
    for letters in ["", "rw-", "rw-pp", "wr-p", "rw-x", "RW-p"] {
        check_problem(&format!("3000-4000 {letters}"), Problem::NoAccess);
    }
    check_problem("3000-4000 rw-p", Problem::NoOffset);
    check_problem("3000-4000 rw-p x 00:00 0", Problem::NoOffset);
    for device in ["", "0000 0", "0: 0", "100000000:0 0"] {
        check_problem(&format!("3000-4000 rw-p 0 {device}"), Problem::NoDevice);
    }
    check_problem("3000-4000 rw-p 0 00:00", Problem::NoInode);
    check_problem("3000-4000 rw-p 0 00:00 fe", Problem::NoInode);
    for field in ["Rss:", "Rss: 8", "Rss: 8 MB", "Rss: -8 kB", "Swap: 8 kB 9", "ProtectionKey: x"] {
        check_problem(field, Problem::NotANumber);
    }
    check_problem("Rss: 18446744073709551615 kB", Problem::NotANumber);
    check_problem("VmFlags: rd wrr", Problem::BadFlag);
    check_problem("VmFlags: rd \u{e9}", Problem::BadFlag);
    check_problem(&"x".repeat(MAX_LINE + 1), Problem::TooLong);
}

/// Checks that a line that is too long is one line, however long, and that the lines behind it are read.
#[test]
fn after_a_long_line_reading_goes_on() {
    for length in [MAX_LINE - 1, MAX_LINE, MAX_LINE + 1, 3 * MAX_LINE] {
        let parsed = read(&format!("{}\n3000-4000 rw-p 0 00:00 0\n", "x".repeat(length)));
        assert_eq!((parsed.lines, parsed.areas.len(), parsed.areas[0].line), (2, 1, 2), "{length}");
        assert_eq!(parsed.bytes as usize, length + 1 + 25);
    }
}

#[test]
fn fields_before_any_area_and_of_a_broken_one() {
    assert_eq!(read("Rss: 8 kB\n").malformed[0].problem, Problem::NoArea);
    let parsed = read("1000-2000 r--p 0 00:00 0\nRss: 4 kB\n5000-4000 r--p 0 00:00 0\nRss: 8 kB\n");
    assert_eq!(parsed.malformed.len(), 1, "the fields of a broken area go with it");
    assert_eq!(parsed.areas[0].details.as_ref().unwrap().rss_bytes, Some(4096));
}

#[test]
fn what_lines_mean() {
    let line =
        area("7f02579d7000-7f02579fd000 r-xp 00001000 fe:00 325835   /usr/lib/ld.so.2 (deleted)");
    assert_eq!((line.start, line.end), (0x7f02_579d_7000, 0x7f02_579f_d000));
    assert!(line.access.has(Access::READ) && line.access.has(Access::EXECUTE));
    assert!(!line.access.has(Access::WRITE) && line.is_deleted());
    assert_eq!((line.device, line.inode, line.offset), ((0xfe, 0), 325_835, 0x1000));
    assert_eq!((line.kind(), line.sharing), (MapKind::File, Sharing::Private));
    let kinds = [
        ("rw-p 00000000 00:00 0 ", MapKind::Anonymous),
        ("---p 00000000 00:00 0 ", MapKind::NoAccess),
        ("rw-p 00000000 00:00 0     [heap]", MapKind::Heap),
        ("rw-p 00000000 00:00 0     [stack]", MapKind::Stack),
        ("rw-p 00000000 00:00 0     [stack:42]", MapKind::Stack),
        ("r-xp 00000000 00:00 0     [vdso]", MapKind::Special),
        ("rw-p 00000000 00:00 0     [anon:libc_malloc]", MapKind::Anonymous),
        ("---p 00000000 00:00 0     [anon: glibc: malloc arena]", MapKind::NoAccess),
        ("rw-s 00000000 00:01 1025  /dev/zero (deleted)", MapKind::File),
        ("rw-s 00000000 00:01 1026  [anon_shmem:ring]", MapKind::File),
        ("---p 00000000 fe:00 7     /usr/lib/libx.so", MapKind::File),
        ("rw-s 00000000 00:0e 9     anon_inode:[perf_event]", MapKind::File),
    ];
    for (rest, kind) in kinds {
        assert_eq!(area(&format!("1000-2000 {rest}")).kind(), kind, "{rest}");
    }
    assert_eq!(area("1000-2000 rw-p 0 00:00 0 [anon:a b]").anonymous_name(), Some("a b"));
}

/// Parses addresses of up to 64 bits, also in the vsyscall page, which no limit counts.
#[test]
fn the_highest_addresses() {
    let vsyscall = "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0          [vsyscall]";
    let line = area(vsyscall);
    assert_eq!((line.start, line.is_counted()), (0xffff_ffff_ff60_0000, false));
    let top = area("ffffffffffffe000-fffffffffffff000 r--p 0 00:00 0");
    assert_eq!(top.bytes(), 0x1000);
}

/// Checks that names keep spaces at their end and escapes; bytes that are not UTF-8 are replaced.
#[test]
fn names_stay_as_they_are() {
    let name = |line: &[u8]| {
        let parsed = parse([b"1000-2000 r--p 0 fe:00 7   ".as_slice(), line].concat().as_slice());
        parsed.unwrap().areas[0].name.clone()
    };
    assert_eq!(name(b"/tmp/two\\012lines  \n"), "/tmp/two\\012lines  ");
    assert_eq!(name(b"/tmp/a b: c\n"), "/tmp/a b: c");
    assert_eq!(name(b"/tmp/\xff\n"), "/tmp/\u{fffd}");
    assert_eq!(name(b"/tmp/cut"), "/tmp/cut");
}

#[test]
fn fields_of_smaps() {
    let text = "1000-2000 rw-p 00000000 00:00 0 \nRss:                   8 kB\nKernelPageSize:        4 kB\n\
                Anonymous:             4 kB\nSwap:                  0 kB\nFilePmdMapped:         0 kB\n\
                THPeligible:           0\nProtectionKey:         3\nName:           [anon:linker]\n\
                VmFlags: rd wr mr mw me ac sd \n";
    let parsed = read(text);
    assert_eq!(parsed.malformed, []);
    let area = &parsed.areas[0];
    assert_eq!(area.anonymous_name(), Some("linker"));
    let details = area.details.clone().unwrap();
    assert_eq!((details.rss_bytes, details.anonymous_bytes), (Some(8192), Some(4096)));
    assert_eq!((details.kernel_page_bytes, details.protection_key), (Some(4096), Some(3)));
    let flags = details.flags.unwrap();
    assert!(flags.has("ac") && !flags.has("io") && !flags.has("a"));
    assert_eq!(flags.iter().collect::<Vec<_>>(), ["ac", "me", "mr", "mw", "rd", "sd", "wr"]);
}

#[test]
fn a_cut_file_is_told() {
    assert!(read("1000-2000 rw-p 0 00:00 0").cut_off);
    assert!(!read("1000-2000 rw-p 0 00:00 0\n").cut_off);
    assert!(!read("").cut_off);
}

#[test]
fn counting_needs_no_parsing() {
    let text = "1000-2000 rw-p 0 00:00 0\n3000-4000 rw-p 0 00:00 0\n\
                ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]\n";
    assert_eq!(count(text.as_bytes()).unwrap(), 2);
    let counted = read(text).areas.iter().filter(|area| area.is_counted()).count();
    assert_eq!(counted, 2);
}

/// Generates the parts of a line: the pages of the hole before the area, the pages of the area, and the rest of the
/// line as the kernel prints it, with a null byte before the name.
fn line() -> impl Strategy<Value = (u64, u64, String)> {
    let name = prop_oneof![
        Just(String::new()),
        "\\[(heap|stack|vdso|anon:[a-z ]{1,9})\\]",
        "/[a-z/.]{1,60}( \\(deleted\\))?",
    ];
    let letters = "[r-][w-][x-][ps]";
    (0_u64..9, 1_u64..900, letters, any::<u32>(), any::<(u8, u8)>(), any::<u64>(), name).prop_map(
        |(gap, pages, letters, offset, (major, minor), inode, name)| {
            let rest = format!("{letters} {offset:08x} {major:02x}:{minor:02x} {inode} ");
            (gap, pages, format!("{rest}\u{0}{name}"))
        },
    )
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let parsed = parse(bytes.as_slice()).unwrap();
        prop_assert!(parsed.areas.len() + parsed.malformed.len() <= parsed.lines as usize);
        prop_assert_eq!(parsed.bytes as usize, bytes.len());
    }

    /// Parses text that looks like the file, which reaches deeper into the parser than arbitrary bytes.
    #[test]
    fn likely_text_never_panics(
        text in "([0-9a-f]{1,6}000-[0-9a-f]{1,6}000 [r-][w-][x-][sp] [0-9a-f]{1,4} 0:0 [0-9] [a-z/]{0,3}\n|\
                 (Rss|VmFlags): [0-9a-z k]{0,9}\n){0,40}",
    ) {
        let parsed = read(&text);
        prop_assert!(parsed.areas.windows(2).all(|pair| pair[0].end <= pair[1].start));
        prop_assert!(parsed.areas.iter().all(|area| area.start < area.end));
    }

    #[test]
    fn a_rendered_layout_parses_back(lines in proptest::collection::vec(line(), 0..20)) {
        let mut at = 0x7000_0000_0000;
        let mut text = String::new();
        for (gap, pages, rest) in &lines {
            let start = at + gap * 4096;
            at = start + pages * 4096;
            let (rest, name) = rest.split_once('\u{0}').unwrap();
            let line = format!("{start:08x}-{at:08x} {rest}");
            text += &if name.is_empty() { format!("{line}\n") } else { format!("{line:72} {name}\n") };
        }
        let parsed = read(&text);
        prop_assert_eq!(&parsed.malformed, &[]);
        let rendered: String = parsed.areas.iter().map(|area| format!("{area}\n")).collect();
        prop_assert_eq!(rendered, text);
    }
}
