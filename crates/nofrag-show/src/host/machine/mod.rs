//! `nofrag host`: the whole machine.

mod brief;
mod page;
mod text;

use nofrag_host::machine::Machine;
use nofrag_host::machine::huge::HugePages;
use nofrag_host::machine::zones::{OrderRow, Zone};

pub use brief::brief;
pub use page::page;
pub use text::text;

use super::grid::{MARKS, mark_cells};
use super::parts::known;
use crate::{Cell, Quantity, Table, bytes, bytes_text, cells, duration_text, fixed, plural};

/// Returns the kernel, the processors, and the time since boot.
fn host(machine: &Machine) -> Vec<String> {
    let host = &machine.host;
    let arch = host.arch.as_deref().map_or(String::new(), |arch| format!(" {arch}"));
    let mut parts = vec![format!("Linux {}{arch}", known(host.release.as_ref()))];
    parts.extend(host.cpus_online.map(|cpus| plural(cpus.into(), "CPU", "CPUs")));
    parts.extend(host.uptime_seconds.map(|seconds| format!("up {}", duration_text(seconds))));
    parts
}

/// Iterates over the sizes of all memory, of free and of available memory, each with its name, as far as they are
/// known.
fn memory(machine: &Machine) -> impl Iterator<Item = (String, &'static str)> {
    let host = &machine.host;
    let all = [
        (host.memory_bytes, "of memory"),
        (host.free_bytes, "free"),
        (host.available_bytes, "available"),
    ];
    all.into_iter().filter_map(|(bytes, what)| Some((bytes_text(bytes?), what)))
}

/// Returns a table of `zones`, by these names, with their memory and watermarks.
fn marks(machine: &Machine, zones: &[&Zone], name: impl Fn(&Zone) -> String) -> Table {
    let in_bytes = |pages: u64| pages.saturating_mul(machine.host.page_bytes);
    let size = |pages: u64| bytes(in_bytes(pages));
    let memory = ["zone", "managed", "free", "on CPUs"];
    let mut grid = Table::new(&[&memory, &MARKS[..], &["largest block"]].concat());
    for zone in zones {
        let marks = zone.marks.map(|marks| [marks.min, marks.low, marks.high].map(in_bytes));
        let boost = zone.marks.and_then(|marks| marks.boost).map(in_bytes);
        let managed = zone.managed_pages.map(size);
        let memory =
            cells![name(zone), managed, size(zone.free_pages), zone.per_cpu_pages.map(size)];
        let marks = mark_cells(marks, boosted(boost));
        grid.row([memory, marks, cells![largest(machine, zone)]].concat());
    }
    grid
}

/// Returns the bytes by which watermarks are raised; a dash where that is not known.
pub(super) fn boosted(by: Option<u64>) -> Cell {
    by.map(|by| if by == 0 { Cell::from(0_u64) } else { bytes(by).into() }).into()
}

/// Returns the largest free block; missing where the blocks are not known.
fn largest(machine: &Machine, zone: &Zone) -> Cell {
    match zone.largest_order {
        _ if zone.orders.is_empty() => Cell::Missing,
        None => "none".into(),
        Some(order) => {
            let bytes = machine.host.page_bytes.checked_shl(order).unwrap_or(u64::MAX);
            Cell::About(f64::from(order), format!("{order} ({})", bytes_text(bytes)))
        }
    }
}

/// Returns blocks, unusable share and, where it is defined, fragmentation index of each zone, in rows of these names
/// and with a column for each order; `None` without orders. The forms are those of a number of blocks, and of a share
/// in thousandths.
fn orders(
    zones: &[&Zone],
    heading: &str,
    names: impl Fn(&Zone) -> [String; 3],
    [count, share]: [fn(u64) -> Cell; 2],
) -> Option<Table> {
    let orders = zones.iter().map(|zone| zone.orders.len()).max().filter(|&orders| orders > 0)?;
    let mut grid = Table::of_orders(heading, orders);
    for zone in zones {
        let mut row = |name: String, cell: &dyn Fn(&OrderRow) -> Cell| {
            grid.row(std::iter::once(name.into()).chain(zone.orders.iter().map(cell)).collect());
        };
        let [blocks, unusable, index] = names(zone);
        row(blocks, &|row| count(row.blocks));
        row(unusable, &|row| share(row.unusable));
        // Where every order has a block the index is not defined.
        if has_index(zone) {
            row(index, &|row| row.fragmentation.map(|it| thousandths(it as f64)).into());
        }
    }
    Some(grid)
}

/// Returns true if an order of the zone has no free block, so that its fragmentation index says why.
fn has_index(zone: &Zone) -> bool {
    zone.orders.iter().any(|row| row.fragmentation.is_some())
}

/// Returns an index or a share in thousandths as a number with two digits.
pub(super) fn thousandths(value: f64) -> Quantity {
    fixed(value / 1000.0, 2)
}

/// Says how many of our fragmentation indices equal the kernel's; `None` where it does not report them.
fn index_check(machine: &Machine) -> Option<String> {
    let check = machine.index_check?;
    Some(format!("{} of {} indices equal the kernel's own", check.equal, check.compared))
}

fn order_or_none(order: Option<u32>) -> String {
    order.map_or_else(|| "none".to_owned(), |order| order.to_string())
}

/// Says how many huge pages can be had; `bound` says how good the bound after compaction is.
fn obtainable(huge: &HugePages, bound: &str) -> String {
    format!(
        "{} of {} obtainable now, at most {} after compaction{bound}, at most {} after page cache is dropped",
        huge.blocks.now, huge.blocks.total, huge.blocks.after_compaction, huge.blocks.after_reclaim
    )
}

/// Returns a rate with at least two figures.
fn hourly(rate: f64) -> Quantity {
    fixed(rate, usize::from(rate < 10.0))
}
