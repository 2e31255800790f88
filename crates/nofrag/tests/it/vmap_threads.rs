//! Threads that allocate, free each other's areas, look up and purge.

use super::choices::Random;
use super::vmap_support::{cpu, presets_with_limit, space_of, span};
use super::vmap_town::Town;
use nofrag::check::Check;
use nofrag::vmap::{Area, AreaError, AreaRequest, FreeAreaError};

#[test]
fn double_handout_under_threads() {
    for preset in presets_with_limit(200) {
        let town = Town::new(preset.policy, span(0x4000, 3000), 4, 20);
        std::thread::scope(|scope| {
            for me in 1..=4 {
                let town = &town;
                scope.spawn(move || town.live(me, Random::new(u64::from(me)), 4000));
            }
        });
        town.close();
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
