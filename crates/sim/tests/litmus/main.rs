//! Litmus tests of the machine that explores: an outcome that the architecture allows is reached,
//! one that it forbids is not.
//!
//! Each test is a shape: a few lines for each CPU, and what CPU 1 (or whoever reads) found. It runs
//! under many seeds, random and PCT, and the set of outcomes seen must be exactly the set that the
//! manual allows (INV-SIM-LITMUS). The table of shapes is `docs/litmus.md`.
//!
//! - `stage` – the machine, the instructions that shapes are written in, and the schedules under
//!   which they run.
//! - `arm64`, `x86_64` – the shapes.

mod arm64;
#[path = "../common/mod.rs"]
mod common;
mod stage;
mod x86_64;
