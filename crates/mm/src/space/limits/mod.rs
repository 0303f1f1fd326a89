//! The resource limits of a space, and the overcommit policy of the machine.

mod overcommit;
mod rlimit;

pub(crate) use overcommit::CommittedPages;
pub(in crate::space) use overcommit::Overcommit;
pub(crate) use rlimit::is_data;
pub use rlimit::{Privileges, Resource, Rlimit, Rlimits};
