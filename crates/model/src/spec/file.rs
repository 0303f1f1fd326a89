//! Files and shared memory of the reference memory: a size, contents, and a truncation that may be
//! under way.

use super::cells::{self, Base, Cells};
use super::contents::PageContents;
use crate::FxHashMap;
use alloc::boxed::Box;
use alloc::rc::Rc;
use pagewright_types::{FileId, PAGE_SIZE};

/// What a file holds before anybody stores to it: by page and eight-byte cell.
pub type InitialContents = Box<dyn Fn(u64, u16) -> u64>;

/// Cells in a page.
const CELLS: u64 = cells::CELLS as u64;

pub(super) struct File {
    /// Bytes.
    size: u64,
    /// Pages that will exist when the truncation under way is done.
    pub(super) truncating: Option<u64>,
    /// Pages from here on were cut off once: they are zero.
    intact: u64,
    /// Whether pages of it can be thrown away.
    pub(super) shmem: bool,
    /// `F_SEAL_*`, if it can have any.
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

    /// Shared memory of so many pages.
    pub(super) fn shmem(pages: u64) -> Self {
        Self { shmem: true, ..Self::new(pages, Box::new(|_, _| 0)) }
    }

    /// Bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Whether page `index` may exist now, and whether it may not.
    pub(super) fn has(&self, index: u64) -> (bool, bool) {
        let pages = self.size.div_ceil(PAGE_SIZE);
        let other = self.truncating.unwrap_or(pages);
        (index < pages.max(other), index >= pages.min(other))
    }

    fn base(&self, id: FileId, index: u64) -> Base {
        if index < self.intact { Base::Initial(id, index) } else { Base::Zero }
    }

    /// Page `index` as it is.
    pub(super) fn page(&self, id: FileId, index: u64) -> Rc<Cells> {
        match self.stored.get(&index) {
            Some(sheet) => sheet.read(),
            None => Rc::new(Cells::new(self.base(id, index))),
        }
    }

    /// Whether a cell of page `index` can hold `value`; `base` says what it held at first.
    pub(super) fn can_hold(&self, id: FileId, index: u64, cell: u16, value: u64, base: &dyn Fn(Base) -> u64) -> bool {
        match self.stored.get(&index) {
            Some(data) => data.can_hold(cell, value, base),
            None => value == base(self.base(id, index)),
        }
    }

    /// Whether it is not known what a cell of page `index` holds.
    pub(super) fn is_in_doubt(&self, index: u64, cell: u16) -> bool {
        self.stored.get(&index).is_some_and(|sheet| sheet.is_in_doubt(cell))
    }

    /// Page `index`, if it was ever stored to or pinned since it was last thrown away.
    pub(super) fn contents(&self, index: u64) -> Option<&PageContents> {
        self.stored.get(&index)
    }

    /// Page `index`, to be changed.
    pub(super) fn page_mut(&mut self, id: FileId, index: u64) -> &mut PageContents {
        let base = self.base(id, index);
        self.stored.entry(index).or_insert_with(|| PageContents::new(Cells::new(base)))
    }

    /// Shared memory: page `index` is as it was at first.
    pub(super) fn throw_away(&mut self, index: u64) {
        self.stored.remove(&index);
    }

    /// Shared memory: the bytes from `from` up to `to`, whole cells, are zero from now on.
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

    /// It ends there, if it ended before.
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
    /// What a cell of a page that began as `base` held then.
    pub(super) fn initial(&self, base: Base, cell: u16) -> u64 {
        match base {
            Base::Zero => 0,
            Base::Initial(id, index) => self.0.get(&id).map_or(0, |file| (file.initial)(index, cell)),
        }
    }
}
