//! Check of a run: it has the rows and the number of claims that its scenario declares, and no exact claim is broken.
//!
//! A claim that is never judged cannot break, and a program without a row looks like one that was not asked for. So
//! each scenario declares the content of its default run in a file beside its code (`scenario.toml`). Programs that a
//! host does not allow are skipped by name (`Report::skip`), and the declaration gives the number of claims that go
//! with each name.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use crate::oracle::Oracle;
use crate::report::Report;
use crate::scenario::{Options, Scenario};
use nofrag_show::plain;

/// Content of the default run of a scenario, on a host that allows all of it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// Number of claims, withdrawn ones included.
    pub claims: usize,
    /// Number of rows, so that one that is lost from the list below is missed.
    pub pairs: usize,
    /// Rows: each of these programs under each of these designs.
    pub rows: Vec<Rows>,
    /// Designs that a default run leaves out.
    #[serde(default)]
    pub left_out: Vec<String>,
    /// Names that a host may refuse, with the number of claims that go with each. The rows that go with a name have it
    /// as program or as design.
    #[serde(default)]
    pub may_be_skipped: BTreeMap<String, usize>,
}

/// Programs that run under the same designs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    pub programs: Vec<String>,
    pub designs: Vec<String>,
}

impl Expected {
    /// Returns true if a program runs under a design.
    pub(crate) fn has(&self, program: &str, design: &str) -> bool {
        self.rows().any(|row| row == (program, design))
    }

    /// Returns the designs under which a program runs.
    pub(crate) fn designs_of(&self, program: &str) -> impl Iterator<Item = &str> {
        self.rows().filter(move |row| row.0 == program).map(|row| row.1)
    }

    /// Returns what the declaration lacks for a scenario with these designs; `None` if it is whole: each design has a
    /// row, under its name or with more behind a comma, or is left out by name, and there are as many rows as declared.
    pub(crate) fn fault(&self, designs: &[&str]) -> Option<String> {
        let rows = self.rows().count();
        if rows != self.pairs {
            let pairs = self.pairs;
            return Some(format!("scenario.toml declares {pairs} pairs and has rows for {rows}"));
        }
        let is_of = |row: &str, design: &str| {
            let more = row.strip_prefix(design);
            more.is_some_and(|more| more.is_empty() || more.starts_with(", "))
        };
        let runs = |design: &str| self.rows().any(|(_, row)| is_of(row, design));
        let is_left_out = |design: &str| self.left_out.iter().any(|it| it == design);
        let lost = designs.iter().copied().find(|design| runs(design) == is_left_out(design));
        let unknown = self.left_out.iter().find(|it| !designs.contains(&it.as_str()));
        let unknown = unknown
            .map(|design| format!("left_out in scenario.toml has {design}, which is no design"));
        lost.map(|design| {
            format!("scenario.toml has to have {design} in rows or in left_out, and not in both")
        })
        .or(unknown)
    }

    fn rows(&self) -> impl Iterator<Item = (&str, &str)> {
        self.rows.iter().flat_map(|rows| {
            let designs = move |program| rows.designs.iter().map(move |design| (program, design));
            let pairs = rows.programs.iter().flat_map(designs);
            pairs.map(|(program, design)| (program.as_str(), design.as_str()))
        })
    }
}

/// The reason why a checked run fails.
#[derive(Clone, Debug, PartialEq)]
pub enum Shortfall {
    /// An exact claim does not hold.
    Broken(Oracle),
    /// A declared row was not measured.
    MissingRow { program: String, design: String },
    /// A row was measured that is not declared, so that its loss would go unnoticed.
    UndeclaredRow { program: String, design: String },
    /// Another number of claims was judged than is declared.
    Claims {
        judged: usize,
        /// Number of declared claims, on this host.
        expected: usize,
    },
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shortfall::Broken(Oracle { id, claim, measured, relation, .. }) => write!(
                f,
                "broken claim {id}: {claim}; measured {}, must be {relation}",
                plain(*measured)
            ),
            Shortfall::MissingRow { program, design } => {
                write!(f, "missing row: {program} under {design}")
            }
            Shortfall::UndeclaredRow { program, design } => {
                write!(f, "row that scenario.toml does not declare: {program} under {design}")
            }
            Shortfall::Claims { judged, expected } => {
                write!(f, "{judged} claims where scenario.toml declares {expected}")
            }
        }
    }
}

/// Returns the reasons why a run with these options fails its check; none if it passes. Rows and the number of claims
/// are declared for default runs alone: in a run with chosen programs, designs or sizes, only broken claims are judged.
#[must_use]
pub fn shortfalls(scenario: &Scenario, options: &Options, report: &Report) -> Vec<Shortfall> {
    let mut found: Vec<Shortfall> = report.broken().cloned().map(Shortfall::Broken).collect();
    if *options == Options::default() {
        found.extend(incomplete(&scenario.expected, report));
    }
    found
}

fn incomplete(expected: &Expected, report: &Report) -> Vec<Shortfall> {
    let may_be = |name: &str| expected.may_be_skipped.contains_key(name);
    let is_skipped =
        |name: &str| may_be(name) && report.skipped.iter().any(|skipped| skipped.what == name);
    let measured = |(program, design): &(&str, &str)| report.measurement(program, design).is_some();
    let missing = expected
        .rows()
        .filter(|row| !measured(row))
        .filter(|(program, design)| !is_skipped(program) && !is_skipped(design))
        .map(|(program, design)| Shortfall::MissingRow {
            program: program.to_owned(),
            design: design.to_owned(),
        });
    let undeclared =
        report.measurements.iter().filter(|row| !expected.has(&row.program, &row.design)).map(
            |row| Shortfall::UndeclaredRow {
                program: row.program.clone(),
                design: row.design.clone(),
            },
        );
    let mut found: Vec<Shortfall> = missing.chain(undeclared).collect();
    let without: usize =
        report.skipped.iter().filter_map(|it| expected.may_be_skipped.get(&it.what)).sum();
    let (judged, expected) = (report.oracles.len(), expected.claims.saturating_sub(without));
    found.extend((judged != expected).then_some(Shortfall::Claims { judged, expected }));
    found
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::declared::declared;
    use crate::oracle::{ClaimKind, Relation};
    use crate::report;
    use crate::scenario::{Declaration, Silent, Special, scenarios};

    const fn sample(declared: fn() -> Declaration) -> Scenario {
        Scenario {
            declared: LazyLock::new(declared),
            run: |_, _| Ok(report::tests::report()),
            present: |_| Vec::new(),
            special: Special::NONE,
        }
    }

    static SAMPLE: Scenario = sample(|| {
        Declaration::of(
            "name = 'sample'\nabout = ''\ndocument = 'none'\ndesigns = ['old', 'new']\n\
             [expected]\nclaims = 1\npairs = 4\n\
             [[expected.rows]]\nprograms = ['walk', 'rest']\ndesigns = ['old', 'new']\n\
             [expected.may_be_skipped]\nwalk = 1\nnew = 1\n",
        )
    });

    /// Returns what is short of a good report after this change.
    fn of(spoil: fn(&mut Report), options: &Options) -> Vec<String> {
        let mut report = SAMPLE.run(options, &Silent).unwrap();
        spoil(&mut report);
        shortfalls(&SAMPLE, options, &report).iter().map(Shortfall::to_string).collect()
    }

    fn default_run(spoil: fn(&mut Report)) -> Vec<String> {
        of(spoil, &Options::default())
    }

    #[test]
    fn a_good_run_passes() {
        assert_eq!(default_run(|_| {}), Vec::<String>::new());
    }

    #[test]
    fn a_missing_row_fails() {
        let found = default_run(|report| drop(report.measurements.remove(1)));
        assert_eq!(found, ["missing row: walk under new"]);
    }

    #[test]
    fn a_row_that_nobody_declared_fails() {
        let found = default_run(|report| report.measurements[0].design = "newer".to_owned());
        assert_eq!(found.len(), 2);
        assert!(found[1].contains("does not declare: walk under newer"), "{found:?}");
    }

    #[test]
    fn a_claim_too_few_or_too_many_fails() {
        let fewer = default_run(|report| report.oracles.clear());
        assert_eq!(fewer, ["0 claims where scenario.toml declares 1"]);
        let more = default_run(|report| report.oracles.extend(report.oracles.clone()));
        assert_eq!(more, ["2 claims where scenario.toml declares 1"]);
    }

    #[test]
    fn a_broken_exact_claim_fails_whatever_the_options() {
        let broken = |report: &mut Report| {
            report.oracles =
                vec![Oracle::judge("o", ClaimKind::Exact, "is one", 2.0, Relation::Equals(1.0))];
        };
        let options = Options { mask: Some("walk".to_owned()), ..Options::default() };
        for options in [Options::default(), options] {
            let expected = ["broken claim o: is one; measured 2, must be = 1"];
            assert_eq!(of(broken, &options), expected);
        }
    }

    #[test]
    fn what_was_chosen_need_not_be_complete() {
        let options = Options { designs: vec!["old".to_owned()], ..Options::default() };
        assert_eq!(of(|report| report.measurements.clear(), &options), Vec::<String>::new());
    }

    #[test]
    fn what_the_host_refuses_is_not_missing() {
        let found = default_run(|report| {
            report.skip("walk", "the host has no legs");
            report.measurements.retain(|row| row.program != "walk");
            report.oracles.clear();
        });
        assert_eq!(found, Vec::<String>::new());
        let found = default_run(|report| {
            report.skip("new", "the host is older than that");
            report.measurements.retain(|row| row.design != "new");
            report.oracles.clear();
        });
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn only_what_is_declared_may_be_skipped() {
        let claims = default_run(|report| {
            report.skip("another thing", "it was too heavy");
            report.oracles.clear();
        });
        assert_eq!(claims, ["0 claims where scenario.toml declares 1"]);
        let rows = default_run(|report| {
            report.skip("rest", "nobody said that it could be missing");
            report.measurements.retain(|row| row.program != "rest");
        });
        assert_eq!(rows, ["missing row: rest under old", "missing row: rest under new"]);
    }

    #[test]
    fn a_design_that_is_lost_from_the_declaration_fails_every_run() {
        let of = |rows: &str, more: &str| {
            declared::<Expected>(&format!("claims = 1\npairs = 2\n{more}\n[[rows]]\n{rows}"))
        };
        let of_two = "programs = ['walk']\ndesigns = ['old', 'new, down']";
        assert_eq!(of(of_two, "").fault(&["old", "new"]), None);
        let fault = |rows, more| of(rows, more).fault(&["old", "new"]).unwrap();
        let lost = fault("programs = ['walk']\ndesigns = ['old']", "");
        assert_eq!(lost, "scenario.toml declares 2 pairs and has rows for 1");
        let replaced = "programs = ['walk']\ndesigns = ['old', 'newer']";
        assert!(fault(replaced, "").contains("has to have new in rows"));
        assert_eq!(of(replaced, "left_out = ['new']").fault(&["old", "new"]), None);
        assert!(fault(of_two, "left_out = ['new']").contains("not in both"));
        assert!(fault(of_two, "left_out = ['none']").contains("none, which is no design"));
        let without = sample(|| {
            Declaration::of(
                "name = ''\nabout = ''\ndocument = ''\ndesigns = []\n\
                 [expected]\nclaims = 1\npairs = 1\nrows = []\n",
            )
        });
        let error = without.run(&Options::default(), &Silent).unwrap_err();
        assert!(error.to_string().contains("has rows for 0"), "{error}");
    }

    #[test]
    fn every_scenario_declares_rows_and_claims() {
        for scenario in scenarios() {
            let expected = &scenario.expected;
            assert_eq!(expected.fault(&scenario.designs), None, "{}", scenario.name);
            assert!(expected.claims > 0 && expected.rows().count() > 0, "{}", scenario.name);
            let mut rows: Vec<_> = expected.rows().collect();
            rows.sort_unstable();
            let all = rows.len();
            rows.dedup();
            assert_eq!(rows.len(), all, "{} declares a row twice", scenario.name);
        }
    }
}
