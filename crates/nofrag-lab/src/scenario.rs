//! Scenarios: what one is, the options that it is run with, and the list of them.

use std::ops::Deref;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Instant;

use nofrag::page::FragmentationPolicy;
use nofrag::vmap::{Preset, VmapPolicy};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use crate::declared::declared;
use crate::key::Key;
use crate::oracle::{DeclaredClaim, Oracle};
use crate::report::{Report, Settings};
use crate::shortfall::Expected;
use crate::tables::DeclaredTable;
use nofrag_show::Section;

/// A published comparison that can be run again: what `scenario.toml` beside its code declares, and what runs.
#[derive(Debug)]
pub struct Scenario {
    pub declared: LazyLock<Declaration>,
    /// Runs the designs that the options name, each by its own name. The time of the whole run is added by
    /// [`run`](Self::run).
    pub run: fn(&Options, &dyn Progress) -> Result<Report, RunError>,
    /// Turns a report of this scenario into sections for people.
    pub present: fn(&Report) -> Vec<Section>,
    pub special: Special,
}

/// The data of a scenario.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    /// The scenario's name on the command line.
    pub name: &'static str,
    /// One line about the scenario's subject.
    pub about: &'static str,
    /// Author, title and year of the document that the scenario runs again.
    pub document: &'static str,
    /// The designs that the scenario compares, oldest first; the last one is ours.
    pub designs: Vec<&'static str>,
    /// The scenario's programs, in the order of lists.
    #[serde(default)]
    programs: Vec<ProgramInfo>,
    /// Rows and number of claims that the default run must have.
    pub expected: Expected,
    #[serde(default)]
    pub(crate) tables: Vec<DeclaredTable>,
    #[serde(default)]
    pub(crate) claims: Vec<DeclaredClaim>,
    /// The text, in which programs may have fields that their scenario alone knows.
    #[serde(skip)]
    value: Value,
}

impl Declaration {
    /// Reads the text of a `scenario.toml`. Names live as long as the program.
    ///
    /// # Panics
    /// If it is malformed; tests read each.
    #[must_use]
    pub fn of(text: &str) -> Declaration {
        let mut value: Value = declared(text);
        let programs = value.get_mut("programs").and_then(Value::as_array_mut);
        for (at, program) in programs.into_iter().flatten().enumerate() {
            let fields = program.as_object_mut().expect("a program has fields");
            fields.entry("bit").or_insert_with(|| (1_u64 << at).into());
        }
        let read: Declaration = from_leaked(value.clone());
        Declaration { value, ..read }
    }
}

/// Reads a value that is never freed.
fn from_leaked<T: Deserialize<'static>>(value: Value) -> T {
    T::deserialize(&*Box::leak(Box::new(value))).expect("a test reads the same text")
}

/// Parts that only few scenarios have.
#[derive(Clone, Copy, Debug)]
pub struct Special {
    /// Finds the programs, where they are not declared.
    pub(crate) programs: Option<fn() -> Vec<ProgramInfo>>,
    /// Finds the design that a name means, where the rules of names are the engine's.
    pub design_of: Option<fn(&str) -> Option<&'static str>>,
    /// A design's name in a list, with any remark beside it.
    pub shown: fn(&'static str) -> String,
    /// The modes in which the programs can be driven; the first is the usual one.
    pub modes: &'static [Mode],
    /// The backings of frames that the scenario can run on.
    pub memory: &'static [Memory],
    /// A sentence on what this host lacks to run the scenario, which is then left out of `all`; `None` if nothing is
    /// missing.
    pub missing: fn(&Options) -> Option<String>,
    /// Counts whose distribution over the repetitions tells more than their medians.
    pub distributions: &'static [Key],
}

impl Special {
    /// Nothing special.
    pub const NONE: Special = Special {
        programs: None,
        design_of: None,
        shown: str::to_owned,
        modes: &[Mode::Compare],
        memory: &[Memory::Numbers],
        missing: |_| None,
        distributions: &[],
    };
}

impl Deref for Scenario {
    type Target = Declaration;

    fn deref(&self) -> &Declaration {
        &self.declared
    }
}

impl Scenario {
    /// Returns the design that `name` means: the one of that name, or for `linux-X.Y` the newest that is not newer, or
    /// for `+patchN` the one whose name ends so.
    #[must_use]
    pub fn design_of(&self, name: &str) -> Option<&'static str> {
        self.special.design_of.map_or_else(|| closest(&self.designs, name), |find| find(name))
    }

    /// Returns the scenario's programs, in the order of lists.
    #[must_use]
    pub fn programs(&self) -> Vec<ProgramInfo> {
        self.special.programs.map_or_else(|| self.programs.clone(), |find| find())
    }

    /// Returns the programs as the scenario knows them: with the fields that it alone has.
    pub(crate) fn specs<W: DeserializeOwned>(&self) -> Vec<Spec<W>> {
        let work: Vec<W> = from_leaked(self.value["programs"].clone());
        self.programs.iter().zip(work).map(|(&info, work)| Spec { info, work }).collect()
    }

    /// Returns the programs that the options name, by the scenario's own names for them.
    ///
    /// # Errors
    /// Those of [`choose_programs`].
    pub(crate) fn choose<P: FromStr>(&self, options: &Options) -> Result<Vec<P>, RunError> {
        let chosen = choose_programs(&self.programs, |it| *it, options.mask.as_deref())?;
        let named = |info: ProgramInfo| P::from_str(info.name).ok();
        Ok(chosen.into_iter().map(|it| named(it).expect("a test reads the same names")).collect())
    }

    /// Returns the designs that the options name, oldest first; all of them when they name none.
    ///
    /// # Errors
    /// [`RunError::UnknownDesign`] for a name that is not among them.
    pub(crate) fn choose_designs(&self, options: &Options) -> Result<Vec<&'static str>, RunError> {
        choose_designs(&self.designs, &options.designs)
    }

    /// Runs the scenario, with designs by any name that [`design_of`](Self::design_of) knows; notes tell which names
    /// stand for others.
    ///
    /// # Errors
    /// [`RunError`] for options that make no sense here, and when a design fails where it must not.
    pub fn run(&self, options: &Options, progress: &dyn Progress) -> Result<Report, RunError> {
        let begin = Instant::now();
        if let Some(why) = self.expected.fault(&self.designs) {
            return Err(RunError::input(self.name, why));
        }
        if !self.special.modes.contains(&options.mode) {
            let modes: Vec<&str> = self.special.modes.iter().map(|mode| mode.into_str()).collect();
            let why = format!("must be {} in {}", modes.join(" or "), self.name);
            return Err(RunError::option("mode", why));
        }
        let asked = &options.designs;
        let meant = |name: &String| self.design_of(name).map_or(name.clone(), str::to_owned);
        let designs = asked.iter().map(meant).collect();
        let options = Options { designs, ..options.clone() };
        let mut report = (self.run)(&options, progress)?;
        report.notes.splice(0..0, self.stand_ins(asked));
        report.elapsed_s = begin.elapsed().as_secs_f64();
        Ok(report)
    }

    /// Returns the declared tables of a report.
    pub(crate) fn tables(&self, report: &Report) -> impl Iterator<Item = Section> {
        self.tables.iter().filter_map(|table| table.section(report))
    }

    /// Returns a report without results.
    pub(crate) fn report(&self, settings: Settings) -> Report {
        let (scenario, document) = (self.name.to_owned(), self.document.to_owned());
        Report { scenario, document, settings, ..Report::default() }
    }

    /// Judges the declared claims by a report.
    pub(crate) fn judge(&self, report: &mut Report) {
        let judged = self.claims.iter().filter_map(|claim| claim.judge(report));
        let judged: Vec<Oracle> = judged.collect();
        report.oracles.extend(judged);
    }

    /// Returns a note for each name that stands for a design of another name.
    pub(crate) fn stand_ins(&self, asked: &[String]) -> Vec<String> {
        asked.iter().filter_map(|name| stand_in(name, self.design_of(name)?)).collect()
    }
}

/// Returns all scenarios, in the order in which `all` runs them.
#[must_use]
pub fn scenarios() -> &'static [&'static Scenario] {
    static ALL: &[&Scenario] = &[
        &crate::mmap_holes::SCENARIO,
        &crate::vm_map_ram::SCENARIO,
        &crate::vmap_areas::SCENARIO,
        &crate::vmap_blocks::SCENARIO,
        &crate::extfrag::SCENARIO,
        &crate::kernels::SCENARIO,
        &crate::mmap_live::SCENARIO,
        &crate::vmap_live::SCENARIO,
        &crate::frames::SCENARIO,
        &crate::recorded::SCENARIO,
        &crate::real_memory::SCENARIO,
    ];
    ALL
}

/// A program as a list of programs shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct ProgramInfo {
    /// The program's name in `--mask`.
    pub name: &'static str,
    /// The program's bit in `--mask`; unless it is declared, that of its place.
    pub bit: u64,
    /// One line on the body of a loop.
    pub body: &'static str,
}

/// A program with the fields that its scenario alone has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec<W> {
    pub(crate) info: ProgramInfo,
    work: W,
}

impl<W> Deref for Spec<W> {
    type Target = W;

    fn deref(&self) -> &W {
        &self.work
    }
}

/// Ways of driving the programs.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "lowercase", const_into_str)]
#[strum(parse_err_ty = String, parse_err_fn = no_such_mode)]
pub enum Mode {
    /// Every program alone in a fresh space, designs turn by turn: the mode of the tables.
    #[default]
    Compare,
    /// `performance` of the kernel's `test_vmalloc.sh`: one pinned CPU, programs in order, three repetitions, in one
    /// space; time is summed.
    Performance,
    /// `test_repeat_count=1` of the kernel's test module: all CPUs, each thread with an order of programs of its own,
    /// in one space; elapsed and processor time.
    Shuffle,
    /// `smoke` of the kernel's `test_vmalloc.sh`: 10,000 loops, ten repetitions.
    Smoke,
    /// `stress` of the kernel's `test_vmalloc.sh`: a thread per CPU, twenty repetitions.
    Stress,
    /// The same load over and over, watched for memory that does not come back.
    Soak,
}

impl Mode {
    pub const ALL: &[Mode] = <Mode as strum::VariantArray>::VARIANTS;
}

fn no_such_mode(text: &str) -> String {
    let names: Vec<&str> = Mode::ALL.iter().map(|mode| mode.into_str()).collect();
    format!("there is no mode {text:?}; the modes are {}", names.join(", "))
}

/// Extent of a run: a part that keeps within a time, or everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// A part that ends within the scenario's share of the time of `all`.
    #[default]
    Subset,
    Full,
}

/// Backing of the frames that a scenario's allocator hands out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// No memory: the frames are numbers.
    #[default]
    Numbers,
    /// Memory of this host, which is mapped, written, moved and timed.
    Real,
}

/// Options of the command line. The scenario chooses values for those that are `None` or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub mode: Mode,
    pub extent: Extent,
    /// The designs to compare; empty for all.
    pub designs: Vec<String>,
    /// Programs by name, by comma-separated names, or as the sum of their bits; `None` for all.
    pub mask: Option<String>,
    pub repeat: Option<usize>,
    pub loops: Option<u64>,
    /// Pages of a fixed-size area.
    pub pages: Option<u64>,
    /// Threads of the parallel programs.
    pub threads: Option<usize>,
    /// The seed of all random numbers.
    pub seed: Option<u64>,
    /// Sizes of the simulated machine's whole memory in GiB; results of several sizes are compared.
    pub memory: Vec<u64>,
    /// The share of its mapping that each thread touches which asks for huge pages.
    pub thp_touch: Option<ThpTouch>,
    /// The backing of the frames that the allocator hands out.
    pub memory_is: Memory,
    /// Duration of a soak, in minutes.
    pub minutes: Option<u64>,
    /// Stretches or recordings of kernels, to follow: the folder with several of them, or a single one.
    pub states: Option<PathBuf>,
    /// The folder in which recordings of the running kernel are kept.
    pub keep: Option<PathBuf>,
}

/// The share of their mapping, which is 75 % of a node, that the threads touch which ask for huge pages
/// (docs/sources/pages.md#trap-4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr, strum::EnumString)]
#[strum(const_into_str, parse_err_ty = String, parse_err_fn = no_such_touch)]
pub enum ThpTouch {
    /// Every second unit, 37.5 % of a node, as the document's program does.
    #[default]
    #[strum(serialize = "37.5")]
    HalfOfUnits,
    /// Every unit, 75 % of a node, as the document's text says.
    #[strum(serialize = "75")]
    AllUnits,
}

fn no_such_touch(text: &str) -> String {
    format!("{text:?} is neither 37.5 nor 75, the percent of a node that the threads touch")
}

impl ThpTouch {
    /// Returns the share as a condition of a run.
    pub(crate) fn condition(self) -> String {
        format!("{} % of a node touched", self.into_str())
    }
}

/// The reason why a scenario gave no report.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunError {
    /// A design that the scenario does not have.
    #[error("there is no design {name:?}; the designs are {known}")]
    UnknownDesign {
        name: String,
        /// The known designs, comma-separated.
        known: String,
    },
    /// A program that the scenario does not have.
    #[error("there is no program {name:?}; the programs are {known}")]
    UnknownProgram {
        name: String,
        /// The known programs, comma-separated.
        known: String,
    },
    /// An option out of its range.
    #[error("--{option} {why}")]
    BadOption {
        option: &'static str,
        /// The fault of its value, as the rest of a sentence.
        why: String,
    },
    /// A program's input is missing or damaged.
    #[error("{program}: {why}")]
    Input {
        program: String,
        /// The fault of the input.
        why: String,
    },
    /// A design failed where it must not.
    #[error("{design} failed in {program}: {why}")]
    Engine { design: String, program: String, why: String },
}

impl RunError {
    /// Returns the refusal of an option; `why` is the rest of a sentence.
    pub(crate) fn option(option: &'static str, why: impl Into<String>) -> RunError {
        RunError::BadOption { option, why: why.into() }
    }

    /// Returns the failure of a design in a program.
    pub(crate) fn engine(design: &str, program: &str, why: impl ToString) -> RunError {
        let (design, program) = (design.to_owned(), program.to_owned());
        RunError::Engine { design, program, why: why.to_string() }
    }

    /// Returns the fault of a program's input.
    pub(crate) fn input(program: &str, why: impl ToString) -> RunError {
        RunError::Input { program: program.to_owned(), why: why.to_string() }
    }
}

/// Listener to the progress of a long run.
pub trait Progress {
    /// Begins a run of `steps` steps.
    fn begin(&self, steps: u64);
    /// Starts the next step, which `what` describes.
    fn step(&self, what: &str);
    /// Reports `steps` steps at once.
    fn steps(&self, steps: u64, what: &str) {
        (0..steps).for_each(|_| self.step(what));
    }
    /// Ends the run that `begin` began.
    fn end(&self);
}

/// A listener that ignores the progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _steps: u64) {}
    fn step(&self, _what: &str) {}
    fn end(&self) {}
}

/// Returns the designs of `all` that `wanted` names, in the order of `all`; all of them when it names none.
///
/// # Errors
/// [`RunError::UnknownDesign`] for a name that is not among them.
pub fn choose_designs(
    all: &[&'static str],
    wanted: &[String],
) -> Result<Vec<&'static str>, RunError> {
    if let Some(unknown) = wanted.iter().find(|name| !all.contains(&name.as_str())) {
        return Err(RunError::UnknownDesign { name: unknown.clone(), known: all.join(", ") });
    }
    let chosen = |design: &&&str| wanted.is_empty() || wanted.iter().any(|name| name == **design);
    Ok(all.iter().filter(chosen).copied().collect())
}

/// Returns the design that `name` means among `designs`, by the rules of [`Scenario::design_of`].
fn closest(designs: &[&'static str], name: &str) -> Option<&'static str> {
    let is_named =
        |design: &&&str| **design == name || name.starts_with('+') && design.ends_with(name);
    let asked = version(name);
    let not_newer = |design: &&&str| version(design).is_some_and(|of| Some(of) <= asked);
    let named = designs.iter().find(is_named);
    named.or_else(|| designs.iter().filter(not_newer).max_by_key(|of| version(of))).copied()
}

/// Returns the version, `(X, Y)`, that `linux-X.Y` names; `None` for other names.
fn version(design: &str) -> Option<(u32, u32)> {
    let (major, minor) = design.strip_prefix("linux-")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns a note that another design ran than was asked for, unless `asked` is the name of `design`.
pub(crate) fn stand_in(asked: &str, design: &str) -> Option<String> {
    let why = match version(asked) {
        Some(_) => ", the newest rules here that are not newer",
        None => "",
    };
    (asked != design).then(|| format!("{asked} was asked for: {design} is what ran{why}"))
}

/// Returns the presets that `wanted` names, oldest first; those of `all` when it names none. A version of Linux between
/// two rule sets means the newest one that is not newer ([`Scenario::run`] says so).
///
/// # Errors
/// [`RunError::UnknownDesign`] for a name that is not a preset's, and for a version older than all of them.
///
/// # Panics
/// If a name in `all` is not a preset's.
pub fn choose_presets(all: &[&'static str], wanted: &[String]) -> Result<Vec<Preset>, RunError> {
    if wanted.is_empty() {
        let named = |name: &&str| VmapPolicy::preset(name).expect("a scenario compares presets");
        return Ok(all.iter().map(named).collect());
    }
    let resolve = |name: &String| {
        VmapPolicy::preset(name)
            .map_err(|_| RunError::UnknownDesign { name: name.clone(), known: all.join(", ") })
    };
    let mut presets = wanted.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
    // A patched kernel comes after the one that it patches.
    let rank = |preset: &Preset| {
        let kernel = preset.name.split('+').next();
        (VmapPolicy::presets().position(|known| Some(known.name) == kernel), preset.name)
    };
    presets.sort_by_key(rank);
    presets.dedup_by_key(|preset| preset.name);
    Ok(presets)
}

/// Returns the entries of `all` whose programs `mask` names, in their order; all of them without a mask. `info` tells
/// the program of an entry.
///
/// # Errors
/// [`RunError::UnknownProgram`] for a name or a bit that none of them has; [`RunError::BadOption`] for a mask of zero.
pub fn choose_programs<S: Copy>(
    all: &[S],
    info: impl Fn(&S) -> ProgramInfo,
    mask: Option<&str>,
) -> Result<Vec<S>, RunError> {
    let Some(mask) = mask else { return Ok(all.to_vec()) };
    let infos: Vec<ProgramInfo> = all.iter().map(&info).collect();
    let unknown = |name: &str| {
        let known: Vec<String> = infos.iter().map(|p| format!("{} ({})", p.name, p.bit)).collect();
        RunError::UnknownProgram { name: name.to_owned(), known: known.join(", ") }
    };
    let mut bits = 0;
    for part in mask.split(',').map(str::trim) {
        match (infos.iter().find(|program| program.name == part), part.parse::<u64>()) {
            (Some(program), _) => bits |= program.bit,
            (None, Ok(number)) => bits |= number,
            (None, Err(_)) => return Err(unknown(part)),
        }
    }
    let known_bits = infos.iter().fold(0, |sum, program| sum | program.bit);
    if bits & !known_bits != 0 {
        return Err(unknown(mask));
    }
    if bits == 0 {
        return Err(RunError::option("mask", "selects no program"));
    }
    Ok(all.iter().filter(|spec| info(spec).bit & bits != 0).copied().collect())
}

/// Finds a folder of the repository, from the current directory upwards.
///
/// # Errors
/// The reason why it is not found, as a sentence that can go on.
pub(crate) fn in_repository(folder: &str) -> Result<PathBuf, String> {
    let here = std::env::current_dir().map_err(|error| format!(".: {error}"))?;
    let found = here.ancestors().map(|above| above.join(folder)).find(|path| path.is_dir());
    found.ok_or_else(|| {
        let (here, from) = (here.display(), "it comes with the sources of nofrag; go there");
        format!("no folder {folder} in {here} or above it: {from}")
    })
}

/// Returns the name of a page policy in a list, with its remark.
pub(crate) fn page_policy(design: &'static str) -> String {
    let preset = FragmentationPolicy::preset(design);
    preset.map_or_else(|_| design.to_owned(), |preset| preset.to_string())
}

/// Returns the preset of areas and blocks that `name` means.
pub(crate) fn vmap_preset(name: &str) -> Option<&'static str> {
    VmapPolicy::preset(name).ok().map(|preset| preset.name)
}

/// Returns the designs in the order for one repetition: in each repetition another one comes first.
#[must_use]
pub fn turn<T: Clone>(designs: &[T], repetition: usize) -> Vec<T> {
    let mut order = designs.to_vec();
    if !order.is_empty() {
        let first = repetition % order.len();
        order.rotate_left(first);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAMS: [ProgramInfo; 3] = [
        ProgramInfo { name: "one", bit: 1, body: "" },
        ProgramInfo { name: "two", bit: 2, body: "" },
        ProgramInfo { name: "four", bit: 4, body: "" },
    ];

    fn chosen(mask: &str) -> Result<Vec<&'static str>, RunError> {
        Ok(choose_programs(&PROGRAMS, |program| *program, Some(mask))?
            .iter()
            .map(|program| program.name)
            .collect())
    }

    #[test]
    fn a_mask_takes_names_bits_and_both() {
        assert_eq!(chosen("5").unwrap(), ["one", "four"]);
        assert_eq!(chosen("four,one").unwrap(), ["one", "four"]);
        assert_eq!(chosen("two, 1").unwrap(), ["one", "two"]);
        assert_eq!(choose_programs(&PROGRAMS, |program| *program, None).unwrap().len(), 3);
    }

    #[test]
    fn a_mask_that_selects_nothing_known_is_refused() {
        assert!(matches!(chosen("three"), Err(RunError::UnknownProgram { .. })));
        assert!(matches!(chosen("8"), Err(RunError::UnknownProgram { .. })));
        assert!(matches!(chosen("0"), Err(RunError::BadOption { option: "mask", .. })));
        assert!(matches!(chosen(""), Err(RunError::UnknownProgram { .. })));
    }

    #[test]
    fn designs_keep_their_order_and_unknown_ones_are_refused() {
        let wanted = ["c", "a"].map(str::to_owned);
        assert_eq!(choose_designs(&["a", "b", "c"], &wanted).unwrap(), ["a", "c"]);
        assert_eq!(choose_designs(&["a", "b"], &[]).unwrap(), ["a", "b"]);
        let refused = choose_designs(&["a", "b"], &wanted).unwrap_err();
        assert_eq!(refused.to_string(), "there is no design \"c\"; the designs are a, b");
    }

    #[test]
    fn programs_have_bits_and_names_of_their_own_and_fit_a_listing() {
        for scenario in scenarios() {
            let programs = scenario.programs();
            for (at, ProgramInfo { name, bit, body }) in programs.iter().enumerate() {
                assert!(bit.is_power_of_two(), "{name}");
                assert!(body.len() < 70 && name.len() <= 35, "{name}: {body}");
                let mut others = programs[..at].iter();
                assert!(others.all(|other| other.bit != *bit && other.name != *name), "{name}");
            }
        }
    }

    fn check_meaning(scenario: &str, name: &str, design: Option<&str>) {
        let found = scenarios().iter().find(|found| found.name == scenario).unwrap();
        assert_eq!(found.design_of(name), design, "{name} in {scenario}");
    }

    #[test]
    fn a_name_between_two_means_the_newest_that_is_not_newer() {
        check_meaning("vmap-areas-2019", "linux-5.14", Some("linux-5.11"));
        check_meaning("vmap-areas-2019", "linux-5.17", Some("linux-5.16"));
        check_meaning("vm-map-ram-2015", "linux-6.6", Some("linux-6.4"));
        check_meaning("vm-map-ram-2015", "linux-2.6", None);
        check_meaning("vmap-blocks-2023", "linux-6.9", Some("linux-6.4"));
        check_meaning("mmap-holes-2005", "linux-2.6.20", Some("linux-2.6.13"));
        check_meaning("mmap-holes-2005", "linux-5.14", Some("linux-3.8"));
        check_meaning("recording", "linux-6.6", Some("linux-6.1"));
        check_meaning("mmap-live", "linux-6.6", None);
    }

    /// Checks that `extfrag-2018` resolves the names of page policies as their presets do: by one lookup, not two.
    #[test]
    fn page_policies_are_resolved_as_their_presets_are() {
        for name in [
            "linux-4.20",
            "linux-5.9",
            "linux-5.13",
            "linux-5.19",
            "linux-6.6",
            "linux-6.9",
            "linux-6.18",
            "linux-9.0",
            "+patch2",
        ] {
            let preset = FragmentationPolicy::preset(name).unwrap().name;
            check_meaning("extfrag-2018", name, Some(preset));
        }
        check_meaning("extfrag-2018", "linux-4.19", None);
    }

    #[test]
    fn presets_come_oldest_first_and_once() {
        let wanted = ["nofrag", "linux-5.17", "linux-3.19+patch1", "linux-5.16", "linux-3.19"];
        let chosen = choose_presets(&["nofrag"], &wanted.map(str::to_owned)).unwrap();
        let names: Vec<&str> = chosen.iter().map(|preset| preset.name).collect();
        assert_eq!(names, ["linux-3.19", "linux-3.19+patch1", "linux-5.16", "nofrag"]);
        assert!(choose_presets(&["nofrag"], &["linux-3.18".to_owned()]).is_err());
    }

    #[test]
    fn a_stand_in_is_named_with_what_was_asked_for() {
        assert_eq!(stand_in("linux-5.2", "linux-5.2"), None);
        let said = stand_in("linux-5.9", "linux-5.2").unwrap();
        assert!(said.starts_with("linux-5.9 was asked for: linux-5.2 is what ran"), "{said}");
    }

    #[test]
    fn every_design_comes_first_in_turn() {
        assert_eq!(turn(&['a', 'b', 'c'], 0), ['a', 'b', 'c']);
        assert_eq!(turn(&['a', 'b', 'c'], 1), ['b', 'c', 'a']);
        assert_eq!(turn(&['a', 'b', 'c'], 5), ['c', 'a', 'b']);
        assert_eq!(turn::<char>(&[], 5), []);
    }

    #[test]
    fn modes_go_by_their_names() {
        let names = ["compare", "performance", "shuffle", "smoke", "stress", "soak"];
        assert_eq!(names.len(), Mode::ALL.len());
        for (name, mode) in names.iter().zip(Mode::ALL) {
            assert_eq!(name.parse::<Mode>().unwrap(), *mode);
            assert_eq!(mode.into_str(), *name);
        }
        assert!("fast".parse::<Mode>().unwrap_err().contains("performance"));
    }
}
