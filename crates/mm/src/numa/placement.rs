//! Whether the page of a hint fault moves (`numa_migrate_check`, `should_numa_migrate_memory`).
//!
//! In normal mode, a page moves to the node of the CPU if a CPU of that node used it last, or if
//! nothing is known of its use. A page that several nodes use by turns stays. In tiering mode, a
//! page of a lower tier moves if it is hot (`tier/promote.rs`), and any other as in normal mode.

use super::period::HintFault;
use crate::mm::Mm;
use crate::policy::MemPolicy;
use crate::space::{Space, Vma};
use arrayvec::ArrayVec;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags, FrameRequest, IsolatedFolio, LastUse};
use pagewright_types::{Counter, CpuId, NodeId, Order, Rights};

/// What a hint fault found about its page.
pub(crate) struct HintedPage {
    /// The page, off its list, and the node to which it moves.
    pub(crate) moves: Option<(IsolatedFolio, NodeId)>,
    /// What is counted for the scan period.
    found: ArrayVec<HintFault, 3>,
    /// Whether the page lies in a lower tier in tiering mode, whose faults say nothing about nodes.
    is_slow: bool,
}

impl<P: Platform> Mm<P> {
    /// Counts a hint fault on the folio of a mapping, and decides whether it moves.
    ///
    /// The caller holds the lock of the table with the leaf.
    pub(crate) fn judge_hint(&self, vma: &Vma<P>, folio: Folio<'_>) -> HintedPage {
        let cpu = self.fx().cpu();
        let (here, there) = (self.frames().node_of_cpu(cpu), self.node_of(folio));
        self.tlb.count(Counter::NumaHintFaults, 1);
        if here == there {
            self.tlb.count(Counter::NumaHintFaultsLocal, 1);
        }
        let is_slow = self.notes_time(folio);
        let policy = self.policy_of(vma);
        let mut found = ArrayVec::new();
        found.push(if here == there { HintFault::Local } else { HintFault::Remote });
        let is_wanted = if !policy.balances() || !policy.permits(here) || self.zones_of(here).next().is_none() {
            false
        } else if is_slow {
            found.push(HintFault::Private);
            self.should_promote(folio, here)
        } else {
            let now = LastUse::new(u64::from(cpu.raw()));
            // Without a policy of its own, a page on the right node is judged no further.
            let is_settled = here == there && policy == MemPolicy::DEFAULT;
            let last = if is_settled { folio.last_use() } else { folio.exchange_last_use(Some(now)) };
            found.push(if last.is_none_or(|last| last == now) { HintFault::Private } else { HintFault::Shared });
            last.is_none_or(|last| self.node_of_noted(last) == Some(here))
        };
        let mut moves = None;
        if is_wanted && here != there {
            moves = self.isolate_hinted(vma, folio, here).map(|isolated| (isolated, here));
            if moves.is_none() {
                found.push(HintFault::Failed);
            }
        }
        HintedPage { moves, found, is_slow }
    }

    /// Ends a hint fault whose page was judged, after the page has moved if it should.
    ///
    /// # Locks
    /// If it should, the caller holds none but the lock of the space.
    pub(crate) fn end_hint(&self, space: &Space<P>, mut page: HintedPage) {
        if let Some((isolated, node)) = page.moves.take() {
            if self.move_hinted(isolated, node) {
                page.is_slow = false;
            } else {
                page.found.push(HintFault::Failed);
            }
        }
        if !page.is_slow {
            self.note_hint_fault(space, &page.found);
        }
    }

    /// The policy of a mapping, else that of the task.
    pub(super) fn policy_of(&self, vma: &Vma<P>) -> MemPolicy {
        vma.policy().or(|| self.task_policy())
    }

    /// The node of the CPU that a note names.
    fn node_of_noted(&self, last: LastUse) -> Option<NodeId> {
        let cpu = CpuId::new(u16::try_from(last.raw()).ok()?);
        (cpu.index() < self.frames().cpus()).then(|| self.frames().node_of_cpu(cpu))
    }

    /// Takes a page off its list that is to move (`migrate_misplaced_folio_prepare`).
    ///
    /// A node that is nearly full gets no page; in tiering mode its reclaim is woken.
    fn isolate_hinted(&self, vma: &Vma<P>, folio: Folio<'_>, to: NodeId) -> Option<IsolatedFolio> {
        let flags = folio.flags();
        if !flags.contains(FolioFlags::SWAPBACKED) {
            let is_library = vma.rights().contains(Rights::EXEC) && self.mappings_of(folio.pfn()) > 1;
            if is_library || flags.contains(FolioFlags::DIRTY) {
                return None;
            }
        }
        if !self.has_room_for_hinted(to) {
            return None;
        }
        self.frames().isolate(folio)
    }

    /// Moves a page, and returns whether it moved (`migrate_misplaced_folio`).
    fn move_hinted(&self, isolated: IsolatedFolio, node: NodeId) -> bool {
        let from = self.node_of(self.frames().folio(isolated.pfn()));
        let moved = self.move_page(isolated, FrameRequest::of_node(Order::ZERO, node));
        if moved {
            self.tlb.count(Counter::NumaPagesMigrated, 1);
            self.note_promotion(from, node);
        }
        moved
    }
}
