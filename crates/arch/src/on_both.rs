//! One test for each instruction set.

/// Makes a test of each function for each instruction set.
///
/// Each function is generic over [`Isa`](crate::Isa); attributes before its name apply to its
/// tests.
#[macro_export]
macro_rules! on_both {
    ($($(#[$meta:meta])* $name:ident),* $(,)?) => {
        mod x86_64 { $(#[test] $(#[$meta])* fn $name() { super::$name::<$crate::X86_64>(); })* }
        mod aarch64 { $(#[test] $(#[$meta])* fn $name() { super::$name::<$crate::Aarch64>(); })* }
    };
}
