//! Promotion: hot pages of lower tiers go to the top tier (`should_numa_migrate_memory`).
//!
//! A page is hot if it is used soon after a scan made its leaf a hint: within the *hot threshold*.
//! The threshold adapts, so that as many pages are candidates as the rate limit lets through
//! (`numa_promotion_adjust_threshold`). A node with ample free memory takes every page.
//!
//! Key type: [`PromotionState`], one for each node that pages are promoted to.

use crate::mm::Mm;
use crate::numa::BalancingMode;
use crate::settings::MmSetting;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, NodeEvent, Watermarks};
use pagewright_types::{NodeId, PAGE_SIZE};

/// The steps in which the threshold moves, up to twice the setting (`NUMA_MIGRATION_ADJUST_STEPS`).
const STEPS: u64 = 16;
/// Free memory beyond the promotion watermark that is ample: this, or a 16th of the node if more.
const AMPLE: u64 = (1 << 30) / PAGE_SIZE;

/// What promotion to a node remembers (`nbp_*` of `struct pglist_data`).
#[derive(Debug, Default)]
pub(crate) struct PromotionState {
    /// The hot threshold in ms; 0 for that of the setting.
    threshold_ms: AtomicU64,
    /// When the threshold was adapted last, and how many candidates there were by then.
    adapted_ms: AtomicU64,
    adapted_candidates: AtomicU64,
    /// When the present second of the rate limit began, and how many candidates there were by then.
    second_ms: AtomicU64,
    second_candidates: AtomicU64,
}

impl<P: Platform> Mm<P> {
    /// Whether a page of a lower tier, whose hint is served now, is promoted to `node`.
    pub(crate) fn should_promote(&self, folio: Folio<'_>, node: NodeId) -> bool {
        let state = self.promotion(node);
        if self.has_ample_memory(node) {
            state.threshold_ms.store(0, Ordering::Relaxed);
            return true;
        }
        let limit = (self.settings.get(MmSetting::NumaPromoteRateLimit) << 20) / PAGE_SIZE;
        let default = self.settings.get(MmSetting::NumaHotThresholdMs);
        let threshold = self.adapted_threshold(node, limit, default);
        let now = self.time_note();
        let latency = folio.exchange_last_use(Some(now)).map_or(u32::MAX, |hinted| now.since(hinted));
        u64::from(latency) < threshold && !self.exceeds_rate(node, limit)
    }

    /// Whether a node can take a page that a hint fault moves (`migrate_balanced_pgdat`).
    ///
    /// Otherwise, in tiering mode, its background reclaim is woken to make room by demotion.
    pub(crate) fn has_room_for_hinted(&self, node: NodeId) -> bool {
        let has_room = self.zones_of(node).any(|zone| zone.free() > zone.watermarks().high);
        if !has_room && self.promotes() {
            self.frames().want_reclaim(node);
        }
        has_room
    }

    /// Counts a page that moved to `to` for a hint fault, if that is a promotion.
    pub(crate) fn note_promotion(&self, from: NodeId, to: NodeId) {
        let is_up = !self.frames().is_top_tier(from) && self.frames().is_top_tier(to);
        if is_up && self.promotes() {
            self.frames().count_node_event(to, NodeEvent::PromoteSuccess, 1);
        }
    }

    /// The watermark at which background reclaim of a zone stops (`pgdat_balanced`).
    ///
    /// In tiering mode it frees more, so that promotions find room.
    pub(crate) fn balanced_mark(&self, marks: Watermarks) -> u32 {
        if self.promotes() { marks.promo } else { marks.high }
    }

    /// Whether hint faults promote pages.
    pub(crate) fn promotes(&self) -> bool {
        self.balancing_mode() == Some(BalancingMode::Tiering)
    }

    fn promotion(&self, node: NodeId) -> &PromotionState {
        &self.promotions[node.index()]
    }

    /// Whether a node has so much free memory that any page may come (`pgdat_free_space_enough`).
    fn has_ample_memory(&self, node: NodeId) -> bool {
        let ample = AMPLE.max(self.managed_pages_of(node) / 16);
        self.zones_of(node).any(|zone| u64::from(zone.free()) >= u64::from(zone.watermarks().promo) + ample)
    }

    /// Counts a candidate, and returns whether those of this second exceed `limit` pages.
    fn exceeds_rate(&self, node: NodeId, limit: u64) -> bool {
        self.frames().count_node_event(node, NodeEvent::PromoteCandidate, 1);
        let (state, now) = (self.promotion(node), self.now_ms());
        let candidates = self.frames().node_events(node, NodeEvent::PromoteCandidate);
        if begins_again(&state.second_ms, now, 1000) {
            state.second_candidates.store(candidates, Ordering::Relaxed);
        }
        candidates.saturating_sub(state.second_candidates.load(Ordering::Relaxed)) >= limit
    }

    /// The hot threshold, moved towards one that makes `limit` pages a second candidates.
    fn adapted_threshold(&self, node: NodeId, limit: u64, default: u64) -> u64 {
        let state = self.promotion(node);
        let threshold = match state.threshold_ms.load(Ordering::Relaxed) {
            0 => default,
            adapted => adapted,
        };
        let period = self.settings.get(MmSetting::NumaScanPeriodMaxMs);
        if !begins_again(&state.adapted_ms, self.now_ms(), period) {
            return threshold;
        }
        let candidates = self.frames().node_events(node, NodeEvent::PromoteCandidate);
        let found = candidates.saturating_sub(state.adapted_candidates.swap(candidates, Ordering::Relaxed));
        let adapted = next_threshold(threshold, default, found, limit.saturating_mul(period) / 1000);
        state.threshold_ms.store(adapted, Ordering::Relaxed);
        adapted
    }
}

/// Whether more than `period` ms have passed since `since`, which becomes `now` then.
fn begins_again(since: &AtomicU64, now: u64, period: u64) -> bool {
    let began = since.load(Ordering::Relaxed);
    now.saturating_sub(began) > period
        && since.compare_exchange(began, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// The threshold after a period in which `found` pages were candidates, and `wanted` should be.
fn next_threshold(threshold: u64, default: u64, found: u64, wanted: u64) -> u64 {
    let step = default * 2 / STEPS;
    if found > wanted.saturating_mul(11) / 10 {
        threshold.saturating_sub(step).max(step)
    } else if found < wanted.saturating_mul(9) / 10 {
        (threshold + step).min(default * 2)
    } else {
        threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `numa_promotion_adjust_threshold`.
    #[test]
    fn the_threshold_moves_in_steps_between_its_bounds() {
        let cases = [
            ((1000, 200, 100), 875),
            ((1000, 110, 100), 1000),
            ((1000, 90, 100), 1000),
            ((1000, 89, 100), 1125),
            ((125, 200, 100), 125),
            ((2000, 0, 100), 2000),
        ];
        for ((threshold, found, wanted), adapted) in cases {
            assert_eq!(next_threshold(threshold, 1000, found, wanted), adapted, "{found} of {wanted}");
        }
    }
}
