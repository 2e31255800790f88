//! The requests of a real kernel, replayed under other policies and sizes of memory.
//!
//! A replay is open-loop: the requests stay as they were recorded. It says what each policy does with these requests,
//! and claims nothing that would need the workload to react. [`Fidelity`] says how near the replay under the recorded
//! kernel's own rules comes to what that kernel did.

mod addresses;
mod cautions;
mod course;
mod engine;
mod fidelity;
mod migration;
mod mmap;
mod outcome;
mod owner;
mod pace;
mod pairing;
mod passes;
mod present;
mod request;
mod scanner;
mod settings;
mod spans;
mod start;
mod step;
#[cfg(test)]
mod tests;
mod timeline;
mod vmap;

use std::path::{Path, PathBuf};
use std::thread;

use nofrag::page::{FragmentationPolicy, PolicyPreset};
use nofrag::units::{Order, Pfn};
use nofrag_host::recording::Recording;
use nofrag_host::snapshot::{PageFlags, PageMap, Snapshot};
use nofrag_host::trace::{self, Moment, Trace, TraceError, TraceMeta, UnseenTracker, View};
use thiserror::Error;

use crate::scenario::stand_in;
use addresses::AddressReplay;
use engine::{Engine, Spec};
use fidelity::{Runs, Truth};
use owner::Housekeeping;
use pairing::Pairing;
use passes::{Followers, Resync, Timed, pass};
use start::Host;

pub use addresses::{AddressOutcome, addresses, sections as address_sections};
pub use course::Course;
pub use mmap::{MMAP_POLICIES, Miss, MmapFidelity, MmapOutcome, MmapRecorded, MmapRun};
pub use outcome::{
    Assumptions, ByOrder, ByType, Contiguity, Counts, Fidelity, FidelityFigure, PolicyRun,
    Recorded, ReplayReport, Sample, Tolerance, Verdict,
};

pub use present::sections;
pub use settings::{Question, Setting, Settings};
pub use vmap::{KnownStart, VMAP_POLICIES, VmapOutcome, VmapRecorded, VmapRun};

/// The policies that are compared when none is named: each stands for what changed then.
pub const DEFAULT_POLICIES: [&str; 8] = [
    "linux-4.20",
    "linux-4.20+patch4",
    "linux-5.3",
    "linux-6.1",
    "linux-6.12",
    "linux-7.2",
    "linux-7.2-defrag",
    "nofrag",
];

/// A trace that can be opened as often as it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Anything that [`nofrag_host::trace::open`] opens.
    File(PathBuf),
    /// The recording that comes with nofrag: `data/recordings/linux-6.1-guest-768m.nofrag`.
    Shipped,
}

impl Input {
    /// Opens it.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn open(&self) -> Result<Trace, TraceError> {
        match self {
            Input::File(path) => trace::open(path),
            Input::Shipped => {
                let recording = Recording::from_bytes(SHIPPED.to_vec(), Path::new(SHIPPED_NAME))?;
                Ok(Trace { meta: recording.meta().clone(), events: recording.events()? })
            }
        }
    }

    /// What it is called in reports.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Input::File(path) => path.display().to_string(),
            Input::Shipped => SHIPPED_NAME.to_owned(),
        }
    }
}

/// The shipped recording.
const SHIPPED: &[u8] = include_bytes!("../../data/recordings/linux-6.1-guest-768m.nofrag");
const SHIPPED_NAME: &str = "linux-6.1-guest-768m";

/// What is replayed, and under what.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// The trace.
    pub trace: Input,
    /// Names of policies ([`FragmentationPolicy::PRESETS`](nofrag::page::FragmentationPolicy::PRESETS)).
    pub policies: Vec<String>,
    /// Policies with other settings than the recorded host's, behind those.
    pub questions: Vec<Question>,
    /// Sizes of memory in percent of the recorded host's; 100 where none is named.
    pub memory: Vec<u32>,
    /// Where all chance begins.
    pub seed: u64,
    /// How many samples over time each run takes.
    pub samples: usize,
    /// How many runs go at a time; 0 for one per CPU.
    pub threads: usize,
}

/// Why nothing was replayed.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The trace could not be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// There is no such policy.
    #[error("{0}")]
    Policy(String),
    /// The trace does not say enough of its host.
    #[error("{0}")]
    Host(String),
}

/// Replays a trace under each policy and size of memory. The events are read once, however many runs there are, and
/// never held at once; memory is bounded by the frames of the host.
///
/// # Errors
/// [`ReplayError`].
pub fn replay(
    options: &ReplayOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<ReplayReport, ReplayError> {
    let Trace { meta, events } = options.trace.open()?;
    let specs = specs(options)?;
    let start = meta.start().map(|taken| Snapshot::parse(&taken.files));
    let end = meta.end().map(|taken| Snapshot::parse(&taken.files));
    let host = match &start {
        Some(snapshot) => Host::of(snapshot, options.seed)?,
        None => unseen_host(&options.trace)?,
    };
    let own_rules = meta.release.as_deref().and_then(preset_of);
    let judged = own_rules.filter(|_| start.is_some() && end.is_some());
    let judges = judged.into_iter().flat_map(|preset| judges(preset, options.samples));
    let engines = judges.chain(specs).map(|spec| {
        let start = host.start(spec.policy, &spec.settings, spec.memory_percent, ())?;
        Engine::new(host.map(), host.in_use(), start, spec)
    });
    let engines = engines.collect::<Result<Vec<_>, _>>()?;
    let mut pairing = pairing_of(&host, &meta, &engines)?;
    let resyncs = resyncs(&meta);
    let threads = match options.threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let mut addresses = AddressReplay::new(&meta);
    let unseen = UnseenTracker::new(&meta);
    let followers = Followers { pairing: &mut pairing, addresses: &mut addresses, unseen };
    let (recorded, unseen, mut runs) =
        pass(events, followers, &resyncs, engines, threads, progress)?;
    let wanted = runs.split_off(if judged.is_some() { JUDGES } else { 0 });
    let pages = |number: usize| runs[number].engine.pages();
    let fidelity = judged.zip(start.as_ref().zip(end.as_ref())).map(|(preset, (start, end))| {
        let runs = Runs { without: pages(0), replayed: pages(1), own: pages(2) };
        fidelity::fidelity(preset.name, &runs, &Truth { start, end, traced: &recorded })
    });
    let assumed = pairing.assumptions();
    let outcome = |run: &Timed| run.engine.outcome(assumed, run.wall_nanos);
    let runs: Vec<PolicyRun> = wanted.iter().map(outcome).collect();
    let mut cautions = cautions::cautions(&host, &meta, &recorded, fidelity.as_ref(), &runs);
    cautions.extend(stand_ins(&options.policies));
    let (trace, release) = (options.trace.name(), meta.release.clone());
    let (seed, AddressOutcome { vmap, mmap }) = (options.seed, addresses.finish());
    Ok(ReplayReport {
        trace,
        release,
        seed,
        recorded,
        unseen,
        runs,
        fidelity,
        vmap,
        mmap,
        cautions,
    })
}

/// The runs that were asked for: policies in the order in which they were named, then questions; sizes within each.
fn specs(options: &ReplayOptions) -> Result<Vec<Spec>, ReplayError> {
    let mut wanted: Vec<(PolicyPreset, Settings)> = Vec::new();
    for name in &options.policies {
        let preset = FragmentationPolicy::preset(name);
        let preset = preset.map_err(|unknown| ReplayError::Policy(format!("{name}: {unknown}")))?;
        wanted.push((preset, Settings::default()));
    }
    for question in &options.questions {
        let choices = question.choices().into_iter();
        wanted.extend(choices.map(|settings| (question.preset(), settings)));
    }
    let sizes = if options.memory.is_empty() { &[100][..] } else { &options.memory };
    let mut specs: Vec<Spec> = Vec::new();
    for (preset, settings) in wanted {
        let name = name_of(preset.name, &settings);
        if specs.iter().any(|spec| spec.name == name) {
            continue; // two names for the same rules
        }
        specs.extend(sizes.iter().map(|&memory_percent| Spec {
            name: name.clone(),
            policy: preset.policy,
            settings: settings.clone(),
            memory_percent,
            housekeeping: Housekeeping::Own,
            samples: options.samples,
        }));
    }
    Ok(specs)
}

/// What a run is called: `linux-6.1`, `linux-6.1:boost=0`.
fn name_of(policy: &str, settings: &Settings) -> String {
    if settings.is_empty() { policy.to_owned() } else { format!("{policy}:{settings}") }
}

/// Which policies ran under another name than was asked for.
fn stand_ins(policies: &[String]) -> Vec<String> {
    let meant = |name: &String| {
        let preset = FragmentationPolicy::preset(name).ok()?;
        stand_in(name, preset.name)
    };
    policies.iter().filter_map(meant).map(|said| said + ".").collect()
}

/// How many runs [`Fidelity`] needs.
const JUDGES: usize = 3;

/// The runs by which the replay is judged: without targets, with them, and with the policy's own housekeeping.
fn judges(preset: PolicyPreset, samples: usize) -> [Spec; JUDGES] {
    use Housekeeping::{AsRecorded, Own, WithoutTargets};
    [WithoutTargets, AsRecorded, Own].map(|housekeeping| Spec {
        name: preset.name.to_owned(),
        policy: preset.policy,
        settings: Settings::default(),
        memory_percent: 100,
        housekeeping,
        samples,
    })
}

/// The preset with the rules of a release, such as `6.1.0-53-cloud-amd64`.
fn preset_of(release: &str) -> Option<PolicyPreset> {
    FragmentationPolicy::preset(&format!("linux-{}", version_of(release)?)).ok()
}

/// The host of a trace without a snapshot: all that its events name. They are read for that once more.
fn unseen_host(trace: &Input) -> Result<Host, ReplayError> {
    let mut events = trace.open()?.events;
    let (mut batch, mut highest, mut cpus) = (Vec::new(), 0, 0);
    while events.read(&mut batch)? {
        for event in batch.drain(..) {
            cpus = cpus.max(u32::from(event.cpu) + 1);
            let last = match event.view() {
                View::PageAlloc { pfn: Some(pfn), order, .. } | View::PageFree { pfn, order } => {
                    pfn.saturating_add((1 << order.min(Order::MAX.get().into())) - 1)
                }
                _ => continue,
            };
            highest = highest.max(last);
        }
    }
    Host::empty(Pfn(highest), cpus)
}

/// What is believed of the recorded host at its start.
fn pairing_of(host: &Host, meta: &TraceMeta, engines: &[Engine]) -> Result<Pairing, ReplayError> {
    let whole = engines.iter().find(|engine| engine.spec().memory_percent == 100);
    let mut pairing = match whole {
        Some(engine) => Pairing::new(host.map(), engine.pages(), meta),
        None => {
            let start =
                host.start(FragmentationPolicy::LINUX_6_1, &Settings::default(), 100, ())?;
            Pairing::new(host.map(), &start.pages, meta)
        }
    };
    for held in host.in_use() {
        pairing.in_use(held.pfn.0, held.order);
    }
    if let Some(Moment::During { end, .. }) = meta.start().map(|taken| taken.moment) {
        pairing.set_window(end);
    }
    Ok(pairing)
}

/// The snapshots between the first and the last, where they show frames.
fn resyncs(meta: &TraceMeta) -> Vec<Resync<'_>> {
    let first = usize::from(meta.start().is_some());
    let between = meta.snapshots.iter().skip(first).filter_map(|taken| {
        let Moment::During { end, .. } = taken.moment else { return None };
        let flags = taken.files.bytes("kpageflags")?;
        let map = PageMap::new(flags, None);
        let is_free = move |pfn| map.flags(pfn).is_some_and(|of| of.has(PageFlags::BUDDY));
        Some(Resync { at: end, is_free: Box::new(is_free) })
    });
    between.collect()
}

/// The version in a release, such as `6.1` in `6.1.0-53-cloud-amd64`.
fn version_of(release: &str) -> Option<String> {
    let (major, rest) = release.split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    major.parse::<u32>().ok()?;
    (!minor.is_empty()).then(|| format!("{major}.{minor}"))
}
