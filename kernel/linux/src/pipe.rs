//! Pipes.
//!
//! A reader of an empty pipe and a writer to a full one sleep
//! ([`WaitReason::Pipe`](crate::task::WaitReason)). Every change of any pipe wakes all of them, and
//! each makes its call again.
//!
//! Not guaranteed: `O_DIRECT`, other capacities, speed.

use crate::task;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use spin::Mutex;

/// The capacity of a pipe in bytes.
pub(crate) const CAPACITY: usize = 64 << 10;
/// A write of at most this many bytes is atomic (`PIPE_BUF`).
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

/// The result of a transfer.
pub(crate) enum PipeTransfer {
    /// So many bytes were transferred; 0 at the end of the file.
    Moved(usize),
    /// The pipe is empty or full.
    Wait,
    /// The pipe has no reader.
    Broken,
}

/// Makes a pipe, and returns the end to read and the end to write.
pub(crate) fn new() -> (PipeEnd, PipeEnd) {
    let pipe = Arc::new(Mutex::new(Pipe { readers: 1, writers: 1, ..Pipe::default() }));
    (PipeEnd { pipe: pipe.clone(), writes: false }, PipeEnd { pipe, writes: true })
}

impl PipeEnd {
    pub(crate) fn writes(&self) -> bool {
        self.writes
    }

    /// Reads at most `most` bytes.
    pub(crate) fn read(&self, most: usize, to: &mut Vec<u8>) -> PipeTransfer {
        let mut pipe = self.pipe.lock();
        let count = most.min(pipe.bytes.len());
        if count == 0 && pipe.writers > 0 && most > 0 {
            return PipeTransfer::Wait;
        }
        to.extend(pipe.bytes.drain(..count));
        PipeTransfer::Moved(count)
    }

    /// Writes as many bytes as fit; at most [`ATOMIC`] bytes only all at once.
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

    /// Whether a read or an atomic write would not wait, and whether the other end is closed.
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
    /// Locks the scheduler, which the caller has not locked.
    fn drop(&mut self) {
        {
            let mut pipe = self.pipe.lock();
            let side = if self.writes { &mut pipe.writers } else { &mut pipe.readers };
            *side -= 1;
        }
        task::scheduler().wake_pipes();
    }
}
