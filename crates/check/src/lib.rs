//! A loom for TLBs: finds stale translations that page-table code leaves behind.
//!
//! A test sets up a simulated SMP machine and gives each CPU a program. [`Check::explore`] runs the
//! programs under many schedules, and an oracle reports every CPU that could still use a
//! translation after the code said that it is gone: a missing flush, a flush that reaches too few
//! CPUs, a page table that is freed too early, a missing `dsb ishst`. A failing schedule is shrunk,
//! drawn, and replayed by a one-line token. The page-table code may be of any kernel, and need not
//! be modified.
//!
//! # Example
//!
//! This `munmap` flushes its own TLB only; the check finds the missing shootdown.
//!
//! ```
//! use pagewright_check::*;
//!
//! const PAGE: VirtAddr = VirtAddr::new(0x40_0000);
//!
//! /// Maps `PAGE` through four x86-64 tables; returns the address of its entry, and its frame.
//! fn map_page(harness: &Harness<X86_64>) -> (PhysAddr, Pfn) {
//!     let frames: Vec<Pfn> = (0..5).map(|_| harness.alloc_frame()).collect();
//!     let index = |level: usize| PAGE.raw() >> (12 + 9 * level) & 511;
//!     let entry = |level: usize| frames[3 - level].base().add(index(level) * 8);
//!     for level in 0..4 {
//!         harness.cpu(0).store(entry(level), frames[4 - level].base().raw() | 0b111);
//!     }
//!     harness.cpus().for_each(|cpu| cpu.load_root(frames[0], Tag::new(1)));
//!     (entry(0), frames[4])
//! }
//!
//! let outcome = Check::<X86_64>::new().cpus(2).explore(|harness| {
//!     let (entry, frame) = map_page(harness);
//!     let munmap = program(move |cpu| {
//!         cpu.call("munmap", |cpu| {
//!             cpu.will_reduce(PageRange::page(PAGE), Rights::empty());
//!             cpu.store(entry, 0);
//!             cpu.flush_page(PAGE, InvalidateScope::Local); // Bug: no shootdown of the other CPU.
//!             cpu.free_frame(frame);
//!         });
//!     });
//!     let read = program(|cpu| _ = cpu.read(PAGE));
//!     vec![munmap, read]
//! });
//! outcome.expect_violation(Rule::Reuse);
//! println!("{outcome}"); // The rule, the drawing of the schedule, and the replay token.
//! ```
//!
//! # Where things are
//!
//! - [The guide](#checking-page-table-code), below – what to route to the machine, what to declare,
//!   a tutorial, and what the check cannot see.
//! - [`Check`] – the entry point; [`CheckOutcome`] is its result, and prints as a report.
//! - [`Harness`], [`Cpu`] – what a program acts on.
//! - [`CheckFinding`] – what a run found; [`explain`] draws the run: a column for each CPU, time
//!   downwards.
//! - [`search`], [`replay`] – many schedules until one fails, which is then shrunk; and one
//!   schedule again, from its [`ReplayToken`].
//! - [`Testbench`] – a machine with its oracle and a journal, for a harness of one's own.
//!
//! Neighbours: the machine is `sim`, the oracle is `model`. Neither of them, nor this crate,
//! depends on the code that is checked.
//!
//! Not guaranteed: that code which passes is correct. [`CheckOutcome`] says how much was judged.
#![doc = include_str!("../guide.md")]
#![forbid(unsafe_code)]

mod check;
mod control;
mod cpu;
mod current;
mod exhaustive;
mod explain;
mod finding;
mod harness;
mod journal;
mod minimise;
mod outcome;
mod processes;
mod search;
mod testbench;
mod trapping;
mod user_code;
mod vacuity;

pub use check::Check;
pub use cpu::{Cpu, PendingIpis};
pub use current::{current, try_current};
pub use exhaustive::{ActReduction, Enumerated, SearchBounds, enumerate};
pub use explain::{explain, explain_briefly, missing_steps};
pub use finding::CheckFinding;
pub use harness::{CpuProgram, Harness, HarnessLock, Unranked, operations, program};
pub use journal::{CodeLocation, Journal, JournalEntry, JournalEvent};
pub use outcome::CheckOutcome;
pub use pagewright_arch::{Aarch64, Invalidate, InvalidateScope, InvalidateTarget, Isa, X86_64};
pub use pagewright_model::{Antecedent, Rule, Tally, Violation};
pub use pagewright_sim::PageFault;
#[doc(hidden)]
pub use pagewright_sim::explore::FootprintPart;
pub use pagewright_sim::explore::{
    Chooser, Footprint, ProgramPart, ReplayToken, ReplayTokenError, RunState, stops_so_far,
};
pub use pagewright_types::{
    Access, CpuId, CpuMask, Granule, IsaKind, Level, Order, PAGE_SIZE, PageRange, Pfn, PhysAddr, Rights, Tag, VirtAddr,
};
pub use search::{FailingSchedule, ForeignToken, Search, SearchPlan, replay, search, search_all, search_in_processes};
pub use testbench::{Attempt, RunDetail, Testbench};
pub use trapping::{MapMemory, SecondMapping, TrappedMachine};
pub use vacuity::Vacuity;
