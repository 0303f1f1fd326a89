//! Demotion: reclaim moves pages to the next lower tier (`demote_folio_list`).
//!
//! A page that cannot be moved is reclaimed as without tiers. The copy comes from free frames of
//! the target node alone: an allocation that reclaims there would demote pages of it in turn.

use crate::migrate::{Migrator, on_node};
use crate::mm::Mm;
use crate::settings::MmSetting;
use arrayvec::ArrayVec;
use pagewright_sync::Platform;
use pagewright_tlb::frames::IsolatedFolio;
use pagewright_types::NodeId;

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
    /// The others stay in `folios`.
    pub(crate) fn demote<const N: usize>(&self, folios: &mut ArrayVec<IsolatedFolio, N>) -> u32 {
        let target = |isolated: &IsolatedFolio| self.demotion_target(self.node_of(self.frames().folio(isolated.pfn())));
        if !folios.iter().any(|isolated| target(isolated).is_some()) {
            return 0;
        }
        // Without memory for its lists, pages are reclaimed as without tiers.
        let Ok(mut migrator) = Migrator::try_new(self, folios.len()) else { return 0 };
        let mut staying = ArrayVec::<IsolatedFolio, N>::new();
        for isolated in folios.drain(..) {
            match target(&isolated) {
                Some(node) => migrator.add(isolated, on_node(node)),
                None => staying.push(isolated),
            }
        }
        let moved = migrator.run(|isolated| staying.push(isolated));
        *folios = staying;
        moved
    }
}
