//! Tables that their headings sort.
//!
//! What people read, milliseconds below nanoseconds, does not sort by itself. So a cell whose text is not the number
//! that it stands for carries that number.

use askama::Template;

use crate::Tone;

/// Rows and columns.
#[derive(Clone, Debug, Template)]
#[template(path = "table.html", whitespace = "minimize")]
pub struct Table {
    /// What the table shows.
    pub title: String,
    /// What a row is and how to read it.
    pub caption: String,
    /// How many columns, from the left, hold text; the others hold numbers.
    texts: usize,
    header: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// What is read.
    pub text: String,
    /// Its colour.
    pub tone: Tone,
    place: Place,
}

/// Whether a cell is seen in the order in which rows were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Shown,
    /// It repeats the group of its row.
    Repeated,
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::toned(tone_of(&text), text)
    }
}

impl Cell {
    /// A cell in a colour.
    pub fn toned(tone: Tone, text: impl Into<String>) -> Cell {
        Cell { text: text.into(), tone, place: Place::Shown }
    }
}

/// The terminal names a group of rows once, in its first row. A row that is sorted away from it must still say whose it
/// is, so the name is repeated, and seen only where rows are sorted.
fn repeat_groups(rows: &mut [Vec<Cell>]) {
    let mut group = Cell::from(String::new());
    for cell in rows.iter_mut().filter_map(|row| row.first_mut()) {
        if cell.text.is_empty() {
            *cell = Cell { place: Place::Repeated, ..group.clone() };
        } else {
            group = cell.clone();
        }
    }
}

/// The words with which the lab's tables judge.
fn tone_of(text: &str) -> Tone {
    match text {
        "holds" | "agrees" | "reproduced" | "better" | "exact: ok" | "ratio: ok" | "host: ok" => {
            Tone::Good
        }
        "WORSE" | "OFF" | "exact: BROKEN" => Tone::Bad,
        "ratio: no" | "host: no" | "too few" | "differs" | "not reproduced" => Tone::Warning,
        _ => Tone::Plain,
    }
}

impl Table {
    /// A table of cells.
    pub fn of_cells(
        title: String,
        caption: String,
        texts: usize,
        header: Vec<String>,
        rows: Vec<Vec<Cell>>,
    ) -> Table {
        Table { title, caption, texts, header, rows }
    }

    /// A table of texts as they also stand in the terminal.
    pub fn of_texts(
        title: String,
        caption: String,
        texts: usize,
        header: Vec<String>,
        rows: Vec<Vec<String>>,
    ) -> Table {
        let cells = |row: Vec<String>| row.into_iter().map(Cell::from).collect();
        let mut rows: Vec<Vec<Cell>> = rows.into_iter().map(cells).collect();
        if texts > 1 {
            repeat_groups(&mut rows);
        }
        Table::of_cells(title, caption, texts, header, rows)
    }

    /// A column without a name still has a button to sort it.
    fn heading<'a>(&self, name: &'a str) -> &'a str {
        if name.is_empty() { "verdict" } else { name }
    }

    fn is_number(&self, column: usize) -> bool {
        column >= self.texts
    }

    /// The attributes of a cell: its class, and what it sorts by.
    fn attributes(&self, column: usize, cell: &Cell) -> String {
        let mut classes = Vec::new();
        if self.is_number(column) {
            classes.push("n");
        } else if cell.text.chars().count() > 40 {
            classes.push("t");
        }
        if cell.place == Place::Repeated {
            classes.push("rep");
        }
        let tone = cell.tone.to_string();
        if cell.tone != Tone::Plain {
            classes.push(&tone);
        }
        let class = match classes.as_slice() {
            [] => String::new(),
            [class] => format!(" class={class}"),
            classes => format!(" class=\"{}\"", classes.join(" ")),
        };
        let key = key_of(&cell.text).filter(|_| self.is_number(column) && !is_plain(&cell.text));
        class + &key.map_or_else(String::new, |key| format!(" data-k={key}"))
    }
}

/// Whether the script finds the number by itself.
fn is_plain(text: &str) -> bool {
    text.replace(',', "").parse::<f64>().is_ok()
}

/// The first number of `text` in the base of its unit: nanoseconds to days become seconds, KiB to EiB bytes.
fn key_of(text: &str) -> Option<f64> {
    let begin = text.find(|c: char| c.is_ascii_digit())?;
    let negative = text[..begin].ends_with('-');
    let number = &text[begin..];
    let belongs = |(i, c): &(usize, char)| {
        let digit_follows = || number[i + 1..].starts_with(|c: char| c.is_ascii_digit());
        c.is_ascii_digit() || (matches!(c, '.' | ',') && digit_follows())
    };
    let length = number.char_indices().take_while(belongs).count();
    let value: f64 = number[..length].replace(',', "").parse().ok()?;
    let unit: String =
        number[length..].trim_start().chars().take_while(char::is_ascii_alphabetic).collect();
    let value = value * factor_of(&unit);
    Some(if negative { -value } else { value })
}

fn factor_of(unit: &str) -> f64 {
    match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        "KiB" => 1_024.0,
        "MiB" => 1_048_576.0,
        "GiB" => 1_073_741_824.0,
        "TiB" => 1_099_511_627_776.0,
        "PiB" => 1_125_899_906_842_624.0,
        "EiB" => 1_152_921_504_606_846_976.0,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_key(text: &str, expected: Option<f64>) {
        assert_eq!(key_of(text), expected, "{text}");
    }

    #[test]
    fn cells_sort_by_what_they_stand_for() {
        check_key("1,234 ±5%", Some(1234.0));
        check_key("2 ms", Some(0.002));
        check_key("1.5 MiB", Some(1_572_864.0));
        check_key("-12.5 %", Some(-12.5));
        check_key("+3", Some(3.0));
        check_key("over 325x", Some(325.0));
        check_key("3.20..3.90x", Some(3.2));
        check_key("24,586 -3 ~4", Some(24_586.0));
        check_key("2/14", Some(2.0));
        check_key("order 9", Some(9.0));
        check_key("-", None);
        check_key("holds", None);
        check_key("5.", Some(5.0));
    }

    #[test]
    fn rows_keep_their_group() {
        let rows = [["a", "x", "1"], ["", "y", "2"], ["b", "z", "3"], ["", "w", "4"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec()).to_vec();
        let header = ["group", "name", "n"].map(str::to_owned).to_vec();
        let html = Table::of_texts("t".to_owned(), String::new(), 2, header, rows).to_string();
        assert_eq!(html.matches("<td class=rep>a</td>").count(), 1, "{html}");
        assert_eq!(html.matches("<td class=rep>b</td>").count(), 1, "{html}");
    }

    #[test]
    fn text_is_escaped_and_verdicts_are_coloured() {
        let header = ["name", "", "value"].map(str::to_owned).to_vec();
        let rows = vec![["<b>&", "exact: BROKEN", "3 us"].map(str::to_owned).to_vec()];
        let table = Table::of_texts("t \"q\"".to_owned(), String::new(), 2, header, rows);
        let html = table.to_string();
        assert!(html.contains("<td>&#60;b&#62;&#38;</td>"), "{html}");
        assert!(html.contains("<td class=bad>exact: BROKEN</td>"), "{html}");
        assert!(html.contains("<td class=n data-k=0.000003>3 us</td>"), "{html}");
    }
}
