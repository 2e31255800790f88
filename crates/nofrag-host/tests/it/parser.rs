//! The parser against arbitrary bytes and against its own rendering.

use nofrag_host::vmallocinfo::{Mark, Problem, parse};
use proptest::prelude::*;

fn check_problem(line: &str, expected: Problem) {
    let text = format!("{line}\n");
    let parsed = parse(text.as_bytes());
    let problems: Vec<_> = parsed.malformed.iter().map(|m| (m.line, m.problem)).collect();
    assert_eq!((parsed.areas.len(), problems), (0, vec![(1, expected)]), "{line:?}");
}

#[test]
fn malformed_lines_have_a_type() {
    check_problem("no", Problem::NoRange);
    check_problem("0x10", Problem::NoRange);
    check_problem("0x10-", Problem::NoRange);
    check_problem("0x-0x10 4096", Problem::NoRange);
    check_problem("0x00000000000000000-0x1 4096", Problem::NoRange);
    check_problem("0x10-(____ptrval____) 4096", Problem::NoRange);
    check_problem("0x10-0x20", Problem::NoSize);
    check_problem("0x10-0x20 -4096", Problem::NoSize);
    check_problem("0x10-0x20 99999999999999999999", Problem::NoSize);
    check_problem("0x10-0x20 4096 f+0x1/0x2 pages=many", Problem::NotANumber);
    check_problem("0x10-0x20 4096 f+0x1/0x2 phys=0xg", Problem::NotANumber);
    check_problem("0x10-0x20 4096 f+0x1/0x2 N0=", Problem::NotANumber);
}

#[test]
fn every_field_is_read() {
    let line = "0xffffc90000000000-0xffffc90000005000   20480 load_module+0x94/0x3e0 [nf_tables] pages=4 \
                phys=0x00000000000a0000 vmalloc user vpages N0=3 N12=1 surprise\n";
    let parsed = parse(line.as_bytes());
    let area = &parsed.areas[0];
    assert_eq!(area.caller, Some("load_module+0x94/0x3e0 [nf_tables]"));
    assert_eq!(area.caller_symbol().unwrap().to_string(), "load_module [nf_tables]");
    assert_eq!((area.pages, area.phys), (Some(4), Some(0xa0000)));
    assert!([Mark::Vmalloc, Mark::User, Mark::Vpages].iter().all(|&mark| area.marks.has(mark)));
    assert_eq!(area.nodes().collect::<Vec<_>>(), [(0, 3), (12, 1)]);
    assert_eq!(area.unknown, Some("surprise"));
}

#[test]
fn a_cut_file_is_told() {
    assert!(parse(b"0x10-0x20 16 vm").cut_off);
    assert!(!parse(b"0x10-0x20 16 vmap\n").cut_off);
    assert!(!parse(b"").cut_off);
}

/// Generates a line as the kernel prints it, from its parts.
fn line() -> impl Strategy<Value = String> {
    let range = prop_oneof![
        (any::<u64>(), any::<u64>()).prop_map(|(a, b)| format!("0x{a:016x}-0x{b:016x}")),
        (any::<u32>(), any::<u32>()).prop_map(|(a, b)| format!("0x{a:08x}-0x{b:08x}")),
        Just("0x(____ptrval____)-0x(____ptrval____)".to_owned()),
    ];
    let caller = prop_oneof![
        Just(String::new()),
        "[a-z_]{1,12}\\+0x[0-9a-f]{1,3}/0x[0-9a-f]{1,4}".prop_map(|symbol| format!(" {symbol}")),
        "[a-z_]{1,12}\\+0x[0-9a-f]{1,3}/0x[0-9a-f]{1,4} \\[[a-z_]{1,8}\\]"
            .prop_map(|s| format!(" {s}")),
    ];
    let marks = proptest::sample::subsequence(Mark::ALL.to_vec(), 0..4).prop_map(|marks| {
        marks.iter().map(|mark| format!(" {}", mark.into_str())).collect::<String>()
    });
    let number = |name: &'static str| {
        proptest::option::of(any::<u64>())
            .prop_map(move |value| value.map_or(String::new(), |value| format!(" {name}={value}")))
    };
    let phys = proptest::option::of(any::<u64>())
        .prop_map(|value| value.map_or(String::new(), |value| format!(" phys=0x{value:016x}")));
    (range, any::<u64>(), caller, number("pages"), phys, marks, number("N0"), number("N1"))
        .prop_map(|(range, size, caller, pages, phys, marks, n0, n1)| {
            format!("{range} {size:7}{caller}{pages}{phys}{marks}{n0}{n1}")
        })
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let parsed = parse(&bytes);
        prop_assert!(parsed.areas.len() + parsed.malformed.len() <= parsed.lines as usize);
    }

    /// Parses text that looks like the file, which reaches deeper into the parser than arbitrary bytes.
    #[test]
    fn likely_text_never_panics(text in "([0-9a-fx() _ptrval+/=N\\[\\]-]{0,12}[ \n]){0,40}") {
        let _ = parse(text.as_bytes());
    }

    #[test]
    fn a_rendered_layout_parses_back(lines in proptest::collection::vec(line(), 0..20)) {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let parsed = parse(text.as_bytes());
        prop_assert_eq!(&parsed.malformed, &[]);
        let rendered: Vec<String> = parsed.areas.iter().map(ToString::to_string).collect();
        prop_assert_eq!(rendered, lines);
    }
}
