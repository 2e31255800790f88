//! Every preset against a model too simple to be wrong: a list of the areas that are out.

use super::vmap_support::{Random, TestSpace, cpu, presets_with_limit, space_of, span};
use nofrag::check::Check;
use nofrag::ranges::Span;
use nofrag::units::Vpn;
use nofrag::vmap::{Area, AreaError, AreaRequest, Budget, FreeAreaError, Guard, Wait};

struct Model {
    space: TestSpace,
    bounds: Span,
    live: Vec<Area>,
    random: Random,
    name: &'static str,
    step: u64,
    /// Steps between two full checks.
    check_every: u64,
}

impl Model {
    fn request(&mut self) -> AreaRequest {
        let pages = match self.random.below(8) {
            0 => 1 + self.random.below(300),
            1..=3 => 1 + self.random.below(4),
            _ => 1 + self.random.below(40),
        };
        let align = 1 << [0, 0, 0, 0, 1, 3, 4, 6][self.random.below(8) as usize];
        let mut request = AreaRequest::new(pages).align(align);
        if self.random.below(4) == 0 {
            request = request.guard(Guard::None);
        }
        if self.random.below(4) == 0 {
            request = request.wait(Wait::Never);
        }
        if self.random.below(5) == 0 {
            let start = self.bounds.start() + self.random.below(self.bounds.len());
            request = request.within(Span::new(start, self.bounds.end()).unwrap());
        }
        request
    }

    fn alloc(&mut self) {
        let request = self.request();
        let by = cpu(&self.space, self.random.below(self.space.cpus().len() as u64) as usize);
        match self.space.alloc(by, &request) {
            Ok(area) => self.check_new(&request, area),
            Err(AreaError::Exhausted { .. })
                if request.wait == Wait::MayReclaim && self.could_fit(&request) =>
            {
                assert_eq!(self.space.lazy_pages().get(), 0, "{}: all was purged", self.name);
            }
            Err(AreaError::Exhausted { .. } | AreaError::WouldBlock) => {}
            Err(why) => panic!("{}: {request:?}: {why}", self.name),
        }
    }

    /// Whether the request fits into its bounds at all; if not, reclaiming is not even tried.
    fn could_fit(&self, request: &AreaRequest) -> bool {
        request.pages + request.guard.pages() <= request.within.unwrap_or(self.bounds).len()
    }

    fn check_new(&mut self, request: &AreaRequest, area: Area) {
        let Model { name, step, .. } = *self;
        let taken = area.span();
        assert_eq!((area.pages.get(), area.guard), (request.pages, request.guard));
        assert_eq!(area.start.get() % request.align, 0, "{name}, step {step}: aligned");
        assert!(request.within.unwrap_or(self.bounds).covers(taken), "{name}, step {step}: inside");
        let clash = self.live.iter().find(|other| other.span().intersection(taken).is_some());
        assert_eq!(clash, None, "{name}, step {step}: {area:?} overlaps");
        assert!(!self.space.mapper().is_stale(taken), "{name}, step {step}: reused before a flush");
        self.live.push(area);
    }

    fn free(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let at = self.random.below(self.live.len() as u64) as usize;
        let area = self.live.swap_remove(at);
        let by = cpu(&self.space, self.random.below(self.space.cpus().len() as u64) as usize);
        if area.total_pages().get() > 1 {
            let inside = Vpn(area.start.get() + 1);
            let refusal = FreeAreaError::NotAStart { start: area.start };
            assert_eq!(self.space.free(by, inside), Err(refusal), "{}", self.name);
        }
        assert_eq!(self.space.free(by, area.start), Ok(area), "{}, step {}", self.name, self.step);
        let again = self.space.free(by, area.start);
        let known = [Err(FreeAreaError::DoubleFree), Err(FreeAreaError::NotAllocated)];
        assert!(known.contains(&again), "{}: {again:?}", self.name);
    }

    fn find(&mut self) {
        let at = self.bounds.start() + self.random.below(self.bounds.len());
        let expected = self.live.iter().find(|area| area.span().contains(at)).copied();
        assert_eq!(self.space.find(Vpn(at)), expected, "{}, step {}", self.name, self.step);
    }

    fn run(&mut self, steps: u64) {
        for step in 0..steps {
            self.step = step;
            match self.random.below(20) {
                0..=9 => self.alloc(),
                10..=17 => self.free(),
                18 => drop(self.space.step(Budget { areas: 1 + step as usize % 5 })),
                _ if self.random.below(20) == 0 => drop(self.space.purge_all()),
                _ => {}
            }
            self.find();
            if step % self.check_every != 0 {
                continue;
            }
            if let Err(broken) = self.space.check() {
                panic!("{}, step {step}: {broken}", self.name);
            }
            let stats = self.space.stats();
            let busy = self.live.iter().map(|area| area.total_pages().get()).sum::<u64>();
            assert_eq!((stats.busy_areas, stats.busy_pages), (self.live.len() as u64, busy));
        }
    }
}

fn check_presets_against_model(bounds: Span, seed: u64, steps: u64, check_every: u64) {
    for preset in presets_with_limit(100) {
        let space = space_of(preset.policy, bounds, 3);
        let random = Random::new(seed);
        let (live, name) = (Vec::new(), preset.name);
        let mut model = Model { space, bounds, live, random, name, step: 0, check_every };
        model.run(steps);
        for area in core::mem::take(&mut model.live) {
            model.space.free(cpu(&model.space, 0), area.start).unwrap();
        }
        model.space.purge_all();
        let stats = model.space.stats();
        assert_eq!((stats.holes, stats.largest_hole), (1, bounds.len()), "{}", preset.name);
        model.space.check().unwrap();
    }
}

#[test]
fn random_operations_agree_with_the_model() {
    for seed in 0..4 {
        check_presets_against_model(span(0x4000, 1500), seed, 1500, 1);
    }
}

#[test]
fn random_operations_at_the_ends_of_the_numbers_agree_with_the_model() {
    check_presets_against_model(span(0, 700), 11, 1000, 1);
    check_presets_against_model(span(u64::MAX - 700, 700), 12, 1000, 1);
}

/// Two million operations for each of the five presets. Run it with
/// `cargo test -p nofrag --release --test it -- --ignored vmap_model`.
#[test]
#[ignore = "takes minutes; for an opt-in long run"]
fn ten_million_operations_agree_with_the_model() {
    check_presets_against_model(span(0x7_0000, 6000), 2019, 2_000_000, 1000);
}
