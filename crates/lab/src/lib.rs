//! The memory manager on a simulated SMP machine, and the harness of its tests.
//!
//! * [`machine`] – joins the memory manager and the machine: accesses, faults, the shootdown IPI.
//! * [`caller`] – makes system calls for an address space of the lab.
//! * [`contention`] – first stores by many CPUs, and the price of the lines that they share.
//! * [`harness`] – for tests of the memory manager: a machine under the oracle, processes, devices
//!   that hold pages, and a recount of everything that is counted.
//!
//! # Example
//!
//! A store to new memory faults once; the second store needs no fault.
//!
//! ```
//! use pagewright_arch::X86_64;
//! use pagewright_lab::Lab;
//! use pagewright_mm::{MapRequest, MmSettings};
//! use pagewright_sim::MachineConfig;
//! use pagewright_types::{Access, Counter, CpuId, IsaKind, PAGE_SIZE};
//!
//! let lab = Lab::<X86_64>::new(MachineConfig::default_for(IsaKind::X86_64)?, MmSettings::default())?;
//! let cpu = CpuId::new(0);
//! let space = lab.on(cpu, |mm| mm.new_space())?;
//! let va = lab.on(cpu, |mm| mm.mmap(&space, &MapRequest::anonymous(PAGE_SIZE)))?;
//! lab.run(cpu, &space);
//! lab.touch(cpu, &space, va, Access::Write, 1)?;
//! lab.touch(cpu, &space, va, Access::Write, 1)?;
//! assert_eq!(lab.on(cpu, |mm| mm.counter(Counter::PgFault)), 1);
//! lab.on(cpu, |mm| {
//!     mm.tlb().leave_space();
//!     mm.end_space(&space);
//! });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod caller;
pub mod contention;
pub mod harness;
pub mod machine;

pub use caller::LabCaller;
pub use machine::{Lab, LabError};
