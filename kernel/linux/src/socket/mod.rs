//! Sockets of the family `AF_UNIX` (`net/unix/af_unix.c`).
//!
//! | module | contents |
//! | --- | --- |
//! | `mod` | a socket and its state, names, readiness, end |
//! | `connection` | connecting, accepting, shutting down |
//! | `message` | sending and receiving |
//! | `in_flight` | descriptors in messages, and the collection of sockets that only messages hold |
//!
//! Protocol: a function that changes a socket takes the locked [`Scheduler`], whose lock orders
//! operations on two sockets. At most one state is locked at a time. Messages are dropped while the
//! scheduler is locked; their descriptors are closed later ([`crate::file::close_later`]).
//!
//! Not guaranteed: out-of-band bytes (`MSG_OOB`), `SO_PEEK_OFF`, filters.

mod connection;
mod in_flight;
mod message;

use crate::edges::Edges;
use crate::errno::Errno;
use crate::inode::Inode;
use crate::task::{Scheduler, Thread, scheduler};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use spin::Mutex;

pub(crate) use in_flight::InFlightFile;
use message::Message;
pub(crate) use message::{Outgoing, Receive, ReceiveFlags, Received, Send};

/// The type of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SocketKind {
    Stream,
    Datagram,
    SequencedPacket,
}

/// The state of a connection (`sk_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Closed,
    Listening,
    Connected,
}

/// The directions of a socket that are shut down (`RCV_SHUTDOWN`, `SEND_SHUTDOWN`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShutDown {
    pub(crate) receive: bool,
    pub(crate) send: bool,
}

impl ShutDown {
    const BOTH: Self = Self { receive: true, send: true };

    fn add(&mut self, other: Self) {
        (self.receive, self.send) = (self.receive || other.receive, self.send || other.send);
    }
}

/// The process that made a connection or sent a message (`struct ucred`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketCredentials {
    pub(crate) process: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
}

impl SocketCredentials {
    /// Those of a message whose sender is not known (`overflowuid`).
    pub(crate) const UNKNOWN: Self = Self { process: 0, user: 65534, group: 65534 };
    /// Those of the peer of a socket that was never connected.
    const NO_PEER: Self = Self { process: 0, user: u32::MAX, group: u32::MAX };

    /// Those of the peer of a socket that a thread connects (`init_peercred`).
    pub(crate) fn of_peer(thread: &Thread) -> Self {
        let credentials = &thread.credentials;
        Self { process: thread.process.0, user: credentials.user.effective, group: credentials.group.effective }
    }

    /// Those of a message that a thread sends (`scm_set_cred`).
    pub(crate) fn of_sender(thread: &Thread) -> Self {
        let credentials = &thread.credentials;
        Self { process: thread.process.0, user: credentials.user.real, group: credentials.group.real }
    }
}

/// The name of a socket: what follows `sun_family`.
///
/// It starts with a zero byte if it is abstract, and ends with one if it is a path.
pub(crate) type SocketName = Arc<[u8]>;

/// The limits and settings that `setsockopt` changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketOptions {
    /// The limit of bytes sent and not received, with what the messages take (`SO_SNDBUF`).
    pub(crate) send_buffer: usize,
    /// `SO_RCVBUF`, which has no effect on these sockets.
    pub(crate) receive_buffer: usize,
    /// Whether messages carry the credentials of their sender (`SO_PASSCRED`).
    pub(crate) pass_credentials: bool,
    /// In ns.
    pub(crate) send_timeout: Option<u64>,
    pub(crate) receive_timeout: Option<u64>,
    /// Settings without an effect on these sockets, by number: `SO_REUSEADDR`, `SO_KEEPALIVE`.
    pub(crate) remembered: u64,
}

/// The default of `SO_SNDBUF` and `SO_RCVBUF`, and their limit (`SK_WMEM_MAX`).
pub(crate) const BUFFER: usize = 212_992;
/// The messages that wait for an unconnected receiver (`max_dgram_qlen`).
const BACKLOG: usize = 10;

struct SocketState {
    phase: Phase,
    name: Option<SocketName>,
    /// Whether it is in the table of abstract names.
    is_abstract: bool,
    /// The socket at the other end, or that messages go to; it can be dead.
    peer: Option<Arc<Socket>>,
    shut_down: ShutDown,
    /// The error that the next call returns (`sk_err`).
    error: Option<Errno>,
    messages: VecDeque<Message>,
    /// The connections that `accept` did not take yet.
    connections: VecDeque<Arc<Socket>>,
    backlog: usize,
    /// What its messages in the queues of others take (`sk_wmem_alloc`).
    sent: usize,
    options: SocketOptions,
    peer_credentials: SocketCredentials,
    /// Whether its last descriptor is closed (`SOCK_DEAD`).
    is_dead: bool,
    /// Whether it was accepted or made by a call (`sk_socket`).
    has_file: bool,
}

impl SocketState {
    /// Whether there is room for the next message (`unix_writable`).
    fn is_writable(&self) -> bool {
        self.phase != Phase::Listening && self.sent * 4 <= self.options.send_buffer
    }

    /// Whether senders other than its peer must wait (`unix_recvq_full`).
    fn is_full(&self) -> bool {
        self.messages.len() + self.connections.len() > self.backlog
    }
}

/// A socket.
pub(crate) struct Socket {
    pub(crate) kind: SocketKind,
    state: Mutex<SocketState>,
    /// Its wake-ups.
    edges: Edges,
    /// The wake-ups of those that wait to send to it (`peer_wait`).
    room: Edges,
}

/// The reference of an open file, which ends the socket.
pub(crate) struct SocketHandle(Arc<Socket>);

impl SocketHandle {
    /// Makes the handle of a socket, when it gets its open file.
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        socket.state.lock().has_file = true;
        Self(socket)
    }

    pub(crate) fn get(&self) -> &Arc<Socket> {
        &self.0
    }
}

impl Drop for SocketHandle {
    /// Locks the scheduler, which the caller has not locked.
    fn drop(&mut self) {
        let mut scheduler = scheduler();
        self.0.release(&mut scheduler, false);
        if in_flight::has_sockets() {
            in_flight::collect(&mut scheduler);
        }
        scheduler.wake_transfers();
    }
}

/// The sockets with abstract names, which are separate for each type.
static ABSTRACT: Mutex<BTreeMap<(SocketKind, SocketName), Weak<Socket>>> = Mutex::new(BTreeMap::new());

/// The socket with an abstract name.
///
/// # Errors
/// `ECONNREFUSED` if there is none.
pub(crate) fn find_abstract(kind: SocketKind, name: &[u8]) -> Result<Arc<Socket>, Errno> {
    let found = ABSTRACT.lock().get(&(kind, Arc::from(name))).and_then(Weak::upgrade);
    found.ok_or(Errno::ECONNREFUSED)
}

/// The socket that is bound to a file.
///
/// # Errors
/// `ECONNREFUSED` if it is no socket, or of a socket that has ended; `EPROTOTYPE` for another type.
pub(crate) fn find_file(kind: SocketKind, node: &Inode) -> Result<Arc<Socket>, Errno> {
    let found = node.socket().and_then(|socket| socket.upgrade()).filter(|socket| !socket.state.lock().is_dead);
    let found = found.ok_or(Errno::ECONNREFUSED)?;
    if found.kind == kind { Ok(found) } else { Err(Errno::EPROTOTYPE) }
}

impl Socket {
    pub(crate) fn new(kind: SocketKind) -> Arc<Self> {
        let options = SocketOptions {
            send_buffer: BUFFER,
            receive_buffer: BUFFER,
            pass_credentials: false,
            send_timeout: None,
            receive_timeout: None,
            remembered: 0,
        };
        let state = SocketState {
            phase: Phase::Closed,
            name: None,
            is_abstract: false,
            peer: None,
            shut_down: ShutDown::default(),
            error: None,
            messages: VecDeque::new(),
            connections: VecDeque::new(),
            backlog: BACKLOG,
            sent: 0,
            options,
            peer_credentials: SocketCredentials::NO_PEER,
            is_dead: false,
            has_file: false,
        };
        Arc::new(Self { kind, state: Mutex::new(state), edges: Edges::default(), room: Edges::default() })
    }

    /// Two sockets that are connected (`unix_socketpair`).
    pub(crate) fn pair(kind: SocketKind, by: SocketCredentials) -> [Arc<Self>; 2] {
        let [one, other] = [Self::new(kind), Self::new(kind)];
        for (socket, peer) in [(&one, &other), (&other, &one)] {
            let mut state = socket.state.lock();
            state.peer = Some(peer.clone());
            state.peer_credentials = by;
            if kind != SocketKind::Datagram {
                state.phase = Phase::Connected;
            }
        }
        [one, other]
    }

    /// Whether it is the end of a connection, unlike a socket for datagrams.
    pub(crate) fn is_connection(&self) -> bool {
        self.kind != SocketKind::Datagram
    }

    pub(crate) fn is_listening(&self) -> bool {
        self.state.lock().phase == Phase::Listening
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.state.lock().phase == Phase::Connected
    }

    pub(crate) fn options(&self) -> SocketOptions {
        self.state.lock().options
    }

    /// Changes its options.
    pub(crate) fn set_options(&self, change: impl FnOnce(&mut SocketOptions)) {
        change(&mut self.state.lock().options);
    }

    /// The error that is pending, which this clears (`sock_error`).
    pub(crate) fn take_error(&self) -> Option<Errno> {
        self.state.lock().error.take()
    }

    pub(crate) fn peer_credentials(&self) -> SocketCredentials {
        self.state.lock().peer_credentials
    }

    pub(crate) fn name(&self) -> Option<SocketName> {
        self.state.lock().name.clone()
    }

    /// The socket at the other end, or that messages go to.
    pub(crate) fn peer(&self) -> Option<Arc<Self>> {
        self.state.lock().peer.clone()
    }

    /// Gives it an abstract name.
    ///
    /// # Errors
    /// `EINVAL` if it has a name, `EADDRINUSE` if another socket has this one.
    pub(crate) fn bind_abstract(self: &Arc<Self>, name: SocketName) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.name.is_some() {
            return Err(Errno::EINVAL);
        }
        let mut names = ABSTRACT.lock();
        let key = (self.kind, name.clone());
        if names.contains_key(&key) {
            return Err(Errno::EADDRINUSE);
        }
        names.insert(key, Arc::downgrade(self));
        (state.name, state.is_abstract) = (Some(name), true);
        Ok(())
    }

    /// Gives it an abstract name of five digits, unless it has a name (`unix_autobind`).
    ///
    /// # Errors
    /// `ENOSPC` if all of them are in use.
    pub(crate) fn bind_any(self: &Arc<Self>) -> Result<(), Errno> {
        const NAMES: u32 = 1 << 20;
        for number in 0..NAMES {
            let name = alloc::format!("\0{number:05x}");
            match self.bind_abstract(Arc::from(name.as_bytes())) {
                Err(Errno::EADDRINUSE) => {}
                // It has a name.
                Ok(()) | Err(_) => return Ok(()),
            }
        }
        Err(Errno::ENOSPC)
    }

    /// Gives it the name of a file that was made for it.
    ///
    /// # Errors
    /// `EINVAL` if it has a name.
    pub(crate) fn bind_file(&self, name: SocketName) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.name.is_some() {
            return Err(Errno::EINVAL);
        }
        state.name = Some(name);
        Ok(())
    }

    /// Ends the socket with its last descriptor (`unix_release_sock`).
    ///
    /// `embryo` is set for a connection that was not accepted.
    fn release(self: &Arc<Self>, scheduler: &mut Scheduler, embryo: bool) {
        let (peer, has_messages, connections) = {
            let mut state = self.state.lock();
            (state.is_dead, state.phase, state.shut_down) = (true, Phase::Closed, ShutDown::BOTH);
            if state.is_abstract
                && let Some(name) = &state.name
            {
                ABSTRACT.lock().remove(&(self.kind, name.clone()));
            }
            (state.peer.take(), !state.messages.is_empty(), core::mem::take(&mut state.connections))
        };
        if let Some(peer) = peer.filter(|_| self.is_connection()) {
            let mut other = peer.state.lock();
            other.shut_down = ShutDown::BOTH;
            if has_messages || embryo {
                other.error = Some(Errno::ECONNRESET);
            }
            drop(other);
            peer.edges.note_all();
        }
        self.room.note_output();
        self.drop_messages(scheduler);
        for connection in connections {
            connection.release(scheduler, true);
        }
    }

    /// The events that are ready (`unix_poll`, `unix_dgram_poll`).
    pub(crate) fn poll(self: &Arc<Self>) -> u32 {
        let (mut events, peer) = {
            let state = self.state.lock();
            let mut events = 0;
            if state.error.is_some() {
                events |= linux::POLLERR;
            }
            if state.shut_down == ShutDown::BOTH || self.is_connection() && state.phase == Phase::Closed {
                events |= linux::POLLHUP;
            }
            if state.shut_down.receive {
                events |= linux::POLLRDHUP | linux::POLLIN | linux::POLLRDNORM;
            }
            if !state.messages.is_empty() || !state.connections.is_empty() {
                events |= linux::POLLIN | linux::POLLRDNORM;
            }
            if state.is_writable() {
                events |= linux::POLLOUT | linux::POLLWRNORM | linux::POLLWRBAND;
            }
            (events, state.peer.clone().filter(|_| self.kind != SocketKind::Stream))
        };
        if let Some(peer) = peer {
            let other = peer.state.lock();
            let is_ours = other.peer.as_ref().is_some_and(|peer| Arc::ptr_eq(peer, self));
            if !is_ours && other.is_full() {
                events &= !(linux::POLLOUT | linux::POLLWRNORM | linux::POLLWRBAND);
            }
        }
        events
    }

    /// The number of its wake-ups for any of these events.
    pub(crate) fn wake_ups(&self, events: u32) -> u64 {
        let of_peer = self.peer().map_or(0, |peer| peer.room.count(events));
        self.edges.count(events).wrapping_add(of_peer)
    }

    /// Calls `each` for every descriptor in its messages, and in those of its connections.
    fn for_each_in_flight(&self, each: &mut dyn FnMut(&InFlightFile)) {
        let state = self.state.lock();
        state.messages.iter().flat_map(|message| &message.files).for_each(&mut *each);
        for connection in &state.connections {
            connection.for_each_in_flight(each);
        }
    }

    /// Drops its messages, and those of its connections.
    fn drop_messages(self: &Arc<Self>, scheduler: &mut Scheduler) {
        let (messages, connections): (VecDeque<Message>, Vec<Arc<Self>>) = {
            let mut state = self.state.lock();
            (core::mem::take(&mut state.messages), state.connections.iter().cloned().collect())
        };
        for message in messages {
            message.release();
        }
        for connection in connections {
            connection.drop_messages(scheduler);
        }
        scheduler.wake_transfers();
    }
}
