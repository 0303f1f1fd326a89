//! What a space may have at most: the limits of `setrlimit(2)` that are about memory, and who may pass them.
//!
//! - [`Resource`] – a limit, by Linux's number. `RLIMIT_NPROC` and `RLIMIT_NOFILE` are no business of a memory manager.
//! - [`Limits`] – the values in force; a fork inherits them.
//! - [`Privileges`] – the capabilities that memory calls ask for.
//!
//! Neighbours: every call that makes a space larger asks [`AddressMap::may_grow`]; whoever locks asks [`AddressMap::may_lock`]. How much the
//! machine as a whole may promise is `account`'s question.
//!
//! Not guaranteed: hard limits. Who may raise a limit is for the caller to decide, and the exception that Linux makes for a soft
//! `RLIMIT_DATA` of 0 is not made.

use super::vmas::AddressMap;
use super::{Space, VmFlags};
use crate::error::MmError;
use crate::mm::Mm;
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
    }
}

/// The limits of one space, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `RLIM_INFINITY` is the greatest number.
    bytes: [u64; Resource::ALL.len()],
    privileges: Privileges,
}

impl Default for Limits {
    /// As Linux starts `init` (`INIT_RLIMITS`).
    fn default() -> Self {
        Self { bytes: [u64::MAX, 8 << 20, 8 << 20, u64::MAX], privileges: Privileges::empty() }
    }
}

impl Limits {
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

    /// One limit, in bytes.
    pub const fn get(&self, resource: Resource) -> u64 {
        self.bytes[Self::place(resource)]
    }

    /// The same limits but one.
    #[must_use]
    pub const fn with(mut self, resource: Resource, bytes: u64) -> Self {
        self.bytes[Self::place(resource)] = bytes;
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
    fn allow(&self, resource: Resource, pages: u64) -> Result<(), MmError> {
        let limit = self.get(resource);
        if pages > limit / PAGE_SIZE { Err(MmError::OverLimit { resource, pages, limit }) } else { Ok(()) }
    }
}

impl<P: Platform> Mm<P> {
    /// Sets what a space may have. What it has already stays.
    pub fn set_limits(&self, space: &Space<P>, limits: Limits) {
        space.map().write().limits = limits;
    }
}

impl<P: Platform> AddressMap<P> {
    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether a mapping with these flags and rights may be `pages` larger (`may_expand_vm`), once `less` pages are gone.
    pub(super) fn may_grow(&self, flags: VmFlags, rights: Rights, pages: u64, less: u64) -> Result<(), MmError> {
        let then = |now: u64| (now + pages).saturating_sub(less);
        self.limits.allow(Resource::AddressSpace, then(self.totals().pages))?;
        if is_data(flags, rights) { self.limits.allow(Resource::Data, then(self.totals().data)) } else { Ok(()) }
    }

    /// Whether there may be `pages` more pages of data.
    pub(super) fn may_have_data(&self, pages: u64) -> Result<(), MmError> {
        self.limits.allow(Resource::Data, self.totals().data + pages)
    }

    /// Whether `bytes` of stack are not too many.
    pub(super) fn may_stack(&self, bytes: u64) -> Result<(), MmError> {
        self.limits.allow(Resource::Stack, bytes / PAGE_SIZE)
    }

    /// Whether the program may lock anything at all (`can_do_mlock`).
    pub(super) fn can_lock(&self) -> Result<(), MmError> {
        let barred = self.limits.get(Resource::Memlock) == 0 && !self.limits.privileges.contains(Privileges::IPC_LOCK);
        if barred { Err(MmError::MayNotLock) } else { Ok(()) }
    }

    /// Whether there may be `pages` locked pages.
    pub(super) fn may_have_locked(&self, pages: u64) -> bool {
        self.limits.privileges.contains(Privileges::IPC_LOCK) || self.limits.allow(Resource::Memlock, pages).is_ok()
    }

    /// Whether a mapping with these flags may be `pages` larger as far as locked memory goes (`mlock_future_ok`).
    pub(super) fn may_lock(&self, flags: VmFlags, pages: u64) -> Result<(), MmError> {
        let wanted = self.totals().locked + pages;
        if flags.contains(VmFlags::LOCKED) && !self.may_have_locked(wanted) {
            return Err(MmError::TooMuchToLock { pages: wanted, limit: self.limits.get(Resource::Memlock) });
        }
        Ok(())
    }
}

/// Whether a mapping counts as data: writable, the space's own, and no stack (`is_data_mapping`).
pub(crate) fn is_data(flags: VmFlags, rights: Rights) -> bool {
    rights.contains(Rights::WRITE) && !flags.intersects(VmFlags::SHARED | VmFlags::GROWSDOWN)
}
