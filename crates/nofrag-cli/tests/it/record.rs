//! `nofrag record` on the kernel on which the tests run. Skipped, with the reason printed, where that cannot be traced.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nofrag_host::recording::Recording;
use nofrag_host::trace::{self, EventKind, Moment, TraceMeta};
use serde_json::Value;

use crate::json::check_documented;
use crate::support::{check, copied_into, nofrag};

const TRACEFS: &str = "/sys/kernel/tracing";

/// The settings that a recording must leave as they were, at every end.
const LEFT_ALONE: [&str; 8] = [
    "tracing_on",
    "current_tracer",
    "trace_clock",
    "buffer_size_kb",
    "set_event",
    "set_event_pid",
    "tracing_cpumask",
    "events/kmem/mm_page_alloc/enable",
];

/// The host's tracing as a test finds it, one test at a time.
struct Host {
    before: Vec<Option<String>>,
    _alone: MutexGuard<'static, ()>,
}

impl Host {
    /// Waits until no other test traces, and notes the settings; `None`, with the reason printed, where nothing can be
    /// traced.
    fn new() -> Option<Host> {
        static ALONE: Mutex<()> = Mutex::new(());
        if fs::metadata("/proc/self").ok()?.uid() != 0 {
            eprintln!("skipped: only root can trace");
            return None;
        }
        if !Path::new(TRACEFS).join("instances").is_dir() {
            eprintln!("skipped: no tracefs at {TRACEFS}");
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Host { before: Host::settings(), _alone: alone })
    }

    fn settings() -> Vec<Option<String>> {
        let read = |name: &&str| fs::read_to_string(Path::new(TRACEFS).join(name)).ok();
        LEFT_ALONE.iter().map(read).collect()
    }

    /// Checks that no instance of this process remains, and everything else is as before.
    /// Source: docs/sources/trace.md#oracle-12.
    fn check_as_found(&self, pid: u32) {
        assert_eq!(instance_of(pid), None);
        assert_eq!(Host::settings(), self.before);
    }
}

/// Returns the instance that the process has made.
fn instance_of(pid: u32) -> Option<PathBuf> {
    let entries = fs::read_dir(Path::new(TRACEFS).join("instances")).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    paths.find(|path| path.to_str().unwrap().contains(&format!("/nofrag-{pid}-")))
}

/// Options for small buffers and no state of frames: quick.
const QUICK: [&str; 4] = ["--no-frames", "--json", "--buffer-kib", "4096"];

fn command(output: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nofrag"));
    command.env_remove("SUDO_UID").env_remove("SUDO_GID");
    command.arg("record").arg("-o").arg(output).args(QUICK).args(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn record(output: &Path, args: &[&str]) -> (u32, Output) {
    finish(command(output, args).spawn().unwrap())
}

fn finish(child: Child) -> (u32, Output) {
    (child.id(), child.wait_with_output().unwrap())
}

fn json(output: &Output) -> Value {
    check_documented(output)
}

/// Opens the file and reads all of it; returns its metadata, and the number of events of each kind.
fn opened(path: &Path) -> (TraceMeta, [u64; EventKind::COUNT]) {
    let mut trace = trace::open(path).unwrap();
    let mut counts = [0; EventKind::COUNT];
    let mut batch = Vec::new();
    let mut before = 0;
    while trace.events.read(&mut batch).unwrap() {
        for event in batch.drain(..) {
            assert!(event.at >= before, "events are in time order");
            before = event.at;
            counts[event.kind as usize] += 1;
        }
    }
    (trace.meta, counts)
}

/// Waits until the process traces, and returns its instance.
fn wait_until_tracing(pid: u32) -> PathBuf {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if let Some(instance) = instance_of(pid) {
            let on = fs::read_to_string(instance.join("tracing_on")).unwrap_or_default();
            if on.trim() == "1" {
                return instance;
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("process {pid} does not trace");
}

fn send(signal: &str, pid: u32) {
    let status = Command::new("kill").arg(signal).arg(pid.to_string()).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_recording_has_what_it_says_it_has() {
    let Some(host) = Host::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.nofrag");
    let args = ["--events", "all", "--", "sh", "-c", "true; true"];
    let (pid, output) = record(&file, &args);
    host.check_as_found(pid);
    check(&output, 0, &[]);
    let said = json(&output);
    assert_eq!(said["schema"], "nofrag.record");
    assert_eq!((&said["lost"], &said["unreadable"]), (&0.into(), &0.into()));
    assert_eq!(said["command"]["exit_code"], 0);
    let (meta, counts) = opened(&file);
    assert_eq!(said["events"], counts.iter().sum::<u64>());
    for kind in said["by_kind"].as_array().unwrap() {
        let name = EventKind::from_name(kind["name"].as_str().unwrap()).unwrap();
        assert_eq!(kind["events"], counts[name as usize], "{kind}");
    }
    assert_eq!(said["event_bytes"], Recording::open(&file).unwrap().sizes().events);
    let pairs = said["extfrag"].as_array().unwrap().iter();
    let mixed: u64 = pairs.map(|pair| pair["events"].as_u64().unwrap()).sum();
    assert_eq!(mixed, counts[EventKind::ExtFrag as usize]);
    assert!(counts[EventKind::PageAlloc as usize] > 100, "{counts:?}");
    assert!(counts[EventKind::PageFree as usize] > 100, "{counts:?}");
    assert!(counts[EventKind::UnmappedArea as usize] > 10, "{counts:?}");
    assert_eq!(meta.release.as_deref(), said["release"].as_str());
    assert_eq!(meta.clock.as_deref(), Some("mono"));
    assert_eq!(meta.command.as_deref(), Some("sh"));
    assert!(meta.recorder.contains(&(pid as i32)), "{:?}", meta.recorder);
    let start = meta.start().unwrap();
    assert!(matches!(start.moment, Moment::During { begin, end } if begin < end));
    for taken in [start, meta.end().unwrap()] {
        for name in ["version", "zoneinfo", "buddyinfo", "pagetypeinfo", "vmstat", "sysctl"] {
            assert!(taken.files.bytes(name).is_some(), "{name} of {:?}", taken.moment);
        }
    }
    assert!(meta.missing.iter().any(|what| what.contains("kpageflags")), "{:?}", meta.missing);
}

/// Checks that the state of each frame is recorded, from which a replay starts.
#[test]
fn frames_are_eight_bytes_each() {
    let Some(host) = Host::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.nofrag");
    let path = file.to_str().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nofrag"));
    command.args(["record", "-o", path, "--seconds", "0", "--buffer-kib", "4096", "--quiet"]);
    let (pid, output) = finish(command.spawn().unwrap());
    host.check_as_found(pid);
    check(&output, 0, &[]);
    let (meta, _) = opened(&file);
    if meta.missing.iter().any(|what| what.contains("kpage")) {
        return eprintln!("skipped: {:?}", meta.missing);
    }
    let bytes = |name| meta.start().unwrap().files.bytes(name).unwrap().len();
    assert!(bytes("kpageflags") > 0 && bytes("kpageflags") % 8 == 0);
    // A pass over all frames is what a snapshot costs, and nothing asks for their mappings.
    assert_eq!(meta.start().unwrap().files.bytes("kpagecount"), None);
}

#[test]
fn signals_end_a_recording_in_order() {
    let Some(host) = Host::new() else { return };
    let names = "SIGINT SIGTERM SIGHUP SIGQUIT SIGALRM SIGUSR1 SIGUSR2 SIGXCPU";
    for name in names.split(' ') {
        let signal = name.replace("SIG", "-");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.nofrag");
        let child = command(&file, &[]).spawn().unwrap();
        wait_until_tracing(child.id());
        send(&signal, child.id());
        let (pid, output) = finish(child);
        host.check_as_found(pid);
        check(&output, 0, &[]);
        let said = json(&output);
        assert_eq!(said["ended"]["signal"], name);
        let (meta, counts) = opened(&file);
        assert_eq!(said["events"], counts.iter().sum::<u64>());
        assert!(meta.end().is_some(), "{name}");
    }
}

#[test]
fn a_command_gets_the_signal_and_its_end_ends_the_recording() {
    let Some(host) = Host::new() else { return };
    // No key was pressed: a SIGINT that is sent to the recorder does not reach the command.
    for (signal, name, number) in [("-TERM", "SIGTERM", 15), ("-INT", "SIGINT", 2)] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.nofrag");
        let child = command(&file, &["--", "sleep", "100"]).spawn().unwrap();
        wait_until_tracing(child.id());
        std::thread::sleep(Duration::from_secs(1));
        send(signal, child.id());
        let (pid, output) = finish(child);
        host.check_as_found(pid);
        check(&output, 1, &[]);
        let said = json(&output);
        assert_eq!(said["ended"]["signal"], name);
        assert_eq!(said["command"]["signal"], number);
    }
}

/// Checks that a limit on the size of files makes a write fail: by default it would end the process without a chance to
/// clean up.
#[test]
fn a_limit_on_the_size_of_files_ends_the_recording_in_order() {
    let Some(host) = Host::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.nofrag");
    let (_, output) = record(&file, &["--seconds", "0"]);
    check(&output, 0, &[]);
    // For any number of events: half of the rest is written before the first, the other half after the last.
    let sizes = Recording::open(&file).unwrap().sizes();
    let rest = sizes.file - sizes.events;
    // The second limit is reached by the first snapshot, and by the readers after it.
    for limit in [rest * 3 / 4, (rest - sizes.snapshots) / 2 + sizes.snapshots / 4] {
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--fsize={limit}")).arg(env!("CARGO_BIN_EXE_nofrag"));
        limited.args(["record", "--force", "--seconds", "0", "-o"]).arg(&file).args(QUICK);
        limited.stdout(Stdio::piped()).stderr(Stdio::piped());
        let (pid, output) = finish(limited.spawn().unwrap());
        host.check_as_found(pid);
        check(&output, 2, &["the recording was cut short", "no room is left"]);
        assert!(Recording::open(&file).is_ok());
        check_counts_what_is_stored(&output, &file);
    }
}

/// Checks the summary of a recording that was cut short: `counted_but_not_stored` had 96,368 events of which the file
/// had 38,966.
fn check_counts_what_is_stored(output: &Output, file: &Path) {
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (_, counts) = opened(file);
    // The missing end counts as one more, which the kernel did not trace.
    let ends = counts[EventKind::Lost as usize];
    assert_eq!(said["events"], counts.iter().sum::<u64>() - ends);
    for kind in said["by_kind"].as_array().unwrap() {
        let name = EventKind::from_name(kind["name"].as_str().unwrap()).unwrap();
        assert_eq!(kind["events"], counts[name as usize], "{kind}");
    }
    assert!(said["ended"]["failed"].is_string(), "{said}");
}

/// Checks that after SIGKILL the kernel stops tracing by itself, and the next start removes the instance
/// (docs/sources/trace.md#oracle-12).
#[test]
fn kill_9_is_cleaned_up_by_the_next_start() {
    let Some(host) = Host::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("killed.nofrag");
    let mut child = command(&file, &[]).spawn().unwrap();
    let instance = wait_until_tracing(child.id());
    let live = command(&folder.path().join("live.nofrag"), &[]).spawn().unwrap();
    let live_instance = wait_until_tracing(live.id());
    std::thread::sleep(Duration::from_secs(2));
    send("-KILL", child.id());
    child.wait().unwrap();
    if let Ok(on) = fs::read_to_string(instance.join("tracing_on")) {
        assert_eq!(on.trim(), "0", "the kernel stops tracing when its files are closed");
    }
    let (pid, output) = record(&folder.path().join("next.nofrag"), &["--seconds", "0"]);
    check(&output, 0, &[]);
    host.check_as_found(pid);
    assert!(!instance.exists(), "the stale instance is gone");
    assert!(live_instance.exists(), "an instance in use is not touched");
    let removed = json(&output)["removed_stale"].to_string();
    assert!(removed.contains(instance.file_name().unwrap().to_str().unwrap()), "{removed}");
    let (meta, counts) = opened(&file);
    assert!(counts.iter().sum::<u64>() > 0, "what was written before stays readable");
    check_begun(&meta);
    send("-INT", live.id());
    let (pid, output) = finish(live);
    check(&output, 0, &[]);
    host.check_as_found(pid);
}

/// Checks that the formats of events are known of a recording from its beginning on.
fn check_begun(meta: &TraceMeta) {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(meta.release.as_deref(), Some(kernel.trim()));
    let formats = meta.formats.iter().any(|(name, _)| name == "mm_page_alloc");
    assert!(formats, "{:?}", meta.formats.len());
}

/// Kills a recording as soon as its output has any bytes, before it has any snapshot.
#[test]
fn a_recording_that_is_killed_at_once_says_of_which_kernel_it_is() {
    let Some(_host) = Host::new() else { return };
    for kind in ["-o", "--raw"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("killed");
        let mut command = Command::new(env!("CARGO_BIN_EXE_nofrag"));
        command.arg("record").arg(kind).arg(&path).args(QUICK);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let begun = || match kind {
            // The head of the first chunk is written behind its body.
            "-o" => {
                Recording::open(&path).is_ok_and(|recording| !recording.meta().formats.is_empty())
            }
            _ => path.join("cpu0.trace_pipe_raw").exists(),
        };
        while !begun() {
            assert!(child.try_wait().unwrap().is_none(), "it records");
            std::thread::sleep(Duration::from_millis(1));
        }
        send("-KILL", child.id());
        child.wait().unwrap();
        check_begun(&opened(&path).0);
    }
    // Removes the rest.
    let folder = tempfile::tempdir().unwrap();
    check(&record(&folder.path().join("next.nofrag"), &["--seconds", "0"]).1, 0, &[]);
}

/// A small file system that is removed again.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Option<SmallDisk> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=768k", "nofrag-test"]).arg(folder.path());
        let mounted = mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        mounted.then_some(SmallDisk(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_ends_the_recording_and_leaves_a_file_that_opens() {
    let Some(host) = Host::new() else { return };
    let Some(disk) = SmallDisk::new() else {
        return eprintln!("skipped: no tmpfs can be mounted here");
    };
    let file = disk.0.path().join("a.nofrag");
    let child = command(&file, &["--seconds", "60"]).spawn().unwrap();
    let pid = child.id();
    wait_until_tracing(pid);
    let busy = std::thread::spawn(move || {
        // Each process takes some hundred pages and gives them back.
        while instance_of(pid).is_some() {
            let _ = Command::new("true").status();
        }
    });
    let began = Instant::now();
    let (pid, output) = finish(child);
    busy.join().unwrap();
    assert!(began.elapsed() < Duration::from_secs(50), "it does not wait for the time to be over");
    check(&output, 2, &["the recording was cut short"]);
    host.check_as_found(pid);
    let (_, counts) = opened(&file);
    assert!(counts[EventKind::PageAlloc as usize] > 0, "{counts:?}");
    check_counts_what_is_stored(&output, &file);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(said["unstored"].as_u64() > Some(0), "{said}");
}

#[test]
fn a_taken_name_is_refused_and_left_alone() {
    let Some(host) = Host::new() else { return };
    let name = format!("nofrag-test-{}", std::process::id());
    let taken = Path::new(TRACEFS).join("instances").join(&name);
    fs::create_dir(&taken).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.nofrag");
    let (pid, output) = record(&file, &["--seconds", "0", "--instance", &name]);
    assert!(taken.exists());
    fs::remove_dir(&taken).unwrap();
    check(&output, 2, &["an instance of this name already", "--instance NAME", "rmdir"]);
    host.check_as_found(pid);
    assert!(!file.exists());
    let (_, output) = record(&file, &["--seconds", "0", "--instance", &name]);
    check(&output, 0, &[]);
    assert!(!taken.exists(), "a named instance is removed, too");
}

#[test]
fn without_permission_it_says_what_and_why() {
    const NOBODY: u32 = 65_534;
    let Some(_host) = Host::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = copied_into(folder.path());
    let mut command = Command::new(&program);
    command.args(["record", "--seconds", "0", "-o", "/tmp/never-made.nofrag"]);
    let output = command.uid(NOBODY).gid(NOBODY).output().unwrap();
    check(&output, 2, &["permission denied", "only root trace", "run this command as root"]);
    assert!(!Path::new("/tmp/never-made.nofrag").exists());
}

#[test]
fn without_tracefs_it_says_how_to_have_one() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap();
    let output = nofrag(&["record", "--seconds", "0", "--tracefs", empty]);
    let expected = ["no folder `instances`", "mount -t tracefs", "--mount-tracefs"];
    check(&output, 2, &expected);
}

/// Records in a mount namespace of its own, where no tracefs is mounted.
#[test]
fn a_mount_of_our_own_is_seen_by_nobody() {
    let Some(host) = Host::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.nofrag");
    let without = |args: &str| {
        let script = format!(
            "umount -l {TRACEFS}; umount -l /sys/kernel/debug; \
             \"$0\" record --seconds 0 --no-frames --json --buffer-kib 4096 -o \"$1\" {args} || exit $?; \
             grep -q tracefs /proc/self/mounts && exit 9; exit 0"
        );
        let mut unshare = Command::new("unshare");
        unshare.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_nofrag")]).arg(&file);
        unshare.output().unwrap()
    };
    let output = without("");
    if String::from_utf8_lossy(&output.stderr).contains("unshare failed") {
        return eprintln!("skipped: no mount namespace can be made here");
    }
    check(&output, 2, &["no tracefs is mounted", "--mount-tracefs"]);
    check(&without("--mount-tracefs"), 0, &[]);
    opened(&file);
    assert_eq!(Host::settings(), host.before);
}

#[test]
fn a_command_that_fails_or_is_not_there_is_said() {
    let Some(host) = Host::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.nofrag");
    let (pid, output) = record(&file, &["--", "/nonexistent/command"]);
    check(&output, 2, &["/nonexistent/command", "could not be started; nothing was recorded"]);
    host.check_as_found(pid);
    assert!(!file.exists(), "nothing was recorded");
    let (pid, output) = record(&file, &["--", "sh", "-c", "exit 3"]);
    check(&output, 1, &["\"exit_code\": 3"]);
    host.check_as_found(pid);
    let (_, output) = record(&file, &["--seconds", "0"]);
    check(&output, 2, &["exists", "--force"]);
}

/// Returns the names in the folder.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    entries.map(|name| name.into_string().unwrap()).collect()
}

#[test]
fn an_older_recording_is_replaced_only_by_another_one() {
    let Some(_host) = Host::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.nofrag");
    let path = file.to_str().unwrap();
    for output in [["-o", path], ["--raw", path]] {
        let record = |args: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_nofrag"));
            command.arg("record").args(output).args(QUICK).args(args);
            command.output().unwrap()
        };
        let state = || {
            let inside = if file.is_dir() { file.join("start/vmstat") } else { file.clone() };
            fs::read(inside).unwrap()
        };
        check(&record(&["--seconds", "0"]), 0, &[]);
        let before = state();
        let failed = record(&["--force", "--", "/nonexistent/command"]);
        check(&failed, 2, &["nothing was recorded"]);
        assert_eq!(state(), before, "nothing took its place");
        assert_eq!(names_in(folder.path()), ["a.nofrag"]);
        check(&record(&["--seconds", "0", "--force"]), 0, &[]);
        assert_ne!(state(), before);
        assert_eq!(names_in(folder.path()), ["a.nofrag"]);
        opened(&file);
        if file.is_dir() {
            fs::remove_dir_all(&file).unwrap()
        } else {
            fs::remove_file(&file).unwrap()
        }
    }
}

#[test]
fn json_stands_alone_beside_a_command_that_prints() {
    let Some(_host) = Host::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (_, output) = record(&folder.path().join("a.nofrag"), &["--", "echo", "hello"]);
    check(&output, 0, &[]);
    assert_eq!(json(&output)["command"]["exit_code"], 0);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "hello\n");
}

#[test]
fn bad_use_is_answered() {
    check(&nofrag(&["record", "--events", "pagez"]), 2, &["\"pagez\"", "sets: pages, buddy"]);
    check(&nofrag(&["record", "--seconds", "-1"]), 2, &["unexpected argument"]);
    check(&nofrag(&["record", "--seconds", "x"]), 2, &["not a number of seconds"]);
    check(&nofrag(&["record", "--with", "secrets"]), 2, &["names, maps, addresses, arguments"]);
    check(&nofrag(&["record", "--help"]), 0, &["Examples:", "Exit status:", "kill -9"]);
}

/// Records a folder of raw pages, and checks that the reader of such folders opens it.
#[test]
fn a_folder_of_raw_pages_opens() {
    let Some(host) = Host::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("raw");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nofrag"));
    command.args(["record", "--seconds", "0.2", "--raw"]).arg(&raw).args(QUICK);
    let (pid, output) = finish(command.stdout(Stdio::piped()).spawn().unwrap());
    check(&output, 0, &[]);
    host.check_as_found(pid);
    let said = json(&output);
    let (meta, counts) = opened(&raw);
    assert_eq!(said["events"], counts.iter().sum::<u64>());
    assert!(matches!(meta.start().unwrap().moment, Moment::During { .. }));
    assert!(meta.end().is_some());
}

/// A CPU that is put back when this is dropped.
struct Offline(PathBuf);

impl Drop for Offline {
    fn drop(&mut self) {
        fs::write(&self.0, "1").unwrap();
    }
}

#[test]
#[ignore = "takes a CPU of this host offline for some seconds"]
fn a_cpu_may_be_offline_and_come_back() {
    let Some(host) = Host::new() else { return };
    let online = PathBuf::from("/sys/devices/system/cpu/cpu1/online");
    if fs::write(&online, "0").is_err() {
        return eprintln!("skipped: CPU 1 cannot be taken offline");
    }
    let offline = Offline(online);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("offline.nofrag");
    let (pid, output) = record(&file, &["--seconds", "0.2"]);
    check(&output, 0, &[]);
    host.check_as_found(pid);
    opened(&file);
    let file = folder.path().join("back.nofrag");
    let child = command(&file, &["--seconds", "4"]).spawn().unwrap();
    wait_until_tracing(child.id());
    std::thread::sleep(Duration::from_secs(1));
    drop(offline);
    let busy = Command::new("taskset").args(["-c", "1", "sh", "-c", "true; true"]).status();
    let (pid, output) = finish(child);
    check(&output, 0, &[]);
    host.check_as_found(pid);
    let mut trace = trace::open(&file).unwrap();
    let (mut batch, mut on_cpu_1) = (Vec::new(), 0);
    while trace.events.read(&mut batch).unwrap() {
        on_cpu_1 += batch.drain(..).filter(|event| event.cpu == 1).count();
    }
    assert!(
        on_cpu_1 > 0 || busy.is_err(),
        "what happens on the CPU after it came back is recorded"
    );
}

/// Reads the files in which probes would be left behind.
fn probes() -> String {
    let read = |name: &str| fs::read_to_string(Path::new(TRACEFS).join(name)).unwrap_or_default();
    ["dynamic_events", "kprobe_events", "error_log"].map(read).join("|")
}

/// Threads have stacks of vmalloc's, which takes their pages from the bulk interface.
const FORKS: &str = "for i in $(seq 40); do sh -c 'sleep 0.02; true' & done; wait; \
                     for i in $(seq 40); do sh -c 'sleep 0.02; true' & done; wait";

#[test]
fn the_bulk_interface_is_recorded_and_its_probes_go_however_it_ends() {
    let Some(host) = Host::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bulk.nofrag");
    let before = probes();
    let (pid, output) = record(&path, &["--bulk", "--", "sh", "-c", FORKS]);
    host.check_as_found(pid);
    assert_eq!(probes(), before);
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !Path::new(TRACEFS).join("kprobe_events").exists() {
        // The message has advice, and that works.
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("CONFIG_KPROBE_EVENTS"), "{stderr}");
        assert!(stderr.contains("Record without --bulk"), "{stderr}");
        assert!(!path.exists());
        let (_, output) = record(&path, &["--seconds", "0.1"]);
        assert!(output.status.code().is_some_and(|code| code < 2), "{output:?}");
        return eprintln!("skipped: this kernel has no probes through tracefs: {stderr}");
    }
    if output.status.code() == Some(2) {
        assert!(
            stderr.contains("--bulk: ") && stderr.contains("Record without --bulk"),
            "{stderr}"
        );
        return eprintln!("skipped: {stderr}");
    }
    let (meta, counts) = opened(&path);
    assert!(meta.formats.iter().any(|(name, _)| name == "nofrag_bulk_pages"));
    let of = |kind: EventKind| counts[kind as usize];
    assert!(of(EventKind::BulkCall) > 0, "{counts:?}");
    assert!(of(EventKind::BulkPage) >= of(EventKind::BulkCall), "{counts:?}");
    for (signal, code) in [("-INT", Some(0)), ("-TERM", Some(0)), ("-KILL", None)] {
        let child = command(&path, &["--force", "--bulk"]).spawn().unwrap();
        wait_until_tracing(child.id());
        assert_ne!(probes(), before, "they are there while it records");
        send(signal, child.id());
        let (pid, output) = finish(child);
        assert_eq!(output.status.code(), code, "{output:?}");
        if code.is_none() {
            // The next start removes the rest, whether it wants probes or not.
            record(&path, &["--force", "--seconds", "0.1"]);
        }
        host.check_as_found(pid);
        assert_eq!(probes(), before, "{signal}");
    }
}

/// The user who calls sudo in these tests: nobody.
const CALLER: u32 = 65_534;

/// Makes a folder of the user who calls sudo.
fn callers_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    chown(folder.path(), Some(CALLER), Some(CALLER)).unwrap();
    folder
}

/// Returns the command as if a user had called `sudo nofrag record`.
fn under_sudo(output: &Path, args: &[&str]) -> Command {
    let mut command = command(output, args);
    command.env("SUDO_UID", CALLER.to_string()).env("SUDO_GID", CALLER.to_string());
    command.env("HOME", "/root");
    command
}

/// Returns the process that keeps root's rights for this one.
fn keeper_of(pid: u32) -> u32 {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        let names = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name());
        let mut pids = names.filter_map(|name| name.to_str()?.parse::<u32>().ok());
        let is_child = |child: &u32| status(&child.to_string(), "PPid:") == [pid.to_string()];
        if let Some(child) = pids.find(is_child) {
            return child;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("process {pid} starts none");
}

/// Returns a line of the `status` of a process or thread; empty if it has ended.
fn status(of: &str, key: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{of}/status")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
    line.split_whitespace().skip(1).map(str::to_owned).collect()
}

#[test]
fn under_sudo_a_recording_is_its_callers() {
    let Some(host) = Host::new() else { return };
    let folder = callers_folder();
    let file = folder.path().join("a.nofrag");
    let script = "id -u; id -G; grep -E '^(CapPrm|CapEff|NoNewPrivs)' /proc/self/status; \
                  ls -l /proc/self/fd; echo home $HOME; touch \"$0\"";
    let made = folder.path().join("made");
    let args = ["--", "sh", "-c", script, made.to_str().unwrap()];
    let (pid, output) = finish(under_sudo(&file, &args).spawn().unwrap());
    check(&output, 0, &[]);
    host.check_as_found(pid);
    // Output of the command goes to standard error beside JSON.
    let printed = String::from_utf8(output.stderr.clone()).unwrap();
    let words: Vec<&str> = printed.split_whitespace().collect();
    let expected = ["65534", "65534", "CapPrm:", "0000000000000000", "CapEff:", "0000000000000000"];
    assert_eq!(words[..6], expected, "{printed}");
    assert_eq!(words[6..8], ["NoNewPrivs:", "1"], "{printed}");
    assert!(!printed.contains("tracing") && !printed.contains("socket"), "{printed}");
    assert!(!printed.contains("home /root"), "{printed}");
    for path in [&file, &made] {
        let found = fs::metadata(path).unwrap();
        assert_eq!((found.uid(), found.gid()), (CALLER, CALLER), "{}", path.display());
    }
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    let (meta, counts) = opened(&file);
    assert!(counts[EventKind::PageAlloc as usize] > 100, "{counts:?}");
    // Only root may read these.
    let start = meta.start().unwrap();
    assert!(start.files.bytes("pagetypeinfo").is_some());
    let memory = start.files.text("iomem").unwrap();
    assert!(memory.lines().any(|line| !line.starts_with("00000000-00000000")), "{memory}");
    assert!(
        meta.recorder.len() > 1,
        "the process that keeps the rights is known: {:?}",
        meta.recorder
    );
}

/// Checks that all files from which a replay starts are there, although the recorder itself may not read them.
#[test]
fn under_sudo_the_state_of_each_frame_is_read() {
    let Some(host) = Host::new() else { return };
    let folder = callers_folder();
    let file = folder.path().join("a.nofrag");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nofrag"));
    command.args(["record", "--seconds", "0", "--buffer-kib", "4096", "--quiet", "-o"]).arg(&file);
    command.env("SUDO_UID", CALLER.to_string()).env("SUDO_GID", CALLER.to_string());
    let (pid, output) = finish(command.spawn().unwrap());
    host.check_as_found(pid);
    check(&output, 0, &[]);
    let (meta, _) = opened(&file);
    if meta.missing.iter().any(|what| what.contains("kpage") && !what.contains("ermission")) {
        return eprintln!("skipped: {:?}", meta.missing);
    }
    let bytes = |name| meta.start().unwrap().files.bytes(name).unwrap().len();
    assert!(bytes("kpageflags") > 0);
}

#[test]
fn only_the_keeper_has_rights_while_it_records() {
    let Some(host) = Host::new() else { return };
    let folder = callers_folder();
    let child = under_sudo(&folder.path().join("a.nofrag"), &[]).spawn().unwrap();
    let keeper = keeper_of(child.id());
    wait_until_tracing(keeper);
    let tasks = format!("{}/task", child.id());
    for task in fs::read_dir(Path::new("/proc").join(&tasks)).unwrap() {
        let task = format!("{tasks}/{}", task.unwrap().file_name().to_str().unwrap());
        let check = |key: &str, expected: &[&str]| {
            // The thread that reads the state at the start may just have ended.
            let found = status(&task, key);
            assert!(found.is_empty() || found == expected, "{key} {found:?}");
        };
        check("Uid:", &["65534"; 4]);
        check("Gid:", &["65534"; 4]);
        check("Groups:", &["65534"]);
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            check(set, &["0000000000000000"]);
        }
        check("NoNewPrivs:", &["1"]);
    }
    assert_eq!(status(&child.id().to_string(), "Uid:"), ["65534"; 4]);
    assert_eq!(status(&keeper.to_string(), "Uid:"), ["0"; 4]);
    // A signal that asks to end is for the recorder.
    send("-TERM", keeper);
    send("-INT", child.id());
    let (pid, output) = finish(child);
    check(&output, 0, &[]);
    assert_eq!(json(&output)["ended"]["signal"], "SIGINT");
    host.check_as_found(pid);
    host.check_as_found(keeper);
}

#[test]
fn a_killed_recorder_is_cleaned_up_after_at_once() {
    let Some(host) = Host::new() else { return };
    let folder = callers_folder();
    let file = folder.path().join("a.nofrag");
    let mut child = under_sudo(&file, &[]).spawn().unwrap();
    let keeper = keeper_of(child.id());
    let instance = wait_until_tracing(keeper);
    std::thread::sleep(Duration::from_secs(2));
    send("-KILL", child.id());
    child.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while instance.exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    host.check_as_found(keeper);
    let (_, counts) = opened(&file);
    assert!(counts.iter().sum::<u64>() > 0, "what was written before stays readable");
}

#[test]
fn without_its_keeper_a_recording_is_cut_short() {
    let Some(host) = Host::new() else { return };
    let folder = callers_folder();
    let file = folder.path().join("a.nofrag");
    let child = under_sudo(&file, &["--seconds", "60"]).spawn().unwrap();
    let keeper = keeper_of(child.id());
    let instance = wait_until_tracing(keeper);
    std::thread::sleep(Duration::from_secs(2));
    send("-KILL", keeper);
    let began = Instant::now();
    let (_, output) = finish(child);
    assert!(began.elapsed() < Duration::from_secs(50), "it does not wait for the time to be over");
    check(&output, 2, &["the recording was cut short", "the process that keeps root's rights"]);
    let (_, counts) = opened(&file);
    assert!(counts.iter().sum::<u64>() > 0);
    if instance.exists() {
        let on = fs::read_to_string(instance.join("tracing_on")).unwrap_or_default();
        assert_eq!(on.trim(), "0", "the kernel stops tracing when its files are closed");
    }
    let (pid, output) = record(&folder.path().join("next.nofrag"), &["--seconds", "0"]);
    check(&output, 0, &[]);
    host.check_as_found(pid);
    host.check_as_found(keeper);
}

#[test]
fn nothing_is_written_where_the_caller_may_not() {
    let Some(host) = Host::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.nofrag");
    for output in ["-o", "--raw"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nofrag"));
        command.args(["record", "--seconds", "0", output]).arg(&file).args(QUICK);
        command.env("SUDO_UID", CALLER.to_string()).env("SUDO_GID", CALLER.to_string());
        let refused = command.output().unwrap();
        check(&refused, 2, &["written as user 65534, who called sudo", "--as-root"]);
        assert_eq!(names_in(folder.path()), Vec::<String>::new());
    }
    let (pid, output) =
        finish(under_sudo(&file, &["--seconds", "0", "--as-root"]).spawn().unwrap());
    check(&output, 0, &[]);
    host.check_as_found(pid);
    let found = fs::metadata(&file).unwrap();
    assert_eq!((found.uid(), found.permissions().mode() & 0o7777), (0, 0o600));
}

/// Checks that private data is recorded on request alone: a recording had the names of all processes, their mappings,
/// addresses and passwords of command lines, and every user could read it.
#[test]
fn what_may_be_private_is_left_out_unless_it_is_asked_for() {
    let Some(_host) = Host::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    for raw in [false, true] {
        let file = folder.path().join(if raw { "raw" } else { "a.nofrag" });
        let record = |args: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_nofrag"));
            command.args(["record", "--force", if raw { "--raw" } else { "-o" }]).arg(&file);
            command.args(QUICK).args(["--events", "all"]).args(args);
            command.args(["--", "/bin/sh", "-c", "true", "password"]);
            let output = command.output().unwrap();
            let said = json(&output);
            // A host at work makes more events than small buffers hold: some are lost then, and the status says so.
            let is_whole = said["lost"] == 0 && said["gaps"] == 0;
            check(&output, i32::from(!is_whole), &[]);
            (said, opened(&file).0)
        };
        let (said, meta) = record(&[]);
        let all = serde_json::json!(["names", "maps", "addresses", "arguments"]);
        assert_eq!(said["left_out"], all);
        assert!(said["missing"].to_string().contains("--with names,maps,addresses,arguments"));
        assert_eq!(said["command"]["words"], serde_json::json!(["sh"]));
        assert_eq!(meta.names, []);
        let start = meta.start().unwrap();
        assert!(!start.files.iter().any(|(name, _)| name.starts_with("maps/")));
        if let Some(areas) = start.files.text("vmallocinfo") {
            assert!(areas.lines().all(|line| line.starts_with("0x0000000000000000-")), "{areas}");
        }
        let (said, meta) = record(&["--with", "maps,arguments"]);
        assert_eq!(said["left_out"], serde_json::json!(["names", "addresses"]));
        assert!(said["command"]["words"].to_string().contains("password"));
        assert!(meta.start().unwrap().files.iter().any(|(name, _)| name.starts_with("maps/")));
        let (said, meta) = record(&["--with", "all"]);
        assert_eq!(said["left_out"], serde_json::json!([]));
        // A folder of raw pages has neither names nor the command.
        assert_eq!(meta.names.is_empty(), raw);
    }
}

#[test]
fn of_two_recorders_of_one_file_the_second_is_refused() {
    let Some(host) = Host::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.nofrag");
    let first = command(&file, &[]).spawn().unwrap();
    wait_until_tracing(first.id());
    while !file.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (_, output) = record(&file, &["--seconds", "0", "--force"]);
    check(&output, 2, &["another recording is being written there"]);
    let (_, output) = record(&file, &["--seconds", "0"]);
    check(&output, 2, &["exists", "--force"]);
    send("-INT", first.id());
    let (pid, output) = finish(first);
    check(&output, 0, &[]);
    host.check_as_found(pid);
    let (_, counts) = opened(&file);
    assert_eq!(json(&output)["events"], counts.iter().sum::<u64>());
    let (_, output) = record(&file, &["--seconds", "0", "--force"]);
    check(&output, 0, &[]);
}

#[test]
fn the_time_of_a_command_is_bounded() {
    let Some(host) = Host::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let stubborn = "trap '' TERM; while :; do sleep 0.1; done";
    for (words, signal) in [(["sleep", "100", ""], 15), (["sh", "-c", stubborn], 9)] {
        let file = folder.path().join(format!("{signal}.nofrag"));
        let words = words.iter().copied().filter(|word| !word.is_empty());
        let args: Vec<&str> = ["--seconds", "0.5", "--"].into_iter().chain(words).collect();
        let began = Instant::now();
        let (pid, output) = record(&file, &args);
        assert!(began.elapsed() < Duration::from_secs(60), "{args:?}");
        check(&output, 0, &[]);
        host.check_as_found(pid);
        let said = json(&output);
        assert_eq!(
            (&said["ended"], &said["command"]["signal"]),
            (&"elapsed".into(), &signal.into())
        );
        let command = said["command"]["pid"].as_u64().unwrap();
        assert!(!Path::new(&format!("/proc/{command}")).exists(), "it was waited for");
        assert!(opened(&file).0.end().is_some());
    }
    let (_, output) =
        record(&folder.path().join("b"), &["--seconds", "60", "--", "sh", "-c", "exit 3"]);
    check(&output, 1, &["\"exit_code\": 3", "\"ended\": \"command\""]);
}

#[test]
fn buffers_beyond_memory_are_refused() {
    let Some(host) = Host::new() else { return };
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let line = meminfo.lines().find(|line| line.starts_with("MemAvailable:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    // The most that can be asked for.
    if kib >= 16 << 20 {
        let cpus = std::thread::available_parallelism().unwrap().get() as u64;
        if kib / cpus >= 16 << 20 {
            return eprintln!("skipped: this machine has room for the largest buffers");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.nofrag");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nofrag"));
    command.args(["record", "--seconds", "0", "--buffer-kib", "16777216", "-o"]).arg(&file);
    let (pid, output) = finish(command.stderr(Stdio::piped()).spawn().unwrap());
    check(&output, 2, &["16777216 KiB for each of", "KiB of memory are available", "--buffer-kib"]);
    host.check_as_found(pid);
    assert!(!file.exists());
}
