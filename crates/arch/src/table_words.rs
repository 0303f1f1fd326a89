//! The entries of one table as words of memory.

use crate::entry::Pte;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_types::Level;

/// Entries that are tested for emptiness at once.
const GROUP: usize = 8;

/// The entries of a table, on a machine where an access of an entry is an access of a word.
///
/// The operations are those of [`Effects`](crate::Effects), for entries of this table by their
/// index. The machine has checked the frame, once for all of them.
#[derive(Clone, Copy)]
pub struct TableWords<'m>(pub &'m [AtomicU64; Level::ENTRIES]);

impl TableWords<'_> {
    /// As [`Effects::load`](crate::Effects::load).
    ///
    /// # Panics
    /// When `index` is that of no entry; so does each operation.
    #[inline]
    pub fn load(self, index: usize) -> Pte {
        Pte::from_raw(self.0[index].load(Ordering::Acquire))
    }

    /// The first part of `indices` that is not empty: up to the next group of empty entries.
    ///
    /// Reads whole groups of words with relaxed ordering: the caller holds what keeps them. The end
    /// of `indices` if all are empty. A call costs about 20 instructions, so few entries are not
    /// worth one.
    #[inline(never)]
    pub fn first_occupied(self, indices: Range<usize>) -> Range<usize> {
        let groups = self.0[..indices.end.next_multiple_of(GROUP)].as_chunks::<GROUP>().0;
        let mut first = indices.start / GROUP;
        while let Some(group) = groups.get(first)
            && group.iter().fold(0, |bits, word| bits | word.load(Ordering::Relaxed)) == 0
        {
            first += 1;
        }
        let mut end = first;
        while let Some(group) = groups.get(end)
            && group.iter().any(|word| word.load(Ordering::Relaxed) != 0)
        {
            end += 1;
        }
        let start = (first * GROUP).clamp(indices.start, indices.end);
        start..(end * GROUP).clamp(start, indices.end)
    }

    /// As [`Effects::store`](crate::Effects::store).
    #[inline]
    pub fn store(self, index: usize, pte: Pte) {
        self.0[index].store(pte.raw(), Ordering::Release);
    }

    /// As [`Effects::swap`](crate::Effects::swap).
    #[inline]
    pub fn swap(self, index: usize, pte: Pte) -> Pte {
        Pte::from_raw(self.0[index].swap(pte.raw(), Ordering::AcqRel))
    }

    /// As [`Effects::compare_exchange`](crate::Effects::compare_exchange).
    ///
    /// # Errors
    /// The entry found instead, if it differs; nothing was stored.
    #[inline]
    pub fn compare_exchange(self, index: usize, current: Pte, new: Pte) -> Result<(), Pte> {
        let outcome = self.0[index].compare_exchange(current.raw(), new.raw(), Ordering::AcqRel, Ordering::Acquire);
        outcome.map(drop).map_err(Pte::from_raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some entries, the first and last of groups among them.
    const PRESENT: [usize; 6] = [0, 15, 16, 40, 300, 511];

    #[test]
    fn occupied_parts_have_every_entry_and_no_group_of_empty_ones() {
        let words: [AtomicU64; Level::ENTRIES] = core::array::from_fn(|_| AtomicU64::new(0));
        PRESENT.iter().for_each(|index| words[*index].store(1, Ordering::Relaxed));
        let words = TableWords(&words);
        for (start, end) in (0..=Level::ENTRIES).flat_map(|start| (start..=Level::ENTRIES).map(move |end| (start, end)))
        {
            let (mut from, mut met) = (start, 0);
            while from < end {
                let part = words.first_occupied(from..end);
                assert!(from <= part.start && part.end <= end, "{part:?} of {from}..{end}");
                let skipped = (from..part.start).all(|index| words.load(index).is_empty());
                assert!(skipped, "{part:?} of {from}..{end} leaves an entry out");
                let empty =
                    |group: usize| words.0[group..group + GROUP].iter().all(|word| word.load(Ordering::Relaxed) == 0);
                assert!(part.clone().all(|index| !empty(index / GROUP * GROUP)), "{part:?} has an empty group");
                met += part.clone().filter(|index| !words.load(*index).is_empty()).count();
                from = if part.is_empty() { end } else { part.end };
            }
            assert_eq!(met, PRESENT.iter().filter(|index| (start..end).contains(index)).count(), "{start}..{end}");
        }
    }
}
