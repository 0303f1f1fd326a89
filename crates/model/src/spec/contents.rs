//! The contents of a page, either copied on write or shared between a mapping and its pins.
//!
//! Key type: [`PageContents`]. The possible states of one page share their contents until one of
//! them is stored to. A pinned page has one contents for the mapping and the pin, until the mapping
//! loses the page. A fork and a private copy of a file page take a [`PageContents::copy`].
//!
//! Not guaranteed: that a load which resolves a cell resolves it in copies, too.

use super::cells::{Base, Cells};
use alloc::rc::Rc;
use core::cell::RefCell;

/// The cells of a pinned page.
pub(super) type PinnedCells = Rc<RefCell<Cells>>;

#[derive(Clone, Debug)]
pub(super) enum PageContents {
    /// Shared until the next store, which copies.
    Cow(Rc<Cells>),
    /// Shared for good: a store through one holder is visible to all.
    Pinned(PinnedCells),
}

impl PageContents {
    pub(super) fn new(data: Cells) -> Self {
        Self::Cow(Rc::new(data))
    }

    /// The present cells.
    pub(super) fn read(&self) -> Rc<Cells> {
        match self {
            Self::Cow(data) => data.clone(),
            Self::Pinned(data) => Rc::new(data.borrow().clone()),
        }
    }

    /// A copy, which later stores to `self` do not change.
    pub(super) fn copy(&self) -> Self {
        Self::Cow(self.read())
    }

    /// Whether both are the same object.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cow(mine), Self::Cow(theirs)) => Rc::ptr_eq(mine, theirs),
            (Self::Pinned(mine), Self::Pinned(theirs)) => Rc::ptr_eq(mine, theirs),
            (Self::Cow(_), Self::Pinned(_)) | (Self::Pinned(_), Self::Cow(_)) => false,
        }
    }

    /// Pins the contents: from now on all holders share them.
    pub(super) fn pin(&mut self) -> PinnedCells {
        let pinned = match self {
            Self::Cow(data) => Rc::new(RefCell::new((**data).clone())),
            Self::Pinned(data) => return data.clone(),
        };
        *self = Self::Pinned(pinned.clone());
        pinned
    }

    pub(super) fn is_pinned(&self) -> bool {
        matches!(self, Self::Pinned(_))
    }

    #[inline]
    pub(super) fn can_hold(&self, cell: u16, value: u64, base: &dyn Fn(Base) -> u64) -> bool {
        match self {
            Self::Cow(data) => data.can_hold(cell, value, base),
            Self::Pinned(data) => data.borrow().can_hold(cell, value, base),
        }
    }

    pub(super) fn is_uncertain(&self, cell: u16) -> bool {
        match self {
            Self::Cow(data) => data.is_uncertain(cell),
            Self::Pinned(data) => data.borrow().is_uncertain(cell),
        }
    }

    #[inline]
    pub(super) fn set(&mut self, cell: u16, value: u64) {
        match self {
            Self::Cow(data) => Rc::make_mut(data).set(cell, value),
            Self::Pinned(data) => data.borrow_mut().set(cell, value),
        }
    }

    pub(super) fn allow(&mut self, cell: u16, value: u64) {
        match self {
            Self::Cow(data) => Rc::make_mut(data).allow(cell, value),
            Self::Pinned(data) => data.borrow_mut().allow(cell, value),
        }
    }
}
