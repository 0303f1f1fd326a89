//! Scanning a part of a space: leaves lose their rights (`task_numa_work`, `change_prot_numa`).
//!
//! A part is as many pages as `numa_scan_size_mb` says, and goes on where the last one ended. Each
//! table is edited once, also where spaces share it, and one batch flushes the whole part.

use super::BalancingMode;
use crate::mm::Mm;
use crate::settings::MmSetting;
use crate::space::{Space, Vma};
use pagewright_arch::Isa;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_sync::atomic::Ordering;
use pagewright_table::{EditForAll, LeafView, LockedTable};
use pagewright_tlb::Batch;
use pagewright_tlb::frames::{Folio, FolioFlags};
use pagewright_types::{Counter, NodeId, PAGE_SIZE, PageRange, Rights, VirtAddr};

/// How many more addresses than pages a part may cover: ranges without pages cost little.
const ADDRESSES_PER_PAGE: u64 = 8;

/// What remains of a part.
struct PartLeft {
    /// Pages of ranges in which a leaf was changed.
    pages: u64,
    /// Pages of address space.
    addresses: u64,
}

impl PartLeft {
    fn is_used_up(&self) -> bool {
        self.pages == 0 || self.addresses == 0
    }
}

/// What a scan asks of each leaf.
struct ScanRules {
    mode: BalancingMode,
    /// The node of the only CPU that runs the space.
    only_node: Option<NodeId>,
}

impl<P: Platform> Mm<P> {
    /// Tells the time, and scans a part of a space if one is due (`task_tick_numa`).
    ///
    /// The embedder calls it from the tick of a CPU that runs the space. `now_ms` is a time in ms
    /// that does not run backwards. With `kernel.numa_balancing` 0, or on a machine with one node,
    /// only the time is noted.
    ///
    /// # Locks
    /// The caller holds none, and may wait for other CPUs. If the space is held for writing, the
    /// part is left to a later tick.
    pub fn numa_tick(&self, space: &Space<P>, now_ms: u64) {
        self.clock_ms.fetch_max(now_ms, Ordering::Relaxed);
        let Some(mode) = self.balancing_mode().filter(|_| self.frames().nodes() > 1) else { return };
        if self.part_is_due(space, self.now_ms()) {
            self.declare_return_of(|| self.scan_part(space, mode));
        }
    }

    fn scan_part(&self, space: &Space<P>, mode: BalancingMode) {
        let Some(map) = space.map().try_read() else { return };
        let cpu = self.fx().cpu();
        let is_alone = space.table().context().cpus().iter().all(|other| other == cpu);
        let rules = ScanRules { mode, only_node: is_alone.then(|| self.frames().node_of_cpu(cpu)) };
        let pages = (self.settings.get(MmSetting::NumaScanSizeMb) << 20) / PAGE_SIZE;
        let mut left = PartLeft { pages, addresses: pages * ADDRESSES_PER_PAGE };
        let tables = map.tables(&self.tlb);
        let token = tables.family_token();
        let mut batch = Batch::new(&self.tlb);
        let mut first = space.numa().next();
        if map.find_or_after(first).is_none() {
            space.numa().set_next(None);
            first = VirtAddr::ZERO;
        }
        let mut updates = 0;
        let rest = PageRange::new(first, P::Isa::USER.end());
        let stopped = map.parts(rest).filter(|(_, vma, _)| self.is_scanned(vma)).find_map(|(_, vma, part)| {
            tables.locked_for_all(part, token.as_ref()).find_map(|(table, under)| {
                let made = self.make_hints(space, (vma, &table), under, &rules, &mut batch);
                updates += made;
                let pages = under.pages();
                left.pages = left.pages.saturating_sub(if made > 0 { pages } else { 0 });
                left.addresses = left.addresses.saturating_sub(pages);
                left.is_used_up().then_some(under.end())
            })
        });
        batch.settle();
        space.numa().set_next(stopped);
        if updates > 0 {
            self.tlb.count(Counter::NumaPteUpdates, updates);
        }
    }

    /// Whether hints are of use in a mapping.
    ///
    /// Read-only mappings of files are libraries, which every node uses.
    fn is_scanned(&self, vma: &Vma<P>) -> bool {
        let rights = vma.rights();
        let is_library = vma.file().is_some() && rights & Rights::RW == Rights::READ;
        !rights.is_empty() && !is_library && self.policy_of(vma).balances()
    }

    /// Takes the rights from leaves of `part`, and returns from how many.
    fn make_hints(
        &self,
        space: &Space<P>,
        (vma, table): (&Vma<P>, &LockedTable<'_, P, EditForAll<'_, P>>),
        part: PageRange,
        rules: &ScanRules,
        batch: &mut Batch<'_, P>,
    ) -> u64 {
        let (mut made, mut large) = (0, 0);
        let mut run = table.run(vma.mlocked());
        for va in table.entries(part) {
            let Some(leaf) = table.leaf(va).filter(|leaf| !leaf.rights().is_empty()) else { continue };
            let Some(folio) = self.vm_normal_folio(leaf) else { continue };
            if plant!(HintOnLarge; false, folio.is_large()) {
                large += 1;
                continue;
            }
            // `folio_maybe_mapped_shared`
            let by_others = vma.is_cow() && (table.is_shared() || self.mappings_of(leaf.pfn()) > 1);
            if by_others || !self.is_hinted(vma, folio, rules) {
                continue;
            }
            // In tiering mode, only pages of lower tiers come here.
            if rules.mode == BalancingMode::Tiering {
                folio.exchange_last_use(Some(self.time_note()));
            }
            self.declare_reduced(space, PageRange::page(va), Rights::empty());
            if let Some(debt) = run.protect(va, |leaf: LeafView| leaf.with_rights(Rights::empty())) {
                plant!(HintNotFlushed; core::mem::forget(debt), debt.absorb_into(batch, space.table().context()));
                made += 1;
            }
        }
        if large > 0 {
            self.tlb.count(Counter::PwNumaLargeSkipped, large);
        }
        made
    }

    /// Whether a fault on a page can tell something (`change_pte_range` with `MM_CP_PROT_NUMA`).
    fn is_hinted(&self, vma: &Vma<P>, folio: Folio<'_>, rules: &ScanRules) -> bool {
        if vma.is_cow() && folio.seems_pinned() {
            return false;
        }
        if folio.flags() & (FolioFlags::SWAPBACKED | FolioFlags::DIRTY) == FolioFlags::DIRTY {
            // A file page cannot move before it is written.
            return false;
        }
        let node = self.node_of(folio);
        let is_top = self.frames().is_top_tier(node);
        let is_at_home = !vma.is_shared() && rules.only_node == Some(node);
        let is_fast = rules.mode == BalancingMode::Tiering && is_top;
        !is_at_home && !is_fast
    }
}
