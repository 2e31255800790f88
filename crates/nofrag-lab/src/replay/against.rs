//! Other recordings of one workload: what their kernels did, beside what this replay foretells of them.

use std::path::{Path, PathBuf};

use nofrag::page::PolicyPreset;
use nofrag::units::Order;
use nofrag_host::snapshot::Snapshot;
use nofrag_host::trace::{self, Trace, TraceMeta};

use super::fidelity::{End, Truth, among_repeats, counted, fidelity};
use super::outcome::{Change, Fidelity, Foretold, ForetoldFigure, PolicyRun, Query, Recorded};
use super::says::is_like;
use super::settings::Settings;
use super::{ReplayError, ReplayOptions, name_of, passes, preset_of};

/// A machine with other memory by more than this share is another machine, in percent.
const OTHER_MEMORY: u64 = 5;

/// A load that asked for more or fewer small blocks by more than this share is another load, in percent. Huge pages
/// that one kernel refuses and another serves make a part of the difference.
const OTHER_LOAD: u64 = 25;

/// Rules, and the settings that a run has in place of the recorded host's.
pub(super) type Asked = (PolicyPreset, Settings);

/// Another recording, with the counts of its kernel.
pub(super) struct Other {
    path: PathBuf,
    meta: TraceMeta,
    traced: Recorded,
}

impl Other {
    /// Reads a recording that has both snapshots. `role` is what it was named as.
    pub(super) fn read(path: &Path, role: &str) -> Result<Other, ReplayError> {
        let Trace { meta, events, .. } = trace::open(path)?;
        let mut other = Other { path: path.to_owned(), meta, traced: Recorded::default() };
        if other.meta.start().is_none() || other.meta.end().is_none() {
            let why = format!("{role} has a snapshot from before and one from after it");
            return Err(other.refused(&why));
        }
        let mut traced = passes::recorded(events)?;
        let [start, end] = other.snapshots();
        traced.reclaimed_kswapd = counted(&start, &end, "pgsteal_kswapd");
        other.traced = traced;
        Ok(other)
    }

    fn refused(&self, why: &str) -> ReplayError {
        ReplayError::Others(format!("{}: {why}", self.path.display()))
    }

    /// Refuses it if its kernel is not of this release.
    pub(super) fn is_of(&self, release: Option<&str>) -> Result<(), ReplayError> {
        match self.meta.release.as_deref() == release {
            true => Ok(()),
            false => Err(self.refused("a repeat is of the same kernel")),
        }
    }

    /// Refuses it if its load asked for far more or fewer small blocks than that of `traced`.
    fn has_load_of(&self, traced: &Recorded) -> Result<(), ReplayError> {
        let small = |of: &Recorded| of.requests.iter().take(Order::PAGEBLOCK.index()).sum::<u64>();
        let [ours, theirs] = [traced, &self.traced].map(small);
        if 100 * ours.abs_diff(theirs) > OTHER_LOAD * ours {
            let why = format!(
                "its load asked for {theirs} small blocks and this one's for {ours}: what differs is not the kernels' \
                 doing; record both until the same work is done"
            );
            return Err(self.refused(&why));
        }
        Ok(())
    }

    /// Returns the snapshots from before and after it.
    fn snapshots(&self) -> [Snapshot<'_>; 2] {
        let both = [self.meta.start(), self.meta.end()];
        both.map(|taken| Snapshot::parse(&taken.expect("it was read with both").files))
    }

    /// Compares runs with its kernel, as `beside` does it with the replayed recording's, which is `truth`.
    pub(super) fn beside(
        &self,
        truth: &Truth<'_>,
        beside: impl Fn(&Truth<'_>) -> Fidelity,
    ) -> Fidelity {
        let [start, end] = self.snapshots();
        beside(&Truth {
            start: &start,
            end: &end,
            traced: &self.traced,
            traces_moves: truth.traces_moves,
            followed: truth.followed.clone(),
        })
    }

    /// Returns the rules of its kernel, with the settings in which it differs from the replayed recording's host.
    pub(super) fn asked(&self, start: &Snapshot<'_>) -> Result<Asked, ReplayError> {
        let [other, _] = self.snapshots();
        let memory = |of: &Snapshot<'_>| of.populated().map(|zone| zone.managed).sum::<u64>();
        let [ours, theirs] = [start, &other].map(memory);
        if 100 * ours.abs_diff(theirs) > OTHER_MEMORY * ours {
            let why = format!(
                "its machine has {theirs} pages of memory and this one {ours}: what one workload does on another \
                 machine is not foretold"
            );
            return Err(self.refused(&why));
        }
        let release = self.meta.release.as_deref().unwrap_or("an unknown release");
        let preset = preset_of(release).ok_or_else(|| {
            self.refused(&format!("there is no preset with the rules of Linux {release}"))
        })?;
        Ok((preset, Settings::that_differ(&preset.policy, start, &other)))
    }

    /// Sets what its kernel counted beside the run under its rules. `own` is the replay under the recorded kernel's own
    /// rules beside that kernel, `foretold` the run beside this recording's.
    pub(super) fn foretold(
        &self,
        own: &Fidelity,
        run: &PolicyRun,
        foretold: &Fidelity,
    ) -> Foretold {
        let main = |of: &Fidelity, query: Query| {
            of.figures.iter().find(|figure| figure.carries.contains(&query)).cloned()
        };
        // Kernels count no blocks from pageblocks of another type, and events of two kinds are not compared.
        let is_asked =
            |query: &Query| *query != Query::Mistyped && is_like(&own.preset, &run.policy, *query);
        let asked = Query::ALL.into_iter().filter(is_asked);
        let figures = asked.filter_map(|query| {
            let (here, there) = (main(own, query)?, main(foretold, query)?);
            let [low, high] = here.tolerance.bound(here.recorded);
            let kernels = Change::of(there.recorded < low, there.recorded > high);
            let replayed = there.replayed;
            let is_said = own.answers(query) && run.out_of_memory().is_none();
            // What kernels are too far apart to show is no change that they could confirm.
            let [low, high] = here.tolerance.bound(here.replayed.median);
            let said = match replayed.median < low || replayed.median > high {
                true => replayed.change_from(&here.replayed),
                false => Change::Same,
            };
            Some(ForetoldFigure {
                query,
                recorded: [here.recorded, there.recorded],
                replayed,
                kernels,
                foretold: is_said.then_some(said),
            })
        });
        Foretold {
            trace: self.path.display().to_string(),
            release: self.meta.release.clone(),
            run: run.policy.clone(),
            figures: figures.collect(),
        }
    }
}

/// The runs of a replay, by spec, with their memory at the end and the number of that under the kernel's own rules.
pub(super) struct Ran<'a> {
    pub(super) runs: &'a [PolicyRun],
    pub(super) ends: &'a [Vec<End>],
    pub(super) own: usize,
}

impl Ran<'_> {
    /// Compares the runs with the recorded kernel, which is `truth`, and with those of other recordings.
    pub(super) fn judged(
        &self,
        options: &ReplayOptions,
        against: &[(Other, Asked)],
        truth: &Truth<'_>,
        release: Option<&str>,
    ) -> Result<(Fidelity, Vec<Foretold>), ReplayError> {
        let repeats = options.repeats_of.iter().map(|path| {
            let other = Other::read(path, "a repeat")?;
            other.is_of(release)?;
            other.has_load_of(truth.traced)?;
            Ok(other.beside(truth, |truth| self.fidelity(truth, self.own)))
        });
        let repeats = repeats.collect::<Result<Vec<Fidelity>, ReplayError>>()?;
        let one = self.fidelity(truth, self.own);
        let own = if repeats.is_empty() { one } else { among_repeats(&one, &repeats) };
        against.iter().try_for_each(|(other, _)| other.has_load_of(truth.traced))?;
        let foretold = against.iter().filter_map(|(other, (preset, settings))| {
            let name = name_of(preset.name, settings);
            let is_asked = |run: &PolicyRun| run.policy == name && run.memory_percent == 100;
            let run = self.runs.iter().position(is_asked)?;
            let of_run = other.beside(truth, |truth| self.fidelity(truth, run));
            Some(other.foretold(&own, &self.runs[run], &of_run))
        });
        let foretold = foretold.collect();
        Ok((own, foretold))
    }

    fn fidelity(&self, truth: &Truth<'_>, run: usize) -> Fidelity {
        let PolicyRun { policy, repeats, .. } = &self.runs[run];
        fidelity(policy, (repeats, &self.ends[run]), truth)
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::{Answer, FidelityFigure, Range, Repeat, Tolerance, Verdict};
    use super::*;

    /// Returns a comparison in which the kernel moved `recorded` pages, and the runs from `least` to `most`.
    fn fidelity(recorded: f64, (least, most): (f64, f64), verdict: Verdict) -> Fidelity {
        let figures = vec![FidelityFigure {
            name: crate::key::Key::count("pages moved by compaction"),
            recorded,
            replayed: Range { least, median: least, most },
            tolerance: Tolerance::FactorOr(2.0, 5.0),
            verdict,
            carries: vec![Query::Moves],
        }];
        let answers = vec![Answer { query: Query::Moves, verdict, rests_on: Vec::new() }];
        Fidelity { preset: "linux-6.1".to_owned(), figures, answers }
    }

    fn run(out_of_memory: Option<u64>) -> PolicyRun {
        PolicyRun {
            policy: "linux-6.1:boost=0".to_owned(),
            settings: Default::default(),
            memory_percent: 100,
            managed: 1,
            repeats: vec![Repeat { out_of_memory, ..Repeat::default() }],
        }
    }

    fn other() -> Other {
        let (path, meta) = ("b".into(), TraceMeta::default());
        Other { path, meta, traced: Recorded::default() }
    }

    #[test]
    fn another_load_is_refused() {
        let with = |singles: u64, pairs: u64| {
            let mut traced = Recorded::default();
            traced.requests[..2].copy_from_slice(&[singles, pairs]);
            traced
        };
        let check = |singles, pairs| {
            let other = Other { traced: with(singles, pairs), ..other() };
            other.has_load_of(&with(1000, 100))
        };
        assert!(check(900, 0).is_ok() && check(1300, 70).is_ok());
        assert!(check(1500, 0).is_err());
        let told = check(400, 100).unwrap_err().to_string();
        assert!(told.contains("500 small blocks and this one's for 1100"), "{told}");
    }

    /// Returns the change between kernels, and the one that is foretold.
    fn changes(own: Fidelity, run: &PolicyRun, there: Fidelity) -> (Change, Option<Change>) {
        let foretold = other().foretold(&own, run, &there);
        let [figure] = foretold.figures[..] else { panic!("{foretold:?}") };
        (figure.kernels, figure.foretold)
    }

    #[test]
    fn changes_are_those_beyond_chance_on_either_side() {
        let own = || fidelity(100.0, (90.0, 120.0), Verdict::Holds);
        let there = |recorded, runs| fidelity(recorded, runs, Verdict::Off);
        for (recorded, runs, kernels, foretold) in [
            (199.0, (110.0, 400.0), Change::Same, Change::Same),
            (201.0, (181.0, 400.0), Change::More, Change::More),
            (201.0, (121.0, 400.0), Change::More, Change::Same),
            (49.0, (10.0, 90.0), Change::Less, Change::Same),
            (100.0, (44.0, 89.0), Change::Same, Change::Less),
        ] {
            let said = changes(own(), &run(None), there(recorded, runs));
            assert_eq!(said, (kernels, Some(foretold)), "{recorded} {runs:?}");
        }
    }

    #[test]
    fn nothing_is_foretold_of_what_the_replay_cannot_say() {
        let there = || fidelity(300.0, (300.0, 300.0), Verdict::Off);
        let wide = fidelity(100.0, (90.0, 120.0), Verdict::Wide);
        assert_eq!(changes(wide, &run(None), there()), (Change::More, None));
        let holds = fidelity(100.0, (90.0, 120.0), Verdict::Holds);
        assert_eq!(changes(holds, &run(Some(7)), there()), (Change::More, None));
    }
}
