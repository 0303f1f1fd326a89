//! The `aarch64-paging` crate, unmodified, on a simulated machine.
//!
//! The crate maintains the TLB by itself. What is routed, and how:
//!
//! - **TLBI**: [`TranslationRegime::invalidate_va`] is where it issues one, and a trait, so [`Lab`]
//!   implements it and issues `TLBI VAE1IS` on the machine. When it is called, for which addresses
//!   and in which order is the crate's doing.
//! - **DSB ISH** is inline assembly behind no trait, and nothing on hosts other than arm64. It is
//!   made on the machine where 0.12.3 has it: at the end of each call that edits ([`Space::edit`]),
//!   and before a table is given back ([`Translation::deallocate_table`]). So whether the crate has
//!   these barriers is *not* judged.
//! - **DSB ISHST** neither: the crate stores through pointers, and the machine lets walkers see
//!   those at once.
//!
//! Tables lie in the machine's memory by the crate's [`Translation`]; while the crate is in the
//! middle of an edit, walkers of other CPUs read them, as on hardware.
//!
//! Five versions of one program of two CPUs; the mistakes are those of a regime, and one of a
//! caller. `cargo run -p pagewright-check --example aarch64_paging`; the exit status is 1 unless
//! the correct one is clean and the others are found. With 0.12.2 of the crate
//! (`cargo update -p aarch64-paging --precise 0.12.2`) the correct one is found, too:
//! `compact_subtables` gave tables back without a TLBI.

use aarch64_paging::Mapping;
use aarch64_paging::descriptor::{El1Attributes, PhysicalAddress, UpdatableDescriptor, VirtualAddress};
use aarch64_paging::paging::{Constraints, MemoryRegion, PageTable, Translation, TranslationRegime};
use pagewright_check::{
    Aarch64, Check, CheckOutcome, Cpu, Harness, Invalidate, InvalidateScope, InvalidateTarget, Level, PageRange, Pfn,
    PhysAddr, Rights, Rule, Tag, VirtAddr, program,
};
use std::cell::{Cell, RefCell};
use std::process::ExitCode;
use std::ptr::NonNull;
use std::rc::Rc;

const VA: VirtAddr = VirtAddr::new(1 << 30);
const TAG: Tag = Tag::new(1);
const PAGE: El1Attributes = El1Attributes::VALID
    .union(El1Attributes::USER)
    .union(El1Attributes::ACCESSED)
    .union(El1Attributes::NON_GLOBAL)
    .union(El1Attributes::INNER_SHAREABLE)
    .union(El1Attributes::PXN)
    .union(El1Attributes::UXN);

/// What the regime does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Correct,
    /// No TLBI.
    Dropped,
    /// `TLBI VAE1`, which is not broadcast.
    LocalOnly,
    /// `TLBI VALE1IS`, which leaves walk caches alone; so tables are given back too early.
    LastLevelOnly,
    /// The caller's thread moves before the DSB, which another CPU executes.
    DsbElsewhere,
}

thread_local! {
    /// The machine that runs on this host thread: the crate's TLBI has no handle to one.
    static EDITOR: RefCell<Option<(Cpu<Aarch64>, Version)>> = const { RefCell::new(None) };
}

/// EL1&0, with its TLBI on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lab;

impl TranslationRegime for Lab {
    type Attributes = El1Attributes;
    type Asid = ();
    type VaRange = ();

    fn invalidate_va(va: VirtualAddress) {
        let Some((cpu, version)) = EDITOR.with_borrow(Clone::clone) else { return };
        let (scope, last_level) = match version {
            Version::Dropped => return,
            Version::Correct | Version::DsbElsewhere => (InvalidateScope::Broadcast, false),
            Version::LocalOnly => (InvalidateScope::Local, false),
            Version::LastLevelOnly => (InvalidateScope::Broadcast, true),
        };
        let va = VirtAddr::new(va.0 as u64);
        cpu.invalidate(Invalidate {
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

/// Tables in the machine's memory.
struct Tables(Harness<Aarch64>);

impl Translation<El1Attributes> for Tables {
    fn allocate_table(&mut self) -> (NonNull<PageTable<El1Attributes>>, PhysicalAddress) {
        let at = PhysicalAddress(self.0.alloc_frame().base().raw() as usize);
        (self.physical_to_virtual(at), at)
    }

    unsafe fn deallocate_table(&mut self, table: NonNull<PageTable<El1Attributes>>) {
        let offset = table.addr().get() - self.0.host_address(Pfn::new(0)).addr();
        if let Some((cpu, _)) = EDITOR.with_borrow(Clone::clone) {
            cpu.complete();
        }
        self.0.free_frame(Pfn::containing(PhysAddr::new(offset as u64)));
    }

    fn physical_to_virtual(&self, at: PhysicalAddress) -> NonNull<PageTable<El1Attributes>> {
        let at = self.0.host_address(Pfn::containing(PhysAddr::new(at.0 as u64)));
        NonNull::new(at.cast()).expect("memory is mapped")
    }
}

/// What the editing CPU wants of the other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wants {
    Nothing,
    Dsb,
    End,
}

/// A page table of the crate's, and how its user is told.
struct Space {
    mapping: Mapping<Tables, Lab>,
    version: Version,
    wants: Rc<Cell<Wants>>,
}

impl Space {
    /// Edits, and waits as the crate would at the end.
    fn edit(&mut self, cpu: &Cpu<Aarch64>, edit: impl FnOnce(&mut Mapping<Tables, Lab>)) {
        edit(&mut self.mapping);
        if self.version != Version::DsbElsewhere {
            cpu.complete();
            return;
        }
        self.wants.set(Wants::Dsb);
        while self.wants.get() == Wants::Dsb {
            cpu.relax();
        }
    }
}

fn protect_unmap_and_compact(mut space: Space, region: &MemoryRegion, page: Pfn, cpu: &Cpu<Aarch64>) {
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
        for _ in 0..4 {
            cpu.alloc_frame();
        }
    }
    space.wants.set(Wants::End);
    cpu.cpus().for_each(|_| space.mapping.mark_inactive());
    EDITOR.set(None);
}

/// A thread of the program that uses the page for a while; then its CPU does what it is asked to.
fn use_page(wants: &Cell<Wants>, cpu: &Cpu<Aarch64>) {
    for value in 1..4 {
        cpu.read(VA).ok();
        cpu.write(VA, value).ok();
    }
    while wants.get() != Wants::End {
        if wants.get() == Wants::Dsb {
            cpu.complete();
            cpu.read(VA).ok();
            wants.set(Wants::Nothing);
        }
        cpu.relax();
    }
}

fn check(version: Version) -> CheckOutcome {
    Check::<Aarch64>::new().schedules(1000).seed(1).explore(move |harness| {
        EDITOR.set(Some((harness.cpu(0), version)));
        let mut mapping = Mapping::new(Tables(harness.clone()), 0, Lab);
        let region = MemoryRegion::new(VA.raw() as usize, VA.raw() as usize + 1);
        let (page, constraints) = (harness.alloc_frame(), Constraints::NO_BLOCK_MAPPINGS);
        let mapped = mapping.map_range(&region, PhysicalAddress(page.base().raw() as usize), PAGE, constraints);
        mapped.expect("nothing is mapped");
        let root = Pfn::containing(PhysAddr::new(mapping.root_address().0 as u64));
        for cpu in harness.cpus() {
            cpu.load_root(root, TAG);
            mapping.mark_active();
        }
        let wants = Rc::new(Cell::new(Wants::Nothing));
        let space = Space { mapping, version, wants: Rc::clone(&wants) };
        vec![
            program(move |cpu| protect_unmap_and_compact(space, &region, page, cpu)),
            program(move |cpu| use_page(&wants, cpu)),
        ]
    })
}

fn main() -> ExitCode {
    if all_as_wanted() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether each version came to what it should.
pub(crate) fn all_as_wanted() -> bool {
    let versions = [
        (Version::Correct, None),
        (Version::Dropped, Some(Rule::Rights)),
        (Version::LocalOnly, Some(Rule::Rights)),
        (Version::LastLevelOnly, Some(Rule::Reuse)),
        (Version::DsbElsewhere, Some(Rule::Rights)),
    ];
    let mut as_wanted = true;
    for (version, rule) in versions {
        let outcome = check(version);
        let wanted = rule.map_or("clean", Rule::id);
        println!("=== {version:?} (wanted: {wanted})\n{outcome}\n");
        as_wanted &= outcome.finding().map(|finding| finding.rule()) == rule.map(Some);
    }
    as_wanted
}
