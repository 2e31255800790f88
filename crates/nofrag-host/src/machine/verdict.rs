//! The verdict on a host: whether free memory can be had in large blocks.
//!
//! A block is as large as a pageblock, the unit of which huge pages are made and by which the kernel keeps types apart.
//! Few such blocks do not make a host fragmented: a host that is full has few, too. What counts is how many there are
//! beside how many there would be if the same free memory were whole, now, after compaction, and after page cache is
//! dropped. Each large zone is judged by itself, and the worst decides: what is whole in another zone or node says
//! nothing about the zone that most requests come to.
//!
//! Beside what could be had stands what waits ([`Wait`]): requests that were held up. One look takes them since boot;
//! [`Judge`] looks again and again, and takes those of the last minute. A host where something waits is never called
//! good ([`Verdict::severity`]).
//!
//! The thresholds are shares of what is free ([`ENOUGH`]) and of memory ([`LEAST_SHARE`]). They are held against the
//! states of guests under `data/states`, which kernels labelled by what they then gave. The latter was chosen with
//! these in sight, the former before they were there.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::Sources;
use super::frames::FrameReport;
use super::huge::{self, Basis, Blocks, ZoneHuge};
use super::pageblocks::PinnedBy;
use super::uses::{self, MemoryUse};
use super::zones::pages;
use crate::finding::{Severity, bytes_text, grouped};
use crate::snapshot::{Counters, Snapshot, ZoneName};

/// Least share of the blocks for which free memory has room, in thousandths, at which these can be had.
pub const ENOUGH: u64 = 500;

/// The same for a host that was fragmented when it was judged last.
pub const ENOUGH_AGAIN: u64 = 600;

/// Memory is in use rather than fragmented if what is free has room for less than one block in this number.
pub const LEAST_SHARE: u64 = 16;

/// The same for a host that was in use when it was judged last.
const LEAST_SHARE_AGAIN: u64 = 12;

/// Requests that were held up in an hour from which on a host is said to make them wait: fewer are hardly felt.
const FELT_PER_HOUR: f64 = 60.0;

/// The same where the time since boot is not known.
const FELT: u64 = 1000;

/// The past in which [`Judge`] looks for requests that waited.
pub const MEMORY: Duration = Duration::from_secs(60);

/// The state of memory, the better first.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum State {
    /// Most of what is free can be had in large blocks.
    Whole,
    /// Too little is free to say; what page cache holds could be had in large blocks, or little is cached.
    InUse,
    /// Most of what is free cannot be had in large blocks before it is compacted.
    Scattered,
    /// Most of what is free cannot be had in large blocks even after compaction, or what is cached after it is dropped.
    Fragmented,
}

impl State {
    /// Returns the name of the finding that the state is; `None` where nothing is wrong.
    #[must_use]
    pub const fn finding(self) -> Option<&'static str> {
        match self {
            State::Whole | State::InUse => None,
            State::Scattered | State::Fragmented => Some(self.into_str()),
        }
    }
}

/// The state of a host's memory, and the figures that decided it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdict {
    pub state: State,
    /// Bytes of a block.
    pub bytes: u64,
    /// The blocks of all zones.
    #[serde(flatten)]
    pub blocks: Blocks,
    /// The zone whose state is the worst, which is that of the host.
    pub zone: ZoneName,
    /// Name of the zone for people: with the node where there are several.
    pub label: String,
    /// The blocks of that zone.
    pub of_zone: Blocks,
    /// Source of the numbers after compaction and after reclaim.
    pub basis: Basis,
    /// The uses that keep pageblocks from becoming whole, most pageblocks first; empty unless each frame was read.
    pub held_by: Vec<PinnedBy>,
    /// The uses of memory, the largest first; empty where it is judged again and again.
    pub uses: Vec<MemoryUse>,
    /// The kinds of requests that were held up.
    pub waits: Vec<Wait>,
}

impl Blocks {
    /// Returns the state that these numbers show; `before` is the state at the last look, which is left only when the
    /// numbers have clearly changed. Where large blocks are waited for, little that is free is enough to judge by.
    #[must_use]
    pub fn state(&self, before: Option<State>, waits: &[Wait]) -> State {
        let enough = match before {
            Some(State::Scattered | State::Fragmented) => ENOUGH_AGAIN,
            _ => ENOUGH,
        };
        let are_had =
            |blocks: u64, of: u64| u128::from(blocks) * 1000 >= u128::from(of) * u128::from(enough);
        let share = if before == Some(State::InUse) { LEAST_SHARE_AGAIN } else { LEAST_SHARE };
        let are_wanted = waits.iter().any(|wait| FOR_BLOCKS.contains(&wait.counter));
        let least = if are_wanted { 1 } else { (self.total / share).max(1) };
        if self.room >= least {
            let compacted = self.compacted().unwrap_or(self.after_compaction);
            match (are_had(self.now, self.room), are_had(compacted, self.room)) {
                (true, _) => State::Whole,
                (false, true) => State::Scattered,
                (false, false) => State::Fragmented,
            }
        } else if self.room_with_cache < least
            || are_had(self.reclaimed().unwrap_or(self.after_reclaim), self.room_with_cache)
        {
            State::InUse
        } else {
            State::Fragmented
        }
    }
}

/// Requests of one kind that were held up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Wait {
    /// Name of the counter in `/proc/vmstat`; a sum of several has a star.
    pub counter: &'static str,
    /// The requests and what held them up, in words.
    pub what: &'static str,
    pub count: u64,
    /// Seconds in which they were counted; `null` where the time since boot is not known.
    pub seconds: Option<f64>,
    /// True if they were counted from boot on, and not from look to look.
    pub since_boot: bool,
}

/// Those of requests for large blocks.
const FOR_BLOCKS: [&str; 3] = ["compact_stall", "thp_fault_fallback", "htlb_buddy_alloc_fail"];

/// The name of the finding that requests were held up.
pub(crate) const REQUESTS_WAIT: &str = "requests-wait";

/// Counters of requests that were held up.
const WAITS: [(&str, &str); 4] = [
    ("compact_stall", "requests waited for compaction"),
    ("allocstall_*", "requests waited for reclaim"),
    ("thp_fault_fallback", "page faults got small pages instead of a huge one"),
    ("htlb_buddy_alloc_fail", "huge pages were asked for in vain by a hugetlbfs pool"),
];

impl Verdict {
    /// Returns the state in words that begin a sentence. Types of pageblocks cannot tell whether compaction mends it:
    /// pages of the kernel in Movable pageblocks are not seen.
    #[must_use]
    pub const fn words(&self) -> &'static str {
        match (self.state, self.basis) {
            (State::Whole, _) => "Not fragmented",
            (State::InUse, _) => "Little memory is free",
            (State::Scattered, Basis::Frames) => "Fragmented until compaction",
            (State::Scattered, _) => "Fragmented, compaction may mend it",
            (State::Fragmented, _) => "Fragmented",
        }
    }

    /// Returns how urgent the verdict is; `None` if there is nothing to do.
    #[must_use]
    pub fn severity(&self) -> Option<Severity> {
        match self.state {
            State::Fragmented => Some(Severity::Warning),
            // A request that comes now waits.
            State::Scattered if self.blocks.now == 0 => Some(Severity::Warning),
            State::Scattered if !self.waits.is_empty() => Some(Severity::Warning),
            State::Scattered => Some(Severity::Note),
            State::Whole | State::InUse => (!self.waits.is_empty()).then_some(Severity::Note),
        }
    }

    /// Returns the names of the findings that say the same, the most urgent first.
    #[must_use]
    pub fn findings(&self) -> Vec<&'static str> {
        let waits = (!self.waits.is_empty()).then_some(REQUESTS_WAIT);
        self.state.finding().into_iter().chain(waits).collect()
    }

    /// Returns what follows where little memory is free, and what there is to do, as sentences without a full stop;
    /// `None` elsewhere.
    #[must_use]
    pub fn where_it_is(&self) -> Option<(String, Option<String>)> {
        const MOST: usize = 3;
        if self.state != State::InUse {
            return None;
        }
        let held = match self.uses.as_slice() {
            [] => "most memory is held".to_owned(),
            [first, others @ ..] => {
                // What is less than a twentieth of the first matters to nobody.
                let others = others.iter().take(MOST - 1).filter(|of| of.bytes >= first.bytes / 20);
                let others =
                    others.map(|of| format!(", {} {}", bytes_text(of.bytes), of.name.into_str()));
                let first = format!("{} are {}", bytes_text(first.bytes), first.name.into_str());
                first + &others.collect::<String>()
            }
        };
        let follows = format!("{held}: what is freed gives more huge pages, compaction hardly any");
        let Blocks { after_compaction, after_reclaim, .. } = self.blocks;
        let help = if after_reclaim > 2 * after_compaction.max(1) {
            let blocks = grouped(after_reclaim);
            Some(format!(
                "`sync; echo 1 > /proc/sys/vm/drop_caches` gives up to {blocks} at once; what was cached is read again \
                 when it is needed"
            ))
        } else {
            self.uses.first().and_then(|of| of.name.named_by()).map(str::to_owned)
        };
        Some((follows, help))
    }

    /// Returns the figures that decided, in a sentence without a full stop.
    #[must_use]
    pub fn evidence(&self) -> String {
        let Blocks { total, now, after_compaction, after_reclaim, .. } = self.blocks;
        let compacted = match self.blocks.compacted() {
            Some(blocks) => format!("about {}", grouped(blocks)),
            None => format!("at most {}", grouped(after_compaction)),
        };
        let mut text = format!(
            "{} of {} huge pages of {} can be had now, {compacted} after compaction, at most {} after page cache is \
             dropped; in {} {} of the {} for which memory is free",
            grouped(now),
            grouped(total),
            bytes_text(self.bytes),
            grouped(after_reclaim),
            self.label,
            grouped(self.of_zone.now),
            grouped(self.of_zone.room)
        );
        const MOST: usize = 2;
        let held = self.held_by.iter().take(MOST);
        let held: Vec<String> = held
            .map(|by| format!("{} in {} pageblocks", by.usage.into_str(), grouped(by.pageblocks)))
            .collect();
        if !held.is_empty() && self.state != State::Whole {
            // Writing to a text cannot fail.
            let _ = write!(text, "; what stays: {}", held.join(", "));
        }
        for wait in &self.waits {
            let _ = write!(text, "; {wait}");
        }
        text
    }
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", grouped(self.count), self.what)?;
        match (self.since_boot, self.seconds) {
            (true, None) => write!(f, " since boot"),
            (true, Some(seconds)) => {
                let per_hour = self.count as f64 * 3600.0 / seconds;
                write!(f, " since boot, {per_hour:.0} an hour")
            }
            (false, seconds) => write!(f, " in the last {:.0} s", seconds.unwrap_or(0.0)),
        }
    }
}

/// Judges a host by one look: its zones, and what was counted since boot. `None` without zones that the page allocator
/// serves.
pub(crate) fn judge(
    snapshot: &Snapshot<'_>,
    zones: &[(ZoneHuge, Basis)],
    sources: &Sources,
) -> Option<Verdict> {
    let waits = waits_since_boot(&snapshot.vmstat, sources.uptime_seconds);
    let verdict = worst_zone(snapshot, zones, waits, None)?;
    Some(Verdict {
        held_by: held_by(sources.frames.as_ref(), &verdict.zone),
        uses: uses::of_meminfo(&sources.files.text("meminfo").unwrap_or_default()),
        ..verdict
    })
}

/// Returns the verdict by the zone whose state is the worst.
fn worst_zone(
    snapshot: &Snapshot<'_>,
    zones: &[(ZoneHuge, Basis)],
    waits: Vec<Wait>,
    before: Option<&Verdict>,
) -> Option<Verdict> {
    /// A zone counts if it has one block in this number.
    const SMALL: u64 = 8;
    let sum = Blocks::of(zones);
    let judged = zones.iter().filter(|(zone, _)| zone.blocks.total >= sum.total / SMALL);
    let judged = judged.map(|(zone, _)| {
        let same = before.filter(|before| before.zone == zone.zone);
        let blocks = zone.blocks;
        (blocks.state(same.map(|before| before.state), &waits), blocks, &zone.zone)
    });
    let (state, of_zone, zone) =
        judged.max_by_key(|(state, blocks, zone)| (*state, blocks.room, Reverse(zone.node)))?;
    let several = zones.iter().any(|(zone, _)| zone.zone.node != 0);
    Some(Verdict {
        state,
        bytes: pages(1, snapshot.pageblock_order()).saturating_mul(snapshot.page_bytes()),
        blocks: sum,
        label: if several { zone.to_string() } else { zone.name.clone() },
        zone: zone.clone(),
        of_zone,
        basis: zones.iter().map(|(_, basis)| *basis).max()?,
        held_by: Vec::new(),
        uses: Vec::new(),
        waits,
    })
}

/// Returns what pins pageblocks of a zone.
pub(super) fn held_by(frames: Option<&FrameReport>, zone: &ZoneName) -> Vec<PinnedBy> {
    let frames = frames.and_then(|frames| frames.of(zone));
    frames.map_or_else(Vec::new, |frames| frames.pageblocks.pinned_by.clone())
}

fn waits_since_boot(vmstat: &Counters, seconds: Option<f64>) -> Vec<Wait> {
    let seconds = seconds.filter(|&seconds| seconds > 0.0);
    let is_felt = |count: u64| match seconds {
        Some(seconds) => count as f64 * 3600.0 >= FELT_PER_HOUR * seconds.max(3600.0),
        None => count >= FELT,
    };
    let waits = WAITS.iter().filter_map(|&(counter, what)| {
        let count = vmstat.total(counter)?;
        is_felt(count).then_some(Wait { counter, what, count, seconds, since_boot: true })
    });
    waits.collect()
}

/// Judges a host again and again. A state is left only when the figures have clearly changed, so that a host near a
/// threshold does not go to and fro, and what waited counts for a minute ([`MEMORY`]).
#[derive(Clone, Debug, Default)]
pub struct Judge {
    last: Option<Verdict>,
    /// The counters at each look of the last minute, and at the look before.
    counts: VecDeque<(Duration, [Option<u64>; WAITS.len()])>,
}

impl Judge {
    /// Judges the host as it is seen at time `at`; `None` without zones that the page allocator serves. A look that is
    /// not later than the last one is taken for the same.
    pub fn look(&mut self, at: Duration, snapshot: &Snapshot<'_>) -> Option<&Verdict> {
        if self.counts.back().is_some_and(|(last, _)| *last >= at) {
            return self.last.as_ref();
        }
        let counts = WAITS.map(|(counter, _)| snapshot.vmstat.total(counter));
        self.counts.push_back((at, counts));
        while self.counts.get(1).is_some_and(|(then, _)| at.saturating_sub(*then) >= MEMORY) {
            self.counts.pop_front();
        }
        let zones = huge::outlook(None, snapshot);
        let waits = self.waits();
        self.last = worst_zone(snapshot, &zones, waits, self.last.as_ref());
        self.last.as_ref()
    }

    /// Returns what waited from the first look that is kept to the last.
    fn waits(&self) -> Vec<Wait> {
        let (Some((from, before)), Some((to, now))) = (self.counts.front(), self.counts.back())
        else {
            return Vec::new();
        };
        let seconds = Some(to.saturating_sub(*from).as_secs_f64());
        let grown = WAITS.iter().zip(before.iter().zip(now)).filter_map(|(&it, (before, now))| {
            let count = (*now)?.checked_sub((*before)?).filter(|&count| count > 0)?;
            Some(Wait { counter: it.0, what: it.1, count, seconds, since_boot: false })
        });
        grown.collect()
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::*;
    use crate::snapshot::{buddyinfo, vmstat, zoneinfo};

    /// Returns the numbers of a host of 12,288 pageblocks, none of which page cache holds.
    const fn blocks(room: u64, now: u64, after_compaction: u64) -> Blocks {
        Blocks {
            total: 12_288,
            room,
            now,
            after_compaction,
            room_with_cache: room,
            after_reclaim: after_compaction,
            forecast_after_compaction: None,
            forecast_after_reclaim: None,
        }
    }

    #[test]
    fn what_counts_is_the_share_of_what_is_free() {
        use State::{Fragmented, InUse, Scattered, Whole};
        let cached = |room_with_cache, after_reclaim| Blocks {
            room_with_cache,
            after_reclaim,
            ..blocks(100, 0, 50)
        };
        let cases = [
            (blocks(12_000, 11_900, 11_950), Whole),
            (blocks(6468, 3300, 6000), Whole),
            (blocks(6468, 3200, 6000), Scattered),
            // A green "Nothing needs attention" once stood over these figures.
            (blocks(6468, 1229, 1853), Fragmented),
            (blocks(760, 0, 0), InUse),
            (cached(9000, 8000), InUse),
            (cached(9000, 2000), Fragmented),
            (cached(300, 0), InUse),
            (Blocks::default(), InUse),
        ];
        for (blocks, state) in cases {
            assert_eq!(blocks.state(None, &[]), state, "{blocks:?}");
        }
    }

    #[test]
    fn who_waits_for_blocks_finds_memory_in_pieces_however_little_is_free() {
        let wait = |counter| Wait { counter, what: "", count: 1, seconds: None, since_boot: true };
        let state = |counter| blocks(480, 97, 480).state(None, &[wait(counter)]);
        assert_eq!(state("compact_stall"), State::Scattered);
        assert_eq!(state("allocstall_*"), State::InUse);
    }

    #[test]
    fn a_state_is_left_only_when_the_figures_have_clearly_changed() {
        use State::{Fragmented, Scattered, Whole};
        let mut state = Whole;
        let mut course = |now| {
            state = blocks(1000, now, 1000).state(Some(state), &[]);
            state
        };
        let courses = [510, 490, 510, 590, 610, 510, 490].map(&mut course);
        assert_eq!(courses, [Whole, Scattered, Scattered, Scattered, Whole, Whole, Scattered]);
        let compacted = |after, before| blocks(1000, 0, after).state(Some(before), &[]);
        assert_eq!([490, 590].map(|after| compacted(after, Fragmented)), [Fragmented; 2]);
        assert_eq!(compacted(590, Whole), Scattered);
        let free = |room, before| blocks(room, room, room).state(before, &[]);
        assert_eq!(free(800, None), Whole);
        assert_eq!(free(800, Some(State::InUse)), State::InUse);
    }

    fn verdict(state: State, waits: Vec<Wait>) -> Verdict {
        let blocks = blocks(6468, 1229, 1853);
        let (zone, label) = (ZoneName { node: 0, name: "Normal".to_owned() }, "Normal".to_owned());
        let (bytes, basis) = (2 << 20, Basis::PageblockTypes);
        Verdict {
            state,
            bytes,
            blocks,
            zone,
            label,
            of_zone: blocks,
            basis,
            held_by: Vec::new(),
            uses: Vec::new(),
            waits,
        }
    }

    #[test]
    fn nothing_is_good_while_requests_wait() {
        let counters = vmstat("compact_stall 13706\nallocstall_normal 59\n").0;
        let waits = waits_since_boot(&counters, Some(36_000.0));
        assert_eq!(waits.len(), 1, "fewer than sixty an hour are not felt");
        let said = "13,706 requests waited for compaction since boot, 1371 an hour";
        assert_eq!(waits[0].to_string(), said);
        for &state in State::VARIANTS {
            assert!(verdict(state, waits.clone()).severity().is_some(), "{state:?}");
        }
        assert!(waits_since_boot(&counters, None).len() == 1, "many of an unknown time");
        assert_eq!(verdict(State::Whole, Vec::new()).severity(), None);
        assert_eq!(
            verdict(State::Fragmented, waits).evidence(),
            format!(
                "1,229 of 12,288 huge pages of 2 MiB can be had now, at most 1,853 after compaction, at most 1,853 \
                 after page cache is dropped; in Normal 1,229 of the 6,468 for which memory is free; {said}"
            )
        );
    }

    /// Returns what is seen of nodes of 1,000 pageblocks; `free` are the free blocks of order 0 and of order 9 of each.
    fn seen(free: &[[u64; 2]], stalls: u64) -> Snapshot<'static> {
        let buddy = free.iter().zip(0..).map(|([single, large], node)| {
            format!("Node {node}, zone Normal {single} 0 0 0 0 0 0 0 0 {large} 0\n")
        });
        let zones = free.iter().zip(0..).map(|([single, large], node)| {
            format!(
                "Node {node}, zone Normal\n  pages free {}\n  min 0\n  low 0\n  high 0\n  spanned 512000\n  present \
                 512000\n  managed 512000\n  protection: (0)\n  start_pfn: {}\n",
                single + 512 * large,
                node * 512_000
            )
        });
        Snapshot {
            buddy: buddyinfo(&buddy.collect::<String>()).0,
            zones: zoneinfo(&zones.collect::<String>()).0.0,
            vmstat: vmstat(&format!("compact_stall {stalls}\n")).0,
            ..Snapshot::default()
        }
    }

    #[test]
    fn the_worst_zone_decides() {
        let snapshot = seen(&[[0, 400], [512 * 300, 10]], 0);
        let verdict =
            judge(&snapshot, &huge::outlook(None, &snapshot), &Sources::default()).unwrap();
        assert_eq!((verdict.state, verdict.zone.node), (State::Scattered, 1));
        assert_eq!((verdict.blocks.room, verdict.blocks.now), (710, 410));
        assert!(verdict.evidence().starts_with("410 of 2,000 huge pages of 2 MiB can be had now"));
        assert!(
            verdict.evidence().ends_with("in node 1 Normal 10 of the 310 for which memory is free")
        );
        let one = seen(&[[512, 400]], 0);
        let verdict = judge(&one, &huge::outlook(None, &one), &Sources::default()).unwrap();
        assert_eq!((verdict.state, verdict.label.as_str()), (State::Whole, "Normal"));
        assert_eq!(judge(&Snapshot::default(), &[], &Sources::default()), None);
    }

    #[test]
    fn what_waited_counts_for_a_minute() {
        let mut judge = Judge::default();
        let mut look = |second: u64, stalls| {
            let verdict = judge.look(Duration::from_secs(second), &seen(&[[0, 400]], stalls));
            verdict.unwrap().waits.first().map(|wait| wait.count)
        };
        assert_eq!(look(0, 5), None, "before the first look");
        assert_eq!(look(10, 5), None);
        assert_eq!(look(20, 7), Some(2));
        assert_eq!(look(20, 9), Some(2), "the same look");
        assert_eq!(look(60, 7), Some(2));
        assert_eq!(look(75, 7), Some(2));
        assert_eq!(look(90, 7), None);
        assert_eq!(look(100, 1), None, "another host, or a wrap");
        assert_eq!(look(500, 4), Some(3), "looks that are far apart");
    }
}
