//! The names of flags, from arbitrary `print fmt` lines.

use nofrag_host::trace::{FlagTable, TraceMeta, TraceText};

/// Reads `data` as flags and a `print fmt` line with their names. Panics when a promise is broken.
pub fn run(data: &[u8]) {
    let Some((flags, print)) = data.split_first_chunk() else { return };
    let flags = u64::from_le_bytes(*flags);
    let print = String::from_utf8_lossy(print);
    let built_in = FlagTable::default();
    assert_eq!(built_in.value(&built_in.render(flags)), Some(flags), "{flags:#x}");
    // The lists of names for values, which only a reader of text sees.
    let format = format!("name: mm_compaction_end\nID: 1\nformat:\n\nprint fmt: {print}\n");
    let meta = TraceMeta { formats: vec![(String::new(), format)], ..TraceMeta::default() };
    let _ = TraceText::new(&b""[..], "text".into(), &meta);
    let Some(table) = FlagTable::from_print_fmt(&print) else { return };
    let text = table.render(flags);
    // A table whose names mean one thing each, and nothing else, is read as it is written.
    let (known, unknown) = table.known_value(&text);
    let is_once = |name: &str| print.matches(&format!("\"{name}\"")).count() == 1;
    let plain = text.split('|').all(|name| is_once(name) && is_plain(name));
    assert!(
        !plain || (known == flags && unknown == 0),
        "{flags:#x} is {text}, which is {known:#x}"
    );
    assert_eq!(
        FlagTable::from_print_fmt(&print),
        Some(table),
        "reading depends on more than the text"
    );
}

/// Returns true if the name is made like those of flags.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_uppercase())
}
