//! Pipes and FIFOs.
//!
//! A pipe has slots, as in Linux (`struct pipe_buffer`). A slot holds bytes, at most a page of
//! them, or a part of a page of user memory that `vmsplice` put there by reference. A slot is free
//! when all of it was read.
//!
//! A reader of an empty pipe and a writer to a full one sleep
//! ([`WaitReason::Transfer`](crate::task::WaitReason)). Every change of any pipe wakes all of them,
//! and each makes its call again. A FIFO is a pipe behind an inode, whose ends come and go.
//!
//! **INV-KERNEL-TAKEN** A read that meets a bad address takes out of a pipe or a stream what it
//! returns and no more. A page of a pipe and a message of a stream that were not stored as a whole
//! stay. The offset of a file or a directory passes what was stored. As in Linux, a datagram, the
//! value of an `eventfd` and 64 bytes of a terminal are lost.
//!
//! Not guaranteed: `O_DIRECT`, other capacities, speed.

use crate::edges::Edges;
use crate::errno::Errno;
use crate::file_lock;
use crate::inode::Inode;
use crate::memory::mm;
use crate::task;
use crate::user_buffer::{BufferFault, UserBuffer};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pagewright_arch::Effects;
use pagewright_hal::Machine;
use pagewright_mm::gup::{MakeDirty, UserPages};
use pagewright_plant::plant;
use pagewright_types::PAGE_SIZE;
use spin::Mutex;

/// The slots of a pipe (`PIPE_DEF_BUFFERS`).
const SLOTS: usize = 16;
/// The size of a page.
const PAGE: usize = PAGE_SIZE as usize;
/// The most bytes that a pipe holds.
pub(crate) const CAPACITY: usize = SLOTS * PAGE;

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

    /// Copies the first `count` bytes to `to`.
    fn copy_to(&self, count: usize, to: &mut UserBuffer<'_>) -> Result<Result<(), Errno>, BufferFault> {
        let mut bytes = [0; PAGE];
        let bytes = &mut bytes[..count];
        if let Some(page) = self.pages.iter().next() {
            Machine.read(page.pfn().base().add(self.start as u64), bytes);
        }
        to.copy(bytes)
    }
}

impl Drop for SplicedPage {
    fn drop(&mut self) {
        mm().release_user_pages(core::mem::take(&mut self.pages), MakeDirty::No);
    }
}

/// What a slot holds.
enum PipeBuffer {
    /// Bytes of a page, of which the first `start` were read.
    Bytes {
        page: Vec<u8>,
        start: usize,
    },
    Page(SplicedPage),
}

impl PipeBuffer {
    fn len(&self) -> usize {
        match self {
            Self::Bytes { page, start } => page.len() - start,
            Self::Page(page) => page.len,
        }
    }

    /// Copies the first `count` bytes to `to`.
    fn copy_to(&self, count: usize, to: &mut UserBuffer<'_>) -> Result<Result<(), Errno>, BufferFault> {
        match self {
            Self::Bytes { page, start } => to.copy(&page[*start..start + count]),
            Self::Page(page) => page.copy_to(count, to),
        }
    }

    /// Removes the first `count` bytes.
    fn consume(&mut self, count: usize) {
        match self {
            Self::Bytes { start, .. } => *start += count,
            Self::Page(page) => (page.start, page.len) = (page.start + count, page.len - count),
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
    /// Whether no slot is free (`pipe_full`).
    fn is_full(&self) -> bool {
        self.buffers.len() >= SLOTS
    }

    /// Removes the first `count` bytes, and the slots that are empty then.
    fn consume(&mut self, mut count: usize) {
        while let Some(first) = self.buffers.front_mut().filter(|_| count > 0) {
            let of_first = count.min(first.len());
            first.consume(of_first);
            count -= of_first;
            if first.len() == 0 {
                self.buffers.pop_front();
            }
        }
    }

    /// The page of the last slot, if so many more bytes fit into it (`PIPE_BUF_FLAG_CAN_MERGE`).
    fn last_page(&mut self, more: usize) -> Option<&mut Vec<u8>> {
        let Some(PipeBuffer::Bytes { page, .. }) = self.buffers.back_mut() else { return None };
        (page.len() + more <= PAGE).then_some(page)
    }

    /// Writes until the pipe is full, and counts the bytes.
    ///
    /// # Errors
    /// `EFAULT` for a byte that could not be read, `ENOMEM`.
    fn write(&mut self, from: &PipeWrite<'_>, moved: &mut usize) -> Result<(), Errno> {
        let odd = (from.wanted % PAGE_SIZE) as usize;
        if from.merges
            && odd > 0
            && let Some(page) = self.last_page(odd)
        {
            let added = from.bytes.get(..odd).ok_or(Errno::EFAULT)?;
            page.try_reserve(odd)?;
            page.extend_from_slice(added);
            *moved = odd;
        }
        while (*moved as u64) < from.wanted && !self.is_full() {
            let count = (from.wanted - *moved as u64).min(PAGE_SIZE) as usize;
            let added = from.bytes.get(*moved..*moved + count).ok_or(Errno::EFAULT)?;
            let mut page = Vec::new();
            page.try_reserve_exact(count)?;
            page.extend_from_slice(added);
            self.buffers.try_reserve(1)?;
            self.buffers.push_back(PipeBuffer::Bytes { page, start: 0 });
            *moved += count;
        }
        Ok(())
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
    /// Whether a slot is free.
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
    /// The first bytes cannot be copied from or to user memory.
    Refused(Errno),
}

/// What a call writes to a pipe.
pub(crate) struct PipeWrite<'a> {
    /// The bytes up to the first that could not be read.
    pub(crate) bytes: &'a [u8],
    /// How many bytes the call writes, with those that could not be read.
    pub(crate) wanted: u64,
    /// Whether they may be added to a page in the pipe.
    pub(crate) merges: bool,
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

    /// Reads as many bytes as there is room for (`pipe_read`).
    ///
    /// INV-KERNEL-TAKEN: what could not be copied stays, and so does the rest of its slot.
    pub(crate) fn read(&self, to: &mut UserBuffer<'_>) -> Result<PipeTransfer, BufferFault> {
        let mut pipe = self.pipe.state.lock();
        if pipe.buffers.is_empty() && pipe.writers > 0 && to.room() > 0 {
            return Ok(PipeTransfer::Wait);
        }
        let (mut moved, mut refused) = (0, None);
        for buffer in &pipe.buffers {
            let count = (buffer.len() as u64).min(to.room()) as usize;
            if count == 0 {
                break;
            }
            if let Err(error) = buffer.copy_to(count, to)? {
                plant!(UncopiedBytesTaken => moved += count);
                refused = Some(error);
                break;
            }
            moved += count;
        }
        if moved > 0 {
            pipe.consume(moved);
            self.pipe.edges.note_output();
        }
        Ok(match refused {
            Some(error) if moved == 0 => PipeTransfer::Refused(error),
            _ => PipeTransfer::Moved(moved),
        })
    }

    /// Writes the bytes that fit, a page at a time (`pipe_write`).
    ///
    /// What does not fill a page goes to a page that is there already, or to a slot of its own. So
    /// at most a page is written at once or not at all (`PIPE_BUF`).
    pub(crate) fn write(&self, from: &PipeWrite<'_>) -> PipeTransfer {
        let mut pipe = self.pipe.state.lock();
        if pipe.readers == 0 {
            return PipeTransfer::Broken;
        }
        let mut moved = 0;
        let stopped = pipe.write(from, &mut moved);
        if moved > 0 {
            self.pipe.edges.note_input();
            return PipeTransfer::Moved(moved);
        }
        match stopped {
            Err(error) => PipeTransfer::Refused(error),
            Ok(()) if from.wanted > 0 => PipeTransfer::Wait,
            Ok(()) => PipeTransfer::Moved(0),
        }
    }

    /// Whether a page fits (`wait_for_space`).
    pub(crate) fn poll_page(&self) -> PipeTransfer {
        let pipe = self.pipe.state.lock();
        match pipe.readers {
            0 => PipeTransfer::Broken,
            _ if pipe.is_full() => PipeTransfer::Wait,
            _ => PipeTransfer::Moved(0),
        }
    }

    /// Puts a part of a page into the pipe; gives it back if it does not fit.
    pub(crate) fn put_page(&self, page: SplicedPage) -> Result<(), SplicedPage> {
        let mut pipe = self.pipe.state.lock();
        if pipe.readers == 0 || pipe.is_full() {
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
            writable: self.writes && !pipe.is_full(),
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
