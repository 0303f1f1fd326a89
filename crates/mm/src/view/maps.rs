//! `/proc/PID/maps`.

use crate::mm::Mm;
use crate::space::{AddressMap, Space, Vma};
use core::fmt::{self, Write};
use pagewright_sync::Platform;
use pagewright_types::{PAGE_SIZE, PageRange, Rights};

/// Columns before the space that precedes a name: `25 + sizeof(void *) * 6 - 1`
/// (`show_vma_header_prefix`).
const NAME_COLUMN: usize = 72;

/// What a mapping is called in the last column.
pub(super) enum Name<'a> {
    /// Nothing: the line ends after the inode and its space.
    Anonymous,
    /// A word in brackets, or a path.
    Text(&'a str),
}

/// One line.
pub(super) struct Line<'a> {
    pub(super) range: PageRange,
    pub(super) rights: Rights,
    pub(super) shared: bool,
    /// Byte of the file that the mapping begins with.
    pub(super) offset: u64,
    /// The file's number; devices are not known, so all are on 00:00.
    pub(super) inode: u32,
    pub(super) name: Name<'a>,
}

impl<'a> Line<'a> {
    /// Of a mapping of `map` that begins at page `start` (`show_map_vma`).
    pub(super) fn of<P: Platform>(map: &AddressMap<P>, start: u64, vma: &'a Vma<P>) -> Self {
        let range = vma.range(start);
        let (offset, inode, name) = match vma.file() {
            Some(file) => (vma.pgoff() * PAGE_SIZE, file.id().raw(), Name::Text(file.name())),
            None => (0, 0, anonymous_name(map, range)),
        };
        Self { range, rights: vma.rights(), shared: vma.is_shared(), offset, inode, name }
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> fmt::Result {
        let mut counted = Counted { out, written: 0 };
        let (start, end) = (self.range.start().raw(), self.range.end().raw());
        let sharing = if self.shared { 's' } else { 'p' };
        write!(counted, "{start:08x}-{end:08x} {}{sharing} {:08x} 00:00 {} ", self.rights, self.offset, self.inode)?;
        if let Name::Text(name) = self.name {
            let missing = NAME_COLUMN.saturating_sub(counted.written);
            write!(counted, "{:missing$} ", "")?;
            escape(name, &mut counted)?;
        }
        counted.write_char('\n')
    }
}

/// What a mapping without a file is called (`get_vma_name`, `vma_is_initial_heap`,
/// `vma_is_initial_stack`).
fn anonymous_name<P: Platform>(map: &AddressMap<P>, range: PageRange) -> Name<'static> {
    let heap = map.heap();
    if range.start() < heap.end() && range.end() > heap.start() {
        Name::Text("[heap]")
    } else if range.start() <= map.stack_start() && map.stack_start() <= range.end() {
        Name::Text("[stack]")
    } else {
        Name::Anonymous
    }
}

/// A path with its line ends written out, so that it stays on its line (`seq_path` with `"\n"`).
fn escape(path: &str, out: &mut dyn Write) -> fmt::Result {
    for (index, part) in path.split('\n').enumerate() {
        if index > 0 {
            out.write_str("\\012")?;
        }
        out.write_str(part)?;
    }
    Ok(())
}

/// Counts the bytes that it passes on.
struct Counted<'a> {
    out: &'a mut dyn Write,
    written: usize,
}

impl Write for Counted<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.written += text.len();
        self.out.write_str(text)
    }
}

impl<P: Platform> Mm<P> {
    /// Writes what `/proc/PID/maps` shows of `space`.
    ///
    /// The file's id stands for its inode, on device 00:00.
    ///
    /// # Errors
    /// The writer's.
    pub fn show_maps(&self, space: &Space<P>, out: &mut dyn Write) -> fmt::Result {
        let map = space.map().read();
        map.iter().try_for_each(|(start, vma)| Line::of(&map, start, vma).write(out))
    }
}
