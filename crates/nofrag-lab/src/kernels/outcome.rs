//! What the comparison comes to, as plain data.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::oracle::Relation;
use crate::stats::Spread;

/// All cells of a run, and what they come to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelsReport {
    /// The folder that the kernels' runs stand in.
    pub folder: String,
    /// Seeds of each cell.
    pub seeds: usize,
    /// Kernel beside simulation, cell by cell.
    pub cells: Vec<CellReport>,
    /// What is to come out.
    pub measures: Vec<Measure>,
    /// Which of two cells has more huge pages, where the kernels' ranges tell.
    pub signs: Vec<Sign>,
    /// What of the simulation was fitted.
    pub fitted: Vec<Fitted>,
    /// How often it was.
    pub fits_tried: u32,
    /// Cells that were to judge, and were looked at while fitting.
    pub spoilt: Vec<String>,
    /// Cells that the folder lacks, wholly or in part.
    pub missing: Vec<String>,
}

/// A cell: the kernel's repeats beside the simulation's seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellReport {
    /// `5.10`, `6.1`, `6.12` or `7.2`.
    pub kernel: String,
    /// What differs from the centre.
    pub factor: String,
    /// What the cell is for.
    pub role: Role,
    /// Runs of the kernel.
    pub repeats: usize,
    /// Everything that was counted from the beginning to the end of each phase.
    pub counts: Vec<Compared>,
    /// Free blocks at the end of each phase, by kind of zone and order.
    pub free: Vec<Compared>,
}

/// What a cell is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Parameters were fitted on it.
    Fitted,
    /// It judges.
    Judge,
    /// It was to judge, but was looked at while fitting.
    Spoilt,
}

/// A count of a phase on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The phase.
    pub phase: String,
    /// What is counted.
    pub what: String,
    /// The kernel's repeats, if all of them counted it.
    pub kernel: Option<Spread>,
    /// Our seeds, likewise.
    pub ours: Option<Spread>,
    /// Whether they agree.
    pub agreement: Agreement,
}

/// Whether a count agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    /// Our range overlaps that from half the kernel's least to twice its most, and is no wider.
    Agrees,
    /// It does not, or is wider.
    Differs,
    /// Both are below 50.
    TooFew,
    /// There were fewer than 5 seeds.
    FewSeeds,
    /// One side does not count it.
    NotCounted,
    /// The simulation is given it.
    Given,
}

impl Agreement {
    /// As tables name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Agreement::Agrees => "agrees",
            Agreement::Differs => "differs",
            Agreement::TooFew => "too few",
            Agreement::FewSeeds => "few seeds",
            Agreement::NotCounted => "-",
            Agreement::Given => "given",
        }
    }
}

/// Something that is to come out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Short and stable.
    pub id: String,
    /// What it is.
    pub what: String,
    /// What the simulation gives; nothing where it cannot be told.
    pub ours: Option<f64>,
    /// What the kernels give, from the least to the most, where that is what ours stands beside.
    pub kernels: Option<[f64; 2]>,
    /// What ours must be; nothing where the kernels do not tell.
    pub must: Option<Relation>,
    /// Of how many cells or pairs, where that is what is counted.
    pub of: Option<usize>,
    /// Whether it comes out.
    pub outcome: Outcome,
}

/// Whether something comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It does.
    Reproduced,
    /// It does not.
    NotReproduced,
    /// Nothing in the folder, or in what was chosen, tells.
    NotJudged,
}

impl Outcome {
    /// As tables name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Reproduced => "reproduced",
            Outcome::NotReproduced => "not reproduced",
            Outcome::NotJudged => "not judged",
        }
    }
}

/// Two cells that differ in the kernel or in the factor, whose kernels' ranges of the huge share do not overlap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sign {
    /// What they differ in.
    pub between: Between,
    /// The cell with more huge pages in the kernels.
    pub more: String,
    /// The other one.
    pub fewer: String,
    /// Whether it has fewer in the simulation too, by medians.
    pub right: bool,
}

/// What two cells differ in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Between {
    /// The kernel alone.
    Kernels,
    /// The factor alone.
    Factors,
}

/// A parameter of the simulation that was fitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fitted {
    /// Its name.
    pub name: Cow<'static, str>,
    /// What it was fitted to be.
    pub value: f64,
    /// What it stands for.
    pub what: Cow<'static, str>,
    /// The cells that it was fitted on.
    pub on: Cow<'static, str>,
}
