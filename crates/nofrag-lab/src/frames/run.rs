//! Follows a stretch from its beginning to its end.

use std::collections::BTreeMap;

use nofrag::page::PolicyPreset;

use super::end_state;
use super::events::{self, Event, Line, LineError};
use super::follow::{Difference, Follower, Heard, Tally};
use super::lru::{Lru, LruTally};
use super::names;
use super::outcome::{Cause, Followed, Led, Part, Score};
use super::state::State;
use super::stretch::{Stretch, StretchError, Texts};

/// Number of differences that are told with the events before them; below, the number of those events.
const TOLD: usize = 4;
const EVENTS_BEFORE: usize = 8;

/// Longest text that is shown of an event or a difference, in characters.
const CHARACTERS: usize = 160;

/// Runs the engine beside the kernel of `stretch`, under the rules of `preset`.
pub(super) fn follow(
    stretch: &Stretch,
    kernel: &str,
    preset: PolicyPreset,
) -> Result<Followed, StretchError> {
    let mut policy = preset.policy;
    stretch.settle(&mut policy)?;
    let Texts { before, events: text, after } = stretch.texts()?;
    let state = |name, text: &str| {
        State::read(text).map_err(|error| StretchError::State(stretch.path(name), error))
    };
    let before = state("state-before.json", &before)?;
    let after = state("state-after.json", &after)?;
    let lines = whole_lines(&text)
        .and_then(events::read)
        .map_err(|error| StretchError::Line(stretch.path("events.txt"), error))?;
    let of_before = |error| StretchError::State(stretch.path("state-before.json"), error);
    let of_after = |error| StretchError::State(stretch.path("state-after.json"), error);

    let heard = Heard::default();
    let mut follower = Follower::new(&before, policy, &heard).map_err(of_before)?;
    // A kernel with other lists than the two of the classic LRU is followed without them.
    let mut lru = Lru::new(&before, &policy).ok();
    let moments = Moments::of(&lines);
    for index in 0..lines.len() {
        let known = follower.tally.differences.len();
        follower.follow(&lines, index);
        if let Some(lru) = &mut lru {
            lru.follow(&lines[index]);
        }
        for difference in &mut follower.tally.differences[known..] {
            moments.name_cause(index, difference);
        }
    }
    let known = follower.tally.differences.len();
    follower.finish(lines.last().map_or(0, |line| line.number));
    for difference in &mut follower.tally.differences[known..] {
        moments.name_cause(lines.len(), difference);
    }
    let lru = lru.and_then(|lru| lru.finish(&after).ok()).unwrap_or_default();
    let zones = before.zone_names().map_err(of_before)?;
    let end = end_state::compare(&after.image().map_err(of_after)?, &follower.image(), &zones);

    let tally = &follower.tally;
    let mut scores = tally.scores.clone();
    let answers: u64 = tally.frames.iter().map(|score| score.of).sum();
    let mut causes = BTreeMap::new();
    for difference in &tally.differences {
        *causes.entry(difference.cause).or_default() += 1;
    }
    Ok(Followed {
        stretch: stretch.name.clone(),
        kernel: kernel.to_owned(),
        preset: preset.name.to_owned(),
        events: text.lines().count() as u64,
        requests: answers + scores.at(names::BULK).of,
        boosts: heard.boosts(),
        frames: tally.frames.to_vec(),
        on_the_way: scores.0.into_iter().chain(of_reclaim(&lru)).collect(),
        at_end: end.parts,
        causes,
        unfollowed: tally.unfollowed.len() as u64,
        differences: told(tally, &text),
        end_differences: end.differences,
    })
}

/// Refuses a file that ends within a line, or has none: it was cut.
fn whole_lines(text: &str) -> Result<&str, LineError> {
    let last = text.lines().last().unwrap_or("");
    match text.ends_with('\n') {
        true => Ok(text),
        false => Err(LineError {
            line: text.lines().count(),
            what: "the file ends within a line, so it was cut",
            text: last.to_owned(),
        }),
    }
}

/// Returns the scores of reclaim: taken, freed and remaining frames.
fn of_reclaim(lru: &LruTally) -> Vec<Part> {
    let at_end = lru.at_end.iter().fold(Score::default(), |sum, score| sum + *score);
    let parts = [
        (names::LRU_TAKEN, lru.isolations),
        (names::LRU_FREED, lru.freed),
        (names::LRU_PASSES, lru.passes),
        (names::LRU_CALLS, lru.calls),
        (names::LRU_END, at_end),
    ];
    parts.map(|(what, score)| Part { what, score }).to_vec()
}

/// Returns the first differences with the events before them.
fn told(tally: &Tally, text: &str) -> Vec<Led> {
    let led = |difference: &Difference| {
        let first = difference.line.saturating_sub(EVENTS_BEFORE);
        let events = text.lines().skip(first).take(difference.line - first);
        Led {
            line: difference.line as u64,
            what: difference.what.clone(),
            kernel: cut(&difference.kernel),
            engine: cut(&difference.engine),
            cause: difference.cause,
            events: events.map(cut).collect(),
        }
    };
    tally.differences.iter().take(TOLD).map(led).collect()
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(CHARACTERS) {
        Some((at, _)) => format!("{} ...", &text[..at]),
        None => text.to_owned(),
    }
}

/// Facts about each event that name the cause of a difference there.
struct Moments {
    /// By event: true if another operation ran on the same CPU during it, or it happened within another's request.
    nested: Vec<bool>,
    /// Index of the first event of a compaction run that takes or moves a frame; `usize::MAX` if there is none.
    compacts: usize,
}

impl Moments {
    fn of(lines: &[Line]) -> Moments {
        let mut nested = vec![false; lines.len()];
        let mut open: BTreeMap<u32, Vec<(usize, usize)>> = BTreeMap::new();
        for (index, line) in lines.iter().enumerate() {
            let requests = open.entry(line.cpu).or_default();
            requests.retain(|&(_, end)| end >= index);
            let changes = matches!(
                line.event,
                Event::Ends(_) | Event::Freed(_) | Event::Batched(_) | Event::Bulk(_)
            );
            for &(_, end) in requests.iter().filter(|&&(_, end)| changes && end != index) {
                (nested[index], nested[end]) = (true, true);
            }
            if let Event::Begins(Some(end)) = line.event
                && lines.get(end).is_some_and(|ends| ends.cpu == line.cpu)
            {
                requests.push((index, end));
            }
        }
        let compacts = |line: &Line| {
            matches!(
                line.event,
                Event::Isolated(_)
                    | Event::Moved { .. }
                    | Event::SourcesIsolated(_)
                    | Event::TargetsIsolated(_)
                    | Event::TargetsSearched(_)
            )
        };
        Moments { nested, compacts: lines.iter().position(compacts).unwrap_or(usize::MAX) }
    }

    /// Names the cause of a difference at this event, where it has none.
    fn name_cause(&self, index: usize, difference: &mut Difference) {
        if difference.cause != Cause::Other {
            return;
        }
        difference.cause = match &*difference.what {
            "bulk frame" => Cause::Bulk,
            _ if self.nested.get(index) == Some(&true) => Cause::Interrupted,
            "frame" | "refill" | "drain" | "fallback" | "left over" if index > self.compacts => {
                Cause::QuickSearch
            }
            _ => Cause::Other,
        };
    }
}
