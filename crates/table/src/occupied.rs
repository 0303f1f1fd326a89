//! The entries of a table that are not empty.
//!
//! Most tables of a small process are nearly empty. A loop over the entries of one skips groups of
//! empty entries by [`TableWords::first_occupied`], and costs hardly more in a table that is full.

use core::ops::Range;
use pagewright_arch::{Pte, PteSlot, TableWords};
use pagewright_sync::Platform;
use pagewright_types::Pfn;

/// As many entries are tested one by one.
const FEW: usize = 8;

/// The parts of a table that have entries, in order, and a few empty ones between them.
///
/// On a machine that must see each access, that is the whole table.
pub(crate) struct OccupiedParts<'h> {
    words: Option<TableWords<'h>>,
    left: Range<usize>,
}

impl<'h> OccupiedParts<'h> {
    #[inline]
    pub(crate) fn new(words: Option<TableWords<'h>>, indices: Range<usize>) -> Self {
        Self { words, left: indices }
    }
}

impl Iterator for OccupiedParts<'_> {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let part = match self.words {
            Some(words) if self.left.len() > FEW => words.first_occupied(self.left.clone()),
            Some(_) | None => self.left.clone(),
        };
        self.left.start = part.end;
        (!part.is_empty()).then_some(part)
    }
}

/// The entries of a table that are not empty, as they are when each is reached.
pub(crate) struct PresentEntries<'h, P: Platform> {
    fx: &'h P,
    table: Pfn,
    parts: OccupiedParts<'h>,
    part: Range<usize>,
}

impl<'h, P: Platform> PresentEntries<'h, P> {
    #[inline]
    pub(crate) fn new(fx: &'h P, table: Pfn, parts: OccupiedParts<'h>) -> Self {
        Self { fx, table, parts, part: Range::default() }
    }
}

impl<P: Platform> Iterator for PresentEntries<'_, P> {
    type Item = (usize, Pte);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            for index in &mut self.part {
                let slot = PteSlot { table: self.table, index: index as u16 };
                let pte = self.parts.words.map_or_else(|| self.fx.load(slot), |words| words.load(index));
                if !pte.is_empty() {
                    return Some((index, pte));
                }
            }
            self.part = self.parts.next()?;
        }
    }
}
