//! What happens to a value that must not be dropped.
//!
//! Frames, references and debts are owned by linear values: each is ended by the call that takes
//! it. One that is dropped is a mistake, and debug builds panic. A thread that is unwinding drops
//! them by no fault of their own; a second panic would abort the process and hide the first, so it
//! is let off.
//!
//! Only a hosted system can tell whether it unwinds: with the feature `std` it is asked, and
//! whoever runs this crate there sets the feature. Elsewhere a panic does not unwind. It is a
//! feature and no method of [`Backend`](crate::Backend), because a block of frames or a reference
//! has no machine in its type that its drop could ask.

use core::fmt;

#[cfg(feature = "std")]
extern crate std;

fn unwinding() -> bool {
    #[cfg(feature = "std")]
    return std::thread::panicking();
    #[cfg(not(feature = "std"))]
    return false;
}

/// Called when a linear value is dropped; `broken` names the invariant and the value.
///
/// # Panics
/// In debug builds, unless the thread is unwinding.
#[cold]
pub fn dropped(broken: fmt::Arguments<'_>) {
    if cfg!(debug_assertions) && !unwinding() {
        panic!("{broken}");
    }
}
