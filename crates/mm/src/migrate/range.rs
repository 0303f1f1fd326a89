//! Moving the pages of ranges: `mbind` with `MPOL_MF_MOVE`, and `migrate_pages`.

use super::Migrator;
use crate::error::MmError;
use crate::mm::Mm;
use crate::policy::MemPolicy;
use crate::space::Space;
use crate::thp::end_of_pieces;
use core::ops::ControlFlow;
use pagewright_arch::Isa;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{FrameRequest, IsolatedFolio};
use pagewright_types::{NodeId, NodeMask, Order, PAGE_SIZE, PageRange, VirtAddr};

/// Pages that move with one wait.
const TOGETHER: usize = 64;

/// Which pages of a range move, and where to.
struct RangeMove {
    /// The nodes whose pages stay.
    stay: NodeMask,
    /// Whether pages move that other processes map, too (`MPOL_MF_MOVE_ALL`).
    all: bool,
    /// The request for the copies.
    to: FrameRequest,
}

/// The pages of a range that were taken off their lists.
struct Taken {
    /// Where to go on.
    next: VirtAddr,
    /// How many were on no list.
    busy: u64,
    /// The large folio at which it stopped, and where its pages end.
    large: Option<(IsolatedFolio, VirtAddr)>,
}

impl<P: Platform> Mm<P> {
    /// Moves the pages of a process from some nodes to others (`migrate_pages(2)`).
    ///
    /// The pages of the first of `from` go to the first of `to`, and so on; if there are fewer in
    /// `to`, they are counted around (`node_remap`). As in Linux (`do_migrate_pages`), pages of a
    /// node of `to` stay if the numbers differ, and a node is emptied before it is filled, if
    /// possible. Pages that other processes map move only with `all`. Returns how many pages could
    /// not be moved.
    ///
    /// # Errors
    /// [`MmError::NoKernelMemory`]; pages before that have moved.
    pub fn migrate_pages(&self, space: &Space<P>, from: NodeMask, to: NodeMask, all: bool) -> Result<u64, MmError> {
        let (sources, targets) = (from.iter().count(), to.iter().count());
        let target_of = |(nth, node): (usize, NodeId)| {
            let target = to.iter().nth(nth % targets.max(1))?;
            let stays = target == node || sources != targets && to.contains(node);
            (!stays).then_some((node, target))
        };
        let pairs = || from.iter().enumerate().filter_map(target_of);
        self.declare_return_of(|| {
            let (mut left, mut failed) = (from, 0);
            loop {
                let remaining = || pairs().filter(|(source, _)| left.contains(*source));
                let next = remaining().find(|(_, target)| !left.contains(*target)).or_else(|| remaining().last());
                let Some((source, target)) = next else { return Ok(failed) };
                let stay = NodeMask::from_word(!NodeMask::of(source).word());
                left = left.intersection(stay);
                let to = FrameRequest::of_node(Order::ZERO, target);
                failed += self.move_range(space, P::Isa::USER, &RangeMove { stay, all, to })?;
            }
        })
    }

    /// Moves the pages of a range to the nodes of a policy; returns how many could not be moved.
    ///
    /// # Errors
    /// As [`migrate_pages`](Self::migrate_pages).
    pub(crate) fn move_to_policy(
        &self,
        space: &Space<P>,
        range: PageRange,
        (policy, nodes): (MemPolicy, NodeMask),
        all: bool,
    ) -> Result<u64, MmError> {
        self.move_range(space, range, &RangeMove { stay: nodes, all, to: self.request(Order::ZERO, policy) })
    }

    fn move_range(&self, space: &Space<P>, range: PageRange, what: &RangeMove) -> Result<u64, MmError> {
        let mut migrator = Migrator::try_new(self, TOGETHER)?;
        let (mut rest, mut failed) = (range, 0);
        while !rest.is_empty() {
            let Taken { mut next, busy, large } = self.take_misplaced(space, rest, what, &mut migrator);
            failed += busy;
            migrator.run(|isolated| {
                self.putback(isolated);
                failed += 1;
            });
            // Its pages are taken one by one then; if it stays whole, it is passed over.
            if let Some((isolated, end)) = large
                && !self.split_or_putback(isolated)
            {
                (next, failed) = (end.min(range.end()), failed + 1);
            }
            rest = PageRange::new(next, range.end());
        }
        Ok(failed)
    }

    /// Takes pages off their lists that are to move (`queue_folios_pte_range`).
    ///
    /// Stops at a large folio, which is to be split first (INV-MIGRATE-SMALL).
    fn take_misplaced(
        &self,
        space: &Space<P>,
        range: PageRange,
        what: &RangeMove,
        migrator: &mut Migrator<'_, P>,
    ) -> Taken {
        let map = space.map().read();
        let (mut busy, mut taken, mut large) = (0, 0, None);
        let full = self.for_each_misplaced((&map, map.tables(&self.tlb)), range, what.stay, |_, page| {
            if !what.all && page.is_shared {
                return ControlFlow::Continue(());
            }
            match (!page.is_moving).then(|| self.frames().isolate(page.folio)).flatten() {
                Some(isolated) if page.folio.is_large() => {
                    large = Some((isolated, end_of_pieces(page.va, page.pfn, page.folio)));
                    return ControlFlow::Break(page.va);
                }
                Some(isolated) => {
                    migrator.add(isolated, what.to);
                    taken += 1;
                }
                None => busy += 1,
            }
            if taken == TOGETHER { ControlFlow::Break(page.va.add(PAGE_SIZE)) } else { ControlFlow::Continue(()) }
        });
        Taken { next: full.break_value().unwrap_or(range.end()), busy, large }
    }
}
