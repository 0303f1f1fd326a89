//! System calls: which function serves which number.
//!
//! Numbers and names are those of the instruction set (`syscalls`). Calls that only x86-64 has go
//! to their newer forms in `old`.
//!
//! Not guaranteed: that a call does more than its file says; what is not listed answers `ENOSYS`
//! and is counted.

mod descriptor;
mod futex;
mod information;
mod memory;
#[cfg(target_arch = "x86_64")]
mod old;
mod path;
mod poll;
pub(crate) mod process;
mod remote;
mod shmem;
mod signal;
mod stat;
mod swap;
mod time;

use crate::errno::Errno;
use crate::finish;
use crate::record;
use crate::task::{Answer, Thread};
use pagewright_types::VirtAddr;
use syscalls::Sysno;

/// The arguments of a call, as they stand in registers.
pub(crate) type Arguments = [u64; 6];

/// An argument that is an address.
pub(crate) fn address(argument: u64) -> VirtAddr {
    VirtAddr::new(argument)
}

/// Kernel memory that must be left for a call that makes something which stays.
///
/// What it makes takes less, and is not asked for piece by piece; who ends or removes something
/// needs little, too, and is never refused.
const ROOM: usize = 16 << 10;

/// Whether a call makes a process, a file or a descriptor.
fn makes(call: Sysno) -> bool {
    #[cfg(target_arch = "x86_64")]
    if old::makes(call) {
        return true;
    }
    matches!(
        call,
        Sysno::clone
            | Sysno::clone3
            | Sysno::execve
            | Sysno::openat
            | Sysno::mkdirat
            | Sysno::symlinkat
            | Sysno::pipe2
            | Sysno::memfd_create
            | Sysno::pidfd_open
    )
}

fn admit(call: Sysno) -> Result<(), Errno> {
    if makes(call) && !pagewright_hal::can_allocate(ROOM) { Err(Errno::ENOMEM) } else { Ok(()) }
}

/// Serves one call.
pub(crate) fn serve(thread: &mut Thread, number: u64, a: Arguments) -> Answer {
    let Some(call) = Sysno::new(number as usize) else { return missing(number) };
    admit(call)?;
    match call {
        Sysno::mmap
        | Sysno::munmap
        | Sysno::mprotect
        | Sysno::madvise
        | Sysno::brk
        | Sysno::mremap
        | Sysno::mlock
        | Sysno::mlock2
        | Sysno::munlock
        | Sysno::mlockall
        | Sysno::munlockall
        | Sysno::msync
        | Sysno::mseal => record::ordered(|| memory::serve(thread, call, a)),
        Sysno::mincore => memory::mincore(thread, a),
        Sysno::pidfd_open | Sysno::process_vm_readv | Sysno::process_vm_writev | Sysno::process_madvise => {
            remote::serve(thread, call, a)
        }
        Sysno::read | Sysno::write | Sysno::readv | Sysno::writev | Sysno::pread64 | Sysno::pwrite64 | Sysno::lseek => {
            descriptor::move_bytes(thread, call, a)
        }
        Sysno::close
        | Sysno::dup
        | Sysno::dup3
        | Sysno::fcntl
        | Sysno::ioctl
        | Sysno::pipe2
        | Sysno::memfd_create
        | Sysno::ftruncate
        | Sysno::fallocate
        | Sysno::fsync
        | Sysno::fdatasync => descriptor::serve(thread, call, a),
        Sysno::openat
        | Sysno::unlinkat
        | Sysno::mkdirat
        | Sysno::readlinkat
        | Sysno::symlinkat
        | Sysno::faccessat
        | Sysno::faccessat2
        | Sysno::chdir
        | Sysno::getcwd
        | Sysno::getdents64 => path::serve(thread, call, a),
        stat::FSTATAT | Sysno::fstat | Sysno::statx => stat::serve(thread, call, a),
        Sysno::ppoll => poll::ppoll(thread, a),
        Sysno::clone | Sysno::clone3 | Sysno::execve | Sysno::wait4 | Sysno::exit | Sysno::exit_group => {
            process::serve(thread, call, a)
        }
        Sysno::rt_sigaction
        | Sysno::rt_sigprocmask
        | Sysno::rt_sigreturn
        | Sysno::rt_sigsuspend
        | Sysno::sigaltstack
        | Sysno::kill
        | Sysno::tkill
        | Sysno::tgkill => signal::serve(thread, call, a),
        Sysno::swapon | Sysno::swapoff => swap::serve(thread, call, a),
        Sysno::futex => futex::futex(thread, a),
        Sysno::clock_gettime
        | Sysno::clock_getres
        | Sysno::gettimeofday
        | Sysno::nanosleep
        | Sysno::clock_nanosleep
        | Sysno::sched_yield => time::serve(thread, call, a),
        other => more(thread, other, a),
    }
}

/// Modes of files, what a process asks about itself and the machine, and what only x86-64 has.
fn more(thread: &mut Thread, call: Sysno, a: Arguments) -> Answer {
    if let Sysno::fchmodat | Sysno::fchmod | Sysno::umask = call {
        return path::serve(thread, call, a);
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(answer) = old::serve(thread, call, a) {
        return answer;
    }
    match information::serve(thread, call, a) {
        Some(answer) => answer,
        None => missing(call.id() as u64),
    }
}

/// A call that slept fails because of a signal: what it tells of how far it has come.
pub(crate) fn give_up(thread: &Thread) {
    let (number, a) = thread.context.syscall();
    match Sysno::new(number as usize) {
        Some(Sysno::nanosleep) => time::leave_rest(thread, address(a[1])),
        Some(Sysno::clock_nanosleep) if !time::is_absolute(a) => time::leave_rest(thread, address(a[3])),
        _ => {}
    }
}

fn missing(number: u64) -> Answer {
    finish::miss(number);
    Err(Errno::ENOSYS.into())
}
