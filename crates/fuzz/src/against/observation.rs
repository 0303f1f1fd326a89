//! What a program observes of an operation, in one form for both sides.

use super::maps::ShownMapping;
use super::memory_usage::MemoryUsage;
use pagewright_types::Errno;
use std::fmt;

/// A signal of an access, by number and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AccessSignal {
    /// `SIGSEGV`, `SEGV_MAPERR`.
    Unmapped,
    /// `SIGSEGV`, `SEGV_ACCERR`.
    Forbidden,
    /// `SIGBUS`, `BUS_ADRERR`.
    PastEnd,
    /// Another signal: number and code.
    Other(i32, i32),
}

/// The result of an operation, as the program observes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The call returned this value.
    Value(u64),
    /// The call failed with this errno.
    Failed(u16),
    /// The access got a signal.
    Signal(AccessSignal),
    /// The call returned this value and stored these bytes.
    Bytes(u64, Vec<u8>),
    /// The mappings of the process.
    Maps(Vec<ShownMapping>),
    /// The memory usage of the process.
    Usage(MemoryUsage),
    /// The `pagemap` word of each page.
    Pages(Vec<u64>),
    /// The faults of the operation that waited for no device (`min_flt`).
    Faults(u64),
    /// The access, the fork or the exit was successful.
    Done,
}

impl Observation {
    /// The name of the errno, empty for success.
    pub fn errno(&self) -> &'static str {
        match self {
            Self::Failed(number) => Errno::from_number(*number).map_or("unknown errno", Errno::name),
            Self::Value(_)
            | Self::Signal(_)
            | Self::Bytes(..)
            | Self::Maps(_)
            | Self::Usage(_)
            | Self::Pages(_)
            | Self::Faults(_)
            | Self::Done => "",
        }
    }
}

impl fmt::Display for AccessSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmapped => f.write_str("SIGSEGV (not mapped)"),
            Self::Forbidden => f.write_str("SIGSEGV (not allowed)"),
            Self::PastEnd => f.write_str("SIGBUS"),
            Self::Other(number, code) => write!(f, "signal {number}, code {code}"),
        }
    }
}

impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => write!(f, "{value:#x}"),
            Self::Failed(number) => match Errno::from_number(*number) {
                Some(errno) => errno.fmt(f),
                None => write!(f, "errno {number}"),
            },
            Self::Signal(signal) => signal.fmt(f),
            Self::Bytes(value, bytes) => {
                write!(f, "{value:#x}, bytes ")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Self::Maps(mappings) => {
                write!(f, "{} mappings", mappings.len())?;
                mappings.iter().try_for_each(|mapping| write!(f, "\n      {mapping}"))
            }
            Self::Usage(usage) => usage.fmt(f),
            Self::Pages(words) => words.iter().try_for_each(|word| write!(f, "{:03x} ", word >> 52)),
            Self::Faults(faults) => write!(f, "{faults} minor faults"),
            Self::Done => f.write_str("done"),
        }
    }
}
