//! Traps privileged x86-64 instructions and executes them on `pagewright-check`'s machine.
//!
//! Code that executes `INVLPG` or `MOV CR3` itself faults on a host, because user mode may not.
//! With [`route`], the fault is trapped, the instruction is executed on the machine and the CPU
//! that run now, and the code goes on after it. So a crate that flushes by its own instructions
//! runs unmodified.
//!
//! # Example
//!
//! ```
//! # #[cfg(all(target_arch = "x86_64", target_os = "linux"))] {
//! use pagewright_check::*;
//! use std::arch::asm;
//!
//! pagewright_trap::route();
//! let outcome = Check::<X86_64>::new().schedules(1).explore(|harness| {
//!     let root = harness.alloc_frame();
//!     vec![program(move |cpu| {
//!         let (value, read) = (root.base().raw(), 0_u64);
//!         // SAFETY: the instructions are executed on the simulated machine.
//!         unsafe { asm!("mov cr3, {}", "mov {}, cr3", in(reg) value, inout(reg) read => _) };
//!         assert_eq!(cpu.read_cr3(), root.base().raw());
//!     })]
//! });
//! assert!(outcome.finding().is_none());
//! # }
//! ```
//!
//! # What is routed
//!
//! | instruction | on the machine |
//! | --- | --- |
//! | `INVLPG` | `Cpu::flush_page` |
//! | `INVPCID` | `Cpu::invalidate` |
//! | `MOV CR3`, `MOV CR4` | `Cpu::write_cr3`, `Cpu::write_cr4`; reads, too |
//! | `CLI`, `STI` | `Cpu::set_interrupts` |
//! | `HLT` | `Cpu::relax` |
//!
//! # How
//!
//! ```text
//!   INVLPG ─#GP─▶ signal handler: a known instruction, and a check runs on this thread?
//!                   └▶ returns to the thunk, on the stack of the code, below its red zone
//!                        └▶ saves all registers ─▶ service: executes it; other CPUs may run
//!                             └▶ restores all registers, returns behind the instruction
//! ```
//!
//! Stores to page tables through pointers become scheduling points with
//! [`Check::trap_pointer_stores`] and [`map_memory`]:
//!
//! ```text
//!   store to a watched frame ─page fault─▶ signal handler ─▶ thunk: before_store, other CPUs may run
//!     ─▶ the frame is made writable; the instruction is executed with RFLAGS.TF ─▶ #DB
//!     ─▶ signal handler ─▶ thunk: the frame is protected again, after_store ─▶ the next instruction
//! ```
//!
//! No CPU is switched on the signal stack, which all coroutines share. A signal for any other
//! reason goes to the handler that was there before, such as that of the coroutines for overflows
//! of their stacks.
//!
//! The crate is empty on other hosts. An arm64 host traps `TLBI` and `MSR` as undefined
//! instructions, which could be routed the same way and are not; barriers (`DSB`) do not trap on
//! any host, and arm64 assembly does not run on x86-64. Such code needs hooks (the guide of
//! `pagewright-check`).
//!
//! Safety: INV-TRAP-RESUME, INV-TRAP-STORE.
//!
//! Not guaranteed: instructions that user mode may execute, such as `PUSHF` and `SGDT`, act on the
//! host.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod decode;
mod execute;
mod stores;
mod thunk;

pub use stores::{FIRST_IDENTITY_FRAME, map_identity, map_memory};

use pagewright_check::{Check, X86_64, program};
use std::sync::Once;

/// Routes the privileged instructions of this process to the machine, from now on.
///
/// Call it before [`Check::explore`]. A second call does nothing.
///
/// # Panics
/// When the signal handler cannot be installed.
pub fn route() {
    static ROUTED: Once = Once::new();
    ROUTED.call_once(|| {
        // The first coroutine installs a handler of its own, which must be behind this one.
        Check::<X86_64>::new().schedules(1).explore(|_| vec![program(|_| {})]);
        thunk::install();
    });
}
