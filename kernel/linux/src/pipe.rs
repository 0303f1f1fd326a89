//! Pipes.
//!
//! Whoever finds a pipe empty or full sleeps ([`Wait::Pipe`](crate::task::WaitReason)); every
//! change wakes all who wait for any pipe, and they look again.
//!
//! Not guaranteed: `O_DIRECT`, other capacities, speed.

use crate::task;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use spin::Mutex;

/// Bytes that a pipe holds.
pub(crate) const CAPACITY: usize = 64 << 10;
/// Bytes that are written all at once or not yet (`PIPE_BUF`).
pub(crate) const ATOMIC: usize = 4096;

#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    readers: u32,
    writers: u32,
}

/// One end of a pipe.
pub(crate) struct PipeEnd {
    pipe: Arc<Mutex<Pipe>>,
    writes: bool,
}

/// What an end can do now.
pub(crate) enum PipeTransfer {
    /// Bytes were moved; none at the end of the file.
    Moved(usize),
    /// Nothing can be moved now.
    Wait,
    /// Nobody will ever read.
    Broken,
}

/// A pipe's two ends, reader first.
pub(crate) fn new() -> (PipeEnd, PipeEnd) {
    let pipe = Arc::new(Mutex::new(Pipe { readers: 1, writers: 1, ..Pipe::default() }));
    (PipeEnd { pipe: pipe.clone(), writes: false }, PipeEnd { pipe, writes: true })
}

impl PipeEnd {
    pub(crate) fn writes(&self) -> bool {
        self.writes
    }

    /// Takes up to `most` bytes out.
    pub(crate) fn read(&self, most: usize, to: &mut Vec<u8>) -> PipeTransfer {
        let mut pipe = self.pipe.lock();
        let count = most.min(pipe.bytes.len());
        if count == 0 && pipe.writers > 0 && most > 0 {
            return PipeTransfer::Wait;
        }
        to.extend(pipe.bytes.drain(..count));
        PipeTransfer::Moved(count)
    }

    /// Puts bytes in, as many as fit; few only all together.
    pub(crate) fn write(&self, from: &[u8]) -> PipeTransfer {
        let mut pipe = self.pipe.lock();
        if pipe.readers == 0 {
            return PipeTransfer::Broken;
        }
        let room = CAPACITY - pipe.bytes.len();
        let count = if from.len() <= ATOMIC && room < from.len() { 0 } else { room.min(from.len()) };
        if count == 0 && !from.is_empty() {
            return PipeTransfer::Wait;
        }
        pipe.bytes.extend(&from[..count]);
        PipeTransfer::Moved(count)
    }

    /// Whether a read (of a reader) or a small write (of a writer) would not wait, and whether the
    /// other side is gone.
    pub(crate) fn poll(&self) -> (bool, bool) {
        let pipe = self.pipe.lock();
        if self.writes {
            (CAPACITY - pipe.bytes.len() >= ATOMIC, pipe.readers == 0)
        } else {
            (!pipe.bytes.is_empty(), pipe.writers == 0)
        }
    }
}

impl Drop for PipeEnd {
    /// Takes the lock on threads; nobody drops an end under it.
    fn drop(&mut self) {
        {
            let mut pipe = self.pipe.lock();
            let side = if self.writes { &mut pipe.writers } else { &mut pipe.readers };
            *side -= 1;
        }
        task::scheduler().wake_pipes();
    }
}
