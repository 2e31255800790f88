//! Lists whose lack of memory is an error.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

/// Returns a list of `count` copies of `value`.
pub(crate) fn filled<T: Clone>(count: usize, value: T) -> Result<Vec<T>, TryReserveError> {
    let mut list = Vec::new();
    grow(&mut list, count, value)?;
    Ok(list)
}

/// Returns a list of `count` values, made one by one.
#[cfg(any(feature = "std", feature = "spin", loom))]
pub(crate) fn made<T>(count: usize, make: impl FnMut() -> T) -> Result<Vec<T>, TryReserveError> {
    let mut list = Vec::new();
    list.try_reserve_exact(count)?;
    #[expect(clippy::disallowed_methods, reason = "there is room for all of them")]
    list.resize_with(count, make);
    Ok(list)
}

/// Returns a list of all values, however many there are.
pub(crate) fn gathered<T>(all: impl IntoIterator<Item = T>) -> Result<Vec<T>, TryReserveError> {
    let mut list = Vec::new();
    for value in all {
        list.try_reserve(1)?;
        put(&mut list, value);
    }
    Ok(list)
}

/// Adds a value for which there is room. A push without room would take memory, and end the process where there is
/// none.
#[inline]
pub(crate) fn put<T>(list: &mut Vec<T>, value: T) {
    debug_assert!(list.len() < list.capacity(), "room was made before");
    #[expect(clippy::disallowed_methods, reason = "there is room for it")]
    list.push(value);
}

/// Adds values for which there is room.
#[inline]
pub(crate) fn put_all<T>(list: &mut Vec<T>, all: impl IntoIterator<Item = T>) {
    let room = list.capacity();
    #[expect(clippy::disallowed_methods, reason = "there is room for them")]
    list.extend(all);
    debug_assert_eq!(list.capacity(), room, "room was made before");
}

/// Lengthens a list to `count` values by copies of `value`; a longer list stays as it is.
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
