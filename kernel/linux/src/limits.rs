//! The limits of a process (`setrlimit(2)`), by Linux's numbers.
//!
//! The memory manager enforces those about memory; each address space gets a copy. Of the others,
//! `RLIMIT_NOFILE` and `RLIMIT_RTPRIO` are enforced here, and the rest is stored and returned.
//!
//! Not guaranteed: enforcement of the rest.

use crate::errno::Errno;
use crate::file;
use linux_raw_sys::general as linux;
pub(crate) use pagewright_mm::space::Rlimit;
use pagewright_mm::space::{Privileges, Resource, Rlimits as SpaceLimits};

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

    /// The highest real-time priority without `CAP_SYS_NICE`.
    pub(crate) fn real_time_priority(&self) -> u64 {
        self.0[linux::RLIMIT_RTPRIO as usize].soft
    }

    /// The limits that the memory manager enforces, with the capabilities that it checks.
    pub(crate) fn space_limits(&self, privileges: Privileges) -> SpaceLimits {
        let privileges = SpaceLimits::default().with_privileges(privileges);
        let limit = |resource: Resource| self.0[resource.number() as usize];
        Resource::ALL.iter().fold(privileges, |all, &resource| all.with_limit(resource, limit(resource)))
    }
}
