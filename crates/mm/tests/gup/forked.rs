//! The copy of a pinned page that fork makes for the child (`copy_present_page`).
//!
//! It is a page of the child as a store of its own would have made it, except that no CPU has
//! accessed it yet.

use super::requests::leaf_at;
use pagewright_arch::{Isa, LeafFlags, on_both};
use pagewright_lab::harness::{CPU, GupCall, TestProcess, TestWorld, at};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{MapFlags, MmSetting};
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{NodeId, Rights, VirtAddr};

on_both! {
    the_copy_of_a_pinned_page_is_a_page_of_the_child,
}

const BASE: VirtAddr = VirtAddr::new(64 << 30);
const BLOCK: VirtAddr = VirtAddr::new((64 << 30) + (2 << 20));

/// A page of its own, and one in the middle of a range of 2 MiB that is mapped by pages.
fn the_copy_of_a_pinned_page_is_a_page_of_the_child<I: Isa>() {
    for page in [at(BASE, 3), at(BLOCK, 5)] {
        for rights in (0..8).map(Rights::from_bits_truncate) {
            let world = TestWorld::<I>::sized(1, 16 << 20);
            world.set(MmSetting::CowPageTables, "never");
            let device = world.swap_to(8);
            let process = TestProcess::new(&world);
            let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
            process.map_at(BASE, 1024, Rights::RW, flags);
            if page >= BLOCK {
                process.write(CPU, BASE, 1);
                process.map_huge(BLOCK);
            }
            process.write(CPU, page, 11);
            let pin = process.take(CPU, page, 1, GupCall::Pin(GupFlags::WRITE)).expect("a page");
            process.protect(page, 1, rights);
            let child = process.fork();
            let [leaf, parents] = [&child, &process].map(|process| leaf_at(process, page).expect("a page"));
            assert_eq!(leaf.rights(), parents.rights(), "{page}, {rights:?}");
            assert_ne!(leaf.pfn(), parents.pfn(), "{page}, {rights:?}");
            assert_eq!(leaf.flags(), LeafFlags::USER | (LeafFlags::STORED - LeafFlags::ACCESSED), "{page}, {rights:?}");
            child.write(CPU, at(BASE, 9), 1);
            let own = leaf_at(&child, at(BASE, 9)).expect("just written").pfn();
            world.on(CPU, |mm| {
                let [copy, own] = [leaf.pfn(), own].map(|pfn| mm.tlb().frames().folio(pfn));
                assert_eq!((copy.owner(), copy.index()), (own.owner(), page.page_index()), "{page}");
                let of_anon = FolioFlags::UPTODATE | FolioFlags::SWAPBACKED;
                assert!(own.flags().contains(of_anon) && copy.flags().contains(of_anon), "{page}");
            });
            pin.release(MakeDirty::No);
            world.recount(&[&process, &child]);
            // The reverse map and the LRU lists find it.
            process.end();
            for _ in 0..3 {
                world.on(CPU, |mm| mm.reclaim(NodeId::new(0), 4));
            }
            assert!(leaf_at(&child, page).is_none(), "{page}, {rights:?}");
            assert!(device.used() > 0);
            child.protect(page, 1, Rights::RW);
            assert_eq!(child.read(CPU, page), 11, "{page}, {rights:?}");
            TestProcess::end_all_at_rest(&[&child]);
        }
    }
}
