//! The state that threads share, under every interleaving with at most two preemptions.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p nofrag --profile models --test loom_vmap
//! ```
#![cfg(loom)]
#![allow(clippy::disallowed_types)]

use core::convert::Infallible;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use nofrag::check::Check;
use nofrag::cpu::{CpuId, CpuSet};
use nofrag::ranges::Span;
use nofrag::vmap::{
    Area, AreaRequest, Budget, Epoch, FreeAreaError, Guard, LazyLimit, Mapper, RamArea, VmapConfig,
    VmapPolicy, VmapSpace, Wait,
};

/// A mapper that knows if any page of the space was cleared and not flushed since.
struct Stale(AtomicBool);

impl Mapper for Stale {
    type Context = ();
    type Error = Infallible;

    fn install(&self, _area: RamArea, _context: &()) -> Result<(), Infallible> {
        Ok(())
    }

    fn clear(&self, _area: Span) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn flush(&self, _ranges: &[Span]) -> Epoch {
        self.0.store(false, Ordering::SeqCst);
        Epoch(0)
    }

    fn completed(&self) -> Epoch {
        Epoch(0)
    }
}

type Space = VmapSpace<Stale>;

fn space_of(policy: VmapPolicy, pages: u64, lazy_limit: u64) -> Arc<Space> {
    let policy = VmapPolicy { lazy_limit: LazyLimit::Pages(lazy_limit), ..policy };
    let (span, cpus) = (Span::sized(64, pages).unwrap(), CpuSet::first(2).unwrap());
    let pages = Stale(AtomicBool::new(false));
    Arc::new(VmapSpace::new(VmapConfig { span, cpus, policy }, pages, ()).unwrap())
}

fn cpu(space: &Space, rank: usize) -> CpuId {
    space.cpus().by_rank(rank).unwrap()
}

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
                assert!(!other.mapper().0.load(Ordering::SeqCst), "{area:?} before its flush");
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
