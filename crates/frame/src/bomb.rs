//! What happens to a value that must not be dropped.
//!
//! Frames and references are owned by linear values. One that is dropped is a leak: debug builds panic, release builds lose the
//! frame. With the feature `std` a thread that is already unwinding is let off, so that a failing test shows its own message.

use core::fmt;

/// Whether this thread is unwinding. Without `std` nobody can tell, and a second panic aborts.
fn unwinding() -> bool {
    #[cfg(feature = "std")]
    return std::thread::panicking();
    #[cfg(not(feature = "std"))]
    return false;
}

/// Called when a linear value is dropped.
///
/// # Panics
/// In debug builds.
pub(crate) fn dropped(what: fmt::Arguments<'_>) {
    if cfg!(debug_assertions) && !unwinding() {
        panic!("INV-FRAME-LINEAR: leaked {what}");
    }
}
