//! The model beside a recording: [`VmapSpace`] under the kernel's rules makes every change, and must place every area
//! where the kernel did.

use std::time::{Duration, Instant};

use foldhash::{HashMap, HashMapExt};
use nofrag::cpu::CpuSet;
use nofrag::ranges::Span;
use nofrag::units::Vpn;
use nofrag::vmap::{Area, AreaState, Budget, Guard, VmapConfig, VmapPolicy, VmapSpace};

use super::case::{Case, Change, Listed};
use super::order::{Begun, Reading};
use crate::spaces;

/// Counts of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Areas that the model placed where the kernel did.
    pub(super) equal: u64,
    /// Of them: areas from a pool.
    pub(super) pooled: u64,
    /// Of them: aligned to more than a page, from the tree.
    pub(super) aligned: u64,
    /// Areas whose place was taken from the recording.
    pub(super) given: u64,
    pub(super) frees: u64,
    /// Frees at which the kernel counted as many lazy pages as the model.
    pub(super) lazy_equal: u64,
    pub(super) purges: u64,
    pub(super) purged: u64,
}

/// The first change at which kernel and model differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// Position in the order of the reading, and the step there.
    pub(super) position: usize,
    pub(super) step: usize,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The model places elsewhere, or nowhere.
    Place { kernel: Span, model: Option<Span>, pooled: bool },
    /// The place that the recording gives is not free in the model.
    Taken { kernel: Span },
    /// No area of the model begins there.
    Unknown { at: u64 },
    /// Another number of areas is lazy.
    Lazy { kernel: u64, model: u64 },
    /// The lazy areas lie in another range.
    Hull { kernel: Span, model: Span },
}

/// The outcome of a replay: all of it, or the part before the first difference.
#[derive(Debug)]
pub(super) struct Replayed {
    pub(super) counts: Counts,
    pub(super) first: Option<Difference>,
    pub(super) space: VmapSpace,
    pub(super) took: Duration,
}

/// Replays a recording, up to the first difference.
pub(super) fn replay(
    case: &Case,
    policy: VmapPolicy,
    reading: &Reading,
    order: &[usize],
) -> Replayed {
    let begin = Instant::now();
    let cpus = CpuSet::first(case.cpus).expect("a few CPUs fit into memory");
    let config = VmapConfig { span: case.space, cpus, policy };
    let space = VmapSpace::new(config, (), ()).expect("a kernel's space is one");
    let mut twin = Twin { space, counts: Counts::default(), lazy: HashMap::new() };
    for (Listed { span, lazy }, &owner) in case.start.iter().zip(&reading.owners) {
        let state = if *lazy { AreaState::Lazy } else { AreaState::Busy };
        twin.load(owner, *span, state).expect("areas of a list are apart");
        if *lazy {
            twin.lazy.insert(span.start(), *span);
        }
    }
    let mut first = None;
    for (position, &step) in order.iter().enumerate() {
        if let Some(&begun) = reading.begun.get(&step) {
            twin.begin_purge(begun);
        }
        let given = reading.given.contains(&step);
        if let Err(kind) = twin.change(case, step, given) {
            first = Some(Difference { position, step, kind });
            break;
        }
    }
    Replayed { counts: twin.counts, first, space: twin.space, took: begin.elapsed() }
}

struct Twin {
    space: VmapSpace,
    counts: Counts,
    lazy: HashMap<u64, Span>,
}

impl Twin {
    fn cpu(&self, cpu: u16) -> nofrag::cpu::CpuId {
        let cpus = self.space.cpus();
        cpus.by_rank(usize::from(cpu) % cpus.len()).expect("the rank is below their number")
    }

    fn load(&self, owner: u16, span: Span, state: AreaState) -> Option<()> {
        self.space.load_area(self.cpu(owner), span, Guard::None, state).ok()
    }

    /// Makes the first part of a purge.
    fn begin_purge(&self, begun: Begun) {
        let areas = match begun {
            Begun::Areas(areas) => areas,
            Begun::Through(last) => match self.areas_through(last) {
                Some(areas) => areas,
                None => return,
            },
        };
        self.space.step(Budget { areas });
    }

    /// Returns the number of lazy areas that a purge gives back up to the one at page `last`.
    fn areas_through(&self, last: u64) -> Option<usize> {
        let records = self.space.areas().expect("memory for a list").into_iter();
        let lazy = records.filter(|record| record.state == AreaState::Lazy);
        let place = |area: &Area| (area.cpu.rank(), area.start.get());
        let lazy: Vec<_> = lazy.map(|record| place(&record.area)).collect();
        let &last = lazy.iter().find(|(_, start)| *start == last)?;
        Some(lazy.into_iter().filter(|&place| place <= last).count())
    }

    fn change(&mut self, case: &Case, step: usize, given: bool) -> Result<(), Kind> {
        let step = case.steps[step];
        match step.change {
            Change::Alloc { at, pages, align_bytes, window } => {
                let kernel = Span::sized(at, pages).map_err(|_| Kind::Unknown { at })?;
                let request = spaces::request(pages, align_bytes, window);
                let hits = self.space.area_counters().pools.hits;
                let model = self.space.alloc(self.cpu(step.cpu), &request).ok();
                let model = model.map(|area| area.span());
                let pooled = self.space.area_counters().pools.hits > hits;
                match model {
                    Some(model) if model == kernel => {}
                    Some(model) if given && !pooled => {
                        self.space.cancel(Vpn(model.start())).expect("it was placed just now");
                        let loaded = self.load(step.cpu, kernel, AreaState::Busy);
                        loaded.ok_or(Kind::Taken { kernel })?;
                        self.counts.given += 1;
                        return Ok(());
                    }
                    _ => return Err(Kind::Place { kernel, model, pooled }),
                }
                self.counts.equal += 1;
                self.counts.pooled += u64::from(pooled);
                self.counts.aligned += u64::from(!pooled && request.align > 1);
            }
            Change::Free { at, lazy } => {
                let freed = self.space.free_deferred(self.cpu(step.cpu), Vpn(at));
                let freed = freed.map_err(|_| Kind::Unknown { at })?;
                self.lazy.insert(at, freed.span());
                self.counts.frees += 1;
                self.counts.lazy_equal += u64::from(self.space.lazy_pages().get() == lazy);
            }
            Change::Purge { hull, areas } => {
                if self.lazy.len() as u64 != u64::from(areas) {
                    let model = self.lazy.len() as u64;
                    return Err(Kind::Lazy { kernel: areas.into(), model });
                }
                let model = self.lazy.drain().map(|(_, span)| span).reduce(Span::hull);
                if let Some(model) = model.filter(|model| *model != hull) {
                    return Err(Kind::Hull { kernel: hull, model });
                }
                // A step that finds nothing lazy would let pools decay for another purge.
                if self.space.lazy_pages().get() > 0 || areas == 0 {
                    self.space.step(Budget { areas: usize::MAX });
                }
                self.counts.purges += 1;
                self.counts.purged += u64::from(areas);
            }
        }
        Ok(())
    }
}
