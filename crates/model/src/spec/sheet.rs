//! The contents of a page as those see them who have it: each for himself as soon as one stores, or
//! all the same for good.
//!
//! Key type: [`Sheet`]. A page that is pinned has one sheet under two names – the mapping's and the
//! pin's – until the mapping loses it. Whoever copies a page (fork, a private copy of a file's
//! page) takes a [`Sheet::copy`]; possibilities of one page share it.
//!
//! Not guaranteed: that a sheet in doubt becomes certain for all who have it, unless they have the
//! same one.

use super::data::{Base, Data};
use alloc::rc::Rc;
use core::cell::RefCell;

/// Contents that somebody reaches by the frame.
pub(super) type Pinned = Rc<RefCell<Data>>;

#[derive(Clone, Debug)]
pub(super) enum Sheet {
    /// Whoever stores to it has his own from then on.
    Lent(Rc<Data>),
    /// What one stores all have.
    Pinned(Pinned),
}

impl Sheet {
    pub(super) fn new(data: Data) -> Self {
        Self::Lent(Rc::new(data))
    }

    /// What it holds now.
    pub(super) fn read(&self) -> Rc<Data> {
        match self {
            Self::Lent(data) => data.clone(),
            Self::Pinned(data) => Rc::new(data.borrow().clone()),
        }
    }

    /// One that holds the same, and is another.
    pub(super) fn copy(&self) -> Self {
        Self::Lent(self.read())
    }

    /// Whether the two are one.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Lent(mine), Self::Lent(theirs)) => Rc::ptr_eq(mine, theirs),
            (Self::Pinned(mine), Self::Pinned(theirs)) => Rc::ptr_eq(mine, theirs),
            (Self::Lent(_), Self::Pinned(_)) | (Self::Pinned(_), Self::Lent(_)) => false,
        }
    }

    /// From now on it is the same for all who have it.
    pub(super) fn pin(&mut self) -> Pinned {
        let pinned = match self {
            Self::Lent(data) => Rc::new(RefCell::new((**data).clone())),
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
            Self::Lent(data) => data.can_hold(cell, value, base),
            Self::Pinned(data) => data.borrow().can_hold(cell, value, base),
        }
    }

    pub(super) fn is_in_doubt(&self, cell: u16) -> bool {
        match self {
            Self::Lent(data) => data.is_in_doubt(cell),
            Self::Pinned(data) => data.borrow().is_in_doubt(cell),
        }
    }

    #[inline]
    pub(super) fn set(&mut self, cell: u16, value: u64) {
        match self {
            Self::Lent(data) => Rc::make_mut(data).set(cell, value),
            Self::Pinned(data) => data.borrow_mut().set(cell, value),
        }
    }

    pub(super) fn allow(&mut self, cell: u16, value: u64) {
        match self {
            Self::Lent(data) => Rc::make_mut(data).allow(cell, value),
            Self::Pinned(data) => data.borrow_mut().allow(cell, value),
        }
    }
}
