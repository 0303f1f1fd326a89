//! A loom for TLBs: page-table code runs on a simulated machine, under many schedules, and an
//! oracle says who could still use a translation that is gone.
//!
//! ```
//! use pagewright_check::*;
//!
//! const PAGE: VirtAddr = VirtAddr::new(0x40_0000);
//!
//! /// Page tables by hand (x86-64, four levels); gives the address of the last entry, and the page.
//! fn map_page(machine: &Machine<X86_64>) -> (PhysAddr, Pfn) {
//!     let kernel = machine.cpu(0);
//!     let tables: Vec<Pfn> = (0..5).map(|_| machine.take_frame()).collect();
//!     let entry = |level: usize| tables[3 - level].base().add((PAGE.raw() >> (12 + 9 * level) & 511) * 8);
//!     (0..4).for_each(|level| kernel.store(entry(level), tables[4 - level].base().raw() | 0b111));
//!     machine.cpus().for_each(|cpu| cpu.load_root(tables[0], Tag::new(1)));
//!     (entry(0), tables[4])
//! }
//!
//! let outcome = Check::<X86_64>::new().cpus(2).seed(1).explore(|machine| {
//!     let (entry, page) = map_page(machine);
//!     vec![
//!         program(move |cpu| {
//!             cpu.call("munmap", |cpu| {
//!                 cpu.reduces(PageRange::page(PAGE), Rights::empty());
//!                 cpu.swap(entry, 0);
//!                 cpu.flush_page(PAGE, Reach::Local); // The other CPU is forgotten.
//!                 cpu.give_frame(page);
//!             });
//!         }),
//!         program(|cpu| {
//!             let _ = cpu.read(PAGE);
//!         }),
//!     ]
//! });
//! outcome.expect_found(Rule::Rights);
//! assert!(outcome.to_string().contains("CPU 1 keeps a right that was taken"));
//! ```
//!
//! - [`Check`] – the front door: a closure that sets the machine up and gives each CPU a program.
//!   [`Machine`] and [`Cpu`] are what programs act on, [`Outcome`] is what came of it.
//!   `docs/check.md` says what to route and what to declare.
//! - [`Bench`] – a machine with its oracle and a journal, for a harness of one's own.
//! - [`hunt`], [`replay`] – many schedules until one fails, which is then cut down; and the same
//!   one again, from its [`Token`].
//! - [`Finding`] – what was found. [`explain`] draws how it came about: a column for each CPU, time
//!   downwards.
//!
//! Neighbours: the machine is `sim`, the oracle is `model`; both are judges, and neither they nor
//! this crate know what they judge.
//!
//! Not guaranteed: that silence is proof. An outcome says what was judged at all.
#![forbid(unsafe_code)]

mod bench;
mod check;
mod explain;
mod finding;
mod hunt;
mod journal;
mod machine;
mod outcome;

pub use bench::{Attempt, Bench, Detail};
pub use check::Check;
pub use explain::explain;
pub use finding::Finding;
pub use hunt::{Foreign, Found, Hunt, Plan, hunt, replay};
pub use journal::{Entry, Journal, Told};
pub use machine::{Answers, Cpu, Lock, Machine, Program, Unranked, program};
pub use outcome::Outcome;
pub use pagewright_arch::{Aarch64, Invalidate, Isa, IsaKind, Reach, Target, X86_64};
pub use pagewright_model::{Antecedent, Rule, Tally, Violation};
pub use pagewright_sim::PageFault;
pub use pagewright_sim::explore::{Chooser, Token, TokenError};
pub use pagewright_types::{
    Access, CpuId, CpuMask, Level, Order, PAGE_SIZE, PageRange, Pfn, PhysAddr, Rights, Tag, VirtAddr,
};
