//! Takes a snapshot of the host.
//!
//! Small files come first: free lists and counters of one moment, some milliseconds. Then every frame's state is read,
//! some seconds on a large host; a frame with an event meanwhile takes its state from the events. A recorder in a hurry
//! leaves the frames out. No setting is changed to see more: with `kernel.kptr_restrict` at 0 addresses of vmalloc stay
//! hashed. A file that does not answer is given up and named, as by every reader of files ([`source`](crate::source)).

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::clock::thread_cpu_seconds;
use super::whole::{Pieces, prepared, read_open};
use crate::machine::scrub;
use crate::snapshot::{Files, ZoneInfo, place_of, zoneinfo};
use crate::source::Root;
use crate::source::machine::{VM, vm_settings};

/// The choice whether the state of every frame is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Frames {
    /// The state is read: eight bytes of flags for each frame.
    #[default]
    Read,
    /// The state is left out: the lengths of the free lists are known, but not the places of free blocks in memory.
    LeftOut,
}

/// The parts of a snapshot that are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptParts {
    pub(super) frames: Frames,
    /// True if addresses of vmalloc areas and of physical memory are kept.
    pub(super) addresses: bool,
}

/// The name of a file in [`Files`], and what is not known without it.
type Source = (&'static str, &'static str);

const SMALL: [Source; 12] = [
    ("version", "the kernel's release"),
    ("buddyinfo", "free blocks by order cannot be compared"),
    ("pagetypeinfo", "free blocks and pageblocks by type are guessed"),
    ("zoneinfo", "zones and watermarks are not known: no replay"),
    ("vmstat", "what the kernel counted cannot be compared"),
    ("meminfo", "how memory is used is not known"),
    ("iomem", "holes in physical memory are guessed"),
    ("extfrag_index", "the kernel's own indices are not compared"),
    ("unusable_index", "the kernel's own indices are not compared"),
    ("transparent_hugepage_enabled", "whether huge pages were used is not known"),
    ("transparent_hugepage_defrag", "how hard huge pages were tried for is not known"),
    ("vmallocinfo", "which vmalloc areas there were is not known"),
];

const FRAMES: Source = (
    "kpageflags",
    "where free blocks lie and what is in use is not known: a replay starts from free lists alone",
);

/// Memory for the state of each frame, taken before tracing begins so that it is not in the recording.
#[derive(Debug, Default)]
pub(super) struct FrameMemory(Vec<u8>);

impl FrameMemory {
    /// Takes memory for all frames of this host, as far as its zones tell; further memory is taken when it is needed.
    pub(super) fn prepare(root: &Root, frames: Frames) -> FrameMemory {
        let text = match frames {
            Frames::Read => root.read("proc/zoneinfo").unwrap_or_default(),
            Frames::LeftOut => return FrameMemory::default(),
        };
        let ((zones, _), _) = zoneinfo(&String::from_utf8_lossy(&text));
        let bytes = zones
            .iter()
            .filter_map(ZoneInfo::end_pfn)
            .max()
            .and_then(|end| usize::try_from(end.checked_mul(8)?).ok());
        FrameMemory(prepared(bytes.unwrap_or(0)))
    }
}

/// The files of a snapshot that could be read, with a sentence on each that could not.
#[derive(Debug, Default)]
pub(super) struct HostState {
    pub(super) files: Files,
    pub(super) missing: Vec<String>,
    /// CPU time of the threads that read the files.
    pub(super) cpu_seconds: f64,
    /// Thread IDs of this process at the time of reading.
    pub(super) threads: Vec<i32>,
}

impl HostState {
    /// Reads the files, which `open` opens by their names; files of frames only while `hurry` is false. Never fails:
    /// files that could not be read are in [`missing`](Self::missing).
    pub(super) fn read(
        root: &Root,
        open: impl Fn(&str) -> io::Result<File>,
        kept: KeptParts,
        memory: FrameMemory,
        hurry: &AtomicBool,
    ) -> HostState {
        let mut state = HostState::default();
        for file @ (name, _) in SMALL {
            let scrubbed = |bytes| match kept.addresses {
                true => bytes,
                false => without_addresses(name, bytes),
            };
            let read = open(name)
                .and_then(|opened| root.in_time(place_of(name), move |_| read_open(opened)));
            state.add(root, file, read.map(scrubbed));
        }
        match root.in_time(VM, vm_settings) {
            Ok(settings) => state.files.insert("sysctl", settings),
            Err(cause) => state.miss(&root.path(VM), &cause, "the settings of vm are not known"),
        }
        match kept.frames {
            Frames::Read => {
                let pieces = open(FRAMES.0).map(|opened| Pieces::new(opened, memory.0));
                let read =
                    pieces.and_then(|pieces| in_pieces(root, place_of(FRAMES.0), pieces, hurry));
                state.add(root, FRAMES, read);
            }
            Frames::LeftOut => {
                state.missing.push(format!("{}: left out as asked: {}", FRAMES.0, FRAMES.1))
            }
        }
        // The files were read by this thread's worker. One that was given up is not counted.
        let workers = root.in_time("proc", |_| Ok(thread_cpu_seconds())).unwrap_or(0.0);
        state.cpu_seconds = thread_cpu_seconds() + workers;
        state.threads = own_threads();
        state
    }

    fn add(&mut self, root: &Root, (name, costs): Source, read: io::Result<Vec<u8>>) {
        match read {
            Ok(bytes) => self.files.insert(name, bytes),
            Err(cause) => self.miss(&root.path(place_of(name)), &cause, costs),
        }
    }

    fn miss(&mut self, path: &Path, cause: &io::Error, costs: &str) {
        self.missing.push(format!("{}: {cause}: {costs}", path.display()));
    }

    /// Adds the mappings of every process. A process that ends meanwhile is skipped, and so are the kernel's own.
    pub(super) fn add_maps(&mut self, root: &Root, open: impl Fn(u32) -> io::Result<File>) {
        let Ok(entries) = fs::read_dir(root.path("proc")) else { return };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        for pid in names.filter_map(|name| name.parse::<u32>().ok()) {
            let read = |maps| root.in_time(&format!("proc/{pid}/maps"), move |_| read_open(maps));
            match open(pid).and_then(read) {
                Ok(maps) if !maps.is_empty() => self.files.insert(format!("maps/{pid}"), maps),
                _ => {}
            }
        }
    }
}

/// Reads a file of frames in pieces, with a time limit for each piece. Gives up when `hurry` becomes true.
fn in_pieces(
    root: &Root,
    path: &str,
    mut pieces: Pieces,
    hurry: &AtomicBool,
) -> io::Result<Vec<u8>> {
    loop {
        if hurry.load(Ordering::Relaxed) {
            return Err(io::Error::other("a signal came before it was read"));
        }
        let more;
        (pieces, more) = root.in_time(path, move |_| {
            let more = pieces.next()?;
            Ok((pieces, more))
        })?;
        if !more {
            return Ok(pieces.into_bytes());
        }
    }
}

/// Returns the thread IDs of this process.
pub(super) fn own_threads() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

/// Returns the file without addresses: those of vmalloc areas become zeros, and of physical memory only RAM stays.
fn without_addresses(name: &str, bytes: Vec<u8>) -> Vec<u8> {
    let scrub = match name {
        "vmallocinfo" => scrub::vmallocinfo,
        "iomem" => scrub::iomem,
        _ => return bytes,
    };
    scrub(&String::from_utf8_lossy(&bytes)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_its_cost() {
        let folder = tempfile::tempdir().unwrap();
        let vm = folder.path().join("proc/sys/vm");
        fs::create_dir_all(&vm).unwrap();
        fs::write(vm.join("swappiness"), "60\n").unwrap();
        fs::write(vm.join("lowmem_reserve_ratio"), "256\t256\t32\t0\t0\n").unwrap();
        fs::write(vm.join("stat_refresh"), "").unwrap();
        fs::write(folder.path().join("proc/kpageflags"), vec![7; (2 << 20) + 8]).unwrap();
        let root = Root::Captured(folder.path().to_owned());
        let memory = FrameMemory::prepare(&root, Frames::Read);
        let calm = AtomicBool::new(false);
        let read = |frames, memory, hurry| {
            let open = |name: &str| File::open(root.path(place_of(name)));
            HostState::read(&root, open, KeptParts { frames, addresses: false }, memory, hurry)
        };
        let state = read(Frames::Read, memory, &calm);
        assert_eq!(
            state.files.text("sysctl").unwrap(),
            "lowmem_reserve_ratio 256\t256\t32\t0\t0\nswappiness 60\n"
        );
        assert_eq!(state.files.bytes("kpageflags").unwrap().len(), (2 << 20) + 8);
        assert_eq!(state.missing.len(), SMALL.len());
        let missing = state.missing.join("\n");
        assert!(missing.contains("zones and watermarks are not known: no replay"), "{missing}");
        let without = read(Frames::LeftOut, FrameMemory::default(), &calm);
        assert_eq!(without.files.bytes("kpageflags"), None);
        assert_eq!(without.missing.len(), SMALL.len() + 1);
        let hurry = AtomicBool::new(true);
        let state = read(Frames::Read, FrameMemory::default(), &hurry);
        assert_eq!(state.files.bytes("kpageflags"), None);
        assert!(state.files.text("sysctl").is_some(), "what is small is read all the same");
        let missing = state.missing.join("\n");
        assert!(missing.contains("kpageflags: a signal came before it was read"), "{missing}");
    }

    #[test]
    fn a_file_that_does_not_answer_is_given_up_and_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("proc")).unwrap();
        fs::write(folder.path().join("proc/version"), "Linux version 6.1.0").unwrap();
        let root = Root::Captured(folder.path().to_owned());
        // No writer ever comes.
        let (hangs, _open) = rustix::pipe::pipe().unwrap();
        let open = |name: &str| match name {
            "buddyinfo" => Ok(File::from(hangs.try_clone()?)),
            _ => File::open(root.path(place_of(name))),
        };
        let kept = KeptParts { frames: Frames::LeftOut, addresses: false };
        let calm = AtomicBool::new(false);
        let state = HostState::read(&root, open, kept, FrameMemory::default(), &calm);
        assert_eq!(state.files.release().as_deref(), Some("6.1.0"));
        let missing = state.missing.join("\n");
        assert!(missing.contains("proc/buddyinfo: it did not answer within 2 s"), "{missing}");
        let name = |thread: &i32| fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
        let names = state.threads.iter().flat_map(name).collect::<String>();
        assert!(names.contains("nofrag-files"), "who waits is known as ours: {names}");
    }

    #[test]
    fn addresses_are_recorded_only_where_they_are_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("proc")).unwrap();
        let areas = "0xffffc90000000000-0xffffc90000005000   20480 f+0x1/0x2 vmalloc\n";
        fs::write(folder.path().join("proc/vmallocinfo"), areas).unwrap();
        let memory = "00001000-0009fbff : System RAM\n  00002000-00003fff : Kernel code\n";
        fs::write(folder.path().join("proc/iomem"), memory).unwrap();
        let root = Root::Captured(folder.path().to_owned());
        let read = |addresses| {
            let open = |name: &str| File::open(root.path(place_of(name)));
            let kept = KeptParts { frames: Frames::LeftOut, addresses };
            let calm = AtomicBool::new(false);
            let files = HostState::read(&root, open, kept, FrameMemory::default(), &calm).files;
            ["vmallocinfo", "iomem"].map(|name| files.text(name).unwrap().into_owned())
        };
        assert_eq!(read(true), [areas, memory]);
        let [areas, memory] = read(false);
        assert!(areas.contains("f+0x1/0x2") && !areas.contains("ffffc9"), "{areas}");
        assert_eq!(memory, "00001000-0009fbff : System RAM\n");
    }
}
