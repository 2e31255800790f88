//! Statements that a replay's runs allow: a figure only where the run under the recorded kernel's own rules has it as
//! that kernel had it, and none of a run whose memory was too small.

use nofrag::page::{FallbackRules, FragmentationPolicy};
use nofrag_show::Cell;

use super::outcome::{Change, Fidelity, PolicyRun, Query, ReplayReport};
use crate::key::Key;

/// The figures that a column of a table rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rests<'a> {
    /// All figures of a question.
    On(Query),
    /// All figures of a question, and one figure more.
    OnBoth(Query, &'a Key),
    /// A figure that answers no question.
    OnFigure(&'a Key),
}

/// The statements that a report allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Says<'a> {
    /// `None` where no kernel's figures are known: then everything is shown, and a caution says so.
    fidelity: Option<&'a Fidelity>,
    own: Option<&'a PolicyRun>,
}

impl<'a> Says<'a> {
    pub(super) fn of(report: &'a ReplayReport) -> Says<'a> {
        let fidelity = report.fidelity.as_ref();
        let own = fidelity.and_then(|fidelity| {
            let is_own =
                |run: &&PolicyRun| run.policy == fidelity.preset && run.memory_percent == 100;
            report.runs.iter().find(is_own)
        });
        Says { fidelity, own }
    }

    /// Returns true if a column that rests on these figures may be shown.
    pub(super) fn may(&self, rests: Rests<'_>) -> bool {
        self.fidelity.is_none_or(|fidelity| match rests {
            Rests::On(query) => fidelity.answers(query),
            Rests::OnBoth(query, figure) => fidelity.answers(query) && fidelity.holds(figure),
            Rests::OnFigure(figure) => fidelity.holds(figure),
        })
    }

    /// Returns a cell of a table: `cell`, or a dash if nothing may be said.
    pub(super) fn cell(
        &self,
        run: &PolicyRun,
        rests: Rests<'_>,
        cell: impl FnOnce() -> Cell,
    ) -> Cell {
        match self.may(rests) && run.out_of_memory().is_none() {
            true => cell(),
            false => Cell::Missing,
        }
    }

    /// Returns the answer to a question under a policy, with a word if it differs from that under the recorded kernel's
    /// rules.
    pub(super) fn answer(&self, run: &PolicyRun, query: Query) -> Cell {
        let range = run.answer(query);
        Cell::About(range.median, format!("{range}{}", self.difference(run, query)))
    }

    /// Returns the word of [`answer`](Self::answer), behind a blank; nothing where it does not differ.
    pub(super) fn difference(&self, run: &PolicyRun, query: Query) -> &'static str {
        let range = run.answer(query);
        let beside = self.own.filter(|own| is_compared(own, run, query));
        match beside.map(|own| own.answer(query)).map(|own| range.change_from(&own)) {
            Some(Change::Same) => " =",
            Some(Change::Less) => " less",
            Some(Change::More) => " more",
            None => "",
        }
    }
}

/// Returns true if a question means the same under both policies, given by name. For events it does not on both sides
/// of Linux 6.10: each stolen block was one before, each stolen page is one since.
pub(crate) fn is_like(one: &str, other: &str, query: Query) -> bool {
    let counts_blocks = |name: &str| {
        let preset = FragmentationPolicy::preset(name.split(':').next().unwrap_or_default());
        preset.ok().map(|preset| preset.policy.fallback == FallbackRules::Loose)
    };
    query != Query::Events || counts_blocks(one) == counts_blocks(other)
}

fn is_compared(own: &PolicyRun, run: &PolicyRun, query: Query) -> bool {
    let is_own = own.policy == run.policy && own.memory_percent == run.memory_percent;
    !is_own && own.out_of_memory().is_none() && is_like(&own.policy, &run.policy, query)
}

#[cfg(test)]
mod tests {
    use nofrag_host::trace::Unseen;

    use super::super::outcome::{
        Answer, Counts, FidelityFigure, Range, Recorded, Repeat, Tolerance, Verdict, served,
    };
    use super::super::sections;
    use super::*;
    use nofrag_show::Section;

    /// Returns a run in which each count has a number of its own.
    fn run(policy: &str, times: u64, out_of_memory: Option<u64>) -> PolicyRun {
        let mut counts = Counts {
            moved: 1_117 * times,
            reclaimed_kswapd: 2_221 * times,
            direct_reclaims: 3_331 * times,
            ..Counts::default()
        };
        (counts.requests[9], counts.served[9]) = (5_000, 4_447);
        (counts.extfrag[0], counts.mistyped[0]) = (5_557 * times, 6_661 * times);
        let repeat = Repeat { counts, large_at_end: 7_777, out_of_memory, ..Repeat::default() };
        PolicyRun {
            policy: policy.to_owned(),
            settings: Default::default(),
            memory_percent: 100,
            managed: 1,
            repeats: vec![repeat],
        }
    }

    /// The figure that tables show for each query of a [`run`] with `times` 2.
    const SHOWN: [(Query, &str); 7] = [
        (Query::Huge, "4,447"),
        (Query::Events, "11,114"),
        (Query::Mistyped, "13,322"),
        (Query::Moves, "2,234"),
        (Query::Reclaim, "4,442"),
        (Query::Direct, "6,662"),
        (Query::Largest, "7,777"),
    ];

    fn report(verdict: impl Fn(Query) -> Verdict, runs: Vec<PolicyRun>) -> ReplayReport {
        let answer = |query| Answer { query, verdict: verdict(query), rests_on: Vec::new() };
        let figures = vec![FidelityFigure {
            name: served("order 9"),
            recorded: 1.0,
            replayed: Range { least: 1.0, median: 1.0, most: 1.0 },
            tolerance: Tolerance::Percent(1.0),
            verdict: verdict(Query::Huge),
            carries: vec![Query::Huge],
        }];
        let preset = "linux-6.1".to_owned();
        let answers = Query::ALL.map(answer).to_vec();
        ReplayReport {
            trace: "a".to_owned(),
            release: None,
            seed: 1,
            repeats: 1,
            recorded: Recorded::default(),
            unseen: Unseen::default(),
            runs,
            fidelity: Some(Fidelity { preset, figures, answers }),
            against: Vec::new(),
            vmap: None,
            mmap: None,
            cautions: Vec::new(),
        }
    }

    fn text(verdict: impl Fn(Query) -> Verdict, runs: Vec<PolicyRun>) -> String {
        nofrag_show::text(&sections(&report(verdict, runs)))
    }

    /// Leaves each question unanswered in turn: tables of all policies once showed its figure nevertheless.
    #[test]
    fn no_figure_is_shown_of_a_question_that_is_not_answered() {
        for (asked, shown) in SHOWN {
            let runs = || vec![run("linux-6.1", 1, None), run("linux-5.3", 2, None)];
            let all = text(|_| Verdict::Holds, runs());
            assert!(all.contains(shown), "{asked:?}");
            let of = |query| if query == asked { Verdict::Off } else { Verdict::Holds };
            let without = text(of, runs());
            assert!(!without.contains(shown), "{asked:?}: {without}");
        }
    }

    #[test]
    fn curves_of_a_setting_are_drawn_of_what_is_answered() {
        let runs = || {
            let of = |boost: u64| {
                let settings = [("boost".to_owned(), boost)].into();
                PolicyRun { settings, ..run(&format!("linux-6.1:boost={boost}"), boost, None) }
            };
            vec![run("linux-6.1", 1, None), of(1), of(2), of(3)]
        };
        let curves = |answered: Query| {
            let of = |query| if query == answered { Verdict::Holds } else { Verdict::Wide };
            let sections = sections(&report(of, runs()));
            let titles = sections.into_iter().filter_map(|section| match section {
                Section::Chart { title, layers, .. } => Some((title, layers.len())),
                _ => None,
            });
            titles.collect::<Vec<_>>()
        };
        let title = "linux-6.1 by boost: external fragmentation events".to_owned();
        assert_eq!(curves(Query::Events), [(title, 3)]);
        assert_eq!(curves(Query::Moves), []);
    }

    #[test]
    fn nothing_is_said_of_a_run_whose_memory_is_too_small() {
        let runs = vec![run("linux-6.1", 1, None), run("linux-5.3", 2, Some(9))];
        let text = text(|_| Verdict::Holds, runs);
        assert!(text.contains("linux-5.3 (too small)"), "{text}");
        for (asked, shown) in SHOWN {
            let is_of_both = matches!(asked, Query::Huge | Query::Largest);
            assert!(is_of_both || !text.contains(shown), "{asked:?}");
        }
    }

    /// 7.2 and our own policy were once said to have more events than 6.1, which counts stolen blocks where they count
    /// stolen pages.
    #[test]
    fn events_of_the_other_side_of_linux_6_10_are_not_called_more_or_less() {
        let word = |other: &str| {
            let text = text(
                |query| if query == Query::Events { Verdict::Holds } else { Verdict::Off },
                vec![run("linux-6.1", 1, None), run(other, 2, None)],
            );
            let table = text.split("What the policies do").nth(1).expect("there is a table");
            let row = table.lines().find(|line| line.contains(other)).expect("a row");
            row.trim_end().ends_with("more")
        };
        assert_eq!(["linux-5.3", "linux-7.2", "nofrag"].map(word), [true, false, false]);
    }
}
