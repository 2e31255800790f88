//! Which addresses a backend has reserved: no system call is made for any other.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{BackendError, Va};

/// The reservations of a backend: disjoint, by their first address.
#[derive(Debug, Default)]
pub(super) struct Books(Mutex<BTreeMap<u64, u64>>);

impl Books {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        // No change can be left half done by a panic: each is one call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a reservation.
    pub(super) fn enter(&self, va: Va, bytes: u64) {
        self.lock().insert(va.0, bytes);
    }

    /// Strikes a reservation off, if it is exactly one.
    pub(super) fn strike(&self, va: Va, bytes: u64) -> Result<(), BackendError> {
        let mut books = self.lock();
        if books.get(&va.0) != Some(&bytes) {
            return Err(BackendError::WrongState);
        }
        books.remove(&va.0);
        Ok(())
    }

    /// Whether the range lies in one reservation.
    pub(super) fn check(&self, va: Va, bytes: u64) -> Result<(), BackendError> {
        let books = self.lock();
        let inside = books.range(..=va.0).next_back().is_some_and(|(&start, &reserved)| {
            bytes > 0 && bytes <= reserved && va.0 - start <= reserved - bytes
        });
        if inside { Ok(()) } else { Err(BackendError::WrongState) }
    }
}
