//! The report of `nofrag host maps` as text for people.

use std::path::Path;

use nofrag_host::finding::bytes_text;
use nofrag_host::process::finding::{duration_text, reason};
use nofrag_host::process::growth::Growth;
use nofrag_host::process::ranking::Ranking;
use nofrag_host::process::replay::{Outcome, Replay};
use nofrag_host::process::room::StoppedBy;
use nofrag_host::process::{Group, Report, Space};
use nofrag_host::source::process::MapsFile;

use crate::host::text::{self, Numbers, hanging, percent, plural, sentence, wrapped};
use nofrag_show::Look;

/// The whole page.
pub(super) fn page(report: &Report, path: &Path, top: usize, look: Look) -> String {
    let mut sections = vec![heading(report, path, look), count(report, look)];
    sections.push(groups("kind", &report.kinds, report, usize::MAX) + &no_access(report, look));
    sections.push(groups("name", &report.names, report, top));
    sections.push(space(report, look));
    sections.extend(neighbours(report, top, look));
    sections.extend(replay(&report.replay, report, look));
    sections.push(caveats(report, look));
    sections.extend(text::missing(&report.missing, look));
    sections.push(text::findings(&report.findings, look));
    sections.join("\n")
}

fn heading(report: &Report, path: &Path, look: Look) -> String {
    let process = &report.process;
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "(unknown)".to_owned());
    let pid = process.pid.map_or("(unknown)".to_owned(), |pid| pid.to_string());
    let threads =
        process.threads.map_or(String::new(), |n| format!(", {}", plural(n, "thread", "threads")));
    let title = format!(
        "Process {pid} ({}){threads}; Linux {} {}",
        known(&process.name),
        known(&process.release),
        known(&process.arch)
    );
    let read = format!(
        "{}: {} in {}, pages of {}",
        path.display(),
        plural(report.count.areas, "area", "areas"),
        bytes_text(process.file_bytes),
        bytes_text(process.page_bytes),
    );
    wrapped("", &title, look) + &wrapped("", &read, look)
}

fn count(report: &Report, look: Look) -> String {
    let count = &report.count;
    let text = match (count.limit, count.left) {
        (Some(limit), Some(left)) => format!(
            "{} of the {limit} that vm.max_map_count allows ({}), {left} left; {} have three pages or \
             more, so that munmap of a part may need another area",
            count.areas,
            percent(count.areas, limit),
            count.can_be_split,
        ),
        _ => format!("{}, limit unknown", count.areas),
    };
    let growth = report.growth.as_ref().map(|growth| self::growth(growth, look));
    wrapped("Areas: ", &sentence(&text), look) + &growth.unwrap_or_default()
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
    wrapped("Growth: ", &sentence(&text), look)
}

fn groups(what: &str, groups: &[Group], report: &Report, top: usize) -> String {
    let mut table = Numbers::new(&[what, "areas", "share", "bytes"]);
    let listed: u64 = report.kinds.iter().map(|group| group.areas).sum();
    let mut row = |name: String, areas: u64, bytes: u64| {
        table.row(vec![name, areas.to_string(), percent(areas, listed), bytes_text(bytes)]);
    };
    let shown = groups.len().min(top);
    for group in &groups[..shown] {
        row(shortened(&group.name), group.areas, group.bytes);
    }
    let rest = &groups[shown..];
    if !rest.is_empty() {
        let name = format!("({})", plural(rest.len() as u64, "other", "others"));
        let areas = rest.iter().map(|group| group.areas).sum();
        row(name, areas, rest.iter().map(|group| group.bytes).sum());
    }
    table.text()
}

/// The end of a long name, which says more than its beginning.
fn shortened(name: &str) -> String {
    const COLUMNS: usize = 44;
    match name.chars().count().checked_sub(COLUMNS) {
        None | Some(0) => name.to_owned(),
        Some(over) => format!("..{}", name.chars().skip(over + 2).collect::<String>()),
    }
}

fn no_access(report: &Report, look: Look) -> String {
    let sums = report.no_access;
    if sums.areas == 0 {
        return String::new();
    }
    let text = format!(
        "{} ({}) with {} ({} of what is mapped), of them {} of up to 1 MiB beside usable memory with {}: guards",
        plural(sums.areas, "area", "areas"),
        percent(sums.areas, report.count.areas),
        bytes_text(sums.bytes),
        percent(sums.bytes, report.mapped_bytes),
        sums.guard_areas,
        bytes_text(sums.guard_bytes),
    );
    wrapped("Without access: ", &sentence(&text), look)
}

fn space(report: &Report, look: Look) -> String {
    let space = &report.space;
    let place = format!(
        "{:#018x}..{:#018x}, {}",
        space.start,
        space.end,
        bytes_text(space.end - space.start)
    );
    let mut out = hanging("Address space: ", 2, &place, look);
    let end = format!("{} ({})", space.certainty.word(), space.why);
    out += &wrapped("  end ", &end, look);
    let direction = format!("{} ({})", space.direction, space.direction_why);
    out += &wrapped("  placed ", &direction, look);
    out += &text::hole_map(|cells| space.draw(cells), "without access", look);
    out += &holes(space);
    out += &headroom(report, look);
    out
}

fn holes(space: &Space) -> String {
    let room = &space.room;
    let mut table = Numbers::new(&["  hole size", "holes", "bytes"]);
    for class in &room.classes {
        let name = format!("  from {}", bytes_text(class.from_bytes));
        table.row(vec![name, class.holes.to_string(), bytes_text(class.bytes)]);
    }
    table.row(vec!["  all".to_owned(), room.holes.to_string(), bytes_text(room.free_bytes)]);
    let mut largest = Numbers::new(&["  largest hole", "bytes"]);
    for aligned in &room.largest_by_align {
        let size = match aligned.largest_area_bytes {
            0 => "none".to_owned(),
            bytes => bytes_text(bytes),
        };
        largest.row(vec![format!("  aligned to {}", bytes_text(aligned.align_bytes)), size]);
    }
    table.text() + &largest.text()
}

fn headroom(report: &Report, look: Look) -> String {
    let headroom = &report.space.headroom;
    let by = match headroom.stopped_by {
        StoppedBy::Holes => "no hole is larger",
        StoppedBy::AddressSpaceLimit => "RLIMIT_AS allows no more",
        StoppedBy::AreaLimit => "the limit of areas is exceeded",
    };
    let size = headroom.largest_mapping_bytes;
    let mapping = format!("{} ({size} bytes; {by})", bytes_text(size));
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
    hanging("  Largest mapping that would succeed now: ", 4, &mapping, look)
        + &hanging("  Headroom: ", 4, &sentence(&text), look)
}

/// A ratio with three figures.
fn times(ratio: f64) -> String {
    match ratio {
        r if r < 10.0 => format!("{r:.2}"),
        r if r < 100.0 => format!("{r:.1}"),
        r => format!("{r:.0}"),
    }
}

fn neighbours(report: &Report, top: usize, look: Look) -> Option<String> {
    let neighbours = &report.neighbours;
    if neighbours.pairs == 0 {
        return None;
    }
    let mut table = Numbers::new(&["neighbours stay apart by", "pairs", "share"]);
    let shown = neighbours.groups.len().min(top);
    for group in &neighbours.groups[..shown] {
        let share = percent(group.pairs, neighbours.pairs);
        table.row(vec![reason(group), group.pairs.to_string(), share]);
    }
    let rest: u64 = neighbours.groups[shown..].iter().map(|group| group.pairs).sum();
    if rest > 0 {
        let others = neighbours.groups.len() - shown;
        let name = format!("({})", plural(others as u64, "other", "others"));
        table.row(vec![name, rest.to_string(), percent(rest, neighbours.pairs)]);
    }
    table.row(vec!["all".to_owned(), neighbours.pairs.to_string(), String::new()]);
    let mut out = table.text();
    for group in neighbours.groups.iter().take(3) {
        if let Some(example) = group.examples.first() {
            let text = format!("{}, below it {}", example.above, example.below);
            let lead = format!("  {}, at {:#x}: ", group.blocker.name(), example.at);
            out += &hanging(&lead, 4, &text, look);
        }
    }
    Some(out)
}

fn replay(replay: &Replay, report: &Report, look: Look) -> Option<String> {
    if replay.placements.is_empty() {
        return None;
    }
    let mut table = Numbers::new(&[
        "the same mappings",
        "areas",
        "holes",
        "bytes",
        "ratio",
        "largest hole",
        "2 MiB whole",
    ]);
    table.row(outcome_row("as they are", &replay.now));
    for placed in &replay.placements {
        let mut row = outcome_row(placed.name, &placed.outcome);
        if placed.failures > 0 {
            row[0] += &format!(" ({} found no place)", placed.failures);
        }
        table.row(row);
    }
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
    let mut out = table.text()
        + &wrapped("Note: ", &sentence(&text), look)
        + &wrapped("Note: ", &sentence(columns), look);
    if !replay.left_out.is_empty() {
        let text = format!(
            "{}: they walk from area to area, so that the time grows with the square of the number of \
             mappings; ask for them with --replay all",
            replay.left_out.join(", ")
        );
        out += &wrapped("Left out: ", &sentence(&text), look);
    }
    Some(out)
}

fn outcome_row(name: &str, outcome: &Outcome) -> Vec<String> {
    let share = |share: f64| format!("{:.1} %", share * 100.0);
    vec![
        name.to_owned(),
        outcome.areas.to_string(),
        outcome.holes.to_string(),
        bytes_text(outcome.hole_bytes),
        format!("{:.3}", outcome.ratio),
        bytes_text(outcome.largest_hole_bytes),
        outcome.huge_share.map_or("-".to_owned(), share),
    ]
}

/// What the figures do not say.
fn caveats(report: &Report, look: Look) -> String {
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
    [blockers, holes].iter().map(|note| wrapped("Note: ", &sentence(note), look)).collect()
}

/// The page of `--all`.
pub(super) fn ranking(ranking: &Ranking, top: usize, look: Look) -> String {
    let limit = match ranking.limit {
        Some(limit) => format!("vm.max_map_count allows {limit} areas in each process."),
        None => "vm.max_map_count is not known.".to_owned(),
    };
    let mut table = Numbers::new(&["process", "pid", "areas", "of limit"]);
    let shown = ranking.processes.len().min(top);
    for process in &ranking.processes[..shown] {
        let name = process.name.clone().unwrap_or_else(|| "(unknown)".to_owned());
        let share = ranking.limit.map_or("-".to_owned(), |limit| percent(process.areas, limit));
        table.row(vec![name, process.pid.to_string(), process.areas.to_string(), share]);
    }
    let others = ranking.processes.len() - shown;
    let rest = format!(
        "{} more with fewer areas (--top shows more); {} without an address space; {} that only their \
         owner or root may see",
        others, ranking.without_areas, ranking.denied
    );
    let mut sections = vec![wrapped("", &limit, look), table.text()];
    sections.push(wrapped("", &sentence(&rest), look));
    sections.extend(text::missing(&ranking.missing, look));
    sections.join("\n")
}
