//! Counters of large folios: faults that map them, and what splits them.

use super::{Changes, HUGE_PAGES, Operation, Scene};
use pagewright_arch::Isa;
use pagewright_lab::harness::{CPU, GupCall};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{Advice, MmSetting};
use pagewright_sim::AllocationFailure;
use pagewright_types::{Counter as C, PageRange};

/// Faults that map large folios, or could not, and an unmap of a part.
pub(super) fn large_folios<I: Isa>() -> Vec<Operation<I>> {
    vec![
        (
            "a store that maps a huge page",
            |_| {
                let scene = Scene::<I>::with_huge_pages();
                scene.changes(|| scene.process.write(CPU, HUGE_PAGES, 1))
            },
            vec![(C::PgFault, 1), (C::PwZeroed, 512), (C::ThpFaultAlloc, 1)],
        ),
        (
            "a store that maps a folio of 16 pages, because there is no huge page",
            |_| {
                let scene = Scene::<I>::with_huge_pages();
                scene.world.set(MmSetting::ThpEnabled64k, "always");
                scene.world.lab.run(CPU, &scene.process.space);
                scene.world.lab.sim().fail_allocation_after(3, AllocationFailure::One);
                let changes = scene.changes(|| scene.process.write(CPU, HUGE_PAGES, 1));
                scene.world.lab.sim().permit_allocations();
                changes
            },
            vec![(C::PgFault, 1), (C::PwZeroed, 16), (C::ThpFaultFallback, 1), (C::PwMthpFaultAlloc, 1)],
        ),
        (
            "a load that maps the huge page of zeroes, which is new",
            |_| {
                let scene = Scene::<I>::with_huge_pages();
                scene.changes(|| scene.process.read(CPU, HUGE_PAGES))
            },
            vec![(C::PgFault, 1), (C::PwZeroed, 512), (C::ThpZeroPageAlloc, 1)],
        ),
        (
            "a load for which there is no huge page of zeroes",
            |_| {
                let scene = Scene::<I>::with_huge_pages();
                scene.world.lab.run(CPU, &scene.process.space);
                scene.world.lab.sim().fail_allocation_after(3, AllocationFailure::One);
                let changes = scene.changes(|| scene.process.read(CPU, HUGE_PAGES));
                scene.world.lab.sim().permit_allocations();
                changes
            },
            vec![(C::PgFault, 1), (C::ThpFaultFallback, 1), (C::ThpZeroPageAllocFailed, 1)],
        ),
        (
            "an unmap of a part of a huge page",
            |_| {
                let scene = Scene::<I>::with_huge_pages();
                scene.process.write(CPU, HUGE_PAGES, 1);
                scene.changes(|| scene.process.unmap(HUGE_PAGES, 1))
            },
            vec![(C::ThpSplitPmd, 1), (C::ThpDeferredSplitPage, 1)],
        ),
    ]
}

/// What splits folios of a huge page.
pub(super) fn splits_of_folios<I: Isa>() -> Vec<Operation<I>> {
    vec![
        (
            "a page-out of a part of a huge page",
            |_| {
                let scene = Scene::<I>::with_huge_pages();
                scene.process.write(CPU, HUGE_PAGES, 1);
                scene.changes(|| scene.process.advise(HUGE_PAGES, 1, Advice::PageOut))
            },
            vec![
                (C::PswpOut, 1),
                (C::PwRmapNodes, 2),
                (C::ThpSplitPmd, 1),
                (C::ThpSplitPage, 1),
                (C::ThpSwpOutFallback, 1),
            ],
        ),
        (
            "a split of a folio",
            |_| split_of_folio::<I>(false),
            vec![(C::PwRmapNodes, 1), (C::ThpSplitPmd, 1), (C::ThpSplitPage, 1)],
        ),
        (
            "a split of a folio that is pinned",
            |_| split_of_folio::<I>(true),
            vec![(C::PwRmapNodes, 1), (C::ThpSplitPageFailed, 1)],
        ),
    ]
}

/// What a request to split a huge page changes.
fn split_of_folio<I: Isa>(pinned: bool) -> Changes {
    let scene = Scene::<I>::with_huge_pages();
    scene.process.write(CPU, HUGE_PAGES, 1);
    let call = GupCall::Pin(GupFlags::WRITE);
    let device = pinned.then(|| scene.process.take(CPU, HUGE_PAGES, 1, call).expect("mapped"));
    let range = PageRange::page(HUGE_PAGES);
    let changes = scene.changes(|| scene.world.on(CPU, |mm| mm.split_huge_pages(&scene.process.space, range)));
    device.into_iter().for_each(|device| device.release(MakeDirty::No));
    changes
}
