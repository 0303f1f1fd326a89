//! What Pagewright supports of each memory call of Linux.
//!
//! Not guaranteed: anything that the kernel around the memory manager decides, such as which
//! process may act on which.

use crate::supported_calls::LINUX_CALLS;
use pagewright_types::Errno;

/// How much of a call, or of one of its flags, is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Everything that Linux does.
    Full,
    /// Everything but this.
    Partial(&'static str),
    /// Nothing: the call fails with this errno, for this reason.
    Refused(Errno, &'static str),
}

/// One flag of a call, or one of the numbers that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagSupport {
    /// Linux's name.
    pub name: &'static str,
    /// Linux's value.
    pub value: u32,
    /// How much of it is supported.
    pub support: Support,
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSupport {
    /// Linux's name, or several names that share a row, separated by commas.
    pub name: &'static str,
    /// How much of it is supported, flags aside.
    pub support: Support,
    /// Its flags.
    pub flags: &'static [FlagSupport],
}

/// The row of the table with this name.
pub fn call_support(name: &str) -> Option<&'static CallSupport> {
    LINUX_CALLS.iter().find(|call| call.name == name)
}

impl CallSupport {
    /// The flags that the call accepts.
    pub fn accepted_flags(&self) -> impl Iterator<Item = &'static FlagSupport> {
        self.flags.iter().filter(|flag| !matches!(flag.support, Support::Refused(..)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_unique() {
        for (index, call) in LINUX_CALLS.iter().enumerate() {
            assert!(!LINUX_CALLS[..index].iter().any(|other| other.name == call.name), "{} has two rows", call.name);
            for (index, flag) in call.flags.iter().enumerate() {
                let before = &call.flags[..index];
                assert!(!before.iter().any(|other| other.name == flag.name), "{} has two rows", flag.name);
                assert!(!before.iter().any(|other| other.value == flag.value), "{} repeats a value", flag.name);
            }
        }
        assert_eq!(call_support("mlock2").map(|call| call.accepted_flags().count()), Some(1));
    }
}
