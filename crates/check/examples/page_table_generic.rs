//! Checks `page-table-generic` (tgoskits) 0.9.1, unmodified, on arm64.
//!
//! - `unmap` flushes each leaf that it clears. A table that becomes empty is unhooked from the
//!   table above and freed at once: a walk after the flush of its last leaf may have left a
//!   walk-cache entry that leads to it. This is tgoskits #2009, proposed and not merged yet.
//! - `unmap_page_deferred` gives the tables to its caller ([`Version::Deferred`]), whose duty is to
//!   flush, walk caches too, before it reclaims them. Then the same program is clean.
//!
//! Both with each granule of arm64, 4, 16 and 64 KiB, for which the crate is generic.
//!
//! The crate's handlers are static methods and its allocator must be `Send + Sync + 'static`:
//! [`current`] is the machine and the CPU that run when they are called.
//!
//! `cargo run -p pagewright-check --example page_table_generic`. The exit status is 1 unless the
//! first is found and the second is clean.

#[path = "support/versions.rs"]
mod versions;

use page_table_generic::{
    FrameAllocator, MapConfig, PageTable, PageTableEntry, PhysAddr, TableMeta, VirtAddr as CrateAddr,
};
use pagewright_check::{
    Aarch64, Check, CheckOutcome, Cpu, Granule, InvalidateScope, PageRange, Pfn, Rights, Rule, Tag, VirtAddr, current,
    program,
};
use std::process::ExitCode;
use versions::have_expected_outcomes;

const VA: VirtAddr = VirtAddr::new(1 << 30);
const K4: usize = 4 << 10;
const K16: usize = 16 << 10;

/// How the page is unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// `unmap`, which frees the tables that become empty.
    Unmap,
    /// `unmap_page_deferred`, a flush, and then `reclaim`.
    Deferred,
}

impl Version {
    const ALL: [Self; 2] = [Self::Unmap, Self::Deferred];

    /// The rule that finds the bug.
    fn found_by(self) -> Option<Rule> {
        (self == Self::Unmap).then_some(Rule::Reuse)
    }
}

/// An arm64 descriptor (Arm ARM D8.3.1).
#[derive(Clone, Copy, Debug)]
struct Descriptor(u64);

impl PageTableEntry for Descriptor {
    /// The attributes of a page.
    type PteConfig = u64;

    fn new_page(paddr: PhysAddr, config: u64, is_huge: bool) -> Self {
        Self(paddr.as_usize() as u64 | config | if is_huge { 0b01 } else { 0b11 })
    }

    fn new_table(paddr: PhysAddr) -> Self {
        Self(paddr.as_usize() as u64 | 0b11)
    }

    fn paddr(&self, _: bool) -> PhysAddr {
        PhysAddr::from_usize((self.0 & 0x0000_ffff_ffff_f000) as usize)
    }

    fn config(&self, _: bool) -> u64 {
        self.0 & !0x0000_ffff_ffff_f003
    }

    fn present(&self) -> bool {
        self.0 & 1 != 0
    }

    fn huge(&self, is_dir: bool) -> bool {
        is_dir && self.0 & 0b11 == 0b01
    }

    fn unused(&self) -> bool {
        self.0 == 0
    }

    fn clear(&mut self) {
        self.0 = 0;
    }
}

/// Stage 1 with pages of this size, and addresses of 48 bits (Arm ARM D8.2.5).
#[derive(Clone, Copy)]
struct Stage1<const PAGE: usize>;

impl<const PAGE: usize> TableMeta for Stage1<PAGE> {
    type P = Descriptor;
    const PAGE_SIZE: usize = PAGE;
    const LEVEL_BITS: &[usize] = match PAGE {
        K4 => &[9; 4],
        K16 => &[1, 11, 11, 11],
        _ => &[6, 13, 13],
    };
    const MAX_BLOCK_LEVEL: usize = if PAGE == K4 { 3 } else { 2 };

    fn flush(va: Option<CrateAddr>) {
        let cpu = current::<Aarch64>();
        cpu.publish();
        match va {
            Some(va) => cpu.flush_page(VirtAddr::new(va.as_usize() as u64), InvalidateScope::Broadcast),
            None => cpu.flush_all(InvalidateScope::Broadcast),
        }
        cpu.complete();
    }
}

/// The frames of the machine.
#[derive(Clone, Copy)]
struct Frames;

impl FrameAllocator for Frames {
    fn alloc_frame(&self) -> Option<PhysAddr> {
        Some(PhysAddr::from_usize(current::<Aarch64>().alloc_frame().base().raw() as usize))
    }

    fn dealloc_frame(&self, frame: PhysAddr) {
        current::<Aarch64>().free_frame(pfn(frame));
    }

    fn phys_to_virt(&self, paddr: PhysAddr) -> *mut u8 {
        current::<Aarch64>().host_address(pfn(paddr))
    }
}

fn pfn(at: PhysAddr) -> Pfn {
    Pfn::new((at.as_usize() / K4) as u32)
}

fn munmap<const PAGE: usize>(
    version: Version,
    table: &mut PageTable<Stage1<PAGE>, Frames>,
    page: Pfn,
    cpu: &Cpu<Aarch64>,
) {
    let va = CrateAddr::from_usize(VA.raw() as usize);
    cpu.call("munmap", |cpu| {
        cpu.will_reduce(PageRange::new(VA, VA.add(PAGE as u64)), Rights::empty());
        match version {
            Version::Unmap => table.unmap(va, PAGE).expect("it is mapped"),
            Version::Deferred => {
                let (.., tables) = table.unmap_page_deferred(va).expect("it is mapped");
                Stage1::<PAGE>::flush(Some(va));
                // SAFETY: TLBI VAE1IS and DSB ISH have removed what led to the tables.
                unsafe { tables.reclaim() };
            }
        }
    });
    cpu.free_frame(page);
}

fn check((granule, version): (Granule, Version)) -> CheckOutcome {
    match granule {
        Granule::Size4K => check_pages_of::<K4>(granule, version),
        Granule::Size16K => check_pages_of::<K16>(granule, version),
        Granule::Size64K => check_pages_of::<{ 64 << 10 }>(granule, version),
    }
}

fn check_pages_of<const PAGE: usize>(granule: Granule, version: Version) -> CheckOutcome {
    let check = Check::<Aarch64>::new().granule(granule).schedules(1000).delay_pointer_stores();
    check.explore(move |harness| {
        let page = harness.alloc_frame();
        let mut table = PageTable::<Stage1<PAGE>, _>::new(Frames).expect("there is memory");
        let mapped = table.map(&MapConfig {
            vaddr: CrateAddr::from_usize(VA.raw() as usize),
            paddr: PhysAddr::from_usize(page.base().raw() as usize),
            size: PAGE,
            // UXN, PXN, nG, AF, inner shareable, AP[1].
            pte: 0b11 << 53 | 0b1111 << 8 | 1 << 6,
            allow_huge: false,
            flush: false,
        });
        mapped.expect("nothing is mapped");
        let root = pfn(table.root_paddr());
        harness.cpus().for_each(|cpu| cpu.load_root(root, Tag::new(1)));
        vec![
            program(move |cpu| {
                munmap(version, &mut table, page, cpu);
                // The CPUs have the root loaded until the end.
                table.leak();
            }),
            program(|cpu| (0..3).for_each(|_| _ = cpu.read(VA))),
        ]
    })
}

fn main() -> ExitCode {
    if all_as_expected() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether each version has the expected result.
pub(crate) fn all_as_expected() -> bool {
    let granules = [Granule::Size4K, Granule::Size16K, Granule::Size64K];
    let all = granules.map(|granule| Version::ALL.map(|version| (granule, version)));
    have_expected_outcomes(all.as_flattened(), |(_, version)| version.found_by(), check)
}
