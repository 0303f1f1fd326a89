//! Calls on paths, and `/proc`.

use super::{Arguments, address};
use crate::credentials::{Capabilities, CapabilitySet, Credentials, FileAccess};
use crate::errno::Errno;
use crate::file::{OpenFile, OpenTarget};
use crate::inode::{Inode, InodeKind, WriteAccess};
use crate::machine_files;
use crate::mount;
use crate::pipe::PipeEnd;
use crate::procfs;
use crate::ramfs;
use crate::task::{CallStop, SyscallResult, Thread, WaitReason, scheduler};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use pagewright_types::VirtAddr;

/// Reads a path from user memory, and makes it absolute.
pub(super) fn path_at(thread: &Thread, directory: u64, name: VirtAddr) -> Result<String, Errno> {
    let name = thread.space.read_path(name)?;
    if name.is_empty() {
        return Err(Errno::ENOENT);
    }
    if name.starts_with('/') || directory as i32 == linux::AT_FDCWD {
        return Ok(absolute(thread, &name));
    }
    let files = thread.files.lock();
    let node = files.get(directory)?.open.inode().ok_or(Errno::ENOTDIR)?;
    if !node.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    Ok(ramfs::absolute(&node.path(), &name))
}

/// Makes a path absolute.
pub(super) fn absolute(thread: &Thread, name: &str) -> String {
    ramfs::absolute(&thread.fs.lock().directory.path(), name)
}

/// Reads a path as [`path_at`], and follows its links, also the last one if `follow`.
///
/// A last link of `/proc` is not followed.
pub(super) fn resolved(thread: &Thread, directory: u64, name: VirtAddr, follow: bool) -> Result<String, Errno> {
    resolve(thread, &path_at(thread, directory, name)?, follow, &thread.credentials)
}

/// Follows the links of an absolute path, also those to directories of processes.
fn resolve(thread: &Thread, path: &str, follow: bool, caller: &Credentials) -> Result<String, Errno> {
    let mut resolved = ramfs::resolve(path, follow, caller)?;
    for _ in 0..ramfs::LINKS_MAX {
        let Some(next) = procfs::follow(thread, &resolved, follow)? else { return Ok(resolved) };
        resolved = ramfs::resolve(&next, follow, caller)?;
    }
    Err(Errno::ELOOP)
}

pub(super) fn openat(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let path = path_at(thread, a[0], address(a[1]))?;
    open(thread, &path, a[2] as u32, a[3] as u32)
}

/// `faccessat`, which has no flags.
pub(super) fn faccessat(thread: &mut Thread, a: Arguments) -> SyscallResult {
    faccessat2(thread, [a[0], a[1], a[2], 0, 0, 0])
}

/// `faccessat2`: whether the real user may access a file, or with `AT_EACCESS` the effective one.
pub(super) fn faccessat2(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (wanted, flags) = (a[2], a[3] as u32);
    let known = linux::AT_EACCESS | linux::AT_SYMLINK_NOFOLLOW | linux::AT_EMPTY_PATH;
    if wanted > 0o7 || flags & !known != 0 {
        return Err(Errno::EINVAL.into());
    }
    let mut caller = (*thread.credentials).clone();
    if flags & linux::AT_EACCESS == 0 {
        // `access_override_creds`
        (caller.user.files, caller.group.files) = (caller.user.real, caller.group.real);
        let Capabilities { permitted, .. } = caller.capabilities;
        let effective = if caller.user.real == 0 { permitted } else { CapabilitySet::default() };
        caller.capabilities.effective = effective;
    }
    let node = if flags & linux::AT_EMPTY_PATH != 0 && thread.space.read_path(address(a[1]))?.is_empty() {
        thread.named_file(a[0])?.inode().cloned().ok_or(Errno::EACCES)?
    } else {
        let (path, follow) = (path_at(thread, a[0], address(a[1]))?, flags & linux::AT_SYMLINK_NOFOLLOW == 0);
        find_as(thread, &path, follow, &caller)?
    };
    let executes = wanted as u32 & FileAccess::EXECUTE.0 != 0;
    if executes && node.is_file() && mount::has_flag(&node.path(), linux::MS_NOEXEC) {
        return Err(Errno::EACCES.into());
    }
    if wanted != 0 {
        caller.access(&node.attributes(), FileAccess(wanted as u32))?;
    }
    Ok(0)
}

pub(super) fn chdir(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let node = find(thread, &path_at(thread, linux::AT_FDCWD as u64, address(a[0]))?, true)?;
    if !node.is_directory() {
        return Err(Errno::ENOTDIR.into());
    }
    thread.credentials.access(&node.attributes(), FileAccess::EXECUTE)?;
    let left = core::mem::replace(&mut thread.fs.lock().directory, node);
    // Dropping the last handle calls the memory manager.
    drop(left);
    Ok(0)
}

pub(super) fn getcwd(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let directory = thread.fs.lock().directory.clone();
    if directory.attributes().links == 0 {
        return Err(Errno::ENOENT.into());
    }
    let mut path = directory.path().into_bytes();
    path.push(0);
    if path.len() as u64 > a[1] {
        return Err(Errno::ERANGE.into());
    }
    thread.space.write(address(a[0]), &path)?;
    Ok(path.len() as u64)
}

/// `truncate`.
pub(super) fn truncate(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if a[1] > i64::MAX as u64 {
        return Err(Errno::EINVAL.into());
    }
    let node = find(thread, &path_at(thread, linux::AT_FDCWD as u64, address(a[0]))?, true)?;
    if node.is_directory() {
        return Err(Errno::EISDIR.into());
    }
    thread.credentials.access(&node.attributes(), FileAccess::WRITE)?;
    let _access = node.write_access()?;
    node.resize(a[1])?;
    node.drop_set_ids(&thread.credentials);
    Ok(0)
}

/// `umask`, which returns the previous mask.
pub(super) fn umask(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let mask = a[0] as u32 & 0o777;
    Ok(core::mem::replace(&mut thread.fs.lock().umask, mask).into())
}

/// The flags that have an effect together with `O_PATH` (`O_PATH_FLAGS`).
const PATH_ONLY: u32 = linux::O_DIRECTORY | linux::O_NOFOLLOW | linux::O_PATH | linux::O_CLOEXEC;

/// Opens a path with `O_PATH`: the descriptor names the file, and no right to access it is needed.
fn open_path_only(thread: &Thread, path: &str, flags: u32) -> SyscallResult {
    let node = find(thread, path, flags & linux::O_NOFOLLOW == 0)?;
    if flags & linux::O_DIRECTORY != 0 && !node.is_directory() {
        return Err(Errno::ENOTDIR.into());
    }
    add(thread, OpenTarget::Inode(node), flags, None)
}

/// Opens a path.
pub(super) fn open(thread: &mut Thread, path: &str, flags: u32, mode: u32) -> SyscallResult {
    if flags & linux::O_PATH != 0 {
        return open_path_only(thread, path, flags & PATH_ONLY);
    }
    let exclusive = flags & (linux::O_CREAT | linux::O_EXCL) == linux::O_CREAT | linux::O_EXCL;
    // What is to be made is not behind a link (`build_open_flags`).
    let follow = flags & linux::O_NOFOLLOW == 0 && !exclusive;
    let path = resolve(thread, path, follow, &thread.credentials)?;
    // Not in the call below: the tree is locked before a working directory is.
    let mode = mode & !thread.fs.lock().umask;
    let descriptor = procfs::descriptor(thread, &path).transpose()?;
    if descriptor.is_some() && !follow {
        return Err(if exclusive { Errno::EEXIST } else { Errno::ELOOP }.into());
    }
    if let Some(OpenTarget::Pipe(end)) = descriptor.as_ref().map(|open| &open.target) {
        let access = flags & linux::O_ACCMODE;
        let end = end.reopen(access != linux::O_WRONLY, access != linux::O_RDONLY);
        return add(thread, OpenTarget::Pipe(end), flags, None);
    }
    let (node, made) = match of_process(thread, &path, follow) {
        Some(node) if exclusive => return Err(node.err().unwrap_or(Errno::EEXIST).into()),
        Some(node) => (node?, false),
        None => node(&path, flags, mode, &thread.credentials)?,
    };
    if matches!(node.kind, InodeKind::Link(_)) {
        return Err(Errno::ELOOP.into());
    }
    let writes = flags & linux::O_ACCMODE != linux::O_RDONLY;
    if node.is_directory() && writes {
        return Err(Errno::EISDIR.into());
    }
    if !made {
        thread.credentials.access(&node.attributes(), access_of(flags))?;
    }
    if let InodeKind::Memory(memory) = &node.kind {
        memory.check_open(thread)?;
    }
    if flags & linux::O_DIRECTORY != 0 && !node.is_directory() {
        return Err(Errno::ENOTDIR.into());
    }
    if writes && machine_files::is_constant(&node) {
        return Err(Errno::EACCES.into());
    }
    if node.socket().is_some() {
        return Err(Errno::ENXIO.into());
    }
    if node.fifo().is_some() {
        return open_fifo(thread, &node, flags);
    }
    let access = if writes && node.is_file() { Some(node.write_access()?) } else { None };
    if flags & linux::O_TRUNC != 0 && access.is_some() {
        node.resize(0)?;
        node.drop_set_ids(&thread.credentials);
    }
    add(thread, OpenTarget::Inode(node), flags, access)
}

/// Adds a descriptor for what was opened with these flags.
fn add(thread: &Thread, target: OpenTarget, flags: u32, writes: Option<WriteAccess>) -> SyscallResult {
    let kept = linux::O_ACCMODE | linux::O_APPEND | linux::O_NONBLOCK | linux::O_PATH;
    let open = OpenFile::with_access(target, flags & kept, writes);
    let close_on_exec = flags & linux::O_CLOEXEC != 0;
    Ok(thread.add_descriptor(&open, close_on_exec)?)
}

/// Opens an end of a FIFO, and waits for the other one (`fifo_open`).
///
/// While the call waits, its end is open: two that wait for each other both return.
fn open_fifo(thread: &mut Thread, node: &Arc<Inode>, flags: u32) -> SyscallResult {
    let pipe = node.fifo().ok_or(Errno::ENXIO)?;
    let access = flags & linux::O_ACCMODE;
    let (reads, writes) = (access != linux::O_WRONLY, access != linux::O_RDONLY);
    let nonblocking = flags & linux::O_NONBLOCK != 0;
    let waiting = thread.opening.take().filter(|(end, _)| end.fifo().is_some_and(|fifo| Arc::ptr_eq(fifo, node)));
    let (end, before) = match waiting {
        Some(waiting) => waiting,
        None => {
            if nonblocking && writes && !reads && !pipe.has_reader() {
                return Err(Errno::ENXIO.into());
            }
            let end = PipeEnd::open(pipe, reads, writes, Some(node.clone()));
            scheduler().wake_transfers();
            let before = end.partner_opens().unwrap_or(u64::MAX);
            (end, before)
        }
    };
    let scheduler = scheduler();
    // One that came and went was there, too.
    if !nonblocking && end.partner_opens() == Some(before) {
        thread.opening = Some((end, before));
        return Err(CallStop::Sleep { scheduler, wait: WaitReason::Transfer, deadline: None, at_deadline: 0 });
    }
    drop(scheduler);
    add(thread, OpenTarget::Pipe(end), flags, None)
}

/// The access that an open for these flags needs (`ACC_MODE`).
fn access_of(flags: u32) -> FileAccess {
    let mut access = match flags & linux::O_ACCMODE {
        linux::O_RDONLY => FileAccess::READ,
        linux::O_WRONLY => FileAccess::WRITE,
        _ => FileAccess::READ.or(FileAccess::WRITE),
    };
    if flags & linux::O_TRUNC != 0 {
        access = access.or(FileAccess::WRITE);
    }
    access
}

/// The file at a resolved path, and whether it was made.
fn node(path: &str, flags: u32, mode: u32, caller: &Credentials) -> Result<(Arc<Inode>, bool), Errno> {
    match ramfs::at(path) {
        Ok(_) if flags & linux::O_CREAT != 0 && flags & linux::O_EXCL != 0 => Err(Errno::EEXIST),
        Ok(node) => Ok((node, false)),
        Err(Errno::ENOENT) if flags & linux::O_CREAT != 0 => Ok((ramfs::add_file(path, mode, caller)?, true)),
        Err(error) => Err(error),
    }
}

/// The inode at a resolved path below `/proc` and `/sys`, if it is one that [`procfs`] makes.
fn of_process(thread: &Thread, path: &str, follow: bool) -> Option<Result<Arc<Inode>, Errno>> {
    if let Some(linked) = procfs::linked(thread, path).filter(|_| follow) {
        return Some(linked);
    }
    let found = procfs::find(thread, path)?;
    Some(match found.as_deref().map(|node| &node.kind) {
        Ok(InodeKind::Link(target)) if follow => ramfs::find(target, true, &thread.credentials),
        _ => found,
    })
}

/// The inode at a path of the tree, or below `/proc` and `/sys`.
pub(super) fn find(thread: &Thread, path: &str, follow: bool) -> Result<Arc<Inode>, Errno> {
    find_as(thread, path, follow, &thread.credentials)
}

/// The inode at a path, as a caller with these credentials finds it.
fn find_as(thread: &Thread, path: &str, follow: bool, caller: &Credentials) -> Result<Arc<Inode>, Errno> {
    at(thread, &resolve(thread, path, follow, caller)?, follow)
}

/// The inode at a resolved path; with `follow`, a last link of `/proc` is followed.
pub(super) fn at(thread: &Thread, path: &str, follow: bool) -> Result<Arc<Inode>, Errno> {
    of_process(thread, path, follow).unwrap_or_else(|| ramfs::at(path))
}

pub(super) fn readlinkat(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if (a[3] as i32) <= 0 {
        return Err(Errno::EINVAL.into());
    }
    let path = path_at(thread, a[0], address(a[1]))?;
    let node = find(thread, &path, false)?;
    let InodeKind::Link(target) = &node.kind else { return Err(Errno::EINVAL.into()) };
    let bytes = &target.as_bytes()[..target.len().min(a[3] as u32 as usize)];
    thread.space.write(address(a[2]), bytes)?;
    Ok(bytes.len() as u64)
}

/// The entries of a directory, also of `/proc` and the directories of processes.
fn children(node: &Arc<Inode>) -> Result<Vec<(String, Arc<Inode>)>, Errno> {
    let path = node.path();
    let mut entries = ramfs::children(&path);
    let entry = |(name, mode): (String, u32)| {
        let kind = if mode & ramfs::TYPE == 0o040_000 { InodeKind::Directory } else { InodeKind::Text(Vec::new()) };
        (name.clone(), Inode::new(&format!("{path}/{name}"), mode, kind))
    };
    entries.extend(procfs::entries(&path)?.into_iter().map(entry));
    Ok(entries)
}

/// `getdents64`; the offset of an open directory counts entries.
///
/// INV-KERNEL-TAKEN: the offset passes the entries that were stored (`filldir64`).
pub(super) fn getdents64(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    let node = open.inode().filter(|node| node.is_directory()).ok_or(Errno::ENOTDIR)?;
    let mut entries: Vec<(String, Arc<Inode>)> =
        Vec::from([(String::from("."), node.clone()), (String::from(".."), node.clone())]);
    entries.extend(children(node)?);
    let room = u64::from(a[2] as u32);
    let mut offset = open.offset.lock();
    let mut stored = 0;
    for (index, (name, node)) in entries.iter().enumerate().skip(*offset as usize) {
        let entry = directory_entry(name, node, index as u64 + 1);
        let result = if stored + entry.len() as u64 > room {
            Err(Errno::EINVAL)
        } else {
            thread.space.write(address(a[1].wrapping_add(stored)), &entry)
        };
        match result {
            Ok(()) => (stored, *offset) = (stored + entry.len() as u64, index as u64 + 1),
            Err(error) if stored == 0 => return Err(error.into()),
            Err(_) => break,
        }
    }
    Ok(stored)
}

/// A `struct linux_dirent64`: inode number, next offset, length, type, name, padding to 8 bytes.
fn directory_entry(name: &str, node: &Inode, next: u64) -> Vec<u8> {
    let len = (19 + name.len() + 1).next_multiple_of(8);
    let mut bytes = Vec::from(node.number.to_le_bytes());
    bytes.extend(next.to_le_bytes());
    bytes.extend((len as u16).to_le_bytes());
    bytes.push((node.mode() >> 12) as u8);
    bytes.extend(name.as_bytes());
    bytes.resize(len, 0);
    bytes
}
