//! The memory manager on a simulated SMP machine, and the harness of its tests.
//!
//! * [`machine`] joins the subject and the machine: accesses, faults, the shootdown interrupt.
//! * [`harness`] is what tests of the memory manager stand on: a machine under judgement, processes
//!   that act call by call, devices that pin, and a recount of everything.

#![forbid(unsafe_code)]

pub mod harness;
pub mod machine;

pub use machine::{Lab, LabError};
