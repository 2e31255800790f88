//! The vmalloc events of a recording, replayed through [`VmapSpace`].
//!
//! Each request names the window in which it may lie; windows that no earlier one covers are spaces of their own
//! (modules have one beside that of vmalloc). The areas at the start are known where the snapshot has
//! `/proc/vmallocinfo` with real addresses; the kernel prints hashes unless `kernel.kptr_restrict` is 1, the recorder
//! leaves addresses out unless it is asked for them, and then every space begins empty, which the outcome says. Every
//! policy purges when its own rule says so: recorded purges are counted, not carried out.
//!
//! Memory is bounded by the areas that are live at a time, not by events.

use foldhash::{HashMap, HashMapExt};
use nofrag::cpu::{CpuId, CpuSet};
use nofrag::ranges::Span;
use nofrag::units::Vpn;
use nofrag::vmap::{AreaError, AreaRequest, AreaState, Guard, VmapConfig, VmapPolicy, VmapSpace};
use nofrag_host::trace::{Event, TraceMeta, View};
use serde::{Deserialize, Serialize};

use super::MOST_CPUS;
use super::course::Course;
use crate::spaces::{self, NoAreas, PAGE};

/// The presets that are compared: each stands for a change of rules.
pub const VMAP_POLICIES: [&str; 5] =
    ["linux-4.19", "linux-5.2", "linux-5.18", "linux-6.9", "nofrag"];

/// The most windows that are followed, more than a kernel has: requests in others are counted and ignored.
const MOST_SPACES: usize = 16;

/// Outcome of the replay of vmalloc events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VmapOutcome {
    pub recorded: VmapRecorded,
    pub start: KnownStart,
    /// One run for each policy.
    pub runs: Vec<VmapRun>,
    /// The preset of the recorded kernel; its run shows how near the replay comes to that kernel.
    pub own_rules: Option<String>,
    /// Sentences to read before the figures are used.
    pub cautions: Vec<String>,
}

/// Counts of the kernel's own work on areas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VmapRecorded {
    pub requests: u64,
    /// Requests that it refused.
    pub failed: u64,
    pub frees: u64,
    /// Freed areas that were allocated before the recording and are not in its snapshot.
    pub older_frees: u64,
    pub purges: u64,
    /// Areas flushed by these purges.
    pub purged: u64,
    /// The most pages that waited for a flush when an area was freed.
    pub lazy_most: u64,
    /// Requests that no space could be made for, or beyond the areas that the budget has room for, and areas of the
    /// snapshot outside all spaces.
    pub foreign: u64,
}

/// Knowledge of the areas at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum KnownStart {
    /// Number of areas that were loaded where they are.
    Areas(u64),
    /// Number of areas with hashes or zeros for addresses: nothing was loaded.
    Hashed(u64),
    /// No area is known: the spaces begin empty.
    Nothing,
}

/// Counts of one policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VmapRun {
    pub policy: String,
    pub served: u64,
    pub failed: u64,
    /// Requests served at the kernel's own address.
    pub equal: u64,
    /// Pages that waited for a flush, in the course of the recording.
    pub lazy: Course,
    pub flushes: u64,
    /// Areas covered by these flushes.
    pub purged: u64,
    /// Requests served by a pool of flushed areas.
    pub pool_hits: u64,
    /// Entries of the index of free ranges that searches looked at.
    pub steps: u64,
    /// Pages of the largest hole at the end, in the space with the most areas.
    pub largest_hole: u64,
    /// Holes at the end, in that space.
    pub holes: u64,
}

/// A window, with a space for each policy.
#[derive(Debug)]
struct Region {
    span: Span,
    spaces: Vec<VmapSpace>,
}

/// The place of an area under each policy; `None` where the policy refused it.
type Placed = Box<[Option<Vpn>]>;

/// A replay of vmalloc events as it goes.
#[derive(Debug)]
pub(super) struct VmapReplay {
    policies: Vec<(&'static str, VmapPolicy)>,
    own_rules: Option<&'static str>,
    cpus: CpuSet,
    regions: Vec<Region>,
    /// Areas of the snapshot that no region has taken yet.
    waiting: Vec<(Span, AreaState)>,
    start: KnownStart,
    /// The region of each live area and its places, by the page at which the kernel put it.
    live: HashMap<u64, (usize, Placed)>,
    /// The most areas that are replayed at a time; requests beyond are counted as foreign.
    most_areas: usize,
    recorded: VmapRecorded,
    runs: Vec<VmapRun>,
    /// Frees that a policy's space refused: an error of the replay's own tables.
    refused_frees: u64,
}

impl VmapReplay {
    /// Creates a replay from the facts at the start, with the presets of [`VMAP_POLICIES`] and that of the recorded
    /// kernel.
    pub(super) fn new(meta: &TraceMeta, most_areas: usize) -> VmapReplay {
        let own = meta.release.as_deref().and_then(super::version_of);
        let own = own.and_then(|version| VmapPolicy::preset(&format!("linux-{version}")).ok());
        let named = VMAP_POLICIES.iter().filter_map(|name| VmapPolicy::preset(name).ok());
        let mut policies: Vec<(&str, VmapPolicy)> = Vec::new();
        for preset in own.into_iter().chain(named) {
            if !policies.iter().any(|(name, _)| *name == preset.name) {
                policies.push((preset.name, preset.policy));
            }
        }
        let highest = u32::from(meta.cpus.iter().copied().max().unwrap_or(0));
        let (start, waiting) = areas_of(meta);
        VmapReplay {
            runs: policies
                .iter()
                .map(|(name, _)| VmapRun { policy: (*name).to_owned(), ..VmapRun::default() })
                .collect(),
            own_rules: own.map(|preset| preset.name),
            policies,
            cpus: CpuSet::first((highest + 1).min(MOST_CPUS)).expect("a few CPUs fit into memory"),
            regions: Vec::new(),
            waiting,
            start,
            live: HashMap::new(),
            most_areas,
            recorded: VmapRecorded::default(),
            refused_frees: 0,
        }
    }

    /// Carries out an event of vmalloc; ignores others.
    pub(super) fn event(&mut self, event: &Event) {
        match event.view() {
            View::VmapAlloc { addr, size, align, start, end, failed } => {
                self.recorded.requests += 1;
                self.recorded.failed += u64::from(failed);
                let request = RecordedRequest { size, align, window: (start, end) };
                let at = (!failed).then_some(addr >> PAGE);
                self.alloc(event.cpu, &request, at);
            }
            View::VmapFree { start, lazy, .. } => {
                self.recorded.frees += 1;
                self.recorded.lazy_most = self.recorded.lazy_most.max(lazy);
                self.free(event.cpu, start >> PAGE);
            }
            View::VmapPurge { purged, .. } => {
                self.recorded.purges += 1;
                self.recorded.purged += u64::from(purged);
            }
            _ => {}
        }
    }

    fn cpu(&self, cpu: u16) -> CpuId {
        let rank = usize::from(cpu) % self.cpus.len();
        self.cpus.by_rank(rank).expect("the rank is below their number")
    }

    fn alloc(&mut self, cpu: u16, wanted: &RecordedRequest, at: Option<u64>) {
        let cpu = self.cpu(cpu);
        let request = wanted.request().filter(|_| self.live.len() < self.most_areas);
        let Some((request, region)) = request.and_then(|request| {
            let region = self.region(request.within?, cpu)?;
            Some((request, region))
        }) else {
            self.recorded.foreign += 1;
            return;
        };
        let mut placed: Placed = vec![None; self.policies.len()].into();
        for ((space, run), own) in
            self.regions[region].spaces.iter().zip(&mut self.runs).zip(&mut placed)
        {
            match space.alloc(cpu, &request) {
                Ok(area) => {
                    run.served += 1;
                    run.equal += u64::from(at == Some(area.start.get()));
                    *own = Some(area.start);
                }
                Err(AreaError::OutOfMetadata) => panic!("no memory for the records of areas"),
                Err(_) => run.failed += 1,
            }
        }
        match at {
            // An area that the kernel put where a live one is known: its free was not seen.
            Some(at) => {
                if let Some((region, before)) = self.live.insert(at, (region, placed)) {
                    self.give_back(cpu, region, &before);
                }
            }
            // A request that the kernel refused is never freed by an event.
            None => self.give_back(cpu, region, &placed),
        }
    }

    fn free(&mut self, cpu: u16, at: u64) {
        let cpu = self.cpu(cpu);
        let Some((region, placed)) = self.live.remove(&at) else {
            self.recorded.older_frees += 1;
            return;
        };
        self.give_back(cpu, region, &placed);
        for (number, run) in self.runs.iter_mut().enumerate() {
            let lazy = |region: &Region| region.spaces[number].lazy_pages().get();
            run.lazy.take(self.regions.iter().map(lazy).sum());
        }
    }

    fn give_back(&mut self, cpu: CpuId, region: usize, placed: &Placed) {
        for (space, own) in self.regions[region].spaces.iter().zip(placed) {
            if own.is_some_and(|own| space.free(cpu, own).is_err()) {
                self.refused_frees += 1;
            }
        }
    }

    /// Returns the region in which `window` lies; makes it if there is none. `None` if it overlaps one, if there are
    /// too many, or if a policy refuses it.
    fn region(&mut self, window: Span, cpu: CpuId) -> Option<usize> {
        if let Some(known) = self.regions.iter().position(|region| region.span.covers(window)) {
            return Some(known);
        }
        let overlaps = |region: &Region| region.span.intersection(window).is_some();
        if self.regions.len() == MOST_SPACES || self.regions.iter().any(overlaps) {
            return None;
        }
        let space = |(_, policy): &(&str, VmapPolicy)| {
            let config = VmapConfig { span: window, cpus: self.cpus.clone(), policy: *policy };
            VmapSpace::new(config, (), ()).ok()
        };
        let spaces = self.policies.iter().map(space).collect::<Option<Vec<_>>>()?;
        let number = self.regions.len();
        self.regions.push(Region { span: window, spaces });
        self.load(number, cpu);
        Some(number)
    }

    /// Loads the areas of the snapshot that lie in a new region, each at its place.
    fn load(&mut self, number: usize, cpu: CpuId) {
        let region = &self.regions[number];
        let mut room = self.most_areas.saturating_sub(self.live.len());
        let (inside, outside) = self.waiting.drain(..).partition(|(span, _)| {
            let fits = room > 0 && region.span.covers(*span);
            room -= usize::from(fits);
            fits
        });
        self.waiting = outside;
        let inside: Vec<(Span, AreaState)> = inside;
        for (span, state) in inside {
            let load = |space: &VmapSpace| {
                space.load_area(cpu, span, Guard::None, state).ok().map(|()| Vpn(span.start()))
            };
            let placed: Placed = region.spaces.iter().map(load).collect();
            if state == AreaState::Busy {
                self.live.insert(span.start(), (number, placed));
            }
        }
    }

    /// Returns the outcome; `None` without any request.
    pub(super) fn finish(mut self) -> Option<VmapOutcome> {
        if self.recorded.requests == 0 {
            return None;
        }
        self.recorded.foreign += self.waiting.len() as u64;
        let mut runs = std::mem::take(&mut self.runs);
        for (number, run) in runs.iter_mut().enumerate() {
            self.count(number, run);
        }
        let cautions = self.cautions(&runs);
        Some(VmapOutcome {
            recorded: self.recorded,
            start: self.start,
            runs,
            own_rules: self.own_rules.map(str::to_owned),
            cautions,
        })
    }

    fn count(&self, number: usize, run: &mut VmapRun) {
        for region in &self.regions {
            let counters = region.spaces[number].counters();
            run.flushes += counters.purge.flushes;
            run.purged += counters.purge.areas;
            run.pool_hits += counters.pools.hits;
            run.steps += counters.ranges.steps;
        }
        let busiest = self.regions.iter().map(|region| &region.spaces[number]);
        let busiest = busiest.max_by_key(|space| space.counters().allocs);
        let holes = busiest.and_then(|space| space.holes().ok()).unwrap_or_default();
        run.holes = holes.len() as u64;
        run.largest_hole = holes.iter().map(|hole| hole.len()).max().unwrap_or(0);
    }

    fn cautions(&self, runs: &[VmapRun]) -> Vec<String> {
        let mut cautions = Vec::new();
        match self.start {
            KnownStart::Areas(_) => {}
            KnownStart::Hashed(areas) => cautions.push(format!(
                "vmalloc: the {areas} areas of the snapshot have no real addresses, so every space began empty: \
                 addresses and holes are not those of the kernel. Record with --with addresses and \
                 kernel.kptr_restrict = 1."
            )),
            KnownStart::Nothing => cautions.push(
                "vmalloc: no snapshot shows the areas at the start, so every space began empty: addresses and holes \
                 are not those of the kernel."
                    .to_owned(),
            ),
        }
        let own = runs.iter().find(|run| Some(run.policy.as_str()) == self.own_rules);
        if let Some(own) = own
            && 10 * own.equal < 9 * own.served
        {
            cautions.push(format!(
                "vmalloc: under the rules of the recorded kernel ({}) {} of {} areas came to lie where the kernel put \
                 them: counts can be compared, single addresses and holes cannot. No file shows the pools of flushed \
                 areas, from which Linux 6.9 and later serve thread stacks and other small areas.",
                own.policy, own.equal, own.served
            ));
        }
        if self.refused_frees > 0 {
            let refused = self.refused_frees;
            cautions.push(format!("vmalloc: {refused} frees did not fit the books of a policy."));
        }
        cautions
    }
}

/// A request as recorded, in bytes; the guard page is part of the size.
struct RecordedRequest {
    size: u64,
    align: u64,
    window: (u64, u64),
}

impl RecordedRequest {
    /// Returns the request for a space; `None` without pages or without a window.
    fn request(&self) -> Option<AreaRequest> {
        let window = Span::new(self.window.0 >> PAGE, self.window.1 >> PAGE).ok()?;
        let request = spaces::request(self.size >> PAGE, self.align, window);
        (request.pages > 0 && request.align.is_power_of_two()).then_some(request)
    }
}

/// Returns the knowledge of the areas at the start, and the areas that can be loaded: none without real addresses.
fn areas_of(meta: &TraceMeta) -> (KnownStart, Vec<(Span, AreaState)>) {
    let areas = meta.start().ok_or(NoAreas::Unlisted);
    match areas.and_then(|taken| spaces::areas_of(&taken.files)) {
        Ok(areas) => (KnownStart::Areas(areas.len() as u64), areas),
        Err(NoAreas::Unlisted) => (KnownStart::Nothing, Vec::new()),
        Err(NoAreas::Hashed(areas)) => (KnownStart::Hashed(areas), Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use nofrag_host::snapshot::Files;
    use nofrag_host::trace::{EventKind, MAX_FIELDS, Moment, TakenSnapshot};

    use super::*;

    const LOW: u64 = 0xffff_c900_0000_0000;
    const HIGH: u64 = 0xffff_e900_0000_0000;
    const MODULES: (u64, u64) = (0xffff_ffff_c000_0000, 0xffff_ffff_ff00_0000);

    fn event(kind: EventKind, fields: &[u64]) -> Event {
        let mut values = [0; MAX_FIELDS];
        values[..fields.len()].copy_from_slice(fields);
        Event { at: 0, pid: 1, cpu: 1, kind, values }
    }

    fn alloc(addr: u64, pages: u64, window: (u64, u64)) -> Event {
        event(EventKind::VmapAlloc, &[addr, pages << PAGE, 1 << PAGE, window.0, window.1, 0])
    }

    fn free(addr: u64) -> Event {
        event(EventKind::VmapFree, &[addr, 7, 16_384])
    }

    fn replayed(meta: &TraceMeta, events: &[Event]) -> VmapOutcome {
        let mut replay = VmapReplay::new(meta, usize::MAX);
        events.iter().for_each(|event| replay.event(event));
        replay.finish().unwrap()
    }

    fn meta(vmallocinfo: Option<&str>) -> TraceMeta {
        let snapshots = vmallocinfo.map(|text| {
            let mut files = Files::default();
            files.insert("vmallocinfo", text.as_bytes().to_vec());
            TakenSnapshot { moment: Moment::Before, files }
        });
        TraceMeta {
            release: Some("6.12.3-test".to_owned()),
            cpus: vec![0, 1],
            snapshots: snapshots.into_iter().collect(),
            ..TraceMeta::default()
        }
    }

    #[test]
    fn the_lowest_place_is_the_kernels_and_every_preset_serves() {
        let window = (LOW, HIGH);
        let events = [
            alloc(LOW, 5, window),
            alloc(LOW + 0x5000, 3, window),
            alloc(MODULES.0, 4, MODULES),
            free(LOW),
            free(LOW + 0x9999_0000),
            event(EventKind::VmapPurge, &[LOW, LOW + 0x5000, 1]),
        ];
        let outcome = replayed(&meta(None), &events);
        assert_eq!(outcome.own_rules.as_deref(), Some("linux-6.11"));
        assert_eq!(outcome.start, KnownStart::Nothing);
        let VmapRecorded { requests, frees, older_frees, purges, purged, lazy_most, .. } =
            outcome.recorded;
        assert_eq!((requests, frees, older_frees, purges, purged), (3, 2, 1, 1, 1));
        assert_eq!(lazy_most, 7);
        assert_eq!(outcome.runs.len(), 6);
        for run in &outcome.runs {
            assert_eq!((run.served, run.failed), (3, 0), "{run:?}");
            if run.policy != "nofrag" {
                assert_eq!(run.equal, 3, "{run:?}");
                assert_eq!(run.lazy.most(), 5, "{run:?}");
            }
        }
        assert!(outcome.cautions[0].contains("began empty"), "{:?}", outcome.cautions);
    }

    #[test]
    fn areas_of_the_snapshot_lie_where_they_are() {
        let text = "0xffffc90000000000-0xffffc90000002000    8192 a+0x1/0x2 vmalloc\n\
                    0xffffc90000002000-0xffffc90000003000    4096 unpurged vm_area\n";
        let window = (LOW, HIGH);
        let events = [alloc(LOW + 0x3000, 2, window), free(LOW), alloc(LOW + 0x5000, 2, window)];
        let outcome = replayed(&meta(Some(text)), &events);
        assert_eq!(outcome.start, KnownStart::Areas(2));
        assert_eq!(outcome.recorded.older_frees, 0);
        let old = outcome.runs.iter().find(|run| run.policy == "linux-5.2").unwrap();
        assert_eq!((old.served, old.equal), (2, 2), "{old:?}");
        assert_eq!(old.lazy.most(), 3, "one page was lazy before, two are freed");
        assert!(outcome.cautions.is_empty(), "{:?}", outcome.cautions);
    }

    #[test]
    fn hashes_are_not_taken_for_addresses() {
        let text = "0x00000000e5c4a1b2-0x000000004d3c2b1a    8192 a+0x1/0x2 vmalloc\n";
        let outcome = replayed(&meta(Some(text)), &[alloc(LOW, 2, (LOW, HIGH))]);
        assert_eq!(outcome.start, KnownStart::Hashed(1));
        assert!(outcome.cautions[0].contains("kptr_restrict"), "{:?}", outcome.cautions);
    }

    #[test]
    fn a_full_window_and_nonsense_are_counted_and_nothing_breaks() {
        let small = (LOW, LOW + 0x4000);
        let mut failed = alloc(LOW + 0x4000, 8, small);
        failed.values[5] = 1;
        let events = [
            alloc(LOW, 4, small),
            failed,
            alloc(LOW, 0, small),
            alloc(LOW, 1, (HIGH, LOW)),
            alloc(LOW, 1, (0, 0)),
            alloc(u64::MAX, u64::MAX >> PAGE, (0, u64::MAX)),
            // Where a live area is known: its free was not seen.
            alloc(LOW, 4, small),
        ];
        let outcome = replayed(&meta(None), &events);
        assert_eq!((outcome.recorded.requests, outcome.recorded.failed), (7, 1));
        assert_eq!(outcome.recorded.foreign, 4);
        for run in &outcome.runs {
            assert_eq!(run.served + run.failed, 3, "{run:?}");
        }
    }

    #[test]
    fn without_requests_there_is_no_outcome() {
        assert!(VmapReplay::new(&meta(None), usize::MAX).finish().is_none());
    }
}
