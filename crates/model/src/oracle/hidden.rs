//! O2: huge leaves that other CPUs hold and that an operation hides while it splits or moves them.

use super::Oracle;
use crate::tally::Antecedent;
use pagewright_types::judge::{CachedEntryKind, Witness};
use pagewright_types::{CpuId, PageRange, PhysAddr};

impl Oracle {
    /// Notes that an entry that was a huge leaf, which another CPU holds, is soft from now on.
    #[inline]
    pub(super) fn note_hidden(&mut self, witness: &dyn Witness, cpu: CpuId, at: PhysAddr, (old, new): (u64, u64)) {
        // Bit 0 says on both instruction sets that an entry is present.
        if old & 1 != 0 && new & 1 == 0 && new != 0 && new & self.bits.prot_none_leaf == 0 {
            self.note_soft(witness, cpu, at);
        }
    }

    #[cold]
    fn note_soft(&mut self, witness: &dyn Witness, cpu: CpuId, at: PhysAddr) {
        let mut is_held = false;
        witness.walked_at(at, &mut |place| {
            if place.is_leaf && !place.level.is_last() {
                let range = PageRange::new(place.va, place.va.add(place.level.span()));
                witness.cached_in(range, &mut |cached| {
                    let is_leaf = matches!(cached.kind, CachedEntryKind::Translation { .. });
                    is_held |= is_leaf && cached.cpu != cpu && (cached.root, cached.va) == (place.root, place.va);
                });
            }
        });
        if is_held {
            self.tally.note(Antecedent::HugeHidden);
        }
    }
}
