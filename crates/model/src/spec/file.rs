//! Files and shared memory: size, contents, seals, and a truncation that may be in flight.

use super::cells::{self, Base, Cells};
use super::contents::PageContents;
use crate::FxHashMap;
use alloc::boxed::Box;
use alloc::rc::Rc;
use pagewright_types::{FileId, PAGE_SIZE};

/// The initial contents of a file, by page index and cell.
pub type InitialContents = Box<dyn Fn(u64, u16) -> u64>;

/// Cells in a page.
const CELLS: u64 = cells::CELLS as u64;

pub(super) struct File {
    /// Bytes.
    size: u64,
    /// The pages that will remain after the truncation in flight.
    pub(super) truncating: Option<u64>,
    /// Pages from here on were truncated once, and are zero if they exist again.
    intact: u64,
    /// Whether it is shared memory, in which holes can be punched.
    pub(super) shmem: bool,
    /// `F_SEAL_*`, or `None` if the file cannot be sealed.
    pub(super) seals: Option<u32>,
    stored: FxHashMap<u64, PageContents>,
    initial: InitialContents,
}

impl File {
    pub(super) fn new(pages: u64, initial: InitialContents) -> Self {
        Self {
            size: pages * PAGE_SIZE,
            truncating: None,
            intact: pages,
            shmem: false,
            seals: None,
            stored: FxHashMap::default(),
            initial,
        }
    }

    /// Shared memory of `pages` zeroed pages.
    pub(super) fn shmem(pages: u64) -> Self {
        Self { shmem: true, ..Self::new(pages, Box::new(|_, _| 0)) }
    }

    /// The size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Whether page `index` may exist now, and whether it may be past the end.
    pub(super) fn has(&self, index: u64) -> (bool, bool) {
        let pages = self.size.div_ceil(PAGE_SIZE);
        let other = self.truncating.unwrap_or(pages);
        (index < pages.max(other), index >= pages.min(other))
    }

    fn base(&self, id: FileId, index: u64) -> Base {
        if index < self.intact { Base::Initial(id, index) } else { Base::Zero }
    }

    /// A copy of page `index`.
    pub(super) fn page(&self, id: FileId, index: u64) -> Rc<Cells> {
        match self.stored.get(&index) {
            Some(contents) => contents.read(),
            None => Rc::new(Cells::new(self.base(id, index))),
        }
    }

    /// Whether a cell of page `index` can hold `value`; `base` returns its initial value.
    pub(super) fn can_hold(&self, id: FileId, index: u64, cell: u16, value: u64, base: &dyn Fn(Base) -> u64) -> bool {
        match self.stored.get(&index) {
            Some(data) => data.can_hold(cell, value, base),
            None => value == base(self.base(id, index)),
        }
    }

    /// Whether a cell of page `index` has several possible values.
    pub(super) fn is_uncertain(&self, index: u64, cell: u16) -> bool {
        self.stored.get(&index).is_some_and(|contents| contents.is_uncertain(cell))
    }

    /// The contents of page `index`, if it was stored to or pinned since it was last discarded.
    pub(super) fn contents(&self, index: u64) -> Option<&PageContents> {
        self.stored.get(&index)
    }

    /// The contents of page `index`, to be changed.
    pub(super) fn page_mut(&mut self, id: FileId, index: u64) -> &mut PageContents {
        let base = self.base(id, index);
        self.stored.entry(index).or_insert_with(|| PageContents::new(Cells::new(base)))
    }

    /// Shared memory: discards page `index`, which is zero from now on.
    pub(super) fn discard(&mut self, index: u64) {
        self.stored.remove(&index);
    }

    /// Shared memory: zeroes the bytes from `from` to `to`, both multiples of eight.
    pub(super) fn punch(&mut self, id: FileId, from: u64, to: u64) {
        let (first, end) = (from.div_ceil(PAGE_SIZE), to / PAGE_SIZE);
        self.stored.retain(|index, _| !(first..end).contains(index));
        let cells = from / 8..to / 8;
        let whole = first * CELLS..end.max(first) * CELLS;
        for at in cells.filter(|at| !whole.contains(at)) {
            if self.stored.contains_key(&(at / CELLS)) {
                self.page_mut(id, at / CELLS).set((at % CELLS) as u16, 0);
            }
        }
    }

    /// Extends the file to `to` bytes, if it is shorter.
    pub(super) fn grow(&mut self, to: u64) {
        self.size = self.size.max(to);
    }

    pub(super) fn truncate(&mut self, pages: u64) {
        self.truncating = None;
        self.size = pages * PAGE_SIZE;
        self.intact = self.intact.min(pages);
        self.stored.retain(|index, _| *index < pages);
    }
}

/// All files.
#[derive(Default)]
pub(super) struct Files(pub(super) FxHashMap<FileId, File>);

impl Files {
    /// The initial value of a cell of a page with the initial contents `base`.
    pub(super) fn initial(&self, base: Base, cell: u16) -> u64 {
        match base {
            Base::Zero => 0,
            Base::Initial(id, index) => self.0.get(&id).map_or(0, |file| (file.initial)(index, cell)),
        }
    }
}
