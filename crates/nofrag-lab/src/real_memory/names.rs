//! Names of designs, units and counts, as this scenario's JSON has them, that more than one place uses.

use crate::apparatus::strategies::Strategy;

/// The library's own ways, through its full interface: purged by decay, and never.
pub(super) const ARENA_DECAY: &str = "nofrag-decay";
pub(super) const ARENA: &str = "nofrag";
/// The way that all others are compared with.
pub(super) const MAP_EACH: &str = "map-each";
pub(super) const PARKED: &str = "parked";
pub(super) const PURGE_BLOCK: &str = "purge-block";

/// Returns the name of a strategy, as the published figures have it.
pub(super) const fn strategy(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::MapEach => MAP_EACH,
        Strategy::MapOwn => "map-own",
        Strategy::MapOwnBlock => "map-own-block",
        Strategy::FilePunchEach => "file-punch-each",
        Strategy::FilePunchBlock => "file-punch-block",
        Strategy::FileDropBlock => "file-drop-block",
        Strategy::PurgeEach => "purge-each",
        Strategy::PurgeBlock => PURGE_BLOCK,
        Strategy::PurgeScattered => "purge-scattered",
        Strategy::Parked => PARKED,
    }
}

pub(super) const CALLS: &str = "system calls per 1,000 pairs";

pub(super) const MOVES: &str = "moves";
pub(super) const WRITES: &str = "writes";
pub(super) const LOST_WRITES: &str = "writes lost";
