//! Checks `patina_paging` 11.1.2, unmodified, on x86-64, with its own `MOV CR3` and `INVLPG`.
//!
//! The crate executes them only where `cfg(target_os = "uefi")`, which `cargo pagewright` sets for
//! it, and reaches tables at their physical addresses: `pagewright_trap::map_identity` maps memory
//! there. Its tables that are loaded are expected to map themselves, at addresses that a host
//! process does not have; so the entry for that is cleared, and the crate takes them to be identity
//! mapped.
//!
//! ```sh
//! cargo run -p cargo-pagewright -- --cfg patina_paging:target_os=uefi \
//!     run --manifest-path tests/published/patina-paging/Cargo.toml
//! ```
//!
//! The exit status is 1 unless the correct version is clean and the other is found.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use pagewright_check::{Check, CheckOutcome, Cpu, Harness, InvalidateScope, PageRange, Pfn, PhysAddr, Rights, Rule};
use pagewright_check::{Tag, VirtAddr, X86_64, current, program};
use pagewright_trap::{FIRST_IDENTITY_FRAME, map_identity};
use patina_paging::page_allocator::PageAllocator;
use patina_paging::x64::X64PageTable;
use patina_paging::{MemoryAttributes, PageTable, PagingType, PtError};
use std::process::ExitCode;

const PAGE: u64 = 4096;
/// The crate's pages are the kernel's, so they lie in the range that the kernel accesses.
const VA: VirtAddr = VirtAddr::new(0xffff_8000_4000_0000);
/// The entry of the root that maps the tables themselves.
const SELF_MAP: usize = 511;

/// How an unmap flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// The crate flushes this CPU, and an IPI the others, before the frame is freed.
    Correct,
    /// Only the crate flushes.
    LocalOnly,
}

/// The frames of the machine.
struct Frames;

impl PageAllocator for Frames {
    fn allocate_page(&mut self, _: u64, size: u64, _: bool) -> Result<u64, PtError> {
        assert_eq!(size, PAGE, "a table has one frame");
        Ok(alloc_frame(&current::<X86_64>()).base().raw())
    }
}

/// Allocates a frame that is mapped at its physical address.
fn alloc_frame(harness: &Harness<X86_64>) -> Pfn {
    loop {
        let pfn = harness.alloc_frame();
        if pfn >= FIRST_IDENTITY_FRAME {
            return pfn;
        }
    }
}

fn unmap(version: Version, table: &mut X64PageTable<Frames>, page: Pfn, cpu: &Cpu<X86_64>) {
    cpu.call("unmap", |cpu| {
        cpu.will_reduce(PageRange::page(VA), Rights::empty());
        table.unmap_memory_region(VA.raw(), PAGE).expect("it is mapped");
        if version == Version::Correct {
            cpu.shoot_down(cpu.others(), move |cpu| cpu.flush_page(VA, InvalidateScope::Local));
        }
        cpu.free_frame(page);
    });
}

fn check(version: Version) -> CheckOutcome {
    let kernel = PageRange::new(VirtAddr::new(0xffff_8000_0000_0000), VirtAddr::new(0xffff_8080_0000_0000));
    let check = Check::<X86_64>::new().untagged().kernel_range(kernel).schedules(300);
    check.trap_pointer_stores(map_identity).explore(move |harness| {
        let mut table = X64PageTable::new(Frames, PagingType::Paging4Level).expect("there is memory");
        let page = alloc_frame(harness);
        let mapped = table.map_aliased_memory_region(VA.raw(), page.base().raw(), PAGE, MemoryAttributes::Writeback);
        mapped.expect("nothing is mapped");
        let root = table.into_page_table_root();
        // SAFETY: the root is mapped at its physical address, and the entry is a word of it.
        unsafe { (root as *mut u64).wrapping_add(SELF_MAP).write_volatile(0) };
        harness.cpus().for_each(|cpu| cpu.load_root(Pfn::containing(PhysAddr::new(root)), Tag::new(0)));
        let unmaps = program(move |cpu| {
            // SAFETY: the tables are those that are loaded, and no other code edits them.
            let mut table = unsafe { X64PageTable::open_active(Frames) }.expect("a root is loaded");
            unmap(version, &mut table, page, cpu);
        });
        vec![unmaps, program(|cpu| (0..3).for_each(|_| _ = cpu.read(VA)))]
    })
}

fn main() -> ExitCode {
    pagewright_trap::route();
    let as_expected = [Version::Correct, Version::LocalOnly].map(|version| {
        let outcome = check(version);
        println!("=== {version:?}\n{outcome}\n");
        let found = outcome.finding().map(|finding| finding.rule());
        found == (version != Version::Correct).then_some(Some(Rule::Reuse))
            && (found.is_some() || outcome.vacuity().is_none())
    });
    if as_expected == [true; 2] { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[test]
fn the_flushes_of_the_crate_are_judged() {
    assert_eq!(main(), ExitCode::SUCCESS);
}
