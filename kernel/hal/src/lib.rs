//! The machine under Pagewright's kernel: all assembly, unsafe code and device drivers.
//!
//! It runs on x86-64 and arm64.
//!
//! The kernel shows that the library crates run unchanged on real page tables. They get the machine
//! as [`Machine`], which implements the effects trait of `arch` and the locks of `sync`. The kernel
//! above ([`KernelCallbacks`]) is safe Rust.
//!
//! | module | what | by |
//! | --- | --- | --- |
//! | `boot` | memory, nodes, CPUs, initramfs and command line, from firmware | PVH and own ACPI tables (x86-64); Image header and `dtoolkit` (arm64) |
//! | `machine`, `locks` | `Effects`, `Platform`, `Backend` | own; `x86_64`, `aarch64-cpu` for registers |
//! | `managed` | the frames that a physical address may name | own |
//! | `counts` | counters of the operations of `Effects` | own |
//! | `stacks` | stacks of the secondary CPUs, each above an unmapped guard | own |
//! | `heap` | kernel memory: a region at boot, blocks of frames afterwards | `talc` |
//! | `context` | user mode as a call: [`UserContext::run`] returns at the next [`Trap`] | own assembly |
//! | `user` | copies from and to user memory that report where they faulted | own assembly |
//! | `console`, `report` | the serial line; a second channel to the host | `uart_16550`, `arm-pl011-uart`; the debug port, semihosting |
//! | `x86_64/`, `aarch64/` | the same names for both: boot code, traps, tables, interrupt controller, secondary CPUs, time | own APIC; `arm-gic`, `smccc` |
//!
//! ELF files, cpio archives and Linux's numbers belong to the kernel above (`elf`, `cpio_reader`,
//! `linux-raw-sys`, `syscalls`).
//!
//! How the machine serves the memory manager:
//! - All physical memory is mapped linearly in the kernel's half, so an entry is one atomic word at
//!   its linear address. On x86-64 every root shares the upper half of the boot tables: [`Machine`]
//!   writes those entries into a root when it is first installed, because the memory manager
//!   handles user memory only. arm64 has a second base register.
//! - An IPI is an interrupt whose handler calls [`KernelCallbacks::handle_ipi`]. It is taken in
//!   user mode and in the kernel alike: a CPU that waits for a lock or an acknowledgement waits
//!   with interrupts enabled.
//! - Tags are PCIDs and ASIDs if the CPU has them. Otherwise a switch of spaces flushes the TLB.
//!
//! A CPU has one kernel stack. Nothing sleeps in the kernel: a call that must wait gives up its CPU
//! and is restarted later. No kernel context is ever switched, and no lock is held across anything
//! but a shootdown.
//!
//! Nothing is mapped below a stack. On arm64, every trap in the kernel also checks whether the
//! stack pointer has left its stack. An overflow ends the machine with a message.
//!
//! Not guaranteed: protection of the kernel from its other mistakes (its image is mapped writable
//! and executable), protection from speculative attacks, NMIs, CPU hotplug.
#![no_std]

extern crate alloc;

#[cfg(target_arch = "aarch64")]
#[path = "aarch64/mod.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64/mod.rs"]
mod arch;

mod boot;
pub mod console;
pub mod counts;
mod heap;
mod kernel;
mod locks;
mod machine;
mod managed;
pub mod report;
mod smp;
mod stacks;
pub mod time;
pub mod user;
mod user_asm;

pub use arch::context::{FaultRecord, Registers, UserContext};
pub use boot::{BootInfo, NodeInfo};
pub use heap::{can_allocate, grow as grow_heap};
pub use kernel::{
    Exception, FloatingException, KernelCallbacks, Trap, boot_info, describe_cpu, hardware_capabilities, idle, kick,
    power_off, this_cpu,
};
pub use locks::KernelLocks;
pub use machine::Machine;
