//! Linux's memory calls over Pagewright's memory manager.
//!
//! - [`LINUX_CALLS`] – every memory call of Linux with every flag that it takes, and how much of it
//!   is supported. `docs/linux-calls.md` is generated from it, and tests hold each row against the
//!   memory manager.
//! - [`KnownDifference`] – where results differ from Linux's on purpose. A test shows each of them
//!   beside the Linux that runs.
#![no_std]
#![forbid(unsafe_code)]

mod known_difference;
mod linux_calls;
mod support;

pub use known_difference::KnownDifference;
pub use linux_calls::LINUX_CALLS;
pub use support::{CallSupport, FlagSupport, Support, call_support};
