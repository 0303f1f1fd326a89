//! Tests that are about both instruction sets.

/// Runs each test on every instruction set.
#[macro_export]
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod x86_64 { $(#[test] fn $name() { super::$name::<pagewright_arch::X86_64>(); })* }
        mod aarch64 { $(#[test] fn $name() { super::$name::<pagewright_arch::Aarch64>(); })* }
    };
}
