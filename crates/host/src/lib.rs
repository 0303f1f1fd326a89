//! The host as a machine: host memory holds the frames, and host CPUs clear them.
//!
//! - [`HostMemory`] – an arena of host memory, of huge pages if the host provides them.
//! - [`HostMachine`] – a [`Platform`] over such an arena. It reads and writes entries and pages in
//!   real memory.
//! - [`TableMachine`] – a machine that stores page tables and no contents of pages, so it may have
//!   more memory than the host. It counts accesses to entries.
//! - [`run_as`], [`pin_to`] – which CPU of the machine a thread is, and to which CPU of the host it
//!   is pinned.
//! - [`measure_clearing`] – chooses the stores that clear memory fastest on this host.
//! - [`ThreadClock`], [`HostFacts`] – the CPU time of a thread, and a description of the host.
//!
//! # Example
//!
//! ```
//! use pagewright_arch::Effects;
//! use pagewright_host::{HostMachine, HostMemory};
//! use pagewright_types::{Order, Pfn, PhysAddr};
//!
//! // A machine of 512 frames and two CPUs.
//! let memory = HostMemory::try_new(512)?;
//! let machine = HostMachine::new(memory, 2);
//! machine.write(PhysAddr::new(0x1002), b"page 1");
//! let mut bytes = [0; 6];
//! machine.read(PhysAddr::new(0x1002), &mut bytes);
//! assert_eq!(&bytes, b"page 1");
//!
//! machine.zero(Pfn::new(1), Order::ZERO);
//! assert!(memory.holds(Pfn::new(1), Order::ZERO, 0));
//! # Ok::<(), pagewright_host::HostMemoryError>(())
//! ```
//!
//! For measurements and tests that depend on real caches and memory: `evaluate clear`, and the
//! tests of clearing. Neighbours: uses `tlb` and the crates below; the program uses it.
//!
//! Not guaranteed: translations. No CPU walks the page tables built here, so invalidations do
//! nothing and complete at once.
#![forbid(unsafe_code)]

mod clock;
mod cpu;
mod facts;
mod machine;
mod measure;
mod memory;
mod table_machine;

pub use clock::ThreadClock;
pub use cpu::{pin_to, real_cpus};
pub use facts::HostFacts;
pub use machine::HostMachine;
pub use measure::measure_clearing;
pub use memory::{HostMemory, HostMemoryError};
pub use pagewright_sync::host::{HostLocks, run_as};
pub use pagewright_sync::{Arc, Platform};
pub use table_machine::TableMachine;
