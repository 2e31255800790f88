//! Making an arena, and taking it down.

use std::mem::{self, ManuallyDrop};

use rustix::io::Errno;

use super::atomic::AtomicU64;
use super::backing::Backing;
use super::books::Taken;
use super::clock::ArenaClock;
use super::cpu::Processors;
use super::ground::Ground;
use super::owner::Owner;
use super::pool::Pool;
use super::run::{LEAST_PAGE_SHIFT, VA_BITS};
use super::table::MOST_PAGES;
use super::{Arena, Config, Fork, OwnerId, Owners, ReserveError};
use crate::backend::{Backend, BackendError, Caps, Geometry, Va};
use crate::forks::Forks;

/// The most owners of an arena.
const MOST_OWNERS: u32 = 1 << 16;

impl<B: Backend> Arena<B> {
    /// Reserves an arena of `bytes` bytes, rounded up to blocks. If there is no room for them, half of that, and so on
    /// ([`Config::least`]); [`bytes`](Arena::bytes) returns the size that was reserved.
    ///
    /// # Errors
    /// See [`ReserveError`].
    pub fn reserve(bytes: u64, config: Config<B>) -> Result<Arena<B>, ReserveError> {
        let (backend, config) = config.split();
        let owners = match config.owners {
            Owners::PerCpu => Processors::wanted(),
            Owners::Count(count) => count,
        };
        check(bytes, owners, &config, backend.geometry())?;
        let blocks = bytes.div_ceil(config.block);
        let least = config.least.map_or(u64::from(owners), |least| least.div_ceil(config.block));
        let align = config.align.max(config.block).max(backend.geometry().va_align);
        let (base, given) = ask(&backend, config.block, align, blocks, least.clamp(1, blocks))?;
        let range = (base, given * config.block);
        let made = Backing::new(backend, range, config.block, config.max_mappings);
        let backing = made.map_err(|(backend, why)| {
            // The answer is the reason for the lack of memory; addresses that cannot be given back stay reserved.
            let _ = backend.release(range.0, range.1);
            ReserveError::Backend(why)
        })?;
        match Arena::build(backing, range, given as u32, owners, &config) {
            Ok(mut arena) => {
                (arena.asked, arena.align) = (blocks * config.block, align);
                Ok(arena)
            }
            Err((backing, why)) => {
                // The answer is the first error.
                let _ = backing.end(range.0, range.1);
                Err(why)
            }
        }
    }

    /// Builds the arena of `blocks` blocks and `count` owners over reserved memory; an error brings the backing back.
    fn build(
        backing: Backing<B>,
        (base, bytes): (Va, u64),
        blocks: u32,
        count: u32,
        config: &Config<()>,
    ) -> Result<Arena<B>, (Backing<B>, ReserveError)> {
        let hidden = below_the_limit(base, bytes)
            .and_then(|()| hide(&backing.backend, (base, bytes), config.fork));
        let prepared = hidden.and_then(|()| {
            let parent = Forks::now().map_err(|why| ReserveError::Backend(why.into()))?;
            let (page_shift, block_shift) =
                (config.page.ilog2(), (config.block / config.page).ilog2());
            let ground = Ground::new(base, page_shift, block_shift, blocks);
            let parts = ground.zip(Pool::new(blocks)).ok_or(ReserveError::OutOfMetadata)?;
            let share = u64::from(parts.0.pages()) / (8 * u64::from(count));
            let owners = owners(count, share.min(config.parked_pages));
            Ok((parent, parts, owners.ok_or(ReserveError::OutOfMetadata)?))
        });
        let (parent, (ground, pool), owners) = match prepared {
            Ok(prepared) => prepared,
            Err(why) => return Err((backing, why)),
        };
        Ok(Arena {
            ground,
            owners,
            pool,
            backing: ManuallyDrop::new(backing),
            parent,
            processors: Processors::new(count),
            purge: config.purge,
            clock: ArenaClock::new(config.clock, config.purge),
            on_purge: None,
            asked: bytes,
            align: config.align,
            purged: AtomicU64::new(0),
            failed_purges: AtomicU64::new(0),
            cursor: AtomicU64::new(0),
        })
    }
}

/// Returns `count` owners, each of which parks at most `parked` pages; `None` without memory for them.
fn owners<B: Backend>(count: u32, parked: u64) -> Option<Box<[Owner<B>]>> {
    let mut owners = Vec::new();
    owners.try_reserve_exact(count as usize).ok()?;
    for owner in 0..count {
        owners.push(Owner::new(OwnerId(owner), parked)?);
    }
    Some(owners.into())
}

/// Refuses addresses from 2^52 on, for which a run has no bits. No system hands them out unasked.
fn below_the_limit(base: Va, bytes: u64) -> Result<(), ReserveError> {
    if base.0.checked_add(bytes).is_some_and(|end| end <= 1 << VA_BITS) {
        return Ok(());
    }
    let must = "addresses below 2^52";
    Err(ReserveError::BadConfig { what: "the memory", found: base.0, must })
}

/// Refuses a configuration that is out of range, or too large for this address space.
fn check<B>(
    bytes: u64,
    owners: u32,
    config: &Config<B>,
    geometry: &Geometry,
) -> Result<(), ReserveError> {
    let Config { block, page, align, .. } = *config;
    let needs = [
        ("the size", bytes, bytes > 0, "at least one byte"),
        (
            "a page",
            page,
            page.is_power_of_two() && page >> LEAST_PAGE_SHIFT > 0,
            "a power of two, at least 4 KiB",
        ),
        (
            "a block",
            block,
            block.is_power_of_two() && block >= page,
            "a power of two, not below a page",
        ),
        (
            "a block",
            block,
            geometry.granule > 0 && block.is_multiple_of(geometry.granule),
            "a multiple of the backend's granule",
        ),
        (
            "the alignment",
            align,
            align.is_power_of_two() && align >= page,
            "a power of two, not below a page",
        ),
        (
            "the number of owners",
            u64::from(owners),
            (1..=MOST_OWNERS).contains(&owners),
            "from 1 to 65,536",
        ),
    ];
    for (what, found, holds, must) in needs {
        if !holds {
            return Err(ReserveError::BadConfig { what, found, must });
        }
    }
    let blocks = bytes.div_ceil(block);
    if blocks.checked_mul(block).is_none() {
        let must = "below 2^64 bytes also when rounded up to blocks";
        return Err(ReserveError::BadConfig { what: "the size", found: bytes, must });
    }
    if blocks.saturating_mul(block / page) >= MOST_PAGES {
        let must = "fewer than 2^30 pages; take larger pages";
        return Err(ReserveError::BadConfig { what: "the size", found: bytes, must });
    }
    if geometry.caps.has(Caps::ZEROED) { Ok(()) } else { Err(ReserveError::NotZeroed) }
}

/// Reserves `asked` blocks of `block` bytes, or half of that, and so on, but not below `least`; returns the first
/// address and the number of blocks.
/// Source: docs/sources/backing.md#few-addresses.
fn ask<B: Backend>(
    backend: &B,
    block: u64,
    align: u64,
    asked: u64,
    least: u64,
) -> Result<(Va, u64), ReserveError> {
    let mut blocks = asked;
    loop {
        let why = match backend.reserve(blocks * block, align, None) {
            Ok(base) => return Ok((base, blocks)),
            Err(why @ BackendError::System(Errno::NOMEM)) => why,
            Err(why) => return Err(ReserveError::Backend(why)),
        };
        if blocks == least {
            let (asked, least) = (asked * block, least * block);
            return Err(ReserveError::NoRoom { asked, least, why });
        }
        blocks = (blocks / 2).max(least);
    }
}

/// Hides the memory from children of a fork if `fork` says so and they could see the backend's kind of memory at all.
fn hide<B: Backend>(backend: &B, (base, bytes): (Va, u64), fork: Fork) -> Result<(), ReserveError> {
    match fork {
        Fork::Inherited => Ok(()),
        Fork::Hidden => match backend.hide_from_children(base, bytes) {
            Ok(()) | Err(BackendError::Unsupported) => Ok(()),
            Err(why) => Err(ReserveError::Backend(why)),
        },
    }
}

impl<B: Backend> Drop for Arena<B> {
    /// Gives everything back. In a child of `fork` nothing: the addresses may hold other mappings there. Memory that
    /// the backend refuses to take stays with the backend.
    fn drop(&mut self) {
        if !self.parent.is_same() {
            return;
        }
        let mut left = Vec::new();
        for (from, slot) in (0..).map(OwnerId).zip(mem::take(&mut self.owners)) {
            let (books, returned) = slot.into_parts();
            let taken = |(number, block)| Taken { number, from, block };
            left.extend(books.blocks.into_iter().map(taken));
            left.extend(returned);
        }
        self.backing.dissolve_all(&self.ground, left);
        // Memory that cannot be given back is on the backend's own books.
        let _ = self.backing.end(self.ground.base, self.ground.bytes());
        // SAFETY: this is the drop of the arena, the only place where the backing is dropped, and nothing uses it
        // afterwards.
        unsafe { ManuallyDrop::drop(&mut self.backing) };
    }
}
