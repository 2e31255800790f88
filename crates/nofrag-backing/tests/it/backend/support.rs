//! Helpers of the tests of backends.

use std::ptr;

use nofrag::check::Check;
use nofrag_backing::backend::{Anonymous, Backend, HostMemory, Memfd, Op, OpResult, Va};

use crate::arena::ghosts::Simulated;

/// A generator (splitmix): the same numbers for the same seed, everywhere.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    pub(super) fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        (!from.is_empty()).then(|| &from[self.below(from.len() as u64) as usize])
    }
}

/// The thing to which the contents that a mapping shows belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// Contents belong to the memory: mapped elsewhere, it shows the same.
    OfMemory,
    /// Contents belong to the mapping: another one of the same memory has its own.
    OfMapping,
}

/// A backend as tests see it: with contents, and laws.
pub(super) trait Subject: Backend {
    const CONTENTS: Contents;

    /// Writes to the first bytes of a mapped granule.
    fn store(&self, va: Va, value: u64);

    /// Reads the first bytes of a mapped granule.
    fn load(&self, va: Va) -> u64;

    /// Returns true if a mapped granule holds the value; zero means that nothing was written.
    fn holds(&self, va: Va, value: u64) -> bool {
        self.load(va) == value
    }

    /// Checks every law that the backend states.
    fn laws(&self);
}

/// Writes to memory of this process that a backend says is mapped.
pub(super) fn store(_: &impl HostMemory, va: Va, value: u64) {
    // SAFETY: the caller has mapped it, and `HostMemory` promises that it can be written then; it is aligned as a page
    // is, and no other thread of the test uses it.
    unsafe { ptr::with_exposed_provenance_mut::<u64>(va.0 as usize).write_volatile(value) };
}

/// Reads from memory of this process that a backend says is mapped.
pub(super) fn load(_: &impl HostMemory, va: Va) -> u64 {
    // SAFETY: as in `store`; every pattern of bits is a number.
    unsafe { ptr::with_exposed_provenance::<u64>(va.0 as usize).read_volatile() }
}

impl Subject for Anonymous {
    const CONTENTS: Contents = Contents::OfMapping;

    fn store(&self, va: Va, value: u64) {
        store(self, va, value);
    }

    fn load(&self, va: Va) -> u64 {
        load(self, va)
    }

    fn laws(&self) {
        self.check().unwrap();
    }
}

impl Subject for Memfd {
    const CONTENTS: Contents = Contents::OfMemory;

    fn store(&self, va: Va, value: u64) {
        store(self, va, value);
    }

    fn load(&self, va: Va) -> u64 {
        load(self, va)
    }

    fn laws(&self) {
        self.check().unwrap();
    }
}

impl Subject for Simulated {
    const CONTENTS: Contents = Contents::OfMemory;

    fn store(&self, va: Va, _: u64) {
        self.touch(va, 1).unwrap();
    }

    fn load(&self, va: Va) -> u64 {
        u64::from(Simulated::holds(self, va).unwrap())
    }

    /// Compares only whether the page has contents: the simulated backend knows no more.
    fn holds(&self, va: Va, value: u64) -> bool {
        Simulated::holds(self, va) == Some(value != 0)
    }

    fn laws(&self) {
        self.check();
    }
}

/// Submits operations; returns their results.
pub(super) fn submit<B: Backend>(backend: &B, ops: &[Op<B::Phys>]) -> Vec<OpResult> {
    let mut done = vec![Ok(()); ops.len()];
    backend.submit(ops, &mut done);
    done
}

/// Submits one operation, and returns its result.
pub(super) fn one<B: Backend>(backend: &B, op: Op<B::Phys>) -> OpResult {
    submit(backend, &[op]).remove(0)
}
