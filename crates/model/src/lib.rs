//! The oracle of Pagewright: who could still use a translation that is gone, and what memory should
//! hold.
//!
//! - [`Oracle`] – a [`pagewright_types::judge::Judge`]. It hears the facts that code declares and
//!   what the machine does, and reports every use of a stale translation (O1, O2), and at rest
//!   every count that the tables contradict (O4).
//! - [`spec`] – a reference memory: what each call and access of each process may answer on a
//!   machine without any TLB (O3).
//! - [`walk`] – page-table walkers of its own, from the architecture manuals.
//! - [`Violation`] – what is reported: values, with a text that says who holds what since when.
//!   [`Tally`] – how often each rule had something to judge; a rule that never had is no evidence.
//!
//! The rules, what each relies on and what it can't see are in `docs/oracle.md`; what nobody here
//! checks is in `CAVEATS.md`.
//!
//! Independent of its subject by construction: it depends on `types` alone and believes nothing but
//! the declared facts.
//!
//! Not guaranteed: that silence is proof. A rule sees what a run did, not what another schedule
//! would have done.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod census;
mod oracle;
pub mod spec;
mod tally;
mod violation;
pub mod walk;

pub use census::{Census, SoftwareBits, SwapEntryFormat};
pub use oracle::Oracle;
pub use tally::{Antecedent, Tally};
pub use violation::{
    CountKind, CountMismatch, CpuStep, Exposure, ReusedBlock, Rule, SpecMismatch, Violation, ViolationKind,
};

/// A map whose order means nothing.
type FxHashMap<K, V> = hashbrown::HashMap<K, V, rustc_hash::FxBuildHasher>;
