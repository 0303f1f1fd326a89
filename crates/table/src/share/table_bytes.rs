//! What the page tables of a space take: its own, and those that it shares.

use super::user_entries;
use crate::below;
use crate::tables::Tables;
use pagewright_arch::{Entry, Isa, PteSlot};
use pagewright_sync::Platform;
use pagewright_types::{Level, PAGE_SIZE, Pfn};

/// Bytes of the page tables that a space reaches, its root included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableBytes {
    /// Of those that no other space reaches.
    pub private: u64,
    /// Of those that other spaces reach, too.
    pub shared: u64,
    /// Of all, each divided by the number of paths that lead to it, rounded down.
    ///
    /// The proportional bytes of all spaces add up to the tables that are allocated.
    pub proportional: u64,
}

impl<P: Platform> Tables<'_, P> {
    /// Sums up the tables that the space reaches; exact while no CPU edits.
    pub fn table_bytes(&self) -> TableBytes {
        if self.tree.is_closed() {
            return TableBytes::default();
        }
        self.tlb.walk_unheld(|| {
            let mut bytes = TableBytes::default();
            self.add_table_bytes((self.tree.root(), Level::PGD), 1, &mut bytes);
            bytes
        })
    }

    /// Adds a table to which `paths` paths lead, and those below it.
    fn add_table_bytes(&self, (table, level): (Pfn, Level), paths: u64, bytes: &mut TableBytes) {
        *(if paths > 1 { &mut bytes.shared } else { &mut bytes.private }) += PAGE_SIZE;
        bytes.proportional += PAGE_SIZE / paths;
        if level == Level::PTE {
            return;
        }
        for index in 0..user_entries::<P>(level) {
            let slot = PteSlot { table, index: index as u16 };
            if let Entry::Table(child) = P::Isa::decode(level, self.tlb.fx().load(slot)) {
                let shares = u64::from(self.tlb.frames().table(child.pfn).shares().max(1));
                self.add_table_bytes((child.pfn, below(level)), paths * shares, bytes);
            }
        }
    }
}
