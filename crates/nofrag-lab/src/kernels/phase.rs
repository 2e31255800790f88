//! Counts of a phase, under the same names for a kernel in its guest and for the simulation beside it.

use std::collections::BTreeMap;

use nofrag::page::{Migratetype, ZoneKind};
use nofrag::units::Order;

/// The phases of the workload.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumString, strum::IntoStaticStr,
)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub(super) enum PhaseName {
    /// All files are being written.
    Write,
    /// The files are read at random.
    Warm,
    /// The files are still read, and huge pages are touched.
    Thp,
}

impl PhaseName {
    pub(super) const ALL: [PhaseName; 3] = [PhaseName::Write, PhaseName::Warm, PhaseName::Thp];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Count {
    /// Fallbacks between types by requests of this type in this kind of zone, with a free block of this size.
    Fallbacks(ZoneKind, Migratetype, Piece),
    Units,
    /// Units that were huge.
    Huge,
    Moved,
    /// Attempts of callers at compaction that gave a block, and below, those that did not.
    CompactionsGave,
    CompactionsFailed,
    /// Zones that were not compacted because a recent attempt had failed.
    Deferred,
    /// Entries into direct reclaim, and below, pages reclaimed that way.
    DirectCalls,
    DirectPages,
    KswapdPages,
    KswapdWakes,
    KcompactdWakes,
    /// Pages that were read from disk.
    Read,
}

impl Count {
    pub(super) fn name(self) -> String {
        let name = match self {
            Count::Fallbacks(zone, migratetype, piece) => {
                let migratetype = migratetype.name().to_ascii_lowercase();
                return format!("fallbacks {}, {zone}, {migratetype}", piece.name());
            }
            Count::Units => "units touched",
            Count::Huge => "huge pages",
            Count::Moved => "pages moved",
            Count::CompactionsGave => "compactions that gave a block",
            Count::CompactionsFailed => "compactions that did not",
            Count::Deferred => "visits deferred",
            Count::DirectCalls => "direct reclaims",
            Count::DirectPages => "pages by direct reclaim",
            Count::KswapdPages => "pages by kswapd",
            Count::KswapdWakes => "wakes of kswapd",
            Count::KcompactdWakes => "wakes of kcompactd",
            Count::Read => "pages read",
        };
        name.to_owned()
    }
}

/// Size of a free block that fell to another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Piece {
    /// Below order 4.
    Small,
    /// Below a pageblock.
    Part,
    /// A pageblock or more: types do not mix.
    Whole,
}

impl Piece {
    fn name(self) -> &'static str {
        match self {
            Piece::Small => "< 4",
            Piece::Part => "4 to 8",
            Piece::Whole => "> 8",
        }
    }

    pub(super) fn of(order: Order) -> Piece {
        match order {
            order if order <= Order::COSTLY => Piece::Small,
            order if order < Order::PAGEBLOCK => Piece::Part,
            _ => Piece::Whole,
        }
    }
}

/// A phase of a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Phase {
    pub(super) name: PhaseName,
    /// Counts from the phase's beginning to its end; a missing count was not taken.
    pub(super) counts: BTreeMap<Count, u64>,
    /// Free blocks at the phase's end by kind of zone and order; nodes together.
    pub(super) free: BTreeMap<ZoneKind, [u64; Order::COUNT]>,
}
