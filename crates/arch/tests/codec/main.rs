//! Tests of both codecs against the manuals.
//!
//! - [`manual`] – how a hardware walker reads a word, written from the manuals and not from the
//!   crate under test;
//! - [`strategy`] – random leaves, tables and soft entries;
//! - [`round_trip`], [`golden`], [`replacement`] – the tests, one body for both instruction sets.

/// Makes one test of each named function and each named instruction set.
macro_rules! for_each_isa {
    ([$($isa:ident in $module:ident),*] $names:tt) => {
        $(
            mod $module {
                for_each_isa!(@bodies $isa $names);
            }
        )*
    };
    (@bodies $isa:ident { $($name:ident),* $(,)? }) => {
        $(
            #[test]
            fn $name() {
                super::$name::<pagewright_arch::$isa>();
            }
        )*
    };
}

mod golden;
mod manual;
mod replacement;
mod round_trip;
mod strategy;
