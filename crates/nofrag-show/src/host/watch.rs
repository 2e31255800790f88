//! `nofrag top`: a host under observation, as rows of text, the same on the screen and in the output of `--once`.

use nofrag_host::process::ranking::NEAR;
use nofrag_host::trace::type_name;
use nofrag_host::watch::page::{Level, Page};

use super::grid::in_text;
use super::machine::{boosted, thousandths};
use super::vmalloc::in_areas;
use super::{parts, ranking};
use crate::{Cell, Look, Tone, bytes, bytes_text, cells, duration_text, numbers, sentence};

/// Returns the observations as text.
#[must_use]
pub fn text(page: &Page, look: Look) -> String {
    let verdict = verdict(page).map_or_else(String::new, |(text, _)| look.hanging("", 2, &text));
    let mut text = heading(page) + "\n" + &verdict + "\n" + &zones(page).text(look) + "\n";
    let lines = [Some(followed(page).0), pageblocks(page), vmalloc(page).map(|(text, _)| text)];
    for line in lines.iter().flatten() {
        text += &look.wrapped("", &sentence(line));
    }
    let tables = [Some(rates(page)), events(page), maps(page)];
    for table in tables.iter().flatten().filter(|table| !table.rows.is_empty()) {
        text += "\n";
        text += &table.text(look);
    }
    let missing = missing(page);
    if !missing.is_empty() {
        text += "\nMissing\n";
    }
    for line in missing {
        text += &look.wrapped("  ", &sentence(&line));
    }
    text
}

/// A table of texts and numbers on a screen.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    pub title: String,
    /// Headings; the first column is text, the others are numbers.
    pub header: Vec<String>,
    pub rows: Vec<(Vec<String>, Tone)>,
    /// Rank of each column where not all fit, and its order within the rank; the first column is always shown.
    ranks: Vec<(Rank, usize)>,
}

/// The importance of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Low,
    Middle,
    High,
}

/// A column as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Place of the column in the table.
    pub index: usize,
    pub width: u16,
}

/// Number of characters between two columns.
pub const GAP: u16 = 1;

/// The least width of the first column, which is text and may lose its end.
const LEAST_TEXT: u16 = 12;

impl Rows {
    fn new(title: impl Into<String>, header: &[&str]) -> Rows {
        let header: Vec<String> = header.iter().map(|&word| word.to_owned()).collect();
        // Of two columns of one rank the left one matters more.
        let ranks = (0..header.len()).map(|index| (Rank::Middle, usize::MAX - index)).collect();
        Rows { title: title.into(), header, rows: Vec::new(), ranks }
    }

    fn row(&mut self, tone: Tone, cells: Vec<Cell>) {
        self.rows.push((cells.iter().map(in_text).collect(), tone));
    }

    fn text(&self, look: Look) -> String {
        let rows: Vec<_> = self.rows.iter().map(|(cells, _)| cells.clone()).collect();
        format!("{}\n{}", self.title, numbers(&self.header, &rows, look))
    }

    /// Returns the columns for a screen of this width. A number is shown whole or not at all: half of one would be
    /// another.
    #[must_use]
    pub fn fitted(&self, width: u16) -> Vec<Column> {
        let widths = self.widths();
        let Some(&text) = widths.first() else { return Vec::new() };
        let mut shown: Vec<usize> = (1..widths.len()).collect();
        let numbers = |shown: &[usize]| -> u16 {
            let each = shown.iter().map(|&index| widths[index].saturating_add(GAP));
            each.fold(0, u16::saturating_add)
        };
        while numbers(&shown).saturating_add(text.min(LEAST_TEXT)) > width {
            let least = (0..shown.len()).min_by_key(|&at| self.ranks[shown[at]]);
            let Some(least) = least else { break };
            shown.remove(least);
        }
        let first = Column { index: 0, width: text.min(width.saturating_sub(numbers(&shown))) };
        let rest = shown.into_iter().map(|index| Column { index, width: widths[index] });
        std::iter::once(first).chain(rest).collect()
    }

    /// Returns the width of the widest cell of each column.
    fn widths(&self) -> Vec<u16> {
        let cells = |column: usize| {
            let rows = self.rows.iter().filter_map(move |(cells, _)| cells.get(column));
            rows.chain(self.header.get(column)).map(|cell| cell.chars().count())
        };
        let widest = |column| cells(column).max().unwrap_or(0);
        (0..self.header.len())
            .map(|column| u16::try_from(widest(column)).unwrap_or(u16::MAX))
            .collect()
    }
}

/// Returns the kernel, the time of observation, and its cost.
fn heading(page: &Page) -> String {
    let release = release(page).map_or(String::new(), |text| format!("{text}, "));
    format!("{release}{}, {}", watched(page), cost(page))
}

/// Returns the name and release of the kernel.
#[must_use]
pub fn release(page: &Page) -> Option<String> {
    page.release.as_deref().map(|text| format!("Linux {text}"))
}

/// Says for how long the host has been watched.
#[must_use]
pub fn watched(page: &Page) -> String {
    format!("watched {}", duration_text(page.seconds))
}

/// Says what share of a core the observation takes.
#[must_use]
pub fn cost(page: &Page) -> String {
    match page.cost_share {
        Some(share) => format!("cost {:.2} % of a core", share * 100.0),
        None => "cost not known yet".to_owned(),
    }
}

/// Returns the verdict in a line with its tone.
#[must_use]
pub fn verdict(page: &Page) -> Option<(String, Tone)> {
    page.verdict.as_ref().map(|verdict| {
        let (text, tone) = parts::verdict_line(verdict);
        (sentence(&text), tone)
    })
}

/// Returns the zones, each with the blocks of its free memory.
pub fn zones(page: &Page) -> Rows {
    use Rank::{High, Low, Middle};

    let orders = page.zones.iter().map(|zone| zone.blocks.len()).max().unwrap_or(0);
    let several = page.zones.iter().any(|zone| zone.zone.node != 0);
    let (unusable, index) = (format!("unusable@{}", page.order), format!("index@{}", page.order));
    let mut rows = Rows::new(
        "Zones: free blocks by order",
        &["zone", "free", "of", "watermarks", "boost", &unusable, &index],
    );
    rows.header.extend((0..orders).map(|order| order.to_string()));
    // Where the columns do not all fit: first the order that fails now, then the large blocks, from which small ones
    // can be cut.
    let followed = page.order as usize;
    for (rank, matters) in rows.ranks.iter_mut().zip([Middle, High, Low, Middle, Low, High, High]) {
        rank.0 = matters;
    }
    let of = |order| (if order >= followed { High } else { Middle }, order);
    rows.ranks.extend((0..orders).map(of));
    for zone in &page.zones {
        let name = if several { zone.zone.to_string() } else { zone.zone.name.clone() };
        let mut cells = cells![
            name,
            bytes(zone.free_bytes),
            bytes(zone.managed_bytes),
            zone.level.into_str(),
            boosted(zone.boost_bytes),
            zone.unusable.map(|value| thousandths(value as f64)),
            zone.fragmentation.map(|value| thousandths(value as f64)),
        ];
        cells.extend(zone.blocks.iter().map(|&blocks| Cell::from(blocks)));
        let tone = match zone.level {
            Level::BelowMin => Tone::Bad,
            Level::BelowLow => Tone::Warning,
            _ if zone.boost_bytes.is_some_and(|bytes| bytes > 0) => Tone::Warning,
            _ => Tone::Plain,
        };
        rows.row(tone, cells);
    }
    rows
}

/// Says how many blocks of the followed order there are, and when there would be none, with the tone of that news.
pub fn followed(page: &Page) -> (String, Tone) {
    let bytes = page.page_bytes.saturating_mul(1 << page.order.min(40));
    if let Some(most) = page.most_order().filter(|&most| most < page.order) {
        let size = bytes_text(bytes);
        let text =
            format!("Order {} ({size}): this kernel keeps no block above order {most}", page.order);
        return (text, Tone::Plain);
    }
    let mut text =
        format!("Order {} ({}): {} obtainable", page.order, bytes_text(bytes), page.obtainable);
    let mut tone = if page.obtainable == 0 { Tone::Bad } else { Tone::Plain };
    if let Some(forecast) = page.forecast {
        const SOON_SECONDS: f64 = 3600.0;
        match forecast.seconds_to_none.filter(|_| page.obtainable > 0) {
            Some(seconds) => {
                text += &format!(
                    ", {:.2} fewer a second: none left in {} if it goes on like in the last {}",
                    -forecast.per_second,
                    duration_text(seconds),
                    duration_text(forecast.over_seconds)
                );
                if seconds < SOON_SECONDS {
                    tone = tone.max(Tone::Warning);
                }
            }
            None => {
                text += &format!(", not fewer than {} ago", duration_text(forecast.over_seconds))
            }
        }
    }
    (text, tone)
}

/// Returns the kernel's counters with their rates.
pub fn rates(page: &Page) -> Rows {
    let mut rows = Rows::new("Counted by the kernel", &["", "per second", "since boot"]);
    for rate in &page.rates {
        rows.row(Tone::Plain, cells![rate.counts, per_second(rate.per_second), rate.total]);
    }
    rows
}

/// Returns the counted events; `None` where tracing was not asked for.
pub fn events(page: &Page) -> Option<Rows> {
    let events = page.events.as_ref()?;
    let mut title = "Events".to_owned();
    if events.lost > 0 {
        title += &format!(" ({} lost: larger buffers with --buffer-kib)", events.lost);
    }
    let mut rows = Rows::new(title, &["", "per second", "since the start"]);
    for kind in events.kinds.iter().filter(|kind| kind.total > 0) {
        let name = format!("{}:{}", kind.group, kind.name);
        rows.row(Tone::Plain, cells![name, per_second(kind.per_second), kind.total]);
    }
    for count in &events.extfrag {
        let (wanted, taken) = (type_name(count.wanted), type_name(count.taken));
        let serious = format!("{} serious", count.serious);
        let tone = if count.serious > 0 { Tone::Warning } else { Tone::Plain };
        rows.row(tone, cells![format!("  {wanted} from {taken}"), serious, count.events]);
    }
    if rows.rows.is_empty() {
        rows.row(Tone::Plain, cells!["none yet", "", ""]);
    }
    Some(rows)
}

/// Describes the vmalloc space in a line with its tone; `None` where the space was not read.
pub fn vmalloc(page: &Page) -> Option<(String, Tone)> {
    let vmalloc = page.vmalloc?;
    let limit = vmalloc.lazy_limit_bytes;
    let of = limit.map_or(String::new(), |limit| format!(" of {}", bytes_text(limit)));
    let text = format!(
        "Vmalloc: {} in use, {}{of} freed but not purged ({})",
        in_areas(vmalloc.used_bytes, vmalloc.used_areas),
        bytes_text(vmalloc.lazy_bytes),
        ago(vmalloc.age_seconds)
    );
    let is_over = limit.is_some_and(|limit| vmalloc.lazy_bytes > limit.saturating_mul(2));
    Some((text, if is_over { Tone::Warning } else { Tone::Plain }))
}

/// Returns the processes with most areas; `None` where they were not read.
pub fn maps(page: &Page) -> Option<Rows> {
    let maps = page.maps.as_ref()?;
    let limit = maps.limit.map_or("an unknown limit".to_owned(), |limit| format!("{limit} each"));
    let processes = if maps.counted == 1 { "process" } else { "processes" };
    let title =
        format!("Areas of {} {processes}, of {limit} ({})", maps.counted, ago(maps.age_seconds));
    let mut rows = Rows::new(title, &["process", "pid", "areas", "share"]);
    for process in &maps.processes {
        let is_near = process.share.is_some_and(|share| share >= NEAR);
        rows.row(if is_near { Tone::Bad } else { Tone::Plain }, ranking::cells(process));
    }
    Some(rows)
}

/// Describes the pageblocks by type in a line, where they were read.
pub fn pageblocks(page: &Page) -> Option<String> {
    let types = page.pageblocks.iter().filter(|each| each.pageblocks > 0);
    let types: Vec<String> =
        types.map(|each| format!("{} {}", each.pageblocks, each.migratetype)).collect();
    let age = ago(page.pageblocks_age_seconds.unwrap_or(0.0));
    (!types.is_empty()).then(|| format!("Pageblocks: {} ({age})", types.join(", ")))
}

/// Lists the files that could not be read, and the cost of each lack.
pub fn missing(page: &Page) -> Vec<String> {
    let files = page.missing.iter().map(ToString::to_string);
    let events = page.events.iter().flat_map(|events| events.missing.iter().cloned());
    let gap = page.free_gap.filter(|gap| gap.matters()).map(|gap| {
        let size = |pages: u64| bytes_text(pages.saturating_mul(page.page_bytes));
        format!(
            "not all free memory is on the lists: they hold {}, MemFree says {}",
            size(gap.listed),
            size(gap.said)
        )
    });
    files.chain(events).chain(gap).collect()
}

fn ago(seconds: f64) -> String {
    if seconds < 1.0 { "now".to_owned() } else { format!("{} ago", duration_text(seconds)) }
}

fn per_second(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(rate) if rate == 0.0 || rate >= 100.0 => format!("{rate:.0}"),
        Some(rate) => format!("{rate:.1}"),
    }
}

/// Returns the courses of the blocks of all orders in numbers, the largest order first.
pub fn courses(courses: &[Vec<u64>]) -> Rows {
    let looks = courses.first().map_or(0, Vec::len);
    let title = format!("Obtainable blocks in the last {looks} looks, each order on its own scale");
    let mut rows = Rows::new(title, &["order", "now", "least", "most"]);
    for (order, course) in courses.iter().enumerate().rev() {
        let (least, most) = (course.iter().min(), course.iter().max());
        let cells = cells![order, course.last().copied(), least.copied(), most.copied()];
        rows.row(Tone::Plain, cells);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that no number loses digits (`cut_digits`): in 80 columns 20452 free blocks were shown as 0452.
    #[test]
    fn cut_digits() {
        let mut rows = Rows::new("", &["zone", "free", "index@9", "0", "1", "10"]);
        let cells = ["DMA32", "8.87 GiB", "0.57", "20452", "12958", "709"];
        rows.rows.push((cells.map(str::to_owned).to_vec(), Tone::Plain));
        let (low, middle, high) = ((Rank::Low, 0), (Rank::Middle, 0), (Rank::High, 0));
        rows.ranks = vec![middle, (Rank::High, 1), middle, low, (Rank::Low, 1), high];
        let shown = |width| -> Vec<&str> {
            rows.fitted(width).iter().map(|column| rows.header[column.index].as_str()).collect()
        };
        assert_eq!(shown(80), ["zone", "free", "index@9", "0", "1", "10"]);
        assert_eq!(shown(37), ["zone", "free", "index@9", "1", "10"]);
        assert_eq!(shown(26), ["zone", "free", "index@9", "10"]);
        assert_eq!(shown(20), ["zone", "free", "10"]);
        assert_eq!(shown(15), ["zone", "free"]);
        assert_eq!(shown(1), ["zone"]);
        for width in 0..90 {
            let columns = rows.fitted(width);
            let whole = columns[1..].iter().all(|it| it.width >= cells[it.index].len() as u16);
            let sum: u16 = columns.iter().map(|it| it.width + GAP).sum();
            assert!(whole && sum <= width + GAP, "{width}: {columns:?}");
        }
    }

    #[test]
    fn rates_for_people() {
        let shown = [None, Some(0.0), Some(0.25), Some(99.96), Some(12_345.6)].map(per_second);
        assert_eq!(shown, ["-", "0", "0.2", "100.0", "12346"]);
    }
}
