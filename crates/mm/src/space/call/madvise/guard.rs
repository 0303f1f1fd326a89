//! Guards: pages of a mapping that refuse every access (`MADV_GUARD_INSTALL`).
//!
//! Linux has guards since 6.13, in file mappings since 6.15. A guard is a marker in the entry. Only
//! `GuardRemove` and the end of the mapping remove it. It stays when the mapping moves or gets
//! other rights, and fork copies it.
//!
//! **INV-GUARD** From the return of `MADV_GUARD_INSTALL` until the guard or its mapping is removed,
//! every access to the page is refused, in children too.
//!
//! Neighbours: `fault` refuses the access; `fork` copies markers; `zap` keeps or clears them.
//!
//! A page that is mapped when the guard is installed is discarded, and flushed with all others when
//! the call's gather settles. Until then a CPU may still use it under its marker. A concurrent
//! `GuardRemove` that takes the marker away settles a gather, too, and so flushes the page before
//! it returns (INV-TLB-CLEARED).

use crate::error::MmError;
use crate::mm::Mm;
use crate::space::entries::zap::Zap;
use crate::space::{Space, Vma};
use pagewright_arch::{SoftEntry, SoftKind};
use pagewright_sync::Platform;
use pagewright_table::{EntryView, OwnTables};
use pagewright_tlb::Gather;
use pagewright_types::{Level, PageRange, Rights};

/// The entry of a guard; the payload of a marker is its reason.
const GUARD: SoftEntry = SoftEntry { kind: SoftKind::Marker, exclusive: false, payload: 1 };

impl<P: Platform> Mm<P> {
    /// Installs guards in all of `part`, which is in one mapping (`madvise_guard_install`).
    ///
    /// Pages that are mapped there are discarded.
    ///
    /// # Errors
    /// [`MmError::NoFrames`] for a table; the pages before it have guards.
    pub(super) fn install_guards(
        &self,
        space: &Space<P>,
        tables: OwnTables<'_, P>,
        vma: &Vma<P>,
        part: PageRange,
        gather: &mut Gather<'_, P>,
    ) -> Result<(), MmError> {
        // Fork must copy entries from now on.
        vma.note_anon();
        self.declare_reduced(space, part, Rights::empty());
        let mut at = part.start();
        while at < part.end() {
            let table_end = at.align_down(Level::PTE.table_span()).add(Level::PTE.table_span());
            let under = PageRange::new(at, table_end.min(part.end()));
            self.discard_huge(space, tables, vma, under, gather);
            self.make_table(tables, at, Level::PTE)?;
            if let Some(table) = tables.lock(at) {
                if table.level() > Level::PTE {
                    // Another thread has mapped a huge page, or one is being split.
                    drop(table);
                    tables.await_migration(at);
                    continue;
                }
                self.zap_table(space, &table, (vma, Zap::Pages), under, gather);
                if let Some(va) = table.first_migrating(under) {
                    gather.publish(table.table());
                    drop(table);
                    tables.await_migration(va);
                    continue;
                }
                let mut run = table.run(vma.mlocked());
                for va in under.iter() {
                    if table.is_empty(va) {
                        run.map_soft(va, GUARD);
                    }
                }
                drop(run);
                gather.publish(table.table());
            }
            at = under.end();
        }
        Ok(())
    }

    /// Discards the huge pages of `under`, or splits them if it has a part of them only.
    fn discard_huge(
        &self,
        space: &Space<P>,
        tables: OwnTables<'_, P>,
        vma: &Vma<P>,
        under: PageRange,
        gather: &mut Gather<'_, P>,
    ) {
        if !tables.has_huge_leaves() {
            return;
        }
        for (table, part) in tables.locked(under, vma.mlocked()) {
            if table.level() > Level::PTE {
                self.zap_table(space, &table, (vma, Zap::Pages), part, gather);
                gather.publish(table.table());
            }
        }
    }

    /// Removes the guards of `part`; the entries are then empty.
    ///
    /// The caller's concurrent gather flushes what is pending under them.
    pub(super) fn remove_guards(
        &self,
        tables: OwnTables<'_, P>,
        vma: &Vma<P>,
        part: PageRange,
        gather: &mut Gather<'_, P>,
    ) {
        for (table, under) in tables.own_part(part) {
            // A huge leaf has no guard, and stays whole.
            if table.level() > Level::PTE {
                continue;
            }
            // Another call may have cleared the entry for its guard, and not flushed yet.
            gather.meet(table.table());
            let mut run = table.run(vma.mlocked());
            for va in table.entries(under) {
                if table.entry(va) == EntryView::Soft(GUARD) {
                    run.unmap_soft(va);
                }
            }
            drop(run);
            gather.publish(table.table());
        }
    }
}
