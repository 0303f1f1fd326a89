//! Inodes: files, directories, links and devices.
//!
//! A file that a program made is shared memory of the memory manager ([`HeldObject`], as in Linux's
//! tmpfs): sparse, mappable, and swapped out if memory is short. A file of the initramfs is an
//! [`ArchiveFile`].
//!
//! Not guaranteed: times of accesses but the first after a change (`relatime`).

use crate::archive::ArchiveFile;
use crate::call;
use crate::console_input;
use crate::credentials::Credentials;
use crate::errno::Errno;
use crate::file_lock::FileLocks;
pub(crate) use crate::inode_attributes::{InodeAttributes, SharedAttributes};
use crate::machine_files;
use crate::memory::{FileObject, mm};
use crate::memory_files::MemoryFile;
use crate::mount;
use crate::pipe::SharedPipe;
use crate::process_memory::ProcessMemory;
use crate::procfs;
use crate::ramfs;
use crate::socket::Socket;
use crate::sysctl::Sysctl;
use crate::task::TaskId;
use crate::timers::realtime_ns;
use crate::zram::{self, ZramAttribute};
use alloc::string::{String, ToString};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use linux_raw_sys::general as linux;
use pagewright_hal::console;
use pagewright_mm::MmSetting;
use pagewright_plant::plant;
use pagewright_types::PAGE_SIZE;
use spin::Mutex;

/// The type of an inode, with its contents.
pub(crate) enum InodeKind {
    /// A file of the initramfs.
    Archive(ArchiveFile),
    /// A file that a program made, or shared memory without a path (`memfd_create`).
    Shmem(HeldObject),
    /// A file below `/proc` or `/sys`, as it was when it was opened.
    Text(Vec<u8>),
    Directory,
    Link(String),
    /// `/dev/null`.
    Null,
    /// `/dev/zero`.
    Zero,
    /// `/dev/full`.
    Full,
    /// `/dev/random`, `/dev/urandom`: pseudorandom bytes, the same in every run.
    Random,
    /// The serial line.
    Console,
    /// `/dev/zram0`.
    Zram,
    /// A file of the device below `/sys`.
    Attribute(ZramAttribute),
    /// A setting of the memory manager.
    Setting(MmSetting),
    /// A file of the memory manager that is no setting.
    OfMemory(MemoryFile),
    /// `/proc/PID/oom_score_adj`.
    OomScoreAdj(Arc<TaskId>),
    /// A setting of the kernel outside of the memory manager.
    Sysctl(Sysctl),
    /// The memory of a process.
    Memory(ProcessMemory),
    /// The name of a socket.
    Socket(Weak<Socket>),
    /// A FIFO, with the pipe behind it.
    Fifo(Arc<SharedPipe>),
}

/// An object of the memory manager that is open, or has a path.
///
/// Dropping this tells the memory manager that the object can no longer be opened.
pub(crate) struct HeldObject(pub(crate) pagewright_sync::Arc<FileObject>);

impl Drop for HeldObject {
    fn drop(&mut self) {
        mm().close_file(&self.0);
    }
}

/// Permissions of programs that act for their owner or group (`S_ISUID`; `S_ISGID` with `S_IXGRP`).
pub(crate) const SET_UID: u32 = 0o4000;
pub(crate) const SET_GID: u32 = 0o2000;
pub(crate) const GROUP_EXECUTES: u32 = 0o010;

/// One file, directory, link or device.
pub(crate) struct Inode {
    pub(crate) number: u64,
    attributes: SharedAttributes,
    /// A path that leads to it, or led to it until it was removed.
    path: Mutex<String>,
    pub(crate) kind: InodeKind,
    pub(crate) locks: Mutex<FileLocks>,
    /// Its extended attributes, the latest first.
    pub(crate) extended: Mutex<Vec<ExtendedAttribute>>,
    /// The number of open files that write it, or the negated number of spaces that run it.
    writers: AtomicI64,
}

/// A right to write a file, which no program runs meanwhile (`get_write_access`).
pub(crate) struct WriteAccess(Arc<Inode>);

impl Drop for WriteAccess {
    fn drop(&mut self) {
        self.0.writers.fetch_sub(1, Ordering::Release);
    }
}

/// A right to run a file, which is not open for writing meanwhile (`deny_write_access`).
pub(crate) struct RunningProgram(Arc<Inode>);

impl RunningProgram {
    /// The file that runs.
    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.0
    }
}

impl Clone for RunningProgram {
    fn clone(&self) -> Self {
        self.0.writers.fetch_sub(1, Ordering::Relaxed);
        Self(self.0.clone())
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        self.0.writers.fetch_add(1, Ordering::Release);
    }
}

/// An extended attribute (`struct simple_xattr`).
pub(crate) struct ExtendedAttribute {
    pub(crate) name: String,
    pub(crate) value: Vec<u8>,
}

/// The file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// Those of the tree, and that of shared memory.
    Tmpfs,
    Proc,
    Sysfs,
}

static NUMBERS: AtomicU64 = AtomicU64::new(1);

impl Inode {
    pub(crate) fn new(path: &str, mode: u32, kind: InodeKind) -> Arc<Self> {
        Self::with_attributes(path, SharedAttributes::new(mode), kind)
    }

    /// An inode whose attributes its object shares ([`SharedAttributes`]).
    pub(crate) fn with_attributes(path: &str, attributes: SharedAttributes, kind: InodeKind) -> Arc<Self> {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            number,
            attributes,
            path: Mutex::new(path.to_string()),
            kind,
            locks: Mutex::new(FileLocks::default()),
            extended: Mutex::new(Vec::new()),
            writers: AtomicI64::new(0),
        })
    }

    /// The right to write it.
    ///
    /// INV-KERNEL-TEXT: no program runs a file that is open for writing, and the reverse.
    ///
    /// # Errors
    /// `ETXTBSY` while a program runs it.
    pub(crate) fn write_access(self: &Arc<Self>) -> Result<WriteAccess, Errno> {
        plant!(ProgramWritten => return Ok(WriteAccess(self.clone())));
        let more = |writers: i64| (writers >= 0).then_some(writers + 1);
        self.writers.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).map_err(|_| Errno::ETXTBSY)?;
        Ok(WriteAccess(self.clone()))
    }

    /// The right to run it as a program.
    ///
    /// # Errors
    /// `ETXTBSY` while it is open for writing.
    pub(crate) fn run(self: &Arc<Self>) -> Result<RunningProgram, Errno> {
        let more = |writers: i64| (writers <= 0).then_some(writers - 1);
        self.writers.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).map_err(|_| Errno::ETXTBSY)?;
        Ok(RunningProgram(self.clone()))
    }

    /// A path that leads to it, or led to it until it was removed.
    pub(crate) fn path(&self) -> String {
        self.path.lock().clone()
    }

    /// Records that another path leads to it.
    pub(crate) fn set_path(&self, path: &str) {
        *self.path.lock() = path.to_string();
    }

    /// The file system that it is in.
    pub(crate) fn file_system(&self) -> FileSystem {
        mount::file_system(&self.path.lock())
    }

    /// Its attributes.
    pub(crate) fn attributes(&self) -> InodeAttributes {
        *self.attributes.lock()
    }

    /// Changes its attributes, and notes when.
    pub(crate) fn change(&self, change: impl FnOnce(&mut InodeAttributes)) {
        let mut attributes = self.attributes.lock();
        change(&mut attributes);
        attributes.changed = realtime_ns();
    }

    /// Removes the set-id bits after a change by a caller without `CAP_FSETID`.
    ///
    /// Linux: `file_remove_privs`.
    pub(crate) fn drop_set_ids(&self, caller: &Credentials) {
        const SET_IDS: u32 = 0o6000;
        if self.mode() & SET_IDS == 0 || caller.has(linux::CAP_FSETID) {
            return;
        }
        self.change(|attributes| {
            attributes.mode &= !SET_UID;
            if attributes.mode & GROUP_EXECUTES != 0 {
                attributes.mode &= !SET_GID;
            }
        });
    }

    /// Notes a change of its contents.
    pub(crate) fn note_modified(&self) {
        self.change(|attributes| attributes.modified = realtime_ns());
    }

    /// Notes an access, if it is the first since the last change (`relatime`).
    pub(crate) fn note_accessed(&self) {
        let mut attributes = self.attributes.lock();
        if attributes.accessed <= attributes.modified.max(attributes.changed) {
            attributes.accessed = realtime_ns();
        }
    }

    /// The size in bytes, as `stat` reports it.
    pub(crate) fn size(&self) -> u64 {
        match &self.kind {
            InodeKind::Archive(file) => {
                file.known_object().map_or_else(|| file.archive().len() as u64, |object| object.size())
            }
            InodeKind::Shmem(object) => object.0.size(),
            InodeKind::Link(target) => target.len() as u64,
            InodeKind::Zram => zram::size(),
            InodeKind::Attribute(_) => PAGE_SIZE,
            InodeKind::Text(_)
            | InodeKind::Setting(_)
            | InodeKind::OfMemory(_)
            | InodeKind::OomScoreAdj(_)
            | InodeKind::Sysctl(_)
            | InodeKind::Memory(_)
            | InodeKind::Socket(_)
            | InodeKind::Fifo(_)
            | InodeKind::Directory
            | InodeKind::Null
            | InodeKind::Zero
            | InodeKind::Full
            | InodeKind::Random
            | InodeKind::Console => 0,
        }
    }

    /// The allocated size in units of 512 bytes, as `stat` reports it.
    pub(crate) fn blocks(&self) -> u64 {
        match &self.kind {
            InodeKind::Shmem(object) => object.0.charged() * (PAGE_SIZE / 512),
            InodeKind::Archive(_) => self.size().div_ceil(PAGE_SIZE) * (PAGE_SIZE / 512),
            InodeKind::Text(_)
            | InodeKind::Setting(_)
            | InodeKind::OfMemory(_)
            | InodeKind::OomScoreAdj(_)
            | InodeKind::Sysctl(_)
            | InodeKind::Memory(_)
            | InodeKind::Socket(_)
            | InodeKind::Fifo(_)
            | InodeKind::Directory
            | InodeKind::Link(_)
            | InodeKind::Null
            | InodeKind::Zero
            | InodeKind::Full
            | InodeKind::Random
            | InodeKind::Console
            | InodeKind::Zram
            | InodeKind::Attribute(_) => 0,
        }
    }

    /// The number of the device that it names (`st_rdev`); 0 for none.
    pub(crate) fn device(&self) -> u64 {
        let (major, minor) = match &self.kind {
            InodeKind::Null => (1, 3),
            InodeKind::Zero => (1, 5),
            InodeKind::Full => (1, 7),
            InodeKind::Random => (1, 8),
            InodeKind::Console => (5, 1),
            InodeKind::Zram => (254, 0),
            InodeKind::Archive(_)
            | InodeKind::Shmem(_)
            | InodeKind::Text(_)
            | InodeKind::Setting(_)
            | InodeKind::OfMemory(_)
            | InodeKind::OomScoreAdj(_)
            | InodeKind::Sysctl(_)
            | InodeKind::Memory(_)
            | InodeKind::Socket(_)
            | InodeKind::Fifo(_)
            | InodeKind::Directory
            | InodeKind::Link(_)
            | InodeKind::Attribute(_) => return 0,
        };
        major << 8 | minor
    }

    /// The object that the memory manager maps.
    ///
    /// # Errors
    /// `ENODEV` if this is no file, and those of the memory manager.
    pub(crate) fn object(&self) -> Result<pagewright_sync::Arc<FileObject>, Errno> {
        if let InodeKind::Archive(file) = &self.kind {
            return file.object(&procfs::path_of(self), &self.attributes);
        }
        self.shmem().ok_or(Errno::ENODEV)
    }

    /// The object, if this is shared memory or a file that a program made.
    pub(crate) fn shmem(&self) -> Option<pagewright_sync::Arc<FileObject>> {
        if let InodeKind::Shmem(object) = &self.kind { Some(object.0.clone()) } else { None }
    }

    /// The socket that is bound to it.
    pub(crate) fn socket(&self) -> Option<&Weak<Socket>> {
        if let InodeKind::Socket(socket) = &self.kind { Some(socket) } else { None }
    }

    /// The pipe of a FIFO.
    pub(crate) fn fifo(&self) -> Option<&Arc<SharedPipe>> {
        if let InodeKind::Fifo(pipe) = &self.kind { Some(pipe) } else { None }
    }

    /// Calls `look` with at most the first `len` bytes of a file.
    ///
    /// # Errors
    /// `EACCES` if this is no file, and those of the memory manager.
    pub(crate) fn look_at_start<T>(&self, len: u64, look: impl FnOnce(&[u8]) -> T) -> Result<T, Errno> {
        if let InodeKind::Archive(file) = &self.kind {
            return file.look_at_start(len, look);
        }
        let object = self.shmem().ok_or(Errno::EACCES)?;
        Ok(look(&read_object(&object, 0, len as usize)?))
    }

    /// Reads at most `wanted` bytes from an offset.
    pub(crate) fn read(&self, from: u64, wanted: usize) -> Result<Vec<u8>, Errno> {
        match &self.kind {
            InodeKind::Archive(file) => match file.known_object() {
                Some(object) => read_object(&object, from, wanted),
                None => piece(file.archive(), from, wanted),
            },
            InodeKind::Shmem(object) => read_object(&object.0, from, wanted),
            InodeKind::Text(text) => piece(text, from, wanted),
            InodeKind::Directory => Err(Errno::EISDIR),
            // Opening a socket fails, and opening a FIFO opens its pipe.
            InodeKind::Socket(_) | InodeKind::Fifo(_) => Err(Errno::ENXIO),
            InodeKind::Null | InodeKind::Console | InodeKind::Link(_) => Ok(Vec::new()),
            InodeKind::Zero | InodeKind::Full => zeroes(wanted),
            InodeKind::Random => Ok(call::random(wanted)),
            InodeKind::Zram => zram::read(from, wanted),
            InodeKind::Attribute(attribute) => piece(attribute.show()?.as_bytes(), from, wanted),
            InodeKind::Setting(setting) => piece(machine_files::show_setting(*setting).as_bytes(), from, wanted),
            InodeKind::OfMemory(file) => file.read(from, wanted),
            InodeKind::OomScoreAdj(of) => piece(procfs::show_oom_score_adj(of)?.as_bytes(), from, wanted),
            InodeKind::Sysctl(setting) => piece(setting.show().as_bytes(), from, wanted),
            InodeKind::Memory(memory) => memory.read(from, wanted),
        }
    }

    /// Writes at an offset, and returns how many bytes; a file grows if necessary.
    pub(crate) fn write(&self, start: u64, bytes: &[u8]) -> Result<usize, Errno> {
        match &self.kind {
            InodeKind::Archive(_) | InodeKind::Shmem(_) => Ok(mm().write_at(&*self.object()?, start, bytes)?),
            InodeKind::Zram => zram::write(start, bytes),
            InodeKind::Text(_) => Err(Errno::EIO),
            InodeKind::Socket(_) | InodeKind::Fifo(_) => Err(Errno::ENXIO),
            InodeKind::Directory => Err(Errno::EISDIR),
            InodeKind::Attribute(attribute) => {
                attribute.store(bytes)?;
                Ok(bytes.len())
            }
            InodeKind::Setting(setting) => machine_files::store_setting(*setting, bytes).map(|()| bytes.len()),
            InodeKind::OfMemory(file) => file.write(start, bytes),
            InodeKind::OomScoreAdj(of) => {
                procfs::store_oom_score_adj(of, bytes)?;
                Ok(bytes.len())
            }
            InodeKind::Sysctl(setting) => {
                setting.store(start, bytes)?;
                Ok(bytes.len())
            }
            InodeKind::Memory(memory) => memory.write(start, bytes),
            InodeKind::Console => {
                console::write(bytes);
                Ok(bytes.len())
            }
            InodeKind::Full => Err(Errno::ENOSPC),
            InodeKind::Null | InodeKind::Zero | InodeKind::Random | InodeKind::Link(_) => Ok(bytes.len()),
        }
    }

    /// Sets the size of a file.
    ///
    /// # Errors
    /// `EINVAL` if this is no file, and those of the memory manager.
    pub(crate) fn resize(&self, size: u64) -> Result<(), Errno> {
        let object = self.object().map_err(|error| if error == Errno::ENODEV { Errno::EINVAL } else { error })?;
        mm().truncate(&object, size)?;
        self.note_modified();
        if let InodeKind::Archive(file) = &self.kind {
            file.cut(size);
        }
        Ok(())
    }

    /// The file type and the permissions (`st_mode`).
    pub(crate) fn mode(&self) -> u32 {
        self.attributes().mode
    }

    /// Sets the permissions.
    pub(crate) fn set_mode(&self, mode: u32) {
        self.change(|attributes| attributes.mode = attributes.mode & ramfs::TYPE | mode & !ramfs::TYPE);
    }

    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.kind, InodeKind::Directory)
    }

    /// Whether it is the serial line, with input.
    pub(crate) fn has_input(&self) -> bool {
        matches!(self.kind, InodeKind::Console) && console_input::is_on()
    }

    /// Whether it is a file with contents.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.kind, InodeKind::Archive(_) | InodeKind::Shmem(_))
    }
}

/// Reads at most `wanted` bytes of an object of the memory manager.
fn read_object(object: &FileObject, from: u64, wanted: usize) -> Result<Vec<u8>, Errno> {
    let there = object.size().saturating_sub(from).min(wanted as u64) as usize;
    let mut bytes = zeroes(there)?;
    let read = mm().read_at(object, from, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Copies at most `wanted` bytes from `from` on.
fn piece(bytes: &[u8], from: u64, wanted: usize) -> Result<Vec<u8>, Errno> {
    let rest = usize::try_from(from).ok().and_then(|from| bytes.get(from..)).unwrap_or_default();
    let there = &rest[..rest.len().min(wanted)];
    let mut piece = Vec::new();
    piece.try_reserve_exact(there.len())?;
    piece.extend_from_slice(there);
    Ok(piece)
}

/// `count` zero bytes.
pub(crate) fn zeroes(count: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(count)?;
    bytes.resize(count, 0);
    Ok(bytes)
}
