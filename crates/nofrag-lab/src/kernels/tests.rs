//! The dataset that comes with nofrag, and a run with a made-up simulation.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use nofrag::page::{Migratetype, ZoneKind};

use super::guest::Cell;
use super::phase::{Count, Phase, Piece};
use super::*;
use crate::oracle::ClaimVerdict;
use crate::scenario::{Mode, Silent};
use crate::shortfall::shortfalls;

fn shipped() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../..", SHIPPED].iter().collect()
}

/// Returns all guests of the dataset, read once.
fn guests() -> &'static [Guests] {
    static GUESTS: OnceLock<Vec<Guests>> = OnceLock::new();
    GUESTS.get_or_init(|| dataset::read(&shipped()).unwrap())
}

fn cell<'a>(guests: &'a [Guests], name: &str) -> &'a Guests {
    guests.iter().find(|it| judge::name(&it.cell) == name).unwrap()
}

#[test]
fn every_file_of_the_dataset_is_a_run_of_three_phases() {
    let is_run = |name: &str| name.ends_with(".json") && name.contains("-r");
    let names = fs::read_dir(shipped()).unwrap().map(|entry| entry.unwrap().file_name());
    let files = names.filter(|name| is_run(&name.to_string_lossy())).count();
    let guests = guests();
    assert_eq!(guests.iter().map(|it| it.runs.len()).sum::<usize>(), files);
    for Guests { cell, runs } in guests {
        for run in runs {
            assert!(run.iter().map(|phase| phase.name).eq(PhaseName::ALL));
            assert!(run[2].counts[&Count::Units] > 0, "{}", judge::name(cell));
            assert!(run.iter().all(|phase| phase.free.len() == 3));
        }
        assert_eq!(role(cell), cell.kernel == "6.1" || cell.kernel == "7.2");
    }
    assert_eq!(cell(guests, "6.1-two-nodes").cell.nodes, 2);
    assert!(cell(guests, "7.2-centre").cell.lru_gen && !cell(guests, "6.1-centre").cell.lru_gen);
}

fn role(cell: &Cell) -> bool {
    judge::role(cell) == Role::Fitted
}

#[test]
fn the_first_centre_of_6_1_is_read_to_the_page() {
    let guests = guests();
    let [write, _, thp] = &cell(guests, "6.1-centre").runs[0][..] else { panic!() };
    let expected = [
        (Count::Units, 192),
        (Count::Huge, 29),
        (Count::DirectCalls, 181),
        (Count::DirectPages, 127_883),
        (Count::Moved, 35_248),
        (Count::CompactionsGave, 6),
        (Count::CompactionsFailed, 518),
        (Count::Deferred, 546),
        (Count::KswapdWakes, 3),
        (Count::KswapdPages, 5_341),
        (Count::Read, 35_928),
        (Count::Fallbacks(ZoneKind::Dma32, Migratetype::Movable, Piece::Whole), 1),
    ];
    for (count, value) in expected {
        assert_eq!(thp.counts.get(&count), Some(&value), "{}", count.name());
    }
    assert_eq!(write.counts.get(&Count::Huge), None);
    let part = Count::Fallbacks(ZoneKind::Normal, Migratetype::Movable, Piece::Part);
    let whole = Count::Fallbacks(ZoneKind::Normal, Migratetype::Unmovable, Piece::Whole);
    assert_eq!((write.counts[&part], write.counts[&whole]), (1, 21));
    assert_eq!(thp.free[&ZoneKind::Normal][..4], [1755, 1688, 1496, 1332]);
    let thp = &cell(guests, "5.10-centre").runs[0][2];
    assert_eq!((thp.counts[&Count::KswapdWakes], thp.counts.get(&Count::Deferred)), (2, None));
}

#[test]
fn a_damaged_file_is_named_with_the_field() {
    let good = fs::read_to_string(shipped().join("6.1-centre-r1.json")).unwrap();
    let check = |from: &str, to: &str, parts: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        assert!(good.contains(from), "{from}");
        let text = good.replace(from, to);
        fs::write(folder.path().join("6.1-centre-r1.json"), text).unwrap();
        let error = dataset::read(folder.path()).unwrap_err().to_string();
        for part in [&["6.1-centre-r1.json"], parts].concat() {
            assert!(error.contains(part), "{part}: {error}");
        }
    };
    check("\"boost\"", "\"boast\"", &["row 1", "boost", "missing"]);
    check("\"boost\":", "\"boost\": -", &["row 1", "boost", "invalid value"]);
    check("\"thp_defrag\":\"madvise\"", "\"thp_defrag\":\"may\"", &["thp_defrag", "\"may\" is no"]);
    check("\"huge\":", "\"huger\":", &["row 3", "thp", "missing field `huge`"]);
    check("order=8", "order=11", &["row 1", "extfrag", "order=11"]);
    check("\"node0.dma32\":[", "\"dma32\":[", &["free_by_order", "no zone: dma32"]);
    check("6.1-centre-r1", "6.1-centre-r2", &["tag", "not the file's name"]);
    check("\"warm\"", "\"write\"", &["write, warm and thp"]);
    check("[", "{", &["no array of rows"]);
    let folder = tempfile::tempdir().unwrap();
    let error = dataset::read(folder.path()).unwrap_err().to_string();
    assert!(error.contains("holds no run"), "{error}");
}

#[test]
fn what_the_simulation_is_told_is_no_agreement() {
    let report = usual();
    let cells = &report.kernels.as_ref().unwrap().cells;
    for (phase, what) in [("thp", Count::Units), ("warm", Count::Read)] {
        let is_meant = |it: &&Compared| it.phase == phase && it.what.name() == what.name();
        let rows: Vec<&Compared> =
            cells.iter().flat_map(|it| &it.counts).filter(is_meant).collect();
        assert!(!rows.is_empty() && rows.iter().all(|it| it.agreement == Agreement::Given));
    }
}

#[test]
fn repeats_under_other_settings_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(shipped().join("6.1-centre-r1.json")).unwrap();
    fs::write(folder.path().join("6.1-centre-r1.json"), &text).unwrap();
    let other = text.replace("centre-r1", "centre-r2").replace("\"nodes\":1", "\"nodes\":2");
    fs::write(folder.path().join("6.1-centre-r2.json"), other).unwrap();
    let error = dataset::read(folder.path()).unwrap_err().to_string();
    assert!(error.contains("6.1-centre-r2.json: its settings"), "{error}");
}

/// Simulates 6.1's first centre run in every cell, a little different for each seed.
fn made_up(_: &Cell, _: u64, seed: u64) -> Result<Vec<Phase>, RunError> {
    let mut run = cell(guests(), "6.1-centre").runs[0].clone();
    for value in run.iter_mut().flat_map(|phase| phase.counts.values_mut()) {
        *value += seed % 2;
    }
    Ok(run)
}

fn report(options: &Options) -> Report {
    run(options, &shipped(), made_up, &Silent).unwrap()
}

/// Returns a report of the usual options, made once.
fn usual() -> &'static Report {
    static REPORT: OnceLock<Report> = OnceLock::new();
    REPORT.get_or_init(|| report(&Options::default()))
}

#[test]
fn a_run_has_what_is_declared_whatever_comes_out() {
    let report = usual();
    let found = shortfalls(&SCENARIO, &Options::default(), report);
    assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), Vec::<String>::new());
    let verdicts: Vec<ClaimVerdict> = report.oracles.iter().map(Oracle::verdict).collect();
    assert!(verdicts.contains(&ClaimVerdict::NotHere) && verdicts.contains(&ClaimVerdict::Holds));
    let measure = |id: &str| {
        let kernels = report.kernels.as_ref().unwrap();
        kernels.measures.iter().find(|it| it.id == id).unwrap().outcome
    };
    assert_eq!(measure("pages-per-call/6.1"), Outcome::Reproduced);
    assert_eq!(measure("pages-per-call/7.2"), Outcome::NotReproduced);
}

#[test]
fn tables_show_both_sides_within_the_page() {
    let text = nofrag_show::text(&(SCENARIO.present)(usual()));
    for part in [
        "The simulation does not reproduce",
        "6.1 centre, phase by phase",
        "181..182",
        "7.2: pages per direct reclaim; nothing was tried",
        "Fitted parameters: 6",
        "vanilla was never judged by a kernel",
        "from the least to the most",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn a_mask_chooses_a_kernel() {
    let of = |mask: &str| Options { mask: Some(mask.to_owned()), ..Options::default() };
    let report = report(&of("6.12"));
    let kernels = report.kernels.unwrap();
    assert!(kernels.cells.iter().all(|cell| cell.kernel == "6.12"));
    assert!(kernels.missing.iter().all(|cell| cell.starts_with("6.12-")));
    let error = run(&of("6.18"), &shipped(), made_up, &Silent).unwrap_err().to_string();
    assert!(error.contains("5.10 (1), 6.1 (2), 6.12 (4), 7.2 (8)"), "{error}");
}

#[test]
fn few_seeds_judge_no_count() {
    let report = report(&Options { repeat: Some(4), ..Options::default() });
    let kernels = report.kernels.unwrap();
    let judged = |it: &Compared| matches!(it.agreement, Agreement::Agrees | Agreement::Differs);
    assert!(!kernels.cells.iter().flat_map(|cell| &cell.counts).any(judged));
    assert!(report.notes.iter().any(|it| it.contains("takes 5 seeds")), "{:?}", report.notes);
}

#[test]
fn what_cannot_be_chosen_is_refused() {
    let check = |options: Options, part: &str| {
        let error = run(&options, &shipped(), made_up, &Silent).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    let none = Options::default;
    let soak = Options { mode: Mode::Soak, ..none() };
    let refused = SCENARIO.run(&soak, &Silent).unwrap_err().to_string();
    assert!(refused.contains("--mode must be compare"), "{refused}");
    check(Options { designs: vec![SIMULATION.to_owned()], ..none() }, "nothing to compare");
    check(Options { repeat: Some(0), ..none() }, "at least 1");
    check(Options { threads: Some(0), ..none() }, "between 1 and 1024");
}

#[test]
fn a_run_that_differs_when_made_again_breaks_the_check() {
    fn restless(cell: &Cell, read: u64, seed: u64) -> Result<Vec<Phase>, RunError> {
        use std::sync::atomic::{AtomicU64, Ordering};
        static RUNS: AtomicU64 = AtomicU64::new(0);
        made_up(cell, read, seed).map(|mut phases| {
            phases[2].counts.insert(Count::Moved, RUNS.fetch_add(1, Ordering::Relaxed));
            phases
        })
    }
    let options = Options { repeat: Some(1), mask: Some("5.10".to_owned()), ..Options::default() };
    let report = run(&options, &shipped(), restless, &Silent).unwrap();
    assert_eq!(report.broken().map(|it| &*it.id).collect::<Vec<_>>(), ["repeats"]);
    let counts: BTreeMap<&str, bool> =
        report.oracles.iter().map(|it| (&*it.id, it.holds)).collect();
    assert!(counts["fitted"]);
}
