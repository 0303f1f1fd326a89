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

/// A level of the page-table tree.
///
/// Counted from the leaves: 0 = PTE, 1 = PMD, 2 = PUD, 3 = PGD, the names that Linux uses for four
/// levels, and 4 = PML5, the root of five-level paging. A table of a level has 512 entries that
/// span [`Level::span`] bytes each.
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
    /// The number of entries in a table, at every level.
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

    as_number!("The number, 0 at the leaves.", "The number as an index.");

    /// log2 of [`Self::span`].
    #[inline]
    pub const fn shift(self) -> u32 {
        PAGE_SHIFT + 9 * self.0 as u32
    }

    /// The bytes of virtual address space under one entry of a table of this level.
    #[inline]
    pub const fn span(self) -> u64 {
        1 << self.shift()
    }

    /// The number of base pages under one entry.
    #[inline]
    pub const fn pages(self) -> u64 {
        1 << (9 * self.0 as u32)
    }

    /// The bytes under a whole table of this level.
    #[inline]
    pub const fn table_span(self) -> u64 {
        1 << (self.shift() + 9)
    }

    /// The order of the block that a leaf of this level maps; `None` from PGD on.
    #[inline]
    pub const fn order(self) -> Option<Order> {
        Order::try_new(9 * self.0)
    }

    /// The level below; `None` below PTE.
    #[inline]
    pub const fn down(self) -> Option<Self> {
        match self.0 {
            0 => None,
            n => Some(Self(n - 1)),
        }
    }

    /// The index of the entry for `addr` in a table of this level.
    #[inline]
    pub const fn index_of(self, addr: crate::VirtAddr) -> usize {
        (addr.raw() >> self.shift()) as usize & (Self::ENTRIES - 1)
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
