//! A list of areas under the same operations as an address space: too simple to be wrong, and slow.
//!
//! Nothing is indexed, shared or planned: each operation works on the list, area by area, as Linux does; where it is
//! refused on the way, the list of before is put back. The tests and the fuzzer use it alike.

use nofrag::mmap::{
    AnonChain, AreaFlags, AreaRecord, Attributes, Backing, FixedError, GrowError, Layout, MapError,
    MapFlags, MoveError, ProtectError, Protection, RemapTarget, SpaceConfig, UnmapError,
    WindowChoice,
};
use nofrag::units::{PageCount, Vpn};

/// An area of the list: pages `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The attributes; the offset is that of the first page.
    pub(crate) attributes: Attributes,
}

impl Listed {
    fn meets(&self, start: u64, end: u64) -> bool {
        self.start < end && start < self.end
    }

    fn covers(&self, start: u64, end: u64) -> bool {
        self.start <= start && end <= self.end
    }

    fn has(&self, flags: AreaFlags) -> bool {
        self.attributes.flags.any_of(flags)
    }

    /// Returns the attributes of the part that begins at `start`.
    fn attributes_from(&self, start: u64) -> Attributes {
        let offset = self.attributes.offset.wrapping_add(start.wrapping_sub(self.start));
        Attributes { offset, ..self.attributes }
    }

    fn part(&self, start: u64, end: u64) -> Listed {
        Listed { start, end, attributes: self.attributes_from(start) }
    }
}

/// Reason why a start and a number of pages are no range of the space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoRange {
    Empty,
    Outside,
}

/// The two places of a move: old and new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// First page of the old place.
    pub(crate) from: u64,
    /// First page of the new place.
    pub(crate) to: u64,
    pub(crate) pages: u64,
}

impl Held {
    /// Returns the parts of the new place outside the old one.
    fn reserved(&self) -> Vec<(u64, u64)> {
        outside((self.to, self.to + self.pages), (self.from, self.from + self.pages))
    }
}

/// Returns the parts of one range that lie below and above another.
fn outside(range: (u64, u64), other: (u64, u64)) -> Vec<(u64, u64)> {
    let parts = [(range.0, range.1.min(other.0)), (range.0.max(other.1), range.1)];
    parts.into_iter().filter(|part| part.0 < part.1).collect()
}

/// The place of a mapping, as far as the model knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedPlace {
    Hint(u64),
    /// The placement chooses a place.
    Anywhere,
}

/// The model: a list whose methods do what those of [`nofrag::mmap::AddressSpace`] with the same names do.
#[derive(Clone, Debug)]
pub(crate) struct Naive {
    pub(crate) areas: Vec<Listed>,
    layout: Layout,
    limit: usize,
    guard_gap: u64,
    /// True if hints respect the guard gaps of stacks.
    guarded: bool,
    next_chain: u64,
}

/// Returns true if the two areas touch and can be one, close hooks aside.
fn agree(lower: &Listed, upper: &Listed) -> bool {
    let never = AreaFlags::IO
        .with(AreaFlags::DONT_EXPAND)
        .with(AreaFlags::PFN_MAP)
        .with(AreaFlags::MIXED_MAP)
        .with(AreaFlags::OPAQUE);
    // Made equal in everything in which areas that merge may differ.
    let comparable = |area: &Listed| Attributes {
        flags: area.attributes.flags.without(AreaFlags::SOFT_DIRTY.with(AreaFlags::CLOSE_HOOK)),
        offset: 0,
        chain: AnonChain::Untouched,
        ..area.attributes
    };
    lower.end == upper.start
        && !lower.has(never)
        && !upper.has(never)
        && comparable(lower) == comparable(upper)
        && lower.attributes_from(upper.start).offset == upper.attributes.offset
        && chains_agree(lower.attributes.chain, upper.attributes.chain)
}

fn chains_agree(one: AnonChain, other: AnonChain) -> bool {
    use AnonChain::{Own, Shared, Untouched};
    match (one, other) {
        (Untouched, Untouched) | (Untouched, Own(_)) | (Own(_), Untouched) => true,
        (Untouched, Shared(_)) | (Shared(_), Untouched) => false,
        _ => one == other,
    }
}

impl Naive {
    /// Returns a space without areas; `guarded` is true if hints respect guards.
    pub(crate) fn new(config: &SpaceConfig, guarded: bool) -> Naive {
        let SpaceConfig { mut layout, map_limit, guard_gap, .. } = *config;
        layout.floor.0 = layout.floor.0.max(1);
        layout.base.0 = layout.base.0.max(1);
        let guard_gap = guard_gap.0;
        Naive { areas: Vec::new(), layout, limit: map_limit, guard_gap, guarded, next_chain: 1 }
    }

    /// Returns the areas as a space shows them.
    pub(crate) fn records(&self) -> Vec<AreaRecord> {
        let record = |area: &Listed| AreaRecord {
            start: Vpn(area.start),
            pages: PageCount(area.end - area.start),
            attributes: area.attributes,
        };
        self.areas.iter().map(record).collect()
    }

    /// Returns true if no area has a page of the range.
    pub(crate) fn is_free(&self, start: u64, end: u64) -> bool {
        !self.areas.iter().any(|area| area.meets(start, end))
    }

    /// Returns the runs of pages between `low` and `high` that no area has.
    pub(crate) fn holes(&self, low: u64, high: u64) -> Vec<(u64, u64)> {
        let mut holes = Vec::new();
        let mut at = low;
        for area in &self.areas {
            if at < area.start.min(high) {
                holes.push((at, area.start.min(high)));
            }
            at = at.max(area.end);
        }
        if at < high {
            holes.push((at, high));
        }
        holes
    }

    /// Returns the area that holds the page.
    pub(crate) fn at(&self, page: u64) -> Option<&Listed> {
        self.areas.iter().find(|area| area.start <= page && page < area.end)
    }

    fn range(&self, start: u64, pages: u64) -> Result<(u64, u64), NoRange> {
        if pages == 0 {
            return Err(NoRange::Empty);
        }
        let end = start.checked_add(pages).ok_or(NoRange::Outside)?;
        let last = self.layout.extended_end.unwrap_or(self.layout.end).max(self.layout.end);
        if end <= last.0 { Ok((start, end)) } else { Err(NoRange::Outside) }
    }

    fn add(&mut self, area: Listed) {
        assert!(self.is_free(area.start, area.end), "{area:?} overlaps");
        self.areas.push(area);
        self.areas.sort_by_key(|area| area.start);
    }

    /// Adds an area that merges as a new mapping does.
    fn add_merged(&mut self, mut new: Listed) {
        let hook = AreaFlags::CLOSE_HOOK;
        let lower = self.areas.iter().position(|area| agree(area, &new) && !new.has(hook));
        let lower = lower.map(|at| self.areas.remove(at));
        let upper = self.areas.iter().position(|area| agree(&new, area) && !new.has(hook));
        let upper = upper.map(|at| self.areas.remove(at));
        match (lower, upper) {
            (None, None) => {}
            (Some(lower), None) => new = joined(&lower, &new),
            (None, Some(upper)) => {
                let flags = upper.attributes.flags;
                new = joined(&new, &upper);
                new.attributes.flags = flags;
            }
            (Some(lower), Some(upper)) => {
                let chains = (lower.attributes.chain, upper.attributes.chain);
                new = joined(&lower, &new);
                if chains_agree(chains.0, chains.1) && !upper.has(hook) {
                    new = joined(&new, &upper);
                } else {
                    self.add(upper);
                }
            }
        }
        self.add(new);
    }

    /// Takes all of a range out; an empty one cuts nothing.
    fn take_out(&mut self, start: u64, end: u64) {
        if start == end {
            return;
        }
        for area in std::mem::take(&mut self.areas) {
            if !area.meets(start, end) {
                self.areas.push(area);
                continue;
            }
            let kept = outside((area.start, area.end), (start, end));
            self.areas.extend(kept.iter().map(|&(start, end)| area.part(start, end)));
        }
    }

    fn cuts_in_two(&self, start: u64, end: u64) -> bool {
        self.areas.iter().any(|area| area.start < start && end < area.end)
    }

    fn new_memory(&mut self, start: u64, pages: u64, attributes: Attributes) {
        let offset = match attributes.backing {
            Backing::Anonymous => start,
            Backing::File(_) => attributes.offset,
        };
        let attributes = Attributes { offset, chain: AnonChain::Untouched, ..attributes };
        self.add_merged(Listed { start, end: start + pages, attributes });
    }

    /// Returns the end of the window that a hint may use.
    fn hint_end(&self, hint: u64, window: WindowChoice) -> u64 {
        let opens = hint > self.layout.end.0 && window != WindowChoice::Low;
        match (window, self.layout.extended_end) {
            (WindowChoice::Low, _) => self.layout.low.map_or(0, |low| low.end()),
            (_, Some(end)) if opens => end.0.max(self.layout.end.0),
            _ => self.layout.end.0,
        }
    }

    /// Returns the refusal of a mapping before a place is looked for, or the place that is wanted.
    pub(crate) fn before_placing(
        &self,
        pages: u64,
        hint: Option<u64>,
        flags: MapFlags,
    ) -> Result<ExpectedPlace, MapError> {
        let hint = hint.filter(|&hint| hint != 0);
        if pages == 0 {
            return Err(MapError::ZeroSize);
        }
        if !flags.align.is_power_of_two() {
            return Err(MapError::AlignNotPowerOfTwo);
        }
        if pages > self.hint_end(hint.unwrap_or(0), WindowChoice::Usual) {
            return Err(MapError::TooLong);
        }
        if flags.window == WindowChoice::Low && self.layout.low.is_none() {
            return Err(MapError::NoSuchWindow);
        }
        if flags.window == WindowChoice::Above4G && self.layout.top.0 <= 1 << 20 {
            return Err(MapError::NoSuchWindow);
        }
        if self.areas.len() > self.limit {
            return Err(MapError::TooManyAreas { limit: self.limit });
        }
        let Some(hint) = hint else { return Ok(ExpectedPlace::Anywhere) };
        let start = hint.max(self.layout.floor.0);
        let Some(end) = start.checked_add(pages) else { return Ok(ExpectedPlace::Anywhere) };
        let next = self.areas.iter().find(|area| area.end > start);
        let guard = next.filter(|_| self.guarded).map_or(0, |next| {
            let down = next.has(AreaFlags::GROWS_DOWN);
            if down { self.guard_gap } else { u64::from(next.has(AreaFlags::SHADOW_STACK)) }
        });
        let free = next.is_none_or(|next| end <= next.start.saturating_sub(guard));
        let aligned = start.wrapping_sub(flags.offset) & (flags.align - 1) == 0;
        let fits = aligned && end <= self.hint_end(hint, flags.window);
        Ok(if free && fits { ExpectedPlace::Hint(start) } else { ExpectedPlace::Anywhere })
    }

    /// Maps at a place that the real space found.
    pub(crate) fn placed(&mut self, start: u64, pages: u64, attributes: Attributes) {
        self.new_memory(start, pages, attributes);
    }

    fn fixed(&self, start: u64, pages: u64) -> Result<(u64, u64), FixedError> {
        let range = self.range(start, pages).map_err(|why| match why {
            NoRange::Empty => FixedError::ZeroSize,
            NoRange::Outside => FixedError::Outside,
        })?;
        if start < self.layout.floor.0 {
            return Err(FixedError::Outside);
        }
        if self.areas.len() > self.limit {
            return Err(FixedError::TooManyAreas { limit: self.limit });
        }
        Ok(range)
    }

    pub(crate) fn map_fixed(
        &mut self,
        start: u64,
        pages: u64,
        attributes: Attributes,
    ) -> Result<(), FixedError> {
        let (start, end) = self.fixed(start, pages)?;
        if self.cuts_in_two(start, end) && self.areas.len() >= self.limit {
            return Err(FixedError::TooManyAreas { limit: self.limit });
        }
        self.take_out(start, end);
        self.new_memory(start, pages, attributes);
        Ok(())
    }

    pub(crate) fn map_fixed_noreplace(
        &mut self,
        start: u64,
        pages: u64,
        attributes: Attributes,
    ) -> Result<(), FixedError> {
        let (start, end) = self.fixed(start, pages)?;
        if let Some(area) = self.areas.iter().find(|area| area.meets(start, end)) {
            return Err(FixedError::Taken { area: area.start });
        }
        self.new_memory(start, pages, attributes);
        Ok(())
    }

    pub(crate) fn load(
        &mut self,
        start: u64,
        pages: u64,
        attributes: Attributes,
    ) -> Result<(), UnmapError> {
        if pages == 0 {
            return Err(UnmapError::ZeroSize);
        }
        let end = start.checked_add(pages).ok_or(UnmapError::Outside)?;
        if !self.is_free(start, end) {
            return Err(UnmapError::Outside);
        }
        self.add(Listed { start, end, attributes });
        Ok(())
    }

    pub(crate) fn unmap(&mut self, start: u64, pages: u64) -> Result<(), UnmapError> {
        let (start, end) = self.range(start, pages).map_err(|why| match why {
            NoRange::Empty => UnmapError::ZeroSize,
            NoRange::Outside => UnmapError::Outside,
        })?;
        if self.cuts_in_two(start, end) && self.areas.len() >= self.limit {
            return Err(UnmapError::TooManyAreas { limit: self.limit });
        }
        self.take_out(start, end);
        Ok(())
    }

    fn mapped(&self, start: u64, pages: u64) -> Result<(u64, u64), ProtectError> {
        let (start, end) = self.range(start, pages).map_err(|why| match why {
            NoRange::Empty => ProtectError::ZeroSize,
            NoRange::Outside => ProtectError::Outside,
        })?;
        let mut at = start;
        while at < end {
            at = self.at(at).ok_or(ProtectError::NotMapped { hole: at })?.end;
        }
        Ok((start, end))
    }

    pub(crate) fn change(
        &mut self,
        start: u64,
        pages: u64,
        change: impl Fn(&mut Attributes),
    ) -> Result<(), ProtectError> {
        let (start, end) = self.mapped(start, pages)?;
        let mut todo = Vec::new();
        for area in self.areas.iter().filter(|area| area.meets(start, end)) {
            let part = area.part(area.start.max(start), area.end.min(end));
            let mut changed = part;
            change(&mut changed.attributes);
            if changed != part {
                todo.push(changed);
            }
        }
        let before = self.areas.clone();
        for nth in 0..todo.len() {
            let later: Vec<u64> = todo[nth + 1..].iter().map(|part| part.start).collect();
            if let Err(why) = self.change_one(todo[nth], &later) {
                self.areas = before;
                return Err(why);
            }
        }
        Ok(())
    }

    /// Changes a part of one area, which merges with none of the parts that begin at `later`: these will change
    /// themselves.
    fn change_one(&mut self, part: Listed, later: &[u64]) -> Result<(), ProtectError> {
        let at = self.areas.iter().position(|area| area.covers(part.start, part.end));
        let area = self.areas.remove(at.expect("the part is mapped"));
        let whole = area.start == part.start && area.end == part.end;
        let vanishes = !(whole && part.has(AreaFlags::CLOSE_HOOK));
        let lower =
            self.areas.iter().copied().find(|it| area.start == part.start && agree(it, &part));
        let lower = lower.filter(|_| vanishes);
        let upper = self.areas.iter().copied().find(|it| area.end == part.end && agree(&part, it));
        let upper = upper.filter(|it| vanishes && !later.contains(&it.start));
        let mut splits = 0;
        for (start, end) in outside((area.start, area.end), (part.start, part.end)) {
            self.areas.push(area.part(start, end));
            splits += 1;
        }
        if lower.is_none() && upper.is_none() {
            // The area is out of the list, its other parts are in.
            let count = self.areas.len() + 1 - splits;
            if splits > 0 && count + splits > self.limit {
                return Err(ProtectError::TooManyAreas { limit: self.limit });
            }
            self.add(part);
            return Ok(());
        }
        let mut new = part;
        if let Some(lower) = lower {
            self.areas.retain(|it| it != &lower);
            new = joined(&lower, &new);
        }
        if let Some(upper) = upper {
            let chains = lower.map(|it| chains_agree(it.attributes.chain, upper.attributes.chain));
            let bridges = chains.is_none_or(|agree| agree && !upper.has(AreaFlags::CLOSE_HOOK));
            if bridges {
                self.areas.retain(|it| it != &upper);
                let flags = if lower.is_some() { new } else { upper }.attributes.flags;
                new = joined(&new, &upper);
                new.attributes.flags = flags;
            }
        }
        self.add(new);
        Ok(())
    }

    pub(crate) fn touch(&mut self, start: u64, pages: u64) -> Result<(), ProtectError> {
        let (start, end) = self.mapped(start, pages)?;
        for area in self.areas.iter_mut().filter(|area| area.meets(start, end)) {
            let shared = area.has(AreaFlags::SHARED);
            if area.attributes.chain == AnonChain::Untouched && !shared {
                area.attributes.chain = AnonChain::Own(self.next_chain);
                self.next_chain += 1;
            }
        }
        Ok(())
    }

    pub(crate) fn grow_stack(&mut self, at: u64) -> Result<PageCount, GrowError> {
        if self.at(at).is_some() {
            return Ok(PageCount(0));
        }
        let below = self.areas.iter().copied().rfind(|area| area.end <= at);
        let stack = self.areas.iter_mut().find(|area| area.start > at);
        let stack =
            stack.filter(|area| area.has(AreaFlags::GROWS_DOWN)).ok_or(GrowError::NoStack)?;
        if at < self.layout.floor.0 {
            return Err(GrowError::Outside);
        }
        if let Some(below) = below
            && !below.has(AreaFlags::GROWS_DOWN)
            && below.attributes.protection != Protection::NONE
            && at - below.end < self.guard_gap
        {
            return Err(GrowError::GuardGap { neighbour: below.start });
        }
        let grown = stack.start - at;
        stack.attributes = stack.attributes_from(at);
        stack.start = at;
        Ok(PageCount(grown))
    }

    pub(crate) fn fork(&mut self) -> Naive {
        for area in &mut self.areas {
            if let AnonChain::Own(chain) = area.attributes.chain {
                area.attributes.chain = AnonChain::Shared(chain);
            }
        }
        let mut child = self.clone();
        for area in &mut child.areas {
            area.attributes.flags = area.attributes.flags.without(AreaFlags::LOCKED);
            area.attributes.userfault = 0;
        }
        child
    }

    pub(crate) fn exec(&mut self) {
        self.areas.clear();
    }

    fn one_area(&self, start: u64, end: u64) -> Result<Listed, MoveError> {
        let area = self.areas.iter().find(|area| area.covers(start, end));
        area.copied().ok_or(MoveError::NotOneArea)
    }

    fn move_range(&self, start: u64, pages: u64) -> Result<(u64, u64), MoveError> {
        self.range(start, pages).map_err(|why| match why {
            NoRange::Empty => MoveError::ZeroSize,
            NoRange::Outside => MoveError::Outside,
        })
    }

    fn near_limit(&self, count: usize) -> Result<(), MoveError> {
        let limit = self.limit;
        if count + 3 >= limit { Err(MoveError::TooManyAreas { limit }) } else { Ok(()) }
    }

    fn may_grow(area: &Listed) -> Result<(), MoveError> {
        let fixed = AreaFlags::DONT_EXPAND.with(AreaFlags::PFN_MAP);
        if area.has(fixed) { Err(MoveError::NotExpandable) } else { Ok(()) }
    }

    /// Does what [`nofrag::mmap::AddressSpace::remap`] does up to where a place must be found: returns the answer, or
    /// none if the mapping must move.
    pub(crate) fn remap(
        &mut self,
        start: u64,
        pages: u64,
        new_pages: u64,
        target: RemapTarget,
    ) -> Result<Option<u64>, MoveError> {
        if new_pages == 0 {
            return Err(MoveError::ZeroSize);
        }
        let (start, end) = self.move_range(start, pages)?;
        let kept = start + pages.min(new_pages);
        if let RemapTarget::To(to) = target {
            return self.remap_to((start, end), kept, new_pages, to.0).map(|()| Some(to.0));
        }
        if new_pages <= pages {
            self.one_area(start, start + 1)?;
            if kept < end {
                self.unmap(kept, end - kept).map_err(|why| match why {
                    UnmapError::TooManyAreas { limit } => MoveError::TooManyAreas { limit },
                    why => panic!("the range was judged before: {why}"),
                })?;
            }
            return Ok(Some(start));
        }
        let area = self.one_area(start, end)?;
        Naive::may_grow(&area)?;
        let why = if end < area.end {
            MoveError::Taken { area: area.start }
        } else {
            match self.move_range(start, new_pages) {
                Err(why) => why,
                Ok((_, new_end)) => match self.areas.iter().find(|it| it.meets(end, new_end)) {
                    Some(above) => MoveError::Taken { area: above.start },
                    None => {
                        self.areas.retain(|it| it != &area);
                        self.grow(Listed { end: new_end, ..area });
                        return Ok(Some(start));
                    }
                },
            }
        };
        if target == RemapTarget::InPlace {
            return Err(why);
        }
        self.near_limit(self.areas.len())?;
        Ok(None)
    }

    /// Adds an area that has grown upwards, which takes in the one that it came to touch.
    fn grow(&mut self, area: Listed) {
        let hook = AreaFlags::CLOSE_HOOK;
        let upper = self.areas.iter().copied().find(|it| agree(&area, it));
        match upper.filter(|it| !it.has(hook) && !area.has(hook)) {
            Some(upper) => {
                self.areas.retain(|it| it != &upper);
                self.add(joined(&area, &upper));
            }
            None => self.add(area),
        }
    }

    fn remap_to(
        &mut self,
        (start, end): (u64, u64),
        kept: u64,
        new_pages: u64,
        to: u64,
    ) -> Result<(), MoveError> {
        let (to, to_end) = self.move_range(to, new_pages)?;
        if to < self.layout.floor.0 {
            return Err(MoveError::Outside);
        }
        if start < to_end && to < end {
            return Err(MoveError::Overlap);
        }
        let area = self.one_area(start, kept)?;
        if to_end - to > end - start {
            Naive::may_grow(&area)?;
        }
        self.near_limit(self.areas.len() + 2)?;
        self.take_out(to, to_end);
        self.take_out(kept, end);
        self.moved_to((start, kept), (to, to_end), &area);
        Ok(())
    }

    /// Maps the memory of `area`, now at `old`, at `new`, and unmaps it at `old`.
    pub(crate) fn moved_to(&mut self, old: (u64, u64), new: (u64, u64), area: &Listed) {
        self.add_merged(Naive::at_new_place(area, old.0, new));
        self.take_out(old.0, old.1);
    }

    fn at_new_place(area: &Listed, old: u64, new: (u64, u64)) -> Listed {
        let mut attributes = area.attributes_from(old);
        let touched = attributes.chain != AnonChain::Untouched || area.has(AreaFlags::SHARED);
        if attributes.backing == Backing::Anonymous && !touched {
            attributes.offset = new.0;
        }
        Listed { start: new.0, end: new.1, attributes }
    }

    /// Returns the refusal of a move before a place is looked for, if there is one.
    pub(crate) fn before_moving(
        &self,
        start: u64,
        pages: u64,
        to: Option<u64>,
    ) -> Result<Listed, MoveError> {
        let (start, end) = self.move_range(start, pages)?;
        if let Some(to) = to {
            let (to, _) = self.move_range(to, pages)?;
            if to < self.layout.floor.0 {
                return Err(MoveError::Outside);
            }
        }
        let area = self.one_area(start, end)?;
        if let Some(to) = to {
            for part in (Held { from: start, to, pages }).reserved() {
                if let Some(area) = self.areas.iter().find(|area| area.meets(part.0, part.1)) {
                    return Err(MoveError::Taken { area: area.start });
                }
            }
        }
        self.near_limit(self.areas.len())?;
        Ok(area)
    }

    /// Reserves the new place of a move.
    pub(crate) fn reserve(&mut self, held: Held, area: &Listed) {
        let new = Naive::at_new_place(area, held.from, (held.to, held.to + held.pages));
        for (start, end) in held.reserved() {
            let part = new.part(start, end);
            let attributes = part.attributes.with(AreaFlags::OPAQUE);
            self.add(Listed { attributes, ..part });
        }
    }

    fn is_reserved(&self, held: &Held) -> Result<(), MoveError> {
        let sealed = |&(start, end): &(u64, u64)| {
            self.areas
                .iter()
                .any(|area| (area.start, area.end) == (start, end) && area.has(AreaFlags::OPAQUE))
        };
        if held.reserved().iter().all(sealed) { Ok(()) } else { Err(MoveError::NotOneArea) }
    }

    /// Commits a move, as [`nofrag::mmap::AddressSpace::commit_move`] does.
    pub(crate) fn commit(&mut self, held: &Held) -> Result<(), MoveError> {
        let old = (held.from, held.from + held.pages);
        let new = (held.to, held.to + held.pages);
        let area = self.one_area(old.0, old.1)?;
        self.is_reserved(held)?;
        if old != new {
            let moved = Naive::at_new_place(&area, old.0, new);
            self.take_out(old.0, old.1);
            self.take_out(new.0, new.1);
            self.add_merged(moved);
        }
        Ok(())
    }

    /// Undoes a move, as [`nofrag::mmap::AddressSpace::rollback_move`] does.
    pub(crate) fn rollback(&mut self, held: &Held) -> Result<(), MoveError> {
        self.is_reserved(held)?;
        for (start, end) in held.reserved() {
            self.take_out(start, end);
        }
        Ok(())
    }
}

/// Returns both areas as one, with the flags of the lower one.
fn joined(lower: &Listed, upper: &Listed) -> Listed {
    assert_eq!(lower.end, upper.start, "areas that merge touch");
    let chain = match lower.attributes.chain {
        AnonChain::Untouched => upper.attributes.chain,
        chain => chain,
    };
    Listed {
        start: lower.start,
        end: upper.end,
        attributes: Attributes { chain, ..lower.attributes },
    }
}
