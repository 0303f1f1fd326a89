//! Extended attributes: `getxattr` and its relatives (`fs/xattr.c`).
//!
//! Files of the tree keep attributes of the namespaces `trusted` and `security`, as Linux's tmpfs
//! does. Not guaranteed: capabilities of files and access control lists, which are refused with
//! `EOPNOTSUPP`; attributes of files below `/sys`, whose inodes do not last.

use super::path::{find, path_at};
use super::{Arguments, address};
use crate::credentials::{Credentials, FileAccess};
use crate::errno::Errno;
use crate::file::{OpenFile, OpenTarget};
use crate::inode::{ExtendedAttribute, FileSystem, Inode};
use crate::socket::SocketKind;
use crate::task::{SyscallResult, Thread};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use pagewright_types::VirtAddr;

/// The longest name and the largest value in bytes (`XATTR_NAME_MAX`, `XATTR_SIZE_MAX`).
const NAME_MAX: usize = 255;
const VALUE_MAX: u64 = 65536;
const TRUSTED: &str = "trusted.";
const SECURITY: &str = "security.";
const USER: &str = "user.";
/// The capabilities of a program.
const CAPABILITY: &str = "security.capability";
/// Access control lists; the second is of directories.
const ACCESS_LIST: &str = "system.posix_acl_access";
const DEFAULT_LIST: &str = "system.posix_acl_default";
/// The size of the header of an access control list.
const LIST_HEADER: usize = 4;
/// The name of a socket's protocol.
const PROTOCOL_NAME: &str = "system.sockprotoname";

/// What has extended attributes.
enum AttributeHolder {
    Inode(Arc<Inode>),
    /// A socket; the text is the name of its protocol.
    Socket(&'static str),
    /// A pipe, or an open file without a file system of its own.
    Anonymous,
}

impl AttributeHolder {
    /// What a path names; `follow` follows a link at its end.
    fn at(thread: &Thread, path: u64, follow: bool) -> Result<Self, Errno> {
        let path = path_at(thread, linux::AT_FDCWD as u64, address(path))?;
        Ok(Self::Inode(find(thread, &path, follow)?))
    }

    fn behind(open: &OpenFile) -> Self {
        if let Some(node) = open.inode() {
            return Self::Inode(node.clone());
        }
        match &open.target {
            OpenTarget::Socket(socket) if socket.get().kind == SocketKind::Stream => Self::Socket("UNIX-STREAM"),
            OpenTarget::Socket(_) => Self::Socket("UNIX"),
            _ => Self::Anonymous,
        }
    }

    /// Checks that the caller may read or change the attribute (`xattr_permission`).
    fn check_access(&self, name: &str, caller: &Credentials, wanted: FileAccess) -> Result<(), Errno> {
        const STICKY: u32 = 0o1000;
        let writes = wanted == FileAccess::WRITE;
        let hidden = if writes { Errno::EPERM } else { Errno::ENODATA };
        if name.starts_with(SECURITY) || name.starts_with("system.") {
            return Ok(());
        }
        if name.starts_with(TRUSTED) {
            return if caller.has(linux::CAP_SYS_ADMIN) { Ok(()) } else { Err(hidden) };
        }
        let Self::Inode(node) = self else {
            return if name.starts_with(USER) { Err(hidden) } else { Ok(()) };
        };
        let attributes = node.attributes();
        if name.starts_with(USER) {
            let is_directory = node.is_directory();
            if !is_directory && attributes.mode & linux::S_IFMT != linux::S_IFREG {
                return Err(hidden);
            }
            if is_directory && attributes.mode & STICKY != 0 && writes && !caller.owns(&attributes) {
                return Err(Errno::EPERM);
            }
        }
        caller.access(&attributes, wanted)
    }

    /// The handler of a name (`xattr_resolve_name`).
    fn handler(&self, name: &str) -> Result<Handler<'_>, Errno> {
        let in_namespace =
            |prefix| name.strip_prefix(prefix).map(|rest| if rest.is_empty() { Err(Errno::EINVAL) } else { Ok(()) });
        let node = match self {
            Self::Anonymous => return Err(Errno::EOPNOTSUPP),
            Self::Socket(protocol) => {
                in_namespace(SECURITY).transpose()?;
                return if name == PROTOCOL_NAME { Ok(Handler::Fixed(protocol)) } else { Err(Errno::EOPNOTSUPP) };
            }
            Self::Inode(node) if node.file_system() == FileSystem::Proc => return Err(Errno::EOPNOTSUPP),
            Self::Inode(node) => node,
        };
        let stored = in_namespace(TRUSTED).or_else(|| in_namespace(SECURITY)).transpose()?.is_some();
        match node.file_system() {
            FileSystem::Tmpfs if stored => Ok(Handler::Stored(node)),
            FileSystem::Tmpfs if name == ACCESS_LIST || name == DEFAULT_LIST => Ok(Handler::AccessList(node)),
            FileSystem::Sysfs if stored => Ok(Handler::Nothing),
            FileSystem::Tmpfs | FileSystem::Proc | FileSystem::Sysfs => Err(Errno::EOPNOTSUPP),
        }
    }
}

/// What answers for a name (`struct xattr_handler`).
enum Handler<'a> {
    /// The inode keeps the attribute.
    Stored(&'a Inode),
    /// No inode has an access control list.
    AccessList(&'a Inode),
    /// The attribute is always this text, with a zero byte.
    Fixed(&'static str),
    /// The inode has no attributes, and gets none.
    Nothing,
}

impl Handler<'_> {
    fn get(&self, name: &str) -> Result<Vec<u8>, Errno> {
        match self {
            Self::Stored(node) => {
                let extended = node.extended.lock();
                let found = extended.iter().find(|attribute| attribute.name == name).ok_or(Errno::ENODATA)?;
                copy_of(&found.value)
            }
            // Links have no lists (`posix_acl_xattr_get`).
            Self::AccessList(node) if is_link(node) => Err(Errno::EOPNOTSUPP),
            Self::AccessList(_) | Self::Nothing => Err(Errno::ENODATA),
            Self::Fixed(text) => {
                let mut bytes = copy_of(text.as_bytes())?;
                bytes.push(0);
                Ok(bytes)
            }
        }
    }

    /// Sets an attribute (`simple_xattr_set`, `posix_acl_xattr_set`).
    fn set(&self, name: &str, value: Vec<u8>, flags: u32) -> Result<(), Errno> {
        match self {
            Self::Stored(_) if name == CAPABILITY => Err(Errno::EOPNOTSUPP),
            Self::Stored(node) => {
                let mut extended = node.extended.lock();
                match extended.iter_mut().find(|attribute| attribute.name == name) {
                    Some(_) if flags & linux::XATTR_CREATE != 0 => return Err(Errno::EEXIST),
                    Some(known) => known.value = value,
                    None if flags & linux::XATTR_REPLACE != 0 => return Err(Errno::ENODATA),
                    None => {
                        extended.try_reserve(1)?;
                        extended.insert(0, ExtendedAttribute { name: String::from(name), value });
                    }
                }
                drop(extended);
                node.change(|_| {});
                Ok(())
            }
            Self::AccessList(node) if is_link(node) => Err(Errno::EOPNOTSUPP),
            Self::AccessList(_) if value.len() < LIST_HEADER => Err(Errno::EINVAL),
            Self::AccessList(_) | Self::Fixed(_) | Self::Nothing => Err(Errno::EOPNOTSUPP),
        }
    }

    fn remove(&self, name: &str, caller: &Credentials) -> Result<(), Errno> {
        match self {
            Self::Stored(node) => {
                let mut extended = node.extended.lock();
                let at = extended.iter().position(|attribute| attribute.name == name).ok_or(Errno::ENODATA)?;
                extended.remove(at);
                drop(extended);
                node.change(|_| {});
                Ok(())
            }
            Self::AccessList(node) if is_link(node) => Err(Errno::EOPNOTSUPP),
            Self::AccessList(node) if name == DEFAULT_LIST && !node.is_directory() => Ok(()),
            Self::AccessList(node) if !caller.owns(&node.attributes()) => Err(Errno::EPERM),
            Self::AccessList(_) => Ok(()),
            Self::Fixed(_) => Err(Errno::EOPNOTSUPP),
            Self::Nothing => Err(Errno::ENODATA),
        }
    }
}

fn is_link(node: &Inode) -> bool {
    node.attributes().mode & linux::S_IFMT == linux::S_IFLNK
}

fn copy_of(bytes: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len() + 1)?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// Reads the name of an attribute.
fn read_name(thread: &Thread, at: u64) -> Result<String, Errno> {
    let name = thread.space.read_name(address(at), NAME_MAX + 1)?;
    if name.is_empty() || name.len() > NAME_MAX { Err(Errno::ERANGE) } else { Ok(name) }
}

/// Stores a value, or returns its size if no room is given.
fn answer(thread: &Thread, bytes: &[u8], to: VirtAddr, room: u64) -> SyscallResult {
    if room > 0 {
        if bytes.len() as u64 > room {
            return Err(Errno::ERANGE.into());
        }
        thread.space.write(to, bytes)?;
    }
    Ok(bytes.len() as u64)
}

/// `vfs_getxattr`.
fn get(thread: &Thread, holder: &AttributeHolder, a: Arguments) -> SyscallResult {
    let name = read_name(thread, a[1])?;
    holder.check_access(&name, &thread.credentials, FileAccess::READ)?;
    let value = holder.handler(&name)?.get(&name)?;
    answer(thread, &value, address(a[2]), a[3])
}

/// `setxattr`, `vfs_setxattr`.
fn set(thread: &Thread, holder: &AttributeHolder, a: Arguments) -> SyscallResult {
    let (size, flags) = (a[3], a[4] as u32);
    if flags & !(linux::XATTR_CREATE | linux::XATTR_REPLACE) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let name = read_name(thread, a[1])?;
    if size > VALUE_MAX {
        return Err(Errno::E2BIG.into());
    }
    let value = thread.space.read_vec(address(a[2]), size as usize)?;
    if name == CAPABILITY && !value.is_empty() {
        check_capabilities(&value)?;
    }
    holder.check_access(&name, &thread.credentials, FileAccess::WRITE)?;
    check_security(&name, &thread.credentials)?;
    holder.handler(&name)?.set(&name, value, flags)?;
    Ok(0)
}

/// `vfs_removexattr`.
fn remove(thread: &Thread, holder: &AttributeHolder, a: Arguments) -> SyscallResult {
    let name = read_name(thread, a[1])?;
    holder.check_access(&name, &thread.credentials, FileAccess::WRITE)?;
    check_security(&name, &thread.credentials)?;
    holder.handler(&name)?.remove(&name, &thread.credentials)?;
    Ok(0)
}

/// Checks the form of the capabilities of a file (`cap_convert_nscap`, `validheader`).
fn check_capabilities(value: &[u8]) -> Result<(), Errno> {
    const SIZES: [(u8, usize); 2] = [(2, 20), (3, 24)];
    let is_valid = value.get(3).is_some_and(|version| SIZES.contains(&(*version, value.len())));
    if is_valid { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Checks that the caller may change an attribute about security (`cap_inode_setxattr`).
fn check_security(name: &str, caller: &Credentials) -> Result<(), Errno> {
    match name {
        CAPABILITY => caller.need(linux::CAP_SETFCAP),
        name if name.starts_with(SECURITY) => caller.need(linux::CAP_SYS_ADMIN),
        _ => Ok(()),
    }
}

/// `vfs_listxattr`: the names, each with a zero byte.
fn list(thread: &Thread, holder: &AttributeHolder, a: Arguments) -> SyscallResult {
    let mut names = Vec::new();
    match holder {
        AttributeHolder::Inode(node) => {
            let extended = node.extended.lock();
            let shows_trusted = thread.credentials.has(linux::CAP_SYS_ADMIN);
            for attribute in extended.iter().filter(|attribute| shows_trusted || !attribute.name.starts_with(TRUSTED)) {
                names.try_reserve(attribute.name.len() + 1)?;
                names.extend_from_slice(attribute.name.as_bytes());
                names.push(0);
            }
        }
        AttributeHolder::Socket(_) => {
            names.extend_from_slice(PROTOCOL_NAME.as_bytes());
            names.push(0);
        }
        AttributeHolder::Anonymous => {}
    }
    answer(thread, &names, address(a[1]), a[2])
}

/// Defines the three forms of a call: by path, by path without following a link, by descriptor.
macro_rules! forms {
    ($($by_path:ident $by_link:ident $by_descriptor:ident $serve:ident;)*) => {
        $(
            #[doc = concat!("`", stringify!($by_path), "`.")]
            pub(super) fn $by_path(thread: &mut Thread, a: Arguments) -> SyscallResult {
                $serve(thread, &AttributeHolder::at(thread, a[0], true)?, a)
            }

            #[doc = concat!("`", stringify!($by_link), "`.")]
            pub(super) fn $by_link(thread: &mut Thread, a: Arguments) -> SyscallResult {
                $serve(thread, &AttributeHolder::at(thread, a[0], false)?, a)
            }

            #[doc = concat!("`", stringify!($by_descriptor), "`.")]
            pub(super) fn $by_descriptor(thread: &mut Thread, a: Arguments) -> SyscallResult {
                let open = thread.open_file(a[0])?;
                $serve(thread, &AttributeHolder::behind(&open), a)
            }
        )*
    };
}

forms! {
    getxattr lgetxattr fgetxattr get;
    setxattr lsetxattr fsetxattr set;
    listxattr llistxattr flistxattr list;
    removexattr lremovexattr fremovexattr remove;
}
