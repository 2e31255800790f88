//! Runs that move while a thread writes to them: the cost of each method, and whether a write is lost.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{MemoryPlan, names};
use crate::apparatus::Trouble;
use crate::apparatus::moves::{MoveCosts, MovePlan, Way, live_moves};
use crate::figures::{self, Aim, Backing};
use crate::key::{self, Key};
use crate::oracle::{Claims, Relation, over};
use crate::report::{Measurement, Report};
use crate::scenario::RunError;
use crate::stats::Spread;

/// Pages of the runs, as in the first measurement.
pub(super) const SIZES: [u64; 4] = [1, 16, 64, 512];

/// Pause between two moves, as in the first measurement.
const PAUSE: Duration = Duration::from_micros(20);

/// Number of moves in a turn.
const TURN: u64 = 25;

/// Returns the name of the program that moves runs of `pages` pages, as reports have it.
pub(super) fn program(pages: u64) -> String {
    format!("moves-{pages}")
}

/// Returns the cost of a move of `pages` pages when first measured, in nanoseconds.
pub(super) fn then(figures: &Backing, pages: u64, way: &str) -> Option<f64> {
    figures::figure(&figures.tables, "moves", way, &Key::from(program(pages)))
}

/// Results of one size, round by round.
#[derive(Default)]
struct Rounds {
    cost: Vec<f64>,
    moves: u64,
    writes: u64,
    lost: u64,
    p999: u64,
}

/// Moves runs of every size in every way that this system allows.
pub(super) fn run(
    plan: &MemoryPlan,
    report: &mut Report,
    step: &dyn Fn(&str),
) -> Result<(), RunError> {
    let ways = allowed(report)?;
    for pages in SIZES {
        let mut by_way: BTreeMap<&str, Rounds> = BTreeMap::new();
        for _ in 0..plan.repeats {
            step(&program(pages));
            for row in once(plan, &ways, pages).map_err(failed)? {
                by_way.entry(row.way.into_str()).or_default().add(&row);
            }
        }
        judge(pages, &by_way, report);
        report
            .measurements
            .extend(by_way.into_iter().filter_map(|(way, rounds)| rounds.row(pages, way)));
    }
    judge_all(report);
    Ok(())
}

/// Judges that no write was lost over all sizes and methods that keep writers away: a full run makes more than a
/// million moves.
fn judge_all(report: &mut Report) {
    let control = Way::Unprotected.into_str();
    let programs = SIZES.map(program);
    let protected = |row: &&Measurement| programs.contains(&row.program) && row.design != control;
    let rows: Vec<&Measurement> = report.measurements.iter().filter(protected).collect();
    let sum = |key: Key| rows.iter().filter_map(|row| row.count(&key)).sum::<f64>();
    let (moves, lost) = (sum(names::MOVES), sum(names::LOST_WRITES));
    let claim = format!("target: writes lost in {moves} moves by every method, of every size");
    report.oracles.exact("target/lost-writes", claim, lost, Relation::NONE);
}

fn once(plan: &MemoryPlan, ways: &[Way], pages: u64) -> Result<Vec<MoveCosts>, Trouble> {
    // A move of 512 pages takes as long as a hundred of one; the control needs some hundred moves to lose a write.
    let moves = if pages == 512 { plan.moves() / 4 } else { plan.moves() }.max(TURN);
    let ways = ways.to_vec();
    let plan = MovePlan { ways, pages, moves, writers: 1, turn: TURN, pause: PAUSE };
    live_moves(&plan)
}

/// Returns the ways in which a single move succeeds; the notes name the others, and the reasons.
fn allowed(report: &mut Report) -> Result<Vec<Way>, RunError> {
    let mut ways = Vec::new();
    for way in Way::ALL {
        let one =
            MovePlan { ways: vec![way], pages: 1, moves: 1, writers: 1, turn: 1, pause: PAUSE };
        match live_moves(&one) {
            Ok(_) => ways.push(way),
            Err(why) if way.needs_userfaultfd() => {
                report.skip(way.into_str(), why);
            }
            Err(why) => return Err(failed(why)),
        }
    }
    Ok(ways)
}

fn failed(why: Trouble) -> RunError {
    RunError::engine("every method", "moves", why)
}

impl Rounds {
    fn add(&mut self, row: &MoveCosts) {
        self.cost.push(row.cost.p50_ns as f64);
        self.moves += row.moves;
        self.writes += row.writes;
        self.lost += row.lost;
        self.p999 = self.p999.max(row.cost.p999_ns);
    }

    fn row(self, pages: u64, way: &str) -> Option<Measurement> {
        let counts = [
            (names::MOVES, self.moves),
            (names::WRITES, self.writes),
            (names::LOST_WRITES, self.lost),
            (Key::time("p99.9 ns", 1e-9), self.p999),
        ];
        Some(Measurement {
            counts: key::counts(counts),
            ..Measurement::new(
                program(pages),
                way,
                self.moves,
                "ns per move",
                Spread::of(self.cost)?,
            )
        })
    }
}

/// Judges lost writes, which only moves without protection may have, and the costs of protection
/// (docs/sources/backing.md#oracle-3, #moves).
fn judge(pages: u64, by_way: &BTreeMap<&str, Rounds>, report: &mut Report) {
    let figures = figures::backing();
    let control = Way::Unprotected.into_str();
    for (way, rounds) in by_way {
        let id = format!("lost-writes/{pages}/{way}");
        let lost = rounds.lost as f64;
        if *way == control {
            // Chance decides whether the control's writer hits a copy where the copy is short.
            let claim = format!("{pages} pages moved, nothing stops the writer: writes lost");
            report.oracles.host(id, claim, lost, Relation::AtLeast(1.0));
        } else {
            let claim = format!("{pages} pages moved by {way}: writes lost");
            report.oracles.exact(id, claim, lost, Relation::NONE);
        }
    }
    let median = |way: &str| Spread::of(by_way.get(way)?.cost.clone()).map(|spread| spread.median);
    for way in [Way::WriteProtect, Way::Pins].map(|way| way.into_str()) {
        let there = |way| then(&figures, pages, way);
        let here = over(median(way), median(control));
        let Some(then) = over(there(way), there(control)) else { continue };
        let most = figures.target(Aim::MoveCost).target;
        let claim = format!(
            "{pages} pages moved by {way}: cost over that without protection, over the same as first measured \
             ({then:.2})"
        );
        let id = format!("move-cost/{pages}/{way}");
        let times = here.map(|here| here / then);
        report.oracles.ratio(id, claim, times, Relation::AtMost(most));
    }
}
