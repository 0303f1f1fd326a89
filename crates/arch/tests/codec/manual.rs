//! How a hardware walker reads a page-table word, written from the manuals.
//!
//! Sources: Intel SDM vol. 3A tables 4-15 to 4-20, Arm ARM D8.3.1 and D8.4. This module shares no
//! code with the codecs, so a misplaced bit in a codec fails a test.

use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_types::{Level, PhysAddr};

/// The properties of a leaf that a walker can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The output address of the translation.
    pub(crate) output: PhysAddr,
    /// Loads from user mode.
    pub(crate) user_read: bool,
    /// Stores from user mode.
    pub(crate) user_write: bool,
    /// Fetches from user mode.
    pub(crate) user_exec: bool,
    /// Loads from kernel mode (CR4.SMAP or PSTATE.PAN set, so never from user pages).
    pub(crate) kernel_read: bool,
    /// Stores from kernel mode (CR0.WP, CR4.SMAP or PSTATE.PAN set).
    pub(crate) kernel_write: bool,
    /// Fetches from kernel mode (CR4.SMEP set).
    pub(crate) kernel_exec: bool,
    /// Whether the translation is valid under every tag.
    pub(crate) global: bool,
    /// Whether the accessed flag is set.
    pub(crate) accessed: bool,
    /// Whether the leaf is dirty.
    pub(crate) dirty: bool,
}

/// The result of one step of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walk {
    /// The walk faults.
    Fault,
    /// The walk continues in the next table.
    Next {
        /// The table.
        table: PhysAddr,
        /// Whether stores through the entries below fault.
        write_protected: bool,
    },
    /// The walk ends at a leaf.
    Done(Seen),
}

/// An instruction set as its manual describes it.
pub(crate) trait Manual: Isa {
    /// One step of a walk: the walker reads `raw` in a table of `level`.
    fn walk(level: Level, raw: u64) -> Walk;

    /// The bits of a leaf that the walker changes.
    ///
    /// Set at every access, set at a store, cleared at a store.
    const UPDATES: (u64, u64, u64);
}

const fn bit(raw: u64, n: u32) -> bool {
    raw >> n & 1 == 1
}

/// Bits `high` to `low` of `raw`, in place.
const fn field(raw: u64, high: u32, low: u32) -> PhysAddr {
    PhysAddr::new(raw & (u64::MAX >> (63 - high)) & (u64::MAX << low))
}

impl Manual for X86_64 {
    const UPDATES: (u64, u64, u64) = (0x20, 0x40, 0);

    fn walk(level: Level, raw: u64) -> Walk {
        if !bit(raw, 0) {
            return Walk::Fault;
        }
        let page_size = bit(raw, 7);
        if level == Level::PGD || (level > Level::PTE && !page_size) {
            return Walk::Next { table: field(raw, 51, 12), write_protected: !bit(raw, 1) };
        }
        let low = if level == Level::PUD {
            30
        } else if level == Level::PMD {
            21
        } else {
            12
        };
        let (write, user, no_exec) = (bit(raw, 1), bit(raw, 2), bit(raw, 63));
        Walk::Done(Seen {
            output: field(raw, 51, low),
            user_read: user,
            user_write: user && write,
            user_exec: user && !no_exec,
            kernel_read: !user,
            kernel_write: !user && write,
            kernel_exec: !user && !no_exec,
            global: bit(raw, 8),
            accessed: bit(raw, 5),
            dirty: bit(raw, 6),
        })
    }
}

impl Manual for Aarch64 {
    const UPDATES: (u64, u64, u64) = (0x400, 0, 0x80);

    fn walk(level: Level, raw: u64) -> Walk {
        if !bit(raw, 0) {
            return Walk::Fault;
        }
        if bit(raw, 1) && level > Level::PTE {
            return Walk::Next { table: field(raw, 47, 12), write_protected: bit(raw, 62) };
        }
        // Bit 1 clear at the last level and a block in the root are reserved (D8.3.1.2), and fault.
        if (level == Level::PTE && !bit(raw, 1)) || level == Level::PGD {
            return Walk::Fault;
        }
        let low = if level == Level::PUD {
            30
        } else if level == Level::PMD {
            21
        } else {
            12
        };
        let (user, read_only, modifier) = (bit(raw, 6), bit(raw, 7), bit(raw, 51));
        let write = !read_only || modifier;
        Walk::Done(Seen {
            output: field(raw, 47, low),
            user_read: user,
            user_write: user && write,
            // UXN alone decides: a page without AP[1] is execute-only for user mode.
            user_exec: !bit(raw, 54),
            kernel_read: !user,
            kernel_write: !user && write,
            // EL1 never executes a page that EL0 may write, whatever PXN is (Arm ARM D8.4).
            kernel_exec: !bit(raw, 53) && (!user || !write),
            global: !bit(raw, 11),
            accessed: bit(raw, 10),
            dirty: !read_only,
        })
    }
}
