//! Scanning the LRU lists of a node (`shrink_node`, `get_scan_count`, `shrink_inactive_list`).
//!
//! Key type: [`ScanControl`], one attempt to free pages. Its priority falls from 12 to 0, and a
//! pass scans `1/2^priority` of each list, so that little is scanned where much can be reclaimed. A
//! folio that was accessed is kept or activated (`age`); others are paged out, 32 at a time
//! (`pageout`).
//!
//! On short lists such a fraction is a handful of folios, but one wait should settle 32. So the
//! folios to reclaim are collected over lists, priorities and nodes until there are 32, or as many
//! as wanted, or no more are found. Linux pages out what one scan of one list has found. Each round
//! scans only as many pages of all lists together as the batch has room for, divided in proportion.
//! So no more pages are scanned than without collecting, and at most one batch too many is
//! reclaimed.
//!
//! The scan is divided between anonymous and file pages by the recent cost of reclaiming each, and
//! by `vm.swappiness`.
//!
//! Not guaranteed: fairness between programs. A list does not record whose its pages are.

use super::age::ScanDecision;
use super::pageout::{PageOutFlush, is_reclaimable};
use super::workingset::ReclaimCost;
use super::{LruType, SWAP_CLUSTER_MAX};
use crate::mm::Mm;
use crate::settings::MmSetting;
use arrayvec::ArrayVec;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags, IsolatedFolio, NodeEvent};
use pagewright_types::{Counter, LruList, NodeId, PAGE_SIZE};

/// The priority of the first pass.
pub(super) const DEF_PRIORITY: u32 = 12;

/// The caller of reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reclaimer {
    /// The background thread (`kswapd`).
    Background,
    /// An allocation.
    Direct,
    /// A request to reclaim.
    Proactive,
}

/// An attempt to free pages of some nodes (`struct scan_control`).
///
/// At its end the caller pages out what is still pending ([`Mm::page_out_pending`]).
pub(super) struct ScanControl {
    pub(super) reclaimer: Reclaimer,
    pub(super) priority: u32,
    /// The number of pages to reclaim (`nr_to_reclaim`).
    pub(super) target: u32,
    /// The number of pages passed to `page_out` so far.
    tried: u32,
    /// The number of pages freed so far (`nr_reclaimed`).
    pub(super) freed: u32,
    /// Folios to reclaim, collected for the next batch.
    pub(super) pending: ArrayVec<IsolatedFolio, SWAP_CLUSTER_MAX>,
    /// Whether active pages are deactivated even if enough are inactive.
    pub(super) force_deactivate: bool,
    /// Whether active pages were skipped because enough are inactive.
    pub(super) skipped_deactivate: bool,
}

impl ScanControl {
    pub(super) fn new(reclaimer: Reclaimer, target: u32) -> Self {
        let (tried, freed, pending) = (0, 0, ArrayVec::new_const());
        Self {
            reclaimer,
            priority: DEF_PRIORITY,
            target,
            tried,
            freed,
            pending,
            force_deactivate: false,
            skipped_deactivate: false,
        }
    }

    /// Starts over for `target` pages; pending folios stay pending.
    pub(super) fn restart(&mut self, target: u32, priority: u32) {
        let pending = core::mem::take(&mut self.pending);
        *self = Self { priority, pending, ..Self::new(self.reclaimer, target) };
    }

    /// Lowers the priority, so that the next pass scans more; returns whether there is a next pass.
    ///
    /// If nothing was freed down to priority 0 and active pages were skipped, this starts over and
    /// skips none.
    pub(super) fn lower_priority(&mut self) -> bool {
        if self.priority > 0 {
            self.priority -= 1;
            return true;
        }
        let retry = self.freed == 0 && self.pending.is_empty() && self.skipped_deactivate && !self.force_deactivate;
        if retry {
            (self.priority, self.force_deactivate) = (DEF_PRIORITY, true);
        }
        retry
    }

    /// Whether the batch is full, or enough pages have been paged out or are pending.
    ///
    /// Pages that could not be freed count too: one of them does not justify another batch.
    fn is_done(&self) -> bool {
        self.room() == 0
    }

    /// The number of pages still wanted for which the batch has room.
    fn room(&self) -> u32 {
        let wanted = self.target.saturating_sub(self.tried + self.pending.len() as u32);
        wanted.min(self.pending.remaining_capacity() as u32)
    }

    /// Whether translations of the pages may linger: an allocation needs frames without a debt.
    fn flush(&self) -> PageOutFlush {
        match self.reclaimer {
            Reclaimer::Background | Reclaimer::Proactive => PageOutFlush::MayLinger,
            Reclaimer::Direct => PageOutFlush::Complete,
        }
    }

    /// The counters of scanned and of freed pages, and the event of demotion.
    fn counters(&self) -> (Counter, Counter, NodeEvent) {
        match self.reclaimer {
            Reclaimer::Background => (Counter::PgScanKswapd, Counter::PgStealKswapd, NodeEvent::DemoteKswapd),
            Reclaimer::Direct => (Counter::PgScanDirect, Counter::PgStealDirect, NodeEvent::DemoteDirect),
            Reclaimer::Proactive => (Counter::PgScanProactive, Counter::PgStealProactive, NodeEvent::DemoteProactive),
        }
    }
}

/// The evictable lists, in Linux's order: the type of each, and whether it is the active one.
const EVICTABLE: [(LruType, bool); 4] =
    [(LruType::Anon, false), (LruType::Anon, true), (LruType::File, false), (LruType::File, true)];

/// The shares that scan both types in full (`SCAN_EQUAL`).
const EQUAL: [u64; LruType::ALL.len()] = [1, 1];

impl<P: Platform> Mm<P> {
    /// Scans the lists of `nodes` at falling priorities until enough pages are paged out.
    ///
    /// Returns whether pages were freed. If not, the last pass is done, and folios may be pending.
    pub(super) fn shrink_nodes(&self, nodes: impl Iterator<Item = NodeId> + Clone, scan: &mut ScanControl) -> bool {
        loop {
            for node in nodes.clone() {
                self.shrink_node(node, scan);
            }
            if scan.is_done() {
                self.page_out_pending(scan);
                if scan.freed > 0 {
                    return true;
                }
                // No page could be freed.
                scan.tried = 0;
            }
            if !scan.lower_priority() {
                return false;
            }
        }
    }

    /// Scans the lists of a node once, at the current priority.
    fn shrink_node(&self, node: NodeId, scan: &mut ScanControl) {
        self.shrink_deferred(node, scan);
        let mut left = self.scan_counts(node, scan);
        let inactive = |left: &[u32; 4]| left[LruList::InactiveAnon as usize] + left[LruList::InactiveFile as usize];
        while (inactive(&left) > 0 || left[LruList::ActiveFile as usize] > 0) && !scan.is_done() {
            let (room, whole) = (u64::from(scan.room()), u64::from(inactive(&left)));
            for (left, (lru, active)) in left.iter_mut().zip(EVICTABLE) {
                let part = if whole == 0 { *left } else { (u64::from(*left) * room).div_ceil(whole) as u32 };
                let limit = if active { SWAP_CLUSTER_MAX as u32 } else { scan.room() };
                let most = part.min(*left).min(limit);
                if most > 0 {
                    // A large folio counts in full, or a list of few would be scanned many times.
                    let scanned = self.shrink_list(node, (lru, active), most, scan);
                    *left = left.saturating_sub(scanned.max(most));
                }
            }
        }
        // Anonymous pages are aged even while only file pages are reclaimed.
        if self.can_reclaim_anon(node) && self.inactive_is_low(node, LruType::Anon) {
            self.shrink_active(node, LruType::Anon, SWAP_CLUSTER_MAX as u32);
        }
    }

    /// Splits folios that are partly mapped, at least one and as many as the priority says.
    ///
    /// INV-DEFERRED-SPLIT: before the lists are scanned, which may have nothing to evict.
    fn shrink_deferred(&self, node: NodeId, scan: &mut ScanControl) {
        let pages = self.frames().deferred_pages(node);
        if pages > 0 && !scan.is_done() {
            let most = ((pages / SWAP_CLUSTER_MAX as u32) >> scan.priority).max(1);
            let freed = self.split_deferred(node, most, scan.target.saturating_sub(scan.tried));
            scan.tried += freed;
            scan.freed += freed;
        }
    }

    /// Scans folios of the active or the inactive list of a type until `most` pages were scanned.
    ///
    /// Returns the pages scanned: of a large folio, all.
    fn shrink_list(&self, node: NodeId, (lru, active): (LruType, bool), most: u32, scan: &mut ScanControl) -> u32 {
        if !active {
            self.shrink_inactive(node, lru, most, scan)
        } else if self.may_deactivate(node, lru, scan) {
            self.shrink_active(node, lru, most)
        } else {
            scan.skipped_deactivate = true;
            0
        }
    }

    /// The number of pages of each list to scan.
    fn scan_counts(&self, node: NodeId, scan: &ScanControl) -> [u32; EVICTABLE.len()] {
        let list = |(lru, active): (LruType, bool)| if active { lru.active() } else { lru.inactive() };
        let pages = EVICTABLE.map(|of| self.frames().lru_pages(node, list(of)) >> scan.priority);
        divide_scan(pages, self.scan_shares(node, scan))
    }

    /// The shares of the two types in the scan.
    fn scan_shares(&self, node: NodeId, scan: &ScanControl) -> [u64; LruType::ALL.len()] {
        let (free, high) = self.watermarks_of(node);
        let balance = ScanBalance {
            can_reclaim_anon: self.can_reclaim_anon(node),
            swappiness: self.settings.get(MmSetting::Swappiness),
            priority: scan.priority,
            missing: high.checked_sub(free),
            file_pages: self.lru_pages_of(node, LruType::File),
            inactive_alone: LruType::ALL.map(|lru| self.scans_inactive_alone(node, lru, scan)),
            costs: self.reclaim.node(node).costs(),
        };
        balance.shares()
    }

    /// Whether inactive pages of a type are scanned at this priority, and no active page of it.
    fn scans_inactive_alone(&self, node: NodeId, lru: LruType, scan: &ScanControl) -> bool {
        let inactive = self.frames().lru_pages(node, lru.inactive());
        inactive >> scan.priority > 0 && !self.may_deactivate(node, lru, scan)
    }

    /// Whether active pages of a type should be deactivated.
    ///
    /// They should if too few pages are inactive, or if evicted pages refault.
    fn may_deactivate(&self, node: NodeId, lru: LruType, scan: &ScanControl) -> bool {
        scan.force_deactivate || self.inactive_is_low(node, lru) || self.reclaim.node(node).is_thrashing(lru)
    }

    /// Whether the inactive list of a type is too short for its active list (`inactive_is_low`).
    fn inactive_is_low(&self, node: NodeId, lru: LruType) -> bool {
        let pages = |list| u64::from(self.frames().lru_pages(node, list));
        are_few_inactive(pages(lru.inactive()), pages(lru.active()))
    }

    /// Scans pages from the tail of an inactive list, for which the batch has room.
    ///
    /// Returns their number, which is more than `most` where the last folio is large.
    fn shrink_inactive(&self, node: NodeId, lru: LruType, most: u32, scan: &mut ScanControl) -> u32 {
        let mut folios = ArrayVec::<IsolatedFolio, SWAP_CLUSTER_MAX>::new();
        let scanned = self.isolate_lru_folios(node, lru.inactive(), most, &mut folios).scanned;
        let mut reclaimable = 0;
        for isolated in folios {
            match self.decide(self.frames().folio(isolated.pfn()), scan) {
                // INV-RECLAIM-SMALL: its pages are reclaimed one by one when they are scanned.
                ScanDecision::Reclaim if self.frames().folio(isolated.pfn()).is_large() => {
                    self.split_for_page_out(isolated);
                }
                ScanDecision::Reclaim => {
                    scan.pending.push(isolated);
                    reclaimable += 1;
                }
                ScanDecision::Keep | ScanDecision::Activate | ScanDecision::Cull => self.putback(isolated),
            }
        }
        self.note_cost(node, lru, ReclaimCost::Rotated(scanned - reclaimable));
        self.tlb.count(scan.counters().0, u64::from(scanned));
        scanned
    }

    /// Pages out the pending folios with one wait, and puts back those that stay.
    pub(super) fn page_out_pending(&self, scan: &mut ScanControl) {
        if scan.pending.is_empty() {
            return;
        }
        let mut pending = core::mem::take(&mut scan.pending);
        scan.tried += pending.len() as u32;
        let (_, freed, demotion) = scan.counters();
        let demoted = self.demote(&mut pending, demotion, scan.flush());
        let out = self.page_out(&mut pending, scan.flush());
        // Pages that were written, and pages that stay, raise the cost of their type.
        for pages in out.written.chunk_by(|a, b| a == b) {
            self.note_cost(pages[0], LruType::Anon, ReclaimCost::Io(pages.len() as u32));
        }
        for isolated in pending {
            let folio = self.frames().folio(isolated.pfn());
            self.note_cost(self.node_of(folio), LruType::of(folio), ReclaimCost::Rotated(folio.pages()));
            self.putback(isolated);
        }
        // As in Linux, a demoted page counts as freed by reclaim of its node.
        scan.freed += out.freed + demoted;
        self.tlb.count(freed, u64::from(out.freed + demoted));
    }

    /// Decides what to do with an isolated folio, and sets its flags accordingly.
    fn decide(&self, folio: Folio<'_>, scan: &ScanControl) -> ScanDecision {
        // INV-RECLAIM-UNEVICTABLE. On the active list it is not scanned again soon.
        let mut decision =
            if self.is_unevictable(folio) { ScanDecision::Activate } else { self.check_references(folio) };
        if decision == ScanDecision::Reclaim && !folio.is_large() && !is_reclaimable(folio) {
            // It would take up room in the batch and stay.
            decision = ScanDecision::Keep;
        }
        let dirty_file =
            |folio: Folio<'_>| LruType::of(folio) == LruType::File && folio.flags().contains(FolioFlags::DIRTY);
        if decision == ScanDecision::Reclaim && !folio.is_anon() && dirty_file(folio) {
            // Direct reclaim does not wait for a device. It demotes the page, dirty as it is, or
            // activates it. Then it is not scanned again soon, and background reclaim writes it.
            let direct = scan.reclaimer == Reclaimer::Direct;
            if !direct {
                self.write_back_around(folio);
            }
            let demotes =
                direct && plant!(DirtyFileNotDemoted; false, self.demotion_target(self.node_of(folio)).is_some());
            if dirty_file(folio) && !demotes {
                decision = ScanDecision::Activate;
            }
        }
        match decision {
            ScanDecision::Reclaim | ScanDecision::Keep | ScanDecision::Cull => {}
            ScanDecision::Activate => self.activate_isolated(folio),
        }
        decision
    }

    /// Makes an isolated folio active.
    pub(super) fn activate_isolated(&self, folio: Folio<'_>) {
        folio.set_flags(FolioFlags::ACTIVE);
        self.note_activation(folio);
    }

    /// Writes back a file page and the dirty pages around it.
    fn write_back_around(&self, folio: Folio<'_>) {
        const AROUND: u64 = SWAP_CLUSTER_MAX as u64;
        let Some(file) = self.file_of(folio) else { return };
        let first = folio.index() / AROUND * AROUND;
        // A page that fails stays dirty, and is tried again when it is scanned again.
        let _ = self.write_pages_back(&file, first, first + AROUND);
    }
}

/// What decides how the scan of a node is divided (`get_scan_count`).
#[derive(Clone, Copy, Debug)]
struct ScanBalance {
    /// Whether anonymous pages can be evicted, to swap or to a lower tier.
    can_reclaim_anon: bool,
    swappiness: u64,
    priority: u32,
    /// The number of frames that its free ones are below its high watermarks; `None` if above.
    missing: Option<u64>,
    file_pages: u64,
    /// Of each type, whether inactive pages are scanned at this priority, and no active ones.
    inactive_alone: [bool; LruType::ALL.len()],
    /// The recent cost of reclaiming each type.
    costs: [u64; LruType::ALL.len()],
}

impl ScanBalance {
    const FILE_ONLY: [u64; LruType::ALL.len()] = [0, 1];
    const ANON_ONLY: [u64; LruType::ALL.len()] = [1, 0];

    /// The shares of the two types in the scan.
    fn shares(self) -> [u64; LruType::ALL.len()] {
        let [anon_alone, file_alone] = self.inactive_alone;
        if !self.can_reclaim_anon || self.swappiness == 0 && self.priority > 0 {
            return Self::FILE_ONLY;
        }
        if self.priority == 0 && self.swappiness > 0 {
            return EQUAL;
        }
        if self.file_is_tiny() && anon_alone {
            return Self::ANON_ONLY;
        }
        if file_alone {
            return Self::FILE_ONLY;
        }
        shares_by_cost(self.costs, self.swappiness)
    }

    /// Whether a node would stay below its high watermarks if all its file pages were freed.
    ///
    /// Linux: `file_is_tiny`. Reclaiming more file pages would then only cause refaults.
    fn file_is_tiny(self) -> bool {
        self.missing.is_some_and(|missing| self.file_pages <= missing)
    }
}

/// The number of pages of each list to scan, of `pages` at this priority.
fn divide_scan(pages: [u32; EVICTABLE.len()], shares: [u64; LruType::ALL.len()]) -> [u32; EVICTABLE.len()] {
    // With equal shares both types are scanned in full.
    let whole = if shares == EQUAL { 1 } else { shares.iter().sum() };
    let [anon, file] = shares;
    // Rounded up, so that a list with a small share is scanned at all.
    let part = |pages: u32, share: u64| (u64::from(pages) * share).div_ceil(whole) as u32;
    let [inactive_anon, active_anon, inactive_file, active_file] = pages;
    [part(inactive_anon, anon), part(active_anon, anon), part(inactive_file, file), part(active_file, file)]
}

/// The shares of both types by the recent cost of reclaiming each.
fn shares_by_cost([anon, file]: [u64; LruType::ALL.len()], swappiness: u64) -> [u64; LruType::ALL.len()] {
    let all = anon + file;
    let (anon, file) = (all + anon, all + file);
    let all = anon + file;
    [swappiness * (all + 1) / (anon + 1), (200 - swappiness) * (all + 1) / (file + 1)]
}

/// Whether so few pages of a type are inactive that active ones should be deactivated.
///
/// The larger both lists are, the smaller a share needs to be inactive.
fn are_few_inactive(inactive: u64, active: u64) -> bool {
    inactive * inactive_ratio(inactive + active) < active
}

/// How many times as many pages may be active as inactive, of this many in all.
fn inactive_ratio(pages: u64) -> u64 {
    let gibibytes = (pages * PAGE_SIZE) >> 30;
    if gibibytes > 0 { (10 * gibibytes).isqrt() } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table above `inactive_is_low` in Linux's `mm/vmscan.c`.
    #[test]
    fn the_inactive_share_falls_with_the_memory_as_on_linux() {
        const MEBIBYTE: u64 = (1 << 20) / PAGE_SIZE;
        let table = [(10, 1), (100, 1), (1023, 1), (1 << 10, 3), (10 << 10, 10), (100 << 10, 31), (1 << 20, 101)];
        for (mebibytes, ratio) in table {
            assert_eq!(inactive_ratio(mebibytes * MEBIBYTE), ratio, "{mebibytes} MiB");
        }
    }

    /// Below one gibibyte half of the pages must be inactive, and from there on a quarter.
    #[test]
    fn few_pages_are_inactive_from_the_ratio_on() {
        let of_gibibyte = (1 << 30) / PAGE_SIZE / 4;
        for (inactive, active, few) in [
            (0, 0, false),
            (0, 1, true),
            (7, 7, false),
            (7, 8, true),
            (of_gibibyte - 1, 3 * of_gibibyte, true),
            (of_gibibyte, 3 * of_gibibyte, false),
            (of_gibibyte, 3 * of_gibibyte + 1, true),
        ] {
            assert_eq!(are_few_inactive(inactive, active), few, "{inactive} inactive, {active} active");
        }
    }

    /// The arithmetic at the end of Linux's `get_scan_count`, before it is divided by the sum.
    #[test]
    fn the_type_that_costs_more_has_the_smaller_share() {
        for (costs, swappiness, shares) in [
            ([0, 0], 60, [60, 140]),
            ([0, 0], 1, [1, 199]),
            ([0, 0], 200, [200, 0]),
            ([90, 9], 100, [100 * 298 / 190, 100 * 298 / 109]),
            ([9, 90], 60, [60 * 298 / 109, 140 * 298 / 190]),
            ([1000, 0], 150, [150 * 3001 / 2001, 50 * 3001 / 1001]),
        ] {
            assert_eq!(shares_by_cost(costs, swappiness), shares, "{costs:?}, swappiness {swappiness}");
        }
    }

    /// The order of the rules in Linux's `get_scan_count`.
    #[test]
    fn a_scan_is_divided_by_the_first_rule_that_applies() {
        const FILE_ONLY: [u64; 2] = [0, 1];
        const ANON_ONLY: [u64; 2] = [1, 0];
        let usual = ScanBalance {
            can_reclaim_anon: true,
            swappiness: 60,
            priority: 3,
            missing: Some(10),
            file_pages: 11,
            inactive_alone: [false; 2],
            costs: [9, 90],
        };
        let by_cost = shares_by_cost([9, 90], 60);
        let tiny = ScanBalance { file_pages: 10, inactive_alone: [true, false], ..usual };
        for (balance, shares, rule) in [
            (usual, by_cost, "none applies"),
            (ScanBalance { can_reclaim_anon: false, ..usual }, FILE_ONLY, "without swap"),
            (
                ScanBalance { can_reclaim_anon: false, priority: 0, ..tiny },
                FILE_ONLY,
                "without swap, at the last priority",
            ),
            (ScanBalance { swappiness: 0, ..tiny }, FILE_ONLY, "without swappiness"),
            (ScanBalance { swappiness: 0, priority: 1, ..tiny }, FILE_ONLY, "without swappiness, almost at the last"),
            (ScanBalance { swappiness: 0, priority: 0, ..tiny }, ANON_ONLY, "without swappiness, at the last"),
            (ScanBalance { swappiness: 1, priority: 0, ..tiny }, EQUAL, "at the last priority"),
            (ScanBalance { swappiness: 1, ..tiny }, ANON_ONLY, "few file pages"),
            (ScanBalance { file_pages: 0, missing: Some(0), ..tiny }, ANON_ONLY, "no file page, at the watermark"),
            (ScanBalance { file_pages: 0, missing: None, ..tiny }, by_cost, "enough is free"),
            (ScanBalance { file_pages: 11, ..tiny }, by_cost, "enough file pages"),
            (ScanBalance { inactive_alone: [false; 2], ..tiny }, by_cost, "few file pages, and active ones to scan"),
            (ScanBalance { inactive_alone: [true; 2], ..tiny }, ANON_ONLY, "few file pages, which are inactive"),
            (ScanBalance { inactive_alone: [false, true], ..tiny }, FILE_ONLY, "active anonymous pages"),
            (ScanBalance { inactive_alone: [true; 2], ..usual }, FILE_ONLY, "inactive file pages"),
            (ScanBalance { inactive_alone: [true, false], ..usual }, by_cost, "inactive anonymous pages"),
        ] {
            assert_eq!(balance.shares(), shares, "{rule}: {balance:?}");
        }
    }

    #[test]
    fn each_list_is_scanned_by_the_share_of_its_type_rounded_up() {
        let pages = [100, 11, 1000, 7];
        for (shares, counts) in [
            (EQUAL, pages),
            ([1, 0], [100, 11, 0, 0]),
            ([0, 1], [0, 0, 1000, 7]),
            ([2, 2], [50, 6, 500, 4]),
            ([60, 140], [30, 4, 700, 5]),
            ([140, 60], [70, 8, 300, 3]),
        ] {
            assert_eq!(divide_scan(pages, shares), counts, "shares {shares:?}");
        }
        assert_eq!(divide_scan([0, 1, 0, 1], [1, 199]), [0, 1, 0, 1], "a small share is scanned at all");
    }

    /// A batch has room for what is still wanted, and for 32 at most.
    #[test]
    fn a_scan_is_done_once_enough_pages_were_tried_or_are_pending() {
        for (target, tried, room) in [(1, 0, 1), (40, 0, 32), (40, 8, 32), (40, 9, 31), (40, 40, 0), (40, 41, 0)] {
            let scan = ScanControl { tried, ..ScanControl::new(Reclaimer::Direct, target) };
            assert_eq!((scan.room(), scan.is_done()), (room, room == 0), "{tried} of {target} tried");
        }
    }

    /// Linux's `reclaimer_offset`.
    #[test]
    fn each_reclaimer_has_counters_of_its_own() {
        let of = |reclaimer| {
            let (scanned, freed, demotion) = ScanControl::new(reclaimer, 1).counters();
            [scanned, freed, demotion.counter()].map(Counter::name)
        };
        assert_eq!(of(Reclaimer::Background), ["pgscan_kswapd", "pgsteal_kswapd", "pgdemote_kswapd"]);
        assert_eq!(of(Reclaimer::Direct), ["pgscan_direct", "pgsteal_direct", "pgdemote_direct"]);
        assert_eq!(of(Reclaimer::Proactive), ["pgscan_proactive", "pgsteal_proactive", "pgdemote_proactive"]);
    }

    #[test]
    fn a_restart_forgets_what_was_done() {
        let mut scan = ScanControl { tried: 3, freed: 2, ..ScanControl::new(Reclaimer::Background, 5) };
        (scan.force_deactivate, scan.skipped_deactivate) = (true, true);
        scan.restart(7, 9);
        assert_eq!((scan.reclaimer, scan.target, scan.priority), (Reclaimer::Background, 7, 9));
        assert_eq!((scan.tried, scan.freed, scan.force_deactivate, scan.skipped_deactivate), (0, 0, false, false));
    }

    #[test]
    fn a_scan_starts_over_once_if_it_freed_nothing_and_skipped_active_pages() {
        let at_the_end = |freed, skipped_deactivate, force_deactivate| ScanControl {
            priority: 0,
            freed,
            skipped_deactivate,
            force_deactivate,
            ..ScanControl::new(Reclaimer::Direct, 1)
        };
        for (freed, skipped, forced, again) in
            [(0, true, false, true), (1, true, false, false), (0, false, false, false), (0, true, true, false)]
        {
            let mut scan = at_the_end(freed, skipped, forced);
            assert_eq!(scan.lower_priority(), again, "{freed} freed, skipped: {skipped}, forced: {forced}");
            let expected = if again { (DEF_PRIORITY, true) } else { (0, forced) };
            assert_eq!((scan.priority, scan.force_deactivate), expected);
        }
        let mut above = ScanControl { priority: 1, ..at_the_end(1, false, false) };
        assert!(above.lower_priority());
        assert_eq!(above.priority, 0);
    }
}
