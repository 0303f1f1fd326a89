//! Pipes and FIFOs.
//!
//! A pipe holds bytes, and parts of pages of user memory that `vmsplice` put there by reference.
//! A reader of an empty pipe and a writer to a full one sleep
//! ([`WaitReason::Transfer`](crate::task::WaitReason)). Every change of any pipe wakes all of them,
//! and each makes its call again. A FIFO is a pipe behind an inode, whose ends come and go.
//!
//! Not guaranteed: `O_DIRECT`, other capacities, speed.

use crate::edges::Edges;
use crate::file_lock;
use crate::inode::Inode;
use crate::memory::mm;
use crate::task;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pagewright_arch::Effects;
use pagewright_hal::Machine;
use pagewright_mm::gup::{MakeDirty, UserPages};
use pagewright_types::PAGE_SIZE;
use spin::Mutex;

/// The capacity of a pipe in bytes.
pub(crate) const CAPACITY: usize = 64 << 10;
/// A write of at most this many bytes is atomic (`PIPE_BUF`).
pub(crate) const ATOMIC: usize = 4096;

/// A part of a page of user memory, on which the pipe holds a reference.
///
/// A later store to the page is seen by the reader, unless copy-on-write gave the writer another
/// page.
pub(crate) struct SplicedPage {
    /// One page.
    pages: UserPages,
    start: usize,
    len: usize,
}

impl SplicedPage {
    /// The bytes from `start` on of the one page in `pages`.
    pub(crate) fn new(pages: UserPages, start: usize, len: usize) -> Self {
        Self { pages, start, len }
    }

    /// Appends the first `count` bytes to `to`, and removes them.
    fn take(&mut self, count: usize, to: &mut Vec<u8>) {
        let end = to.len();
        to.resize(end + count, 0);
        if let Some(page) = self.pages.iter().next() {
            Machine.read(page.pfn().base().add(self.start as u64), &mut to[end..]);
        }
        (self.start, self.len) = (self.start + count, self.len - count);
    }
}

impl Drop for SplicedPage {
    fn drop(&mut self) {
        mm().release_user_pages(core::mem::take(&mut self.pages), MakeDirty::No);
    }
}

/// What a pipe holds at one place.
enum PipeBuffer {
    Bytes(VecDeque<u8>),
    Page(SplicedPage),
}

impl PipeBuffer {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Page(page) => page.len,
        }
    }

    /// What it takes of the capacity: a page as a whole.
    fn room(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Page(_) => PAGE_SIZE as usize,
        }
    }

    fn take(&mut self, count: usize, to: &mut Vec<u8>) {
        match self {
            Self::Bytes(bytes) => to.extend(bytes.drain(..count)),
            Self::Page(page) => page.take(count, to),
        }
    }
}

#[derive(Default)]
struct Pipe {
    buffers: VecDeque<PipeBuffer>,
    readers: u32,
    writers: u32,
    /// The opens for reading and for writing of a FIFO since it was made (`r_counter`).
    reader_opens: u64,
    writer_opens: u64,
}

impl Pipe {
    fn room(&self) -> usize {
        CAPACITY.saturating_sub(self.buffers.iter().map(PipeBuffer::room).sum())
    }

    fn append(&mut self, from: &[u8]) {
        if let Some(PipeBuffer::Bytes(bytes)) = self.buffers.back_mut() {
            bytes.extend(from);
        } else {
            self.buffers.push_back(PipeBuffer::Bytes(from.iter().copied().collect()));
        }
    }
}

/// A pipe that its ends share.
#[derive(Default)]
pub(crate) struct SharedPipe {
    state: Mutex<Pipe>,
    edges: Edges,
    /// Its number, of a pipe without an inode.
    number: u64,
}

/// One end of a pipe; an end of a FIFO can be both.
pub(crate) struct PipeEnd {
    pipe: Arc<SharedPipe>,
    reads: bool,
    writes: bool,
    fifo: Option<Arc<Inode>>,
    /// The opens for writing at which a FIFO has not hung up yet (`f_version`).
    writers_before: Option<u64>,
}

/// The state of an end, as `poll` reports it.
pub(crate) struct PipeState {
    pub(crate) readable: bool,
    /// Whether an atomic write fits.
    pub(crate) writable: bool,
    pub(crate) no_writer: bool,
    pub(crate) no_reader: bool,
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
    let pipe = Arc::new(SharedPipe { number: file_lock::new_owner(), ..SharedPipe::default() });
    (PipeEnd::open(&pipe, true, false, None), PipeEnd::open(&pipe, false, true, None))
}

impl PipeEnd {
    /// Opens an end of a pipe.
    pub(crate) fn open(pipe: &Arc<SharedPipe>, reads: bool, writes: bool, fifo: Option<Arc<Inode>>) -> Self {
        let mut state = pipe.state.lock();
        if reads {
            (state.readers, state.reader_opens) = (state.readers + 1, state.reader_opens + 1);
        }
        if writes {
            (state.writers, state.writer_opens) = (state.writers + 1, state.writer_opens + 1);
        }
        let writers_before = (fifo.is_some() && state.writers == 0).then_some(state.writer_opens);
        pipe.edges.note_all();
        drop(state);
        Self { pipe: pipe.clone(), reads, writes, fifo, writers_before }
    }

    pub(crate) fn reads(&self) -> bool {
        self.reads
    }

    pub(crate) fn writes(&self) -> bool {
        self.writes
    }

    /// The inode of a FIFO.
    pub(crate) fn fifo(&self) -> Option<&Arc<Inode>> {
        self.fifo.as_ref()
    }

    /// The number that both ends of a pipe without an inode have.
    pub(crate) fn number(&self) -> u64 {
        self.pipe.number
    }

    /// Opens another end of the same pipe.
    pub(crate) fn reopen(&self, reads: bool, writes: bool) -> Self {
        Self::open(&self.pipe, reads, writes, self.fifo.clone())
    }

    /// Its wake-ups.
    pub(crate) fn edges(&self) -> &Edges {
        &self.pipe.edges
    }

    /// The bytes that can be read.
    pub(crate) fn available(&self) -> usize {
        self.pipe.state.lock().buffers.iter().map(PipeBuffer::len).sum()
    }

    /// The opens of the other end of a FIFO, if that end is not open (`wait_for_partner`).
    pub(crate) fn partner_opens(&self) -> Option<u64> {
        let state = self.pipe.state.lock();
        match (self.reads, self.writes) {
            (true, false) => (state.writers == 0).then_some(state.writer_opens),
            (false, true) => (state.readers == 0).then_some(state.reader_opens),
            _ => None,
        }
    }

    /// Reads at most `most` bytes.
    pub(crate) fn read(&self, most: usize, to: &mut Vec<u8>) -> PipeTransfer {
        let mut pipe = self.pipe.state.lock();
        if pipe.buffers.is_empty() && pipe.writers > 0 && most > 0 {
            return PipeTransfer::Wait;
        }
        let mut moved = 0;
        while let Some(first) = pipe.buffers.front_mut().filter(|_| moved < most) {
            let count = first.len().min(most - moved);
            first.take(count, to);
            moved += count;
            if first.len() == 0 {
                pipe.buffers.pop_front();
            }
        }
        if moved > 0 {
            self.pipe.edges.note_output();
        }
        PipeTransfer::Moved(moved)
    }

    /// Writes as many bytes as fit; at most [`ATOMIC`] bytes only all at once.
    pub(crate) fn write(&self, from: &[u8]) -> PipeTransfer {
        let mut pipe = self.pipe.state.lock();
        if pipe.readers == 0 {
            return PipeTransfer::Broken;
        }
        let room = pipe.room();
        let count = if from.len() <= ATOMIC && room < from.len() { 0 } else { room.min(from.len()) };
        if count == 0 && !from.is_empty() {
            return PipeTransfer::Wait;
        }
        if count > 0 {
            pipe.append(&from[..count]);
            self.pipe.edges.note_input();
        }
        PipeTransfer::Moved(count)
    }

    /// Whether a page fits (`wait_for_space`).
    pub(crate) fn poll_page(&self) -> PipeTransfer {
        let pipe = self.pipe.state.lock();
        match pipe.room() {
            _ if pipe.readers == 0 => PipeTransfer::Broken,
            room if room < PAGE_SIZE as usize => PipeTransfer::Wait,
            room => PipeTransfer::Moved(room),
        }
    }

    /// Puts a part of a page into the pipe; gives it back if it does not fit.
    pub(crate) fn put_page(&self, page: SplicedPage) -> Result<(), SplicedPage> {
        let mut pipe = self.pipe.state.lock();
        if pipe.readers == 0 || pipe.room() < PAGE_SIZE as usize {
            return Err(page);
        }
        pipe.buffers.push_back(PipeBuffer::Page(page));
        self.pipe.edges.note_input();
        Ok(())
    }

    /// What `poll` reports (`pipe_poll`).
    pub(crate) fn poll(&self) -> PipeState {
        let pipe = self.pipe.state.lock();
        let no_writer = pipe.writers == 0 && self.writers_before != Some(pipe.writer_opens);
        PipeState {
            readable: self.reads && !pipe.buffers.is_empty(),
            writable: self.writes && pipe.room() >= ATOMIC,
            no_writer: self.reads && no_writer,
            no_reader: self.writes && pipe.readers == 0,
        }
    }
}

impl SharedPipe {
    /// Whether an end reads.
    pub(crate) fn has_reader(&self) -> bool {
        self.state.lock().readers > 0
    }
}

impl Drop for PipeEnd {
    /// Locks the scheduler, which the caller has not locked.
    fn drop(&mut self) {
        let rest = {
            let mut pipe = self.pipe.state.lock();
            pipe.readers -= u32::from(self.reads);
            pipe.writers -= u32::from(self.writes);
            // The bytes of a FIFO go with its last end.
            let is_last = pipe.readers == 0 && pipe.writers == 0;
            if is_last { core::mem::take(&mut pipe.buffers) } else { VecDeque::new() }
        };
        drop(rest);
        self.pipe.edges.note_all();
        task::scheduler().wake_transfers();
    }
}
