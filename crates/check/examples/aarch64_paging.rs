//! Checks the `aarch64-paging` crate, unmodified.
//!
//! The crate maintains the TLB by itself. These operations are routed to the machine:
//!
//! - **TLBI**: the crate issues each TLBI through the trait method
//!   [`TranslationRegime::invalidate_va`]. [`SimulatedRegime`] implements it with `TLBI VAE1IS` on
//!   the machine. The crate decides when it is called, for which addresses and in which order.
//! - **DSB ISH** is inline assembly, behind no trait, and compiles to nothing on hosts other than
//!   arm64. The example makes it on the machine where version 0.12.3 has it: at the end of each
//!   call that edits ([`Space::edit`]), and before a table is freed
//!   ([`Translation::deallocate_table`]). So whether the crate has these barriers is *not* judged.
//! - **DSB ISHST** is not judged either: the crate stores through pointers, and walkers see such
//!   stores at once (`Check::delay_pointer_stores` is for code whose barriers are on the machine).
//!
//! The crate's [`Translation`] places tables in the memory of the machine. Walkers of other CPUs
//! read them while the crate is in the middle of an edit, as on hardware.
//!
//! The example runs five versions of one program on two CPUs:
//! `cargo run -p pagewright-check --example aarch64_paging`. Three bugs are those of a regime and
//! one is that of a caller. The exit status is 1 unless the correct version is clean and each of
//! the others is found. With version 0.12.2 of the crate
//! (`cargo update -p aarch64-paging --precise 0.12.2`), the correct version is found too:
//! `compact_subtables` freed tables without a TLBI.

#[path = "support/versions.rs"]
mod versions;

use aarch64_paging::Mapping;
use aarch64_paging::descriptor::{El1Attributes, PhysicalAddress, UpdatableDescriptor, VirtualAddress};
use aarch64_paging::paging::{Constraints, MemoryRegion, PageTable, Translation, TranslationRegime};
use pagewright_check::{
    Aarch64, Check, CheckOutcome, Cpu, Harness, Invalidate, InvalidateScope, InvalidateTarget, Level, PageRange, Pfn,
    PhysAddr, Rights, Rule, Tag, VirtAddr, current, program,
};
use std::cell::Cell;
use std::process::ExitCode;
use std::ptr::NonNull;
use std::rc::Rc;
use versions::have_expected_outcomes;

const VA: VirtAddr = VirtAddr::new(1 << 30);
const TAG: Tag = Tag::new(1);
const PAGE: El1Attributes = El1Attributes::VALID
    .union(El1Attributes::USER)
    .union(El1Attributes::ACCESSED)
    .union(El1Attributes::NON_GLOBAL)
    .union(El1Attributes::INNER_SHAREABLE)
    .union(El1Attributes::PXN)
    .union(El1Attributes::UXN);

/// The regime and its caller, correct or with one bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Correct,
    /// No TLBI.
    Dropped,
    /// `TLBI VAE1`, which is not broadcast.
    LocalOnly,
    /// `TLBI VALE1IS`, which leaves walk caches alone: tables are freed too early.
    LastLevelOnly,
    /// The caller migrates before the DSB, so that another CPU executes it.
    DsbElsewhere,
}

impl Version {
    const ALL: [Self; 5] = [Self::Correct, Self::Dropped, Self::LocalOnly, Self::LastLevelOnly, Self::DsbElsewhere];

    /// The rule that finds the bug.
    fn found_by(self) -> Option<Rule> {
        match self {
            Self::Correct => None,
            Self::Dropped | Self::LocalOnly | Self::DsbElsewhere => Some(Rule::Rights),
            Self::LastLevelOnly => Some(Rule::Reuse),
        }
    }
}

thread_local! {
    /// The version that runs: the crate calls its regime without a handle to it.
    static VERSION: Cell<Version> = const { Cell::new(Version::Correct) };
}

/// The EL1&0 regime, with its TLBI on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SimulatedRegime;

impl TranslationRegime for SimulatedRegime {
    type Attributes = El1Attributes;
    type Asid = ();
    type VaRange = ();

    fn invalidate_va(va: VirtualAddress) {
        let (scope, last_level) = match VERSION.get() {
            Version::Dropped => return,
            Version::Correct | Version::DsbElsewhere => (InvalidateScope::Broadcast, false),
            Version::LocalOnly => (InvalidateScope::Local, false),
            Version::LastLevelOnly => (InvalidateScope::Broadcast, true),
        };
        let va = VirtAddr::new(va.0 as u64);
        current::<Aarch64>().invalidate(Invalidate {
            scope,
            target: InvalidateTarget::Page { tag: TAG, va, level: Level::PTE, last_level },
        });
    }

    unsafe fn activate(_: PhysicalAddress, (): (), (): ()) -> usize {
        unreachable!("roots are loaded by the machine")
    }

    unsafe fn deactivate(_: usize, (): (), (): ()) {
        unreachable!("roots are loaded by the machine")
    }
}

/// Places tables in the memory of the machine.
struct Tables(Harness<Aarch64>);

impl Translation<El1Attributes> for Tables {
    fn allocate_table(&mut self) -> (NonNull<PageTable<El1Attributes>>, PhysicalAddress) {
        let at = PhysicalAddress(self.0.alloc_frame().base().raw() as usize);
        (self.physical_to_virtual(at), at)
    }

    unsafe fn deallocate_table(&mut self, table: NonNull<PageTable<El1Attributes>>) {
        let offset = table.addr().get() - self.0.phys_offset();
        current::<Aarch64>().complete();
        self.0.free_frame(Pfn::containing(PhysAddr::new(offset as u64)));
    }

    fn physical_to_virtual(&self, at: PhysicalAddress) -> NonNull<PageTable<El1Attributes>> {
        let at = self.0.host_address(Pfn::containing(PhysAddr::new(at.0 as u64)));
        NonNull::new(at.cast()).expect("the memory of the machine is mapped")
    }
}

/// What the editing CPU asks of the other CPU.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CpuRequest {
    Nothing,
    Dsb,
    End,
}

/// A page table of the crate, and the request to the CPU that uses it.
struct Space {
    mapping: Mapping<Tables, SimulatedRegime>,
    version: Version,
    request: Rc<Cell<CpuRequest>>,
}

impl Space {
    /// Edits, and then waits as the crate does on arm64.
    fn edit(&mut self, cpu: &Cpu<Aarch64>, edit: impl FnOnce(&mut Mapping<Tables, SimulatedRegime>)) {
        edit(&mut self.mapping);
        if self.version != Version::DsbElsewhere {
            cpu.complete();
            return;
        }
        self.request.set(CpuRequest::Dsb);
        while self.request.get() == CpuRequest::Dsb {
            cpu.relax();
        }
    }
}

fn protect_unmap_and_compact(
    mut space: Space,
    region: &MemoryRegion,
    (page, kernel_root): (Pfn, Pfn),
    cpu: &Cpu<Aarch64>,
) {
    cpu.call("mprotect", |cpu| {
        cpu.will_reduce(PageRange::page(VA), Rights::READ);
        let protect = |_: &MemoryRegion, entry: &mut UpdatableDescriptor<El1Attributes>| {
            entry.modify_flags(El1Attributes::READ_ONLY, El1Attributes::empty())
        };
        space.edit(cpu, |mapping| mapping.modify_range(region, &protect).expect("it is mapped"));
    });
    cpu.call("munmap", |cpu| {
        cpu.will_reduce(PageRange::page(VA), Rights::empty());
        let none = (PhysicalAddress(0), El1Attributes::empty(), Constraints::empty());
        space.edit(cpu, |mapping| mapping.map_range(region, none.0, none.1, none.2).expect("it is mapped"));
    });
    if matches!(space.version, Version::Correct | Version::LastLevelOnly) {
        cpu.free_frame(page);
        space.edit(cpu, Mapping::compact_subtables);
    }
    // The tables are freed when `space` is dropped. No CPU may have them loaded then, or cached.
    space.request.set(CpuRequest::End);
    while space.request.get() == CpuRequest::End {
        cpu.relax();
    }
    cpu.load_root(kernel_root, Tag::new(0));
    cpu.invalidate(Invalidate { scope: InvalidateScope::Broadcast, target: InvalidateTarget::Tag(TAG) });
    cpu.complete();
    cpu.cpus().for_each(|_| space.mapping.mark_inactive());
}

/// A thread uses the page for a while; then its CPU serves requests, and leaves the space.
fn use_page(request: &Cell<CpuRequest>, kernel_root: Pfn, cpu: &Cpu<Aarch64>) {
    for value in 1..4 {
        cpu.read(VA).ok();
        cpu.write(VA, value).ok();
    }
    while request.get() != CpuRequest::End {
        if request.get() == CpuRequest::Dsb {
            cpu.complete();
            cpu.read(VA).ok();
            request.set(CpuRequest::Nothing);
        }
        cpu.relax();
    }
    cpu.load_root(kernel_root, Tag::new(0));
    request.set(CpuRequest::Nothing);
}

pub(crate) fn check(version: Version) -> CheckOutcome {
    Check::<Aarch64>::new().schedules(1000).seed(1).explore(move |harness| {
        VERSION.set(version);
        let mut mapping = Mapping::new(Tables(harness.clone()), 0, SimulatedRegime);
        let region = MemoryRegion::new(VA.raw() as usize, VA.raw() as usize + 1);
        let (page, constraints) = (harness.alloc_frame(), Constraints::NO_BLOCK_MAPPINGS);
        let mapped = mapping.map_range(&region, PhysicalAddress(page.base().raw() as usize), PAGE, constraints);
        mapped.expect("nothing is mapped");
        let kernel_root = harness.alloc_frame();
        let root = Pfn::containing(PhysAddr::new(mapping.root_address().0 as u64));
        for cpu in harness.cpus() {
            cpu.load_root(root, TAG);
            mapping.mark_active();
        }
        let request = Rc::new(Cell::new(CpuRequest::Nothing));
        let space = Space { mapping, version, request: Rc::clone(&request) };
        vec![
            program(move |cpu| protect_unmap_and_compact(space, &region, (page, kernel_root), cpu)),
            program(move |cpu| use_page(&request, kernel_root, cpu)),
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
