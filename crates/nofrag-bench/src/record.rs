//! The measurements: one record per contestant, workload and measure, from which tables, targets and files are made.

use nofrag_show::Spread;
use serde::Serialize;

/// Declares the tables of the report, each with its heading.
macro_rules! groups {
    ($($(#[$named:meta])* $name:ident: $title:literal;)*) => {
        /// A table of the report, which `--only` also selects.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
        #[serde(rename_all = "kebab-case")]
        pub enum Group { $($(#[$named])* $name),* }

        impl Group {
            /// Returns the heading in the report.
            #[must_use]
            #[allow(unused_doc_comments, reason = "those of the declaration, beside its cfg")]
            pub fn title(self) -> &'static str {
                match self { $($(#[$named])* Group::$name => $title),* }
            }
        }
    };
}

groups! {
    /// The correctness and abilities of each contestant.
    Verify: "Correctness and abilities (untimed)";
    /// Time per operation of random replacements.
    Speed: "Speed: random replacements, 1..64 pages";
    /// Time per operation when small holes lie below.
    LowHoles: "Speed: one-page holes below, 100 and 1 pages in turn";
    /// Ranges that come and go in other orders, and other numbers.
    Patterns: "Speed: other orders and other numbers";
    /// Inputs that are made to hurt.
    Worst: "Speed: inputs made to hurt";
    /// Distribution of the time of one allocation.
    Latency: "Time of one allocation, 1..64 pages, live 1e5";
    /// Heap bytes per hole.
    Metadata: "Heap bytes of the records per hole";
    /// Largest hole over all free pages, and first failure.
    Packing: "Packing at 90 % occupancy of 2^20 pages";
    /// Span over live pages after the live set shrank.
    Shrink: "Footprint after shrinking to 10 % and churning";
    /// Small mappings, cut from blocks.
    Blocks: "Small mappings: map_ram and unmap_ram";
    /// Areas in an address space: erase, gap search, store.
    Areas: "Address spaces: erase, gap search and store";
    /// Page frames in blocks of powers of two.
    Pages: "Page frames: time, whole pageblocks, records";
    /// Runs of memory, of which the first page is touched.
    #[cfg(feature = "heaps")]
    Heaps: "Runs of memory: time, faults, what stays resident";
    /// Blocks in memory of a GPU.
    #[cfg(feature = "gpu")]
    Gpu: "Memory of a GPU: what a full pool holds, time, calls of the driver";
}

impl Group {
    /// Returns true if those who take part in it are not the allocators of ranges.
    #[must_use]
    pub fn has_own_contestants(self) -> bool {
        self >= Group::Blocks
    }
}

/// Declares what is measured: the heading of its column, and the number of digits after the point in tables.
macro_rules! measures {
    ($($(#[$named:meta])* $name:ident: $head:literal, $digits:literal;)*) => {
        /// Meaning and unit of a number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Measure { $($(#[$named])* $name),* }

        impl Measure {
            /// Returns the heading of its column, and the number of digits after the point in tables.
            #[must_use]
            pub fn shown(self) -> (&'static str, usize) {
                match self { $(Measure::$name => ($head, $digits)),* }
            }
        }
    };
}

measures! {
    NsPerOp: "ns/op", 1;
    /// Time over offset-allocator's in the same round.
    OverOffset: "x offset-allocator", 2;
    HeapCallsPerOp: "heap calls/op", 2;
    /// Nanoseconds per cycle: an area removed, a gap found, an area stored.
    NsPerCycle: "ns/cycle", 1;
    /// Time over that of nofrag's exact highest fit in the same round.
    OverNofrag: "x nofrag GapTree", 2;
    /// Time over that of Linux's design in the same round.
    OverLinuxTree: "x Linux's gap tree", 2;
    /// Nanoseconds of one allocation, or cycle: median.
    P50Ns: "p50 ns", 0;
    /// Nanoseconds of one allocation, or cycle: 99th percentile.
    P99Ns: "p99 ns", 0;
    /// Nanoseconds of one allocation, or cycle: 99.9th percentile.
    P999Ns: "p99.9 ns", 0;
    /// Nanoseconds of one allocation, or cycle: the slowest.
    MaxNs: "max ns", 0;
    /// The 99.9th percentile over the median.
    TailOverMedian: "p99.9/p50", 1;
    /// Nanoseconds per area to build the space.
    BuildNs: "build ns/area", 1;
    /// Nanoseconds to find an area by an address in it.
    FindNs: "find ns", 1;
    /// Areas, nodes or blocks that a search looks at.
    StepsPerSearch: "steps/search", 1;
    /// The most that one search looked at.
    MostSteps: "most steps", 0;
    /// Mapped pages in a hundred pages without the largest hole.
    UtilisationPercent: "utilisation %", 1;
    /// Hash of the addresses of all areas: equal where all lie at equal addresses.
    PlacementHash: "placement hash", 0;
    BytesPerArea: "bytes/area", 1;
    /// Metadata bytes as the contestant itself reports them, per area.
    OwnBytesPerArea: "own account/area", 1;
    /// Heap bytes per gap of at least one page.
    BytesPerGap: "bytes/gap", 1;
    Areas: "areas", 0;
    BytesPerHole: "bytes/hole", 1;
    /// Metadata bytes as the contestant itself reports them, per hole.
    OwnBytesPerHole: "own account", 1;
    /// The same as [`BytesPerHole`](Self::BytesPerHole), after the contestant was asked to shrink.
    ShrunkBytesPerHole: "asked to shrink", 1;
    Holes: "holes", 0;
    /// Largest hole over all free pages.
    LargestOverFree: "largest/free", 3;
    /// Percent of pages that are live when a request fails for the first time.
    FirstFailurePercent: "first failure %", 2;
    /// Percent of pages that were live when the largest hole was measured.
    OccupancyPercent: "live %", 2;
    Refused: "refused", 0;
    /// Highest live page over live pages before the live set shrank.
    SpanOverLiveBefore: "span/live before", 3;
    /// Highest live page over live pages after the live set shrank and churned.
    SpanOverLiveAfter: "span/live after", 3;
    /// Percent of placements at the lowest possible address.
    LowestPercent: "lowest %", 1;
    /// Percent of placements at the highest possible address.
    HighestPercent: "highest %", 1;
    Compared: "compared", 0;
    /// Placements that differ from the linear scan.
    Differing: "differing", 0;
    /// 1 if every range was inside the space and disjoint from the others.
    Disjoint: "disjoint", 0;
    /// 1 if aligned requests are served and aligned.
    Aligns: "aligns", 0;
    /// 1 if the whole space can be had in one piece once everything is freed.
    WholeAgain: "whole again", 0;
    NsPerPair: "ns/pair", 1;
    /// Time over that of nofrag's handle in the same round.
    OverHandle: "x nofrag's handle", 2;
    /// Nanoseconds per pair of `map_ram` and `unmap_ram` of one thread alone, by the clock on the wall.
    NsAlone: "ns/pair alone", 1;
    /// Nanoseconds per pair of `map_ram` and `unmap_ram` of each of two threads, by the clock on the wall.
    NsBeside: "ns/pair, two threads", 1;
    /// Time of a thread's pair beside another thread over the time of a thread alone.
    OverAlone: "x alone", 2;
    /// Locked operations per pair of `map_ram` and `unmap_ram` of one thread alone.
    LockedAlone: "locked/pair alone", 2;
    /// Locked operations per pair of `map_ram` and `unmap_ram` of each of two threads.
    LockedBeside: "locked/pair, two threads", 2;
    /// Waits of a thread for a lock, per pair of two threads.
    ConflictsBeside: "conflicts/pair", 5;
    /// Locks taken to end one mapping.
    LocksPerUnmap: "locks/unmap", 2;
    /// Locked operations to end one mapping.
    LockedPerUnmap: "locked/unmap", 2;
    /// Nanoseconds to allocate one block.
    AllocNs: "alloc ns", 1;
    /// Nanoseconds to free one block.
    FreeNs: "free ns", 1;
    /// Time over that of nofrag's own page policy in the same round.
    OverPages: "x nofrag", 2;
    /// Time of allocations over that of nofrag's own page policy in the same round.
    AllocOverPages: "alloc x nofrag", 2;
    /// Time of frees over that of nofrag's own page policy in the same round.
    FreeOverPages: "free x nofrag", 2;
    /// Pageblocks without a page in use, in a hundred, at step 50 of the frag test.
    WholeMiddle: "whole %, step 50", 2;
    /// Pageblocks without a page in use, in a hundred, at the end of the frag test.
    WholeEnd: "whole %, step 99", 2;
    /// Pageblocks that can be allocated at the end of the frag test, in a hundred of all.
    HadPercent: "to be had %", 2;
    /// Pages that must move until free pages fill whole pageblocks, before the steps of the frag test.
    MovesBefore: "moves, step 0", 0;
    /// Pages that must move until free pages fill whole pageblocks, at the end of the frag test.
    MovesEnd: "moves, step 99", 0;
    /// KiB of records for each GiB when all is free.
    KibPerGibFresh: "KiB/GiB, free", 0;
    /// KiB of records for each GiB with pages in use at random.
    KibPerGib: "KiB/GiB, used", 0;
    /// Time over that of nofrag's parked arena in the same round.
    OverArena: "x nofrag's arena", 2;
    /// Faults of pages per run taken and given back.
    FaultsPerPair: "faults/pair", 3;
    /// MiB that are resident more than before the contestant was made.
    ResidentMib: "MiB resident", 1;
    /// KiB of metadata as the contestant itself reports them, for each GiB with pages in use at random.
    OwnKibPerGib: "own account", 1;
    /// Percent of a pool that is live when a request is refused, in the mean.
    LiveWhenFullPercent: "live when full %", 2;
    /// Time of an allocation or a free in a full pool, with what was refused.
    NsPerOpFull: "ns/op when full", 1;
    /// Nanoseconds of a call while the device has other work, by the clock on the wall.
    NsBesideWork: "ns beside work", 0;
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
