//! What a space may have at most: the limits of `setrlimit(2)` that are about memory, and who may
//! pass them.
//!
//! - [`Resource`] – a limit, by Linux's number. `RLIMIT_NPROC` and `RLIMIT_NOFILE` are no business
//!   of a memory manager.
//! - [`Rlimits`] – the values in force; a fork inherits them. [`Rlimit`] – one: what is kept to, and
//!   what it may be raised to.
//! - [`Privileges`] – the capabilities that memory calls ask for.
//!
//! Neighbours: every call that makes a space larger asks [`AddressMap::may_grow`]; whoever locks
//! asks [`AddressMap::may_lock`]. How much the machine as a whole may promise is `account`'s
//! question.
//!
//! Not guaranteed: anything about limits that are not about memory, nor about those of another
//! process.

use crate::error::MmError;
use crate::mm::Mm;
use crate::space::vma::AddressMap;
use crate::space::{Space, VmFlags};
use core::fmt;
use pagewright_sync::Platform;
use pagewright_types::{PAGE_SIZE, Rights};

/// A limit, with Linux's number (`include/uapi/asm-generic/resource.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Resource {
    /// Bytes that are writable and the space's own, stacks left out (`RLIMIT_DATA`).
    Data = 2,
    /// Bytes of a stack that grows (`RLIMIT_STACK`).
    Stack = 3,
    /// Bytes that are locked (`RLIMIT_MEMLOCK`).
    Memlock = 8,
    /// Bytes that are mapped (`RLIMIT_AS`).
    AddressSpace = 9,
}

impl Resource {
    /// Every limit.
    pub const ALL: [Self; 4] = [Self::Data, Self::Stack, Self::Memlock, Self::AddressSpace];

    /// The limit with Linux's number `raw`, if it is one of a space.
    pub fn from_raw(raw: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| *resource as u32 == raw)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "RLIMIT_DATA",
            Self::Stack => "RLIMIT_STACK",
            Self::Memlock => "RLIMIT_MEMLOCK",
            Self::AddressSpace => "RLIMIT_AS",
        })
    }
}

bitflags::bitflags! {
    /// What the program is allowed beyond its limits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Privileges: u8 {
        /// Locks as much as it likes (`CAP_IPC_LOCK`).
        const IPC_LOCK = 1;
        /// May use what `vm.admin_reserve_kbytes` keeps back (`CAP_SYS_ADMIN`).
        const SYS_ADMIN = 2;
        /// Raises what its limits may be raised to (`CAP_SYS_RESOURCE`).
        const SYS_RESOURCE = 4;
        /// Maps below `vm.mmap_min_addr` (`CAP_SYS_RAWIO`).
        const SYS_RAWIO = 8;
    }
}

/// One limit, in bytes (`struct rlimit`); `RLIM_INFINITY` is the greatest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rlimit {
    /// What is kept to.
    pub soft: u64,
    /// What the program may raise it to.
    pub hard: u64,
}

/// The limits of one space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rlimits {
    limits: [Rlimit; Resource::ALL.len()],
    privileges: Privileges,
}

impl Default for Rlimits {
    /// As Linux starts `init` (`INIT_RLIMITS`).
    fn default() -> Self {
        let (none, eight_mb) = (Self::INFINITY, 8 << 20);
        let limit = |soft, hard| Rlimit { soft, hard };
        let limits = [limit(none, none), limit(eight_mb, none), limit(eight_mb, eight_mb), limit(none, none)];
        Self { limits, privileges: Privileges::empty() }
    }
}

impl Rlimits {
    /// No limit (`RLIM_INFINITY`).
    pub const INFINITY: u64 = u64::MAX;

    const fn place(resource: Resource) -> usize {
        match resource {
            Resource::Data => 0,
            Resource::Stack => 1,
            Resource::Memlock => 2,
            Resource::AddressSpace => 3,
        }
    }

    /// What is kept to, in bytes.
    pub const fn get(&self, resource: Resource) -> u64 {
        self.limit(resource).soft
    }

    /// One limit.
    pub const fn limit(&self, resource: Resource) -> Rlimit {
        self.limits[Self::place(resource)]
    }

    /// The same limits but one, of which the program may change as much as before.
    #[must_use]
    pub const fn with(self, resource: Resource, bytes: u64) -> Self {
        let Rlimit { hard, .. } = self.limit(resource);
        self.with_limit(resource, Rlimit { soft: bytes, hard })
    }

    /// The same limits but one.
    #[must_use]
    pub const fn with_limit(mut self, resource: Resource, limit: Rlimit) -> Self {
        self.limits[Self::place(resource)] = limit;
        self
    }

    /// What the program is allowed beyond them.
    pub const fn privileges(&self) -> Privileges {
        self.privileges
    }

    /// The same limits for a program with these privileges.
    #[must_use]
    pub const fn with_privileges(self, privileges: Privileges) -> Self {
        Self { privileges, ..self }
    }

    /// Whether `pages` keep within a limit.
    ///
    /// Where no data at all is allowed, as much is as the limit may be raised to: valgrind counts
    /// data itself and keeps the program it runs from making any (`may_expand_vm`).
    fn allow(&self, resource: Resource, pages: u64) -> Result<(), MmError> {
        let limit = match (resource, self.limit(resource)) {
            (Resource::Data, Rlimit { soft: 0, hard }) => hard,
            (Resource::Data | Resource::Stack | Resource::Memlock | Resource::AddressSpace, Rlimit { soft, .. }) => {
                soft
            }
        };
        if pages > limit / PAGE_SIZE { Err(MmError::OverLimit { resource, pages, limit }) } else { Ok(()) }
    }
}

impl<P: Platform> Mm<P> {
    /// Sets what a space may have, as `execve` or a login does.
    ///
    /// What it has already stays.
    pub fn set_limits(&self, space: &Space<P>, limits: Rlimits) {
        space.map().write().limits = limits;
    }

    /// Sets one limit as the program asks for it, and returns what it was (`prlimit64`).
    ///
    /// # Errors
    /// [`MmError::BadLimit`], [`MmError::RaiseNotPermitted`]; nothing has changed.
    pub fn set_limit(&self, space: &Space<P>, resource: Resource, limit: Rlimit) -> Result<Rlimit, MmError> {
        let Rlimit { soft, hard } = limit;
        if soft > hard {
            return Err(MmError::BadLimit { soft, hard });
        }
        let mut map = space.map().write();
        let old = map.limits.limit(resource);
        if hard > old.hard && !map.limits.privileges.contains(Privileges::SYS_RESOURCE) {
            return Err(MmError::RaiseNotPermitted { resource, hard: old.hard });
        }
        map.limits = map.limits.with_limit(resource, limit);
        Ok(old)
    }
}

impl<P: Platform> AddressMap<P> {
    /// The limits in force.
    pub fn limits(&self) -> &Rlimits {
        &self.limits
    }

    /// Whether a mapping with these flags and rights may be `pages` larger (`may_expand_vm`), once
    /// `less` pages are gone.
    pub(in crate::space) fn may_grow(
        &self,
        flags: VmFlags,
        rights: Rights,
        pages: u64,
        less: u64,
    ) -> Result<(), MmError> {
        let then = |now: u64| (now + pages).saturating_sub(less);
        self.limits.allow(Resource::AddressSpace, then(self.totals().pages))?;
        if is_data(flags, rights) { self.limits.allow(Resource::Data, then(self.totals().data)) } else { Ok(()) }
    }

    /// Whether there may be `pages` more pages of data.
    pub(in crate::space) fn may_have_data(&self, pages: u64) -> Result<(), MmError> {
        self.limits.allow(Resource::Data, self.totals().data + pages)
    }

    /// Whether `bytes` of stack are not too many.
    pub(in crate::space) fn may_stack(&self, bytes: u64) -> Result<(), MmError> {
        self.limits.allow(Resource::Stack, bytes / PAGE_SIZE)
    }

    /// Whether the program may lock anything at all (`can_do_mlock`).
    pub(in crate::space) fn can_lock(&self) -> Result<(), MmError> {
        let barred = self.limits.get(Resource::Memlock) == 0 && !self.limits.privileges.contains(Privileges::IPC_LOCK);
        if barred { Err(MmError::LockNotPermitted) } else { Ok(()) }
    }

    /// Whether there may be `pages` locked pages.
    pub(in crate::space) fn may_have_locked(&self, pages: u64) -> bool {
        self.limits.privileges.contains(Privileges::IPC_LOCK) || self.limits.allow(Resource::Memlock, pages).is_ok()
    }

    /// Whether a mapping with these flags may be `pages` larger as far as locked memory goes
    /// (`mlock_future_ok`).
    pub(in crate::space) fn may_lock(&self, flags: VmFlags, pages: u64) -> Result<(), MmError> {
        let wanted = self.totals().locked + pages;
        if flags.contains(VmFlags::LOCKED) && !self.may_have_locked(wanted) {
            return Err(MmError::MapOverLockLimit { pages: wanted, limit: self.limits.get(Resource::Memlock) });
        }
        Ok(())
    }
}

/// Whether a mapping counts as data: writable, the space's own, and no stack (`is_data_mapping`).
pub(crate) fn is_data(flags: VmFlags, rights: Rights) -> bool {
    rights.contains(Rights::WRITE) && !flags.intersects(VmFlags::MAYSHARE | VmFlags::GROWSDOWN)
}
