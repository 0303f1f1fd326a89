//! The machine under Pagewright's kernel: everything that is assembly, unsafe or a device, on
//! x86-64 and arm64.
//!
//! Purpose: to show that the library crates run unchanged on real page tables. The machine is
//! handed to them as [`Machine`], which implements the effects trait of `arch` and the locks of
//! `sync`; the kernel above ([`Kernel`]) is safe Rust.
//!
//! | module | what | by |
//! | --- | --- | --- |
//! | `boot` | memory, nodes, CPUs, initramfs and command line, as firmware gives them | PVH and own ACPI tables (x86-64); Image header and `dtoolkit` (arm64) |
//! | `machine`, `locks` | `Effects`, `Platform`, `Backend` | own; `x86_64`, `aarch64-cpu` for registers |
//! | `counts` | what was asked through `Effects` | own |
//! | `stacks` | stacks of the CPUs that did not boot, with nothing mapped below | own |
//! | `heap` | kernel memory: a region at boot, blocks of frames afterwards | `talc` |
//! | `context` | user mode as a call: [`UserContext::run`] returns at the next [`Trap`] | own assembly |
//! | `user` | copies from and to user memory that report where they faulted | own assembly |
//! | `console`, `report` | the serial line; a second channel for whoever started the machine | `uart_16550`, `arm-pl011-uart`; the debug port, semihosting |
//! | `x86_64/`, `aarch64/` | the same names for both: boot code, traps, tables, interrupt controller, other CPUs, time | own APIC; `arm-gic`, `smccc` |
//!
//! ELF files, cpio archives and Linux's numbers are the kernel's business (`elf`, `cpio_reader`,
//! `linux-raw-sys`, `syscalls`).
//!
//! How the machine serves the memory manager:
//! - All physical memory is mapped linearly in the kernel's half, so an entry is one atomic word at
//!   its address. On x86-64 every root shares the boot tables' upper half: [`Machine`] writes those
//!   entries into a root when it is first installed, because the memory manager knows of user
//!   memory only. arm64 has a second base register.
//! - An IPI is an interrupt whose handler calls [`Kernel::handle_ipi`]. It comes in user mode and
//!   in the kernel alike: whoever waits, for a lock or for an answer, waits with interrupts open.
//! - Tags are PCIDs and ASIDs where the CPU has them; else switches flush.
//!
//! A CPU has one kernel stack. Nothing sleeps in the kernel: a call that must wait gives its CPU
//! back and is made again later. So no kernel context is ever switched, and a lock is never held
//! across anything but a shootdown.
//!
//! Nothing is mapped below a stack, and on arm64 every trap in the kernel looks whether its stack
//! has been left: then the machine ends with a line that says so.
//!
//! Not guaranteed: protection of the kernel from its other mistakes (its image is mapped writable
//! and executable), speculative attacks, NMIs, CPUs that come or go.
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
pub mod report;
mod stacks;
pub mod time;
pub mod user;

pub use arch::context::{Registers, UserContext};
pub use boot::{BootInfo, Node};
pub use heap::{grow as grow_heap, has_room};
pub use kernel::{Exception, Kernel, Trap, boot_info, hardware_capabilities, idle, poke, power_off, this_cpu};
pub use locks::KernelLocks;
pub use machine::Machine;
