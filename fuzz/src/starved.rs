//! Random operations on a heap that refuses at random: a refusal changes nothing, every law holds after it, the same
//! operation succeeds or fails otherwise once there is memory, and in the end all space comes back.
//!
//! Page frames are not among them: their allocator takes all its memory when it is made, and the world in which
//! [`pages`](crate::pages) runs counts that its operations ask for none.

use crate::it::choices::Choices;
use crate::it::range_pair::{DELICATE, Pair};
use crate::it::starving::Heap;
use crate::{blocks, mmap, ranges, vmap};

/// Runs the operations in `data` on the structure that its first byte chooses, on a heap as stingy as its second one
/// says; panics when a promise is broken.
pub fn run(data: &[u8]) {
    let [choice, odds, shape, rest @ ..] = data else { return };
    let heap = Heap::new(*odds, u64::from(*choice) << 8 | u64::from(*odds));
    match choice % 4 {
        0 => {
            let config = ranges::config(choice / 4);
            ranges::drive(Pair::new(config, DELICATE, Choices::Bytes(rest)).on(heap));
        }
        1 => vmap::drive(choice / 4, heap, rest),
        2 => blocks::drive(choice / 4, *shape, heap, rest),
        _ => mmap::drive(choice / 4, *shape, heap, rest),
    }
}
