//! Both replays of addresses, fed by one pass over the events, and the tables of them.

use nofrag_host::budget::Room;
use nofrag_host::trace::{Event, TraceMeta};

use super::mmap::{MmapOutcome, MmapReplay, MmapRun};
use super::vmap::{KnownStart, VmapOutcome, VmapReplay, VmapRun};
use nofrag_show::{Cell, Quantity, Section, cells, count, fixed, number, table_of};

/// Outcome of the events about addresses; a part is `None` if the recording has no events for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AddressOutcome {
    pub(super) vmap: Option<VmapOutcome>,
    pub(super) mmap: Option<MmapOutcome>,
}

/// Bytes that an area takes in the tables of all policies.
const PER_AREA: u64 = 1 << 10;

/// The replays of vmalloc areas and of mappings under way, both fed by one reader of the events.
#[derive(Debug)]
pub(super) struct AddressReplay {
    vmap: VmapReplay,
    mmap: MmapReplay,
}

impl AddressReplay {
    /// Creates both replays. Their tables of live areas may take an eighth of what the memory budget has left, at most
    /// 256 MiB.
    pub(super) fn new(meta: &TraceMeta, room: &mut Room) -> AddressReplay {
        let most_areas = (room.take_part(8, 256 << 20) / 2 / PER_AREA) as usize;
        let vmap = VmapReplay::new(meta, most_areas);
        AddressReplay { vmap, mmap: MmapReplay::new(meta, most_areas) }
    }

    /// Hands an event of vmalloc or mmap to its replay; ignores others.
    pub(super) fn event(&mut self, event: &Event) {
        match event.kind.info().group {
            "vmalloc" => self.vmap.event(event),
            "mmap" | "syscalls" => self.mmap.event(event),
            _ => {}
        }
    }

    pub(super) fn finish(self) -> AddressOutcome {
        AddressOutcome { vmap: self.vmap.finish(), mmap: self.mmap.finish() }
    }
}

/// Returns tables of the outcome for addresses, and sentences about its limits.
pub(super) fn tables(vmap: Option<&VmapOutcome>, mmap: Option<&MmapOutcome>) -> Vec<Section> {
    let mut sections = Vec::new();
    sections.extend(vmap.and_then(vmap_table));
    sections.extend(vmap.and_then(lazy_chart));
    sections.extend(mmap.and_then(mmap_table));
    let vmap = vmap.iter().flat_map(|outcome| &outcome.cautions);
    let mmap = mmap.iter().flat_map(|outcome| &outcome.cautions);
    let lines: Vec<String> = vmap.chain(mmap).cloned().collect();
    if !lines.is_empty() {
        let title = "What the addresses do not say".to_owned();
        sections.push(Section::Lines { title, lines });
    }
    sections
}

fn whole(number: u64) -> Quantity {
    count(number as f64)
}

fn percent(part: u64, whole: u64) -> Cell {
    (whole > 0).then(|| fixed(100.0 * part as f64 / whole as f64, 2)).into()
}

fn vmap_table(outcome: &VmapOutcome) -> Option<Section> {
    let recorded = &outcome.recorded;
    let start = match outcome.start {
        KnownStart::Areas(areas) => format!("{areas} areas at the start"),
        KnownStart::Hashed(_) | KnownStart::Nothing => "an empty start".to_owned(),
    };
    let caption = format!(
        "The kernel: {} requests, {} refused, {} frees ({} of areas from before), {} purges, at most {} pages lazy; \
         {start}. \"as the kernel\" is the share of areas at the kernel's own address; for {} that is how far the \
         replay is like it.",
        count(recorded.requests as f64),
        count(recorded.failed as f64),
        count(recorded.frees as f64),
        count(recorded.older_frees as f64),
        count(recorded.purges as f64),
        count(recorded.lazy_most as f64),
        outcome.own_rules.as_deref().unwrap_or("no preset")
    );
    let row = |run: &VmapRun| {
        let steps = run.steps as f64 / (run.served + run.failed).max(1) as f64;
        let first = cells![&run.policy, whole(run.served), whole(run.failed)];
        let equal = cells![percent(run.equal, run.served), number(steps)];
        let after = [run.lazy.most(), run.flushes, run.holes, run.largest_hole];
        [first, equal, after.map(|number| whole(number).into()).to_vec()].concat()
    };
    table_of(
        "Areas of vmalloc",
        &caption,
        1,
        &[
            "policy",
            "served",
            "refused",
            "as the kernel %",
            "steps each",
            "most lazy",
            "flushes",
            "holes",
            "largest hole",
        ],
        outcome.runs.iter().map(row).collect::<Vec<_>>(),
    )
}

/// Charts the lazy pages over time under two policies: the recorded kernel's own rules (if unknown, Linux 6.9) and
/// nofrag. `None` if neither has two values.
fn lazy_chart(outcome: &VmapOutcome) -> Option<Section> {
    let own = outcome.own_rules.as_deref().unwrap_or("linux-6.9");
    let layer = |name: &str| {
        let run = outcome.runs.iter().find(|run| run.policy == name)?;
        let values: Vec<f64> = run.lazy.values().iter().map(|value| *value as f64).collect();
        (values.len() > 1).then(|| (name.to_owned(), values))
    };
    let layers: Vec<_> = [own, "nofrag"].iter().filter_map(|name| layer(name)).collect();
    (!layers.is_empty()).then(|| Section::Chart {
        title: "Pages that were freed and wait for a flush".to_owned(),
        caption: "A flush reaches every CPU; pages that wait cannot be used.".to_owned(),
        ends: ["first free", "last free"].map(str::to_owned),
        layers,
    })
}

fn mmap_table(outcome: &MmapOutcome) -> Option<Section> {
    let recorded = &outcome.recorded;
    let fidelity = match &outcome.fidelity {
        Some(fidelity) => format!(
            "The rules of {} predict {} of {} addresses exactly ({} %).",
            fidelity.preset,
            count(fidelity.exact as f64),
            count(fidelity.predicted as f64),
            percent(fidelity.exact, fidelity.predicted)
        ),
        None => "No preset has the rules of the recorded kernel.".to_owned(),
    };
    let caption = format!(
        "The kernel: {} mappings placed in {} processes, {} searches without a place, {} at chosen addresses, {} \
         calls of munmap. {fidelity} Areas and holes are those of each process at its end; the largest hole of each is \
         left out.",
        count(recorded.placed as f64),
        count(recorded.processes as f64),
        count(recorded.failed as f64),
        count(recorded.fixed as f64),
        count(recorded.munmaps as f64)
    );
    let row = |run: &MmapRun| {
        let equal = percent(run.equal, run.served);
        let first = cells![&run.policy, whole(run.served), whole(run.failed), equal];
        let after = [run.visits, run.steps, run.areas, run.holes, run.hole_pages];
        [first, after.map(|number| whole(number).into()).to_vec()].concat()
    };
    table_of(
        "Mappings of processes",
        &caption,
        1,
        &[
            "policy",
            "placed",
            "refused",
            "as the kernel %",
            "visits",
            "steps",
            "areas",
            "holes",
            "pages in holes",
        ],
        outcome.runs.iter().map(row).collect::<Vec<_>>(),
    )
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use nofrag_host::budget::Budget;
    use nofrag_host::trace::Trace;

    use super::super::Input;
    use super::*;

    /// Prints the tables and the wrong predictions of a recording: `NOFRAG_TRACE=FILE cargo test -p nofrag-lab --lib
    /// addresses_of_a_recording -- --ignored --nocapture`
    #[test]
    #[ignore = "needs a recording with events of vmalloc or mmap"]
    fn addresses_of_a_recording() {
        let Some(path) = std::env::var_os("NOFRAG_TRACE") else { return };
        let Trace { meta, mut events, mut room } = Input::File(PathBuf::from(path)).open().unwrap();
        let mut replay = AddressReplay::new(&meta, &mut room);
        let mut batch = Vec::new();
        while events.read(&mut batch).unwrap() {
            batch.drain(..).for_each(|event| replay.event(&event));
        }
        let outcome = replay.finish();
        let tables = tables(outcome.vmap.as_ref(), outcome.mmap.as_ref());
        println!("{}", nofrag_show::text(&tables));
        if let Some(fidelity) = outcome.mmap.and_then(|outcome| outcome.fidelity) {
            for miss in &fidelity.misses {
                println!("{miss:x?}");
            }
        }
    }

    /// Finishes a replay without events of addresses; the shipped recording has only events of pages.
    #[test]
    fn without_such_events_there_is_no_outcome_and_no_table() {
        let mut room = Room::new(Path::new("test"), Budget::of_length(0));
        let outcome = AddressReplay::new(&TraceMeta::default(), &mut room).finish();
        assert_eq!(outcome, AddressOutcome::default());
        assert!(tables(outcome.vmap.as_ref(), outcome.mmap.as_ref()).is_empty());
    }
}
