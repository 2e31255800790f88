//! Threads that allocate, free each other's areas, look up and purge, with a book of the owner of each page.

use super::choices::Random;
use super::vmap_support::{TestSpace, cpu, presets_with_limit, space_of, span};
use nofrag::check::Check;
use nofrag::ranges::Span;
use nofrag::units::Vpn;
use nofrag::vmap::{Area, AreaError, AreaRequest, Budget, FreeAreaError};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

const NOBODY: u32 = 0;

struct Town {
    space: TestSpace,
    bounds: Span,
    /// For each page the thread that owns it.
    owners: Vec<AtomicU32>,
    /// Areas on their way to a thread that frees them.
    post: Mutex<Vec<(Area, u32)>>,
}

impl Town {
    fn claim(&self, area: Span, from: u32, to: u32, what: &str) {
        let start = (area.start() - self.bounds.start()) as usize;
        for page in &self.owners[start..start + area.len() as usize] {
            assert_eq!(page.swap(to, Ordering::SeqCst), from, "{what}: {area:?}");
        }
    }

    fn alloc(&self, me: u32, random: &mut Random) {
        let by = cpu(&self.space, me as usize - 1);
        let request = AreaRequest::new(1 + random.below(20)).align(1 << random.below(3));
        match self.space.alloc(by, &request) {
            Ok(area) => {
                assert!(!self.space.mapper().is_stale(area.span()), "reused before a flush");
                self.claim(area.span(), NOBODY, me, "handed out twice");
                self.post.lock().unwrap().push((area, me));
            }
            Err(AreaError::Exhausted { .. }) => {}
            Err(why) => panic!("{why}"),
        }
    }

    fn free(&self, me: u32, random: &mut Random) {
        let by = cpu(&self.space, me as usize - 1);
        let mut post = self.post.lock().unwrap();
        if post.is_empty() {
            return;
        }
        let at = random.below(post.len() as u64) as usize;
        let (area, owner) = post.swap_remove(at);
        drop(post);
        let last = Vpn(area.span().end() - 1);
        assert_eq!(self.space.find(last), Some(area), "a live area is found");
        self.claim(area.span(), owner, NOBODY, "freed by a stranger");
        assert_eq!(self.space.free(by, area.start), Ok(area));
    }

    fn live(&self, me: u32, rounds: u64) {
        let mut random = Random::new(u64::from(me));
        for _ in 0..rounds {
            match random.below(40) {
                0..=19 => self.alloc(me, &mut random),
                20..=37 => self.free(me, &mut random),
                38 => drop(self.space.step(Budget { areas: 7 })),
                _ => {
                    let at = self.bounds.start() + random.below(self.bounds.len());
                    let found = self.space.find(Vpn(at));
                    assert!(found.is_none_or(|area| area.span().contains(at)));
                }
            }
        }
    }
}

#[test]
fn double_handout_under_threads() {
    for preset in presets_with_limit(200) {
        let bounds = span(0x4000, 3000);
        let town = Town {
            space: space_of(preset.policy, bounds, 4),
            bounds,
            owners: (0..bounds.len()).map(|_| AtomicU32::new(NOBODY)).collect(),
            post: Mutex::new(Vec::new()),
        };
        std::thread::scope(|scope| {
            for me in 1..=4 {
                let town = &town;
                scope.spawn(move || town.live(me, 4000));
            }
        });
        let space = &town.space;
        space.check().unwrap_or_else(|broken| panic!("{}: {broken}", preset.name));
        for (area, _) in town.post.into_inner().unwrap() {
            space.free(cpu(space, 0), area.start).unwrap();
        }
        space.purge_all();
        assert_eq!(space.stats().largest_hole, bounds.len(), "{}: nothing leaked", preset.name);
    }
}

#[test]
fn of_two_frees_of_one_area_one_succeeds() {
    for preset in presets_with_limit(1 << 40) {
        let space = space_of(preset.policy, span(0, 4000), 2);
        for _ in 0..200 {
            let area = space.alloc(cpu(&space, 0), &AreaRequest::new(3)).unwrap();
            let outcomes = std::thread::scope(|scope| {
                let free = |rank| {
                    let space = &space;
                    scope.spawn(move || space.free(cpu(space, rank), area.start))
                };
                [free(0), free(1)].map(|thread| thread.join().unwrap())
            });
            let refused = outcomes.iter().filter_map(|outcome| outcome.err()).collect::<Vec<_>>();
            let known = [FreeAreaError::DoubleFree, FreeAreaError::NotAllocated];
            assert!(refused.len() == 1 && known.contains(&refused[0]), "{outcomes:?}");
        }
        space.check().unwrap();
    }
}

#[test]
fn a_handle_works_while_others_free_and_purge() {
    let preset = presets_with_limit(50).last().unwrap();
    let bounds = span(0, 2000);
    let space = space_of(preset.policy, bounds, 2);
    let (send, receive) = std::sync::mpsc::channel::<Area>();
    std::thread::scope(|scope| {
        let space = &space;
        scope.spawn(move || {
            for (count, area) in receive.into_iter().enumerate() {
                space.free(cpu(space, 1), area.start).unwrap();
                if count % 50 == 0 {
                    space.purge_all();
                }
            }
        });
        let mut handle = space.cpu(cpu(space, 0)).unwrap();
        for round in 0..5000 {
            match handle.alloc(&AreaRequest::new(1 + round % 6)) {
                Ok(area) => {
                    assert!(!space.mapper().is_stale(area.span()), "reused before a flush");
                    send.send(area).unwrap();
                }
                Err(AreaError::Exhausted { .. }) => std::thread::yield_now(),
                Err(why) => panic!("{why}"),
            }
        }
        drop(send);
    });
    space.purge_all();
    space.check().unwrap();
    assert_eq!(space.stats().largest_hole, bounds.len());
}
