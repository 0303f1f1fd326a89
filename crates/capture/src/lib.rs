//! Captures of the memory accesses and memory calls of real programs, and their replay.
//!
//! # Example
//!
//! A captured shell script runs on a simulated arm64 machine, which counts its forks.
//!
//! ```
//! use pagewright_capture::replay::{ReplayConfig, replay};
//! use pagewright_capture::trace::TraceReader;
//! use pagewright_sim::MachineConfig;
//! use pagewright_types::IsaKind;
//!
//! let mut capture = TraceReader::open("../../tests/captures/shell.pwt")?;
//! let machine = MachineConfig::default_for(IsaKind::Aarch64)?;
//! let report = replay(IsaKind::Aarch64, &mut capture, &ReplayConfig::new(machine))?;
//! assert!(report.counters.get("pw_fork") > Some(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! * [`trace`] defines the events and the file format, and streams them.
//! * [`record`] runs a program natively for Linux's counts, and under valgrind for its trace.
//! * [`import`] converts logs of valgrind's lackey into a trace.
//! * [`workload`] generates the traces of small built-in programs.
//! * [`replay`] repeats a trace on the lab and reports counts and modelled times.
//! * [`pageout`] pages shared memory out and in, as the mail of the batched-flush series does.
//! * [`contents`] counts what a trace holds.
//! * [`ImageCounts`] are the counts of a program image, in a replay or on Linux.
//! * [`cleanup`] removes temporary files, also when the program is interrupted.
//!
//! A trace has addresses of the captured program ([`trace::UserAddr`], [`trace::PageNo`]) and is
//! independent of the simulated machine. [`replay`] converts them to addresses of the machine.

#![forbid(unsafe_code)]

pub mod cleanup;
pub mod contents;
mod image_counts;
pub mod import;
pub mod pageout;
pub mod record;
pub mod replay;
pub mod trace;
pub mod workload;

pub use image_counts::ImageCounts;
