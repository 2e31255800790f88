//! The result of the comparison, as plain data.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::key::Key;
use crate::oracle::Relation;
use crate::stats::Spread;

/// All cells of a run, and the measures taken of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KernelsReport {
    /// The folder of the kernels' runs.
    pub folder: String,
    pub seeds: usize,
    /// Kernel beside simulation, cell by cell.
    pub cells: Vec<CellReport>,
    /// Figures that the simulation is to reproduce.
    pub measures: Vec<Measure>,
    /// Pairs of cells of which one has more huge pages; they differ in the kernel or in the factor, and the kernels'
    /// ranges of the huge share do not overlap.
    pub signs: Vec<Sign>,
    /// Parameters of the simulation that were fitted.
    pub fitted: Vec<Fitted>,
    /// Number of sets of values that were tried.
    pub fits_tried: u32,
    /// Cells that were to judge, and were looked at while fitting.
    pub spoilt: Vec<String>,
    /// Cells that the folder lacks, wholly or in part.
    pub missing: Vec<String>,
}

/// A cell: the kernel's repeats beside the simulation's seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CellReport {
    /// `5.10`, `6.1`, `6.12` or `7.2`.
    pub kernel: String,
    /// The difference from the centre.
    pub factor: String,
    pub role: Role,
    /// Number of the kernel's runs.
    pub repeats: usize,
    /// Counts from the beginning to the end of each phase; those that are zero on both sides are left out.
    pub counts: Vec<Compared>,
    /// Free blocks at the end of each phase, by kind of zone and order.
    pub free: Vec<Compared>,
}

/// Use of a cell: it fits parameters, or judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Parameters were fitted on it.
    Fitted,
    Judge,
    /// The cell was to judge, but was looked at while fitting.
    Spoilt,
}

/// A count of a phase on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Compared {
    pub phase: String,
    /// The quantity that is counted.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub what: Key,
    /// The kernel's repeats, if all of them counted it.
    pub kernel: Option<Spread>,
    /// Our seeds, if all of them counted it.
    pub ours: Option<Spread>,
    pub agreement: Agreement,
}

/// Outcome of setting two counts beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Agreement {
    /// Our range overlaps that from half the kernel's least to twice its most, and is no wider.
    Agrees,
    /// Our range does not overlap, or is wider.
    Differs,
    /// All values of both sides are below 50.
    #[strum(serialize = "too few")]
    TooFew,
    /// There were fewer than 5 seeds.
    #[strum(serialize = "few seeds")]
    FewSeeds,
    /// One side does not count this.
    #[strum(serialize = "-")]
    NotCounted,
    /// The simulation gets the number as its input.
    Given,
}

/// A figure that the simulation is to reproduce.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Measure {
    pub id: String,
    /// The quantity, in words.
    pub what: String,
    /// The simulation's value; `None` where it cannot be told.
    pub ours: Option<f64>,
    /// The kernels' least and greatest value, where ours stands beside such a range.
    pub kernels: Option<[f64; 2]>,
    /// The bound on our value; `None` where the kernels do not tell.
    pub must: Option<Relation>,
    /// Number of cells or pairs, where these are counted.
    pub of: Option<usize>,
    pub outcome: Outcome,
}

/// Outcome of a measure beside its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Outcome {
    Reproduced,
    #[strum(serialize = "not reproduced")]
    NotReproduced,
    /// Nothing in the folder, or in the chosen part of it, tells.
    #[strum(serialize = "not judged")]
    NotJudged,
}

/// Two cells that differ in the kernel or in the factor, whose kernels' ranges of the huge share do not overlap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sign {
    pub between: Between,
    /// The cell with more huge pages in the kernels.
    pub more: String,
    pub fewer: String,
    /// True if the same cell has fewer in the simulation, too, by medians.
    pub right: bool,
}

/// The difference between two cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Between {
    Kernels,
    Factors,
}

/// A parameter of the simulation that was fitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fitted {
    pub name: Cow<'static, str>,
    pub value: f64,
    /// The meaning of the parameter.
    pub what: Cow<'static, str>,
    /// The cells on which it was fitted.
    pub on: Cow<'static, str>,
}
