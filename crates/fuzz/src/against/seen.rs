//! What a program sees of an operation, in one form for both sides.

use super::maps::Mapping;
use super::usage::Usage;
use pagewright_types::Errno;
use std::fmt;

/// A signal, as far as its handler could tell it from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Signal {
    /// `SIGSEGV`, `SEGV_MAPERR`.
    Unmapped,
    /// `SIGSEGV`, `SEGV_ACCERR`.
    Forbidden,
    /// `SIGBUS`, `BUS_ADRERR`.
    PastEnd,
    /// Another: its number and code.
    Other(i32, i32),
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The call returned this.
    Value(u64),
    /// The call failed.
    Failed(u16),
    /// The access got a signal.
    Signal(Signal),
    /// The call returned this and filled a buffer so.
    Bytes(u64, Vec<u8>),
    /// The mappings of the process.
    Maps(Vec<Mapping>),
    /// What they take.
    Usage(Usage),
    /// A word for each page.
    Pages(Vec<u64>),
    /// The access, or the child, was made.
    Done,
}

impl Seen {
    /// The errno's name, or nothing.
    pub fn errno(&self) -> &'static str {
        match self {
            Self::Failed(number) => Errno::from_number(*number).map_or("another errno", Errno::name),
            Self::Value(_)
            | Self::Signal(_)
            | Self::Bytes(..)
            | Self::Maps(_)
            | Self::Usage(_)
            | Self::Pages(_)
            | Self::Done => "",
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmapped => f.write_str("SIGSEGV (not mapped)"),
            Self::Forbidden => f.write_str("SIGSEGV (not allowed)"),
            Self::PastEnd => f.write_str("SIGBUS"),
            Self::Other(number, code) => write!(f, "signal {number}, code {code}"),
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => write!(f, "{value:#x}"),
            Self::Failed(number) => match Errno::from_number(*number) {
                Some(errno) => errno.fmt(f),
                None => write!(f, "errno {number}"),
            },
            Self::Signal(signal) => signal.fmt(f),
            Self::Bytes(value, bytes) => {
                write!(f, "{value:#x}, and ")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Self::Maps(mappings) => {
                write!(f, "{} mappings", mappings.len())?;
                mappings.iter().try_for_each(|mapping| write!(f, "\n      {mapping}"))
            }
            Self::Usage(usage) => usage.fmt(f),
            Self::Pages(words) => words.iter().try_for_each(|word| write!(f, "{:03x} ", word >> 52)),
            Self::Done => f.write_str("done"),
        }
    }
}
