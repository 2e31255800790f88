//! The number of mappings that a process may have: each run in a mapping of its own, until the kernel refuses.
//!
//! A child process that maps only on command maps every second page of a range without access, one by one, so that each
//! costs two areas: its own, and the rest of the range behind it. So the first refusal can be predicted from the limit
//! and from the areas that the child began with.
//!
//! Source: docs/sources/backing.md#oracle-1, #map-limit.

use nofrag::mmap::{Direction, Protection};

use crate::apparatus::probe::{Errno, Kind, MOST_STEPS, MapAt, Operation, Probe, Step, Width};
use crate::usage::max_map_count;

/// Outcome of the child's attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) mapped: u64,
    /// Number of mappings that should succeed under `limit`.
    pub(super) expected: u64,
    pub(super) limit: u64,
}

const PAGE: u64 = 4096;

/// Start of the child's range: far from its own areas.
const RANGE: u64 = 1 << 40;

/// The largest limit that is tried: up to it the child maps in a moment.
const MOST: u64 = 1 << 20;

/// Maps pages one by one in a child process until the kernel refuses.
///
/// # Errors
/// The reason why it cannot be tried here, as a sentence.
pub(super) fn one_mapping_per_run() -> Result<Limit, String> {
    let limit = max_map_count();
    if limit > MOST {
        return Err(format!("vm.max_map_count is {limit}, more than {MOST}: not tried"));
    }
    let mut probe =
        Probe::start(Width::Bits64, Direction::Down).map_err(|error| error.to_string())?;
    let map = |start: u64, bytes: u64, protection: Protection| Step {
        operation: Operation::Map { at: MapAt::Fixed(start), kind: Kind::Plain, bytes, protection },
        expected: Ok(start),
    };
    let range = map(RANGE, 2 * (limit + 1) * PAGE, Protection(0));
    let run =
        |probe: &mut Probe, steps: &[Step]| probe.run(steps).map_err(|error| error.to_string());
    if let Some(difference) = run(&mut probe, &[range])? {
        return Err(format!("no range for it: {difference:?}"));
    }
    let before = probe.areas().map_err(|error| error.to_string())?.len() as u64;
    let page = |number: u64| map(RANGE + (2 * number + 1) * PAGE, PAGE, Protection::READ_WRITE);
    let mut mapped = 0;
    while mapped <= limit {
        let batch: Vec<Step> = (mapped..mapped + MOST_STEPS as u64).map(page).collect();
        match run(&mut probe, &batch)? {
            None => mapped += batch.len() as u64,
            Some(difference) if difference.outcome == Err(Errno::NOMEM) => {
                mapped += difference.step as u64;
                return Ok(Limit { mapped, expected: limit.saturating_sub(before) / 2, limit });
            }
            Some(other) => return Err(format!("mapping {mapped}: {other:?}")),
        }
    }
    Err(format!("{mapped} mappings, and no refusal"))
}
