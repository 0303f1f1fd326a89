//! A loom for TLBs: page-table code runs on a simulated machine, under many schedules, and an
//! oracle says who could still use a translation that is gone.
//!
//! ```
//! use pagewright_check::*;
//!
//! const PAGE: VirtAddr = VirtAddr::new(0x40_0000);
//!
//! /// Page tables by hand (x86-64, four levels); gives the address of the last entry, and the page.
//! fn map_page(harness: &Harness<X86_64>) -> (PhysAddr, Pfn) {
//!     let kernel = harness.cpu(0);
//!     let tables: Vec<Pfn> = (0..5).map(|_| harness.alloc_frame()).collect();
//!     let entry = |level: usize| tables[3 - level].base().add((PAGE.raw() >> (12 + 9 * level) & 511) * 8);
//!     (0..4).for_each(|level| kernel.store(entry(level), tables[4 - level].base().raw() | 0b111));
//!     harness.cpus().for_each(|cpu| cpu.load_root(tables[0], Tag::new(1)));
//!     (entry(0), tables[4])
//! }
//!
//! let outcome = Check::<X86_64>::new().cpus(2).seed(1).explore(|harness| {
//!     let (entry, page) = map_page(harness);
//!     vec![
//!         program(move |cpu| {
//!             cpu.call("munmap", |cpu| {
//!                 cpu.will_reduce(PageRange::page(PAGE), Rights::empty());
//!                 cpu.swap(entry, 0);
//!                 cpu.flush_page(PAGE, InvalidateScope::Local); // The other CPU is forgotten.
//!                 cpu.free_frame(page);
//!             });
//!         }),
//!         program(|cpu| {
//!             let _ = cpu.read(PAGE);
//!         }),
//!     ]
//! });
//! outcome.expect_violation(Rule::Rights);
//! assert!(outcome.to_string().contains("CPU 1 keeps a right that was taken"));
//! ```
//!
//! - [`Check`] – the front door: a closure that sets the machine up and gives each CPU a program.
//!   [`Harness`] and [`Cpu`] are what programs act on, [`CheckOutcome`] is what came of it.
//!   `docs/check.md` says what to route and what to declare.
//! - [`Testbench`] – a machine with its oracle and a journal, for a harness of one's own.
//! - [`search`], [`replay`] – many schedules until one fails, which is then cut down; and the same
//!   one again, from its [`ReplayToken`].
//! - [`CheckFinding`] – what was found. [`explain`] draws how it came about: a column for each CPU,
//!   time downwards.
//!
//! Neighbours: the machine is `sim`, the oracle is `model`; both are judges, and neither they nor
//! this crate know what they judge.
//!
//! Not guaranteed: that silence is proof. An outcome says what was judged at all.
#![forbid(unsafe_code)]

mod check;
mod explain;
mod finding;
mod harness;
mod journal;
mod outcome;
mod search;
mod testbench;

pub use check::Check;
pub use explain::explain;
pub use finding::CheckFinding;
pub use harness::{Cpu, CpuProgram, Harness, HarnessLock, PendingIpis, Unranked, program};
pub use journal::{Journal, JournalEntry, JournalEvent};
pub use outcome::CheckOutcome;
pub use pagewright_arch::{Aarch64, Invalidate, InvalidateScope, InvalidateTarget, Isa, X86_64};
pub use pagewright_model::{Antecedent, Rule, Tally, Violation};
pub use pagewright_sim::PageFault;
pub use pagewright_sim::explore::{Chooser, ReplayToken, ReplayTokenError};
pub use pagewright_types::{
    Access, CpuId, CpuMask, IsaKind, Level, Order, PAGE_SIZE, PageRange, Pfn, PhysAddr, Rights, Tag, VirtAddr,
};
pub use search::{FailingSchedule, ForeignToken, Search, SearchPlan, replay, search};
pub use testbench::{Attempt, RunDetail, Testbench};
