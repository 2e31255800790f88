//! Lists of a stated length; a failed allocation is an error.

use std::collections::TryReserveError;

/// Lengthens `list` to `count` elements with copies of `value`; a longer list stays as it is.
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
