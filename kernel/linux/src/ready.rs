//! Whether open files are ready, for `poll`, `select` and `epoll`.
//!
//! Edge-triggered `epoll` also compares counts of wake-ups.

use crate::console_input;
use crate::edges;
use crate::file::{OpenFile, OpenTarget};
use crate::inode::InodeKind;
use crate::task::{Scheduler, TaskId};
use alloc::sync::Arc;
use linux_raw_sys::general as linux;

/// Ready to be read, and to be written.
const IN: u32 = linux::POLLIN | linux::POLLRDNORM;
const OUT: u32 = linux::POLLOUT | linux::POLLWRNORM;

/// The events of an open file (`vfs_poll`).
pub(crate) fn events(scheduler: &Scheduler, open: &OpenFile) -> u32 {
    match &open.target {
        OpenTarget::Inode(node) if node.has_input() && !console_input::is_ready() => OUT,
        OpenTarget::Inode(_) => IN | OUT,
        // Readable when the process has ended.
        OpenTarget::Process(handle) => {
            if has_ended(scheduler, handle) {
                IN
            } else {
                0
            }
        }
        OpenTarget::Pipe(end) => {
            let state = end.poll();
            [
                (state.readable, IN),
                (state.no_writer, linux::POLLHUP),
                (state.writable, OUT),
                (state.no_reader, linux::POLLERR),
            ]
            .into_iter()
            .fold(0, |events, (is_set, event)| if is_set { events | event } else { events })
        }
        OpenTarget::Event(counter) => {
            let (readable, writable) = counter.poll();
            (if readable { linux::POLLIN } else { 0 }) | (if writable { linux::POLLOUT } else { 0 })
        }
        OpenTarget::Socket(socket) => socket.get().poll(),
        OpenTarget::Epoll(epoll) => {
            if epoll.has_ready(scheduler) {
                IN
            } else {
                0
            }
        }
    }
}

fn has_ended(scheduler: &Scheduler, handle: &Arc<TaskId>) -> bool {
    scheduler.process_of(handle).is_none_or(|process| process.exit_status.is_some())
}

/// The number of wake-ups of an open file for any of these events.
pub(crate) fn wake_ups(scheduler: &Scheduler, open: &OpenFile, events: u32) -> u64 {
    match &open.target {
        OpenTarget::Inode(_) => 0,
        OpenTarget::Process(handle) => u64::from(has_ended(scheduler, handle)),
        OpenTarget::Pipe(end) => end.edges().count(events),
        OpenTarget::Event(counter) => counter.edges().count(events),
        OpenTarget::Socket(socket) => socket.get().wake_ups(events),
        OpenTarget::Epoll(epoll) => epoll.wake_ups(scheduler, events & edges::INPUT),
    }
}

/// Whether an open file can be polled, unlike files and directories (`file_can_poll`).
pub(crate) fn can_poll(open: &OpenFile) -> bool {
    match &open.target {
        OpenTarget::Inode(node) => {
            !node.is_file()
                && !matches!(
                    node.kind,
                    InodeKind::Directory | InodeKind::Null | InodeKind::Zero | InodeKind::Full | InodeKind::Zram
                )
        }
        OpenTarget::Process(_)
        | OpenTarget::Pipe(_)
        | OpenTarget::Event(_)
        | OpenTarget::Socket(_)
        | OpenTarget::Epoll(_) => true,
    }
}
