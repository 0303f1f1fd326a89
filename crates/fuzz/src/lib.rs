//! Random programs of memory calls: under the oracle, and beside the Linux underneath.
//!
//! * [`random`] makes programs up, runs them on the lab under the oracle, and cuts a failing one
//!   down.
//! * [`against`] runs such programs on this computer's Linux too, and compares what both answer.

#![forbid(unsafe_code)]

pub mod against;
pub mod random;
