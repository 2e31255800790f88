//! From a snapshot to an allocator that holds the memory in use at its time.
//!
//! The files' facts are brought together once ([`Host::of`]), and are the same for every run: which frames are memory
//! and which of them are free (`memory`, and `reconcile` where two files disagree) or on lists of CPUs (`cpu_lists`),
//! which blocks are in use, and which type each pageblock has, which is inferred (`types`). [`Host::start`] loads them
//! under a policy; for another size of memory it first decides which blocks go and which lie elsewhere (`resize`).
//! Without a map of frames `guess` places blocks by the counts alone. Every inference is counted in [`StartQuality`].

mod cpu_lists;
mod guess;
mod memory;
mod reconcile;
mod resize;
mod settings;
#[cfg(test)]
mod tests;
mod types;

use nofrag::event::EventSink;
use nofrag::page::{
    Contents, FallbackRules, FragmentationPolicy, MemoryMap, Migratetype, PageAllocator, ZoneKind,
};
use nofrag::units::{Order, PageCount, Pfn};
use nofrag_host::budget::Room;
use nofrag_host::snapshot::{FrameUse, PageFlags, PageMap, Snapshot, ZoneName};
use nofrag_host::trace::EventSource;

use super::ReplayError;
use super::settings::Settings;
use crate::random::Random;
use cpu_lists::Listed;
use memory::{BLOCK, Memory, PAGE, Zone};
use reconcile::{Blocks, Reconciler, free_blocks};
use settings::HostSettings;
use types::{Assigned, ByType, FreeByType, TypeCounts, Unit};

/// Streams of random numbers.
const TYPES: u64 = 1;
const RESIZE: u64 = 2;
const GUESS: u64 = 3;

/// The least frame number that is too large: the core counts frames in 32 bits.
const MOST_FRAMES: u64 = 1 << 31;
/// Bytes that a host takes for each of its frames: one for its use, 16 for the block in use there, and as many while a
/// run is loaded with that block. Together with a run's own bytes it is 79; 76 were measured.
const PER_FRAME: u64 = 40;

/// The recorded host at the start of the recording.
#[derive(Debug)]
pub(super) struct Host {
    memory: Memory,
    map: MemoryMap,
    settings: HostSettings,
    seed: u64,
    uses: Vec<FrameUse>,
    in_use: Vec<Held>,
    /// Free blocks on lists of CPUs, in the order in which they were handed out.
    on_lists: Vec<Listed>,
    /// The type of each pageblock, by its first frame with memory in its zone.
    types: Vec<(Pfn, Migratetype)>,
    /// Bounds of the lists of CPUs, each with the number of its zone and its CPU.
    bounds: Vec<(usize, u32, PageCount)>,
    /// Free blocks on the list of another type than their pageblock's, with the list's type.
    listed: Vec<(Pfn, Migratetype)>,
    quality: StartQuality,
}

/// A block that was in use at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) pfn: Pfn,
    pub(super) order: Order,
    pub(super) usage: FrameUse,
    /// Used of late, by the kernel's LRU.
    pub(super) is_active: bool,
    /// In the page tables of a process.
    pub(super) is_mapped: bool,
}

/// Inferences about the start, and their distance from the kernel's counts. In pages, unless another unit is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StartQuality {
    /// Pages that the allocator hands out.
    pub(super) managed: u64,
    /// Difference between `managed` and the count of zoneinfo, summed over the zones.
    pub(super) managed_off: u64,
    pub(super) in_use: u64,
    /// Pages on per-CPU lists.
    pub(super) per_cpu: u64,
    /// Pages on per-CPU lists that no event shows: they count as in use.
    pub(super) per_cpu_unknown: u64,
    /// Pages taken to be free because buddyinfo counts more free blocks than the map of frames shows.
    pub(super) freed: u64,
    /// Pages taken to be in use because buddyinfo counts fewer.
    pub(super) taken: u64,
    /// Free blocks of any order by which the start still differs from buddyinfo.
    pub(super) blocks_off: u64,
    /// Pageblocks by which the types differ from pagetypeinfo.
    pub(super) types_off: u64,
    /// Pages in use in a pageblock that is meant for others.
    pub(super) strangers: u64,
    /// Free pages listed under another type than pagetypeinfo counts, where lists follow pageblocks.
    pub(super) misplaced: u64,
    /// Free pages listed under another type than their pageblock's, where lists need not follow them.
    pub(super) relisted: u64,
    /// The largest difference of a watermark from zoneinfo.
    pub(super) marks_off: u64,
    /// Sentences about unknowns of the start.
    pub(super) cautions: Vec<String>,
}

/// A run's allocator at its start.
#[derive(Debug)]
pub(super) struct Start<E: EventSink> {
    pub(super) pages: PageAllocator<E>,
    /// The place in this run's memory of each of [`Host::in_use`], in that order; `None` if it had to be dropped.
    pub(super) places: Vec<Option<Pfn>>,
    pub(super) resized: Resized,
}

/// Changes for the size of a run's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Resized {
    /// Pages of files that had to be dropped.
    pub(super) dropped: u64,
    /// Pages of processes and of shared memory that had to go, as if to a swap device.
    pub(super) swapped: u64,
    /// Pages that lie at another place than in the recorded host.
    pub(super) displaced: u64,
}

impl Host {
    /// Reads the snapshot's facts, and infers the rest; `seed` settles ties. `events` are those of the trace, and
    /// `taken_until` is the time until which the snapshot was being taken.
    pub(super) fn of(
        snapshot: &Snapshot<'_>,
        seed: u64,
        taken_until: Option<u64>,
        events: &mut dyn EventSource,
        room: &mut Room,
    ) -> Result<Host, ReplayError> {
        let mut quality = StartQuality::default();
        if snapshot.pageblock_order() != u32::from(Order::PAGEBLOCK.get()) {
            quality.cautions.push(format!(
                "The recorded kernel has pageblocks of order {}; the replay's are of order {}.",
                snapshot.pageblock_order(),
                Order::PAGEBLOCK
            ));
        }
        let mut uses = match &snapshot.pages {
            Some(pages) => {
                room.take(pages.frames().saturating_mul(PER_FRAME))?;
                with_memory(snapshot, pages)
            }
            None => guess::uses(snapshot, &mut Random::new(seed, GUESS), &mut quality, room)?,
        };
        let memory = Memory::of(snapshot, &uses)?;
        if let Some(pages) = &snapshot.pages {
            reconcile_all(&memory, snapshot, pages, &mut uses, seed, &mut quality);
        }
        let on_lists = cpu_lists::find(snapshot, &uses, taken_until, events)?;
        let is_listed = frames_of(&on_lists, uses.len());
        let mut in_use = Vec::new();
        for zone in &memory.zones {
            hold(&mut in_use, zone, &uses, &is_listed, snapshot.pages.as_ref());
        }
        in_use.sort_unstable_by_key(|held| held.pfn);
        in_use.shrink_to_fit();
        let map = memory.map()?;
        let settings = HostSettings::of(snapshot, &map)?;
        let mut host = Host {
            map,
            settings,
            seed,
            uses: Vec::new(),
            in_use,
            on_lists,
            types: Vec::new(),
            bounds: Vec::new(),
            listed: Vec::new(),
            quality,
            memory,
        };
        host.bounds = host.bounds_of_lists(snapshot);
        host.infer_types(snapshot, &uses);
        host.judge(snapshot)?;
        host.uses = uses;
        Ok(host)
    }

    /// Creates a host without a snapshot: all memory up to `highest`, the highest frame of the trace, is free.
    pub(super) fn empty(highest: Pfn, cpus: u32) -> Result<Host, ReplayError> {
        if highest.0 >= MOST_FRAMES {
            return Err(ReplayError::Host(format!(
                "the trace has no snapshot and names frame {}, more than the {MOST_FRAMES} that a replay can begin \
                 with: record with a snapshot (`nofrag record` takes one), or look for a damaged line",
                highest.0,
            )));
        }
        let end = (highest.0 + 1).next_multiple_of(Order::MAX.pages());
        let zone = |kind: ZoneKind, span: std::ops::Range<u64>| Zone {
            name: ZoneName { node: 0, name: kind.name().to_owned() },
            kind,
            span,
            holes: Vec::new(),
            reserved: Vec::new(),
        };
        let mut zones = vec![zone(ZoneKind::Dma32, 0..end.min(resize::DMA32_END))];
        if end > resize::DMA32_END {
            zones.push(zone(ZoneKind::Normal, resize::DMA32_END..end));
        }
        let memory = Memory { zones, cpus: (0..cpus.max(1)).collect() };
        let map = memory.map()?;
        let quality = StartQuality {
            managed: memory.managed(),
            cautions: vec![format!(
                "How much memory the host has is not known: as much as its highest frame, {highest}, is assumed."
            )],
            ..StartQuality::default()
        };
        let settings = HostSettings::default();
        Ok(Host {
            memory,
            map,
            settings,
            seed: 0,
            uses: Vec::new(),
            in_use: Vec::new(),
            on_lists: Vec::new(),
            types: Vec::new(),
            bounds: Vec::new(),
            listed: Vec::new(),
            quality,
        })
    }

    /// Draws the types of pageblocks anew; the blocks in use stay.
    pub(super) fn reseed(&mut self, snapshot: &Snapshot<'_>, seed: u64) {
        if seed == self.seed {
            return;
        }
        self.seed = seed;
        self.types.clear();
        self.listed.clear();
        let (uses, quality) = (std::mem::take(&mut self.uses), std::mem::take(&mut self.quality));
        self.infer_types(snapshot, &uses);
        (self.uses, self.quality) = (uses, quality);
    }

    /// Returns the names of its zones, in their order.
    pub(super) fn zones(&self) -> Vec<ZoneName> {
        self.memory.zones.iter().map(|zone| zone.name.clone()).collect()
    }

    /// Returns the recorded host's own memory, whatever the size of a run's.
    pub(super) fn map(&self) -> &MemoryMap {
        &self.map
    }

    /// Returns the blocks in use at the start, in ascending order of their frames.
    pub(super) fn in_use(&self) -> &[Held] {
        &self.in_use
    }

    /// Returns the quality of the inferences.
    pub(super) fn quality(&self) -> &StartQuality {
        &self.quality
    }

    /// Creates an allocator that holds the blocks in use, with the host's settings except for those that `asked` names.
    /// `memory_percent` is the size of its memory. The lists of its CPUs hold what the host's did; on a machine of
    /// another size they begin empty.
    pub(super) fn start<E: EventSink>(
        &self,
        policy: FragmentationPolicy,
        asked: &Settings,
        memory_percent: u32,
        events: E,
    ) -> Result<Start<E>, ReplayError> {
        let settings = self.settings.with(asked);
        let policy = settings.policy(policy);
        let plan = resize::plan(self, &settings, memory_percent)?;
        let config = settings.config(plan.map, policy, memory_percent);
        let count = self.in_use.iter().filter(|held| held.usage.is_movable()).count();
        let mut fixed = Vec::with_capacity(self.in_use.len() - count);
        let mut movable = Vec::with_capacity(count);
        for (held, place) in self.in_use.iter().zip(&plan.places) {
            let blocks = if held.usage.is_movable() { &mut movable } else { &mut fixed };
            blocks.extend(place.map(|pfn| (pfn, held.order)));
        }
        let is_whole = memory_percent == 100;
        let on_lists = if is_whole { &self.on_lists[..] } else { &[] };
        fixed.extend(on_lists.iter().map(|listed| (listed.pfn, listed.order)));
        fixed.sort_unstable();
        movable.sort_unstable();
        let follows = policy.fallback != FallbackRules::Loose || memory_percent != 100;
        let listed = if follows { &[][..] } else { &self.listed };
        let contents = Contents { types: &plan.types, fixed: &fixed, movable: &movable, listed };
        let pages = PageAllocator::with_contents(&config, &contents, events);
        let mut pages = pages.map_err(|error| {
            ReplayError::Host(format!("the memory in use at the start does not fit: {error}"))
        })?;
        let zones: Vec<_> = pages.zones().map(|zone| zone.id).collect();
        for &(zone, cpu, pages_at_most) in self.bounds.iter().filter(|_| is_whole) {
            let cpu = self.map.cpus().get(cpu).expect("zoneinfo names it");
            pages.set_per_cpu_bound(cpu, zones[zone], pages_at_most);
        }
        // A list hands out first what came last.
        for Listed { pfn, cpu, .. } in on_lists.iter().rev() {
            let cpu = self.map.cpus().get(*cpu).expect("zoneinfo names it");
            pages.put_on_cpu(cpu, *pfn).expect("it was put there as in use");
        }
        Ok(Start { pages, places: plan.places, resized: plan.resized })
    }

    /// Returns the bounds of the lists of CPUs in the snapshot.
    fn bounds_of_lists(&self, snapshot: &Snapshot<'_>) -> Vec<(usize, u32, PageCount)> {
        let zones = self.memory.zones.iter().enumerate();
        let bounds = zones.flat_map(|(number, zone)| {
            let said = snapshot.zones.iter().find(|said| said.zone == zone.name);
            let sets = said.into_iter().flat_map(|said| &said.per_cpu);
            sets.map(move |set| (number, set.cpu, PageCount(set.high)))
        });
        let has_cpu = |(_, cpu, _): &(usize, u32, PageCount)| self.map.cpus().get(*cpu).is_some();
        bounds.filter(has_cpu).collect()
    }

    /// Gives each pageblock a type, and finds the free blocks that the kernel lists under another.
    fn infer_types(&mut self, snapshot: &Snapshot<'_>, uses: &[FrameUse]) {
        let mut random = Random::new(self.seed, TYPES);
        let is_listed = frames_of(&self.on_lists, uses.len());
        for zone in &self.memory.zones {
            let units = units(zone, uses, &is_listed);
            let wanted = wanted(snapshot, &zone.name);
            let assigned = match &wanted {
                Some(wanted) => types::assign(&units, wanted, &mut random),
                None => types::by_content(&units),
            };
            for (unit, &migratetype) in units.iter().zip(&assigned.types) {
                // A unit of two pageblocks is one free block, with memory everywhere.
                let blocks = (unit.first..).step_by(BLOCK as usize).take(unit.blocks as usize);
                self.types.extend(blocks.map(|first| (Pfn(first), migratetype)));
            }
            self.quality.strangers += assigned.strangers;
            if let Some(wanted) = wanted {
                self.quality.types_off += types_off(&units, &assigned, &wanted.pageblocks);
                self.quality.misplaced += assigned.misplaced(&wanted.free);
                let listed = relist(&units, assigned, &wanted.free, uses, zone);
                self.quality.relisted +=
                    listed.iter().map(|(.., order)| order.pages()).sum::<u64>();
                self.listed.extend(listed.iter().map(|&(pfn, to, _)| (pfn, to)));
            } else {
                self.quality.cautions.push(format!(
                    "The types of pageblocks of zone {} are those of what they hold: pagetypeinfo is missing.",
                    zone.name.name
                ));
            }
        }
    }

    /// Measures the distance of the start from the kernel's counts.
    fn judge(&mut self, snapshot: &Snapshot<'_>) -> Result<(), ReplayError> {
        let said = |zone: &Zone| snapshot.zones.iter().find(|each| each.zone == zone.name);
        let start = self.start(FragmentationPolicy::LINUX_6_1, &Settings::default(), 100, ())?;
        let quality = &mut self.quality;
        quality.managed = self.memory.managed();
        quality.in_use = self.in_use.iter().map(|held| held.order.pages()).sum();
        let known: u64 = self.on_lists.iter().map(|listed| listed.order.pages()).sum();
        for (zone, ours) in self.memory.zones.iter().zip(start.pages.zones()) {
            let Some(said) = said(zone) else { continue };
            quality.managed_off += said.managed.abs_diff(zone.managed());
            quality.per_cpu += said.on_per_cpu_lists();
            let marks = ours.watermarks;
            let pairs = [(said.min, marks.min), (said.low, marks.low), (said.high, marks.high)];
            let off = pairs.map(|(said, ours)| said.abs_diff(ours)).into_iter().max();
            quality.marks_off = quality.marks_off.max(off.unwrap_or(0));
            let Some(blocks) = snapshot.blocks(&zone.name) else { continue };
            for (order, &said) in Order::all().zip(&blocks.blocks) {
                let each =
                    Migratetype::ALL.map(|kind| start.pages.free_blocks(ours.id, order, kind));
                quality.blocks_off += said.abs_diff(each.iter().sum());
            }
        }
        quality.per_cpu_unknown = quality.per_cpu.saturating_sub(known);
        let cautions = quality.sentences();
        quality.cautions.extend(cautions);
        Ok(())
    }
}

impl StartQuality {
    /// Returns a sentence for each group of figures that are not 0.
    fn sentences(&self) -> Vec<String> {
        let mut all = Vec::new();
        let mut say = |count: u64, sentence: String| {
            if count > 0 {
                all.push(sentence);
            }
        };
        let StartQuality { per_cpu, per_cpu_unknown, freed, taken, blocks_off, .. } = *self;
        say(
            per_cpu_unknown,
            format!(
                "Of {per_cpu} free pages on per-CPU lists at the start {per_cpu_unknown} are never asked for, so that \
                 nothing tells which they are: they count as in use."
            ),
        );
        say(
            freed + taken,
            format!(
                "The map of frames and buddyinfo are not of one moment: {freed} frames are taken to be free and \
                 {taken} to be in use at the start that the map shows otherwise."
            ),
        );
        say(blocks_off, format!("{blocks_off} free blocks differ from buddyinfo at the start."));
        let StartQuality { types_off, strangers, misplaced, relisted, managed_off, .. } = *self;
        say(
            types_off + misplaced + strangers,
            format!(
                "Which pageblock has which type is inferred: {types_off} pageblocks differ from pagetypeinfo, \
                 {strangers} pages in use lie in pageblocks of another type, and {misplaced} free pages would be on \
                 lists of another type ({relisted} of them are put there where a policy allows it)."
            ),
        );
        say(managed_off, format!("{managed_off} managed pages differ from zoneinfo at the start."));
        all
    }
}

/// Returns the use of each frame. The kernel marks frames without memory as reserved, or from 7.2 on not at all: where
/// iomem lists the memory, they are told apart.
fn with_memory(snapshot: &Snapshot<'_>, pages: &PageMap<'_>) -> Vec<FrameUse> {
    let mut ram = snapshot.memory();
    let usage = |(pfn, usage): (u64, FrameUse)| {
        let is_unclear = usage == FrameUse::Kernel || !usage.is_managed();
        let mut has_memory = |address| ram.has(address);
        match is_unclear && !(has_memory(pfn * PAGE) && has_memory(pfn * PAGE + PAGE - 1)) {
            true => FrameUse::NoPage,
            false => usage,
        }
    };
    pages.uses(0..pages.frames()).map(usage).collect()
}

/// Makes the map of frames agree with buddyinfo.
fn reconcile_all(
    memory: &Memory,
    snapshot: &Snapshot<'_>,
    pages: &PageMap<'_>,
    uses: &mut [FrameUse],
    seed: u64,
    quality: &mut StartQuality,
) {
    let is_blank = |pfn: u64| pages.flags(pfn) == Some(PageFlags::default());
    for zone in &memory.zones {
        let Some(said) = snapshot.blocks(&zone.name) else { continue };
        let mut wanted = Blocks::default();
        wanted.iter_mut().zip(&said.blocks).for_each(|(wanted, &said)| *wanted = said);
        let span = zone.span.clone();
        let mut reconciler = Reconciler { uses, is_blank: &is_blank, span, seed };
        let done = reconciler.reconcile(&wanted);
        quality.freed += done.freed;
        quality.taken += done.taken;
    }
}

/// Returns true for each of `count` frames that is on a list of a CPU.
fn frames_of(on_lists: &[Listed], count: usize) -> Vec<bool> {
    let mut is_listed = vec![false; count];
    for Listed { pfn, order, .. } in on_lists {
        is_listed[pfn.0 as usize..(pfn.0 + order.pages()) as usize].fill(true);
    }
    is_listed
}

/// Adds the blocks in use of a zone: compound pages whole, all others page by page.
fn hold(
    in_use: &mut Vec<Held>,
    zone: &Zone,
    uses: &[FrameUse],
    is_listed: &[bool],
    pages: Option<&PageMap<'_>>,
) {
    let has = |pfn: u64, flag: PageFlags| {
        pages.and_then(|pages| pages.flags(pfn)).is_some_and(|flags| flags.has(flag))
    };
    let end = zone.span.end.min(uses.len() as u64);
    let mut at = zone.span.start;
    while at < end {
        let usage = uses[at as usize];
        let start = at;
        at += 1;
        if usage == FrameUse::Free || !usage.is_managed() || is_listed[start as usize] {
            continue;
        }
        if has(start, PageFlags::COMPOUND_HEAD) {
            let is_tail =
                |pfn: &u64| has(*pfn, PageFlags::COMPOUND_TAIL) && uses[*pfn as usize] == usage;
            at += (at..end).take_while(is_tail).count() as u64;
        }
        let blocks = memory::aligned(start..at);
        let [is_active, is_mapped] =
            [PageFlags::ACTIVE, PageFlags::MMAP].map(|flag| has(start, flag));
        in_use.extend(blocks.map(|(pfn, order)| Held {
            pfn: Pfn(pfn),
            order,
            usage,
            is_active,
            is_mapped,
        }));
    }
}

/// Returns the pageblocks of a zone with the pages in use in them; pages on lists of CPUs do not count.
fn units(zone: &Zone, uses: &[FrameUse], is_listed: &[bool]) -> Vec<Unit> {
    let unit = |(start, first): (u64, u64)| Unit {
        start,
        first,
        blocks: 1,
        whole: zone.span.start <= start && start + BLOCK <= zone.span.end,
        ..Unit::default()
    };
    let mut units: Vec<Unit> = zone.pageblocks().map(unit).collect();
    let end = zone.span.end.min(uses.len() as u64);
    for unit in &mut units {
        let frames = unit.first..(unit.start + BLOCK).min(end);
        let in_use = frames.map(|pfn| pfn as usize).filter(|&pfn| !is_listed[pfn]);
        in_use.for_each(|pfn| unit.content.add(uses[pfn]));
    }
    for (pfn, order) in free_blocks(uses, zone.span.clone()) {
        let at = units.partition_point(|unit| unit.start <= pfn) - 1;
        units[at].free[order.index()] += 1;
        units[at].blocks = order.pages().div_ceil(BLOCK).max(units[at].blocks);
    }
    // The second half of a larger block is a part of the first's unit.
    let mut behind = 0;
    units.retain(|unit| {
        let is_first = unit.start >= behind;
        if is_first {
            behind = unit.start + unit.blocks * BLOCK;
        }
        is_first
    });
    units
}

/// Returns the counts of pagetypeinfo for a zone; `None` where it has none.
fn wanted(snapshot: &Snapshot<'_>, zone: &ZoneName) -> Option<TypeCounts> {
    let types = snapshot.types.as_ref()?;
    let of = |migratetype| types.pageblocks_of(zone, migratetype);
    let pageblocks: ByType<u64> = Migratetype::ALL.map(|kind| of(kind).unwrap_or(0));
    let mut free = FreeByType::default();
    for migratetype in Migratetype::ALL {
        let blocks = types.free_of(zone, migratetype).unwrap_or_default();
        let row = &mut free[migratetype.index()];
        row.iter_mut().zip(blocks).for_each(|(count, said)| *count = said.least());
    }
    pageblocks.iter().any(|&count| count > 0).then_some(TypeCounts { pageblocks, free })
}

/// Returns the number of pageblocks by which the types differ from `wanted`.
fn types_off(units: &[Unit], assigned: &Assigned, wanted: &ByType<u64>) -> u64 {
    let mut counts = ByType::<u64>::default();
    for (unit, migratetype) in units.iter().zip(&assigned.types) {
        counts[migratetype.index()] += unit.blocks;
    }
    let off = counts.iter().zip(wanted).map(|(is, wanted)| is.abs_diff(*wanted));
    // One of the wrong type is missing under the right one.
    off.sum::<u64>().div_ceil(2)
}

/// Returns the free blocks that go from lists of types with a surplus to lists of types with too few, each with its new
/// type and its order.
fn relist(
    units: &[Unit],
    assigned: Assigned,
    wanted: &FreeByType,
    uses: &[FrameUse],
    zone: &Zone,
) -> Vec<(Pfn, Migratetype, Order)> {
    let type_at = |pfn: u64| {
        let at = units.partition_point(|unit| unit.start <= pfn) - 1;
        assigned.types[at]
    };
    let mut free = assigned.free;
    let mut moved = Vec::new();
    for (pfn, order) in free_blocks(uses, zone.span.clone()) {
        let from = type_at(pfn);
        let has = |kind: Migratetype| {
            (free[kind.index()][order.index()], wanted[kind.index()][order.index()])
        };
        let ((is, said), lacks) = (has(from), |kind: &Migratetype| {
            let (is, said) = has(*kind);
            is < said
        });
        if !from.is_mobility() || is <= said {
            continue;
        }
        if let Some(to) = Migratetype::MOBILITY.into_iter().find(lacks) {
            free[from.index()][order.index()] -= 1;
            free[to.index()][order.index()] += 1;
            moved.push((Pfn(pfn), to, order));
        }
    }
    moved
}
