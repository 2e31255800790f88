//! A process under test: an address space, its first areas, and a tally.

use nofrag::mmap::{
    AddressSpace, AreaFlags, Attributes, Layout, MapError, MapFlags, Placement, ProtectError,
    Protection, SpaceConfig, UnmapError,
};
use nofrag::ranges::Span;
use nofrag::units::{PageCount, Vpn};
use thiserror::Error;

use super::catalogue::End;
use super::names;
use crate::key::{Amount, Counts, Key};

pub(super) const PAGE: u64 = 4096;
pub(super) const MIB: u64 = (1 << 20) / PAGE;
/// Pages of a huge page.
pub(super) const HUGE: u64 = 2 * MIB;

/// The reason why a program did not come to its end.
#[derive(Clone, Debug, Error, PartialEq)]
pub(super) enum Failure {
    #[error("a mapping failed: {0}")]
    Map(#[from] MapError),
    #[error("an unmapping failed: {0}")]
    Unmap(#[from] UnmapError),
    #[error("a change failed: {0}")]
    Change(#[from] ProtectError),
    #[error("no place was found")]
    NoPlace,
}

/// Tells whether the program writes to its mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    Nothing,
    Everything,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    maps: u64,
    failures: u64,
    peak_areas: usize,
    most_visits: u64,
    most_steps: u64,
    multiples: u64,
    aligned: u64,
    visits: u64,
    steps: u64,
    digest: u64,
}

/// Mixes one more address into a digest of all of them.
#[inline]
fn mixed(digest: u64, address: u64) -> u64 {
    (digest ^ address).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// An address space with a tally.
pub(super) struct Process {
    pub(super) space: AddressSpace,
    /// Range of valid mappings: one placed elsewhere counts as not placed.
    window: Span,
    /// The end from which the placement searches.
    end: End,
    /// Areas from before the first mapping; they are not counted.
    standing: Vec<Span>,
    memory: Attributes,
    writes: Writes,
    tally: Tally,
}

/// Areas and holes in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Survey {
    pub(super) live: u64,
    pub(super) free: u64,
    pub(super) largest: u64,
    pub(super) holes: u64,
    /// Pages in holes, without the hole between two ends that grow towards each other.
    pub(super) hole_pages: u64,
}

impl Process {
    /// Starts a process whose mappings belong into `window`.
    pub(super) fn new(layout: Layout, placement: Placement, window: Span, end: End) -> Process {
        // A crowd of unmergeable areas is wanted here, and no limit.
        let config = SpaceConfig { map_limit: 1 << 20, ..SpaceConfig::new(layout, placement) };
        Process {
            space: AddressSpace::new(config),
            window,
            end,
            standing: Vec::new(),
            memory: Attributes::anonymous(Protection::READ_WRITE),
            writes: Writes::Nothing,
            tally: Tally::default(),
        }
    }

    /// Returns the same process, but with mappings that never merge.
    pub(super) fn unmergeable(self) -> Process {
        Process { memory: self.memory.with(AreaFlags::OPAQUE), ..self }
    }

    pub(super) fn writing(self, writes: Writes) -> Process {
        Process { writes, ..self }
    }

    /// Puts an area of the program itself at the bytes `from..to`; it is not counted.
    pub(super) fn stand(&mut self, [from, to]: [u64; 2]) -> Result<(), Failure> {
        let span = Span::new(from / PAGE, to / PAGE).expect("the areas of a program are not empty");
        let attributes = Attributes::anonymous(Protection::READ_EXECUTE).with(AreaFlags::OPAQUE);
        self.space.load(Vpn(span.start()), PageCount(span.len()), attributes)?;
        self.standing.push(span);
        Ok(())
    }

    /// Maps libraries, which never merge and are not counted.
    pub(super) fn map_libraries(&mut self, pages: u64) -> Result<(), Failure> {
        let attributes = Attributes::anonymous(Protection::READ_EXECUTE).with(AreaFlags::OPAQUE);
        let flags = MapFlags::default();
        let start = self.space.map(PageCount(pages), attributes, None, flags)?;
        let span = Span::sized(start.0, pages).expect("a mapping is a range");
        self.standing.push(span);
        Ok(())
    }

    /// Maps pages where the placement decides; `None` if there is no place, or only one outside the window.
    #[inline]
    pub(super) fn map(&mut self, pages: u64) -> Result<Option<Vpn>, Failure> {
        let before = *self.space.counters();
        let mapped = self.space.map(PageCount(pages), self.memory, None, MapFlags::default());
        let after = *self.space.counters();
        let (visits, steps) = (after.visits - before.visits, after.steps - before.steps);
        let tally = &mut self.tally;
        tally.maps += 1;
        tally.visits += visits;
        tally.steps += steps;
        tally.most_visits = tally.most_visits.max(visits);
        tally.most_steps = tally.most_steps.max(steps);
        let start = match mapped {
            Ok(start) => start,
            Err(MapError::NoPlace { .. }) => {
                tally.failures += 1;
                return Ok(None);
            }
            Err(why) => return Err(why.into()),
        };
        if start.0 < self.window.start() || start.0 + pages > self.window.end() {
            tally.failures += 1;
            self.space.unmap(start, PageCount(pages))?;
            return Ok(None);
        }
        if pages.is_multiple_of(HUGE) {
            tally.multiples += 1;
            tally.aligned += u64::from(start.0.is_multiple_of(HUGE));
        }
        if self.writes == Writes::Everything {
            self.touch(start, pages)?;
        }
        self.tally.digest = mixed(self.tally.digest, start.0);
        self.note_areas();
        Ok(Some(start))
    }

    fn touch(&mut self, start: Vpn, pages: u64) -> Result<(), Failure> {
        self.space.touch(start, PageCount(pages))?;
        Ok(())
    }

    /// Takes away access to the first page of a mapping.
    pub(super) fn guard(&mut self, start: Vpn) -> Result<(), Failure> {
        self.space.protect(start, PageCount(1), Protection::NONE)?;
        self.note_areas();
        Ok(())
    }

    #[inline]
    pub(super) fn unmap(&mut self, start: Vpn, pages: u64) -> Result<(), Failure> {
        self.space.unmap(start, PageCount(pages))?;
        Ok(())
    }

    /// Updates the peak number of areas, after each mapping as in the simulations.
    #[inline]
    fn note_areas(&mut self) {
        let areas = self.space.area_count() - self.standing.len();
        self.tally.peak_areas = self.tally.peak_areas.max(areas);
    }

    /// Sets all counts back to zero.
    pub(super) fn forget(&mut self) {
        self.tally = Tally::default();
    }

    pub(super) fn window(&self) -> Span {
        self.window
    }

    pub(super) fn maps(&self) -> u64 {
        self.tally.maps
    }

    /// Returns the areas that the program mapped, ascending.
    pub(super) fn areas(&self) -> impl Iterator<Item = Span> + '_ {
        let spans = self.space.areas().map(|area| Span::new(area.start.0, area.end().0));
        let spans = spans.map(|span| span.expect("areas are not empty"));
        spans.filter(|span| !self.standing.contains(span))
    }

    /// Counts the live pages and the holes of the window. O(n).
    pub(super) fn survey(&self) -> Survey {
        let mut survey = Survey::default();
        let mut at = self.window.start();
        // Holes since the last area of the program: they lie between areas of it if another one follows.
        let mut pending: Option<Vec<u64>> = None;
        let mut frontier = 0;
        for area in self.space.areas() {
            let Ok(area) = Span::new(area.start.0, area.end().0) else { continue };
            let Some(inside) = area.intersection(self.window) else { continue };
            let hole = inside.start() - at;
            survey.add(hole);
            at = inside.end();
            if let Some(pending) = pending.as_mut().filter(|_| hole > 0) {
                pending.push(hole);
            }
            if !self.standing.contains(&area) {
                survey.live += inside.len();
                for hole in pending.replace(Vec::new()).into_iter().flatten() {
                    survey.holes += 1;
                    survey.hole_pages += hole;
                    frontier = frontier.max(hole);
                }
            }
        }
        survey.add(self.window.end() - at);
        // Between two ends that grow towards each other lies unused room, not an abandoned hole.
        if self.end == End::Both && survey.holes > 0 {
            survey.holes -= 1;
            survey.hole_pages -= frontier;
        }
        survey
    }

    /// Returns all counts, and the areas and holes of the window.
    pub(super) fn counts(&self) -> Counts {
        let Tally { maps, failures, multiples, aligned, visits, steps, .. } = self.tally;
        let survey = self.survey();
        let mib = |pages: u64| Amount::Real(pages as f64 / MIB as f64);
        let mean = |sum: u64| Amount::Real(sum as f64 / maps.max(1) as f64);
        [
            (names::AREAS, self.areas().count().into()),
            (names::PEAK_AREAS, self.tally.peak_areas.into()),
            (names::MAPS, maps.into()),
            (names::FAILURES, failures.into()),
            (Key::number("live MiB at end"), mib(survey.live)),
            (names::FREE_MIB, mib(survey.free)),
            (Key::count("holes between areas"), survey.holes.into()),
            (names::HOLES_MIB, mib(survey.hole_pages)),
            (names::LARGEST_MIB, mib(survey.largest)),
            (names::MULTIPLES, multiples.into()),
            (names::ALIGNED, aligned.into()),
            (names::VISITS, mean(visits)),
            (names::VISITS_IN_ALL, visits.into()),
            (names::MOST_VISITS, self.tally.most_visits.into()),
            (names::STEPS, mean(steps)),
            (names::MOST_STEPS, self.tally.most_steps.into()),
        ]
        .into()
    }

    /// Returns a digest of all addresses in the order in which they were handed out.
    pub(super) const fn digest(&self) -> u64 {
        self.tally.digest
    }

    /// Returns the share in use of each of `parts` equal parts of the window. O(n).
    pub(super) fn occupancy(&self, parts: usize) -> Vec<f64> {
        let mut shares = vec![0.0; parts];
        let width = self.window.len() as f64 / parts as f64;
        for area in self.space.areas() {
            let clip = |page: Vpn| {
                let page = page.0.clamp(self.window.start(), self.window.end());
                (page - self.window.start()) as f64 / width
            };
            let (from, to) = (clip(area.start), clip(area.end()));
            let parts_touched = (from as usize)..(to.ceil() as usize).min(parts);
            for part in parts_touched {
                let covered = to.min(part as f64 + 1.0) - from.max(part as f64);
                shares[part] += covered.max(0.0);
            }
        }
        shares
    }
}

impl Survey {
    fn add(&mut self, hole: u64) {
        self.free += hole;
        self.largest = self.largest.max(hole);
    }
}
