//! The reader of raw ring-buffer pages, on arbitrary bytes.

use std::io::{BufReader, Cursor};
use std::path::PathBuf;
use std::sync::Arc;

use nofrag_host::trace::{
    Decoder, Event, EventKind, EventSource, Format, Loss, RawPages, SubBuffer,
};

/// Bytes of a page's header.
const HEADER: usize = 16;

/// The bytes of a page, by the first byte of the input.
const SIZES: [usize; 4] = [64, 512, 4096, 1024];

/// Reads `data` behind its first byte as the pages of a CPU. Panics when a promise is broken.
pub fn run(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else { return };
    let size = SIZES[usize::from(choice) % SIZES.len()];
    let decoder = Arc::new(Decoder::new(&formats()));
    let read = |data: &[u8], buffer: usize| {
        let input = BufReader::with_capacity(buffer, Cursor::new(data.to_vec()));
        all(&mut RawPages::new(input, PathBuf::new(), 3, Arc::clone(&decoder), size))
    };
    let (events, loss) = read(data, 2 * size);
    assert_eq!(read(data, 37), (events.clone(), loss), "reading depends on the reader's buffer");
    let told = events.iter().filter(|event| event.kind == EventKind::Lost);
    assert_eq!(told.count() as u64, loss.gaps, "what is lost is told where it is lost");
    // A record has at least a word of its own and eight bytes that all have in common.
    let most = data.len() / 12 + data.len().div_ceil(size);
    assert!(events.len() <= most, "{} events of {} bytes", events.len(), data.len());
    // Whole pages give what they give, whatever follows.
    let whole = data.len() / size / 2 * size;
    assert!(events.starts_with(&read(&data[..whole], 100).0), "a page depends on a later one");
    for page in data.chunks(size) {
        check_page(page);
    }
}

/// Checks that no byte is taken twice, and none from beyond the length that the page names.
fn check_page(page: &[u8]) {
    let Ok(records) = SubBuffer::new(page) else { return };
    let said =
        usize::from(u16::from_le_bytes([page[8], page[9]])) + (usize::from(page[10] & 15) << 16);
    assert!(said + HEADER <= page.len());
    let taken: usize = records.flatten().map(|(_, body)| body.len() + 4).sum();
    assert!(taken <= said, "{taken} bytes of records of {said}");
}

/// Reads all events of a source.
pub(crate) fn all(source: &mut dyn EventSource) -> (Vec<Event>, Loss) {
    let mut events = Vec::new();
    while source.read(&mut events).expect("memory can be read") {}
    (events, source.loss())
}

/// Returns some formats of Linux 6.1, whose pages are among the seeds.
fn formats() -> Vec<Format> {
    let field = |(name, offset, size): &(&str, usize, usize)| {
        format!(
            "\tfield:int {name};\toffset:{offset};\tsize:{size};\tsigned:{};\n",
            u8::from(*size == 4)
        )
    };
    let of = |name: &str, id: u16, fields: &[(&str, usize, usize)]| {
        let fields: String = [("common_pid", 4, 4)].iter().chain(fields).map(field).collect();
        let text = format!("name: {name}\nID: {id}\nformat:\n{fields}\nprint fmt: \"\"\n");
        Format::parse(&text).expect("it is made as the kernel makes it")
    };
    let pfn = ("pfn", 8, 8);
    vec![
        of(
            "mm_page_alloc",
            542,
            &[pfn, ("order", 16, 4), ("gfp_flags", 24, 8), ("migratetype", 32, 4)],
        ),
        of("mm_page_free", 544, &[pfn, ("order", 16, 4)]),
        of("mm_page_free_batched", 543, &[pfn]),
        of(
            "mm_page_alloc_extfrag",
            539,
            &[pfn, ("alloc_order", 16, 4), ("change_ownership", 32, 4)],
        ),
        of("mm_migrate_pages", 603, &[("succeeded", 8, 8), ("mode", 48, 4), ("reason", 52, 4)]),
        of("not_of_interest", 532, &[("nid", 8, 4)]),
    ]
}
