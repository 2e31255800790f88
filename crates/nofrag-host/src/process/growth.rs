//! Growth of the areas, from two looks at one process.

use std::collections::HashSet;
use std::time::Duration;

use serde::Serialize;

use crate::proc_maps::{Area, Parsed};

/// An earlier look at the same process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    pub parsed: Parsed,
    /// Time between the earlier look and the later one.
    pub before: Duration,
}

/// The difference between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Growth {
    /// Seconds between the looks.
    pub seconds: f64,
    /// Areas at the first look.
    pub areas_before: u64,
    /// Areas at the second look.
    pub areas_after: u64,
    /// Mapped bytes at the first look.
    pub bytes_before: u64,
    /// Mapped bytes at the second look.
    pub bytes_after: u64,
    /// Areas of the second look that are not, with the same bounds, in the first.
    pub appeared: u64,
    /// Areas of the first look that are not, with the same bounds, in the second.
    pub vanished: u64,
    /// Increase of the number of areas per second; negative when it fell.
    pub areas_per_second: f64,
    /// Seconds until the limit is reached at this rate; `null` when the areas do not grow, or without a limit.
    pub seconds_to_limit: Option<f64>,
}

/// Compares `earlier` with a later look. O(n).
#[must_use]
pub fn growth(earlier: &Earlier, later: &Parsed, area_limit: Option<u64>) -> Growth {
    let counted = |parsed: &Parsed| parsed.areas.iter().filter(|area| area.is_counted()).count();
    let bytes = |parsed: &Parsed| {
        let counted = parsed.areas.iter().filter(|area| area.is_counted());
        counted.map(Area::bytes).sum::<u64>()
    };
    let bounds = |parsed: &Parsed| {
        parsed.areas.iter().map(|area| (area.start, area.end)).collect::<HashSet<(u64, u64)>>()
    };
    let (before, after) = (bounds(&earlier.parsed), bounds(later));
    let (areas_before, areas_after) = (counted(&earlier.parsed) as u64, counted(later) as u64);
    let seconds = earlier.before.as_secs_f64().max(f64::MIN_POSITIVE);
    let areas_per_second = (areas_after as f64 - areas_before as f64) / seconds;
    let left = area_limit.map(|limit| limit.saturating_sub(areas_after) as f64);
    let seconds_to_limit = left.filter(|_| areas_per_second > 0.0).map(|l| l / areas_per_second);
    Growth {
        seconds,
        areas_before,
        areas_after,
        bytes_before: bytes(&earlier.parsed),
        bytes_after: bytes(later),
        appeared: after.difference(&before).count() as u64,
        vanished: before.difference(&after).count() as u64,
        areas_per_second,
        seconds_to_limit,
    }
}
