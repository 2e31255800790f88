//! A parked allocation and its free in an arena; no memory is touched.

use crate::{Outcome, timed};
use nofrag_backing::arena::{Arena, Config, OwnerHandle, OwnerId, Owners, Run};
use nofrag_backing::backend::Anonymous;

pub(crate) fn run(pairs: u64) -> Outcome {
    let arena = Arena::reserve(1 << 30, Config { owners: Owners::Count(1), ..Config::default() })?;
    for pages in 1..=64 {
        arena.free(arena.alloc(OwnerId(0), pages, 1)?)?;
    }
    timed(pairs, || held(&mut arena.owner(OwnerId(0))?, pairs))?;
    timed(pairs, || shared(&arena, pairs))
}

#[inline(never)]
fn held(owner: &mut OwnerHandle<'_, Anonymous>, pairs: u64) -> Outcome {
    for at in 0..pairs {
        let run: Run = owner.alloc(at % 64 + 1, 1)?;
        owner.free(run)?;
    }
    Ok(())
}

#[inline(never)]
fn shared(arena: &Arena, pairs: u64) -> Outcome {
    for at in 0..pairs {
        let run: Run = arena.alloc(OwnerId(0), at % 64 + 1, 1)?;
        arena.free(run)?;
    }
    Ok(())
}
