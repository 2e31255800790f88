//! A table as text: numbers stay numbers until they are read.

use nofrag_show::{Section, table_of, text};

fn main() {
    let rows = vec![vec!["first fit".to_owned(), "12".to_owned()]];
    let table = table_of("Holes", "A row is one design.", 1, &["design", "holes"], rows);
    let sections: Vec<Section> = table.into_iter().collect();
    println!("{}", text(&sections));
}
