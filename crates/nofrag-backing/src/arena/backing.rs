//! The memory behind blocks: one mapping for all of them, or chunks that come and go with each block.
//!
//! Where contents can be given back in place, the whole arena is one mapping, made once, so it is one area of the
//! kernel, and a purge is one operation for each run of adjacent blocks. Huge pages that were set aside are not given
//! back in place: there a block is made of chunks, one piece of memory and one mapping each, and purging it takes them
//! away.

use std::iter::repeat_n;

use nofrag::ranges::Span;
use rustix::io::Errno;

use super::atomic::{AtomicU64, Ordering};
use super::books::{Block, Taken};
use super::ground::Ground;
use crate::backend::{Backend, BackendError, Caps, Geometry, Op, OpResult, Va};
use crate::zeroed::{NoMemory, collected};

/// A piece of a block with memory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk<P> {
    phys: P,
    /// Number of the chunk within its block.
    place: u32,
    state: ChunkState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    Created,
    Mapped,
}

/// The memory of an arena: one mapping, or chunks for each block.
#[derive(Debug)]
enum ArenaMemory<P> {
    /// One mapping for all blocks.
    Whole(P),
    /// `each` chunks of `bytes` for every block.
    Chunks { bytes: u64, each: u32 },
}

/// A backend with the memory that an arena has from it.
#[derive(Debug)]
pub(super) struct Backing<B: Backend> {
    pub(super) backend: B,
    memory: ArenaMemory<B::Phys>,
    /// Number of mappings that exist.
    pub(super) mappings: AtomicU64,
    max_mappings: Option<u64>,
    /// Number of operations submitted, and of pieces of memory made or destroyed.
    pub(super) calls: AtomicU64,
}

/// Returns the bytes of a chunk: the size that the backend recommends if it divides a block, else the granule.
fn chunk_bytes(geometry: &Geometry, block: u64) -> u64 {
    let fits = geometry.recommended > 0 && block.is_multiple_of(geometry.recommended);
    if fits { geometry.recommended } else { geometry.granule }
}

impl<B: Backend> Backing<B> {
    /// Makes the memory of an arena whose `bytes` bytes were reserved at `base`: one mapping where the backend purges
    /// in place, else chunks that are made later. An error brings the backend back.
    pub(super) fn new(
        backend: B,
        (base, bytes): (Va, u64),
        block: u64,
        max_mappings: Option<u64>,
    ) -> Result<Backing<B>, (B, BackendError)> {
        let geometry = backend.geometry();
        let theirs = geometry.max_mappings;
        let max_mappings =
            max_mappings.map_or(theirs, |ours| Some(ours.min(theirs.unwrap_or(ours))));
        let chunk = chunk_bytes(geometry, block);
        let each = (block / chunk) as u32;
        let in_place = geometry.caps.has(Caps::PURGE_IN_PLACE);
        let mut backing = Backing {
            backend,
            memory: ArenaMemory::Chunks { bytes: chunk, each },
            mappings: AtomicU64::new(0),
            max_mappings,
            calls: AtomicU64::new(0),
        };
        if in_place {
            match backing.map_whole(base, bytes) {
                Ok(phys) => backing.memory = ArenaMemory::Whole(phys),
                Err(why) => return Err((backing.backend, why)),
            }
        }
        Ok(backing)
    }

    fn map_whole(&self, va: Va, bytes: u64) -> Result<B::Phys, BackendError> {
        self.count_mapping()?;
        let created = self.backend.create(bytes);
        let phys = created.inspect_err(|_| self.uncount_mapping())?;
        match self.one(Op::Map { va, phys, offset: 0, bytes }) {
            Ok(()) => Ok(phys),
            Err(why) => {
                self.uncount_mapping();
                // A range that was mapped is unmapped by the release of the addresses, or before; the answer is the
                // error.
                let _ = self.one(Op::Unmap { va, bytes });
                let _ = self.backend.destroy(phys);
                Err(why)
            }
        }
    }

    fn one(&self, op: Op<B::Phys>) -> OpResult {
        let mut done = [Ok(())];
        self.submit(&[op], &mut done);
        done[0]
    }

    fn submit(&self, ops: &[Op<B::Phys>], done: &mut [OpResult]) {
        let most = self.backend.geometry().vector_max.max(1);
        for (ops, done) in ops.chunks(most).zip(done.chunks_mut(most)) {
            self.backend.submit(ops, done);
        }
        self.calls.fetch_add(ops.len() as u64, Ordering::Relaxed);
    }

    /// Submits at most `most` operations and returns the result of each; without memory for the lists it submits none.
    fn submit_all(
        &self,
        most: usize,
        ops: impl Iterator<Item = Op<B::Phys>>,
    ) -> Result<Vec<OpResult>, BackendError> {
        let no_memory = |NoMemory| BackendError::System(Errno::NOMEM);
        let ops = collected(most, ops).map_err(no_memory)?;
        let mut done = collected(ops.len(), repeat_n(Ok(()), ops.len())).map_err(no_memory)?;
        self.submit(&ops, &mut done);
        Ok(done)
    }

    /// Makes and maps the chunks of `blocks`, the first of which has the number `first`; one mapping for all needs
    /// nothing. On failure some blocks lack chunks.
    pub(super) fn provide(
        &self,
        ground: &Ground,
        first: u32,
        blocks: &mut [Block<B>],
    ) -> Result<(), BackendError> {
        let mut numbered = (first..).zip(blocks);
        numbered.try_for_each(|(number, block)| self.complete(ground, number, block))
    }

    /// Makes the chunks that a block lacks, and maps all that are not mapped, up to the first failure.
    pub(super) fn complete(
        &self,
        ground: &Ground,
        number: u32,
        block: &mut Block<B>,
    ) -> Result<(), BackendError> {
        let ArenaMemory::Chunks { bytes, each } = self.memory else { return Ok(()) };
        let base = ground.va_of(ground.pages_of(number, 1).start() as u32);
        for place in 0..each {
            if !block.chunks.iter().any(|chunk| chunk.place == place) {
                let phys = self.backend.create(bytes)?;
                self.calls.fetch_add(1, Ordering::Relaxed);
                block.chunks.push(Chunk { phys, place, state: ChunkState::Created });
            }
        }
        for chunk in &mut block.chunks {
            let va = base.plus(u64::from(chunk.place) * bytes);
            if chunk.state == ChunkState::Created {
                self.count_mapping()?;
                if let Err(why) = self.one(Op::Map { va, phys: chunk.phys, offset: 0, bytes }) {
                    self.uncount_mapping();
                    return Err(why);
                }
                chunk.state = ChunkState::Mapped;
            }
        }
        Ok(())
    }

    fn uncount_mapping(&self) {
        self.mappings.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts one more mapping, unless that would exceed `max_mappings`.
    fn count_mapping(&self) -> Result<(), BackendError> {
        let before = self.mappings.fetch_add(1, Ordering::Relaxed);
        match self.max_mappings {
            Some(budget) if before >= budget => {
                self.uncount_mapping();
                Err(BackendError::MappingBudget { budget })
            }
            _ => Ok(()),
        }
    }

    /// Gives the memory of blocks back. `each` gets every block with the result of its purge.
    ///
    /// Needs no lock, though a caller may hold the owner of the blocks; no other thread knows of the blocks.
    pub(super) fn purge(
        &self,
        ground: &Ground,
        mut taken: Vec<Taken<B>>,
        mut each: impl FnMut(Taken<B>, OpResult),
    ) {
        if let ArenaMemory::Chunks { bytes, .. } = self.memory {
            for mut block in taken {
                let result = self.dissolve(ground, bytes, &mut block);
                each(block, result);
            }
            return;
        }
        taken.sort_unstable_by_key(|taken| taken.number);
        let spans = joined(&taken);
        let ops = spans.iter().map(|&span| purge_of(ground, span));
        let done = match self.submit_all(spans.len(), ops) {
            Ok(done) => done,
            Err(why) => return taken.into_iter().for_each(|block| each(block, Err(why))),
        };
        for block in taken {
            // The spans ascend; a block that was never touched is in none of them.
            let number = u64::from(block.number);
            let at = spans.partition_point(|span| span.end() <= number);
            let touched = spans.get(at).is_some_and(|span| span.contains(number));
            each(block, if touched { done[at] } else { Ok(()) });
        }
    }

    /// Unmaps and destroys the chunks of a block. A chunk for which that fails stays as it is, and the first error is
    /// the answer.
    fn dissolve(&self, ground: &Ground, bytes: u64, taken: &mut Taken<B>) -> OpResult {
        let base = ground.va_of(ground.pages_of(taken.number, 1).start() as u32);
        let chunks = &mut taken.block.chunks;
        let is_mapped = |chunk: &&mut Chunk<B::Phys>| chunk.state != ChunkState::Created;
        let unmap = |chunk: &Chunk<B::Phys>| {
            let va = base.plus(u64::from(chunk.place) * bytes);
            (chunk.state != ChunkState::Created).then_some(Op::Unmap { va, bytes })
        };
        let done = self.submit_all(chunks.len(), chunks.iter().filter_map(unmap))?;
        let mut answer = Ok(());
        for (chunk, result) in chunks.iter_mut().filter(is_mapped).zip(done) {
            match result {
                Ok(()) => {
                    chunk.state = ChunkState::Created;
                    self.uncount_mapping();
                }
                Err(_) => answer = answer.and(result),
            }
        }
        chunks.retain(|chunk| {
            if chunk.state != ChunkState::Created {
                return true;
            }
            self.calls.fetch_add(1, Ordering::Relaxed);
            let destroyed = self.backend.destroy(chunk.phys);
            answer = answer.and(destroyed);
            destroyed.is_err()
        });
        answer
    }

    /// Gives the memory of chunks back when the arena ends. A chunk that the backend refuses to take stays with the
    /// backend.
    pub(super) fn dissolve_all(&self, ground: &Ground, taken: Vec<Taken<B>>) {
        if let ArenaMemory::Chunks { bytes, .. } = self.memory {
            for mut taken in taken {
                let _ = self.dissolve(ground, bytes, &mut taken);
            }
        }
    }

    /// Removes the one mapping with its memory, if there is one, and returns the result of releasing the addresses.
    pub(super) fn end(&self, base: Va, bytes: u64) -> OpResult {
        if let ArenaMemory::Whole(phys) = self.memory {
            // If the contents cannot be dropped, the mapping goes with the addresses all the same.
            let _ = self.one(Op::Unmap { va: base, bytes });
            let _ = self.backend.destroy(phys);
        }
        self.backend.release(base, bytes)
    }
}

fn purge_of<P>(ground: &Ground, span: Span) -> Op<P> {
    let pages = ground.pages_of(span.start() as u32, span.len() as u32);
    Op::Purge { va: ground.va_of(pages.start() as u32), bytes: pages.len() << ground.page_shift }
}

/// Returns the numbers of the blocks that may hold contents, adjacent ones as one span; `taken` ascends by number.
pub(super) fn joined<B: Backend>(taken: &[Taken<B>]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for taken in taken.iter().filter(|taken| taken.block.touched > 0) {
        let one = Span::sized(u64::from(taken.number), 1).expect("one is not zero");
        match spans.last_mut() {
            Some(last) if last.end() == one.start() => *last = last.hull(one),
            _ => spans.push(one),
        }
    }
    spans
}
