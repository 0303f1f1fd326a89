//! `/proc/PID/maps`: a line for each mapping.

use super::records::RecordWriter;
use crate::mm::Mm;
use crate::space::{AddressMap, Space, Vma};
use core::fmt::{self, Write};
use pagewright_sync::Platform;
use pagewright_types::{PAGE_SIZE, PageRange, Rights, VirtAddr};

/// Column of the space before a name (`show_vma_header_prefix`: `25 + sizeof(void *) * 6 - 1`).
const NAME_COLUMN: usize = 72;

/// One line of the file.
pub(super) struct MapsLine<'a> {
    pub(super) range: PageRange,
    pub(super) rights: Rights,
    pub(super) shared: bool,
    /// Offset in bytes at which the mapping begins in its file.
    pub(super) offset: u64,
    /// The id of the file; the device is always 00:00.
    pub(super) inode: u32,
    /// A word in brackets, or a path; without it, the line ends after the inode and a space.
    pub(super) name: Option<&'a str>,
    /// What follows the name.
    pub(super) name_suffix: &'static str,
}

impl<'a> MapsLine<'a> {
    /// Returns the line of a mapping of `map` that begins at page `start` (`show_map_vma`).
    pub(super) fn of<P: Platform>(map: &AddressMap<P>, start: u64, vma: &'a Vma<P>) -> Self {
        let range = vma.range(start);
        let (offset, inode, name) = match vma.file() {
            Some(file) => (vma.pgoff() * PAGE_SIZE, file.id().raw(), Some(file.name())),
            None => (0, 0, anonymous_name(map, range)),
        };
        let name_suffix = vma.file().map_or("", |file| file.name_suffix());
        Self { range, rights: vma.rights(), shared: vma.is_shared(), offset, inode, name, name_suffix }
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> fmt::Result {
        let mut counted = CountingWriter { out, written: 0 };
        let (start, end) = (self.range.start().raw(), self.range.end().raw());
        let sharing = if self.shared { 's' } else { 'p' };
        write!(counted, "{start:08x}-{end:08x} {}{sharing} {:08x} 00:00 {} ", self.rights, self.offset, self.inode)?;
        if let Some(name) = self.name {
            let missing = NAME_COLUMN.saturating_sub(counted.written);
            write!(counted, "{:missing$} ", "")?;
            escape(name, &mut counted)?;
            counted.write_str(self.name_suffix)?;
        }
        counted.write_char('\n')
    }
}

/// Returns the name of an anonymous mapping (`get_vma_name`).
///
/// Linux: `vma_is_initial_heap`, `vma_is_initial_stack`.
fn anonymous_name<P: Platform>(map: &AddressMap<P>, range: PageRange) -> Option<&'static str> {
    let heap = map.heap();
    if range.start() < heap.end() && range.end() > heap.start() {
        Some("[heap]")
    } else if range.start() <= map.stack_start() && map.stack_start() <= range.end() {
        Some("[stack]")
    } else {
        None
    }
}

/// Writes a path with its newlines escaped (`seq_path` with `"\n"`).
fn escape(path: &str, out: &mut dyn Write) -> fmt::Result {
    for (index, part) in path.split('\n').enumerate() {
        if index > 0 {
            out.write_str("\\012")?;
        }
        out.write_str(part)?;
    }
    Ok(())
}

/// A writer that counts its bytes.
struct CountingWriter<'a> {
    out: &'a mut dyn Write,
    written: usize,
}

impl Write for CountingWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.written += text.len();
        self.out.write_str(text)
    }
}

impl<P: Platform> Mm<P> {
    /// Writes `/proc/PID/maps` of `space`.
    ///
    /// The inode is the id of the file, and the device is 00:00.
    ///
    /// # Errors
    /// The error of the writer.
    pub fn show_maps(&self, space: &Space<P>, out: &mut dyn Write) -> fmt::Result {
        let map = space.map().read();
        map.iter().try_for_each(|(start, vma)| MapsLine::of(&map, start, vma).write(out))
    }

    /// Writes the lines of mappings that end after `from`, while `out` accepts more.
    ///
    /// Returns the first mapping whose line was not written.
    pub fn show_maps_from(&self, space: &Space<P>, from: VirtAddr, out: &mut dyn RecordWriter) -> Option<VirtAddr> {
        self.show_records(space, from, out, |from, out| {
            let map = space.map().read();
            let (start, vma) = map.iter_from(from).next()?;
            Some((vma.range(start), MapsLine::of(&map, start, vma).write(out)))
        })
    }
}
