//! What is drawn.
//!
//! From top to bottom: what is watched and what that costs, the zones, the course of the blocks that are followed, then
//! what the kernel counts beside what fragments as well, and the keys. What does not fit is left out from below, so
//! that a small terminal keeps what matters most.

use nofrag_host::watch::page::Page;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::bar;
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table, Wrap};

use super::keys::SHOWN;
use super::rows::{self, Rows, Tone};
use super::{Looking, Shown, View};
use crate::host::look::Glyphs;

const KEYS: &str = "q quit  space pause  +/- rate  left/right order  t types  h help";

/// The levels of a bar where no block elements can be shown.
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

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, view: &View) {
    let keys_height = u16::from(frame.area().height > 2);
    let rows = [Constraint::Length(1), Constraint::Fill(1), Constraint::Length(keys_height)];
    let [top, middle, bottom] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(heading(view), top);
    match view.shown {
        Shown::Help => frame.render_widget(help(&view.page), middle),
        Shown::Host => host(frame, view, middle),
    }
    let keys = view.note.as_deref().unwrap_or(KEYS);
    frame.render_widget(Line::styled(keys, Style::new().add_modifier(Modifier::DIM)), bottom);
}

fn heading(view: &View) -> Line<'_> {
    let mut text =
        format!("nofrag top: {}, every {} s", rows::heading(&view.page), view.every.as_secs_f64());
    if view.looking == Looking::Paused {
        text += ", paused";
    }
    Line::styled(text, bold())
}

fn host(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let page = &view.page;
    let zones = rows::zones(page);
    let lines = lines_below(view);
    let [table, chart, below, rest] = Layout::vertical([
        Constraint::Length(zones.rows.len() as u16 + 3),
        Constraint::Length(if area.height >= 30 { 7 } else { 4 }),
        Constraint::Length(lines.lines.len() as u16 + 1),
        Constraint::Fill(1),
    ])
    .areas(area);
    frame.render_widget(as_table(&zones, view), table);
    course(frame, view, chart);
    frame.render_widget(Paragraph::new(lines), below);
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(58), Constraint::Fill(1)]).areas(rest);
    let rates = rows::rates(page);
    let height = rates.rows.len() as u16 + 3;
    let maps = rows::maps(page);
    match rows::events(page) {
        // What happens now matters more than what is counted anyway, and what grows slowly.
        Some(events) => {
            frame.render_widget(as_table(&events, view), left);
            let [upper, lower] =
                Layout::vertical([Constraint::Length(height), Constraint::Fill(1)]).areas(right);
            frame.render_widget(as_table(&rates, view), upper);
            render(frame, maps, view, lower);
        }
        None => {
            frame.render_widget(as_table(&rates, view), left);
            render(frame, maps, view, right);
        }
    }
}

fn render(frame: &mut Frame<'_>, rows: Option<Rows>, view: &View, area: Rect) {
    if let Some(rows) = rows {
        frame.render_widget(as_table(&rows, view), area);
    }
}

/// How the blocks of the order that is followed became more and fewer.
fn course(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let (title, tone) = rows::followed(&view.page);
    let [top, bars] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Line::styled(title, style(tone, view).add_modifier(Modifier::BOLD)), top);
    let newest = view.course.len().saturating_sub(usize::from(bars.width));
    let set = match view.glyphs {
        Glyphs::Unicode => bar::NINE_LEVELS,
        Glyphs::Ascii => ASCII_BARS,
    };
    frame.render_widget(Sparkline::default().data(&view.course[newest..]).bar_set(set), bars);
}

/// The lines between the course and the tables.
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

fn as_table<'a>(rows: &'a Rows, view: &View) -> Table<'a> {
    let cell = |(index, text): (usize, &'a String)| {
        let alignment = if index == 0 { Alignment::Left } else { Alignment::Right };
        Cell::from(Text::from(text.as_str()).alignment(alignment))
    };
    let row = |cells: &'a [String]| Row::new(cells.iter().enumerate().map(cell));
    let body = rows.rows.iter().map(|(cells, tone)| row(cells).style(style(*tone, view)));
    let widths = rows.widths().into_iter().map(Constraint::Length);
    let header = row(&rows.header).style(Style::new().add_modifier(Modifier::UNDERLINED));
    let block = ratatui::widgets::Block::new().title(Line::styled(rows.title.as_str(), bold()));
    Table::new(body, widths).header(header).block(block).column_spacing(1)
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
        Tone::Plain => return Style::new(),
        Tone::Warning => Color::Yellow,
        Tone::Bad => Color::Red,
    };
    match view.colours {
        super::Colours::Used => Style::new().fg(color),
        super::Colours::None => bold(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nofrag_host::snapshot::Files;
    use nofrag_host::watch::{History, Look};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::Colours;
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
        let look = Look { files, ..Look::default() };
        let mut history = History::new(10);
        history.push(Duration::from_secs(1), Duration::ZERO, &look.snapshot());
        View {
            page: Page::of(&look, &history, None, 9, 8),
            course: vec![0, 5, u64::MAX],
            every: Duration::from_secs(1),
            shown: Shown::Host,
            looking: Looking::Paused,
            glyphs: Glyphs::Ascii,
            colours: Colours::Used,
            note: None,
        }
    }

    /// Whatever the size, and however many zones: nothing panics, and the first line stays.
    #[test]
    fn every_size_is_drawn() {
        for zones in [0, 2, 300] {
            let mut view = view(zones);
            for (width, height) in
                [(1, 1), (1, 60), (200, 1), (20, 5), (80, 24), (300, 100), (79, 2), (3, 3)]
            {
                for shown in [Shown::Host, Shown::Help] {
                    view.shown = shown;
                    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
                    terminal.draw(|frame| draw(frame, &view)).unwrap();
                    let first = &terminal.backend().buffer()[(0, 0)];
                    assert_eq!(first.symbol(), "n", "{width} x {height}");
                }
            }
        }
    }
}
