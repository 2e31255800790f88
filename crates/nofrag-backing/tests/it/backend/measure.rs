//! The kernel's effects on a process that maps memory: exact counts are judged here, times are only taken.

use std::io::ErrorKind;

use nofrag_backing::backend::BackendError;
use nofrag_backing::backend::measure::{
    Peer, adjacent_maps, collapses, isolated_maps, punches, scattered_purges,
};

/// Isolated mappings end at half of the remaining areas.
/// Source: docs/sources/backing.md#oracle-1.
#[test]
fn isolated_maps_end_where_areas_do() {
    match isolated_maps() {
        Err(why) if why.kind() == ErrorKind::Unsupported => eprintln!("skipped: {why}"),
        counted => {
            let counted = counted.unwrap();
            assert!(counted.maps.abs_diff(counted.expected()) <= 2, "{counted:?}");
        }
    }
}

/// Neighbours at consecutive offsets are one area.
/// Source: docs/sources/backing.md#oracle-2.
#[test]
fn adjacent_maps_are_one_area() {
    assert_eq!(adjacent_maps(1_024), Ok(1));
}

/// Collapses shared memory: only the system may refuse, where it has no huge pages. The host's setting for shared
/// memory does not matter.
/// Source: docs/sources/backing.md#oracle-6.
#[test]
fn shared_memory_collapses() {
    let results = collapses(4).unwrap();
    assert_eq!(results.len(), 4);
    for refused in results.iter().filter_map(|result| result.as_ref().err()) {
        assert!(matches!(refused, BackendError::System(_)), "{refused}");
        eprintln!("not judged: {refused}");
    }
}

/// Each way to purge and to punch is sampled once a round. The gains (docs/sources/backing.md#oracle-9, #oracle-11)
/// depend on the host: a scenario shows them.
#[test]
fn samples_come_in_pairs() {
    let purges = scattered_purges(1, 3, Peer::Busy).unwrap();
    assert_eq!((purges.singly.len(), purges.in_vectors.len()), (3, 3));
    match punches(2) {
        Ok(punches) => assert_eq!((punches.whole.len(), punches.part.len()), (2, 2)),
        Err(why) => eprintln!("skipped: no huge page: {why}"),
    }
}

/// Prints the figures: `cargo test ... the_figures -- --ignored --nocapture`.
#[test]
#[ignore = "takes seconds, and judges nothing"]
fn the_figures() {
    // The least, a tenth up, and the middle.
    let some = |mut samples: Vec<u64>| {
        samples.sort_unstable();
        [0, samples.len() / 10, samples.len() / 2].map(|place| samples.get(place).copied())
    };
    eprintln!("{:?}", isolated_maps());
    for peer in [Peer::Idle, Peer::Busy] {
        for pages in [1, 16, 64] {
            let purges = scattered_purges(pages, 30, peer).unwrap();
            let (singly, vectors) = (some(purges.singly), some(purges.in_vectors));
            eprintln!("{peer:?}, {pages} pages: singly {singly:?}, in vectors {vectors:?}");
        }
    }
    if let Ok(punches) = punches(30) {
        eprintln!("whole {:?}, part {:?}", some(punches.whole), some(punches.part));
    }
    eprintln!("{:?}", collapses(16));
}
