//! Mappings as a kernel would record them, replayed.

use nofrag_host::snapshot::Files;
use nofrag_host::trace::{Event, EventKind, MAX_FIELDS, Moment, TakenSnapshot, TraceMeta};

use super::{MmapOutcome, MmapReplay};

const TOP: u64 = 0x7f12_3456_7000;
const LOW: u64 = 0x1000;
const HUGE: u64 = 2 << 20;
const ANONYMOUS: u64 = 0x22;
const PRIVATE_FILE: u64 = 2;

fn event(pid: i32, kind: EventKind, fields: &[u64]) -> Event {
    let mut values = [0; MAX_FIELDS];
    values[..fields.len()].copy_from_slice(fields);
    Event { at: 0, pid, cpu: 0, kind, values }
}

/// Returns the event of a search that found `addr`, downwards from `top`.
fn search_below(top: u64, pid: i32, addr: u64, length: u64) -> Event {
    event(pid, EventKind::UnmappedArea, &[addr, 0, 1, length, LOW, top, 0, 0])
}

fn search(pid: i32, addr: u64, length: u64) -> Event {
    search_below(TOP, pid, addr, length)
}

fn mmap(pid: i32, addr: u64, length: u64, flags: u64, offset: u64) -> Event {
    event(pid, EventKind::Mmap, &[addr, length, 3, flags, u64::MAX, offset])
}

fn munmap(pid: i32, addr: u64, length: u64) -> Event {
    event(pid, EventKind::Munmap, &[addr, length])
}

fn exit(pid: i32) -> Event {
    event(pid, EventKind::ExitMmap, &[1])
}

fn meta() -> TraceMeta {
    TraceMeta { release: Some("6.18.5-test".to_owned()), ..TraceMeta::default() }
}

fn replayed(meta: &TraceMeta, events: &[Event]) -> MmapOutcome {
    let mut replay = MmapReplay::new(meta, usize::MAX);
    events.iter().for_each(|event| replay.event(event));
    replay.finish().unwrap()
}

/// Returns the number of addresses that the recorded kernel's rules predicted, and of those that are exact.
fn judged(outcome: &MmapOutcome) -> (u64, u64) {
    let fidelity = outcome.fidelity.as_ref().unwrap();
    assert_eq!(fidelity.preset, "linux-6.12");
    (fidelity.predicted, fidelity.exact)
}

#[test]
fn the_highest_place_is_predicted_and_a_hole_is_used_again() {
    let events = [
        search(7, TOP - 0x4000, 0x4000),
        search(7, TOP - 0x6000, 0x2000),
        search(7, TOP - 0x9000, 0x3000),
        munmap(7, TOP - 0x6000, 0x2000),
        search(7, TOP - 0x5000, 0x1000),
        // No rule puts it here.
        search(7, TOP - 0x10_0000, 0x1000),
        search(7, TOP - 0x6000, 0x1000),
    ];
    let outcome = replayed(&meta(), &events);
    assert_eq!(judged(&outcome), (6, 5), "{outcome:?}");
    let misses = &outcome.fidelity.as_ref().unwrap().misses;
    assert_eq!(misses[0].recorded, (TOP - 0x10_0000) >> 12);
    assert_eq!(misses[0].predicted, Some((TOP - 0x6000) >> 12));
    assert_eq!((outcome.recorded.placed, outcome.recorded.munmaps), (6, 1));
    assert_eq!(outcome.runs.len(), 9);
    for run in &outcome.runs {
        assert_eq!((run.served, run.failed), (6, 0), "{run:?}");
    }
    assert!(outcome.cautions.iter().any(|line| line.contains("sys_enter_mmap")));
}

#[test]
fn the_pad_of_a_huge_page_is_no_part_of_the_mapping() {
    let aligned = TOP & !(HUGE - 1);
    // 4 MiB were asked for, 6 looked for, and the room that was found was aligned: with the call and without it.
    let found = TOP - 3 * HUGE;
    for call in [Some(mmap(7, 0, 2 * HUGE, ANONYMOUS, 0)), None] {
        let events = [search(7, found, 3 * HUGE), search(7, aligned - 2 * HUGE - 0x1000, 0x1000)];
        let events: Vec<Event> = call.into_iter().chain(events).collect();
        // The next page comes from the room above the aligned mapping.
        let outcome = replayed(&meta(), &events);
        assert_eq!(outcome.recorded.placed, 2);
        assert_eq!(outcome.recorded.with_call, u64::from(call.is_some()));
        let misses = &outcome.fidelity.as_ref().unwrap().misses;
        assert_eq!((judged(&outcome), misses.len()), ((2, 1), 1), "{misses:?}");
        assert_eq!(misses[0].predicted, Some((TOP - 0x1000) >> 12));
    }
}

#[test]
fn a_file_lies_where_its_huge_pages_begin() {
    let length = HUGE + 0x1000;
    let found = TOP - length - HUGE;
    let offset: u64 = 0x3000;
    let at = found + (offset.wrapping_sub(found) & (HUGE - 1));
    let events = [
        mmap(7, 0, length, PRIVATE_FILE, offset),
        search(7, found, length + HUGE),
        munmap(7, at, length),
        mmap(7, 0, 0x1000, ANONYMOUS, 0),
        search(7, TOP - 0x1000, 0x1000),
    ];
    let outcome = replayed(&meta(), &events);
    assert_eq!(judged(&outcome), (2, 2), "{outcome:?}");
    assert!(!outcome.cautions.iter().any(|line| line.contains("sys_enter_mmap")));
}

#[test]
fn chosen_addresses_are_taken_by_all() {
    let events = [
        search(7, TOP - 0x1000, 0x1000),
        // MAP_FIXED, and a hint that no search answered.
        mmap(7, TOP - 0x3000, 0x1000, ANONYMOUS | 0x10, 0),
        mmap(7, TOP - 0x8000, 0x2000, ANONYMOUS, 0),
        mmap(7, 0, 0x1000, ANONYMOUS, 0),
        search(7, TOP - 0x2000, 0x1000),
        mmap(7, 0, 0x4000, ANONYMOUS, 0),
        search(7, TOP - 0xc000, 0x4000),
    ];
    let outcome = replayed(&meta(), &events);
    assert_eq!(judged(&outcome), (3, 3), "{outcome:?}");
    assert_eq!(outcome.recorded.fixed, 2);
}

#[test]
fn processes_are_told_apart_by_their_windows_and_threads_share_one() {
    let other = TOP - 0x100_0000;
    let events = [
        search(7, TOP - 0x1000, 0x1000),
        search(8, TOP - 0x2000, 0x1000),
        search_below(other, 9, other - 0x1000, 0x1000),
        // A new program in thread 9, with another window.
        exit(9),
        search_below(TOP - 0x5000, 9, TOP - 0x6000, 0x1000),
        // One thread of two ends; the other goes on.
        exit(8),
        search(7, TOP - 0x3000, 0x1000),
    ];
    let outcome = replayed(&meta(), &events);
    assert_eq!(judged(&outcome), (5, 5), "{outcome:?}");
    assert_eq!(outcome.recorded.processes, 3);
    let linux = outcome.runs.iter().find(|run| run.policy == "linux-6.12").unwrap();
    assert_eq!((linux.equal, linux.areas), (5, 3), "neighbours join");
}

#[test]
fn without_randomisation_a_thread_has_a_space_of_its_own() {
    let top = 0x7fff_f7ff_f000;
    let events =
        [search_below(top, 7, top - 0x1000, 0x1000), search_below(top, 8, top - 0x1000, 0x1000)];
    let outcome = replayed(&meta(), &events);
    assert_eq!((judged(&outcome), outcome.recorded.processes), ((2, 2), 2));
}

#[test]
fn what_was_mapped_at_the_start_is_known_from_the_snapshot() {
    let maps = format!(
        "{:x}-{:x} rw-p 00000000 00:00 0 \n{:x}-{:x} r--p 00000000 00:00 0 [vvar]\n",
        TOP - 0x5000,
        TOP - 0x2000,
        TOP - 0x1000,
        TOP
    );
    let mut files = Files::default();
    files.insert("maps/7", maps.into_bytes());
    let snapshots = vec![TakenSnapshot { moment: Moment::Before, files }];
    let meta = TraceMeta { snapshots, ..meta() };
    let events = [
        search(7, TOP - 0x2000, 0x1000),
        munmap(7, TOP - 0x4000, 0x1000),
        search(7, TOP - 0x7000, 0x2000),
        search(7, TOP - 0x4000, 0x1000),
    ];
    let outcome = replayed(&meta, &events);
    assert_eq!(judged(&outcome), (3, 3), "{outcome:?}");
    assert_eq!(outcome.recorded.with_maps, 1);
}

#[test]
fn an_unseen_unmapping_is_inferred_and_counted() {
    let events = [search(7, TOP - 0x2000, 0x2000), search(7, TOP - 0x1000, 0x1000)];
    let outcome = replayed(&meta(), &events);
    assert_eq!(outcome.recorded.unseen_unmaps, 1);
    assert_eq!(judged(&outcome), (2, 2), "{outcome:?}");
}

#[test]
fn nonsense_is_counted_and_nothing_breaks() {
    let mut upward = search(7, 0x4000_0000, 0x1000);
    upward.values[2] = 0;
    let mut failed = search(7, 0, 0x1000);
    failed.values[0] = -12_i64 as u64;
    let events = [
        upward,
        failed,
        search(7, TOP, 0),
        search(7, u64::MAX >> 1, u64::MAX),
        search_below(0, 8, 0x1000, 0x1000),
        mmap(7, u64::MAX, u64::MAX, ANONYMOUS | 0x10, u64::MAX),
        mmap(7, 0x1000, u64::MAX - 5, ANONYMOUS, u64::MAX),
        munmap(7, u64::MAX, 1),
        munmap(7, 0, u64::MAX),
        munmap(99, 0, 0),
        exit(99),
        search(7, TOP - 0x1000, 0x1000),
    ];
    let outcome = replayed(&meta(), &events);
    assert_eq!(outcome.recorded.failed, 1);
    assert_eq!(outcome.recorded.elsewhere, 4);
    assert_eq!(judged(&outcome), (1, 1), "{outcome:?}");
    assert!(MmapReplay::new(&meta(), usize::MAX).finish().is_none());
}
