//! The small kernel that the programs of the corpus share.
//!
//! An address space ([`Space`]) has one lock and four page tables with raw entries (Intel SDM vol.
//! 3A §4.5, Arm ARM D8.3). It never flushes: the program of each bug flushes as its kernel did.

use crate::corpus::Version;
use pagewright_arch::Effects;
use pagewright_check::{
    Cpu, Harness, HarnessLock, Invalidate, InvalidateScope, InvalidateTarget, Isa, IsaKind, Level, PageRange, Pfn,
    PhysAddr, Rights, Tag, VirtAddr, X86_64,
};
use std::rc::Rc;

/// The tag under which the space of [`Space::run_everywhere`] is loaded.
pub(crate) const TAG: Tag = Tag::new(1);

/// The address of page `index` in the user memory of the programs.
pub(crate) const fn page(index: u64) -> VirtAddr {
    VirtAddr::new((1 << 30) + (index << 12))
}

/// The range of page `index`.
pub(crate) const fn pages(index: u64) -> PageRange {
    PageRange::page(page(index))
}

/// An address space whose tables cover the addresses of [`page`].
pub(crate) struct Space {
    /// Root first.
    tables: Vec<Pfn>,
    /// The lock that the kernel holds while it changes entries, where that kernel holds one.
    pub(crate) lock: HarnessLock<()>,
}

impl Space {
    /// Makes a space that no CPU has loaded.
    pub(crate) fn new<I: Isa>(harness: &Harness<I>) -> Rc<Self> {
        let tables: Vec<Pfn> = (0..4).map(|_| harness.alloc_frame()).collect();
        let space = Rc::new(Self { tables, lock: HarnessLock::new(()) });
        for (level, below) in [Level::PGD, Level::PUD, Level::PMD].into_iter().zip(&space.tables[1..]) {
            let entry = match I::KIND {
                // A, U/S, R/W, P: as Linux, which sets the accessed bit itself.
                IsaKind::X86_64 => 0b10_0111,
                IsaKind::Aarch64 => 0b11,
            };
            harness.cpu(0).store(space.entry(level, 0), below.base().raw() | entry);
        }
        space
    }

    /// Makes a space and loads it on all CPUs.
    pub(crate) fn run_everywhere<I: Isa>(harness: &Harness<I>) -> Rc<Self> {
        let space = Self::new(harness);
        harness.cpus().for_each(|cpu| cpu.load_root(space.root(), TAG));
        space
    }

    pub(crate) fn root(&self) -> Pfn {
        self.tables[0]
    }

    /// The table whose entries map pages.
    pub(crate) fn last_table(&self) -> Pfn {
        self.tables[3]
    }

    /// The address of the entry of `level` for page `index`.
    pub(crate) fn entry(&self, level: Level, index: u64) -> PhysAddr {
        let table = self.tables[Level::PGD.index() - level.index()];
        table.base().add(level.index_of(page(index)) as u64 * 8)
    }

    /// Stores the entry of page `index`.
    #[track_caller]
    pub(crate) fn map<I: Isa>(&self, cpu: &Cpu<I>, index: u64, pfn: Pfn, rights: Rights) {
        let writable = rights.contains(Rights::WRITE);
        let bits = match (I::KIND, writable) {
            // XD, A, U/S, P; D, R/W.
            (IsaKind::X86_64, false) => 1 << 63 | 0b10_0101,
            (IsaKind::X86_64, true) => 1 << 63 | 0b110_0111,
            // UXN, PXN, nG, AF, inner shareable, AP[1], page; AP[2].
            (IsaKind::Aarch64, true) => 0b11 << 53 | 0b1111 << 8 | 1 << 6 | 0b11,
            (IsaKind::Aarch64, false) => 0b11 << 53 | 0b1111 << 8 | 0b11 << 6 | 0b11,
        };
        cpu.store(self.entry(Level::PTE, index), pfn.base().raw() | bits);
    }

    /// Maps a new page whose first word is `value`, before the programs start.
    pub(crate) fn map_new<I: Isa>(&self, harness: &Harness<I>, index: u64, rights: Rights, value: u64) -> Pfn {
        let pfn = harness.alloc_frame();
        fill(harness, pfn, value);
        self.map(&harness.cpu(0), index, pfn, rights);
        pfn
    }

    /// Clears the entry of page `index` atomically, and returns the frame that it mapped.
    #[track_caller]
    pub(crate) fn clear<I: Isa>(&self, cpu: &Cpu<I>, index: u64) -> Option<Pfn> {
        frame_of(cpu.swap(self.entry(Level::PTE, index), 0))
    }

    /// The frame of page `index`, if its entry is writable.
    pub(crate) fn writable(&self, cpu: &Cpu<X86_64>, index: u64) -> Option<Pfn> {
        let entry = cpu.load(self.entry(Level::PTE, index));
        frame_of(entry).filter(|_| entry & 0b10 != 0)
    }
}

fn frame_of(entry: u64) -> Option<Pfn> {
    (entry & 1 != 0).then(|| Pfn::containing(PhysAddr::new(entry & 0x0000_ffff_ffff_f000)))
}

/// Stores the first word of a frame by physical address, as the kernel.
pub(crate) fn fill<I: Isa>(harness: &Harness<I>, pfn: Pfn, value: u64) {
    harness.sim().write(pfn.base(), &value.to_le_bytes());
}

/// Copies the first word of a frame by physical address, as the kernel copies a page.
pub(crate) fn copy<I: Isa>(harness: &Harness<I>, from: Pfn, to: Pfn) {
    let mut value = [0; 8];
    harness.sim().read(from.base(), &mut value);
    fill(harness, to, u64::from_le_bytes(value));
}

/// A thread that reads `pages` pages twice and ignores page faults.
#[track_caller]
pub(crate) fn reads<I: Isa>(cpu: &Cpu<I>, pages: u64) {
    for index in (0..pages).chain(0..pages) {
        cpu.read(page(index)).ok();
    }
}

/// Executes `INVLPG` on this CPU and, by IPI, on all others; waits until all have.
#[track_caller]
pub(crate) fn flush_everywhere(cpu: &Cpu<X86_64>, index: u64) {
    cpu.flush_page(page(index), InvalidateScope::Local);
    cpu.shoot_down(cpu.others(), move |other| other.flush_page(page(index), InvalidateScope::Local));
}

/// Flushes page 0 and releases a lock: as fixed, the flush comes first; as shipped, the release.
#[track_caller]
pub(crate) fn flush_and_unlock(version: Version, cpu: &Cpu<X86_64>, unlock: impl FnOnce()) {
    match version {
        Version::Fixed => {
            flush_everywhere(cpu, 0);
            unlock();
        }
        Version::Shipped => {
            unlock();
            flush_everywhere(cpu, 0);
        }
    }
}

/// Executes `TLBI VAE1IS` with `operand` in its register.
///
/// Bits 43 to 0 of the register are bits 55 to 12 of the address (Arm ARM C5.5).
#[track_caller]
pub(crate) fn tlbi_vae1is<I: Isa>(cpu: &Cpu<I>, operand: u64) {
    let va = VirtAddr::new((operand & ((1 << 44) - 1)) << 12);
    let target = InvalidateTarget::Page { tag: TAG, va, level: Level::PTE, last_level: false };
    cpu.invalidate(Invalidate { scope: InvalidateScope::Broadcast, target });
}
