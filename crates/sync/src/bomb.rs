//! The panic of a value that must not be dropped.
//!
//! Linear values own frames, references and debts: a call consumes each of them. Dropping one is a
//! bug, and debug builds panic. A thread that unwinds is exempt, because it drops values that its
//! code would have consumed, and a second panic would abort the process and hide the first.
//!
//! Only `std` can tell whether a thread unwinds, so a hosted user of this crate enables the feature
//! `std`. On bare metal a panic does not unwind. It is a feature and not a method of
//! [`Backend`](crate::Backend), because the type of a block of frames or of a reference names no
//! backend.

use core::fmt;

#[cfg(feature = "std")]
extern crate std;

fn unwinding() -> bool {
    #[cfg(feature = "std")]
    return std::thread::panicking();
    #[cfg(not(feature = "std"))]
    return false;
}

/// Reports the drop of a linear value; `broken` names the invariant and the value.
///
/// # Panics
/// In debug builds, unless the thread unwinds.
#[cold]
pub fn dropped(broken: fmt::Arguments<'_>) {
    if cfg!(debug_assertions) && !unwinding() {
        panic!("{broken}");
    }
}
