//! The report of `nofrag host vmalloc --all` as text for people.

use nofrag_host::layout::Room;
use nofrag_host::region::Bounds;
use nofrag_host::source::{Root, VMALLOCINFO};
use nofrag_host::vmalloc::{RegionReport, VmallocReport};

use super::{callers, host, in_areas, kinds, of_limit};
use crate::host::parts;
use crate::{Cell, Look, Table, bytes, bytes_text, hole_map, plural, sentence};

/// Returns the report of the files below `root`, with the callers that hold most: `max_callers` of them, or ten.
#[must_use]
pub fn text(report: &VmallocReport, root: &Root, max_callers: Option<usize>, look: Look) -> String {
    const MOST_CALLERS: usize = 10;
    let mut sections = vec![heading(report, root, look)];
    if report.totals.areas > 0 {
        sections.push(kinds(report).text("", look) + &nodes(report, look));
        sections.push(lazy(report, look));
        sections.push(callers(report, max_callers.unwrap_or(MOST_CALLERS)).text("", look));
    }
    sections.extend(report.regions.iter().map(|region| region_section(region, look)));
    sections.extend(caveats(report, look));
    if let Some(why) = &report.no_regions_because {
        sections.push(look.wrapped("Holes are not shown: ", why));
    }
    sections.extend(parts::missing(&report.missing, look));
    sections.push(parts::findings(&report.findings, look));
    sections.join("\n")
}

pub(super) fn heading(report: &VmallocReport, root: &Root, look: Look) -> String {
    let page =
        report.page_bytes.map_or(String::new(), |page| format!(", pages of {}", bytes_text(page)));
    let read = format!(
        "{}: {} in {}{page}",
        root.path(VMALLOCINFO).display(),
        plural(report.totals.areas, "area", "areas"),
        bytes_text(report.host.file_bytes as u64),
    );
    look.wrapped("", &host(report)) + &look.wrapped("", &read)
}

pub(super) fn nodes(report: &VmallocReport, look: Look) -> String {
    let page = report.page_bytes.unwrap_or(0);
    let nodes: Vec<String> = report
        .numa_nodes
        .iter()
        .map(|node| format!("N{} {}", node.node, bytes_text(node.pages.saturating_mul(page))))
        .collect();
    match nodes.is_empty() {
        true => String::new(),
        false => look.wrapped("memory by NUMA node: ", &nodes.join(", ")),
    }
}

pub(super) fn lazy(report: &VmallocReport, look: Look) -> String {
    let (lazy, totals) = (&report.lazy, report.totals);
    let text = format!(
        "{} ({}). In use: {}.",
        in_areas(lazy.bytes, lazy.areas),
        of_limit(lazy).as_deref().unwrap_or("limit unknown"),
        in_areas(totals.live_bytes, totals.live_areas)
    );
    look.wrapped("Lazily freed (unpurged): ", &text)
}

/// Returns the name of a region, its ends and its size.
pub(super) fn place(region: &RegionReport, look: Look) -> String {
    let size = bytes_text(region.end - region.start);
    let slack = match region.bounds {
        Bounds::Assumed { slack_bytes, .. } => {
            format!(", or up to {} lower", bytes_text(slack_bytes))
        }
        _ => String::new(),
    };
    let place = format!("{:#018x}..{:#018x}, {size}{slack}", region.start, region.end);
    look.hanging(&format!("{}: ", region.name.into_str()), 2, &place)
}

fn region_section(region: &RegionReport, look: Look) -> String {
    let mut text = place(region, look);
    let bounds = format!("{} ({})", region.bounds.into_str(), region.bounds.why());
    text += &look.wrapped("  bounds ", &bounds);
    text += &hole_map(|cells| region.draw(cells), "unpurged", look);
    text += &holes(region, look);
    text += &super::largest(region).text("  ", look);
    text += &largest_request(region, look);
    text
}

/// Says what the figures of the regions leave open.
fn caveats(report: &VmallocReport, look: Look) -> Option<String> {
    if report.regions.is_empty() {
        return None;
    }
    let aligned = "sizes include the guard page, except those of requests; an aligned area is \
                   one that fits somewhere, while Linux, above a page of alignment, searches for \
                   up to one alignment more";
    let pools = "purged ranges of up to 256 pages may wait in pools on this kernel: they are not \
                 listed and look like holes here, but join their neighbours only in a full purge";
    let pooled = report.host.release.as_deref().is_some_and(has_pools);
    let notes = [Some(aligned), pooled.then_some(pools)];
    Some(notes.into_iter().flatten().map(|note| look.wrapped("Note: ", &sentence(note))).collect())
}

/// Returns true if purged areas of the vmalloc range wait in pools per node, as since 6.9.
fn has_pools(release: &str) -> bool {
    nofrag_host::fields::release_version(release).is_ok_and(|version| version >= (6, 9))
}

fn holes(region: &RegionReport, look: Look) -> String {
    let rooms = [&region.now, &region.after_purge];
    let mut table = Table::new(&["hole size", "holes now", "bytes", "after purge", "bytes"]);
    let classes = rooms.iter().flat_map(|room| &room.classes);
    let mut sizes: Vec<u64> = classes.map(|class| class.from_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut row = |name: String, of: &dyn Fn(&Room) -> [Cell; 2]| {
        let cells = rooms.into_iter().flat_map(of);
        table.row(std::iter::once(name.into()).chain(cells).collect());
    };
    for from in sizes {
        row(format!("from {}", bytes_text(from)), &|room| class_cells(room, from));
    }
    row("all".to_owned(), &|room| [room.holes.into(), bytes(room.free_bytes).into()]);
    table.text("  ", look)
}

fn class_cells(room: &Room, from: u64) -> [Cell; 2] {
    let class = room.classes.iter().find(|class| class.from_bytes == from);
    [class.map(|class| class.holes).into(), class.map(|class| bytes(class.bytes)).into()]
}

pub(super) fn largest_request(region: &RegionReport, look: Look) -> String {
    let request = |room: &Room| exact(room.largest_request_bytes);
    let text = format!(
        "now: {}; after a full purge: {}",
        request(&region.now),
        request(&region.after_purge)
    );
    look.hanging("  Largest request that would succeed ", 4, &text)
}

fn exact(bytes: u64) -> String {
    format!("{} ({bytes} bytes)", bytes_text(bytes))
}
