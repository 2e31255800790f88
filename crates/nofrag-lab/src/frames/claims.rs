//! Claims on the stretches that come with nofrag.

use super::names;
use super::outcome::{AtEnd, Followed, FramesReport, Score};
use crate::oracle::{Claims, Oracle, Relation};

/// A stretch of the repository: its description and its claims.
struct Known {
    name: &'static str,
    about: &'static str,
    claimed: Claimed,
}

/// The claim on a stretch under its kernel's own rules.
#[derive(Clone, Copy)]
enum Claimed {
    /// Everything is as in the kernel, and so are all lists at the end, except those of the named zones.
    All { but: &'static [&'static str] },
    /// Frames, attempts to compact, runs and skip marks of pageblocks are as in the kernel.
    Compacts,
}

const fn all(name: &'static str, about: &'static str) -> Known {
    Known { name, about, claimed: Claimed::All { but: &[] } }
}

const fn compacting(name: &'static str, about: &'static str) -> Known {
    Known { name, about, claimed: Claimed::Compacts }
}

const KNOWN: [Known; 12] = [
    compacting("linux-6.1-compaction", "24 huge faults, direct compaction and reclaim"),
    compacting("linux-6.1-compaction-pinned", "likewise, more kernel pages in the way"),
    all("linux-6.1-kswapd", "page cache grows, kswapd wakes and sleeps"),
    all("linux-6.1-no-reclaim", "orders 0 to 3 on one zone, nothing is reclaimed"),
    all("linux-6.1-no-reclaim-2cpu", "likewise, two CPUs"),
    compacting("linux-6.1-normal-compaction", "24 huge faults, two zones"),
    all("linux-6.1-normal-fallbacks", "two zones; whole blocks of another type taken"),
    Known {
        name: "linux-6.1-normal-fallbacks-boosted",
        about: "likewise; blocks mixed, marks boosted, kswapd",
        // kswapd's boosted run ends with compaction here, whose searches move list entries silently.
        claimed: Claimed::All { but: &["DMA32"] },
    },
    all("linux-6.1-normal-no-reclaim", "two zones, nothing is reclaimed"),
    compacting("linux-6.12-compaction", "24 huge faults, direct compaction"),
    all("linux-6.12-fallbacks", "orders 0 to 6; whole blocks of another type"),
    all("linux-6.12-no-reclaim", "orders 0 to 6, nothing is reclaimed"),
];

/// Describes a stretch, for lists.
pub(super) fn about(name: &str) -> &'static str {
    let known = KNOWN.iter().find(|known| known.name == name);
    known.map_or("a stretch that does not come with nofrag", |known| known.about)
}

/// Judges stretches that come with nofrag, under the rules of their own kernels.
pub(super) fn judge(report: &FramesReport, oracles: &mut Vec<Oracle>) {
    for followed in report.stretches.iter().filter(|followed| followed.kernel == followed.preset) {
        match KNOWN.iter().find(|known| known.name == followed.stretch).map(|known| known.claimed) {
            Some(Claimed::All { but }) => everything(followed, but, oracles),
            Some(Claimed::Compacts) => compaction(followed, oracles),
            None => continue,
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

fn everything(followed: &Followed, but: &[&str], oracles: &mut Vec<Oracle>) {
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
    let differs = |at: &&AtEnd| at.what.starts_with("free list") && !but.contains(&&*at.zone);
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
        assert_eq!(found, KNOWN.map(|known| known.name));
    }
}
