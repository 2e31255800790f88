//! Random operations on an arena, against a map of live runs: over the memory of this process, where no owner may see
//! what another one wrote, and over simulated memory, which comes and goes by chunks and is now and then refused.

use std::time::Duration;

use nofrag_backing::arena::{Arena, Config, Purge};
use nofrag_backing::backend::{Anonymous, Backend};

use crate::it::arena_pair::{BLOCK, Ghosts, OWNERS, Pair, Seen, Stamped, small};
use crate::it::choices::Choices;
use crate::steps;

/// Steps of one input that are run at most.
const MOST_STEPS: usize = 300;

/// Runs the operations in `data` on the memory and the policy that its first byte chooses; panics when a promise is
/// broken.
pub fn run(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else { return };
    let purge = match choice % 3 {
        0 => Purge::Decay { after: Duration::from_millis(50) },
        1 => Purge::Watermark { pages: 40 },
        _ => Purge::Manual,
    };
    if choice & 0x80 == 0 {
        let (arena, ghosts) = Ghosts::arena(purge);
        drive(Pair::new(&arena, ghosts.clone(), Ghosts::PAGE, Choices::Bytes(rest)));
        drop(arena);
        ghosts.must_be_gone();
    } else {
        let config = Config { purge, ..small(Anonymous::new(), OWNERS) };
        let arena = Arena::reserve(16 * BLOCK, config).expect("there is memory enough");
        drive(Pair::new(&arena, Stamped::default(), BLOCK / 64, Choices::Bytes(rest)));
    }
}

fn drive<'a, B: Backend, S: Seen<'a, B>>(mut pair: Pair<'a, B, S>) {
    steps::carry_out(MOST_STEPS, &mut pair, |pair| pair.choices.has_more(), Pair::step);
    pair.end();
}
