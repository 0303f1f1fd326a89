//! Checks code that flushes by the `x86_64` crate's own instructions, unmodified.
//!
//! `unmap` returns a `MapperFlush`, whose `flush` executes `INVLPG`; the interrupt handlers of the
//! other CPUs execute it, too. The instructions are trapped and executed on the machine.
//!
//! `cargo run -p pagewright-trap --example x86_64_crate`. The exit status is 1 unless the correct
//! version is clean and the others are found.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use pagewright_check::{Check, CheckOutcome, Cpu, Harness, PageRange, Pfn, PhysAddr, Rights, Rule, Tag, program};
use std::process::ExitCode;
use x86_64::VirtAddr;
use x86_64::instructions::tlb;
use x86_64::structures::paging::{FrameAllocator, Mapper, OffsetPageTable, Page, PageTable};
use x86_64::structures::paging::{PageTableFlags, PhysFrame, Size4KiB};

type Machine = pagewright_check::X86_64;

const VA: u64 = 1 << 30;

/// How an unmap flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Correct,
    /// `MapperFlush::flush` alone: other CPUs keep the page.
    LocalOnly,
    /// `MapperFlush::ignore`.
    Ignored,
}

struct Frames(Harness<Machine>);

// SAFETY: the machine hands out each frame to one owner at a time.
unsafe impl FrameAllocator<Size4KiB> for Frames {
    fn allocate_frame(&mut self) -> Option<PhysFrame> {
        Some(frame(self.0.alloc_frame()))
    }
}

fn frame(pfn: Pfn) -> PhysFrame {
    PhysFrame::containing_address(x86_64::PhysAddr::new(pfn.base().raw()))
}

fn mapper(harness: &Harness<Machine>, root: Pfn) -> OffsetPageTable<'_> {
    // SAFETY: the frame is the root table and lies in memory of atomic words; nothing else refers
    // to it until the mapper is dropped.
    let table = unsafe { &mut *harness.host_address(root).cast::<PageTable>() };
    // SAFETY: physical address plus offset is where the memory of the machine lies.
    unsafe { OffsetPageTable::new(table, VirtAddr::new(harness.phys_offset() as u64)) }
}

fn munmap(version: Version, root: Pfn, cpu: &Cpu<Machine>) {
    let page = Page::<Size4KiB>::containing_address(VirtAddr::new(VA));
    cpu.call("munmap", |cpu| {
        cpu.will_reduce(PageRange::page(pagewright_check::VirtAddr::new(VA)), Rights::empty());
        let (unmapped, flush) = mapper(cpu, root).unmap(page).expect("it is mapped");
        match version {
            Version::Ignored => flush.ignore(),
            Version::Correct | Version::LocalOnly => flush.flush(),
        }
        if version == Version::Correct {
            cpu.shoot_down(cpu.others(), |_| tlb::flush(VirtAddr::new(VA)));
        }
        cpu.free_frame(Pfn::containing(PhysAddr::new(unmapped.start_address().as_u64())));
    });
}

fn check(version: Version) -> CheckOutcome {
    Check::<Machine>::new().schedules(500).explore(move |harness| {
        let (root, shared) = (harness.alloc_frame(), harness.alloc_frame());
        let flags = PageTableFlags::PRESENT | PageTableFlags::WRITABLE | PageTableFlags::USER_ACCESSIBLE;
        let page = Page::<Size4KiB>::containing_address(VirtAddr::new(VA));
        // SAFETY: the page is memory of the simulated program, not of this process.
        let mapped = unsafe { mapper(harness, root).map_to(page, frame(shared), flags, &mut Frames(harness.clone())) };
        mapped.expect("nothing is mapped").ignore();
        harness.cpus().for_each(|cpu| cpu.load_root(root, Tag::new(1)));
        let reads = program(|cpu| (0..3).for_each(|_| _ = cpu.read(pagewright_check::VirtAddr::new(VA))));
        vec![program(move |cpu| munmap(version, root, cpu)), reads]
    })
}

fn main() -> ExitCode {
    if all_as_expected() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether each version has the expected result.
pub(crate) fn all_as_expected() -> bool {
    pagewright_trap::route();
    [Version::Correct, Version::LocalOnly, Version::Ignored].into_iter().all(|version| {
        let outcome = check(version);
        println!("=== {version:?}\n{outcome}\n");
        let found = outcome.finding().map(|finding| finding.rule());
        found == (version != Version::Correct).then_some(Some(Rule::Reuse))
            && (found.is_some() || outcome.vacuity().is_none())
    })
}
