//! The memory limits of `setrlimit(2)`, and the privileges that exempt from them.
//!
//! - [`Resource`] – the resource of a limit, with Linux's number.
//! - [`Rlimit`] – the soft and the hard limit of one resource; [`Rlimits`] – all limits of a space,
//!   which a child inherits.
//! - [`Privileges`] – the capabilities that memory calls check.
//!
//! Neighbours: each call that enlarges a space checks [`AddressMap::may_grow`]; each call that
//! locks memory checks [`AddressMap::may_lock`]. The commit limit of the machine is in
//! `overcommit`.
//!
//! Limits of other resources, such as `RLIMIT_NPROC` and `RLIMIT_NOFILE`, are the embedder's.

use crate::error::MmError;
use crate::mm::Mm;
use crate::space::vma::AddressMap;
use crate::space::{Space, VmFlags};
use pagewright_sync::Platform;
use pagewright_types::{PAGE_SIZE, Rights};

pagewright_types::named_table! {
    /// A limited resource.
    pub enum Resource {
        Data = "RLIMIT_DATA", "Bytes of private writable mappings, without stacks.";
        Stack = "RLIMIT_STACK", "Bytes of a stack that grows.";
        Memlock = "RLIMIT_MEMLOCK", "Bytes of locked memory.";
        AddressSpace = "RLIMIT_AS", "Bytes of all mappings.";
    }
}

impl Resource {
    /// Linux's number (`include/uapi/asm-generic/resource.h`).
    pub const fn number(self) -> u32 {
        match self {
            Self::Data => 2,
            Self::Stack => 3,
            Self::Memlock => 8,
            Self::AddressSpace => 9,
        }
    }

    /// Returns the resource with Linux's number `raw`, if it is one of a space.
    pub fn from_raw(raw: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|resource| resource.number() == raw)
    }
}

bitflags::bitflags! {
    /// The capabilities of a program that memory calls check (`capabilities(7)`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Privileges: u8 {
        /// The program may lock any amount of memory (`CAP_IPC_LOCK`).
        const IPC_LOCK = 1;
        /// The program may use the reserve of `vm.admin_reserve_kbytes` (`CAP_SYS_ADMIN`).
        const SYS_ADMIN = 2;
        /// The program may raise its hard limits (`CAP_SYS_RESOURCE`).
        const SYS_RESOURCE = 4;
        /// The program may map below `vm.mmap_min_addr` (`CAP_SYS_RAWIO`).
        const SYS_RAWIO = 8;
    }
}

/// The limit of one resource, in bytes (`struct rlimit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rlimit {
    /// The limit in force; [`Rlimits::INFINITY`] for none.
    pub soft: u64,
    /// The maximum to which the program may raise the soft limit.
    pub hard: u64,
}

/// The limits and the privileges of one space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rlimits {
    limits: [Rlimit; Resource::ALL.len()],
    privileges: Privileges,
}

impl Default for Rlimits {
    /// Returns the limits with which Linux starts `init` (`INIT_RLIMITS`), without privileges.
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

    /// Returns the soft limit of a resource, in bytes.
    pub const fn get(&self, resource: Resource) -> u64 {
        self.limit(resource).soft
    }

    /// Returns the limit of a resource.
    pub const fn limit(&self, resource: Resource) -> Rlimit {
        self.limits[resource as usize]
    }

    /// Returns the same limits with another soft limit of one resource.
    #[must_use]
    pub const fn with(self, resource: Resource, bytes: u64) -> Self {
        let Rlimit { hard, .. } = self.limit(resource);
        self.with_limit(resource, Rlimit { soft: bytes, hard })
    }

    /// Returns the same limits with another limit of one resource.
    #[must_use]
    pub const fn with_limit(mut self, resource: Resource, limit: Rlimit) -> Self {
        self.limits[resource as usize] = limit;
        self
    }

    /// Returns the privileges of the program.
    pub const fn privileges(&self) -> Privileges {
        self.privileges
    }

    /// Returns the same limits with other privileges.
    #[must_use]
    pub const fn with_privileges(self, privileges: Privileges) -> Self {
        Self { privileges, ..self }
    }

    /// Checks that `pages` pages are within the limit of a resource.
    ///
    /// If the soft limit of data is 0, the hard limit applies: valgrind sets it to 0 for the
    /// program that it runs, and counts data itself (`may_expand_vm`).
    fn check(&self, resource: Resource, pages: u64) -> Result<(), MmError> {
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
    /// Sets all limits and privileges of a space, without checks.
    ///
    /// Memory above a new limit stays mapped.
    pub fn set_limits(&self, space: &Space<P>, limits: Rlimits) {
        space.map().write().limits = limits;
    }

    /// Sets one limit at the request of the program, and returns the old one (`prlimit64`).
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
    /// Returns the limits of the space.
    pub fn limits(&self) -> &Rlimits {
        &self.limits
    }

    /// Checks that mappings with these flags and rights may grow by `pages` pages.
    ///
    /// `less` pages are unmapped first. Linux: `may_expand_vm`.
    pub(in crate::space) fn may_grow(
        &self,
        flags: VmFlags,
        rights: Rights,
        pages: u64,
        less: u64,
    ) -> Result<(), MmError> {
        let then = |now: u64| (now + pages).saturating_sub(less);
        self.limits.check(Resource::AddressSpace, then(self.totals().pages))?;
        if is_data(flags, rights) { self.limits.check(Resource::Data, then(self.totals().data)) } else { Ok(()) }
    }

    /// Checks that there may be `pages` more pages of data.
    pub(in crate::space) fn may_have_data(&self, pages: u64) -> Result<(), MmError> {
        self.limits.check(Resource::Data, self.totals().data + pages)
    }

    /// Checks that a stack may have `bytes` bytes.
    pub(in crate::space) fn may_stack(&self, bytes: u64) -> Result<(), MmError> {
        self.limits.check(Resource::Stack, bytes / PAGE_SIZE)
    }

    /// Checks that the program may lock any memory (`can_do_mlock`).
    pub(in crate::space) fn can_lock(&self) -> Result<(), MmError> {
        let refused = self.limits.get(Resource::Memlock) == 0 && !self.limits.privileges.contains(Privileges::IPC_LOCK);
        if refused { Err(MmError::LockNotPermitted) } else { Ok(()) }
    }

    /// Returns whether there may be `pages` locked pages in all.
    pub(in crate::space) fn may_have_locked(&self, pages: u64) -> bool {
        self.limits.privileges.contains(Privileges::IPC_LOCK) || self.limits.check(Resource::Memlock, pages).is_ok()
    }

    /// Checks that mappings with these flags may grow by `pages` pages (`mlock_future_ok`).
    ///
    /// Only locked mappings are limited.
    pub(in crate::space) fn may_lock(&self, flags: VmFlags, pages: u64) -> Result<(), MmError> {
        let wanted = self.totals().locked + pages;
        if flags.contains(VmFlags::LOCKED) && !self.may_have_locked(wanted) {
            return Err(MmError::MapOverLockLimit { pages: wanted, limit: self.limits.get(Resource::Memlock) });
        }
        Ok(())
    }
}

/// Returns whether a mapping counts as data: private, writable and no stack (`is_data_mapping`).
pub(crate) fn is_data(flags: VmFlags, rights: Rights) -> bool {
    rights.contains(Rights::WRITE) && !flags.intersects(VmFlags::MAYSHARE | VmFlags::GROWSDOWN)
}
