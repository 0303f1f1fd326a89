//! What reports and checks see of a zone.

use super::{WatermarkLevel, Zone, ZoneKind};
use crate::watermark::Watermarks;
use pagewright_sync::Backend;
use pagewright_types::{NodeId, Order};

/// A view of one zone, for reports and checks.
pub struct ZoneView<'a, L: Backend>(pub(crate) &'a Zone<L>);

impl<L: Backend> ZoneView<'_, L> {
    /// The node of the zone.
    pub fn node(&self) -> NodeId {
        self.0.node
    }

    /// The part of the node's memory that the zone covers.
    pub fn kind(&self) -> ZoneKind {
        self.0.kind
    }

    /// The number of frames of the zone.
    pub fn managed(&self) -> u32 {
        self.0.managed
    }

    /// The watermarks of the zone, in frames.
    pub fn watermarks(&self) -> Watermarks {
        self.0.marks
    }

    /// The number of frames on the buddy lists (`nr_free_pages`).
    pub fn free(&self) -> u32 {
        self.0.free()
    }

    /// The number of frames on per-CPU lists.
    ///
    /// Takes the `PerCpuPagesRank` lock of each CPU in turn.
    pub fn on_pcp(&self) -> u32 {
        self.0.pcp.iter().map(|lists| lists.lock().frames()).sum()
    }

    /// The number of free frames that carry a debt.
    pub fn parked(&self) -> u32 {
        self.0.parked()
    }

    /// The most blocks that one hold of the zone's lock has parked or unparked.
    ///
    /// Takes the `ZoneRank` lock.
    pub fn longest_hold(&self) -> usize {
        self.0.buddy.lock().longest_hold()
    }

    /// The number of free blocks of one order on the buddy lists (`/proc/buddyinfo`).
    ///
    /// Takes the `ZoneRank` lock.
    pub fn blocks(&self, order: Order) -> u32 {
        self.0.buddy.lock().blocks(order)
    }

    /// Whether at most `low` frames are free, so that reclaim should run.
    pub fn below_low(&self) -> bool {
        !self.0.above(WatermarkLevel::Low, Order::ZERO, false)
    }
}
