//! Numbers that name things: CPUs, nodes, address spaces, tags, files, lineages, debts.

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name($inner);

        impl $name {
            /// The id with number `raw`.
            #[inline]
            pub const fn new(raw: $inner) -> Self {
                Self(raw)
            }

            /// The number.
            #[inline]
            pub const fn raw(self) -> $inner {
                self.0
            }

            /// The number as an index.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A CPU of the machine, counted from 0.
    CpuId(u16)
}
id! {
    /// A NUMA node, counted from 0.
    ///
    /// A node without CPUs is a slower tier.
    NodeId(u8)
}
id! {
    /// An address space; never reused while the machine runs, so that a CPU can recognise the space
    /// whose translations it holds under a tag (Linux's `mm->context.ctx_id`), and wide enough for
    /// all that will ever be. 0 is no space.
    SpaceId(u64)
}
id! {
    /// The hardware's tag for translations of one address space: a PCID on x86-64, an ASID on
    /// arm64.
    Tag(u16)
}
id! {
    /// A file or shared-memory object with a page cache of its own.
    FileId(u32)
}
id! {
    /// A node of the tree of forks under which anonymous pages are found by the reverse map.
    ForkNodeId(u32)
}
id! {
    /// When the debt arose under which a parked frame stands: an epoch of the ledger, wide enough
    /// never to wrap, and whether several debts were merged. 0 is no debt. Nobody but the ledger
    /// can tell whether a key is settled.
    DebtKey(u64)
}

impl DebtKey {
    /// The frame owes nothing.
    pub const NONE: Self = Self(0);
    const MERGED: u64 = 1 << 63;

    /// The key under which two frames stand once they are one block: as young as the younger, and
    /// for every debt up to that age.
    #[inline]
    pub const fn merge(self, other: Self) -> Self {
        if self.0 == other.0 || other.0 == 0 {
            return self;
        }
        if self.0 == 0 {
            return other;
        }
        let (a, b) = (self.epoch(), other.epoch());
        Self(if a > b { a } else { b } | Self::MERGED)
    }

    /// The ledger's epoch at which the youngest debt in it arose.
    #[inline]
    pub const fn epoch(self) -> u64 {
        self.0 & !Self::MERGED
    }
}
