//! The report of `nofrag host vmalloc` as text for people.

use comfy_table::{CellAlignment, Table, presets};
use nofrag_host::finding::{Finding, Severity, bytes_text};
use nofrag_host::layout::Room;
use nofrag_host::picture::{Cell, Piece};
use nofrag_host::region::Bounds;
use nofrag_host::source::{Root, VMALLOCINFO};
use nofrag_host::vmalloc::{Group, RegionReport, Report};

use super::look::{Glyphs, Look};

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
    sections.extend(missing(report, look));
    sections.push(findings(&report.findings, look));
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
    text += &hole_map(region, look);
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

fn hole_map(region: &RegionReport, look: Look) -> String {
    const GAP_COLUMNS: usize = 20;
    let gaps = |piece: &Piece| matches!(piece, Piece::Gap { .. });
    let count = region.draw(1).iter().filter(|piece| gaps(piece)).count();
    let cells = look.width.saturating_sub(4 + count * GAP_COLUMNS).max(8);
    let mut map = String::from("  ");
    for piece in region.draw(cells) {
        match piece {
            Piece::Cells(cells) => map.extend(cells.iter().map(|cell| glyph(cell, look.glyphs))),
            Piece::Gap { bytes } => map += &format!("<{} free>", bytes_text(bytes)),
        }
    }
    let shades = shades(look.glyphs);
    let legend = format!(
        "in use {}, mostly unpurged {} (from a little to all of a cell), free {}",
        shades.live, shades.lazy, shades.free
    );
    map + "\n" + &wrapped("  ", &legend, look)
}

/// The characters of the map, each row from a little to all of a cell.
struct Shades {
    live: &'static str,
    lazy: &'static str,
    free: char,
}

const fn shades(glyphs: Glyphs) -> Shades {
    match glyphs {
        Glyphs::Unicode => Shades { live: "▂▄▆█", lazy: "░▒▓", free: '·' },
        Glyphs::Ascii => Shades { live: "-+*#", lazy: ",;%", free: '.' },
    }
}

/// A cell shows as free only if nothing is in it: what is small must not vanish.
fn glyph(cell: &Cell, look: Glyphs) -> char {
    let shades = shades(look);
    let taken = cell.live_bytes + cell.lazy_bytes;
    if taken == 0 {
        return shades.free;
    }
    let row = if cell.live_bytes >= cell.lazy_bytes { shades.live } else { shades.lazy };
    let count = row.chars().count() as u128;
    let bytes = u128::from(taken) + u128::from(cell.free_bytes);
    let level = (u128::from(taken) * count).div_ceil(bytes) - 1;
    row.chars().nth(level as usize).expect("a part of the cell is at most the cell")
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

fn missing(report: &Report, look: Look) -> Option<String> {
    let lines = report.missing.iter().map(|missing| {
        let text = format!("{}: {}; it costs {}", missing.path, missing.why, missing.costs);
        wrapped("Not read: ", &text, look)
    });
    let text: String = lines.collect();
    (!text.is_empty()).then_some(text)
}

fn findings(findings: &[Finding], look: Look) -> String {
    if findings.is_empty() {
        return "Findings: none\n".to_owned();
    }
    let mut text = String::from("Findings\n");
    for (index, finding) in findings.iter().enumerate() {
        let severity = match finding.severity {
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        let first = format!("{:2}. {severity} {}: ", index + 1, finding.id);
        text += &hanging(&first, 4, &sentence(&finding.evidence), look);
        text += &wrapped("    So: ", &sentence(&finding.consequence), look);
        text += &wrapped("    Do: ", &sentence(&finding.help), look);
    }
    text
}

fn sentence(text: &str) -> String {
    format!("{text}.")
}

fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        whole => format!("{:.1} %", part as f64 * 100.0 / whole as f64),
    }
}

/// `lead` and `text`, broken at spaces; what follows the first line is indented as far as `lead`.
fn wrapped(lead: &str, text: &str, look: Look) -> String {
    hanging(lead, lead.chars().count(), text, look)
}

/// `lead` and `text`, broken at spaces; what follows the first line is indented by `indent`.
fn hanging(lead: &str, indent: usize, text: &str, look: Look) -> String {
    let mut out = lead.to_owned();
    let mut column = lead.chars().count();
    let mut first = true;
    for word in text.split(' ') {
        let length = word.chars().count();
        if !first && column + 1 + length > look.width {
            out += "\n";
            out += &" ".repeat(indent);
            column = indent;
        } else if !first {
            out += " ";
            column += 1;
        }
        out += word;
        column += length;
        first = false;
    }
    out + "\n"
}

/// A table whose first column is text and whose others are numbers.
struct Numbers {
    table: Table,
}

impl Numbers {
    fn new(header: &[&str]) -> Numbers {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(header);
        for column in 0..header.len() {
            let column = table.column_mut(column).expect("the header made this column");
            column.set_padding((0, 2));
        }
        for column in 1..header.len() {
            let column = table.column_mut(column).expect("the header made this column");
            column.set_cell_alignment(CellAlignment::Right);
        }
        Numbers { table }
    }

    fn row(&mut self, cells: Vec<String>) {
        self.table.add_row(cells);
    }

    fn text(&self) -> String {
        self.table.trim_fmt() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: Look = Look { glyphs: Glyphs::Ascii, width: 20 };

    #[test]
    fn text_is_broken_at_the_width() {
        assert_eq!(
            wrapped("So: ", "one two three four five", NARROW),
            "So: one two three\n    four five\n"
        );
        assert_eq!(
            wrapped("", "averyverylongwordthatfitsnowhere", NARROW),
            "averyverylongwordthatfitsnowhere\n"
        );
    }

    #[test]
    fn small_things_do_not_vanish_from_the_map() {
        let cell = |live_bytes, lazy_bytes, free_bytes| Cell { live_bytes, lazy_bytes, free_bytes };
        let shown = [
            (0, 0, 9),
            (1, 0, 99),
            (2, 0, 2),
            (5, 0, 2),
            (9, 0, 0),
            (0, 1, 99),
            (0, 5, 4),
            (1, 2, 0),
            (0, 0, 0),
        ]
        .map(|(live, lazy, free)| glyph(&cell(live, lazy, free), Glyphs::Ascii));
        assert_eq!(shown.iter().collect::<String>(), ".-+*#,;%.");
    }
}
