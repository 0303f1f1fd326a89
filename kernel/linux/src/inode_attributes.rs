//! The attributes of an inode, and what they permit the caller of a memory call to do.
//!
//! [`SharedAttributes`] is shared by an inode and the object of the memory manager that has its
//! pages. `mincore` and `MADV_PAGEOUT` ask the object whether the caller could write the file. The
//! answer depends on the thread that this CPU runs, which [`as_caller`] names.
//!
//! Not guaranteed: an answer outside [`as_caller`]. Everything is permitted there.

use crate::credentials::{Credentials, FileAccess};
use crate::task::Thread;
use crate::timers::realtime_ns;
use alloc::sync::Arc;
use pagewright_mm::file::TmpfsFileOps;
use pagewright_types::CpuMask;
use spin::Mutex;

/// The attributes that calls change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeAttributes {
    /// The file type and the permissions (`st_mode`).
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The paths that lead to it, of anything but a directory.
    pub(crate) links: u32,
    /// When it was last read, changed, and changed in its attributes, in ns since 1970.
    pub(crate) accessed: u64,
    pub(crate) modified: u64,
    pub(crate) changed: u64,
}

/// The attributes of an inode and its object.
#[derive(Clone)]
pub(crate) struct SharedAttributes(Arc<Mutex<InodeAttributes>>);

impl SharedAttributes {
    /// Those of a new inode of the first user.
    pub(crate) fn new(mode: u32) -> Self {
        let now = realtime_ns();
        let attributes = InodeAttributes { mode, uid: 0, gid: 0, links: 1, accessed: now, modified: now, changed: now };
        Self(Arc::new(Mutex::new(attributes)))
    }

    pub(crate) fn lock(&self) -> spin::MutexGuard<'_, InodeAttributes> {
        self.0.lock()
    }
}

impl TmpfsFileOps for SharedAttributes {
    fn could_be_written(&self) -> bool {
        let attributes = *self.lock();
        let caller = CALLERS[pagewright_hal::this_cpu().index()].lock().clone();
        caller.is_none_or(|caller| caller.owns(&attributes) || caller.access(&attributes, FileAccess::WRITE).is_ok())
    }
}

/// The credentials of the thread that makes a memory call, by CPU.
static CALLERS: [Mutex<Option<Arc<Credentials>>>; CpuMask::MAX] = [const { Mutex::new(None) }; CpuMask::MAX];

/// Makes a memory call during which objects check the credentials of this thread.
///
/// A call stays on its CPU.
pub(crate) fn as_caller<T>(thread: &Thread, call: impl FnOnce() -> T) -> T {
    let slot = &CALLERS[pagewright_hal::this_cpu().index()];
    *slot.lock() = Some(thread.credentials.clone());
    let done = call();
    *slot.lock() = None;
    done
}
