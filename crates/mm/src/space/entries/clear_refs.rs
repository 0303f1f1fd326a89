//! `/proc/PID/clear_refs`: forgetting that pages were used, or stored to (`clear_refs_write`).
//!
//! INV-SOFT-DIRTY: a page that was stored to since is told as soft-dirty by [`Mm::pagemap`], and so
//! is one of a mapping made since. Clearing takes the bit and the right to write from every leaf,
//! so that the next store is noticed; whoever gives a leaf the right to write again sets the bit,
//! or leaves the giving to the fault.

use crate::mm::Mm;
use crate::space::{Space, VmFlags, Vma};
use crate::swap::SwapPte;
use core::sync::atomic::{Ordering, fence};
use pagewright_arch::{Entry, Leaf, LeafFlags};
use pagewright_sync::Platform;
use pagewright_table::LockedTable;
use pagewright_tlb::Gather;
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{PageRange, Rights, VirtAddr};

/// What is to be forgotten, with the numbers that are written to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ClearRefs {
    /// That pages were used.
    All = 1,
    /// That pages were used, in mappings without a file.
    Anon = 2,
    /// That pages were used, in mappings of files.
    Mapped = 3,
    /// That pages were stored to.
    SoftDirty = 4,
    /// The peak of the resident set.
    Peak = 5,
}

impl ClearRefs {
    /// What `number` stands for.
    pub const fn from_raw(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::All),
            2 => Some(Self::Anon),
            3 => Some(Self::Mapped),
            4 => Some(Self::SoftDirty),
            5 => Some(Self::Peak),
            _ => None,
        }
    }
}

impl<P: Platform> Mm<P> {
    /// Forgets for all pages of `space` what `what` says.
    pub fn clear_refs(&self, space: &Space<P>, what: ClearRefs) {
        self.call(|| match what {
            ClearRefs::All => self.clear_used(space, |_| true),
            ClearRefs::Anon => self.clear_used(space, |vma| vma.file().is_none()),
            ClearRefs::Mapped => self.clear_used(space, |vma| vma.file().is_some()),
            ClearRefs::SoftDirty => self.clear_soft_dirty(space),
            ClearRefs::Peak => space.rss().reset_peak(),
        });
    }

    fn clear_used(&self, space: &Space<P>, wanted: impl Fn(&Vma<P>) -> bool) {
        let map = space.map().read();
        for (start, vma) in map.iter().filter(|(_, vma)| wanted(vma)) {
            self.for_each_entry(space, vma.range(start), |table, va, entry| {
                let Entry::Leaf(leaf) = entry else { return };
                if let Some(folio) = self.vm_normal_folio(leaf) {
                    folio.clear_flags(FolioFlags::REFERENCED);
                }
                let unused = |leaf: Leaf| Leaf { flags: leaf.flags - LeafFlags::ACCESSED, ..leaf };
                // Owes nothing: a TLB that goes on using the leaf makes the answer less accurate,
                // not wrong.
                if let Some(debt) = table.update(va, unused) {
                    debt.settle();
                }
            });
        }
    }

    fn clear_soft_dirty(&self, space: &Space<P>) {
        let mut map = space.map().write();
        let mut gather = Gather::new(&self.tlb, space.table().context());
        let mut next = VirtAddr::ZERO;
        while let Some((start, vma)) = map.find_or_after(next) {
            let range = vma.range(start);
            let cow = !vma.is_shared();
            let flags = vma.flags() - VmFlags::SOFTDIRTY;
            self.reduce(space, range, (vma.rights() - Rights::WRITE) | Rights::READ);
            map.change(start, |vma| vma.set_flags(flags));
            self.for_each_entry(space, range, |table, va, entry| {
                let leaf = match entry {
                    Entry::Leaf(leaf) => leaf,
                    Entry::Soft(soft) => {
                        if let Some(page) = SwapPte::decode(soft) {
                            table.change_soft(va, SwapPte { soft_dirty: false, ..page }.encode());
                        }
                        return;
                    }
                    Entry::Empty | Entry::Table(_) => return,
                };
                // A page that may be pinned stays writable, and told as stored to: it may be,
                // behind the mapping's back (`pte_is_pinned`).
                let writable = cow && leaf.rights.contains(Rights::WRITE);
                let pinned = || self.frames().folio(leaf.pfn).maybe_pinned();
                if writable && pinned() {
                    return;
                }
                let clean = |leaf: Leaf| Leaf {
                    rights: leaf.rights - Rights::WRITE,
                    flags: leaf.flags - LeafFlags::SOFT_DIRTY,
                    ..leaf
                };
                if let Some(debt) = table.update(va, clean) {
                    gather.absorb(debt);
                }
                if writable {
                    // Linux looks only before. Pairs with the fence between the pin and the second
                    // look at the entry in `gup::fast`.
                    fence(Ordering::SeqCst);
                    let told =
                        |now: Leaf| Leaf { rights: leaf.rights, flags: now.flags | LeafFlags::SOFT_DIRTY, ..now };
                    if pinned()
                        && let Some(debt) = table.update(va, told)
                    {
                        gather.absorb(debt);
                    }
                }
            });
            next = range.end();
        }
        // INV-TLB-RACE.
        gather.settle();
        drop(map);
    }

    /// Visits what stands under `range`, each entry with its table locked.
    ///
    /// The caller holds the space.
    fn for_each_entry<'a>(
        &'a self,
        space: &'a Space<P>,
        range: PageRange,
        mut visit: impl FnMut(&LockedTable<'a, P>, VirtAddr, Entry),
    ) {
        for (table, part) in space.table().locked_tables(&self.tlb, range) {
            for va in table.entries(part) {
                visit(&table, va, table.entry(va));
            }
        }
    }
}
