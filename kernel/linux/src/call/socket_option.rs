//! `getsockopt` and `setsockopt`.
//!
//! An option that is not here fails with `ENOPROTOOPT`, as one that Linux does not know.

use super::{Arguments, address};
use crate::errno::Errno;
use crate::socket::{BUFFER, SocketCredentials, SocketKind};
use crate::task::{SyscallResult, Thread};
use alloc::vec::Vec;
use linux_raw_sys::net;

/// The least values of `SO_SNDBUF` and `SO_RCVBUF` (`SOCK_MIN_SNDBUF`, `SOCK_MIN_RCVBUF`).
const SEND_MIN: usize = 4608;
const RECEIVE_MIN: usize = 2304;
const NS_PER_S: u64 = 1_000_000_000;
const US_PER_S: u64 = 1_000_000;

/// The options that are remembered, because no socket here acts on them.
const REMEMBERED: [u32; 4] = [net::SO_REUSEADDR, net::SO_KEEPALIVE, net::SO_BROADCAST, net::SO_REUSEPORT];

/// `setsockopt` (`sock_setsockopt`).
pub(super) fn setsockopt(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (level, option, len) = (a[1] as u32, a[2] as u32, a[4] as i32);
    let len = usize::try_from(len).map_err(|_| Errno::EINVAL)?;
    let open = thread.open_file(a[0])?;
    let socket = open.socket()?;
    if level != net::SOL_SOCKET {
        return Err(Errno::EOPNOTSUPP.into());
    }
    if len < 4 {
        return Err(Errno::EINVAL.into());
    }
    let value = u32::from_le_bytes(thread.space.read_array(address(a[3]))?);
    // As in Linux, a buffer is twice what was asked for.
    let buffer = (value as usize).min(BUFFER) * 2;
    match option {
        net::SO_SNDBUF => socket.set_options(|options| options.send_buffer = buffer.max(SEND_MIN)),
        net::SO_RCVBUF => socket.set_options(|options| options.receive_buffer = buffer.max(RECEIVE_MIN)),
        net::SO_PASSCRED => socket.set_options(|options| options.pass_credentials = value != 0),
        net::SO_SNDTIMEO | net::SO_RCVTIMEO => {
            if len < 16 {
                return Err(Errno::EINVAL.into());
            }
            let timeout = read_timeout(thread, a[3])?;
            socket.set_options(|options| {
                let of =
                    if option == net::SO_SNDTIMEO { &mut options.send_timeout } else { &mut options.receive_timeout };
                *of = timeout;
            });
        }
        known if REMEMBERED.contains(&known) => {
            let bit = 1 << known;
            socket.set_options(|options| {
                options.remembered = if value != 0 { options.remembered | bit } else { options.remembered & !bit };
            });
        }
        _ => return Err(Errno::ENOPROTOOPT.into()),
    }
    Ok(0)
}

/// Reads a `struct timeval`, of which 0 means no limit (`sock_set_timeout`).
fn read_timeout(thread: &Thread, at: u64) -> Result<Option<u64>, Errno> {
    let (seconds, us) = (thread.space.read_u64(address(at))?, thread.space.read_u64(address(at.wrapping_add(8)))?);
    if us >= US_PER_S {
        return Err(Errno::EDOM);
    }
    if seconds.cast_signed() < 0 {
        return Ok(Some(0));
    }
    let ns = seconds.saturating_mul(NS_PER_S).saturating_add(us * 1000);
    Ok((ns > 0).then_some(ns))
}

/// `getsockopt` (`sk_getsockopt`).
pub(super) fn getsockopt(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (level, option) = (a[1] as u32, a[2] as u32);
    let open = thread.open_file(a[0])?;
    let socket = open.socket()?;
    if level != net::SOL_SOCKET {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let room = i32::from_le_bytes(thread.space.read_array(address(a[4]))?);
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    let options = socket.options();
    let word = |value: u32| Vec::from(value.to_le_bytes());
    let time = |timeout: Option<u64>| {
        let ns = timeout.unwrap_or(0);
        [ns / NS_PER_S, ns % NS_PER_S / 1000].into_iter().flat_map(u64::to_le_bytes).collect()
    };
    let bytes: Vec<u8> = match option {
        net::SO_TYPE => word(match socket.kind {
            SocketKind::Stream => net::SOCK_STREAM,
            SocketKind::Datagram => net::SOCK_DGRAM,
            SocketKind::SequencedPacket => net::SOCK_SEQPACKET,
        }),
        net::SO_DOMAIN => word(net::AF_UNIX),
        net::SO_PROTOCOL => word(0),
        net::SO_ERROR => word(socket.take_error().map_or(0, Errno::number)),
        net::SO_ACCEPTCONN => word(socket.is_listening().into()),
        net::SO_SNDBUF => word(options.send_buffer as u32),
        net::SO_RCVBUF => word(options.receive_buffer as u32),
        net::SO_PASSCRED => word(options.pass_credentials.into()),
        net::SO_PEERCRED => {
            let SocketCredentials { process, user, group } = socket.peer_credentials();
            [process, user, group].into_iter().flat_map(u32::to_le_bytes).collect()
        }
        net::SO_SNDTIMEO => time(options.send_timeout),
        net::SO_RCVTIMEO => time(options.receive_timeout),
        known if REMEMBERED.contains(&known) => word(u32::from(options.remembered & 1 << known != 0)),
        _ => return Err(Errno::ENOPROTOOPT.into()),
    };
    let len = bytes.len().min(room);
    thread.space.write(address(a[3]), &bytes[..len])?;
    thread.space.write_u32(address(a[4]), len as u32)?;
    Ok(0)
}
