//! The state that threads share, under every interleaving with at most two preemptions.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p nofrag --profile models --test loom_vmap
//! ```
#![cfg(loom)]
#![allow(clippy::disallowed_types, dead_code)]

#[path = "it/choices.rs"]
mod choices;
#[path = "it/vmap_support.rs"]
mod vmap_support;
#[path = "it/vmap_town.rs"]
mod vmap_town;

use choices::Random;
use loom::sync::Arc;
use loom::thread;
use nofrag::check::Check;
use nofrag::vmap::{Area, AreaRequest, Budget, FreeAreaError, Guard, LazyLimit, VmapPolicy, Wait};
use vmap_support::{TestSpace, cpu, span};
use vmap_town::Town;

fn space_of(policy: VmapPolicy, pages: u64, lazy_limit: u64) -> Arc<TestSpace> {
    Arc::new(vmap_support::space_of(limited(policy, lazy_limit), span(64, pages), 2))
}

fn limited(policy: VmapPolicy, pages: u64) -> VmapPolicy {
    VmapPolicy { lazy_limit: LazyLimit::Pages(pages), ..policy }
}

/// Random programs; what is done before in one, and what each of two threads does.
const PROGRAMS: u64 = 20;
const BEFORE: u64 = 5;
const BESIDE: u64 = 2;

const REQUEST: AreaRequest = AreaRequest::new(2).guard(Guard::None).wait(Wait::Never);

fn explore(model: impl Fn(VmapPolicy) + Sync + Send + Copy + 'static) {
    for policy in [VmapPolicy::NOFRAG, VmapPolicy::LINUX_6_9, VmapPolicy::LINUX_4_19] {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.max_branches = 100_000;
        builder.check(move || model(policy));
    }
}

fn disjoint(areas: &[Area]) {
    for (index, area) in areas.iter().enumerate() {
        for other in &areas[..index] {
            assert_eq!(area.span().intersection(other.span()), None, "one page handed out twice");
        }
    }
}

#[test]
fn double_handout() {
    explore(|policy| {
        let space = space_of(policy, 4, 100);
        let other = space.clone();
        let thread = thread::spawn(move || other.alloc(cpu(&other, 1), &REQUEST).unwrap());
        let own = space.alloc(cpu(&space, 0), &REQUEST).unwrap();
        disjoint(&[own, thread.join().unwrap()]);
        space.check().unwrap();
    });
}

/// One thread frees the only area there is room for and drains; the other one tries to get it.
#[test]
fn flush_before_reuse() {
    explore(|policy| {
        let space = space_of(policy, 2, 0);
        let area = space.alloc(cpu(&space, 0), &REQUEST).unwrap();
        let other = space.clone();
        let thread = thread::spawn(move || {
            // The same CPU, since that is whose pool the area returns to.
            if let Ok(area) = other.alloc(cpu(&other, 0), &REQUEST) {
                assert!(!other.mapper().is_stale(area.span()), "{area:?} before its flush");
            }
        });
        space.free(cpu(&space, 0), area.start).unwrap();
        thread.join().unwrap();
        space.check().unwrap();
    });
}

/// A purge puts areas into the pools of a CPU while that CPU allocates from them.
#[test]
fn purge_beside_the_pools() {
    explore(|policy| {
        let space = space_of(policy, 6, 100);
        let first = space.alloc(cpu(&space, 0), &REQUEST).unwrap();
        let second = space.alloc(cpu(&space, 0), &REQUEST).unwrap();
        space.free(cpu(&space, 0), first.start).unwrap();
        space.step(Budget { areas: 1 });
        space.free(cpu(&space, 0), second.start).unwrap();
        let other = space.clone();
        let thread = thread::spawn(move || {
            other.step(Budget { areas: 1 });
        });
        let areas = [(); 2].map(|()| space.alloc(cpu(&space, 0), &REQUEST).unwrap());
        disjoint(&areas);
        thread.join().unwrap();
        space.check().unwrap();
    });
}

#[test]
fn of_two_frees_one_succeeds() {
    explore(|policy| {
        let space = space_of(policy, 4, 100);
        let area = space.alloc(cpu(&space, 0), &REQUEST).unwrap();
        let other = space.clone();
        let thread = thread::spawn(move || other.free(cpu(&other, 1), area.start));
        let outcomes = [space.free(cpu(&space, 0), area.start), thread.join().unwrap()];
        let refused = outcomes.iter().filter_map(|outcome| outcome.err()).collect::<Vec<_>>();
        let known = [FreeAreaError::DoubleFree, FreeAreaError::NotAllocated];
        assert!(refused.len() == 1 && known.contains(&refused[0]), "{outcomes:?}");
        space.check().unwrap();
    });
}

/// A handle's stores to an area's word, without a lock, against a free by another thread that was told of the area.
#[test]
fn a_free_from_elsewhere_sees_what_a_handle_allocated() {
    explore(|policy| {
        let space = space_of(policy, 2, 0);
        let area = space.alloc(cpu(&space, 0), &REQUEST).unwrap();
        space.free(cpu(&space, 0), area.start).unwrap();
        let other = space.clone();
        let mut handle = space.cpu(cpu(&space, 0)).unwrap();
        let again = handle.alloc(&REQUEST).unwrap();
        let thread = thread::spawn(move || other.free(cpu(&other, 1), again.start));
        let refused = handle.alloc(&REQUEST);
        assert_eq!(thread.join().unwrap(), Ok(again));
        if let Ok(third) = refused {
            assert_eq!(space.find(third.start), Some(third));
        }
        drop(handle);
        space.check().unwrap();
    });
}

/// The handle that owns an area and another thread free it at once, and the handle flushes what it has freed: the area
/// is freed once, whatever they are told. (Nothing is allocated meanwhile: a free that comes late would end that.)
#[test]
fn an_owner_and_a_stranger_free_one_area() {
    explore(|policy| {
        let space = space_of(policy, 4, 0);
        space.mapper().forgives.store(true, std::sync::atomic::Ordering::SeqCst);
        let mut handle = space.cpu(cpu(&space, 0)).unwrap();
        let [area, beside] = [(); 2].map(|()| handle.alloc(&REQUEST).unwrap());
        let other = space.clone();
        let thread = thread::spawn(move || other.free(cpu(&other, 1), area.start));
        let own = handle.free(area.start);
        handle.free(beside.start).unwrap();
        let stranger = thread.join().unwrap();
        must_be_freed(own, stranger, area);
        let patient = AreaRequest { wait: Wait::MayReclaim, ..REQUEST };
        let again = [(); 2].map(|()| handle.alloc(&patient).expect("all was freed"));
        disjoint(&again);
        assert!(!space.mapper().is_stale(space.span()), "handed out before a flush");
        for area in again {
            handle.free(area.start).unwrap();
        }
        drop(handle);
        must_come_back(&space);
    });
}

/// The same, and the handle ends before the other thread is done.
#[test]
fn an_owner_frees_an_area_and_ends_while_a_stranger_frees_it() {
    explore(|policy| {
        let space = space_of(policy, 4, 0);
        space.mapper().forgives.store(true, std::sync::atomic::Ordering::SeqCst);
        let mut handle = space.cpu(cpu(&space, 0)).unwrap();
        let area = handle.alloc(&REQUEST).unwrap();
        let other = space.clone();
        let thread = thread::spawn(move || other.free(cpu(&other, 1), area.start));
        let own = handle.free(area.start);
        drop(handle);
        must_be_freed(own, thread.join().unwrap(), area);
        must_come_back(&space);
    });
}

/// Verifies what an owner and a stranger were told who freed one area at once.
fn must_be_freed(
    own: Result<Area, FreeAreaError>,
    stranger: Result<Area, FreeAreaError>,
    area: Area,
) {
    let known = [Ok(area), Err(FreeAreaError::DoubleFree), Err(FreeAreaError::NotAllocated)];
    assert!(own.is_ok() || stranger.is_ok(), "{own:?}, {stranger:?}");
    assert!(known.contains(&own) && known.contains(&stranger), "{own:?}, {stranger:?}");
}

/// Verifies the laws, and that all of a space without busy areas can be flushed and is free.
fn must_come_back(space: &TestSpace) {
    space.check().unwrap();
    space.purge_all();
    assert!(!space.mapper().is_stale(space.span()));
    space.check().unwrap();
    assert_eq!(space.stats().largest_hole, space.span().len(), "something leaked");
}

/// A thread frees what a handle has allocated, while the handle frees something else, flushes it and ends. Nothing is
/// handed out before its flush, and everything comes back.
#[test]
fn a_free_from_elsewhere_meets_the_end_of_a_handle() {
    explore(|policy| {
        let space = space_of(policy, 4, 0);
        let mut handle = space.cpu(cpu(&space, 0)).unwrap();
        let [one, two] = [(); 2].map(|()| handle.alloc(&REQUEST).unwrap());
        let other = space.clone();
        let thread = thread::spawn(move || {
            assert_eq!(other.free(cpu(&other, 1), one.start), Ok(one));
            let again = other.free(cpu(&other, 1), one.start);
            let known = [Err(FreeAreaError::DoubleFree), Err(FreeAreaError::NotAllocated)];
            assert!(known.contains(&again), "{again:?}");
        });
        assert_eq!(handle.free(two.start), Ok(two));
        if let Ok(area) = handle.alloc(&REQUEST) {
            assert!(!space.mapper().is_stale(area.span()), "{area:?} before its flush");
            handle.free(area.start).unwrap();
        }
        drop(handle);
        thread.join().unwrap();
        must_come_back(&space);
    });
}

/// An alias flush reaches what a handle, and another thread for it, freed before, while the handle frees something else
/// and ends: wherever these areas are meanwhile.
#[test]
fn an_alias_flush_meets_the_end_of_a_handle() {
    // A limit of none makes the handle flush at each free.
    for limit in [0, 1 << 20] {
        explore(move |policy| {
            let space = space_of(policy, 64, limit);
            let mut handle = space.cpu(cpu(&space, 0)).unwrap();
            let [own, far, last] = [(); 3].map(|()| handle.alloc(&REQUEST).unwrap());
            handle.free(own.start).unwrap();
            space.free(cpu(&space, 1), far.start).unwrap();
            let other = space.clone();
            let thread = thread::spawn(move || {
                other.unmap_aliases();
                [own, far].map(|area| other.mapper().is_stale(area.span()))
            });
            handle.free(last.start).unwrap();
            drop(handle);
            assert_eq!(thread.join().unwrap(), [false; 2]);
            must_come_back(&space);
        });
    }
}

/// Short random programs, as threads at full speed run long ones.
#[test]
fn random_programs() {
    for seed in 0..PROGRAMS {
        explore(move |policy| {
            let town = Arc::new(Town::new(limited(policy, 2), span(64, 8), 2, 4));
            let random = move |at: u64| Random::new(3 * seed + at);
            town.live(1, random(0), BEFORE);
            let other = town.clone();
            let thread = thread::spawn(move || other.live(2, random(2), BESIDE));
            town.live(1, random(1), BESIDE);
            thread.join().unwrap();
            town.close();
        });
    }
}
