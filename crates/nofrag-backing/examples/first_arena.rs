//! Runs of pages from an arena: what a thread frees stays mapped for its next request.

use nofrag_backing::arena::{Arena, Config, Purger};
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arena = Arc::new(Arena::reserve(256 << 20, Config::default())?); // an owner for each processor
    let _purger = Purger::start(&arena)?; // gives idle memory back when calls cease; until then they do
    let mut lease = arena.lease(arena.here(), 4, 1)?; // 4 pages of 4 KiB; freed when it is dropped
    lease[0] = 1; // a slice of bytes, so without `unsafe`
    let mut owner = arena.owner(arena.here())?; // held by this thread: no lock for each call
    let run = owner.alloc(4, 1)?;
    owner.free(run)?; // no system call: the pages stay
    let again = owner.alloc(4, 1)?;
    assert_eq!(again.va(), run.va());
    owner.free(again)?;
    Ok(())
}
