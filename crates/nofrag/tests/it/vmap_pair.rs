//! A space of virtual areas and a map of the busy ones under the same random steps.
//!
//! One thread: interleavings are the model checker's. The book behind the space remembers which pages were freed and
//! not flushed, so that handing one out too early is seen at once.

use super::choices::Choices;
use super::runs::Runs;
use super::starving::{Heap, Refusal};
use super::vmap_support::{StaleBook, TestSpace, cpu};
use nofrag::check::Check;
use nofrag::cpu::CpuId;
use nofrag::ranges::{AlignOne, Span};
use nofrag::units::Vpn;
use nofrag::vmap::{
    Area, AreaError, AreaRequest, AreaState, Budget, CpuHandle, FreeAreaError, Guard, Layout, Wait,
};
use std::collections::BTreeMap;

/// A space, a map of its busy areas, and the choices that drive both.
pub(crate) struct Pair<'a> {
    pub(crate) choices: Choices<'a>,
    space: &'a TestSpace,
    heap: Heap,
    /// The CPU handle that is held, if one is.
    handle: Option<CpuHandle<'a, StaleBook>>,
    /// Busy areas by first page.
    busy: BTreeMap<u64, Area>,
    steps: u64,
    /// Steps between two full comparisons.
    check_every: u64,
}

impl<'a> Pair<'a> {
    pub(crate) fn new(space: &'a TestSpace, choices: Choices<'a>, check_every: u64) -> Pair<'a> {
        let (heap, handle, busy) = (Heap::AMPLE, None, BTreeMap::new());
        Pair { choices, space, heap, handle, busy, steps: 0, check_every }
    }

    /// Returns the same pair with a heap that refuses.
    pub(crate) fn on(self, heap: Heap) -> Pair<'a> {
        Pair { heap, ..self }
    }

    /// Returns true if an existing place is never missed: Linux's designs may miss one.
    fn is_exact(&self) -> bool {
        self.space.policy().layout == Layout::Shards
    }

    fn cpu(&mut self) -> CpuId {
        cpu(self.space, self.choices.below(self.space.cpus().len() as u64) as usize)
    }

    /// Returns a page, now and then one beyond the space.
    fn page(&mut self) -> u64 {
        let span = self.space.span();
        let beyond = self.choices.below(span.len() + 40);
        span.start().saturating_sub(20).saturating_add(beyond)
    }

    fn pick(&mut self) -> Option<Area> {
        let at = self.choices.below(self.busy.len() as u64) as usize;
        self.busy.values().nth(at).copied()
    }

    /// Does one step; panics when space and map differ by more than the preset allows.
    pub(crate) fn step(&mut self) {
        match self.choices.below(32) {
            0..11 => self.alloc(),
            11..14 => self.alloc_by_handle(),
            14..20 => self.free(|space, by, at| space.free(by, at)),
            20 | 21 => self.free(|space, by, at| space.free_deferred(by, at)),
            22..25 => self.free_by_handle(),
            25 => self.free_anything(),
            26..29 => self.purge_some(),
            29 => self.group(),
            30 => match self.handle.take() {
                Some(handle) => drop(handle),
                None => self.handle = Some(self.take_handle()),
            },
            _ if self.choices.one_in(4) => self.purge_all(),
            _ => {}
        }
        let page = self.page();
        assert_eq!(self.space.find(Vpn(page)), self.covering(page), "find {page:#x}");
        if self.steps.is_multiple_of(self.check_every) {
            compare(self.space, &self.busy);
        }
        self.steps += 1;
    }

    fn attempt<T, E: Refusal>(
        &mut self,
        operation: impl FnMut(&mut &'a TestSpace) -> Result<T, E>,
    ) -> Result<T, E> {
        let (mut space, busy) = (self.space, &self.busy);
        self.heap.attempt(&mut space, operation, |space| compare(space, busy))
    }

    fn take_handle(&mut self) -> CpuHandle<'a, StaleBook> {
        let by = self.cpu();
        let handle = self.space.cpu(by).expect("no handle is out");
        assert!(self.space.cpu(by).is_err(), "two handles for one CPU");
        handle
    }

    fn request(&mut self) -> AreaRequest {
        let pages = match self.choices.below(24) {
            0 => 0,
            1 => 1 + self.choices.below(self.space.span().len() + 20),
            2 | 3 => 1 + self.choices.below(300),
            4..12 => 1 + self.choices.below(4),
            _ => 1 + self.choices.below(40),
        };
        let align = match self.choices.below(24) {
            0 => self.choices.below(7),
            1..9 => 1 << self.choices.below(10),
            _ => 1,
        };
        let within = if self.choices.one_in(5) {
            let (one, other) = (self.page(), self.page());
            Span::new(one.min(other), one.max(other)).ok()
        } else {
            None
        };
        let guarded = !self.choices.one_in(3);
        AreaRequest {
            pages,
            align,
            align_one: if guarded { AlignOne::Byte } else { AlignOne::Number },
            within,
            guard: if guarded { Guard::Page } else { Guard::None },
            wait: if self.choices.one_in(4) { Wait::Never } else { Wait::MayReclaim },
        }
    }

    fn alloc(&mut self) {
        let (by, request) = (self.cpu(), self.request());
        let result = self.attempt(|it| it.alloc(by, &request));
        if result == Err(AreaError::CpuHeld) {
            let held = self.handle.as_ref().is_some_and(|handle| handle.cpu() == by);
            assert!(held, "{by:?} is not held");
        } else {
            self.judge(&request, result, self.handle.is_none());
        }
    }

    fn alloc_by_handle(&mut self) {
        let request = self.request();
        let mut handle = self.handle.take().unwrap_or_else(|| self.take_handle());
        let (space, busy) = (self.space, &self.busy);
        let unchanged = |_: &_| compare(space, busy);
        let result = self.heap.attempt(&mut handle, |it| it.alloc(&request), unchanged);
        // The handle itself empties its pools before it refuses.
        self.judge(&request, result, true);
        self.handle = Some(handle);
    }

    /// Panics unless `result` is an answer to `request` that the preset allows; notes the area.
    fn judge(&mut self, request: &AreaRequest, result: Result<Area, AreaError>, purged: bool) {
        let span = self.space.span();
        match result {
            Ok(area) => {
                assert!(request.pages > 0 && request.align.is_power_of_two(), "{request:?}");
                assert_eq!((area.pages.get(), area.guard), (request.pages, request.guard));
                assert_eq!(area.start.get() % request.align, 0, "{request:?} got {area:?}");
                let within = request.within.unwrap_or(span);
                let inside = within.covers(area.span()) && span.covers(area.span());
                assert!(inside, "{request:?} got {area:?}");
                self.note(area);
            }
            Err(AreaError::ZeroSize) => assert_eq!(request.pages, 0),
            Err(AreaError::AlignNotPowerOfTwo) => assert!(!request.align.is_power_of_two()),
            Err(AreaError::OutsideSpace) => {
                let within = request.within.expect("the whole space is not outside itself");
                assert_eq!(within.intersection(span), None, "{request:?}");
            }
            Err(AreaError::Exhausted { .. }) => {
                // A patient request was preceded by a full purge, but of the pools of a handle that is out.
                let patient = request.wait == Wait::MayReclaim && self.heap.is_ample();
                if patient && purged && self.is_exact() {
                    assert_eq!(self.lowest_place(request), None, "{request:?} missed a place");
                }
                let bounds = request.within.map_or(Some(span), |it| it.intersection(span));
                let total = request.pages + request.guard.pages();
                if patient && purged && bounds.is_some_and(|bounds| total <= bounds.len()) {
                    assert_eq!(self.space.lazy_pages().get(), 0, "{request:?}: all was purged");
                }
            }
            Err(AreaError::WouldBlock) => assert_eq!(request.wait, Wait::Never, "{request:?}"),
            Err(why) => panic!("{request:?}: {why:?}"),
        }
    }

    fn note(&mut self, area: Area) {
        let stale = self.space.mapper().is_stale(area.span());
        assert!(!stale, "{area:?} was handed out before it was flushed");
        let below = self.busy.range(..area.span().end()).next_back();
        let clash = below.filter(|(_, other)| other.span().end() > area.start.get());
        assert_eq!(clash, None, "{area:?} overlaps");
        self.busy.insert(area.start.get(), area);
    }

    /// Returns the lowest place among the numbers that are not busy.
    fn lowest_place(&self, request: &AreaRequest) -> Option<u64> {
        let span = self.space.span();
        let bounds = request.within.map_or(Some(span), |within| within.intersection(span))?;
        let mut free = Runs::default();
        free.add(span);
        self.busy.values().for_each(|area| free.remove(area.span()));
        let total = request.pages + request.guard.pages();
        free.iter()
            .filter_map(|hole| hole.intersection(bounds)?.lowest_fit(total, request.align))
            .min()
    }

    /// Returns the busy area that covers `page`.
    fn covering(&self, page: u64) -> Option<Area> {
        let (_, area) = self.busy.range(..=page).next_back()?;
        area.span().contains(page).then_some(*area)
    }

    /// Frees an area, from any CPU; no caller can do anything about a free that is refused memory, so none is.
    fn free(&mut self, free: fn(&TestSpace, CpuId, Vpn) -> Result<Area, FreeAreaError>) {
        let Some(area) = self.pick() else { return };
        let by = self.cpu();
        let inside = area.start.get() + self.choices.below(area.total_pages().get());
        if inside != area.start.get() {
            let refusal = FreeAreaError::NotAStart { start: area.start };
            assert_eq!(free(self.space, by, Vpn(inside)), Err(refusal));
        }
        let freed = self.heap.run(|| free(self.space, by, area.start));
        assert_eq!(freed, Ok(area));
        self.busy.remove(&area.start.get());
        self.free_again(by, area.start.get());
    }

    fn free_by_handle(&mut self) {
        let Some(area) = self.pick() else { return };
        let Some(handle) = &mut self.handle else { return };
        assert_eq!(self.heap.run(|| handle.free(area.start)), Ok(area));
        self.busy.remove(&area.start.get());
        let again = handle.free(area.start);
        let known = [Err(FreeAreaError::DoubleFree), Err(FreeAreaError::NotAllocated)];
        assert!(known.contains(&again), "free {area:?} by the handle: {again:?}");
        let by = self.cpu();
        self.free_again(by, area.start.get());
    }

    fn free_anything(&mut self) {
        let (by, page) = (self.cpu(), self.page());
        match self.covering(page) {
            Some(area) if area.start.get() == page => {
                assert_eq!(self.space.free(by, Vpn(page)), Ok(area));
                self.busy.remove(&page);
            }
            Some(Area { start, .. }) => {
                let refusal = FreeAreaError::NotAStart { start };
                assert_eq!(self.space.free(by, Vpn(page)), Err(refusal));
            }
            None if !self.space.span().contains(page) => {
                assert_eq!(self.space.free(by, Vpn(page)), Err(FreeAreaError::Foreign));
            }
            None => self.free_again(by, page),
        }
    }

    /// Verifies that a free of a page that is not busy is refused.
    fn free_again(&self, by: CpuId, page: u64) {
        let again = self.space.free(by, Vpn(page));
        let known = [Err(FreeAreaError::DoubleFree), Err(FreeAreaError::NotAllocated)];
        assert!(known.contains(&again), "free {page:#x}: {again:?}");
    }

    fn purge_some(&mut self) {
        let lazy = self.space.lazy_pages().get();
        let budget = Budget { areas: self.choices.below(8) as usize };
        let done = self.heap.run(|| self.space.step(budget));
        assert_eq!(self.space.lazy_pages().get(), lazy - done.pages, "lazy pages");
        let lazy = self.space.lazy_pages().get() > 0;
        // What a handle has freed waits for it.
        assert!(done.more == lazy || lazy && self.handle.is_some(), "more");
    }

    fn purge_all(&mut self) {
        self.heap.run(|| self.space.purge_all());
        if !self.heap.is_ample() {
            return;
        }
        assert!(
            !self.space.mapper().is_stale(self.space.span()),
            "a full purge flushes everything"
        );
        let lazy = self.space.lazy_pages().get();
        assert!(lazy == 0 || self.handle.is_some(), "a full purge leaves nothing lazy");
        let holes = self.space.holes().expect("there is memory enough");
        let free: u64 = holes.iter().map(|hole| hole.len()).sum();
        let busy: u64 = self.busy.values().map(|area| area.span().len()).sum();
        let tiled = free + busy == self.space.span().len();
        assert!(self.handle.is_some() || tiled, "a full purge leaves a pool");
    }

    fn group(&mut self) {
        let by = self.cpu();
        let align = 1 << self.choices.below(6);
        let offsets = [(); 3].map(|()| self.choices.below(256) / align * align);
        let sizes = [(); 3].map(|()| self.choices.below(24));
        let made = self.attempt(|it| it.alloc_group(by, &offsets, &sizes, align));
        let Ok(base) = made else { return };
        assert_eq!(base.get() % align, 0, "the base is misaligned");
        for (offset, size) in offsets.into_iter().zip(sizes) {
            let start = base.get() + offset;
            let area = self.space.find(Vpn(start)).expect("each piece is an area");
            assert_eq!((area.start.get(), area.total_pages().get()), (start, size));
            self.note(area);
        }
    }

    /// Frees all areas, and verifies that all space comes back.
    pub(crate) fn end(mut self) {
        self.handle = None;
        let by = cpu(self.space, 0);
        for (_, area) in std::mem::take(&mut self.busy) {
            assert_eq!(self.space.free(by, area.start), Ok(area));
        }
        self.space.purge_all();
        compare(self.space, &self.busy);
        let stats = self.space.stats();
        assert_eq!((stats.holes, stats.largest_hole), (1, self.space.span().len()), "pages leaked");
    }
}

/// Panics when the space breaks a law, or its books differ from the map.
fn compare(space: &TestSpace, busy: &BTreeMap<u64, Area>) {
    if let Err(violation) = space.check() {
        panic!("{violation}");
    }
    let records = space.areas().expect("there is memory enough");
    let listed = records.iter().filter(|record| record.state == AreaState::Busy);
    assert!(listed.map(|record| &record.area).eq(busy.values()), "the busy areas differ");
    let pages = busy.values().map(|area| area.total_pages().get()).sum::<u64>();
    let stats = space.stats();
    assert_eq!((stats.busy_areas, stats.busy_pages), (busy.len() as u64, pages));
}
