//! Virtual costs: one table, in `costs.toml`, each with its source.

use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde::de::value::{self, MapDeserializer};

use crate::declared::declared;

const TEXT: &str = include_str!("costs.toml");

/// Costs of work in virtual nanoseconds, and properties of the machine around the allocator; `costs.toml` describes
/// each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Costs {
    pub(crate) alloc: u64,
    pub(crate) list_visit: u64,
    pub(crate) alloc_huge: u64,
    pub(crate) free: u64,
    pub(crate) object: u64,
    pub(crate) reclaim_scan: u64,
    pub(crate) reclaim_page: u64,
    pub(crate) shrink_object: u64,
    pub(crate) compact_scan: u64,
    pub(crate) migrate_page: u64,
    pub(crate) fault: u64,
    pub(crate) clear_huge: u64,
    pub(crate) create_file: u64,
    pub(crate) open_file: u64,
    pub(crate) write_page: u64,
    pub(crate) read_page: u64,
    pub(crate) disk_write: u64,
    pub(crate) disk_read: u64,
    pub(crate) delete_page: u64,
    pub(crate) dirty_percent: u64,
    pub(crate) jitter_percent: u64,
    pub(crate) kswapd_step_pages: u64,
    pub(crate) kcompactd_step_frames: u64,
    pub(crate) pages_per_writeback: u64,
    pub(crate) writeback_kept: u64,
}

/// The contents of a guest's memory besides its load, and its speed; `costs.toml` describes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct World {
    pub(crate) boot_unmovable: u64,
    pub(crate) boot_reclaimable: u64,
    pub(crate) boot_files: u64,
    pub(crate) writeback_blocks: u64,
    pub(crate) slowdown: u64,
    pub(crate) clear_page: u64,
    pub(crate) faults_of_write: u64,
    pub(crate) faults_of_creation: u64,
    pub(crate) half_faults_of_read: u64,
}

/// A row of the table as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CostRow {
    /// Its name in [`Costs`] or [`World`].
    pub(crate) id: String,
    /// Nanoseconds for a cost; a parameter's plain number otherwise.
    #[serde(alias = "ns")]
    pub(crate) value: u64,
    /// The work with this cost, or the quantity with this value.
    pub(crate) what: String,
    /// The origin of the figure: a document, a measurement, or an assumption.
    pub(crate) source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    cost: Vec<CostRow>,
    parameter: Vec<CostRow>,
    world: Vec<CostRow>,
    guest: Vec<CostRow>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| declared(TEXT));

/// Returns the rows of [`Costs`], costs before parameters.
pub(crate) fn cost_rows() -> impl Iterator<Item = &'static CostRow> {
    TABLE.cost.iter().chain(&TABLE.parameter)
}

/// Returns the rows for the world's other contents and for the speed of guests, in the order of the table.
pub(crate) fn world_rows() -> impl Iterator<Item = &'static CostRow> {
    TABLE.world.iter().chain(&TABLE.guest)
}

impl Costs {
    /// Returns the costs on a machine that is `slower` times as slow; parameters stay.
    pub(crate) fn times(self, slower: u64) -> Costs {
        Costs {
            alloc: self.alloc * slower,
            list_visit: self.list_visit * slower,
            alloc_huge: self.alloc_huge * slower,
            free: self.free * slower,
            object: self.object * slower,
            reclaim_scan: self.reclaim_scan * slower,
            reclaim_page: self.reclaim_page * slower,
            shrink_object: self.shrink_object * slower,
            compact_scan: self.compact_scan * slower,
            migrate_page: self.migrate_page * slower,
            fault: self.fault * slower,
            clear_huge: self.clear_huge * slower,
            create_file: self.create_file * slower,
            open_file: self.open_file * slower,
            write_page: self.write_page * slower,
            read_page: self.read_page * slower,
            disk_write: self.disk_write * slower,
            disk_read: self.disk_read * slower,
            delete_page: self.delete_page * slower,
            ..self
        }
    }

    /// Reads the table that is built in.
    pub(crate) fn built_in() -> Costs {
        read(cost_rows())
    }
}

impl World {
    /// Reads the table that is built in.
    pub(crate) fn built_in() -> World {
        read(world_rows())
    }
}

/// Reads a field from the row of its name; each field has a row, and each row a field.
fn read<T: DeserializeOwned>(rows: impl Iterator<Item = &'static CostRow>) -> T {
    let fields = rows.map(|row| (row.id.as_str(), row.value));
    let read: Result<T, value::Error> = T::deserialize(MapDeserializer::new(fields));
    read.unwrap_or_else(|why| panic!("costs.toml: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read_and_says_where_it_is_from() {
        let costs = format!("{:?}", Costs::built_in());
        for row in cost_rows() {
            assert!(costs.contains(&format!("{}: {}", row.id, row.value)), "{} is unused", row.id);
            assert!(row.value > 0 && !row.what.is_empty() && !row.source.is_empty(), "{}", row.id);
        }
        assert_eq!(cost_rows().count(), costs.matches(": ").count());
    }

    #[test]
    fn every_row_of_the_world_says_where_it_is_from() {
        let world = format!("{:?}", World::built_in());
        for row in world_rows() {
            let known = ["measured: ", "fitted on "].iter().any(|how| row.source.starts_with(how));
            assert!(known && row.value > 0 && !row.what.is_empty(), "{}", row.id);
            assert!(world.contains(&format!("{}: {}", row.id, row.value)), "{} is unused", row.id);
        }
    }
}
