//! The rules of a submission, the same for every backend: in order, each operation with a result of its own, and ranges
//! that a failure has touched are left alone.
//!
//! Source: docs/sources/backing.md#backends.

use std::collections::BTreeMap;
use std::mem::discriminant;

use super::{BackendError, Op, OpResult, Va};

/// Carries `ops` out in batches: neighbours of one kind that concern no address twice, nor one that a failure has
/// touched. Their order does not matter, so that a backend may join and sort them.
pub(super) fn in_batches<P>(
    ops: &[Op<P>],
    done: &mut [OpResult],
    mut carry_out: impl FnMut(&[Op<P>], &mut [OpResult]),
) {
    assert_eq!(ops.len(), done.len(), "a result for each operation");
    let mut failed = Ranges::default();
    let mut at = 0;
    while at < ops.len() {
        let count = batch(&ops[at..], &failed);
        if count == 0 {
            done[at] = Err(BackendError::Skipped);
            failed.add(&ops[at]);
            at += 1;
            continue;
        }
        let batch = at..at + count;
        carry_out(&ops[batch.clone()], &mut done[batch.clone()]);
        let results = ops[batch.clone()].iter().zip(&done[batch]);
        results.filter(|(_, result)| result.is_err()).for_each(|(op, _)| failed.add(op));
        at += count;
    }
}

pub(super) fn each<P>(
    ops: &[Op<P>],
    done: &mut [OpResult],
    carry_out: impl FnMut(&Op<P>) -> OpResult,
) {
    done.iter_mut().zip(ops.iter().map(carry_out)).for_each(|(done, result)| *done = result);
}

/// The most operations of a batch, so that the set of its addresses is bounded for any submission.
const MOST: usize = 1024;

/// Returns the number of operations, from the first one on, that make a batch; zero if a failure has touched a range of
/// the first.
fn batch<P>(ops: &[Op<P>], failed: &Ranges) -> usize {
    let mut taken = Ranges::default();
    let fits = |op: &&Op<P>| {
        let fits = discriminant(*op) == discriminant(&ops[0]);
        let fits = fits && !failed.concern(op) && !taken.concern(op);
        taken.add(op);
        fits
    };
    ops.iter().take(MOST).take_while(fits).count()
}

/// Ranges that touch, as one.
pub(super) struct Joined {
    pub(super) va: Va,
    pub(super) bytes: u64,
    /// The ranges, by their places in the caller's list, ascending by address.
    pub(super) members: Vec<usize>,
}

/// Joins disjoint ranges where they touch; the result ascends by address.
pub(super) fn join(ranges: &[(Va, u64)]) -> Vec<Joined> {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_unstable_by_key(|&place| ranges[place].0);
    let mut joined: Vec<Joined> = Vec::new();
    for place in order {
        let (va, bytes) = ranges[place];
        match joined.last_mut() {
            Some(last) if last.va.plus(last.bytes) == va => {
                last.bytes += bytes;
                last.members.push(place);
            }
            _ => joined.push(Joined { va, bytes, members: vec![place] }),
        }
    }
    joined
}

/// Disjoint ranges of addresses: the end of each, by its start.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Returns true if any address of the range is in the set.
    fn touches(&self, va: Va, bytes: u64) -> bool {
        let last = self.0.range(..va.0.saturating_add(bytes)).next_back();
        last.is_some_and(|(_, &end)| end > va.0)
    }

    /// Returns true if `op` concerns any address of the set.
    fn concern<P>(&self, op: &Op<P>) -> bool {
        let (va, bytes) = op.range();
        self.touches(va, bytes)
    }

    /// Adds all addresses that `op` concerns.
    fn add<P>(&mut self, op: &Op<P>) {
        let (va, bytes) = op.range();
        let (mut start, mut end) = (va.0, va.0.saturating_add(bytes));
        while let Some((&from, &to)) =
            self.0.range(..end).next_back().filter(|(_, to)| **to > start)
        {
            (start, end) = (start.min(from), end.max(to));
            self.0.remove(&from);
        }
        if start < end {
            self.0.insert(start, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn purge(va: u64, bytes: u64) -> Op<()> {
        Op::Purge { va: Va(va), bytes }
    }

    #[test]
    fn a_set_knows_what_touches_it() {
        let mut set = Ranges::default();
        for op in [purge(10, 5), purge(30, 5), purge(12, 10), purge(40, 0)] {
            set.add(&op);
        }
        for (op, expected) in [
            (purge(0, 10), false),
            (purge(0, 11), true),
            (purge(21, 1), true),
            (purge(22, 8), false),
            (purge(34, 100), true),
            (purge(39, 3), false),
            (purge(5, u64::MAX), true),
        ] {
            assert_eq!(set.concern(&op), expected, "{op:?}");
        }
    }

    /// Carries operations out so that those at `refused` fail; compares the batches, and the operations that were
    /// skipped.
    fn check_batches(ops: &[Op<()>], refused: u64, batches: &[usize], skipped: &[usize]) {
        let mut done = vec![Ok(()); ops.len()];
        let mut sizes = Vec::new();
        in_batches(ops, &mut done, |ops, done| {
            sizes.push(ops.len());
            each(ops, done, |op| {
                let (va, _) = op.range();
                if va.0 == refused { Err(BackendError::Unsupported) } else { Ok(()) }
            });
        });
        let is_skipped = |at: &usize| done[*at] == Err(BackendError::Skipped);
        assert_eq!(sizes, batches);
        assert_eq!((0..ops.len()).filter(is_skipped).collect::<Vec<_>>(), skipped);
    }

    #[test]
    fn a_batch_ends_where_an_address_comes_again_or_the_kind_changes() {
        let unmap = Op::Unmap { va: Va(99), bytes: 1 };
        let ops = [purge(0, 4), purge(8, 4), purge(4, 4), purge(7, 2), unmap, purge(0, 4)];
        check_batches(&ops, 1_000, &[3, 1, 1, 1], &[]);
    }

    #[test]
    fn a_batch_is_bounded_whatever_is_submitted() {
        let ops: Vec<Op<()>> = (0..MOST as u64 + 1).map(|place| purge(4 * place, 4)).collect();
        check_batches(&ops, u64::MAX, &[MOST, 1], &[]);
    }

    #[test]
    fn what_a_failure_has_touched_is_skipped_and_the_rest_goes_on() {
        let ops = [purge(0, 4), purge(8, 4), purge(9, 1), purge(9, 9), purge(17, 1), purge(2, 2)];
        check_batches(&ops, 8, &[2, 1], &[2, 3, 4]);
    }

    #[test]
    fn ranges_that_touch_are_one_call() {
        let ranges = [(Va(30), 10), (Va(0), 5), (Va(20), 10), (Va(6), 1)];
        let joined = join(&ranges);
        let found: Vec<_> = joined.iter().map(|run| (run.va.0, run.bytes)).collect();
        assert_eq!(found, [(0, 5), (6, 1), (20, 20)]);
        assert_eq!(joined[2].members, [2, 0]);
    }
}
