//! A folder with what tracefs gave: `cpuN.trace_pipe_raw` (or `.zst`), `format/`, and snapshots in `start/` and `end/`.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::event::Event;
use super::flags::FlagTable;
use super::format::{Decoder, Format};
use super::kinds::EventKind;
use super::meta::{Moment, TakenSnapshot, TraceMeta};
use super::ring_buffer::{HEADER, LARGEST_SUB_BUFFER, SUB_BUFFER, SubBuffer, dropped};
use super::source::{BATCH, EventSource, Loss, Merged, TraceError};
use crate::snapshot::Files;

/// A folder of raw pages.
#[derive(Clone, Debug)]
pub struct Folder {
    meta: TraceMeta,
    decoder: Arc<Decoder>,
    page_size: usize,
    pages: Vec<(u16, PathBuf)>,
    /// Events that the kernel says it lost.
    dropped: u64,
}

impl Folder {
    /// Opens it: reads the formats and the snapshots, and finds the pages of each CPU.
    ///
    /// `header_page`, `trace_clock`, `start_window`, `stats` and `missing` are read where the folder has them. Without
    /// the first a page has [`SUB_BUFFER`] bytes; without `start_window` the snapshot in `start` was taken before the
    /// first event. `stats` says what the kernel lost, `missing` has a sentence a line.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn open(path: &Path) -> Result<Folder, TraceError> {
        let pages = pages_of(path)?;
        if pages.is_empty() {
            return Err(TraceError::Unknown(path.to_owned()));
        }
        let formats = formats_of(&path.join("format"))?;
        let gfp = formats.iter().find(|(_, format)| format.name == EventKind::PageAlloc.name());
        let gfp = gfp.and_then(|(_, format)| FlagTable::from_print_fmt(&format.print));
        let mut meta = TraceMeta {
            clock: optional(&path.join("trace_clock"))?.and_then(|text| clock(&text)),
            cpus: pages.iter().map(|&(cpu, _)| cpu).collect(),
            gfp: gfp.unwrap_or_default(),
            missing: optional(&path.join(MISSING))?
                .map(|text| text.lines().map(str::to_owned).collect())
                .unwrap_or_default(),
            ..TraceMeta::default()
        };
        let start = optional(&path.join(START_WINDOW))?.and_then(|text| window(&text));
        let start = start.unwrap_or(Moment::Before);
        for (name, moment) in [("start", start), ("end", Moment::After)] {
            let folder = path.join(name);
            if folder.is_dir() {
                let files = Files::read_folder(&folder).map_err(TraceError::file(&folder))?;
                meta.release = meta.release.or_else(|| files.release());
                meta.snapshots.push(TakenSnapshot { moment, files });
            }
        }
        let decoder = Arc::new(Decoder::new(formats.iter().map(|(_, format)| format)));
        meta.formats = formats.into_iter().map(|(text, format)| (format.name, text)).collect();
        let dropped = optional(&path.join(STATS))?.map_or(0, |text| dropped(&text));
        Ok(Folder { meta, decoder, page_size: page_size_in(path)?, pages, dropped })
    }

    /// What is known beside the events.
    #[must_use]
    pub fn meta(&self) -> &TraceMeta {
        &self.meta
    }

    /// The events of all CPUs.
    ///
    /// # Errors
    /// [`TraceError::File`].
    pub fn events(&self) -> Result<Box<dyn EventSource>, TraceError> {
        let pages = self.pages.iter().map(|(cpu, path)| {
            let file = File::open(path).map_err(TraceError::file(path))?;
            let input: Box<dyn Read + Send> = match path.extension() {
                Some(end) if end == "zst" => {
                    Box::new(zstd::Decoder::new(file).map_err(TraceError::file(path))?)
                }
                _ => Box::new(file),
            };
            // Bounded: `READ_PAGES` of `LARGEST_SUB_BUFFER`.
            let input = BufReader::with_capacity(READ_PAGES * self.page_size, input);
            let decoder = Arc::clone(&self.decoder);
            Ok(RawPages::new(input, path.clone(), *cpu, decoder, self.page_size))
        });
        let merged = Merged::new(pages.collect::<Result<Vec<_>, TraceError>>()?);
        Ok(Box::new(Counted { merged, dropped: self.dropped }))
    }
}

/// Events of which the kernel also says how many it lost.
struct Counted<S> {
    merged: S,
    dropped: u64,
}

impl<S: EventSource> EventSource for Counted<S> {
    fn read(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError> {
        self.merged.read(into)
    }

    /// The pages and the kernel's counters tell of the same losses.
    fn loss(&self) -> Loss {
        let seen = self.merged.loss();
        Loss { events: seen.events.max(self.dropped), ..seen }
    }
}

/// How many pages are read at a time: enough to make a call cheap, few enough to stay in a cache.
const READ_PAGES: usize = 64;

/// The files of raw pages in the folder, by CPU.
fn pages_of(path: &Path) -> Result<Vec<(u16, PathBuf)>, TraceError> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(path).map_err(TraceError::file(path))? {
        let file = entry.map_err(TraceError::file(path))?.path();
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or("");
        let cpu = name.strip_prefix("cpu").and_then(|rest| {
            let rest = rest.strip_suffix(".zst").unwrap_or(rest);
            rest.strip_suffix(".trace_pipe_raw")?.parse().ok()
        });
        if let Some(cpu) = cpu {
            pages.push((cpu, file));
        }
    }
    pages.sort();
    match pages.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(TraceError::Corrupt {
            path: pair[1].1.clone(),
            what: format!("{} holds the same CPU; one of the two must go", pair[0].1.display()),
        }),
        None => Ok(pages),
    }
}

/// The text of a file that may be missing.
fn optional(path: &Path) -> Result<Option<String>, TraceError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(TraceError::File { path: path.to_owned(), cause }),
    }
}

/// The clock in the text of `trace_clock`: the word in brackets, or the only one.
fn clock(text: &str) -> Option<String> {
    let words = || text.split_ascii_whitespace();
    let chosen = words().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    chosen.or_else(|| words().next()).map(str::to_owned)
}

/// Has the kernel's counters of each CPU's buffer.
pub(crate) const STATS: &str = "stats";

/// Has a line for each thing that was not recorded.
pub(crate) const MISSING: &str = "missing";

/// Has the two times between which the snapshot in `start` was taken.
pub(crate) const START_WINDOW: &str = "start_window";

/// The moment in the text of `start_window`.
fn window(text: &str) -> Option<Moment> {
    let mut times = text.split_ascii_whitespace().map(str::parse);
    Some(Moment::During { begin: times.next()?.ok()?, end: times.next()?.ok()? })
}

/// The bytes of a page, by the folder's `header_page`, if it has one.
fn page_size_in(folder: &Path) -> Result<usize, TraceError> {
    let path = folder.join("header_page");
    let Some(text) = optional(&path)? else { return Ok(SUB_BUFFER) };
    page_size(&text).ok_or(TraceError::Corrupt {
        path,
        what: "it does not say where the `data` of a page begins and how long it is".to_owned(),
    })
}

/// The `format` files in the folder.
fn formats_of(path: &Path) -> Result<Vec<(String, Format)>, TraceError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(TraceError::file(path))? {
        names.push(entry.map_err(TraceError::file(path))?.path());
    }
    names.sort();
    names
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).map_err(TraceError::file(&path))?;
            let format = Format::parse(&text)
                .map_err(|cause| TraceError::Format { path: path.clone(), cause })?;
            Ok((text, format))
        })
        .collect()
}

/// The size of a page by the text of `events/header_page`, which describes its fields as a `format` file does.
pub(crate) fn page_size(text: &str) -> Option<usize> {
    let data = text.lines().find(|line| line.contains(" data;"))?;
    let number = |key: &str| data.split(';').find_map(|part| part.trim().strip_prefix(key));
    let (offset, size) = (number("offset:")?, number("size:")?);
    let size = offset.parse::<usize>().ok()?.checked_add(size.parse().ok()?)?;
    (HEADER < size && size <= LARGEST_SUB_BUFFER).then_some(size)
}

/// The events in the raw pages of one CPU.
///
/// Pages are decoded where the reader has them; only one that lies across the end of its buffer is copied first.
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
    /// Of this reader, in pages of `size` bytes, [`SUB_BUFFER`] mostly. The path is for errors.
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

    /// Decodes what the reader has in its buffer, up to the end of the page with which the batch is full.
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

    /// The records that a page has before the file ends; that it is cut counts once.
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
