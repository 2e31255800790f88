//! An allocator with a planted bug, under the same driver as the sound one.
//!
//! If the driver does not find the bug, it proves nothing about the sound one either.

use nofrag::ranges::{Config, RangeAllocator, Span};

use crate::it::choices::Choices;
use crate::it::range_pair::{DELICATE, Pair};
use crate::ranges::drive;

/// Runs the operations in `data` on the broken allocator; panics once the bug shows.
pub fn run(data: &[u8]) {
    let config = Config { size_index: true, ..Config::default() };
    drive(Pair::new(config, DELICATE, Choices::Bytes(data)).with_bug(forget));
}

/// Loses the last number of a hole when a freed range joins two holes.
fn forget(allocator: &mut RangeAllocator, freed: Span) {
    let joined = allocator.hole_from(freed.start()).expect("it was freed a moment ago");
    if joined.start() < freed.start() && freed.end() < joined.end() {
        let last = Span::new(joined.end() - 1, joined.end()).expect("one number is a span");
        allocator.alloc_at(last).expect("the hole holds its last number");
    }
}
