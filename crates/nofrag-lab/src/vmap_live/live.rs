//! Records what the running kernel does while a program makes areas.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nofrag::vmap::Pools;
use nofrag_host::record::{self, Buffer, Bulk, Frames, Options, Output, Phase, Recorded};
use nofrag_host::record::{Ended, Selection, Sensitive, Until, Which};
use nofrag_host::recording::Existing;
use nofrag_host::source::{KPTR_RESTRICT, Root};
use nofrag_host::unhash::Unhashed;

use super::lists::Lists;
use super::load::{Length, Load, Loaded};
use crate::usage::field_bytes;

/// Time after which a recording ends, once its program has: it is run within the recorder's report of progress.
const AFTERWARDS: Duration = Duration::from_millis(500);

/// Runs a program and records its events in the file `path`; returns the number of areas that it made.
///
/// While it runs, `kernel.kptr_restrict` is 1.
///
/// # Errors
/// The reason why the host cannot be recorded, in words.
pub(super) fn record(path: &Path, load: Load, length: Length) -> Result<u64, String> {
    unhashed(|| recorded(path, load, length))
}

/// Makes areas by turns, with the kernel's list before and after each.
///
/// While it runs, `kernel.kptr_restrict` is 1.
///
/// # Errors
/// The reason why the kernel's lists say nothing, in words.
pub(super) fn list(length: Length) -> Result<Lists, String> {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let policy = super::run::rules(&release)?;
    if policy.pools != Pools::Off {
        return Err(format!(
            "{release} has pools of areas, which no list shows; `maps` records its events"
        ));
    }
    let total = field_bytes("/proc/meminfo", "VmallocTotal").ok_or("VmallocTotal is not known")?;
    unhashed(|| {
        let failed = |why| format!("areas cannot be made: {why}");
        let entries =
            Loaded::prepare().and_then(|mut loaded| loaded.turns(length)).map_err(failed)?;
        Ok(Lists { release, total, entries })
    })
}

/// Does `work` while the kernel tells root addresses.
fn unhashed<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("needs root: it records the kernel's events and makes maps of bpf(2)".into());
    }
    let unhashed =
        Unhashed::begin(&Root::Live.path(KPTR_RESTRICT)).map_err(|why| why.to_string())?;
    let done = work();
    unhashed.restore().map_err(|why| why.to_string())?;
    done
}

fn recorded(path: &Path, load: Load, length: Length) -> Result<u64, String> {
    let loaded = Loaded::prepare().map_err(|why| format!("areas cannot be made: {why}"))?;
    let loaded = RefCell::new(loaded);
    let (begun, outcome) = (Cell::new(false), Cell::new(None));
    let options = Options {
        until: Until::Elapsed(AFTERWARDS),
        output: Output::Recording(path.to_owned()),
        existing: Existing::Replace,
        events: Selection::parse(["vmalloc"]).map_err(|why| why.to_string())?,
        bulk: Bulk::LeftOut,
        frames: Frames::LeftOut,
        with: vec![Sensitive::Addresses],
        buffer: Buffer::Default,
        tracefs: Which::MountIfMissing,
        instance: None,
    };
    let recorded = record::record(&options, &|now| {
        // The recorder's readers are threads of their own, and go on meanwhile.
        if now.phase == Phase::Recording && !begun.replace(true) {
            outcome.set(Some(loaded.borrow_mut().run(load, length)));
        }
    });
    let Recorded { ended, missing, .. } = recorded.map_err(|why| why.to_string())?;
    if ended != Ended::Elapsed {
        return Err(format!("the recording was cut short: {ended:?}"));
    }
    if let Some(event) = missing.iter().find(|sentence| sentence.contains("vmalloc")) {
        return Err(event.clone());
    }
    let made = outcome.take().ok_or("the program did not begin in time")?;
    made.map_err(|why| format!("areas cannot be made: {why}"))
}

/// Place of a recording.
pub(super) enum Place {
    Kept(PathBuf),
    /// For the time of a run.
    ForNow(PathBuf),
}

impl Place {
    pub(super) fn for_now(number: u64) -> Place {
        let name = format!("nofrag-vmap-live-{}-{number}.nofrag", std::process::id());
        Place::ForNow(std::env::temp_dir().join(name))
    }

    pub(super) fn path(&self) -> &Path {
        let (Place::Kept(path) | Place::ForNow(path)) = self;
        path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Place::ForNow(path) = self {
            // A recording that was not made leaves no file.
            let _ = fs::remove_file(path);
        }
    }
}
