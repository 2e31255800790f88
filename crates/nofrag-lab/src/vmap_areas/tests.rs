use nofrag::check::Check;
use nofrag::vmap::VmapPolicy;

use super::*;
use crate::key::Key;
use crate::oracle::ClaimKind;
use crate::scenario::Silent;

fn small(mode: Mode) -> Options {
    let (repeat, loops, seed) = (Some(2), Some(40), Some(7));
    Options { mode, repeat, loops, seed, threads: Some(2), ..Options::default() }
}

fn run(options: &Options) -> Report {
    SCENARIO.run(options, &Silent).unwrap()
}

fn with_mask(mask: &str) -> Options {
    Options { mask: Some(mask.to_owned()), ..small(Mode::Compare) }
}

fn broken(report: &Report) -> Vec<&str> {
    report.broken().map(|oracle| oracle.id.as_str()).collect()
}

#[test]
fn every_body_keeps_its_areas_apart_and_gives_them_back() {
    for spec in SPECS.iter().filter(|spec| claims::is_audited(spec)) {
        for design in choose_presets(&SCENARIO.designs, &[]).unwrap() {
            let plan = plan(&small(Mode::Compare)).unwrap();
            let (audit, space, shift) = claims::audited(&plan, spec, &design).unwrap();
            let name = format!("{} under {}", spec.info.name, design.name);
            assert_eq!((audit.overlaps, audit.misfits), (0, 0), "{name}");
            assert!(audit.areas > 0, "{name}");
            space.purge_all();
            space.check().unwrap();
            let stats = space.stats();
            assert_eq!((stats.free_pages, stats.holes), (stats.total_pages, 1), "{name}");
            let shifts = spec.info.name == "align_shift";
            assert_eq!(shift.is_some(), shifts, "{name}");
        }
    }
}

#[test]
fn the_same_seed_counts_the_same_and_another_one_differs() {
    let counts = |seed| {
        let designs = [BEFORE, OURS].map(str::to_owned).to_vec();
        let mask = with_mask("random_size_align,churn_10k");
        let options = Options { seed: Some(seed), designs, ..mask };
        let report = run(&options);
        report.measurements.into_iter().map(|m| m.counts).collect::<Vec<_>>()
    };
    assert_eq!(counts(1), counts(1));
    assert_ne!(counts(1), counts(2));
}

#[test]
fn a_small_comparison_holds_every_exact_claim() {
    let report = run(&with_mask(
        "fix_size_alloc,full_fit_alloc,fix_align_alloc,align_shift,pcpu_alloc,long_busy_hole,\
         mixed_params_1k,fix_size_threads,churn_10k_tight",
    ));
    assert_eq!(broken(&report), [""; 0]);
    assert!(report.oracles.iter().filter(|oracle| oracle.kind == ClaimKind::Exact).count() >= 20);
    assert!(report.comparisons.iter().any(|comparison| comparison.figure == "long-busy-i5"));
    let designs = report.settings.designs.len();
    assert_eq!(report.measurements.len(), 9 * designs);
    fits_a_hundred_columns(&report);
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
}

fn fits_a_hundred_columns(report: &Report) {
    let text = nofrag_show::text(&(SCENARIO.present)(report));
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn the_hole_costs_the_old_design_a_walk_and_nobody_else() {
    let report = run(&with_mask("long_busy_hole"));
    let steps = |design: &str| {
        report.measurement("long_busy_hole", design).unwrap().count(names::STEPS_PER_LOOP).unwrap()
    };
    assert!(steps(BEFORE) >= 15_000.0);
    for design in &SCENARIO.designs[1..] {
        assert!(steps(design) < 100.0, "{design}");
    }
}

#[test]
fn all_modes_of_the_driver_pass_every_test() {
    for mode in Mode::ALL.iter().copied().filter(|mode| *mode != Mode::Compare) {
        let name = mode.into_str();
        let mask = Some("fix_size_alloc,random_size_align,align_shift,pcpu_alloc".to_owned());
        let report = run(&Options { mask, loops: Some(2), ..small(mode) });
        assert_eq!(broken(&report), [""; 0], "{name}");
        assert!(report.programs().contains(&name), "{name}");
        for measurement in report.measurements.iter().filter(|m| m.program == "align_shift") {
            assert!(measurement.count(Key::count("xfailed")).unwrap() > 0.0, "{name}");
        }
        fits_a_hundred_columns(&report);
    }
}

#[test]
fn performance_runs_the_tests_with_and_without_the_hole() {
    let mask = Some("fix_size_alloc,long_busy_list_alloc".to_owned());
    let designs = [BEFORE, AFTER].map(str::to_owned).to_vec();
    let report = run(&Options { mask, designs, loops: Some(3), ..small(Mode::Performance) });
    assert!(report.programs().contains(&"performance_hole"));
    let figures: Vec<_> = report.comparisons.iter().map(|c| c.figure.as_str()).collect();
    assert!(figures.contains(&"performance-i5") && figures.contains(&"performance-hikey960"));
}

#[test]
fn a_version_of_linux_resolves_to_its_rules() {
    let wanted = ["linux-5.4", "linux-6.18"].map(str::to_owned);
    let names: Vec<_> = choose_presets(&SCENARIO.designs, &wanted)
        .unwrap()
        .iter()
        .map(|preset| preset.name)
        .collect();
    assert_eq!(names, ["linux-5.2", "linux-6.11"]);
    assert!(choose_presets(&SCENARIO.designs, &["linux-2.6".to_owned()]).is_err());
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let refused = |options: Options| plan(&options).unwrap_err().to_string();
    let small = || small(Mode::Compare);
    assert!(refused(Options { repeat: Some(0), ..small() }).starts_with("--repeat"));
    assert!(refused(Options { loops: Some(0), ..small() }).starts_with("--loops"));
    assert!(refused(Options { pages: Some(u64::MAX), ..small() }).starts_with("--pages"));
    assert!(refused(Options { threads: Some(0), ..small() }).starts_with("--threads"));
    let tight = Options { mask: Some("churn_10k_tight".to_owned()), mode: Mode::Smoke, ..small() };
    assert!(refused(tight).contains("only mode compare"));
}

#[test]
fn the_designs_are_those_of_the_engine_that_differ_in_areas() {
    let presets: Vec<_> = VmapPolicy::presets().map(|preset| preset.name).collect();
    assert!(SCENARIO.designs.iter().all(|design| presets.contains(design)), "{presets:?}");
}
