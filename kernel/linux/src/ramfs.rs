//! The file tree: the files of the initramfs, those that programs make, and a few devices.
//!
//! Inodes are found by their full path. The files of the root file system share the limit of one
//! tmpfs, half of memory, as Linux's do (`shmem_default_max_blocks`); [`mount`] has the others.
//!
//! Calls check the permissions of every directory on a path, also of those above the working
//! directory, which Linux does not.

use crate::archive::ArchiveFile;
use crate::credentials::{Credentials, FileAccess};
use crate::errno::Errno;
use crate::inode::{FileSystem, HeldObject, Inode, InodeAttributes, InodeKind, SharedAttributes};
use crate::memory::mm;
use crate::mount;
use crate::zram::ZramAttribute;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use pagewright_mm::file::Tmpfs;
use spin::{Mutex, MutexGuard, Once};

/// The inodes by their paths.
pub(crate) type Nodes = BTreeMap<String, Arc<Inode>>;

static NODES: Mutex<Nodes> = Mutex::new(BTreeMap::new());
static TMPFS: Once<pagewright_sync::Arc<Tmpfs>> = Once::new();

/// The number of links that a path may pass through.
pub(crate) const LINKS_MAX: u32 = 40;
/// The longest name of a file in bytes.
const NAME_MAX: usize = 255;

pub(crate) const DIRECTORY: u32 = 0o040_000;
const DIRECTORY_MODE: u32 = 0o040_755;
/// The mode of the root of a tmpfs (`shmem_init_fs_context`).
pub(crate) const ROOT_MODE: u32 = 0o041_777;
const DEVICE_MODE: u32 = 0o020_666;
const DISK_MODE: u32 = 0o060_660;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const SOCKET: u32 = 0o140_000;
const FIFO: u32 = 0o010_000;
/// The set-group-id bit (`S_ISGID`).
const SET_GROUP: u32 = 0o2000;
/// The bits of a mode that are the type of the file.
pub(crate) const TYPE: u32 = 0o170_000;

/// Fills the tree from the archive.
pub(crate) fn start(archive: &'static [u8]) {
    let mut nodes = NODES.lock();
    for path in ["/dev", "/proc", "/bin", "/sys", "/sys/block", "/sys/block/zram0"] {
        nodes.insert(path.to_string(), Inode::new(path, DIRECTORY_MODE, InodeKind::Directory));
    }
    for path in ["/", "/tmp", "/dev/shm"] {
        nodes.insert(path.to_string(), Inode::new(path, ROOT_MODE, InodeKind::Directory));
    }
    let devices = [
        ("/dev/null", InodeKind::Null),
        ("/dev/zero", InodeKind::Zero),
        ("/dev/full", InodeKind::Full),
        ("/dev/urandom", InodeKind::Random),
        ("/dev/random", InodeKind::Random),
        ("/dev/console", InodeKind::Console),
        ("/dev/tty", InodeKind::Console),
    ];
    for (path, kind) in devices {
        nodes.insert(path.to_string(), Inode::new(path, DEVICE_MODE, kind));
    }
    nodes.insert("/dev/zram0".to_string(), Inode::new("/dev/zram0", DISK_MODE, InodeKind::Zram));
    for (path, mode, attribute) in ZramAttribute::ALL {
        nodes.insert(path.to_string(), Inode::new(path, mode, InodeKind::Attribute(attribute)));
    }
    for entry in cpio_reader::iter_files(archive) {
        let path = absolute("/", entry.name());
        let mode = entry.mode().bits();
        let kind = match mode & TYPE {
            0o040_000 => InodeKind::Directory,
            LINK => InodeKind::Link(String::from_utf8_lossy(entry.file()).into_owned()),
            FILE => InodeKind::Archive(ArchiveFile::new(entry.file())),
            _ => continue,
        };
        nodes.insert(path.clone(), Inode::new(&path, mode, kind));
    }
}

/// `path` from `directory`, without `.` and doubled slashes.
///
/// `..` remains: what it leads to depends on the links before it ([`resolve`]).
pub(crate) fn absolute(directory: &str, path: &str) -> String {
    let start = if path.starts_with('/') { "" } else { directory };
    let parts = start.split('/').chain(path.split('/'));
    let parts: Vec<&str> = parts.filter(|part| !matches!(*part, "" | ".")).collect();
    format!("/{}", parts.join("/"))
}

/// The tree, locked.
pub(crate) fn tree() -> MutexGuard<'static, Nodes> {
    NODES.lock()
}

/// The inode at an absolute path.
///
/// With `follow`, a link at the end of the path is followed.
pub(crate) fn find(path: &str, follow: bool, caller: &Credentials) -> Result<Arc<Inode>, Errno> {
    at(&resolve(path, follow, caller)?)
}

/// The inode at a path that has no links.
pub(crate) fn at(path: &str) -> Result<Arc<Inode>, Errno> {
    NODES.lock().get(path).cloned().ok_or(Errno::ENOENT)
}

/// Follows all links and `..` of a path, and returns the result.
///
/// The directory that it names must exist, unless it is below `/proc` or `/sys`; the last component
/// need not. The caller must be allowed to search each directory.
pub(crate) fn resolve(path: &str, follow: bool, caller: &Credentials) -> Result<String, Errno> {
    walk(path, follow, true, caller)
}

/// Resolves a path as [`resolve`], but not through the mount at its end.
pub(crate) fn resolve_mount_point(path: &str, follow: bool, caller: &Credentials) -> Result<String, Errno> {
    walk(path, follow, false, caller)
}

fn walk(path: &str, follow: bool, crosses_last: bool, caller: &Credentials) -> Result<String, Errno> {
    let nodes = NODES.lock();
    let mut path = path.to_string();
    let root = nodes.get("/").ok_or(Errno::ENOENT)?;
    caller.access(&root.attributes(), FileAccess::EXECUTE)?;
    // What is before `done` has no links and no `..`.
    let (mut links, mut done) = (0, 0);
    while links <= LINKS_MAX {
        let end = path[done + 1..].find('/').map_or(path.len(), |at| done + 1 + at);
        if end - done > NAME_MAX + 1 {
            return Err(Errno::ENAMETOOLONG);
        }
        let (prefix, rest) = path.split_at(end);
        let last = rest.is_empty();
        if &prefix[done..] == "/.." {
            let parent = prefix[..done].rfind('/').unwrap_or(0);
            path.replace_range(parent..end, "");
            if parent < path.len() {
                done = parent;
                continue;
            }
            return Ok(if path.is_empty() { "/".to_string() } else { path });
        }
        if let Some(root) = mount::redirected(prefix).filter(|_| crosses_last || !last) {
            (path, done) = (format!("{root}{rest}"), 0);
            continue;
        }
        match nodes.get(prefix) {
            None if last => {}
            // The files of processes and of the machine are not in the tree.
            None if mount::file_system(prefix) != FileSystem::Tmpfs => return Ok(path),
            None => return Err(Errno::ENOENT),
            Some(node) => match &node.kind {
                InodeKind::Link(target) if !last || follow => {
                    (path, done) = (absolute(&absolute(&prefix[..done], target), &format!("./{rest}")), 0);
                    links += 1;
                    continue;
                }
                InodeKind::Directory if !last => caller.access(&node.attributes(), FileAccess::EXECUTE)?,
                InodeKind::Directory | InodeKind::Link(_) => {}
                _ if !last => return Err(Errno::ENOTDIR),
                _ => {}
            },
        }
        if last {
            return Ok(path);
        }
        done = end;
    }
    Err(Errno::ELOOP)
}

/// Makes an empty file.
///
/// # Errors
/// As [`add`], and those of the memory manager.
pub(crate) fn add_file(path: &str, mode: u32, caller: &Credentials) -> Result<Arc<Inode>, Errno> {
    let attributes = SharedAttributes::new(mode);
    let object = mm().add_tmpfs_file(&mount::tmpfs(path)?, path, 0, Box::new(attributes.clone()))?;
    add_node(Inode::with_attributes(path, attributes, InodeKind::Shmem(HeldObject(object))), mode, caller)
}

/// The root file system.
pub(crate) fn tmpfs() -> Result<&'static pagewright_sync::Arc<Tmpfs>, Errno> {
    Ok(TMPFS.try_call_once(|| Tmpfs::try_new(mm().tlb().frames().managed() / 2, true))?)
}

/// Makes an inode at a path that does not exist, for the user and the group of the caller.
///
/// In a directory with the set-group-id bit, it gets the directory's group (`inode_init_owner`).
pub(crate) fn add(path: &str, mode: u32, kind: InodeKind, caller: &Credentials) -> Result<Arc<Inode>, Errno> {
    add_node(Inode::new(path, mode, kind), mode, caller)
}

/// Adds a new inode at its path, with these permissions.
fn add_node(node: Arc<Inode>, mode: u32, caller: &Credentials) -> Result<Arc<Inode>, Errno> {
    let path = &*node.path();
    let mode = match &node.kind {
        InodeKind::Directory => DIRECTORY | mode & 0o7777,
        InodeKind::Link(_) => LINK | 0o777,
        InodeKind::Socket(_) => SOCKET | mode & 0o7777,
        InodeKind::Fifo(_) => FIFO | mode & 0o7777,
        _ => FILE | mode & 0o7777,
    };
    let mut nodes = NODES.lock();
    if nodes.contains_key(path) {
        return Err(Errno::EEXIST);
    }
    match mount::file_system(path) {
        FileSystem::Tmpfs => {}
        // `proc_root_lookup` fails; `kernfs_dir_iops` has no such operations.
        FileSystem::Proc => return Err(Errno::ENOENT),
        FileSystem::Sysfs if node.is_file() => return Err(Errno::EACCES),
        FileSystem::Sysfs => return Err(Errno::EPERM),
    }
    let directory = directory_of(&nodes, path)?;
    caller.access(&directory, FileAccess::CHANGE_ENTRIES)?;
    node.change(|attributes| {
        (attributes.uid, attributes.gid) = (caller.user.files, caller.group.files);
        attributes.mode = mode;
        if directory.mode & SET_GROUP != 0 {
            attributes.gid = directory.gid;
            attributes.mode |= if node.is_directory() { SET_GROUP } else { 0 };
        }
    });
    nodes.insert(path.to_string(), node.clone());
    note_change(&nodes, path);
    Ok(node)
}

/// Removes a path; the inode stays until its last descriptor is closed.
pub(crate) fn remove(path: &str, directory: bool, caller: &Credentials) -> Result<(), Errno> {
    if path == "/" {
        return Err(if directory { Errno::EBUSY } else { Errno::EISDIR });
    }
    let mut nodes = NODES.lock();
    let node = nodes.get(path).ok_or(Errno::ENOENT)?;
    caller.remove_entry(&directory_of(&nodes, path)?, &node.attributes())?;
    match (node.is_directory(), directory) {
        (true, false) => return Err(Errno::EISDIR),
        (false, true) => return Err(Errno::ENOTDIR),
        _ if mount::is_mount_point(path) => return Err(Errno::EBUSY),
        (true, true) if has_children(&nodes, path) => return Err(Errno::ENOTEMPTY),
        (true, true) | (false, false) => {}
    }
    let removed = unlink(&mut nodes, path);
    // Dropping the last handle calls the memory manager.
    drop(nodes);
    drop(removed);
    Ok(())
}

/// Removes a path from the tree, which exists.
fn unlink(nodes: &mut Nodes, path: &str) -> Option<Arc<Inode>> {
    let removed = nodes.remove(path)?;
    removed.change(|attributes| attributes.links -= 1);
    note_deleted(&removed);
    note_change(nodes, path);
    Some(removed)
}

/// Has `/proc/PID/maps` show that no path leads to a file any more.
fn note_deleted(node: &Inode) {
    let object = match &node.kind {
        InodeKind::Archive(file) => file.known_object(),
        _ => node.shmem(),
    };
    if let Some(object) = object.filter(|_| node.attributes().links == 0) {
        object.note_deleted();
    }
}

/// Notes that the directory of a path has changed.
fn note_change(nodes: &Nodes, path: &str) {
    if let Some(directory) = nodes.get(parent(path)) {
        directory.note_modified();
    }
}

/// The attributes of the directory of a path.
fn directory_of(nodes: &Nodes, path: &str) -> Result<InodeAttributes, Errno> {
    Ok(nodes.get(parent(path)).ok_or(Errno::ENOENT)?.attributes())
}

/// The directory of a path.
pub(crate) fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((parent, _)) => parent,
    }
}

/// The rest of a path at or below a directory.
pub(crate) fn within<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(directory.trim_end_matches('/'))?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

fn has_children(nodes: &Nodes, directory: &str) -> bool {
    below(nodes, directory).next().is_some()
}

/// The paths below a directory.
pub(crate) fn below<'a>(nodes: &'a Nodes, directory: &str) -> impl Iterator<Item = (&'a String, &'a Arc<Inode>)> {
    let prefix = if directory == "/" { String::from("/") } else { format!("{directory}/") };
    let start = nodes.range(prefix.clone()..);
    start.take_while(move |(path, _)| path.starts_with(&prefix)).filter(|(path, _)| *path != "/")
}

/// The links of an inode; those of a directory are its name, `.`, and `..` of its directories.
pub(crate) fn links(node: &Inode) -> u32 {
    if !node.is_directory() {
        return node.attributes().links;
    }
    if node.attributes().links == 0 {
        return 0;
    }
    2 + children(&node.path()).iter().filter(|(_, child)| child.is_directory()).count() as u32
}

/// The inodes that could still be made, if each takes a page.
pub(crate) fn free_inodes() -> u64 {
    (mm().tlb().frames().managed() / 2).saturating_sub(NODES.lock().len() as u64)
}

/// Makes another path for an inode (`vfs_link`).
pub(crate) fn link(node: &Arc<Inode>, path: &str, caller: &Credentials) -> Result<(), Errno> {
    let mut nodes = NODES.lock();
    if nodes.contains_key(path) {
        return Err(Errno::EEXIST);
    }
    if mount::device(parent(path)) != mount::device(&node.path()) {
        return Err(Errno::EXDEV);
    }
    caller.access(&directory_of(&nodes, path)?, FileAccess::CHANGE_ENTRIES)?;
    if node.is_directory() {
        return Err(Errno::EPERM);
    }
    // A file without a path cannot get one again.
    if node.attributes().links == 0 {
        return Err(Errno::ENOENT);
    }
    node.change(|attributes| attributes.links += 1);
    nodes.insert(path.to_string(), node.clone());
    note_change(&nodes, path);
    Ok(())
}

/// What a rename does to an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replace {
    /// Replaces it.
    Target,
    /// Fails (`RENAME_NOREPLACE`).
    Nothing,
    /// Exchanges the two (`RENAME_EXCHANGE`).
    Exchange,
}

/// Renames a path (`do_renameat2`, `vfs_rename`).
pub(crate) fn rename(from: &str, to: &str, replace: Replace, caller: &Credentials) -> Result<(), Errno> {
    if from == "/" || to == "/" {
        return Err(Errno::EBUSY);
    }
    let mut nodes = NODES.lock();
    if mount::device(parent(from)) != mount::device(parent(to)) {
        return Err(Errno::EXDEV);
    }
    let source = nodes.get(from).ok_or(Errno::ENOENT)?.clone();
    let target = nodes.get(to).cloned();
    match (&target, replace) {
        (Some(_), Replace::Nothing) => return Err(Errno::EEXIST),
        (None, Replace::Exchange) => return Err(Errno::ENOENT),
        _ => {}
    }
    let is_below = |path: &str, directory: &str| within(path, directory).is_some_and(|rest| !rest.is_empty());
    if is_below(to, from) {
        return Err(Errno::EINVAL);
    }
    if is_below(from, to) {
        return Err(if replace == Replace::Exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
    }
    if mount::is_mount_point(from) || mount::is_mount_point(to) {
        return Err(Errno::EBUSY);
    }
    let is_same = target.as_ref().is_some_and(|target| Arc::ptr_eq(&source, target));
    if !is_same {
        may_rename(&nodes, (from, &source), (to, target.as_deref()), replace, caller)?;
    }
    let Some(target) = target else {
        move_paths(&mut nodes, &[(from, to)]);
        return Ok(());
    };
    // Two paths of one file stay as they are.
    if is_same {
        return Ok(());
    }
    if replace == Replace::Exchange {
        move_paths(&mut nodes, &[(from, to), (to, from)]);
        return Ok(());
    }
    match (source.is_directory(), target.is_directory()) {
        (true, false) => return Err(Errno::ENOTDIR),
        (false, true) => return Err(Errno::EISDIR),
        (true, true) if has_children(&nodes, to) => return Err(Errno::ENOTEMPTY),
        (true, true) | (false, false) => {}
    }
    let replaced = unlink(&mut nodes, to);
    move_paths(&mut nodes, &[(from, to)]);
    drop(nodes);
    // Dropping the last handle calls the memory manager.
    drop((replaced, target));
    Ok(())
}

/// Checks that the caller may rename `from` to `to` (`vfs_rename`).
fn may_rename(
    nodes: &Nodes,
    (from, source): (&str, &Inode),
    (to, target): (&str, Option<&Inode>),
    replace: Replace,
    caller: &Credentials,
) -> Result<(), Errno> {
    let (old, new) = (directory_of(nodes, from)?, directory_of(nodes, to)?);
    caller.remove_entry(&old, &source.attributes())?;
    match target {
        None => caller.access(&new, FileAccess::CHANGE_ENTRIES)?,
        Some(target) => caller.remove_entry(&new, &target.attributes())?,
    }
    // A directory that moves gets another `..`.
    if parent(from) != parent(to) {
        let moved = target.filter(|_| replace == Replace::Exchange);
        for node in [Some(source), moved].into_iter().flatten().filter(|node| node.is_directory()) {
            caller.access(&node.attributes(), FileAccess::WRITE)?;
        }
    }
    Ok(())
}

/// Moves each path, and all paths below it, to its new place at the same time.
fn move_paths(nodes: &mut Nodes, moves: &[(&str, &str)]) {
    let mut moved: Vec<(String, Arc<Inode>)> = Vec::new();
    for (from, to) in moves {
        moved.extend(take_below(nodes, from).into_iter().map(|(rest, node)| (format!("{to}{rest}"), node)));
        note_change(nodes, from);
        note_change(nodes, to);
    }
    mount::rename(moves);
    for (path, node) in moved {
        node.set_path(&path);
        node.change(|_| {});
        nodes.insert(path, node);
    }
}

/// Takes a path, and all below it, out of the tree; returns them by the rest of their paths.
pub(crate) fn take_below(nodes: &mut Nodes, path: &str) -> Vec<(String, Arc<Inode>)> {
    let mut paths: Vec<String> = below(nodes, path).map(|(path, _)| path.clone()).collect();
    paths.push(path.to_string());
    paths.into_iter().filter_map(|at| Some((at[path.len()..].to_string(), nodes.remove(&at)?))).collect()
}

fn is_child(directory: &str, path: &str) -> bool {
    let name = within(path, directory).and_then(|rest| rest.strip_prefix('/'));
    name.is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

/// The entries of a directory, by name.
pub(crate) fn children(directory: &str) -> Vec<(String, Arc<Inode>)> {
    let nodes = NODES.lock();
    let inside = nodes.iter().filter(|(path, _)| is_child(directory, path));
    inside.map(|(path, node)| (path.rsplit('/').next().unwrap_or_default().to_string(), node.clone())).collect()
}
