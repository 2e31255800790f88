//! Lists of zeroes that take no memory before they are written, and whose want of memory is an error.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr;

/// There is no memory for the list, or it would be longer than the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoMemory;

/// Returns `count` values of zeroes.
///
/// # Safety
/// Zeroes must be a value of the type.
pub(crate) unsafe fn zeroed<T>(count: usize) -> Result<Box<[T]>, NoMemory> {
    let layout = Layout::array::<T>(count).map_err(|_| NoMemory)?;
    if layout.size() == 0 {
        return Ok(Box::new([]));
    }
    // SAFETY: the size is not zero, as was checked above.
    let first = unsafe { alloc_zeroed(layout) }.cast::<T>();
    if first.is_null() {
        return Err(NoMemory);
    }
    let values = ptr::slice_from_raw_parts_mut(first, count);
    // SAFETY: `alloc_zeroed` gave memory of exactly this layout, of which no other code knows, and the caller promises
    // that zeroes are values.
    Ok(unsafe { Box::from_raw(values) })
}

/// Collects the first `count` values of `list`, or all if it has fewer.
pub(crate) fn collected<T>(
    count: usize,
    list: impl IntoIterator<Item = T>,
) -> Result<Vec<T>, NoMemory> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| NoMemory)?;
    values.extend(list.into_iter().take(count));
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_no_memory_for_is_an_error() {
        for count in [usize::MAX, usize::MAX - 1, isize::MAX as usize / 8 + 1, 1 << 60] {
            // SAFETY: numbers may be zero.
            assert_eq!(unsafe { zeroed::<u64>(count) }, Err(NoMemory));
            assert_eq!(collected(count, std::iter::empty::<u64>()), Err(NoMemory));
        }
        for count in [0, 1, 1000] {
            // SAFETY: as above.
            let list = unsafe { zeroed::<u64>(count) }.unwrap();
            assert_eq!((list.len(), list.iter().sum()), (count, 0));
            assert_eq!(collected(count, 0..u64::MAX).unwrap().len(), count);
        }
    }
}
