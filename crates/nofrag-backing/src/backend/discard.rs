//! Giving back the contents of many scattered ranges of private memory with few system calls.
//!
//! Ranges that touch are joined into one. The resulting ranges go to the kernel in vectors (`process_madvise` on
//! oneself, Linux 6.13 and later), since the costly part is the flush of the other processors' translation caches, and
//! a vector has one. The kernel may stop part-way, and then returns only the number of bytes: sums of the lengths say
//! which ranges that covers. A single range needs no vector: nothing would be saved.
//!
//! Source: docs/sources/backing.md#r5.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use super::host::pointer;
use super::submission::{Joined, join};
use super::{OpResult, Va};
use crate::sys;

/// The most ranges in one vector.
pub(super) const VECTOR: usize = 64;

/// The way to give contents back: by vectors, until the kernel is found not to take them.
#[derive(Debug, Default)]
pub(super) struct Discard {
    /// The kernel takes no vectors. No other memory depends on the flag: a reader of an old value tries once more, no
    /// harm done.
    refused: AtomicBool,
}

impl Discard {
    /// Gives the contents of disjoint ranges back, and notes the result of each.
    ///
    /// # Safety
    /// Every range lies in a reservation, and its contents are relied on by no one.
    pub(super) unsafe fn all(&self, ranges: &[(Va, u64)], done: &mut [OpResult]) {
        let joined = join(ranges);
        let mut rest = joined.as_slice();
        while !rest.is_empty() {
            let vector = &rest[..rest.len().min(VECTOR)];
            // SAFETY: the caller's promise.
            let (taken, refusal) = unsafe { self.vector(vector) };
            let (whole, after) = rest.split_at(taken);
            whole.iter().flat_map(|run| &run.members).for_each(|&place| done[place] = Ok(()));
            rest = after;
            // The range at which the kernel stopped, or a rest that is no vector, is done by itself.
            if let Some((first, after)) = rest.split_first().filter(|_| taken < vector.len()) {
                // SAFETY: the caller's promise.
                unsafe { self.single(first, ranges, done) };
                rest = after;
                self.learn(refusal, done[first.members[0]]);
            }
        }
    }

    /// Remembers that the kernel takes no vectors, if `refusal` means that. `single` is the result of the call that
    /// gave back the first refused range alone.
    fn learn(&self, refusal: Option<Errno>, single: OpResult) {
        let no_vectors = match refusal {
            Some(Errno::PERM | Errno::NOSYS | Errno::BADF) => true,
            // Also said of a range that is locked in memory; then by itself it is refused too.
            Some(Errno::INVAL) => single.is_ok(),
            _ => false,
        };
        if no_vectors {
            self.refused.store(true, Ordering::Relaxed);
        }
    }

    /// Gives the ranges of a vector back in one call, if the kernel takes vectors and there are two ranges or more.
    /// Returns how many of the first ranges were done whole, and the kernel's error if it did none.
    ///
    /// # Safety
    /// As [`all`](Self::all).
    unsafe fn vector(&self, vector: &[Joined]) -> (usize, Option<Errno>) {
        if vector.len() < 2 || self.refused.load(Ordering::Relaxed) {
            return (0, None);
        }
        let parts: Vec<libc::iovec> = vector
            .iter()
            .map(|run| libc::iovec { iov_base: pointer(run.va), iov_len: run.bytes as usize })
            .collect();
        // SAFETY: the caller's promise.
        match unsafe { sys::process_madvise(&parts, libc::MADV_DONTNEED) } {
            Ok(bytes) => (whole_ranges(vector.iter().map(|run| run.bytes), bytes as u64), None),
            Err(refusal) => (0, Some(refusal)),
        }
    }

    /// Gives ranges that touch back in one call; where that fails, in one call for each of them.
    ///
    /// # Safety
    /// As [`all`](Self::all).
    unsafe fn single(&self, run: &Joined, ranges: &[(Va, u64)], done: &mut [OpResult]) {
        // SAFETY: the caller's promise.
        let result = unsafe { discard(run.va, run.bytes) };
        for &place in &run.members {
            done[place] = match result {
                Err(_) if run.members.len() > 1 => {
                    let (va, bytes) = ranges[place];
                    // SAFETY: the caller's promise.
                    unsafe { discard(va, bytes) }
                }
                result => result,
            };
        }
    }
}

/// Gives the contents of one range back.
///
/// # Safety
/// The range lies in a reservation, and its contents are relied on by no one.
unsafe fn discard(va: Va, bytes: u64) -> OpResult {
    // SAFETY: the caller's promise.
    Ok(unsafe { sys::madvise(pointer(va), bytes as usize, libc::MADV_DONTNEED) }?)
}

/// Returns how many of the first ranges, by their lengths, the first `bytes` cover.
fn whole_ranges(lengths: impl Iterator<Item = u64>, bytes: u64) -> usize {
    let ends = lengths.scan(0, |end, length| {
        *end += length;
        Some(*end)
    });
    ends.take_while(|&end| end <= bytes).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_say_which_ranges_are_whole() {
        let check = |bytes, expected| {
            assert_eq!(whole_ranges([4, 8, 4].into_iter(), bytes), expected, "{bytes} bytes");
        };
        for (bytes, expected) in
            [(0, 0), (3, 0), (4, 1), (11, 1), (12, 2), (15, 2), (16, 3), (u64::MAX, 3)]
        {
            check(bytes, expected);
        }
    }
}
