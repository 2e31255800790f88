//! The measurements: one record per contestant, workload and measure, from which tables, targets and files are made.

use nofrag_show::Spread;
use serde::Serialize;

/// A table of the report, which `--only` also selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// The correctness and abilities of each contestant.
    Verify,
    /// Time per operation of random replacements.
    Speed,
    /// Time per operation when small holes lie below.
    LowHoles,
    /// Ranges that come and go in other orders, and other numbers.
    Patterns,
    /// Inputs that are made to hurt.
    Worst,
    /// Distribution of the time of one allocation.
    Latency,
    /// Heap bytes per hole.
    Metadata,
    /// Largest hole over all free pages, and first failure.
    Packing,
    /// Span over live pages after the live set shrank.
    Shrink,
    /// `Lowest` against a linear scan.
    Oracle,
    /// Small mappings, cut from blocks.
    Blocks,
    /// Areas in an address space: erase, gap search, store.
    Areas,
    /// Page frames in blocks of powers of two.
    Pages,
    /// Runs of memory, of which the first page is touched.
    #[cfg(feature = "heaps")]
    Heaps,
    /// Blocks in memory of a GPU.
    #[cfg(feature = "gpu")]
    Gpu,
}

impl Group {
    /// Returns the heading in the report.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Group::Verify => "Correctness and abilities (untimed)",
            Group::Speed => "Speed: random replacements, 1..64 pages",
            Group::LowHoles => "Speed: one-page holes below, 100 and 1 pages in turn",
            Group::Patterns => "Speed: other orders and other numbers",
            Group::Worst => "Speed: inputs made to hurt",
            Group::Latency => "Time of one allocation, 1..64 pages, live 1e5",
            Group::Metadata => "Heap bytes of the records per hole",
            Group::Packing => "Packing at 90 % occupancy of 2^20 pages",
            Group::Shrink => "Footprint after shrinking to 10 % and churning",
            Group::Oracle => "Lowest at 90 % against a linear scan",
            Group::Blocks => "Small mappings: map_ram and unmap_ram",
            Group::Areas => "Address spaces: erase, gap search and store",
            Group::Pages => "Page frames: time, whole pageblocks, records",
            #[cfg(feature = "heaps")]
            Group::Heaps => "Runs of memory: time, faults, what stays resident",
            #[cfg(feature = "gpu")]
            Group::Gpu => "Memory of a GPU: what a full pool holds, time, calls of the driver",
        }
    }

    /// Returns true if those who take part in it are not the allocators of ranges.
    #[must_use]
    pub fn has_own_contestants(self) -> bool {
        self >= Group::Blocks
    }
}

/// Meaning and unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    NsPerOp,
    /// Time over offset-allocator's in the same round.
    OverOffset,
    HeapCallsPerOp,
    /// Nanoseconds per cycle: an area removed, a gap found, an area stored.
    NsPerCycle,
    /// Time over that of nofrag's exact highest fit in the same round.
    OverNofrag,
    /// Time over that of Linux's design in the same round.
    OverLinuxTree,
    /// Nanoseconds of one allocation, or cycle: median.
    P50Ns,
    /// Nanoseconds of one allocation, or cycle: 99th percentile.
    P99Ns,
    /// Nanoseconds of one allocation, or cycle: 99.9th percentile.
    P999Ns,
    /// Nanoseconds of one allocation, or cycle: the slowest.
    MaxNs,
    /// The 99.9th percentile over the median.
    TailOverMedian,
    /// Nanoseconds per area to build the space.
    BuildNs,
    /// Nanoseconds to find an area by an address in it.
    FindNs,
    /// Areas, nodes or blocks that a search looks at.
    StepsPerSearch,
    /// The most that one search looked at.
    MostSteps,
    /// Mapped pages in a hundred pages without the largest hole.
    UtilisationPercent,
    /// Hash of the addresses of all areas: equal where all lie at equal addresses.
    PlacementHash,
    BytesPerArea,
    /// Metadata bytes as the contestant itself reports them, per area.
    OwnBytesPerArea,
    /// Heap bytes per gap of at least one page.
    BytesPerGap,
    Areas,
    BytesPerHole,
    /// Metadata bytes as the contestant itself reports them, per hole.
    OwnBytesPerHole,
    /// The same as [`BytesPerHole`](Self::BytesPerHole), after the contestant was asked to shrink.
    ShrunkBytesPerHole,
    Holes,
    /// Largest hole over all free pages.
    LargestOverFree,
    /// Percent of pages that are live when a request fails for the first time.
    FirstFailurePercent,
    /// Percent of pages that were live when the largest hole was measured.
    OccupancyPercent,
    Refused,
    /// Highest live page over live pages before the live set shrank.
    SpanOverLiveBefore,
    /// Highest live page over live pages after the live set shrank and churned.
    SpanOverLiveAfter,
    /// Percent of placements at the lowest possible address.
    LowestPercent,
    /// Percent of placements at the highest possible address.
    HighestPercent,
    Compared,
    /// Placements that differ from the linear scan.
    Differing,
    /// 1 if every range was inside the space and disjoint from the others.
    Disjoint,
    /// 1 if aligned requests are served and aligned.
    Aligns,
    /// 1 if the whole space can be had in one piece once everything is freed.
    WholeAgain,
    NsPerPair,
    /// Time over that of nofrag's handle in the same round.
    OverHandle,
    /// Nanoseconds per pair of `map_ram` and `unmap_ram` of one thread alone, by the clock on the wall.
    NsAlone,
    /// Nanoseconds per pair of `map_ram` and `unmap_ram` of each of two threads, by the clock on the wall.
    NsBeside,
    /// Time of a thread's pair beside another thread over the time of a thread alone.
    OverAlone,
    /// Locked operations per pair of `map_ram` and `unmap_ram` of one thread alone.
    LockedAlone,
    /// Locked operations per pair of `map_ram` and `unmap_ram` of each of two threads.
    LockedBeside,
    /// Waits of a thread for a lock, per pair of two threads.
    ConflictsBeside,
    /// Locks taken to end one mapping.
    LocksPerUnmap,
    /// Locked operations to end one mapping.
    LockedPerUnmap,
    /// Nanoseconds to allocate one block.
    AllocNs,
    /// Nanoseconds to free one block.
    FreeNs,
    /// Time over that of nofrag's own page policy in the same round.
    OverPages,
    /// Time of allocations over that of nofrag's own page policy in the same round.
    AllocOverPages,
    /// Time of frees over that of nofrag's own page policy in the same round.
    FreeOverPages,
    /// Pageblocks without a page in use, in a hundred, at step 50 of the frag test.
    WholeMiddle,
    /// Pageblocks without a page in use, in a hundred, at the end of the frag test.
    WholeEnd,
    /// Pageblocks that can be allocated at the end of the frag test, in a hundred of all.
    HadPercent,
    /// Pages that must move until free pages fill whole pageblocks, before the steps of the frag test.
    MovesBefore,
    /// Pages that must move until free pages fill whole pageblocks, at the end of the frag test.
    MovesEnd,
    /// KiB of records for each GiB when all is free.
    KibPerGibFresh,
    /// KiB of records for each GiB with pages in use at random.
    KibPerGib,
    /// Time over that of nofrag's parked arena in the same round.
    OverArena,
    /// Faults of pages per run taken and given back.
    FaultsPerPair,
    /// MiB that are resident more than before the contestant was made.
    ResidentMib,
    /// KiB of metadata as the contestant itself reports them, for each GiB with pages in use at random.
    OwnKibPerGib,
    /// Percent of a pool that is live when a request is refused, in the mean.
    LiveWhenFullPercent,
    /// Time of an allocation or a free in a full pool, with what was refused.
    NsPerOpFull,
    /// Nanoseconds of a call while the device has other work, by the clock on the wall.
    NsBesideWork,
}

impl Measure {
    /// Returns the heading of its column, and the number of digits after the point in tables.
    #[must_use]
    pub fn shown(self) -> (&'static str, usize) {
        match self {
            Measure::NsPerOp => ("ns/op", 1),
            Measure::OverOffset => ("x offset-allocator", 2),
            Measure::HeapCallsPerOp => ("heap calls/op", 2),
            Measure::NsPerCycle => ("ns/cycle", 1),
            Measure::OverNofrag => ("x nofrag GapTree", 2),
            Measure::OverLinuxTree => ("x Linux's gap tree", 2),
            Measure::P50Ns => ("p50 ns", 0),
            Measure::P99Ns => ("p99 ns", 0),
            Measure::P999Ns => ("p99.9 ns", 0),
            Measure::MaxNs => ("max ns", 0),
            Measure::TailOverMedian => ("p99.9/p50", 1),
            Measure::BuildNs => ("build ns/area", 1),
            Measure::FindNs => ("find ns", 1),
            Measure::StepsPerSearch => ("steps/search", 1),
            Measure::MostSteps => ("most steps", 0),
            Measure::UtilisationPercent => ("utilisation %", 1),
            Measure::PlacementHash => ("placement hash", 0),
            Measure::BytesPerArea => ("bytes/area", 1),
            Measure::OwnBytesPerArea => ("own account/area", 1),
            Measure::BytesPerGap => ("bytes/gap", 1),
            Measure::Areas => ("areas", 0),
            Measure::BytesPerHole => ("bytes/hole", 1),
            Measure::OwnBytesPerHole => ("own account", 1),
            Measure::ShrunkBytesPerHole => ("asked to shrink", 1),
            Measure::Holes => ("holes", 0),
            Measure::LargestOverFree => ("largest/free", 3),
            Measure::FirstFailurePercent => ("first failure %", 2),
            Measure::OccupancyPercent => ("live %", 2),
            Measure::Refused => ("refused", 0),
            Measure::SpanOverLiveBefore => ("span/live before", 3),
            Measure::SpanOverLiveAfter => ("span/live after", 3),
            Measure::LowestPercent => ("lowest %", 1),
            Measure::HighestPercent => ("highest %", 1),
            Measure::Compared => ("compared", 0),
            Measure::Differing => ("differing", 0),
            Measure::Disjoint => ("disjoint", 0),
            Measure::Aligns => ("aligns", 0),
            Measure::WholeAgain => ("whole again", 0),
            Measure::NsPerPair => ("ns/pair", 1),
            Measure::OverHandle => ("x nofrag's handle", 2),
            Measure::NsAlone => ("ns/pair alone", 1),
            Measure::NsBeside => ("ns/pair, two threads", 1),
            Measure::OverAlone => ("x alone", 2),
            Measure::LockedAlone => ("locked/pair alone", 2),
            Measure::LockedBeside => ("locked/pair, two threads", 2),
            Measure::ConflictsBeside => ("conflicts/pair", 5),
            Measure::LocksPerUnmap => ("locks/unmap", 2),
            Measure::LockedPerUnmap => ("locked/unmap", 2),
            Measure::AllocNs => ("alloc ns", 1),
            Measure::FreeNs => ("free ns", 1),
            Measure::OverPages => ("x nofrag", 2),
            Measure::AllocOverPages => ("alloc x nofrag", 2),
            Measure::FreeOverPages => ("free x nofrag", 2),
            Measure::WholeMiddle => ("whole %, step 50", 2),
            Measure::WholeEnd => ("whole %, step 99", 2),
            Measure::HadPercent => ("to be had %", 2),
            Measure::MovesBefore => ("moves, step 0", 0),
            Measure::MovesEnd => ("moves, step 99", 0),
            Measure::KibPerGibFresh => ("KiB/GiB, free", 0),
            Measure::KibPerGib => ("KiB/GiB, used", 0),
            Measure::OverArena => ("x nofrag's arena", 2),
            Measure::FaultsPerPair => ("faults/pair", 3),
            Measure::ResidentMib => ("MiB resident", 1),
            Measure::OwnKibPerGib => ("own account", 0),
            Measure::LiveWhenFullPercent => ("live when full %", 2),
            Measure::NsPerOpFull => ("ns/op when full", 1),
            Measure::NsBesideWork => ("ns beside work", 0),
        }
    }
}

/// One measure of one contestant in one workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    pub group: Group,
    pub workload: String,
    pub contestant: String,
    /// Meaning of the samples; absent when there is nothing but a note.
    pub measure: Option<Measure>,
    /// One number per round or seed; numbers of equal index belong to the same round.
    pub samples: Vec<f64>,
    /// Reason why samples are missing or partial.
    pub note: Option<String>,
}

/// All records of a run, with the look-ups that tables and targets need.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Records(pub Vec<Record>);

impl Records {
    /// Returns the samples of one measure; empty when it was not taken.
    #[must_use]
    pub fn samples(&self, workload: &str, contestant: &str, measure: Measure) -> &[f64] {
        let matches = |record: &&Record| {
            record.workload == workload
                && record.contestant == contestant
                && record.measure == Some(measure)
        };
        self.0.iter().find(matches).map_or(&[], |record| &record.samples)
    }

    /// Returns the median and the range of one measure.
    #[must_use]
    pub fn spread(&self, workload: &str, contestant: &str, measure: Measure) -> Option<Spread> {
        Spread::of(self.samples(workload, contestant, measure).to_vec())
    }

    /// Returns the median of one measure.
    #[must_use]
    pub fn median(&self, workload: &str, contestant: &str, measure: Measure) -> Option<f64> {
        self.spread(workload, contestant, measure).map(|spread| spread.median)
    }

    /// Returns true if a contestant was not found wrong in the workload that checks it.
    #[must_use]
    pub fn is_right(&self, workload: &str, contestant: &str) -> bool {
        !self.samples(workload, contestant, Measure::Disjoint).is_empty()
    }

    /// Returns the reason why `contestant` has no or only partial samples in `workload`.
    #[must_use]
    pub fn note(&self, workload: &str, contestant: &str) -> Option<&str> {
        let matches =
            |record: &&Record| record.workload == workload && record.contestant == contestant;
        self.0.iter().filter(matches).find_map(|record| record.note.as_deref())
    }

    /// Adds, as measure `over`, the ratio of each contestant's `of` to that of `reference`, round by round.
    pub fn add_ratios(&mut self, workload: &str, of: Measure, reference: &str, over: Measure) {
        let divisor = self.samples(workload, reference, of).to_vec();
        let is_dividend =
            |record: &&Record| record.workload == workload && record.measure == Some(of);
        let with_ratios = |record: &Record| Record {
            measure: Some(over),
            samples: ratios(&record.samples, &divisor),
            note: None,
            ..record.clone()
        };
        let mut added: Vec<Record> = self.0.iter().filter(is_dividend).map(with_ratios).collect();
        added.retain(|record| !record.samples.is_empty());
        self.0.append(&mut added);
    }

    /// Returns each value of `key` once, in order of first appearance, among the records of `group`.
    #[must_use]
    pub fn distinct<'a, T: PartialEq>(
        &'a self,
        group: Group,
        key: impl Fn(&'a Record) -> T,
    ) -> Vec<T> {
        let mut values: Vec<T> = Vec::new();
        for value in self.0.iter().filter(|record| record.group == group).map(key) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }
}

/// Divides `dividend` by `divisor`, sample by sample.
#[must_use]
pub fn ratios(dividend: &[f64], divisor: &[f64]) -> Vec<f64> {
    dividend.iter().zip(divisor).map(|(dividend, divisor)| dividend / divisor).collect()
}
