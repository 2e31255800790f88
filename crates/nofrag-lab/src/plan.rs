//! Extent of a run: what its options ask for, and a scenario's own values where they leave it the choice.

use std::ops::RangeInclusive;

use crate::report::Settings;
use crate::scenario::{Extent, Mode, Options, Progress, RunError, ThpTouch, turn};
use nofrag_show::cpus;

/// Designs and programs of a run, and how much is made of them.
#[derive(Clone, Debug)]
pub(crate) struct Plan<D, P> {
    /// The designs to compare, oldest first.
    pub(crate) designs: Vec<D>,
    pub(crate) programs: Vec<P>,
    pub(crate) extent: Extent,
    /// The seed of all random numbers.
    pub(crate) seed: u64,
    pub(crate) repeats: usize,
    /// Loops of one repetition, before a program's own bound.
    pub(crate) loops: u64,
    /// Pages of a mapping, for programs that have no size of their own.
    pub(crate) pages: u64,
    /// Threads of parallel programs; of simulations, the runs at a time.
    pub(crate) threads: usize,
    /// Sizes of the simulated machine's memory in GiB, as they were asked for.
    pub(crate) memory: Vec<u64>,
    pub(crate) touch: ThpTouch,
}

/// A scenario's own value of an option, the values that it allows, and the reason behind these as the end of a
/// sentence.
pub(crate) type Bounded = (u64, RangeInclusive<u64>, &'static str);

/// Any number from one on.
pub(crate) const POSITIVE: RangeInclusive<u64> = 1..=u64::MAX;

/// As many runs of a simulation at a time as there are processors, unless the command line says otherwise.
pub(crate) fn runs_at_a_time() -> Bounded {
    (cpus() as u64, 1..=1024, ": so many runs go at a time")
}

/// A scenario's own values of the options.
pub(crate) struct Usual {
    pub(crate) seed: u64,
    pub(crate) repeats: usize,
    /// `None` where there are no loops.
    pub(crate) loops: Option<Bounded>,
    /// `None` where every program has sizes of its own.
    pub(crate) pages: Option<Bounded>,
    /// `None` where there is one thread.
    pub(crate) threads: Option<Bounded>,
}

impl Usual {
    /// One run from seed 1, on one thread.
    pub(crate) const ONCE: Usual =
        Usual { seed: 1, repeats: 1, loops: None, pages: None, threads: None };
}

impl<D, P> Plan<D, P> {
    /// Reads the options that give numbers.
    ///
    /// # Errors
    /// [`RunError::BadOption`] for a number out of its range.
    pub(crate) fn of(
        options: &Options,
        designs: Vec<D>,
        programs: Vec<P>,
        usual: Usual,
    ) -> Result<Plan<D, P>, RunError> {
        let [repeats, threads] =
            [options.repeat, options.threads].map(|number| number.map(|number| number as u64));
        let one_or = |option, asked, usual: Option<Bounded>| {
            usual.map_or(Ok(1), |usual| bounded(option, asked, usual))
        };
        Ok(Plan {
            designs,
            programs,
            extent: options.extent,
            seed: options.seed.unwrap_or(usual.seed),
            repeats: bounded("repeat", repeats, (usual.repeats as u64, POSITIVE, ""))? as usize,
            loops: one_or("loops", options.loops, usual.loops)?,
            pages: one_or("pages", options.pages, usual.pages)?,
            threads: one_or("threads", threads, usual.threads)? as usize,
            memory: options.memory.clone(),
            touch: options.thp_touch.unwrap_or_default(),
        })
    }

    /// Runs every program under every design, in as many passes, and returns what `cell` has gathered in the row of
    /// each pair. Designs take turns: in each pass another one comes first. `name` names a pair that takes part in a
    /// pass.
    pub(crate) fn take_turns<'a, R: Default, E: ToString>(
        &'a self,
        (passes, progress): (usize, &dyn Progress),
        name: impl Fn(usize, &'a P, &'a D) -> Option<[&'a str; 2]>,
        mut cell: impl FnMut(usize, &P, &D, &mut R) -> Result<(), E>,
    ) -> Result<Vec<(&'a P, &'a D, R)>, RunError> {
        let of_program = |program| self.designs.iter().map(move |it| (program, it, R::default()));
        let mut rows: Vec<(&P, &D, R)> = self.programs.iter().flat_map(of_program).collect();
        let taken = |pass| rows.iter().filter(|it| name(pass, it.0, it.1).is_some()).count();
        progress.begin((0..passes).map(taken).sum::<usize>() as u64);
        let order: Vec<usize> = (0..self.designs.len()).collect();
        for pass in 0..passes {
            for rows in rows.chunks_mut(order.len().max(1)) {
                for at in turn(&order, pass) {
                    let (program, design, row) = &mut rows[at];
                    let Some([of, under]) = name(pass, program, design) else { continue };
                    progress.step(&format!("{of} under {under}"));
                    cell(pass, program, design, row)
                        .map_err(|why| RunError::engine(under, of, why))?;
                }
            }
        }
        progress.end();
        Ok(rows)
    }

    /// Returns the settings of a report on this run; `name` gives the name of a design.
    pub(crate) fn settings(&self, mode: Mode, name: impl Fn(&D) -> &str) -> Settings {
        Settings {
            mode: mode.into_str().to_owned(),
            seed: self.seed,
            repeats: self.repeats,
            loops: self.loops,
            pages: self.pages,
            threads: self.threads,
            designs: self.designs.iter().map(|design| name(design).to_owned()).collect(),
            ..Settings::default()
        }
    }
}

/// Returns the value of an option, or the usual one; refuses a value out of its range.
pub(crate) fn bounded(
    option: &'static str,
    asked: Option<u64>,
    (usual, range, reason): Bounded,
) -> Result<u64, RunError> {
    let value = asked.unwrap_or(usual);
    if range.contains(&value) {
        return Ok(value);
    }
    let (least, most) = range.into_inner();
    let why = match most {
        u64::MAX => format!("must be at least {least}{reason}"),
        _ => format!("must be between {least} and {most}{reason}"),
    };
    Err(RunError::option(option, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Silent;

    fn usual() -> Usual {
        let pages = Some((4, 1..=64, ": what is larger is no block's"));
        Usual { seed: 7, repeats: 5, loops: Some((100, POSITIVE, "")), pages, threads: None }
    }

    fn plan(options: &Options) -> Result<Plan<&'static str, char>, RunError> {
        Plan::of(options, vec!["old", "mid", "new"], vec!['p', 'q'], usual())
    }

    #[test]
    fn what_is_not_asked_for_is_the_scenario_s_own() {
        let settings = plan(&Options::default()).unwrap().settings(Mode::Compare, |name| name);
        let Settings { seed, repeats, loops, pages, threads, designs, .. } = settings;
        assert_eq!((seed, repeats, loops, pages, threads), (7, 5, 100, 4, 1));
        assert_eq!(designs, ["old", "mid", "new"]);
        let (seed, repeat, pages, threads) = (Some(1), Some(2), Some(64), Some(9));
        let asked = plan(&Options { seed, repeat, pages, threads, ..Options::default() }).unwrap();
        let Plan { seed, repeats, loops, pages, threads, .. } = asked;
        assert_eq!((seed, repeats, loops, pages), (1, 2, 100, 64));
        assert_eq!(threads, 1, "an option that the scenario does not have is ignored");
    }

    #[test]
    fn a_number_out_of_its_range_is_refused_with_the_range() {
        let check = |options: Options, expected: &str| {
            assert_eq!(plan(&options).unwrap_err().to_string(), expected);
        };
        let none = Options::default;
        check(Options { repeat: Some(0), ..none() }, "--repeat must be at least 1");
        check(Options { loops: Some(0), ..none() }, "--loops must be at least 1");
        let pages = "--pages must be between 1 and 64: what is larger is no block's";
        check(Options { pages: Some(65), ..none() }, pages);
        check(Options { pages: Some(0), ..none() }, pages);
    }

    #[test]
    fn every_design_comes_first_in_a_pass_and_rows_stay_in_their_order() {
        let mut order = String::new();
        let plan = plan(&Options::default()).unwrap();
        let name = |_, _: &'_ char, design: &'_ &'static str| Some(["p", *design]);
        let cell = |pass, program: &char, design: &&str, row: &mut Vec<usize>| {
            order.push_str(&format!("{pass}{program}{} ", &design[..1]));
            row.push(pass);
            Ok::<(), String>(())
        };
        let rows = plan.take_turns((2, &Silent), name, cell);
        assert_eq!(order, "0po 0pm 0pn 0qo 0qm 0qn 1pm 1pn 1po 1qm 1qn 1qo ");
        let rows = rows.unwrap();
        assert!(rows.iter().all(|(.., row)| *row == [0, 1]));
        let pairs: Vec<_> = rows.iter().map(|(program, design, _)| (**program, **design)).collect();
        assert_eq!(pairs[..3], [('p', "old"), ('p', "mid"), ('p', "new")]);
        assert_eq!(pairs[3..], [('q', "old"), ('q', "mid"), ('q', "new")]);
    }

    #[test]
    fn a_pair_that_does_not_take_part_in_a_pass_is_no_step() {
        #[derive(Default)]
        struct Steps(std::cell::RefCell<(u64, Vec<String>)>);
        impl Progress for Steps {
            fn begin(&self, steps: u64) {
                self.0.borrow_mut().0 = steps;
            }
            fn step(&self, what: &str) {
                self.0.borrow_mut().1.push(what.to_owned());
            }
            fn end(&self) {}
        }
        let (plan, steps) = (plan(&Options::default()).unwrap(), Steps::default());
        let name = |pass, _: &'_ char, design: &'_ &'static str| {
            (pass == 0 || *design == "old").then_some(["p", *design])
        };
        let rows = plan.take_turns((2, &steps), name, |pass, _, _, row: &mut Vec<usize>| {
            row.push(pass);
            Ok::<(), String>(())
        });
        let taken: Vec<Vec<usize>> = rows.unwrap().into_iter().map(|(.., row)| row).collect();
        assert_eq!(taken[..3], [vec![0, 1], vec![0], vec![0]]);
        let (foretold, steps) = steps.0.into_inner();
        assert_eq!((foretold, steps.len()), (8, 8));
        assert!(steps[6..].iter().all(|step| step == "p under old"), "{steps:?}");
    }

    #[test]
    fn the_first_failure_ends_the_turns() {
        let plan = plan(&Options::default()).unwrap();
        let mut cells = 0;
        let name = |_, _: &'_ char, design: &'_ &'static str| Some(["p or q", *design]);
        let cell = |_, program: &char, _: &&str, (): &mut ()| {
            cells += 1;
            if *program == 'q' { Err("no") } else { Ok(()) }
        };
        let failed = plan.take_turns((2, &Silent), name, cell);
        assert_eq!(failed.unwrap_err().to_string(), "old failed in p or q: no");
        assert_eq!(cells, 4);
    }
}
