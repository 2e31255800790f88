//! The arena under the same requests as the [strategies](super::strategies).

use std::io;
use std::iter::repeat_n;
use std::sync::Arc;
use std::time::Instant;

use super::strategies::{Request, Took, Touched, check, thread_time};
use crate::arena::{Arena, Config, OwnerId, Owners, Purge};
use crate::faults;
use crate::sys;

const PAGE: usize = 1 << sys::PAGE;
/// Bytes of the arena, as many as a strategy's bench has.
const BYTES: u64 = 256 << 20;

/// Serves requests from one owner of an arena, which the benches of the other owners share.
///
/// 1. A run of `slots` is live in `arena` and was handed out to this bench alone.
#[derive(Debug)]
pub struct ArenaBench {
    arena: Arc<Arena>,
    owner: OwnerId,
    slots: Vec<Option<crate::arena::Run>>,
}

impl ArenaBench {
    /// Returns `count` benches over one arena, each with an owner of its own and places for `slots` live runs.
    ///
    /// # Errors
    /// Errors of the arena.
    pub fn over_one(count: u32, slots: u16, purge: Purge) -> io::Result<Vec<ArenaBench>> {
        let owners = Owners::Count(count);
        let config = Config { purge, owners, ..Config::default() };
        let arena = Arena::reserve(BYTES, config).map_err(io::Error::other)?;
        let arena = Arc::new(arena);
        let bench = |owner| ArenaBench {
            arena: Arc::clone(&arena),
            owner: OwnerId(owner),
            slots: repeat_n(None, usize::from(slots)).collect(),
        };
        Ok((0..count).map(bench).collect())
    }

    /// Returns the arena, for its counts.
    #[must_use]
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Serves requests as [`Bench::serve`](super::strategies::Bench::serve) does.
    ///
    /// # Errors
    /// `InvalidInput` for a slot that does not exist, or a size that is not allowed, before anything is done; else
    /// errors of the arena.
    pub fn serve(&mut self, requests: &[Request], touched: Touched) -> io::Result<Took> {
        check(requests, self.slots.len())?;
        let calls = faults::made();
        let (processor, wall) = (thread_time(), Instant::now());
        for request in requests {
            let slot = usize::from(request.slot);
            if let Some(run) = self.slots[slot].take() {
                self.arena.free(run).map_err(io::Error::other)?;
            }
            let pages = usize::from(request.pages);
            let run = self.arena.alloc(self.owner, pages as u64, 1).map_err(io::Error::other)?;
            self.slots[slot] = Some(run);
            let start = self.arena.pointer(run);
            let touched = match touched {
                Touched::First => 1,
                Touched::All => pages,
            };
            for page in 0..touched {
                // SAFETY: the run is live and this bench's alone (law 1), has as many pages as were asked for, and an
                // arena's runs may be written.
                unsafe { start.add(page * PAGE).write_volatile(1) };
            }
        }
        let wall = wall.elapsed();
        let processor = thread_time().saturating_sub(processor);
        Ok(Took { processor, wall, calls: faults::made().since(&calls) })
    }
}
