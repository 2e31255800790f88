//! The arena: what it hands out, what it refuses, what it gives back, and that its laws hold.

mod basics;
mod chunks;
mod model;
mod refusals;
mod together;

use nofrag::check::Check;
use nofrag_backing::arena::{Arena, Config, OwnerId, Owners, Purge, Run};
use nofrag_backing::backend::{Anonymous, Backend, HostMemory};

const PAGE: usize = 4096;
const BLOCK: u64 = 64 * PAGE as u64;

/// Small blocks, so that few pages make many of them; purged when asked.
fn small<B: Backend>(backing: B, owners: u32) -> Config<B> {
    let (block, align, owners) = (BLOCK, BLOCK, Owners::Count(owners));
    Config { block, align, owners, purge: Purge::Manual, ..Config::over(backing) }
}

fn arena_of(blocks: u64, owners: u32) -> Arena {
    Arena::reserve(blocks * BLOCK, small(Anonymous::new(), owners)).unwrap()
}

fn check_laws<B: Backend>(arena: &Arena<B>) {
    if let Err(broken) = arena.check() {
        panic!("{broken}");
    }
}

/// Writes the stamp to the first and the last word of every page.
fn stamp<B: HostMemory>(arena: &Arena<B>, run: Run, stamp: u64) {
    each_stamp(arena, run, |at| {
        // SAFETY: the run is in use by this test alone, and `each_stamp` names aligned words of it.
        unsafe { at.write(stamp) }
    });
}

/// Every stamp of the run.
fn stamps<B: HostMemory>(arena: &Arena<B>, run: Run) -> Vec<u64> {
    let mut found = Vec::new();
    each_stamp(arena, run, |at| {
        // SAFETY: as in `stamp`.
        found.push(unsafe { at.read() });
    });
    found
}

fn each_stamp<B: HostMemory>(arena: &Arena<B>, run: Run, mut each: impl FnMut(*mut u64)) {
    let first = arena.pointer(run);
    for page in 0..run.pages() as usize {
        let page = first.wrapping_add(page * PAGE);
        each(page.cast());
        each(page.wrapping_add(PAGE - 8).cast());
    }
}

const A: OwnerId = OwnerId(0);
const Z: OwnerId = OwnerId(1);
