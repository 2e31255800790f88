//! An instance of the ring buffer that this process alone uses, and that is gone when the process ends.
//!
//! 1. Only files of the instance are written: no setting, no event, no switch of the whole tracefs.
//! 2. The instance is switched off and removed when [`Instance::remove`] is called, and when it is dropped: on an early
//!    return and on a panic. Signals only ask the recorder to end ([`signals`](super::signals)).
//! 3. After `SIGKILL` the kernel itself stops tracing and frees the buffers, since `free_buffer` is open with
//!    `disable_on_free`; the empty instance is removed by the next start.
//! 4. Instances of other programs are not touched. An instance is stale if its name shows that nofrag made it, the
//!    process in the name has ended, and no process holds the lock of its folder. The lock also protects recorders in
//!    other PID namespaces, and cannot be left behind.
//!
//! Source: docs/sources/trace.md#t8, #recording.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::bulk::{clear_histograms, remove_stale_probes};
use super::error::RecordError;
use super::tracefs::Tracefs;
use crate::process::started;

/// Start of the names of our instances.
const PREFIX: &str = "nofrag-";

/// An instance of the ring buffer.
#[derive(Debug)]
pub(super) struct Instance {
    path: PathBuf,
    /// The instance's folder, with the lock that marks it as in use.
    lock: Option<File>,
    /// The kernel frees the buffers when the last process closes this file.
    free_buffer: Option<File>,
    removed: bool,
}

impl Instance {
    /// Makes an instance with tracing switched off; without a `name` it is named after this process.
    pub(super) fn make(tracefs: &Tracefs, name: Option<&str>) -> Result<Instance, RecordError> {
        let path = match name {
            Some(name) => make_named(&tracefs.instances(), name)?,
            None => make_unique(&tracefs.instances())?,
        };
        // From here on an error removes the instance again.
        let mut instance = Instance { path, lock: None, free_buffer: None, removed: false };
        let lock = File::open(&instance.path)
            .map_err(RecordError::instance(&instance.path, "cannot be opened"))?;
        let lock = instance.lock.insert(lock);
        flock(lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            RecordError::instance(&instance.path, "cannot be locked")(error.into())
        })?;
        instance.set("tracing_on", "0", "cannot be switched off")?;
        // An old kernel has neither file; its buffers then stay until the next start.
        if instance.write("options/disable_on_free", "1").is_ok() {
            instance.free_buffer =
                File::options().write(true).open(instance.path.join("free_buffer")).ok();
        }
        Ok(instance)
    }

    /// Returns the folder of the instance.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name of the instance.
    pub(super) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Writes to a file of the instance.
    pub(super) fn write(&self, file: &str, value: &str) -> io::Result<()> {
        write_to(&self.path.join(file), value)
    }

    /// Writes to a file of the instance, as [`write`](Self::write) does, and turns an error into a [`RecordError`].
    pub(super) fn set(
        &self,
        file: &str,
        value: &str,
        what: &'static str,
    ) -> Result<(), RecordError> {
        self.write(file, value).map_err(RecordError::instance(&self.path.join(file), what))
    }

    /// Returns the text of a file of the instance.
    pub(super) fn text(&self, file: &str) -> io::Result<String> {
        fs::read_to_string(self.path.join(file))
    }

    /// Returns the CPUs that have a trace buffer.
    pub(super) fn cpus(&self) -> io::Result<Vec<u16>> {
        let mut cpus = Vec::new();
        for entry in fs::read_dir(self.path.join("per_cpu"))? {
            let name = entry?.file_name();
            cpus.extend(
                name.to_str().and_then(|name| name.strip_prefix("cpu")?.parse::<u16>().ok()),
            );
        }
        cpus.sort_unstable();
        Ok(cpus)
    }

    /// Switches the instance off and removes it. Files below it must be closed.
    ///
    /// # Errors
    /// [`RecordError::Instance`] if the instance cannot be removed.
    pub(super) fn remove(mut self) -> Result<(), RecordError> {
        self.take_away()
    }

    fn take_away(&mut self) -> Result<(), RecordError> {
        if self.removed {
            return Ok(());
        }
        self.removed = true;
        let _ = self.write("tracing_on", "0");
        let _ = self.write("events/enable", "0");
        clear_histograms(&self.path, own_process());
        self.free_buffer = None;
        remove_folder(&self.path).map_err(RecordError::instance(
            &self.path,
            "the instance is switched off but could not be removed; remove it with rmdir",
        ))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // `remove` reports the error; a drop cannot.
        let _ = self.take_away();
    }
}

/// Writes to an existing file.
fn write_to(path: &Path, value: &str) -> io::Result<()> {
    File::options().write(true).open(path)?.write_all(value.as_bytes())
}

/// Removes an instance. A process that looks into the instance at the moment makes it busy.
fn remove_folder(path: &Path) -> io::Result<()> {
    const ATTEMPTS: u32 = 40;
    const PAUSE: Duration = Duration::from_millis(25);
    for _ in 1..ATTEMPTS {
        match fs::remove_dir(path) {
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                thread::sleep(PAUSE);
            }
            outcome => return outcome,
        }
    }
    fs::remove_dir(path)
}

fn make_named(instances: &Path, name: &str) -> Result<PathBuf, RecordError> {
    let odd = |c: char| c == '/' || c.is_whitespace() || c.is_control();
    if name.is_empty() || name.starts_with('.') || name.contains(odd) {
        return Err(RecordError::Name(name.to_owned()));
    }
    let path = instances.join(name);
    fs::create_dir(&path).map_err(|cause| match cause.kind() {
        io::ErrorKind::AlreadyExists => RecordError::Taken { path: path.clone() },
        _ => RecordError::instance(&path, "the instance cannot be made")(cause),
    })?;
    Ok(path)
}

/// Makes an instance named after this process.
fn make_unique(instances: &Path) -> Result<PathBuf, RecordError> {
    make_named(instances, &own_name())
}

/// Returns a new name that tells which process made the instance or the probes with this name.
pub(super) fn own_name() -> String {
    /// Number of names that this process has made: a second object at a time needs another name.
    static MADE: AtomicU32 = AtomicU32::new(0);
    let (pid, started) = own_process();
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    format!("{PREFIX}{pid}-{started}-{number}")
}

/// Returns the process ID of this process and its start time, in ticks since the host started.
fn own_process() -> (u32, u64) {
    let pid = std::process::id();
    (pid, started(pid).unwrap_or(0))
}

/// Returns the process ID and the start time of the process that made the object with this name; `None` if the name is
/// not of the form that [`own_name`] gives.
pub(super) fn owner(name: &str) -> Option<(u32, u64)> {
    let mut numbers = name.strip_prefix(PREFIX)?.split('-').map(str::parse::<u64>);
    let (pid, started, count) = (numbers.next()?, numbers.next()?, numbers.next()?);
    count.ok()?;
    if numbers.next().is_some() {
        return None;
    }
    Some((u32::try_from(pid.ok()?).ok()?, started.ok()?))
}

/// Removes the instances of recorders that were killed, with their probes, and returns the names of the instances.
pub(super) fn remove_stale(tracefs: &Tracefs) -> Vec<String> {
    let Ok(entries) = fs::read_dir(tracefs.instances()) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let removed =
        names.filter(|name| remove_if_stale(&tracefs.instances().join(name), name)).collect();
    remove_stale_probes(tracefs);
    removed
}

fn remove_if_stale(path: &Path, name: &str) -> bool {
    let Some((pid, then)) = owner(name) else { return false };
    if started(pid) == Some(then) {
        return false;
    }
    let Ok(folder) = File::open(path) else { return false };
    if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_err() {
        return false;
    }
    let _ = write_to(&path.join("tracing_on"), "0");
    clear_histograms(path, (pid, then));
    fs::remove_dir(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::tracefs::Which;
    use super::*;

    /// Makes a folder that looks enough like a tracefs for its instances to be listed.
    fn tracefs() -> (tempfile::TempDir, Tracefs) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("instances")).unwrap();
        let tracefs = Tracefs::find(&Which::At(folder.path().to_owned())).unwrap();
        (folder, tracefs)
    }

    fn check_stale(tracefs: &Tracefs, name: &str, expected: bool) {
        let path = tracefs.instances().join(name);
        fs::create_dir(&path).unwrap();
        let removed = remove_stale(tracefs);
        assert_eq!(removed.contains(&name.to_owned()), expected, "{name}");
        assert_eq!(path.exists(), !expected, "{name}");
    }

    #[test]
    fn only_instances_of_dead_recorders_are_stale() {
        let (_folder, tracefs) = tracefs();
        let own = std::process::id();
        let since = started(own).unwrap();
        check_stale(&tracefs, &format!("nofrag-{own}-{since}-0"), false);
        check_stale(&tracefs, &format!("nofrag-{own}-{}-0", since + 1), true);
        check_stale(&tracefs, "nofrag-4194305-17-0", true);
        for others in
            ["foo", "nofrag-", "nofrag-1", "nofrag-4194305-17", "nofrag-a-b-c", "nofrag-1-2-3-4"]
        {
            check_stale(&tracefs, others, false);
        }
    }

    #[test]
    fn a_held_lock_protects_whatever_the_process_numbers_say() {
        let (_folder, tracefs) = tracefs();
        let path = tracefs.instances().join("nofrag-4194305-17-0");
        fs::create_dir(&path).unwrap();
        let holder = File::open(&path).unwrap();
        flock(&holder, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(remove_stale(&tracefs), Vec::<String>::new());
        drop(holder);
        assert_eq!(remove_stale(&tracefs), ["nofrag-4194305-17-0"]);
    }

    #[test]
    fn a_taken_name_is_refused_and_left_alone() {
        let (_folder, tracefs) = tracefs();
        fs::create_dir(tracefs.instances().join("mine")).unwrap();
        let error = Instance::make(&tracefs, Some("mine")).unwrap_err();
        assert!(matches!(error, RecordError::Taken { .. }), "{error}");
        assert!(tracefs.instances().join("mine").exists());
    }

    /// Makes an instance in a tracefs where a folder can be made but no file written: the folder is removed again.
    #[test]
    fn an_instance_that_cannot_be_set_up_is_taken_away() {
        let (_folder, tracefs) = tracefs();
        let error = Instance::make(&tracefs, Some("mine")).unwrap_err();
        assert!(error.to_string().contains("cannot be switched off"), "{error}");
        assert!(!tracefs.instances().join("mine").exists());
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let (_folder, tracefs) = tracefs();
        for name in ["", "..", "a/b", "a b", ".hidden"] {
            let error = Instance::make(&tracefs, Some(name)).unwrap_err();
            assert!(matches!(error, RecordError::Name(_)), "{name:?}: {error}");
        }
    }
}
