//! Random programs of memory calls, under the oracle and beside the host's Linux.
//!
//! * [`random`] – makes random programs, runs them on the lab under the oracle, and minimises the
//!   failing ones.
//! * [`against`] – runs random programs on the host's Linux too, and compares the results.
//!
//! # Example
//!
//! ```
//! use pagewright_arch::X86_64;
//! use pagewright_fuzz::random::{RandomProgram, fast_mode};
//!
//! // Four CPUs; 8 operations of setup, then 40 of the body; the seed 7.
//! let program: RandomProgram = "fast-4-8-40/7/all".parse()?;
//! let ran = fast_mode::run::<X86_64>(&program)?;
//! assert!(ran.findings.is_empty());
//! println!("{} accesses checked", ran.counts.checked());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod against;
pub mod random;
