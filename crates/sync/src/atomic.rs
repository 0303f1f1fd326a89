//! The atomics of this crate, in one place so that a model checker can replace them.
//!
//! Without `--cfg loom` they are the types of `core`, and interchangeable with them. Under
//! `--cfg loom`, which only the loom tests of this crate set, they are loom's, and the tests
//! explore every execution that the memory model allows. It is a cfg and not a feature, because
//! Cargo unifies features over a build, and loom's atomics work only inside a loom model.
//!
//! Not guaranteed: that loom models the order of sequentially consistent loads and stores. It
//! treats them as acquire and release.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Defines a constructor that is `const`, except under loom, whose atomics have none.
macro_rules! const_unless_loom {
    ($(#[$meta:meta])* pub fn $name:ident($($arg:ident: $kind:ty),*) -> Self $body:block) => {
        $(#[$meta])*
        #[cfg(not(loom))]
        pub const fn $name($($arg: $kind),*) -> Self $body

        $(#[$meta])*
        #[cfg(loom)]
        pub fn $name($($arg: $kind),*) -> Self $body
    };
}
pub(crate) use const_unless_loom;
