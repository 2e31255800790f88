use std::collections::BTreeMap;

use nofrag::check::Check;
use nofrag::units::{PageCount, Vpn};
use nofrag::vmap::{Area, AreaRequest, Guard, Preset, VmapPolicy, VmapSpace};

use super::catalogue::{Program, Search, Spec, Width};
use super::programs::FIRST_REFUSED_SHIFT;
use super::turns::{AreasPlan, EMULATED_CPUS};
use super::worker::{RunSize, Watch, Worker};
use super::*;
use crate::key::Key;
use crate::oracle::ClaimKind;
use crate::random::Random;
use crate::scenario::Silent;
use crate::spaces::new_space;

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

/// Verifies that live areas are disjoint, guard pages included, and agree with their requests.
#[derive(Debug, Default)]
struct Audit {
    live: BTreeMap<u64, u64>,
    /// Areas that were handed out.
    areas: u64,
    /// Areas that shared a page with a live one.
    overlaps: u64,
    /// Areas of another size, alignment, place or guard than requested.
    misfits: u64,
}

impl Watch for Audit {
    fn taken(&mut self, area: &Area, request: &AreaRequest) {
        let (start, end) = (area.span().start(), area.span().end());
        self.areas += 1;
        let below = self.live.range(..end).next_back();
        self.overlaps += u64::from(below.is_some_and(|(_, live_end)| *live_end > start));
        let as_asked = area.pages.get() == request.pages
            && start.is_multiple_of(request.align)
            && area.guard == request.guard
            && end - start == request.pages + request.guard.pages()
            && request.within.is_none_or(|within| within.covers(area.span()));
        self.misfits += u64::from(!as_asked);
        self.live.insert(start, end);
    }

    fn given(&mut self, start: Vpn) {
        self.live.remove(&start.get());
    }
}

fn audit_of(requests: &[(u64, u64)]) -> Audit {
    let space = new_space::<()>(VmapPolicy::LINUX_5_2, 1 << 20, 1).unwrap();
    let cpu = space.cpus().by_rank(0).unwrap();
    let mut audit = Audit::default();
    for (start, pages) in requests {
        let area = Area { start: Vpn(*start), pages: PageCount(*pages), guard: Guard::Page, cpu };
        audit.taken(&area, &AreaRequest::new(*pages));
    }
    audit
}

#[test]
fn the_audit_sees_overlaps_with_the_guard_page() {
    assert_eq!(audit_of(&[(10, 4), (15, 4)]).overlaps, 0);
    assert_eq!(audit_of(&[(10, 4), (14, 4)]).overlaps, 1);
    assert_eq!(audit_of(&[(10, 4), (6, 4)]).overlaps, 1);
    assert_eq!(audit_of(&[(10, 4), (5, 4)]).overlaps, 0);
    assert_eq!(audit_of(&[(10, 40), (20, 1)]).overlaps, 1);
}

/// Returns true for programs that are quick to prepare: all of the kernel's, and most of ours.
fn is_audited(spec: &Spec) -> bool {
    let small = match spec.program {
        Program::Churn { live, .. } => live <= 10_000,
        Program::MixedParams(areas) => areas <= 1_000,
        _ => true,
    };
    small && spec.width == Width::Single
}

fn audited(plan: &AreasPlan, spec: &Spec, design: &Preset) -> (Audit, VmapSpace, Option<f64>) {
    let space = new_space(design.policy, spec.space_pages(), EMULATED_CPUS).unwrap();
    let loops = spec.loops(50, Search::Descends, plan.extent);
    let size = RunSize { loops, pages: plan.pages, cpus: EMULATED_CPUS, threads: 1 };
    let random = Random::new(plan.seed, spec.info.bit);
    let mut worker = Worker::new(&space, 0, size, random, Audit::default());
    spec.program.run(&mut worker).unwrap();
    let shift = worker.sample.extra.get(&FIRST_REFUSED_SHIFT).map(|it| it.get());
    (worker.watch, space, shift)
}

#[test]
fn every_body_keeps_its_areas_apart_and_gives_them_back() {
    for spec in SPECS.iter().filter(|spec| is_audited(spec)) {
        for design in choose_presets(&SCENARIO.designs, &[]).unwrap() {
            let plan = plan(&small(Mode::Compare)).unwrap();
            let (audit, space, shift) = audited(&plan, spec, &design);
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
    assert!(report.oracles.iter().filter(|oracle| oracle.kind == ClaimKind::Exact).count() >= 5);
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
