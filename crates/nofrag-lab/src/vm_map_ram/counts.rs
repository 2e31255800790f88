//! Claims around the workloads that only count: other keys, and other sizes of a block.

use std::collections::BTreeMap;

use nofrag::vmap::{BlockGeometry, BlockIndex, NewBlock, Preset, Reuse, VmapPolicy};

use super::bench::{Bench, Counting};
use super::catalogue::Program;
use super::workloads::Workload;
use super::{BEFORE, PEN_LOOPS, RamPlan, Trouble, names, pairs};
use crate::figures;
use crate::key::{self, Counts, Key};
use crate::oracle::{Claims, Relation};
use crate::report::{Measurement, Report};
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
