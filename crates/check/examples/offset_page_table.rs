//! Checks the `x86_64` crate's `OffsetPageTable`, unmodified.
//!
//! The memory of the machine is one mapping on the host, and `phys_offset` is where it begins. The
//! crate leaves flushing to its caller: `map_to`, `unmap` and `update_flags` return a
//! `MapperFlush`, whose `flush` would execute `INVLPG`. Here the `MapperFlush` is ignored, and the
//! flush is made on the machine ([`Space::flush`]). `clean_up` returns nothing that asks for a
//! flush. The oracle is told which frames are allocated and freed, and which rights each call
//! reduces.
//!
//! The example runs four versions of one program on two CPUs:
//! `cargo run -p pagewright-check --example offset_page_table`. The exit status is 1 unless the
//! correct version is clean and each of the others is found.
//!
//! Not judged: in which order the crate stores. It stores through pointers, and walkers see such
//! stores at once.

#[path = "support/versions.rs"]
mod versions;

use pagewright_check::{
    Check, CheckOutcome, Cpu, Harness, InvalidateScope, PageRange, Pfn, Rights, Rule, Tag, X86_64, program,
};
use std::cell::RefCell;
use std::process::ExitCode;
use std::rc::Rc;
use versions::have_expected_outcomes;
use x86_64::structures::paging::{FrameAllocator, FrameDeallocator, Mapper, OffsetPageTable, mapper::CleanUp};
use x86_64::structures::paging::{Page, PageTable, PageTableFlags, PhysFrame, Size4KiB};
use x86_64::{PhysAddr, VirtAddr};

const VA: pagewright_check::VirtAddr = pagewright_check::VirtAddr::new(1 << 30);
const READ: PageTableFlags =
    PageTableFlags::PRESENT.union(PageTableFlags::USER_ACCESSIBLE).union(PageTableFlags::NO_EXECUTE);
const WRITE: PageTableFlags = READ.union(PageTableFlags::WRITABLE);

/// The kernel around the crate, correct or with one bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Correct,
    /// No CPU flushes.
    Dropped,
    /// Only the editing CPU flushes.
    LocalOnly,
    /// The tables that `clean_up` unlinks are freed without a flush.
    EarlyFree,
}

impl Version {
    const ALL: [Self; 4] = [Self::Correct, Self::Dropped, Self::LocalOnly, Self::EarlyFree];

    /// The rule that finds the bug.
    fn found_by(self) -> Option<Rule> {
        match self {
            Self::Correct => None,
            Self::Dropped | Self::LocalOnly => Some(Rule::Rights),
            Self::EarlyFree => Some(Rule::Reuse),
        }
    }
}

/// An address space of the crate.
struct Space {
    harness: Harness<X86_64>,
    root: Pfn,
    version: Version,
    /// Tables that `clean_up` has unlinked.
    unlinked: RefCell<Vec<Pfn>>,
}

fn frame(pfn: Pfn) -> PhysFrame {
    PhysFrame::containing_address(PhysAddr::new(pfn.base().raw()))
}

fn pfn(frame: PhysFrame) -> Pfn {
    Pfn::containing(pagewright_check::PhysAddr::new(frame.start_address().as_u64()))
}

// SAFETY: the machine hands out each frame to one owner at a time.
unsafe impl FrameAllocator<Size4KiB> for &Space {
    fn allocate_frame(&mut self) -> Option<PhysFrame> {
        Some(frame(self.harness.alloc_frame()))
    }
}

impl FrameDeallocator<Size4KiB> for &Space {
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame) {
        self.unlinked.borrow_mut().push(pfn(frame));
    }
}

impl Space {
    fn mapper(&self) -> OffsetPageTable<'_> {
        let offset = VirtAddr::new(self.harness.phys_offset() as u64);
        // SAFETY: the frame is the root table and lies in memory of atomic words. No other
        // reference to it exists until the mapper is dropped, because no method of the mapper is a
        // point at which another CPU runs.
        let root = unsafe { &mut *self.harness.host_address(self.root).cast::<PageTable>() };
        // SAFETY: physical address plus offset is where the memory of the machine lies, and the
        // tables of the root are owned by this space.
        unsafe { OffsetPageTable::new(root, offset) }
    }

    fn flush(&self, cpu: &Cpu<X86_64>) {
        if self.version != Version::Dropped {
            cpu.flush_page(VA, InvalidateScope::Local);
        }
        if matches!(self.version, Version::Correct | Version::EarlyFree) {
            cpu.shoot_down(cpu.others(), |other| other.flush_page(VA, InvalidateScope::Local));
        }
    }
}

fn protect_unmap_and_clean_up(space: &Space, page: Page, cpu: &Cpu<X86_64>) {
    cpu.call("mprotect", |cpu| {
        cpu.will_reduce(PageRange::page(VA), Rights::READ);
        // SAFETY: the page is memory of the simulated program, not of this process.
        unsafe { space.mapper().update_flags(page, READ) }.expect("it is mapped").ignore();
        space.flush(cpu);
    });
    cpu.call("munmap", |cpu| {
        cpu.will_reduce(PageRange::page(VA), Rights::empty());
        let (frame, flush) = space.mapper().unmap(page).expect("it is mapped");
        flush.ignore();
        space.flush(cpu);
        space.harness.free_frame(pfn(frame));
    });
    if matches!(space.version, Version::Correct | Version::EarlyFree) {
        // SAFETY: the tables are not reallocated before they are freed below.
        unsafe { space.mapper().clean_up(&mut &*space) };
        if space.version == Version::Correct {
            space.flush(cpu);
        }
        space.unlinked.take().into_iter().for_each(|table| cpu.free_frame(table));
    }
}

fn check(version: Version) -> CheckOutcome {
    Check::<X86_64>::new().schedules(1000).seed(1).explore(move |harness| {
        let root = harness.alloc_frame();
        let space = Space { harness: harness.clone(), root, version, unlinked: RefCell::default() };
        let (space, page) = (Rc::new(space), Page::containing_address(VirtAddr::new(VA.raw())));
        // SAFETY: the frame is new.
        unsafe { space.mapper().map_to(page, frame(harness.alloc_frame()), WRITE, &mut &*space) }
            .expect("free")
            .ignore();
        harness.cpus().for_each(|cpu| cpu.load_root(root, Tag::new(1)));
        vec![
            program(move |cpu| protect_unmap_and_clean_up(&space, page, cpu)),
            program(|cpu| (1..4).for_each(|value| _ = (cpu.read(VA), cpu.write(VA, value)))),
        ]
    })
}

fn main() -> ExitCode {
    if all_as_expected() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether each version has the expected result.
pub(crate) fn all_as_expected() -> bool {
    have_expected_outcomes(&Version::ALL, Version::found_by, check)
}
