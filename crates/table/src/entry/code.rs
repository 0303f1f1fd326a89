//! Code that is mapped (`__sync_icache_dcache`).
//!
//! **INV-CODE-VISIBLE** Before a leaf that allows instruction fetches is stored, fetches see what
//! the kernel has stored in its page: on arm64 the caches are maintained.
//!
//! That takes the maintenance once for each page and each time that the kernel fills it; a flag of
//! the folio says that it was done. On x86-64 it takes nothing.
//!
//! Not covered: what a program stores. It maintains the caches itself before it executes that.

use pagewright_arch::{Isa, Leaf, LeafFlags};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::Tlb;
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{IsaKind, Level, Rights};

/// Makes the page of a leaf visible to instruction fetches, if the leaf allows them.
#[inline]
pub(super) fn publish_code<P: Platform>(tlb: &Tlb<P>, level: Level, leaf: Leaf) {
    if P::Isa::KIND == IsaKind::Aarch64 && leaf.rights.contains(Rights::EXEC) {
        publish_page(tlb, level, leaf);
    }
}

#[cold]
fn publish_page<P: Platform>(tlb: &Tlb<P>, level: Level, leaf: Leaf) {
    plant!(CodeNotPublished => return);
    let publish = || (0..level.pages()).for_each(|page| tlb.fx().publish_code(leaf.pfn.add(page as u32)));
    if leaf.flags.contains(LeafFlags::SPECIAL) {
        return publish();
    }
    let folio = tlb.frames().folio(leaf.pfn);
    // The pages of a large folio are not told apart.
    if folio.is_large() {
        return publish();
    }
    if !folio.flags().contains(FolioFlags::CODE_VISIBLE) {
        publish();
        folio.set_flags(FolioFlags::CODE_VISIBLE);
    }
}
