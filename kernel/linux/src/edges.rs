//! Edges: how often an object that can be polled became ready, for edge-triggered `epoll`.
//!
//! Linux calls back each `epoll` instance that watches an object when it wakes the object's wait
//! queue, with the events for which it does so (`ep_poll_callback`). Here an object counts these
//! wake-ups, and an instance compares counts.

use core::sync::atomic::{AtomicU64, Ordering};
use linux_raw_sys::general as linux;

/// The events that a wake-up of readers is for, and one of writers.
pub(crate) const INPUT: u32 =
    linux::EPOLLIN | linux::EPOLLPRI | linux::EPOLLRDNORM | linux::EPOLLRDBAND | linux::EPOLLRDHUP;
pub(crate) const OUTPUT: u32 = linux::EPOLLOUT | linux::EPOLLWRNORM | linux::EPOLLWRBAND;

/// The wake-ups of an object.
#[derive(Debug, Default)]
pub(crate) struct Edges {
    input: AtomicU64,
    output: AtomicU64,
    /// For changes that concern both, such as the end of a connection.
    all: AtomicU64,
}

impl Edges {
    pub(crate) fn note_input(&self) {
        self.input.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_output(&self) {
        self.output.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_all(&self) {
        self.all.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of wake-ups for any of these events.
    pub(crate) fn count(&self, events: u32) -> u64 {
        let of = |count: &AtomicU64, kind: u32| if events & kind != 0 { count.load(Ordering::Relaxed) } else { 0 };
        self.all.load(Ordering::Relaxed).wrapping_add(of(&self.input, INPUT)).wrapping_add(of(&self.output, OUTPUT))
    }
}
