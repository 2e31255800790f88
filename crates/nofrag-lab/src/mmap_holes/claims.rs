//! Claims that a run must confirm: areas, holes and visits as published and simulated (docs/sources/mmap.md#outcomes),
//! and targets of ours (mmap.md#g3).
//!
//! The published counts hold for the published number of iterations and the published generator; with others, only
//! claims of any size are judged.

use std::borrow::Borrow;
use std::fmt::Write as _;

use strum::VariantArray as _;

use super::catalogue::{
    CACHED, End, FIRST_FIT, FIRST_FIT_DOWN, HUGE_ALIGNED, MERGED, MIXES, OURS, Program, named,
};
use super::names;
use super::process::MIB;
use super::turns::HolesPlan;
use super::workloads::LEAKME_LIVE;
use crate::figures::{self, Bounds, Wander2005};
use crate::key::{Amount, Key};
use crate::oracle::{Claims, Oracle, Relation, over};
use crate::report::{Measurement, Report};
use crate::sha256::sha256;

/// Published quantities that a run must have, with their names in the ids of claims.
pub(super) const JUDGED: [(Key, &str); 14] = [
    (names::AREAS, "areas"),
    (names::PEAK_AREAS, "peak"),
    (names::FAILS_AT, "fails"),
    (names::FAILURES, "failures"),
    (names::VISITS, "visits"),
    (names::MOST_VISITS, "most"),
    (names::LARGEST_MIB, "largest"),
    (names::FREE_MIB, "free"),
    (names::HOLES_MIB, "holes"),
    (names::COUNTED, "count"),
    (names::AFTER_4_2_3, "frees"),
    (names::LARGER_BETWEEN, "larger"),
    (names::WINDOW_MIB, "100k"),
    (names::LONG_WINDOW_MIB, "200k"),
];

/// Adds the claims on the measurements to `report`; those on figures of a published size or seed only for a run of it.
pub(super) fn judge(plan: &HolesPlan, report: &mut Report) {
    let mut judge = Judge { report, oracles: Vec::new() };
    judge.published(plan, &figures::wander_2005());
    judge.stacks();
    judge.same_addresses();
    if plan.is_published_size() {
        judge.targets();
        judge.guard_rule();
        if plan.seed == 0 {
            judge.targets_of_random_programs();
        }
    }
    let oracles = judge.oracles;
    report.oracles.extend(oracles);
}

/// Returns true if the published figures of a program hold for a run of this size with this seed.
fn applies(plan: &HolesPlan, program: Program) -> bool {
    match program {
        Program::Leakme4 | Program::FiveRegions | Program::Stacks => true,
        Program::Unmergeable1k | Program::Unmergeable10k => {
            plan.is_published_size() && plan.seed == 0
        }
        program if MIXES.contains(&program) => plan.is_published_size() && plan.seed == 0,
        _ => plan.is_published_size(),
    }
}

struct Judge<'a> {
    report: &'a Report,
    oracles: Vec<Oracle>,
}

/// Returns the range of values that, rounded to `unit`, give `published`.
fn rounded(published: f64, unit: f64) -> Relation {
    Relation::Between(published - unit / 2.0, published + unit / 2.0)
}

/// Returns a program's name in the ids of claims, short enough for a column beside the claim.
fn short(program: Program) -> &'static str {
    match program {
        Program::LeakmeLibs => "libs",
        Program::Leakme64 => "64",
        Program::Window => "3g",
        Program::FiveRegions => "five",
        Program::Stacks => "str02",
        Program::Unmergeable1k => "u1k",
        Program::Unmergeable10k => "u10k",
        Program::Survival => "window",
        other => other.into_str(),
    }
}

/// Returns what a measured quantity must be to agree with the published one: a whole number of what is not counted is
/// rounded to one, another to a tenth.
fn agrees(key: &Key, published: Amount) -> Relation {
    match published {
        Amount::Whole(count) if key.is_count() => Relation::Equals(count as f64),
        Amount::Whole(rounded_to_one) => rounded(rounded_to_one as f64, 1.0),
        Amount::Real(rounded_to_a_tenth) => rounded(rounded_to_a_tenth, 0.1),
    }
}

impl Judge<'_> {
    fn row(&self, program: Program, row: &str) -> Option<&Measurement> {
        self.report.measurement(program.into_str(), row)
    }

    fn count(&self, program: Program, row: &str, key: impl Borrow<Key>) -> Option<f64> {
        self.report.count(program.into_str(), row, key)
    }

    /// Judges one count of a row, if there is such a row.
    fn counted(
        &mut self,
        (program, row): (Program, &str),
        what: &str,
        key: &Key,
        relation: Relation,
    ) {
        let claim = key.name().to_owned();
        let measured = self.count(program, row, key);
        let id = format!("{}-{what}/{row}", short(program));
        self.oracles.exact(id, claim, measured, relation);
    }

    /// Judges that the areas of a row are exactly the `expected` ones.
    fn mapped(&mut self, (program, row): (Program, &str), expected: &[Bounds]) {
        let Some(measured) = self.row(program, row).and_then(areas) else { return };
        let differ = measured.iter().filter(|area| !expected.contains(area)).count();
        let missing = expected.iter().filter(|area| !measured.contains(area)).count();
        let id = format!("{}-map/{row}", short(program));
        let claim = "areas that are not as expected, by address";
        self.oracles.exact(id, claim, (differ + missing) as f64, Relation::NONE);
    }

    /// Judges the SHA-256 of a row's areas, written as lines of hexadecimal addresses.
    fn digested(&mut self, (program, row): (Program, &str), expected: &str) {
        let Some(areas) = self.row(program, row).and_then(areas) else { return };
        let digits = if program.is_64_bit() { 12 } else { 8 };
        let mut text = String::new();
        for [start, end] in areas {
            writeln!(text, "{start:0digits$x}-{end:0digits$x}").expect("a string takes any text");
        }
        let differs = f64::from(sha256(text.as_bytes()) != expected);
        let id = format!("{}-sha256/{row}", short(program));
        let claim = "SHA-256 of all areas differs";
        self.oracles.exact(id, claim, differs, Relation::NONE);
    }

    /// Judges counts and maps by the published ones.
    fn published(&mut self, plan: &HolesPlan, figures: &Wander2005) {
        let of = |name: &str| name.parse().ok().filter(|program| applies(plan, *program));
        for table in &figures.tables {
            let Some(program) = of(&table.program) else { continue };
            for (row, key, published) in table.figures() {
                if let Some((judged, what)) = JUDGED.iter().find(|(judged, _)| judged == key) {
                    self.counted((program, row), what, judged, agrees(judged, published));
                }
                if *key == names::ALIGNED_PERCENT {
                    let multiples = self.count(program, row, names::MULTIPLES).unwrap_or(0.0);
                    let aligned = Relation::Equals(multiples * published.get() / 100.0);
                    self.counted((program, row), "aligned", &names::ALIGNED, aligned);
                }
            }
        }
        for map in &figures.maps {
            let Some(program) = of(&map.program) else { continue };
            let areas = map.all_areas();
            for row in &map.designs {
                if !areas.is_empty() {
                    self.mapped((program, row), &areas);
                }
                if let Some(expected) = &map.sha256 {
                    self.digested((program, row), expected);
                }
            }
        }
    }

    /// Checks that 2N stack areas cost first fit N^2 visits, and that the cached placements, with sizes of holes or
    /// without, are much faster.
    fn stacks(&mut self) {
        let program = Program::Stacks;
        if let Some(threads) = self.count(program, FIRST_FIT, names::MAPS) {
            let squared = Relation::Equals(threads * threads);
            self.counted((program, FIRST_FIT), "visits", &names::VISITS_IN_ALL, squared);
        }
        let time = |design| Some(self.row(program, design)?.time.median);
        let [first_fit, cached, merged] = [FIRST_FIT, CACHED, MERGED].map(time);
        // Few threads show nothing: the quotient grows with their number.
        let is_many = self.count(program, CACHED, names::MAPS) >= Some(20_000.0);
        let times = over(first_fit, cached).filter(|_| is_many);
        let claim = "test_str02, 20,000 threads: time of first fit over that of the cache";
        self.oracles.ratio("str02-first-fit", claim, times, Relation::AtLeast(100.0));
        let claim =
            "test_str02: time with the size of the largest hole over that of the cache alone";
        let near_one = Relation::Between(1.0 / 3.0, 3.0);
        self.oracles.ratio("str02-hole-size", claim, over(merged, cached), near_one);
    }

    /// Checks that Molnar's first hole, which skips full areas, places as first fit does; and that the exact trees
    /// agree with each other downwards.
    fn same_addresses(&mut self) {
        let alike = [
            (FIRST_FIT.to_owned(), "molnar-2002".to_owned()),
            (named(FIRST_FIT_DOWN, End::Down), named("linux-6.1", End::Down)),
            (named(FIRST_FIT_DOWN, End::Down), named("linux-6.3", End::Down)),
        ];
        for (one, other) in alike {
            for &program in Program::VARIANTS {
                let digest =
                    |row: &str| self.report.measurement(program.into_str(), row)?.digest.as_deref();
                let [Some(first), Some(second)] = [digest(&one), digest(&other)] else { continue };
                let id = format!("{}-order/{other}", short(program));
                let claim = format!("addresses in their order differ from those of {one}");
                let differ = f64::from(first != second);
                self.oracles.exact(id, claim, differ, Relation::NONE);
            }
        }
    }

    /// Judges our targets in 64 bits and among areas that never merge.
    fn targets(&mut self) {
        let at = (Program::Leakme64, OURS);
        self.counted(at, "areas", &names::AREAS, Relation::AtMost(5.0));
        self.counted(at, "holes", &names::HOLES_MIB, Relation::AtMost(15.0));
        let multiples = self.count(at.0, at.1, names::MULTIPLES).unwrap_or(0.0);
        self.counted(at, "aligned", &names::ALIGNED, Relation::Equals(multiples));
        let ratio = self.count(Program::Survival, OURS, names::WINDOW_MIB).map(survival_ratio);
        let claim = "survival: smallest window over live bytes";
        self.oracles.exact("survival-ratio/nofrag", claim, ratio, Relation::AtMost(1.012));
        let steps = (Program::Unmergeable10k, OURS);
        self.counted(steps, "steps", &names::STEPS, Relation::AtMost(20.0));
    }

    /// Checks that ours is on no trace more than one percent worse than first fit.
    fn guard_rule(&mut self) {
        let bounded = [
            Program::Leakme,
            Program::LeakmeLibs,
            Program::Leakme4,
            Program::Touched,
            Program::Window,
        ];
        for program in bounded.into_iter().chain(MIXES) {
            let largest = |design| self.count(program, design, names::LARGEST_MIB);
            let share = over(largest(OURS), largest(FIRST_FIT));
            let claim = "largest hole of ours over that of first fit";
            let id = format!("guard-{}/{OURS}", short(program));
            self.oracles.exact(id, claim, share, Relation::AtLeast(0.99));
        }
        let window = |design| self.count(Program::Survival, design, names::WINDOW_MIB);
        let share = over(window(OURS), window(FIRST_FIT));
        let claim = "survival: window of ours over that of first fit";
        let id = format!("guard-survival/{OURS}");
        self.oracles.exact(id, claim, share, Relation::AtMost(1.01));
    }

    /// Checks that the merged patch visits fewer areas than first fit, and that ours leaves no more areas than best
    /// fit, and no smaller a largest hole than first fit.
    fn targets_of_random_programs(&mut self) {
        let visits = |design| self.count(Program::Unmergeable10k, design, names::VISITS);
        let share = over(visits(MERGED), visits(FIRST_FIT));
        let claim = "unmergeable_10k: visits of the merged patch over those of first fit";
        self.oracles.exact("unmergeable-share", claim, share, rounded(0.78, 0.01));
        for program in MIXES {
            let at = (program, OURS);
            if let Some(areas) = self.count(program, "best-fit", names::AREAS) {
                self.counted(at, "areas", &names::AREAS, Relation::AtMost(areas));
            }
            if let Some(largest) = self.count(program, FIRST_FIT, names::LARGEST_MIB) {
                self.counted(at, "largest", &names::LARGEST_MIB, Relation::AtLeast(largest));
            }
        }
        let holes = |row: &str| self.count(Program::Leakme64, row, names::HOLES_MIB);
        let aligned = named(HUGE_ALIGNED, End::Down);
        let share = over(holes(OURS), holes(&aligned));
        let claim = "leakme_64: holes of ours over those of Linux's alignment";
        self.oracles.exact("leakme-64-holes", claim, share, Relation::AtMost(0.08));
    }
}

/// Returns the size of a window over the memory that is live in leakme.
pub(super) fn survival_ratio(window_mib: f64) -> f64 {
    window_mib / (LEAKME_LIVE as f64 / MIB as f64)
}

/// Returns start and end, in bytes, of the areas that a row has noted; `None` if it has noted none.
fn areas(row: &Measurement) -> Option<Vec<Bounds>> {
    let [starts, ends] = [names::STARTS, names::ENDS].map(|key| row.series.get(&key));
    let pairs = starts?.iter().zip(ends?);
    Some(pairs.map(|(start, end)| [*start as u64, *end as u64]).collect())
}
