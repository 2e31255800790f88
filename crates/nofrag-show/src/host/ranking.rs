//! The page of `nofrag host maps --all`: all processes by their areas.

use nofrag_host::process::ranking::{NEAR, Ranked, Ranking};

use super::count;
use super::vmalloc::{missing, part};
use crate::Origin;
use crate::Tone;
use crate::page::table::Table;
use crate::page::{Item, Page, Tile, Verdict};

/// More processes than this are left out: they are the farthest from the limit.
const MOST_ROWS: usize = 500;

/// The page of `ranking`.
#[must_use]
pub fn ranking(ranking: &Ranking, origin: &Origin) -> Page {
    let mut page = Page::new("Processes by their areas", origin);
    page.verdict = Some(verdict(ranking));
    page.tiles = tiles(ranking);
    let mut items = vec![table(ranking)];
    items.extend(missing(&ranking.missing));
    page.parts = vec![part("processes", "Nearest to vm.max_map_count first", origin, items)];
    page
}

fn name(process: &Ranked) -> String {
    process.name.clone().unwrap_or_else(|| "(unknown)".to_owned())
}

fn verdict(ranking: &Ranking) -> Verdict {
    match ranking.processes.first().filter(|_| ranking.warns()) {
        Some(first) => Verdict {
            tone: Tone::Bad,
            says: format!(
                "{} (process {}) has {} areas, {:.0} % or more of what vm.max_map_count allows.",
                name(first),
                first.pid,
                count(first.areas as f64),
                NEAR * 100.0
            ),
            advice: format!(
                "`nofrag host maps {}` says what keeps its areas apart; a larger vm.max_map_count makes room.",
                first.pid
            ),
        },
        None => Verdict {
            tone: Tone::Good,
            says: "No process is near the limit.".to_owned(),
            advice: format!("From {:.0} % of it on one would be named here.", NEAR * 100.0),
        },
    }
}

fn tiles(ranking: &Ranking) -> Vec<Tile> {
    let tile = |value: u64, what: &str| Tile {
        tone: Tone::Plain,
        value: count(value as f64),
        what: what.to_owned(),
    };
    let mut tiles: Vec<Tile> = ranking
        .limit
        .map(|limit| tile(limit, "areas that vm.max_map_count allows each"))
        .into_iter()
        .collect();
    tiles.push(tile(ranking.processes.len() as u64, "processes were counted"));
    tiles.push(tile(ranking.denied, "processes may not be looked into"));
    tiles
}

fn table(ranking: &Ranking) -> Item {
    let row = |process: &Ranked| {
        let share = process.share.map_or("-".to_owned(), |share| format!("{:.2} %", share * 100.0));
        vec![name(process), process.pid.to_string(), count(process.areas as f64), share]
    };
    let left_out = ranking.processes.len().saturating_sub(MOST_ROWS);
    let mut caption = "A row is one process.".to_owned();
    if left_out > 0 {
        caption += &format!(" {left_out} with fewer areas are left out.");
    }
    let header = ["process", "pid", "areas", "of the limit"].map(str::to_owned).to_vec();
    let rows = ranking.processes.iter().take(MOST_ROWS).map(row).collect();
    Item::Table(Table::of_texts("Processes".to_owned(), caption, 1, header, rows))
}
