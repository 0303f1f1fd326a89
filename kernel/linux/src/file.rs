//! Descriptors and open files.
//!
//! [`DescriptorTable`] is the table of a process (`files_struct`). [`OpenFile`] is an open file
//! with its offset (`struct file`), which descriptors share after `dup` and `fork`.
//!
//! Not guaranteed: `O_SYNC`, `O_DIRECT`.

use crate::call;
use crate::epoll::Epoll;
use crate::errno::Errno;
use crate::event::EventCounter;
use crate::file_lock;
use crate::inode::{Inode, InodeKind, WriteAccess};
use crate::pipe;
use crate::socket::{Socket, SocketHandle};
use crate::task::TaskId;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use linux_raw_sys::general as linux;
use spin::Mutex;

/// The most descriptors that `RLIMIT_NOFILE` may allow a process (`sysctl_nr_open`).
pub(crate) const NR_OPEN: u64 = 1 << 20;

/// The object behind an open file.
pub(crate) enum OpenTarget {
    Inode(Arc<Inode>),
    Pipe(pipe::PipeEnd),
    /// A process (`pidfd_open`).
    Process(Arc<TaskId>),
    /// A counter (`eventfd`).
    Event(EventCounter),
    Socket(SocketHandle),
    /// An instance of `epoll`.
    Epoll(Epoll),
}

/// An open file.
pub(crate) struct OpenFile {
    /// A number that no other open file has, as the owner of locks.
    pub(crate) number: u64,
    pub(crate) target: OpenTarget,
    pub(crate) offset: Mutex<u64>,
    /// `O_ACCMODE`, `O_APPEND`, `O_NONBLOCK`, `O_PATH`.
    pub(crate) flags: Mutex<u32>,
    /// Held, if it is a file with a path that is open for writing.
    _writes: Option<WriteAccess>,
}

impl OpenFile {
    pub(crate) fn new(target: OpenTarget, flags: u32) -> Arc<Self> {
        Self::with_access(target, flags, None)
    }

    /// An open file that may be written.
    pub(crate) fn with_access(target: OpenTarget, flags: u32, writes: Option<WriteAccess>) -> Arc<Self> {
        let (offset, flags) = (Mutex::new(0), Mutex::new(flags));
        Arc::new(Self { number: file_lock::new_owner(), target, offset, flags, _writes: writes })
    }

    pub(crate) fn has(&self, flag: u32) -> bool {
        *self.flags.lock() & flag != 0
    }

    /// Whether it only names a file, and cannot be used to access it (`O_PATH`, `FMODE_PATH`).
    pub(crate) fn is_path(&self) -> bool {
        self.has(linux::O_PATH)
    }

    pub(crate) fn can_read(&self) -> bool {
        !self.is_path() && *self.flags.lock() & linux::O_ACCMODE != linux::O_WRONLY
    }

    pub(crate) fn can_write(&self) -> bool {
        !self.is_path() && *self.flags.lock() & linux::O_ACCMODE != linux::O_RDONLY
    }

    /// The inode, if the file has one.
    pub(crate) fn inode(&self) -> Option<&Arc<Inode>> {
        match &self.target {
            OpenTarget::Inode(node) => Some(node),
            OpenTarget::Pipe(end) => end.fifo(),
            OpenTarget::Process(_) | OpenTarget::Event(_) | OpenTarget::Socket(_) | OpenTarget::Epoll(_) => None,
        }
    }

    /// The inode of a file with an offset, unlike a FIFO.
    pub(crate) fn seekable(&self) -> Option<&Arc<Inode>> {
        if let OpenTarget::Inode(node) = &self.target { Some(node) } else { None }
    }

    /// The socket.
    ///
    /// # Errors
    /// `ENOTSOCK` if it is none.
    pub(crate) fn socket(&self) -> Result<&Arc<Socket>, Errno> {
        if let OpenTarget::Socket(socket) = &self.target { Ok(socket.get()) } else { Err(Errno::ENOTSOCK) }
    }
}

/// Open files whose last reference was dropped while a lock was held that closing needs.
static CLOSING: Mutex<Vec<OpenFile>> = Mutex::new(Vec::new());
/// Their number, so that each call need not lock them.
static CLOSING_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Drops a reference; the last one closes the file when this CPU has left the current call.
///
/// Linux: `fput`, which defers too. A file that holds others in its messages closes them this way,
/// so a long chain of them needs no deep stack.
pub(crate) fn close_later(open: Arc<OpenFile>) {
    if let Some(last) = Arc::into_inner(open) {
        CLOSING.lock().push(last);
        CLOSING_COUNT.fetch_add(1, Ordering::Release);
    }
}

/// Closes what [`close_later`] left.
///
/// The caller holds no lock.
pub(crate) fn close_deferred() {
    while CLOSING_COUNT.load(Ordering::Acquire) > 0 {
        let last = CLOSING.lock().pop();
        let Some(last) = last else { return };
        CLOSING_COUNT.fetch_sub(1, Ordering::Release);
        drop(last);
    }
}

impl Drop for OpenFile {
    /// Locks the scheduler, which the caller has not locked.
    fn drop(&mut self) {
        if let Some(node) = self.inode() {
            call::release_of_file(self.number, node);
        }
    }
}

/// The working directory and the umask of a process (`fs_struct`).
#[derive(Clone)]
pub(crate) struct FsContext {
    /// Its path follows renames, and it keeps its mount busy.
    pub(crate) directory: Arc<Inode>,
    pub(crate) umask: u32,
}

impl FsContext {
    /// The values that the first process starts with, in this directory.
    pub(crate) fn of_init(root: Arc<Inode>) -> Self {
        Self { directory: root, umask: 0o022 }
    }
}

/// One descriptor.
#[derive(Clone)]
pub(crate) struct Descriptor {
    pub(crate) open: Arc<OpenFile>,
    pub(crate) close_on_exec: bool,
}

/// A descriptor that was taken from its table.
///
/// Dropping it closes it, which releases the POSIX locks of the table on its file. No table and no
/// scheduler may be locked then.
pub(crate) struct TakenDescriptor {
    pub(crate) open: Arc<OpenFile>,
    table: u64,
}

impl Drop for TakenDescriptor {
    fn drop(&mut self) {
        if let Some(node) = self.open.inode() {
            call::release_of_table(self.table, node);
        }
    }
}

/// The index of a descriptor in the table.
///
/// A descriptor is an `unsigned int`: the upper half of the register is ignored.
fn index(number: u64) -> usize {
    number as u32 as usize
}

/// The descriptors of a process.
///
/// The lock order is scheduler, then table. Dropping an end of a pipe locks the scheduler, so a
/// descriptor is dropped only while no table is locked.
pub(crate) struct DescriptorTable {
    slots: Vec<Option<Descriptor>>,
    /// No slot below is free (`next_fd`).
    lowest: usize,
    /// Its number as the owner of POSIX locks.
    owner: u64,
}

impl Drop for DescriptorTable {
    fn drop(&mut self) {
        for number in 0..self.slots.len() as u64 {
            drop(self.take(number));
        }
    }
}

impl DescriptorTable {
    /// The descriptors of the first process: the serial line, and empty input without `has_input`.
    pub(crate) fn of_init(has_input: bool) -> Self {
        let node = |path, kind| OpenTarget::Inode(Inode::new(path, 0o020_666, kind));
        let access = if has_input { linux::O_RDWR } else { linux::O_WRONLY };
        let output = OpenFile::new(node("/dev/console", InodeKind::Console), access);
        let empty = || OpenFile::new(node("/dev/null", InodeKind::Null), linux::O_RDONLY);
        let input = if has_input { output.clone() } else { empty() };
        let all = [input, output.clone(), output];
        let slots = all.into_iter().map(|open| Some(Descriptor { open, close_on_exec: false })).collect();
        Self { slots, lowest: 0, owner: file_lock::new_owner() }
    }

    /// The table of a child, which owns no locks (`dup_fd`).
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn try_clone(&self) -> Result<Self, Errno> {
        let mut slots = Vec::new();
        slots.try_reserve_exact(self.slots.len())?;
        slots.extend_from_slice(&self.slots);
        Ok(Self { slots, lowest: self.lowest, owner: file_lock::new_owner() })
    }

    /// Its number as the owner of POSIX locks.
    pub(crate) fn owner(&self) -> u64 {
        self.owner
    }

    pub(crate) fn get(&self, number: u64) -> Result<&Descriptor, Errno> {
        self.slots.get(index(number)).and_then(Option::as_ref).ok_or(Errno::EBADF)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Result<&mut Descriptor, Errno> {
        self.slots.get_mut(index(number)).and_then(Option::as_mut).ok_or(Errno::EBADF)
    }

    /// Adds a descriptor at the lowest free number from `least` on, and returns the number.
    ///
    /// Numbers are less than `limit` (`alloc_fd`). The caller keeps `open` until the table is
    /// unlocked.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub(crate) fn add(
        &mut self,
        open: &Arc<OpenFile>,
        close_on_exec: bool,
        least: u64,
        limit: u64,
    ) -> Result<u64, Errno> {
        let start = index(least).max(self.lowest);
        let number = (start..).find(|number| self.slots.get(*number).is_none_or(Option::is_none));
        let number = number.filter(|number| (*number as u64) < limit).ok_or(Errno::EMFILE)?;
        self.put(number, open, close_on_exec)?;
        if start == self.lowest {
            self.lowest = number + 1;
        }
        Ok(number as u64)
    }

    /// The first descriptor from this number on.
    pub(crate) fn next_used(&self, from: u32) -> Option<u32> {
        let mut slots = self.slots.iter().enumerate().skip(from as usize);
        slots.find(|(_, slot)| slot.is_some()).map(|(number, _)| number as u32)
    }

    /// The numbers of all descriptors.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        let used = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_some());
        used.map(|(number, _)| number as u32).collect()
    }

    /// Checks that a descriptor can be added.
    pub(crate) fn check_free(&self, limit: u64) -> Result<(), Errno> {
        let limit = limit as usize;
        let free = || self.slots.get(self.lowest..limit).is_none_or(|slots| slots.iter().any(Option::is_none));
        if self.lowest < limit && free() { Ok(()) } else { Err(Errno::EMFILE) }
    }

    /// The limit of numbers for which there is room, as in Linux's table (`alloc_fdtable`).
    pub(crate) fn room(&self) -> usize {
        /// Linux begins with a word of bits, and grows by tables of at least 1 KiB.
        const FIRST: usize = u64::BITS as usize;
        const STEP: usize = 1024 / size_of::<usize>();
        match self.slots.len() {
            0..=FIRST => FIRST,
            more => more.div_ceil(STEP).next_power_of_two() * STEP,
        }
    }

    /// Puts a descriptor at a number, and returns the one that was there.
    ///
    /// The caller drops it, and `open`, after the table is unlocked.
    pub(crate) fn set(
        &mut self,
        number: u64,
        open: &Arc<OpenFile>,
        close_on_exec: bool,
        limit: u64,
    ) -> Result<Option<TakenDescriptor>, Errno> {
        if index(number) as u64 >= limit {
            return Err(Errno::EBADF);
        }
        self.put(index(number), open, close_on_exec)
    }

    fn put(
        &mut self,
        number: usize,
        open: &Arc<OpenFile>,
        close_on_exec: bool,
    ) -> Result<Option<TakenDescriptor>, Errno> {
        if self.slots.len() <= number {
            self.slots.try_reserve(number + 1 - self.slots.len())?;
            self.slots.resize(number + 1, None);
        }
        let replaced = self.slots[number].replace(Descriptor { open: open.clone(), close_on_exec });
        Ok(replaced.map(|old| TakenDescriptor { open: old.open, table: self.owner }))
    }

    /// Removes a descriptor.
    ///
    /// The caller drops it after the table is unlocked.
    pub(crate) fn take(&mut self, number: u64) -> Result<TakenDescriptor, Errno> {
        let taken = self.slots.get_mut(index(number)).and_then(Option::take).ok_or(Errno::EBADF)?;
        self.lowest = self.lowest.min(index(number));
        Ok(TakenDescriptor { open: taken.open, table: self.owner })
    }

    /// Removes the descriptors that `execve` closes.
    pub(crate) fn take_close_on_exec(&mut self) -> Vec<TakenDescriptor> {
        let table = self.owner;
        self.lowest = 0;
        let closing = self.slots.iter_mut().filter(|slot| slot.as_ref().is_some_and(|open| open.close_on_exec));
        closing.filter_map(Option::take).map(|taken| TakenDescriptor { open: taken.open, table }).collect()
    }
}
