//! Results as a page: one HTML file that needs nothing else, neither a network nor another file.
//!
//! A [`Page`] has a verdict with advice, and *parts*, one for each scenario or subject. A part is made by one command
//! and consists of *items*: lines, findings, tables and figures. A figure is a drawing with a sentence that says what
//! it shows; the command of its part stands below it. [`run`], [`replay`], [`compare`], [`machine`], [`vmalloc`] and
//! [`maps`] make pages of what the lab and the host crate return; what they have in common with the terminal, the
//! [`Section`](crate::render::Section)s, comes from the same functions.
//!
//! What is drawn how, and why:
//!
//! * `strips` (samples as dots, ranges as lines), `bars` and `cells` (maps of memory) are drawn here, once, as HTML and
//!   SVG whose coordinates are percentages: they fit a phone and paper, follow the colours of the page, and need no
//!   script. Text is never part of a picture, so it stays readable at any width and can be searched.
//! * `curves` are drawn by uPlot, which is embedded: hundreds of points over time want a cursor that tells values. Each
//!   has a table of its numbers beside it, for those who cannot see it or run no script.
//! * A `table` is sorted by its headings. What a cell sorts by is decided here, where units are known.
//!
//! The file stays below [`MOST_BYTES`]: curves are thinned out and rounded to what a screen can show.

mod axis;
mod bars;
mod cells;
mod compare;
mod curves;
mod machine;
mod maps;
mod pages;
mod ranking;
mod replay;
mod scenario;
mod sections;
mod strips;
mod table;
mod vmalloc;

#[cfg(all(test, not(packed)))]
mod tests;

use std::fmt;

use askama::Template;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};

pub use compare::compare;
pub use machine::machine;
pub use maps::maps;
pub use pages::pages;
pub use ranking::ranking;
pub use replay::replay;
pub use scenario::{ScenarioResult, run};
pub use vmalloc::vmalloc;

use crate::machine::Origin;
use bars::Bars;
use cells::Cells;
use curves::Curves;
use strips::Strips;
use table::Table;

/// A page is smaller than this, so that it can be mailed and opened on a phone.
pub const MOST_BYTES: usize = 1_000_000;

const STYLE: &str = include_str!("../../assets/page.css");
const DARK: &str = include_str!("../../assets/dark.css");
const SCRIPT: &str = include_str!("../../assets/page.js");
const CHART_STYLE: &str = include_str!("../../assets/uPlot.min.css");
const CHART_SCRIPT: &str = include_str!("../../assets/uPlot.iife.min.js");
const CHART_LICENCE: &str = include_str!("../../assets/uPlot-LICENSE.txt");

/// Results as people see them in a browser.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    lead: Vec<String>,
    command: String,
    facts: Vec<(&'static str, String)>,
    verdict: Option<Verdict>,
    tiles: Vec<Tile>,
    parts: Vec<Part>,
}

impl Page {
    /// The whole file.
    ///
    /// # Panics
    /// Never: the template writes to memory, and everything in it can be written.
    #[must_use]
    pub fn html(&self) -> String {
        View { page: self }.render().expect("writing to a string does not fail")
    }

    /// A page without parts, made by the command of `origin`.
    fn new(title: impl Into<String>, origin: &Origin) -> Page {
        let Origin { started, processor, cpus, kernel, rustc, profile, revision, command } = origin;
        Page {
            title: title.into(),
            lead: Vec::new(),
            command: command.clone(),
            facts: vec![
                ("Begun", started.clone()),
                ("Made on", format!("{processor}, {cpus} CPUs; {kernel}")),
                ("nofrag", format!("{revision}; {rustc}, profile {profile}")),
            ],
            verdict: None,
            tiles: Vec::new(),
            parts: Vec::new(),
        }
    }
}

/// How a content security policy names an inline script (CSP level 3, 2.3.1).
fn script_source(script: &str) -> String {
    format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(script)))
}

/// The template of a page.
#[derive(Template)]
#[template(path = "page.html", whitespace = "minimize")]
struct View<'a> {
    page: &'a Page,
}

impl View<'_> {
    /// The scripts that a browser runs, by what they are: no other, whatever a host has put into the page.
    fn scripts(&self) -> String {
        [CHART_SCRIPT, SCRIPT].map(script_source).join(" ")
    }
}

/// What belongs to one scenario or subject.
#[derive(Clone, Debug)]
struct Part {
    /// What links name.
    id: String,
    title: String,
    lead: Vec<String>,
    /// What makes everything in this part again.
    command: String,
    verdict: Option<Verdict>,
    items: Vec<Item>,
}

#[derive(Clone, Debug)]
enum Item {
    Lines { title: String, lines: Vec<String> },
    Findings { title: String, findings: Vec<Card> },
    Table(Table),
    Figure(Figure),
}

impl Item {
    fn title(&self) -> &str {
        match self {
            Item::Lines { title, .. } | Item::Findings { title, .. } => title,
            Item::Table(table) => &table.title,
            Item::Figure(figure) => &figure.title,
        }
    }
}

/// A drawing and what it shows.
#[derive(Clone, Debug)]
struct Figure {
    title: String,
    /// One sentence or two.
    says: String,
    drawing: Drawing,
}

#[derive(Clone, Debug)]
enum Drawing {
    Bars(Bars),
    Cells(Cells),
    Curves(Curves),
    Strips(Strips),
}

impl fmt::Display for Drawing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Drawing::Bars(bars) => bars.fmt(f),
            Drawing::Cells(cells) => cells.fmt(f),
            Drawing::Curves(curves) => curves.fmt(f),
            Drawing::Strips(strips) => strips.fmt(f),
        }
    }
}

/// What comes of it all, and what to do.
#[derive(Clone, Debug)]
struct Verdict {
    tone: Tone,
    says: String,
    advice: String,
}

/// A number that stands out.
#[derive(Clone, Debug)]
struct Tile {
    tone: Tone,
    value: String,
    what: String,
}

/// Something that needs attention.
#[derive(Clone, Debug)]
struct Card {
    tone: Tone,
    name: String,
    evidence: String,
    consequence: String,
    help: String,
}

/// How something is coloured; the words beside it say the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Tone {
    #[default]
    Plain,
    Good,
    Warn,
    Bad,
}

impl fmt::Display for Tone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tone::Plain => "plain",
            Tone::Good => "good",
            Tone::Warn => "warn",
            Tone::Bad => "bad",
        })
    }
}
