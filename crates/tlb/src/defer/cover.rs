//! What must be flushed: the cover that an operation owes for an entry which another has edited.
//!
//! [`required_cover`] is the table in the header of this crate as a function. Debug builds assert
//! it where deferred flushes are settled. A test reaches each cell, and compares it with what the
//! machine has flushed; it also compares the header with the function.
//!
//! **INV-TLB-COVER** An operation flushes at least what `required_cover` says for the state of the
//! entry on which it depends: nothing, the entry, the pages of the table, the space, or everything.
//! Debug builds assert it where deferred flushes are settled, and the header of `tlb` shows the
//! table.
//!
//! Neighbours: `table_key`, `batch` and [`Gather`](crate::Gather) settle, and assert.
//!
//! Not guaranteed: that no more is flushed. On x86 a CPU that has missed a generation flushes the
//! whole tag.

/// An operation that depends on an entry which another may have cleared or weakened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependentOperation {
    /// An install of a leaf or a table in the entry.
    ///
    /// [`Tlb::flush_before_install`](crate::Tlb::flush_before_install).
    Install,
    /// A store of many leaves, under an exclusive hold of the space.
    ///
    /// [`Tlb::flush_pending_table`](crate::Tlb::flush_pending_table).
    StoreMany,
    /// An edit of a leaf without rights, of `PROT_NONE`.
    ///
    /// [`Tlb::may_owe_flush`](crate::Tlb::may_owe_flush).
    EditProtNone,
    /// A gather that has [met](crate::Gather::meet) the table, and settles.
    Gather,
    /// The same, beside other gathers of the space.
    ///
    /// [`Gather::concurrent`](crate::Gather::concurrent).
    ConcurrentGather,
    /// A gather that has taken over [the keys](crate::Gather::hand_over) of the table, and settles.
    HandOver,
    /// The debt of another entry, which is settled alone ([`Debt::settle`](crate::Debt::settle)).
    SettleEntry,
    /// A batch that depends on entries of the table, and settles.
    ///
    /// [`Batch::absorb_pending`](crate::Batch::absorb_pending).
    AbsorbPending,
    /// An entry gets the right to store to its folio, or the kernel stores.
    ///
    /// [`Tlb::settle_folio`](crate::Tlb::settle_folio).
    Widen,
}

impl DependentOperation {
    /// All operations, in the order of the table.
    pub const ALL: [Self; 9] = [
        Self::Install,
        Self::StoreMany,
        Self::EditProtNone,
        Self::Gather,
        Self::ConcurrentGather,
        Self::HandOver,
        Self::SettleEntry,
        Self::AbsorbPending,
        Self::Widen,
    ];
}

/// What is deferred of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryDeferral {
    /// Nothing, or all of it is settled.
    Settled,
    /// It was cleared, and is pending under a must-flush key that is not settled.
    Pending,
    /// It was cleared, and is pending under a may-linger key that is not settled.
    Lingering,
    /// It is a leaf of the copy of a page that moved, and a may-linger key is not settled.
    Covered,
    /// A concurrent gather that is open has edited its table.
    Gathered,
    /// It is a leaf that was weakened, under a must-flush key that is not settled.
    Weakened,
    /// A debt of the space was dropped, or deferred without a place.
    Unplaced,
    /// It was cleared, and is pending under a merged key that is not settled.
    Merged,
}

impl EntryDeferral {
    /// All states, in the order of the table.
    pub const ALL: [Self; 8] = [
        Self::Settled,
        Self::Pending,
        Self::Lingering,
        Self::Covered,
        Self::Gathered,
        Self::Weakened,
        Self::Unplaced,
        Self::Merged,
    ];
}

/// What a flush covers; each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlushCover {
    /// No translation.
    Nothing,
    /// Those of the entry.
    Entry,
    /// Those of every page below the table.
    Table,
    /// Those of the space.
    Space,
    /// Those of every space.
    Everything,
}

/// The least that `operation` flushes for an entry of which `deferral` holds.
///
/// `None`: the two do not meet. An install finds no leaf, an edit of a leaf finds one, and an
/// operation that holds the space exclusively finds no gather open. A covered leaf has rights:
/// what takes them all flushes its address, and so what it covers.
#[must_use]
pub const fn required_cover(operation: DependentOperation, deferral: EntryDeferral) -> Option<FlushCover> {
    use DependentOperation as Op;
    use EntryDeferral as Entry;
    Some(match (operation, deferral) {
        (_, Entry::Settled) | (Op::SettleEntry, _) => FlushCover::Nothing,
        (Op::Install, Entry::Weakened | Entry::Covered)
        | (Op::StoreMany | Op::Gather | Op::HandOver, Entry::Gathered)
        | (Op::EditProtNone, Entry::Pending | Entry::Lingering | Entry::Covered)
        | (Op::Widen, Entry::Pending | Entry::Lingering | Entry::Merged) => return None,
        (Op::EditProtNone, _) | (Op::Install, Entry::Gathered) => FlushCover::Entry,
        (Op::HandOver, Entry::Pending | Entry::Lingering | Entry::Covered | Entry::Weakened) => FlushCover::Table,
        (Op::Install | Op::StoreMany | Op::Gather | Op::ConcurrentGather | Op::HandOver, Entry::Merged) => {
            FlushCover::Everything
        }
        // Of each space that reaches the table: the caller names them all.
        (Op::AbsorbPending, Entry::Merged) => FlushCover::Space,
        // Of each space that mapped the page: the key of the folio names their CPUs.
        (Op::Widen, Entry::Covered) => FlushCover::Space,
        // No right is lost, and the leaf keeps its frame.
        (Op::Widen, Entry::Gathered | Entry::Weakened | Entry::Unplaced) => FlushCover::Nothing,
        (
            Op::Install | Op::StoreMany | Op::Gather | Op::ConcurrentGather | Op::HandOver | Op::AbsorbPending,
            Entry::Pending | Entry::Lingering | Entry::Covered | Entry::Gathered | Entry::Weakened | Entry::Unplaced,
        ) => FlushCover::Space,
    })
}

/// Asserts, in debug builds, that `flushed` is enough.
///
/// # Panics
/// INV-TLB-COVER: when it is less, or the two do not meet.
#[inline]
pub(crate) fn assert_covers(operation: DependentOperation, deferral: EntryDeferral, flushed: FlushCover) {
    debug_assert!(
        required_cover(operation, deferral).is_some_and(|required| required <= flushed),
        "INV-TLB-COVER: {operation:?} flushes {flushed:?} for an entry that is {deferral:?}"
    );
}
