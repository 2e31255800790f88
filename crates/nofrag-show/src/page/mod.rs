//! Results as a page: one HTML file that needs nothing else, neither a network nor another file.
//!
//! A [`Page`] has a verdict with advice, and *parts*, one for each scenario or subject. A part is made by one command
//! and consists of *items*: lines, findings, tables and figures. A figure is a drawing with a sentence that says what
//! it shows; the command of its part stands below it. What pages have in common with the terminal, the
//! [`Section`](crate::Section)s, comes from the same functions.
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
pub mod bars;
pub mod cells;
pub mod curves;
pub mod sections;
pub mod strips;
pub mod table;

use std::fmt;

use askama::Template;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};

use crate::{Origin, Tone};
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
    command: String,
    facts: Vec<(&'static str, String)>,
    /// What stands above all.
    pub lead: Vec<String>,
    /// What comes of it all.
    pub verdict: Option<Verdict>,
    /// Numbers that stand out.
    pub tiles: Vec<Tile>,
    /// One for each scenario or subject.
    pub parts: Vec<Part>,
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
    #[must_use]
    pub fn new(title: impl Into<String>, origin: &Origin) -> Page {
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
#[must_use]
pub fn script_source(script: &str) -> String {
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
pub struct Part {
    /// What links name.
    pub id: String,
    /// Its heading.
    pub title: String,
    /// What stands above all.
    pub lead: Vec<String>,
    /// What makes everything in this part again.
    pub command: String,
    /// What comes of it.
    pub verdict: Option<Verdict>,
    /// What is in it.
    pub items: Vec<Item>,
}

/// A piece of a part.
#[derive(Clone, Debug)]
pub enum Item {
    /// Lines as they are.
    Lines {
        /// What they are about.
        title: String,
        /// The lines.
        lines: Vec<String>,
    },
    /// What needs attention.
    Findings {
        /// What they are about.
        title: String,
        /// One card each.
        findings: Vec<Card>,
    },
    /// Rows and columns.
    Table(Table),
    /// A drawing.
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
pub struct Figure {
    /// What it is about.
    pub title: String,
    /// One sentence or two.
    pub says: String,
    /// The drawing.
    pub drawing: Drawing,
}

/// What a figure is drawn as.
#[derive(Clone, Debug)]
pub enum Drawing {
    /// Lengths.
    Bars(Bars),
    /// Maps of memory.
    Cells(Cells),
    /// Courses over time.
    Curves(Curves),
    /// Samples and ranges.
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
pub struct Verdict {
    /// How urgent it is.
    pub tone: Tone,
    /// What it is.
    pub says: String,
    /// What to do.
    pub advice: String,
}

/// A number that stands out.
#[derive(Clone, Debug)]
pub struct Tile {
    /// How it stands out.
    pub tone: Tone,
    /// The number.
    pub value: String,
    /// What it counts.
    pub what: String,
}

/// Something that needs attention.
#[derive(Clone, Debug)]
pub struct Card {
    /// How urgent it is.
    pub tone: Tone,
    /// What it is called.
    pub name: String,
    /// What was seen.
    pub evidence: String,
    /// What comes of it.
    pub consequence: String,
    /// What to do.
    pub help: String,
}
