//! Comparisons of files and reports made by hand.

use nofrag_host::snapshot::Files;
use nofrag_host::trace::Unseen;

use super::*;
use crate::replay::{
    Assumptions, Contiguity, Counts, PolicyRun, Recorded, Repeat, ReplayReport, Sample,
};

fn run(policy: &str, percent: u32, serious: u64) -> PolicyRun {
    let mut counts = Counts { moved: 100, ..Counts::default() };
    counts.requests[0] = 1000;
    counts.served[0] = 1000;
    counts.requests[9] = 8;
    counts.served[9] = 6;
    counts.extfrag[0] = serious;
    counts.serious[0] = serious;
    PolicyRun {
        policy: policy.to_owned(),
        settings: Default::default(),
        memory_percent: percent,
        managed: 1 << 16,
        repeats: vec![Repeat {
            counts,
            large_at_end: 1,
            out_of_memory: None,
            shortage: None,
            assumptions: Assumptions::default(),
            timeline: vec![Sample {
                at: 0,
                free: 600,
                idle: vec![600],
                largest: Some(9),
                free_in_pageblocks: 512,
                extfrag: serious,
                pageblocks: Contiguity { free: 1, movable: 2, pinned: 3 },
            }],
            wall_nanos: 1,
        }],
    }
}

fn report(seed: u64, runs: Vec<PolicyRun>) -> ReplayReport {
    let recorded = Recorded { events: 7, nanos: 9, ..Recorded::default() };
    ReplayReport {
        trace: "a.nofrag".to_owned(),
        release: Some("6.1".to_owned()),
        seed,
        repeats: 1,
        recorded,
        unseen: Unseen::default(),
        runs,
        vmap: None,
        mmap: None,
        fidelity: None,
        against: Vec::new(),
        cautions: Vec::new(),
    }
}

fn compared(old: ReplayReport, new: ReplayReport) -> Result<Comparison, CompareError> {
    let side = |name: &str, report| Subject::Replay(name.to_owned(), Box::new(report));
    compare([vec![side("old", old)], vec![side("new", new)]], None, &|_| {})
}

#[test]
fn runs_are_matched_by_policy_and_memory() {
    let old = report(1, vec![run("a", 100, 4), run("a", 50, 9), run("b", 100, 2)]);
    let new = report(1, vec![run("b", 100, 2), run("a", 100, 3)]);
    let found = compared(old, new).unwrap();
    let titles: Vec<_> = found.groups.iter().map(|group| group.title.as_str()).collect();
    assert_eq!(titles, ["a with 100 % of the memory", "b with 100 % of the memory"]);
    assert!(!found.is_worse());
    let better: Vec<_> =
        found.with_verdict(RowVerdict::Better).map(|(_, row)| row.name.as_str()).collect();
    assert_eq!(better.len(), 4, "{better:?}");
    assert_eq!(found.cautions, ["only the old side has a with 50 % of the memory"]);
}

#[test]
fn one_run_on_each_side_may_be_of_two_policies() {
    let found = compared(report(1, vec![run("a", 100, 4)]), report(2, vec![run("b", 100, 5)]));
    let found = found.unwrap();
    assert_eq!(
        found.groups[0].title,
        "a with 100 % of the memory, then b with 100 % of the memory"
    );
    assert!(found.is_worse());
    assert!(found.cautions[0].contains("different seeds (1 and 2)"), "{:?}", found.cautions);
}

/// Compares replays of three seeds each. `compare` once read the first seed alone, and called figures better or worse
/// whose ranges overlap.
#[test]
fn start_values_that_overlap_are_no_difference() {
    let of = |serious: [u64; 3]| {
        let runs = serious.map(|serious| run("linux-6.1", 100, serious));
        let [first, ..] = &runs;
        let first = PolicyRun { repeats: Vec::new(), ..first.clone() };
        let repeats = runs.into_iter().flat_map(|run| run.repeats).collect();
        report(1, vec![PolicyRun { repeats, ..first }])
    };
    let found = compared(of([4, 9, 6]), of([8, 3, 5])).unwrap();
    assert_eq!(found.runs, [3, 3]);
    assert_eq!(found.with_verdict(RowVerdict::Worse).count(), 0);
    assert_eq!(found.with_verdict(RowVerdict::Better).count(), 0);
    let found = compared(of([4, 9, 6]), of([3, 1, 2])).unwrap();
    assert_eq!(found.with_verdict(RowVerdict::Better).count(), 4);
}

/// Compares numbers of events across Linux 6.10: up to 6.9 each stolen block is an event, and later each stolen page.
#[test]
fn events_of_both_sides_of_linux_6_10_are_neither_better_nor_worse() {
    let names = |old: &str, new: &str| {
        let side = |name: &str, events| report(1, vec![run(name, 100, events)]);
        let found = compared(side(old, 9), side(new, 4)).unwrap();
        let better = found.with_verdict(RowVerdict::Better);
        better.filter(|(_, row)| row.name.contains("events")).count()
    };
    assert_eq!((names("linux-5.3", "linux-6.1"), names("linux-6.1", "linux-7.2")), (2, 0));
}

#[test]
fn replays_of_other_requests_are_refused() {
    let mut other = report(1, vec![run("a", 100, 4)]);
    other.recorded.events = 8;
    let error = compared(report(1, vec![run("a", 100, 4)]), other).unwrap_err();
    assert!(error.to_string().contains("different requests"), "{error}");
    let two = || vec![run("b", 100, 4), run("c", 100, 4)];
    let error = compared(report(1, vec![run("a", 100, 4)]), report(1, two())).unwrap_err();
    assert!(error.to_string().contains("no policy was replayed"), "{error}");
}

/// Returns the files of a machine with one zone; `blocks` is its line in buddyinfo.
fn files(release: &str, blocks: &str) -> Files {
    let mut files = Files::default();
    files.insert("version", format!("Linux version {release} (a b)\n").into_bytes());
    files.insert("buddyinfo", format!("Node 0, zone   Normal {blocks}\n").into_bytes());
    let zoneinfo = "Node 0, zone   Normal\n  pages free     5632\n        boost    0\n        min      10\n        \
                    low      12\n        high     14\n        spanned  8192\n        present  8192\n        \
                    managed  8000\n        protection: (0, 0)\n  start_pfn:           0\n";
    files.insert("zoneinfo", zoneinfo.as_bytes().to_vec());
    // Three pageblocks: one wholly free, one of a process, one with a slab.
    let block = |flags: u64| std::iter::repeat_n(flags.to_le_bytes(), 512).flatten();
    let (buddy, anon, slab) = (1 << 10, 1 << 12 | 1 << 5, 1 << 7);
    let pages = block(buddy).chain(block(anon)).chain(block(slab));
    files.insert("kpageflags", pages.collect());
    files
}

fn snapshots(old: Files, new: Files) -> Comparison {
    let side = |name: &str, files| Subject::Snapshot(name.to_owned(), Box::new(files));
    compare([vec![side("old", old)], vec![side("new", new)]], None, &|_| {}).unwrap()
}

#[test]
fn pageblocks_are_told_apart_by_what_is_in_them() {
    let found =
        snapshots(files("6.1", "0 0 0 0 0 0 0 0 0 11 0"), files("6.1", "0 0 0 0 0 0 0 0 0 11 0"));
    assert_eq!(found.machines, Machines::Same);
    assert!(!found.is_worse());
    let group = found.groups.iter().find(|group| group.title.starts_with("pageblocks")).unwrap();
    let values: Vec<_> = group.rows.iter().take(3).map(|row| row.old).collect();
    assert_eq!(values, [Some(1.0), Some(1.0), Some(1.0)]);
}

#[test]
fn another_kernel_is_another_machine() {
    let found =
        snapshots(files("6.1", "0 0 0 0 0 0 0 0 0 11 0"), files("6.2", "512 0 0 0 0 0 0 0 0 10 0"));
    assert_eq!(found.machines, Machines::Different);
    let rows = || found.groups.iter().flat_map(|group| &group.rows);
    assert!(rows().all(|row| row.scale == Scale::Share || row.change_percent().is_none()));
    let worse: Vec<_> =
        found.with_verdict(RowVerdict::Worse).map(|(_, row)| row.name.as_str()).collect();
    let expected = ["unusable index at order 3, 1/1000", "unusable index at order 9, 1/1000"];
    assert_eq!(worse, expected);
}

/// Checks the text of a comparison line by line against `golden.txt`.
#[test]
fn the_text_is_as_it_was_agreed() {
    let old = files("6.1", "0 0 0 0 0 0 0 0 0 11 0");
    let new = files("6.1", "512 0 0 0 0 0 0 0 0 10 0");
    let answer = answers(&snapshots(old, new)).next().unwrap();
    let text = nofrag_show::text(&answer);
    let text: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let expected = include_str!("golden.txt");
    let expected: Vec<&str> = expected.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(text, expected, "\n{}", text.join("\n"));
}

#[test]
fn files_that_say_nothing_or_lie_are_survived() {
    let found = snapshots(Files::default(), files("6.1", "18446744073709551615 1"));
    assert_eq!(found.machines, Machines::Different);
    let mut odd = Files::default();
    odd.insert("kpageflags", vec![0xff; 4099]);
    odd.insert("pagetypeinfo", b"Page block order: 63\nNode 0, zone Normal, type X >5".to_vec());
    odd.insert("buddyinfo", vec![b'9'; 1000]);
    let _ = snapshots(odd.clone(), odd);
}
