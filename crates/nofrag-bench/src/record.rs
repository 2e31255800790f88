//! The measurements: one record per contestant, workload and measure, from which tables, targets and files are made.

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
}

impl Group {
    /// All groups, in the order of the report.
    pub const ALL: [Group; 11] = [
        Group::Verify,
        Group::Speed,
        Group::LowHoles,
        Group::Latency,
        Group::Metadata,
        Group::Packing,
        Group::Shrink,
        Group::Oracle,
        Group::Blocks,
        Group::Areas,
        Group::Pages,
    ];

    /// Returns the heading in the report.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Group::Verify => "Correctness and abilities (untimed)",
            Group::Speed => "Speed: random replacements, 1..64 pages",
            Group::LowHoles => "Speed: one-page holes below, 100 and 1 pages in turn",
            Group::Latency => "Time of one allocation, 1..64 pages, live 1e5",
            Group::Metadata => "Heap bytes of the records per hole",
            Group::Packing => "Packing at 90 % occupancy of 2^20 pages",
            Group::Shrink => "Footprint after shrinking to 10 % and churning",
            Group::Oracle => "Lowest at 90 % against a linear scan",
            Group::Blocks => "Small mappings: map_ram and unmap_ram",
            Group::Areas => "Address spaces: erase, gap search and store",
            Group::Pages => "Page frames: time, whole pageblocks, records",
        }
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
    /// Pages of all blocks per page of a live mapping.
    PagesPerLive,
    /// Flushes for 1,024 pages whose mapping ended.
    FlushesPer1024,
    /// Blocks that one alias flush looked at.
    Visited,
    /// The most blocks looked at in one hold of a lock.
    MostPerHold,
    Locks,
    /// Microseconds that one alias flush took.
    UsPerCall,
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
    /// KiB of metadata as the contestant itself reports them, for each GiB with pages in use at random.
    OwnKibPerGib,
}

impl Measure {
    /// Returns the heading of its column.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Measure::NsPerOp => "ns/op",
            Measure::OverOffset => "x offset-allocator",
            Measure::HeapCallsPerOp => "heap calls/op",
            Measure::NsPerCycle => "ns/cycle",
            Measure::OverNofrag => "x nofrag GapTree",
            Measure::OverLinuxTree => "x Linux's gap tree",
            Measure::P50Ns => "p50 ns",
            Measure::P99Ns => "p99 ns",
            Measure::P999Ns => "p99.9 ns",
            Measure::MaxNs => "max ns",
            Measure::TailOverMedian => "p99.9/p50",
            Measure::BuildNs => "build ns/area",
            Measure::FindNs => "find ns",
            Measure::StepsPerSearch => "steps/search",
            Measure::MostSteps => "most steps",
            Measure::UtilisationPercent => "utilisation %",
            Measure::PlacementHash => "placement hash",
            Measure::BytesPerArea => "bytes/area",
            Measure::OwnBytesPerArea => "own account/area",
            Measure::BytesPerGap => "bytes/gap",
            Measure::Areas => "areas",
            Measure::BytesPerHole => "bytes/hole",
            Measure::OwnBytesPerHole => "own account",
            Measure::Holes => "holes",
            Measure::LargestOverFree => "largest/free",
            Measure::FirstFailurePercent => "first failure %",
            Measure::OccupancyPercent => "live %",
            Measure::Refused => "refused",
            Measure::SpanOverLiveBefore => "span/live before",
            Measure::SpanOverLiveAfter => "span/live after",
            Measure::LowestPercent => "lowest %",
            Measure::HighestPercent => "highest %",
            Measure::Compared => "compared",
            Measure::Differing => "differing",
            Measure::Disjoint => "disjoint",
            Measure::Aligns => "aligns",
            Measure::WholeAgain => "whole again",
            Measure::NsPerPair => "ns/pair",
            Measure::OverHandle => "x nofrag's handle",
            Measure::NsAlone => "ns/pair alone",
            Measure::NsBeside => "ns/pair, two threads",
            Measure::OverAlone => "x alone",
            Measure::LockedAlone => "locked/pair alone",
            Measure::LockedBeside => "locked/pair, two threads",
            Measure::ConflictsBeside => "conflicts/pair",
            Measure::LocksPerUnmap => "locks/unmap",
            Measure::LockedPerUnmap => "locked/unmap",
            Measure::PagesPerLive => "pages/live",
            Measure::FlushesPer1024 => "flushes/1024 freed",
            Measure::Visited => "blocks visited",
            Measure::MostPerHold => "most per hold",
            Measure::Locks => "locks",
            Measure::UsPerCall => "us",
            Measure::AllocNs => "alloc ns",
            Measure::FreeNs => "free ns",
            Measure::OverPages => "x nofrag",
            Measure::AllocOverPages => "alloc x nofrag",
            Measure::FreeOverPages => "free x nofrag",
            Measure::WholeMiddle => "whole %, step 50",
            Measure::WholeEnd => "whole %, step 99",
            Measure::HadPercent => "to be had %",
            Measure::MovesBefore => "moves, step 0",
            Measure::MovesEnd => "moves, step 99",
            Measure::KibPerGibFresh => "KiB/GiB, free",
            Measure::KibPerGib => "KiB/GiB, used",
            Measure::OwnKibPerGib => "own account",
        }
    }

    /// Returns the number of digits after the point in tables.
    #[must_use]
    pub fn digits(self) -> usize {
        match self {
            Measure::OverOffset
            | Measure::OverHandle
            | Measure::OverNofrag
            | Measure::OverLinuxTree
            | Measure::OverAlone
            | Measure::LockedAlone
            | Measure::LockedBeside
            | Measure::LocksPerUnmap
            | Measure::LockedPerUnmap
            | Measure::PagesPerLive
            | Measure::FirstFailurePercent
            | Measure::OccupancyPercent
            | Measure::OverPages
            | Measure::AllocOverPages
            | Measure::FreeOverPages
            | Measure::WholeMiddle
            | Measure::WholeEnd
            | Measure::HadPercent
            | Measure::HeapCallsPerOp => 2,
            Measure::LargestOverFree
            | Measure::SpanOverLiveBefore
            | Measure::SpanOverLiveAfter
            | Measure::FlushesPer1024 => 3,
            Measure::ConflictsBeside => 5,
            Measure::NsPerOp
            | Measure::NsPerCycle
            | Measure::TailOverMedian
            | Measure::BuildNs
            | Measure::FindNs
            | Measure::StepsPerSearch
            | Measure::UtilisationPercent
            | Measure::BytesPerArea
            | Measure::OwnBytesPerArea
            | Measure::BytesPerGap
            | Measure::HighestPercent
            | Measure::NsPerPair
            | Measure::NsAlone
            | Measure::NsBeside
            | Measure::UsPerCall
            | Measure::AllocNs
            | Measure::FreeNs
            | Measure::BytesPerHole
            | Measure::OwnBytesPerHole
            | Measure::LowestPercent => 1,
            _ => 0,
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

/// Median and range of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The middle sample, or the mean of the two middle ones.
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Summary {
    /// Summarises `samples`; `None` without any.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Summary> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Summary { median, low, high })
    }
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

    /// Returns the summary of one measure.
    #[must_use]
    pub fn summary(&self, workload: &str, contestant: &str, measure: Measure) -> Option<Summary> {
        Summary::of(self.samples(workload, contestant, measure))
    }

    /// Returns the median of one measure.
    #[must_use]
    pub fn median(&self, workload: &str, contestant: &str, measure: Measure) -> Option<f64> {
        self.summary(workload, contestant, measure).map(|summary| summary.median)
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
