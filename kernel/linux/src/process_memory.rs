//! Files of a process's memory: `/proc/PID/mem`, `pagemap`, `clear_refs`, `maps` and `smaps`.
//!
//! The text of the last two is made in [`crate::mappings_text`].
//!
//! A file belongs to the memory that the process had when it was opened. After `execve`, or when
//! the process has ended, it is empty (`mem_open`).
//!
//! **INV-KERNEL-LOOK** The memory, the page map and the descriptors of a process open only for a
//! thread that may trace it (`ptrace_may_access`). What was opened shows nothing of the program
//! that `execve` puts in its place.
//!
//! Not guaranteed: that a read of several pages is of one moment.

use crate::call::may_trace;
use crate::credentials::TracingIds;
use crate::errno::Errno;
use crate::inode::zeroes;
use crate::mappings_text::{MappingsFile, MappingsText};
use crate::memory::{SpaceHandle, mm};
use crate::task::{TaskId, Thread, scheduler};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use pagewright_arch::{Effects, Isa};
use pagewright_hal::Machine;
use pagewright_mm::space::ClearRefs;
use pagewright_types::{PAGE_SIZE, PageRange, VirtAddr};
use spin::Mutex;

/// The size of the word of a page.
const WORD: u64 = 8;
/// The bits of a word that name a frame or a swap entry.
const FRAME: u64 = (1 << 55) - 1;

/// What a file shows of the memory.
pub(crate) enum MemoryView {
    /// Its bytes, at their addresses.
    Bytes,
    /// A word for each page.
    Pagemap {
        /// Whether frames are shown, which need `CAP_SYS_ADMIN`.
        shows_frames: bool,
    },
    /// Text about its mappings.
    Text(Mutex<MappingsText>),
    /// Nothing: what is written clears accessed or soft-dirty bits.
    ClearRefs,
}

/// One of the files.
pub(crate) struct ProcessMemory {
    process: Arc<TaskId>,
    space: Weak<SpaceHandle>,
    view: MemoryView,
}

impl ProcessMemory {
    pub(crate) fn new(process: Arc<TaskId>, space: Weak<SpaceHandle>, view: MemoryView) -> Self {
        Self { process, space, view }
    }

    /// Checks that a thread may open it (`proc_mem_open`).
    ///
    /// # Errors
    /// `EACCES`; `ESRCH` if the process was reaped.
    pub(crate) fn check_open(&self, thread: &Thread) -> Result<(), Errno> {
        // INV-KERNEL-LOOK.
        let allowed =
            matches!(self.view, MemoryView::ClearRefs) || may_trace(thread, &self.process, TracingIds::Files)?;
        if allowed { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Whether it is text about mappings.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.view, MemoryView::Text(_))
    }

    /// Reads at most `wanted` bytes (`mem_rw`, `pagemap_read`).
    pub(crate) fn read(&self, from: u64, wanted: usize) -> Result<Vec<u8>, Errno> {
        match (&self.view, self.space.upgrade()) {
            (MemoryView::Text(text), _) => {
                let mut text = text.lock();
                let of_rollup = text.file == MappingsFile::SmapsRollup;
                text.read(|| self.space_of_text(of_rollup), from, wanted)
            }
            (_, None) => Ok(Vec::new()),
            (MemoryView::Bytes, Some(space)) => {
                let mut bytes = zeroes(wanted)?;
                let read = mm().read_remote(&space.0, VirtAddr::new(from), &mut bytes);
                bytes.truncate(read);
                if read == 0 && wanted > 0 { Err(Errno::EIO) } else { Ok(bytes) }
            }
            (MemoryView::Pagemap { shows_frames }, Some(space)) => words(&space, from, wanted as u64, *shows_frames),
            (MemoryView::ClearRefs, Some(_)) => Err(Errno::EINVAL),
        }
    }

    /// The memory that text is about; `None` after it has ended (`m_start`, `show_smaps_rollup`).
    ///
    /// # Errors
    /// `ESRCH` if the process was reaped, and for the sums of no memory.
    fn space_of_text(&self, of_rollup: bool) -> Result<Option<Arc<SpaceHandle>>, Errno> {
        scheduler().process_of(&self.process).ok_or(Errno::ESRCH)?;
        let space = self.space.upgrade();
        if space.is_none() && of_rollup { Err(Errno::ESRCH) } else { Ok(space) }
    }

    /// Writes, and returns how many bytes (`mem_rw`, `clear_refs_write`).
    pub(crate) fn write(&self, to: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let space = self.space.upgrade();
        match &self.view {
            MemoryView::Bytes => {
                let Some(space) = space else { return Ok(0) };
                let written = mm().write_remote(&space.0, VirtAddr::new(to), bytes);
                if written == 0 && !bytes.is_empty() { Err(Errno::EIO) } else { Ok(written) }
            }
            MemoryView::Pagemap { .. } | MemoryView::Text(_) => Err(Errno::EINVAL),
            MemoryView::ClearRefs => {
                let number = core::str::from_utf8(bytes).ok().and_then(|text| text.trim().parse().ok());
                let what = number.and_then(ClearRefs::from_raw).ok_or(Errno::EINVAL)?;
                if let Some(space) = space {
                    mm().clear_refs(&space.0, what)?;
                }
                Ok(bytes.len())
            }
        }
    }
}

/// The words of pages, up to the end of user memory.
fn words(space: &SpaceHandle, from: u64, wanted: u64, shows_frames: bool) -> Result<Vec<u8>, Errno> {
    if !(from | wanted).is_multiple_of(WORD) {
        return Err(Errno::EINVAL);
    }
    let end = <<Machine as Effects>::Isa as Isa>::USER_END.page_index();
    let first = from / WORD;
    let count = end.saturating_sub(first).min(wanted / WORD);
    let mut bytes = zeroes((count * WORD) as usize)?;
    if count == 0 {
        return Ok(bytes);
    }
    let range = PageRange::new(VirtAddr::from_page_index(first), VirtAddr::from_page_index(first + count));
    mm().pagemap(&space.0, range, |va, entry| {
        let word = if shows_frames { entry.raw() } else { entry.raw() & !FRAME };
        let at = (va.since(range.start()) / PAGE_SIZE * WORD) as usize;
        bytes[at..at + WORD as usize].copy_from_slice(&word.to_le_bytes());
    });
    Ok(bytes)
}
