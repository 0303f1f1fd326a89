//! Instances of `epoll` (`fs/eventpoll.c`).
//!
//! An instance holds no reference on the files that it watches. It asks each of them whether it is
//! ready when a thread waits, and compares counts of wake-ups for `EPOLLET` ([`crate::edges`]).
//!
//! **INV-KERNEL-EPOLL** A wait on an `epoll` instance reports a level while it lasts and an edge
//! once.
//!
//! Protocol: every function is called with the scheduler locked, so the states of several instances
//! and files are consistent.
//!
//! Not guaranteed: which of several waiting threads gets an event, beyond that one does
//! (`EPOLLEXCLUSIVE` wakes no fewer); the limit of wake-up paths (`reverse_path_check`).

use crate::edges::Edges;
use crate::errno::Errno;
use crate::file::{OpenFile, OpenTarget, close_later};
use crate::ready;
use crate::task::Scheduler;
use crate::user;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use pagewright_plant::plant;
use spin::Mutex;

/// The events that are always reported.
const ALWAYS: u32 = linux::EPOLLERR | linux::EPOLLHUP;
/// The bits that are no events (`EP_PRIVATE_BITS`).
const PRIVATE: u32 = linux::EPOLLWAKEUP | linux::EPOLLONESHOT | linux::EPOLLET | linux::EPOLLEXCLUSIVE;
/// The steps in a chain of instances that watch each other (`EP_MAX_NESTS`).
///
/// Linux 6.1 counts the steps below a new one, later versions also those above it, as here.
const NESTS_MAX: usize = 4;

/// What a program asks for a file, and what it gets back (`struct epoll_event`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EpollEvent {
    pub(crate) events: u32,
    pub(crate) data: u64,
}

/// A watched file (`struct epitem`).
#[derive(Clone)]
struct Watch {
    descriptor: u32,
    open: Weak<OpenFile>,
    event: EpollEvent,
    /// The wake-ups that were seen.
    seen: u64,
    /// Whether it may be ready (`rdllink`).
    is_armed: bool,
}

impl Watch {
    fn is_disabled(&self) -> bool {
        self.event.events & !PRIVATE == 0
    }

    /// The events that are ready, and the wake-ups at which they were.
    fn look(&self, scheduler: &Scheduler) -> (u32, u64) {
        let Some(open) = self.open.upgrade().filter(|_| !self.is_disabled()) else { return (0, self.seen) };
        let wake_ups = ready::wake_ups(scheduler, &open, self.event.events);
        let is_due = self.is_armed || wake_ups != self.seen;
        let events = if is_due { ready::events(scheduler, &open) & self.event.events } else { 0 };
        close_later(open);
        (events, wake_ups)
    }

    /// Takes the events that are ready, after which `EPOLLET` and `EPOLLONESHOT` silence it.
    fn take(&mut self, scheduler: &Scheduler) -> u32 {
        let (events, wake_ups) = self.look(scheduler);
        let is_edge = self.event.events & linux::EPOLLET != 0;
        // INV-KERNEL-EPOLL: an edge is reported once, a level while it lasts.
        (self.seen, self.is_armed) = (wake_ups, plant!(EdgeReportedAgain; true, !is_edge));
        if events != 0 && self.event.events & linux::EPOLLONESHOT != 0 {
            self.event.events &= PRIVATE;
        }
        events
    }
}

/// An event that a wait took, and the watch as it was before.
pub(crate) struct TakenEvent {
    pub(crate) event: EpollEvent,
    before: Watch,
}

/// An instance (`struct eventpoll`).
pub(crate) struct Epoll {
    /// The user that its watches count for.
    user: u32,
    watches: Mutex<Vec<Watch>>,
    /// The changes of what it watches.
    edges: Edges,
}

/// All instances, to find those that watch one.
static INSTANCES: Mutex<Vec<Weak<OpenFile>>> = Mutex::new(Vec::new());

impl Epoll {
    pub(crate) fn new(user: u32) -> Self {
        Self { user, watches: Mutex::new(Vec::new()), edges: Edges::default() }
    }

    /// Makes an instance known to the search for chains.
    pub(crate) fn register(open: &Arc<OpenFile>) {
        let mut instances = INSTANCES.lock();
        instances.retain(|known| known.strong_count() > 0);
        instances.push(Arc::downgrade(open));
    }

    /// Drops the watches of files that were closed (`eventpoll_release`).
    fn prune(&self, watches: &mut Vec<Watch>) {
        let before = watches.len();
        watches.retain(|watch| watch.open.strong_count() > 0);
        user::remove_watches(self.user, (before - watches.len()) as u64);
    }

    /// Lets those that wait look again, because a watch may be ready.
    fn note_change(&self, scheduler: &mut Scheduler) {
        self.edges.note_input();
        scheduler.wake_transfers();
    }

    /// Watches a file, whose descriptor is `descriptor` (`EPOLL_CTL_ADD`).
    ///
    /// # Errors
    /// `EEXIST`, `ENOSPC`, `ENOMEM`.
    pub(crate) fn add(
        &self,
        scheduler: &mut Scheduler,
        descriptor: u32,
        open: &Arc<OpenFile>,
        event: EpollEvent,
    ) -> Result<(), Errno> {
        let mut watches = self.watches.lock();
        self.prune(&mut watches);
        if position(&watches, descriptor, open).is_some() {
            return Err(Errno::EEXIST);
        }
        watches.try_reserve(1)?;
        user::add_watch(self.user)?;
        let event = EpollEvent { events: event.events | ALWAYS, ..event };
        watches.push(Watch { descriptor, open: Arc::downgrade(open), event, seen: 0, is_armed: true });
        drop(watches);
        self.note_change(scheduler);
        Ok(())
    }

    /// Changes what is asked for a file (`EPOLL_CTL_MOD`).
    ///
    /// # Errors
    /// `ENOENT`; `EINVAL` for one with `EPOLLEXCLUSIVE`.
    pub(crate) fn modify(
        &self,
        scheduler: &mut Scheduler,
        descriptor: u32,
        open: &Arc<OpenFile>,
        event: EpollEvent,
    ) -> Result<(), Errno> {
        let mut watches = self.watches.lock();
        let at = position(&watches, descriptor, open).ok_or(Errno::ENOENT)?;
        let watch = &mut watches[at];
        if watch.event.events & linux::EPOLLEXCLUSIVE != 0 {
            return Err(Errno::EINVAL);
        }
        watch.event = EpollEvent { events: event.events | ALWAYS, ..event };
        watch.is_armed = true;
        drop(watches);
        self.note_change(scheduler);
        Ok(())
    }

    /// Ends the watch of a file (`EPOLL_CTL_DEL`).
    ///
    /// # Errors
    /// `ENOENT`.
    pub(crate) fn remove(&self, descriptor: u32, open: &Arc<OpenFile>) -> Result<(), Errno> {
        let mut watches = self.watches.lock();
        let at = position(&watches, descriptor, open).ok_or(Errno::ENOENT)?;
        watches.remove(at);
        user::remove_watches(self.user, 1);
        Ok(())
    }

    /// Takes at most `most` events; those that were taken come last next time (`ep_send_events`).
    pub(crate) fn take(&self, scheduler: &Scheduler, most: usize) -> Result<Vec<TakenEvent>, Errno> {
        let mut watches = self.watches.lock();
        self.prune(&mut watches);
        let mut taken = Vec::new();
        taken.try_reserve(most.min(watches.len()))?;
        let mut looked = 0;
        while looked < watches.len() && taken.len() < most {
            let before = watches[looked].clone();
            let events = watches[looked].take(scheduler);
            if events != 0 {
                taken.push(TakenEvent { event: EpollEvent { events, ..before.event }, before });
            }
            looked += 1;
        }
        watches.rotate_left(looked);
        Ok(taken)
    }

    /// Puts events back that could not be stored.
    pub(crate) fn untake(&self, events: Vec<TakenEvent>) {
        let mut watches = self.watches.lock();
        for TakenEvent { before, .. } in events {
            let same = |watch: &&mut Watch| watch.descriptor == before.descriptor && watch.open.ptr_eq(&before.open);
            if let Some(watch) = watches.iter_mut().find(same) {
                *watch = Watch { is_armed: true, ..before };
            }
        }
    }

    /// Whether a wait would take an event.
    pub(crate) fn has_ready(&self, scheduler: &Scheduler) -> bool {
        self.watches.lock().iter().any(|watch| watch.look(scheduler).0 != 0)
    }

    /// The number of wake-ups of an instance that watches this one.
    pub(crate) fn wake_ups(&self, scheduler: &Scheduler, events: u32) -> u64 {
        let mut count = self.edges.count(events);
        for watch in self.watches.lock().iter().filter(|watch| !watch.is_disabled()) {
            if let Some(open) = watch.open.upgrade() {
                count = count.wrapping_add(ready::wake_ups(scheduler, &open, watch.event.events));
                close_later(open);
            }
        }
        count
    }

    /// Calls `each` for every instance that this one watches.
    fn for_each_instance(&self, mut each: impl FnMut(Arc<OpenFile>)) {
        let watched = self.watches.lock().iter().filter_map(|watch| watch.open.upgrade()).collect::<Vec<_>>();
        for open in watched {
            if matches!(open.target, OpenTarget::Epoll(_)) { each(open) } else { close_later(open) }
        }
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        user::remove_watches(self.user, self.watches.get_mut().len() as u64);
    }
}

/// The watch of a file, which a descriptor and the open file name together.
fn position(watches: &[Watch], descriptor: u32, open: &Arc<OpenFile>) -> Option<usize> {
    watches.iter().position(|watch| watch.descriptor == descriptor && watch.open.as_ptr() == Arc::as_ptr(open))
}

/// Checks that `instance` may watch `target`, another instance (`ep_loop_check`).
///
/// # Errors
/// `ELOOP` if `target` watches `instance`, or if the chain would be too long.
pub(crate) fn check_loop(instance: &Arc<OpenFile>, target: &Arc<OpenFile>) -> Result<(), Errno> {
    let below = levels(target, |open, found| {
        if let OpenTarget::Epoll(epoll) = &open.target {
            epoll.for_each_instance(|watched| found.push(watched));
        }
    });
    let above = levels(instance, |open, found| {
        let instances: Vec<_> = INSTANCES.lock().iter().filter_map(Weak::upgrade).collect();
        for watcher in instances {
            let mut watches_it = false;
            if let OpenTarget::Epoll(epoll) = &watcher.target {
                epoll.for_each_instance(|watched| {
                    watches_it |= Arc::ptr_eq(&watched, open);
                    close_later(watched);
                });
            }
            if watches_it { found.push(watcher) } else { close_later(watcher) }
        }
    });
    let is_loop = below.iter().flatten().any(|open| Arc::ptr_eq(open, instance));
    // INV-KERNEL-PINNED: the stack that a look at nested instances takes is bounded.
    let too_long = below.len() + above.len() - 1 > NESTS_MAX;
    below.into_iter().chain(above).flatten().for_each(close_later);
    if is_loop || too_long { Err(Errno::ELOOP) } else { Ok(()) }
}

/// The instances that are reached from one, by the number of steps; too many end the search.
fn levels(
    start: &Arc<OpenFile>,
    mut next: impl FnMut(&Arc<OpenFile>, &mut Vec<Arc<OpenFile>>),
) -> Vec<Vec<Arc<OpenFile>>> {
    let mut levels = Vec::from([Vec::from([start.clone()])]);
    while levels.len() <= NESTS_MAX + 1 {
        let mut found = Vec::new();
        levels.iter().last().into_iter().flatten().for_each(|open| next(open, &mut found));
        found.sort_by_key(|open| open.number);
        let mut unique: Vec<Arc<OpenFile>> = Vec::new();
        for open in found {
            match unique.last() {
                Some(last) if Arc::ptr_eq(last, &open) => close_later(open),
                _ => unique.push(open),
            }
        }
        if unique.is_empty() {
            break;
        }
        levels.push(unique);
    }
    levels
}
