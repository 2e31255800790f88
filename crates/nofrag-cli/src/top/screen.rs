//! The screen of `nofrag top`.
//!
//! From top to bottom: the heading with the cost of the observation, the zones, the course of the blocks of the
//! followed order, or, where there is room, of those of every order, then the kernel's counters beside fragmenting
//! events, areas and the like, and the keys. Parts that do not fit are left out from below, and a column as a whole, so
//! that a small terminal keeps the most important parts.

use nofrag_host::watch::page::{Page, Sorting};
use nofrag_show::host::watch::{self as rows, Column, GAP, Rows};
use nofrag_show::{Colour, Glyphs, Look, Tone};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::bar;
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table, Wrap};

use super::View;
use super::keys::SHOWN;

const KEYS: &str = "q quit  h help  space pause  +/- rate  left/right order  s sort  t types";

/// Rows below which only the followed order has a course.
const ROOMY: u16 = 42;

/// Width below which tables stand below each other.
const TWO_TABLES: u16 = 70;

/// Levels of a bar where no block elements can be shown.
const ASCII_BARS: bar::Set<'_> = bar::Set {
    full: "#",
    seven_eighths: "#",
    three_quarters: "+",
    five_eighths: "+",
    half: "=",
    three_eighths: "-",
    one_quarter: "-",
    one_eighth: ".",
    empty: " ",
};

/// Draws the whole screen from the view.
pub(super) fn draw(frame: &mut Frame<'_>, view: &View) {
    let keys_height = u16::from(frame.area().height > 2);
    let rows = [Constraint::Length(1), Constraint::Fill(1), Constraint::Length(keys_height)];
    let [top, middle, bottom] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(heading(view), top);
    match view.shows_help {
        true => frame.render_widget(help(&view.page), middle),
        false => host(frame, view, middle),
    }
    let keys = view.note.as_deref().unwrap_or(KEYS);
    frame.render_widget(Line::styled(keys, Style::new().add_modifier(Modifier::DIM)), bottom);
}

/// Returns the heading, with the most important part first: a narrow screen cuts the end.
fn heading(view: &View) -> Line<'_> {
    let paused = if view.is_paused { ", paused" } else { "" };
    let every = format!("every {} s", view.every.as_secs_f64());
    let sorted = Some(view.sorting).filter(|&sorting| sorting != Sorting::AsListed);
    let sorted = sorted.map(|sorting| sorting.into_str().to_owned());
    let parts =
        [Some(rows::cost(&view.page)), Some(every), sorted, Some(rows::watched(&view.page))];
    let parts: Vec<String> =
        parts.into_iter().chain([rows::release(&view.page)]).flatten().collect();
    Line::styled(format!("nofrag top{paused}: {}", parts.join(", ")), bold())
}

fn host(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let page = &view.page;
    let zones = rows::zones(page);
    let lines = lines_below(view);
    let verdict = verdict(view, area.width);
    let verdict_height = Constraint::Length(verdict.as_ref().map_or(0, |lines| lines.len() as u16));
    let [top, area] = Layout::vertical([verdict_height, Constraint::Fill(1)]).areas(area);
    frame.render_widget(Text::from(verdict.unwrap_or_default()), top);
    let chart_height = match area.height {
        ROOMY.. => view.courses.len() as u16 + 4,
        _ => 4,
    };
    let [table, chart, below, rest] = Layout::vertical([
        Constraint::Length(zones.rows.len() as u16 + 3),
        Constraint::Length(chart_height),
        Constraint::Length(lines.lines.len() as u16 + 1),
        Constraint::Fill(1),
    ])
    .areas(area);
    frame.render_widget(as_table(&zones, view, table.width), table);
    match area.height {
        ROOMY.. => courses(frame, view, chart),
        _ => course(frame, view, chart),
    }
    frame.render_widget(Paragraph::new(lines), below);
    let tables = tables_below(page);
    let height = |rows: &Rows| Constraint::Length(rows.rows.len() as u16 + 3);
    let [left, right] = if rest.width < TWO_TABLES {
        let first = tables[0].first().map_or(Constraint::Fill(1), height);
        Layout::vertical([first, Constraint::Fill(1)]).areas(rest)
    } else {
        let halves = [Constraint::Percentage(58), Constraint::Fill(1)];
        Layout::horizontal(halves).spacing(2).areas(rest)
    };
    for (tables, area) in tables.iter().zip([left, right]) {
        let areas = Layout::vertical(tables.iter().map(height)).split(area);
        for (rows, &area) in tables.iter().zip(areas.iter()) {
            frame.render_widget(as_table(rows, view, area.width), area);
        }
    }
}

/// Returns the verdict in lines of at most `width` columns; `None` where it is not known.
fn verdict(view: &View, width: u16) -> Option<Vec<Line<'static>>> {
    let (text, tone) = rows::verdict(&view.page)?;
    let look = Look { width: usize::from(width).max(20), ..view.look };
    let style = style(tone, view).add_modifier(Modifier::BOLD);
    Some(look.wrapped("", &text).lines().map(|line| Line::styled(line.to_owned(), style)).collect())
}

/// Returns the tables below, left and right. Present events matter more than counters that run anyway, and slow growth.
fn tables_below(page: &Page) -> [Vec<Rows>; 2] {
    let (rates, maps) = (rows::rates(page), rows::maps(page));
    match rows::events(page) {
        Some(events) => [vec![events], std::iter::once(rates).chain(maps).collect()],
        None => [vec![rates], maps.into_iter().collect()],
    }
}

/// Draws the course of the blocks of the followed order.
fn course(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let [top, bars] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(followed(view), top);
    let course = view.courses.get(view.page.order as usize);
    frame.render_widget(sparkline(view, course.map_or(&[], Vec::as_slice), bars.width), bars);
}

/// Draws the courses of every order, the largest first.
fn courses(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let [top, below] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(followed(view), top);
    let table = rows::courses(&view.courses);
    let taken: u16 = table.fitted(below.width).iter().map(|column| column.width + GAP).sum();
    frame.render_widget(as_table(&table, view, below.width), below);
    // Below the title and the headings, beside the numbers.
    let bars = Rect {
        x: below.x.saturating_add(taken),
        y: below.y.saturating_add(2),
        width: below.width.saturating_sub(taken),
        height: 1,
    };
    for (row, course) in (0..).zip(view.courses.iter().rev()) {
        let place = Rect { y: bars.y.saturating_add(row), ..bars }.intersection(below);
        frame.render_widget(sparkline(view, course, place.width), place);
    }
}

fn followed(view: &View) -> Line<'static> {
    let (title, tone) = rows::followed(&view.page);
    Line::styled(title, style(tone, view).add_modifier(Modifier::BOLD))
}

/// Draws the newest looks, as many as there is room for.
fn sparkline<'a>(view: &View, course: &'a [u64], width: u16) -> Sparkline<'a> {
    let newest = course.len().saturating_sub(usize::from(width));
    let set = match view.look.glyphs {
        Glyphs::Unicode => bar::NINE_LEVELS,
        Glyphs::Ascii => ASCII_BARS,
    };
    Sparkline::default().data(&course[newest..]).bar_set(set)
}

/// Returns the lines between the course and the tables.
fn lines_below(view: &View) -> Text<'static> {
    let page = &view.page;
    let mut lines = Vec::new();
    lines.extend(rows::pageblocks(page).map(Line::raw));
    let vmalloc = rows::vmalloc(page);
    lines.extend(vmalloc.map(|(text, tone)| Line::styled(text, style(tone, view))));
    let missing = rows::missing(page);
    if let Some(first) = missing.first() {
        let more = match missing.len() {
            1 => String::new(),
            count => format!(" (and {} more: h)", count - 1),
        };
        lines.push(Line::styled(format!("Missing{more}: {first}"), style(Tone::Warning, view)));
    }
    Text::from(lines)
}

fn as_table<'a>(rows: &'a Rows, view: &View, width: u16) -> Table<'a> {
    let columns = rows.fitted(width);
    let cell = |column: &Column, cells: &'a [String]| {
        let text = cells.get(column.index).map_or("", String::as_str);
        let alignment = if column.index == 0 { Alignment::Left } else { Alignment::Right };
        Cell::from(Text::from(text).alignment(alignment))
    };
    let row = |cells: &'a [String]| Row::new(columns.iter().map(|column| cell(column, cells)));
    let body: Vec<Row<'a>> =
        rows.rows.iter().map(|(cells, tone)| row(cells).style(style(*tone, view))).collect();
    let header = row(&rows.header).style(Style::new().add_modifier(Modifier::UNDERLINED));
    let widths = columns.iter().map(|column| Constraint::Length(column.width));
    let mut title = rows.title.clone();
    if columns.len() < rows.header.len() {
        title += ", as many as fit";
    }
    let block = Block::new().title(Line::styled(title, bold()));
    Table::new(body, widths).header(header).block(block).column_spacing(GAP)
}

fn help(page: &Page) -> Paragraph<'static> {
    let mut lines = vec![Line::styled("Keys", bold())];
    lines.extend(SHOWN.map(|(key, what)| Line::raw(format!("  {key:<6} {what}"))));
    let missing = rows::missing(page);
    if !missing.is_empty() {
        lines.push(Line::raw(""));
        lines.push(Line::styled("Missing", bold()));
        lines.extend(missing.into_iter().map(|line| Line::raw(format!("  {line}"))));
    }
    Paragraph::new(lines).wrap(Wrap { trim: false })
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn style(tone: Tone, view: &View) -> Style {
    let color = match tone {
        Tone::Plain | Tone::Good | Tone::Note => return Style::new(),
        Tone::Warning => Color::Yellow,
        Tone::Bad => Color::Red,
    };
    match view.look.colour {
        Colour::Ansi => Style::new().fg(color),
        Colour::None => bold(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nofrag_host::machine::verdict::Judge;
    use nofrag_host::snapshot::Files;
    use nofrag_host::watch::{self, History};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn view(zones: usize) -> View {
        let mut files = Files::default();
        let line = |zone| format!("Node {zone}, zone Normal 9999999999 0 0 0 0 0 0 0 0 0 7\n");
        files.insert("buddyinfo", (0..zones).map(line).collect::<String>().into_bytes());
        let zone = |zone| {
            format!(
                "Node {zone}, zone Normal\n  pages free 7\n    min 9\n    managed 99\n  start_pfn: 0\n"
            )
        };
        files.insert("zoneinfo", (0..zones).map(zone).collect::<String>().into_bytes());
        files.insert("vmstat", b"compact_stall 7\npgfree 18446744073709551615\n".to_vec());
        let mut look = watch::Look { files, ..watch::Look::default() };
        look.verdict = Judge::default().look(Duration::from_secs(1), &look.snapshot()).cloned();
        let mut history = History::new(10);
        history.push(Duration::from_secs(1), Duration::ZERO, &look.snapshot());
        View {
            page: Page::of(&look, &history, None, 9, 8),
            courses: vec![vec![0, 5, u64::MAX]; 11],
            every: Duration::from_secs(1),
            shows_help: false,
            is_paused: true,
            sorting: Sorting::AsListed,
            look: Look { glyphs: Glyphs::Ascii, colour: Colour::Ansi, ..Look::FILE },
            note: None,
        }
    }

    /// Checks that drawing panics at no size and with no number of zones, and that the first line stays.
    #[test]
    fn every_size_is_drawn() {
        for zones in [0, 2, 300] {
            let mut view = view(zones);
            for (width, height) in
                [(1, 1), (1, 60), (200, 1), (20, 5), (80, 24), (300, 100), (79, 2), (3, 3)]
            {
                for shows_help in [false, true] {
                    view.shows_help = shows_help;
                    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
                    terminal.draw(|frame| draw(frame, &view)).unwrap();
                    let first = &terminal.backend().buffer()[(0, 0)];
                    assert_eq!(first.symbol(), "n", "{width} x {height}");
                }
            }
        }
    }
}
