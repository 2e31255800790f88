//! Lists of a stated length, whose want of memory is an error.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

/// `count` times the value.
pub(crate) fn filled<T: Clone>(count: usize, value: T) -> Result<Vec<T>, TryReserveError> {
    let mut list = Vec::new();
    grow(&mut list, count, value)?;
    Ok(list)
}

/// `count` values, made one by one.
#[cfg(any(feature = "std", feature = "spin", loom))]
pub(crate) fn made<T>(count: usize, make: impl FnMut() -> T) -> Result<Vec<T>, TryReserveError> {
    let mut list = Vec::new();
    list.try_reserve_exact(count)?;
    #[expect(clippy::disallowed_methods, reason = "there is room for all of them")]
    list.resize_with(count, make);
    Ok(list)
}

/// Makes a list `count` values long, unless it is longer.
pub(crate) fn grow<T: Clone>(
    list: &mut Vec<T>,
    count: usize,
    value: T,
) -> Result<(), TryReserveError> {
    let missing = count.saturating_sub(list.len());
    list.try_reserve_exact(missing)?;
    #[expect(clippy::disallowed_methods, reason = "there is room for all of them")]
    list.resize(list.len() + missing, value);
    Ok(())
}
