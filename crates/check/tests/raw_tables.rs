//! Page tables in raw words, for the kernels that tests write by hand.

use pagewright_check::{
    Cpu, Harness, Invalidate, InvalidateScope, InvalidateTarget, Isa, IsaKind, Level, Pfn, PhysAddr, Tag, VirtAddr,
};

/// The tag under which the CPUs run the space of a test.
pub(crate) const TAG: Tag = Tag::new(1);

/// The address of page `index`.
pub(crate) const fn page(index: u64) -> VirtAddr {
    VirtAddr::new((1 << 30) + (index << 12))
}

/// The tables of a space: the root first, and the last may be shared.
pub(crate) struct Tables(pub(crate) [Pfn; 4]);

impl Tables {
    /// Makes the tables above `last`, with writable pointers.
    pub(crate) fn new<I: Isa>(harness: &Harness<I>, last: Pfn) -> Self {
        let tables = [harness.alloc_frame(), harness.alloc_frame(), harness.alloc_frame(), last];
        for (level, below) in [Level::PGD, Level::PUD, Level::PMD].into_iter().zip(&tables[1..]) {
            let table = tables[Level::PGD.index() - level.index()];
            harness.cpu(0).store(entry(table, level), pointer(I::KIND, *below, true));
        }
        Self(tables)
    }

    /// Makes tables of its own, and loads them on all CPUs.
    pub(crate) fn run_everywhere<I: Isa>(harness: &Harness<I>) -> Self {
        let tables = Self::new(harness, harness.alloc_frame());
        harness.cpus().for_each(|cpu| cpu.load_root(tables.root(), TAG));
        tables
    }

    pub(crate) fn root(&self) -> Pfn {
        self.0[0]
    }

    /// The address of the entry of page `index`.
    pub(crate) fn leaf(&self, index: u64) -> PhysAddr {
        self.0[3].base().add(index * 8)
    }
}

/// The address of the entry of page 0 in a table of `level`.
pub(crate) fn entry(table: Pfn, level: Level) -> PhysAddr {
    table.base().add(level.index_of(page(0)) as u64 * 8)
}

/// The word of a pointer to `table` (Intel SDM table 4-19, Arm ARM D8.3.1).
pub(crate) fn pointer(isa: IsaKind, table: Pfn, writable: bool) -> u64 {
    table.base().raw()
        | match (isa, writable) {
            (IsaKind::X86_64, true) => 0b111,
            (IsaKind::X86_64, false) => 0b101,
            (IsaKind::Aarch64, true) => 0b11,
            (IsaKind::Aarch64, false) => 1 << 62 | 0b11,
        }
}

/// The word of a leaf (Intel SDM table 4-20, Arm ARM D8.3.1).
pub(crate) fn leaf(isa: IsaKind, pfn: Pfn, writable: bool) -> u64 {
    pfn.base().raw()
        | match (isa, writable) {
            (IsaKind::X86_64, true) => 1 << 63 | 0b111,
            (IsaKind::X86_64, false) => 1 << 63 | 0b101,
            (IsaKind::Aarch64, true) => 0b11 << 53 | 0b1111 << 8 | 1 << 6 | 0b11,
            (IsaKind::Aarch64, false) => 0b11 << 53 | 0b1111 << 8 | 0b11 << 6 | 0b11,
        }
}

/// Invalidates a page on this CPU (x86-64) or issues the broadcast (arm64).
pub(crate) fn invalidate<I: Isa>(cpu: &Cpu<I>, index: u64, last_level: bool) {
    let scope = match I::KIND {
        IsaKind::X86_64 => InvalidateScope::Local,
        IsaKind::Aarch64 => InvalidateScope::Broadcast,
    };
    let target = InvalidateTarget::Page { tag: TAG, va: page(index), level: Level::PTE, last_level };
    cpu.invalidate(Invalidate { scope, target });
}

/// Flushes the leaf of page 0 from all TLBs, and waits.
pub(crate) fn flush_leaf<I: Isa>(cpu: &Cpu<I>) {
    match I::KIND {
        IsaKind::Aarch64 => {
            cpu.publish();
            invalidate(cpu, 0, true);
            cpu.complete();
        }
        IsaKind::X86_64 => {
            invalidate(cpu, 0, true);
            cpu.shoot_down(cpu.others(), |other| invalidate(other, 0, true));
        }
    }
}
