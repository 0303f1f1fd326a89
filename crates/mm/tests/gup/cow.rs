//! The cases of Linux's `cow` selftest that need no huge pages.
//!
//! Each runs with page tables that fork copies, and with such that it shares.
//!
//! Fourteen of `tools/testing/selftests/mm/cow.c` are on anonymous memory (`cow_cases.rs`), here on
//! a page in memory and on one that is swapped out. Three are on everything else that can be mapped
//! privately:
//!
//! | `cow.c` | test here |
//! | --- | --- |
//! | "Basic COW" of the zero page, a memfd, a file | [`other_memory_is_copied_by_a_store`] |
//! | "R/O longterm GUP pin", "R/O longterm GUP-fast pin" of these | [`other_memory_is_copied_by_a_longterm_read_only_pin`], [`other_memory_is_copied_by_a_longterm_read_only_fast_pin`] |
//!
//! Not covered: the four cases of collapsing, and hugetlb; `thp/cow.rs` has large folios. Random
//! programs beside Linux also splice pages into pipes between forks, stores and unmaps
//! (`against_linux`).

use super::cow_cases::{FAST_PIN, Memory, PIN, SHARES, cow_cases};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, GupCall, OTHER, TestProcess, TestWorld};
use pagewright_mm::gup::MakeDirty;
use pagewright_mm::{MapFlags, MmSetting};
use pagewright_types::{Access, PAGE_SIZE, Rights, VirtAddr};
use std::rc::Rc;

on_both! {
    other_memory_is_copied_by_a_store: store_to_other_memory::<I>(),
    other_memory_is_copied_by_a_longterm_read_only_pin: long_pin_of_other_memory::<I>(PIN),
    other_memory_is_copied_by_a_longterm_read_only_fast_pin: long_pin_of_other_memory::<I>(FAST_PIN),
}

const NEW: u64 = 0xffff_ffff;

/// A page in memory.
mod present {
    fn on_each<I: super::Isa>(case: &dyn Fn(Memory<I>)) {
        super::SHARES.into_iter().for_each(|shares| case(super::page(shares)));
    }
    super::cow_cases!();
}

/// A page that is swapped out.
mod swapped_out {
    fn on_each<I: super::Isa>(case: &dyn Fn(Memory<I>)) {
        for shares in super::SHARES {
            let memory = super::page(shares);
            memory.swap_out();
            case(memory);
        }
    }
    super::cow_cases!();
}

fn world<I: Isa>(shares: &str) -> Rc<TestWorld<I>> {
    let world = TestWorld::new(2);
    world.set(MmSetting::CowPageTables, shares);
    world
}

fn page<I: Isa>(shares: &str) -> Memory<I> {
    let parent = TestProcess::new(&world(shares));
    let base = parent.anon(1);
    Memory::new(parent, base, 1)
}

/// Runs `test` on the other memory that can be mapped privately: the zero page, a memfd, a file.
///
/// `test` gets a private mapping of one page, its contents, and a shared mapping that must not
/// change.
fn on_other_memory<I: Isa>(test: impl Fn(&TestProcess<I>, VirtAddr, u64, Option<VirtAddr>)) {
    for (shares, kind) in SHARES.into_iter().flat_map(|shares| [0, 1, 2].map(|kind| (shares, kind))) {
        let world = world::<I>(shares);
        let process = TestProcess::new(&world);
        let file = match kind {
            0 => None,
            1 => Some(world.shmem(1)),
            _ => Some(world.file(1)),
        };
        let shared = file.as_ref().map(|file| process.map(1, Rights::RW, MapFlags::SHARED, Some(file)));
        let flags = if file.is_some() { MapFlags::PRIVATE } else { ANON };
        let base = process.map(1, Rights::RW, flags, file.as_ref());
        let contents = process.read(CPU, base);
        test(&process, base, contents, shared);
        if let Some(shared) = shared {
            assert_eq!(process.read(OTHER, shared), contents, "the object has changed");
        }
        process.end();
        if let Some(file) = file {
            world.on(CPU, |mm| mm.forget_file(&file));
        }
        world.at_rest(&[]);
    }
}

/// `test_cow`.
fn store_to_other_memory<I: Isa>() {
    on_other_memory::<I>(|process, base, contents, shared| {
        let untouched = process.anon(1);
        process.write(CPU, base, NEW);
        assert_eq!(process.read(OTHER, base), NEW);
        assert_eq!(process.read(OTHER, untouched), 0);
        if let Some(shared) = shared {
            assert_eq!(process.read(CPU, shared), contents);
        }
    });
}

/// `test_ro_pin`, `test_ro_fast_pin`.
fn long_pin_of_other_memory<I: Isa>(call: GupCall) {
    on_other_memory::<I>(|process, base, contents, _| {
        let pin = process.take(CPU, base, 1, call).expect("a present page");
        assert_eq!(pin.read(0), contents);
        assert!(pin.pages.iter().all(|page| page.is_pinned()));
        process.write(CPU, base, NEW);
        assert_eq!(pin.read(0), NEW, "the pin does not see the store");
        pin.agrees(process, OTHER, base, 5);
        process.world.at_rest(&[&pin]);
        pin.release(MakeDirty::No);
        assert!(process.touch(OTHER, base.add(PAGE_SIZE - 8), Access::Write).is_ok());
    });
}
