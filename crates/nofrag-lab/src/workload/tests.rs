//! The workload: sizes against the document's, refusals, and small real runs.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::host::{Disk, Host};
use super::plan::{Advice, PlanError, Scale, ThpFioOptions, WorkloadPlan, plan, plan_for};
use super::{Ended, Phase, run};
use crate::scenario::Silent;

const GIB: u64 = 1 << 30;

fn host(memory: u64, cpus: usize) -> Host {
    Host {
        memory,
        node_memory: memory,
        available: memory / 10 * 9,
        cpus,
        nodes: 1,
        huge_page: Some(2 << 20),
        thp_enabled: Some("always".to_owned()),
        ..Host::default()
    }
}

fn disk(free: u64) -> Disk {
    Disk { free, free_files: Some(10_000_000), in_memory: false }
}

fn full() -> ThpFioOptions {
    ThpFioOptions { scale: Scale::Full, ..ThpFioOptions::default() }
}

/// Checks the sizes of a run at full scale against the document's method. Source: docs/sources/pages.md#o-19.
#[test]
fn full_scale_has_the_documents_sizes() {
    let plan = plan_for(&full(), host(16 * GIB, 8), disk(100 * GIB)).unwrap();
    assert_eq!((plan.files(), plan.files_per_thread), (393_216, 98_304));
    assert_eq!((plan.thp_threads, plan.units_per_thread), (1, 3072));
    assert_eq!(plan.touched_bytes(), 6 * GIB);
    for (cpus, threads) in [(11, 1), (24, 5), (27, 5)] {
        let plan = plan_for(&full(), host(16 * GIB, cpus), disk(100 * GIB)).unwrap();
        assert_eq!((plan.thp_threads, plan.cautions.len()), (threads, 0), "{cpus} CPUs");
    }
    // The document's program refuses here; this one runs and says so.
    let few = plan_for(&full(), host(16 * GIB, 7), disk(100 * GIB)).unwrap();
    assert!(few.thp_threads == 1 && few.cautions[0].contains("below 8 CPUs"), "{few:?}");
}

#[test]
fn the_default_is_small_beside_what_is_available() {
    let options = ThpFioOptions::default();
    for (memory, files, units) in [(64 * GIB, 24_576, 192), (2 * GIB, 5_528, 43)] {
        let plan = plan_for(&options, host(memory, 8), disk(100 * GIB)).unwrap();
        assert_eq!((plan.files(), plan.units()), (files, units), "{memory}");
        assert!(plan.file_bytes() + plan.touched_bytes() < memory / 3);
        assert!(plan.cautions[0].contains("--scale full"), "{:?}", plan.cautions);
    }
}

#[test]
fn two_nodes_are_measured_by_the_first() {
    let mut two = host(16 * GIB, 16);
    (two.nodes, two.node_memory) = (2, 8 * GIB);
    let plan = plan_for(&full(), two, disk(100 * GIB)).unwrap();
    assert_eq!((plan.files(), plan.units()), (393_216, 1536));
}

#[test]
fn what_would_hurt_the_host_is_refused() {
    let refused = |options: &ThpFioOptions, host, disk| plan_for(options, host, disk).unwrap_err();
    let error = refused(&full(), host(16 * GIB, 8), disk(40 * GIB));
    assert!(matches!(error, PlanError::Disk { need: 26_112, free: 40_960, percent: 50, .. }));
    let allowed = ThpFioOptions { disk_percent: 80, ..full() };
    assert!(plan_for(&allowed, host(16 * GIB, 8), disk(40 * GIB)).is_ok());
    let few_files = Disk { free_files: Some(1000), ..disk(100 * GIB) };
    let error = refused(&full(), host(16 * GIB, 8), few_files);
    assert!(matches!(error, PlanError::Inodes { need: 393_222, free: 1000, .. }), "{error}");
    let in_memory = Disk { in_memory: true, ..disk(100 * GIB) };
    assert!(matches!(refused(&full(), host(16 * GIB, 8), in_memory), PlanError::InMemory(_)));
    let mut busy = host(16 * GIB, 8);
    busy.available = 6 * GIB;
    let error = refused(&full(), busy, disk(100 * GIB));
    assert!(matches!(error, PlanError::Memory { touch: 6144, floor: 512, available: 6144 }));
    let tiny = ThpFioOptions { memory_mib: Some(4), ..full() };
    assert!(matches!(refused(&tiny, host(16 * GIB, 8), disk(GIB)), PlanError::TooSmall(_)));
    let huge = ThpFioOptions { memory_mib: Some(u64::MAX), ..full() };
    assert!(matches!(refused(&huge, host(16 * GIB, 8), disk(GIB)), PlanError::Disk { .. }));
    let nobody = ThpFioOptions { threads: 0, ..full() };
    assert!(matches!(refused(&nobody, host(16 * GIB, 8), disk(GIB)), PlanError::TooSmall(_)));
}

#[test]
fn a_folder_that_is_none_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [file, dir.path().join("no/such")] {
        let options = ThpFioOptions { dir: path.clone(), ..ThpFioOptions::default() };
        let error = plan(&options).unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

/// Returns a plan that ends in a second, in a folder that no other test uses; `None` where files there are kept in
/// memory.
fn small(dir: &std::path::Path, memory_mib: u64) -> Option<WorkloadPlan> {
    let options = ThpFioOptions {
        dir: PathBuf::from(dir),
        memory_mib: Some(memory_mib),
        threads: 2,
        thp_threads: Some(2),
        advice: Advice::Madvise,
        seconds: Some(20),
        ..ThpFioOptions::default()
    };
    match plan(&options) {
        Err(PlanError::InMemory(path)) => {
            eprintln!("skipped: {} is kept in memory", path.display());
            None
        }
        planned => Some(planned.unwrap()),
    }
}

#[test]
fn a_small_run_touches_every_unit_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let Some(plan) = small(dir.path(), 64) else { return };
    let outcome = run(&plan, &AtomicBool::new(false), &Silent).unwrap();
    assert_eq!(outcome.ended, Ended::Complete, "{:?}", outcome.cautions);
    assert_eq!(outcome.written.files, plan.files());
    let units = &outcome.units;
    assert_eq!(units.huge + units.base, plan.units());
    assert_eq!(units.by_pages_at_once.values().sum::<u64>(), plan.units());
    for (latency, units) in [(outcome.fault_base, units.base), (outcome.fault_huge, units.huge)] {
        assert_eq!(latency.map_or(0, |latency| latency.samples), units);
        assert!(
            latency.is_none_or(|latency| latency.min <= latency.p50 && latency.p50 <= latency.max)
        );
    }
    let phases: Vec<Phase> = outcome.phases.iter().map(|phase| phase.phase).collect();
    assert_eq!(phases, [Phase::Write, Phase::Sync, Phase::WarmUp, Phase::Touch]);
    assert!(outcome.reads.latency.is_some());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let json = serde_json::to_string(&outcome).unwrap();
    assert_eq!(serde_json::from_str::<super::ThpFioOutcome>(&json).unwrap(), outcome);
}

#[test]
fn an_interrupted_run_leaves_nothing_and_says_how_far_it_came() {
    let dir = tempfile::tempdir().unwrap();
    let Some(plan) = small(dir.path(), 512) else { return };
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let outcome = thread::scope(|scope| {
        let run = scope.spawn(|| run(&plan, &stop, &Silent).unwrap());
        thread::sleep(Duration::from_millis(100));
        stop.store(true, Ordering::Relaxed);
        run.join().unwrap()
    });
    assert_eq!(outcome.ended, Ended::Interrupted);
    assert!(outcome.cautions.iter().any(|line| line.starts_with("It was interrupted")));
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_run_without_time_ends_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut plan) = small(dir.path(), 512) else { return };
    plan.seconds = Some(0);
    let outcome = run(&plan, &AtomicBool::new(false), &Silent).unwrap();
    assert_eq!(outcome.ended, Ended::TimeUp);
    assert!(outcome.written.files < plan.files());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_time_that_no_clock_reaches_is_no_limit() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut plan) = small(dir.path(), 64) else { return };
    plan.seconds = Some(u64::MAX);
    let outcome = run(&plan, &AtomicBool::new(false), &Silent).unwrap();
    assert_eq!(outcome.ended, Ended::Complete, "{:?}", outcome.cautions);
}

#[test]
fn an_error_in_a_thread_ends_the_run_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut plan) = small(dir.path(), 64) else { return };
    // More than can be mapped: found out after the files were written.
    plan.mapped_units_per_thread = 1 << 40;
    let error = run(&plan, &AtomicBool::new(false), &Silent).unwrap_err();
    assert!(error.to_string().contains("cannot"), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
