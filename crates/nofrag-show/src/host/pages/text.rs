//! The report of `nofrag host pages --all` as text for people.

use nofrag_host::machine::pageblocks::{LITTLE, MapCell, Pageblocks};
use nofrag_host::machine::pages::{Pages, ZonePages};
use nofrag_host::picture::Ink;

use super::{SLABS, free_blocks, heading, pages_that_stay, slabs, uses};
use crate::host::parts;
use crate::{Cell, Look, Table, bytes_text, cells, inked, inks, sentence};

/// Returns the report, zone by zone.
#[must_use]
pub fn text(pages: &Pages, look: Look) -> String {
    let (verdict, others) = parts::verdict_with(pages.verdict.as_ref(), &pages.findings, look);
    let heading = look.wrapped("", &heading(pages));
    let mut sections = vec![verdict, heading, parts::findings(others, look)];
    sections.extend(pages.zones.iter().map(|zone| section(zone, pages.host.page_bytes, look)));
    sections.extend(slabs(pages).map(|slabs| look.hanging(&format!("{SLABS}: "), 2, &slabs)));
    sections.extend(parts::missing(&pages.missing, look));
    sections.retain(|section| !section.is_empty());
    sections.join("\n")
}

fn section(zone: &ZonePages, page_bytes: u64, look: Look) -> String {
    let managed = zone.managed_pages.map(|pages| bytes_text(pages.saturating_mul(page_bytes)));
    let mut text = format!("{}: {}\n", zone.label, managed.as_deref().unwrap_or("of unknown size"));
    text += &free_blocks(zone, &zone.types).text("  ", look);
    if let Some(blocks) = &zone.pageblocks {
        text += &obtainable(blocks, look);
        text += &map(&blocks.map, look);
        text += &uses(blocks, page_bytes).text("  ", look);
        text += &pinned(blocks, look);
    }
    text
}

fn obtainable(blocks: &Pageblocks, look: Look) -> String {
    let perhaps = match blocks.perhaps_free {
        0 => String::new(),
        perhaps => format!(", {perhaps} perhaps by nothing but free pages on the lists of CPUs"),
    };
    let text = format!(
        "{} free, {} in use with nothing that stays, {} with something that stays ({} of them by at most one page in \
         {LITTLE}{perhaps}); whole at most {} after compaction, {} after page cache is dropped",
        blocks.free,
        blocks.movable,
        blocks.pinned,
        blocks.pinned_by_little,
        blocks.after_compaction,
        blocks.after_reclaim
    );
    look.hanging(&format!("  {} pageblocks: ", blocks.pageblocks), 4, &sentence(&text))
}

/// Draws the zone from its first pageblock to its last.
pub(super) fn map(cells: &[MapCell], look: Look) -> String {
    const INDENT: usize = 2;
    let width = look.width.saturating_sub(INDENT + 2).clamp(8, 64);
    let mut text = String::new();
    for row in cells.chunks(width) {
        let row: String = row.iter().map(|cell| glyph(cell, look)).collect();
        text += format!("  {row}").trim_end();
        text += "\n";
    }
    let [pinned, movable, free] = inks(look);
    let legend = format!(
        "from the first pageblock to the last: something stays {pinned} (from some to all of a piece), all can be \
         moved {movable}, free {free}"
    );
    text + &look.wrapped("  ", &legend)
}

/// Returns the character of a cell. Pinned pages go before movable ones: a few of them keep a whole piece from being
/// whole.
fn glyph(cell: &MapCell, look: Look) -> char {
    let all = cell.free + cell.movable + cell.pinned;
    match (cell.pinned, cell.movable) {
        (0, 0) if all == 0 => ' ',
        (0, part) => inked(Ink::Faint, part, all, look),
        (part, _) => inked(Ink::Solid, part, all, look),
    }
}

/// Returns a table of the pinned pageblocks by the number of pages that stay.
fn pinned(blocks: &Pageblocks, look: Look) -> String {
    if blocks.pinned_classes.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["pages that stay", "pageblocks", "share"]);
    for class in &blocks.pinned_classes {
        let share = Cell::share(class.pageblocks, blocks.pinned);
        table.row(cells![pages_that_stay(class), class.pageblocks, share]);
    }
    table.text("  ", look)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Glyphs;

    #[test]
    fn what_stays_does_not_vanish_from_the_map() {
        let ascii = Look { glyphs: Glyphs::Ascii, ..Look::FILE };
        let cell = |free, movable, pinned| MapCell { free, movable, pinned };
        let shown =
            [(9, 0, 0), (99, 0, 1), (0, 50, 50), (0, 0, 9), (99, 1, 0), (0, 9, 0), (0, 0, 0)]
                .map(|(free, movable, pinned)| glyph(&cell(free, movable, pinned), ascii));
        assert_eq!(shown.iter().collect::<String>(), ".-+#,% ");
    }
}
