//! The oracle of Pagewright: the judge of stale translations, and the reference memory.
//!
//! - [`Oracle`] – a [`pagewright_types::judge::Judge`]. It receives the facts that code declares
//!   and the accesses of the machine. It reports uses of stale translations (O1, O2) and, at rest,
//!   counts that the page tables contradict (O4).
//! - [`spec`] – the reference memory: the results that the calls and accesses of each process can
//!   have on a machine without a TLB (O3).
//! - [`walk`] – page-table walkers, written from the architecture manuals.
//! - [`Violation`] – a report as a value, with a text that names the CPU, the translation and the
//!   steps. [`Tally`] – how often each rule had something to judge; the silence of a rule that had
//!   nothing to judge is no evidence.
//!
//! `docs/oracle.md` has the rules, their preconditions and their blind spots. `CAVEATS.md` lists
//! what nothing here checks.
//!
//! The oracle is independent of the code that it judges: it depends on `types` alone and believes
//! only the declared facts.
//!
//! Not guaranteed: that silence is proof. A rule sees what a run did, not what another schedule
//! would have done.
//!
//! # Example
//!
//! A load that misses the last store is reported, as when a CPU uses a stale translation:
//!
//! ```
//! use pagewright_model::CpuStep;
//! use pagewright_model::spec::{CallResult, MappingFlags, MemoryCall, MmapObject, MmapPlacement, Spec};
//! use pagewright_types::{CpuId, Rights, SpaceId, VirtAddr};
//!
//! let (space, page) = (SpaceId::new(1), VirtAddr::new(0x1000));
//! let by = |step| CpuStep { cpu: CpuId::new(0), step };
//! let mut spec = Spec::new(VirtAddr::new(1 << 47), false);
//! spec.add_space(space, VirtAddr::new(0x10_0000));
//! let mmap = MemoryCall::Mmap {
//!     place: MmapPlacement::Fixed(page),
//!     len: 4096,
//!     rights: Rights::RW,
//!     shared: false,
//!     object: MmapObject::Anon,
//!     flags: MappingFlags::default(),
//! };
//! spec.call(by(1), space, mmap, CallResult::Mapped(page))?;
//! spec.store(by(2), space, page, 7)?;
//! let violation = spec.load(by(3), space, page, 0).expect_err("the load missed the store");
//! assert!(violation.to_string().contains("got 0x0; expected 0x7"));
//! # Ok::<(), Box<pagewright_model::Violation>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod census;
mod count;
mod oracle;
pub mod spec;
mod tally;
mod violation;
pub mod walk;

pub use census::{Census, SoftwareBits, SwapEntryFormat};
pub use count::{CountKind, CountMismatch};
pub use oracle::Oracle;
pub use tally::{Antecedent, Tally};
pub use violation::{CpuStep, DeferralEnd, Exposure, ReusedBlock, Rule, SpecMismatch, Violation, ViolationKind};

/// A hash map whose iteration order must not matter.
type FxHashMap<K, V> = hashbrown::HashMap<K, V, rustc_hash::FxBuildHasher>;
