//! The file tree: the files of the initramfs, those that programs make, and a few devices.
//!
//! Inodes are found by their full path. A file's bytes are those of the archive until the first
//! write. A file that was ever mapped has an object of the memory manager, which reads pages from
//! here and writes them back. From then on `read` and `write` use the pages of the object too, so
//! that they agree with mappings.
//!
//! Not guaranteed: hard links, permissions.

use crate::errno::Errno;
use crate::memory::{FileObject, mm};
use crate::zram::{self, ZramAttribute};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use pagewright_mm::file::{FileKind, FileOps};
use pagewright_types::PAGE_SIZE;
use spin::Mutex;

/// The type of an inode, with its contents.
pub(crate) enum InodeKind {
    File(FileContent),
    /// Shared memory without a path (`memfd_create`).
    Shmem(HeldObject),
    Directory,
    Link(String),
    /// `/dev/null`.
    Null,
    /// `/dev/zero`.
    Zero,
    /// `/dev/random`, `/dev/urandom`: pseudorandom bytes, the same in every run.
    Random,
    /// The serial line.
    Console,
    /// `/dev/zram0`.
    Zram,
    /// A file of the device below `/sys`.
    Attribute(ZramAttribute),
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

/// The bytes of a file.
#[derive(Debug)]
pub(crate) enum FileBytes {
    Archive(&'static [u8]),
    Own(Vec<u8>),
}

impl FileBytes {
    pub(crate) fn all(&self) -> &[u8] {
        match self {
            Self::Archive(bytes) => bytes,
            Self::Own(bytes) => bytes,
        }
    }

    /// The bytes from `start` up to `end`, to be written; the file grows to `end` if it is shorter.
    fn change(&mut self, start: usize, end: usize) -> Result<&mut [u8], Errno> {
        if let Self::Archive(bytes) = self {
            let mut own = Vec::new();
            own.try_reserve(bytes.len())?;
            own.extend_from_slice(bytes);
            *self = Self::Own(own);
        }
        let Self::Own(bytes) = self else { unreachable!("copied from the archive above") };
        if bytes.len() < end {
            bytes.try_reserve(end - bytes.len())?;
            bytes.resize(end, 0);
        }
        Ok(&mut bytes[start..end])
    }

    /// Removes the bytes from `size` on.
    fn cut(&mut self, size: usize) {
        match self {
            Self::Archive(bytes) => *bytes = &bytes[..size.min(bytes.len())],
            Self::Own(bytes) => bytes.truncate(size),
        }
    }
}

/// The bytes of a file, shared with the object of the memory manager that maps them.
#[derive(Clone)]
pub(crate) struct FileContent(Arc<Mutex<FileBytes>>);

impl FileContent {
    pub(crate) fn new(bytes: FileBytes) -> Self {
        Self(Arc::new(Mutex::new(bytes)))
    }

    /// Calls `look` with the bytes, without dirty pages that were not written back.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&[u8]) -> T) -> T {
        look(self.0.lock().all())
    }
}

/// One file, directory, link or device.
pub(crate) struct Inode {
    pub(crate) number: u64,
    mode: AtomicU32,
    pub(crate) path: String,
    pub(crate) kind: Mutex<InodeKind>,
    /// The object of a file that was ever mapped.
    ///
    /// Locked while the file is written or truncated, also across calls of the memory manager,
    /// which never lock it.
    object: Mutex<Option<HeldObject>>,
}

static NODES: Mutex<BTreeMap<String, Arc<Inode>>> = Mutex::new(BTreeMap::new());
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// The number of links that a path may pass through.
const LINKS_MAX: u32 = 40;

/// The pages of a file, as the memory manager reads and writes them back.
///
/// The last page may extend past the end of the file.
struct Pages(FileContent);

impl FileOps for Pages {
    fn is_resident(&self, _index: u64) -> bool {
        true
    }

    fn read_page(&self, index: u64, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), pagewright_types::Errno> {
        self.0.look(|bytes| {
            let bytes = bytes.get((index * PAGE_SIZE) as usize..).unwrap_or_default();
            put(0, &bytes[..bytes.len().min(PAGE_SIZE as usize)]);
        });
        Ok(())
    }

    fn write_page(&self, index: u64, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), pagewright_types::Errno> {
        let start = (index * PAGE_SIZE) as usize;
        let mut bytes = self.0.0.lock();
        let page = bytes.change(start, start + PAGE_SIZE as usize).map_err(|_| pagewright_types::Errno::ENOMEM)?;
        get(0, page);
        Ok(())
    }
}

impl Inode {
    pub(crate) fn new(path: &str, mode: u32, kind: InodeKind) -> Arc<Self> {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let mode = AtomicU32::new(mode);
        Arc::new(Self { number, mode, path: path.to_string(), kind: Mutex::new(kind), object: Mutex::new(None) })
    }

    /// The size in bytes, as `stat` reports it.
    pub(crate) fn size(&self) -> u64 {
        if let Some(object) = self.cache() {
            return object.size();
        }
        match &*self.kind.lock() {
            InodeKind::File(content) => content.look(<[u8]>::len) as u64,
            InodeKind::Link(target) => target.len() as u64,
            InodeKind::Shmem(shmem) => shmem.0.size(),
            InodeKind::Zram => zram::size(),
            InodeKind::Attribute(_) => PAGE_SIZE,
            InodeKind::Directory | InodeKind::Null | InodeKind::Zero | InodeKind::Random | InodeKind::Console => 0,
        }
    }

    /// The object that the memory manager maps.
    pub(crate) fn object(&self) -> Result<pagewright_sync::Arc<FileObject>, Errno> {
        if let Some(shmem) = self.shmem() {
            return Ok(shmem);
        }
        let content = self.content().ok_or(Errno::ENODEV)?;
        let mut object = self.object.lock();
        if let Some(object) = &*object {
            return Ok(object.0.clone());
        }
        let size = content.look(<[u8]>::len) as u64;
        let made = mm().add_file(&self.path, FileKind::File(Box::new(Pages(content))), size)?;
        *object = Some(HeldObject(made.clone()));
        Ok(made)
    }

    /// The object that `read` and `write` use: of shared memory, or of a file that was ever mapped.
    pub(crate) fn cache(&self) -> Option<pagewright_sync::Arc<FileObject>> {
        let mapped = self.object.lock().as_ref().map(|object| object.0.clone());
        mapped.or_else(|| self.shmem())
    }

    /// The bytes of a file, without dirty pages that were not written back.
    pub(crate) fn content(&self) -> Option<FileContent> {
        if let InodeKind::File(content) = &*self.kind.lock() { Some(content.clone()) } else { None }
    }

    /// Writes back the dirty pages of the first `len` bytes, and calls `look` with the whole file.
    ///
    /// What follows may be older than a mapping of the file: `execve` reads headers only, and a
    /// large program has many pages to search.
    pub(crate) fn look_at_start<T>(&self, len: u64, look: impl FnOnce(&[u8]) -> T) -> Result<T, Errno> {
        let content = self.content().ok_or(Errno::EACCES)?;
        let size = self.size();
        if let Some(object) = self.cache() {
            mm().write_back(&object, 0, size.min(len))?;
        }
        Ok(content.look(|bytes| look(&bytes[..bytes.len().min(size as usize)])))
    }

    /// Writes to a file, which grows if necessary.
    pub(crate) fn write(&self, start: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let content = self.content().ok_or(Errno::EINVAL)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        let object = self.object.lock();
        if let Some(object) = &*object {
            return Ok(mm().write_at(&object.0, start, bytes)?);
        }
        let end = (start as usize).checked_add(bytes.len()).ok_or(Errno::EINVAL)?;
        content.0.lock().change(start as usize, end)?.copy_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Sets the size of a file.
    pub(crate) fn resize(&self, size: u64) -> Result<(), Errno> {
        let content = self.content().ok_or(Errno::EINVAL)?;
        let object = self.object.lock();
        let mut bytes = content.0.lock();
        match &*object {
            Some(object) => {
                // The memory manager reads the last page to clear its end.
                drop(bytes);
                mm().truncate(&object.0, size)?;
                content.0.lock().cut(size as usize);
            }
            None if size as usize <= bytes.all().len() => bytes.cut(size as usize),
            None => bytes.change(size as usize, size as usize).map(|_| ())?,
        }
        Ok(())
    }

    /// The object of shared memory.
    pub(crate) fn shmem(&self) -> Option<pagewright_sync::Arc<FileObject>> {
        match &*self.kind.lock() {
            InodeKind::Shmem(shmem) => Some(shmem.0.clone()),
            InodeKind::File(_)
            | InodeKind::Directory
            | InodeKind::Link(_)
            | InodeKind::Null
            | InodeKind::Zero
            | InodeKind::Random
            | InodeKind::Console
            | InodeKind::Zram
            | InodeKind::Attribute(_) => None,
        }
    }

    /// The file type and the permissions (`st_mode`).
    pub(crate) fn mode(&self) -> u32 {
        self.mode.load(Ordering::Relaxed)
    }

    /// Sets the permissions.
    pub(crate) fn set_mode(&self, mode: u32) {
        self.mode.store(self.mode() & TYPE | mode & !TYPE, Ordering::Relaxed);
    }

    /// Whether any execute permission is set.
    pub(crate) fn is_executable(&self) -> bool {
        self.mode() & 0o111 != 0
    }

    pub(crate) fn is_directory(&self) -> bool {
        matches!(*self.kind.lock(), InodeKind::Directory)
    }
}

const DIRECTORY_MODE: u32 = 0o040_755;
const DEVICE_MODE: u32 = 0o020_666;
const DISK_MODE: u32 = 0o060_660;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const TYPE: u32 = 0o170_000;

/// Fills the tree from the archive.
pub(crate) fn start(archive: &'static [u8]) {
    let mut nodes = NODES.lock();
    for path in ["/", "/dev", "/tmp", "/proc", "/bin", "/sys", "/sys/block", "/sys/block/zram0"] {
        nodes.insert(path.to_string(), Inode::new(path, DIRECTORY_MODE, InodeKind::Directory));
    }
    let devices = [
        ("/dev/null", InodeKind::Null),
        ("/dev/zero", InodeKind::Zero),
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
            FILE => InodeKind::File(FileContent::new(FileBytes::Archive(entry.file()))),
            _ => continue,
        };
        nodes.insert(path.clone(), Inode::new(&path, mode, kind));
    }
}

/// `path` from `directory`, without `.`, `..` and doubled slashes.
pub(crate) fn absolute(directory: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let start = if path.starts_with('/') { "" } else { directory };
    for part in start.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The inode at an absolute path.
///
/// With `follow`, a link at the end of the path is followed.
pub(crate) fn find(path: &str, follow: bool) -> Result<Arc<Inode>, Errno> {
    let resolved = resolve(path, follow)?;
    NODES.lock().get(&resolved).cloned().ok_or(Errno::ENOENT)
}

/// Follows all links of a path, and returns the result.
///
/// The directory that it names must exist; the last component need not.
pub(crate) fn resolve(path: &str, follow: bool) -> Result<String, Errno> {
    let nodes = NODES.lock();
    let mut path = path.to_string();
    'again: for _ in 0..LINKS_MAX {
        let ends: Vec<usize> = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]).collect();
        for end in ends {
            let (prefix, rest) = path.split_at(end);
            let last = rest.is_empty();
            match nodes.get(if prefix.is_empty() { "/" } else { prefix }) {
                None if last => {}
                None => return Err(Errno::ENOENT),
                Some(node) => match &*node.kind.lock() {
                    InodeKind::Link(target) if !last || follow => {
                        let parent = prefix.rsplit_once('/').map_or("/", |(parent, _)| parent);
                        path = absolute(&absolute(parent, target), &format!("./{rest}"));
                        continue 'again;
                    }
                    InodeKind::Directory | InodeKind::Link(_) => {}
                    _ if !last => return Err(Errno::ENOTDIR),
                    _ => {}
                },
            }
        }
        return Ok(path);
    }
    Err(Errno::ELOOP)
}

/// Makes an inode at a path that does not exist.
pub(crate) fn add(path: &str, mode: u32, kind: InodeKind) -> Result<Arc<Inode>, Errno> {
    let mode = match &kind {
        InodeKind::Directory => 0o040_000 | mode & 0o7777,
        InodeKind::Link(_) => LINK | 0o777,
        _ => FILE | mode & 0o7777,
    };
    let node = Inode::new(path, mode, kind);
    let mut nodes = NODES.lock();
    if nodes.contains_key(path) {
        return Err(Errno::EEXIST);
    }
    nodes.insert(path.to_string(), node.clone());
    Ok(node)
}

/// Removes a path; the inode stays until its last descriptor is closed.
pub(crate) fn remove(path: &str, directory: bool) -> Result<(), Errno> {
    let mut nodes = NODES.lock();
    let node = nodes.get(path).ok_or(Errno::ENOENT)?;
    match (node.is_directory(), directory) {
        (true, false) => return Err(Errno::EISDIR),
        (false, true) => return Err(Errno::ENOTDIR),
        (true, true) if nodes.keys().any(|other| is_child(path, other)) => return Err(Errno::ENOTEMPTY),
        (true, true) | (false, false) => {}
    }
    let removed = nodes.remove(path);
    // Dropping the last handle calls the memory manager.
    drop(nodes);
    drop(removed);
    Ok(())
}

fn is_child(directory: &str, path: &str) -> bool {
    let prefix = if directory == "/" { "" } else { directory };
    path.strip_prefix(prefix)
        .and_then(|rest| rest.strip_prefix('/'))
        .is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

/// The entries of a directory, by name.
pub(crate) fn children(directory: &str) -> Vec<(String, Arc<Inode>)> {
    let nodes = NODES.lock();
    let inside = nodes.iter().filter(|(path, _)| is_child(directory, path));
    inside.map(|(path, node)| (path.rsplit('/').next().unwrap_or_default().to_string(), node.clone())).collect()
}
