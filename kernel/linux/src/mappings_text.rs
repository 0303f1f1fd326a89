//! `/proc/PID/maps`, `smaps` and `smaps_rollup`: text about mappings that is made as it is read.
//!
//! A [`MappingsText`] is the state of a reader (`struct seq_file`): text that was made and not read
//! yet, and the address of the next mapping. A read formats whole records, no more than it wants
//! and a page holds, while the mappings are locked. A read at another position makes the text again
//! from the start.
//!
//! Not guaranteed: that two reads show one moment. Addresses never go back, and a mapping that
//! exists during all reads is shown (Linux: `Documentation/filesystems/proc.rst`).

use crate::errno::Errno;
use crate::memory::{SpaceHandle, mm};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use pagewright_mm::view::RecordWriter;
use pagewright_types::{PAGE_SIZE, VirtAddr};

/// The file that a reader reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MappingsFile {
    Maps,
    Smaps,
    /// One record, with the sums of `smaps`.
    SmapsRollup,
}

/// The state of a reader.
pub(crate) struct MappingsText {
    pub(crate) file: MappingsFile,
    buffer: RecordBuffer,
    /// The bytes of the buffer that were read.
    taken: usize,
    /// The position in the file of the next byte (`read_pos`).
    position: u64,
    /// The first mapping that is not in the buffer; `None` at the end.
    next: Option<VirtAddr>,
}

impl MappingsText {
    /// A reader at the start of a file.
    pub(crate) fn new(file: MappingsFile) -> Self {
        Self { file, buffer: RecordBuffer::new(), taken: 0, position: 0, next: Some(VirtAddr::ZERO) }
    }

    /// Reads at most `wanted` bytes from a position (`seq_read_iter`).
    ///
    /// `space` gives the memory, which its process may lose between two reads.
    ///
    /// # Errors
    /// `ENOMEM`, and the errors of `space`.
    pub(crate) fn read(
        &mut self,
        space: impl Fn() -> Result<Option<Arc<SpaceHandle>>, Errno>,
        from: u64,
        wanted: usize,
    ) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        if wanted == 0 {
            return Ok(bytes);
        }
        if from == 0 || from != self.position {
            *self = Self::new(self.file);
        }
        // `traverse`
        while self.position < from {
            if self.left() == 0 {
                self.fill(space()?, 1)?;
            }
            if self.left() == 0 {
                self.position = from;
            }
            self.take(usize::try_from(from - self.position).unwrap_or(usize::MAX));
        }
        self.move_to(&mut bytes, wanted)?;
        // Linux makes the next record also if no more is wanted.
        if self.left() == 0 {
            let filled = space().and_then(|space| self.fill(space, wanted - bytes.len()));
            if bytes.is_empty() {
                filled?;
            }
            self.move_to(&mut bytes, wanted)?;
        }
        Ok(bytes)
    }

    /// The number of bytes in the buffer that were not read.
    fn left(&self) -> usize {
        self.buffer.bytes.len() - self.taken
    }

    /// The next bytes of the buffer, at most `most`, which are read thereby.
    fn take(&mut self, most: usize) -> &[u8] {
        let from = self.taken;
        let count = self.left().min(most);
        (self.taken, self.position) = (from + count, self.position + count as u64);
        &self.buffer.bytes[from..from + count]
    }

    /// Moves bytes of the buffer to the end of `bytes`, until those are `wanted`.
    fn move_to(&mut self, bytes: &mut Vec<u8>, wanted: usize) -> Result<(), Errno> {
        let most = wanted - bytes.len();
        bytes.try_reserve_exact(most.min(self.left()))?;
        bytes.extend_from_slice(self.take(most));
        Ok(())
    }

    /// Fills the empty buffer with records, until it has `wanted` bytes or is full.
    fn fill(&mut self, space: Option<Arc<SpaceHandle>>, wanted: usize) -> Result<(), Errno> {
        self.taken = 0;
        self.buffer.bytes.clear();
        let (Some(space), Some(from)) = (space, self.next) else { return Ok(()) };
        loop {
            self.buffer.clear(wanted)?;
            let next = match self.file {
                MappingsFile::Maps => mm().show_maps_from(&space.0, from, &mut self.buffer),
                MappingsFile::Smaps => mm().show_smaps_from(&space.0, from, &mut self.buffer),
                MappingsFile::SmapsRollup => match mm().show_smaps_rollup(&space.0, &mut self.buffer) {
                    Ok(()) => {
                        self.buffer.end_record();
                        None
                    }
                    Err(fmt::Error) => Some(from),
                },
            };
            self.buffer.bytes.truncate(self.buffer.whole);
            if self.left() > 0 || next.is_none() {
                self.next = next;
                return Ok(());
            }
            // The first record is larger than the buffer.
            self.buffer.size *= 2;
        }
    }
}

/// A buffer that takes records until it is full.
struct RecordBuffer {
    bytes: Vec<u8>,
    /// The bytes of whole records.
    whole: usize,
    /// The bytes after which no record is wanted.
    wanted: usize,
    /// The limit of bytes, which is not reached (`seq_has_overflowed`).
    size: usize,
}

impl RecordBuffer {
    fn new() -> Self {
        Self { bytes: Vec::new(), whole: 0, wanted: 0, size: PAGE_SIZE as usize }
    }

    /// Removes all bytes, and makes room for as many as the limit allows.
    fn clear(&mut self, wanted: usize) -> Result<(), Errno> {
        (self.whole, self.wanted) = (0, wanted);
        self.bytes.clear();
        Ok(self.bytes.try_reserve_exact(self.size)?)
    }
}

impl Write for RecordBuffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.bytes.len() + text.len() >= self.size {
            return Err(fmt::Error);
        }
        self.bytes.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl RecordWriter for RecordBuffer {
    fn end_record(&mut self) -> bool {
        self.whole = self.bytes.len();
        self.whole < self.wanted
    }
}
