//! Messages of sockets: sending and receiving.

use super::{InFlightFile, Phase, Socket, SocketCredentials, SocketKind, SocketName, SocketState};
use crate::errno::Errno;
use crate::file::OpenFile;
use crate::task::Scheduler;
use crate::user_buffer::{BufferFault, UserBuffer};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What a message takes of the sender's buffer beyond its bytes (`SKB_TRUESIZE(0)`).
const OVERHEAD: usize = 576;
/// What a message for datagrams must leave of the sender's buffer.
const RESERVED: usize = 32;
/// The most bytes of one message of a stream.
const PIECE: usize = 64 << 10;

/// A message in the queue of its receiver (`struct sk_buff`).
pub(super) struct Message {
    bytes: Vec<u8>,
    /// The bytes that were received.
    consumed: usize,
    /// What it takes of the sender's buffer.
    charged: usize,
    sender: Arc<Socket>,
    credentials: Option<SocketCredentials>,
    pub(super) files: Vec<InFlightFile>,
}

impl Message {
    /// Its descriptors, which stay in it with `MSG_PEEK`.
    fn received_files(&mut self, flags: ReceiveFlags) -> Result<Vec<Arc<OpenFile>>, Errno> {
        let mut files = Vec::new();
        files.try_reserve_exact(self.files.len())?;
        if flags.peek {
            files.extend(self.files.iter().filter_map(InFlightFile::peek));
        } else {
            files.extend(core::mem::take(&mut self.files).into_iter().filter_map(InFlightFile::take));
        }
        Ok(files)
    }

    /// Returns its room to the sender, whose state is not locked (`unix_write_space`).
    pub(super) fn release(self) {
        let mut state = self.sender.state.lock();
        state.sent -= self.charged;
        if state.is_writable() {
            self.sender.edges.note_output();
        }
    }
}

/// A message that a call sends.
pub(crate) struct Outgoing {
    pub(crate) bytes: Vec<u8>,
    /// The credentials that the caller chose (`SCM_CREDENTIALS`).
    pub(crate) credentials: Option<SocketCredentials>,
    /// Those of the caller.
    pub(crate) of_caller: SocketCredentials,
    /// Moved to the queue when the message is sent.
    pub(crate) files: Vec<InFlightFile>,
}

/// The result of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Send {
    Sent,
    /// There is no room.
    Wait,
    /// The connection has ended: `EPIPE`, and `SIGPIPE` for a stream.
    Broken,
}

/// How a call receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveFlags {
    /// Leaves the message in the queue (`MSG_PEEK`).
    pub(crate) peek: bool,
}

/// What a call received.
#[derive(Default)]
pub(crate) struct Received {
    /// The bytes that were stored.
    pub(crate) count: usize,
    /// The length of the whole message.
    pub(crate) len: usize,
    /// The name of the sender.
    pub(crate) name: Option<SocketName>,
    /// `None` if the receiver did not ask for them.
    pub(crate) credentials: Option<SocketCredentials>,
    pub(crate) files: Vec<Arc<OpenFile>>,
}

/// The result of an attempt to receive.
pub(crate) enum Receive {
    Got(Received),
    /// The sender sends no more.
    End,
    Wait,
}

impl Socket {
    /// The bytes that can be received: for datagrams those of the first one (`unix_inq_len`).
    ///
    /// # Errors
    /// `EINVAL` if it listens.
    pub(crate) fn available(&self) -> Result<usize, Errno> {
        let state = self.state.lock();
        if state.phase == Phase::Listening {
            return Err(Errno::EINVAL);
        }
        let most = if self.kind == SocketKind::Datagram { 1 } else { usize::MAX };
        Ok(state.messages.iter().take(most).map(|message| message.bytes.len() - message.consumed).sum())
    }

    /// What its messages in the queues of others take (`unix_outq_len`).
    ///
    /// # Errors
    /// `EINVAL` if it listens.
    pub(crate) fn unsent(&self) -> Result<usize, Errno> {
        let state = self.state.lock();
        if state.phase == Phase::Listening { Err(Errno::EINVAL) } else { Ok(state.sent) }
    }

    /// The most bytes of a message.
    pub(crate) fn message_limit(&self) -> usize {
        let buffer = self.options().send_buffer;
        if self.kind == SocketKind::Stream { (buffer / 2 - 64).min(PIECE) } else { buffer - RESERVED }
    }

    /// Sends a message: on a connection, to its peer, else to `to` or to the peer.
    ///
    /// # Errors
    /// Those of `unix_stream_sendmsg` and `unix_dgram_sendmsg`.
    pub(crate) fn send(
        self: &Arc<Self>,
        scheduler: &mut Scheduler,
        to: Option<&Arc<Self>>,
        message: &mut Outgoing,
    ) -> Result<Send, Errno> {
        let (peer, passes, has_room) = {
            let mut state = self.state.lock();
            if self.kind == SocketKind::SequencedPacket {
                state.error.take().map_or(Ok(()), Err)?;
                if state.phase != Phase::Connected {
                    return Err(Errno::ENOTCONN);
                }
            }
            let peer = to.cloned().or_else(|| state.peer.clone()).ok_or(Errno::ENOTCONN)?;
            if self.kind == SocketKind::Stream && (state.shut_down.send || message.bytes.is_empty()) {
                return Ok(if state.shut_down.send { Send::Broken } else { Send::Sent });
            }
            state.error.take().map_or(Ok(()), Err)?;
            if state.shut_down.send {
                return Ok(Send::Broken);
            }
            // INV-KERNEL-PINNED: its sender's buffer bounds messages that were not received.
            (peer, state.options.pass_credentials, state.sent < state.options.send_buffer)
        };
        if !has_room {
            return Ok(Send::Wait);
        }
        if self.kind != SocketKind::Stream
            && let Some(result) = self.cannot_take(scheduler, &peer, to.is_some())?
        {
            return Ok(result);
        }
        let charged = message.bytes.len() + OVERHEAD;
        {
            let mut other = peer.state.lock();
            if other.is_dead || other.shut_down.receive {
                return Ok(Send::Broken);
            }
            let asked = passes || !other.has_file || other.options.pass_credentials;
            let credentials = message.credentials.or(asked.then_some(message.of_caller));
            other.messages.try_reserve(1).map_err(|_| Errno::ENOBUFS)?;
            other.messages.push_back(Message {
                bytes: core::mem::take(&mut message.bytes),
                consumed: 0,
                charged,
                sender: self.clone(),
                credentials,
                files: core::mem::take(&mut message.files),
            });
        }
        self.state.lock().sent += charged;
        peer.edges.note_input();
        scheduler.wake_transfers();
        Ok(Send::Sent)
    }

    /// Why a receiver that is no stream cannot take a message now, if it cannot.
    fn cannot_take(
        self: &Arc<Self>,
        scheduler: &mut Scheduler,
        peer: &Arc<Self>,
        named: bool,
    ) -> Result<Option<Send>, Errno> {
        if !self.may_send_to(peer) {
            return Err(Errno::EPERM);
        }
        let (is_dead, is_full, is_ours) = {
            let other = peer.state.lock();
            let is_ours = other.peer.as_ref().is_some_and(|peer| Arc::ptr_eq(peer, self));
            (other.is_dead, other.is_full(), is_ours)
        };
        if is_dead && self.kind == SocketKind::Datagram {
            if !named {
                let mut state = self.state.lock();
                (state.peer, state.phase) = (None, Phase::Closed);
                drop(state);
                self.disconnect(scheduler, peer);
            }
            return Err(Errno::ECONNREFUSED);
        }
        Ok((is_full && !is_ours && !Arc::ptr_eq(peer, self)).then_some(Send::Wait))
    }

    /// Receives what there is room for.
    ///
    /// That is of one message, or of as many messages of a stream as fit together.
    ///
    /// # Errors
    /// A fault of `to`. The inner errors are those of `unix_stream_read_generic` and
    /// `unix_dgram_recvmsg`.
    pub(crate) fn receive(
        &self,
        scheduler: &mut Scheduler,
        to: &mut UserBuffer<'_>,
        flags: ReceiveFlags,
    ) -> Result<Result<Receive, Errno>, BufferFault> {
        let mut freed = Vec::new();
        let result = if self.kind == SocketKind::Stream {
            self.receive_stream(to, flags, &mut freed)
        } else {
            self.receive_message(to, flags, &mut freed)
        }?;
        if !freed.is_empty() {
            freed.into_iter().for_each(Message::release);
            self.room.note_output();
            scheduler.wake_transfers();
        }
        Ok(result)
    }

    /// Receives a message, which is lost if it cannot be stored (`unix_dgram_recvmsg`).
    fn receive_message(
        &self,
        to: &mut UserBuffer<'_>,
        flags: ReceiveFlags,
        freed: &mut Vec<Message>,
    ) -> Result<Result<Receive, Errno>, BufferFault> {
        let mut state = self.state.lock();
        if self.is_connection() && state.phase != Phase::Connected {
            return Ok(Err(Errno::ENOTCONN));
        }
        if let Some(error) = state.error.take() {
            return Ok(Err(error));
        }
        let passes = state.options.pass_credentials;
        let ended = state.shut_down.receive;
        let Some(message) = state.messages.front_mut() else {
            return Ok(Ok(if ended { Receive::End } else { Receive::Wait }));
        };
        let len = message.bytes.len();
        let count = (len as u64).min(to.room()) as usize;
        let stored = to.copy(&message.bytes[..count])?;
        let files = stored.and_then(|()| message.received_files(flags));
        let credentials = passes.then(|| message.credentials.unwrap_or(SocketCredentials::UNKNOWN));
        let sender = message.sender.clone();
        if !flags.peek {
            freed.extend(state.messages.pop_front());
        }
        drop(state);
        Ok(files.map(|files| Receive::Got(Received { count, len, name: sender.name(), credentials, files })))
    }

    /// Receives bytes of a stream.
    ///
    /// INV-KERNEL-TAKEN: a message that cannot be stored stays whole.
    fn receive_stream(
        &self,
        to: &mut UserBuffer<'_>,
        flags: ReceiveFlags,
        freed: &mut Vec<Message>,
    ) -> Result<Result<Receive, Errno>, BufferFault> {
        let mut state = self.state.lock();
        if state.phase != Phase::Connected {
            return Ok(Err(Errno::EINVAL));
        }
        let passes = state.options.pass_credentials;
        let mut received = Received::default();
        let mut sender = None;
        // The messages that are received, and the bytes of the last one.
        let (mut messages, mut of_last, mut refused) = (0, 0, None);
        let wants_bytes = to.room() > 0;
        while to.room() > 0 {
            let Some(message) = state.messages.get(messages) else { break };
            // Messages of different senders are not joined (`unix_skb_scm_eq`).
            let credentials = passes.then(|| message.credentials.unwrap_or(SocketCredentials::UNKNOWN));
            if sender.is_some() && credentials != received.credentials {
                break;
            }
            let rest = &message.bytes[message.consumed..];
            let count = (rest.len() as u64).min(to.room()) as usize;
            if let Err(error) = to.copy(&rest[..count])? {
                refused = Some(error);
                break;
            }
            received.count += count;
            (received.credentials, sender) = (credentials, Some(message.sender.clone()));
            (messages, of_last) = (messages + 1, count);
            // Descriptors belong to the bytes that they were sent with.
            if !message.files.is_empty() {
                break;
            }
        }
        if let Some(error) = refused.filter(|_| received.count == 0) {
            return Ok(Err(error));
        }
        if received.count == 0 && wants_bytes {
            return Ok(match state.error.take() {
                Some(error) => Err(error),
                None if state.shut_down.receive => Ok(Receive::End),
                None => Ok(Receive::Wait),
            });
        }
        let files = match messages.checked_sub(1).and_then(|last| state.messages.get_mut(last)) {
            Some(last) => last.received_files(flags),
            None => Ok(Vec::new()),
        };
        match files {
            Ok(files) => received.files = files,
            Err(error) => return Ok(Err(error)),
        }
        if !flags.peek {
            state.consume(messages, of_last, freed);
        }
        drop(state);
        received.len = received.count;
        received.name = sender.and_then(|sender| sender.name());
        Ok(Ok(Receive::Got(received)))
    }
}

impl SocketState {
    /// Removes `messages` of a stream, of the last one only `of_last` bytes.
    fn consume(&mut self, messages: usize, of_last: usize, freed: &mut Vec<Message>) {
        let before_last = messages.saturating_sub(1);
        freed.extend(self.messages.drain(..before_last));
        if let Some(last) = self.messages.front_mut().filter(|_| messages > 0) {
            last.consumed += of_last;
            if last.consumed == last.bytes.len() {
                freed.extend(self.messages.pop_front());
            }
        }
    }
}
