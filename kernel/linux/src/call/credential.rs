//! Calls about users, groups and capabilities.
//!
//! Linux: `kernel/sys.c`, `kernel/groups.c`, `kernel/capability.c`. Not guaranteed: users of other
//! namespaces.

use super::{Arguments, address};
use crate::credentials::{Capabilities, CapabilitySet, Credentials, ThreadIds};
use crate::errno::Errno;
use crate::task::{SyscallResult, TaskId, Thread, scheduler};
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;

/// An id that a call leaves as it is, and that no user or group has.
const UNCHANGED: u32 = u32::MAX;

/// Users or groups, of which the calls have one family each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdFamily {
    User,
    Group,
}

impl IdFamily {
    fn of(self, credentials: &Credentials) -> ThreadIds {
        match self {
            Self::User => credentials.user,
            Self::Group => credentials.group,
        }
    }

    /// Whether the thread may take any id.
    fn is_free(self, credentials: &Credentials) -> bool {
        credentials.has(match self {
            Self::User => linux::CAP_SETUID,
            Self::Group => linux::CAP_SETGID,
        })
    }

    fn store(self, thread: &mut Thread, ids: ThreadIds) {
        let mut new = (*thread.credentials).clone();
        match self {
            Self::User => {
                new.user = ids;
                new.follow_user(&thread.credentials);
            }
            Self::Group => new.group = ids,
        }
        scheduler().set_credentials(thread, new);
    }

    /// `setuid`, `setgid`.
    fn set(self, thread: &mut Thread, id: u32) -> SyscallResult {
        if id == UNCHANGED {
            return Err(Errno::EINVAL.into());
        }
        let mut ids = self.of(&thread.credentials);
        if self.is_free(&thread.credentials) {
            (ids.real, ids.saved) = (id, id);
        } else if id != ids.real && id != ids.saved {
            return Err(Errno::EPERM.into());
        }
        (ids.effective, ids.files) = (id, id);
        self.store(thread, ids);
        Ok(0)
    }

    /// `setreuid`, `setregid`.
    fn set_real_and_effective(self, thread: &mut Thread, real: u32, effective: u32) -> SyscallResult {
        let (old, free) = (self.of(&thread.credentials), self.is_free(&thread.credentials));
        let mut ids = old;
        if real != UNCHANGED {
            if !free && real != old.real && real != old.effective {
                return Err(Errno::EPERM.into());
            }
            ids.real = real;
        }
        if effective != UNCHANGED {
            if !free && !old.contain(effective) {
                return Err(Errno::EPERM.into());
            }
            ids.effective = effective;
        }
        if real != UNCHANGED || effective != UNCHANGED && effective != old.real {
            ids.saved = ids.effective;
        }
        ids.files = ids.effective;
        self.store(thread, ids);
        Ok(0)
    }

    /// `setresuid`, `setresgid`.
    fn set_all(self, thread: &mut Thread, [real, effective, saved]: [u32; 3]) -> SyscallResult {
        let old = self.of(&thread.credentials);
        let allowed = |id| id == UNCHANGED || old.contain(id);
        if !self.is_free(&thread.credentials) && ![real, effective, saved].into_iter().all(allowed) {
            return Err(Errno::EPERM.into());
        }
        let chosen = |id, old| if id == UNCHANGED { old } else { id };
        let effective = chosen(effective, old.effective);
        let ids =
            ThreadIds { real: chosen(real, old.real), effective, saved: chosen(saved, old.saved), files: effective };
        self.store(thread, ids);
        Ok(0)
    }

    /// `getresuid`, `getresgid`.
    fn get_all(self, thread: &Thread, a: Arguments) -> SyscallResult {
        let ids = self.of(&thread.credentials);
        for (at, id) in [(a[0], ids.real), (a[1], ids.effective), (a[2], ids.saved)] {
            thread.space.write_u32(address(at), id)?;
        }
        Ok(0)
    }

    /// `setfsuid`, `setfsgid`, which return the old id and tell nothing else.
    fn set_files(self, thread: &mut Thread, id: u32) -> SyscallResult {
        let ids = self.of(&thread.credentials);
        let allowed = id == ids.files || ids.contain(id) || self.is_free(&thread.credentials);
        if id != UNCHANGED && id != ids.files && allowed {
            let mut new = (*thread.credentials).clone();
            match self {
                Self::User => {
                    new.user.files = id;
                    new.follow_files_user(ids.files);
                }
                Self::Group => new.group.files = id,
            }
            scheduler().set_credentials(thread, new);
        }
        Ok(ids.files.into())
    }
}

pub(super) fn getuid(thread: &mut Thread, _: Arguments) -> SyscallResult {
    Ok(thread.credentials.user.real.into())
}

pub(super) fn geteuid(thread: &mut Thread, _: Arguments) -> SyscallResult {
    Ok(thread.credentials.user.effective.into())
}

pub(super) fn getgid(thread: &mut Thread, _: Arguments) -> SyscallResult {
    Ok(thread.credentials.group.real.into())
}

pub(super) fn getegid(thread: &mut Thread, _: Arguments) -> SyscallResult {
    Ok(thread.credentials.group.effective.into())
}

pub(super) fn setuid(thread: &mut Thread, a: Arguments) -> SyscallResult {
    IdFamily::User.set(thread, a[0] as u32)
}

pub(super) fn setgid(thread: &mut Thread, a: Arguments) -> SyscallResult {
    IdFamily::Group.set(thread, a[0] as u32)
}

pub(super) fn setreuid(thread: &mut Thread, a: Arguments) -> SyscallResult {
    IdFamily::User.set_real_and_effective(thread, a[0] as u32, a[1] as u32)
}

pub(super) fn setregid(thread: &mut Thread, a: Arguments) -> SyscallResult {
    IdFamily::Group.set_real_and_effective(thread, a[0] as u32, a[1] as u32)
}

pub(super) fn setresuid(thread: &mut Thread, a: Arguments) -> SyscallResult {
    IdFamily::User.set_all(thread, [a[0] as u32, a[1] as u32, a[2] as u32])
}

pub(super) fn setresgid(thread: &mut Thread, a: Arguments) -> SyscallResult {
    IdFamily::Group.set_all(thread, [a[0] as u32, a[1] as u32, a[2] as u32])
}

pub(super) fn getresuid(thread: &mut Thread, a: Arguments) -> SyscallResult {
    IdFamily::User.get_all(thread, a)
}

pub(super) fn getresgid(thread: &mut Thread, a: Arguments) -> SyscallResult {
    IdFamily::Group.get_all(thread, a)
}

pub(super) fn setfsuid(thread: &mut Thread, a: Arguments) -> SyscallResult {
    IdFamily::User.set_files(thread, a[0] as u32)
}

pub(super) fn setfsgid(thread: &mut Thread, a: Arguments) -> SyscallResult {
    IdFamily::Group.set_files(thread, a[0] as u32)
}

/// The most supplementary groups (`NGROUPS_MAX`).
const GROUPS_MAX: u32 = 65536;

/// `getgroups`.
pub(super) fn getgroups(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (room, groups) = (a[0] as i32, thread.credentials.groups.clone());
    let Ok(room) = usize::try_from(room) else { return Err(Errno::EINVAL.into()) };
    if room > 0 {
        if groups.len() > room {
            return Err(Errno::EINVAL.into());
        }
        let bytes: Vec<u8> = groups.iter().flat_map(|group| group.to_le_bytes()).collect();
        thread.space.write(address(a[1]), &bytes)?;
    }
    Ok(groups.len() as u64)
}

/// `setgroups`.
pub(super) fn setgroups(thread: &mut Thread, a: Arguments) -> SyscallResult {
    thread.credentials.need(linux::CAP_SETGID)?;
    let count = a[0] as u32;
    if count > GROUPS_MAX {
        return Err(Errno::EINVAL.into());
    }
    let bytes = thread.space.read_vec(address(a[1]), count as usize * 4)?;
    let group = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
    let mut groups: Vec<u32> = bytes.chunks_exact(4).map(group).collect();
    if groups.contains(&UNCHANGED) {
        return Err(Errno::EINVAL.into());
    }
    groups.sort_unstable();
    let new = Credentials { groups: Arc::from(groups), ..(*thread.credentials).clone() };
    scheduler().set_credentials(thread, new);
    Ok(0)
}

/// The versions of the interface, and the 32-bit words of each of its sets.
const VERSIONS: [(u32, usize); 3] = [(0x1998_0330, 1), (0x2007_1026, 2), (0x2008_0522, 2)];
const CURRENT_VERSION: u32 = VERSIONS[2].0;

/// Reads the header: how many words a set has, and the thread.
///
/// A wrong version is replaced by the current one (`cap_validate_magic`).
fn header(thread: &Thread, at: u64) -> Result<(usize, i32), Errno> {
    let bytes: [u8; 8] = thread.space.read_array(address(at))?;
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    match VERSIONS.iter().find(|(version, _)| *version == word(0)) {
        Some((_, words)) => Ok((*words, word(4).cast_signed())),
        None => {
            thread.space.write_u32(address(at), CURRENT_VERSION)?;
            Err(Errno::EINVAL)
        }
    }
}

/// `capget`.
pub(super) fn capget(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (words, id) = match header(thread, a[0]) {
        // A program asks for the version so.
        Err(Errno::EINVAL) if a[1] == 0 => return Ok(0),
        header => header?,
    };
    if a[1] == 0 {
        return Ok(0);
    }
    let id = u32::try_from(id).map_err(|_| Errno::EINVAL)?;
    let credentials = match id {
        0 => thread.credentials.clone(),
        id => scheduler().credentials_of(TaskId(id)).ok_or(Errno::ESRCH)?,
    };
    let Capabilities { effective, permitted, inheritable, .. } = credentials.capabilities;
    let word = |index: usize| [effective, permitted, inheritable].map(|set| (set.0 >> (32 * index)) as u32);
    let bytes: Vec<u8> = (0..words).flat_map(word).flat_map(u32::to_le_bytes).collect();
    thread.space.write(address(a[1]), &bytes)?;
    Ok(0)
}

/// `capset`, of the calling thread only (`cap_capset`).
pub(super) fn capset(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (words, id) = header(thread, a[0])?;
    if id != 0 && id.cast_unsigned() != thread.id.0 {
        return Err(Errno::EPERM.into());
    }
    let bytes = thread.space.read_vec(address(a[1]), words * 12)?;
    let set = |first: usize| {
        let word = |index: usize| {
            let at = index * 12 + first * 4;
            bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
        };
        CapabilitySet((u64::from(word(0)) | u64::from(word(1)) << 32) & CapabilitySet::ALL.0)
    };
    let (effective, permitted, inheritable) = (set(0), set(1), set(2));
    let old = thread.credentials.capabilities;
    let gained = CapabilitySet(inheritable.0 & !old.inheritable.0);
    let allowed = (gained.is_subset_of(old.permitted) || thread.credentials.has(linux::CAP_SETPCAP))
        && gained.is_subset_of(old.bounding)
        && permitted.is_subset_of(old.permitted)
        && effective.is_subset_of(permitted);
    if !allowed {
        return Err(Errno::EPERM.into());
    }
    let capabilities = Capabilities { effective, permitted, inheritable, bounding: old.bounding };
    let new = Credentials { capabilities, ..(*thread.credentials).clone() };
    scheduler().set_credentials(thread, new);
    Ok(0)
}

/// `PR_CAPBSET_READ`, `PR_CAPBSET_DROP`.
pub(super) fn bounding_set(thread: &mut Thread, capability: u64, drops: bool) -> SyscallResult {
    if capability > linux::CAP_LAST_CAP.into() {
        return Err(Errno::EINVAL.into());
    }
    let capability = capability as u32;
    if !drops {
        return Ok(thread.credentials.capabilities.bounding.contains(capability).into());
    }
    thread.credentials.need(linux::CAP_SETPCAP)?;
    let mut new = (*thread.credentials).clone();
    new.capabilities.bounding.0 &= !(1 << capability);
    scheduler().set_credentials(thread, new);
    Ok(0)
}

/// `PR_SET_KEEPCAPS`.
pub(super) fn keep_capabilities(thread: &mut Thread, keeps: u64) -> SyscallResult {
    if keeps > 1 {
        return Err(Errno::EINVAL.into());
    }
    let new = Credentials { keeps_capabilities: keeps != 0, ..(*thread.credentials).clone() };
    scheduler().set_credentials(thread, new);
    Ok(0)
}
