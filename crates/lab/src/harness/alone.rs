//! Tests that plant a bug, or would see one, run one at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A planted bug is the whole process's.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}
