//! The numbers of mapped pages of an address space, by kind, updated with each change.
//!
//! Key type: [`VmTotals`]. Neighbours: `address_map` updates it with every mapping; `rlimit` and
//! `overcommit` read it.
//!
//! Resident pages are counted by [`Rss`](crate::counters::Rss).

use crate::space::limits::is_data;
use crate::space::vma::{VmFlags, Vma};
use pagewright_sync::Platform;

/// Numbers of mapped pages, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmTotals {
    /// All pages (`mm->total_vm`).
    pub pages: u64,
    /// Private writable pages, without stacks (`mm->data_vm`).
    pub data: u64,
    /// Locked pages (`mm->locked_vm`).
    pub locked: u64,
    /// Pages of mappings with [`VmFlags::ACCOUNT`], which are charged.
    pub accountable: u64,
}

/// What fork copies of the mappings of a space.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CopiedTotals {
    /// The number of mappings.
    pub(crate) mappings: usize,
    /// Pages that are charged ([`VmFlags::ACCOUNT`]).
    pub(crate) charged: u64,
    /// Pages of the largest mapping that is charged.
    pub(crate) largest_charge: u64,
}

impl VmTotals {
    /// Returns the totals of `pages` pages of one mapping.
    fn of<P: Platform>(vma: &Vma<P>, pages: u64) -> Self {
        let if_so = |holds: bool| if holds { pages } else { 0 };
        Self {
            pages,
            data: if_so(is_data(vma.flags(), vma.rights())),
            locked: if_so(vma.flags().contains(VmFlags::LOCKED)),
            accountable: if_so(vma.flags().contains(VmFlags::ACCOUNT)),
        }
    }

    /// Adds a mapping that begins at page `start`.
    pub(in crate::space) fn add<P: Platform>(&mut self, start: u64, vma: &Vma<P>) {
        self.add_part(vma, vma.end() - start);
    }

    /// Adds `pages` pages of a mapping.
    pub(in crate::space) fn add_part<P: Platform>(&mut self, vma: &Vma<P>, pages: u64) {
        let more = Self::of(vma, pages);
        self.pages += more.pages;
        self.data += more.data;
        self.locked += more.locked;
        self.accountable += more.accountable;
    }

    /// Subtracts a mapping that begins at page `start`.
    pub(in crate::space) fn sub<P: Platform>(&mut self, start: u64, vma: &Vma<P>) {
        let less = Self::of(vma, vma.end() - start);
        self.pages -= less.pages;
        self.data -= less.data;
        self.locked -= less.locked;
        self.accountable -= less.accountable;
    }
}
