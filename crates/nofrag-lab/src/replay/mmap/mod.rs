//! The placing of mappings in a recording, replayed through [`AddressSpace`](nofrag::mmap::AddressSpace).
//!
//! `vm_unmapped_area` tells each search for a place: window, length, alignment and answer. `sys_enter_mmap` before it
//! tells the request, `sys_enter_munmap` what is unmapped, `exit_mmap` that a whole space goes. A process is replayed
//! twice.
//!
//! 1. *Each policy* has spaces of its own and places each mapping by its own rule. A mapping that goes is found again
//!    by the address that the kernel had given it.
//! 2. *The judge* has the rules of the recorded kernel. It predicts each address and is then set right: the area lies
//!    where the kernel put it. The share of exact predictions is the fidelity.
//!
//! Events name threads, not address spaces. Those of one space share the window of its searches, whose upper end Linux
//! draws at random for every program; so that end is the name of a space, and where it is not random the thread's ID
//! with it. A child that goes on in its parent's program has the same one: its mappings count as its parent's, and
//! where they collide the older one is taken to be gone.
//!
//! Some mappings appear in no event and stay unknown: areas that grow in place (`mremap`, the heap, stacks), and those
//! that a program made before the recording unless the snapshot has its `maps`. Memory is bounded by the areas of the
//! processes that live at a time.

mod process;
mod request;
#[cfg(test)]
mod tests;

use foldhash::{HashMap, HashMapExt};
use nofrag::mmap::{Layout, Placement, PlacementPreset};
use nofrag::ranges::Span;
use nofrag::units::Vpn;
use nofrag_host::proc_maps;
use nofrag_host::trace::{Event, EventKind, TraceMeta, View};
use serde::{Deserialize, Serialize};

use self::process::{Outcome, Process};
use self::request::{Asked, PAGE, Search};

/// The presets that are compared: each stands for a change of rules.
pub const MMAP_POLICIES: [&str; 9] = [
    "linux-2.4",
    "linux-2.6.13",
    "linux-3.4",
    "linux-3.8",
    "linux-6.1",
    "linux-6.7",
    "linux-6.12",
    "best-fit",
    "nofrag",
];

/// Processes that are followed at a time; searches of others are counted as elsewhere.
const MOST_PROCESSES: usize = 4096;
/// Threads that are followed at a time, and whose last call is remembered: when there are more calls, all are forgotten
/// together.
const MOST_THREADS: usize = 1 << 16;

/// Outcome of the replay of mappings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MmapOutcome {
    pub recorded: MmapRecorded,
    /// One run for each policy.
    pub runs: Vec<MmapRun>,
    /// The recorded kernel's rules as predictors; `None` where they are not known.
    pub fidelity: Option<MmapFidelity>,
    /// Sentences to read before the figures are used.
    pub cautions: Vec<String>,
}

/// Counts of the kernel's own work on mappings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MmapRecorded {
    /// Searches for a place in the usual window of a process that gave a mapping.
    pub placed: u64,
    /// Placed mappings whose call was recorded, so that the request itself is known.
    pub with_call: u64,
    /// Searches that found nothing.
    pub failed: u64,
    /// Searches in another window, or in a process that is not followed; not replayed.
    pub elsewhere: u64,
    pub munmaps: u64,
    /// Mappings at an address of the caller's choice.
    pub fixed: u64,
    /// Address spaces that were followed.
    pub processes: u64,
    /// Followed spaces whose areas at the start are known.
    pub with_maps: u64,
    /// Mappings that must have gone unseen because another one came to lie there.
    pub unseen_unmaps: u64,
}

/// Counts of one policy, over all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MmapRun {
    pub policy: String,
    pub served: u64,
    /// Mappings that found no place.
    pub failed: u64,
    /// Mappings that it placed where the kernel did.
    pub equal: u64,
    /// Areas that searches visited one by one.
    pub visits: u64,
    /// Blocks of the index that searches visited.
    pub steps: u64,
    /// Areas at the end of each process, or of the recording.
    pub areas: u64,
    /// Holes at that time, the largest of each process left out.
    pub holes: u64,
    /// Pages in these holes.
    pub hole_pages: u64,
}

/// Predictions by the recorded kernel's rules, compared with its own answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MmapFidelity {
    pub preset: String,
    pub predicted: u64,
    /// Predicted addresses that are exactly the kernel's.
    pub exact: u64,
    /// The first wrong predictions.
    pub misses: Vec<Miss>,
}

impl MmapFidelity {
    /// The most misses that are kept.
    pub const EXAMPLES: usize = 16;
}

/// An address that was predicted wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Miss {
    /// The thread that asked.
    pub pid: i32,
    /// Pages of the mapping.
    pub pages: u64,
    /// Page number at which the kernel put it.
    pub recorded: u64,
    /// Page number at which its rules put it; `None` if they found no place.
    pub predicted: Option<u64>,
}

/// The key of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Whose {
    /// The space of the program whose window ends at this page number.
    Window(u64),
    /// The space of the thread with this ID, where that end (the second part) is the same for all programs.
    Thread(i32, u64),
}

/// A replay of mappings as it goes.
#[derive(Debug)]
pub(super) struct MmapReplay {
    policies: Vec<PlacementPreset>,
    own_rules: Option<PlacementPreset>,
    processes: HashMap<Whose, Process>,
    /// The space in which each thread mapped last.
    threads: HashMap<i32, Whose>,
    /// The last call of each thread that has not been answered by a search.
    calls: HashMap<i32, Asked>,
    /// Areas at the start, by process; taken when the process first maps.
    maps: HashMap<i32, Vec<Span>>,
    /// Number of areas of all processes; no more than `most_areas` are followed.
    areas: usize,
    most_areas: usize,
    recorded: MmapRecorded,
    outcome: Outcome,
}

impl MmapReplay {
    /// Creates a replay from the facts at the start, with the presets of [`MMAP_POLICIES`] and that of the recorded
    /// kernel.
    pub(super) fn new(meta: &TraceMeta, most_areas: usize) -> MmapReplay {
        let own = meta.release.as_deref().and_then(super::version_of);
        let own_rules = own.and_then(|version| Placement::preset(&format!("linux-{version}")).ok());
        let named = MMAP_POLICIES.iter().filter_map(|name| Placement::preset(name).ok());
        let mut policies: Vec<PlacementPreset> = Vec::new();
        for preset in own_rules.into_iter().chain(named) {
            if !policies.iter().any(|known| known.name == preset.name) {
                policies.push(preset);
            }
        }
        // Oldest first, ours last, wherever the kernel's own stands among them.
        let place = |preset: &PlacementPreset| {
            Placement::presets().position(|known| known.name == preset.name)
        };
        policies.sort_by_key(place);
        MmapReplay {
            outcome: Outcome::new(&policies),
            policies,
            own_rules,
            processes: HashMap::new(),
            threads: HashMap::new(),
            calls: HashMap::new(),
            maps: maps_of(meta),
            areas: 0,
            most_areas,
            recorded: MmapRecorded::default(),
        }
    }

    /// Carries out an event of mappings; ignores others.
    pub(super) fn event(&mut self, event: &Event) {
        match event.view() {
            View::Mmap { addr, length, protection, flags, offset } => {
                self.settle(event.pid);
                if self.calls.len() >= MOST_THREADS {
                    self.calls.clear();
                }
                let asked = Asked { addr, length, protection, flags, offset };
                if asked.is_fixed() {
                    self.fixed(event.pid, &asked);
                } else {
                    self.calls.insert(event.pid, asked);
                }
            }
            View::UnmappedArea { addr, flags, length, low, high, align_mask, align_offset } => {
                let search = Search { addr, flags, length, low, high, align_mask, align_offset };
                self.search(event.pid, &search);
            }
            View::Munmap { addr, length } => {
                self.settle(event.pid);
                self.recorded.munmaps += 1;
                if let Some(span) = request::pages_of(addr, length) {
                    self.in_process(event.pid, |process, _| process.unmap(span));
                }
            }
            _ if event.kind == EventKind::ExitMmap => {
                self.calls.remove(&event.pid);
                self.leave(event.pid);
            }
            _ => {}
        }
    }

    /// Applies `act` to the process of a thread, if it is followed, and counts its areas again.
    fn in_process<R>(
        &mut self,
        pid: i32,
        act: impl FnOnce(&mut Process, &mut Outcome) -> R,
    ) -> Option<R> {
        let process = self.processes.get_mut(self.threads.get(&pid)?)?;
        let before = process.areas();
        let done = act(process, &mut self.outcome);
        self.areas = self.areas - before + process.areas();
        Some(done)
    }

    /// Settles a call with a hint that no search has answered, as the thread has gone on: it got its hint.
    fn settle(&mut self, pid: i32) {
        if let Some(asked) = self.calls.remove(&pid)
            && asked.addr != 0
        {
            self.fixed(pid, &asked);
        }
    }

    fn fixed(&mut self, pid: i32, asked: &Asked) {
        self.recorded.fixed += 1;
        let span = request::pages_of(asked.addr, asked.length);
        if let Some(span) = span.filter(|_| self.areas < self.most_areas) {
            self.in_process(pid, |process, _| process.fixed(span, asked.attributes()));
        }
    }

    fn search(&mut self, pid: i32, search: &Search) {
        if search.addr <= 0 {
            self.recorded.failed += 1;
            return;
        }
        let asked = self.calls.remove(&pid);
        let placement = self.own_rules.map(|preset| preset.placement);
        let entered = self.enter(pid, search) && self.areas < self.most_areas;
        let wanted = entered.then(|| search.wanted(asked.as_ref(), placement)).flatten();
        let Some(wanted) = wanted else {
            self.recorded.elsewhere += 1;
            return;
        };
        self.recorded.placed += 1;
        self.recorded.with_call += u64::from(asked.is_some());
        let gone = self.in_process(pid, |process, outcome| process.place(pid, &wanted, outcome));
        self.recorded.unseen_unmaps += gone.expect("it was entered");
    }

    /// Makes the space of a search the current one of its thread, and creates it if it is new. Returns false for a
    /// search in another window than the usual one, and when [`MOST_THREADS`] or [`MOST_PROCESSES`] are followed.
    fn enter(&mut self, pid: i32, search: &Search) -> bool {
        let Some(layout) = layout(search).filter(|_| search.is_downward()) else { return false };
        let top = search.high >> PAGE;
        let common = [Layout::X86_64.top.0, Layout::COMPAT_UP.top.0];
        let whose =
            if common.contains(&top) { Whose::Thread(pid, top) } else { Whose::Window(top) };
        if self.threads.get(&pid).is_some_and(|before| *before != whose) {
            self.leave(pid);
        }
        if self.threads.len() >= MOST_THREADS && !self.threads.contains_key(&pid) {
            return false;
        }
        if !self.processes.contains_key(&whose) {
            if self.processes.len() >= MOST_PROCESSES {
                return false;
            }
            let judge = self.own_rules.map(|preset| preset.placement);
            let mut process = Process::new(layout, &self.policies, judge);
            self.recorded.processes += 1;
            let room = self.most_areas.saturating_sub(self.areas);
            if let Some(areas) = self.maps.remove(&pid).filter(|areas| areas.len() <= room) {
                self.recorded.with_maps += 1;
                process.load(&areas);
            }
            self.areas += process.areas();
            self.processes.insert(whose, process);
        }
        self.threads.insert(pid, whose);
        self.processes.get_mut(&whose).expect("it is there or was made").threads.insert(pid);
        true
    }

    /// Ends a thread's use of its space; the last thread ends the space.
    fn leave(&mut self, pid: i32) {
        self.maps.remove(&pid);
        let Some(whose) = self.threads.remove(&pid) else { return };
        let Some(process) = self.processes.get_mut(&whose) else { return };
        process.threads.remove(&pid);
        if process.threads.is_empty() {
            let process = self.processes.remove(&whose).expect("it was there");
            self.areas -= process.areas();
            self.outcome.end(&process);
        }
    }

    /// Returns the outcome; `None` without any search.
    pub(super) fn finish(mut self) -> Option<MmapOutcome> {
        let MmapRecorded { placed, failed, elsewhere, .. } = self.recorded;
        if placed + failed + elsewhere == 0 {
            return None;
        }
        self.processes.values().for_each(|process| self.outcome.end(process));
        let cautions = self.cautions();
        let Outcome { runs, predicted, exact, misses } = self.outcome;
        let fidelity = self.own_rules.map(|preset| MmapFidelity {
            preset: preset.name.to_owned(),
            predicted,
            exact,
            misses,
        });
        Some(MmapOutcome { recorded: self.recorded, runs, fidelity, cautions })
    }

    fn cautions(&self) -> Vec<String> {
        let MmapRecorded { placed, with_call, processes, with_maps, elsewhere, .. } = self.recorded;
        let mut cautions = Vec::new();
        if with_call < placed {
            cautions.push(format!(
                "mmap: of {} of {placed} mappings the call (sys_enter_mmap) is not recorded: what they asked for is \
                 inferred from the search, alignment to huge pages by the recorded kernel's rule, and they count as \
                 anonymous.",
                placed - with_call
            ));
        }
        if with_maps < processes {
            cautions.push(format!(
                "mmap: of {} of {processes} processes the areas at the start are not known; they begin with what is \
                 seen. Those that began during the recording are whole. `nofrag record --with maps` records the areas.",
                processes - with_maps
            ));
        }
        if elsewhere > 0 {
            cautions.push(format!(
                "mmap: {elsewhere} searches in other windows (MAP_32BIT, upward layouts), or of more processes or \
                 areas than the budget has room for, are not replayed."
            ));
        }
        cautions
    }
}

/// Returns the windows of a process, from one of its searches; `None` for an empty window.
fn layout(search: &Search) -> Option<Layout> {
    let (low, top) = (search.low >> PAGE, search.high >> PAGE);
    let usual = if search.high > 1 << 32 {
        Layout::X86_64
    } else {
        Layout { direction: Layout::X86_64.direction, ..Layout::COMPAT_UP }
    };
    (low < top).then(|| Layout {
        floor: Vpn(low.max(usual.floor.0)),
        top: Vpn(top),
        end: usual.end.max(Vpn(top)),
        ..usual
    })
}

/// Returns the areas of each process in the snapshot at the start, by process ID.
fn maps_of(meta: &TraceMeta) -> HashMap<i32, Vec<Span>> {
    let mut maps = HashMap::new();
    let Some(taken) = meta.start() else { return maps };
    for name in taken.files.names() {
        let pid = name.strip_prefix("maps/").and_then(|pid| pid.parse().ok());
        let Some((pid, bytes)) = pid.zip(taken.files.bytes(name)) else { continue };
        let Ok(parsed) = proc_maps::parse(bytes) else { continue };
        let span = |area: &proc_maps::Area| Span::new(area.start >> PAGE, area.end >> PAGE).ok();
        maps.insert(pid, parsed.areas.iter().filter_map(span).collect());
    }
    maps
}
