//! Runs the programs and judges their outcomes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use nofrag::ranges::Span;
use nofrag::vmap::{AreaState, Decay, Pools, VmapPolicy};
use nofrag_host::recording::Recording;
use nofrag_host::trace::{self, Trace, TraceError};

use super::case::Case;
use super::catalogue::{Source, Spec};
use super::explain::{Causes, Explained, PATIENCE, explain};
use super::lists::{self, Lists, Placed};
use super::live::{self, Place};
use super::replay::{Counts, Difference, Kind};
use super::{DESIGNS, LivePlan, names};
use crate::key::{self, Key};
use crate::oracle::{Claims, Relation};
use crate::replay::version_of;
use crate::report::{Measurement, Report};
use crate::scenario::{Extent, RunError};

/// Files that the command line names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files<'a> {
    /// Recordings that are compared in place of those that come with nofrag: a folder of them, or one.
    pub(super) given: Option<&'a Path>,
    /// Folder in which recordings of the running kernel are kept.
    pub(super) keep: Option<&'a Path>,
}

/// Runs all programs of the plan, in order.
pub(super) fn run(
    plan: &LivePlan,
    files: Files<'_>,
    report: &mut Report,
    step: &dyn Fn(&str),
) -> Result<(), RunError> {
    let mut live = 0.0;
    for spec in &plan.programs {
        step(spec.info.name);
        match compared(plan, files, spec) {
            Ok(compared) => {
                report.notes.extend(compared.left_out.iter().cloned());
                judge(spec, &compared, report);
                if !spec.program.is_shipped() {
                    live += compared.sum(|one| one.counts.equal) as f64;
                    live +=
                        compared.lists.iter().map(|it| it.placed.searched() as f64).sum::<f64>();
                }
            }
            Err(why) => match spec.program {
                Source::Running(_) | Source::RunningLists => report.skip(spec.info.name, why),
                Source::Given | Source::Shipped(_) | Source::ShippedLists(_) => {
                    return Err(RunError::engine(DESIGNS[0], spec.info.name, why));
                }
            },
        }
    }
    if (plan.extent == Extent::Full || files.given.is_some()) && live > 0.0 {
        let claim = "areas that the kernel placed, and the model likewise";
        report.oracles.host("total", claim, live, Relation::AtLeast(1e5));
    }
    Ok(())
}

/// The recordings of a program, each compared with the model.
struct Compared {
    recordings: Vec<(Case, Explained)>,
    /// Lists, where the kernel has no events.
    lists: Vec<lists::Compared>,
    /// Recordings that cannot be compared, with the reasons.
    left_out: Vec<String>,
}

impl Compared {
    fn sum(&self, of: impl Fn(&Explained) -> u64) -> u64 {
        self.recordings.iter().map(|(_, explained)| of(explained)).sum()
    }
}

/// Returns the recordings of a program, compared.
///
/// # Errors
/// The reason why there are none, in words.
fn compared(plan: &LivePlan, files: Files<'_>, spec: &Spec) -> Result<Compared, String> {
    if let Some(folder) = files.keep {
        fs::create_dir_all(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    }
    let (mut recordings, mut lists, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    match spec.program {
        Source::Shipped(bytes) => recordings.push(compare(shipped(bytes, spec.info.name))?),
        Source::ShippedLists(bytes) => lists.push(compare_lists(&Lists::of_bytes(bytes)?)?),
        Source::Given => {
            let path = files.given.ok_or("no recording is named")?;
            for file in recordings_in(path).map_err(|why| format!("{}: {why}", path.display()))? {
                let compared = if has_extension(&file, "lists") {
                    let read = fs::read(&file).map_err(|why| why.to_string());
                    let read = read.and_then(|bytes| compare_lists(&Lists::of_bytes(&bytes)?));
                    read.map(|compared| lists.push(compared))
                } else {
                    compare(trace::open(&file)).map(|compared| recordings.push(compared))
                };
                if let Err(why) = compared {
                    left_out.push(format!("left out: {}: {why}", file.display()));
                }
            }
            match (recordings.is_empty(), lists.is_empty()) {
                (true, true) => return Err(left_out.join("; ")),
                (false, false) => return Err("both recordings and lists: name one kind".to_owned()),
                _ => {}
            }
        }
        Source::RunningLists => {
            for repetition in 0..plan.repeats as u64 {
                let listed = live::list(plan.length(repetition))?;
                if let Some(folder) = files.keep {
                    let file = folder.join(format!("{}-{}.lists", spec.info.name, repetition + 1));
                    let written = listed.to_bytes().and_then(|bytes| fs::write(&file, bytes));
                    written.map_err(|why| format!("{}: {why}", file.display()))?;
                }
                lists.push(compare_lists(&listed)?);
            }
        }
        Source::Running(load) => {
            let kept = |name| files.keep.map(|folder| folder.join(name));
            let files = (0..plan.repeats as u64).map(|repetition| {
                let name = format!("{}-{}.nofrag", spec.info.name, repetition + 1);
                let file = kept(name).map_or_else(|| Place::for_now(repetition), Place::Kept);
                live::record(file.path(), load, plan.length(repetition)).map(|_| file)
            });
            // A comparison takes memory and time of the CPUs, which the kernel's areas would show.
            let files = files.collect::<Result<Vec<Place>, _>>()?;
            for file in &files {
                recordings.push(compare(trace::open(file.path()))?);
            }
        }
    }
    Ok(Compared { recordings, lists, left_out })
}

/// Returns the recordings that a path names: itself, or those in it if it is a folder.
fn recordings_in(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path()));
    let mut files = entries.collect::<io::Result<Vec<PathBuf>>>()?;
    files.retain(|file| has_extension(file, "nofrag") || has_extension(file, "lists"));
    files.sort();
    match files.is_empty() {
        true => Err(io::Error::other("the folder has no recording, FILE.nofrag or FILE.lists")),
        false => Ok(files),
    }
}

fn has_extension(file: &Path, wanted: &str) -> bool {
    file.extension().is_some_and(|extension| extension == wanted)
}

fn compare_lists(listed: &Lists) -> Result<lists::Compared, String> {
    lists::compare(listed, rules(&listed.release)?)
}

pub(super) fn shipped(bytes: &[u8], name: &str) -> Result<Trace, TraceError> {
    Recording::from_bytes(bytes.to_vec(), Path::new(name))?.try_into()
}

fn compare(trace: Result<Trace, TraceError>) -> Result<(Case, Explained), String> {
    let case = Case::of(trace.map_err(|why| why.to_string())?).map_err(|why| why.to_string())?;
    let policy = rules(&case.release)?;
    let explained = explain(&case, policy, PATIENCE);
    Ok((case, explained))
}

/// Returns the rules of a release, its mistake in the decay of pools included, which presets are without.
pub(super) fn rules(release: &str) -> Result<VmapPolicy, String> {
    /// Versions whose short pools a purge empties. When between the last of them and 6.18 that was repaired is not
    /// known (docs/sources/vmap.md#pool-decay).
    const EMPTIES_SHORT_POOLS: [&str; 4] = ["6.9", "6.10", "6.11", "6.12"];
    let version = version_of(release).ok_or_else(|| format!("unknown version {release:?}"))?;
    let preset = VmapPolicy::preset(&format!("linux-{version}"));
    let mut policy = preset.map_err(|unknown| format!("{release}: {unknown}"))?.policy;
    if EMPTIES_SHORT_POOLS.contains(&version.as_str()) {
        policy.pools = Pools::ExactSize(Decay::QuarterUnderflow);
    }
    Ok(policy)
}

/// Adds the measurement and the claims of a program's lists.
fn judge_lists(spec: &Spec, lists: &[lists::Compared], report: &mut Report) {
    let name = spec.info.name;
    let sum = |of: fn(&lists::Compared) -> u64| lists.iter().map(of).sum::<u64>();
    let notes = lists.iter().flat_map(|one| &one.differences);
    report.notes.extend(notes.map(|how| format!("{name}: {how}")));
    let differences = sum(|one| one.differences.len() as u64);
    let placed = lists.iter().fold(Placed::default(), |sum, one| sum.plus(one.placed));
    let Placed { alone, told, taken } = placed;
    let (turns, disturbed) = (sum(|it| it.turns), sum(|it| it.disturbed));
    let counts = [
        (names::AREAS, placed.areas()),
        (names::TOLD, told),
        (names::GIVEN, taken),
        (names::PURGES, sum(|one| one.purges)),
        (names::TURNS, turns),
        (names::DISTURBED, disturbed),
        (names::DIFFERENCES, differences),
    ];
    let per_area =
        |one: &lists::Compared| one.took.as_nanos() as f64 / one.placed.areas().max(1) as f64;
    let times = ("ns per area", lists.iter().map(per_area).collect());
    let (areas, counts) = (placed.areas(), key::counts(counts));
    report.measurements.extend(Measurement::of(name, DESIGNS[0], areas, times, counts));
    let kind = spec.program.claims();
    let mut claim = |id: &str, claim: String, measured: f64, relation| {
        report.oracles.claim(kind, format!("{id}/{name}"), claim, measured, relation);
    };
    let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let text =
        format!("{name}: turns, beside those of {alone} equal areas, that differ from the model");
    claim("same", text, differences as f64, Relation::NONE);
    let text = format!(
        "{name}: % of places that the shape of the tree decides about: {told} beyond holes that \
        the kernel's hides, {taken} in ones that the model's hides"
    );
    claim("given", text, share(told + taken, placed.areas()), Relation::AtMost(10.0));
    let text =
        format!("{name}: % of {turns} turns that are left out, as others made areas meanwhile");
    claim("left", text, share(disturbed, turns), Relation::AtMost(5.0));
}

/// Adds the measurement and the claims of a program.
fn judge(spec: &Spec, compared: &Compared, report: &mut Report) {
    if !compared.lists.is_empty() {
        return judge_lists(spec, &compared.lists, report);
    }
    let name = spec.info.name;
    let mut differences = 0.0;
    for (case, explained) in &compared.recordings {
        let Some(first) = &explained.first else { continue };
        differences += 1.0;
        report.notes.push(format!("{name}: {}", told(case, explained, first)));
    }
    let sum = |of: fn(&Counts) -> u64| compared.sum(|one| of(&one.counts));
    let cause = |of: fn(&Causes) -> u64| compared.sum(|one| of(&one.causes));
    let listed = |of: fn((u64, u64)) -> u64| compared.sum(|one| one.end.map_or(0, of));
    let (equal, given) = (sum(|it| it.equal), sum(|it| it.given));
    let (frees, lazy) = (sum(|it| it.frees), sum(|it| it.lazy_equal));
    let counts = [
        (names::AREAS, equal + given),
        (Key::count("areas where the kernel put them"), equal),
        (names::POOLED, sum(|it| it.pooled)),
        (names::ALIGNED, sum(|it| it.aligned)),
        (names::GIVEN, given),
        (names::MOVED, cause(|it| it.moved)),
        (names::LEARNED, cause(|it| it.learned)),
        (Key::count("frees"), frees),
        (Key::count("frees with the kernel's count of lazy pages"), lazy),
        (names::PURGES, sum(|it| it.purges)),
        (Key::count("areas purged"), sum(|it| it.purged)),
        (Key::count("areas listed at the end"), listed(|(kernel, _)| kernel)),
        (Key::count("areas of one list at the end only"), listed(|(_, apart)| apart)),
        (names::DIFFERENCES, differences as u64),
    ];
    let per_change = |(case, one): &(Case, Explained)| {
        let changes = one.first.as_ref().map_or(case.steps.len(), |first| first.position);
        one.took.as_nanos() as f64 / changes.max(1) as f64
    };
    let times = ("ns per change", compared.recordings.iter().map(per_change).collect());
    let (loops, counts) = (equal + given, key::counts(counts));
    report.measurements.extend(Measurement::of(name, DESIGNS[0], loops, times, counts));
    let kind = spec.program.claims();
    let mut claim = |id: &str, claim: String, measured: f64, relation| {
        report.oracles.claim(kind, format!("{id}/{name}"), claim, measured, relation);
    };
    let text =
        format!("{name}: of {equal} areas, differences from the model that nothing explains");
    claim("same", text, differences, Relation::NONE);
    let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let text = format!("{name}: % of places that are taken from the recording");
    claim("given", text, share(given, equal + given), Relation::AtMost(1.0));
    let text = format!("{name}: % of {frees} frees with the kernel's count of lazy pages");
    claim("lazy", text, share(lazy, frees), Relation::AtLeast(98.0));
}

/// Describes a difference, with the states of kernel and model around it.
fn told(case: &Case, explained: &Explained, first: &Difference) -> String {
    let step = case.steps[first.step];
    let hex = |span: Span| format!("{:#x}-{:#x}", span.start() << 12, span.end() << 12);
    let mut text = format!("change {} of {}, {step}: ", first.position + 1, case.steps.len());
    let spans: Vec<Span> = match first.kind {
        Kind::Place { kernel, model, pooled } => {
            let from = if pooled { "a pool" } else { "the tree" };
            let answer = model.map_or_else(|| "nowhere".to_owned(), hex);
            let _ = write!(
                text,
                "the kernel places at {}, the model at {answer}, from {from}",
                hex(kernel)
            );
            [Some(kernel), model].into_iter().flatten().collect()
        }
        Kind::Taken { kernel } => {
            let _ = write!(text, "the kernel places at {}, which is not free", hex(kernel));
            vec![kernel]
        }
        Kind::Unknown { at } => {
            let _ = write!(text, "no area of the model begins at {:#x}", at << 12);
            Vec::new()
        }
        Kind::Lazy { kernel, model } => {
            let _ =
                write!(text, "the kernel purges {kernel} areas, the model has {model} lazy ones");
            Vec::new()
        }
        Kind::Hull { kernel, model } => {
            let (kernel, model) = (hex(kernel), hex(model));
            let _ = write!(text, "the kernel purges in {kernel}, the model in {model}");
            Vec::new()
        }
    };
    let (records, holes) = (explained.space.areas(), explained.space.holes());
    let (Ok(records), Ok(holes)) = (records, holes) else { return text };
    for span in spans {
        let _ = write!(text, "; at {} the model has", hex(span));
        for hole in holes.iter().filter(|hole| hole.intersection(span).is_some()) {
            let _ = write!(text, " free {}", hex(*hole));
        }
        for record in records.iter().filter(|it| it.area.span().intersection(span).is_some()) {
            let state = match record.state {
                AreaState::Busy => "busy",
                AreaState::Lazy => "lazy",
                AreaState::Pooled => "pooled",
            };
            let (area, cpu) = (hex(record.area.span()), record.area.cpu.id());
            let _ = write!(text, " {state} {area} of CPU {cpu}");
        }
    }
    text
}
