//! TLB debts and engines on a machine of host threads, both instruction sets.

mod batch;
mod broadcast;
mod dropped;
mod hotplug;
mod ipi;
mod ledger;
mod order;
mod secondary;
mod space;
#[path = "../support/mod.rs"]
mod support;
mod threads;

/// Runs each test on every instruction set.
#[macro_export]
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod x86_64 { $(#[test] fn $name() { super::$name::<pagewright_arch::X86_64>(); })* }
        mod aarch64 { $(#[test] fn $name() { super::$name::<pagewright_arch::Aarch64>(); })* }
    };
}
