//! The same requests to our store and to allocators that cannot move what they have handed out.
//!
//! The requests follow from the seed alone. Objects fill nine tenths; then each request asks for somewhat more than the
//! ones before, or lets an object grow, after as many random ones have gone that the rest and it make so many tenths of
//! a percent. When a size has been asked for many times there is a little less room, up to all. Who refuses first, at
//! which share, is what is compared; sizes count as they were asked for, so that everybody's own overhead is its own.

use std::alloc::Layout;
use std::cell::Cell;
use std::error::Error;
use std::ptr::{self, NonNull};

use dlmalloc::Dlmalloc;
use nofrag::mmap::Protection;
use nofrag_backing::reservation::Reservation;
use nofrag_backing::shared::Handle;
use nofrag_backing::store::{Config, ObjectStore};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use talc::source::Manual;
use talc::{DefaultBinning, base::Talc};

/// Everybody is asked for this alignment.
const ALIGN: usize = 16;

/// Requests at each share of room.
const REQUESTS: u64 = 150;

/// Where one of them refused.
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    /// What lives and what was asked for, of all there is.
    pub(crate) live_percent: f64,
    pub(crate) requests: u64,
    pub(crate) refused_bytes: u64,
    pub(crate) moved_mib: Option<f64>,
}

/// Hands memory out, by numbers that the requests choose.
trait Contestant {
    fn alloc(&mut self, number: usize, bytes: u64) -> bool;
    fn free(&mut self, number: usize);
    /// Its contents stay; the number too.
    fn grow(&mut self, number: usize, bytes: u64) -> bool;
}

/// Carries the requests out until one is refused.
fn contend(
    name: &'static str,
    capacity: u64,
    seed: u64,
    contestant: &mut dyn Contestant,
) -> Outcome {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut live: Vec<(usize, u64)> = Vec::new();
    let (mut used, mut next, mut requests) = (0, 0, 0);
    let refused = |used: u64, bytes: u64, requests: u64| Outcome {
        name,
        live_percent: (used + bytes) as f64 * 100.0 / capacity as f64,
        requests,
        refused_bytes: bytes,
        moved_mib: None,
    };
    let (mut permille, mut smallest) = (900, 64);
    loop {
        for _ in 0..REQUESTS {
            let room = capacity / 1000 * permille;
            let bytes = rng.random_range(smallest..smallest * 4).min(capacity / 64);
            while used + bytes > room && requests > 0 && !live.is_empty() {
                let (number, bytes) = live.swap_remove(rng.random_range(0..live.len()));
                contestant.free(number);
                used -= bytes;
            }
            if requests == 0 {
                // The first fill is not what is compared.
                while used < room {
                    let bytes = rng.random_range(64..8 << 10).min(room - used).max(64);
                    if !contestant.alloc(next, bytes) {
                        return refused(used, bytes, 0);
                    }
                    live.push((next, bytes));
                    (used, next) = (used + bytes, next + 1);
                }
            }
            requests += 1;
            let grows = rng.random_ratio(1, 4).then(|| rng.random_range(0..live.len()));
            let held = match grows {
                Some(which) => contestant.grow(live[which].0, live[which].1 + bytes),
                None => contestant.alloc(next, bytes),
            };
            if !held {
                return refused(used, bytes, requests);
            }
            match grows {
                Some(which) => live[which].1 += bytes,
                None => live.push((next, bytes)),
            }
            (used, next) = (used + bytes, next + 1);
        }
        permille = (permille + 1).min(1000);
        smallest += smallest / 16;
    }
}

/// Ours. Contents are moved, as they would be.
struct Store {
    store: ObjectStore,
    handles: Vec<Option<Handle>>,
}

impl Contestant for Store {
    fn alloc(&mut self, number: usize, bytes: u64) -> bool {
        let Ok(writer) = self.store.create_object(bytes) else { return false };
        self.handles.resize(number + 1, None);
        self.handles[number] = Some(writer.seal());
        true
    }

    fn free(&mut self, number: usize) {
        let handle = self.handles[number].take().expect("it lives");
        self.store.delete(handle).expect("it lives, and nobody writes it");
    }

    fn grow(&mut self, number: usize, bytes: u64) -> bool {
        let handle = self.handles[number].expect("it lives");
        let old = self.store.get(handle).expect("it lives").len() as u64;
        let grown = self.store.grow(handle, bytes - old).map(|writer| writer.seal());
        grown.is_ok()
    }
}

/// What an allocator has handed out.
type Pieces = Vec<Option<(NonNull<u8>, usize)>>;

fn note(pieces: &mut Pieces, number: usize, piece: (NonNull<u8>, usize)) {
    pieces.resize(pieces.len().max(number + 1), None);
    pieces[number] = Some(piece);
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ALIGN).expect("sizes are far below the limit")
}

struct OfTalc {
    talc: Talc<Manual, DefaultBinning>,
    pieces: Pieces,
}

impl Contestant for OfTalc {
    fn alloc(&mut self, number: usize, bytes: u64) -> bool {
        let bytes = bytes as usize;
        // SAFETY: the size is not zero.
        let Some(start) = (unsafe { self.talc.allocate(layout(bytes)) }) else { return false };
        note(&mut self.pieces, number, (start, bytes));
        true
    }

    fn free(&mut self, number: usize) {
        let (start, bytes) = self.pieces[number].take().expect("it lives");
        // SAFETY: it was allocated with this layout, and is not used any more.
        unsafe { self.talc.deallocate(start.as_ptr(), layout(bytes)) };
    }

    fn grow(&mut self, number: usize, bytes: u64) -> bool {
        let ((start, old), bytes) = (self.pieces[number].expect("it lives"), bytes as usize);
        // SAFETY: it was allocated with this layout, and the new size is larger.
        if unsafe { self.talc.try_grow_in_place(start.as_ptr(), layout(old), bytes) } {
            self.pieces[number] = Some((start, bytes));
            return true;
        }
        if !self.alloc(number, bytes as u64) {
            self.pieces[number] = Some((start, old));
            return false;
        }
        let (new, _) = self.pieces[number].expect("allocated a moment ago");
        // SAFETY: both are allocated, with at least so many bytes, and do not overlap.
        unsafe { ptr::copy_nonoverlapping(start.as_ptr(), new.as_ptr(), old) };
        // SAFETY: it was allocated with this layout, and is not used any more.
        unsafe { self.talc.deallocate(start.as_ptr(), layout(old)) };
        true
    }
}

/// One mapping, given away whole, once.
struct OneMapping(Cell<Option<(*mut u8, usize)>>);

// SAFETY: the mapping belongs to nobody else, whatever thread asks for it.
unsafe impl Send for OneMapping {}

// SAFETY: it hands out memory that is mapped, readable and writable for as long as the allocator is used, and nothing
// else; it takes nothing back.
unsafe impl dlmalloc::Allocator for OneMapping {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        match self.0.take() {
            Some((start, bytes)) if size <= bytes => (start, bytes, 0),
            mapping => {
                self.0.set(mapping);
                (ptr::null_mut(), 0, 0)
            }
        }
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        ptr::null_mut()
    }

    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }

    fn free(&self, _: *mut u8, _: usize) -> bool {
        false
    }

    fn can_release_part(&self, _: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        4096
    }
}

struct OfDlmalloc {
    dlmalloc: Dlmalloc<OneMapping>,
    pieces: Pieces,
}

impl Contestant for OfDlmalloc {
    fn alloc(&mut self, number: usize, bytes: u64) -> bool {
        let bytes = bytes as usize;
        // SAFETY: the size is not zero and the alignment a power of two.
        let start = unsafe { self.dlmalloc.malloc(bytes, ALIGN) };
        let start = NonNull::new(start);
        start.is_some_and(|start| {
            note(&mut self.pieces, number, (start, bytes));
            true
        })
    }

    fn free(&mut self, number: usize) {
        let (start, bytes) = self.pieces[number].take().expect("it lives");
        // SAFETY: it was allocated with this size and alignment, and is not used any more.
        unsafe { self.dlmalloc.free(start.as_ptr(), bytes, ALIGN) };
    }

    fn grow(&mut self, number: usize, bytes: u64) -> bool {
        let ((start, old), bytes) = (self.pieces[number].expect("it lives"), bytes as usize);
        // SAFETY: it was allocated with this size and alignment; if this fails, it stays.
        let start = unsafe { self.dlmalloc.realloc(start.as_ptr(), old, ALIGN, bytes) };
        NonNull::new(start).is_some_and(|start| {
            self.pieces[number] = Some((start, bytes));
            true
        })
    }
}

/// Memory of the same size for somebody else's allocator; it stays as long as the result.
fn mapping(bytes: u64) -> std::io::Result<(Reservation, *mut u8)> {
    let mapping = Reservation::new(bytes as usize, Protection::READ_WRITE)?;
    let start = ptr::with_exposed_provenance_mut(mapping.start() as usize);
    Ok((mapping, start))
}

/// Ours first, then the others.
pub(crate) fn run(bytes: u64, seed: u64) -> Result<Vec<Outcome>, Box<dyn Error>> {
    let store = ObjectStore::create(Config { objects: 1 << 18, ..Config::new(bytes) })?;
    let mut ours = Store { store, handles: Vec::new() };
    let mut of_ours = contend("nofrag store, best fit + moves", bytes, seed, &mut ours);
    of_ours.moved_mib = Some(ours.store.stats().moved as f64 / f64::from(1 << 20));

    let (memory, start) = mapping(bytes)?;
    let mut talc = Talc::new(Manual);
    // SAFETY: the mapping can be read and written, and is nobody else's until `memory` is dropped, after `talc`.
    unsafe { talc.claim(start, bytes as usize) }.ok_or("talc does not take the mapping")?;
    let of_talc = contend("talc", bytes, seed, &mut OfTalc { talc, pieces: Pieces::new() });
    drop(memory);

    let (memory, start) = mapping(bytes)?;
    let given = OneMapping(Cell::new(Some((start, bytes as usize))));
    let dlmalloc = Dlmalloc::new_with_allocator(given);
    let mut dlmalloc = OfDlmalloc { dlmalloc, pieces: Pieces::new() };
    let of_dlmalloc = contend("dlmalloc", bytes, seed, &mut dlmalloc);
    drop(memory);
    Ok(vec![of_ours, of_talc, of_dlmalloc])
}
