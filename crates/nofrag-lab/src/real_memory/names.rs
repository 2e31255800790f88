//! Names of designs, units and counts, as this scenario's JSON has them, that more than one place uses.

use crate::apparatus::strategies::Strategy;
use crate::key::Key;

/// The library's own ways, through its full interface: purged by decay, and never.
pub(super) const ARENA_DECAY: &str = "nofrag-decay";
pub(super) const ARENA: &str = "nofrag";
/// The way that all others are compared with.
pub(super) const MAP_EACH: &str = Strategy::MapEach.into_str();
pub(super) const PARKED: &str = Strategy::Parked.into_str();
pub(super) const PURGE_BLOCK: &str = Strategy::PurgeBlock.into_str();

pub(super) const CALLS: Key = Key::number("system calls per 1,000 pairs");

pub(super) const MOVES: Key = Key::count("moves");
pub(super) const WRITES: Key = Key::count("writes");
pub(super) const LOST_WRITES: Key = Key::count("writes lost");
