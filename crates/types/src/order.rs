//! Sizes that are powers of two: block orders and page-table levels.

use crate::addr::{PAGE_SHIFT, PAGE_SIZE};
use core::fmt;

/// Defines how a small number is read, with the first lines of the documentation.
macro_rules! as_number {
    ($raw:literal, $index:literal) => {
        #[doc = $raw]
        #[inline]
        pub const fn raw(self) -> u8 {
            self.0
        }

        #[doc = $index]
        #[inline]
        pub const fn index(self) -> usize {
            self.0 as usize
        }
    };
}

/// log2 of a number of base pages: order 0 is 4 KiB, order 9 is 2 MiB, order 18 is 1 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Order(u8);

impl Order {
    /// One base page.
    pub const ZERO: Self = Self(0);
    /// The block that a PMD-level leaf maps, 2 MiB.
    pub const PMD: Self = Self(9);
    /// The block that a PUD-level leaf maps, 1 GiB, and the buddy allocator's largest.
    pub const PUD: Self = Self(18);
    /// The number of orders in the buddy allocator: 0 to [`Self::PUD`].
    pub const COUNT: usize = 19;

    /// Order `raw`.
    ///
    /// # Panics
    /// If `raw` is above [`Self::PUD`].
    #[inline]
    pub const fn new(raw: u8) -> Self {
        assert!(raw <= Self::PUD.0, "order above 1 GiB");
        Self(raw)
    }

    /// Order `raw`, or `None` above [`Self::PUD`].
    #[inline]
    pub const fn try_new(raw: u8) -> Option<Self> {
        if raw <= Self::PUD.0 { Some(Self(raw)) } else { None }
    }

    as_number!("The exponent.", "The exponent as an index.");

    /// The number of base pages in a block of this order.
    #[inline]
    pub const fn frames(self) -> u32 {
        1 << self.0
    }

    /// The size of a block of this order, in bytes.
    #[inline]
    pub const fn bytes(self) -> u64 {
        PAGE_SIZE << self.0
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The size of base pages and of page tables.
///
/// x86-64 has 4 KiB only. arm64 has three (TG0 and TG1 of TCR_EL1; Arm ARM D8.2.1): a table is as
/// large as a base page, so a larger granule also has more entries in a table, and longer spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Granule {
    /// 4 KiB: four levels of 512 entries for addresses of 48 bits.
    #[default]
    Size4K,
    /// 16 KiB: three levels of 2048 entries, below a root of two entries.
    Size16K,
    /// 64 KiB: two levels of 8192 entries, below a root of 64 entries.
    Size64K,
}

impl Granule {
    /// The order of a base page, and of the block that a table takes.
    #[inline]
    pub const fn order(self) -> Order {
        Order(2 * self as u8)
    }

    /// The size of a base page and of a table, in bytes.
    #[inline]
    pub const fn bytes(self) -> u64 {
        self.order().bytes()
    }

    /// The level `raw` of a tree with this granule, counted from the leaves as [`Level`] is.
    ///
    /// # Panics
    /// If `raw` is above that of [`Granule::top`].
    #[cfg(feature = "granules")]
    pub const fn level(self, raw: u8) -> Level {
        assert!(
            raw <= self.top().raw() || matches!(self, Self::Size4K) && raw == Level::PML5.raw(),
            "level above the root"
        );
        Level((self as u8) << Level::GRANULE_SHIFT | raw)
    }

    /// The level of the root, for addresses of 48 bits (Arm ARM D8.2.5).
    #[cfg(feature = "granules")]
    pub const fn top(self) -> Level {
        let raw = match self {
            Self::Size4K | Self::Size16K => Level::PGD.0,
            Self::Size64K => Level::PUD.0,
        };
        Level((self as u8) << Level::GRANULE_SHIFT | raw)
    }
}

/// A level of the page-table tree.
///
/// Counted from the leaves: 0 = PTE, 1 = PMD, 2 = PUD, 3 = PGD, the names that Linux uses for four
/// levels, and 4 = PML5, the root of five-level paging. A table of a level has 512 entries that
/// span [`Level::span`] bytes each. With the feature `granules`, `Granule::level` makes the levels
/// of a tree with another [`Granule`], which the level knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Level(u8);

impl Level {
    /// Entries map base pages.
    pub const PTE: Self = Self(0);
    /// Entries span 2 MiB.
    pub const PMD: Self = Self(1);
    /// Entries span 1 GiB.
    pub const PUD: Self = Self(2);
    /// Entries span 512 GiB; the root of a four-level tree.
    pub const PGD: Self = Self(3);
    /// Entries span 256 TiB; the root of a five-level tree (Intel SDM vol. 3A §4.5.1).
    pub const PML5: Self = Self(4);
    /// The number of levels of a four-level tree.
    pub const COUNT: usize = 4;
    /// The number of levels of the deepest tree that a machine may have.
    pub const MOST: usize = 5;
    /// The number of entries in a table of 4 KiB, at every level.
    pub const ENTRIES: usize = 512;

    /// Level `raw`.
    ///
    /// # Panics
    /// If `raw` is above 4.
    #[inline]
    pub const fn new(raw: u8) -> Self {
        assert!((raw as usize) < Self::MOST, "level above PML5");
        Self(raw)
    }

    /// Above the number there is the granule, with the feature `granules`.
    const GRANULE_SHIFT: u32 = 3;

    /// The number, 0 at the leaves.
    #[inline]
    pub const fn raw(self) -> u8 {
        if cfg!(feature = "granules") { self.0 & ((1 << Self::GRANULE_SHIFT) - 1) } else { self.0 }
    }

    /// The number as an index.
    #[inline]
    pub const fn index(self) -> usize {
        self.raw() as usize
    }

    /// The granule of the tree.
    #[inline]
    pub const fn granule(self) -> Granule {
        match self.0 >> Self::GRANULE_SHIFT {
            1 if cfg!(feature = "granules") => Granule::Size16K,
            2 if cfg!(feature = "granules") => Granule::Size64K,
            _ => Granule::Size4K,
        }
    }

    /// The level `raw` of the same tree; it may be above the root.
    #[inline]
    pub const fn of_same_tree(self, raw: u8) -> Self {
        Self(self.0 - self.raw() + raw)
    }

    /// Whether entries map base pages.
    #[inline]
    pub const fn is_last(self) -> bool {
        self.raw() == Self::PTE.0
    }

    /// log2 of [`Self::span`].
    #[inline]
    pub const fn shift(self) -> u32 {
        let more = self.granule().order().0 as u32;
        PAGE_SHIFT + more + (9 + more) * self.raw() as u32
    }

    /// The number of entries in a table of this level: 512 with 4 KiB.
    #[inline]
    pub const fn entries(self) -> usize {
        match (self.granule(), self.raw()) {
            (Granule::Size4K, _) => Self::ENTRIES,
            (Granule::Size16K, 3) => 2,
            (Granule::Size16K, _) => 2048,
            (Granule::Size64K, 2) => 64,
            (Granule::Size64K, _) => 8192,
        }
    }

    /// The bytes of virtual address space under one entry of a table of this level.
    #[inline]
    pub const fn span(self) -> u64 {
        1 << self.shift()
    }

    /// The number of base pages under one entry.
    #[inline]
    pub const fn pages(self) -> u64 {
        1 << (self.shift() - PAGE_SHIFT)
    }

    /// The bytes under a whole table of this level.
    #[inline]
    pub const fn table_span(self) -> u64 {
        self.span() * self.entries() as u64
    }

    /// The order of the block that a leaf of this level maps; `None` from PGD on.
    #[inline]
    pub const fn order(self) -> Option<Order> {
        Order::try_new((self.shift() - PAGE_SHIFT) as u8)
    }

    /// The level below; `None` below PTE.
    #[inline]
    pub const fn down(self) -> Option<Self> {
        if self.is_last() { None } else { Some(Self(self.0 - 1)) }
    }

    /// The index of the entry for `addr` in a table of this level.
    #[inline]
    pub const fn index_of(self, addr: crate::VirtAddr) -> usize {
        (addr.raw() >> self.shift()) as usize & (self.entries() - 1)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["PTE", "PMD", "PUD", "PGD", "PML5"][self.index()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_spans_the_block_that_it_maps() {
        for raw in 0..3 {
            let level = Level::new(raw);
            assert_eq!(level.span(), level.order().map_or(0, Order::bytes));
        }
        assert_eq!(Level::PGD.order(), None);
        assert_eq!((Level::PGD.table_span(), Level::PML5.table_span()), (1 << 48, 1 << 57));
    }
}
