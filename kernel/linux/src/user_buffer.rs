//! The user memory that a call fills: ranges, and how far they are filled (`struct iov_iter`).
//!
//! A call that takes something out of a queue copies it while the queue is locked, and takes out
//! what was copied and no more. Linux serves the faults of such a copy under the lock, which sleeps
//! (`pipe_read`, `unix_stream_read_generic`). A spinning lock does not allow that, so a copy of
//! [`UserBuffer::copy`] stops at a fault, and [`UserBuffer::fill`] has it served without the lock
//! and makes the attempt again. From an address that cannot be written on, copies are refused.
//!
//! Protocol: an attempt of [`UserBuffer::fill`] changes nothing before its last copy, and returns
//! the fault of a copy at once.
//!
//! Not guaranteed: what the buffer holds behind the bytes that the call returns.

use crate::errno::Errno;
use crate::memory::SpaceHandle;
use crate::task::{Scheduler, SchedulerGuard, scheduler};
use pagewright_hal::user::{self, UserFault};
use pagewright_types::VirtAddr;

/// Ranges of user memory, each an address and a length in bytes.
pub(crate) type Parts = [(u64, u64)];

/// A place in the ranges.
#[derive(Clone, Copy, Default)]
struct BufferPosition {
    /// The bytes of all ranges before it.
    filled: u64,
    part: usize,
    /// The bytes of its range before it.
    of_part: u64,
}

/// The user memory that a call fills.
pub(crate) struct UserBuffer<'a> {
    space: &'a SpaceHandle,
    parts: &'a Parts,
    len: u64,
    /// Where the next copy goes, and where the next attempt begins.
    position: BufferPosition,
    start: BufferPosition,
    /// The bytes before the first one that cannot be written, and why it cannot.
    refused: Option<(u64, Errno)>,
}

/// A fault of a copy, which stopped there.
pub(crate) struct BufferFault {
    /// The bytes of all ranges before it.
    filled: u64,
    fault: UserFault,
}

impl<'a> UserBuffer<'a> {
    /// The ranges of `parts`, of which the first `filled` bytes are filled.
    pub(crate) fn new(space: &'a SpaceHandle, parts: &'a Parts, filled: u64) -> Self {
        let len = parts.iter().map(|(_, len)| len).sum();
        let mut buffer = Self {
            space,
            parts,
            len,
            position: BufferPosition::default(),
            start: BufferPosition::default(),
            refused: None,
        };
        buffer.skip(filled.min(len));
        buffer
    }

    /// The bytes that are not filled.
    pub(crate) fn room(&self) -> u64 {
        self.len - self.position.filled
    }

    /// Goes on to where the next attempt begins.
    fn skip(&mut self, mut count: u64) {
        while count > 0 {
            let (_, now) = self.next(count);
            self.advance(now);
            count -= now;
        }
        self.start = self.position;
    }

    /// The address of the position, and how many of the next `count` bytes are in its range.
    fn next(&self, count: u64) -> (u64, u64) {
        let (base, len) = self.parts[self.position.part];
        (base.wrapping_add(self.position.of_part), count.min(len - self.position.of_part))
    }

    fn advance(&mut self, count: u64) {
        let BufferPosition { filled, part, of_part } = self.position;
        let (filled, of_part) = (filled + count, of_part + count);
        let ends = of_part == self.parts[part].1;
        self.position = if ends {
            BufferPosition { filled, part: part + 1, of_part: 0 }
        } else {
            BufferPosition { filled, part, of_part }
        };
    }

    /// Copies `bytes`, for which there is room, without having a fault served.
    ///
    /// The inner error is that of an address that cannot be written; then the position stays.
    ///
    /// # Errors
    /// The fault, which the attempt returns to [`Self::fill`].
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Result<Result<(), Errno>, BufferFault> {
        let end = self.position.filled + bytes.len() as u64;
        if let Some((_, error)) = self.refused.filter(|(writable, _)| *writable < end) {
            return Ok(Err(error));
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let (base, count) = self.next(rest.len() as u64);
            let (now, later) = rest.split_at(count as usize);
            if let Err(fault) = user::write(VirtAddr::new(base), now) {
                return Err(BufferFault { filled: self.position.filled + fault.done as u64, fault });
            }
            self.advance(count);
            rest = later;
        }
        Ok(Ok(()))
    }

    /// Makes an attempt with the scheduler locked, until one meets no fault.
    ///
    /// Returns the lock under which that attempt was made. The next call goes on behind its bytes.
    pub(crate) fn fill<T>(
        &mut self,
        mut attempt: impl FnMut(&mut Scheduler, &mut Self) -> Result<T, BufferFault>,
    ) -> (SchedulerGuard, T) {
        loop {
            let mut scheduler = scheduler();
            match attempt(&mut scheduler, self) {
                Ok(result) => {
                    self.start = self.position;
                    return (scheduler, result);
                }
                Err(BufferFault { filled, fault }) => {
                    drop(scheduler);
                    if let Err(error) = self.space.serve(fault) {
                        self.refused = Some((filled, error.into()));
                    }
                    self.position = self.start;
                }
            }
        }
    }

    /// Copies `bytes`, for which there is room, up to the first address that cannot be written.
    ///
    /// Returns how many were copied. No lock is held.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (base, count) = self.next(rest.len() as u64);
            let (now, later) = rest.split_at(count as usize);
            let copied = self.space.write_some(VirtAddr::new(base), now);
            self.advance(copied as u64);
            if copied < now.len() {
                return bytes.len() - rest.len() + copied;
            }
            rest = later;
        }
        bytes.len()
    }
}
