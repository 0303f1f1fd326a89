//! Mappings by what they show: the index in which the reverse map looks.
//!
//! - Mappings of files stand under the page of the file that they begin with.
//! - Private mappings that were moved with pages of their own stand under the linear page index by
//!   which those pages are still known ([`Vma::linear`]). One that was never moved is found by its
//!   address and needs no place here.
//!
//! Key type: [`Places`]. Neighbours: `vmas` keeps it in step with the mappings.
//!
//! Not guaranteed: that a page is mapped where a place says that it could be.

use crate::error::MmError;
use crate::file::{FILE_IDS, FILE_PAGES};
use crate::mm::Mm;
use crate::space::vma::Vma;
use pagewright_btree::{BPlusTree, MaxEnd, TreeItem};
use pagewright_sync::Platform;
use pagewright_types::FileId;

/// A page of a file among those of all files (INV-FILE-ID).
fn coordinate(file: FileId, index: u64) -> u64 {
    debug_assert!(file.raw() < FILE_IDS && index <= 1 << FILE_PAGES, "INV-FILE-ID: page {index:#x} of {file:?}");
    (u64::from(file.raw()) << FILE_PAGES) + index
}

/// A mapping, by the pages that it shows; the second part of its key is its first page in the
/// space.
struct Span {
    pages: u64,
}

type SpanKey = (u64, u64);

impl TreeItem for Span {
    type Key = SpanKey;
    type Summary = MaxEnd;

    fn summary(&self, key: SpanKey) -> MaxEnd {
        MaxEnd::until(key.0 + self.pages)
    }
}

/// Mappings of one space, by file and by linear index.
pub(in crate::space) struct Places {
    by_file: BPlusTree<Span>,
    moved: BPlusTree<Span>,
}

/// Where a mapping that begins at page `start` stands in the index of its file, and in that of
/// moved mappings.
fn keys<P: Platform>(start: u64, vma: &Vma<P>) -> (Option<SpanKey>, Option<SpanKey>) {
    let file = vma.file_id().map(|file| (coordinate(file, vma.pgoff()), start));
    let moved = vma.is_moved(start).then_some((vma.linear(), start));
    (file, moved)
}

impl Places {
    pub(in crate::space) fn new() -> Self {
        Self { by_file: BPlusTree::new(), moved: BPlusTree::new() }
    }

    /// Makes the next `inserts` calls of [`Places::add`] infallible; of moved mappings, if there
    /// are any or `moves` says that one will be.
    pub(in crate::space) fn reserve<P: Platform>(
        &mut self,
        mm: &Mm<P>,
        inserts: usize,
        moves: bool,
    ) -> Result<(), MmError> {
        self.by_file.try_reserve(inserts, || mm.permit())?;
        if moves || !self.moved.is_empty() {
            self.moved.try_reserve(inserts, || mm.permit())?;
        }
        Ok(())
    }

    /// Whether any mapping was moved with pages of its own.
    pub(in crate::space) fn any_moved(&self) -> bool {
        !self.moved.is_empty()
    }

    pub(in crate::space) fn add<P: Platform>(&mut self, start: u64, vma: &Vma<P>) {
        let (file, moved) = keys(start, vma);
        let pages = vma.end() - start;
        if let Some(key) = file {
            self.by_file.insert(key, Span { pages });
        }
        if let Some(key) = moved {
            self.moved.insert(key, Span { pages });
        }
    }

    pub(in crate::space) fn remove<P: Platform>(&mut self, start: u64, vma: &Vma<P>) {
        let (file, moved) = keys(start, vma);
        if let Some(key) = file {
            self.by_file.remove(key);
        }
        if let Some(key) = moved {
            self.moved.remove(key);
        }
    }

    /// A mapping has another end from now on.
    pub(in crate::space) fn set_end<P: Platform>(&mut self, start: u64, vma: &Vma<P>, end: u64) {
        let (file, moved) = keys(start, vma);
        let pages = end - start;
        if let Some(key) = file {
            self.by_file.update(key, |span| span.pages = pages);
        }
        if let Some(key) = moved {
            self.moved.update(key, |span| span.pages = pages);
        }
    }

    /// Where a file's page could be.
    pub(in crate::space) fn of_file(&self, file: FileId, index: u64) -> impl Iterator<Item = u64> {
        let at = coordinate(file, index);
        self.by_file.overlapping(at, at + 1).map(move |((from, start), _)| start + (at - from))
    }

    /// First pages of the mappings that show anything of a file from page `index` on.
    pub(in crate::space) fn of_file_from(&self, file: FileId, index: u64) -> impl Iterator<Item = u64> {
        let last = coordinate(file, (1 << FILE_PAGES) - 1);
        self.by_file.overlapping(coordinate(file, index), last).map(|((_, start), _)| start)
    }

    /// Where an anonymous page could have been moved to.
    pub(in crate::space) fn of_moved(&self, index: u64) -> impl Iterator<Item = u64> {
        self.moved.overlapping(index, index + 1).map(move |((from, start), _)| start + (index - from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// INV-FILE-ID
        #[test]
        fn pages_of_different_files_are_told_apart(
            one in (0..FILE_IDS, 0..1u64 << FILE_PAGES),
            other in (0..FILE_IDS, 0..1u64 << FILE_PAGES),
        ) {
            let place = |(file, index)| coordinate(FileId::new(file), index);
            prop_assert_eq!(place(one).cmp(&place(other)), one.cmp(&other));
        }
    }
}
