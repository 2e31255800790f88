//! The states at the end, the engine's beside the kernel's, list by list and position by position.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use nofrag::page::{CpuImage, Image, ListImage, PageblockImage, ZoneImage};
use nofrag::units::Pfn;

use super::names;
use super::outcome::{AtEnd, Part, Score, Scores};

use crate::key::Key;

/// Scores and differences of two states.
pub(super) struct Compared {
    pub(super) parts: Vec<Part>,
    pub(super) differences: Vec<AtEnd>,
}

/// Scores and differences so far.
struct Comparison<'a> {
    zone: &'a str,
    scores: Scores,
    differences: Vec<AtEnd>,
}

impl Comparison<'_> {
    /// Counts a value under the score of `key`, and notes it as `what` if kernel and engine differ.
    fn value<T: PartialEq + Debug>(&mut self, key: Key, what: &str, kernel: T, engine: T) {
        let same = kernel == engine;
        self.scores.at(key).count(same);
        if !same {
            self.note(what, format!("{kernel:?}"), format!("{engine:?}"));
        }
    }

    fn note(&mut self, what: &str, kernel: String, engine: String) {
        let (zone, what) = (self.zone.to_owned(), what.to_owned());
        self.differences.push(AtEnd { zone, what, kernel, engine });
    }
}

/// Compares both states, whose zones stand in the order of `zones`.
pub(super) fn compare(kernel: &Image, engine: &Image, zones: &[&'static str]) -> Compared {
    let mut comparison =
        Comparison { zone: "", scores: Scores::default(), differences: Vec::new() };
    if kernel.zones.len() != engine.zones.len() {
        let counts = [kernel, engine].map(|image| image.zones.len());
        comparison.value(names::FREE_LISTS, "zones", counts[0], counts[1]);
    }
    for (number, (theirs, ours)) in kernel.zones.iter().zip(&engine.zones).enumerate() {
        comparison.zone = zones.get(number).copied().unwrap_or("");
        zone(&mut comparison, theirs, ours);
    }
    Compared { parts: comparison.scores.0, differences: comparison.differences }
}

fn zone(comparison: &mut Comparison<'_>, kernel: &ZoneImage, engine: &ZoneImage) {
    let all = [names::FREE_LISTS, names::FREE_ENTRIES];
    lists(comparison, all, "free list", &kernel.free, &engine.free);
    if kernel.cpus.len() != engine.cpus.len() {
        let counts = [kernel, engine].map(|zone| zone.cpus.len());
        comparison.value(names::CPU_COUNTS, "CPUs", counts[0], counts[1]);
    }
    for (rank, (theirs, ours)) in kernel.cpus.iter().zip(&engine.cpus).enumerate() {
        cpu(comparison, rank, theirs, ours);
    }
    pageblocks(comparison, &kernel.pageblocks, &engine.pageblocks);
    comparison.value(names::BOOSTS, "boost", kernel.boost.0, engine.boost.0);
    let flags = |zone: &ZoneImage| {
        [zone.reclaim_active.into(), zone.below_high.into(), zone.reserved_high_atomic.0]
    };
    let what = ["reclaim active", "below its high mark", "pages in high-atomic blocks"];
    for ((what, theirs), ours) in what.into_iter().zip(flags(kernel)).zip(flags(engine)) {
        comparison.value(names::FLAGS, what, theirs, ours);
    }
    let (theirs, ours) = (&kernel.compaction, &engine.compaction);
    for (nth, what) in
        ["source position, any run", "source position, runs that wait"].into_iter().enumerate()
    {
        comparison.value(names::POSITIONS, what, theirs.sources[nth], ours.sources[nth]);
    }
    comparison.value(names::POSITIONS, "target position", theirs.targets, ours.targets);
    comparison.value(names::DEFERRAL, "attempts passed over", theirs.considered, ours.considered);
    comparison.value(names::DEFERRAL, "shift of the pause", theirs.shift, ours.shift);
    comparison.value(
        names::DEFERRAL,
        "smallest failed order",
        theirs.order_failed,
        ours.order_failed,
    );
    comparison.value(names::DEFERRAL, "marks are to be wiped", theirs.flush, ours.flush);
}

/// Compares lists by order and type; a list that only one side has is empty on the other. The scores are `whole` for
/// lists, `entries` for positions.
fn lists(
    comparison: &mut Comparison<'_>,
    [whole, entries]: [Key; 2],
    what: &str,
    kernel: &[ListImage],
    engine: &[ListImage],
) {
    let by_key = |lists: &[ListImage]| -> BTreeMap<_, Vec<Pfn>> {
        let key = |list: &ListImage| (list.order, list.migratetype.index());
        lists.iter().map(|list| (key(list), list.blocks.clone())).collect()
    };
    let names: BTreeMap<usize, &str> = kernel
        .iter()
        .chain(engine)
        .map(|list| (list.migratetype.index(), list.migratetype.name()))
        .collect();
    let (kernel, engine) = (by_key(kernel), by_key(engine));
    let keys: BTreeSet<_> = kernel.keys().chain(engine.keys()).copied().collect();
    let empty = Vec::new();
    for key in keys {
        let theirs = kernel.get(&key).unwrap_or(&empty);
        let ours = engine.get(&key).unwrap_or(&empty);
        let same = theirs.iter().zip(ours).filter(|(a, b)| a == b).count() as u64;
        let score = comparison.scores.at(entries.clone());
        *score = *score + Score { same, of: theirs.len().max(ours.len()) as u64 };
        comparison.scores.at(whole.clone()).count(theirs == ours);
        if theirs != ours {
            let from = theirs.iter().zip(ours).take_while(|(a, b)| a == b).count();
            let (order, migratetype) = key;
            let kind = names.get(&migratetype).copied().unwrap_or("");
            let what = format!("{what} of order {order}, {kind}, from entry {from} on");
            comparison.note(&what, entries_from(theirs, from), entries_from(ours, from));
        }
    }
}

/// Shows a few entries from `from` on, and the number of entries.
fn entries_from(list: &[Pfn], from: usize) -> String {
    const SHOWN: usize = 6;
    let shown: Vec<String> = list.iter().skip(from).take(SHOWN).map(Pfn::to_string).collect();
    let more = if list.len() > from + SHOWN { ", ..." } else { "" };
    format!("{}{more} ({} entries)", shown.join(", "), list.len())
}

fn cpu(comparison: &mut Comparison<'_>, rank: usize, kernel: &CpuImage, engine: &CpuImage) {
    let all = [names::CPU_LISTS, names::CPU_ENTRIES];
    lists(comparison, all, &format!("list of CPU {rank}"), &kernel.lists, &engine.lists);
    let pages = |cpu: &CpuImage| -> u64 {
        cpu.lists.iter().map(|list| list.blocks.len() as u64 * list.order.pages()).sum()
    };
    let counts = |cpu: &CpuImage| {
        [pages(cpu), cpu.high.into(), cpu.factor.into(), cpu.freed.into(), cpu.freed_large.into()]
    };
    let what = ["pages", "high", "factor", "pages freed lately", "last free of order 1 to 3"];
    for ((what, theirs), ours) in what.into_iter().zip(counts(kernel)).zip(counts(engine)) {
        comparison.value(names::CPU_COUNTS, &format!("CPU {rank}: {what}"), theirs, ours);
    }
}

/// Compares the pageblocks that the engine has: the kernel also lists those without managed frames.
fn pageblocks(
    comparison: &mut Comparison<'_>,
    kernel: &[PageblockImage],
    engine: &[PageblockImage],
) {
    let theirs: BTreeMap<Pfn, &PageblockImage> =
        kernel.iter().map(|block| (block.pfn, block)).collect();
    let (mut types, mut marks) = (Vec::new(), Vec::new());
    for ours in engine {
        let theirs = theirs.get(&ours.pfn);
        let same = theirs.map(|block| block.migratetype) == Some(ours.migratetype);
        comparison.scores.at(names::TYPES).count(same);
        types.extend((!same).then_some((ours, theirs)));
        let same = theirs.map(|block| block.skip) == Some(ours.skip);
        comparison.scores.at(names::MARKS).count(same);
        marks.extend((!same).then_some((ours, theirs)));
    }
    if let Some((ours, theirs)) = types.first() {
        let what = format!("types of {} pageblocks; at frame {}", types.len(), ours.pfn);
        let kernel = theirs.map_or("none", |block| block.migratetype.name());
        comparison.note(&what, kernel.to_owned(), ours.migratetype.name().to_owned());
    }
    if let Some((ours, theirs)) = marks.first() {
        let what = format!("marks of {} pageblocks; at frame {}", marks.len(), ours.pfn);
        let kernel = theirs.map_or("none".to_owned(), |block| block.skip.to_string());
        comparison.note(&what, kernel, ours.skip.to_string());
    }
}
