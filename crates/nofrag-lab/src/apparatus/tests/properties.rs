//! The kernel's effects on a process that maps memory: exact counts are judged here, times are only taken.

use crate::apparatus::properties::{adjacent_maps, collapses, punches, scattered_purges};

/// Neighbours at consecutive offsets are one area.
/// Source: docs/sources/backing.md#oracle-2.
#[test]
fn adjacent_maps_are_one_area() {
    assert_eq!(adjacent_maps(1_024).unwrap(), 1);
}

/// Collapses shared memory: only the system may refuse, where it has no huge pages. The host's setting for shared
/// memory does not matter.
/// Source: docs/sources/backing.md#oracle-6.
#[test]
fn shared_memory_collapses() {
    let results = collapses(4).unwrap();
    assert_eq!(results.len(), 4);
    for refused in results.iter().filter_map(|result| result.as_ref().err()) {
        assert!(refused.raw_os_error().is_some(), "{refused}");
        eprintln!("not judged: {refused}");
    }
}

/// Each way to purge and to punch is sampled once a round. The gains (docs/sources/backing.md#oracle-9, #oracle-11)
/// depend on the host: a scenario shows them.
#[test]
fn samples_come_in_pairs() {
    let purges = scattered_purges(1, 3).unwrap();
    assert_eq!((purges.singly.len(), purges.in_vectors.len()), (3, 3));
    match punches(2) {
        Ok(punches) => assert_eq!((punches.whole.len(), punches.part.len()), (2, 2)),
        Err(why) => eprintln!("skipped: no huge page: {why}"),
    }
}
