//! System calls: [`table`] says which function serves which number.
//!
//! Memory calls are decoded by `pagewright_syscall` (`memory`, `caller`). Every other file has the
//! calls of one subject.
//!
//! **INV-KERNEL-CALLS** No system call with arguments of any kind ends the kernel, keeps it from
//! serving others, or keeps memory after its process has ended.
//!
//! Not guaranteed: that a call does more than its function says.

mod attribute;
mod caller;
mod clone;
mod credential;
mod descriptor;
mod epoll;
mod futex;
mod futex_pi;
mod information;
mod ioctl;
#[cfg(target_arch = "x86_64")]
mod legacy;
mod link;
mod lock;
mod membarrier;
mod memory;
mod message;
mod messages;
mod mount;
mod nice;
mod path;
mod pidfd;
mod poll;
pub(crate) mod process;
mod schedule;
mod session;
mod shm;
mod signal;
mod socket;
mod socket_option;
mod splice;
mod stat;
mod swap;
mod table;
mod time;
mod timer;
mod transfer;
mod wait;
mod xattr;

pub(crate) use caller::may_trace;
pub(crate) use clone::PID_MAX;
pub(crate) use futex_pi::PiWait;
pub(crate) use information::{RELEASE, VERSION, random};
pub(crate) use lock::{release_of_file, release_of_table};
pub(crate) use messages::MessageProgress;
pub(crate) use table::serve;

use crate::task::Thread;
use pagewright_types::VirtAddr;
use syscalls::Sysno;

/// The arguments of a call, as registers hold them.
pub(crate) type Arguments = pagewright_syscall::CallArguments;

/// An argument that is an address.
pub(crate) fn address(argument: u64) -> VirtAddr {
    VirtAddr::new(argument)
}

/// Stores the remaining time of a call that slept and is interrupted by a signal.
pub(crate) fn store_remaining_time(thread: &Thread) {
    let (number, a) = thread.context.syscall();
    match Sysno::new(number as usize) {
        Some(Sysno::nanosleep) => time::store_remaining(thread, address(a[1])),
        Some(Sysno::clock_nanosleep) if !time::is_absolute(a) => time::store_remaining(thread, address(a[3])),
        _ => {}
    }
}
