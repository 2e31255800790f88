//! `nofrag host vmalloc`: the kernel's vmalloc space.

mod brief;
mod page;
mod text;

use nofrag_host::vmalloc::{Group, Lazy, RegionReport, VmallocReport};

pub use brief::brief;
pub use page::page;
pub(super) use page::{CELLS, hole_sizes, holes, in_use};
pub use text::text;

use super::parts::{known, others, size_or_none};
use crate::{Cell, Table, bytes, bytes_text, cells, plural};

/// Returns the kernel and its processors.
fn host(report: &VmallocReport) -> String {
    let host = &report.host;
    let cpus = host
        .cpus_online
        .map_or("unknown CPUs".to_owned(), |cpus| plural(cpus.into(), "CPU online", "CPUs online"));
    format!("Linux {} {}, {cpus}", known(host.release.as_ref()), known(host.arch.as_ref()))
}

/// Writes bytes in a number of areas.
pub(super) fn in_areas(bytes: u64, areas: u64) -> String {
    format!("{} in {}", bytes_text(bytes), plural(areas, "area", "areas"))
}

/// Returns the share of the limit that lazily freed memory has reached, if the limit is known.
pub(super) fn of_limit(lazy: &Lazy) -> Option<String> {
    let limit = lazy.limit_bytes?;
    let share = Cell::share(lazy.bytes, limit);
    Some(format!("{share} of the {} at which the kernel purges", bytes_text(limit)))
}

/// Returns the areas by kind, and all of them.
fn kinds(report: &VmallocReport) -> Table {
    let totals = report.totals;
    let all = Group {
        name: "all".to_owned(),
        areas: totals.areas,
        bytes: totals.bytes,
        backed_pages: totals.backed_pages,
    };
    groups("kind", report.kinds.iter().chain([&all]), totals.bytes, report)
}

/// Returns the areas in use of the `most` callers with most of them, and of all others.
fn callers(report: &VmallocReport, most: usize) -> Table {
    let (shown, rest) = report.callers.split_at(report.callers.len().min(most));
    let rest = (!rest.is_empty()).then(|| Group {
        name: others(rest.len()),
        areas: rest.iter().map(|group| group.areas).sum(),
        bytes: rest.iter().map(|group| group.bytes).sum(),
        backed_pages: rest.iter().map(|group| group.backed_pages).sum(),
    });
    let all = report.totals.live_bytes;
    groups("caller (areas in use)", shown.iter().chain(&rest), all, report)
}

fn groups<'a>(
    what: &str,
    groups: impl Iterator<Item = &'a Group>,
    all: u64,
    report: &VmallocReport,
) -> Table {
    let page = report.page_bytes.unwrap_or(0);
    let mut grid = Table::new(&[what, "areas", "bytes", "share", "memory behind"]);
    for group in groups {
        let behind = Some(group.backed_pages).filter(|&pages| pages > 0);
        grid.row(cells![
            group.name.clone(),
            group.areas,
            bytes(group.bytes),
            Cell::share(group.bytes, all),
            behind.map(|pages| bytes(pages.saturating_mul(page))),
        ]);
    }
    grid
}

/// Returns the largest area of each alignment that would still find a place.
fn largest(region: &RegionReport) -> Table {
    let mut grid = Table::new(&["largest area", "now", "after purge"]);
    let after = &region.after_purge.largest_by_align;
    for (now, after) in region.now.largest_by_align.iter().zip(after) {
        grid.row(cells![
            format!("aligned to {}", bytes_text(now.align_bytes)),
            size_or_none(now.largest_area_bytes),
            size_or_none(after.largest_area_bytes),
        ]);
    }
    grid
}
