//! Demotion: reclaim moves pages to the next lower tier (`demote_folio_list`).
//!
//! A page that cannot be moved is reclaimed as without tiers. The copy comes from free frames of
//! the target node alone: an allocation that reclaims there would demote pages of it in turn.

use crate::migrate::Migrator;
use crate::mm::Mm;
use crate::reclaim::PageOutFlush;
use crate::settings::MmSetting;
use arrayvec::ArrayVec;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags, FrameRequest, IsolatedFolio, MAX_NODES, NodeEvent};
use pagewright_types::{NodeId, Order};

impl<P: Platform> Mm<P> {
    /// The node to which reclaim moves pages of `node`, if it does (`can_demote`).
    pub(crate) fn demotion_target(&self, node: NodeId) -> Option<NodeId> {
        if self.settings.get(MmSetting::DemotionEnabled) == 0 {
            return None;
        }
        self.frames().demotion_target(node)
    }

    /// Moves isolated pages to lower tiers with one wait, and returns how many moved.
    ///
    /// The others stay in `folios`. Each page that moved is counted as `event` of its node.
    pub(crate) fn demote<const N: usize>(
        &self,
        folios: &mut ArrayVec<IsolatedFolio, N>,
        event: NodeEvent,
        flush: PageOutFlush,
    ) -> u32 {
        if self.settings.get(MmSetting::DemotionEnabled) == 0 {
            return 0;
        }
        let (mut going, mut staying) = (ArrayVec::<_, N>::new(), ArrayVec::<_, N>::new());
        let mut left = [0; MAX_NODES];
        for isolated in folios.drain(..) {
            let folio = self.frames().folio(isolated.pfn());
            let from = self.node_of(folio);
            let stays = plant!(UnevictableDemoted; false, self.is_kept_in_place(folio));
            match self.demotion_target(from).filter(|_| !stays) {
                Some(to) => {
                    left[from.index()] += 1;
                    going.push((isolated, FrameRequest::of_node(Order::ZERO, to)));
                }
                None => staying.push(isolated),
            }
        }
        let mut moved = 0;
        if !going.is_empty() {
            match Migrator::try_new(self, going.len()) {
                Ok(mut migrator) => {
                    if flush == PageOutFlush::Complete {
                        migrator.complete_flushes();
                    }
                    going.into_iter().for_each(|(isolated, request)| migrator.add(isolated, request));
                    moved = migrator.run(|isolated| {
                        left[self.node_of(self.frames().folio(isolated.pfn())).index()] -= 1;
                        staying.push(isolated);
                    });
                    for node in self.nodes().filter(|node| left[node.index()] > 0) {
                        self.frames().count_node_event(node, event, left[node.index()]);
                    }
                }
                // Without memory for its lists, pages are reclaimed as without tiers.
                Err(_) => staying.extend(going.into_iter().map(|(isolated, _)| isolated)),
            }
        }
        *folios = staying;
        moved
    }

    /// Whether a folio became mlocked or unevictable after reclaim had selected it.
    fn is_kept_in_place(&self, folio: Folio<'_>) -> bool {
        folio.flags().contains(FolioFlags::UNEVICTABLE) || self.is_unevictable(folio)
    }
}
