//! Writes the files of a host into a folder, so that another person can look at the host with `--root`.
//!
//! Every file lies under its own path. Facts that an analysis of fragmentation does not need are taken out first: names
//! and numbers of processes, names of files, addresses of the kernel, the builder of the kernel; `LEFT_OUT` lists them,
//! and so does a file in the folder. On the host only root may read some of the remaining files, so only the user who
//! captures may read the folder. Nothing on the host is changed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;

use super::scrub::{self, Renamed};
use crate::process::ranking::{self, PATIENCE};
use crate::record::Frames;
use crate::snapshot::place_of;
use crate::source::machine::{NOT_SETTINGS, POOLS, SLABINFO};
use crate::source::{CPUS_ONLINE, KPTR_RESTRICT, Missing, Root, VMALLOCINFO};

/// Treatment of facts that may be private.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Private {
    /// The facts are taken out, or replaced by numbers.
    #[default]
    TakenOut,
    Kept,
}

/// Choices of the user about the contents of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// The choice whether the state of every frame is captured.
    pub frames: Frames,
    /// Names and numbers of processes, and names of the files that they map.
    pub names: Private,
    /// Addresses of the kernel's areas, where the kernel shows them.
    pub addresses: Private,
}

/// The result of a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Captured {
    pub folder: PathBuf,
    pub taken: Vec<Taken>,
    /// Facts that were left out; sentences.
    pub left_out: Vec<&'static str>,
    /// Facts in the capture that its owner may want to know of before giving it away; sentences.
    pub kept: Vec<&'static str>,
    /// Files that could not be had.
    pub missing: Vec<Missing>,
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Taken {
    /// Path of the file in the folder.
    pub path: String,
    /// Size of the file in the folder.
    pub bytes: u64,
    /// Facts that were taken out of the file; `null` if it is as the kernel gave it.
    pub scrubbed: Option<&'static str>,
}

/// The reason why nothing was captured.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CaptureError {
    #[error("{0}: it is not empty: name a new folder, so that two hosts are not mixed")]
    NotEmpty(PathBuf),
    /// Writing failed; files written before are removed again.
    #[error("{path}: {cause}: nothing was captured; name a folder that can be made and has room")]
    Write {
        /// The file or folder that could not be written.
        path: PathBuf,
        cause: io::Error,
    },
}

/// Facts that are never captured.
const LEFT_OUT: [&str; 4] = [
    "contents of memory, command lines, environments, users, groups, the host's name and its log",
    "who built the kernel, where and with what",
    "physical addresses of devices and of the kernel",
    "processes but for those with most areas",
];
const NAMES: &str = "names of processes, of the files that they map and of their areas, and the numbers of processes: \
                     other numbers stand for them";
const ADDRESSES: &str =
    "addresses of the kernel's areas: zeros stand for them, so that holes cannot be computed";
const FRAMES: &str = "what each page frame is used for (it takes --frames)";

/// Facts that stay although they may reveal something.
const KEPT: [&str; 2] = [
    "where the areas of processes lie: their holes are computed from it; it tells of a process as long as it lives",
    "the names of kernel functions and modules that hold vmalloc areas",
];

/// Most processes that are captured: those with most areas.
const MOST_PROCESSES: usize = 16;

/// Files that are copied as they are, with the part of the report that needs each.
const PLAIN: [(&str, &str); 9] = [
    ("buddyinfo", "free blocks by order"),
    ("extfrag_index", "the kernel's own indices"),
    ("unusable_index", "the kernel's own indices"),
    ("pagetypeinfo", "types of free blocks and pageblocks"),
    ("zoneinfo", "zones, watermarks and boost"),
    ("vmstat", "what the kernel has counted"),
    ("meminfo", "how much memory there is"),
    ("transparent_hugepage_enabled", "whether processes are given huge pages"),
    ("transparent_hugepage_defrag", "how hard huge pages are tried for"),
];

/// Paths of other files that are copied as they are, with the part of the report that needs each.
const OTHERS: [(&str, &str); 5] = [
    ("proc/uptime", "the time since boot"),
    ("proc/sys/kernel/osrelease", "the kernel's release"),
    ("proc/sys/kernel/arch", "the architecture"),
    (KPTR_RESTRICT, "advice on hidden addresses"),
    (CPUS_ONLINE, "the number of CPUs"),
];

/// Captures a host into a folder, which is created, and must be empty if it exists.
///
/// # Errors
/// Those of [`CaptureError`]; files that cannot be read are in [`Captured::missing`].
pub fn capture(root: &Root, folder: &Path, choices: Choices) -> Result<Captured, CaptureError> {
    gather(root, choices).write(folder)
}

/// Reads the files to capture, and takes out of them the facts that are left out. Nothing is written: the reader of a
/// host and the writer of the folder may have different rights.
#[must_use]
pub fn gather(root: &Root, choices: Choices) -> Gathered {
    let mut capture = Capture { root, files: Vec::new(), missing: Vec::new() };
    capture.lists();
    capture.settings();
    capture.vmalloc(choices.addresses);
    capture.processes(choices.names);
    if choices.frames == Frames::Read {
        capture.frames();
    }
    let mut left_out = LEFT_OUT.to_vec();
    left_out.extend((choices.names == Private::TakenOut).then_some(NAMES));
    left_out.extend((choices.addresses == Private::TakenOut).then_some(ADDRESSES));
    left_out.extend((choices.frames == Frames::LeftOut).then_some(FRAMES));
    let Capture { files, missing, .. } = capture;
    Gathered { files, left_out, missing }
}

/// Checks that a folder can take a capture: it does not exist, or is empty. For callers that check before a host is
/// read.
///
/// # Errors
/// [`CaptureError::NotEmpty`]; or `Write` if the path is not a folder, or cannot be read.
pub fn must_be_empty(folder: &Path) -> Result<(), CaptureError> {
    match fs::read_dir(folder).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(CaptureError::NotEmpty(folder.to_owned())),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(cause) => Err(CaptureError::Write { path: folder.to_owned(), cause }),
    }
}

/// Name of the file that describes the captured folder to its recipient.
const README: &str = "README.txt";

/// A captured host before it is written.
#[derive(Clone, Debug)]
pub struct Gathered {
    files: Vec<(Taken, Vec<u8>)>,
    left_out: Vec<&'static str>,
    missing: Vec<Missing>,
}

impl Gathered {
    /// Writes the capture into a folder, which is created, and must be empty if it exists.
    ///
    /// # Errors
    /// Those of [`CaptureError`].
    pub fn write(self, folder: &Path) -> Result<Captured, CaptureError> {
        let write = |cause| CaptureError::Write { path: folder.to_owned(), cause };
        let is_new = !folder.exists();
        private_folder(folder).map_err(write)?;
        must_be_empty(folder)?;
        let captured = self.write_into(folder);
        if captured.is_err() {
            // The first error is reported, not one of this removal; files that remain only make another try fail.
            ["proc", "sys"].iter().for_each(|name| drop(fs::remove_dir_all(folder.join(name))));
            drop(fs::remove_file(folder.join(README)));
            if is_new {
                drop(fs::remove_dir(folder));
            }
        }
        captured
    }

    fn write_into(self, folder: &Path) -> Result<Captured, CaptureError> {
        let Gathered { files, left_out, missing } = self;
        let mut taken = Vec::new();
        for (file, bytes) in files {
            put(&folder.join(&file.path), &bytes)?;
            taken.push(file);
        }
        let captured =
            Captured { folder: folder.to_owned(), taken, left_out, kept: KEPT.to_vec(), missing };
        put(&folder.join(README), captured.readme().as_bytes())?;
        Ok(captured)
    }
}

/// Writes a file that only this user may read; its folder is created.
fn put(target: &Path, bytes: &[u8]) -> Result<(), CaptureError> {
    let parent = target.parent().expect("it has a name in a folder");
    private_folder(parent)
        .map_err(|cause| CaptureError::Write { path: parent.to_owned(), cause })?;
    private_file(target)
        .and_then(|mut file| file.write_all(bytes))
        .map_err(|cause| CaptureError::Write { path: target.to_owned(), cause })
}

/// Makes a folder, and those above it, that only this user may look into; an existing folder stays as it is.
fn private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes a file that only this user may read.
pub(crate) fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

impl Captured {
    /// Returns the bytes of all captured files together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.taken.iter().map(|taken| taken.bytes).sum()
    }

    /// Returns the text that describes the folder to its recipient.
    fn readme(&self) -> String {
        let mut text = String::from(
            "A host captured by `nofrag host capture`. Look at it with `nofrag host --root` and this folder.\n\n\
             Changed before it was written:\n",
        );
        for taken in &self.taken {
            if let Some(scrubbed) = taken.scrubbed {
                text += &format!("  {}: {scrubbed}\n", taken.path);
            }
        }
        text += "\nLeft out:\n";
        self.left_out.iter().for_each(|what| text += &format!("  {what}\n"));
        text += "\nKept:\n";
        self.kept.iter().for_each(|what| text += &format!("  {what}\n"));
        text += "\nCould not be read:\n";
        self.missing
            .iter()
            .for_each(|missing| text += &format!("  {}: {}\n", missing.path, missing.why));
        text
    }
}

struct Capture<'a> {
    root: &'a Root,
    files: Vec<(Taken, Vec<u8>)>,
    missing: Vec<Missing>,
}

impl Capture<'_> {
    /// Captures free lists, counters and single values.
    fn lists(&mut self) {
        PLAIN.iter().for_each(|&(name, costs)| self.copy(place_of(name), costs));
        OTHERS.iter().for_each(|&(path, costs)| self.copy(path, costs));
        const RELEASE: Option<&str> = Some("only `Linux version` and the release are kept");
        self.text("proc/version", "the kernel's release", RELEASE, scrub::version);
        const MEMORY: Option<&str> = Some("only lines of memory are kept");
        self.text("proc/iomem", "where memory lies", MEMORY, scrub::iomem);
    }

    /// Captures the settings of `vm`, and the pools of hugetlbfs.
    fn settings(&mut self) {
        for name in self.root.names("proc/sys/vm").unwrap_or_default() {
            let is_read = !NOT_SETTINGS.contains(&name.as_str());
            let path = format!("proc/sys/vm/{name}");
            // Some settings can only be written.
            if let Some(value) = is_read.then(|| self.root.read(&path).ok()).flatten() {
                self.put(&path, value, None);
            }
        }
        for pool in self.root.names(POOLS).unwrap_or_default() {
            for file in ["nr_hugepages", "free_hugepages", "resv_hugepages"] {
                self.copy(&format!("{POOLS}/{pool}/{file}"), "a pool of hugetlbfs");
            }
        }
    }

    fn vmalloc(&mut self, addresses: Private) {
        const COSTS: &str = "who holds the vmalloc space";
        match addresses {
            Private::Kept => {
                let scrubbed = Some("physical addresses are left out");
                self.text(VMALLOCINFO, COSTS, scrubbed, scrub::vmallocinfo_with_addresses);
            }
            Private::TakenOut => {
                let scrubbed = Some("zeros stand for addresses");
                self.text(VMALLOCINFO, COSTS, scrubbed, scrub::vmallocinfo);
            }
        }
    }

    /// Captures the processes with most areas.
    fn processes(&mut self, names: Private) {
        let Ok(ranking) = ranking::rank(self.root, PATIENCE) else { return };
        let mut renamed = Renamed::default();
        for (process, rank) in ranking.processes.iter().take(MOST_PROCESSES).zip(1_u32..) {
            let source = format!("proc/{}", process.pid);
            let folder = match names {
                Private::Kept => source.clone(),
                Private::TakenOut => format!("proc/{rank}"),
            };
            let read = |name: &str| self.root.text(&format!("{source}/{name}"));
            // The process may have ended since; it is left out then.
            let (Ok(maps), Ok(status)) = (read("maps"), read("status")) else { continue };
            let (maps, status, scrubbed) = match names {
                Private::Kept => (maps, scrub::status_with_name(&status), None),
                Private::TakenOut => {
                    let scrubbed = Some("numbers stand for names and inodes");
                    (renamed.maps(&maps), renamed.status(&status), scrubbed)
                }
            };
            self.put(&format!("{folder}/maps"), maps.into_bytes(), scrubbed);
            let kept = Some("only state, sizes and threads are kept");
            self.put(&format!("{folder}/status"), status.into_bytes(), kept);
        }
        if ranking.denied > 0 {
            let why = format!("permission denied for {} of the processes", ranking.denied);
            let costs = "whether one of them is near vm.max_map_count";
            self.missing.push(self.root.missing("proc/PID/maps", why, costs));
        }
    }

    /// Captures `kpageflags`, the use of each frame, packed with zstd.
    fn frames(&mut self) {
        const LEVEL: i32 = 3;
        const COSTS: &str = "what each page frame is used for";
        let path = place_of("kpageflags");
        let packed = self.root.stream(path).and_then(|mut source| {
            let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
            io::copy(&mut source, &mut encoder)?;
            encoder.finish()
        });
        match packed {
            Ok(bytes) => self.put(&format!("{path}.zst"), bytes, None),
            Err(cause) => self.miss(path, &cause, COSTS),
        }
        self.copy(place_of(SLABINFO), "which caches of kernel objects hold most memory");
    }

    /// Captures a file as it is.
    fn copy(&mut self, path: &str, costs: &'static str) {
        match self.root.read(path) {
            Ok(bytes) => self.put(path, bytes, None),
            Err(cause) => self.miss(path, &cause, costs),
        }
    }

    /// Captures a text after `scrub` has taken facts out of it.
    fn text(
        &mut self,
        path: &str,
        costs: &'static str,
        scrubbed: Option<&'static str>,
        scrub: impl FnOnce(&str) -> String,
    ) {
        match self.root.text(path) {
            Ok(text) => self.put(path, scrub(&text).into_bytes(), scrubbed),
            Err(cause) => self.miss(path, &cause, costs),
        }
    }

    fn miss(&mut self, path: &str, cause: &io::Error, costs: &'static str) {
        self.missing.push(self.root.missing(path, cause.to_string(), costs));
    }

    fn put(&mut self, path: &str, bytes: Vec<u8>, scrubbed: Option<&'static str>) {
        let taken = Taken { path: path.to_owned(), bytes: bytes.len() as u64, scrubbed };
        self.files.push((taken, bytes));
    }
}
