//! Breaking shared page tables before an edit of one space.
//!
//! [`pagewright_table::Tables::own`] copies tables from a reserve. This file fills the reserve, and
//! counts the swap entries that the copies hold.

use crate::error::MmError;
use crate::mm::Mm;
use crate::swap::SwapPte;
use pagewright_arch::{SoftEntry, SoftKind};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::{BreakStop, CopyHooks, OwnTables, SoftCopy, TableReserve, Tables};
use pagewright_types::PageRange;

impl<P: Platform> Mm<P> {
    /// Makes the tables of `range` the space's own, so that their entries can be edited.
    ///
    /// Waits for pages of them that are being moved. If the caller holds the space for writing,
    /// none is moved from then on. The caller holds nothing inside the lock of the space.
    ///
    /// # Errors
    /// [`MmError::NoFrames`] or [`MmError::TooManyHolders`]; what programs can see has not changed.
    #[inline]
    pub(crate) fn own_tables<'h>(&self, tables: Tables<'h, P>, range: PageRange) -> Result<OwnTables<'h, P>, MmError> {
        let own = match tables.try_own(range) {
            Some(own) => own,
            None => self.break_tables(tables, |hooks, reserve| tables.own(range, hooks, reserve))?,
        };
        self.await_migrations(tables, range);
        Ok(own)
    }

    /// Breaks the tables that are shared and lie in `range` only in part.
    ///
    /// # Errors
    /// As [`own_tables`](Self::own_tables).
    pub(crate) fn own_ends(&self, tables: Tables<'_, P>, range: PageRange) -> Result<(), MmError> {
        self.break_tables(tables, |hooks, reserve| tables.own_ends(range, hooks, reserve))
    }

    fn break_tables<'t, T>(
        &'t self,
        tables: Tables<'_, P>,
        mut try_break: impl FnMut(&mut BreakHooks<'_, P>, &mut TableReserve<'t, P>) -> Result<T, BreakStop>,
    ) -> Result<T, MmError> {
        let mut reserve = TableReserve::new(&self.tlb);
        loop {
            match try_break(&mut BreakHooks(self), &mut reserve) {
                Ok(broken) => return Ok(broken),
                Err(BreakStop::NeedsTables(wanted)) => self.fill(&mut reserve, wanted)?,
                Err(BreakStop::Migrating(va)) => self.await_migration(tables, va),
                Err(BreakStop::TooManyRefs(va)) => return Err(MmError::TooManyHolders { va }),
            }
        }
    }

    /// Counts a soft entry that is copied (`copy_nonpresent_pte`).
    ///
    /// `None` if the copy leaves it out. A marker belongs to the mapping, which the copy has, too.
    /// A swap entry is shared from now on.
    pub(crate) fn copy_soft_entry(&self, soft: SoftEntry) -> Option<SoftCopy> {
        match soft.kind {
            SoftKind::Marker => Some(SoftCopy { parent: soft, child: soft }),
            SoftKind::Swap => {
                if let Some(swapped) = SwapPte::decode(soft) {
                    self.swap_duplicate(swapped.entry);
                }
                let shared = SoftEntry { exclusive: false, ..soft };
                Some(SoftCopy { parent: shared, child: shared })
            }
            SoftKind::Migration => plant!(BreakCopiesMigration; Some(SoftCopy { parent: soft, child: soft }), {
                plant!(MigrationNotAwaited => return None);
                unreachable!("INV-MIGRATE-WAIT: a migration entry is copied")
            }),
            SoftKind::InTransition => unreachable!("INV-SPLIT-HIDDEN: an entry in transition is copied"),
        }
    }

    /// Uncounts a copy of a soft entry that is discarded.
    pub(crate) fn discard_soft_entry(&self, soft: SoftEntry) {
        if let Some(swapped) = SwapPte::decode(soft) {
            self.swap_release(swapped.entry);
        }
    }
}

/// What a break decides about the entries that it copies.
struct BreakHooks<'m, P: Platform>(&'m Mm<P>);

impl<P: Platform> CopyHooks for BreakHooks<'_, P> {
    fn copy_soft(&mut self, soft: SoftEntry) -> Option<SoftCopy> {
        self.0.copy_soft_entry(soft)
    }

    fn discard_soft(&mut self, soft: SoftEntry) {
        self.0.discard_soft_entry(soft);
    }
}
