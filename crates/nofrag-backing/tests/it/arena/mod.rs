//! The arena: its results, its refusals, its purges, and its laws.

mod basics;
// A link to the file of the core's drivers, of which a package has a copy.
#[allow(dead_code)] // Those use more of it.
mod choices;
mod chunks;
pub(crate) mod ghosts;
mod idle;
mod layouts;
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
