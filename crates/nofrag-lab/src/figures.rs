//! Published figures: claims to print beside a measurement.
//!
//! The figures live in `data/figures/*.toml`, one file per document, each with its unit and the place where it stands.
//! Ratios are formed here so that no scenario does it its own way: before over after, as an interval when several runs
//! were published.

mod backing;
mod gorman;
mod kernels;
mod pen;
mod wander;

pub use backing::{Aim, Backing, MAPPED, Target, backing};

pub use gorman::{Gorman2018, gorman_2018, reduction};

pub use kernels::{Kernels2018, kernels_2018};

pub use pen::{Pen2015, Profile, pen_2015};

pub use wander::{Bounds, MapLines, PublishedMap, Repeated, Wander2005, wander_2005};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::declared::declared;
use crate::key::{Amount, Key};
use crate::report::{Measurement, Report};

/// A table of a document: figures of a program, a row for each design.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PublishedTable {
    /// The lab's program that does the same work.
    pub program: String,
    /// Place of the table in the document.
    pub place: String,
    /// The quantities, under the names that they have in reports.
    pub columns: Vec<Key>,
    /// A figure for each column, by the name of the design's row in reports.
    #[serde(flatten)]
    pub rows: BTreeMap<String, Vec<Amount>>,
}

impl PublishedTable {
    /// Returns the figure of a quantity under a design.
    #[must_use]
    pub fn figure(&self, design: &str, key: &Key) -> Option<Amount> {
        let at = self.columns.iter().position(|column| column == key)?;
        self.rows.get(design)?.get(at).copied()
    }

    /// Returns the figures, each with its design and quantity.
    pub fn figures(&self) -> impl Iterator<Item = (&str, &Key, Amount)> {
        self.rows.iter().flat_map(|(design, row)| {
            self.columns.iter().zip(row).map(move |(key, figure)| (design.as_str(), key, *figure))
        })
    }
}

/// Returns the figure of a quantity of a program under a design.
#[must_use]
pub fn figure(tables: &[PublishedTable], program: &str, design: &str, key: &Key) -> Option<f64> {
    let mut tables = tables.iter().filter(|table| table.program == program);
    tables.find_map(|table| table.figure(design, key)).map(|figure| figure.get())
}

/// Returns published tables as a report, in which figures are found as they are in those that were measured.
pub(crate) fn published(tables: &[PublishedTable]) -> Report {
    let mut rows: BTreeMap<(&str, &str), Measurement> = BTreeMap::new();
    for table in tables {
        for (design, key, figure) in table.figures() {
            let row = rows.entry((&table.program, design)).or_insert_with(|| Measurement {
                program: table.program.clone(),
                design: design.to_owned(),
                ..Measurement::default()
            });
            row.counts.insert(key.clone(), figure);
        }
    }
    Report { measurements: rows.into_values().collect(), ..Report::default() }
}

/// The figures of one document.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    pub document: String,
    /// Figures that the author published.
    #[serde(rename = "figure")]
    pub figures: Vec<Figure>,
    /// Rows of tables of `lock_stat`.
    #[serde(rename = "lock", default)]
    pub locks: Vec<LockFigure>,
    /// Costs of the kernels' own code in user space, or figures of programs that the lab does not have.
    #[serde(rename = "table", default)]
    pub tables: Vec<PublishedTable>,
}

/// One published comparison of an old design with a new one.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    pub id: String,
    /// The lab's program that does the same work.
    pub program: String,
    /// The measured quantity and its machine.
    pub what: String,
    /// Place of the figure in the document.
    pub place: String,
    /// Unit of `before` and `after`.
    pub unit: FigureUnit,
    /// Lowest and highest run of the old design.
    pub before: [f64; 2],
    /// Tells whether the old design's run ended, or was given up so that `before` is a lower bound.
    #[serde(default)]
    pub before_is: Completeness,
    /// Lowest and highest run of the new design.
    pub after: [f64; 2],
}

/// Unit of a published comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum FigureUnit {
    #[serde(rename = "contentions")]
    Contentions,
    #[serde(rename = "cycles")]
    Cycles,
    #[serde(rename = "ns")]
    Nanoseconds,
    #[serde(rename = "us")]
    Microseconds,
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "relative time of one loop")]
    LoopTime,
}

/// Tells whether a published run came to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Completeness {
    /// The run ended: the value is its cost.
    #[default]
    #[serde(rename = "exactly")]
    Exactly,
    /// The run was given up: its cost would have been higher.
    #[serde(rename = "at least")]
    AtLeast,
}

/// One lock in a published table of `lock_stat`. Values that the text at hand does not repeat are `None` or empty.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockFigure {
    pub table: LockTable,
    /// Name of the lock in the kernel.
    pub name: String,
    /// The same lock in the lab.
    pub here: Key,
    pub place: String,
    /// Contentions in which another CPU had held the lock last.
    pub con_bounces: Option<u64>,
    /// Acquisitions that found the lock held.
    pub contentions: u64,
    pub wait_max_us: Option<f64>,
    /// Mean wait of an acquisition that found the lock held.
    pub wait_avg_us: Option<f64>,
    /// Functions that waited, with their number of contentions.
    #[serde(default)]
    pub waiting: Vec<Place>,
    /// Functions that held the lock during these waits, with their number of contentions.
    #[serde(default)]
    pub holding: Vec<Place>,
}

/// The document's table in which a lock stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LockTable {
    Before,
    After,
}

/// A function that waited for a lock or held it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The kernel's name of the function.
    pub at: String,
    /// Number of contentions.
    pub count: u64,
}

/// Before over after, from the least to the most favourable pairing of runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RatioRange {
    /// The smallest ratio that the runs allow.
    pub low: f64,
    /// The largest ratio; `None` if it has no upper bound.
    pub high: Option<f64>,
}

impl Completeness {
    /// Returns `ratio` as an upper bound; `None` if the run of its numerator was given up, so that there is no bound.
    #[must_use]
    pub fn bound(self, ratio: f64) -> Option<f64> {
        match self {
            Completeness::Exactly => Some(ratio),
            Completeness::AtLeast => None,
        }
    }
}

impl Figure {
    /// Returns `before` over `after`: how many times faster the new design was.
    #[must_use]
    pub fn ratio(&self) -> RatioRange {
        let high = self.before_is.bound(self.before[1] / self.after[0]);
        RatioRange { low: self.before[0] / self.after[1], high }
    }
}

/// Returns the figures around Rezki's "improve vmap allocation".
#[must_use]
pub fn rezki_2019() -> Document {
    const TEXT: &str = include_str!("../data/figures/rezki-2019.toml");
    declared(TEXT)
}

/// Returns the figures around Rezki's "remove a global vmap_blocks xarray".
#[must_use]
pub fn rezki_2023() -> Document {
    const TEXT: &str = include_str!("../data/figures/rezki-2023.toml");
    declared(TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_reads_and_gives_the_ratios_that_the_author_states() {
        let document = rezki_2019();
        let ratio =
            |id: &str| document.figures.iter().find(|figure| figure.id == id).unwrap().ratio();
        let near = |value: f64, claim: f64| (value / claim - 1.0).abs() < 0.005;
        assert!(near(ratio("performance-i5").low, 3.35));
        assert!(near(ratio("performance-hikey960").low, 7.5));
        assert!(near(ratio("shuffle-i5").low, 107.1));
        assert!(ratio("shuffle-hikey960").low >= 325.0);
        assert_eq!(ratio("shuffle-hikey960").high, None);
    }

    #[test]
    fn the_index_of_2023_loses_its_contentions_and_the_callers_add_up() {
        let document = rezki_2023();
        let index = document.figures.iter().find(|figure| figure.id == "index-contentions");
        assert!((83.0 - index.unwrap().ratio().low).abs() < 0.005);
        for lock in document.locks.iter().filter(|lock| !lock.waiting.is_empty()) {
            let sum = |places: &[Place]| places.iter().map(|place| place.count).sum::<u64>();
            // The counters of lock_stat are read while they run: the sums differ by less than one in 10,000.
            let near = |sum: u64| lock.contentions.abs_diff(sum) * 10_000 < lock.contentions;
            assert!(near(sum(&lock.waiting)) && near(sum(&lock.holding)), "{}", lock.name);
        }
    }

    #[test]
    fn every_row_of_a_table_has_a_figure_for_each_column() {
        let tables = [
            wander_2005().tables,
            gorman_2018().tables,
            backing().tables,
            kernels_2018().tables,
            rezki_2023().tables,
        ];
        for table in tables.concat() {
            let columns = table.columns.len();
            assert!(table.rows.values().all(|row| row.len() == columns), "{}", table.program);
        }
    }

    #[test]
    fn ids_are_distinct_and_ranges_are_ordered() {
        for document in [rezki_2019(), rezki_2023()] {
            for (i, figure) in document.figures.iter().enumerate() {
                assert!(
                    document.figures[..i].iter().all(|other| other.id != figure.id),
                    "{}",
                    figure.id
                );
                assert!(figure.before[0] <= figure.before[1] && figure.after[0] <= figure.after[1]);
                assert!(figure.after[0] > 0.0);
            }
        }
    }

    /// Checks that each figure stands at a place of its own, or at that of all rows of its kind. Targets are no
    /// figures of a document.
    #[test]
    fn every_row_stands_somewhere_once() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/data/figures");
        let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut files = 0;
        for path in paths.filter(|path| path.extension().is_some_and(|it| it == "toml")) {
            let file: toml::Table = declared(&std::fs::read_to_string(&path).unwrap());
            let places = file.get("places").and_then(toml::Value::as_table);
            let of_kind = |kind: &str| places.is_some_and(|places| places.contains_key(kind));
            let kinds = file.iter().filter_map(|(kind, rows)| Some((kind, rows.as_array()?)));
            for (kind, rows) in kinds.filter(|(kind, _)| kind.as_str() != "target") {
                let own = |row: &toml::Value| row.get("place").is_some();
                let once = rows.iter().all(|row| own(row) != of_kind(kind));
                assert!(once, "{}: {kind}", path.display());
            }
            files += 1;
        }
        assert_eq!(files, 7);
    }
}
