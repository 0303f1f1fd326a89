//! O2 along walk caches: a cached upper entry grants no more than the tables do.
//!
//! A walk that starts at a walk-cache entry reads no entry above its table. So it combines the
//! leaves of that table with the rights that the upper entries had when they were read (x86-64 R/W,
//! U/S and XD of the paging-structure caches, Intel SDM vol. 3A §4.10.3.2; arm64 APTable and
//! UXNTable, Arm ARM D8.4.5 and D8.16). A table that several spaces share makes this matter: its
//! leaves stay as they are when the pointer to it is write-protected or cleared.
//!
//! An entry is stale if the tables, with all stores that were made to them, lead to another table
//! or leave less. It is a violation if one of these holds:
//!
//! - a leaf below it grants more than the call left, and the tables do not grant the same;
//! - the tables lead elsewhere, the entry grants more than the call left, and the call acted on all
//!   that the entry covers: whatever is stored in its table later is reached, too.
//!
//! A walk in flight is judged by the first only: it reads one word, and then ends or fills. On a
//! lazy CPU, and under another tag, both are watched until a program could use them.

use super::Oracle;
use super::rights::Pending;
use super::shared::SharedTables;
use crate::tally::Antecedent;
use crate::violation::Reduction;
use crate::walk::{self, PathRights, TableFormat};
use alloc::vec::Vec;
use pagewright_types::judge::{CachedEntry, CachedEntryKind, Witness};
use pagewright_types::{CpuId, Level, Pfn, VirtAddr};

/// Paths of one reduction that are remembered until its call returns.
const HELD_PATHS: usize = 64;

/// A table that a walk reaches without reading the entries above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldPath {
    va: VirtAddr,
    table: Pfn,
    level: Level,
    rights: PathRights,
    /// Whether several spaces reached the table when this was read.
    shared: bool,
}

impl HeldPath {
    /// The path that `held` caches; `None` for a translation.
    pub(super) fn of(format: TableFormat, held: &CachedEntry) -> Option<Self> {
        let (table, allows, level) = match held.kind {
            CachedEntryKind::Translation { .. } => return None,
            CachedEntryKind::Table { table, allows } => (table, allows, held.level.down()?),
            CachedEntryKind::Walk { table, allows } => (table, allows, held.level),
        };
        Some(Self { va: held.va, table, level, rights: format.root_rights(held.va).limited_to(allows), shared: false })
    }

    fn among(self, tables: &SharedTables) -> Self {
        Self { shared: tables.contains(self.table), ..self }
    }
}

impl Oracle {
    /// Remembers the paths that CPUs other than the caller hold in the range of a reduction.
    pub(super) fn held_paths(&mut self, witness: &dyn Witness, reduction: &Reduction) -> Vec<HeldPath> {
        let mut paths = Vec::new();
        witness.cached_in(reduction.range, &mut |cached| {
            if let Some(path) = HeldPath::of(self.format(), &cached).map(|path| path.among(&self.shared))
                && cached.cpu != reduction.by.cpu
                && self.is_of_space(cached.root, reduction.root, cached.va)
                && paths.len() < HELD_PATHS
                && !paths.contains(&path)
            {
                paths.push(path);
            }
        });
        paths
    }

    /// Notes the paths that another CPU held when `pending` was declared, and that changed since.
    pub(super) fn note_reduced_paths(&mut self, witness: &dyn Witness, pending: &Pending) {
        for path in &pending.paths {
            if self.leads_to(witness, pending.reduction.root, path) {
                continue;
            }
            self.tally.note(Antecedent::PathReduced);
            if path.shared || self.shared.contains(path.table) {
                self.tally.note(Antecedent::SharedPathReduced);
            }
        }
    }

    fn table_at(&self, witness: &dyn Witness, root: Pfn, path: &HeldPath) -> Option<(Pfn, PathRights)> {
        walk::path(self.format(), root, path.va, path.level, &|at| self.shared.entry(witness, at))
    }

    /// Whether the tables lead to the same table and leave at least the same rights.
    fn leads_to(&self, witness: &dyn Witness, root: Pfn, path: &HeldPath) -> bool {
        self.table_at(witness, root, path)
            .is_some_and(|(table, rights)| table == path.table && rights.covers(path.rights))
    }

    /// The first page that a walk from `held` reaches with more than `reduction` left.
    ///
    /// Without an excuse, as in [`Self::taken_page`].
    pub(super) fn taken_path(
        &self,
        witness: &dyn Witness,
        held: &CachedEntry,
        reduction: &Reduction,
        caller: Option<CpuId>,
    ) -> Option<VirtAddr> {
        let path = HeldPath::of(self.format(), held)?;
        let range = held.range().intersect(reduction.range)?;
        let root = reduction.root;
        if self.leads_to(witness, root, &path) {
            return None;
        }
        let below = (path.table, path.level, path.rights);
        let taken = walk::leaves_below(self.isa, below, range, &|at| witness.word(at), &mut |leaf| {
            if reduction.left.contains(leaf.rights) {
                return None;
            }
            let pages = leaf.range().intersect(range)?;
            pages.iter().find(|page| {
                !self.tables_allow(witness, root, *page, leaf.frame_at(*page), leaf.rights)
                    && !self.reductions.excuses(root, *page, leaf.rights, caller)
            })
        });
        // A path with no more than the call left is not what it took: a break may replace it.
        let grants_more =
            matches!(held.kind, CachedEntryKind::Table { allows, .. } if !reduction.left.contains(allows));
        let all = grants_more && range == held.range();
        let moved = || self.table_at(witness, root, &path).is_none_or(|(table, _)| table != path.table);
        let excused = || self.reductions.excuses_path(root, held.range(), caller);
        taken.or_else(|| (all && moved() && !excused()).then_some(held.va))
    }
}
