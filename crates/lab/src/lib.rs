//! The memory manager on a simulated SMP machine, and the harness of its tests.
//!
//! * [`machine`] joins the subject and the machine: accesses, faults, the shootdown interrupt.
//! * [`caller`] lets a space of the lab make system calls.
//! * [`harness`] is what tests of the memory manager stand on: a machine under judgement, processes
//!   that act call by call, devices that pin, and a recount of everything.

#![forbid(unsafe_code)]

pub mod caller;
pub mod harness;
pub mod machine;

pub use caller::LabCaller;
pub use machine::{Lab, LabError};
