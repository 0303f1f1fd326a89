//! Connections of sockets: connecting, accepting, shutting down.

use super::{Phase, ShutDown, Socket, SocketCredentials};
use crate::errno::Errno;
use crate::task::Scheduler;
use alloc::sync::Arc;

impl Socket {
    /// Begins to accept connections (`unix_listen`).
    pub(crate) fn listen(&self, scheduler: &mut Scheduler, backlog: usize, by: SocketCredentials) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.name.is_none() || state.phase == Phase::Connected {
            return Err(Errno::EINVAL);
        }
        (state.phase, state.backlog, state.peer_credentials) = (Phase::Listening, backlog, by);
        drop(state);
        scheduler.wake_transfers();
        Ok(())
    }

    /// Connects to a socket that listens (`unix_stream_connect`); `false` if it must wait.
    pub(crate) fn connect(
        self: &Arc<Self>,
        scheduler: &mut Scheduler,
        listener: &Arc<Self>,
        by: SocketCredentials,
    ) -> Result<bool, Errno> {
        let (name, of_listener) = {
            let other = listener.state.lock();
            if other.is_dead || other.phase != Phase::Listening || other.shut_down.receive {
                return Err(Errno::ECONNREFUSED);
            }
            if other.is_full() {
                return Ok(false);
            }
            (other.name.clone(), other.peer_credentials)
        };
        let accepted = Self::new(self.kind);
        {
            let mut state = self.state.lock();
            match state.phase {
                Phase::Closed => {}
                Phase::Connected => return Err(Errno::EISCONN),
                Phase::Listening => return Err(Errno::EINVAL),
            }
            (state.phase, state.peer, state.peer_credentials) = (Phase::Connected, Some(accepted.clone()), of_listener);
        }
        {
            let mut state = accepted.state.lock();
            (state.phase, state.peer, state.peer_credentials) = (Phase::Connected, Some(self.clone()), by);
            state.name = name;
        }
        listener.state.lock().connections.push_back(accepted);
        listener.edges.note_input();
        scheduler.wake_transfers();
        Ok(true)
    }

    /// Sets the socket that messages go to, or none (`unix_dgram_connect`).
    ///
    /// # Errors
    /// `EPERM` if that socket gets its messages from another one.
    pub(crate) fn connect_datagram(
        self: &Arc<Self>,
        scheduler: &mut Scheduler,
        to: Option<&Arc<Self>>,
    ) -> Result<(), Errno> {
        if to.is_some_and(|to| !self.may_send_to(to)) {
            return Err(Errno::EPERM);
        }
        let before = {
            let mut state = self.state.lock();
            state.phase = if to.is_some() { Phase::Connected } else { Phase::Closed };
            core::mem::replace(&mut state.peer, to.cloned())
        };
        if let Some(before) = before.filter(|before| to.is_none_or(|to| !Arc::ptr_eq(before, to))) {
            self.disconnect(scheduler, &before);
        }
        scheduler.wake_transfers();
        Ok(())
    }

    /// Whether a socket accepts messages from this one (`unix_may_send`).
    pub(super) fn may_send_to(self: &Arc<Self>, to: &Self) -> bool {
        to.peer().is_none_or(|peer| Arc::ptr_eq(&peer, self))
    }

    /// Drops the messages of the previous peer, and tells it (`unix_dgram_disconnected`).
    pub(super) fn disconnect(self: &Arc<Self>, scheduler: &mut Scheduler, before: &Arc<Self>) {
        if self.state.lock().messages.is_empty() {
            return;
        }
        self.drop_messages(scheduler);
        let mut other = before.state.lock();
        if !other.is_dead && other.peer.as_ref().is_some_and(|peer| Arc::ptr_eq(peer, self)) {
            other.error = Some(Errno::ECONNRESET);
            before.edges.note_all();
        }
    }

    /// Takes a connection; `None` if the caller must wait.
    ///
    /// # Errors
    /// `EINVAL` if the socket does not listen, or was shut down.
    pub(crate) fn accept(&self, scheduler: &mut Scheduler) -> Result<Option<Arc<Self>>, Errno> {
        let mut state = self.state.lock();
        if state.phase != Phase::Listening {
            return Err(Errno::EINVAL);
        }
        let taken = state.connections.pop_front();
        if taken.is_none() && state.shut_down.receive {
            return Err(Errno::EINVAL);
        }
        let pass_credentials = state.options.pass_credentials;
        drop(state);
        if let Some(taken) = &taken {
            taken.state.lock().options.pass_credentials = pass_credentials;
            self.room.note_output();
            scheduler.wake_transfers();
        }
        Ok(taken)
    }

    /// Shuts down directions, for a connection also at the other end (`unix_shutdown`).
    pub(crate) fn shut_down(&self, scheduler: &mut Scheduler, directions: ShutDown) {
        let peer = {
            let mut state = self.state.lock();
            state.shut_down.add(directions);
            state.peer.clone()
        };
        if let Some(peer) = peer.filter(|_| self.is_connection()) {
            let ShutDown { receive, send } = directions;
            peer.state.lock().shut_down.add(ShutDown { receive: send, send: receive });
            peer.edges.note_all();
        }
        self.edges.note_all();
        scheduler.wake_transfers();
    }
}
