//! Enums declared as tables.
//!
//! Counters, events and costs each have a name, a meaning and a place in reports. One table
//! declares them once, and the enum and all its views come from it.

/// Declares an enum whose variants have a name and a meaning.
///
/// A row is `Variant = "name", "What it is, in a sentence.";`. The enum gets `ALL`, in the order of
/// the table, `COUNT`, `name()`, `named()`
/// and `meaning()`, and displays its name.
#[macro_export]
macro_rules! named_table {
    ($(#[$about:meta])* pub enum $table:ident { $($variant:ident = $name:literal, $meaning:literal;)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $table {
            $(#[doc = $meaning] $variant,)*
        }

        impl $table {
            /// All variants, in the order in which views print them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// The number of variants.
            pub const COUNT: usize = Self::ALL.len();

            /// The name in views.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The variant with this name.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|variant| variant.name() == name)
            }

            /// The meaning, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)*
                }
            }
        }

        impl ::core::fmt::Display for $table {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
