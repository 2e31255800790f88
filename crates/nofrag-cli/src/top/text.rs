//! The page of `nofrag top --once`.

use nofrag_host::watch::page::Page;

use super::rows::{self, Rows};
use crate::host::text::{Numbers, sentence, wrapped};
use nofrag_show::Look;

/// The whole page.
pub(super) fn page(page: &Page, look: Look) -> String {
    let mut text = rows::heading(page) + "\n\n";
    text += &table(&rows::zones(page));
    text += "\n";
    text += &wrapped("", &sentence(&rows::followed(page).0), look);
    if let Some(types) = rows::pageblocks(page) {
        text += &wrapped("", &sentence(&types), look);
    }
    if let Some((vmalloc, _)) = rows::vmalloc(page) {
        text += &wrapped("", &sentence(&vmalloc), look);
    }
    let tables = [Some(rows::rates(page)), rows::events(page), rows::maps(page)];
    for each in tables.iter().flatten().filter(|each| !each.rows.is_empty()) {
        text += "\n";
        text += &table(each);
    }
    let missing = rows::missing(page);
    if !missing.is_empty() {
        text += "\nMissing\n";
    }
    for line in missing {
        text += &wrapped("  ", &sentence(&line), look);
    }
    text
}

fn table(rows: &Rows) -> String {
    let header: Vec<&str> = rows.header.iter().map(String::as_str).collect();
    let mut table = Numbers::new(&header);
    for (cells, _) in &rows.rows {
        table.row(cells.clone());
    }
    format!("{}\n{}", rows.title, table.text())
}
