//! Access to a report for tables and claims: by case and design, and as reductions seed by seed.

use strum::VariantArray as _;

use super::catalogue::{Case, Program, VANILLA, is_strict, title};
use super::names;
use crate::figures::reduction;
use crate::key::Key;
use crate::report::{Measurement, Report};
use crate::stats::Spread;

/// A report of this scenario.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) report: &'a Report,
}

/// The count that a reader sees beside a reduction of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    /// The number of mistyped allocations, which means the same under all rules.
    Mistyped,
    Nothing,
}

/// Error: events were counted under rules of which one counts a block and the other each of its pages
/// (docs/sources/pages.md#trap-6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OtherRules;

impl<'a> View<'a> {
    /// Returns the cases of a program that were run, smallest memory first.
    pub(super) fn cases(self, program: Program) -> Vec<Case> {
        let mut sizes = self.report.settings.memory_gib.clone();
        sizes.sort_unstable();
        let cases = sizes.into_iter().flat_map(|size| program.cases(size));
        let programs = self.report.programs();
        cases.filter(|case| programs.contains(&title(program, case).as_str())).collect()
    }

    /// Returns every case that was run and is not a point of a curve, with its program.
    pub(super) fn all_cases(self) -> Vec<(Program, Case)> {
        let programs = Program::VARIANTS.iter().copied().filter(|program| !program.is_curve());
        let cases = programs
            .flat_map(|program| self.cases(program).into_iter().map(move |case| (program, case)));
        cases.collect()
    }

    /// Returns the row of a case under a design.
    pub(super) fn row(self, case: &Case, design: &str) -> Option<&'a Measurement> {
        self.report.measurement(&case.to_string(), design)
    }

    /// Returns the row of a case of a curve at one of its points.
    pub(super) fn point(
        self,
        program: Program,
        case: &Case,
        name: &str,
    ) -> Option<&'a Measurement> {
        self.report.measurement(&title(program, case), name)
    }

    pub(super) fn count(self, case: &Case, design: &str, key: &Key) -> Option<f64> {
        self.row(case, design)?.count(key)
    }

    /// Returns by how many percent the design `new` has fewer of `key` than `old`, seed by seed; `None` if one of them
    /// lacks the row or the count.
    pub(super) fn fewer(self, case: &Case, (old, new): (&str, &str), key: &Key) -> Option<Spread> {
        let [old, new] = [self.row(case, old)?, self.row(case, new)?];
        let [old, new] = [old.spreads.get(key)?, new.spreads.get(key)?];
        let pairs = old.samples.iter().zip(&new.samples);
        Spread::of(pairs.filter_map(|(old, new)| reduction(*old, *new)).collect())
    }

    /// Returns by how many percent a design has fewer events than vanilla, seed by seed; `None` for vanilla itself, and
    /// where a row is missing.
    ///
    /// # Errors
    /// [`OtherRules`] if the two count differently and the reader sees no mistyped allocations beside.
    pub(super) fn fewer_events(
        self,
        case: &Case,
        design: &str,
        beside: Beside,
    ) -> Result<Option<Spread>, OtherRules> {
        if is_strict(design) != is_strict(VANILLA) && beside == Beside::Nothing {
            return Err(OtherRules);
        }
        if design == VANILLA {
            return Ok(None);
        }
        Ok(self.fewer(case, (VANILLA, design), &names::EVENTS))
    }

    pub(super) fn designs(self) -> &'a [String] {
        &self.report.settings.designs
    }

    pub(super) fn has(self, design: &str) -> bool {
        self.designs().iter().any(|it| it == design)
    }
}
