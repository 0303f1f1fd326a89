//! System V shared memory: segments by key and number (`ipc/shm.c`).
//!
//! A segment is shared memory of the memory manager ([`HeldObject`]), as a file of Linux's tmpfs
//! is. The memory manager counts the mappings of the object, which are the segment's attachments. A
//! removed segment is closed at once: its pages go with the last attachment, and its entry is
//! dropped when the table is next looked at.
//!
//! The pages of a locked segment stay in memory, and count against `RLIMIT_MEMLOCK` of the user
//! that locked it until it is unlocked or gone.
//!
//! **INV-KERNEL-LOCKED** The segments that a user without privileges locks (`SHM_LOCK`) have no
//! more pages than its `RLIMIT_MEMLOCK`; a segment counts until it is unlocked, or removed and
//! detached.
//!
//! Not guaranteed: huge pages; the times and the process of a detachment that `munmap` or the end
//! of a process makes; the pages of locked segments in `Unevictable` of `/proc/meminfo`.

use crate::credentials::Credentials;
use crate::errno::Errno;
use crate::inode::HeldObject;
use crate::memory::{FileObject, mm};
use crate::timers::realtime_ns;
use alloc::collections::BTreeMap;
use alloc::format;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};
use linux_raw_sys::general as linux;
use pagewright_mm::file::FileKind;
use pagewright_plant::plant;
use pagewright_types::PAGE_SIZE;
use spin::{Mutex, MutexGuard};

/// The key of a segment that only its number finds (`IPC_PRIVATE`).
pub(crate) const PRIVATE: i32 = 0;
/// The most segments (`SHMMNI`).
pub(crate) const COUNT_MAX: usize = 4096;
/// The bits of the mode that say that a segment was removed (`SHM_DEST`).
const REMOVED: u32 = 0o1000;
/// The bit of the mode that says that a segment is locked (`SHM_LOCKED`).
const LOCKED: u32 = 0o2000;
/// The most bytes of a segment (`SHMMAX`).
pub(crate) const SIZE_MAX: u64 = u64::MAX - (1 << 24);

/// The most bytes of a new segment, which programs change (`shm_ctlmax`).
pub(crate) static SIZE_LIMIT: AtomicU64 = AtomicU64::new(SIZE_MAX);

/// The most bytes of a new segment.
pub(crate) fn size_limit() -> u64 {
    SIZE_LIMIT.load(Ordering::Relaxed)
}

/// A segment (`struct shmid_kernel`).
pub(crate) struct Segment {
    pub(crate) key: i32,
    /// In bytes; its object has whole pages.
    pub(crate) size: u64,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) creator_uid: u32,
    pub(crate) creator_gid: u32,
    pub(crate) creator: u32,
    /// The process that attached or detached it last; 0 for none.
    pub(crate) last: u32,
    /// When it was attached, detached, and changed, in seconds since 1970; 0 for never.
    pub(crate) attached: u64,
    pub(crate) detached: u64,
    pub(crate) changed: u64,
    /// The user whose limit its pages count against, if it is locked (`mlock_ucounts`).
    locked_by: Option<u32>,
    pub(crate) object: pagewright_sync::Arc<FileObject>,
    /// Dropped when the segment is removed.
    held: Option<HeldObject>,
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    realtime_ns() / 1_000_000_000
}

impl Segment {
    /// Checks the rights that `mode` asks for (`ipcperms`).
    ///
    /// # Errors
    /// `EACCES`.
    pub(crate) fn access(&self, mode: u32, caller: &Credentials) -> Result<(), Errno> {
        let wanted = mode >> 6 | mode >> 3 | mode;
        let user = caller.user.effective;
        let is_member = |group| group == caller.group.effective || caller.is_in_group(group);
        let granted = if user == self.uid || user == self.creator_uid {
            self.mode >> 6
        } else if is_member(self.gid) || is_member(self.creator_gid) {
            self.mode >> 3
        } else {
            self.mode
        };
        if wanted & !granted & 0o7 == 0 || caller.has(linux::CAP_IPC_OWNER) { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Checks that the caller may change or remove it (`ipcctl_obtain_check`).
    ///
    /// # Errors
    /// `EPERM`.
    pub(crate) fn own(&self, caller: &Credentials) -> Result<(), Errno> {
        self.check_owner(caller).or_else(|_| caller.need(linux::CAP_SYS_ADMIN))
    }

    /// Checks that it belongs to the caller.
    ///
    /// # Errors
    /// `EPERM`.
    pub(crate) fn check_owner(&self, caller: &Credentials) -> Result<(), Errno> {
        let owns = [self.uid, self.creator_uid].contains(&caller.user.effective);
        if owns { Ok(()) } else { Err(Errno::EPERM) }
    }

    fn set_locked(&mut self, by: Option<u32>) {
        self.locked_by = by;
        self.mode = self.mode & !LOCKED | if by.is_some() { LOCKED } else { 0 };
        self.object.set_unevictable(by.is_some());
    }

    fn pages(&self) -> u64 {
        self.size.div_ceil(PAGE_SIZE)
    }

    fn is_gone(&self) -> bool {
        self.held.is_none() && self.object.mappings() == 0
    }
}

/// The segments by their numbers.
#[derive(Default)]
pub(crate) struct Segments {
    all: BTreeMap<u32, Segment>,
    next: u32,
}

static SEGMENTS: Mutex<Segments> = Mutex::new(Segments { all: BTreeMap::new(), next: 0 });

/// Locks the table, without the segments that are gone.
pub(crate) fn segments() -> MutexGuard<'static, Segments> {
    let mut segments = SEGMENTS.lock();
    segments.all.retain(|_, segment| !segment.is_gone());
    segments
}

impl Segments {
    /// Finds or makes a segment (`ipcget`, `newseg`).
    pub(crate) fn get(
        &mut self,
        key: i32,
        size: u64,
        flags: u32,
        creator: u32,
        caller: &Credentials,
    ) -> Result<u32, Errno> {
        const CREATE: u32 = 0o1000;
        const EXCLUSIVE: u32 = 0o2000;
        const HUGE: u32 = 0o4000;
        let known = self.all.iter().find(|(_, segment)| key != PRIVATE && segment.key == key);
        if let Some((id, segment)) = known {
            if flags & CREATE != 0 && flags & EXCLUSIVE != 0 {
                return Err(Errno::EEXIST);
            }
            if size > segment.size {
                return Err(Errno::EINVAL);
            }
            segment.access(flags, caller)?;
            return Ok(*id);
        }
        if key != PRIVATE && flags & CREATE == 0 {
            return Err(Errno::ENOENT);
        }
        if size == 0 || size > size_limit() {
            return Err(Errno::EINVAL);
        }
        if self.all.len() >= COUNT_MAX {
            return Err(Errno::ENOSPC);
        }
        // As in Linux without a pool of huge pages.
        if flags & HUGE != 0 {
            return Err(Errno::ENOMEM);
        }
        let bytes = size.checked_next_multiple_of(PAGE_SIZE).ok_or(Errno::EINVAL)?;
        let object = mm().add_file(&format!("/SYSV{key:08x} (deleted)"), FileKind::Shmem, bytes)?;
        let (uid, gid) = (caller.user.effective, caller.group.effective);
        let segment = Segment {
            key,
            size,
            mode: flags & 0o777,
            uid,
            gid,
            creator_uid: uid,
            creator_gid: gid,
            creator,
            last: 0,
            attached: 0,
            detached: 0,
            changed: now(),
            locked_by: None,
            object: object.clone(),
            held: Some(HeldObject(object)),
        };
        let id = self.next;
        self.next = (id + 1) & i32::MAX.cast_unsigned();
        self.all.insert(id, segment);
        Ok(id)
    }

    /// The segment with a number.
    ///
    /// # Errors
    /// `EINVAL`.
    pub(crate) fn find(&mut self, id: i32) -> Result<&mut Segment, Errno> {
        u32::try_from(id).ok().and_then(|id| self.all.get_mut(&id)).ok_or(Errno::EINVAL)
    }

    /// The segment of an object.
    pub(crate) fn of_object(&mut self, object: &FileObject) -> Option<&mut Segment> {
        self.all.values_mut().find(|segment| segment.object.id() == object.id())
    }

    /// The highest number of a segment; 0 without one (`ipc_get_maxidx`).
    pub(crate) fn last_id(&self) -> u64 {
        self.all.keys().next_back().copied().unwrap_or_default().into()
    }

    /// The number of segments, of their pages, and of the pages in memory or swap.
    pub(crate) fn totals(&self) -> (u64, u64, u64) {
        let pages = self.all.values().map(Segment::pages).sum();
        (self.all.len() as u64, pages, self.all.values().map(|segment| segment.object.charged()).sum())
    }

    /// Removes a segment; its attachments stay (`do_shm_rmid`).
    pub(crate) fn remove(&mut self, id: i32) -> Result<(), Errno> {
        let segment = self.find(id)?;
        segment.mode |= REMOVED;
        segment.key = PRIVATE;
        segment.held = None;
        Ok(())
    }

    /// Locks a segment in memory (`shmctl_do_lock`, `user_shm_lock`).
    ///
    /// `limit` is the caller's `RLIMIT_MEMLOCK`. It bounds all segments that the user has locked,
    /// and a segment that is locked again counts once.
    ///
    /// # Errors
    /// `EINVAL` for an unknown segment, `EPERM` for that of another user or if `limit` is 0,
    /// `ENOMEM` beyond the limit.
    pub(crate) fn lock(&mut self, id: i32, limit: u64, caller: &Credentials) -> Result<(), Errno> {
        let user = caller.user.real;
        let locked =
            self.all.values().filter(|segment| segment.locked_by == Some(user)).map(Segment::pages).sum::<u64>();
        let segment = self.find(id)?;
        let is_privileged = caller.has(linux::CAP_IPC_LOCK);
        if !is_privileged {
            segment.check_owner(caller)?;
            if limit == 0 {
                return Err(Errno::EPERM);
            }
        }
        if segment.locked_by.is_none() {
            // INV-KERNEL-LOCKED.
            let is_beyond = plant!(SegmentLimitIgnored; false, locked + segment.pages() > limit / PAGE_SIZE);
            if is_beyond && !is_privileged {
                return Err(Errno::ENOMEM);
            }
            segment.set_locked(Some(user));
        }
        Ok(())
    }

    /// Unlocks a segment, whichever user has locked it.
    ///
    /// # Errors
    /// `EINVAL` for an unknown segment, `EPERM` for that of another user.
    pub(crate) fn unlock(&mut self, id: i32, caller: &Credentials) -> Result<(), Errno> {
        let segment = self.find(id)?;
        if !caller.has(linux::CAP_IPC_LOCK) {
            segment.check_owner(caller)?;
        }
        segment.set_locked(None);
        Ok(())
    }

    /// `/proc/sysvipc/shm`.
    pub(crate) fn show(&self, out: &mut dyn Write) -> fmt::Result {
        writeln!(
            out,
            "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap"
        )?;
        for (id, segment) in &self.all {
            let Segment { key, size, mode, creator, last, uid, gid, creator_uid, creator_gid, .. } = segment;
            let Segment { attached, detached, changed, object, .. } = segment;
            let (nattch, resident) = (object.mappings(), object.charged() * PAGE_SIZE);
            write!(out, "{key:10} {id:10}  {mode:4o} {size:21} {creator:5} {last:5}  {nattch:5} {uid:5} {gid:5} ")?;
            write!(out, "{creator_uid:5} {creator_gid:5} {attached:10} {detached:10} {changed:10} ")?;
            writeln!(out, "{resident:21} {:21}", 0)?;
        }
        Ok(())
    }
}
