//! Enums declared as tables.
//!
//! What has a name, a meaning and a place in reports – a counter, an event, a cost – is declared
//! once, in one table, from which the enum and all its views come.

/// Declares an enum whose variants have a name and a meaning:
/// `Variant = "name", "What it is, in a sentence.";`.
///
/// The enum gets `ALL` and `COUNT`, in the order of the table, `name()` and `meaning()`.
#[macro_export]
macro_rules! named_table {
    ($(#[$about:meta])* pub enum $table:ident { $($variant:ident = $name:literal, $meaning:literal;)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $table {
            $(#[doc = $meaning] $variant,)*
        }

        impl $table {
            /// All of them, in the order in which views print them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name under which views show it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// What it is, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)*
                }
            }
        }
    };
}
