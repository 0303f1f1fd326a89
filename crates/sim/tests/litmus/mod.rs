//! Litmus tests of explore mode.
//!
//! Each test is a shape: a few lines of code for each CPU, and the outcomes of the accesses at the
//! end. It runs under many seeds, random and PCT. The outcomes must be exactly those that the
//! architecture allows (INV-SIM-LITMUS). `docs/litmus.md` has the table of shapes.
//!
//! - `stage` – the machine, the instructions that shapes are written in, and the schedules.
//! - `arm64`, `x86_64` – the shapes of each. `deferred` – those of deferred flushes.

mod arm64;
mod deferred;
mod stage;
mod x86_64;
