//! Every report in `data/reports`, whole and cut; the snapshots and the events of the shipped recording.

use std::fs;
use std::path::Path;

use nofrag_host::trace::End;

use super::*;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn report(name: &str) -> String {
    let path = root().join("data/reports").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn explained(text: &str) -> Explanation {
    of_text("text", text).expect("there is a report in it")
}

/// Checks the cause of the first case and the verdict of each policy: `+` avoids, `~` works against, `-` fails.
fn check(name: &str, cause: Cause, policies: &str) -> Case {
    let case = explained(&report(name)).cases.swap_remove(0);
    let shown: String = case
        .policies
        .iter()
        .map(|each| match each.verdict {
            PolicyVerdict::Avoids => '+',
            PolicyVerdict::WorksAgainst => '~',
            PolicyVerdict::Fails => '-',
        })
        .collect();
    assert_eq!((case.cause, shown.as_str()), (cause, policies), "{name}: {}", case.summary);
    assert!(case.policies.iter().all(|each| each.basis == Basis::Rules), "{name}");
    case
}

#[test]
fn pieces_or_lack() {
    let case = check("order-4-kernel.txt", Cause::Fragmented, "-~~~~~~~");
    assert!(
        case.summary.contains("303 MiB") || case.summary.contains("pieces"),
        "{}",
        case.summary
    );
    assert!(case.would[0].contains("order 3 (32 KiB)"), "{:?}", case.would);
    let normal = &case.zones[0];
    assert_eq!(
        (normal.zone.as_str(), normal.largest_free, normal.largest_served),
        ("Normal", Some(3), Some(3))
    );
    assert_eq!(normal.unusable, 1000);
    assert!(normal.fragmentation.is_some_and(|index| index > 900), "{normal:?}");
    assert!(case.zones[1].why.contains("kept from requests"), "{}", case.zones[1].why);
    check("order-7-noretry.txt", Cause::Fragmented, "-~~~~~~~");
    check("order-5-linux-3.18.txt", Cause::Fragmented, "-~~~~~~~");
    check("order-0-atomic-burst.txt", Cause::LackOfMemory, "--------");
    let case = check("out-of-memory.txt", Cause::LackOfMemory, "--------");
    assert!(case.advice[0].what.contains("processes"), "{:?}", case.advice[0]);
}

#[test]
fn kept_blocks_boosts_and_limits() {
    check("highatomic-reserve.txt", Cause::KeptBlocks, "--------");
    let case = check("cma.txt", Cause::KeptBlocks, "--------");
    assert!(case.advice[0].what.contains("CMA"), "{:?}", case.advice[0]);
    // 4.20 does not boost; the next ones hold such callers to the boosted mark; later ones test again.
    check("boosted-atomic.txt", Cause::Boosted, "+--+++++");
    let case = check("cgroup-limit.txt", Cause::GroupLimit, "");
    assert!(case.summary.contains("20 MiB of 20 MiB"), "{}", case.summary);
}

#[test]
fn an_atomic_request_in_defrag_mode_is_refused_by_type() {
    let case = check("defrag-mode-atomic.txt", Cause::TypeForbidden, "++++++++-");
    assert_eq!(case.policies[8].policy, "defrag mode before 7.2");
    assert!(case.zones[0].why.contains("all of type Movable"), "{}", case.zones[0].why);
    assert!(case.advice[0].what.contains("defrag_mode=0"), "{:?}", case.advice[0]);
}

#[test]
fn addresses_are_no_memory() {
    let explanation = explained(&report("vmap-arm32.txt"));
    let causes: Vec<_> = explanation.cases.iter().map(|case| (case.cause, case.times)).collect();
    assert_eq!(causes, [(Cause::AddressSpace, 3), (Cause::AddressSpace, 1)]);
    assert_eq!(explanation.cases[0].lines.len(), 3);
    assert!(
        explanation.cases[1].summary.contains("memory was not short"),
        "{:?}",
        explanation.cases[1]
    );
}

#[test]
fn the_same_report_again_is_one_case() {
    let explanation = explained(&report("order-0-atomic-burst.txt"));
    assert_eq!((explanation.cases.len(), explanation.cases[0].times), (1, 3));
    let all: String = fs::read_dir(root().join("data/reports"))
        .expect("the folder is part of the repository")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|end| end == "txt"))
        .map(|path| fs::read_to_string(path).expect("it is text"))
        .collect();
    assert_eq!(explained(&all).cases.iter().map(|case| case.times).sum::<u64>(), 16);
}

/// A report that is cut after any line is still explained, or its gaps are named.
#[test]
fn every_cut_at_every_line() {
    for name in
        ["order-4-kernel.txt", "defrag-mode-atomic.txt", "vmap-arm32.txt", "cgroup-limit.txt"]
    {
        let text = report(name);
        let lines: Vec<&str> = text.lines().collect();
        for count in 1..=lines.len() {
            let explanation = explained(&lines[..count].join("\n"));
            let case = &explanation.cases[0];
            assert!(!case.title.is_empty() && !case.summary.is_empty(), "{name} after {count}");
            let says_enough = case.cause != Cause::Unknown || !case.missing.is_empty();
            assert!(says_enough, "{name} after {count}: {}", case.summary);
        }
    }
}

#[test]
fn what_is_no_report_is_refused() {
    let error = of_text("x", "nothing\nat all\n").expect_err("nothing to explain");
    assert!(error.to_string().contains("page allocation failure"), "{error}");
    let missing = explain(&Subject::Path("no/such/file".into()), Replays::Skip, &|_| ());
    assert!(matches!(missing, Err(ExplainError::Trace(TraceError::File { .. }))));
}

#[test]
fn names_with_a_moment() {
    let of = |name: &str| Subject::named(Path::new(name));
    let end = SnapshotName { recording: "a.nofrag".into(), end: End::End };
    assert_eq!(of("a.nofrag@end"), Subject::SnapshotOf(end));
    assert_eq!(of("a@b"), Subject::Path("a@b".into()));
}

#[test]
fn the_shipped_recording_and_its_end() {
    let path = root().join("crates/nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag");
    let explanation =
        explain(&Subject::Path(path.clone()), Replays::Skip, &|_| ()).expect("it can be read");
    assert_eq!(explanation.kind, SourceKind::Recording);
    let mixing = explanation.mixing.as_ref().expect("there are events");
    assert_eq!(mixing.events, 5);
    assert_eq!(mixing.pairs.iter().map(|(_, count)| count).sum::<u64>(), 5);
    let end = SnapshotName { recording: path, end: End::End };
    let end = explain(&Subject::SnapshotOf(end), Replays::Skip, &|_| ()).expect("there is one");
    assert_eq!((end.kind, end.obtainable.len()), (SourceKind::Snapshot, 2));
    // 51 blocks of order 9 and 18 of order 10 in DMA32.
    let dma32 = end.obtainable.iter().find(|zone| zone.zone == "DMA32").expect("it has memory");
    assert_eq!((dma32.now, dma32.pageblocks >= dma32.now + dma32.pinned), (87, true));
    assert!(dma32.now <= dma32.after_compaction && dma32.after_compaction <= dma32.after_reclaim);
    assert!(end.cases.iter().all(|case| case.cause == Cause::Nothing), "{:?}", end.cases);
}

#[test]
fn explanations_survive_json() {
    let explanation = explained(&report("order-4-kernel.txt"));
    let json = serde_json::to_string(&explanation).expect("it can be written");
    let back: Explanation = serde_json::from_str(&json).expect("it can be read");
    assert_eq!(back, explanation);
}

#[test]
fn swap_that_is_not_named_is_not_said_to_be_full() {
    let text = report("out-of-memory.txt");
    let without: String = text
        .lines()
        .filter(|line| !line.contains("Free swap"))
        .map(|line| format!("{line}\n"))
        .collect();
    let says = |text: &str| {
        let case = explained(text).cases.swap_remove(0);
        let would = case.would.iter().any(|line| line.contains("swap"));
        (would, case.advice.iter().any(|advice| advice.what.contains("swap")))
    };
    assert_eq!((says(&text), says(&without)), ((true, true), (false, false)));
}
