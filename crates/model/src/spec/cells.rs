//! The contents of a page: for each eight-byte cell, the values that it can have.
//!
//! Mostly each cell has one. Where calls overlap it may have several; a load that shows which one
//! it is settles it.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use pagewright_types::FileId;

/// Cells in a page.
pub(super) const CELLS: usize = 512;

/// What a cell holds that was never stored to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// Zero.
    Zero,
    /// What this page of the file held from the beginning.
    Initial(FileId, u64),
}

/// One value that a cell can have; `None` is what the page began with.
type Candidate = Option<u64>;

/// A page.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    base: Base,
    /// Made at the first store.
    cells: Option<Box<[u64; CELLS]>>,
    /// Cells that were stored to.
    written: [u64; CELLS / 64],
    /// Cells of which it is not known what they hold: every value that is possible.
    doubt: Vec<(u16, Vec<Candidate>)>,
}

impl Cells {
    pub(super) const fn new(base: Base) -> Self {
        Self { base, cells: None, written: [0; CELLS / 64], doubt: Vec::new() }
    }

    pub(super) fn base(&self) -> Base {
        self.base
    }

    fn settled(&self, cell: u16) -> Candidate {
        let index = usize::from(cell);
        if self.written[index / 64] >> (index % 64) & 1 == 0 {
            return None;
        }
        self.cells.as_ref().map(|cells| cells[index])
    }

    fn doubted(&self, cell: u16) -> Option<&Vec<Candidate>> {
        self.doubt.iter().find(|(at, _)| *at == cell).map(|(_, all)| all)
    }

    /// Every value that `cell` can have; `base` says what it began with.
    pub(super) fn values(&self, cell: u16, base: &dyn Fn(Base) -> u64) -> Vec<u64> {
        let value = |candidate: Candidate| candidate.unwrap_or_else(|| base(self.base));
        match self.doubted(cell) {
            Some(all) => all.iter().map(|&candidate| value(candidate)).collect(),
            None => vec![value(self.settled(cell))],
        }
    }

    /// Whether `cell` can hold `value`.
    #[inline]
    pub(super) fn can_hold(&self, cell: u16, value: u64, base: &dyn Fn(Base) -> u64) -> bool {
        if !self.doubt.is_empty() && self.doubted(cell).is_some() {
            return self.values(cell, base).contains(&value);
        }
        value == self.settled(cell).unwrap_or_else(|| base(self.base))
    }

    /// Whether more than one value is possible.
    pub(super) fn is_in_doubt(&self, cell: u16) -> bool {
        !self.doubt.is_empty() && self.doubted(cell).is_some()
    }

    /// From now on `cell` holds `value`.
    #[inline]
    pub(super) fn set(&mut self, cell: u16, value: u64) {
        let index = usize::from(cell);
        self.cells.get_or_insert_with(|| Box::new([0; CELLS]))[index] = value;
        self.written[index / 64] |= 1 << (index % 64);
        if !self.doubt.is_empty() {
            self.doubt.retain(|(at, _)| *at != cell);
        }
    }

    /// `cell` may hold `value`, too.
    pub(super) fn allow(&mut self, cell: u16, value: u64) {
        self.add(cell, Some(value));
    }

    fn add(&mut self, cell: u16, candidate: Candidate) -> bool {
        if let Some((_, all)) = self.doubt.iter_mut().find(|(at, _)| *at == cell) {
            let new = !all.contains(&candidate);
            if new {
                all.push(candidate);
            }
            return new;
        }
        let present = self.settled(cell);
        let new = present != candidate;
        if new {
            self.doubt.push((cell, vec![present, candidate]));
        }
        new
    }

    /// Every cell may hold what it can hold in `other`, too, which began as this did.
    ///
    /// Returns whether that was new.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        debug_assert_eq!(self.base, other.base);
        let mut new = false;
        for cell in 0..CELLS as u16 {
            let word = usize::from(cell) / 64;
            if (self.written[word] | other.written[word]) >> (cell % 64) & 1 == 1 {
                new |= self.add(cell, other.settled_or_doubted(cell));
            }
        }
        for (cell, all) in &other.doubt {
            for &candidate in all {
                new |= self.add(*cell, candidate);
            }
        }
        new
    }

    fn settled_or_doubted(&self, cell: u16) -> Candidate {
        self.doubted(cell).and_then(|all| all.first().copied()).unwrap_or_else(|| self.settled(cell))
    }
}
