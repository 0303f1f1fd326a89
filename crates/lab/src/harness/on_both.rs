//! One test for each instruction set.

/// Makes a test of each function for each instruction set.
#[macro_export]
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod x86_64 { $(#[test] fn $name() { super::$name::<pagewright_arch::X86_64>(); })* }
        mod aarch64 { $(#[test] fn $name() { super::$name::<pagewright_arch::Aarch64>(); })* }
    };
}
