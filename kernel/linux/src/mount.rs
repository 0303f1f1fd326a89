//! Mounts: which file system a path is in.
//!
//! The tree ([`ramfs`]) has the files of every mounted tmpfs under their full paths. A mount of a
//! tmpfs takes its directory, and what is below, out of the tree until it is unmounted.
//!
//! The files of proc and sysfs exist once, below `/proc` and `/sys`. A path through another mount
//! of them continues there, so the working directory and the links below `/proc/PID/fd` show these
//! paths.
//!
//! The lock of the tree is acquired before that of the mounts.
//!
//! **INV-KERNEL-MOUNT** No program runs from a mount with `MS_NOEXEC`, and none from one with
//! `MS_NOSUID` gives the rights of its owner.
//!
//! Not guaranteed: that an unlinked file that is open or mapped keeps its mount busy.

use crate::errno::Errno;
use crate::inode::{FileSystem, Inode, InodeKind};
use crate::memory::mm;
use crate::ramfs::{self, Nodes, within};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use linux_raw_sys::general as linux;
use pagewright_mm::file::Tmpfs;
use pagewright_plant::plant;
use pagewright_types::PAGE_SIZE;
use spin::Mutex;

/// The flags of a mount that take effect; the last is the default.
///
/// No tmpfs has device files (`mknod` refuses them), so `MS_NODEV` needs nothing.
const FLAGS: [(u32, &str); 4] = [
    (linux::MS_NOSUID, "nosuid"),
    (linux::MS_NODEV, "nodev"),
    (linux::MS_NOEXEC, "noexec"),
    (linux::MS_RELATIME, "relatime"),
];
/// The file systems that are mounted at boot, by their device numbers less 1.
const AT_BOOT: [(&str, FileSystem); 3] =
    [("/", FileSystem::Tmpfs), ("/proc", FileSystem::Proc), ("/sys", FileSystem::Sysfs)];

/// A mount that a program made.
struct Mount {
    device: u64,
    path: String,
    source: String,
    flags: u32,
    contents: MountContents,
}

/// The file system of a mount.
enum MountContents {
    /// The files of proc or sysfs.
    Existing(FileSystem),
    Tmpfs {
        tmpfs: pagewright_sync::Arc<Tmpfs>,
        options: TmpfsOptions,
        /// What the tree had at its directory and below, by the rest of the path.
        covered: Vec<(String, Arc<Inode>)>,
    },
}

/// The options of a tmpfs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TmpfsOptions {
    /// The limit in pages, if it is not half of memory.
    pages: Option<u64>,
    mode: u32,
    uid: u32,
    gid: u32,
}

impl TmpfsOptions {
    /// Those of a text as `mount` passes it (`shmem_parse_options`).
    ///
    /// # Errors
    /// `EINVAL`.
    pub(crate) fn parse(text: &str) -> Result<Self, Errno> {
        let mut options = Self { pages: None, mode: ramfs::ROOT_MODE & !ramfs::TYPE, uid: 0, gid: 0 };
        for option in text.split(',').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').ok_or(Errno::EINVAL)?;
            let number = |radix| u32::from_str_radix(value, radix).map_err(|_| Errno::EINVAL);
            match name {
                "size" => options.pages = Some(bytes_of(value)?.div_ceil(PAGE_SIZE)),
                "nr_blocks" => options.pages = Some(bytes_of(value)?),
                "mode" => options.mode = number(8)? & 0o7777,
                "uid" => options.uid = number(10)?,
                "gid" => options.gid = number(10)?,
                _ => return Err(Errno::EINVAL),
            }
        }
        Ok(options)
    }

    /// Writes them as `/proc/mounts` has them (`shmem_show_options`).
    fn show(&self, out: &mut dyn Write) -> fmt::Result {
        if let Some(pages) = self.pages {
            write!(out, ",size={}k", pages.saturating_mul(PAGE_SIZE / 1024))?;
        }
        if self.mode != ramfs::ROOT_MODE & !ramfs::TYPE {
            write!(out, ",mode={:03o}", self.mode)?;
        }
        for (name, id) in [("uid", self.uid), ("gid", self.gid)] {
            if id != 0 {
                write!(out, ",{name}={id}")?;
            }
        }
        Ok(())
    }
}

/// A number with a unit or a part of memory (`memparse`, and `%`).
fn bytes_of(text: &str) -> Result<u64, Errno> {
    let digits = text.trim_end_matches(|last: char| !last.is_ascii_digit());
    let number: u64 = digits.parse().map_err(|_| Errno::EINVAL)?;
    let bytes = match &text[digits.len()..] {
        "" => Some(number),
        "k" | "K" => number.checked_mul(1 << 10),
        "m" | "M" => number.checked_mul(1 << 20),
        "g" | "G" => number.checked_mul(1 << 30),
        "%" => number.checked_mul(mm().tlb().frames().managed() * PAGE_SIZE / 100),
        _ => None,
    };
    bytes.filter(|bytes| i64::try_from(*bytes).is_ok()).ok_or(Errno::EINVAL)
}

/// A file system to mount.
pub(crate) enum NewMount {
    Tmpfs(TmpfsOptions),
    /// The files of proc or sysfs.
    Existing(FileSystem),
}

static MOUNTS: Mutex<Vec<Mount>> = Mutex::new(Vec::new());

/// The mount that a path is in: the latest above it, because a mount covers earlier ones.
fn containing<'a>(mounts: &'a [Mount], path: &str) -> Option<&'a Mount> {
    mounts.iter().rev().find(|mount| within(path, &mount.path).is_some())
}

/// The device number and the file system of a path among those of boot.
fn at_boot(path: &str) -> (u64, FileSystem) {
    let index = AT_BOOT.iter().rposition(|(root, _)| within(path, root).is_some()).unwrap_or(0);
    (index as u64 + 1, AT_BOOT[index].1)
}

/// The file system that a path is in.
pub(crate) fn file_system(path: &str) -> FileSystem {
    match containing(&MOUNTS.lock(), path).map(|mount| &mount.contents) {
        Some(MountContents::Tmpfs { .. }) => FileSystem::Tmpfs,
        Some(MountContents::Existing(file_system)) => *file_system,
        None => at_boot(path).1,
    }
}

/// The number of the device that a path is on (`st_dev`).
pub(crate) fn device(path: &str) -> u64 {
    containing(&MOUNTS.lock(), path).map_or_else(|| at_boot(path).0, |mount| mount.device)
}

/// Whether the mount of a path has a flag.
///
/// INV-KERNEL-MOUNT: programs of a mount with `MS_NOEXEC` do not run, and one with `MS_NOSUID`
/// gives no rights.
pub(crate) fn has_flag(path: &str, flag: u32) -> bool {
    plant!(MountFlagsIgnored => return false);
    containing(&MOUNTS.lock(), path).is_some_and(|mount| mount.flags & flag != 0)
}

/// The tmpfs of a path, with the limit of its files.
pub(crate) fn tmpfs(path: &str) -> Result<pagewright_sync::Arc<Tmpfs>, Errno> {
    match containing(&MOUNTS.lock(), path).map(|mount| &mount.contents) {
        Some(MountContents::Tmpfs { tmpfs, .. }) => Ok(tmpfs.clone()),
        _ => ramfs::tmpfs().cloned(),
    }
}

/// Whether a file system is mounted at a path.
pub(crate) fn is_mount_point(path: &str) -> bool {
    let is_mounted = containing(&MOUNTS.lock(), path).is_some_and(|mount| mount.path == path);
    is_mounted || AT_BOOT.iter().any(|(root, _)| *root == path)
}

/// The path where a mount of proc or sysfs at `path` has its files.
pub(crate) fn redirected(path: &str) -> Option<&'static str> {
    let mounts = MOUNTS.lock();
    let mount = containing(&mounts, path).filter(|mount| mount.path == path)?;
    let MountContents::Existing(file_system) = mount.contents else { return None };
    AT_BOOT.iter().find(|(_, known)| *known == file_system).map(|(root, _)| *root)
}

/// Moves the mounts below renamed directories of one mount.
///
/// What that mount covers stays where it is.
pub(crate) fn rename(moves: &[(&str, &str)]) {
    let mut mounts = MOUNTS.lock();
    let covers = |(from, _): &(&str, &str)| mounts.iter().rposition(|mount| within(from, &mount.path).is_some());
    let first = moves.first().and_then(covers).map_or(0, |containing| containing + 1);
    for mount in &mut mounts[first..] {
        let moved = moves.iter().find_map(|(from, to)| Some(format!("{to}{}", within(&mount.path, from)?)));
        if let Some(path) = moved {
            mount.path = path;
        }
    }
}

/// Mounts a file system at a directory (`do_new_mount`).
///
/// # Errors
/// `ENOTDIR`; `EBUSY` at or below the file systems of boot, or if the directory was removed.
pub(crate) fn add(path: &str, source: String, flags: u32, new: NewMount) -> Result<(), Errno> {
    let mut nodes = ramfs::tree();
    let directory = nodes.get(path).cloned();
    if AT_BOOT.iter().any(|(root, _)| *root == path) || file_system(path) != FileSystem::Tmpfs {
        return Err(Errno::EBUSY);
    }
    if !directory.ok_or(Errno::ENOENT)?.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    let contents = match new {
        NewMount::Existing(file_system) => MountContents::Existing(file_system),
        NewMount::Tmpfs(options) => {
            let half = mm().tlb().frames().managed() / 2;
            // Without blocks, a tmpfs has no limit (`shmem_reserve_inode`).
            let limit = options.pages.map_or(half, |pages| if pages == 0 { u64::MAX } else { pages });
            let tmpfs = Tmpfs::try_new(limit, flags & linux::MS_NOEXEC == 0)?;
            let root = Inode::new(path, ramfs::DIRECTORY | options.mode, InodeKind::Directory);
            root.change(|attributes| (attributes.uid, attributes.gid) = (options.uid, options.gid));
            let covered = ramfs::take_below(&mut nodes, path);
            nodes.insert(path.to_string(), root);
            MountContents::Tmpfs { tmpfs, options, covered }
        }
    };
    let mut mounts = MOUNTS.lock();
    // Numbers are used again, as Linux does (`get_anon_bdev`).
    let is_free = |device: &u64| mounts.iter().all(|mount| mount.device != *device);
    let device = (AT_BOOT.len() as u64 + 1..).find(is_free).unwrap_or_default();
    mounts.push(Mount { device, path: path.to_string(), source, flags, contents });
    Ok(())
}

/// Unmounts the latest file system at a path, with `detach` also if it is in use (`do_umount`).
///
/// # Errors
/// `EINVAL` if none is mounted there; `EBUSY` for one of boot, or one in use.
pub(crate) fn remove(path: &str, detach: bool) -> Result<(), Errno> {
    let mut nodes = ramfs::tree();
    let mut mounts = MOUNTS.lock();
    let found = mounts.iter().rposition(|mount| within(path, &mount.path).is_some());
    let Some(index) = found.filter(|index| mounts[*index].path == path) else {
        let is_of_boot = AT_BOOT.iter().any(|(root, _)| *root == path);
        return Err(if is_of_boot { Errno::EBUSY } else { Errno::EINVAL });
    };
    let has_mounts = mounts[index + 1..].iter().any(|mount| within(&mount.path, path).is_some());
    let is_tmpfs = matches!(mounts[index].contents, MountContents::Tmpfs { .. });
    if !detach && (has_mounts || is_tmpfs && is_open(&nodes, path)) {
        return Err(Errno::EBUSY);
    }
    let mut removed = Vec::new();
    // The latest first: a covered directory can belong to an earlier mount.
    for index in (index..mounts.len()).rev() {
        if within(&mounts[index].path, path).is_none() {
            continue;
        }
        let mount = mounts.remove(index);
        if let MountContents::Tmpfs { covered, .. } = mount.contents {
            removed.extend(ramfs::take_below(&mut nodes, &mount.path));
            for (rest, node) in covered {
                let path = format!("{}{rest}", mount.path);
                // A rename of the mount point has not reached what was covered.
                node.set_path(&path);
                nodes.insert(path, node);
            }
        }
    }
    drop((mounts, nodes));
    // Dropping the last handle calls the memory manager.
    drop(removed);
    Ok(())
}

/// Whether a file at a path or below is open, mapped, a working directory or a socket in use.
fn is_open(nodes: &Nodes, path: &str) -> bool {
    let root = nodes.get(path).into_iter();
    root.chain(ramfs::below(nodes, path).map(|(_, node)| node)).any(|node| {
        // The tree has one handle for each link.
        Arc::strong_count(node) > node.attributes().links as usize
            || node.shmem().is_some_and(|file| file.mappings() > 0)
            || matches!(&node.kind, InodeKind::Socket(socket) if socket.strong_count() > 0)
    })
}

/// Writes `/proc/mounts`.
pub(crate) fn show(out: &mut dyn Write) -> fmt::Result {
    let blocks = ramfs::tmpfs().map_err(|_| fmt::Error)?.limit();
    writeln!(out, "rootfs / rootfs rw,size={}k,nr_inodes={blocks} 0 0", blocks * PAGE_SIZE / 1024)?;
    writeln!(out, "proc /proc proc rw,relatime 0 0\nsys /sys sysfs rw,relatime 0 0")?;
    for mount in MOUNTS.lock().iter() {
        let name = match mount.contents {
            MountContents::Tmpfs { .. } => "tmpfs",
            MountContents::Existing(FileSystem::Proc) => "proc",
            MountContents::Existing(_) => "sysfs",
        };
        write!(out, "{} {} {name} rw", Escaped(&mount.source), Escaped(&mount.path))?;
        for (_, name) in FLAGS.iter().filter(|(flag, _)| mount.flags & flag != 0) {
            write!(out, ",{name}")?;
        }
        if let MountContents::Tmpfs { options, .. } = &mount.contents {
            options.show(out)?;
        }
        writeln!(out, " 0 0")?;
    }
    Ok(())
}

/// A word of `/proc/mounts`, with blanks as octal numbers (`mangle`).
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                ' ' | '\t' | '\n' | '\\' | '#' => write!(f, "\\{:03o}", u32::from(letter))?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// The flags of a mount, from those of the call.
///
/// # Errors
/// `EINVAL` for a flag that this kernel does not serve.
pub(crate) fn flags(given: u32) -> Result<u32, Errno> {
    let known = FLAGS.iter().fold(linux::MS_SILENT, |known, (flag, _)| known | flag);
    if given & !known != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(given & !linux::MS_SILENT | linux::MS_RELATIME)
}
