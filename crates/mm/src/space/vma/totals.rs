//! How many pages of each sort the mappings of a space have, kept as they change.
//!
//! Key type: [`VmTotals`]. Neighbours: `vmas` changes it with every mapping; `limit` and `account`
//! read it.
//!
//! Not guaranteed: anything about resident pages; that is [`Rss`](crate::counters::Rss).

use crate::space::limits::is_data;
use crate::space::vma::{VmFlags, Vma};
use pagewright_sync::Platform;

/// Pages mapped, by sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmTotals {
    /// All (`mm->total_vm`).
    pub pages: u64,
    /// Writable and the space's own, stacks left out (`mm->data_vm`).
    pub data: u64,
    /// Locked (`mm->locked_vm`).
    pub locked: u64,
    /// Promised to the space: those with [`VmFlags::ACCOUNT`].
    pub charged: u64,
}

impl VmTotals {
    /// Of `pages` pages of one mapping.
    fn of<P: Platform>(vma: &Vma<P>, pages: u64) -> Self {
        let if_so = |holds: bool| if holds { pages } else { 0 };
        Self {
            pages,
            data: if_so(is_data(vma.flags(), vma.rights())),
            locked: if_so(vma.flags().contains(VmFlags::LOCKED)),
            charged: if_so(vma.flags().contains(VmFlags::ACCOUNT)),
        }
    }

    /// Counts a mapping that begins at page `start`.
    pub(in crate::space) fn add<P: Platform>(&mut self, start: u64, vma: &Vma<P>) {
        self.add_part(vma, vma.end() - start);
    }

    /// Counts `pages` pages of a mapping.
    pub(in crate::space) fn add_part<P: Platform>(&mut self, vma: &Vma<P>, pages: u64) {
        let more = Self::of(vma, pages);
        self.pages += more.pages;
        self.data += more.data;
        self.locked += more.locked;
        self.charged += more.charged;
    }

    /// Takes back what [`VmTotals::add`] counted.
    pub(in crate::space) fn sub<P: Platform>(&mut self, start: u64, vma: &Vma<P>) {
        let less = Self::of(vma, vma.end() - start);
        self.pages -= less.pages;
        self.data -= less.data;
        self.locked -= less.locked;
        self.charged -= less.charged;
    }
}
