//! Claims that a run confirms or refutes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How far a claim may be trusted to hold elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Follows from the algorithm; must hold on every machine and for every seed. `--check` fails when it does not.
    Exact,
    /// A relation of two measurements of one run; holds on any quiet machine.
    Ratio,
    /// Depends on the machine (its number of cores, its load); shown for what it is worth.
    Environment,
}

/// What the measured number must be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// Exactly this.
    Equals(f64),
    /// This or less.
    AtMost(f64),
    /// This or more.
    AtLeast(f64),
    /// Neither below the first nor above the second.
    Between(f64, f64),
}

impl Relation {
    /// Whether `measured` stands in this relation; something that is not a number stands in none.
    #[must_use]
    pub fn holds(self, measured: f64) -> bool {
        match self {
            Relation::Equals(value) => measured == value,
            Relation::AtMost(bound) => measured <= bound,
            Relation::AtLeast(bound) => measured >= bound,
            Relation::Between(low, high) => (low..=high).contains(&measured),
        }
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A millionth is nobody's bound; what is below it came from adding fractions.
        let round = |value: &f64| (value * 1e6).round() / 1e6;
        match self {
            Relation::Equals(value) => write!(f, "= {}", round(value)),
            Relation::AtMost(bound) => write!(f, "<= {}", round(bound)),
            Relation::AtLeast(bound) => write!(f, ">= {}", round(bound)),
            Relation::Between(low, high) => write!(f, "in {}..{}", round(low), round(high)),
        }
    }
}

/// One claim, what the run measured, and whether it held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Oracle {
    /// Short and stable: what a log or an issue cites.
    pub id: String,
    /// How far the claim reaches.
    pub kind: Kind,
    /// The claim as a sentence.
    pub claim: String,
    /// The number that decides it.
    pub measured: f64,
    /// What the number must be.
    pub relation: Relation,
    /// Whether it is.
    pub holds: bool,
}

impl Oracle {
    /// Judges `measured` by `relation`.
    pub fn judge(
        id: impl Into<String>,
        kind: Kind,
        claim: impl Into<String>,
        measured: f64,
        relation: Relation,
    ) -> Oracle {
        let holds = relation.holds(measured);
        Oracle { id: id.into(), kind, claim: claim.into(), measured, relation, holds }
    }

    /// Whether the oracle makes `--check` fail.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.kind == Kind::Exact && !self.holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_include_their_bounds() {
        assert!(Relation::AtMost(2.0).holds(2.0) && !Relation::AtMost(2.0).holds(2.1));
        assert!(Relation::AtLeast(2.0).holds(2.0) && !Relation::AtLeast(2.0).holds(1.9));
        assert!(Relation::Between(1.0, 2.0).holds(1.0) && !Relation::Between(1.0, 2.0).holds(2.5));
        assert!(Relation::Equals(0.0).holds(0.0) && !Relation::Equals(0.0).holds(f64::NAN));
    }

    #[test]
    fn only_exact_claims_break_a_check() {
        let judge =
            |kind| Oracle::judge("x", kind, "is zero", 1.0, Relation::Equals(0.0)).is_broken();
        assert!(judge(Kind::Exact));
        assert!(!judge(Kind::Ratio) && !judge(Kind::Environment));
    }
}
