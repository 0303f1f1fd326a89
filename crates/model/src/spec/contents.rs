//! The contents of a page as those see them who have it: each for himself as soon as one stores, or
//! all the same for good.
//!
//! Key type: [`PageContents`]. A page that is pinned has one sheet under two names – the mapping's and the
//! pin's – until the mapping loses it. Whoever copies a page (fork, a private copy of a file's
//! page) takes a [`PageContents::copy`]; possibilities of one page share it.
//!
//! Not guaranteed: that a sheet in doubt becomes certain for all who have it, unless they have the
//! same one.

use super::cells::{Base, Cells};
use alloc::rc::Rc;
use core::cell::RefCell;

/// Contents that somebody reaches by the frame.
pub(super) type PinnedCells = Rc<RefCell<Cells>>;

#[derive(Clone, Debug)]
pub(super) enum PageContents {
    /// Whoever stores to it has his own from then on.
    Cow(Rc<Cells>),
    /// What one stores all have.
    Pinned(PinnedCells),
}

impl PageContents {
    pub(super) fn new(data: Cells) -> Self {
        Self::Cow(Rc::new(data))
    }

    /// What it holds now.
    pub(super) fn read(&self) -> Rc<Cells> {
        match self {
            Self::Cow(data) => data.clone(),
            Self::Pinned(data) => Rc::new(data.borrow().clone()),
        }
    }

    /// One that holds the same, and is another.
    pub(super) fn copy(&self) -> Self {
        Self::Cow(self.read())
    }

    /// Whether the two are one.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cow(mine), Self::Cow(theirs)) => Rc::ptr_eq(mine, theirs),
            (Self::Pinned(mine), Self::Pinned(theirs)) => Rc::ptr_eq(mine, theirs),
            (Self::Cow(_), Self::Pinned(_)) | (Self::Pinned(_), Self::Cow(_)) => false,
        }
    }

    /// From now on it is the same for all who have it.
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

    pub(super) fn is_in_doubt(&self, cell: u16) -> bool {
        match self {
            Self::Cow(data) => data.is_in_doubt(cell),
            Self::Pinned(data) => data.borrow().is_in_doubt(cell),
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
