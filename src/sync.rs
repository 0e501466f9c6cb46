//! Locking.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whether or not somebody panicked meanwhile: what each lock of this crate holds is changed
/// in steps that are whole or not begun, so it is sound.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
