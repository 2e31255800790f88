//! The figures around Gorman's "Fragmentation avoidance improvements".
//!
//! Events are absolute counts of machines whose memory and disks were never published. They leave this module as
//! reductions against the vanilla kernel of the same configuration, the only form that compares with a run here.

use std::fmt;

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::declared::declared;

/// Gorman's published figures, those of later series for the same measures, and a model of the workload.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gorman2018 {
    pub document: String,
    /// Places in the document by kind of rows, where all rows of the kind have the same.
    pub places: BTreeMap<String, String>,
    /// Units by kind of rows or of quantities, where all have the same.
    pub units: BTreeMap<String, String>,
    #[serde(rename = "machine")]
    pub machines: Vec<PublishedMachine>,
    /// Measurements under each configuration, vanilla and with patches.
    #[serde(rename = "result")]
    pub results: Vec<Published>,
    #[serde(rename = "minimum")]
    pub minima: Vec<Minimum>,
    /// Events by the type that was asked for.
    #[serde(rename = "requester")]
    pub requesters: Vec<Requesters>,
    pub stalls: Vec<PublishedStalls>,
    /// Reductions that the text states and its counts contradict.
    #[serde(rename = "misstated")]
    pub misstatements: Vec<Misstated>,
    pub later: Vec<LaterFigure>,
    /// A model that counts the workload: a cross-check, not published.
    #[serde(rename = "model")]
    pub models: Vec<ModelRow>,
    /// The same model on other mixes than the calibrated one.
    #[serde(rename = "model_mix")]
    pub model_mixes: Vec<ModelMix>,
}

/// A machine of the document.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedMachine {
    /// The machine's letter in the names of configurations.
    pub id: String,
    pub what: String,
    /// Sockets; each is a node.
    pub sockets: u32,
    /// Threads that write and read files.
    pub fio_threads: u32,
    /// Threads that ask for huge pages.
    pub huge_threads: u32,
    /// The CPUs per node that give `huge_threads` threads: least and most.
    pub cpus_per_node: [u32; 2],
}

/// A column of the document's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// The kernel before the series.
    Vanilla,
    #[serde(rename = "patch_1")]
    Patch1,
    /// Patches 1 to 4, the merged ones.
    #[serde(rename = "patches_1_4")]
    Patches14,
    #[serde(rename = "patches_1_5")]
    Patches15,
}

impl Column {
    /// All columns, in the document's order.
    pub const ALL: [Column; 4] =
        [Column::Vanilla, Column::Patch1, Column::Patches14, Column::Patches15];

    /// Returns the lab's name of the design that the column stands for.
    #[must_use]
    pub const fn design(self) -> &'static str {
        match self {
            Column::Vanilla => "linux-4.20",
            Column::Patch1 => "linux-4.20+patch1",
            Column::Patches14 => "linux-4.20+patch4",
            Column::Patches15 => "linux-4.20+patch5",
        }
    }

    /// Returns the column that a design of the lab stands for.
    #[must_use]
    pub fn of_design(design: &str) -> Option<Column> {
        Column::ALL.into_iter().find(|column| column.design() == design)
    }
}

/// Quantity of a row of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Quantity {
    /// External fragmentation events with a free block below order 9.
    #[serde(rename = "events")]
    Events,
    /// Mean latency of the faults of a unit that got single pages.
    #[serde(rename = "base latency")]
    BaseLatency,
    /// Mean latency of the fault of a unit that got a huge page.
    #[serde(rename = "huge latency")]
    HugeLatency,
    /// Units that got a huge page, in percent of all.
    #[serde(rename = "percentage huge")]
    PercentageHuge,
}

/// A mean, or the statement that there was no sample. The workload's program prints the latter as 0.00.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum PublishedValue {
    Value(f64),
    Missing(Missing),
}

/// The words for a class without samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Missing {
    #[serde(rename = "no sample")]
    NoSample,
}

impl PublishedValue {
    /// Returns the value if there is one.
    #[must_use]
    pub const fn value(self) -> Option<f64> {
        match self {
            PublishedValue::Value(value) => Some(value),
            PublishedValue::Missing(Missing::NoSample) => None,
        }
    }
}

impl fmt::Display for PublishedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PublishedValue::Value(value) => write!(f, "{value}"),
            PublishedValue::Missing(Missing::NoSample) => f.write_str("no sample"),
        }
    }
}

/// One quantity of one configuration, vanilla and with patches.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Machine and huge-page mode, such as `s-default`.
    pub configuration: String,
    pub what: Quantity,
    pub place: String,
    pub vanilla: PublishedValue,
    pub patch_1: PublishedValue,
    pub patches_1_4: PublishedValue,
    pub patches_1_5: PublishedValue,
    /// The columns that the document's report marks as significant.
    #[serde(default)]
    pub significant: Vec<Column>,
}

impl Published {
    /// Returns the value of a column.
    #[must_use]
    pub const fn column(&self, column: Column) -> PublishedValue {
        match column {
            Column::Vanilla => self.vanilla,
            Column::Patch1 => self.patch_1,
            Column::Patches14 => self.patches_1_4,
            Column::Patches15 => self.patches_1_5,
        }
    }

    /// Returns by how many percent a column is below vanilla; `None` for vanilla itself and where a sample is missing.
    #[must_use]
    pub fn reduction(&self, column: Column) -> Option<f64> {
        if column == Column::Vanilla {
            return None;
        }
        reduction(self.vanilla.value()?, self.column(column).value()?)
    }
}

/// Returns by how many percent `after` is below `before`; `None` if `before` is not positive.
#[must_use]
pub fn reduction(before: f64, after: f64) -> Option<f64> {
    (before > 0.0).then(|| 100.0 * (before - after) / before)
}

/// The least latency of a class of faults.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Minimum {
    pub configuration: String,
    pub what: Quantity,
    pub patch_1: f64,
    pub patches_1_4: f64,
}

/// External fragmentation events by the migratetype that was asked for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requesters {
    pub configuration: String,
    /// The column of the table of events whose value is the sum of these three.
    pub column: Column,
    /// Events of requests by the kernel itself.
    pub unmovable: u64,
    /// Events of requests by processes and the page cache.
    pub movable: u64,
    /// Events of requests by caches that can be shrunk.
    pub reclaimable: u64,
}

impl Requesters {
    /// Returns the number of all events.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.unmovable + self.movable + self.reclaimable
    }

    /// Returns each type's share in percent: unmovable, movable, reclaimable.
    #[must_use]
    pub fn shares(&self) -> [f64; 3] {
        [self.unmovable, self.movable, self.reclaimable]
            .map(|events| 100.0 * events as f64 / self.sum() as f64)
    }
}

/// Exactness of a published value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Exactness {
    #[default]
    #[serde(rename = "exactly")]
    Exactly,
    #[serde(rename = "about")]
    About,
}

/// Stalls (waits for kswapd, patch 5) in a published run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedStalls {
    pub configuration: String,
    pub stalls: u64,
    /// Sum of the waits in microseconds.
    pub total_us: f64,
    #[serde(default)]
    pub total_is: Exactness,
    pub minutes: u64,
}

/// A reduction in the text that the text's own counts contradict.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Misstated {
    pub configuration: String,
    pub column: Column,
    pub unit: String,
    pub place: String,
    /// The value in the text.
    pub stated: f64,
}

/// Change of a measure by a later series.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaterFigure {
    pub series: String,
    /// The measured quantity and its machine.
    pub what: String,
    /// The unit of `before` and `after`.
    #[serde(default)]
    pub unit: Option<String>,
    pub place: String,
    /// Value of the measure without the series, and below, with it; `None` where it was not given.
    #[serde(default)]
    pub before: Option<f64>,
    #[serde(default)]
    pub after: Option<f64>,
    /// Change of the measure in percent; negative where it falls.
    pub change: f64,
}

/// Results of the count model (docs/sources/pages.md#count-model) for a mode on the calibrated mix: a cross-check.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRow {
    /// The lab's name of the mode, or a description where the lab has none.
    pub design: String,
    /// External fragmentation events under the default load: mean of three seeds.
    pub events: f64,
    /// Least and most of the three values behind `events`, where given.
    #[serde(default)]
    pub events_range: Option<[f64; 2]>,
    /// Mistyped allocations, in thousands.
    pub mistyped_k: f64,
    /// Percent of units that got a huge page: least and most.
    pub huge: [f64; 2],
    /// Mean events under the load that asks for huge pages by `madvise`.
    pub madv_events: f64,
    /// Least and most of the values behind `madv_events`, where given.
    #[serde(default)]
    pub madv_range: Option<[f64; 2]>,
    /// Percent of units that got a huge page under the load that asks for them by `madvise`.
    pub madv_huge: f64,
}

/// Results of the count model on a mix: events of vanilla, and reductions in percent.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelMix {
    pub mix: String,
    pub memory_gib: u64,
    pub vanilla: f64,
    /// Reduction of events by the first patch.
    pub patch_1: f64,
    /// Reduction of events by the fourth patch alone, as Linux 5.0 had it.
    pub patch_4_alone: f64,
    /// Reduction of events by the merged patches, as designed.
    pub patches_1_4: f64,
    /// Percent of units that got a huge page with the merged patches.
    #[serde(default)]
    pub huge: Option<f64>,
}

impl Gorman2018 {
    /// Returns the row of a quantity under a configuration.
    #[must_use]
    pub fn result(&self, configuration: &str, what: Quantity) -> Option<&Published> {
        self.results.iter().find(|row| row.configuration == configuration && row.what == what)
    }

    /// Returns the published reduction of events of a configuration, in percent.
    #[must_use]
    pub fn reduction(&self, configuration: &str, column: Column) -> Option<f64> {
        self.result(configuration, Quantity::Events)?.reduction(column)
    }

    /// Returns the least and the largest published reduction of events of a column, over all configurations.
    #[must_use]
    pub fn reductions(&self, column: Column) -> Option<[f64; 2]> {
        let rows = self.results.iter().filter(|row| row.what == Quantity::Events);
        let all: Vec<f64> = rows.filter_map(|row| row.reduction(column)).collect();
        let low = all.iter().copied().reduce(f64::min)?;
        Some([low, all.into_iter().fold(low, f64::max)])
    }
}

/// Returns the figures around Gorman's "Fragmentation avoidance improvements".
#[must_use]
pub fn gorman_2018() -> Gorman2018 {
    const TEXT: &str = include_str!("../../data/figures/gorman-2018.toml");
    declared(TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIGURATIONS: [&str; 4] = ["s-default", "s-madv", "h-default", "h-madv"];

    fn near(value: f64, claim: f64, unit: f64) -> bool {
        (value - claim).abs() <= unit / 2.0 + 1e-9
    }

    #[test]
    fn the_counts_give_the_reductions_that_the_document_states() {
        let figures = gorman_2018();
        let stated = [
            ("s-default", [49.0, 97.7, 97.9]),
            ("s-madv", [34.0, 95.4, 94.8]),
            ("h-default", [7.0, 93.4, 94.6]),
            ("h-madv", [11.0, 93.3, 93.6]),
        ];
        for (configuration, stated) in stated {
            for (column, stated) in Column::ALL[1..].iter().zip(stated) {
                // The commit rounds its own reductions to whole percent.
                let unit = if *column == Column::Patch1 { 1.0 } else { 0.1 };
                let computed = figures.reduction(configuration, *column).unwrap();
                assert!(near(computed, stated, unit), "{configuration} {column:?}: {computed}");
            }
            assert_eq!(figures.reduction(configuration, Column::Vanilla), None);
        }
    }

    #[test]
    fn over_94_percent_is_a_summary_of_two_configurations_in_four() {
        let figures = gorman_2018();
        let mean = |column| {
            let sum: f64 =
                CONFIGURATIONS.iter().map(|id| figures.reduction(id, column).unwrap()).sum();
            sum / 4.0
        };
        assert!(near(mean(Column::Patches14), 95.0, 0.1));
        assert!(near(mean(Column::Patches15), 95.2, 0.1));
        let above = |column| {
            CONFIGURATIONS.iter().filter(|id| figures.reduction(id, column) > Some(94.0)).count()
        };
        assert_eq!((above(Column::Patches14), above(Column::Patches15)), (2, 3));
        let [low, high] = figures.reductions(Column::Patches14).unwrap();
        assert!(near(low, 93.3, 0.1) && near(high, 97.7, 0.1));
    }

    #[test]
    fn what_mail_5_states_of_madvise_is_wrong() {
        let figures = gorman_2018();
        let [misstated] = &figures.misstatements[..] else { panic!("one is known") };
        let computed = figures.reduction(&misstated.configuration, misstated.column).unwrap();
        assert_eq!(misstated.stated, 99.7);
        assert!(near(computed, 94.8, 0.1));
        let merged = figures.reduction(&misstated.configuration, Column::Patches14).unwrap();
        assert!(computed < merged, "patch 5 made it worse there");
    }

    #[test]
    fn a_class_without_faults_is_no_sample_and_never_zero() {
        let figures = gorman_2018();
        let latency =
            |row: &&Published| matches!(row.what, Quantity::BaseLatency | Quantity::HugeLatency);
        let mut missing = 0;
        for row in figures.results.iter().filter(latency) {
            let share = figures.result(&row.configuration, Quantity::PercentageHuge).unwrap();
            for column in Column::ALL {
                let sample = row.column(column);
                assert_ne!(sample, PublishedValue::Value(0.0));
                let empty = if row.what == Quantity::HugeLatency { 0.0 } else { 100.0 };
                let has_none = share.column(column) == PublishedValue::Value(empty);
                assert_eq!(sample.value().is_none(), has_none, "{row:?}");
                missing += usize::from(has_none);
            }
        }
        assert_eq!(missing, 3);
        assert_eq!(PublishedValue::Missing(Missing::NoSample).to_string(), "no sample");
    }

    #[test]
    fn requesters_add_up_to_the_events() {
        let figures = gorman_2018();
        for row in &figures.requesters {
            let events = figures.result(&row.configuration, Quantity::Events).unwrap();
            assert_eq!(events.column(row.column), PublishedValue::Value(row.sum() as f64));
        }
        assert!(near(figures.requesters[0].shares()[1], 99.5, 0.1));
    }

    #[test]
    fn every_configuration_has_every_quantity() {
        let figures = gorman_2018();
        let quantities = [
            Quantity::Events,
            Quantity::BaseLatency,
            Quantity::HugeLatency,
            Quantity::PercentageHuge,
        ];
        for id in CONFIGURATIONS {
            assert!(quantities.iter().all(|what| figures.result(id, *what).is_some()), "{id}");
            assert!(figures.stalls.iter().any(|row| row.configuration == id), "{id}");
        }
        assert_eq!(figures.results.len(), 16);
    }

    #[test]
    fn later_figures_and_the_model_agree_with_themselves() {
        let figures = gorman_2018();
        for row in &figures.later {
            let Some((before, after)) = row.before.zip(row.after) else { continue };
            let change = 100.0 * (after - before) / before;
            assert!((change - row.change).abs() < 0.06, "{} {}: {change}", row.series, row.what);
        }
        let model = |design: &str| figures.models.iter().find(|row| row.design == design).unwrap();
        let [vanilla, patch_1, alone, merged] =
            ["linux-4.20", "linux-4.20+patch1", "linux-5.0", "linux-4.20+patch4"].map(model);
        let mix = figures.model_mixes.iter().find(|row| row.mix == "calibrated").unwrap();
        for (row, stated) in
            [(patch_1, mix.patch_1), (alone, mix.patch_4_alone), (merged, mix.patches_1_4)]
        {
            let computed = reduction(vanilla.events, row.events).unwrap();
            assert!(near(computed, stated, 0.1), "{}: {computed}", row.design);
        }
        for row in &figures.models {
            let [low, high] = row.events_range.unwrap_or([row.events; 2]);
            assert!(low <= row.events && row.events <= high, "{}", row.design);
        }
    }

    #[test]
    fn a_reduction_from_nothing_is_none() {
        assert_eq!(reduction(0.0, 0.0), None);
        assert_eq!(reduction(200.0, 50.0), Some(75.0));
        assert_eq!(reduction(100.0, 150.0), Some(-50.0));
    }
}
