//! What there is of Linux's memory calls, as a table, and where answers are meant to differ from
//! Linux's.
//!
//! - [`CALLS`] – every memory call of Linux, with every flag and number that it takes.
//!   [`Difference`] – what differs on purpose.
//!
//! `docs/linux-calls.md` is made from both. Tests hold the first against the memory manager, flag
//! by flag, and the second against the Linux that runs.
//!
//! Not guaranteed: anything that a kernel's system-call layer decides, such as who may do what to
//! whom.

mod calls;
mod difference;

pub use calls::CALLS;
pub use difference::Difference;

use crate::Errno;

/// How much there is of a call or a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// All of it.
    Supported,
    /// Not all: this is missing.
    Partial(&'static str),
    /// Nothing: it is answered with this errno, for this reason.
    Refused(Errno, &'static str),
}

/// One flag, or one number out of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Linux's name.
    pub name: &'static str,
    /// Linux's value.
    pub value: u32,
    /// How much there is of it.
    pub status: Status,
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Linux's name, or several that belong together.
    pub name: &'static str,
    /// How much there is of it, flags aside.
    pub status: Status,
    /// Its flags.
    pub flags: &'static [Flag],
}

/// The call of this name, if it is in the table.
pub fn call(name: &str) -> Option<&'static Call> {
    CALLS.iter().find(|call| call.name == name)
}

impl Call {
    /// The flags that are taken.
    pub fn taken(&self) -> impl Iterator<Item = &'static Flag> {
        self.flags.iter().filter(|flag| !matches!(flag.status, Status::Refused(..)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_unique() {
        for (index, call) in CALLS.iter().enumerate() {
            assert!(!CALLS[..index].iter().any(|other| other.name == call.name), "{} is there twice", call.name);
            for (index, flag) in call.flags.iter().enumerate() {
                let before = &call.flags[..index];
                assert!(!before.iter().any(|other| other.name == flag.name), "{} is there twice", flag.name);
                assert!(!before.iter().any(|other| other.value == flag.value), "{} has another's value", flag.name);
            }
        }
        assert_eq!(call("mlock2").map(|call| call.taken().count()), Some(1));
    }
}
