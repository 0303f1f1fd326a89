//! Checks the arm64 page tables of `libkernel` (moss), versions 0.1.3 and 0.2.0, unmodified.
//!
//! A write fault on a page that is shared replaces the page by a copy: [`walk_and_modify_region`]
//! gives the entry another output address. Arm ARM D8.16.1 requires break-before-make for that.
//!
//! - **0.1.3** stores the new entry over the live one. Its `TLBInvalidator` has no methods, so the
//!   flush is the caller's, and comes too late. The caller can break the entry by itself: it makes
//!   the entry invalid, flushes, and maps the copy ([`Version::BrokenFirst`]).
//! - **0.2.0** clears a valid entry first, and calls `TLBInvalidator::invalidate` before it stores
//!   the new one. The caller's duty is a flush there that waits for all CPUs.
//!
//! The crate stores through pointers; [`Mapper`] gives it the memory of the machine.
//!
//! `cargo run -p pagewright-check --example libkernel`. The exit status is 1 unless 0.1.3 is found
//! and the other two are clean.
//!
//! [`walk_and_modify_region`]: libkernel_0_2::arch::arm64::memory::pg_walk::walk_and_modify_region

#[path = "support/versions.rs"]
mod versions;

use pagewright_check::{
    Aarch64, Check, CheckOutcome, Cpu, InvalidateScope, PageRange, Pfn, Rights, Rule, Tag, VirtAddr, current, program,
};
use std::process::ExitCode;
use versions::have_expected_outcomes;

const VA: VirtAddr = VirtAddr::new(1 << 30);

/// The version of the crate, and what its caller does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// 0.1.3: the entry is replaced by one call.
    Replaced0_1_3,
    /// 0.1.3: the caller makes the entry invalid and flushes before it maps the copy.
    BrokenFirst0_1_3,
    /// 0.2.0: the entry is replaced by one call.
    Replaced0_2_0,
}

impl Version {
    const ALL: [Self; 3] = [Self::Replaced0_1_3, Self::BrokenFirst0_1_3, Self::Replaced0_2_0];

    /// The rule that finds the bug.
    fn found_by(self) -> Option<Rule> {
        (self == Self::Replaced0_1_3).then_some(Rule::Rights)
    }
}

/// Makes the stores visible, invalidates the page on all CPUs, and waits.
fn flush(cpu: &Cpu<Aarch64>) {
    cpu.publish();
    cpu.flush_page(VA, InvalidateScope::Broadcast);
    cpu.complete();
}

/// The glue of one version of the crate.
macro_rules! space {
    ($name:ident, $libkernel:ident, $context:path, { $($hooks:item)* }) => {
        mod $name {
            use super::{Aarch64, Pfn, VA, current};
            use $libkernel::arch::arm64::memory::pg_descriptors::{L3Descriptor, MemoryType};
            use $libkernel::arch::arm64::memory::pg_tables::{L0Table, MapAttributes, map_range};
            use $libkernel::arch::arm64::memory::pg_walk::walk_and_modify_region;
            use $libkernel::error::Result;
            use $libkernel::memory::address::{PA, TPA, TVA, VA as KernelVa};
            use $libkernel::memory::paging::permissions::PtePermissions;
            use $libkernel::memory::paging::walk::WalkContext;
            use $libkernel::memory::paging::*;
            use $libkernel::memory::region::{PhysMemoryRegion, VirtMemoryRegion};
            use $context as Context;

            const PAGE: usize = 4096;

            struct Mapper;

            impl PageTableMapper for Mapper {
                unsafe fn with_page_table<T: PgTable, R>(
                    &mut self,
                    table: TPA<PgTableArray<T>>,
                    access: impl FnOnce(TVA<PgTableArray<T>>) -> R,
                ) -> Result<R> {
                    Ok(access(TVA::from_value(current::<Aarch64>().phys_offset() + table.value())))
                }
            }

            struct Allocator;

            impl PageAllocator for Allocator {
                fn allocate_page_table<T: PgTable>(&mut self) -> Result<TPA<PgTableArray<T>>> {
                    Ok(TPA::from_value(current::<Aarch64>().alloc_frame().base().raw() as usize))
                }
            }

            struct Flushes;

            impl TLBInvalidator for Flushes {
                $($hooks)*
            }

            fn address(pfn: Pfn) -> PA {
                PA::from_value(pfn.base().raw() as usize)
            }

            pub(super) fn map(root: Pfn, page: Pfn) {
                let attributes = MapAttributes {
                    phys: PhysMemoryRegion::new(address(page), PAGE),
                    virt: VirtMemoryRegion::new(KernelVa::from_value(VA.raw() as usize), PAGE),
                    mem_type: MemoryType::Normal,
                    perms: PtePermissions::rw(true),
                };
                let mut context = Context { allocator: &mut Allocator, mapper: &mut Mapper, invalidator: &Flushes };
                map_range(root_table(root), attributes, &mut context).expect("nothing is mapped");
            }

            fn root_table(root: Pfn) -> TPA<PgTableArray<L0Table>> {
                TPA::from_value(address(root).value())
            }

            /// Makes the entry of the page lead to `page`, or invalid.
            pub(super) fn modify(root: Pfn, page: Option<Pfn>) {
                let region = VirtMemoryRegion::new(KernelVa::from_value(VA.raw() as usize), PAGE);
                let mut context = WalkContext { mapper: &mut Mapper, invalidator: &Flushes };
                let entry = page.map_or(L3Descriptor::invalid(), |page| {
                    L3Descriptor::new_map_pa(address(page), MemoryType::Normal, PtePermissions::rw(true))
                });
                walk_and_modify_region(root_table(root), region, &mut context, |_, _| entry).expect("it is mapped");
            }
        }
    };
}

space!(v0_1_3, libkernel_0_1, libkernel_0_1::arch::arm64::memory::pg_tables::MappingContext, {});

space!(v0_2_0, libkernel_0_2, libkernel_0_2::memory::paging::PagingContext, {
    fn prepare(&self, _: &TranslationChange) {
        current::<Aarch64>().publish();
    }

    fn invalidate(&self, _: &TranslationChange) {
        super::flush(&current());
    }

    fn publish(&self, _: &TranslationChange) {
        current::<Aarch64>().publish();
    }
});

/// The page is replaced by a copy, as a copy-on-write fault does.
fn write_fault(version: Version, root: Pfn, shared: Pfn, cpu: &Cpu<Aarch64>) {
    cpu.call("write fault", |cpu| {
        cpu.will_reduce(PageRange::page(VA), Rights::empty());
        let copy = cpu.alloc_frame();
        match version {
            Version::Replaced0_1_3 => {
                v0_1_3::modify(root, Some(copy));
                flush(cpu);
            }
            Version::BrokenFirst0_1_3 => {
                v0_1_3::modify(root, None);
                flush(cpu);
                v0_1_3::map(root, copy);
                cpu.publish();
            }
            Version::Replaced0_2_0 => v0_2_0::modify(root, Some(copy)),
        }
    });
    cpu.free_frame(shared);
}

fn check(version: Version) -> CheckOutcome {
    Check::<Aarch64>::new().schedules(1000).delay_pointer_stores().explore(move |harness| {
        let (root, shared) = (harness.alloc_frame(), harness.alloc_frame());
        match version {
            Version::Replaced0_1_3 | Version::BrokenFirst0_1_3 => v0_1_3::map(root, shared),
            Version::Replaced0_2_0 => v0_2_0::map(root, shared),
        }
        harness.cpus().for_each(|cpu| cpu.load_root(root, Tag::new(1)));
        vec![
            program(move |cpu| write_fault(version, root, shared, cpu)),
            program(|cpu| (0..4).for_each(|_| _ = cpu.read(VA))),
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
