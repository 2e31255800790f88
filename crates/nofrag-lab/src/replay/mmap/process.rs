//! One address space under every policy, and under the judge.

use std::collections::{BTreeMap, BTreeSet};

use nofrag::mmap::{
    AddressSpace, AreaFlags, Attributes, HugePages, Layout, MapFlags, Placement, PlacementPreset,
    Protection, SpaceConfig,
};
use nofrag::ranges::Span;
use nofrag::units::{PageCount, Vpn};

use super::request::{HUGE_PAGES, MapRequest, aligned_page};
use super::{Miss, MmapFidelity, MmapRun};

/// Results over all processes: a run for each policy, and the judge's predictions.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) runs: Vec<MmapRun>,
    pub(super) predicted: u64,
    pub(super) exact: u64,
    pub(super) misses: Vec<Miss>,
}

impl Outcome {
    pub(super) fn new(policies: &[PlacementPreset]) -> Outcome {
        let run = |preset: &PlacementPreset| MmapRun {
            policy: preset.name.to_owned(),
            ..MmapRun::default()
        };
        let runs = policies.iter().map(run).collect();
        Outcome { runs, predicted: 0, exact: 0, misses: Vec::new() }
    }

    fn judge(&mut self, pid: i32, recorded: Span, predicted: Option<Vpn>) {
        self.predicted += 1;
        if predicted == Some(Vpn(recorded.start())) {
            self.exact += 1;
        } else if self.misses.len() < MmapFidelity::EXAMPLES {
            let predicted = predicted.map(|page| page.0);
            let (pages, recorded) = (recorded.len(), recorded.start());
            self.misses.push(Miss { pid, pages, recorded, predicted });
        }
    }

    /// Adds the counts of a process that ends.
    pub(super) fn end(&mut self, process: &Process) {
        for (run, space) in self.runs.iter_mut().zip(&process.spaces) {
            let counters = space.counters();
            run.visits += counters.visits;
            run.steps += counters.steps;
            run.areas += space.area_count() as u64;
            let holes = space.hole_stats();
            run.holes += (holes.holes as u64).saturating_sub(1);
            run.hole_pages += holes.free.0 - holes.largest.0;
        }
    }
}

/// A part of a mapping: its number of pages, and its first page under each policy that has it.
#[derive(Clone, Debug)]
struct Piece {
    pages: u64,
    own: Box<[Option<u64>]>,
}

impl Piece {
    /// Returns the piece without its first `pages` pages.
    fn behind(&self, pages: u64) -> Piece {
        let own = self.own.iter().map(|own| own.map(|own| own + pages)).collect();
        Piece { pages: self.pages - pages, own }
    }
}

/// One address space under every policy, and under the recorded kernel's own rules (the judge).
///
/// 1. The pieces, by where the kernel has them, do not overlap; each policy has all pages of a piece in a row, or none.
/// 2. The judge has exactly the pieces' pages mapped, where the kernel has them, and the areas that were loaded.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) threads: BTreeSet<i32>,
    pub(super) spaces: Vec<AddressSpace>,
    judge: Option<AddressSpace>,
    pieces: BTreeMap<u64, Piece>,
}

const NO_MEMORY: &str = "memory for the records of a few areas";

impl Process {
    pub(super) fn new(
        layout: Layout,
        policies: &[PlacementPreset],
        judge: Option<Placement>,
    ) -> Process {
        let space = |placement| AddressSpace::new(SpaceConfig::new(layout, placement));
        Process {
            threads: BTreeSet::new(),
            spaces: policies.iter().map(|preset| space(preset.placement)).collect(),
            judge: judge.map(space),
            pieces: BTreeMap::new(),
        }
    }

    /// Returns the number of pieces.
    pub(super) fn areas(&self) -> usize {
        self.pieces.len()
    }

    /// Maps the areas of a snapshot where they are. Those beyond the space stay out.
    pub(super) fn load(&mut self, areas: &[Span]) {
        let attributes = Attributes::anonymous(Protection::READ_WRITE).with(AreaFlags::OPAQUE);
        for area in areas {
            self.fixed(*area, attributes);
        }
    }

    /// Maps a range that the caller chose: for the judge over what is there, for each policy only where neither the
    /// kernel nor the policy has anything.
    pub(super) fn fixed(&mut self, span: Span, attributes: Attributes) {
        if let Some(judge) = &mut self.judge {
            // Outside the space nothing is looked for either.
            let _ = judge.map_fixed(Vpn(span.start()), PageCount(span.len()), attributes);
        }
        for hole in self.unknown_in(span) {
            let (start, pages) = (Vpn(hole.start()), PageCount(hole.len()));
            let place = |space: &mut AddressSpace| {
                space.map_fixed_noreplace(start, pages, attributes).ok().map(|()| start.0)
            };
            let own = self.spaces.iter_mut().map(place).collect();
            self.pieces.insert(hole.start(), Piece { pages: hole.len(), own });
        }
    }

    /// Returns the parts of a range where the kernel has no known piece.
    fn unknown_in(&self, span: Span) -> Vec<Span> {
        let mut holes = Vec::new();
        let mut at = span.start();
        let before = self.pieces.range(..span.start()).next_back();
        let inside = self.pieces.range(span.start()..span.end());
        for (start, piece) in before.into_iter().chain(inside) {
            holes.extend(Span::new(at, *start).ok());
            at = at.max(start + piece.pages);
        }
        holes.extend(Span::new(at, span.end()).ok());
        holes
    }

    pub(super) fn unmap(&mut self, span: Span) {
        self.forget(span);
        if let Some(judge) = &mut self.judge {
            let _ = judge.unmap(Vpn(span.start()), PageCount(span.len()));
        }
    }

    /// Unmaps the pieces that the kernel has in a range, under every policy; returns their number.
    fn forget(&mut self, span: Span) -> u64 {
        self.cut(span.start());
        self.cut(span.end());
        let starts: Vec<u64> =
            self.pieces.range(span.start()..span.end()).map(|(start, _)| *start).collect();
        for start in &starts {
            let piece = self.pieces.remove(start).expect("its start was just read");
            for (space, own) in self.spaces.iter_mut().zip(&piece.own) {
                if let Some(own) = own {
                    // Refused only where it would cut an area at the limit of areas: as in a kernel, it stays.
                    let _ = space.unmap(Vpn(*own), PageCount(piece.pages));
                }
            }
        }
        starts.len() as u64
    }

    /// Makes a piece end at `at`, if one lies across it.
    fn cut(&mut self, at: u64) {
        let Some((start, piece)) = self.pieces.range_mut(..at).next_back() else { return };
        let before = at - start;
        if before < piece.pages {
            let behind = piece.behind(before);
            piece.pages = before;
            self.pieces.insert(at, behind);
        }
    }

    /// Places a mapping under every policy; returns the number of earlier pieces in its range, which must have been
    /// unmapped unseen.
    pub(super) fn place(&mut self, pid: i32, wanted: &MapRequest, outcome: &mut Outcome) -> u64 {
        let recorded = wanted.recorded;
        let gone = self.forget(recorded);
        if let Some(judge) = &mut self.judge {
            let (start, pages) = (Vpn(recorded.start()), PageCount(recorded.len()));
            if gone > 0 {
                // The kernel found this range free, which the judge could not have known.
                let _ = judge.unmap(start, pages);
            }
            let predicted = placed(judge, wanted);
            outcome.judge(pid, recorded, predicted);
            if let Some(wrong) = predicted.filter(|at| *at != start) {
                judge.unmap(wrong, pages).expect(NO_MEMORY);
            }
            if predicted != Some(start) {
                let _ = judge.map_fixed(start, pages, wanted.attributes);
            }
        }
        let mut own = Vec::with_capacity(self.spaces.len());
        for (space, run) in self.spaces.iter_mut().zip(&mut outcome.runs) {
            let at = placed(space, wanted);
            match at {
                Some(at) => {
                    run.served += 1;
                    run.equal += u64::from(at.0 == recorded.start());
                }
                None => run.failed += 1,
            }
            own.push(at.map(|at| at.0));
        }
        self.pieces.insert(recorded.start(), Piece { pages: recorded.len(), own: own.into() });
        gone
    }
}

/// Maps by the space's own rule; `None` if there is no place.
fn placed(space: &mut AddressSpace, wanted: &MapRequest) -> Option<Vpn> {
    let MapRequest { recorded, attributes, flags, hint, huge_offset } = *wanted;
    let pages = PageCount(recorded.len());
    if let Some(offset) = huge_offset
        && aligns(space.placement())
        && let Some(at) = in_larger_room(space, pages, attributes, offset, flags)
    {
        return Some(at);
    }
    space.map(pages, attributes, hint, flags).ok()
}

/// Returns true if the rules align files to huge pages: where a file system asks for it, since 6.7.
fn aligns(placement: Placement) -> bool {
    match placement {
        Placement::MapleTree(huge) | Placement::MapleTreeGuarded(huge) => {
            huge != HugePages::Ignored
        }
        _ => false,
    }
}

/// Finds room for a huge page more than is needed, and maps in it where the file's huge pages begin; `None` if there is
/// no such room.
fn in_larger_room(
    space: &mut AddressSpace,
    pages: PageCount,
    attributes: Attributes,
    offset: u64,
    flags: MapFlags,
) -> Option<Vpn> {
    let room = PageCount(pages.0 + HUGE_PAGES.0);
    let found = space.map(room, attributes, None, flags).ok()?;
    let at = aligned_page(found, offset);
    space.unmap(found, room).expect(NO_MEMORY);
    space.map_fixed_noreplace(at, pages, attributes).expect("it lies in what was free");
    Some(at)
}
