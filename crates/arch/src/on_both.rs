//! One test for each instruction set.

/// Makes a test of each function for each instruction set.
///
/// Each entry is the name of a function that is generic over [`Isa`](crate::Isa), or
/// `NAME: EXPRESSION`, which also defines the function. The expression may name the instruction
/// set, `I`. Attributes before the name apply to the tests.
#[macro_export]
macro_rules! on_both {
    ($($(#[$meta:meta])* $name:ident $(: $test:expr)?),* $(,)?) => {
        $($(fn $name<I: $crate::Isa>() { $test })?)*
        mod x86_64 { $(#[test] $(#[$meta])* fn $name() { super::$name::<$crate::X86_64>(); })* }
        mod aarch64 { $(#[test] $(#[$meta])* fn $name() { super::$name::<$crate::Aarch64>(); })* }
    };
}
