//! Moving the pages of ranges: `mbind` with `MPOL_MF_MOVE`, and `migrate_pages`.

use super::{Migrator, on_node};
use crate::error::MmError;
use crate::mm::Mm;
use crate::policy::MemPolicy;
use crate::space::Space;
use arrayvec::ArrayVec;
use core::ops::ControlFlow;
use pagewright_arch::Isa;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{FrameRequest, IsolatedFolio};
use pagewright_types::{NodeId, NodeMask, Order, PAGE_SIZE, PageRange, VirtAddr};

/// Pages that move with one wait.
const TOGETHER: usize = 64;

/// Which pages of a range move, and where to.
struct RangeMove<F> {
    /// The nodes whose pages stay.
    stay: NodeMask,
    /// Whether pages move that other processes map, too (`MPOL_MF_MOVE_ALL`).
    all: bool,
    /// Where a page of a node goes; `None` if it stays.
    to: F,
}

impl<P: Platform> Mm<P> {
    /// Moves the pages of a process from some nodes to others (`migrate_pages(2)`).
    ///
    /// The pages of the first of `from` go to the first of `to`, and so on; if there are fewer in
    /// `to`, they are counted around (`node_remap`). Pages that other processes map move only with
    /// `all`. Returns how many pages could not be moved.
    ///
    /// # Errors
    /// [`MmError::NoKernelMemory`]; pages before that have moved.
    pub fn migrate_pages(&self, space: &Space<P>, from: NodeMask, to: NodeMask, all: bool) -> Result<u64, MmError> {
        let stay = NodeMask::from_word(!from.word());
        let targets = to.iter().count();
        let target = |node: NodeId| {
            let nth = from.iter().position(|from| from == node).filter(|_| targets > 0)?;
            let to = to.iter().nth(nth % targets)?;
            (to != node).then(|| on_node(to))
        };
        let whole = PageRange::new(VirtAddr::ZERO, P::Isa::USER_END);
        self.call(|| self.move_range(space, whole, &RangeMove { stay, all, to: target }))
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
        self.move_range(space, range, &RangeMove { stay: nodes, all, to: |_| Some(self.request(Order::ZERO, policy)) })
    }

    fn move_range(
        &self,
        space: &Space<P>,
        range: PageRange,
        what: &RangeMove<impl Fn(NodeId) -> Option<FrameRequest>>,
    ) -> Result<u64, MmError> {
        let mut migrator = Migrator::try_new(self, TOGETHER)?;
        let (mut rest, mut failed) = (range, 0);
        while !rest.is_empty() {
            let mut taken = ArrayVec::<(IsolatedFolio, FrameRequest), TOGETHER>::new();
            let (next, busy) = self.take_misplaced(space, rest, what, &mut taken);
            failed += busy;
            for (isolated, request) in taken {
                if let Err((isolated, _)) = migrator.add(isolated, request) {
                    self.putback(isolated);
                    failed += 1;
                }
            }
            migrator.run(|isolated| {
                self.putback(isolated);
                failed += 1;
            });
            rest = PageRange::new(next, range.end());
        }
        Ok(failed)
    }

    /// Takes pages off their lists that are to move (`queue_folios_pte_range`).
    ///
    /// Returns where to go on, and how many were on no list.
    fn take_misplaced(
        &self,
        space: &Space<P>,
        range: PageRange,
        what: &RangeMove<impl Fn(NodeId) -> Option<FrameRequest>>,
        taken: &mut ArrayVec<(IsolatedFolio, FrameRequest), TOGETHER>,
    ) -> (VirtAddr, u64) {
        let map = space.map().read();
        let mut busy = 0;
        let full = self.for_each_misplaced((&map, map.tables(&self.tlb)), range, what.stay, |_, page| {
            let Some(request) = (what.to)(page.node).filter(|_| what.all || !page.is_shared) else {
                return ControlFlow::Continue(());
            };
            match self.frames().isolate(page.folio) {
                Some(isolated) => taken.push((isolated, request)),
                None => busy += 1,
            }
            if taken.is_full() { ControlFlow::Break(page.va.add(PAGE_SIZE)) } else { ControlFlow::Continue(()) }
        });
        (full.break_value().unwrap_or(range.end()), busy)
    }
}
