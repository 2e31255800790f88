//! Claims that a run confirms or refutes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::key::Key;
use crate::report::Report;

/// Reach of a claim beyond the run that judged it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClaimKind {
    /// Follows from the algorithm; must hold on every machine and for every seed. `--check` fails when it does not.
    Exact,
    /// A relation of two measurements of one run; holds on any quiet machine.
    Ratio,
    /// Depends on the machine (its number of cores, its load); shown for what it is worth.
    Environment,
}

/// Relation that the measured number must have to a bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    Equals(f64),
    AtMost(f64),
    AtLeast(f64),
    /// In the closed range from the first to the second.
    Between(f64, f64),
}

impl Relation {
    /// The relation of a number of things of which there must be none.
    pub const NONE: Relation = Relation::Equals(0.0);

    /// Returns true if `measured` stands in this relation; a NaN stands in none.
    #[must_use]
    pub fn holds(self, measured: f64) -> bool {
        match self {
            Relation::Equals(value) => measured == value,
            Relation::AtMost(bound) => measured <= bound,
            Relation::AtLeast(bound) => measured >= bound,
            Relation::Between(low, high) => (low..=high).contains(&measured),
        }
    }

    /// Returns the bound, the lower one of two, by which a table is sorted.
    #[must_use]
    pub const fn bound(self) -> f64 {
        match self {
            Relation::Equals(bound)
            | Relation::AtMost(bound)
            | Relation::AtLeast(bound)
            | Relation::Between(bound, _) => bound,
        }
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No bound is as fine as a millionth; smaller differences come from adding fractions.
        let round = |value: &f64| (value * 1e6).round() / 1e6;
        match self {
            Relation::Equals(value) => write!(f, "= {}", round(value)),
            Relation::AtMost(bound) => write!(f, "<= {}", round(bound)),
            Relation::AtLeast(bound) => write!(f, ">= {}", round(bound)),
            Relation::Between(low, high) => write!(f, "in {}..{}", round(low), round(high)),
        }
    }
}

/// The reason why a claim is shown without a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Withdrawn {
    /// Kernels under the same workload contradict the simulation in the claim's basis, so the claim is measured again.
    AgainstKernels,
}

impl Withdrawn {
    /// Returns the words in place of a verdict.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Withdrawn::AgainstKernels => "withdrawn: being re-measured against kernels",
        }
    }

    /// Returns the withdrawal and its reason as a sentence.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Withdrawn::AgainstKernels => {
                "withdrawn: how kernels and our own policy compare in huge pages, compaction and reclaim, and how \
                 many events Linux 5.0 and later and our own policy have. It is being re-measured against kernels: \
                 nofrag run extfrag-kernels sets the simulation beside stock 5.10, 6.1, 6.12 and 7.2 in guests, and \
                 does not reproduce all of what they count"
            }
        }
    }
}

/// Verdict of a run on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimVerdict {
    /// The measured number stands in the claim's relation to the bound.
    Holds,
    /// An exact claim does not hold: `--check` fails.
    Broken,
    /// A claim that is not exact does not hold on this machine, which is no failure.
    NotHere,
    /// The claim is shown without a verdict, for this reason.
    Withdrawn(Withdrawn),
}

/// One claim, its measured number, and its verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Oracle {
    /// Short and stable: a log or an issue cites it.
    pub id: String,
    pub kind: ClaimKind,
    /// The claim as a sentence.
    pub claim: String,
    /// The number that decides it.
    pub measured: f64,
    /// Relation that the number must have to its bound.
    pub relation: Relation,
    /// True if the number stands in that relation.
    pub holds: bool,
    /// The reason why the claim is not judged for the time being.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<Withdrawn>,
}

/// A claim that a scenario declares: a figure, or its quotient by another one, and a bound.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeclaredClaim {
    id: String,
    kind: ClaimKind,
    claim: String,
    of: DeclaredFigure,
    over: Option<DeclaredFigure>,
    must: Relation,
}

/// Program, design and figure, as a list; without a figure, the median of the times.
#[derive(Debug, Deserialize)]
struct DeclaredFigure {
    program: String,
    design: String,
    #[serde(default)]
    figure: Option<Key>,
}

/// The figure of the time that 99.9 % of single operations do not exceed.
const TAIL: Key = Key::count("p99.9 ns");

impl DeclaredClaim {
    /// Judges the claim by a report; `None` if a figure of it was not measured.
    pub(crate) fn judge(&self, report: &Report) -> Option<Oracle> {
        let of = |DeclaredFigure { program, design, figure }: &DeclaredFigure| {
            let row = report.measurement(program, design)?;
            match figure {
                None => Some(row.time.median),
                Some(figure) if *figure == TAIL => Some(row.tail?.p999_ns as f64),
                Some(figure) => row.count(figure),
            }
        };
        let measured = match &self.over {
            Some(other) => over(of(&self.of), of(other)),
            None => of(&self.of),
        };
        Some(Oracle::judge(&*self.id, self.kind, &*self.claim, measured?, self.must))
    }
}

/// An id or a sentence.
pub(crate) trait Text: Into<String> {}

impl<T: Into<String>> Text for T {}

/// A number, or nothing where its programs or designs were not run.
pub(crate) trait Measured: Into<Option<f64>> {}

impl<T: Into<Option<f64>>> Measured for T {}

/// Adds judged claims; one whose number was not measured is left out.
pub(crate) trait Claims: Extend<Oracle> {
    fn claim(
        &mut self,
        kind: ClaimKind,
        id: impl Text,
        claim: impl Text,
        measured: impl Measured,
        must: Relation,
    ) {
        self.extend(measured.into().map(|measured| Oracle::judge(id, kind, claim, measured, must)));
    }

    fn exact(&mut self, id: impl Text, claim: impl Text, measured: impl Measured, must: Relation) {
        self.claim(ClaimKind::Exact, id, claim, measured, must);
    }

    fn ratio(&mut self, id: impl Text, claim: impl Text, measured: impl Measured, must: Relation) {
        self.claim(ClaimKind::Ratio, id, claim, measured, must);
    }

    fn host(&mut self, id: impl Text, claim: impl Text, measured: impl Measured, must: Relation) {
        self.claim(ClaimKind::Environment, id, claim, measured, must);
    }
}

/// Returns `one` over `other`, if both were measured.
pub(crate) fn over(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(one? / other?)
}

impl Claims for Vec<Oracle> {}

impl Oracle {
    /// Judges a claim: it holds if `measured` stands in `relation`.
    pub fn judge(
        id: impl Into<String>,
        kind: ClaimKind,
        claim: impl Into<String>,
        measured: f64,
        relation: Relation,
    ) -> Oracle {
        let holds = relation.holds(measured);
        Oracle {
            id: id.into(),
            kind,
            claim: claim.into(),
            measured,
            relation,
            holds,
            withdrawn: None,
        }
    }

    /// Returns the verdict on the claim.
    #[must_use]
    pub fn verdict(&self) -> ClaimVerdict {
        match (self.withdrawn, self.holds, self.kind) {
            (Some(why), ..) => ClaimVerdict::Withdrawn(why),
            (None, true, _) => ClaimVerdict::Holds,
            (None, false, ClaimKind::Exact) => ClaimVerdict::Broken,
            (None, false, ClaimKind::Ratio | ClaimKind::Environment) => ClaimVerdict::NotHere,
        }
    }

    /// Returns true if the oracle makes `--check` fail.
    pub(crate) fn is_broken(&self) -> bool {
        self.verdict() == ClaimVerdict::Broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declared::declared;
    use crate::report::tests::report;

    #[test]
    fn relations_include_their_bounds() {
        assert!(Relation::AtMost(2.0).holds(2.0) && !Relation::AtMost(2.0).holds(2.1));
        assert!(Relation::AtLeast(2.0).holds(2.0) && !Relation::AtLeast(2.0).holds(1.9));
        assert!(Relation::Between(1.0, 2.0).holds(1.0) && !Relation::Between(1.0, 2.0).holds(2.5));
        assert!(Relation::Equals(0.0).holds(0.0) && !Relation::Equals(0.0).holds(f64::NAN));
    }

    #[test]
    fn a_number_that_was_not_measured_makes_no_claim() {
        let mut claims = Vec::new();
        claims.exact("none", "was not run", None::<f64>, Relation::NONE);
        claims.ratio("lost", "one side was not run", over(Some(4.0), None), Relation::NONE);
        claims.ratio("half", "both were run", over(Some(2.0), Some(4.0)), Relation::Equals(0.5));
        claims.host("one", "was run", 1.0, Relation::NONE);
        let judged: Vec<_> = claims.iter().map(|it| (&*it.id, it.kind, it.holds)).collect();
        let expected = [("half", ClaimKind::Ratio, true), ("one", ClaimKind::Environment, false)];
        assert_eq!(judged, expected);
    }

    #[test]
    fn a_declared_claim_compares_figures_or_times() {
        let judged = |of: &str| {
            let text =
                format!("id = 'i'\nkind = 'ratio'\nclaim = ''\nmust = {{ at_least = 1.0 }}\n{of}");
            let claim: DeclaredClaim = declared(&text);
            claim.judge(&report())
        };
        let measured = |of: &str| judged(of).map(|oracle| oracle.measured);
        assert_eq!(measured("of = ['walk', 'old', 'steps per search']"), Some(1.5));
        assert_eq!(measured("of = ['walk', 'old']\nover = ['walk', 'old']"), Some(1.0));
        assert_eq!(measured("of = ['walk', 'old']\nover = ['walk', 'none']"), None);
        assert_eq!(measured("of = ['walk', 'old', 'p99.9 ns']"), None, "no operation was timed");
        let low = judged("of = ['walk', 'old', 'steps per search']\nover = ['walk', 'old']");
        assert_eq!(low.map(|oracle| (oracle.kind, oracle.holds)), Some((ClaimKind::Ratio, false)));
    }

    #[test]
    fn only_exact_claims_break_a_check() {
        let judge =
            |kind| Oracle::judge("x", kind, "is zero", 1.0, Relation::Equals(0.0)).is_broken();
        assert!(judge(ClaimKind::Exact));
        assert!(!judge(ClaimKind::Ratio) && !judge(ClaimKind::Environment));
    }

    #[test]
    fn a_withdrawn_claim_neither_holds_nor_breaks() {
        for measured in [0.0, 1.0] {
            let mut oracle =
                Oracle::judge("x", ClaimKind::Exact, "is zero", measured, Relation::Equals(0.0));
            oracle.withdrawn = Some(Withdrawn::AgainstKernels);
            assert_eq!(oracle.verdict(), ClaimVerdict::Withdrawn(Withdrawn::AgainstKernels));
            assert!(!oracle.is_broken());
        }
    }
}
