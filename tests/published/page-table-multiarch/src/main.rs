//! Checks `page_table_multiarch` 0.6.2, unmodified, on x86-64, with its own flushes.
//!
//! The crate flushes when a cursor is dropped, by `INVLPG` or `MOV CR3`, and only where
//! `cfg(target_os = "none")`. `cargo pagewright` sets that for the crate, and `pagewright-trap`
//! runs the instructions on the machine:
//!
//! ```sh
//! cargo run -p cargo-pagewright -- --cfg page_table_multiarch:target_os=none \
//!     run --manifest-path tests/published/page-table-multiarch/Cargo.toml
//! ```
//!
//! The exit status is 1 unless the correct version is clean and the other is found. A build without
//! the `cfg` says so: then the correct version is found, too.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use memory_addr::{PhysAddr, VirtAddr};
use page_table_multiarch::x86_64::{X64PageTable, X64PagingMetaData};
use page_table_multiarch::{MappingFlags, PageSize, PagingHandler, PagingMetaData};
use pagewright_check::{Check, CheckOutcome, Cpu, PageRange, Pfn, Rights, Rule, Tag, X86_64, current, program};
use std::mem::ManuallyDrop;
use std::process::ExitCode;

const VA: usize = 1 << 30;

/// How an unmap flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// The cursor flushes this CPU, and an IPI the others, before the frame is freed.
    Correct,
    /// Only the cursor flushes.
    LocalOnly,
}

/// The frames of the machine.
struct Frames;

impl PagingHandler for Frames {
    fn alloc_frames(num: usize, _: usize) -> Option<PhysAddr> {
        assert_eq!(num, 1, "a table has one frame");
        Some(address(current::<X86_64>().alloc_frame()))
    }

    fn dealloc_frames(at: PhysAddr, _: usize) {
        current::<X86_64>().free_frame(pfn(at));
    }

    fn phys_to_virt(at: PhysAddr) -> VirtAddr {
        (current::<X86_64>().phys_offset() + usize::from(at)).into()
    }
}

fn address(pfn: Pfn) -> PhysAddr {
    (pfn.base().raw() as usize).into()
}

fn pfn(at: PhysAddr) -> Pfn {
    Pfn::new((usize::from(at) >> 12) as u32)
}

fn va() -> pagewright_check::VirtAddr {
    pagewright_check::VirtAddr::new(VA as u64)
}

fn munmap(version: Version, table: &mut X64PageTable<Frames>, cpu: &Cpu<X86_64>) {
    cpu.call("munmap", |cpu| {
        cpu.will_reduce(PageRange::page(va()), Rights::empty());
        let (page, ..) = table.cursor().unmap(VA.into()).expect("it is mapped");
        if version == Version::Correct {
            cpu.shoot_down(cpu.others(), |_| X64PagingMetaData::flush_tlb(Some(VA.into())));
        }
        cpu.free_frame(pfn(page));
    });
}

fn check(version: Version) -> CheckOutcome {
    Check::<X86_64>::new().schedules(500).explore(move |harness| {
        // The CPUs have the root loaded until the end, so the tables are not freed.
        let mut table = ManuallyDrop::new(X64PageTable::<Frames>::try_new().expect("there is memory"));
        harness.cpus().for_each(|cpu| cpu.load_root(pfn(table.root_paddr()), Tag::new(1)));
        let rights = MappingFlags::READ | MappingFlags::WRITE | MappingFlags::USER;
        let page = address(harness.alloc_frame());
        table.cursor().map(VA.into(), page, PageSize::Size4K, rights).expect("nothing is mapped");
        vec![
            program(move |cpu| munmap(version, &mut table, cpu)),
            program(|cpu| (0..3).for_each(|_| _ = cpu.read(va()))),
        ]
    })
}

fn main() -> ExitCode {
    pagewright_trap::route();
    let as_expected = [Version::Correct, Version::LocalOnly].map(|version| {
        let outcome = check(version);
        println!("=== {version:?}\n{outcome}\n");
        let found = outcome.finding().map(|finding| finding.rule());
        found == (version != Version::Correct).then_some(Some(Rule::Reuse))
    });
    match as_expected {
        [true, true] => ExitCode::SUCCESS,
        [false, true] => {
            eprintln!("the correct version is found: build it by cargo pagewright, as the file says");
            ExitCode::FAILURE
        }
        [_, false] => ExitCode::FAILURE,
    }
}

#[test]
fn the_flushes_of_the_crate_are_judged() {
    assert_eq!(main(), ExitCode::SUCCESS);
}
