//! The results of a replay.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use nofrag::page::Migratetype;
use nofrag::units::Order;
use nofrag_host::trace::{Loss, Unseen};
use serde::{Deserialize, Serialize};

use nofrag_show::{Cell, count};

use super::mmap::MmapOutcome;
use super::vmap::VmapOutcome;
use crate::key::Key;

/// A number for each migratetype, in the order of [`Migratetype`].
pub type ByType = [u64; Migratetype::COUNT];
/// A number for each order.
pub type ByOrder = [u64; Order::COUNT];

/// Groups of orders that are judged together: their name in reports, and the orders.
pub(super) const ORDERS: [(&str, RangeInclusive<usize>); 5] = [
    ("order 0", 0..=0),
    ("orders 1 to 3", 1..=3),
    ("orders 4 to 8", 4..=8),
    ("order 9", 9..=9),
    ("order 10", 10..=10),
];

/// Figures that several places name.
pub(super) mod figures {
    use crate::key::Key;

    pub(crate) static EVENTS: Key = Key::count("external fragmentation events");
    pub(crate) static SERIOUS: Key = Key::count("of these below order 4");
    pub(crate) static CLAIMS: Key = Key::count("pageblocks that changed their type");
    pub(crate) static COMPACTIONS: Key = Key::count("runs of direct compaction");
    pub(crate) static DIRECT_PAGES: Key = Key::count("pages reclaimed by callers");
    pub(crate) static FREE: Key = Key::count("free pages, all zones");
}

/// Returns the key of the figure for the events of one type.
pub(super) fn events_of(kind: Migratetype) -> Key {
    figures::EVENTS.with(format_args!(", {kind}"))
}

/// Returns the key of the figure for the served requests of some orders.
pub(super) fn served(orders: &str) -> Key {
    Key::count("requests of ").with(format_args!("{orders} served"))
}

/// A recording under other policies: all results of one call of [`replay`](super::replay). Lists by order begin with
/// order 0; those by type are unmovable, movable, reclaimable, high-atomic, CMA, isolate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayReport {
    /// The trace, as it was named.
    pub trace: String,
    /// The release of the recorded kernel.
    pub release: Option<String>,
    /// The first start value of random numbers.
    pub seed: u64,
    /// Number of start values.
    #[serde(default)]
    pub repeats: u64,
    pub recorded: Recorded,
    /// Facts that no event tells.
    #[serde(default)]
    pub unseen: Unseen,
    /// A run for each policy and size of memory, policies in the order in which they were named; before them the
    /// recorded kernel's own rules, where nobody named them.
    pub runs: Vec<PolicyRun>,
    /// Trust in the replay; `None` without a snapshot at the end or a preset of the recorded kernel.
    pub fidelity: Option<Fidelity>,
    /// Other recordings of the same workload, each beside the run under its kernel's rules.
    #[serde(default)]
    pub against: Vec<Foretold>,
    /// Areas of vmalloc; `None` where the recording has no events of them.
    #[serde(default)]
    pub vmap: Option<VmapOutcome>,
    /// Mappings of processes; `None` where the recording has no events of them.
    #[serde(default)]
    pub mmap: Option<MmapOutcome>,
    /// Sentences about conclusions that do not hold, and about assumptions.
    pub cautions: Vec<String>,
}

/// Counts of the recorded kernel itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Recorded {
    pub events: u64,
    /// Events lost, where the kernel counted them.
    pub lost: u64,
    /// Places where events were lost.
    pub gaps: u64,
    /// Records, or parts of the file, that could not be read.
    #[serde(default)]
    pub unreadable: u64,
    /// Time from the first event to the last, in nanoseconds.
    pub nanos: u64,
    /// Factor by which the host was slower than the machine whose costs are assumed, by its page faults.
    #[serde(default)]
    pub slower: u64,
    /// Blocks requested, by order.
    pub requests: ByOrder,
    /// Requests that the kernel did not serve, by order.
    pub failures: ByOrder,
    /// External fragmentation events with a free block below a pageblock, by the type asked for.
    pub extfrag: ByType,
    /// External fragmentation events with a free block below order 4, by the type asked for.
    #[serde(default)]
    pub serious: ByType,
    /// Pageblocks that changed their type with such an event, or with one of a whole pageblock.
    #[serde(default)]
    pub claims: u64,
    /// Pages that compaction moved.
    pub moved: u64,
    pub compactions: u64,
    /// Pages that callers reclaimed themselves.
    pub reclaimed_direct: u64,
    /// Entries of callers into direct reclaim.
    pub direct_reclaims: u64,
    /// Pages that kswapd reclaimed; `None` without snapshots before and after.
    #[serde(default)]
    pub reclaimed_kswapd: Option<u64>,
    /// Pages that nobody used over time, by zone, by the events alone.
    #[serde(default)]
    pub followed: Vec<Followed>,
}

impl Recorded {
    /// Returns the losses of the recording.
    #[must_use]
    pub fn loss(&self) -> Loss {
        Loss { events: self.lost, gaps: self.gaps, unreadable: self.unreadable }
    }
}

/// Unused memory at one time, by the events alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Followed {
    /// Nanoseconds since the first event.
    pub at: u64,
    /// Unused pages of each zone.
    pub idle: Vec<u64>,
}

/// One policy with one size of memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyRun {
    /// The policy's name, with the settings that are not the recorded host's: `linux-6.1:boost=0`.
    pub policy: String,
    /// The settings that are not the recorded host's, by their short names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, u64>,
    /// Memory in percent of the recorded host's.
    pub memory_percent: u32,
    /// Pages that the allocator managed.
    pub managed: u64,
    /// The results under each start value.
    pub repeats: Vec<Repeat>,
}

/// The result of a run under one start value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Repeat {
    pub counts: Counts,
    /// Free blocks of order 9 and above at the end.
    pub large_at_end: u64,
    /// Time at which a caller of a small block found nothing left to reclaim, in nanoseconds since the first event: a
    /// kernel would have killed a process then.
    #[serde(default)]
    pub out_of_memory: Option<u64>,
    /// State of memory at that time.
    #[serde(default)]
    pub shortage: Option<Shortage>,
    pub assumptions: Assumptions,
    /// The state over time, in order.
    pub timeline: Vec<Sample>,
    /// Wall time in nanoseconds; no part of the result.
    pub wall_nanos: u64,
}

/// The content of a run's memory when a small block was refused with nothing left to reclaim. In pages, unless another
/// unit is named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Shortage {
    /// Entries into direct reclaim up to then.
    pub direct_reclaims: u64,
    /// Pages that the allocator manages.
    pub managed: u64,
    /// Memory of the kernel: slabs, the reclaimable ones included, which go as they went in the recording.
    pub kernel: u64,
    /// Memory of processes, which can be moved; there is no swap.
    pub processes: u64,
    /// Page cache, which reclaim could still take.
    pub cache: u64,
    /// Free memory, down at the marks.
    pub free: u64,
    /// Free memory on the lists of CPUs.
    pub on_lists: u64,
}

impl PolicyRun {
    /// Returns the result under the first seed.
    #[must_use]
    pub fn first(&self) -> &Repeat {
        self.repeats.first().expect("there is a start value")
    }

    /// Returns the range of a figure over the runs with all seeds.
    #[must_use]
    pub fn over(&self, of: impl Fn(&Repeat) -> f64) -> Range {
        Range::of(self.repeats.iter().map(of).collect()).expect("there is a start value")
    }

    /// Returns the range of a count over the runs with all seeds.
    #[must_use]
    pub fn range(&self, of: impl Fn(&Counts) -> u64) -> Range {
        self.over(|repeat| of(&repeat.counts) as f64)
    }

    /// Returns the figure that a question asks for, from least to most over the runs with all seeds.
    #[must_use]
    pub fn answer(&self, query: Query) -> Range {
        let huge = Order::PAGEBLOCK.index();
        match query {
            Query::Huge => self.range(|it| it.served[huge]),
            Query::Events => self.range(|it| it.extfrag.iter().sum()),
            Query::Mistyped => self.range(|it| it.mistyped.iter().sum()),
            Query::Moves => self.range(|it| it.moved),
            Query::Reclaim => self.range(|it| it.reclaimed_kswapd),
            Query::Direct => self.range(|it| it.direct_reclaims),
            Query::Largest => self.over(|repeat| repeat.large_at_end as f64),
        }
    }

    /// Returns the earliest time at which memory was too small under any seed, in nanoseconds since the first event;
    /// `None` if it never was. Figures from later times answer no question.
    #[must_use]
    pub fn out_of_memory(&self) -> Option<u64> {
        self.repeats.iter().filter_map(|repeat| repeat.out_of_memory).min()
    }

    /// Returns the state of memory at the earliest shortage under any seed; `None` if there was none.
    #[must_use]
    pub fn shortage(&self) -> Option<Shortage> {
        let first = self.repeats.iter().filter(|repeat| repeat.out_of_memory.is_some());
        first.min_by_key(|repeat| repeat.out_of_memory)?.shortage
    }

    /// Returns the name of the preset whose rules the run has.
    #[must_use]
    pub fn preset(&self) -> &str {
        self.policy.split(':').next().unwrap_or_default()
    }
}

/// Counts of one policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counts {
    /// Requests replayed, by order.
    pub requests: ByOrder,
    /// Requests served, by order.
    pub served: ByOrder,
    /// Requests that the fast path did not serve, by order, whether served in the end or not.
    pub slow: ByOrder,
    /// Blocks given back.
    pub frees: u64,
    /// External fragmentation events with a free block below a pageblock, by the type asked for.
    pub extfrag: ByType,
    /// External fragmentation events with a free block below order 4, by the type asked for.
    pub serious: ByType,
    /// Blocks handed out from pageblocks of another type, by the type asked for.
    pub mistyped: ByType,
    /// Pageblocks that changed their type because most of their pages fitted.
    pub claims: u64,
    /// Pages moved by the policy's own compaction.
    pub moved: u64,
    /// Runs of direct compaction.
    pub compactions: u64,
    /// Runs of direct compaction that succeeded.
    pub compactions_succeeded: u64,
    /// Entries into direct compaction that came to nothing, as every zone had failed lately.
    #[serde(default)]
    pub compactions_put_off: u64,
    /// Pages that the policy itself reclaimed for callers.
    pub reclaimed_direct: u64,
    /// Pages that its kswapd reclaimed.
    pub reclaimed_kswapd: u64,
    /// Entries into direct reclaim.
    pub direct_reclaims: u64,
    pub kswapd_wakes: u64,
    /// Times that watermarks were boosted.
    pub boosts: u64,
    /// Waits of callers.
    pub stalls: u64,
    /// Sum of these waits in nanoseconds of the recording.
    pub stalled_nanos: u64,
}

/// Assumptions that a replay had to make, each counted once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Assumptions {
    /// Frees of frames that were in use at the start.
    pub older_frees: u64,
    /// Frees of frames that were believed free, and could be explained by an earlier migration.
    pub resolved_migrations: u64,
    /// Frees that nothing explains; ignored.
    pub unknown_frees: u64,
    /// Requests for frames that were believed in use: their free was not seen.
    pub implicit_frees: u64,
    /// Frees of another order than the request's, or of a part of a block.
    pub splits: u64,
    /// Targets of recorded migrations, which have no event of their own, in pages.
    pub migration_targets: u64,
    /// Pages that compaction had set aside as targets and gave back unused: frees of frames that were believed free.
    pub targets_returned: u64,
    /// Requests that the recorded kernel served and this policy could not; their later frees are ignored.
    pub not_served: u64,
    /// Frames whose state was set right at snapshots during the recording.
    pub resynchronised: u64,
    /// Frees of pages that the policy itself had reclaimed before.
    pub reclaimed_before: u64,
    /// Single pages that were not asked for, as the policy had served the huge page in whose place they came.
    #[serde(default)]
    pub stood_in: u64,
    /// Huge pages that the recorded kernel served and this policy could not; single pages were asked for in their
    /// place.
    #[serde(default)]
    pub in_pieces: u64,
    /// Events of frames outside the memory of the snapshot; ignored.
    pub foreign: u64,
    /// Pages in use at the start that another size of memory has no room for.
    pub dropped_at_start: u64,
    /// Pages of processes and of shared memory that had to go at the start, as if to a swap device.
    #[serde(default)]
    pub swapped_at_start: u64,
    /// Pages in use at the start that lie elsewhere for the size of memory.
    pub displaced_at_start: u64,
}

/// The state of memory at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sample {
    /// Nanoseconds since the first event.
    pub at: u64,
    /// Free pages, in all zones.
    pub free: u64,
    /// Pages of each zone that nobody uses: free, or on the lists of CPUs.
    #[serde(default)]
    pub idle: Vec<u64>,
    /// The largest order that has a free block in any zone; `None` if nothing is free.
    pub largest: Option<u32>,
    /// Pages in free blocks of a pageblock or more.
    pub free_in_pageblocks: u64,
    /// Events of external fragmentation so far.
    pub extfrag: u64,
    /// Pageblocks by state.
    pub pageblocks: Contiguity,
}

/// Number of pageblocks in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Contiguity {
    /// Pageblocks that are free as a whole.
    pub free: u64,
    /// Pageblocks whose pages in use could all be moved away.
    pub movable: u64,
    /// Pageblocks with a page that cannot be moved.
    pub pinned: u64,
}

/// The least, the middle and the most of the values of several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Range {
    pub least: f64,
    /// The middle value, or the lower of two.
    pub median: f64,
    pub most: f64,
}

impl Range {
    /// Returns the range of some values; `None` if there are none.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Option<Range> {
        values.sort_by(f64::total_cmp);
        let (&least, &most) = (values.first()?, values.last()?);
        Some(Range { least, median: values[(values.len() - 1) / 2], most })
    }

    /// Returns true if some value can belong to both ranges, so that they do not differ.
    #[must_use]
    pub fn overlaps(&self, other: &Range) -> bool {
        self.least <= other.most && other.least <= self.most
    }

    /// Returns the direction in which it differs from `other`; none where they overlap.
    pub(super) fn change_from(&self, other: &Range) -> Change {
        Change::of(self.most < other.least, self.least > other.most)
    }
}

/// A range as a cell, sorted by the middle.
impl From<Range> for Cell {
    fn from(range: Range) -> Cell {
        Cell::About(range.median, range.to_string())
    }
}

/// Written as `12`, or `12 (7..13)` where runs differ, or `43,861 (41k..49k)` where they are large.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { least, median, most } = *self;
        if least == most {
            return count(median).fmt(f);
        }
        let end = |value: f64| match value {
            10_000.0.. => format!("{}k", count((value / 1000.0).round())),
            _ => count(value).to_string(),
        };
        match [least, most].map(end) {
            // To the thousand both ends are the same.
            [least, most] if least == most => count(median).fmt(f),
            [least, most] => write!(f, "{} ({least}..{most})", count(median)),
        }
    }
}

/// Declares the questions: each in a word or two, and the figure that it asks for.
macro_rules! queries {
    ($($(#[$doc:meta])* $query:ident $short:literal $what:literal;)*) => {
        /// A question that people ask of a replay.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize,
        )]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(rename_all = "kebab-case")]
        pub enum Query { $($(#[$doc])* $query),* }

        impl Query {
            /// All questions, in the order of tables.
            pub const ALL: [Query; [$($short),*].len()] = [$(Query::$query),*];

            /// Returns the question in a word or two.
            #[must_use]
            pub const fn short(self) -> &'static str {
                match self { $(Query::$query => $short),* }
            }

            /// Returns the name of the figure that the question asks for.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Query::$query => $what),* }
            }
        }
    };
}

queries! {
    /// The number of huge pages that would have been served.
    Huge "order 9" "requests of order 9 served";
    /// The number of times that types would have mixed.
    Events "events" "external fragmentation events";
    /// The number of blocks that would have been handed out from pageblocks of another type.
    Mistyped "mistyped" "blocks from pageblocks of another type";
    /// The number of pages that would have been moved.
    Moves "moved" "pages moved";
    /// The number of pages that would have been reclaimed in the background.
    Reclaim "reclaimed" "pages reclaimed by kswapd";
    /// The number of times that callers would have had to reclaim for themselves.
    Direct "by callers" "direct reclaims by callers";
    /// The number of free blocks of a pageblock or more at the end.
    Largest "whole blocks" "free blocks of order 9 and above at the end";
}

/// The replay under the recorded kernel's own rules, compared with that kernel. Measured before any resynchronisation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fidelity {
    /// The preset taken for the recorded kernel.
    pub preset: String,
    pub figures: Vec<FidelityFigure>,
    /// The verdict on each question that the figures allow.
    pub answers: Vec<Answer>,
}

impl Fidelity {
    /// Returns true if a question can be answered.
    #[must_use]
    pub fn answers(&self, query: Query) -> bool {
        let holds = |answer: &Answer| answer.query == query && answer.verdict == Verdict::Holds;
        self.answers.iter().any(holds)
    }

    /// Returns true if a figure is as the kernel had it.
    #[must_use]
    pub fn holds(&self, figure: &Key) -> bool {
        self.figures.iter().any(|each| each.name == *figure && each.verdict == Verdict::Holds)
    }

    /// Returns true if the number of served requests of an order can be trusted.
    #[must_use]
    pub fn says_of(&self, order: Order) -> bool {
        let of = ORDERS.iter().find(|(_, orders)| orders.contains(&order.index()));
        of.is_some_and(|(name, _)| self.holds(&served(name)))
    }

    /// Returns the figures that an answer shows: the one that is asked for, and of the others those that do not hold.
    pub(super) fn behind<'a>(
        &'a self,
        answer: &'a Answer,
    ) -> impl Iterator<Item = &'a FidelityFigure> {
        let mut of = self.figures.iter().filter(|figure| figure.carries.contains(&answer.query));
        let main = of.next();
        main.into_iter().chain(of.filter(|figure| answer.rests_on.contains(&figure.name)))
    }
}

/// Another recording of the same workload, under another kernel or other settings: what its kernel did, and what the
/// replay of this one foretells of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Foretold {
    /// The other recording, as it was named.
    pub trace: String,
    /// The release of its kernel.
    pub release: Option<String>,
    /// The run under its kernel's rules and settings.
    pub run: String,
    pub figures: Vec<ForetoldFigure>,
}

impl Foretold {
    /// Returns how many changes were foretold as the kernels have them, of how many that were foretold at all.
    #[must_use]
    pub fn score(&self) -> (usize, usize) {
        let said = self.figures.iter().filter_map(|it| Some((it.foretold?, it.kernels)));
        let right = said.clone().filter(|(foretold, kernels)| foretold == kernels).count();
        (right, said.count())
    }
}

/// The figure of a question under both kernels, and as it was foretold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForetoldFigure {
    pub query: Query,
    /// The figures of the replayed recording's kernel and of the other's.
    pub recorded: [f64; 2],
    /// The figure of the runs under the other kernel's rules.
    pub replayed: Range,
    /// The change from the one kernel to the other; the same within the tolerance of the figure.
    pub kernels: Change,
    /// The change between the runs under both rules; `None` where the replay cannot say.
    pub foretold: Option<Change>,
}

/// The direction in which a figure changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// No more than chance may make of it.
    Same,
    Less,
    More,
}

impl Change {
    pub(super) const fn of(is_less: bool, is_more: bool) -> Change {
        match (is_less, is_more) {
            (true, _) => Change::Less,
            (_, true) => Change::More,
            _ => Change::Same,
        }
    }

    /// Returns the word for it in tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Change::Same => "=",
            Change::Less => "less",
            Change::More => "more",
        }
    }
}

/// The verdict on a question, for a replay of this recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Answer {
    pub query: Query,
    /// The worst verdict of the figures that the question rests on.
    pub verdict: Verdict,
    /// Names of those figures that do not hold.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub rests_on: Vec<Key>,
}

/// One figure of a replay beside the kernel's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FidelityFigure {
    /// Its name, such as `free pages, DMA32`.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub name: Key,
    /// The kernel's own figure.
    pub recorded: f64,
    /// The figure of the runs under the kernel's own rules.
    pub replayed: Range,
    /// The allowed distance.
    pub tolerance: Tolerance,
    /// The verdict on that distance.
    pub verdict: Verdict,
    /// The questions that rest on it.
    #[serde(default)]
    pub carries: Vec<Query>,
}

/// The allowed distance of a figure from the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Tolerance {
    /// A share of the recorded figure in percent.
    Percent(f64),
    /// The least and the most of repeats of the kernel itself.
    Repeats(f64, f64),
    /// A share of the recorded figure in percent, or an absolute number, whichever allows more.
    PercentOr(f64, f64),
    /// A factor either way, or an absolute number, whichever allows more.
    FactorOr(f64, f64),
}

impl Tolerance {
    /// Returns the least and the most that a figure may be if the kernel has it as `recorded`.
    #[must_use]
    pub fn bound(self, recorded: f64) -> [f64; 2] {
        let off = match self {
            Tolerance::Percent(percent) => [recorded * percent / 100.0; 2],
            Tolerance::Repeats(least, most) => return [least, most],
            Tolerance::PercentOr(percent, or) => [(recorded * percent / 100.0).max(or); 2],
            Tolerance::FactorOr(factor, or) => {
                [recorded - recorded / factor, recorded * factor - recorded].map(|off| off.max(or))
            }
        };
        [recorded - off[0], recorded + off[1]]
    }
}

/// Trust in a figure of a replay; later variants are worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Verdict {
    /// The middle of the runs is within the tolerance, and they lie no farther apart than that is wide.
    Holds,
    /// There are too few events to tell.
    TooFew,
    /// Some runs are within the tolerance, but the middle is not, or they lie too far apart.
    Wide,
    /// No run is within the tolerance.
    Off,
}
