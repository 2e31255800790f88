//! `nofrag record` on the kernel on which the tests run. Skipped, with the reason printed, where that cannot be traced.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nofrag_host::recording::Recording;
use nofrag_host::trace::{self, EventKind, Moment, TraceMeta};
use serde_json::Value;

use crate::json::check_documented;
use crate::support::{check, nofrag};

const TRACEFS: &str = "/sys/kernel/tracing";

/// What a recording must leave as it was, whatever happens to it.
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
    /// `None`, with the reason printed, where nothing can be traced.
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

    /// Oracle 12: no instance of this process is left, and everything else is as it was.
    fn check_as_found(&self, pid: u32) {
        assert_eq!(instance_of(pid), None);
        assert_eq!(Host::settings(), self.before);
    }
}

/// The instance that the process has made.
fn instance_of(pid: u32) -> Option<PathBuf> {
    let entries = fs::read_dir(Path::new(TRACEFS).join("instances")).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    paths.find(|path| path.to_str().unwrap().contains(&format!("/nofrag-{pid}-")))
}

/// Small buffers and no state of frames: quick.
const QUICK: [&str; 4] = ["--no-frames", "--json", "--buffer-kib", "4096"];

fn command(output: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nofrag"));
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

/// Opens the file and reads all of it: what is known, and how many events of each kind there are.
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
    assert_eq!(meta.command.as_deref(), Some("sh -c true; true"));
    assert!(meta.recorder.contains(&(pid as i32)), "{:?}", meta.recorder);
    let start = meta.start().unwrap();
    assert!(matches!(start.moment, Moment::During { begin, end } if begin < end));
    let maps = start.files.iter().filter(|(name, _)| name.starts_with("maps/")).count();
    assert!(maps > 0, "what is mapped is known where mappings are traced");
    for taken in [start, meta.end().unwrap()] {
        for name in ["version", "zoneinfo", "buddyinfo", "pagetypeinfo", "vmstat", "sysctl"] {
            assert!(taken.files.bytes(name).is_some(), "{name} of {:?}", taken.moment);
        }
    }
    assert!(meta.missing.iter().any(|what| what.contains("kpageflags")), "{:?}", meta.missing);
}

/// The state of each frame: what a replay starts from.
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
    assert_eq!(bytes("kpageflags") % 8, 0);
    assert_eq!(bytes("kpageflags"), bytes("kpagecount"));
}

#[test]
fn t12_signals_end_a_recording_in_order() {
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
    // Nobody has pressed a key: whoever sends SIGINT to the recorder does not reach the command.
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

/// A limit that would end the process without a chance to clean up makes a write fail instead.
#[test]
fn a_limit_on_the_size_of_files_ends_the_recording_in_order() {
    let Some(host) = Host::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.nofrag");
    let (_, output) = record(&file, &["--seconds", "0"]);
    check(&output, 0, &[]);
    let bytes = json(&output)["bytes"].as_u64().unwrap();
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--fsize={}", bytes * 3 / 4)).arg(env!("CARGO_BIN_EXE_nofrag"));
    limited.args(["record", "--force", "--seconds", "0", "-o"]).arg(&file).args(QUICK);
    limited.stdout(Stdio::piped()).stderr(Stdio::piped());
    let (pid, output) = finish(limited.spawn().unwrap());
    host.check_as_found(pid);
    check(&output, 2, &["the recording was cut short", "no room is left"]);
    assert!(Recording::open(&file).is_ok());
}

/// Oracle 12: after SIGKILL the kernel stops tracing by itself, and the next start removes the instance.
#[test]
fn t12_kill_9_is_cleaned_up_by_the_next_start() {
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
    let (_, counts) = opened(&file);
    assert!(counts.iter().sum::<u64>() > 0, "what was written before stays readable");
    send("-INT", live.id());
    let (pid, output) = finish(live);
    check(&output, 0, &[]);
    host.check_as_found(pid);
}

/// A small file system that is taken away again.
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
    let program = folder.path().join("nofrag");
    fs::copy(env!("CARGO_BIN_EXE_nofrag"), &program).unwrap();
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

/// In a mount namespace of its own, where nothing is mounted that one could trace with.
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

/// The name of everything in the folder.
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
    check(&nofrag(&["record", "--seconds", "1", "--", "true"]), 2, &["cannot be used with"]);
    check(&nofrag(&["record", "--help"]), 0, &["Examples:", "Exit status:", "kill -9"]);
}

/// The same events as raw pages, which the reader of such folders opens.
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

/// Puts a CPU back.
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

/// Files in which probes would be left behind.
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
        // It is said what to do, and that does work.
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
            // The next start removes what is left, whether it wants probes or not.
            record(&path, &["--force", "--seconds", "0.1"]);
        }
        host.check_as_found(pid);
        assert_eq!(probes(), before, "{signal}");
    }
}
