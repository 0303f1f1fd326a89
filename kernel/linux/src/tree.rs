//! The tree of files: what the initramfs brought, what programs make, and a few devices and texts.
//!
//! Nodes are found by their whole path. A file's bytes are those of the archive until somebody writes. A file that is mapped has an object of
//! the memory manager's, which reads from here.
//!
//! Not guaranteed: that who has mapped a file sees what is written to it by calls afterwards; links by number; permissions.

use crate::errno::Errno;
use crate::memory::{FileObject, mm};
use crate::zram::{self, Attribute};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_mm::file::{FileOps, Kind as ObjectKind};
use pagewright_types::PAGE_SIZE;
use spin::Mutex;

/// What is at a path.
pub(crate) enum Kind {
    File(Bytes),
    /// Shared memory without a path (`memfd_create`).
    Shmem(Shmem),
    Directory,
    Link(String),
    /// Reads nothing, swallows everything.
    Null,
    /// Reads zeroes.
    Zero,
    /// Reads what can't be foretold, up to the machine.
    Random,
    /// The serial line.
    Console,
    /// `/dev/zram0`.
    Zram,
    /// A file about it.
    Attribute(Attribute),
}

/// Shared memory that somebody has open. The memory manager is told when nobody has.
pub(crate) struct Shmem(pub(crate) pagewright_sync::Arc<FileObject>);

impl Drop for Shmem {
    fn drop(&mut self) {
        mm().close_file(&self.0);
    }
}

/// A file's bytes.
#[derive(Debug)]
pub(crate) enum Bytes {
    Archive(&'static [u8]),
    Own(Vec<u8>),
}

impl Bytes {
    pub(crate) fn all(&self) -> &[u8] {
        match self {
            Self::Archive(bytes) => bytes,
            Self::Own(bytes) => bytes,
        }
    }

    /// The bytes, to be changed.
    pub(crate) fn own(&mut self) -> &mut Vec<u8> {
        if let Self::Archive(bytes) = self {
            *self = Self::Own(bytes.to_vec());
        }
        match self {
            Self::Own(bytes) => bytes,
            Self::Archive(_) => unreachable!("made its own above"),
        }
    }
}

/// One file, directory, link or device.
pub(crate) struct Node {
    pub(crate) number: u64,
    pub(crate) mode: u32,
    pub(crate) path: String,
    pub(crate) kind: Mutex<Kind>,
    object: Mutex<Option<pagewright_sync::Arc<FileObject>>>,
}

static NODES: Mutex<BTreeMap<String, Arc<Node>>> = Mutex::new(BTreeMap::new());
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// Links that a path may go through.
const LINKS_MAX: u32 = 40;

/// What the memory manager reads of a node.
struct Pages(Arc<Node>);

impl FileOps for Pages {
    fn is_resident(&self, _index: u64) -> bool {
        true
    }

    fn read_page(&self, index: u64, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), pagewright_types::Errno> {
        let kind = self.0.kind.lock();
        if let Kind::File(bytes) = &*kind {
            let from = (index * PAGE_SIZE) as usize;
            let bytes = bytes.all().get(from..).unwrap_or_default();
            put(0, &bytes[..bytes.len().min(PAGE_SIZE as usize)]);
        }
        Ok(())
    }
}

impl Node {
    pub(crate) fn new(path: &str, mode: u32, kind: Kind) -> Arc<Self> {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { number, mode, path: path.to_string(), kind: Mutex::new(kind), object: Mutex::new(None) })
    }

    /// Bytes of a file, or of a link's target.
    pub(crate) fn size(&self) -> u64 {
        match &*self.kind.lock() {
            Kind::File(bytes) => bytes.all().len() as u64,
            Kind::Link(target) => target.len() as u64,
            Kind::Shmem(shmem) => shmem.0.size(),
            Kind::Zram => zram::size(),
            Kind::Attribute(_) => PAGE_SIZE,
            Kind::Directory | Kind::Null | Kind::Zero | Kind::Random | Kind::Console => 0,
        }
    }

    /// The file as the memory manager maps it.
    pub(crate) fn object(self: &Arc<Self>) -> Result<pagewright_sync::Arc<FileObject>, Errno> {
        let mut object = self.object.lock();
        if let Some(object) = &*object {
            return Ok(object.clone());
        }
        let kind = match &*self.kind.lock() {
            Kind::File(_) => ObjectKind::File(Box::new(Pages(self.clone()))),
            Kind::Shmem(shmem) => return Ok(shmem.0.clone()),
            Kind::Directory
            | Kind::Link(_)
            | Kind::Null
            | Kind::Zero
            | Kind::Random
            | Kind::Console
            | Kind::Zram
            | Kind::Attribute(_) => return Err(Errno::ENODEV),
        };
        let made = mm().add_file(&self.path, kind, self.size())?;
        *object = Some(made.clone());
        Ok(made)
    }

    /// Changes a file's bytes; whoever maps it from now on sees them.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Vec<u8>) -> T) -> Result<T, Errno> {
        let changed = match &mut *self.kind.lock() {
            Kind::File(bytes) => change(bytes.own()),
            Kind::Directory => return Err(Errno::EISDIR),
            Kind::Link(_)
            | Kind::Shmem(_)
            | Kind::Null
            | Kind::Zero
            | Kind::Random
            | Kind::Console
            | Kind::Zram
            | Kind::Attribute(_) => return Err(Errno::EINVAL),
        };
        *self.object.lock() = None;
        Ok(changed)
    }

    /// The shared memory that it is, if it is.
    pub(crate) fn shmem(&self) -> Option<pagewright_sync::Arc<FileObject>> {
        match &*self.kind.lock() {
            Kind::Shmem(shmem) => Some(shmem.0.clone()),
            Kind::File(_)
            | Kind::Directory
            | Kind::Link(_)
            | Kind::Null
            | Kind::Zero
            | Kind::Random
            | Kind::Console
            | Kind::Zram
            | Kind::Attribute(_) => None,
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        matches!(*self.kind.lock(), Kind::Directory)
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
        nodes.insert(path.to_string(), Node::new(path, DIRECTORY_MODE, Kind::Directory));
    }
    let devices = [
        ("/dev/null", Kind::Null),
        ("/dev/zero", Kind::Zero),
        ("/dev/urandom", Kind::Random),
        ("/dev/random", Kind::Random),
        ("/dev/console", Kind::Console),
        ("/dev/tty", Kind::Console),
    ];
    for (path, kind) in devices {
        nodes.insert(path.to_string(), Node::new(path, DEVICE_MODE, kind));
    }
    nodes.insert("/dev/zram0".to_string(), Node::new("/dev/zram0", DISK_MODE, Kind::Zram));
    for (path, mode, attribute) in Attribute::ALL {
        nodes.insert(path.to_string(), Node::new(path, mode, Kind::Attribute(attribute)));
    }
    for entry in cpio_reader::iter_files(archive) {
        let path = absolute("/", entry.name());
        let mode = entry.mode().bits();
        let kind = match mode & TYPE {
            0o040_000 => Kind::Directory,
            LINK => Kind::Link(String::from_utf8_lossy(entry.file()).into_owned()),
            FILE => Kind::File(Bytes::Archive(entry.file())),
            _ => continue,
        };
        nodes.insert(path.clone(), Node::new(&path, mode, kind));
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

/// What is at an absolute path, and its path without links. The last part is followed if it is a link and `follow` says so.
pub(crate) fn find(path: &str, follow: bool) -> Result<Arc<Node>, Errno> {
    let resolved = resolve(path, follow)?;
    NODES.lock().get(&resolved).cloned().ok_or(Errno::ENOENT)
}

/// The path with all links followed; what it names need not exist, but its directory must.
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
                    Kind::Link(target) if !last || follow => {
                        let parent = prefix.rsplit_once('/').map_or("/", |(parent, _)| parent);
                        path = absolute(&absolute(parent, target), &format!("./{rest}"));
                        continue 'again;
                    }
                    Kind::Directory | Kind::Link(_) => {}
                    _ if !last => return Err(Errno::ENOTDIR),
                    _ => {}
                },
            }
        }
        return Ok(path);
    }
    Err(Errno::ELOOP)
}

/// Makes something at a path where nothing is.
pub(crate) fn add(path: &str, mode: u32, kind: Kind) -> Result<Arc<Node>, Errno> {
    let mode = match &kind {
        Kind::Directory => 0o040_000 | mode & 0o7777,
        Kind::Link(_) => LINK | 0o777,
        _ => FILE | mode & 0o7777,
    };
    let node = Node::new(path, mode, kind);
    let mut nodes = NODES.lock();
    if nodes.contains_key(path) {
        return Err(Errno::EEXIST);
    }
    nodes.insert(path.to_string(), node.clone());
    Ok(node)
}

/// Takes a name away; who has the node keeps it.
pub(crate) fn remove(path: &str, directory: bool) -> Result<(), Errno> {
    let mut nodes = NODES.lock();
    let node = nodes.get(path).ok_or(Errno::ENOENT)?;
    match (node.is_directory(), directory) {
        (true, false) => return Err(Errno::EISDIR),
        (false, true) => return Err(Errno::ENOTDIR),
        (true, true) if nodes.keys().any(|other| is_child(path, other)) => return Err(Errno::ENOTEMPTY),
        (true, true) | (false, false) => {}
    }
    nodes.remove(path);
    Ok(())
}

fn is_child(directory: &str, path: &str) -> bool {
    let prefix = if directory == "/" { "" } else { directory };
    path.strip_prefix(prefix)
        .and_then(|rest| rest.strip_prefix('/'))
        .is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

/// What a directory has, by name.
pub(crate) fn children(directory: &str) -> Vec<(String, Arc<Node>)> {
    let nodes = NODES.lock();
    let inside = nodes.iter().filter(|(path, _)| is_child(directory, path));
    inside.map(|(path, node)| (path.rsplit('/').next().unwrap_or_default().to_string(), node.clone())).collect()
}
