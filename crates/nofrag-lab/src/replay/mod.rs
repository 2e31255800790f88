//! The requests of a real kernel, replayed under other policies and sizes of memory.
//!
//! A replay is open-loop: the requests stay as they were recorded. It shows the work of each policy on these requests,
//! and claims nothing that would need the workload to react, except for huge pages that one side refuses. Facts that
//! the recording lacks are drawn by lot, and every policy runs under several seeds. [`Fidelity`] tells how near the
//! runs under the recorded kernel's own rules come to that kernel, and which questions they can answer.
//!
//! Files, bottom up: `spans` (frames by number), `request` and `step` (what policies carry out), `start` (the memory at
//! the beginning), `settings`, `pace`, `nodes` and `migration` (what events leave out), `pairing` (from events to
//! steps), `owner` (the pages of the workload), `standin` (single pages for a refused huge one), `waiting` (who is not
//! served a huge page at once), `timeline` and `course`, `engine` (one policy with one size of memory), `passes` (one
//! reading for all of them), `mmap`, `vmap` and `addresses` (recorded addresses), `held` (a trace in memory), `outcome`
//! (results), `fidelity` (how near they are), `against` (other recordings), `says` (what may be said), `cautions`,
//! `present` (tables), `answer` (one screen).

mod addresses;
mod against;
mod answer;
mod cautions;
mod course;
mod engine;
mod fidelity;
mod held;
mod migration;
mod mmap;
mod nodes;
mod outcome;
mod owner;
mod pace;
mod pairing;
mod passes;
mod present;
mod request;
mod says;
mod settings;
mod spans;
mod standin;
mod start;
mod step;
#[cfg(test)]
mod tests;
mod timeline;
mod vmap;
mod waiting;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use nofrag::page::{FragmentationPolicy, MemoryMap, PolicyPreset};
use nofrag::units::{Order, Pfn};
use nofrag_host::budget::Room;
use nofrag_host::recording::Recording;
use nofrag_host::snapshot::{PageFlags, PageMap, Snapshot};
use nofrag_host::trace::{
    self, EventKind, EventSource, Moment, Progressed, Trace, TraceError, TraceMeta, Unseen,
    UnseenTracker, View,
};
use thiserror::Error;

use crate::scenario::stand_in;
use crate::sha256::{sha256, sha256_of};
use addresses::{AddressOutcome, AddressReplay};
use against::{Asked, Other, Ran};
use engine::{Engine, Spec};
use fidelity::{End, Truth};
use pairing::Pairing;
use passes::{Followers, Resync, Timed, pass};
use start::Host;
use timeline::Timeline;

pub use answer::answer;
pub use course::Course;
pub use held::Held;
pub use mmap::{MMAP_POLICIES, Miss, MmapFidelity, MmapOutcome, MmapRecorded, MmapRun};
pub use outcome::{
    Answer, Assumptions, ByOrder, ByType, Change, Contiguity, Counts, Fidelity, FidelityFigure,
    Followed, Foretold, ForetoldFigure, PolicyRun, Query, Range, Recorded, Repeat, ReplayReport,
    Sample, Shortage, Tolerance, Verdict,
};

pub(crate) use present::confirmed;
pub use present::sections;
pub(crate) use says::is_like;
pub use settings::{Question, Setting, Settings};
pub use vmap::{KnownStart, VMAP_POLICIES, VmapOutcome, VmapRecorded, VmapRun};

/// The policies that are compared when none is named: each stands for a change of rules.
pub const DEFAULT_POLICIES: [&str; 5] =
    ["linux-4.20", "linux-5.3", "linux-6.1", "linux-7.2", "nofrag"];

/// A trace that can be opened any number of times.
#[derive(Clone, Debug)]
pub enum Input {
    /// A file of a kind that [`nofrag_host::trace::open`] opens.
    File(PathBuf),
    /// A trace that was read once.
    Held(Held),
    /// The recording that comes with nofrag: `data/recordings/linux-6.1-guest-768m.nofrag`.
    Shipped,
}

impl Input {
    /// Opens the trace.
    ///
    /// # Errors
    /// [`TraceError`] when it cannot be read.
    pub fn open(&self) -> Result<Trace, TraceError> {
        match self {
            Input::File(path) => trace::open(path),
            Input::Held(held) => Ok(held.open()),
            Input::Shipped => {
                Recording::from_bytes(SHIPPED.to_vec(), Path::new(SHIPPED_NAME))?.try_into()
            }
        }
    }

    /// Returns its name in reports.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Input::File(path) => path.display().to_string(),
            Input::Held(held) => held.name().to_owned(),
            Input::Shipped => SHIPPED_NAME.to_owned(),
        }
    }

    /// Reads the trace, and returns it as one that needs no reading.
    pub(crate) fn held(&self) -> Result<Input, TraceError> {
        let unread = |cause| TraceError::File { path: self.name().into(), cause };
        let digest = self.digest().map_err(unread)?;
        Held::read(self.open()?, self.name(), digest).map(Input::Held)
    }

    /// Returns the SHA-256 of its bytes.
    pub(crate) fn digest(&self) -> io::Result<String> {
        match self {
            Input::Held(held) => Ok(held.digest().to_owned()),
            Input::File(path) => sha256_of(File::open(path)?),
            Input::Shipped => Ok(sha256(SHIPPED)),
        }
    }
}

const SHIPPED: &[u8] = include_bytes!("../../data/recordings/linux-6.1-guest-768m.nofrag");
const SHIPPED_NAME: &str = "linux-6.1-guest-768m";

/// Number of seeds that is enough for a range of results.
pub const REPEATS: u64 = 5;

/// The trace, the policies and the extent of a replay.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    pub trace: Input,
    /// Names of policies, from [`FragmentationPolicy::PRESETS`](nofrag::page::FragmentationPolicy::PRESETS).
    pub policies: Vec<String>,
    /// Policies with other settings than the recorded host's, behind those in `policies`.
    pub questions: Vec<Question>,
    /// Sizes of memory in percent of the recorded host's; 100 where none is named.
    pub memory: Vec<u32>,
    /// The first seed; the others follow it one by one.
    pub seed: u64,
    /// Number of seeds under which each policy runs; 0 counts as 1.
    pub repeats: u64,
    /// Other recordings of the same kernel under the same workload: their differences bound how far a replay may be
    /// off.
    pub repeats_of: Vec<PathBuf>,
    /// Other recordings of the same workload on a machine like this, under another kernel or other settings: each has a
    /// run under its kernel's rules.
    pub against: Vec<PathBuf>,
    /// Number of samples over time in each run.
    pub samples: usize,
    /// Number of runs at a time; 0 for one per CPU.
    pub threads: usize,
}

/// The reason why nothing was replayed.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// No policy has this name.
    #[error("{0}")]
    Policy(String),
    /// A recording that was named beside the replayed one cannot be compared with it.
    #[error("{0}")]
    Others(String),
    /// The trace lacks facts about its host.
    #[error("{0}")]
    Host(String),
}

/// Replays a trace under each policy and size of memory, each with several seeds. The events are never held at once;
/// memory is bounded by the frames of the host. All runs that go through the events together take no more than 2 GiB,
/// and no more than is left of the trace's budget: runs without room go through them again.
///
/// # Errors
/// [`ReplayError`]; [`TraceError::Budget`] where the budget has no room for a single run.
pub fn replay(
    options: &ReplayOptions,
    progress: &dyn Fn(Progressed),
) -> Result<ReplayReport, ReplayError> {
    replay_within(MOST_BYTES, Beside::OwnRules, options, progress)
}

/// Replays a trace under the one policy and size of memory in `options`, and nothing beside it: its figures are those
/// that [`replay`] has of it, without a word on what they are worth.
pub(crate) fn replay_one(options: &ReplayOptions) -> Result<PolicyRun, ReplayError> {
    let mut report = replay_within(MOST_BYTES, Beside::Nothing, options, &|_| {})?;
    Ok(report.runs.swap_remove(0))
}

/// The parts of a replay beside the runs that were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// The run under the recorded kernel's own rules, by which the replay is judged, and the replay of addresses.
    OwnRules,
}

fn replay_within(
    most_bytes: u64,
    beside: Beside,
    options: &ReplayOptions,
    progress: &dyn Fn(Progressed),
) -> Result<ReplayReport, ReplayError> {
    let Trace { meta, events, mut room } = options.trace.open()?;
    let start = meta.start().map(|taken| Snapshot::parse(&taken.files));
    let end = meta.end().map(|taken| Snapshot::parse(&taken.files));
    let mut addresses = (beside == Beside::OwnRules).then(|| AddressReplay::new(&meta, &mut room));
    let unseen = UnseenTracker::new(&meta, &mut room);
    let mut host = host_of(options, &meta, start.as_ref(), &mut room)?;
    let judged = meta.release.as_deref().and_then(preset_of);
    let can_judge = beside == Beside::OwnRules && start.is_some() && end.is_some();
    let judged = judged.filter(|_| can_judge);
    let against = against(options, judged.and(start.as_ref()))?;
    let asked = against.iter().map(|(_, asked)| asked.clone());
    let (specs, own) = with_own_rules(specs(options, asked)?, judged, options.samples);
    // Without a snapshot there is nothing to draw.
    let repeats = if start.is_some() { options.repeats.max(1) } else { 1 };
    let plan = AllRuns {
        trace: &options.trace,
        meta: &meta,
        start: start.as_ref(),
        specs: &specs,
        seeds: (0..repeats).map(|n| options.seed.wrapping_add(n)).collect(),
        threads: threads(options),
        samples: options.samples,
        most_bytes,
        room,
        unseen,
    };
    let Repeated { pass, runs, ends, .. } =
        plan.run(&mut host, events, addresses.as_mut(), progress)?;
    let Pass { mut recorded, unseen, followed } = pass.expect("there is a start value");
    let both = start.as_ref().zip(end.as_ref());
    recorded.reclaimed_kswapd =
        both.and_then(|(start, end)| fidelity::counted(start, end, "pgsteal_kswapd"));
    let judged = match own.zip(both) {
        Some((own, (start, end))) => {
            let followed = host.zones().into_iter().zip(followed).collect();
            let traces_moves = records(&meta, EventKind::MigratePages) || recorded.moved > 0;
            let truth = Truth { start, end, traced: &recorded, traces_moves, followed };
            let ran = Ran { runs: &runs, ends: &ends, own };
            Some(ran.judged(options, &against, &truth, meta.release.as_deref())?)
        }
        None => None,
    };
    let (fidelity, against) = judged.unzip();
    let mut cautions = stand_ins(&options.policies);
    cautions.extend(cautions::cautions(&host, &meta, &recorded, fidelity.as_ref(), &runs));
    let (trace, release) = (options.trace.name(), meta.release.clone());
    let addresses = addresses.map_or_else(AddressOutcome::default, AddressReplay::finish);
    let (seed, AddressOutcome { vmap, mmap }) = (options.seed, addresses);
    Ok(ReplayReport {
        trace,
        release,
        seed,
        repeats,
        recorded,
        unseen,
        runs,
        fidelity,
        against: against.unwrap_or_default(),
        vmap,
        mmap,
        cautions,
    })
}

/// Reads the recordings that stand beside this one, with the rules and settings of their kernels. `start` is this one's
/// first snapshot, if the replay can be judged.
fn against(
    options: &ReplayOptions,
    start: Option<&Snapshot<'_>>,
) -> Result<Vec<(Other, Asked)>, ReplayError> {
    let read = |path: &PathBuf| {
        let start = start.ok_or_else(|| {
            let why = "nothing can be set beside a recording without both snapshots, or of a kernel without a preset";
            ReplayError::Others(why.to_owned())
        })?;
        let other = Other::read(path, "a recording beside another")?;
        let asked = other.asked(start)?;
        Ok((other, asked))
    };
    options.against.iter().map(read).collect()
}

fn threads(options: &ReplayOptions) -> usize {
    match options.threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

/// Returns the runs that were asked for: policies in the order in which they were named, then questions, then the rules
/// of recordings beside this one; sizes within each.
fn specs(
    options: &ReplayOptions,
    against: impl Iterator<Item = Asked>,
) -> Result<Vec<Spec>, ReplayError> {
    let mut wanted: Vec<Asked> = Vec::new();
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
    let of_sizes =
        wanted.into_iter().flat_map(|each| sizes.iter().map(move |&size| (each.clone(), size)));
    let mut specs: Vec<Spec> = Vec::new();
    for ((preset, settings), memory_percent) in of_sizes.chain(against.map(|asked| (asked, 100))) {
        let name = name_of(preset.name, &settings);
        if specs.iter().any(|spec| spec.name == name && spec.memory_percent == memory_percent) {
            continue; // two names for the same rules
        }
        specs.push(Spec {
            name,
            policy: preset.policy,
            settings,
            memory_percent,
            seed: options.seed,
            samples: options.samples,
        });
    }
    Ok(specs)
}

/// Returns the name of a run: `linux-6.1`, `linux-6.1:boost=0`.
pub(crate) fn name_of(policy: &str, settings: &Settings) -> String {
    if settings.is_empty() { policy.to_owned() } else { format!("{policy}:{settings}") }
}

/// Returns sentences about policies that ran under another name than was asked for.
fn stand_ins(policies: &[String]) -> Vec<String> {
    let meant = |name: &String| {
        let preset = FragmentationPolicy::preset(name).ok()?;
        stand_in(name, preset.name)
    };
    policies.iter().filter_map(meant).map(|said| said + ".").collect()
}

/// All runs of a replay, with their input.
struct AllRuns<'a> {
    trace: &'a Input,
    meta: &'a TraceMeta,
    start: Option<&'a Snapshot<'a>>,
    specs: &'a [Spec],
    seeds: Vec<u64>,
    threads: usize,
    samples: usize,
    most_bytes: u64,
    /// Room that the budget has left for runs.
    room: Room,
    /// The tracker's state before the first event.
    unseen: UnseenTracker,
}

/// The results of all runs.
#[derive(Default)]
struct Repeated {
    /// Facts from the first pass over the events; `None` before it.
    pass: Option<Pass>,
    /// One for each spec, in their order.
    runs: Vec<PolicyRun>,
    /// By spec: its memory at the end under each seed.
    ends: Vec<Vec<End>>,
    done: u64,
}

impl AllRuns<'_> {
    /// Makes all runs, in as few passes over the events as memory allows: as many seeds at a time as there is room for,
    /// or else as many specs.
    fn run(
        &self,
        host: &mut Host,
        events: Box<dyn EventSource>,
        mut addresses: Option<&mut AddressReplay>,
        progress: &dyn Fn(Progressed),
    ) -> Result<Repeated, ReplayError> {
        let resyncs = resyncs(self.meta);
        let mut events = Some(events);
        let mut repeated = Repeated::default();
        repeated.ends.resize_with(self.specs.len(), Vec::new);
        let at_a_time = self.at_a_time(host.map())?;
        let stated = events.as_ref().and_then(|events| events.stated());
        let parts: Vec<&[Spec]> = match self.specs.len() <= at_a_time {
            true => vec![self.specs],
            false => self.specs.chunks(at_a_time).collect(),
        };
        let seeds = self.seeds.chunks((at_a_time / self.specs.len().max(1)).max(1));
        let of = stated.map(|events| events.saturating_mul((seeds.len() * parts.len()) as u64));
        for seeds in seeds {
            let mut from = 0;
            for specs in &parts {
                let engines = self.engines(host, seeds, specs)?;
                let mut pairing = pairing_of(host, self.meta, &engines)?;
                let events = match events.take() {
                    Some(events) => events,
                    None => self.trace.open()?.events,
                };
                let followers = Followers {
                    pairing: &mut pairing,
                    addresses: addresses.take(),
                    unseen: self.unseen.clone(),
                    timeline: Timeline::new(self.samples),
                };
                let progress = |so_far| progress(Progressed { events: repeated.done + so_far, of });
                let (recorded, unseen, ended) =
                    pass(events, followers, &resyncs, engines, self.threads, &progress)?;
                repeated.done += recorded.events;
                repeated.add(from, specs.len(), &ended, &pairing);
                let followed = pairing.free_by_zone();
                repeated.pass.get_or_insert(Pass { recorded, unseen, followed });
                from += specs.len();
            }
        }
        Ok(repeated)
    }

    /// Returns the number of runs that go through the events together. The remainder goes through them again.
    fn at_a_time(&self, map: &MemoryMap) -> Result<usize, ReplayError> {
        let zones = map.nodes().iter().flat_map(|node| &node.zones);
        let frames: u64 = zones.map(|zone| zone.span.pages.get()).sum();
        let percent = self.specs.iter().map(|spec| spec.memory_percent).max().unwrap_or(0);
        let frames = frames.saturating_mul(u64::from(percent.max(100))) / 100;
        let each = frames.saturating_mul(PER_FRAME).max(1);
        self.room.check(each)?;
        let runs = self.most_bytes.min(self.room.left()) / each;
        Ok(usize::try_from(runs).unwrap_or(usize::MAX).max(1))
    }

    /// Creates a run for each of the specs under each of the seeds; runs of one seed lie together.
    fn engines(
        &self,
        host: &mut Host,
        seeds: &[u64],
        specs: &[Spec],
    ) -> Result<Vec<Engine>, ReplayError> {
        let mut engines = Vec::new();
        for &seed in seeds {
            self.start.iter().for_each(|snapshot| host.reseed(snapshot, seed));
            for spec in specs {
                let start = host.start(spec.policy, &spec.settings, spec.memory_percent, ())?;
                let spec = Spec { seed, ..spec.clone() };
                engines.push(Engine::new(host.map(), host.in_use(), start, spec)?);
            }
        }
        Ok(engines)
    }
}

impl Repeated {
    /// Adds the runs of one pass: seed by seed, those of `count` specs from the one with index `from` on.
    fn add(&mut self, from: usize, count: usize, ended: &[Timed], pairing: &Pairing) {
        for (number, Timed { engine, wall_nanos }) in ended.iter().enumerate() {
            let spec = from + number % count;
            if self.runs.len() == spec {
                self.runs.push(engine.described());
            }
            self.runs[spec].repeats.push(engine.outcome(pairing.assumptions(), *wall_nanos));
            self.ends[spec].push(End::of(engine.pages()));
        }
    }
}

/// Facts from one pass over the events, which do not depend on the runs.
struct Pass {
    recorded: Recorded,
    unseen: Unseen,
    followed: Vec<u64>,
}

/// Returns the wanted runs, and the index of the one under the recorded kernel's own rules (`judged`) and settings,
/// `None` if these are not known. Where nobody named that run it is put first: the others are read beside it.
fn with_own_rules(
    mut specs: Vec<Spec>,
    judged: Option<PolicyPreset>,
    samples: usize,
) -> (Vec<Spec>, Option<usize>) {
    let Some(preset) = judged else { return (specs, None) };
    let is_own = |spec: &Spec| spec.name == preset.name && spec.memory_percent == 100;
    let own = specs.iter().position(is_own).unwrap_or_else(|| {
        let own = Spec {
            name: preset.name.to_owned(),
            policy: preset.policy,
            settings: Settings::default(),
            memory_percent: 100,
            seed: 0,
            samples,
        };
        specs.insert(0, own);
        0
    });
    (specs, Some(own))
}

/// Bytes that a run takes for each frame of its memory: 10 of the allocator, 36 of its owner, and one for the belief of
/// [`Pairing`] about it.
const PER_FRAME: u64 = 48;
/// Bytes that all runs of a pass may take together.
const MOST_BYTES: u64 = 2 << 30;
/// CPUs of a host: Linux on x86-64 has room for no more.
const MOST_CPUS: u32 = 8192;

/// Returns the preset with the rules of a release, such as `6.1.0-53-cloud-amd64`.
fn preset_of(release: &str) -> Option<PolicyPreset> {
    FragmentationPolicy::preset(&format!("linux-{}", version_of(release)?)).ok()
}

/// Returns the host of a trace, with the lists of its CPUs as the first events show them.
fn host_of(
    options: &ReplayOptions,
    meta: &TraceMeta,
    start: Option<&Snapshot<'_>>,
    room: &mut Room,
) -> Result<Host, ReplayError> {
    let Some(snapshot) = start else { return unseen_host(&options.trace) };
    let mut first = options.trace.open()?.events;
    Host::of(snapshot, options.seed, taken_until(meta), &mut *first, room)
}

/// Returns the host of a trace without a snapshot, as large as its events need. They are read once more for that.
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
    Host::empty(Pfn(highest), cpus.min(MOST_CPUS))
}

/// Creates the pairing, with its beliefs about the recorded host's frames at the start.
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
    if let Some(end) = taken_until(meta) {
        pairing.set_window(end);
    }
    Ok(pairing)
}

/// Returns the time at which the snapshot at the start was complete, if events were recorded while it was taken; else
/// `None`.
fn taken_until(meta: &TraceMeta) -> Option<u64> {
    match meta.start()?.moment {
        Moment::During { end, .. } => Some(end),
        _ => None,
    }
}

/// Returns the snapshots during the recording, after the one at the start, that show which frames are free.
fn resyncs(meta: &TraceMeta) -> Vec<Resync<'_>> {
    let first = usize::from(meta.start().is_some());
    let between = meta.snapshots.iter().skip(first).filter_map(|taken| {
        let Moment::During { end, .. } = taken.moment else { return None };
        let flags = taken.files.bytes("kpageflags")?;
        let map = PageMap::new(flags);
        let is_free = move |pfn| map.flags(pfn).is_some_and(|of| of.has(PageFlags::BUDDY));
        Some(Resync { at: end, is_free: Box::new(is_free) })
    });
    between.collect()
}

/// Returns true if a recording has the format of a kind of events.
fn records(meta: &TraceMeta, kind: EventKind) -> bool {
    meta.formats.iter().any(|(name, _)| name == kind.name())
}

/// Returns the version in a release, such as `6.1` in `6.1.0-53-cloud-amd64`.
pub(crate) fn version_of(release: &str) -> Option<String> {
    let (major, rest) = release.split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    major.parse::<u32>().ok()?;
    (!minor.is_empty()).then(|| format!("{major}.{minor}"))
}
