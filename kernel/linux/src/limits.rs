//! The limits of a process (`setrlimit(2)`), by Linux's numbers.
//!
//! The memory manager enforces those about memory; each address space gets a copy. Of the others,
//! `RLIMIT_NOFILE`, `RLIMIT_NPROC`, `RLIMIT_RTPRIO` and `RLIMIT_NICE` are enforced here, and the
//! rest is stored and returned.
//!
//! **INV-KERNEL-THREADS** A user without privileges gets no thread beyond `RLIMIT_NPROC`; those
//! that exist when the limit falls remain.
//!
//! **INV-KERNEL-DESCRIPTORS** A process gets no descriptor with a number of at least its
//! `RLIMIT_NOFILE`; those that it has when the limit falls remain.
//!
//! Not guaranteed: enforcement of the rest.

use crate::credentials::Credentials;
use crate::errno::Errno;
use crate::file;
use crate::task::{Scheduler, Thread};
use core::fmt::{self, Write};
use linux_raw_sys::general as linux;
pub(crate) use pagewright_mm::space::Rlimit;
use pagewright_mm::space::{Privileges, Resource, Rlimits as SpaceLimits};
use pagewright_plant::plant;

/// The names and units of all limits, as `/proc/PID/limits` shows them.
const NAMES: [(&str, &str); linux::RLIM_NLIMITS as usize] = [
    ("Max cpu time", "seconds"),
    ("Max file size", "bytes"),
    ("Max data size", "bytes"),
    ("Max stack size", "bytes"),
    ("Max core file size", "bytes"),
    ("Max resident set", "bytes"),
    ("Max processes", "processes"),
    ("Max open files", "files"),
    ("Max locked memory", "bytes"),
    ("Max address space", "bytes"),
    ("Max file locks", "locks"),
    ("Max pending signals", "signals"),
    ("Max msgqueue size", "bytes"),
    ("Max nice priority", ""),
    ("Max realtime priority", ""),
    ("Max realtime timeout", "us"),
];

/// No limit (`RLIM_INFINITY`).
const NONE: u64 = SpaceLimits::INFINITY;
/// The limits of descriptors of the first process (`INR_OPEN_CUR`, `INR_OPEN_MAX`).
const OPEN_SOFT: u64 = 1024;
const OPEN_HARD: u64 = 4096;

/// All limits of a process.
///
/// A child inherits them, and `execve` keeps them.
#[derive(Clone)]
pub(crate) struct ProcessLimits([Rlimit; linux::RLIM_NLIMITS as usize]);

impl ProcessLimits {
    /// The limits of the first process (`INIT_RLIMITS`).
    pub(crate) fn of_init() -> Self {
        let mut all = [Rlimit { soft: NONE, hard: NONE }; linux::RLIM_NLIMITS as usize];
        for &resource in Resource::ALL {
            all[resource.number() as usize] = SpaceLimits::default().limit(resource);
        }
        let mut set = |number: u32, soft, hard| all[number as usize] = Rlimit { soft, hard };
        set(linux::RLIMIT_CORE, 0, NONE);
        set(linux::RLIMIT_NOFILE, OPEN_SOFT, OPEN_HARD);
        set(linux::RLIMIT_NICE, 0, 0);
        set(linux::RLIMIT_RTPRIO, 0, 0);
        Self(all)
    }

    /// The limit with this number.
    pub(crate) fn get(&self, number: u32) -> Result<Rlimit, Errno> {
        self.0.get(number as usize).copied().ok_or(Errno::EINVAL)
    }

    /// Sets the limit with this number (`do_prlimit`).
    ///
    /// Only a privileged caller may raise the maximum.
    pub(crate) fn set(&mut self, number: u32, limit: Rlimit, privileged: bool) -> Result<(), Errno> {
        let known = self.0.get_mut(number as usize).ok_or(Errno::EINVAL)?;
        if limit.soft > limit.hard {
            return Err(Errno::EINVAL);
        }
        if number == linux::RLIMIT_NOFILE && limit.hard > file::NR_OPEN {
            return Err(Errno::EPERM);
        }
        if limit.hard > known.hard && !privileged {
            return Err(Errno::EPERM);
        }
        *known = limit;
        Ok(())
    }

    /// The limit of descriptors: each number is less.
    pub(crate) fn descriptors(&self) -> u64 {
        self.0[linux::RLIMIT_NOFILE as usize].soft
    }

    /// Writes `/proc/PID/limits` (`proc_pid_limits`).
    pub(crate) fn show(&self, out: &mut dyn Write) -> fmt::Result {
        writeln!(out, "{:<25} {:<20} {:<20} {:<10}", "Limit", "Soft Limit", "Hard Limit", "Units")?;
        for (limit, (name, unit)) in self.0.iter().zip(NAMES) {
            write!(out, "{name:<25} ")?;
            for value in [limit.soft, limit.hard] {
                if value == NONE {
                    write!(out, "{:<20} ", "unlimited")?;
                } else {
                    write!(out, "{value:<20} ")?;
                }
            }
            if unit.is_empty() { writeln!(out)? } else { writeln!(out, "{unit:<10}")? }
        }
        Ok(())
    }

    /// The highest real-time priority without `CAP_SYS_NICE`.
    pub(crate) fn real_time_priority(&self) -> u64 {
        self.0[linux::RLIMIT_RTPRIO as usize].soft
    }

    /// The lowest nice value without `CAP_SYS_NICE` (`nice_to_rlimit`).
    pub(crate) fn nice(&self) -> i64 {
        20 - self.0[linux::RLIMIT_NICE as usize].soft.min(40) as i64
    }

    /// The limits that the memory manager enforces, with the capabilities that it checks.
    pub(crate) fn space_limits(&self, privileges: Privileges) -> SpaceLimits {
        let privileges = SpaceLimits::default().with_privileges(privileges);
        let limit = |resource: Resource| self.0[resource.number() as usize];
        Resource::ALL.iter().fold(privileges, |all, &resource| all.with_limit(resource, limit(resource)))
    }
}

/// Checks that the user of a thread may have one thread more (`copy_process`).
///
/// User 0 and privileged users have no limit. A process that was not reaped counts.
///
/// # Errors
/// `EAGAIN`.
pub(crate) fn check_thread_count(scheduler: &mut Scheduler, thread: &Thread) -> Result<(), Errno> {
    let caller = &thread.credentials;
    let limit = scheduler.process(thread.process).limits.0[linux::RLIMIT_NPROC as usize].soft;
    let is_privileged = || caller.has(linux::CAP_SYS_RESOURCE) || caller.has(linux::CAP_SYS_ADMIN);
    // INV-KERNEL-THREADS.
    plant!(ThreadLimitIgnored => return Ok(()));
    if limit == NONE || caller.user.real == 0 || is_privileged() {
        return Ok(());
    }
    let is_same_user = |other: &Credentials| other.user.real == caller.user.real;
    let threads = scheduler.threads.values().filter(|entry| is_same_user(&entry.credentials)).count();
    let ended = scheduler.processes.values().filter(|process| process.exit_status.is_some());
    let ended = ended.filter(|process| is_same_user(&process.credentials)).count();
    if (threads + ended) as u64 >= limit { Err(Errno::EAGAIN) } else { Ok(()) }
}
