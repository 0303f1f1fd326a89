//! Page-table trees on a machine of host threads, both instruction sets.

/// Tests for both instruction sets, on machines that see each access and on those that offer words.
macro_rules! on_both_also_as_words {
    ($($(#[$meta:meta])* $name:ident),* $(,)?) => {
        pagewright_arch::on_both! { $($(#[$meta])* $name,)* }
        mod as_words {
            use crate::support::as_words;
            mod x86_64 {
                $(#[test] $(#[$meta])* fn $name() { super::as_words(super::super::$name::<pagewright_arch::X86_64>); })*
            }
            mod aarch64 {
                $(#[test] $(#[$meta])* fn $name() { super::as_words(super::super::$name::<pagewright_arch::Aarch64>); })*
            }
        }
    };
}

mod edits;
mod folios;
mod for_all;
mod huge;
mod locks;
mod model;
mod path;
mod pending;
mod publish;
mod runs;
mod sharing;
mod soft;
mod space;
#[path = "../../../tlb/tests/support/mod.rs"]
mod support;
