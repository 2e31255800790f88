//! A folder with files of tracefs: `cpuN.trace_pipe_raw` (or `.zst`), `format/`, and snapshots in `start/` and `end/`.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::event::Event;
use super::flags::FlagTable;
use super::format::{Decoder, Format};
use super::kinds::EventKind;
use super::meta::{Moment, TakenSnapshot, TraceMeta};
use super::ring_buffer::{HEADER, LARGEST_SUB_BUFFER, SUB_BUFFER, SubBuffer, dropped};
use super::source::{BATCH, EventSource, Loss, Merged, Trace, TraceError};
use crate::budget::{Budget, Room};
use crate::process::printable;
use crate::snapshot::Files;
use crate::source::{Entry, Root};

/// Opens a folder: reads the formats and the snapshots, and finds the pages of each CPU.
///
/// `header_page`, `trace_clock`, `release`, `start_window`, `stats` and `missing` are read where the folder has them.
/// Without `header_page` a page has [`SUB_BUFFER`] bytes; without `start_window` the snapshot in `start` was taken
/// before the first event. `stats` counts the events that the kernel lost, `missing` has a sentence on each line.
///
/// Only regular files in the folder are read, and no more than the budget allows: with what the pages of all CPUs take.
pub(super) fn open(path: &Path, budget: &Budget) -> Result<Trace, TraceError> {
    let root = Root::Captured(path.to_owned());
    let pages = pages_of(&root)?;
    if pages.is_empty() {
        return Err(TraceError::Unknown(path.to_owned()));
    }
    let mut texts = Texts { root: &root, room: Room::new(path, *budget) };
    let formats = texts.formats()?;
    let gfp = formats.iter().find(|(_, format)| format.name == EventKind::PageAlloc.name());
    let gfp = gfp.and_then(|(_, format)| FlagTable::from_print_fmt(&format.print));
    let mut meta = TraceMeta {
        release: texts.optional(RELEASE)?.map(|text| printable(text.trim())),
        clock: texts.optional("trace_clock")?.and_then(|text| clock(&text)),
        cpus: pages.iter().map(|&(cpu, _)| cpu).collect(),
        gfp: gfp.unwrap_or_default(),
        missing: texts
            .optional(MISSING)?
            .map(|text| text.lines().map(str::to_owned).collect())
            .unwrap_or_default(),
        ..TraceMeta::default()
    };
    let start = texts.optional(START_WINDOW)?.and_then(|text| window(&text));
    let start = start.unwrap_or(Moment::Before);
    let dropped = texts.optional(STATS)?.map_or(0, |text| dropped(&text));
    let page_size = texts.page_size()?;
    let mut room = texts.room;
    for (name, moment) in [("start", start), ("end", Moment::After)] {
        let files = match Files::read_below(&root, name, &mut room) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => continue,
            files => files.map_err(TraceError::file(&root.path(name)))?,
        };
        meta.release = meta.release.or_else(|| files.release());
        meta.snapshots.push(TakenSnapshot { moment, files });
    }
    let decoder = Arc::new(Decoder::new(formats.iter().map(|(_, format)| format)));
    meta.formats = formats.into_iter().map(|(text, format)| (format.name, text)).collect();
    let window = window_of(&pages, page_size, &mut room)?;
    let opened = pages.iter().map(|(cpu, name)| {
        let input = input(&root, name, page_size, window, budget);
        let input = input.map_err(TraceError::file(&root.path(name)))?;
        Ok(RawPages::new(input, root.path(name), *cpu, Arc::clone(&decoder), page_size))
    });
    let merged = Merged::new(opened.collect::<Result<Vec<_>, TraceError>>()?);
    Ok(Trace { meta, events: Box::new(Counted { merged, dropped }), room })
}

/// Takes the memory of the readers of all CPUs: a buffer, a page that lies across its end, events on their way, and for
/// packed pages the window. Returns the binary logarithm of the largest window: all windows together take up to half of
/// the remaining budget. `zstd` makes a window of at most 8 MiB unless it is asked for more.
fn window_of(
    pages: &[(u16, String)],
    page_size: usize,
    room: &mut Room,
) -> Result<u32, TraceError> {
    let each = room.left() / 2 / pages.len() as u64;
    let window = each.checked_ilog2().unwrap_or(0).clamp(LEAST_WINDOW, MOST_WINDOW);
    let plain = READ_BYTES.max(page_size) + page_size + READ_BYTES;
    let packed = pages.iter().filter(|(_, name)| name.ends_with(".zst")).count() as u64;
    room.take(pages.len() as u64 * plain as u64)?;
    room.take(packed << window)?;
    Ok(window)
}

/// Opens the pages of one CPU.
fn input(
    root: &Root,
    name: &str,
    page_size: usize,
    window: u32,
    budget: &Budget,
) -> io::Result<BufReader<Box<dyn Read + Send>>> {
    let file = root.open_regular(name)?;
    let input: Box<dyn Read + Send> = match name.ends_with(".zst") {
        true => {
            let mut plain = zstd::Decoder::new(file)?;
            plain.window_log_max(window)?;
            Box::new(budget.unpacking(plain))
        }
        false => Box::new(file),
    };
    #[expect(clippy::disallowed_methods, reason = "`READ_BYTES` or `LARGEST_SUB_BUFFER`")]
    Ok(BufReader::with_capacity(READ_BYTES.max(page_size), input))
}

/// Smallest and largest window that `zstd` knows, as binary logarithms of bytes.
const LEAST_WINDOW: u32 = 10;
const MOST_WINDOW: u32 = 27;

/// Events with the kernel's own count of lost ones.
struct Counted<S> {
    merged: S,
    dropped: u64,
}

impl<S: EventSource> EventSource for Counted<S> {
    fn read(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError> {
        self.merged.read(into)
    }

    /// Returns the larger of the losses in the pages and by the kernel's counters: both count the same events.
    fn loss(&self) -> Loss {
        let seen = self.merged.loss();
        Loss { events: seen.events.max(self.dropped), ..seen }
    }
}

/// Bytes that are read at a time, unless a page is larger: enough to make a call cheap, few enough to stay in a cache.
const READ_BYTES: usize = 64 * SUB_BUFFER;

/// Returns the files of raw pages in the folder, by CPU.
fn pages_of(root: &Root) -> Result<Vec<(u16, String)>, TraceError> {
    let mut pages = Vec::new();
    for Entry { name, .. } in root.entries_here("").map_err(TraceError::file(&root.path("")))? {
        let cpu = name.strip_prefix("cpu").and_then(|rest| {
            let rest = rest.strip_suffix(".zst").unwrap_or(rest);
            rest.strip_suffix(".trace_pipe_raw")?.parse().ok()
        });
        if let Some(cpu) = cpu {
            pages.push((cpu, name));
        }
    }
    pages.sort();
    match pages.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => {
            let [first, second] = [0, 1].map(|number: usize| root.path(&pair[number].1));
            let what = format!("{} holds the same CPU; one of the two must go", first.display());
            Err(TraceError::Corrupt { path: second, what })
        }
        None => Ok(pages),
    }
}

/// Bytes of the longest text in such a folder.
const LONGEST_TEXT: u64 = 1 << 20;

/// Bytes of memory for each byte of a format's text: the text itself, and its parsed form.
const FORMAT_COST: u64 = 8;

/// The texts of a folder, which are read within its budget.
struct Texts<'a> {
    root: &'a Root,
    room: Room,
}

impl Texts<'_> {
    /// Reads a text each byte of which costs `cost` bytes of the budget.
    fn read(&mut self, name: &str, cost: u64) -> Result<String, TraceError> {
        let text = self.root.read_here(name, LONGEST_TEXT);
        let text = text.map_err(TraceError::file(&self.root.path(name)))?;
        self.room.take(text.len() as u64 * cost)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Reads the text of a file that may be missing.
    fn optional(&mut self, name: &str) -> Result<Option<String>, TraceError> {
        match self.read(name, 1) {
            Err(TraceError::File { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            text => text.map(Some),
        }
    }

    /// Returns the bytes of a page, by the folder's `header_page`, if it has one.
    fn page_size(&mut self) -> Result<usize, TraceError> {
        const NAME: &str = "header_page";
        let Some(text) = self.optional(NAME)? else { return Ok(SUB_BUFFER) };
        page_size(&text).ok_or(TraceError::Corrupt {
            path: self.root.path(NAME),
            what: "it does not say where the `data` of a page begins and how long it is".to_owned(),
        })
    }

    /// Returns the `format` files in the folder, as text and parsed.
    fn formats(&mut self) -> Result<Vec<(String, Format)>, TraceError> {
        const FOLDER: &str = "format";
        let path = self.root.path(FOLDER);
        let entries = self.root.entries_here(FOLDER).map_err(TraceError::file(&path))?;
        let format = |entry: Entry| {
            let name = format!("{FOLDER}/{}", entry.name);
            let text = self.read(&name, FORMAT_COST)?;
            let path = self.root.path(&name);
            let format =
                Format::parse(&text).map_err(|cause| TraceError::Format { path, cause })?;
            Ok((text, format))
        };
        entries.into_iter().map(format).collect()
    }
}

/// Returns the clock in the text of `trace_clock`: the word in brackets, or the only one.
fn clock(text: &str) -> Option<String> {
    let words = || text.split_ascii_whitespace();
    let chosen = words().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    chosen.or_else(|| words().next()).map(str::to_owned)
}

/// Name of the file with the kernel's counters of each CPU's buffer.
pub(crate) const STATS: &str = "stats";

/// Name of the file with a line for each fact that was not recorded.
pub(crate) const MISSING: &str = "missing";

/// Name of the file with the release of the kernel.
pub(crate) const RELEASE: &str = "release";

/// Name of the file with the two times between which the snapshot in `start` was taken.
pub(crate) const START_WINDOW: &str = "start_window";

/// Returns the moment in the text of `start_window`.
fn window(text: &str) -> Option<Moment> {
    let mut times = text.split_ascii_whitespace().map(str::parse);
    Some(Moment::During { begin: times.next()?.ok()?, end: times.next()?.ok()? })
}

/// Returns the size of a page by the text of `events/header_page`, which describes its fields as a `format` file does.
pub(crate) fn page_size(text: &str) -> Option<usize> {
    let data = text.lines().find(|line| line.contains(" data;"))?;
    let number = |key: &str| data.split(';').find_map(|part| part.trim().strip_prefix(key));
    let (offset, size) = (number("offset:")?, number("size:")?);
    let size = offset.parse::<usize>().ok()?.checked_add(size.parse().ok()?)?;
    (HEADER < size && size <= LARGEST_SUB_BUFFER).then_some(size)
}

/// The events in the raw pages of one CPU.
///
/// Pages are decoded where the reader has them; only a page that lies across the end of the reader's buffer is copied
/// first.
pub struct RawPages<R> {
    input: R,
    path: PathBuf,
    cpu: u16,
    decoder: Arc<Decoder>,
    size: usize,
    /// A page that lies across the end of the reader's buffer.
    piece: Vec<u8>,
    loss: Loss,
    ended: bool,
}

impl<R: BufRead + Send> RawPages<R> {
    /// Decodes the bytes of `input`, in pages of `size` bytes, [`SUB_BUFFER`] mostly. The path is for errors.
    ///
    /// # Panics
    /// If a page of this size has no room for its header.
    #[must_use]
    pub fn new(
        input: R,
        path: PathBuf,
        cpu: u16,
        decoder: Arc<Decoder>,
        size: usize,
    ) -> RawPages<R> {
        assert!(size > HEADER, "a page has a header");
        let (piece, loss) = (Vec::new(), Loss::default());
        RawPages { input, path, cpu, decoder, size, piece, loss, ended: false }
    }

    /// Decodes the bytes in the reader's buffer, up to the end of the page with which the batch is full.
    fn next_pages(&mut self, into: &mut Vec<Event>, full: usize) -> Result<(), TraceError> {
        let buffer = match self.input.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(cause) => {
                self.ended = true;
                return Err(TraceError::File { path: self.path.clone(), cause });
            }
        };
        let decode = Decode { decoder: &self.decoder, cpu: self.cpu };
        let mut used = 0;
        if buffer.is_empty() {
            self.ended = true;
            if !self.piece.is_empty() {
                decode.cut_page(&self.piece, into, &mut self.loss);
            }
        } else if self.piece.is_empty() && buffer.len() >= self.size {
            for page in buffer.chunks_exact(self.size) {
                decode.page(page, into, &mut self.loss);
                used += self.size;
                if into.len() >= full {
                    break;
                }
            }
        } else {
            used = buffer.len().min(self.size - self.piece.len());
            self.piece.extend_from_slice(&buffer[..used]);
            if self.piece.len() == self.size {
                decode.page(&self.piece, into, &mut self.loss);
                self.piece.clear();
            }
        }
        self.input.consume(used);
        Ok(())
    }
}

impl<R: BufRead + Send> EventSource for RawPages<R> {
    fn read(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError> {
        let before = into.len();
        while into.len() < before + BATCH && !self.ended {
            self.next_pages(into, before + BATCH)?;
        }
        Ok(into.len() > before)
    }

    fn loss(&self) -> Loss {
        self.loss
    }
}

/// Turns pages of one CPU into events.
#[derive(Clone, Copy)]
pub(crate) struct Decode<'a> {
    pub(crate) decoder: &'a Decoder,
    pub(crate) cpu: u16,
}

impl Decode<'_> {
    pub(crate) fn page(&self, page: &[u8], into: &mut Vec<Event>, loss: &mut Loss) {
        match SubBuffer::new(page) {
            Ok(page) => self.records(page, into, loss),
            Err(_) => loss.unreadable += 1,
        }
    }

    /// Decodes the records of a page that the end of the file cuts; the cut counts as one unreadable record.
    fn cut_page(&self, page: &[u8], into: &mut Vec<Event>, loss: &mut Loss) {
        let unreadable = loss.unreadable;
        if let Ok((page, _)) = SubBuffer::cut(page) {
            self.records(page, into, loss);
        }
        loss.unreadable = loss.unreadable.max(unreadable + 1);
    }

    fn records(&self, page: SubBuffer<'_>, into: &mut Vec<Event>, loss: &mut Loss) {
        if let Some(count) = page.lost() {
            loss.gaps += 1;
            loss.events = loss.events.saturating_add(count.unwrap_or(0));
            into.push(Event::lost(page.time(), self.cpu, count));
        }
        for record in page {
            let Ok((at, body)) = record else {
                loss.unreadable += 1;
                break;
            };
            if self.decoder.decode_into(body, at, self.cpu, into).is_err() {
                loss.unreadable += 1;
            }
        }
    }
}
