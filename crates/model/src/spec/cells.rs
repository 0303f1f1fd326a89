//! The contents of a page: the possible values of each eight-byte cell.
//!
//! Most cells have one value. Where calls overlap, a cell may have several, until a load resolves
//! which.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use pagewright_types::FileId;

/// Cells in a page.
pub(super) const CELLS: usize = 512;

/// The initial contents of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// Zero.
    Zero,
    /// The initial contents of this page of the file.
    Initial(FileId, u64),
}

/// A possible value of a cell; `None` is its initial value.
type Candidate = Option<u64>;

/// The cells of a page.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    base: Base,
    /// Allocated at the first store.
    cells: Option<Box<[u64; CELLS]>>,
    /// Cells that were stored to.
    written: [u64; CELLS / 64],
    /// Cells with several possible values.
    uncertain: Vec<(u16, Vec<Candidate>)>,
}

impl Cells {
    pub(super) const fn new(base: Base) -> Self {
        Self { base, cells: None, written: [0; CELLS / 64], uncertain: Vec::new() }
    }

    pub(super) fn base(&self) -> Base {
        self.base
    }

    fn single_value(&self, cell: u16) -> Candidate {
        let index = usize::from(cell);
        if self.written[index / 64] >> (index % 64) & 1 == 0 {
            return None;
        }
        self.cells.as_ref().map(|cells| cells[index])
    }

    fn candidates(&self, cell: u16) -> Option<&Vec<Candidate>> {
        self.uncertain.iter().find(|(at, _)| *at == cell).map(|(_, all)| all)
    }

    /// Every possible value of `cell`; `base` returns its initial value.
    pub(super) fn values(&self, cell: u16, base: &dyn Fn(Base) -> u64) -> Vec<u64> {
        let value = |candidate: Candidate| candidate.unwrap_or_else(|| base(self.base));
        match self.candidates(cell) {
            Some(all) => all.iter().map(|&candidate| value(candidate)).collect(),
            None => vec![value(self.single_value(cell))],
        }
    }

    /// Whether `cell` can hold `value`.
    #[inline]
    pub(super) fn can_hold(&self, cell: u16, value: u64, base: &dyn Fn(Base) -> u64) -> bool {
        if !self.uncertain.is_empty() && self.candidates(cell).is_some() {
            return self.values(cell, base).contains(&value);
        }
        value == self.single_value(cell).unwrap_or_else(|| base(self.base))
    }

    /// Whether `cell` has several possible values.
    pub(super) fn is_uncertain(&self, cell: u16) -> bool {
        !self.uncertain.is_empty() && self.candidates(cell).is_some()
    }

    /// Stores `value` to `cell`.
    #[inline]
    pub(super) fn set(&mut self, cell: u16, value: u64) {
        let index = usize::from(cell);
        self.cells.get_or_insert_with(|| Box::new([0; CELLS]))[index] = value;
        self.written[index / 64] |= 1 << (index % 64);
        if !self.uncertain.is_empty() {
            self.uncertain.retain(|(at, _)| *at != cell);
        }
    }

    /// Adds `value` to the possible values of `cell`.
    pub(super) fn allow(&mut self, cell: u16, value: u64) {
        self.add(cell, Some(value));
    }

    fn add(&mut self, cell: u16, candidate: Candidate) -> bool {
        if let Some((_, all)) = self.uncertain.iter_mut().find(|(at, _)| *at == cell) {
            let new = !all.contains(&candidate);
            if new {
                all.push(candidate);
            }
            return new;
        }
        let present = self.single_value(cell);
        let new = present != candidate;
        if new {
            self.uncertain.push((cell, vec![present, candidate]));
        }
        new
    }

    /// Adds the possible values of `other`, which has the same initial contents.
    ///
    /// Returns whether any value was new.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        debug_assert_eq!(self.base, other.base);
        let mut new = false;
        for cell in 0..CELLS as u16 {
            let word = usize::from(cell) / 64;
            if (self.written[word] | other.written[word]) >> (cell % 64) & 1 == 1 {
                new |= self.add(cell, other.first_candidate(cell));
            }
        }
        for (cell, all) in &other.uncertain {
            for &candidate in all {
                new |= self.add(*cell, candidate);
            }
        }
        new
    }

    fn first_candidate(&self, cell: u16) -> Candidate {
        self.candidates(cell).and_then(|all| all.first().copied()).unwrap_or_else(|| self.single_value(cell))
    }
}
