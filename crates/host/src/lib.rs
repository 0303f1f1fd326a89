//! The computer underneath as a machine: its memory holds the frames, its CPUs clear them.
//!
//! - [`HostMemory`] – an arena of the host's memory, of huge pages where the host gives them.
//! - [`HostMachine`] – a [`Platform`](pagewright_sync::Platform) over such an arena. Entries and pages are
//!   read and written for real.
//! - [`run_as`], [`pin_to`] – which simulated CPU a thread is, and on which real one it stays.
//! - [`ThreadClock`], [`HostFacts`] – what time it is to a thread, and what this computer is.
//!
//! For what depends on real caches and memory: `evaluate clear`, and tests of clearing. Neighbours:
//! uses `tlb` and what is below; the program uses it.
//!
//! Not guaranteed: translations. Nothing walks the tables that are built here, so invalidations are
//! nothing, and there is nothing to wait for.
#![forbid(unsafe_code)]

mod clock;
mod cpu;
mod facts;
mod machine;
mod memory;

pub use clock::ThreadClock;
pub use cpu::{pin_to, real_cpus, run_as};
pub use facts::HostFacts;
pub use machine::{HostLocks, HostMachine};
pub use memory::{HostMemory, HostMemoryError};
