//! An allocator with a planted bug, under the same driver as the sound one.
//!
//! If the driver does not find the bug, it proves nothing about the sound one either.

use nofrag::ranges::{Config, FreeError, RangeAllocator, Span};

use crate::ranges::{Rule, Subject, drive};

/// Runs the operations in `data` on the broken allocator; panics once the bug shows.
pub fn run(data: &[u8]) {
    let config = Config { size_index: true, ..Config::default() };
    drive(data, Rule::Exact, &mut Forgetful { inner: RangeAllocator::new(config) });
}

/// Loses the last number of a hole when a freed range joins two holes.
struct Forgetful {
    inner: RangeAllocator,
}

impl Subject for Forgetful {
    fn allocator(&mut self) -> &mut RangeAllocator {
        &mut self.inner
    }

    fn observe(&self) -> &RangeAllocator {
        &self.inner
    }

    fn free(&mut self, span: Span) -> Result<(), FreeError> {
        self.inner.free(span)?;
        let joined = self.inner.hole_from(span.start()).expect("it was freed a moment ago");
        let both_sides = joined.start() < span.start() && span.end() < joined.end();
        if both_sides {
            let last = Span::new(joined.end() - 1, joined.end()).expect("one number is a span");
            self.inner.alloc_at(last).expect("the hole holds its last number");
        }
        Ok(())
    }
}
