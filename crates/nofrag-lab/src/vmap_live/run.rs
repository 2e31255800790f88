//! Runs the programs and judges their outcomes.

use std::fmt::Write as _;
use std::path::Path;

use nofrag::ranges::Span;
use nofrag::vmap::{AreaState, VmapPolicy};
use nofrag_host::recording::Recording;
use nofrag_host::trace::{self, Trace, TraceError};

use super::case::Case;
use super::catalogue::{Source, Spec};
use super::explain::{Causes, Explained, PATIENCE, explain};
use super::live::{self, Scratch};
use super::load::Length;
use super::replay::{Counts, Difference, Kind};
use super::{DESIGNS, LivePlan, names};
use crate::oracle::{ClaimKind, Claims, Relation};
use crate::replay::version_of;
use crate::report::{Measurement, Report};
use crate::scenario::{Extent, RunError};
use crate::stats::Spread;

/// Runs all programs of the plan, in order.
pub(super) fn run(
    plan: &LivePlan,
    report: &mut Report,
    step: &dyn Fn(&str),
) -> Result<(), RunError> {
    let mut live = 0.0;
    for spec in &plan.programs {
        step(spec.info.name);
        match compared(plan, spec) {
            Ok(compared) => {
                judge(spec, &compared, report);
                if let Source::Running(_) = spec.program {
                    live += compared.sum(|one| one.counts.equal) as f64;
                }
            }
            Err(why) => match spec.program {
                Source::Running(_) => report.skip(spec.info.name, why),
                Source::Shipped(_) => {
                    return Err(RunError::engine(DESIGNS[0], spec.info.name, why));
                }
            },
        }
    }
    if plan.extent == Extent::Full && live > 0.0 {
        let claim = "areas that the running kernel placed, and the model likewise";
        report.oracles.host("total", claim, live, Relation::AtLeast(1e5));
    }
    Ok(())
}

/// The recordings of a program, each compared with the model.
struct Compared {
    recordings: Vec<(Case, Explained)>,
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
fn compared(plan: &LivePlan, spec: &Spec) -> Result<Compared, String> {
    let mut recordings = Vec::new();
    match spec.program {
        Source::Shipped(bytes) => recordings.push(compare(shipped(bytes, spec.info.name))?),
        Source::Running(load) => {
            for repetition in 0..plan.repeats as u64 {
                let scratch = Scratch::new();
                let seed = plan.seed.wrapping_add(repetition);
                let length = Length { areas: plan.loops, threads: plan.threads, seed };
                live::record(scratch.path(), load, length)?;
                recordings.push(compare(trace::open(scratch.path()))?);
            }
        }
    }
    Ok(Compared { recordings })
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

/// Returns the rules of a release.
pub(super) fn rules(release: &str) -> Result<VmapPolicy, String> {
    let version = version_of(release).ok_or_else(|| format!("unknown version {release:?}"))?;
    let preset = VmapPolicy::preset(&format!("linux-{version}"));
    Ok(preset.map_err(|unknown| format!("{release}: {unknown}"))?.policy)
}

/// Adds the measurement and the claims of a program.
fn judge(spec: &Spec, compared: &Compared, report: &mut Report) {
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
        ("areas where the kernel put them", equal),
        (names::POOLED, sum(|it| it.pooled)),
        (names::ALIGNED, sum(|it| it.aligned)),
        (names::GIVEN, given),
        (names::MOVED, cause(|it| it.moved)),
        (names::LEARNED, cause(|it| it.learned)),
        ("frees", frees),
        ("frees with the kernel's count of lazy pages", lazy),
        (names::PURGES, sum(|it| it.purges)),
        ("areas purged", sum(|it| it.purged)),
        ("areas listed at the end", listed(|(kernel, _)| kernel)),
        ("areas of one list at the end only", listed(|(_, apart)| apart)),
    ];
    let counts = counts.into_iter().map(|(name, count)| (name.to_owned(), count as f64));
    let per_change = |(case, one): &(Case, Explained)| {
        let changes = one.first.as_ref().map_or(case.steps.len(), |first| first.position);
        one.took.as_nanos() as f64 / changes.max(1) as f64
    };
    if let Some(time) = Spread::of(compared.recordings.iter().map(per_change).collect()) {
        let mut counts: std::collections::BTreeMap<String, f64> = counts.collect();
        counts.insert(names::DIFFERENCES.to_owned(), differences);
        report.measurements.push(Measurement {
            counts,
            ..Measurement::new(name, DESIGNS[0], equal + given, "ns per change", time)
        });
    }
    let kind = match spec.program {
        Source::Shipped(_) => ClaimKind::Exact,
        Source::Running(_) => ClaimKind::Environment,
    };
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
