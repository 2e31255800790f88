//! The report of `nofrag host maps PID --all` as text for people.

use std::path::Path;

use nofrag_host::process::growth::Growth;
use nofrag_host::process::room::StoppedBy;
use nofrag_host::process::{ProcessReport, Space};
use nofrag_host::source::process::MapsFile;

use super::{EXAMPLE, groups, placements};
use crate::host::parts::{self, known};
use crate::{
    Cell, Look, Table, bytes, bytes_text, cells, duration_text, hole_map, plural, sentence,
};

/// Returns the report of a process that `path` describes, with at most `top` names and reasons, or ten.
#[must_use]
pub fn text(report: &ProcessReport, path: &Path, top: Option<usize>, look: Look) -> String {
    let top = top.unwrap_or(10);
    let mut sections = vec![heading(report, path, look), count(report, look)];
    let kinds = groups("kind", &report.kinds, report, usize::MAX, shortened).text("", look);
    sections.push(kinds + &no_access(report, look));
    sections.push(groups("name", &report.names, report, top, shortened).text("", look));
    sections.push(space(report, look));
    sections.extend(neighbours(report, top, look));
    sections.extend(replay(report, look));
    sections.push(caveats(report, look));
    sections.extend(parts::missing(&report.missing, look));
    sections.push(parts::findings(&report.findings, look));
    sections.join("\n")
}

pub(super) fn heading(report: &ProcessReport, path: &Path, look: Look) -> String {
    let process = &report.process;
    let pid = process.pid.map(|pid| pid.to_string());
    let threads =
        process.threads.map_or(String::new(), |n| format!(", {}", plural(n, "thread", "threads")));
    let title = format!(
        "Process {} ({}){threads}; Linux {} {}",
        known(pid.as_ref()),
        known(process.name.as_ref()),
        known(process.release.as_ref()),
        known(process.arch.as_ref())
    );
    let read = format!(
        "{}: {} in {}, pages of {}",
        path.display(),
        plural(report.count.areas, "area", "areas"),
        bytes_text(process.file_bytes),
        bytes_text(process.page_bytes),
    );
    look.wrapped("", &title) + &look.wrapped("", &read)
}

pub(super) fn count(report: &ProcessReport, look: Look) -> String {
    let count = &report.count;
    let text = match (count.limit, count.left) {
        (Some(limit), Some(left)) => format!(
            "{} of the {limit} that vm.max_map_count allows ({}), {left} left; {} have three pages or \
             more, so that munmap of a part may need another area",
            count.areas,
            Cell::share(count.areas, limit),
            count.can_be_split,
        ),
        _ => format!("{}, limit unknown", count.areas),
    };
    let growth = report.growth.as_ref().map(|growth| self::growth(growth, look));
    look.wrapped("Areas: ", &sentence(&text)) + &growth.unwrap_or_default()
}

fn growth(growth: &Growth, look: Look) -> String {
    let forecast = match growth.seconds_to_limit {
        Some(seconds) => {
            format!("at that rate the limit is reached in {}", duration_text(seconds))
        }
        None if growth.areas_after > growth.areas_before => "limit unknown".to_owned(),
        None => "no growth, so no forecast".to_owned(),
    };
    let text = format!(
        "{} areas became {} in {:.1} s ({:+.1} a second; {} appeared, {} vanished), {} became {}; {forecast}",
        growth.areas_before,
        growth.areas_after,
        growth.seconds,
        growth.areas_per_second,
        growth.appeared,
        growth.vanished,
        bytes_text(growth.bytes_before),
        bytes_text(growth.bytes_after),
    );
    look.wrapped("Growth: ", &sentence(&text))
}

/// Returns the end of a long name, which tells more than its beginning.
pub(super) fn shortened(name: &str) -> String {
    const COLUMNS: usize = 44;
    match name.chars().count().checked_sub(COLUMNS) {
        None | Some(0) => name.to_owned(),
        Some(over) => format!("..{}", name.chars().skip(over + 2).collect::<String>()),
    }
}

pub(super) fn no_access(report: &ProcessReport, look: Look) -> String {
    let sums = report.no_access;
    if sums.areas == 0 {
        return String::new();
    }
    let text = format!(
        "{} ({}) with {} ({} of what is mapped), of them {} of up to 1 MiB beside usable memory with {}: guards",
        plural(sums.areas, "area", "areas"),
        Cell::share(sums.areas, report.count.areas),
        bytes_text(sums.bytes),
        Cell::share(sums.bytes, report.mapped_bytes),
        sums.guard_areas,
        bytes_text(sums.guard_bytes),
    );
    look.wrapped("Without access: ", &sentence(&text))
}

/// Returns the ends of the address space, and its size.
pub(super) fn place(space: &Space, look: Look) -> String {
    let place = format!(
        "{:#018x}..{:#018x}, {}",
        space.start,
        space.end,
        bytes_text(space.end - space.start)
    );
    look.hanging("Address space: ", 2, &place)
}

fn space(report: &ProcessReport, look: Look) -> String {
    let space = &report.space;
    let mut out = place(space, look);
    let end = format!("{} ({})", space.certainty.into_str(), space.why);
    out += &look.wrapped("  end ", &end);
    let direction = format!("{} ({})", space.direction, space.direction_why);
    out += &look.wrapped("  placed ", &direction);
    out += &hole_map(|cells| space.draw(cells), "without access", look);
    out += &holes(space, look);
    out += &largest_mapping(report, look);
    out += &headroom(report, look);
    out
}

fn holes(space: &Space, look: Look) -> String {
    let room = &space.room;
    let mut table = Table::new(&["hole size", "holes", "bytes"]);
    for class in &room.classes {
        let name = format!("from {}", bytes_text(class.from_bytes));
        table.row(cells![name, class.holes, bytes(class.bytes)]);
    }
    table.row(cells!["all", room.holes, bytes(room.free_bytes)]);
    let mut largest = Table::new(&["largest hole", "bytes"]);
    for aligned in &room.largest_by_align {
        let size = parts::size_or_none(aligned.largest_area_bytes);
        largest.row(cells![format!("aligned to {}", bytes_text(aligned.align_bytes)), size]);
    }
    table.text("  ", look) + &largest.text("  ", look)
}

pub(super) fn largest_mapping(report: &ProcessReport, look: Look) -> String {
    let headroom = &report.space.headroom;
    let by = match headroom.stopped_by {
        StoppedBy::Holes => "no hole is larger",
        StoppedBy::AddressSpaceLimit => "RLIMIT_AS allows no more",
        StoppedBy::AreaLimit => "the limit of areas is exceeded",
    };
    let size = headroom.largest_mapping_bytes;
    let mapping = format!("{} ({size} bytes; {by})", bytes_text(size));
    look.hanging("  Largest mapping that would succeed now: ", 4, &mapping)
}

fn headroom(report: &ProcessReport, look: Look) -> String {
    let headroom = &report.space.headroom;
    let mut text = format!(
        "the space is {} times what is mapped ({})",
        times(headroom.space_over_mapped),
        bytes_text(report.mapped_bytes)
    );
    if let Some(bytes) = headroom.bytes_at_area_limit {
        text += &format!(
            "; with areas of the present mean size, their limit is reached at {}",
            bytes_text(bytes)
        );
    }
    look.hanging("  Headroom: ", 4, &sentence(&text))
}

/// Writes a ratio with three figures.
fn times(ratio: f64) -> String {
    match ratio {
        r if r < 10.0 => format!("{r:.2}"),
        r if r < 100.0 => format!("{r:.1}"),
        r => format!("{r:.0}"),
    }
}

fn neighbours(report: &ProcessReport, top: usize, look: Look) -> Option<String> {
    let neighbours = &report.neighbours;
    if neighbours.pairs == 0 {
        return None;
    }
    let mut out = super::neighbours(report, top).without(EXAMPLE).text("", look);
    for group in neighbours.groups.iter().take(3) {
        if let Some(example) = group.examples.first() {
            let text = format!("{}, below it {}", example.above, example.below);
            let lead = format!("  {}, at {:#x}: ", group.blocker.name(), example.at);
            out += &look.hanging(&lead, 4, &text);
        }
    }
    Some(out)
}

fn replay(report: &ProcessReport, look: Look) -> Option<String> {
    let (replay, table) = (&report.replay, placements(report)?);
    let text = format!(
        "{} placed anew in the order of address, from the {}; {} kept in place. maps does not tell in which \
         order they were made, nor what was unmapped since, so this is what each placement makes of the \
         mappings that have survived",
        plural(replay.pieces as u64, "mapping was", "mappings were"),
        if report.space.direction == "up" { "bottom" } else { "top" },
        plural(replay.fixed_areas as u64, "area was", "areas were"),
    );
    let columns = "holes lie between the mappings (open space is none); ratio is mappings with those \
                   holes over mappings alone; 2 MiB whole is the share of the huge pages that anonymous \
                   memory could hold, had it been aligned";
    let mut out = table.text("", look)
        + &look.wrapped("Note: ", &sentence(&text))
        + &look.wrapped("Note: ", &sentence(columns));
    if !replay.left_out.is_empty() {
        let text = format!(
            "{}: they walk from area to area, so that the time grows with the square of the number of \
             mappings; ask for them with --replay all",
            replay.left_out.join(", ")
        );
        out += &look.wrapped("Left out: ", &sentence(&text));
    }
    Some(out)
}

/// Says which statements of the report are inferred, and what no file shows.
fn caveats(report: &ProcessReport, look: Look) -> String {
    let smaps = "that two touched neighbours have reverse maps (anon_vma) of their own is inferred: \
                 no file shows them, nor memory policies, userfaultfd contexts, close hooks and \
                 offsets after mremap; what they keep apart counts as not-shown";
    let maps = "from maps alone only access, sharing, file, offset and name of neighbours can be \
                compared; what else keeps them apart counts as not-shown";
    let blockers = match report.process.file {
        MapsFile::Smaps => smaps,
        MapsFile::Maps => maps,
    };
    let holes = "the largest mapping leaves the guard gap below the stack (256 pages by default) free; \
                 holes include it";
    [blockers, holes].iter().map(|note| look.wrapped("Note: ", &sentence(note))).collect()
}
