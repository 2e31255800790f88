//! Version 6: one part after the other, without numbers of parts; a part that a reader does not want has a length by
//! which to skip it.

use std::io::Read;

use super::head::{Buffer, Data, Head, Packing, cpu_count, option};
use super::input::{Input, Words};
use crate::trace::source::TraceError;

/// Reads the head from behind the size of a page of memory on.
pub(super) fn read(input: &Input, words: &mut Words<impl Read>) -> Result<Head, TraceError> {
    let mut head = Head::default();
    head.read_pages(words)?;
    head.read_ftrace(words)?;
    head.read_groups(words)?;
    for part in ["kallsyms", "printk formats"] {
        words.enter(part);
        let bytes = words.u32()?;
        words.skip(u64::from(bytes))?;
    }
    head.read_names(words)?;
    words.enter("the number of CPUs");
    let count = words.u32()?;
    let cpus = cpu_count(count, words)?;
    let mut instances = Vec::new();
    let mut kind = words.take(10)?;
    if kind == *b"options  \0" {
        words.enter("options");
        read_options(&mut head, &mut instances, words)?;
        kind = words.take(10)?;
    }
    head.add(read_table(&head, String::new(), cpus, &kind, words)?, input)?;
    for (at, name) in instances {
        let mut words = input.words(at, "the table of an instance");
        let kind = words.take(10)?;
        head.add(read_table(&head, name, cpus, &kind, &mut words)?, input)?;
    }
    Ok(head)
}

fn read_options(
    head: &mut Head,
    instances: &mut Vec<(u64, String)>,
    words: &mut Words<impl Read>,
) -> Result<(), TraceError> {
    loop {
        let id = words.u16()?;
        if id == option::DONE {
            return Ok(());
        }
        let bytes = words.u32()?;
        let data = words.take(u64::from(bytes))?;
        // The manual page of version 6 names no options; the number is that of version 7, and files of trace-cmd 3.1.6
        // have a place and a name here.
        match data.split_first_chunk() {
            Some((at, name)) if id == option::BUFFER => {
                let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
                instances.push((u64::from_le_bytes(*at), name));
            }
            _ => head.apply_option(id, &data),
        }
    }
}

/// Reads the places of each CPU's pages, and the clock behind them.
fn read_table(
    head: &Head,
    name: String,
    cpus: u32,
    kind: &[u8],
    words: &mut Words<impl Read>,
) -> Result<Buffer, TraceError> {
    words.enter("the table of pages");
    match kind {
        b"flyrecord\0" => {}
        b"latency  \0" => {
            return Err(words.unsupported(
                "the text of a latency tracer instead of pages; save what `trace-cmd report` prints of it, and open \
                 that",
            ));
        }
        _ => return Err(words.corrupt("neither `options`, `latency` nor `flyrecord` stands here")),
    }
    let mut data = Vec::new();
    for cpu in 0..cpus {
        let (at, bytes) = (words.u64()?, words.u64()?);
        data.push(Data { cpu: cpu as u16, at, bytes });
    }
    // Since some version the clock follows, with its length; in older files this is padding or the end.
    let clock = match words.u64() {
        Ok(bytes @ 1..=32) => words.text(bytes).unwrap_or_default(),
        _ => String::new(),
    };
    let clock = clock.trim_matches(['[', ']']).to_owned();
    let page_bytes = head.page_bytes;
    Ok(Buffer { name, clock, page_bytes, packing: Packing::Plain, cpus: data })
}
