//! Tests on small stretches made by hand, and on the given ones.

use std::fs::File;
use std::path::{Path, PathBuf};

use nofrag::page::FragmentationPolicy;
use serde_json::{Value, json};

use super::super::Score;
use super::super::events;
use super::super::state::State;
use super::{Lru, LruTally};

const READER: &str = "1.0 reader-7";
const KSWAPD: &str = "1.0 kswapd0-36";
const CALLER: &str = "1.0 thp-9";

/// A state with file pages on two lists, the head first, and a zone from frame 1 and another from 1000 on.
struct Picture {
    inactive: Vec<u64>,
    active: Vec<u64>,
    /// Free pages of the zones.
    free: [i64; 2],
    /// Pages of the inactive list that the CPU has not yet added to the zone's counter.
    share: i64,
    newer: bool,
    /// A frame that carries private data.
    private: Option<u64>,
    /// A folio of four pages.
    folio: Option<u64>,
}

impl Default for Picture {
    fn default() -> Picture {
        Picture {
            inactive: (1..=200).rev().collect(),
            active: (201..=300).rev().collect(),
            free: [500, 100],
            share: 0,
            newer: false,
            private: None,
            folio: None,
        }
    }
}

impl Picture {
    fn zone(&self, index: usize) -> Value {
        let range = if index == 0 { 1..1000 } else { 1000..u64::MAX };
        let pages = |list: &[u64]| {
            let inside = list.iter().filter(|pfn| range.contains(pfn));
            inside.map(|pfn| if Some(*pfn) == self.folio { 4 } else { 1 }).sum::<i64>()
        };
        let share = if index == 0 { self.share } else { 0 };
        let mut pcp = json!({"high": 100, "batch": 10, "lists": {}});
        if self.newer {
            pcp["high_min"] = json!(100);
        }
        json!({
            "wmark_min": 300, "wmark_low": 400, "wmark_high": 499 + index, "wmark_promo": 600, "boost": 0,
            "reserved_highatomic": 0, "lowmem_reserve": [0, 1, 1, 1], "start_pfn": range.start, "spanned": 999,
            "cached_free_pfn": 0, "cached_migrate_pfn": [0, 0], "compact_considered": 0, "compact_defer_shift": 0,
            "compact_order_failed": 0, "pcp": pcp, "free": {}, "blocks": {"first_pfn": 0, "type": "M", "skip": "0"},
            "stat": [self.free[index], 0, 0, pages(&self.inactive) - share, pages(&self.active)],
            "stat_cpu": [0, 0, 0, share, 0], "stat_threshold": 6,
        })
    }

    fn state(&self) -> State {
        let mut frames = Vec::new();
        frames.extend(self.private.map(|pfn| json!([pfn, 1, 0, 2, -1, 36])));
        frames.extend(self.folio.map(|pfn| json!([pfn, 1, 0, 5, -1, 0b1000 | 2 << 8])));
        let state = json!({
            "zones": {"DMA": self.zone(0), "DMA32": self.zone(1)},
            "lru": {
                "inactive_anon": [], "active_anon": [], "inactive_file": self.inactive, "active_file": self.active,
            },
            "frames": frames,
        });
        State::read(&state.to_string()).unwrap()
    }
}

fn follow(before: &Picture, lines: &[String], after: &Picture) -> LruTally {
    let mut lru = Lru::new(&before.state(), &FragmentationPolicy::LINUX_6_1).unwrap();
    for line in events::read(&lines.join("\n")).unwrap() {
        lru.follow(&line);
    }
    lru.finish(&after.state()).unwrap()
}

fn isolate(task: &str, list: &str, asked: u64, [scanned, skipped, taken]: [u64; 3]) -> String {
    let class = if task == CALLER { "3 order=9" } else { "1 order=0" };
    format!(
        "{task} mm_vmscan_lru_isolate: isolate_mode=0 classzone={class} nr_requested={asked} nr_scanned={scanned} \
         nr_skipped={skipped} nr_taken={taken} lru={list}"
    )
}

fn free(task: &str, frames: impl IntoIterator<Item = u64>) -> Vec<String> {
    let line = |pfn| format!("{task} mm_page_free: pfn={pfn:#x} order=0");
    frames.into_iter().map(line).collect()
}

fn shrunk(task: &str, pages: u64, priority: u8) -> String {
    format!(
        "{task} mm_vmscan_lru_shrink_inactive: nid=0 nr_scanned={pages} nr_reclaimed={pages} nr_activate_anon=0 \
         nr_activate_file=0 priority={priority}"
    )
}

fn aged(task: &str, pages: u64, priority: u8) -> String {
    format!(
        "{task} mm_vmscan_lru_shrink_active: nid=0 nr_taken={pages} nr_active=0 nr_deactivated={pages} \
         priority={priority}"
    )
}

fn slabs(task: &str) -> [String; 2] {
    ["start", "end"].map(|end| format!("{task} mm_shrink_slab_{end}: scan+0x0/0x1: nid: 0"))
}

fn added(task: &str, pfn: u64, list: u8) -> String {
    format!("{task} mm_lru_insertion: pfn={pfn:#x} lru={list} flags= f")
}

fn wakes() -> String {
    format!("{KSWAPD} mm_vmscan_kswapd_wake: nid=0 order=0")
}

fn sleeps() -> String {
    format!("{KSWAPD} mm_vmscan_kswapd_sleep: nid=0")
}

/// Returns the events of a pass of priority 7 over 256 inactive pages, which frees two in `order`.
fn one_pass(order: [u64; 2]) -> Vec<String> {
    let mut lines = vec![wakes(), isolate(KSWAPD, "inactive_file", 2, [2, 0, 2])];
    lines.extend(free(KSWAPD, order));
    lines.push(shrunk(KSWAPD, 2, 7));
    lines
}

fn long() -> Picture {
    Picture { inactive: (1..=256).rev().collect(), active: Vec::new(), ..Picture::default() }
}

fn after_one_pass() -> Picture {
    Picture { inactive: (3..=256).rev().collect(), ..long() }
}

fn full(same: u64) -> Score {
    Score { same, of: same }
}

#[test]
fn frames_are_freed_last_first_up_to_6_6_and_first_first_since() {
    let check = |newer, order, same| {
        let picture = |picture: Picture| Picture { newer, ..picture };
        let tally = follow(&picture(long()), &one_pass(order), &picture(after_one_pass()));
        assert_eq!(tally.freed, Score { same, of: 2 }, "{newer} {order:?} {:?}", tally.differences);
        assert_eq!(tally.at_end[2], full(254));
    };
    check(false, [2, 1], 2);
    check(false, [1, 2], 0);
    check(true, [1, 2], 2);
    check(true, [2, 1], 0);
}

#[test]
fn a_run_begins_at_priority_12_with_passes_of_nothing_left_out() {
    // 256 >> 8 is the first request that asks for anything.
    let mut lines = vec![wakes(), isolate(KSWAPD, "inactive_file", 1, [1, 0, 1])];
    lines.extend(free(KSWAPD, [1]));
    lines.push(shrunk(KSWAPD, 1, 8));
    let after = Picture { inactive: (2..=256).rev().collect(), ..long() };
    let tally = follow(&long(), &lines, &after);
    assert_eq!((tally.priorities, tally.asked), (full(1), full(1)), "{:?}", tally.differences);
}

#[test]
fn a_wrong_priority_is_one_difference_and_set_right() {
    let mut lines = one_pass([2, 1]);
    lines.extend(slabs(KSWAPD));
    let tally = follow(&long(), &lines, &after_one_pass());
    let mut causes: Vec<_> = tally.causes().into_iter().collect();
    causes.retain(|(cause, _)| !cause.contains("at the end"));
    // The model begins at 8, where the kernel's list was asked for 2 pages; after that the pass is as it should be.
    assert_eq!(causes, [("list and pages asked for", 1), ("priority of a pass", 1)]);
    assert_eq!((tally.passes, tally.at_end[2]), (full(1), full(254)));
}

#[test]
fn requests_do_not_see_the_share_that_the_cpu_has_not_added() {
    let check = |share, asked: u64, priority, same| {
        let mut lines = vec![wakes(), isolate(KSWAPD, "inactive_file", asked, [asked, 0, asked])];
        lines.extend(free(KSWAPD, (1..=asked).rev()));
        lines.push(shrunk(KSWAPD, asked, priority));
        let before = Picture { inactive: (1..=258).rev().collect(), share, ..long() };
        let tally = follow(&before, &lines, &before);
        assert_eq!(tally.priorities.same, same, "{:?}", tally.differences);
    };
    // 258 >> 8 is 1; without the share of 6, 252 >> 7 is.
    check(0, 1, 8, 1);
    check(6, 1, 7, 1);
    check(6, 1, 8, 0);
}

#[test]
fn lengths_are_read_before_the_batches_are_emptied() {
    let mut lines = vec![wakes()];
    lines.extend((400..415).map(|pfn| added(KSWAPD, pfn, 2)));
    lines.push(isolate(KSWAPD, "inactive_file", 1, [1, 0, 1]));
    let before = Picture { inactive: (1..=510).rev().collect(), ..long() };
    let tally = follow(&before, &lines, &before);
    // 525 >> 8 would be 2.
    assert_eq!(tally.asked, full(1), "{:?}", tally.differences);
}

#[test]
fn frames_of_higher_zones_go_to_the_head_and_count_as_skipped() {
    let list = |head: &[u64], rest: std::ops::RangeInclusive<u64>, tail: &[u64]| {
        let mut list = head.to_vec();
        list.extend(rest.rev());
        list.extend(tail);
        list
    };
    let before = Picture { inactive: list(&[], 3..=512, &[2, 1, 1001, 1000]), ..long() };
    let isolation = isolate(KSWAPD, "inactive_file", 1, [3, 2, 1]);
    let lines = [wakes(), isolation.replace("classzone=1", "classzone=0")];
    let after = Picture { inactive: list(&[1001, 1000], 2..=512, &[]), ..long() };
    let tally = follow(&before, &lines, &after);
    assert_eq!((tally.isolations, tally.asked), (full(1), full(1)), "{:?}", tally.differences);
    assert_eq!(tally.at_end[2], full(513), "{:?}", tally.differences);
}

#[test]
fn what_leaves_the_active_list_goes_to_the_head_first_one_deepest() {
    let before = Picture { active: (1000..1300).rev().collect(), ..Picture::default() };
    let lines = [
        wakes(),
        isolate(KSWAPD, "active_file", 1, [1, 0, 1]),
        aged(KSWAPD, 1, 8),
        isolate(KSWAPD, "active_file", 2, [2, 0, 2]),
        aged(KSWAPD, 2, 8),
    ];
    let mut inactive: Vec<u64> = vec![1002, 1001, 1000];
    inactive.extend(before.inactive.iter());
    let after = Picture { inactive, active: (1003..1300).rev().collect(), ..Picture::default() };
    let tally = follow(&before, &lines, &after);
    assert_eq!((tally.at_end[2], tally.at_end[3]), (full(203), full(297)));
    // The inactive list is the shorter one: the model says so.
    assert_eq!(tally.aged, full(1), "{:?}", tally.differences);
}

#[test]
fn a_page_that_came_back_makes_the_active_list_age() {
    let run = |lines: &mut Vec<String>, ages: bool| {
        lines.extend([wakes(), isolate(KSWAPD, "inactive_file", 1, [1, 0, 1])]);
        lines.push(shrunk(KSWAPD, 1, 8));
        if ages {
            lines.extend([isolate(KSWAPD, "active_file", 1, [1, 0, 1]), aged(KSWAPD, 1, 8)]);
        }
        lines.extend(slabs(KSWAPD));
        lines.push(sleeps());
    };
    let check = |comes_back: bool, ages: bool, same: u64| {
        let before = Picture {
            active: (1000..1290).rev().collect(),
            inactive: (1..=300).rev().collect(),
            ..long()
        };
        let mut lines = Vec::new();
        run(&mut lines, true);
        if comes_back {
            let request = format!("{READER} reqalloc: gfp=0x1 order=0");
            let answer = format!(
                "{READER} mm_page_alloc: pfn=0x385 order=0 migratetype=1 gfp_flags=GFP_NOFS"
            );
            lines.extend([request, answer, added(READER, 901, 3)]);
        }
        run(&mut lines, ages);
        let tally = follow(&before, &lines, &before);
        assert_eq!(tally.aged, Score { same, of: 1 }, "{:?}", tally.differences);
        // No event tells whether one came back before the stretch.
        assert_eq!(tally.untold["whether file pages came back before the stretch"], 1);
    };
    check(true, true, 1);
    check(true, false, 0);
    check(false, false, 1);
    check(false, true, 0);
}

#[test]
fn frames_that_reclaim_keeps_are_counted_apart() {
    let before = Picture { private: Some(1), ..long() };
    let mut lines = vec![wakes(), isolate(KSWAPD, "inactive_file", 2, [2, 0, 2])];
    lines.extend(free(KSWAPD, [2]));
    lines.push(shrunk(KSWAPD, 1, 7).replace("nr_activate_file=0", "nr_activate_file=1"));
    let after = Picture { inactive: (3..=256).rev().collect(), active: vec![1], ..long() };
    let tally = follow(&before, &lines, &after);
    assert_eq!(tally.untold["frames not reclaimed, with private data that may be in use"], 1);
    assert_eq!((tally.at_end[2], tally.at_end[3]), (full(254), full(1)), "{:?}", tally.differences);
}

#[test]
fn a_folio_counts_all_its_pages() {
    let before = Picture { folio: Some(1), inactive: (1..=253).rev().collect(), ..long() };
    let lines = [wakes(), isolate(KSWAPD, "inactive_file", 1, [4, 0, 4])];
    let tally = follow(&before, &lines, &before);
    assert_eq!((tally.asked, tally.isolations), (full(1), full(1)), "{:?}", tally.differences);
}

#[test]
fn compaction_takes_all_listed_frames_of_its_range_or_none() {
    let step = |taken| {
        format!(
            "{CALLER} mm_compaction_isolate_migratepages: range=(0x1 ~ 0x11) nr_scanned=16 nr_taken={taken}"
        )
    };
    let before = Picture::default();
    let kept = follow(&before, &[step(0)], &before);
    assert_eq!((kept.at_end[2], kept.sources), (full(200), full(0)));
    assert_eq!(kept.untold["steps of compaction that gave up a range"], 1);
    let moved = format!("{CALLER} moved: from=0x1 to=0x1f4");
    let lines = [step(16), moved, added(CALLER, 500, 2)];
    let mut inactive = vec![500];
    inactive.extend((17..=200).rev());
    let taken = follow(&before, &lines, &Picture { inactive, ..Picture::default() });
    assert_eq!((taken.at_end[2], taken.sources), (full(185), full(1)), "{:?}", taken.differences);
}

fn begins() -> String {
    format!("{CALLER} mm_vmscan_direct_reclaim_begin: order=9 gfp_flags=GFP_TRANSHUGE")
}

fn ends(reclaimed: u64) -> String {
    format!("{CALLER} mm_vmscan_direct_reclaim_end: nr_reclaimed={reclaimed}")
}

fn says(zone: &str, ret: &str) -> String {
    format!("{CALLER} mm_compaction_suitable: node=0 zone={zone}    order=9 ret={ret}")
}

/// Follows a call of direct reclaim whose first pass finds `inactive >> 12` pages; `word` is compaction's answer on the
/// higher zone after it.
fn call(word: &str, inactive: u64) -> LruTally {
    let before = Picture { inactive: (1000..1000 + inactive).rev().collect(), ..long() };
    let pages = inactive >> 12;
    let mut lines = vec![begins(), says("DMA32", "skipped")];
    lines.push(isolate(CALLER, "inactive_file", pages, [pages, 0, pages]));
    lines.extend(free(CALLER, (1000..1000 + pages).rev()));
    lines.push(shrunk(CALLER, pages, 12));
    lines.extend(slabs(CALLER));
    lines.extend([
        says("DMA", "skipped"),
        says("DMA32", word),
        says("DMA", "skipped"),
        ends(pages),
    ]);
    let after = Picture { inactive: (1000 + pages..1000 + inactive).rev().collect(), ..long() };
    follow(&before, &lines, &after)
}

#[test]
fn a_call_ends_when_compaction_can_work_and_32_pages_came() {
    let tally = call("continue", 32 << 12);
    assert_eq!((tally.calls, tally.questions), (full(1), full(4)), "{:?}", tally.differences);
    // It would have made another pass.
    assert_eq!(call("skipped", 32 << 12).calls, Score { same: 0, of: 1 });
    // It would have gone on with priority 11.
    assert_eq!(call("continue", 31 << 12).calls, Score { same: 0, of: 1 });
}

#[test]
fn kswapd_rests_above_the_high_mark() {
    let check = |free, same| {
        let mut lines = vec![wakes(), isolate(KSWAPD, "inactive_file", 1, [1, 0, 1])];
        lines.push(shrunk(KSWAPD, 1, 8));
        lines.extend(slabs(KSWAPD));
        lines.push(sleeps());
        let before = Picture { free: [free, 100], ..long() };
        let tally = follow(&before, &lines, &before);
        assert_eq!(tally.runs, Score { same, of: 1 }, "{free} {:?}", tally.differences);
    };
    // The mark is 499, and 1 is in reserve for requests to the higher zone.
    check(500, 0);
    check(501, 1);
}

/// Reads a file of a stretch.
fn read(folder: &Path, name: &str) -> String {
    let file = File::open(folder.join(format!("{name}.zst"))).unwrap();
    std::io::read_to_string(zstd::Decoder::new(file).unwrap()).unwrap()
}

/// Returns the stretches, where they are in this checkout.
fn stretches() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let Ok(found) = root.join("data/kernel-states").read_dir() else {
        eprintln!("skipped: there is no folder data/kernel-states");
        return Vec::new();
    };
    let mut folders: Vec<PathBuf> = found.map(|entry| entry.unwrap().path()).collect();
    folders.retain(|folder| folder.join("events.txt.zst").is_file());
    folders.sort();
    folders
}

#[test]
fn given_stretches_are_the_kernels_frame_by_frame() {
    for folder in stretches() {
        let newer = folder.to_string_lossy().contains("linux-6.12");
        let policy = match newer {
            true => FragmentationPolicy::LINUX_6_12,
            false => FragmentationPolicy::LINUX_6_1,
        };
        let before = State::read(&read(&folder, "state-before.json")).unwrap();
        let after = State::read(&read(&folder, "state-after.json")).unwrap();
        let mut lru = Lru::new(&before, &policy).unwrap();
        for line in events::read(&read(&folder, "events.txt")).unwrap() {
            lru.follow(&line);
        }
        let tally = lru.finish(&after).unwrap();
        let name = folder.file_name().unwrap().to_string_lossy();
        println!("{name}: {:?} {:?}", tally.causes(), tally.untold);
        let scores = [
            tally.asked,
            tally.isolations,
            tally.freed,
            tally.shrunk,
            tally.priorities,
            tally.aged,
            tally.passes,
            tally.runs,
            tally.questions,
            tally.calls,
            tally.sources,
        ];
        for (place, score) in scores.into_iter().chain(tally.at_end).enumerate() {
            assert_eq!(score.same, score.of, "{name}: score {place}");
        }
    }
}
