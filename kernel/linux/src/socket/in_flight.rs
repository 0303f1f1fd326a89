//! Descriptors in messages (`SCM_RIGHTS`), and the sockets that only messages hold.
//!
//! Linux: `net/unix/garbage.c`.

use crate::credentials::Credentials;
use crate::file::{self, OpenFile, OpenTarget};
use crate::task::Scheduler;
use crate::user;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use pagewright_plant::plant;
use spin::Mutex;

use super::Socket;

/// A socket that messages hold.
struct SocketInFlight {
    open: Weak<OpenFile>,
    /// In how many places.
    count: usize,
}

/// The sockets in flight, by the numbers of their open files.
static SOCKETS: Mutex<BTreeMap<u64, SocketInFlight>> = Mutex::new(BTreeMap::new());

/// An open file in a message that was not received.
///
/// Dropping this is allowed while the scheduler is locked: the file is closed later.
pub(crate) struct InFlightFile {
    /// `None` after it was taken.
    open: Option<Arc<OpenFile>>,
    /// The user that sent it.
    user: u32,
}

impl InFlightFile {
    pub(crate) fn new(open: Arc<OpenFile>, sender: &Credentials) -> Self {
        if matches!(open.target, OpenTarget::Socket(_)) {
            let mut sockets = SOCKETS.lock();
            let known = sockets.entry(open.number);
            known.or_insert_with(|| SocketInFlight { open: Arc::downgrade(&open), count: 0 }).count += 1;
        }
        user::add_in_flight(sender.user.real);
        Self { open: Some(open), user: sender.user.real }
    }

    /// Another reference to the file, for a message that stays in its queue (`MSG_PEEK`).
    pub(super) fn peek(&self) -> Option<Arc<OpenFile>> {
        self.open.clone()
    }

    /// Takes the file out of its message.
    pub(super) fn take(mut self) -> Option<Arc<OpenFile>> {
        self.leave()
    }

    fn leave(&mut self) -> Option<Arc<OpenFile>> {
        let open = self.open.take()?;
        user::remove_in_flight(self.user);
        let mut sockets = SOCKETS.lock();
        if let Some(known) = sockets.get_mut(&open.number) {
            known.count -= 1;
            if known.count == 0 {
                sockets.remove(&open.number);
            }
        }
        Some(open)
    }
}

impl Drop for InFlightFile {
    fn drop(&mut self) {
        if let Some(open) = self.leave() {
            file::close_later(open);
        }
    }
}

/// A socket without descriptors, and the references to it that are not found yet.
struct Candidate {
    open: Arc<OpenFile>,
    references: usize,
}

impl Candidate {
    fn socket(&self) -> Option<&Arc<Socket>> {
        if let OpenTarget::Socket(socket) = &self.open.target { Some(socket.get()) } else { None }
    }

    /// The numbers of the files in its messages.
    fn holds(&self) -> Vec<u64> {
        let mut numbers = Vec::new();
        if let Some(socket) = self.socket() {
            socket.for_each_in_flight(&mut |file| numbers.extend(file.open.as_ref().map(|open| open.number)));
        }
        numbers
    }
}

/// Empties the queues of sockets that only their own messages hold (`unix_gc`).
///
/// A socket is kept if a descriptor, or a call that runs, refers to it, or if a message of a kept
/// socket does.
pub(crate) fn collect(scheduler: &mut Scheduler) {
    let mut candidates: BTreeMap<u64, Candidate> = BTreeMap::new();
    for (number, known) in SOCKETS.lock().iter() {
        if let Some(open) = known.open.upgrade() {
            // One reference is that of this loop.
            if Arc::strong_count(&open) == known.count + 1 {
                candidates.insert(*number, Candidate { open, references: known.count });
            } else {
                file::close_later(open);
            }
        }
    }
    let held: Vec<(u64, Vec<u64>)> = candidates.iter().map(|(number, known)| (*number, known.holds())).collect();
    for number in held.iter().flat_map(|(_, numbers)| numbers) {
        if let Some(known) = candidates.get_mut(number) {
            known.references -= 1;
        }
    }
    // The others are held by messages of sockets that have a descriptor.
    let mut kept: Vec<u64> =
        candidates.iter().filter(|(_, known)| known.references > 0).map(|(number, _)| *number).collect();
    while let Some(number) = kept.pop() {
        if let Some(known) = candidates.remove(&number) {
            kept.extend(known.holds());
            file::close_later(known.open);
        }
    }
    // INV-KERNEL-PINNED: sockets that only hold each other go away.
    plant!(SocketCycleKept => candidates.retain(|_, known| known.socket().is_none()));
    for known in candidates.values() {
        if let Some(socket) = known.socket() {
            socket.drop_messages(scheduler);
        }
    }
    for known in candidates.into_values() {
        file::close_later(known.open);
    }
}

/// Whether messages hold sockets.
pub(crate) fn has_sockets() -> bool {
    !SOCKETS.lock().is_empty()
}
