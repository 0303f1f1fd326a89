//! Credentials of threads: users, groups and capabilities (`struct cred`), and what they permit.
//!
//! [`Credentials`] never change once they are made; a call that changes those of its thread makes
//! new ones ([`Scheduler::set_credentials`]). The first process is root with all capabilities.
//!
//! Linux: `kernel/sys.c`, `security/commoncap.c`, `fs/namei.c`. Not guaranteed: ambient
//! capabilities, capabilities of files, secure bits; user namespaces.
//!
//! **INV-KERNEL-RIGHTS** A thread that has given up user 0 has none of its rights, unless it asked
//! to keep its permitted capabilities.

use crate::errno::Errno;
use crate::inode::InodeAttributes;
use crate::task::{Scheduler, Thread};
use alloc::sync::Arc;
use linux_raw_sys::general as linux;
use pagewright_mm::space::Privileges;
use pagewright_plant::plant;

/// A set of capabilities, by their numbers (`kernel_cap_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CapabilitySet(pub(crate) u64);

impl CapabilitySet {
    /// All capabilities (`CAP_FULL_SET`).
    pub(crate) const ALL: Self = Self((1 << (linux::CAP_LAST_CAP + 1)) - 1);
    const NONE: Self = Self(0);
    /// Those that a change of `fsuid` drops or raises (`CAP_FS_MASK`).
    const OF_FILES: Self = Self(
        1 << linux::CAP_CHOWN
            | 1 << linux::CAP_MKNOD
            | 1 << linux::CAP_DAC_OVERRIDE
            | 1 << linux::CAP_DAC_READ_SEARCH
            | 1 << linux::CAP_FOWNER
            | 1 << linux::CAP_FSETID
            | 1 << linux::CAP_LINUX_IMMUTABLE
            | 1 << linux::CAP_MAC_OVERRIDE,
    );

    pub(crate) fn contains(self, capability: u32) -> bool {
        self.0 & 1 << capability != 0
    }

    pub(crate) fn is_subset_of(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }
}

/// The capabilities of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities {
    pub(crate) effective: CapabilitySet,
    pub(crate) permitted: CapabilitySet,
    pub(crate) inheritable: CapabilitySet,
    /// The limit of what `execve` gives.
    pub(crate) bounding: CapabilitySet,
}

/// The users, or the groups, that a thread acts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadIds {
    pub(crate) real: u32,
    pub(crate) effective: u32,
    pub(crate) saved: u32,
    /// For access to files (`fsuid`).
    pub(crate) files: u32,
}

impl ThreadIds {
    const ROOT: Self = Self { real: 0, effective: 0, saved: 0, files: 0 };

    /// Whether `id` is the real, the effective or the saved one.
    pub(crate) fn contain(self, id: u32) -> bool {
        id == self.real || id == self.effective || id == self.saved
    }

    fn has_root(self) -> bool {
        self.contain(0)
    }

    /// Whether a thread with these may trace one whose ids are `target` (`ptrace_may_access`).
    fn match_all(id: u32, target: Self) -> bool {
        id == target.effective && id == target.saved && id == target.real
    }
}

/// The access to a file that is wanted (`MAY_READ` and its relatives).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileAccess(pub(crate) u32);

impl FileAccess {
    pub(crate) const EXECUTE: Self = Self(linux::X_OK);
    pub(crate) const WRITE: Self = Self(linux::W_OK);
    pub(crate) const READ: Self = Self(linux::R_OK);
    /// The access that a change of a directory's entries needs.
    pub(crate) const CHANGE_ENTRIES: Self = Self(linux::W_OK | linux::X_OK);

    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Which ids of the caller a check of `ptrace` uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TracingIds {
    /// `PTRACE_MODE_REALCREDS`.
    Real,
    /// `PTRACE_MODE_FSCREDS`.
    Files,
}

/// The credentials of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) user: ThreadIds,
    pub(crate) group: ThreadIds,
    /// The supplementary groups, in ascending order.
    pub(crate) groups: Arc<[u32]>,
    pub(crate) capabilities: Capabilities,
    /// Whether a change of the user keeps the permitted capabilities (`PR_SET_KEEPCAPS`).
    pub(crate) keeps_capabilities: bool,
    /// Whether `execve` gives no rights that the caller lacks (`PR_SET_NO_NEW_PRIVS`).
    pub(crate) no_new_privileges: bool,
}

impl Credentials {
    /// The credentials of the first process.
    pub(crate) fn root() -> Arc<Self> {
        let (effective, permitted, bounding) = (CapabilitySet::ALL, CapabilitySet::ALL, CapabilitySet::ALL);
        Arc::new(Self {
            user: ThreadIds::ROOT,
            group: ThreadIds::ROOT,
            groups: Arc::from([]),
            capabilities: Capabilities { effective, permitted, inheritable: CapabilitySet::NONE, bounding },
            keeps_capabilities: false,
            no_new_privileges: false,
        })
    }

    /// Whether a capability is effective (`capable`).
    pub(crate) fn has(&self, capability: u32) -> bool {
        self.capabilities.effective.contains(capability)
    }

    /// Fails with `EPERM` without a capability.
    pub(crate) fn need(&self, capability: u32) -> Result<(), Errno> {
        if self.has(capability) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// The capabilities that memory calls check.
    pub(crate) fn privileges(&self) -> Privileges {
        let mut privileges = Privileges::empty();
        privileges.set(Privileges::IPC_LOCK, self.has(linux::CAP_IPC_LOCK));
        privileges.set(Privileges::SYS_ADMIN, self.has(linux::CAP_SYS_ADMIN));
        privileges.set(Privileges::SYS_RESOURCE, self.has(linux::CAP_SYS_RESOURCE));
        privileges.set(Privileges::SYS_RAWIO, self.has(linux::CAP_SYS_RAWIO));
        privileges
    }

    /// Whether files of a group count as its own (`in_group_p`).
    pub(crate) fn is_in_group(&self, group: u32) -> bool {
        group == self.group.files || self.groups.binary_search(&group).is_ok()
    }

    /// Whether it may change the attributes of a file (`inode_owner_or_capable`).
    pub(crate) fn owns(&self, node: &InodeAttributes) -> bool {
        node.uid == self.user.files || self.has(linux::CAP_FOWNER)
    }

    /// Checks access to a file (`generic_permission`).
    ///
    /// # Errors
    /// `EACCES`.
    pub(crate) fn access(&self, node: &InodeAttributes, wanted: FileAccess) -> Result<(), Errno> {
        const DIRECTORY: u32 = 0o040_000;
        const TYPE: u32 = 0o170_000;
        const ANY_EXECUTES: u32 = 0o111;
        let class = if node.uid == self.user.files {
            node.mode >> 6
        } else if self.is_in_group(node.gid) {
            node.mode >> 3
        } else {
            node.mode
        };
        let (wanted, is_directory) = (wanted.0, node.mode & TYPE == DIRECTORY);
        let only_reads = wanted & linux::W_OK == 0 && (is_directory || wanted & linux::X_OK == 0);
        let executes_nothing = wanted & linux::X_OK != 0 && !is_directory && node.mode & ANY_EXECUTES == 0;
        let granted = wanted & !class & 0o7 == 0
            || only_reads && self.has(linux::CAP_DAC_READ_SEARCH)
            || self.has(linux::CAP_DAC_OVERRIDE) && !executes_nothing;
        if granted { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Checks that an entry of a directory may be removed (`may_delete`).
    ///
    /// # Errors
    /// `EACCES`, and `EPERM` for an entry of another user in a directory with the sticky bit.
    pub(crate) fn remove_entry(&self, directory: &InodeAttributes, node: &InodeAttributes) -> Result<(), Errno> {
        const STICKY: u32 = 0o1000;
        self.access(directory, FileAccess::CHANGE_ENTRIES)?;
        let is_own = [node.uid, directory.uid].contains(&self.user.files);
        let allowed = directory.mode & STICKY == 0 || is_own || self.has(linux::CAP_FOWNER);
        if allowed { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Whether it may send signals to a thread with other credentials (`kill_ok_by_cred`).
    pub(crate) fn may_signal(&self, target: &Self) -> bool {
        let matches = |id| id == target.user.saved || id == target.user.real;
        matches(self.user.effective) || matches(self.user.real) || self.has(linux::CAP_KILL)
    }

    /// Whether it may set the scheduling of a thread with other credentials (`check_same_owner`).
    pub(crate) fn may_schedule(&self, target: &Self) -> bool {
        [target.user.effective, target.user.real].contains(&self.user.effective) || self.has(linux::CAP_SYS_NICE)
    }

    /// Whether it may look into a process with other credentials (`__ptrace_may_access`).
    pub(crate) fn may_trace(&self, target: &Self, is_dumpable: bool, by: TracingIds) -> bool {
        let (user, group) = match by {
            TracingIds::Real => (self.user.real, self.group.real),
            TracingIds::Files => (self.user.files, self.group.files),
        };
        let is_same = ThreadIds::match_all(user, target.user) && ThreadIds::match_all(group, target.group);
        let holds_all = target.capabilities.permitted.is_subset_of(self.capabilities.permitted);
        is_same && is_dumpable && holds_all || self.has(linux::CAP_SYS_PTRACE)
    }

    /// Changes the capabilities after a change of the user (`cap_emulate_setxuid`).
    pub(crate) fn follow_user(&mut self, before: &Self) {
        // INV-KERNEL-RIGHTS: a thread that has given up user 0 has none of its rights.
        plant!(CapabilitiesKept => return);
        let capabilities = &mut self.capabilities;
        if before.user.has_root() && !self.user.has_root() && !self.keeps_capabilities {
            (capabilities.permitted, capabilities.effective) = (CapabilitySet::NONE, CapabilitySet::NONE);
        }
        match (before.user.effective, self.user.effective) {
            (0, 1..) => capabilities.effective = CapabilitySet::NONE,
            (1.., 0) => capabilities.effective = capabilities.permitted,
            (0, 0) | (1.., 1..) => {}
        }
    }

    /// Changes the capabilities after a change of `fsuid` alone (`cap_task_fix_setuid`).
    pub(crate) fn follow_files_user(&mut self, before: u32) {
        let (of_files, permitted) = (CapabilitySet::OF_FILES.0, self.capabilities.permitted.0);
        let effective = &mut self.capabilities.effective.0;
        match (before, self.user.files) {
            (0, 1..) => *effective &= !of_files,
            (1.., 0) => *effective |= of_files & permitted,
            (0, 0) | (1.., 1..) => {}
        }
    }

    /// The credentials of a program with these attributes, and whether it has gained rights.
    ///
    /// Linux: `bprm_fill_uid`, `cap_bprm_creds_from_file`, `AT_SECURE`. The set-id bits of a script
    /// have no effect.
    pub(crate) fn for_program(&self, program: &InodeAttributes) -> (Self, bool) {
        const SET_UID: u32 = 0o4000;
        /// `S_ISGID` of a program; without `S_IXGRP` it once meant mandatory locks.
        const SET_GID: u32 = 0o2010;
        let mut new = self.clone();
        if !self.no_new_privileges {
            if program.mode & SET_UID != 0 {
                new.user.effective = program.uid;
            }
            if program.mode & SET_GID == SET_GID {
                new.group.effective = program.gid;
            }
        }
        let is_set = new.user.effective != self.user.real || new.group.effective != self.group.real;
        let Capabilities { inheritable, bounding, .. } = self.capabilities;
        let by_root = new.user.effective == 0 || new.user.real == 0;
        let permitted = if by_root { CapabilitySet(bounding.0 | inheritable.0) } else { CapabilitySet::NONE };
        let effective = if new.user.effective == 0 { permitted } else { CapabilitySet::NONE };
        new.capabilities = Capabilities { effective, permitted, inheritable, bounding };
        for ids in [&mut new.user, &mut new.group] {
            (ids.saved, ids.files) = (ids.effective, ids.effective);
        }
        new.keeps_capabilities = false;
        let grew = new.user.real != 0 && (effective != CapabilitySet::NONE || permitted != CapabilitySet::NONE);
        (new, is_set || grew)
    }

    /// Whether others with the same user may no longer look into a process after this change.
    ///
    /// Linux: `commit_creds`.
    pub(crate) fn hides(&self, before: &Self) -> bool {
        let ids = |of: &Self| [of.user.effective, of.user.files, of.group.effective, of.group.files];
        ids(self) != ids(before) || !self.capabilities.permitted.is_subset_of(before.capabilities.permitted)
    }
}

impl Scheduler {
    /// Gives a thread, which runs on this CPU, new credentials (`commit_creds`).
    ///
    /// Those of the process are those of its first thread.
    pub(crate) fn set_credentials(&mut self, thread: &mut Thread, new: Credentials) {
        let hides = new.hides(&thread.credentials);
        thread.credentials = Arc::new(new);
        if let Some(entry) = self.threads.get_mut(&thread.id) {
            entry.credentials = thread.credentials.clone();
        }
        let process = self.process(thread.process);
        if hides {
            process.is_dumpable = false;
        }
        if thread.id == thread.process {
            process.credentials = thread.credentials.clone();
        }
    }
}
