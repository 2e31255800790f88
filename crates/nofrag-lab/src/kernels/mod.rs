//! `extfrag-kernels`: the simulation beside real kernels, under the workload of `extfrag-2018`.
//!
//! Guests with kernels of Debian ran the workload of mmtests, on fully described machines (`data/guests-2018`; the
//! lessons of earlier guests stand in docs/sources/pages.md#guests). The simulation gets the same memory, zones, mode
//! and settings, and the counts of both sides stand side by side, phase by phase. Parameters may be fitted on 6.1 and
//! 7.2, so that 5.10 and 6.12 judge; a cell of these that was looked at is spoilt and judges no more. Measures that do
//! not come out are shown as not reproduced.
//!
//! - `dataset`: the kernels' runs. `guest`: a cell simulated. `phase`: the form that both are turned into.
//! - `judge`: their agreement. `fitted`: fitted parameters and attempts. `outcome`: the result.
//! - `beside`: runs the simulation. `present`: tables and a picture.

mod beside;
mod dataset;
mod fitted;
mod guest;
mod judge;
mod outcome;
mod phase;
mod present;

pub(crate) use guest::counts_put_off;
pub use outcome::{
    Agreement, Between, CellReport, Compared, Fitted, KernelsReport, Measure, Outcome, Role, Sign,
};

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use self::beside::{KernelsPlan, Simulate};
use self::dataset::{DatasetError, Guests, SHIPPED};
use self::judge::{Beside, Ratio};
use self::phase::PhaseName;
use crate::key::Key;
use crate::oracle::{Claims, Oracle, Relation};
use crate::plan::{Plan, Usual, runs_at_a_time};
use crate::report::{Measurement, Report, Settings};
use crate::scenario::{
    Declaration, Options, Progress, RunError, Scenario, Special, choose_programs, in_repository,
};
use crate::stats::Spread;

const KERNEL: &str = "kernel";
const SIMULATION: &str = "simulation";

/// The scenario that sets the simulation beside real kernels.
pub(crate) static SCENARIO: Scenario = Scenario {
    declared: LazyLock::new(|| Declaration::of(include_str!("scenario.toml"))),
    run: |options, progress| {
        let folder = in_repository(SHIPPED).map_err(|why| RunError::input(SCENARIO.name, why))?;
        run(options, &folder, guest::simulate, progress)
    },
    present: |report| report.kernels.as_deref().map(present::sections).unwrap_or_default(),
    special: Special { missing: |_| in_repository(SHIPPED).err(), ..Special::NONE },
};

fn input(error: DatasetError) -> RunError {
    RunError::input(SCENARIO.name, error)
}

fn run(
    options: &Options,
    folder: &Path,
    simulate: Simulate,
    progress: &dyn Progress,
) -> Result<Report, RunError> {
    let plan = plan(options)?;
    let kernels = &plan.programs;
    let guests = chosen(dataset::read(folder).map_err(input)?, kernels)?;
    let mut report = SCENARIO.report(settings(&plan, options));
    let (cells, repeats) = beside::run(&plan, guests, simulate, progress)?;
    report.measurements = cells.iter().flat_map(measurements).collect();
    let signs = judge::signs(&cells);
    let measures = judge::measures(&cells, &signs, kernels);
    report.oracles = oracles(&measures, repeats);
    for measure in measures.iter().filter(|it| it.outcome == Outcome::NotJudged) {
        report.skip(&measure.id, "the kernels' runs that are there do not tell");
    }
    report.kernels = Some(Box::new(KernelsReport {
        // The position of the repository is this machine's business.
        folder: SHIPPED.to_owned(),
        seeds: plan.repeats,
        cells: cells.iter().map(cell_report).collect(),
        measures,
        signs,
        fitted: fitted::fitted(),
        fits_tried: fitted::FITS_TRIED,
        spoilt: fitted::SPOILT.iter().map(|name| (*name).to_owned()).collect(),
        missing: missing(&cells, kernels),
    }));
    if plan.repeats < judge::SEEDS {
        report.notes.push(format!(
            "counts are not judged: that takes {} seeds, and there were {}",
            judge::SEEDS,
            plan.repeats
        ));
    }
    Ok(report)
}

fn plan(options: &Options) -> Result<KernelsPlan, RunError> {
    if SCENARIO.choose_designs(options)?.len() < SCENARIO.designs.len() {
        let why = "leaves nothing to compare: kernel and simulation stand together";
        return Err(RunError::option("design", why));
    }
    let kernels = choose_programs(&SCENARIO.programs(), |it| *it, options.mask.as_deref())?;
    let usual = Usual { repeats: judge::SEEDS, threads: Some(runs_at_a_time()), ..Usual::ONCE };
    let names = kernels.iter().map(|kernel| kernel.name).collect();
    Plan::of(options, SCENARIO.designs.clone(), names, usual)
}

/// Returns the cells of these kernels.
fn chosen(guests: Vec<Guests>, kernels: &[&str]) -> Result<Vec<Guests>, RunError> {
    let refuse = |why: String| Err(RunError::input(SCENARIO.name, why));
    let known: Vec<&str> = SCENARIO.programs().iter().map(|kernel| kernel.name).collect();
    let is_known = |it: &&Guests| known.contains(&&*it.cell.kernel);
    if let Some(Guests { cell, .. }) = guests.iter().find(|it| !is_known(it)) {
        let known = known.join(", ");
        let name = judge::name(cell);
        return refuse(format!("the folder has a cell {name}; kernels known here are {known}"));
    }
    let is_chosen = |it: &Guests| kernels.contains(&&*it.cell.kernel);
    let chosen: Vec<Guests> = guests.into_iter().filter(is_chosen).collect();
    match chosen.is_empty() {
        true => refuse(format!("{SHIPPED} has no run of {}", kernels.join(" or "))),
        false => Ok(chosen),
    }
}

fn settings(plan: &KernelsPlan, options: &Options) -> Settings {
    let last = plan.seed.saturating_add(plan.repeats as u64 - 1);
    Settings {
        conditions: vec![
            format!("seeds {} to {last}", plan.seed),
            format!("kernels' runs from {SHIPPED}"),
        ],
        ..plan.settings(options.mode, |design| design)
    }
}

fn cell_report(cell: &Beside) -> CellReport {
    let Guests { cell: of, runs } = &cell.guests;
    CellReport {
        kernel: of.kernel.clone(),
        factor: of.factor.clone(),
        role: judge::role(of),
        repeats: runs.len(),
        counts: judge::counts(cell),
        free: judge::free(cell),
    }
}

/// Returns the rows of a kernel's centre: the kernel's counts, and the simulation's. Other cells have none.
fn measurements(cell: &Beside) -> Vec<Measurement> {
    if cell.guests.cell.factor != CENTRE {
        return Vec::new();
    }
    let counts = [judge::counts(cell), judge::free(cell)].concat();
    let named = |it: &Compared| Key::from(format!("{}: {}", it.phase, it.what));
    let theirs = counts.iter().filter_map(|it| Some((named(it), it.kernel.clone()?))).collect();
    let ours = counts.iter().filter_map(|it| Some((named(it), it.ours.clone()?))).collect();
    let name = &cell.guests.cell.kernel;
    let rows = [
        measurement(name, KERNEL, &cell.guests.runs, theirs),
        measurement(name, SIMULATION, &cell.ours, ours),
    ];
    rows.into_iter().flatten().collect()
}

fn measurement(
    kernel: &str,
    design: &str,
    runs: &judge::Runs,
    spreads: BTreeMap<Key, Spread>,
) -> Option<Measurement> {
    Some(Measurement {
        counts: spreads.iter().map(|(key, it)| (key.clone(), it.median.into())).collect(),
        spreads,
        ..Measurement::new(
            kernel,
            design,
            1,
            Ratio::HugePercent.into_str(),
            Ratio::HugePercent.spread(runs, PhaseName::Thp)?,
        )
    })
}

const CENTRE: &str = "centre";

/// Judges the claims. A measure that does not come out is not a broken claim: the table shows it.
fn oracles(measures: &[Measure], repeats: bool) -> Vec<Oracle> {
    let mut oracles = Vec::new();
    let claim = "a run made again with its seed that differs";
    oracles.exact("repeats", claim, f64::from(u8::from(!repeats)), Relation::NONE);
    let most = Relation::AtMost(fitted::MOST_FITTED as f64);
    oracles.exact("fitted", "parameters fitted", fitted::fitted().len() as f64, most);
    for it in measures {
        // A measure that the simulation does not give at all is as far off as can be; every bound is above 0.
        let Some(must) = it.must else { continue };
        oracles.ratio(&*it.id, &*it.what, it.ours.unwrap_or(0.0), must);
    }
    oracles
}

/// The factors of the plan by which the folder is made (`cargo xtask guests --list`), with the kernels that have them.
const PLANNED: [(&str, &[&str]); 8] = [
    (CENTRE, &["5.10", "6.1", "6.12", "7.2"]),
    ("default", &["5.10", "6.1", "6.12", "7.2"]),
    ("defrag-always", &["5.10", "6.1", "6.12", "7.2"]),
    ("boost-0", &["5.10", "6.1", "6.12", "7.2"]),
    ("defrag-mode", &["7.2"]),
    ("classic-lru", &["6.12", "7.2"]),
    ("two-nodes", &["5.10", "6.1", "6.12", "7.2"]),
    ("4-gib", &["6.1", "6.12", "7.2"]),
];

/// Returns the number of repeats of a planned cell; the pair that boosting is judged by has more.
fn repeats(cell: &str) -> usize {
    if matches!(cell, "5.10-centre" | "5.10-boost-0") { 10 } else { 3 }
}

/// Names the planned cells of these kernels that lack repeats.
fn missing(cells: &[Beside], kernels: &[&str]) -> Vec<String> {
    let found = |name: &str| {
        let found = cells.iter().find(|it| judge::name(&it.guests.cell) == name);
        found.map_or(0, |it| it.guests.runs.len())
    };
    let of_kernel = |kernel: &&str| {
        let has_it = |(_, of): &&(&str, &[&str])| of.contains(kernel);
        let names = PLANNED.iter().filter(has_it).map(|(factor, _)| format!("{kernel}-{factor}"));
        let cell = |name: String| match (found(&name), repeats(&name)) {
            (0, _) => Some(name),
            (some, all) if some < all => Some(format!("{name} ({some} of {all} runs)")),
            _ => None,
        };
        names.filter_map(cell).collect::<Vec<_>>()
    };
    kernels.iter().flat_map(of_kernel).collect()
}

#[cfg(all(test, not(packed)))]
mod tests;
