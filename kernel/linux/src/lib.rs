//! Linux's system calls for static programs, over Pagewright's memory manager.
//!
//! A kernel with as much Linux in it as its programs need, and no more: what is missing answers
//! `ENOSYS` and is listed at power-off.
//!
//! | module | what |
//! | --- | --- |
//! | `memory` | the one [`Mm`](pagewright_mm::Mm), and copies from and to a program's memory |
//! | `task` | threads and processes, who is ready and who sleeps |
//! | `cpu` | what each CPU does: pick a thread, run it, serve its trap |
//! | `exec` | a program's image from an ELF file |
//! | `limits` | what a process may have at most |
//! | `file`, `tree`, `pipe` | descriptors; the tree of files from the initramfs; pipes |
//! | `zram` | the device to swap to |
//! | `signal` | what signals do, and the frames of handlers |
//! | `record` | what programs did to memory, told as it happens |
//! | `call/` | one group of system calls per file |
//! | `finish` | power-off: counters, what was missing; O4 |
//! | `rest` | all CPUs but one do nothing |
//!
//! Protocol: a call that must wait says on what ([`task::Wait`]) and gives its CPU back; when it is
//! woken it is made again, or gets its answer from whoever woke it. So there is one kernel stack a
//! CPU, and nothing is held while something sleeps. One lock guards threads and processes
//! (`task::State`); it may be held over calls of the memory manager, and never the other way round.
//!
//! Not guaranteed: a Linux. No users, no permissions, no disks but the one in memory; files live
//! there, too.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod call;
mod cpu;
mod errno;
mod exec;
mod file;
mod finish;
mod limits;
mod memory;
mod options;
mod pipe;
mod record;
mod rest;
mod signal;
mod task;
mod tree;
mod zram;

use pagewright_hal::{BootInfo, KernelCallbacks};

/// The kernel of the image.
#[derive(Debug)]
pub struct Linux;

impl Linux {
    /// It has no state of its own: the machine is one.
    #[expect(clippy::new_without_default, reason = "a constant, for a static")]
    pub const fn new() -> Self {
        Self
    }
}

impl KernelCallbacks for Linux {
    fn boot(&self, info: &'static BootInfo) {
        let options = options::Options::parse(info.command_line);
        memory::start(info, &options);
        tree::start(info.initrd);
        if options.swap > 0 {
            zram::swap_at_boot(options.swap);
        }
        if options.record {
            record::start();
        }
        if options.check {
            finish::check_at_end();
        }
        exec::start_first(&options);
    }

    fn run(&self) -> ! {
        #[cfg(feature = "planted")]
        options::overflow_if_planted();
        cpu::run()
    }

    fn handle_ipi(&self) {
        memory::mm().tlb().handle_ipi();
    }

    fn more_memory(&self, bytes: usize) -> Option<&'static mut [u8]> {
        memory::for_heap(bytes)
    }
}
