//! The index of a space's mappings by file page and by linear index, for the reverse map.
//!
//! - File mappings are indexed by the page of the file at which they begin.
//! - Private mappings that moved with anonymous pages are indexed by their linear page index
//!   ([`Vma::linear_index`]), which those pages keep. Other private mappings are found by address
//!   and are not in the index.
//!
//! Key type: [`MappingIndex`]. Neighbours: `address_map` updates it with each change of a mapping.
//!
//! Not guaranteed: that a page is mapped at an address that the index returns.

use crate::error::MmError;
use crate::file::{FILE_IDS, FILE_PAGES};
use crate::mm::Mm;
use crate::space::vma::Vma;
use pagewright_btree::{BPlusTree, MaxEnd, TreeItem};
use pagewright_sync::Platform;
use pagewright_types::FileId;

/// Returns the index of a file's page among the pages of all files (INV-FILE-ID).
fn global_index(file: FileId, index: u64) -> u64 {
    debug_assert!(file.raw() < FILE_IDS && index <= 1 << FILE_PAGES, "INV-FILE-ID: page {index:#x} of {file:?}");
    (u64::from(file.raw()) << FILE_PAGES) + index
}

/// The length of a mapping.
struct MappedPages {
    pages: u64,
}

/// The first page of a mapping in the file, or its linear index; then its first page in the space.
type MappingKey = (u64, u64);

impl TreeItem for MappedPages {
    type Key = MappingKey;
    type Summary = MaxEnd;

    fn summary(&self, key: MappingKey) -> MaxEnd {
        MaxEnd::until(key.0 + self.pages)
    }
}

/// Mappings of one space, by file and by linear index.
pub(in crate::space) struct MappingIndex {
    by_file: BPlusTree<MappedPages>,
    moved: BPlusTree<MappedPages>,
}

/// Returns the keys of a mapping at page `start`: by file, and by linear index if it has moved.
fn keys<P: Platform>(start: u64, vma: &Vma<P>) -> (Option<MappingKey>, Option<MappingKey>) {
    let file = vma.file_id().map(|file| (global_index(file, vma.pgoff()), start));
    let moved = vma.is_moved(start).then_some((vma.linear_index(), start));
    (file, moved)
}

impl MappingIndex {
    pub(in crate::space) fn new() -> Self {
        Self { by_file: BPlusTree::new(), moved: BPlusTree::new() }
    }

    /// Makes the next `inserts` calls of [`MappingIndex::add`] infallible.
    ///
    /// The calls may add moved mappings only if the index has one already or `moves` is set.
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

    /// Returns whether any mapping has moved with anonymous pages.
    pub(in crate::space) fn any_moved(&self) -> bool {
        !self.moved.is_empty()
    }

    /// Returns whether no file is mapped.
    pub(in crate::space) fn has_no_file(&self) -> bool {
        self.by_file.is_empty()
    }

    /// Makes [`MappingIndex::copy_from`] with `parent` infallible.
    pub(in crate::space) fn reserve_copy<P: Platform>(&mut self, mm: &Mm<P>, parent: &Self) -> Result<(), MmError> {
        self.by_file.try_reserve_copy(&parent.by_file, || mm.permit())?;
        Ok(self.moved.try_reserve_copy(&parent.moved, || mm.permit())?)
    }

    /// Copies all of `parent` into this empty index.
    pub(in crate::space) fn copy_from(&mut self, parent: &Self) {
        self.by_file.copy_from(&parent.by_file, |_, mapped| MappedPages { pages: mapped.pages });
        self.moved.copy_from(&parent.moved, |_, mapped| MappedPages { pages: mapped.pages });
    }

    pub(in crate::space) fn add<P: Platform>(&mut self, start: u64, vma: &Vma<P>) {
        let (file, moved) = keys(start, vma);
        let pages = vma.end() - start;
        if let Some(key) = file {
            self.by_file.insert(key, MappedPages { pages });
        }
        if let Some(key) = moved {
            self.moved.insert(key, MappedPages { pages });
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

    /// Changes the end of a mapping to `end`.
    pub(in crate::space) fn set_end<P: Platform>(&mut self, start: u64, vma: &Vma<P>, end: u64) {
        let (file, moved) = keys(start, vma);
        let pages = end - start;
        if let Some(key) = file {
            self.by_file.update(key, |mapped| mapped.pages = pages);
        }
        if let Some(key) = moved {
            self.moved.update(key, |mapped| mapped.pages = pages);
        }
    }

    /// Returns where `pages` pages of a file from page `index` on may be mapped.
    pub(in crate::space) fn of_file(&self, file: FileId, index: u64, pages: u64) -> impl Iterator<Item = MappedPart> {
        let (from, base) = (global_index(file, index), global_index(file, 0));
        parts(&self.by_file, from, from + pages).map(move |part| MappedPart { index: part.index - base, ..part })
    }

    /// Returns where the anonymous pages `index..end` may have moved.
    pub(in crate::space) fn of_moved(&self, index: u64, end: u64) -> impl Iterator<Item = MappedPart> {
        parts(&self.moved, index, end)
    }
}

/// The part of a mapping that may map some of the pages that were looked for.
pub(in crate::space) struct MappedPart {
    /// The index of its first page, for the reverse map.
    pub(in crate::space) index: u64,
    /// Its first page in the space.
    pub(in crate::space) start: u64,
    /// Its length.
    pub(in crate::space) pages: u64,
}

/// Returns the parts of mappings whose pages have the indices `from..to`.
fn parts(tree: &BPlusTree<MappedPages>, from: u64, to: u64) -> impl Iterator<Item = MappedPart> {
    tree.overlapping(from, to).map(move |((first, start), mapped)| {
        let (index, end) = (first.max(from), (first + mapped.pages).min(to));
        MappedPart { index, start: start + (index - first), pages: end - index }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// INV-FILE-ID.
        #[test]
        fn pages_of_different_files_have_different_indices(
            one in (0..FILE_IDS, 0..1u64 << FILE_PAGES),
            other in (0..FILE_IDS, 0..1u64 << FILE_PAGES),
        ) {
            let global = |(file, index)| global_index(FileId::new(file), index);
            prop_assert_eq!(global(one).cmp(&global(other)), one.cmp(&other));
        }
    }
}
