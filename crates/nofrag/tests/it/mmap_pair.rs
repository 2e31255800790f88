//! An address space and the naive list side by side: each step goes to both, and both must agree in everything.

use super::mmap_naive::{ExpectedPlace, Held, Naive};
use super::starving::{Heap, Refusal};
use nofrag::check::Check;
use nofrag::mmap::{
    AddressSpace, AreaFlags, AreaRecord, Attributes, Backing, Direction, Layout, MapError,
    MapFlags, MoveError, PendingMove, Placement, Protection, RemapTarget, SpaceConfig,
    WindowChoice,
};
use nofrag::ranges::Span;
use nofrag::units::{PageCount, PageSize, Vpn};

/// One operation; its kind gives the numbers their meaning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) kind: u8,
    /// The place, in most operations.
    pub(crate) at: u16,
    /// The number of pages, in most operations.
    pub(crate) size: u16,
    /// A second place, if the operation has one.
    pub(crate) to: u16,
    /// The choice among sets of attributes.
    pub(crate) what: u8,
    /// The variant of the operation.
    pub(crate) how: u8,
}

impl Step {
    pub(crate) const BYTES: usize = 9;

    /// Returns the step that these bytes stand for.
    pub(crate) fn from_bytes(bytes: [u8; Step::BYTES]) -> Step {
        let [kind, a, b, c, d, e, f, what, how] = bytes;
        let [at, size, to] = [[a, b], [c, d], [e, f]].map(u16::from_le_bytes);
        Step { kind, at, size, to, what, how }
    }
}

/// Number of kinds of steps.
pub(crate) const KINDS: usize = 32;

/// The pages that the layouts here lie in, and some beyond.
const PAGES: u64 = 420;

/// Returns the windows under test, with few pages and a low limit, so that both run out; `scale` pages stand for each.
pub(crate) fn configs(scale: u64) -> Vec<SpaceConfig> {
    let page = |number| Vpn(number * scale);
    let window = |direction| {
        Layout::window(Span::new(0, 300 * scale).expect("the window has pages"), direction)
    };
    let process = |direction| Layout {
        direction,
        floor: page(16),
        base: page(60),
        top: page(250),
        end: page(300),
        low: Span::new(100 * scale, 160 * scale).ok(),
        extended_end: Some(page(400)),
        page: PageSize::KIB_4,
    };
    let layouts = [
        window(Direction::Up),
        window(Direction::Down),
        process(Direction::Up),
        process(Direction::Down),
    ];
    let placements = Placement::presets().map(|preset| preset.placement);
    let configs = placements.flat_map(|placement| {
        layouts.map(|layout| SpaceConfig {
            map_limit: 14,
            guard_gap: PageCount(9 * scale),
            ..SpaceConfig::new(layout, placement)
        })
    });
    configs.collect()
}

/// Numbers of pages that stand for one: in a small space, and in one so large that the index sees each area far from
/// the next.
pub(crate) const SCALES: [u64; 2] = [1, 1 << 30];

/// The first page above 4 GiB.
const ABOVE_4G: u64 = 1 << 20;

/// An address space and the naive list.
#[derive(Debug)]
pub(crate) struct Pair {
    space: AddressSpace,
    naive: Naive,
    heap: Heap,
    config: SpaceConfig,
    /// Number of pages that stand for each page that a step names.
    scale: u64,
    held: Vec<(PendingMove, Held)>,
    /// Number of steps of each kind that changed anything.
    pub(crate) changes: [u64; KINDS],
}

impl Pair {
    /// Returns an empty space and an empty list, by one of the [`configs`] with this scale.
    pub(crate) fn new(config: SpaceConfig, scale: u64) -> Pair {
        let guarded = matches!(
            config.placement,
            Placement::MapleTree(_)
                | Placement::MapleTreeGuarded(_)
                | Placement::TwoEnded
                | Placement::TwoEndedFirst
        );
        let (space, naive) = (AddressSpace::new(config), Naive::new(&config, guarded));
        let heap = Heap::AMPLE;
        Pair { space, naive, heap, config, scale, held: Vec::new(), changes: [0; KINDS] }
    }

    /// Returns the same pair on a heap that refuses.
    pub(crate) fn on(self, heap: Heap) -> Pair {
        Pair { heap, ..self }
    }

    fn attempt<T, E: Refusal>(
        &mut self,
        operation: impl FnMut(&mut AddressSpace) -> Result<T, E>,
    ) -> Result<T, E> {
        let naive = &self.naive;
        let unchanged = |space: &AddressSpace| {
            assert_eq!(space.areas().collect::<Vec<_>>(), naive.records(), "the areas");
            space.check().unwrap_or_else(|broken| panic!("{broken}"));
        };
        self.heap.attempt(&mut self.space, operation, unchanged)
    }

    /// Does one step on both and compares what they say; panics when they differ.
    pub(crate) fn step(&mut self, step: Step) {
        let (at, pages) = (self.page(step.at), self.size(step.size));
        let (start, count) = (Vpn(at), PageCount(pages));
        let before = self.naive.areas.clone();
        let kind = usize::from(step.kind) % KINDS;
        match kind {
            0..=6 => self.map(step, pages),
            7 => self.fill_a_hole(step),
            8 => {
                let attributes = attributes(step.what, at);
                let said = self.attempt(|it| it.map_fixed(start, count, attributes));
                assert_eq!(said, self.naive.map_fixed(at, pages, attributes), "map_fixed");
            }
            9 | 10 => {
                let attributes = attributes(step.what, at);
                let said = self.attempt(|it| it.map_fixed_noreplace(start, count, attributes));
                assert_eq!(said, self.naive.map_fixed_noreplace(at, pages, attributes));
            }
            11..=14 => {
                let said = self.attempt(|it| it.unmap(start, count));
                assert_eq!(said, self.naive.unmap(at, pages), "unmap");
            }
            15 => self.unmap_an_area(step),
            16 | 17 => {
                let (at, pages) = self.mapped(step);
                let protection = attributes(step.what, 0).protection;
                let said = self.attempt(|it| it.protect(Vpn(at), PageCount(pages), protection));
                let set = |attributes: &mut Attributes| attributes.protection = protection;
                assert_eq!(said, self.naive.change(at, pages, set), "protect");
            }
            18 | 19 => self.change(step),
            20 | 21 => {
                let (at, pages) = self.mapped(step);
                let said = self.space.touch(Vpn(at), PageCount(pages));
                assert_eq!(said, self.naive.touch(at, pages), "touch");
            }
            22 => assert_eq!(self.space.grow_stack(start), self.naive.grow_stack(at), "grow"),
            23..=25 => self.remap(step),
            26 | 27 => self.begin_move(step),
            28 | 29 => self.end_move(step),
            30 if step.how < 24 => self.fork(step.how.is_multiple_of(2)),
            30 if step.how < 40 => {
                self.space.exec();
                self.naive.exec();
            }
            30 => self.end_move(step),
            _ if step.how < 230 => self.begin_move(step),
            _ => {
                let attributes = attributes(step.what, at);
                let said = self.space.load(start, count, attributes);
                assert_eq!(said, self.naive.load(at, pages, attributes), "load");
            }
        }
        self.changes[kind] += u64::from(before != self.naive.areas);
        self.compare(self.page(step.to));
    }

    /// Returns a range that is probably mapped: around an area.
    fn mapped(&self, step: Step) -> (u64, u64) {
        let areas = &self.naive.areas;
        if areas.is_empty() || step.how % 8 == 7 {
            return (self.page(step.at), self.size(step.size));
        }
        let area = areas[usize::from(step.at) % areas.len()];
        let pages = area.end - area.start;
        let units = (pages / self.scale).clamp(1, 4);
        let skip = u64::from(step.to) % units * self.scale;
        let more = u64::from(step.size % 3) * 7 * self.scale;
        match step.how % 4 {
            0 => (area.start, pages),
            1 => (area.start.saturating_add(skip), (pages - skip).saturating_add(more)),
            2 => (area.start, pages - skip),
            _ => (area.start.saturating_add(skip), pages.saturating_sub(2 * skip)),
        }
    }

    fn map(&mut self, step: Step, pages: u64) {
        let attributes = attributes(step.what, 0);
        let hint = step.how.is_multiple_of(4).then_some(self.page(step.at));
        let window = match step.how / 4 % 16 {
            0 | 1 => WindowChoice::Low,
            2 => WindowChoice::Above4G,
            _ => WindowChoice::Usual,
        };
        let align = match step.to % 32 {
            0 => 0,
            1 => 3,
            2..=5 => 4,
            6 => 1 << 63,
            _ => 1,
        };
        let direction = match step.how / 64 {
            0 if step.to.is_multiple_of(2) => Some(Direction::Up),
            0 => Some(Direction::Down),
            _ => None,
        };
        let flags = MapFlags { window, align, offset: u64::from(step.to / 32 % 5), direction };
        let wanted = self.naive.before_placing(pages, hint, flags);
        let said = self.attempt(|it| it.map(PageCount(pages), attributes, hint.map(Vpn), flags));
        match (wanted, said) {
            (Err(why), said) => assert_eq!(said, Err(why), "map"),
            (Ok(ExpectedPlace::Hint(hint)), said) => {
                assert_eq!(said, Ok(Vpn(hint)), "map at its hint");
                self.naive.placed(hint, pages, attributes);
            }
            (Ok(ExpectedPlace::Anywhere), Ok(start)) => {
                self.judge(start.0, pages, hint, flags);
                self.naive.placed(start.0, pages, attributes);
            }
            (Ok(ExpectedPlace::Anywhere), Err(why)) => self.judge_miss(pages, hint, flags, why),
        }
    }

    /// Returns the pages that a search may use.
    fn window(&self, hint: Option<u64>, flags: MapFlags) -> (u64, u64) {
        let layout = self.space.layout();
        let opened = hint.filter(|&hint| hint > layout.end.0).and(layout.extended_end);
        let direction = flags.direction.unwrap_or(layout.direction);
        match (flags.window, layout.low, opened, direction) {
            (WindowChoice::Low, Some(low), ..) => (low.start(), low.end()),
            (WindowChoice::Above4G, _, opened, Direction::Up) => {
                (ABOVE_4G.max(layout.base.0), opened.unwrap_or(layout.end).0)
            }
            (WindowChoice::Above4G, _, opened, Direction::Down) => {
                let more = opened.map_or(0, |end| end.0 - layout.end.0);
                (layout.floor.0.max(ABOVE_4G), layout.top.0 + more)
            }
            (_, _, None, _) => (layout.floor.0, layout.end.0),
            (_, _, Some(end), Direction::Up) => (layout.floor.0, end.0),
            (_, _, Some(end), Direction::Down) => {
                (layout.floor.0, layout.top.0 + (end.0 - layout.end.0))
            }
        }
    }

    /// Verifies that a placement may return this place.
    fn judge(&self, start: u64, pages: u64, hint: Option<u64>, flags: MapFlags) {
        let (low, end) = self.window(hint, flags);
        // What goes downwards and finds nothing goes upwards, to the end.
        let end = if flags.window == WindowChoice::Low {
            end
        } else {
            end.max(self.space.layout().end.0)
        };
        assert!(low <= start && start + pages <= end, "{start:#x} lies outside {low:#x}..{end:#x}");
        assert!(self.naive.is_free(start, start + pages), "{start:#x} is taken");
        let misfit = start.wrapping_sub(flags.offset) & (flags.align - 1);
        assert_eq!(misfit, 0, "{start:#x} is not aligned");
        if self.is_first_fit_up(hint, flags) {
            assert_eq!(Some(start), self.first_fit(pages, flags), "not the first fit");
        }
    }

    fn judge_miss(&self, pages: u64, hint: Option<u64>, flags: MapFlags, why: MapError) {
        let (low, end) = self.window(hint, flags);
        let holes = self.naive.holes(low, end);
        let largest = holes.iter().map(|hole| hole.1 - hole.0).max().unwrap_or(0);
        assert_eq!(why, MapError::NoPlace { largest }, "a miss");
        if self.is_first_fit_up(hint, flags) {
            assert_eq!(self.first_fit(pages, flags), None, "a place was missed");
        }
    }

    fn is_first_fit_up(&self, hint: Option<u64>, flags: MapFlags) -> bool {
        let layout = self.space.layout();
        self.config.placement == Placement::FirstFit
            && layout.direction == Direction::Up
            && flags.window == WindowChoice::Usual
            && flags.direction.is_none()
            && hint.is_none_or(|hint| hint <= layout.end.0)
    }

    fn first_fit(&self, pages: u64, flags: MapFlags) -> Option<u64> {
        let layout = self.space.layout();
        // The lowest place begins at the base or where an area ends, or as far above as the alignment wants.
        let ends = self.naive.areas.iter().map(|area| area.end);
        let starts = ends.filter(|&end| end > layout.base.0).chain([layout.base.0]);
        let aligned = starts.filter_map(|start| {
            start.checked_add(flags.offset.wrapping_sub(start) & (flags.align - 1))
        });
        let places = aligned.filter(|&start| {
            start
                .checked_add(pages)
                .is_some_and(|end| end <= layout.end.0 && self.naive.is_free(start, end))
        });
        places.min()
    }

    /// Maps exactly the hole above an area, with the area's attributes: neighbours may be bridged.
    fn fill_a_hole(&mut self, step: Step) {
        let areas = &self.naive.areas;
        let Some(area) = areas.get(usize::from(step.at) % areas.len().max(1)).copied() else {
            return;
        };
        let above = areas.iter().find(|other| other.start >= area.end);
        let end = above.map_or(self.space.layout().end.0, |above| above.start);
        let pages = end.saturating_sub(area.end);
        let attributes = Attributes {
            offset: area.attributes.offset.wrapping_add(area.end - area.start),
            ..area.attributes
        };
        let (start, count) = (Vpn(area.end), PageCount(pages));
        let said = self.attempt(|it| it.map_fixed_noreplace(start, count, attributes));
        assert_eq!(said, self.naive.map_fixed_noreplace(area.end, pages, attributes), "fill");
    }

    fn unmap_an_area(&mut self, step: Step) {
        let (at, pages) = self.mapped(step);
        let said = self.attempt(|it| it.unmap(Vpn(at), PageCount(pages)));
        assert_eq!(said, self.naive.unmap(at, pages), "unmap");
    }

    fn change(&mut self, step: Step) {
        let (at, pages) = self.mapped(step);
        let new = attributes(step.what, 0);
        let set = |attributes: &mut Attributes| match step.to % 6 {
            0 => attributes.flags = new.flags,
            1 => attributes.memory_policy = u32::from(step.how % 2),
            2 => attributes.name = u32::from(step.how % 3),
            3 => attributes.userfault = u32::from(step.how % 2),
            // Differs from area to area.
            4 => attributes.name = attributes.memory_policy,
            _ => attributes.flags = attributes.flags.without(new.flags),
        };
        let said = self.space.change(Vpn(at), PageCount(pages), set);
        assert_eq!(said, self.naive.change(at, pages, set), "change");
    }

    fn remap(&mut self, step: Step) {
        let (at, pages) = self.mapped(step);
        let new_pages = match step.what {
            0..100 => self.size(step.size),
            what => {
                pages.wrapping_add(u64::from(what % 9) * self.scale).wrapping_sub(2 * self.scale)
            }
        };
        let target = match step.how / 8 % 3 {
            0 => RemapTarget::InPlace,
            1 => RemapTarget::MayMove,
            _ => RemapTarget::To(Vpn(self.page(step.to))),
        };
        let said =
            self.attempt(|it| it.remap(Vpn(at), PageCount(pages), PageCount(new_pages), target));
        match self.naive.remap(at, pages, new_pages, target) {
            Ok(Some(start)) => assert_eq!(said, Ok(Vpn(start)), "remap"),
            Err(why) => assert_eq!(said, Err(why), "remap"),
            Ok(None) => match said {
                Ok(to) => {
                    self.judge(to.0, new_pages, None, MapFlags::default());
                    let area = *self.naive.at(at).expect("the old place is mapped");
                    let new = (to.0, to.0 + new_pages);
                    self.naive.moved_to((at, at + pages), new, &area);
                }
                Err(MoveError::NoPlace(why @ MapError::NoPlace { .. })) => {
                    self.judge_miss(new_pages, None, MapFlags::default(), why);
                }
                Err(MoveError::NoPlace(MapError::TooLong)) => {
                    assert!(new_pages > self.space.layout().end.0);
                }
                Err(why) => panic!("remap: {why}"),
            },
        }
    }

    fn begin_move(&mut self, step: Step) {
        let (from, pages) = self.mapped(step);
        let to = (!step.what.is_multiple_of(3)).then(|| match step.what % 3 {
            1 => self.page(step.to),
            // Likely to overlap.
            _ => from
                .wrapping_add(u64::from(step.size % 5) * self.scale)
                .wrapping_sub(2 * self.scale),
        });
        let judged = self.naive.before_moving(from, pages, to);
        let said = match to {
            Some(to) => self.attempt(|it| it.begin_move_to(Vpn(from), PageCount(pages), Vpn(to))),
            None => {
                self.attempt(|it| it.begin_move(Vpn(from), PageCount(pages), MapFlags::default()))
            }
        };
        match (judged, said) {
            (Err(why), said) => assert_eq!(said, Err(why), "begin_move"),
            (Ok(_), Err(MoveError::NoPlace(why @ MapError::NoPlace { .. }))) => {
                assert_eq!(to, None, "a place was given");
                self.judge_miss(pages, None, MapFlags::default(), why);
            }
            (Ok(_), Err(MoveError::NoPlace(MapError::TooLong))) => {
                assert!(pages > self.space.layout().end.0);
            }
            (Ok(_), Err(why)) => panic!("begin_move: {why}"),
            (Ok(area), Ok(pending)) => {
                let held = Held { from, to: pending.to().start(), pages };
                assert_eq!((pending.from().start(), pending.to().len()), (from, pages));
                if to.is_none() {
                    self.judge(held.to, pages, None, MapFlags::default());
                }
                self.naive.reserve(held, &area);
                self.held.push((pending, held));
            }
        }
    }

    fn end_move(&mut self, step: Step) {
        if self.held.is_empty() {
            return;
        }
        let (pending, held) = self.held.swap_remove(usize::from(step.at) % self.held.len());
        let keep = step.what.is_multiple_of(2);
        let end = |space: &mut AddressSpace, pending| {
            if keep { space.commit_move(pending) } else { space.rollback_move(pending) }
        };
        let mut said = self.heap.run(|| end(&mut self.space, pending));
        if let Err((back, why)) = said {
            // Refused, it stays pending.
            let refused = why.is_refusal() && !self.heap.is_ample();
            said = if refused { end(&mut self.space, back) } else { Err((back, why)) };
        }
        let judged = if keep { self.naive.commit(&held) } else { self.naive.rollback(&held) };
        match said {
            Ok(()) => assert_eq!(judged, Ok(()), "the end of a move"),
            Err((back, why)) => {
                assert_eq!(judged, Err(why), "the end of a move");
                // One that is stuck is forgotten some time.
                if !step.how.is_multiple_of(4) {
                    self.held.push((back, held));
                }
            }
        }
    }

    fn fork(&mut self, follow_child: bool) {
        let (child, naive) =
            (self.space.fork().expect("there is memory enough"), self.naive.fork());
        if follow_child {
            self.compare(0);
            (self.space, self.naive) = (child, naive);
        } else {
            let records: Vec<AreaRecord> = child.areas().collect();
            assert_eq!(records, naive.records(), "the child's areas");
            child.check().expect("the child is sound");
        }
    }

    /// Compares everything that can be seen, lookups at `probe`.
    fn compare(&self, probe: u64) {
        let (space, naive) = (&self.space, &self.naive);
        let records = naive.records();
        assert_eq!(space.areas().collect::<Vec<_>>(), records, "the areas");
        assert_eq!(space.area_count(), records.len());
        if let Err(broken) = space.check() {
            panic!("{broken}");
        }
        let holds = |area: &&AreaRecord| area.start.0 <= probe && probe < area.end().0;
        assert_eq!(space.lookup(Vpn(probe)), records.iter().find(holds).copied(), "lookup");
        let above = records.iter().find(|area| area.end().0 > probe);
        assert_eq!(space.find(Vpn(probe)), above.copied(), "find");
        let (floor, end) = (space.layout().floor.0, space.layout().end.0);
        let holes = naive.holes(floor, end);
        let found: Vec<(u64, u64)> = space.holes().map(|hole| (hole.start(), hole.end())).collect();
        assert_eq!(found, holes, "the holes");
        self.compare_statistics(&holes, &records);
    }

    fn compare_statistics(&self, holes: &[(u64, u64)], records: &[AreaRecord]) {
        let lengths = || holes.iter().map(|hole| hole.1 - hole.0);
        let stats = self.space.hole_stats();
        assert_eq!((stats.holes, stats.free.0), (holes.len(), lengths().sum::<u64>()));
        assert_eq!(stats.largest.0, lengths().max().unwrap_or(0));
        let histogram = self.space.hole_histogram();
        for (order, bucket) in histogram.buckets().iter().enumerate() {
            let like = lengths().filter(|&length| length >> order == 1);
            assert_eq!(
                (bucket.holes as u64, bucket.pages.0),
                (like.clone().count() as u64, like.sum())
            );
        }
        for align in [1, 3, 8] {
            let aligned = holes.iter().map(|hole| (hole.0..hole.1).find(|at| at % align == 0));
            let longest = aligned.zip(holes).filter_map(|(at, hole)| Some(hole.1 - at?)).max();
            assert_eq!(self.space.largest_aligned(align).map(Span::len), longest, "{align}");
        }
        assert_eq!(self.space.largest_aligned(0), None);
        let guards = records.iter().filter(|area| area.attributes.protection == Protection::NONE);
        let share = self.space.guard_share();
        let expected = (guards.clone().count(), guards.map(|area| area.pages.0).sum());
        assert_eq!((share.areas, share.pages.0), expected, "guards");
        let headroom = self.space.headroom();
        let limit = self.config.map_limit;
        assert_eq!(headroom.cuts, limit.saturating_sub(records.len()));
        assert_eq!(headroom.maps, (limit + 1).saturating_sub(records.len()));
        assert!(headroom.mapped <= headroom.reach);
    }

    /// Returns a page: mostly in the windows, at times at an end of all numbers.
    fn page(&self, number: u16) -> u64 {
        match number {
            0..65_000 => u64::from(number) % PAGES * self.scale,
            65_000..65_300 => u64::MAX - u64::from(number - 65_000) % 8,
            _ => u64::from(number) % 3,
        }
    }

    /// Returns a number of pages: mostly few, at times none or too many.
    fn size(&self, number: u16) -> u64 {
        match number {
            0..50_000 => (1 + u64::from(number) % 12) * self.scale,
            50_000..60_000 => (1 + u64::from(number) % 60) * self.scale,
            60_000..64_500 => u64::from(number) % 400,
            64_500..65_000 => 0,
            65_000..65_300 => u64::MAX - u64::from(number - 65_000) % 8,
            _ => 1 << (number % 64),
        }
    }
}

/// Returns one of few sets of attributes, so that neighbours often agree; `at` is where the area is to begin.
fn attributes(what: u8, at: u64) -> Attributes {
    let protection = match what % 4 {
        0 => Protection::NONE,
        1 => Protection::READ,
        _ => Protection::READ_WRITE,
    };
    let flags = match what / 4 % 16 {
        0 => AreaFlags::GROWS_DOWN,
        1 => AreaFlags::SHADOW_STACK,
        2 => AreaFlags::CLOSE_HOOK,
        3 => AreaFlags::SHARED,
        4 => AreaFlags::LOCKED,
        5 => AreaFlags::SOFT_DIRTY,
        6 => AreaFlags::DONT_EXPAND,
        7 => AreaFlags::OPAQUE,
        _ => AreaFlags::NONE,
    };
    let plain = Attributes::anonymous(protection).with(flags);
    match what / 64 {
        0 => Attributes { backing: Backing::File(1), offset: at.wrapping_add(5), ..plain },
        _ => plain,
    }
}
