//! Page-table trees on a machine of host threads, both instruction sets.

mod edits;
mod locks;
mod model;
mod soft;
mod space;
#[path = "../../../tlb/tests/support/mod.rs"]
mod support;

/// Runs each test on every instruction set.
#[macro_export]
macro_rules! on_both {
    ($($(#[$meta:meta])* $name:ident),* $(,)?) => {
        mod x86_64 { $(#[test] $(#[$meta])* fn $name() { super::$name::<pagewright_arch::X86_64>(); })* }
        mod aarch64 { $(#[test] $(#[$meta])* fn $name() { super::$name::<pagewright_arch::Aarch64>(); })* }
    };
}
