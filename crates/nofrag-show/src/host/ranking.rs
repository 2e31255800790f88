//! `nofrag host maps --all` without a PID: all processes by their areas.

use nofrag_host::process::ranking::{NEAR, Ranked, Ranking};

use super::parts::{self, known, missing_item, part, tile_of};
use crate::page::{Headline, Page};
use crate::{Cell, Look, Origin, Table, Tone, cells, count, percent, sentence};

/// The most processes on a page: the others are the farthest from the limit.
const MOST_ROWS: usize = 500;

/// Returns the cells of a process: its name, its PID, its areas, and their share of the limit.
pub(super) fn cells(process: &Ranked) -> Vec<Cell> {
    let Ranked { pid, name, areas, share } = process;
    let share = share.map(|share| percent(100.0 * share, 1));
    cells![known(name.as_ref()), pid.to_string(), *areas, share]
}

/// Returns a table of the processes in their order; `of_limit` is the heading of the last column.
pub(super) fn grid(processes: &[Ranked], of_limit: &str) -> Table {
    let mut grid = Table::new(&["process", "pid", "areas", of_limit]);
    processes.iter().for_each(|process| grid.row(cells(process)));
    grid
}

/// Returns the processes with most areas as text: `top` of them, or ten.
#[must_use]
pub fn text(ranking: &Ranking, top: Option<usize>, look: Look) -> String {
    let limit = match ranking.limit {
        Some(limit) => format!("vm.max_map_count allows {limit} areas in each process."),
        None => "vm.max_map_count is not known.".to_owned(),
    };
    let (shown, others) =
        ranking.processes.split_at(ranking.processes.len().min(top.unwrap_or(10)));
    let rest = format!(
        "{} more with fewer areas (--top shows more); {} without an address space; {} that only their owner or root \
         may see",
        others.len(),
        ranking.without_areas,
        ranking.denied
    );
    let mut sections = vec![look.wrapped("", &limit), grid(shown, "of limit").text("", look)];
    sections.push(look.wrapped("", &sentence(&rest)));
    sections.extend(parts::missing(&ranking.missing, look));
    sections.join("\n")
}

/// Returns the page of `ranking`.
#[must_use]
pub fn page(ranking: &Ranking, origin: &Origin) -> Page {
    let mut page = Page::new("Processes by their areas", origin);
    page.headline = Some(headline(ranking));
    let limit = ranking.limit.map(|it| tile_of(it, "areas that vm.max_map_count allows each"));
    page.tiles.extend(limit);
    page.tiles.push(tile_of(ranking.processes.len() as u64, "processes were counted"));
    page.tiles.push(tile_of(ranking.denied, "processes may not be looked into"));
    let (shown, others) = ranking.processes.split_at(ranking.processes.len().min(MOST_ROWS));
    let mut caption = "A row is one process.".to_owned();
    if !others.is_empty() {
        caption += &format!(" {} with fewer areas are left out.", others.len());
    }
    let table = grid(shown, "of the limit").item("Processes", caption);
    let items = table.into_iter().chain(missing_item(&ranking.missing)).collect();
    page.parts = vec![part("processes", "Nearest to vm.max_map_count first", origin, items)];
    page
}

fn headline(ranking: &Ranking) -> Headline {
    match ranking.processes.first().filter(|_| ranking.warns()) {
        Some(first) => Headline {
            tone: Tone::Bad,
            says: format!(
                "{} (process {}) has {} areas, {:.0} % or more of what vm.max_map_count allows.",
                known(first.name.as_ref()),
                first.pid,
                count(first.areas as f64),
                NEAR * 100.0
            ),
            advice: format!(
                "`nofrag host maps {}` says what keeps its areas apart; a larger vm.max_map_count makes room.",
                first.pid
            ),
        },
        None => Headline {
            tone: Tone::Good,
            says: "No process is near the limit.".to_owned(),
            advice: format!("From {:.0} % of it on one would be named here.", NEAR * 100.0),
        },
    }
}
