//! Identifiers: CPUs, nodes, address spaces, tags, files, fork nodes, debts.

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
    /// A CPU, counted from 0.
    CpuId(u16)
}
id! {
    /// A NUMA node, counted from 0.
    ///
    /// A node without CPUs is a slower memory tier.
    NodeId(u8)
}
id! {
    /// An address space (Linux's `mm->context.ctx_id`).
    ///
    /// Never reused while the machine runs, so a CPU can recognise the space whose translations it
    /// holds under a tag. 64 bits do not wrap. 0 is no space.
    SpaceId(u64)
}
id! {
    /// The hardware's tag of an address space's translations: a PCID or an ASID.
    Tag(u16)
}
id! {
    /// A file or shared-memory object with a page cache of its own.
    FileId(u32)
}
id! {
    /// A node of the tree of forks, by which the reverse map finds an anonymous page.
    ForkNodeId(u32)
}
id! {
    /// The debt of a parked frame: the ledger's epoch in which the debt arose.
    ///
    /// A flag tells whether several debts were merged. The epoch does not wrap. 0 is no debt. Only
    /// the ledger can tell whether a key is settled.
    DebtKey(u64)
}

id! {
    /// The epoch of the ledger up to which every debt of a frame is settled.
    ///
    /// It only rises.
    DebtFloor(u64)
}

impl DebtFloor {
    /// The floor of a ledger in which nothing is known to be settled.
    pub const NONE: Self = Self(0);

    /// Whether a key is settled.
    #[inline]
    pub const fn covers(self, key: DebtKey) -> bool {
        key.epoch() <= self.0
    }
}

impl DebtKey {
    /// The frame owes nothing.
    pub const NONE: Self = Self(0);
    const MERGED: u64 = 1 << 63;

    /// The key of frames that owe two debts.
    ///
    /// Of two different keys, it has the later epoch and covers every debt up to that epoch.
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

    /// Whether the key stands for several debts.
    #[inline]
    pub const fn is_merged(self) -> bool {
        self.0 & Self::MERGED != 0
    }

    /// The ledger's epoch in which its latest debt arose.
    #[inline]
    pub const fn epoch(self) -> u64 {
        self.0 & !Self::MERGED
    }
}
