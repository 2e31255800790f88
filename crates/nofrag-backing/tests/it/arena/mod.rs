//! The arena: what it hands out, what it refuses, what it gives back, and that its laws hold.

mod basics;
// A link to that of the core's drivers, which a package has as a file.
#[allow(dead_code)] // Those use more of it.
mod choices;
mod chunks;
mod model;
mod pair;
mod refusals;
mod stamps;
mod together;

use nofrag::check::Check;
use nofrag_backing::arena::{Arena, OwnerId};
use nofrag_backing::backend::{Anonymous, Backend};
use pair::{BLOCK, small};
use stamps::{PAGE, stamp, stamps};

fn arena_of(blocks: u64, owners: u32) -> Arena {
    Arena::reserve(blocks * BLOCK, small(Anonymous::new(), owners)).unwrap()
}

fn check_laws<B: Backend>(arena: &Arena<B>) {
    if let Err(broken) = arena.check() {
        panic!("{broken}");
    }
}

const A: OwnerId = OwnerId(0);
const Z: OwnerId = OwnerId(1);
