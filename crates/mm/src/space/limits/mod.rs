//! What a space may have, and what the machine has promised to all of them.

mod overcommit;
mod rlimit;

pub(crate) use overcommit::CommittedPages;
pub(in crate::space) use overcommit::Overcommit;
pub(crate) use rlimit::is_data;
pub use rlimit::{Privileges, Resource, Rlimit, Rlimits};
