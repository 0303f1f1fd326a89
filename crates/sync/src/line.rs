//! Cache lines that several CPUs write, and how a machine learns of each access to them.
//!
//! A lock or a counter that CPUs share costs little while one CPU uses it, and much once its cache
//! line moves between CPUs. The locks of this crate, and each owner of a shared word above it,
//! report their accesses through [`Backend`](crate::Backend). A simulated machine prices them; in
//! every other embedding the reports are empty functions that the compiler removes.
//!
//! Key types: [`LineRef`], which line; [`LineUse`], what the CPU does to it; [`LineState`], what a
//! machine keeps in each lock.
//!
//! Not guaranteed: that a word which is not reported has no price on a real machine. Two words that
//! are reported apart may share a line.

use pagewright_types::Pfn;

/// What a machine keeps in each lock about the lock's cache line.
///
/// The state is part of the lock and ends with it. So it needs no address, and a new lock at the
/// address of an old one begins without history.
pub trait LineState: Send + Sync + 'static {
    /// The state of a line that no CPU has accessed.
    const NEW: Self;
}

/// Machines that do not price lines keep nothing.
impl LineState for () {
    const NEW: Self = ();
}

/// A cache line that several CPUs access.
///
/// Its identity is the same in each run of a program, whatever the host's allocator does.
#[derive(Debug)]
pub enum LineRef<'a, L> {
    /// The line of a lock that has its own state.
    Lock(&'a L),
    /// The memmap record of a frame, which is one line.
    Record(Pfn),
    /// The line of a word of an object with this number; 0 if the machine has one such object.
    Word(u64),
}

impl<L> Clone for LineRef<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for LineRef<'_, L> {}

/// What a CPU does to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineUse {
    /// It loads from the line; the copies of other CPUs stay valid.
    Load,
    /// It stores to the line, which invalidates the copies of other CPUs.
    Store,
    /// It acquires the lock in the line, which no other CPU then holds.
    Acquire,
    /// It acquires the lock for reading; other readers may hold it, and the line is stored to.
    AcquireShared,
    /// It releases the lock.
    Release,
    /// It gives up its part in the lock as a reader, by a store.
    ReleaseShared,
}
