//! Claims on the stretches that come with nofrag.

use std::sync::LazyLock;

use serde::Deserialize;

use super::outcome::{AtEnd, Followed, FramesReport, Score};
use super::{SCENARIO, names};
use crate::oracle::{Claims, Oracle, Relation};
use crate::scenario::Spec;

/// A stretch of the repository, as `scenario.toml` has it.
#[derive(Deserialize)]
struct Known {
    #[serde(default)]
    claims: Claimed,
}

/// The claim on a stretch under its kernel's own rules.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Claimed {
    /// Everything is as in the kernel, and so are all lists at the end, except those of the named zones.
    AllBut(Vec<String>),
    /// Frames, attempts to compact, runs and skip marks of pageblocks are as in the kernel.
    Compacts,
}

impl Default for Claimed {
    fn default() -> Claimed {
        Claimed::AllBut(Vec::new())
    }
}

static KNOWN: LazyLock<Vec<Spec<Known>>> = LazyLock::new(|| SCENARIO.specs());

fn known(name: &str) -> Option<&'static Spec<Known>> {
    KNOWN.iter().find(|known| known.info.name == name)
}

/// Describes a stretch, for lists.
pub(super) fn about(name: &str) -> &'static str {
    known(name).map_or("a stretch that does not come with nofrag", |known| known.info.body)
}

/// Judges stretches that come with nofrag, under the rules of their own kernels.
pub(super) fn judge(report: &FramesReport, oracles: &mut Vec<Oracle>) {
    for followed in report.stretches.iter().filter(|followed| followed.kernel == followed.preset) {
        let Some(known) = known(&followed.stretch) else { continue };
        match &known.claims {
            Claimed::AllBut(zones) => everything(followed, zones, oracles),
            Claimed::Compacts => compaction(followed, oracles),
        }
        background(followed, oracles);
    }
}

/// Adds the claims on a stretch with compaction.
fn compaction(followed: &Followed, oracles: &mut Vec<Oracle>) {
    let huge = followed.frames.get(9).copied().unwrap_or_default();
    let claims = [
        ("huge", "answers of order 9 with another frame", huge),
        ("frames", "answers with another frame", followed.answers()),
        (
            "deferral",
            "attempts to compact put off otherwise, or let in",
            followed.score(names::DECISIONS),
        ),
        ("runs", "runs of compaction that move or end otherwise", followed.score(names::RUNS)),
        ("marks", "runs that begin with other pageblocks marked", followed.score(names::MARKED)),
    ];
    none_differs(followed, &claims, oracles);
}

/// Adds the claims on kswapd and on suitability for compaction, for stretches with such events.
fn background(followed: &Followed, oracles: &mut Vec<Oracle>) {
    let claims = [
        ("suitable", "answers to whether compaction helps that differ", names::SUITABLE),
        ("wakes", "wakes of kswapd by another request, or for another order", names::WOKEN),
        ("kswapd-runs", "runs of kswapd for another order", names::KSWAPD_RUNS),
    ];
    let claims = claims.map(|(id, claim, what)| (id, claim, followed.score(what)));
    none_differs(followed, &claims, oracles);
}

/// Claims that no answer differs. Nothing is claimed where nothing was compared: it would prove nothing.
fn none_differs(followed: &Followed, claims: &[(&str, &str, Score)], oracles: &mut Vec<Oracle>) {
    for (id, claim, Score { same, of }) in claims.iter().filter(|(.., score)| score.of > 0) {
        let id = format!("{}/{id}", followed.stretch);
        oracles.exact(id, format!("of {of}, {claim}"), (of - same) as f64, Relation::NONE);
    }
}

fn everything(followed: &Followed, but: &[String], oracles: &mut Vec<Oracle>) {
    let claims = [
        ("frames", "answers with another frame", followed.answers()),
        ("zones", "answers from another zone", followed.score(names::ZONES)),
        ("bulk", "pages of the bulk interface with another frame", followed.score(names::BULK)),
        ("refills", "blocks refilled that differ", followed.score(names::REFILLS)),
        ("extfrag", "extfrag events with a field that differs", followed.score(names::EXTFRAG)),
        ("boosts", "zones whose boost at the end differs", followed.score(names::BOOSTS)),
        ("types", "pageblocks whose type at the end differs", followed.score(names::TYPES)),
        ("cpu-lists", "per-CPU lists that differ at the end", followed.score(names::CPU_LISTS)),
        ("cpu-counts", "per-CPU counts that differ at the end", followed.score(names::CPU_COUNTS)),
    ];
    none_differs(followed, &claims, oracles);
    let differs = |at: &&AtEnd| at.what.starts_with("free list") && !but.contains(&at.zone);
    let differing = followed.end_differences.iter().filter(differs).count() as f64;
    let claim = match but {
        [] => "free lists that differ at the end, in length or any position".to_owned(),
        but => format!("free lists that differ at the end, without those of {}", but.join(", ")),
    };
    let id = |id| format!("{}/{id}", followed.stretch);
    oracles.exact(id("free-lists"), claim, differing, Relation::NONE);
    let claim = "events that the engine could not follow";
    oracles.exact(id("followed"), claim, followed.unfollowed as f64, Relation::NONE);
}

#[cfg(all(test, not(packed)))]
mod tests {
    use super::*;

    #[test]
    fn every_stretch_that_comes_with_nofrag_is_known() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/kernel-states");
        let found = super::super::stretch::find(Some(folder.as_ref())).expect("they are there");
        let found: Vec<&str> = found.stretches.iter().map(|stretch| &*stretch.name).collect();
        let known: Vec<&str> = KNOWN.iter().map(|known| known.info.name).collect();
        assert_eq!(found, known);
    }
}
