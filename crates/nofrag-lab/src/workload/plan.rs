//! Decisions before the run: sizes from the host's memory, and refusals.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::apparatus::huge_units::HugeAdvice;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::folder::left_behind;
use super::host::{Disk, Host};

/// Size of each file in bytes.
pub const FILE_BYTES: u64 = 64 << 10;
/// Bytes that a file takes on a disk beside its content: an inode and its share of a folder, generously.
const FILE_EXTRA: u64 = 4 << 10;
/// A unit where the kernel has no huge pages: units are touched all the same.
const UNIT_BYTES: u64 = 2 << 20;
/// Available memory is divided by this for the default workload; below, an upper bound of the result.
const SMALL_SHARE: u64 = 8;
const SMALL_AT_MOST: u64 = 1 << 30;
/// All memory is divided by this to give the available memory that is never touched; below, a lower bound of the
/// result.
const FLOOR_SHARE: u64 = 32;
const FLOOR_AT_LEAST: u64 = 64 << 20;

/// The memory that the sizes are measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// As if the machine had an eighth of its available memory, and at most 1 GiB.
    Small,
    /// The machine's memory, as the document has it.
    Full,
}

/// Advice to the kernel about the memory that is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Advice {
    /// No advice: the host's setting decides.
    Default,
    Madvise,
    Never,
}

impl From<Advice> for HugeAdvice {
    fn from(advice: Advice) -> HugeAdvice {
        match advice {
            Advice::Default => HugeAdvice::Host,
            Advice::Madvise => HugeAdvice::Huge,
            Advice::Never => HugeAdvice::Small,
        }
    }
}

/// Options of the workload: place, sizes, threads and limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThpFioOptions {
    /// The folder below which the files stand. It is made, and removed again, if it is missing.
    pub dir: PathBuf,
    pub scale: Scale,
    /// Memory in MiB that the sizes are measured by, in place of the scale's.
    pub memory_mib: Option<u64>,
    /// Bytes of all files in percent of the memory that sizes are measured by; the document has 150.
    pub files_percent: u32,
    /// Mapped memory in percent of that of node 0, of which half is touched; the document has 75.
    pub mapped_percent: u32,
    /// Threads that write and read files; the document has 4.
    pub threads: usize,
    /// Threads that touch memory; `None` for the document's rule.
    pub thp_threads: Option<usize>,
    pub advice: Advice,
    /// Time for all phases together, in seconds; `None` for no limit.
    pub seconds: Option<u64>,
    /// The seed of all random numbers.
    pub seed: u64,
    /// Share of the free space of the disk that the files may take, in percent.
    pub disk_percent: u32,
}

impl Default for ThpFioOptions {
    fn default() -> ThpFioOptions {
        ThpFioOptions {
            dir: PathBuf::from("."),
            scale: Scale::Small,
            memory_mib: None,
            files_percent: 150,
            mapped_percent: 75,
            threads: 4,
            thp_threads: None,
            advice: Advice::Madvise,
            seconds: None,
            seed: 1,
            disk_percent: 50,
        }
    }
}

/// Decisions of a run. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkloadPlan {
    /// The folder below which the files stand.
    pub dir: PathBuf,
    pub scale: Scale,
    /// The memory that the sizes are measured by.
    pub memory: u64,
    /// Threads that write and read files.
    pub threads: usize,
    /// Files of each writing thread.
    pub files_per_thread: u64,
    pub thp_threads: usize,
    /// Units that each touching thread maps; it touches the first half.
    pub mapped_units_per_thread: u64,
    /// Units that each touching thread touches.
    pub units_per_thread: u64,
    /// Bytes of a unit: a huge page.
    pub unit_bytes: u64,
    pub advice: Advice,
    /// Time for all phases together, in seconds; `None` for no limit.
    pub seconds: Option<u64>,
    /// The seed of all random numbers.
    pub seed: u64,
    /// Touching ends when less memory than this is available.
    pub floor: u64,
    pub host: Host,
    /// The disk of the files.
    pub disk: Disk,
    /// Cautions on the results; sentences.
    pub cautions: Vec<String>,
}

/// The reason why the workload refuses to run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The host's memory is not known.
    #[error("cannot learn how much memory there is: {0}")]
    Host(#[source] io::Error),
    /// There is no such folder.
    #[error("{path}: {cause}: name a folder on a disk that this user may write to")]
    Folder { path: PathBuf, cause: io::Error },
    /// Files there would be kept in memory.
    #[error(
        "{0}: files there are kept in memory and cannot be reclaimed; name a folder on a disk (/var/tmp often is)"
    )]
    InMemory(PathBuf),
    /// The disk has too little room.
    #[error(
        "{path}: {need} MiB of files, but {free} MiB are free and {percent} % of them may be taken; \
         make the files fewer (--memory-mib, --files-percent) or allow more (--disk-percent)"
    )]
    Disk {
        path: PathBuf,
        /// MiB that the files take.
        need: u64,
        /// MiB that are free.
        free: u64,
        /// Percentage of the free space that may be taken.
        percent: u32,
    },
    /// The file system has too few files left.
    #[error("{path}: {need} files, but only {free} more can be made there (inodes)")]
    Inodes {
        path: PathBuf,
        /// Number of files that are needed.
        need: u64,
        /// Files that can still be made.
        free: u64,
    },
    /// More memory would be touched than is available.
    #[error(
        "{touch} MiB would be touched and {floor} MiB must stay available, but {available} MiB are; \
         touch less (--memory-mib, --mapped-percent)"
    )]
    Memory {
        /// MiB that would be touched.
        touch: u64,
        /// MiB that must stay.
        floor: u64,
        /// MiB that are available.
        available: u64,
    },
    /// With these sizes nothing would be written or touched.
    #[error("{0}")]
    TooSmall(String),
}

/// Decides on a run, and changes nothing.
///
/// # Errors
/// [`PlanError`]: the reason of the refusal.
pub fn plan(options: &ThpFioOptions) -> Result<WorkloadPlan, PlanError> {
    let host = Host::here().map_err(PlanError::Host)?;
    let disk = disk(&options.dir)?;
    let mut plan = plan_for(options, host, disk)?;
    plan.cautions.extend(left_behind(&options.dir).iter().map(|path| {
        format!("{} was left behind by a run that was killed: it is removed first.", path.display())
    }));
    Ok(plan)
}

/// Returns the disk that a folder is on, or that its parent is on if the folder is still to be made.
fn disk(dir: &Path) -> Result<Disk, PlanError> {
    let refused = |cause| PlanError::Folder { path: dir.to_owned(), cause };
    let there = match fs::metadata(dir) {
        Ok(found) if found.is_dir() => dir,
        Ok(_) => return Err(refused(io::ErrorKind::NotADirectory.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match dir.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => return Err(refused(error)),
        },
        Err(error) => return Err(refused(error)),
    };
    Disk::below(there).map_err(refused)
}

/// Decides as [`plan`], for a known host and disk.
pub(super) fn plan_for(
    options: &ThpFioOptions,
    host: Host,
    disk: Disk,
) -> Result<WorkloadPlan, PlanError> {
    let memory = match (options.memory_mib, options.scale) {
        (Some(mib), _) => mib.saturating_mul(1 << 20),
        (None, Scale::Small) => (host.available / SMALL_SHARE).min(SMALL_AT_MOST),
        (None, Scale::Full) => host.memory,
    };
    let thp_threads = options.thp_threads.unwrap_or_else(|| thp_threads(&host).max(1));
    if options.threads == 0 || thp_threads == 0 {
        return Err(PlanError::TooSmall("at least one thread of each kind is needed".to_owned()));
    }
    let files = share(memory, options.files_percent) / FILE_BYTES;
    let unit_bytes = host.huge_page.unwrap_or(UNIT_BYTES);
    let node_memory =
        (u128::from(memory) * u128::from(host.node_memory) / u128::from(host.memory.max(1))) as u64;
    let mapped_units = share(node_memory, options.mapped_percent) / unit_bytes / thp_threads as u64;
    let mut plan = WorkloadPlan {
        dir: options.dir.clone(),
        scale: options.scale,
        memory,
        threads: options.threads,
        files_per_thread: files / options.threads as u64,
        thp_threads,
        mapped_units_per_thread: mapped_units,
        units_per_thread: mapped_units / 2,
        unit_bytes,
        advice: options.advice,
        seconds: options.seconds,
        seed: options.seed,
        floor: (host.memory / FLOOR_SHARE).max(FLOOR_AT_LEAST),
        host,
        disk,
        cautions: Vec::new(),
    };
    plan.refuse(options.disk_percent)?;
    plan.cautions = plan.warnings(options);
    Ok(plan)
}

/// Returns the document's number of threads that touch memory: a quarter of the CPUs of a node that its four writers
/// leave. The document's program refuses to run for none.
fn thp_threads(host: &Host) -> usize {
    (host.cpus / host.nodes.max(1)).saturating_sub(4) / 4
}

fn share(bytes: u64, percent: u32) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

impl WorkloadPlan {
    /// Returns the number of all files.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.files_per_thread.saturating_mul(self.threads as u64)
    }

    /// Returns the bytes of all files.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.files().saturating_mul(FILE_BYTES)
    }

    /// Returns the number of units that are touched by all threads.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.units_per_thread.saturating_mul(self.thp_threads as u64)
    }

    /// Returns the bytes that are touched.
    pub(crate) fn touched_bytes(&self) -> u64 {
        self.units().saturating_mul(self.unit_bytes)
    }

    fn refuse(&self, disk_percent: u32) -> Result<(), PlanError> {
        if self.files_per_thread == 0 || self.units_per_thread == 0 {
            return Err(PlanError::TooSmall(format!(
                "{} MiB of memory make {} files for {} threads and {} units for {}: take more memory (--memory-mib) \
                 or fewer threads",
                mib(self.memory),
                self.files(),
                self.threads,
                self.units(),
                self.thp_threads
            )));
        }
        let path = self.dir.clone();
        if self.disk.in_memory {
            return Err(PlanError::InMemory(path));
        }
        let need = self.files().saturating_mul(FILE_BYTES + FILE_EXTRA);
        if need > share(self.disk.free, disk_percent.min(100)) {
            let (need, free) = (mib(need), mib(self.disk.free));
            return Err(PlanError::Disk { path, need, free, percent: disk_percent });
        }
        // One for each thread's folder, two for the folders above.
        let need = self.files() + self.threads as u64 + 2;
        if let Some(free) = self.disk.free_files.filter(|free| need > *free) {
            return Err(PlanError::Inodes { path, need, free });
        }
        let touch = self.touched_bytes();
        if touch.saturating_add(self.floor) > self.host.available {
            return Err(PlanError::Memory {
                touch: mib(touch),
                floor: mib(self.floor),
                available: mib(self.host.available),
            });
        }
        Ok(())
    }

    fn warnings(&self, options: &ThpFioOptions) -> Vec<String> {
        let mut cautions = Vec::new();
        let wanted = self.file_bytes().saturating_add(self.touched_bytes());
        if wanted < self.host.available {
            cautions.push(format!(
                "Files and touched memory ({} MiB) fit into what is available ({} MiB): nothing need be reclaimed, \
                 and memory hardly fragments. --scale full fills {} % of memory, as the document does.",
                mib(wanted),
                mib(self.host.available),
                options.files_percent
            ));
        }
        if options.thp_threads.is_none() && thp_threads(&self.host) == 0 {
            cautions.push(format!(
                "The document's program refuses to run below 8 CPUs a node; here are {} on {} node(s), and one thread \
                 touches memory.",
                self.host.cpus, self.host.nodes
            ));
        }
        match (self.host.huge_page, self.host.thp_enabled.as_deref()) {
            (None, _) => cautions.push(
                "This kernel has no transparent huge pages: every unit consists of small ones."
                    .to_owned(),
            ),
            (Some(_), Some("never")) => cautions.push(
                "transparent_hugepage/enabled is `never` here: every unit consists of small pages."
                    .to_owned(),
            ),
            (Some(_), Some("madvise")) if self.advice == Advice::Default => cautions.push(
                "transparent_hugepage/enabled is `madvise` here: without --huge madvise no unit gets a huge page."
                    .to_owned(),
            ),
            _ => {}
        }
        cautions
    }

    /// Returns the planned actions, in sentences.
    #[must_use]
    pub fn statement(&self) -> Vec<String> {
        let dir = self.dir.display();
        let told = match self.advice {
            Advice::Default => "without advice",
            Advice::Madvise => "under MADV_HUGEPAGE",
            Advice::Never => "under MADV_NOHUGEPAGE",
        };
        let until = match self.seconds {
            Some(seconds) => format!(
                "The phases end after {seconds} s at the latest; writing out and removing files take as long as the \
                 disk does."
            ),
            None => "It takes as long as it takes.".to_owned(),
        };
        vec![
            format!(
                "Write {} files of 64 KiB ({} MiB; {} MiB are free) by {} threads, in a new folder below {dir}.",
                self.files(),
                mib(self.file_bytes()),
                mib(self.disk.free),
                self.threads
            ),
            format!(
                "Read random blocks of them by {} threads, sixteen of a file, seed {}.",
                self.threads, self.seed
            ),
            format!(
                "Meanwhile map {} MiB {told} and touch {} units of {} KiB ({} MiB; {} MiB are available) by {} \
                 thread(s), timing each; stop if less than {} MiB stay available.",
                mib(self.mapped_units_per_thread * self.thp_threads as u64 * self.unit_bytes),
                self.units(),
                self.unit_bytes >> 10,
                mib(self.touched_bytes()),
                mib(self.host.available),
                self.thp_threads,
                mib(self.floor)
            ),
            format!(
                "Remove the folder, also on Ctrl-C and after an error; touch nothing else. {until}"
            ),
        ]
    }
}
