//! Linux's system calls for programs, over Pagewright's memory manager.
//!
//! The kernel implements as much of Linux as its programs need. A call that it does not implement
//! fails with `ENOSYS` and is listed at power-off.
//!
//! | module | contents |
//! | --- | --- |
//! | `memory` | the one [`Mm`](pagewright_mm::Mm), and copies from and to user memory |
//! | `task`, `process` | threads and the sleepers; processes |
//! | `run_queue` | which thread runs where: policies, priorities, sets of CPUs |
//! | `credentials` | users, groups and capabilities, and what they permit |
//! | `usage`, `timers` | CPU time and faults of processes; timers that send signals |
//! | `cpu` | the loop of each CPU: pick a thread, run it, serve its trap |
//! | `exec`, `segments` | the image of a program, from an ELF file and its interpreter |
//! | `limits` | the limits of a process (`setrlimit`) |
//! | `file`, `inode`, `ramfs` | descriptors; files and devices; the tree of paths |
//! | `mount` | which file system a path is in |
//! | `pipe`, `event` | pipes and FIFOs; event counters |
//! | `socket` | sockets of the family `AF_UNIX` |
//! | `ready`, `edges`, `epoll` | whether open files are ready; instances of `epoll` |
//! | `user` | what each user holds of the kernel's memory |
//! | `file_lock` | locks on files |
//! | `shm` | System V shared memory |
//! | `procfs` | files below `/proc` and `/sys` |
//! | `oom` | which process ends when no memory is left |
//! | `system_name` | the names that `uname` returns |
//! | `zram` | the swap device |
//! | `signal` | delivery of signals, and the stack frames of handlers |
//! | `record` | memory calls and faults of programs, reported as they happen |
//! | `call/` | the system calls, a family in each file |
//! | `report` | messages to the host, power-off, and the recount of page counts (O4) |
//! | `stop_machine` | stops all CPUs but one |
//!
//! Protocol: a call that must wait returns its reason ([`task::WaitReason`]) and leaves its CPU.
//! When its thread is woken, the call is made again, or returns the value that the waker chose. So
//! there is one kernel stack per CPU, and a sleeper holds no lock. One lock guards threads and
//! processes ([`task::Scheduler`]). A CPU may hold it while it calls the memory manager, never the
//! other way round.
//!
//! Not guaranteed: compatibility with Linux beyond these programs. There is no disk; files are in
//! memory.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod archive;
mod call;
mod console_input;
mod cpu;
mod credentials;
mod edges;
mod epoll;
mod errno;
mod event;
mod exec;
mod file;
mod file_lock;
mod inode;
mod inode_attributes;
mod job_control;
mod limits;
mod machine_files;
mod mappings_text;
mod memory;
mod memory_files;
mod mount;
mod node_files;
mod oom;
mod options;
mod pipe;
mod process;
mod process_memory;
mod procfs;
mod ramfs;
mod ready;
mod record;
mod report;
mod run_queue;
mod segments;
mod shm;
mod signal;
mod socket;
mod stop_machine;
mod sysctl;
mod system_name;
mod task;
mod timers;
mod usage;
mod user;
mod user_buffer;
mod wait_reason;
mod zram;

use pagewright_hal::{BootInfo, KernelCallbacks};

/// The kernel, as `hal` calls it.
#[derive(Debug)]
pub struct Linux;

impl Linux {
    /// The kernel, whose state is in statics.
    #[expect(clippy::new_without_default, reason = "a constant, for a static")]
    pub const fn new() -> Self {
        Self
    }
}

impl KernelCallbacks for Linux {
    fn boot(&self, info: &'static BootInfo) {
        let options = options::Options::parse(info.command_line);
        memory::start(info, &options);
        ramfs::start(info.initrd);
        if options.input {
            console_input::start();
        }
        if options.swap > 0 {
            zram::swap_at_boot(options.swap);
        }
        if options.record {
            record::start();
        }
        if options.check {
            report::check_at_end();
        }
        exec::start_init(&options);
    }

    fn run(&self) -> ! {
        options::overflow_if_planted();
        cpu::run()
    }

    fn handle_ipi(&self) {
        memory::mm().tlb().handle_ipi();
    }

    fn more_memory(&self, bytes: usize) -> Option<&'static mut [u8]> {
        memory::heap_block(bytes)
    }
}
