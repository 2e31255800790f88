//! Claims around the workloads that only count: other keys, other sizes of a block, remaining blocks, an objection, and
//! the length of a list.

use std::collections::BTreeMap;

use nofrag::vmap::{
    BlockCounters, BlockGeometry, BlockIndex, NewBlock, Preset, RamArea, Reuse, VmapPolicy,
};

use super::bench::{Bench, Counting};
use super::catalogue::Program;
use super::workloads::Workload;
use super::{BEFORE, PEN_LOOPS, RamPlan, Trouble, names, pairs};
use crate::figures;
use crate::key::{self, Counts, Key};
use crate::oracle::{Claims, Relation};
use crate::random::Random;
use crate::report::{Measurement, Report};
use crate::scenario::Extent;
use crate::spaces::{Failure, VMALLOC_PAGES};

/// Number of keys with which the random workload is run: 0, 1, and so on.
const KEYS: u32 = 20;

/// Name of our preset without recycling of single slots.
pub(super) const OURS_WHOLE: &str = "nofrag, no recycling";

/// Number of blocks that ours may make in the random workload while no slot is recycled.
const MOST_BLOCKS: f64 = 330.0;

/// Returns the policy with blocks of this geometry.
pub(super) fn with_geometry(policy: VmapPolicy, geometry: BlockGeometry) -> VmapPolicy {
    let mut policy = policy;
    policy.blocks.geometry = geometry;
    policy
}

fn is_ours(design: &Preset) -> bool {
    design.policy.blocks.index == BlockIndex::Direct
}

/// Runs one workload in a fresh space; returns nanoseconds per pair and the counts.
pub(super) fn counted(policy: VmapPolicy, workload: Workload) -> Result<(f64, Counts), Failure> {
    let sizes = workload.sizes(policy.blocks.geometry, PEN_LOOPS);
    let mapper = Counting::default();
    let bench = Bench::new(policy, VMALLOC_PAGES, &mapper, ())?;
    let ns_per_pair = bench.pairs(&sizes)?;
    Ok((ns_per_pair, pairs::counted(&bench, sizes.len())))
}

/// Counts of the random workload with each key.
pub(super) struct OverKeys {
    times: Vec<f64>,
    counts: Vec<Counts>,
}

impl OverKeys {
    pub(super) fn of(policy: VmapPolicy) -> Result<OverKeys, Failure> {
        let (mut times, mut counts) = (Vec::new(), Vec::new());
        for key in 0..KEYS {
            let (time, counted) = counted(policy, Workload::W2 { key })?;
            times.push(time);
            counts.push(counted);
        }
        Ok(OverKeys { times, counts })
    }

    pub(super) fn values(&self, key: &Key) -> Vec<f64> {
        let of = |counts: &Counts| counts.get(key).map_or(f64::NAN, |it| it.get());
        self.counts.iter().map(of).collect()
    }

    pub(super) fn range(&self, key: &Key) -> [f64; 2] {
        let values = self.values(key);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        [least, values.iter().copied().fold(0.0, f64::max)]
    }

    /// Returns how many ends of the range of a count are other ones.
    pub(super) fn ends_but(&self, key: &Key, wanted: [f64; 2]) -> f64 {
        self.range(key).iter().zip(wanted).filter(|(got, wanted)| *got != wanted).count() as f64
    }

    pub(super) fn mean(&self, key: &Key) -> f64 {
        let values = self.values(key);
        values.iter().sum::<f64>() / values.len() as f64
    }

    /// Returns a row with the means of all counts over the keys, and the ranges of blocks and lists; `None` without
    /// keys.
    pub(super) fn measurement(self, program: Program, design: &str) -> Option<Measurement> {
        let keys = self.counts.first()?.keys();
        let mut counts = key::counts(keys.map(|key| (key.clone(), self.mean(key))));
        for key in [names::CREATED, names::RETURNED, names::LONGEST_LIST] {
            for (end, value) in [names::LEAST, names::MOST].iter().zip(self.range(&key)) {
                counts.insert(key.with(end), value.into());
            }
        }
        measurement(program.into_str(), design, PEN_LOOPS, self.times, counts)
    }
}

/// Returns the least and the most that a row has of a count over keys.
pub(super) fn ends_of(row: &Measurement, key: &Key) -> Option<[f64; 2]> {
    let [least, most] = [names::LEAST, names::MOST].map(|end| row.count(key.with(end)));
    Some([least?, most?])
}

/// Returns a measurement without functions or courses.
pub(super) fn measurement(
    program: &str,
    design: &str,
    loops: u64,
    times: Vec<f64>,
    counts: Counts,
) -> Option<Measurement> {
    Measurement::of(program, design, loops, (names::NS_PER_PAIR, times), counts)
}

/// Runs the random workload with 20 keys, and judges that counts and their ranges are as simulated, and that ours makes
/// few blocks without recycling.
pub(super) fn keys(plan: &RamPlan, report: &mut Report) -> Result<(), Trouble> {
    for design in &plan.designs {
        let over = OverKeys::of(design.policy).map_err(|why| (design.name.to_owned(), why))?;
        if !is_ours(design) {
            judge_keys(design, &over, report);
        }
        report.measurements.extend(over.measurement(Program::Keys, design.name));
        if is_ours(design) {
            let mut policy = design.policy;
            policy.blocks.reuse = Reuse::WholeBlock;
            let over = OverKeys::of(policy).map_err(|why| (OURS_WHOLE.to_owned(), why))?;
            let [_, most] = over.range(&names::CREATED);
            let claim = "w2 over 20 keys: blocks that ours makes while no slot is recycled";
            report.oracles.exact("w2-keys-new/nofrag", claim, most, Relation::AtMost(MOST_BLOCKS));
            report.measurements.extend(over.measurement(Program::Keys, OURS_WHOLE));
        }
    }
    Ok(())
}

/// Returns the side of Pen's first change on which a design is.
pub(super) fn side(design: &Preset) -> &'static str {
    match design.policy.blocks.new_block {
        NewBlock::Head => "before",
        NewBlock::Tail => "after",
    }
}

fn judge_keys(design: &Preset, over: &OverKeys, report: &mut Report) {
    let there = figures::pen_2015().simulated();
    let there = there.measurement("w2", side(design)).expect("the figures have every workload");
    let counts =
        [("new", names::CREATED), ("freed", names::RETURNED), ("list", names::LONGEST_LIST)];
    for (id, count) in &counts {
        let range = ends_of(there, count).expect("each row has them");
        let claim = format!(
            "w2 over 20 keys, {count}: from {} to {}, as simulated; ends that differ",
            range[0], range[1]
        );
        let id = format!("w2-keys-{id}/{}", design.name);
        report.oracles.exact(id, claim, over.ends_but(count, range), Relation::NONE);
    }
    let [created, returned] = [names::CREATED, names::RETURNED].map(|count| {
        let differs = |(key, got): (u32, f64)| {
            there.count(names::with_key(&count, key)).is_some_and(|wanted| wanted != got)
        };
        (0..).zip(over.values(&count)).map(differs).collect::<Vec<bool>>()
    });
    let differing = created.iter().zip(returned).filter(|(new, freed)| **new || *freed).count();
    let claim = "w2: each of the first keys makes and frees as many as simulated; keys that differ";
    let id = format!("w2-keys-each/{}", design.name);
    report.oracles.exact(id, claim, differing as f64, Relation::NONE);
    let claim = "w2 over 20 keys: listed blocks inspected per call, to two decimals";
    let steps = there.count(names::STEPS).expect("each row has them");
    let near = Relation::Between(steps - 0.005, steps + 0.005);
    let id = format!("w2-keys-steps/{}", design.name);
    report.oracles.exact(id, claim, over.mean(&names::STEPS), near);
}

/// Sizes of a block other than that of a kernel for few CPUs, in slots.
pub(super) const OTHER_BITS: [u32; 3] = [512, 256, 128];

/// Returns the name of a workload's count in a row for other sizes of a block.
pub(super) fn other_bits_count(bits: u32, workload: &'static str, key: &Key) -> Key {
    Key::count(workload).with(format_args!(" {key}, {bits} slots"))
}

/// Returns the blocks that a workload makes and frees where a block has so many slots, as a measured or simulated
/// report has them.
pub(super) fn made_and_freed(
    report: &Report,
    design: &str,
    bits: u32,
    workload: &'static str,
) -> Option<[f64; 2]> {
    let of = |key: Key| {
        let program = Program::OtherBits.into_str();
        let own = report.count(program, design, other_bits_count(bits, workload, &key));
        // What does not depend on the size was simulated with the usual one.
        own.or_else(|| report.count(workload, design, key.with(names::LEAST)))
    };
    Some([of(names::CREATED)?, of(names::RETURNED)?])
}

/// Runs the three workloads with smaller blocks (docs/sources/vmap.md#other-bits).
pub(super) fn other_bits(_: &RamPlan, design: &Preset, report: &mut Report) -> Result<(), Failure> {
    let workloads = [("w1", Workload::W1), ("w2", Workload::W2 { key: 0 }), ("w3", Workload::W3)];
    let (mut times, mut counts) = (Vec::new(), BTreeMap::new());
    for bits in OTHER_BITS {
        let geometry = BlockGeometry::new(bits, 64).expect("Linux has such blocks");
        for (name, workload) in workloads {
            let (time, counted) = counted(with_geometry(design.policy, geometry), workload)?;
            times.push(time);
            for key in [names::CREATED, names::RETURNED] {
                counts.insert(other_bits_count(bits, name, &key), counted[&key]);
            }
        }
    }
    report.measurements.extend(measurement(
        Program::OtherBits.into_str(),
        design.name,
        PEN_LOOPS,
        times,
        counts,
    ));
    judge_other_bits(design, report);
    Ok(())
}

fn judge_other_bits(design: &Preset, report: &mut Report) {
    let there = figures::pen_2015().simulated();
    let workloads: &[&'static str] =
        if design.name == BEFORE { &["w1", "w3"] } else { &["w1", "w2", "w3"] };
    for bits in OTHER_BITS {
        let beyond = workloads.iter().filter(|&&workload| {
            let wanted = made_and_freed(&there, side(design), bits, workload);
            let got = made_and_freed(report, design.name, bits, workload);
            let (Some(wanted), Some(got)) = (wanted, got) else { return true };
            if is_ours(design) { got[0] > wanted[0] } else { got != wanted }
        });
        let beyond = beyond.count() as f64;
        let claim = match is_ours(design) {
            true => "ours makes at most as many blocks; workloads with more",
            false => "the workloads make and free as many as simulated; workloads that differ",
        };
        let id = format!("bits-{bits}/{}", design.name);
        let claim = format!("blocks of {bits}: {claim}");
        report.oracles.exact(id, claim, beyond, Relation::NONE);
    }
}

/// Judges that the first workload leaves one block under tail insertion, which an unforced purge keeps since 6.5 and a
/// forced one takes (docs/sources/vmap.md#oracle-3).
pub(super) fn left_over(_: &RamPlan, design: &Preset, report: &mut Report) -> Result<(), Failure> {
    let mapper = Counting::default();
    let bench = Bench::new(design.policy, VMALLOC_PAGES, &mapper, ())?;
    let sizes = Workload::W1.sizes(design.policy.blocks.geometry, PEN_LOOPS);
    let ns_per_pair = bench.pairs(&sizes)?;
    let counts = pairs::counted(&bench, sizes.len());
    let records = || {
        let records = bench.space.blocks();
        records.map_err(|why| Failure::Records(why.to_string()))
    };
    let left = records()?;
    bench.space.unmap_aliases();
    let kept = records()?;
    bench.space.purge_all();
    let blocks = bench.blocks();

    let name = design.name;
    if design.name == "linux-6.11" {
        let alone = left.len() == 1
            && (left[0].free, left[0].dirty, left[0].live) == (832, 192, 0)
            && kept.len() == 1;
        let claim = "after w1 one block is left: 832 slots free, 192 dirty, none live; an unforced \
                     purge keeps it; deviations";
        report.oracles.exact("left-over", claim, f64::from(!alone), Relation::NONE);
    }
    if !is_ours(design) {
        let claim = "w1 and a forced purge: blocks made";
        report.oracles.exact(
            format!("left-over-new/{name}"),
            claim,
            blocks.created as f64,
            Relation::Equals(993.0),
        );
    }
    let claim = "after a forced purge every block that was made is given back; blocks left";
    let left = (blocks.created - blocks.returned) as f64;
    report.oracles.exact(format!("left-over-purged/{name}"), claim, left, Relation::NONE);
    report.measurements.extend(measurement(
        Program::LeftOver.into_str(),
        name,
        PEN_LOOPS,
        vec![ns_per_pair],
        counts,
    ));
    Ok(())
}

/// Judges Kim's objection (docs/sources/vmap.md#oracle-5): three pages do not divide a block of 256, so the tail rule
/// might keep blocks as well. They are rounded to four, which does.
pub(super) fn objection(_: &RamPlan, design: &Preset, report: &mut Report) -> Result<(), Failure> {
    let geometry = BlockGeometry::new(256, 64).expect("Linux has such blocks");
    let mapper = Counting::default();
    let policy = with_geometry(design.policy, geometry);
    let bench = Bench::new(policy, VMALLOC_PAGES, &mapper, ())?;
    let sizes = [3; 85 * 85];
    let ns_per_pair = bench.pairs(&sizes)?;
    let counts = pairs::counted(&bench, sizes.len());
    let name = design.name;
    let [new, freed, list] =
        [names::CREATED, names::RETURNED, names::LONGEST_LIST].map(|key| counts[&key].get());
    if is_ours(design) {
        let claim = "85 times 85 mappings of 3 pages: ours makes at most as many blocks";
        report.oracles.exact(format!("objection-new/{name}"), claim, new, Relation::AtMost(113.0));
    } else {
        for (id, claim, measured, relation) in [
            ("new", "blocks made", new, Relation::Equals(113.0)),
            ("freed", "blocks given back", freed, Relation::Equals(112.0)),
            ("list", "the longest list", list, Relation::AtMost(1.0)),
        ] {
            let claim = format!("85 times 85 mappings of 3 pages in blocks of 256: {claim}");
            report.oracles.exact(format!("objection-{id}/{name}"), claim, measured, relation);
        }
    }
    report.measurements.extend(measurement(
        Program::Objection.into_str(),
        name,
        85,
        vec![ns_per_pair],
        counts,
    ));
    Ok(())
}

/// Measures every search of a space, and keeps the longest one.
struct Searches<'a> {
    bench: &'a Bench<'a>,
    before: BlockCounters,
    longest: Longest,
}

/// The longest list, and the longest searches that found a block and that found none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Longest {
    list: u64,
    found: u64,
    failed: u64,
}

impl<'a> Searches<'a> {
    fn of(bench: &'a Bench<'a>) -> Searches<'a> {
        Searches { bench, before: bench.blocks(), longest: Longest::default() }
    }

    fn map(&mut self, pages: u64) -> Result<RamArea, Failure> {
        let area = self.bench.map(pages)?;
        let now = self.bench.blocks();
        let steps = now.search_steps - self.before.search_steps;
        let failed = now.failed_searches > self.before.failed_searches;
        let longest = if failed { &mut self.longest.failed } else { &mut self.longest.found };
        *longest = steps.max(*longest);
        self.longest.list = now.longest_list;
        self.before = now;
        Ok(area)
    }
}

impl Longest {
    /// Measures searches for random powers of two in a fresh space, where a mapping lives for some 64 calls at most.
    fn of_random(policy: VmapPolicy, random: &mut Random) -> Result<Longest, Failure> {
        let mapper = Counting::default();
        let bench = Bench::new(policy, VMALLOC_PAGES, &mapper, ())?;
        let mut searches = Searches::of(&bench);
        let mut live = Vec::new();
        // Some sequences prefer small sizes, some large ones.
        let [one, other] = [random.between(0, 6), random.between(0, 6)];
        for _ in 0..1_000 {
            let order = random.between(one.min(other), one.max(other));
            live.push(searches.map(1 << order)?);
            while live.len() > 64 || (!live.is_empty() && random.between(0, 1) == 0) {
                bench.unmap(live.swap_remove(random.index(live.len())))?;
            }
        }
        Ok(searches.longest)
    }

    /// Measures searches over two loops of w3, the third workload of the document.
    fn of_w3(policy: VmapPolicy) -> Result<Longest, Failure> {
        let mapper = Counting::default();
        let bench = Bench::new(policy, VMALLOC_PAGES, &mapper, ())?;
        let mut searches = Searches::of(&bench);
        for pages in Workload::W3.sizes(policy.blocks.geometry, 2) {
            let area = searches.map(u64::from(pages))?;
            bench.unmap(area)?;
        }
        Ok(searches.longest)
    }

    fn or(self, other: Longest) -> Longest {
        Longest {
            list: self.list.max(other.list),
            found: self.found.max(other.found),
            failed: self.failed.max(other.failed),
        }
    }
}

/// Judges Pen's statement that a list under tail insertion has at most log2(64) + 1 blocks
/// (docs/sources/vmap.md#list-bound).
pub(super) fn list_bound(
    plan: &RamPlan,
    design: &Preset,
    report: &mut Report,
) -> Result<(), Failure> {
    let rounds = if plan.extent == Extent::Full { 20 } else { 2 };
    let mut random = Random::new(u64::from(plan.key()), 7);
    let mut longest = Longest::default();
    for slots in [128, 256, 512, 1024].repeat(rounds) {
        let geometry = BlockGeometry::new(slots, 64).expect("Linux has such blocks");
        let policy = with_geometry(design.policy, geometry);
        longest = longest.or(Longest::of_random(policy, &mut random)?);
    }
    for (id, claim, measured, bound) in [
        ("list", "blocks on the longest list", longest.list, 7.0),
        ("found", "blocks inspected by a search that finds one", longest.found, 7.0),
        ("failed", "blocks inspected by a search that finds none", longest.failed, 6.0),
    ] {
        let claim = format!("{} random sequences of powers of two: {claim}", 4 * rounds);
        let id = format!("bound-{id}/{}", design.name);
        report.oracles.exact(id, claim, measured as f64, Relation::AtMost(bound));
    }
    let reached = Longest::of_w3(design.policy)?;
    let claim = "w3 reaches the bounds: 7 on the list, 7 to find, 6 to fail; deviations";
    let off = f64::from(reached != Longest { list: 7, found: 7, failed: 6 });
    report.oracles.exact(format!("bound-w3/{}", design.name), claim, off, Relation::NONE);
    Ok(())
}
