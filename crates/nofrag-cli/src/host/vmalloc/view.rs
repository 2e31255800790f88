//! The report of `nofrag host vmalloc` as text for people.

use nofrag_host::finding::bytes_text;
use nofrag_host::layout::Room;
use nofrag_host::region::Bounds;
use nofrag_host::source::{Root, VMALLOCINFO};
use nofrag_host::vmalloc::{Group, RegionReport, Report};

use crate::host::text::{self, Numbers, hanging, percent, plural, sentence, wrapped};
use nofrag_show::Look;

/// The whole page.
pub(crate) fn page(report: &Report, root: &Root, max_callers: usize, look: Look) -> String {
    let mut sections = vec![heading(report, root, look)];
    if report.totals.areas > 0 {
        sections.push(kinds(report) + &nodes(report, look));
        sections.push(lazy(report, look));
        sections.push(callers(report, max_callers));
    }
    sections.extend(report.regions.iter().map(|region| region_section(region, look)));
    sections.extend(caveats(report, look));
    if let Some(why) = &report.no_regions_because {
        sections.push(wrapped("Holes are not shown: ", why, look));
    }
    sections.extend(text::missing(&report.missing, look));
    sections.push(text::findings(&report.findings, look));
    sections.join("\n")
}

fn heading(report: &Report, root: &Root, look: Look) -> String {
    let host = &report.host;
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "(unknown)".to_owned());
    let cpus = host
        .cpus_online
        .map_or("unknown CPUs".to_owned(), |cpus| plural(cpus.into(), "CPU online", "CPUs online"));
    let title = format!("Linux {} {}, {cpus}", known(&host.release), known(&host.arch));
    let page =
        report.page_bytes.map_or(String::new(), |page| format!(", pages of {}", bytes_text(page)));
    let read = format!(
        "{}: {} in {}{page}",
        root.path(VMALLOCINFO).display(),
        plural(report.totals.areas, "area", "areas"),
        bytes_text(host.file_bytes as u64),
    );
    wrapped("", &title, look) + &wrapped("", &read, look)
}

fn kinds(report: &Report) -> String {
    let mut table = Numbers::new(&["kind", "areas", "bytes", "share", "memory behind"]);
    let all = report.totals.bytes;
    for group in &report.kinds {
        table.row(group_row(group, all, report));
    }
    let total = Group {
        name: "all".to_owned(),
        areas: report.totals.areas,
        bytes: all,
        backed_pages: report.totals.backed_pages,
    };
    table.row(group_row(&total, all, report));
    table.text()
}

fn nodes(report: &Report, look: Look) -> String {
    let page = report.page_bytes.unwrap_or(0);
    let nodes: Vec<String> = report
        .numa_nodes
        .iter()
        .map(|node| format!("N{} {}", node.node, bytes_text(node.pages.saturating_mul(page))))
        .collect();
    match nodes.is_empty() {
        true => String::new(),
        false => wrapped("memory by NUMA node: ", &nodes.join(", "), look),
    }
}

fn callers(report: &Report, max: usize) -> String {
    let live = report.totals.live_bytes;
    let mut table =
        Numbers::new(&["caller (areas in use)", "areas", "bytes", "share", "memory behind"]);
    let shown = report.callers.len().min(max);
    for group in &report.callers[..shown] {
        table.row(group_row(group, live, report));
    }
    let rest = &report.callers[shown..];
    if !rest.is_empty() {
        let others = Group {
            name: format!("({})", plural(rest.len() as u64, "other", "others")),
            areas: rest.iter().map(|group| group.areas).sum(),
            bytes: rest.iter().map(|group| group.bytes).sum(),
            backed_pages: rest.iter().map(|group| group.backed_pages).sum(),
        };
        table.row(group_row(&others, live, report));
    }
    table.text()
}

fn group_row(group: &Group, all: u64, report: &Report) -> Vec<String> {
    let page = report.page_bytes.unwrap_or(0);
    let behind = match group.backed_pages {
        0 => "-".to_owned(),
        pages => bytes_text(pages.saturating_mul(page)),
    };
    vec![
        group.name.clone(),
        group.areas.to_string(),
        bytes_text(group.bytes),
        percent(group.bytes, all),
        behind,
    ]
}

fn lazy(report: &Report, look: Look) -> String {
    let lazy = &report.lazy;
    let limit = match lazy.limit_bytes {
        Some(limit) => format!(
            "{} of the {} at which the kernel purges",
            percent(lazy.bytes, limit),
            bytes_text(limit)
        ),
        None => "limit unknown".to_owned(),
    };
    let text = format!(
        "{} in {} ({limit}). In use: {} in {}.",
        bytes_text(lazy.bytes),
        plural(lazy.areas, "area", "areas"),
        bytes_text(report.totals.live_bytes),
        plural(report.totals.live_areas, "area", "areas"),
    );
    wrapped("Lazily freed (unpurged): ", &text, look)
}

fn region_section(region: &RegionReport, look: Look) -> String {
    let size = bytes_text(region.end - region.start);
    let slack = match region.bounds {
        Bounds::Assumed { slack_bytes, .. } => {
            format!(", or up to {} lower", bytes_text(slack_bytes))
        }
        _ => String::new(),
    };
    let place = format!("{:#018x}..{:#018x}, {size}{slack}", region.start, region.end);
    let mut text = hanging(&format!("{}: ", region.name.text()), 2, &place, look);
    let bounds = format!("{} ({})", region.bounds.word(), region.bounds.why());
    text += &wrapped("  bounds ", &bounds, look);
    text += &text::hole_map(|cells| region.draw(cells), "unpurged", look);
    text += &holes(region);
    text += &largest(region, look);
    text
}

/// What the figures of the regions do not say.
fn caveats(report: &Report, look: Look) -> Option<String> {
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
    Some(notes.into_iter().flatten().map(|note| wrapped("Note: ", &sentence(note), look)).collect())
}

/// Since 6.9 purged areas of the vmalloc range wait in pools per node.
fn has_pools(release: &str) -> bool {
    nofrag_host::fields::release_version(release).is_ok_and(|version| version >= (6, 9))
}

fn holes(region: &RegionReport) -> String {
    let mut table = Numbers::new(&["  hole size", "holes now", "bytes", "after purge", "bytes"]);
    let mut sizes: Vec<u64> = [&region.now, &region.after_purge]
        .iter()
        .flat_map(|room| room.classes.iter().map(|class| class.from_bytes))
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    for from in sizes {
        let [now, now_bytes] = class_cells(&region.now, from);
        let [after, after_bytes] = class_cells(&region.after_purge, from);
        table.row(vec![format!("  from {}", bytes_text(from)), now, now_bytes, after, after_bytes]);
    }
    let all = |room: &Room| [room.holes.to_string(), bytes_text(room.free_bytes)];
    let ([now, now_bytes], [after, after_bytes]) = (all(&region.now), all(&region.after_purge));
    table.row(vec!["  all".to_owned(), now, now_bytes, after, after_bytes]);
    table.text()
}

fn class_cells(room: &Room, from: u64) -> [String; 2] {
    match room.classes.iter().find(|class| class.from_bytes == from) {
        Some(class) => [class.holes.to_string(), bytes_text(class.bytes)],
        None => ["-".to_owned(), "-".to_owned()],
    }
}

fn largest(region: &RegionReport, look: Look) -> String {
    let mut table = Numbers::new(&["  largest area", "now", "after purge"]);
    for (now, after) in region.now.largest_by_align.iter().zip(&region.after_purge.largest_by_align)
    {
        let size = |bytes: u64| if bytes == 0 { "none".to_owned() } else { bytes_text(bytes) };
        table.row(vec![
            format!("  aligned to {}", bytes_text(now.align_bytes)),
            size(now.largest_area_bytes),
            size(after.largest_area_bytes),
        ]);
    }
    let request = |room: &Room| exact(room.largest_request_bytes);
    let text = format!(
        "now: {}; after a full purge: {}",
        request(&region.now),
        request(&region.after_purge)
    );
    table.text() + &hanging("  Largest request that would succeed ", 4, &text, look)
}

fn exact(bytes: u64) -> String {
    format!("{} ({bytes} bytes)", bytes_text(bytes))
}
