//! What is seen of a host as rows of text: the same on the screen and in the output of `--once`.

use nofrag_host::finding::bytes_text;
use nofrag_host::process::ranking::NEAR;
use nofrag_host::trace::type_name;
use nofrag_host::watch::page::{Level, Page};

/// How a row stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// Like any other.
    Plain,
    /// Something begins to be short.
    Warning,
    /// Something is short.
    Bad,
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rows {
    /// What it is about.
    pub(super) title: String,
    /// Its headings; the first column is text, the others are numbers.
    pub(super) header: Vec<String>,
    /// Its rows.
    pub(super) rows: Vec<(Vec<String>, Tone)>,
    /// How much each column matters where not all fit, and how much among those alike; the first is always there.
    ranks: Vec<(Rank, usize)>,
}

/// How much a column matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The first to go.
    Low,
    Middle,
    High,
}

/// A column as it is shown: which, and how wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) index: usize,
    pub(super) width: u16,
}

/// Between two columns.
pub(super) const GAP: u16 = 1;

/// The first column is text and may lose its end, but not more.
const LEAST_TEXT: u16 = 12;

impl Rows {
    fn new(title: impl Into<String>, header: &[&str]) -> Rows {
        let header: Vec<String> = header.iter().map(|&word| word.to_owned()).collect();
        // Of two that matter alike the left one does more.
        let ranks = (0..header.len()).map(|index| (Rank::Middle, usize::MAX - index)).collect();
        Rows { title: title.into(), header, rows: Vec::new(), ranks }
    }

    /// The columns for a screen of this width. A number is shown whole or not at all: half of one would be another.
    pub(super) fn fitted(&self, width: u16) -> Vec<Column> {
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

    /// The widest cell of each column.
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

/// What is watched, how long, and what that costs.
pub(super) fn heading(page: &Page) -> String {
    let release = release(page).map_or(String::new(), |text| format!("{text}, "));
    format!("{release}{}, {}", watched(page), cost(page))
}

pub(super) fn release(page: &Page) -> Option<String> {
    page.release.as_deref().map(|text| format!("Linux {text}"))
}

pub(super) fn watched(page: &Page) -> String {
    format!("watched {}", duration(page.seconds))
}

pub(super) fn cost(page: &Page) -> String {
    match page.cost_share {
        Some(share) => format!("cost {:.2} % of a core", share * 100.0),
        None => "cost not known yet".to_owned(),
    }
}

/// The zones, each with what its free memory is in.
pub(super) fn zones(page: &Page) -> Rows {
    use Rank::{High, Low, Middle};

    let orders = page.zones.iter().map(|zone| zone.blocks.len()).max().unwrap_or(0);
    let several = page.zones.iter().any(|zone| zone.zone.node != 0);
    let (unusable, index) = (format!("unusable@{}", page.order), format!("index@{}", page.order));
    let mut rows = Rows::new(
        "Zones: free blocks by order",
        &["zone", "free", "of", "watermarks", "boost", &unusable, &index],
    );
    rows.header.extend((0..orders).map(|order| order.to_string()));
    // Where they do not all fit: what fails now, then the large blocks, from which small ones can be cut.
    let followed = page.order as usize;
    for (rank, matters) in rows.ranks.iter_mut().zip([Middle, High, Low, Middle, Low, High, High]) {
        rank.0 = matters;
    }
    let of = |order| (if order >= followed { High } else { Middle }, order);
    rows.ranks.extend((0..orders).map(of));
    for zone in &page.zones {
        let name = if several { zone.zone.to_string() } else { zone.zone.name.clone() };
        let thousandths = |value: Option<f64>| {
            value.map_or("-".to_owned(), |value| format!("{:.2}", value / 1000.0))
        };
        let mut cells = vec![
            name,
            bytes_text(zone.free_bytes),
            bytes_text(zone.managed_bytes),
            zone.level.text().to_owned(),
            zone.boost_bytes.map_or("-".to_owned(), bytes_text),
            thousandths(zone.unusable.map(|value| value as f64)),
            thousandths(zone.fragmentation.map(|value| value as f64)),
        ];
        cells.extend(zone.blocks.iter().map(ToString::to_string));
        let tone = match zone.level {
            Level::BelowMin => Tone::Bad,
            Level::BelowLow => Tone::Warning,
            _ if zone.boost_bytes.is_some_and(|bytes| bytes > 0) => Tone::Warning,
            _ => Tone::Plain,
        };
        rows.rows.push((cells, tone));
    }
    rows
}

/// How many blocks of the order that is followed there are, and when there would be none.
pub(super) fn followed(page: &Page) -> (String, Tone) {
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
                    duration(seconds),
                    duration(forecast.over_seconds)
                );
                if seconds < SOON_SECONDS {
                    tone = tone.max(Tone::Warning);
                }
            }
            None => text += &format!(", not fewer than {} ago", duration(forecast.over_seconds)),
        }
    }
    (text, tone)
}

/// What the kernel counts.
pub(super) fn rates(page: &Page) -> Rows {
    let mut rows = Rows::new("Counted by the kernel", &["", "per second", "since boot"]);
    for rate in &page.rates {
        let cells =
            vec![rate.counts.to_owned(), per_second(rate.per_second), rate.total.to_string()];
        rows.rows.push((cells, Tone::Plain));
    }
    rows
}

/// The events that are counted; `None` where tracing was not asked for.
pub(super) fn events(page: &Page) -> Option<Rows> {
    let events = page.events.as_ref()?;
    let mut title = "Events".to_owned();
    if events.lost > 0 {
        title += &format!(" ({} lost: larger buffers with --buffer-kib)", events.lost);
    }
    let mut rows = Rows::new(title, &["", "per second", "since the start"]);
    for kind in events.kinds.iter().filter(|kind| kind.total > 0) {
        let cells = vec![
            format!("{}:{}", kind.group, kind.name),
            per_second(kind.per_second),
            kind.total.to_string(),
        ];
        rows.rows.push((cells, Tone::Plain));
    }
    for count in &events.extfrag {
        let (wanted, taken) = (type_name(count.wanted), type_name(count.taken));
        let serious = format!("{} serious", count.serious);
        let tone = if count.serious > 0 { Tone::Warning } else { Tone::Plain };
        let cells = vec![format!("  {wanted} from {taken}"), serious, count.events.to_string()];
        rows.rows.push((cells, tone));
    }
    if rows.rows.is_empty() {
        rows.rows.push((vec!["none yet".to_owned(), String::new(), String::new()], Tone::Plain));
    }
    Some(rows)
}

/// The vmalloc space in a line.
pub(super) fn vmalloc(page: &Page) -> Option<(String, Tone)> {
    let vmalloc = page.vmalloc?;
    let limit = vmalloc.lazy_limit_bytes;
    let of = limit.map_or(String::new(), |limit| format!(" of {}", bytes_text(limit)));
    let text = format!(
        "Vmalloc: {} in {} areas in use, {}{of} freed but not purged ({})",
        bytes_text(vmalloc.used_bytes),
        vmalloc.used_areas,
        bytes_text(vmalloc.lazy_bytes),
        ago(vmalloc.age_seconds)
    );
    let is_over = limit.is_some_and(|limit| vmalloc.lazy_bytes > limit.saturating_mul(2));
    Some((text, if is_over { Tone::Warning } else { Tone::Plain }))
}

/// The processes with most areas.
pub(super) fn maps(page: &Page) -> Option<Rows> {
    let maps = page.maps.as_ref()?;
    let limit = maps.limit.map_or("an unknown limit".to_owned(), |limit| format!("{limit} each"));
    let processes = if maps.counted == 1 { "process" } else { "processes" };
    let title =
        format!("Areas of {} {processes}, of {limit} ({})", maps.counted, ago(maps.age_seconds));
    let mut rows = Rows::new(title, &["process", "pid", "areas", "share"]);
    for process in &maps.processes {
        let share = process.share.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0));
        let tone =
            if process.share.is_some_and(|share| share >= NEAR) { Tone::Bad } else { Tone::Plain };
        let name = process.name.clone().unwrap_or_default();
        let cells = vec![name, process.pid.to_string(), process.areas.to_string(), share];
        rows.rows.push((cells, tone));
    }
    Some(rows)
}

/// The pageblocks by type in a line, where they were read.
pub(super) fn pageblocks(page: &Page) -> Option<String> {
    let types = page.pageblocks.iter().filter(|each| each.pageblocks > 0);
    let types: Vec<String> =
        types.map(|each| format!("{} {}", each.pageblocks, each.migratetype)).collect();
    let age = ago(page.pageblocks_age_seconds.unwrap_or(0.0));
    (!types.is_empty()).then(|| format!("Pageblocks: {} ({age})", types.join(", ")))
}

/// What could not be had, and what that costs.
pub(super) fn missing(page: &Page) -> Vec<String> {
    let files = page.missing.iter();
    let files = files.map(|each| format!("{}: {}; it costs {}", each.path, each.why, each.costs));
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
    if seconds < 1.0 { "now".to_owned() } else { format!("{} ago", duration(seconds)) }
}

fn per_second(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(rate) if rate == 0.0 || rate >= 100.0 => format!("{rate:.0}"),
        Some(rate) => format!("{rate:.1}"),
    }
}

/// A time for people: its largest unit, to a tenth where it is below ten.
fn duration(seconds: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(86_400.0, "days"), (3600.0, "h"), (60.0, "min")];
    // From two of a unit on it is used.
    let unit = UNITS.into_iter().find(|(length, _)| seconds >= 2.0 * length);
    let (length, name) = unit.unwrap_or((1.0, "s"));
    let value = seconds / length;
    if value < 10.0 && unit.is_some() {
        format!("{value:.1} {name}")
    } else {
        format!("{value:.0} {name}")
    }
}

impl Tone {
    fn max(self, other: Tone) -> Tone {
        if self == Tone::Bad { self } else { other }
    }
}

/// The courses of the blocks of all orders in numbers, the largest order first.
pub(super) fn courses(courses: &[Vec<u64>]) -> Rows {
    let looks = courses.first().map_or(0, Vec::len);
    let title = format!("Obtainable blocks in the last {looks} looks, each order on its own scale");
    let mut rows = Rows::new(title, &["order", "now", "least", "most"]);
    for (order, course) in courses.iter().enumerate().rev() {
        let number = |value: Option<&u64>| value.map_or("-".to_owned(), u64::to_string);
        let values = [course.last(), course.iter().min(), course.iter().max()].map(number);
        rows.rows.push(([vec![order.to_string()], values.to_vec()].concat(), Tone::Plain));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cut_digits`: in 80 columns 20452 free blocks were shown as 0452.
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
    fn times_for_people() {
        let expected = [
            (0.4, "0 s"),
            (59.6, "60 s"),
            (119.0, "119 s"),
            (150.0, "2.5 min"),
            (7300.0, "2.0 h"),
            (900_000.0, "10 days"),
        ];
        for (seconds, text) in expected {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn rates_for_people() {
        let shown = [None, Some(0.0), Some(0.25), Some(99.96), Some(12_345.6)].map(per_second);
        assert_eq!(shown, ["-", "0", "0.2", "100.0", "12346"]);
    }
}
