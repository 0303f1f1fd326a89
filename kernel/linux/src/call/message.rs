//! Messages of sockets: `sendmsg`, `recvmsg` and the calls in terms of them; `read` and `write`.
//!
//! Not guaranteed: `MSG_OOB`, `MSG_ERRQUEUE`.

use super::socket::{SocketAddress, wait_for_change, write_address};
use super::transfer::{TRANSFER_MAX, after, gather, vectors};
use super::{Arguments, address};
use crate::credentials::Credentials;
use crate::errno::Errno;
use crate::file::OpenFile;
use crate::socket::{
    InFlightFile, Outgoing, Receive, ReceiveFlags, Received, Send, Socket, SocketCredentials, SocketKind,
};
use crate::task::{CallStop, SyscallResult, TaskId, Thread, scheduler};
use crate::user;
use crate::user_buffer::{Parts, UserBuffer};
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use linux_raw_sys::net;

/// The size of `struct msghdr`, and the offsets of its fields.
pub(super) const HEADER: usize = 56;
const NAME_LEN: usize = 8;
const CONTROL: usize = 32;
const CONTROL_LEN: usize = 40;
const FLAGS: usize = 48;
/// The size of `struct cmsghdr`, and of `struct ucred`.
const CONTROL_HEADER: usize = 16;
const CREDENTIALS: usize = 12;
/// The limit of control data (`optmem_max`), and of descriptors in one message.
const CONTROL_MAX: u64 = 20480;
const FILES_MAX: usize = 253;

/// `struct msghdr`.
struct MessageHeader {
    name: u64,
    name_len: u32,
    parts: Vec<(u64, u64)>,
    control: u64,
    control_len: u64,
}

impl MessageHeader {
    fn read(thread: &Thread, at: u64) -> Result<Self, Errno> {
        let bytes: [u8; HEADER] = thread.space.read_array(address(at))?;
        let word = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let name_len = word(NAME_LEN) as u32;
        if name_len.cast_signed() < 0 {
            return Err(Errno::EINVAL);
        }
        if word(24) > u64::from(linux::UIO_MAXIOV) {
            return Err(Errno::EMSGSIZE);
        }
        let parts = vectors(thread, [0, word(16), word(24), 0, 0, 0])?;
        let name = word(0);
        let name_len = if name == 0 { 0 } else { name_len.min(128) };
        Ok(Self { name, name_len, parts, control: word(CONTROL), control_len: word(CONTROL_LEN) })
    }
}

/// What `sendmsg` and its relatives are asked to send.
struct Sending<'a> {
    parts: &'a Parts,
    flags: u32,
    to: Option<SocketAddress>,
    /// Control data.
    control: Vec<u8>,
}

/// `sendmsg`.
pub(super) fn sendmsg(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    let socket = open.socket()?;
    let header = MessageHeader::read(thread, a[1])?;
    let to = match header.name_len {
        0 => None,
        len => Some(SocketAddress::read(thread, header.name, len.into())?),
    };
    if header.control_len > CONTROL_MAX {
        return Err(Errno::ENOBUFS.into());
    }
    let control = thread.space.read_vec(address(header.control), header.control_len as usize)?;
    send(thread, &open, socket, Sending { parts: &header.parts, flags: a[2] as u32, to, control })
}

/// `sendto`.
pub(super) fn sendto(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    let socket = open.socket()?;
    let to = if a[4] == 0 { None } else { Some(SocketAddress::read(thread, a[4], a[5])?) };
    let parts = [(a[1], a[2].min(TRANSFER_MAX))];
    send(thread, &open, socket, Sending { parts: &parts, flags: a[3] as u32, to, control: Vec::new() })
}

/// `write` and `writev` to a socket.
pub(super) fn write(thread: &mut Thread, open: &OpenFile, socket: &Arc<Socket>, parts: &Parts) -> SyscallResult {
    send(thread, open, socket, Sending { parts, flags: 0, to: None, control: Vec::new() })
}

/// Sends a message, or the bytes of a stream, of which a call that has slept continues.
fn send(thread: &mut Thread, open: &OpenFile, socket: &Arc<Socket>, sending: Sending<'_>) -> SyscallResult {
    let Sending { parts, flags, to, control } = sending;
    if flags & net::MSG_OOB != 0 {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let is_stream = socket.kind == SocketKind::Stream;
    let nonblocking = flags & net::MSG_DONTWAIT != 0 || open.has(linux::O_NONBLOCK);
    // The first bytes took the descriptors with them.
    let control = if thread.bytes_moved > 0 { Control::default() } else { Control::parse(thread, &control)? };
    let total: u64 = parts.iter().map(|(_, len)| len).sum();
    if !is_stream && total > socket.message_limit() as u64 {
        return Err(if to.is_some() || socket.peer().is_some() { Errno::EMSGSIZE } else { Errno::ENOTCONN }.into());
    }
    let to = match to {
        // A sequence of packets ignores the address.
        Some(_) if is_stream => {
            return Err(if socket.is_connected() { Errno::EISCONN } else { Errno::EOPNOTSUPP }.into());
        }
        Some(to) if socket.kind == SocketKind::Datagram => Some(to.find(thread, socket.kind)?),
        _ => None,
    };
    if socket.kind == SocketKind::Datagram && socket.options().pass_credentials {
        socket.bind_any()?;
    }
    let mut message = Outgoing {
        bytes: Vec::new(),
        credentials: control.credentials,
        of_caller: SocketCredentials::of_sender(thread),
        files: control.files,
    };
    loop {
        let moved = thread.bytes_moved as u64;
        message.bytes = match gather(thread, parts, moved, socket.message_limit() as u64) {
            Ok(bytes) if bytes.is_empty() && moved > 0 => return Ok(moved),
            Ok(bytes) => bytes,
            Err(error) => return Ok(after(moved, error)?),
        };
        let len = message.bytes.len();
        let mut scheduler = scheduler();
        match socket.send(&mut scheduler, to.as_ref(), &mut message) {
            Ok(Send::Sent) if !is_stream || len == 0 => return Ok(len as u64),
            Ok(Send::Sent) => thread.bytes_moved += len,
            Ok(Send::Wait) => {
                return wait_for_change(thread, scheduler, nonblocking, socket.options().send_timeout);
            }
            Ok(Send::Broken) if moved > 0 => return Ok(moved),
            Ok(Send::Broken) => {
                if is_stream && flags & net::MSG_NOSIGNAL == 0 {
                    scheduler.post_broken_pipe(thread);
                }
                return Err(Errno::EPIPE.into());
            }
            Err(error) => return Ok(after(moved, error)?),
        }
    }
}

/// Sends bytes of the kernel (`sendfile`), and returns how many.
pub(super) fn send_bytes(
    thread: &mut Thread,
    open: &OpenFile,
    socket: &Arc<Socket>,
    mut bytes: Vec<u8>,
) -> Result<u64, CallStop> {
    bytes.truncate(socket.message_limit());
    let len = bytes.len() as u64;
    let of_caller = SocketCredentials::of_sender(thread);
    let mut message = Outgoing { bytes, credentials: None, of_caller, files: Vec::new() };
    let mut scheduler = scheduler();
    match socket.send(&mut scheduler, None, &mut message)? {
        Send::Sent => Ok(len),
        Send::Wait => wait_for_change(thread, scheduler, open.has(linux::O_NONBLOCK), socket.options().send_timeout),
        Send::Broken => {
            if socket.kind == SocketKind::Stream {
                scheduler.post_broken_pipe(thread);
            }
            Err(Errno::EPIPE.into())
        }
    }
}

/// The control data of a message that is sent (`struct scm_cookie`).
#[derive(Default)]
struct Control {
    credentials: Option<SocketCredentials>,
    files: Vec<InFlightFile>,
}

impl Control {
    /// Reads control data (`__scm_send`).
    fn parse(thread: &Thread, bytes: &[u8]) -> Result<Self, Errno> {
        let mut control = Self::default();
        let mut rest = bytes;
        while let Some((header, _)) = rest.split_first_chunk::<CONTROL_HEADER>() {
            let word = |at: usize| header[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
            let len = header[..8].try_into().map_or(0, usize::from_le_bytes);
            if len < CONTROL_HEADER || len > rest.len() {
                return Err(Errno::EINVAL);
            }
            let data = &rest[CONTROL_HEADER..len];
            if word(8) == net::SOL_SOCKET {
                match word(12) {
                    net::SCM_RIGHTS => control.add_files(thread, data)?,
                    net::SCM_CREDENTIALS => control.credentials = Some(checked_credentials(thread, data)?),
                    _ => return Err(Errno::EINVAL),
                }
            }
            rest = rest.get(len.next_multiple_of(8)..).unwrap_or_default();
        }
        Ok(control)
    }

    /// Adds the files of descriptors (`scm_fp_copy`, `unix_attach_fds`).
    fn add_files(&mut self, thread: &Thread, data: &[u8]) -> Result<(), Errno> {
        let numbers = data.chunks_exact(4).map(|bytes| bytes.try_into().map_or(-1, i32::from_le_bytes));
        if self.files.len() + numbers.len() > FILES_MAX {
            return Err(Errno::EINVAL);
        }
        user::check_in_flight(&thread.credentials, thread.descriptor_limit())?;
        self.files.try_reserve(numbers.len())?;
        for number in numbers {
            let number = u64::try_from(number).map_err(|_| Errno::EBADF)?;
            self.files.push(InFlightFile::new(thread.named_file(number)?, &thread.credentials));
        }
        Ok(())
    }
}

/// The credentials that a sender chose, if it may (`scm_check_creds`).
fn checked_credentials(thread: &Thread, data: &[u8]) -> Result<SocketCredentials, Errno> {
    let bytes: &[u8; CREDENTIALS] = data.try_into().map_err(|_| Errno::EINVAL)?;
    let word = |at: usize| bytes[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
    let chosen = SocketCredentials { process: word(0), user: word(4), group: word(8) };
    let Credentials { user, group, .. } = &*thread.credentials;
    let caller = &thread.credentials;
    let own_process = chosen.process == thread.process.0;
    let contains = |ids: crate::credentials::ThreadIds, id| [ids.real, ids.effective, ids.saved].contains(&id);
    let allowed = (own_process || caller.has(linux::CAP_SYS_ADMIN))
        && (contains(*user, chosen.user) || caller.has(linux::CAP_SETUID))
        && (contains(*group, chosen.group) || caller.has(linux::CAP_SETGID));
    if !allowed {
        return Err(Errno::EPERM);
    }
    if !own_process && !scheduler().processes.contains_key(&TaskId(chosen.process)) {
        return Err(Errno::ESRCH);
    }
    if chosen.user == u32::MAX || chosen.group == u32::MAX {
        return Err(Errno::EINVAL);
    }
    Ok(chosen)
}

/// `recvmsg`.
pub(super) fn recvmsg(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    let socket = open.socket()?;
    let flags = a[2] as u32;
    let header = MessageHeader::read(thread, a[1])?;
    let received = receive(thread, &open, socket, &header.parts, flags)?;
    let Some((count, received)) = received else {
        // The end of the file has neither a name nor control data.
        write_tail(thread, a[1], &header, flags & net::MSG_CMSG_CLOEXEC, 0, None)?;
        return Ok(core::mem::take(&mut thread.bytes_moved) as u64);
    };
    let mut answered = flags & net::MSG_CMSG_CLOEXEC;
    if socket.kind != SocketKind::Stream && (count as usize) < received.len {
        answered |= net::MSG_TRUNC;
    }
    let mut control = ControlWriter { thread, at: header.control, room: header.control_len as usize, flags: answered };
    let name = received.name.clone();
    let whole = received.len as u64;
    control.write_all(received);
    let ControlWriter { at, flags: answered, .. } = control;
    write_tail(thread, a[1], &header, answered, at.wrapping_sub(header.control), Some(name.as_deref()))?;
    let is_whole = socket.kind != SocketKind::Stream && flags & net::MSG_TRUNC != 0;
    Ok(if is_whole { whole } else { count })
}

/// Stores the fields of `struct msghdr` that `recvmsg` changes.
fn write_tail(
    thread: &Thread,
    at: u64,
    header: &MessageHeader,
    flags: u32,
    control_len: u64,
    name: Option<Option<&[u8]>>,
) -> Result<(), Errno> {
    if header.name != 0 {
        match name {
            Some(Some(name)) => write_address(thread, Some(name), header.name, at + NAME_LEN as u64)?,
            // A sender without a name has no address either.
            Some(None) | None => thread.space.write_u32(address(at + NAME_LEN as u64), 0)?,
        }
    }
    thread.space.write_u32(address(at + FLAGS as u64), flags)?;
    thread.space.write_u64(address(at + CONTROL_LEN as u64), control_len)
}

/// `recvfrom`.
pub(super) fn recvfrom(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let open = thread.open_file(a[0])?;
    let socket = open.socket()?;
    let flags = a[3] as u32;
    let received = receive(thread, &open, socket, &[(a[1], a[2].min(TRANSFER_MAX))], flags)?;
    let Some((count, received)) = received else { return Ok(core::mem::take(&mut thread.bytes_moved) as u64) };
    if a[4] != 0 {
        match &received.name {
            Some(name) => write_address(thread, Some(name), a[4], a[5])?,
            None => thread.space.write_u32(address(a[5]), 0)?,
        }
    }
    let is_whole = socket.kind != SocketKind::Stream && flags & net::MSG_TRUNC != 0;
    Ok(if is_whole { received.len as u64 } else { count })
}

/// `read` and `readv` of a socket.
pub(super) fn read(thread: &mut Thread, open: &OpenFile, socket: &Arc<Socket>, parts: &Parts) -> SyscallResult {
    if parts.iter().all(|(_, len)| *len == 0) {
        return Ok(0);
    }
    let received = receive(thread, open, socket, parts, 0)?;
    Ok(received.map_or_else(|| core::mem::take(&mut thread.bytes_moved) as u64, |(count, _)| count))
}

/// Receives and stores bytes; `None` at the end, where the bytes that were moved before count.
fn receive(
    thread: &mut Thread,
    open: &OpenFile,
    socket: &Arc<Socket>,
    parts: &Parts,
    flags: u32,
) -> Result<Option<(u64, Received)>, CallStop> {
    if flags & (net::MSG_OOB | net::MSG_ERRQUEUE) != 0 {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let is_stream = socket.kind == SocketKind::Stream;
    let nonblocking = flags & net::MSG_DONTWAIT != 0 || open.has(linux::O_NONBLOCK);
    let how = ReceiveFlags { peek: flags & net::MSG_PEEK != 0 };
    // A stream fills the buffer before it returns.
    let fills = is_stream && flags & net::MSG_WAITALL != 0 && !how.peek;
    loop {
        let moved = thread.bytes_moved as u64;
        let space = thread.space.clone();
        let mut buffer = UserBuffer::new(&space, parts, moved);
        let (scheduler, received) = buffer.fill(|scheduler, buffer| socket.receive(scheduler, buffer, how));
        let received = match received {
            Ok(Receive::Got(received)) => received,
            // `unix_dgram_recvmsg` tells the end only to a caller that would wait.
            Ok(Receive::End) if socket.kind == SocketKind::Datagram && nonblocking => {
                return Err(Errno::EAGAIN.into());
            }
            Ok(Receive::End) => return Ok(None),
            Ok(Receive::Wait) => {
                let timeout = socket.options().receive_timeout;
                // Only what was moved before is returned, with no message.
                return wait_for_change(thread, scheduler, nonblocking, timeout).map(|_| None);
            }
            Err(_) if moved > 0 => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        drop(scheduler);
        if fills && received.files.is_empty() && buffer.room() > 0 {
            thread.bytes_moved += received.count;
            continue;
        }
        thread.bytes_moved = 0;
        return Ok(Some((moved + received.count as u64, received)));
    }
}

/// Writes control data to user memory (`put_cmsg`).
struct ControlWriter<'a> {
    thread: &'a Thread,
    at: u64,
    room: usize,
    /// The flags of the message that are returned.
    flags: u32,
}

impl ControlWriter<'_> {
    /// Writes the credentials and the descriptors of a message (`scm_recv`).
    ///
    /// As in Linux, control data that cannot be stored is lost, and the message is received.
    fn write_all(&mut self, received: Received) {
        if self.at == 0 {
            if received.credentials.is_some() || !received.files.is_empty() {
                self.flags |= net::MSG_CTRUNC;
            }
            return;
        }
        if let Some(SocketCredentials { process, user, group }) = received.credentials {
            let bytes: Vec<u8> = [process, user, group].into_iter().flat_map(u32::to_le_bytes).collect();
            self.put(net::SCM_CREDENTIALS, &bytes);
        }
        if !received.files.is_empty() {
            self.put_files(&received.files);
        }
    }

    fn put(&mut self, kind: u32, data: &[u8]) {
        if self.room < CONTROL_HEADER {
            self.flags |= net::MSG_CTRUNC;
            return;
        }
        let len = CONTROL_HEADER + data.len();
        let written = len.min(self.room);
        if written < len {
            self.flags |= net::MSG_CTRUNC;
        }
        let there = address(self.at.wrapping_add(CONTROL_HEADER as u64));
        let stored = self
            .write_header(kind, written)
            .and_then(|()| self.thread.space.write(there, &data[..written - CONTROL_HEADER]));
        if stored.is_ok() {
            self.advance(len);
        }
    }

    fn write_header(&self, kind: u32, len: usize) -> Result<(), Errno> {
        let mut bytes = [0; CONTROL_HEADER];
        bytes[..8].copy_from_slice(&len.to_le_bytes());
        bytes[8..12].copy_from_slice(&net::SOL_SOCKET.to_le_bytes());
        bytes[12..].copy_from_slice(&kind.to_le_bytes());
        self.thread.space.write(address(self.at), &bytes)
    }

    /// Goes to the next header.
    fn advance(&mut self, len: usize) {
        let space = len.next_multiple_of(8).min(self.room);
        (self.at, self.room) = (self.at.wrapping_add(space as u64), self.room - space);
    }

    /// Adds as many descriptors as fit and can be told (`scm_detach_fds`).
    fn put_files(&mut self, files: &[Arc<OpenFile>]) {
        let close_on_exec = self.flags & net::MSG_CMSG_CLOEXEC != 0;
        let most = self.room.saturating_sub(CONTROL_HEADER) / 4;
        let mut put = 0;
        for open in files.iter().take(most) {
            let Ok(number) = self.thread.add_descriptor(open, close_on_exec) else { break };
            let there = self.at.wrapping_add((CONTROL_HEADER + put * 4) as u64);
            if self.thread.space.write_u32(address(there), number as u32).is_err() {
                let taken = self.thread.files.lock().take(number);
                drop(taken);
                break;
            }
            put += 1;
        }
        if put > 0 && self.write_header(net::SCM_RIGHTS, CONTROL_HEADER + put * 4).is_ok() {
            self.advance(CONTROL_HEADER + put * 4);
        }
        if put < files.len() {
            self.flags |= net::MSG_CTRUNC;
        }
    }
}
