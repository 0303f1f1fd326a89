//! How much of each list of a node is looked at, and what becomes of it (`shrink_node`,
//! `get_scan_count`, `shrink_inactive_list`).
//!
//! Key type: [`Scan`], one attempt. Its priority falls from 12 to 0: of each list it looks at a
//! `2^priority`th part, so that little is looked at where much can go. What was used goes round
//! once more or becomes active (`age`); what was not goes out, 32 at a time (`pageout`).
//!
//! Of short lists a part is a handful, and one wait should pay for 32. So what may go is kept over
//! lists, priorities and nodes until there are 32, or as many as are wanted, or nothing more is
//! found. Linux sends out what one look at one list has found. Each round looks at no more pages of
//! all lists together than the batch has room for, each list by its share, so that what is looked
//! at is not more than before, and what goes is not more than a batch too many.
//!
//! Between anonymous memory and files attention is divided by what each has cost lately, and by
//! `vm.swappiness`.
//!
//! Not guaranteed: fairness between programs; lists know pages and not whose they are.

use super::age::Fate;
use super::pageout::is_reclaimable;
use super::{SWAP_CLUSTER_MAX, Sort};
use crate::mm::Mm;
use crate::settings::MmSetting;
use arrayvec::ArrayVec;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags, FolioOwner, IsolatedFolio};
use pagewright_types::{Counter, LruList, NodeId, PAGE_SIZE};

/// Where an attempt begins (`DEF_PRIORITY`).
pub(super) const FIRST_PRIORITY: u32 = 12;

/// Who reclaims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reclaimer {
    /// The background thread (`kswapd`).
    Background,
    /// Whoever allocates.
    Direct,
    /// Somebody who asks for nothing but that.
    Proactive,
}

/// An attempt to free pages of some nodes (`struct scan_control`).
///
/// Whoever makes one sends out what still waits in the end ([`Mm::send_out`]).
pub(super) struct Scan {
    pub(super) by: Reclaimer,
    pub(super) priority: u32,
    /// Pages that are enough.
    pub(super) target: u32,
    /// Pages that were sent out so far.
    sent: u32,
    /// Those of them that were freed.
    pub(super) freed: u32,
    /// Pages that may go and wait for others.
    pub(super) going: ArrayVec<IsolatedFolio, SWAP_CLUSTER_MAX>,
    /// Whether active pages become inactive however few are inactive.
    pub(super) forced: bool,
    /// Whether active pages were left alone that could have become inactive.
    pub(super) spared: bool,
}

impl Scan {
    pub(super) fn new(by: Reclaimer, target: u32) -> Self {
        let (sent, freed, going) = (0, 0, ArrayVec::new_const());
        Self { by, priority: FIRST_PRIORITY, target, sent, freed, going, forced: false, spared: false }
    }

    /// Begins anew, for `target` pages; those that wait for others still do.
    pub(super) fn want(&mut self, target: u32, priority: u32) {
        let going = core::mem::take(&mut self.going);
        *self = Self { priority, going, ..Self::new(self.by, target) };
    }

    /// Looks harder from now on; false if there is no harder.
    ///
    /// When nothing was freed although active pages were spared, it begins anew and spares none.
    pub(super) fn look_harder(&mut self) -> bool {
        if self.priority > 0 {
            self.priority -= 1;
            return true;
        }
        let again = self.freed == 0 && self.going.is_empty() && self.spared && !self.forced;
        if again {
            (self.priority, self.forced) = (FIRST_PRIORITY, true);
        }
        again
    }

    /// Whether enough pages have been sent out or wait for it.
    ///
    /// That one of them stays is no reason for another batch of one.
    fn is_done(&self) -> bool {
        self.room() == 0
    }

    /// Pages that are wanted and for which the batch has room.
    fn room(&self) -> u32 {
        let wanted = self.target.saturating_sub(self.sent + self.going.len() as u32);
        wanted.min(self.going.remaining_capacity() as u32)
    }

    /// Where pages are counted that were looked at, and those that were freed.
    fn counters(&self) -> (Counter, Counter) {
        match self.by {
            Reclaimer::Background => (Counter::PgScanKswapd, Counter::PgStealKswapd),
            Reclaimer::Direct => (Counter::PgScanDirect, Counter::PgStealDirect),
            Reclaimer::Proactive => (Counter::PgScanProactive, Counter::PgStealProactive),
        }
    }
}

/// The lists that can be reclaimed, in Linux's order.
const EVICTABLE: [LruList; 4] =
    [LruList::InactiveAnon, LruList::ActiveAnon, LruList::InactiveFile, LruList::ActiveFile];

/// Both sorts alike (`SCAN_EQUAL`).
const EQUAL: [u64; Sort::ALL.len()] = [1, 1];

impl<P: Platform> Mm<P> {
    /// Looks at the lists of `nodes`, harder and harder, until enough pages have gone; false if
    /// there is no looking harder. Then some may still wait.
    pub(super) fn attempt(&self, nodes: impl Iterator<Item = NodeId> + Clone, scan: &mut Scan) -> bool {
        loop {
            for node in nodes.clone() {
                self.shrink_node(node, scan);
            }
            if scan.is_done() {
                self.send_out(scan);
                if scan.freed > 0 {
                    return true;
                }
                // All have stayed.
                scan.sent = 0;
            }
            if !scan.look_harder() {
                return false;
            }
        }
    }

    /// Looks once at the lists of a node, as hard as the priority says.
    fn shrink_node(&self, node: NodeId, scan: &mut Scan) {
        let mut left = self.scan_counts(node, scan);
        let inactive = |left: &[u32; 4]| left[LruList::InactiveAnon as usize] + left[LruList::InactiveFile as usize];
        while (inactive(&left) > 0 || left[LruList::ActiveFile as usize] > 0) && !scan.is_done() {
            let (room, whole) = (u64::from(scan.room()), u64::from(inactive(&left)));
            for list in EVICTABLE {
                let left = &mut left[list as usize];
                let part = if whole == 0 { *left } else { (u64::from(*left) * room).div_ceil(whole) as u32 };
                let active = matches!(list, LruList::ActiveAnon | LruList::ActiveFile);
                let limit = if active { SWAP_CLUSTER_MAX as u32 } else { scan.room() };
                let most = part.min(*left).min(limit);
                if most > 0 {
                    *left -= most;
                    self.shrink_list(node, list, most, scan);
                }
            }
        }
        // Anonymous pages age even while files can be had more cheaply.
        if self.can_swap() && self.inactive_is_low(node, Sort::Anon) {
            self.shrink_active(node, Sort::Anon, SWAP_CLUSTER_MAX as u32);
        }
    }

    fn shrink_list(&self, node: NodeId, list: LruList, most: u32, scan: &mut Scan) {
        match list {
            LruList::InactiveAnon => self.shrink_inactive(node, Sort::Anon, most, scan),
            LruList::InactiveFile => self.shrink_inactive(node, Sort::File, most, scan),
            LruList::ActiveAnon if self.may_deactivate(node, Sort::Anon, scan) => {
                self.shrink_active(node, Sort::Anon, most);
            }
            LruList::ActiveFile if self.may_deactivate(node, Sort::File, scan) => {
                self.shrink_active(node, Sort::File, most);
            }
            LruList::ActiveAnon | LruList::ActiveFile => scan.spared = true,
            LruList::Unevictable => {}
        }
    }

    /// Pages of each list to look at.
    fn scan_counts(&self, node: NodeId, scan: &Scan) -> [u32; EVICTABLE.len()] {
        let shares = self.shares(node, scan);
        // Close to the end all of either sort is looked at.
        let whole = if shares == EQUAL { 1 } else { shares.iter().sum() };
        EVICTABLE.map(|list| {
            let share = match list {
                LruList::InactiveAnon | LruList::ActiveAnon => shares[Sort::Anon as usize],
                LruList::InactiveFile | LruList::ActiveFile | LruList::Unevictable => shares[Sort::File as usize],
            };
            let pages = u64::from(self.frames().lru_pages(node, list) >> scan.priority);
            // Rounded up, so that a list that counts for little is looked at in the end.
            (pages * share).div_ceil(whole) as u32
        })
    }

    /// How attention is divided between the sorts.
    fn shares(&self, node: NodeId, scan: &Scan) -> [u64; Sort::ALL.len()] {
        const FILE_ONLY: [u64; 2] = [0, 1];
        const ANON_ONLY: [u64; 2] = [1, 0];
        let swappiness = self.settings.get(MmSetting::Swappiness);
        if !self.can_swap() || swappiness == 0 && scan.priority > 0 {
            return FILE_ONLY;
        }
        if scan.priority == 0 && swappiness > 0 {
            return EQUAL;
        }
        if self.files_are_few(node, scan) {
            return ANON_ONLY;
        }
        let inactive_files = self.frames().lru_pages(node, LruList::InactiveFile);
        if inactive_files >> scan.priority > 0 && !self.may_deactivate(node, Sort::File, scan) {
            return FILE_ONLY;
        }
        let [anon, file] = self.reclaim.node(node).costs();
        let all = anon + file;
        let (anon, file) = (all + anon, all + file);
        let all = anon + file;
        [swappiness * (all + 1) / (anon + 1), (200 - swappiness) * (all + 1) / (file + 1)]
    }

    /// Whether a node would stay below its marks if all its files went, so that taking more of them
    /// would only make them come back (`file_is_tiny`).
    fn files_are_few(&self, node: NodeId, scan: &Scan) -> bool {
        let (free, high) = self.marks_of(node);
        let inactive = self.frames().lru_pages(node, LruList::InactiveAnon);
        free + self.pages_of(node, Sort::File) <= high
            && !self.may_deactivate(node, Sort::Anon, scan)
            && inactive >> scan.priority > 0
    }

    /// Whether active pages of a sort should become inactive: too few are, or those that went came
    /// back.
    fn may_deactivate(&self, node: NodeId, sort: Sort, scan: &Scan) -> bool {
        scan.forced || self.inactive_is_low(node, sort) || self.reclaim.node(node).is_thrashing(sort)
    }

    /// Whether the inactive pages of a sort are too few for its active ones: the more there are,
    /// the smaller their part may be.
    fn inactive_is_low(&self, node: NodeId, sort: Sort) -> bool {
        let pages = |list| u64::from(self.frames().lru_pages(node, list));
        let (inactive, active) = (pages(sort.inactive()), pages(sort.active()));
        let gibibytes = ((inactive + active) * PAGE_SIZE) >> 30;
        let ratio = if gibibytes > 0 { (10 * gibibytes).isqrt() } else { 1 };
        inactive * ratio < active
    }

    /// Looks at the end of an inactive list: what is not in use may go.
    fn shrink_inactive(&self, node: NodeId, sort: Sort, most: u32, scan: &mut Scan) {
        let mut folios = ArrayVec::<IsolatedFolio, SWAP_CLUSTER_MAX>::new();
        let looked = self.isolate_some(node, sort.inactive(), most, &mut folios);
        let mut going = 0;
        for isolated in folios {
            match self.prepare(self.frames().folio(isolated.pfn()), scan) {
                Fate::Goes => {
                    scan.going.push(isolated);
                    going += 1;
                    if scan.going.is_full() {
                        self.send_out(scan);
                    }
                }
                Fate::Stays | Fate::Activated | Fate::Culled => self.putback(isolated),
            }
        }
        self.note_cost(node, sort, 0, looked.scanned - going);
        self.tlb.count(scan.counters().0, u64::from(looked.scanned));
    }

    /// Sends those out that may go: one wait for all.
    ///
    /// Who stays is put back.
    pub(super) fn send_out(&self, scan: &mut Scan) {
        if scan.going.is_empty() {
            return;
        }
        let mut going = core::mem::take(&mut scan.going);
        scan.sent += going.len() as u32;
        let out = self.page_out(&mut going);
        // What was written makes its sort dearer, and so does what stays.
        for pages in out.written.chunk_by(|a, b| a == b) {
            self.note_cost(pages[0], Sort::Anon, pages.len() as u32, 0);
        }
        for isolated in going {
            let folio = self.frames().folio(isolated.pfn());
            self.note_cost(self.node_of(folio), Sort::of(folio), 0, folio.pages());
            self.putback(isolated);
        }
        scan.freed += out.freed;
        self.tlb.count(scan.counters().1, u64::from(out.freed));
    }

    /// Finds out what becomes of an isolated folio and says so in its flags.
    fn prepare(&self, folio: Folio<'_>, scan: &Scan) -> Fate {
        let mut fate = self.check_references(folio);
        if fate == Fate::Goes && !is_reclaimable(folio) {
            // It would have a place in the batch and stay.
            fate = Fate::Stays;
        }
        let dirty_file = |folio: Folio<'_>| Sort::of(folio) == Sort::File && folio.flags().contains(FolioFlags::DIRTY);
        if fate == Fate::Goes && !folio.is_anon() && dirty_file(folio) {
            // Who allocates does not wait for a device: others do, and meanwhile the page is out of
            // the way.
            if scan.by != Reclaimer::Direct {
                self.write_back_around(folio);
            }
            if dirty_file(folio) {
                fate = Fate::Activated;
            }
        }
        match fate {
            Fate::Goes | Fate::Stays | Fate::Culled => {}
            Fate::Activated => self.activate_isolated(folio),
        }
        fate
    }

    /// Makes an isolated folio active.
    pub(super) fn activate_isolated(&self, folio: Folio<'_>) {
        folio.set_flags(FolioFlags::ACTIVE);
        self.note_activation(folio);
    }

    /// Writes a page of a file back, and the dirty ones beside it.
    fn write_back_around(&self, folio: Folio<'_>) {
        const AROUND: u64 = SWAP_CLUSTER_MAX as u64;
        let FolioOwner::File(id) = folio.owner() else { return };
        let Some(file) = self.files.get(id) else { return };
        let first = folio.index() / AROUND * AROUND;
        // What fails is dirty still, and tried again when it comes round.
        let _ = self.write_pages_back(&file, first, first + AROUND);
    }
}
