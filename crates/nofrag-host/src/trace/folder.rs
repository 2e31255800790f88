//! A folder with what tracefs gave: `cpuN.trace_pipe_raw` (or `.zst`), `format/`, and snapshots in `start/` and `end/`.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::event::Event;
use super::flags::FlagTable;
use super::format::{Decoder, Format};
use super::kinds::{EventKind, MAX_FIELDS};
use super::meta::{Moment, TakenSnapshot, TraceMeta};
use super::ring_buffer::{SUB_BUFFER, SubBuffer};
use super::source::{BATCH, EventSource, Loss, Merged, TraceError};
use crate::snapshot::Files;

/// A folder of raw pages.
#[derive(Clone, Debug)]
pub struct Folder {
    meta: TraceMeta,
    decoder: Arc<Decoder>,
    pages: Vec<(u16, PathBuf)>,
}

impl Folder {
    /// Opens it: reads the formats and the snapshots, and finds the pages of each CPU.
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
            cpus: pages.iter().map(|&(cpu, _)| cpu).collect(),
            gfp: gfp.unwrap_or_default(),
            ..TraceMeta::default()
        };
        for (name, moment) in [("start", Moment::Before), ("end", Moment::After)] {
            let folder = path.join(name);
            if folder.is_dir() {
                let files = Files::read_folder(&folder).map_err(TraceError::file(&folder))?;
                meta.release = meta.release.or_else(|| files.release());
                meta.snapshots.push(TakenSnapshot { moment, files });
            }
        }
        let decoder = Arc::new(Decoder::new(formats.iter().map(|(_, format)| format)));
        meta.formats = formats.into_iter().map(|(text, format)| (format.name, text)).collect();
        Ok(Folder { meta, decoder, pages })
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
                _ => Box::new(BufReader::with_capacity(64 * SUB_BUFFER, file)),
            };
            Ok(Pages::new(input, path.clone(), *cpu, Arc::clone(&self.decoder)))
        });
        Ok(Box::new(Merged::new(pages.collect::<Result<Vec<_>, TraceError>>()?)))
    }
}

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
    Ok(pages)
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

/// The events in the raw pages of one CPU.
pub(crate) struct Pages<R> {
    input: R,
    path: PathBuf,
    cpu: u16,
    decoder: Arc<Decoder>,
    page: Vec<u8>,
    loss: Loss,
}

impl<R: Read + Send> Pages<R> {
    pub(crate) fn new(input: R, path: PathBuf, cpu: u16, decoder: Arc<Decoder>) -> Pages<R> {
        Pages { input, path, cpu, decoder, page: vec![0; SUB_BUFFER], loss: Loss::default() }
    }

    /// Reads the next page; `false` at the end.
    fn next_page(&mut self) -> Result<bool, TraceError> {
        let mut filled = 0;
        while filled < self.page.len() {
            match self.input.read(&mut self.page[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(TraceError::File { path: self.path.clone(), cause }),
            }
        }
        // A page that was cut off: what precedes it stands.
        self.loss.unreadable += u64::from(filled > 0 && filled < self.page.len());
        Ok(filled == self.page.len())
    }
}

impl<R: Read + Send> EventSource for Pages<R> {
    fn read(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError> {
        let before = into.len();
        while into.len() < before + BATCH {
            if !self.next_page()? {
                break;
            }
            let page = match SubBuffer::new(&self.page) {
                Ok(page) => page,
                Err(_) => {
                    self.loss.unreadable += 1;
                    continue;
                }
            };
            if let Some(count) = page.lost() {
                self.loss.gaps += 1;
                self.loss.events += count.unwrap_or(0);
                let mut values = [0; MAX_FIELDS];
                values[0] = count.unwrap_or(0);
                let kind = EventKind::Lost;
                into.push(Event { at: page.time(), pid: 0, cpu: self.cpu, kind, values });
            }
            for record in page {
                match record {
                    Ok((at, body)) => match self.decoder.decode(body, at, self.cpu) {
                        Some(event) => into.push(event),
                        None => self.loss.unreadable += 1,
                    },
                    Err(_) => self.loss.unreadable += 1,
                }
            }
        }
        Ok(into.len() > before)
    }

    fn loss(&self) -> Loss {
        self.loss
    }
}
