//! A loom for TLBs: page-table code runs on a simulated machine, under many schedules, and an oracle says who could still use a translation
//! that is gone.
//!
//! - [`Bench`] – a machine with its oracle and a journal: what one run needs.
//! - [`hunt`], [`replay`] – many schedules until one fails, which is then cut down; and the same one again, from its [`Token`].
//! - [`Finding`] – what was found. [`explain`] draws how it came about: a column for each CPU, time downwards.
//!
//! Neighbours: the machine is `sim`, the oracle is `model`; both are judges, and neither they nor this crate know what they judge.
//!
//! Not guaranteed: that silence is proof. See [`Hunt::tally`] for what was judged at all.
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
pub use pagewright_sim::explore::{Chooser, Token};
pub use pagewright_types::{
    Access, CpuId, CpuMask, Level, Order, PAGE_SIZE, PageRange, Pfn, PhysAddr, Rights, Tag, VirtAddr,
};
