//! The index of areas against a model too simple to be wrong: a plain list of areas, under the same random operations.

use super::{
    AlignClasses, Area, AreaIndex, Config, Edge, Finger, Fingers, Fit, FoundGap, GapRequest,
    Removed, Span,
};
use alloc::vec::Vec;

/// A plain list of areas; every question is a scan.
#[derive(Clone, Debug, Default)]
struct Model {
    areas: Vec<Area>,
}

impl Model {
    /// Returns the place of the lowest area that ends above `at`.
    fn find(&self, at: u64) -> Option<usize> {
        self.areas.iter().position(|area| area.span.end() > at)
    }

    /// Returns the place of the highest area that starts below `end`.
    fn find_below(&self, end: u64) -> Option<usize> {
        self.areas.iter().rposition(|area| area.span.start() < end)
    }

    fn insert(&mut self, area: Area) {
        self.areas.push(area);
        self.areas.sort_unstable_by_key(|area| area.span.start());
    }

    fn is_free(&self, span: Span) -> bool {
        self.areas.iter().all(|area| area.span.intersection(span).is_none())
    }

    fn gaps(&self, within: Span) -> Vec<Span> {
        let ends = core::iter::once(0).chain(self.areas.iter().map(|area| area.span.end()));
        let starts = self.areas.iter().map(|area| area.span.start()).chain([Span::ALL.end()]);
        let gaps = ends.zip(starts).filter_map(|(start, end)| Span::new(start, end).ok());
        gaps.filter_map(|gap| gap.intersection(within)).collect()
    }

    /// Returns the gap between the areas around the area at `place`, with that area in it.
    fn room_of(&self, place: usize) -> Span {
        let start = place.checked_sub(1).map_or(0, |below| self.areas[below].span.end());
        let end = self.areas.get(place + 1).map_or(Span::ALL.end(), |above| above.span.start());
        Span::new(start, end).unwrap()
    }

    fn search(&self, request: &GapRequest) -> Option<FoundGap> {
        let found = self.gaps(request.within).into_iter();
        let mut found =
            found.filter_map(|gap| Some(FoundGap { gap, place: place_in(gap, request)? }));
        match request.fit {
            Fit::Lowest => found.next(),
            Fit::Highest => found.next_back(),
            Fit::Best | Fit::Dynamic if request.edge == Edge::Low => {
                found.min_by_key(|found| found.gap.len())
            }
            Fit::Best | Fit::Dynamic => found.rev().min_by_key(|found| found.gap.len()),
        }
    }
}

/// Returns the place in `gap` that serves `request`, by arithmetic that cannot overflow.
fn place_in(gap: Span, request: &GapRequest) -> Option<Span> {
    let (start, end) = (i128::from(gap.start()), i128::from(gap.end()));
    let (size, align) = (i128::from(request.size), i128::from(request.align));
    let offset = i128::from(request.offset);
    let low = matches!((request.fit, request.edge), (Fit::Lowest, _) | (Fit::Best, Edge::Low));
    let place = if low {
        start + (offset - start).rem_euclid(align)
    } else {
        let last = end - size;
        last - (last - offset).rem_euclid(align)
    };
    let fits = start <= place && place + size <= end;
    fits.then(|| Span::sized(place as u64, request.size).unwrap())
}

/// A small random generator (SplitMix64); the seed that a test prints repeats its run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Parameters of a run of random operations.
#[derive(Clone, Copy, Debug)]
struct Shape {
    config: Config,
    /// Start of the `length` numbers in which the areas lie.
    base: u64,
    length: u64,
    /// Largest size of an area or a request, counted in `unit`; most starts and bounds are multiples of `unit` above
    /// `base`.
    largest_size: u64,
    unit: u64,
    /// Number of steps in 16 that insert an area or search for a gap.
    growth: u64,
    steps: u32,
    /// Number of steps from one comparison of everything to the next.
    check_every: u32,
}

impl Shape {
    fn small(config: Config) -> Shape {
        Shape {
            config,
            base: 100,
            length: 900,
            largest_size: 12,
            unit: 1,
            growth: 9,
            steps: 1200,
            check_every: 1,
        }
    }

    fn number(&self, random: &mut Random) -> u64 {
        let number = self.base + random.below(self.length / self.unit) * self.unit;
        // Beside round numbers, and past the ends of the stretch, lie the errors by one.
        match random.below(8) {
            0 => number.saturating_sub(1),
            1 => number.saturating_add(1),
            _ => number,
        }
    }

    fn span(&self, random: &mut Random) -> Option<Span> {
        let start = self.number(random);
        let size = (1 + random.below(self.largest_size)).saturating_mul(self.unit);
        Span::sized(start, size.min(u64::MAX.saturating_sub(start))).ok()
    }

    fn request(&self, random: &mut Random) -> GapRequest {
        let size = (1 + random.below(self.largest_size)).saturating_mul(self.unit);
        let align = match random.below(8) {
            0..4 => 1,
            4..7 => 1 << random.below(12),
            _ => 1 << random.below(64),
        };
        let offset = if random.below(2) == 0 { 0 } else { random.below(align) };
        let (one, other) = (self.number(random), self.number(random));
        let within = match Span::new(one.min(other), one.max(other)) {
            Ok(within) if random.below(2) == 0 => within,
            _ => Span::ALL,
        };
        let fit = [Fit::Lowest, Fit::Highest, Fit::Best][random.below(3) as usize];
        let edge = [Edge::Low, Edge::High][random.below(2) as usize];
        GapRequest { size, align, offset, within, fit, edge }
    }
}

/// The index of areas and its model, which each step changes alike.
struct Pair {
    shape: Shape,
    random: Random,
    model: Model,
    real: AreaIndex,
    tag: u32,
    /// Places where searches found their bounds, and a lookup its gap: guesses that grow stale.
    fingers: Fingers,
    finger: Finger,
}

impl Pair {
    fn insert(&mut self, span: Span) {
        self.tag += 1;
        let area = Area { span, tag: self.tag };
        self.real.reserve(1).unwrap();
        self.real.insert(area);
        self.model.insert(area);
    }

    fn step_insert(&mut self) {
        let Some(mut span) = self.shape.span(&mut self.random) else { return };
        if self.random.below(3) == 0 {
            // At an edge of its gap, so that areas touch.
            let gap = self.model.gaps(Span::ALL).into_iter().find(|gap| gap.contains(span.start()));
            let Some(gap) = gap.filter(|gap| gap.len() >= span.len()) else { return };
            let high = self.random.below(2) == 0;
            let start = if high { gap.end() - span.len() } else { gap.start() };
            span = Span::sized(start, span.len()).unwrap();
        }
        if self.model.is_free(span) {
            self.insert(span);
        }
    }

    fn step_remove(&mut self) {
        let at = self.shape.number(&mut self.random);
        let (Some(place), Some(real)) = (self.model.find(at), self.real.find(at)) else { return };
        let below = place.checked_sub(1).map(|below| self.model.areas[below].span.end());
        let above = self.model.areas.get(place + 1).map(|above| above.span.start());
        let Area { span, tag } = self.model.areas.remove(place);
        if self.random.below(2) == 0 {
            return self.real.remove(real);
        }
        let (start, end) = (span.start(), span.end());
        for wrong in [(start.saturating_sub(1), end), (start, end.saturating_add(1))] {
            let wrong = Span::new(wrong.0, wrong.1).unwrap();
            if wrong == span {
                continue;
            }
            assert_eq!(self.real.remove_exact(wrong), None, "{wrong:?}");
        }
        assert_eq!(self.real.remove_exact(span), Some(Removed { tag, below, above }));
    }

    fn step_set(&mut self) {
        let at = self.shape.number(&mut self.random);
        let (Some(place), Some(real)) = (self.model.find(at), self.real.find(at)) else { return };
        let (old, room) = (self.model.areas[place].span, self.model.room_of(place));
        let mut bounds = [old.start(), old.end()];
        for bound in &mut bounds {
            match self.random.below(5) {
                0 => *bound = room.start(),
                1 => *bound = room.end(),
                2 => *bound = self.shape.number(&mut self.random).clamp(room.start(), room.end()),
                _ => {}
            }
        }
        let [one, other] = bounds;
        let Ok(span) = Span::new(one.min(other), one.max(other)) else { return };
        self.tag += 1;
        let area = Area { span, tag: self.tag };
        self.real.reserve(1).unwrap();
        self.real.set(real, area);
        self.model.areas[place] = area;
    }

    /// Cuts the middle out of an area: one reservation, then a removal and two insertions.
    fn step_cut(&mut self) {
        let at = self.shape.number(&mut self.random);
        let (Some(place), Some(real)) = (self.model.find(at), self.real.find(at)) else { return };
        let Area { span, tag } = self.model.areas[place];
        if span.len() < 3 {
            return;
        }
        let low = span.start() + 1 + self.random.below(span.len() - 2);
        let high = low + 1 + self.random.below(span.end() - low - 1);
        let below = Area { span: Span::new(span.start(), low).unwrap(), tag };
        let above = Area { span: Span::new(high, span.end()).unwrap(), tag };
        self.real.reserve(1).unwrap();
        self.real.remove(real);
        self.real.insert(above);
        self.real.insert(below);
        self.model.areas.splice(place..=place, [below, above]);
    }

    /// Searches, and sometimes takes the place that was found, as an address space does.
    fn step_search(&mut self) {
        let request = self.shape.request(&mut self.random);
        let mut steps = 0;
        let found = self.real.search(&request, &mut steps);
        assert!(steps > 0 || found.is_none());
        match request.fit {
            Fit::Best => self.check_best(&request, found),
            _ => assert_eq!(found, self.model.search(&request), "{request:?}"),
        }
        let Some(found) = found else { return };
        match self.random.below(4) {
            0 => return self.insert(found.place),
            1 => {}
            _ => return,
        }
        self.real.reserve(1).unwrap();
        let near = self.real.search_near(&request, &mut self.fingers, &mut steps);
        let (near, gap) = near.expect("the search found a place");
        assert_eq!(near, found, "{request:?}");
        self.tag += 1;
        let area = Area { span: near.place, tag: self.tag };
        self.real.insert_in(gap, area);
        self.model.insert(area);
    }

    /// Compares a best fit with the smallest gap, unless there are too many gaps to look at; then any gap that serves
    /// is right.
    fn check_best(&self, request: &GapRequest, found: Option<FoundGap>) {
        let expected = self.model.search(request);
        let gaps = self.model.gaps(request.within);
        let candidates = gaps.iter().filter(|gap| gap.len() >= request.size).count();
        if candidates <= AreaIndex::CANDIDATES || found.is_none() {
            return assert_eq!(found, expected, "{request:?}");
        }
        let FoundGap { gap, place } = found.expect("none was looked at above");
        assert!(gaps.contains(&gap) && place_in(gap, request) == Some(place), "{request:?}");
    }

    fn check_lookups(&mut self) {
        let at = self.shape.number(&mut self.random);
        let found = self.real.find(at);
        let expected = self.model.find(at);
        let area_at = |place: usize| self.model.areas.get(place).copied();
        let real_area = |place| self.real.area(place);
        assert_eq!(found.map(real_area), expected.and_then(area_at));
        if let Some((found, expected)) = found.zip(expected) {
            assert_eq!(self.real.next(found).map(real_area), area_at(expected + 1));
            let below = expected.checked_sub(1).and_then(area_at);
            assert_eq!(self.real.previous(found).map(real_area), below);
        }
        let below = self.real.find_below(at).map(real_area);
        assert_eq!(below, self.model.find_below(at).and_then(area_at));
        self.check_gap_at(at);
        let within = self.shape.request(&mut self.random).within;
        let gaps = self.model.gaps(within);
        let largest = gaps.iter().copied().rev().max_by_key(|gap| gap.len());
        assert_eq!(self.real.largest_gap(within), largest);
        assert!(self.real.gaps(within).eq(gaps));
    }

    fn check_gap_at(&mut self, at: u64) {
        let Some(gap) = self.real.gap_at(at, &mut self.finger) else {
            return assert!(self.model.areas.is_empty());
        };
        // The area above it is the lowest that does not end at or below the number, whether it holds it or not.
        let above = self.model.find(at);
        let (start, end) = self.real.gap_bounds(gap);
        let area_start = |place: usize| self.model.areas[place].span.start();
        assert_eq!(end, above.map_or(Span::ALL.end(), area_start));
        let below = above.unwrap_or(self.model.areas.len()).checked_sub(1);
        assert_eq!(start, below.map_or(0, |below| self.model.areas[below].span.end()));
        assert_eq!(self.real.above_gap(gap), self.real.find(at));
        assert_eq!(
            self.real.below_gap(gap).map(|place| self.real.span(place).end()),
            below.map(|_| start)
        );
    }

    fn check_all(&mut self) {
        self.check_lookups();
        self.real.check().unwrap_or_else(|broken| panic!("{broken}"));
        assert_eq!(self.real.len(), self.model.areas.len());
        assert!(self.real.iter().eq(self.model.areas.iter().copied()));
    }
}

fn check_run(shape: Shape, seed: u64) {
    std::println!("seed {seed}, {shape:?}");
    let (random, model) = (Random(seed), Model::default());
    let pair = Pair {
        shape,
        random,
        model,
        real: AreaIndex::new(&shape.config),
        tag: 0,
        fingers: Fingers::default(),
        finger: Finger::default(),
    };
    check_steps(pair);
}

fn check_steps(mut pair: Pair) {
    let shape = pair.shape;
    for step in 0..shape.steps {
        // Waves, so that the index fills, empties and fills again.
        let wave = if (step / 256).is_multiple_of(2) { 0 } else { shape.growth / 2 };
        match pair.random.below(16) {
            turn if turn < shape.growth - wave => {
                if turn % 2 == 0 {
                    pair.step_insert()
                } else {
                    pair.step_search()
                }
            }
            turn if turn < 13 => pair.step_remove(),
            13 => pair.step_cut(),
            _ => pair.step_set(),
        }
        pair.check_lookups();
        if step % shape.check_every == 0 {
            pair.check_all();
        }
    }
    pair.check_all();
}

fn configs() -> [Config; 4] {
    let classes = AlignClasses::new(&[2, 5, 9]).unwrap();
    let plain = Config::default();
    [
        plain,
        Config { size_index: true, ..plain },
        Config { align_classes: classes, ..plain },
        Config { align_classes: classes, size_index: true, ..plain },
    ]
}

#[test]
fn random_operations_on_a_few_areas() {
    for config in configs() {
        for seed in 0..6 {
            check_run(Shape::small(config), seed);
        }
    }
}

#[test]
fn random_operations_on_many_areas() {
    for config in configs() {
        for (seed, largest_size) in [(7, 3), (8, 6), (9, 700)] {
            let length = 4000 * largest_size;
            let shape = Shape {
                length,
                largest_size,
                growth: 12,
                steps: 8000,
                check_every: 97,
                ..Shape::small(config)
            };
            check_run(shape, seed);
        }
    }
}

/// Runs random operations on 30,000 areas, whose tree has three levels of blocks above the leaves.
#[test]
fn random_operations_on_a_high_tree() {
    for (seed, config) in (0..).zip(configs()) {
        let areas = 30_000;
        let (length, steps) = (16 * areas, 500);
        let shape = Shape { length, steps, check_every: 250, ..Shape::small(config) };
        let (random, model) = (Random(seed), Model::default());
        let mut pair = Pair {
            shape,
            random,
            model,
            real: AreaIndex::new(&config),
            tag: 0,
            fingers: Fingers::default(),
            finger: Finger::default(),
        };
        for slot in 0..areas {
            let size = 1 + pair.random.below(16);
            let area = Area { span: Span::sized(100 + 16 * slot, size).unwrap(), tag: 0 };
            pair.real.reserve(1).unwrap();
            pair.real.insert(area);
            pair.model.areas.push(area);
        }
        check_steps(pair);
    }
}

#[test]
fn random_operations_over_many_windows_of_the_tree() {
    for config in configs() {
        for unit in [1 << 20, 1 << 29, (1 << 31) - 1, 1 << 31, 1 << 40] {
            let length = 2000 * unit;
            check_run(Shape { unit, length, steps: 700, ..Shape::small(config) }, unit);
        }
    }
}

#[test]
fn random_operations_at_both_ends_of_the_numbers() {
    for config in configs() {
        for base in [0, 1, (1 << 31) - 450, (3 << 31) - 1, u64::MAX - 900, u64::MAX - 901] {
            check_run(Shape { base, ..Shape::small(config) }, base);
        }
        for unit in [1, 1 << 30, 1 << 44, 1 << 60] {
            let (base, length) = (0, u64::MAX);
            let shape = Shape { base, length, unit, largest_size: 1 << 18, ..Shape::small(config) };
            check_run(Shape { steps: 400, ..shape }, unit);
        }
    }
}

/// Shows that a few insertions after one reservation take no more memory, wherever they fall: each may split blocks up
/// to the root or open a window.
#[test]
fn what_was_reserved_is_enough() {
    for seed in 0..40 {
        let mut random = Random(seed);
        let mut index = AreaIndex::default();
        let mut model = Model::default();
        // Slots of eight numbers, an area of one or two in each that is taken; many or few slots in a window.
        let spread = [3, 3, 20, 27, 31][seed as usize % 5];
        for round in 0..300 {
            let count = 1 + random.below(12) as usize;
            index.reserve(count).unwrap();
            let bytes = index.metadata_bytes();
            let mut slot = random.below(4000);
            for tag in 0..=count as u32 {
                slot = if random.below(2) == 0 { slot + 1 } else { random.below(4000) };
                let span = Span::sized(slot << spread, 1 + random.below(2)).unwrap();
                if model.is_free(span) {
                    index.insert(Area { span, tag });
                    model.insert(Area { span, tag });
                }
            }
            assert_eq!(index.metadata_bytes(), bytes, "seed {seed}, round {round}, {count}");
        }
        index.check().unwrap();
        assert!(index.iter().eq(model.areas));
    }
}

/// Inserts 5000 areas after one reservation, as a clone does. Spread over many windows, they need more blocks than were
/// reserved.
#[test]
fn many_insertions_after_one_reservation() {
    for spread in [4, 31, 40] {
        let mut index = AreaIndex::default();
        index.reserve(5000).unwrap();
        for tag in 0..5000 {
            let span = Span::sized(u64::from(tag) << spread, 3).unwrap();
            index.insert(Area { span, tag });
        }
        index.check().unwrap();
        assert_eq!(index.len(), 5000);
    }
}
