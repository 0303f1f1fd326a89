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

/// Defines tests that are generic over the instruction set, for [`on_both!`], each in a row.
///
/// A row is `NAME: EXPRESSION;`. The expression may name the instruction set, `I`.
#[macro_export]
macro_rules! generic_tests {
    ($($(#[$about:meta])* $name:ident: $test:expr;)+) => {
        $($(#[$about])* fn $name<I: $crate::Isa>() { $test })+
    };
}
