//! The report on machines that are recorded, captured, and on this one.

use std::fs;
use std::path::Path;

use nofrag_host::machine::capture::{Choices, Private, capture};
use nofrag_host::machine::huge::Basis;
use nofrag_host::machine::{Frames, Machine, Sources, read, survey};
use nofrag_host::snapshot::Files;
use nofrag_host::source::Root;

fn of(files: Files) -> Machine {
    survey(&Sources::of_files(files)).unwrap()
}

/// Returns the root of a captured host.
fn captured(name: &str) -> Root {
    Root::Captured(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/hosts").join(name))
}

/// Returns the files of a snapshot of the recorded guest.
fn recorded(
    which: fn(&nofrag_host::trace::TraceMeta) -> Option<&nofrag_host::trace::TakenSnapshot>,
) -> Files {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag");
    let trace = nofrag_host::trace::open(&file).expect("the recording is in the repository");
    which(&trace.meta).expect("it has both snapshots").files.clone()
}

/// Computes the outlook by each of the three bases: they agree in the known facts, and a better basis gives no higher
/// bounds.
#[test]
fn the_outlook_of_the_recorded_guest_by_each_basis() {
    let with_frames = recorded(nofrag_host::trace::TraceMeta::end);
    let without = |names: &[&str]| {
        let mut files = Files::default();
        let kept = with_frames.iter().filter(|(name, _)| !names.contains(name));
        kept.for_each(|(name, bytes)| files.insert(name, bytes.to_vec()));
        of(files).huge_pages.expect("it has zones")
    };
    let frames = without(&[]);
    let types = without(&["kpageflags"]);
    let counts = without(&["kpageflags", "pagetypeinfo"]);
    assert_eq!(
        [frames.basis, types.basis, counts.basis],
        [Basis::Frames, Basis::PageblockTypes, Basis::FreePages]
    );
    let [frames, types, counts] = [frames, types, counts].map(|huge| (huge.listed, huge.blocks));
    for (listed, huge) in [frames, types, counts] {
        assert!(huge.now <= listed && huge.now <= huge.after_compaction, "{huge:?}");
        assert!(huge.after_compaction <= huge.after_reclaim, "{huge:?}");
        assert!(huge.after_reclaim <= huge.total, "{huge:?}");
        assert_eq!(huge.now, frames.1.now);
    }
    let [frames, types, counts] = [frames, types, counts].map(|(_, huge)| huge);
    assert!(frames.after_reclaim <= types.after_reclaim, "{frames:?} {types:?}");
    assert!(types.after_compaction <= counts.after_compaction, "{types:?} {counts:?}");
}

/// Compares the indices of the recorded guest with its debugfs, which was read a little later: half of them may differ,
/// as single pages of one zone had moved.
/// Source: docs/sources/trace.md#oracle-2.
#[test]
fn indices_of_the_recorded_guest() {
    for which in [nofrag_host::trace::TraceMeta::start, nofrag_host::trace::TraceMeta::end] {
        let check = of(recorded(which)).index_check.expect("debugfs was recorded");
        assert_eq!(check.compared, 44);
        assert!(check.equal >= 22, "{check:?}");
    }
}

/// Compares the indices of this host with debugfs: they are equal on some try, as the lists are read until they stand
/// still.
/// Source: docs/sources/trace.md#oracle-2.
#[test]
fn indices_of_this_host_are_those_of_debugfs() {
    const TRIES: usize = 20;
    for attempt in 1.. {
        let machine = survey(&read(&Root::Live, Frames::LeftOut)).unwrap();
        let Some(check) = machine.index_check else {
            return println!("skipped: no debugfs/extfrag that this process may read");
        };
        if check.equal == check.compared {
            return;
        }
        assert!(attempt < TRIES, "{check:?}: on no try were they equal");
    }
}

/// Compares the pages in free blocks of a pageblock or more with this kernel's own count of them.
/// Source: docs/sources/trace.md#oracle-3.
#[test]
fn whole_free_pageblocks_are_as_many_as_this_host_says() {
    for attempt in 0.. {
        let machine = survey(&read(&Root::Live, Frames::LeftOut)).unwrap();
        let known: Vec<(u64, u64)> = machine
            .zones
            .iter()
            .filter_map(|zone| Some((zone.pageblock_free.listed, zone.pageblock_free.said?)))
            .collect();
        if known.is_empty() {
            return println!("skipped: this kernel has no nr_free_pages_blocks");
        }
        // Other processes take and free blocks between the two reads.
        if known.iter().all(|&(listed, said)| listed.abs_diff(said) <= said / 16 + 4096) {
            return;
        }
        assert!(attempt < 20, "{known:?}");
    }
}

/// Leaves out one file at a time: it is named, and the others are shown all the same. Source:
/// docs/sources/trace.md#oracle-13.
#[test]
fn each_file_that_is_not_there_is_named() {
    let root = captured("whole-6.18-x86_64");
    let Root::Captured(source) = &root else { unreachable!("it is a folder") };
    let folder = tempfile::tempdir().unwrap();
    let names =
        ["proc/zoneinfo", "proc/buddyinfo", "proc/pagetypeinfo", "proc/vmstat", "proc/meminfo"];
    for left_out in names {
        let _ = fs::remove_dir_all(folder.path().join("proc"));
        fs::create_dir_all(folder.path().join("proc")).unwrap();
        for name in names.iter().filter(|name| **name != left_out) {
            fs::copy(source.join(name), folder.path().join(name)).unwrap();
        }
        let root = Root::Captured(folder.path().to_owned());
        let machine = survey(&read(&root, Frames::LeftOut)).unwrap();
        let expected = folder.path().join(left_out).display().to_string();
        let missing = machine.missing.iter().find(|missing| missing.path == expected);
        assert!(missing.is_some_and(|missing| !missing.costs.is_empty()), "{left_out}");
        for name in names.iter().filter(|name| **name != left_out) {
            let path = folder.path().join(name).display().to_string();
            assert!(!machine.missing.iter().any(|missing| missing.path == path), "{name}");
        }
    }
}

/// Captures a captured host, with names and addresses: the report on both is the same.
#[test]
fn a_capture_shows_what_the_host_showed() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("host");
    let root = captured("whole-6.18-x86_64");
    let choices =
        Choices { names: Private::Kept, addresses: Private::Kept, frames: Frames::LeftOut };
    capture(&root, &target, choices).unwrap();
    let json = |root: &Root| {
        let mut machine = survey(&read(root, Frames::LeftOut)).unwrap();
        machine.missing.clear();
        serde_json::to_string(&machine).unwrap()
    };
    assert_eq!(json(&Root::Captured(target.clone())), json(&root));
    let again = capture(&root, &target, choices).unwrap_err();
    assert!(again.to_string().contains("it is not empty"), "{again}");
}

/// Checks the rights of a capture: files that only root may read on the host, and the addresses of processes, are for
/// its owner only.
#[test]
fn a_capture_can_be_read_by_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("a/host");
    let captured = capture(&captured("whole-6.18-x86_64"), &target, Choices::default()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&target), mode(&target.join("proc"))), (0o700, 0o700));
    for taken in &captured.taken {
        assert_eq!(mode(&target.join(&taken.path)), 0o600, "{}", taken.path);
    }
    assert_eq!(mode(&target.join("README.txt")), 0o600);
}

/// Checks that a capture numbers processes anew, and that a capture with names keeps their process IDs.
#[test]
fn a_capture_numbers_processes_anew() {
    let folder = tempfile::tempdir().unwrap();
    let root = captured("whole-6.18-x86_64");
    let pids = |target: &Path| -> Vec<String> {
        let names = fs::read_dir(target.join("proc")).unwrap().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let mut pids: Vec<String> =
            names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).collect();
        pids.sort();
        pids
    };
    let target = folder.path().join("without");
    capture(&root, &target, Choices::default()).unwrap();
    assert_eq!(pids(&target), ["1", "2", "3"]);
    let target = folder.path().join("with");
    capture(&root, &target, Choices { names: Private::Kept, ..Choices::default() }).unwrap();
    assert_eq!(pids(&target), ["30576", "31773", "805"]);
}

/// Checks that a capture of this host contains no name of the host, of this process or of its program.
#[test]
fn a_capture_of_this_host_names_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let captured = capture(&Root::Live, folder.path(), Choices::default()).unwrap();
    let program = std::env::current_exe().unwrap();
    let program = program.file_name().unwrap().to_string_lossy().into_owned();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let names = [program.as_str(), "rustc", "/usr/lib", "libc.so", host.trim()];
    for taken in &captured.taken {
        let bytes = fs::read(folder.path().join(&taken.path)).unwrap();
        assert_eq!(bytes.len() as u64, taken.bytes, "{}", taken.path);
        let text = String::from_utf8_lossy(&bytes);
        let is_name = |name: &&str| name.len() > 3 && text.contains(*name);
        assert_eq!(names.iter().find(|name| is_name(name)), None, "{}", taken.path);
    }
    assert!(captured.taken.iter().any(|taken| taken.path == "proc/zoneinfo"));
    let machine =
        survey(&read(&Root::Captured(folder.path().to_owned()), Frames::LeftOut)).unwrap();
    assert!(!machine.zones.is_empty());
}
