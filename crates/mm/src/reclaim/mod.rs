//! Reclaim: taking pages from programs that will not miss them.
//!
//! | file | what it does |
//! | --- | --- |
//! | `pageout` | a list of pages: unmapped all, flushed once, written, freed |
//! | `unmap` | every mapping of one page, into a batch |
//! | `advice` | `MADV_PAGEOUT` and `MADV_COLD` |
//!
//! INV-RECLAIM-SETTLED: a page is written to its device, and freed, only after every CPU has forgotten the translations that were taken from it.
//!
//! Protocol: nobody waits. A space whose mappings somebody is changing, a page that is locked, pinned, or mapped where memory is locked: they
//! stay. So reclaim may run wherever an allocation may, also for who holds a space himself.
//!
//! Neighbours: uses `rmap`, `swap`; `space::advise` calls it.
//!
//! Not guaranteed: that a page which was asked for goes.

mod advice;
mod pageout;
mod unmap;

/// Pages that go together: one wait pays for all (`SWAP_CLUSTER_MAX`).
pub(crate) const CLUSTER: usize = 32;
