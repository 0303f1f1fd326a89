//! Random programs under the oracle.
//!
//! A program consists of memory calls and accesses of several processes on several CPUs.
//!
//! - [`RandomProgram`] – the operations that a [`ProgramShape`] and a seed determine; one line of
//!   text names it. [`Operation`] – one operation.
//! - [`fast_mode`] – runs one operation after another. [`explore_mode`] – interleaves the CPUs'
//!   operations at every effect, under many schedules.
//! - [`survey()`] – runs many programs in both modes. [`BugReport`] – a finding with its minimised
//!   program; [`replay`] – runs a program again.
//! - `program_run`: the machine under the oracle, its memory manager, the reference memory, the
//!   processes. `calls`, `exclusive_calls`, `file_calls`, `kernel_operation`, `access`: the
//!   operations. `registers`: a call's number and registers. `final_checks`: the checks after the
//!   last operation.
//!
//! ```text
//!   program ──▶ run ──▶ memory manager ──▶ machine ──▶ oracle (O1, O2)
//!                └────▶ reference memory (O3)          at the end: counts (O4), every page, leaks
//! ```
//!
//! Nothing here knows what the memory manager should do: the reference memory decides what a call
//! may return and what a page may show. In programs of [`Theme::Calls`], exclusive calls overlap
//! and their results cannot be predicted. The reference memory does not follow these programs; the
//! other rules apply.
//!
//! Not guaranteed: that programs resemble those of users. They collide on a few pages, and some of
//! their arguments are invalid.

mod access;
mod antecedents;
mod calls;
mod exclusive_calls;
pub mod explore_mode;
mod family;
pub mod fast_mode;
mod file_calls;
mod final_checks;
mod generator;
mod huge;
mod kernel_operation;
mod lingering;
mod meetings;
mod minimise;
mod operation;
mod operation_counts;
mod program;
mod program_run;
mod raw_calls;
pub(crate) mod registers;
mod step_checks;
mod survey;
mod swap;
mod syscall;
mod window;

pub use antecedents::{needs_schedules, without_mechanism};
pub(crate) use generator::FILE_PAGES;
pub use kernel_operation::KernelOperation;
pub use meetings::{MEETINGS, Meeting};
pub(crate) use minimise::remove_operations;
pub use minimise::{BugReport, smallest};
pub use operation::{MappedObject, Operation, ProgramStep};
pub use operation_counts::OperationCounts;
#[cfg(feature = "planted")]
pub use pagewright_plant::{PlantedBug, choose as plant};
pub use program::{ParseProgramError, ProgramMode, ProgramNodes, ProgramShape, RandomProgram, Theme};
pub use survey::{
    ProgramReplayError, Survey, SurveyPlan, calls_program, explored_program, fast_program, replay, survey,
};
pub use syscall::{FileDescriptor, Syscall};
pub(crate) use window::{HEAP, Window};
