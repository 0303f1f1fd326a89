//! Sockets: `socket`, names, connections, shutdown.
//!
//! Messages are in `message`, options in `socket_option`.
//!
//! Not guaranteed: any family but `AF_UNIX`; a call for another one fails with `EAFNOSUPPORT`.

use super::path;
use super::{Arguments, address};
use crate::credentials::FileAccess;
use crate::errno::Errno;
use crate::file::{OpenFile, OpenTarget};
use crate::inode::InodeKind;
use crate::ramfs;
use crate::socket::{
    ShutDown, Socket, SocketCredentials, SocketHandle, SocketKind, SocketName, find_abstract, find_file,
};
use crate::task::{CallStop, SchedulerGuard, SyscallResult, Thread, WaitReason, scheduler};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use linux_raw_sys::net;

/// The part of the argument that is the type of a socket (`SOCK_TYPE_MASK`).
const TYPE: u32 = 0xf;
/// The flags beside the type, which are those of `open`.
const FLAGS: u32 = linux::O_CLOEXEC | linux::O_NONBLOCK;
/// The limits of types (`SOCK_MAX`), of families (`NPROTO`), and of waiting connections.
const TYPE_MAX: u32 = 11;
const FAMILY_MAX: u32 = 46;
const BACKLOG_MAX: u32 = 4096;
/// The size of any address (`struct sockaddr_storage`), of `struct sockaddr_un`, and of its family.
const ADDRESS_MAX: u64 = 128;
const UNIX_ADDRESS_MAX: usize = 110;
const FAMILY: usize = 2;

/// An address as a call gets it, with its family.
pub(super) struct SocketAddress(Vec<u8>);

impl SocketAddress {
    /// Reads an address from user memory (`move_addr_to_kernel`).
    pub(super) fn read(thread: &Thread, at: u64, len: u64) -> Result<Self, Errno> {
        let len = u64::from(len as u32);
        if len > ADDRESS_MAX {
            return Err(Errno::EINVAL);
        }
        Ok(Self(thread.space.read_vec(address(at), len as usize)?))
    }

    fn family(&self) -> Option<u32> {
        self.0.first_chunk().map(|bytes| u16::from_le_bytes(*bytes).into())
    }

    /// The name in an address of `AF_UNIX` (`unix_validate_addr`, `unix_mkname_bsd`).
    fn name(&self) -> Result<SocketName, Errno> {
        let valid = self.0.len() > FAMILY && self.0.len() <= UNIX_ADDRESS_MAX;
        if !valid || self.family() != Some(net::AF_UNIX) {
            return Err(Errno::EINVAL);
        }
        let name = &self.0[FAMILY..];
        if name[0] == 0 {
            return Ok(Arc::from(name));
        }
        // A path ends at its first zero byte, and has one.
        let path = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(path.iter().copied().chain([0]).collect())
    }

    /// The socket with this name (`unix_find_other`).
    pub(super) fn find(&self, thread: &Thread, kind: SocketKind) -> Result<Arc<Socket>, Errno> {
        let name = self.name()?;
        if name[0] == 0 {
            return find_abstract(kind, &name);
        }
        let path = path::absolute(thread, &path_of(&name));
        let node = path::find(thread, &path, true)?;
        thread.credentials.access(&node.attributes(), FileAccess::WRITE)?;
        find_file(kind, &node)
    }
}

/// The path in a name, without its zero byte.
fn path_of(name: &[u8]) -> String {
    String::from_utf8_lossy(&name[..name.len() - 1]).into_owned()
}

/// Stores the address with a name (`move_addr_to_user`).
///
/// `len_at` holds the room in bytes, and gets the length of the address.
pub(super) fn write_address(thread: &Thread, name: Option<&[u8]>, to: u64, len_at: u64) -> Result<(), Errno> {
    let room = u32::from_le_bytes(thread.space.read_array(address(len_at))?);
    let mut bytes = Vec::from((net::AF_UNIX as u16).to_le_bytes());
    bytes.extend_from_slice(name.unwrap_or_default());
    let room = usize::try_from(room as i32).map_err(|_| Errno::EINVAL)?;
    thread.space.write(address(to), &bytes[..bytes.len().min(room)])?;
    thread.space.write_u32(address(len_at), bytes.len() as u32)
}

/// Sleeps until a socket changes; returns what a call has moved if it must not wait any longer.
///
/// # Errors
/// [`CallStop::Sleep`]; `EAGAIN` if nothing was moved.
pub(super) fn wait_for_change(
    thread: &mut Thread,
    scheduler: SchedulerGuard,
    nonblocking: bool,
    timeout: Option<u64>,
) -> SyscallResult {
    let now = pagewright_hal::time::now_ns();
    let deadline = thread.deadline_within(timeout, now);
    let is_interrupted = thread.messages.is_some_and(|messages| messages.is_interrupted);
    if nonblocking || is_interrupted || deadline.is_some_and(|deadline| deadline <= now) {
        return if thread.bytes_moved > 0 { Ok(thread.bytes_moved as u64) } else { Err(Errno::EAGAIN.into()) };
    }
    thread.deadline = deadline;
    Err(CallStop::Sleep { scheduler, wait: WaitReason::Transfer, deadline, at_deadline: 0 })
}

/// The type and the flags of a new socket (`unix_create`).
fn checked_type(family: u64, kind: u64, protocol: u64) -> Result<(SocketKind, u32), Errno> {
    let (family, kind, protocol) = (family as u32, kind as u32, protocol as u32);
    if kind & !TYPE & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    if kind & TYPE >= TYPE_MAX && family < FAMILY_MAX {
        return Err(Errno::EINVAL);
    }
    if family != net::AF_UNIX {
        return Err(Errno::EAFNOSUPPORT);
    }
    if protocol != 0 && protocol != net::AF_UNIX {
        return Err(Errno::EPROTONOSUPPORT);
    }
    let checked = match kind & TYPE {
        net::SOCK_STREAM => SocketKind::Stream,
        net::SOCK_DGRAM | net::SOCK_RAW => SocketKind::Datagram,
        net::SOCK_SEQPACKET => SocketKind::SequencedPacket,
        _ => return Err(Errno::ESOCKTNOSUPPORT),
    };
    Ok((checked, kind & FLAGS))
}

/// The open file of a socket.
fn open_file(socket: Arc<Socket>, flags: u32) -> Arc<OpenFile> {
    OpenFile::new(OpenTarget::Socket(SocketHandle::new(socket)), linux::O_RDWR | flags & linux::O_NONBLOCK)
}

/// Adds a descriptor for a socket.
fn add(thread: &Thread, open: &Arc<OpenFile>, flags: u32) -> Result<u64, Errno> {
    thread.add_descriptor(open, flags & linux::O_CLOEXEC != 0)
}

/// `socket`.
pub(super) fn socket(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (kind, flags) = checked_type(a[0], a[1], a[2])?;
    Ok(add(thread, &open_file(Socket::new(kind), flags), flags)?)
}

/// `socketpair`.
pub(super) fn socketpair(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (kind, flags) = checked_type(a[0], a[1], a[2])?;
    let pair = Socket::pair(kind, SocketCredentials::of_peer(thread));
    let opens = pair.map(|socket| open_file(socket, flags));
    super::descriptor::add_two(thread, &opens, flags & linux::O_CLOEXEC != 0, address(a[3]))
}

/// `bind`.
pub(super) fn bind(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    let socket = open.socket()?;
    let given = SocketAddress::read(thread, a[1], a[2])?;
    if given.0.len() == FAMILY && given.family() == Some(net::AF_UNIX) {
        socket.bind_any()?;
        return Ok(0);
    }
    let name = given.name()?;
    if name[0] == 0 {
        socket.bind_abstract(name)?;
        return Ok(0);
    }
    let path = ramfs::resolve(&path::absolute(thread, &path_of(&name)), false, &thread.credentials)?;
    let mode = 0o777 & !thread.fs.lock().umask;
    let kind = InodeKind::Socket(Arc::downgrade(socket));
    let made = ramfs::add(&path, mode, kind, &thread.credentials);
    made.map_err(|error| if error == Errno::EEXIST { Errno::EADDRINUSE } else { error })?;
    if let Err(error) = socket.bind_file(name) {
        ramfs::remove(&path, false, &thread.credentials)?;
        return Err(error.into());
    }
    Ok(0)
}

/// `listen`.
pub(super) fn listen(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    let socket = open.socket()?;
    if !socket.is_connection() {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let backlog = (a[1] as u32).min(BACKLOG_MAX);
    socket.listen(&mut scheduler(), backlog as usize, SocketCredentials::of_peer(thread))?;
    Ok(0)
}

/// `accept4`; `accept` has no flags.
pub(super) fn accept4(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let flags = a[3] as u32;
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL.into());
    }
    let open = thread.open_file(a[0])?;
    let socket = open.socket()?;
    if !socket.is_connection() {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let limit = thread.descriptor_limit();
    thread.files.lock().check_free(limit)?;
    let accepted = {
        let mut scheduler = scheduler();
        match socket.accept(&mut scheduler)? {
            Some(accepted) => accepted,
            None => {
                let nonblocking = open.has(linux::O_NONBLOCK);
                return wait_for_change(thread, scheduler, nonblocking, socket.options().receive_timeout);
            }
        }
    };
    let name = accepted.peer().and_then(|peer| peer.name());
    let accepted = open_file(accepted, flags);
    if a[1] != 0 {
        write_address(thread, name.as_deref(), a[1], a[2])?;
    }
    Ok(add(thread, &accepted, flags)?)
}

/// `connect`.
pub(super) fn connect(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    let socket = open.socket()?;
    let given = SocketAddress::read(thread, a[1], a[2])?;
    let family = given.family().ok_or(Errno::EINVAL)?;
    if !socket.is_connection() && family == net::AF_UNSPEC {
        socket.connect_datagram(&mut scheduler(), None)?;
        return Ok(0);
    }
    given.name()?;
    if socket.options().pass_credentials {
        socket.bind_any()?;
    }
    let other = given.find(thread, socket.kind)?;
    let mut scheduler = scheduler();
    if !socket.is_connection() {
        socket.connect_datagram(&mut scheduler, Some(&other))?;
        return Ok(0);
    }
    if socket.connect(&mut scheduler, &other, SocketCredentials::of_peer(thread))? {
        return Ok(0);
    }
    wait_for_change(thread, scheduler, open.has(linux::O_NONBLOCK), socket.options().send_timeout)
}

/// `getsockname`.
pub(super) fn getsockname(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    let name = open.socket()?.name();
    write_address(thread, name.as_deref(), a[1], a[2])?;
    Ok(0)
}

/// `getpeername`.
pub(super) fn getpeername(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    let peer = open.socket()?.peer().ok_or(Errno::ENOTCONN)?;
    write_address(thread, peer.name().as_deref(), a[1], a[2])?;
    Ok(0)
}

/// `shutdown`.
pub(super) fn shutdown(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    let socket = open.socket()?;
    let directions = match a[1] as u32 {
        net::SHUT_RD => ShutDown { receive: true, send: false },
        net::SHUT_WR => ShutDown { receive: false, send: true },
        net::SHUT_RDWR => ShutDown { receive: true, send: true },
        _ => return Err(Errno::EINVAL.into()),
    };
    socket.shut_down(&mut scheduler(), directions);
    Ok(0)
}
