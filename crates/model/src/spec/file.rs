//! Files and shared memory of the reference memory: a size, contents, and a truncation that may be under way.

use super::data::{Base, Data};
use crate::FxHashMap;
use alloc::boxed::Box;
use alloc::rc::Rc;
use pagewright_types::FileId;

/// What a file holds before anybody stores to it: by page and eight-byte cell.
pub type Contents = Box<dyn Fn(u64, u16) -> u64>;

pub(super) struct File {
    /// Pages that exist.
    pub(super) pages: u64,
    /// Pages that will exist when the truncation under way is done.
    pub(super) truncating: Option<u64>,
    /// Pages from here on were cut off once: they are zero.
    intact: u64,
    /// Whether pages of it can be thrown away.
    pub(super) shmem: bool,
    stored: FxHashMap<u64, Rc<Data>>,
    initial: Contents,
}

impl File {
    pub(super) fn new(pages: u64, initial: Contents) -> Self {
        Self { pages, truncating: None, intact: pages, shmem: false, stored: FxHashMap::default(), initial }
    }

    /// Shared memory of so many pages.
    pub(super) fn shmem(pages: u64) -> Self {
        Self { shmem: true, ..Self::new(pages, Box::new(|_, _| 0)) }
    }

    /// Whether page `index` may exist now, and whether it may not.
    pub(super) fn has(&self, index: u64) -> (bool, bool) {
        let other = self.truncating.unwrap_or(self.pages);
        (index < self.pages.max(other), index >= self.pages.min(other))
    }

    fn base(&self, id: FileId, index: u64) -> Base {
        if index < self.intact { Base::Initial(id, index) } else { Base::Zero }
    }

    /// Page `index` as it is.
    pub(super) fn page(&self, id: FileId, index: u64) -> Rc<Data> {
        match self.stored.get(&index) {
            Some(data) => data.clone(),
            None => Rc::new(Data::new(self.base(id, index))),
        }
    }

    /// Whether a cell of page `index` can hold `value`; `base` says what it held at first.
    pub(super) fn can_hold(&self, id: FileId, index: u64, cell: u16, value: u64, base: &dyn Fn(Base) -> u64) -> bool {
        match self.stored.get(&index) {
            Some(data) => data.can_hold(cell, value, base),
            None => value == base(self.base(id, index)),
        }
    }

    /// Page `index`, to be changed.
    pub(super) fn page_mut(&mut self, id: FileId, index: u64) -> &mut Data {
        let base = self.base(id, index);
        Rc::make_mut(self.stored.entry(index).or_insert_with(|| Rc::new(Data::new(base))))
    }

    /// Shared memory: page `index` is as it was at first.
    pub(super) fn throw_away(&mut self, index: u64) {
        self.stored.remove(&index);
    }

    pub(super) fn truncate(&mut self, pages: u64) {
        self.truncating = None;
        self.pages = pages;
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
