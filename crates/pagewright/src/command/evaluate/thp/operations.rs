//! What an operation on a folio uses: locked instructions and records.
//!
//! Key type: [`OperationUse`].
//!
//! Not guaranteed: that the host counts it; `counted` does, on x86-64 Linux.

use super::super::{Figures, Grid};

/// What an operation does, as the promises tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationKind {
    /// Takes a reference or gives one up.
    Reference,
    /// Maps a run of pages of a folio, of which none has an entry of its own.
    MapRun,
    /// Unmaps a run of which each page has another entry.
    UnmapRun,
    /// Unmaps a run of whose pages it was the last entry.
    UnmapLastOfRun,
    /// Splits an entry for the whole into entries for each page.
    SplitPmd,
    /// None of these.
    Other,
}

/// What an operation used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OperationUse {
    pub(super) name: &'static str,
    pub(super) kind: OperationKind,
    /// Locked instructions on the record of the folio's head, on other records, and elsewhere.
    pub(super) locked_head: u64,
    pub(super) locked_records: u64,
    pub(super) locked_elsewhere: u64,
    /// Records that were loaded from or stored to, and those that were stored to.
    pub(super) records: u64,
    pub(super) records_stored: u64,
}

impl OperationUse {
    pub(super) const fn locked(&self) -> u64 {
        self.locked_head + self.locked_records + self.locked_elsewhere
    }
}

/// The operations, one a row.
pub(super) fn figures(operations: &[OperationUse]) -> Figures {
    Grid::of("An operation on a folio, counted in the machine code", operations)
        .text("operation", |used| used.name)
        .counted("locked instructions", "locked", |used| used.locked())
        .counted("on the head", "locked_head", |used| used.locked_head)
        .counted("on other records", "locked_records", |used| used.locked_records)
        .counted("elsewhere", "locked_elsewhere", |used| used.locked_elsewhere)
        .counted("records used", "records", |used| used.records)
        .counted("stored to", "records_stored", |used| used.records_stored)
        .figures(|used| [format!("operation: {}", used.name), "a folio of 4 KiB, or of 2 MiB".to_owned()])
}
