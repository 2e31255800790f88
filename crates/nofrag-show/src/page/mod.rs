//! Results as a page: one HTML file that needs nothing else, neither a network nor another file.
//!
//! A [`Page`] has a headline with advice, and *parts*, one for each scenario or subject. A part is made by one command
//! and consists of *items*: lines, findings, tables and figures. A figure is a drawing with a sentence of explanation;
//! the command of its part stands below it. The [`Section`](crate::Section)s, which pages have in common with the
//! terminal, come from the same functions.
//!
//! The kinds of drawings, and the reasons for each:
//!
//! * `strips` (samples as dots, ranges as lines), `bars` and `cells` (maps of memory) are drawn here, once, as HTML and
//!   SVG whose coordinates are percentages: they fit a phone and paper, follow the colours of the page, and need no
//!   script. Text is never part of a picture, so it stays readable at any width and can be searched.
//! * `curves` are drawn by uPlot, which is embedded: hundreds of points over time need a cursor that shows values. Each
//!   has a table of its numbers beside it, for readers who cannot see it or run no script.
//! * A `table` is sorted by its headings. The key of each cell is decided here, where units are known.
//!
//! The file stays below [`MOST_BYTES`]: curves are thinned out and rounded to the resolution of a screen.

pub mod axis;
pub mod bars;
pub mod cells;
pub mod curves;
pub mod sections;
pub mod strips;
pub(crate) mod table;

use std::fmt;

use askama::Template;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};

use crate::{Origin, Table, Tone};
use bars::Bars;
use cells::Cells;
use curves::Curves;
use strips::Strips;

/// Bound on the size of a page, so that it can be mailed and opened on a phone.
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
    /// Lines that stand above all parts.
    pub lead: Vec<String>,
    /// The headline of all parts.
    pub headline: Option<Headline>,
    pub tiles: Vec<Tile>,
    /// The parts, one for each scenario or subject.
    pub parts: Vec<Part>,
}

impl Page {
    /// Renders the page as one file.
    #[must_use]
    pub fn html(&self) -> String {
        View { page: self }.render().expect("writing to a string does not fail")
    }

    /// Returns a page without parts, made by the command of `origin`.
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
            headline: None,
            tiles: Vec::new(),
            parts: Vec::new(),
        }
    }
}

/// Returns the name of an inline script in a content security policy (CSP level 3, 2.3.1).
#[must_use]
pub fn script_source(script: &str) -> String {
    format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(script)))
}

#[derive(Template)]
#[template(path = "page.html", whitespace = "minimize")]
struct View<'a> {
    page: &'a Page,
}

impl View<'_> {
    /// Returns the names of the scripts that a browser runs: no other script runs, even if a host has put one into the
    /// page.
    fn scripts(&self) -> String {
        [CHART_SCRIPT, SCRIPT].map(script_source).join(" ")
    }
}

/// The part of a page about one scenario or subject.
#[derive(Clone, Debug)]
pub struct Part {
    /// Identifier of the part, for links to it.
    pub id: String,
    pub title: String,
    pub lead: Vec<String>,
    /// The command that makes everything in this part again.
    pub command: String,
    pub headline: Option<Headline>,
    pub items: Vec<Item>,
}

/// A piece of a part.
#[derive(Clone, Debug)]
pub enum Item {
    /// Lines with a title, without further form.
    Lines {
        title: String,
        lines: Vec<String>,
    },
    /// Findings with a title, as cards.
    Findings {
        title: String,
        findings: Vec<Card>,
    },
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

/// A drawing and its explanation.
#[derive(Clone, Debug)]
pub struct Figure {
    pub title: String,
    /// Explanation in one sentence or two.
    pub says: String,
    pub drawing: Drawing,
}

/// The kinds of drawings in a figure.
#[derive(Clone, Debug)]
pub enum Drawing {
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

/// The result of a page or a part, with advice.
#[derive(Clone, Debug)]
pub struct Headline {
    pub tone: Tone,
    /// The result in a sentence.
    pub says: String,
    pub advice: String,
}

/// A number that stands out.
#[derive(Clone, Debug)]
pub struct Tile {
    pub tone: Tone,
    pub value: String,
    /// The thing that the number counts.
    pub what: String,
}

/// A finding that needs attention.
#[derive(Clone, Debug)]
pub struct Card {
    pub tone: Tone,
    pub name: String,
    pub evidence: String,
    pub consequence: String,
    pub help: String,
}
