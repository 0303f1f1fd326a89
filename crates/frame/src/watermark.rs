//! Watermarks: how many frames a zone keeps back, and for which requests.
//!
//! Linux's `__setup_per_zone_wmarks`.
//!
//! Key types: [`Watermarks`]; [`Urgency`], how far below the watermarks a request may go.
//!
//! - Above `low`, the zone serves every request.
//! - Between `low` and `min`, the zone serves a normal request only if no other zone is above its
//!   `low`. Linux wakes kswapd here; [`ZoneView::below_low`](crate::ZoneView::below_low) reports
//!   it.
//! - Below `min`, the zone serves only [`Urgency::Reserve`], and down to three eighths of `min` a
//!   request for settled frames alone (`GFP_ATOMIC`).
//! - At `high`, reclaim that started below `low` may stop.
//! - At `promo`, it stops where pages are promoted, so that there is room for them.
//!
//! Not guaranteed: that memory above a watermark is contiguous. Nothing is kept back in DMA32
//! (Linux's `lowmem_reserve_ratio`), because no request here asks for low addresses.

use pagewright_types::PAGE_SHIFT;

/// How far below the watermarks a request may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Urgency {
    /// Not below `min`.
    #[default]
    Normal,
    /// To the last frame (`PF_MEMALLOC`).
    ///
    /// For a caller that will free more than it allocates, or must not fail.
    Reserve,
}

/// The watermarks of a zone, in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Watermarks {
    /// Normal requests leave at least this many frames free.
    pub min: u32,
    /// Reclaim starts below this.
    pub low: u32,
    /// Reclaim stops above this.
    pub high: u32,
    /// Where pages are promoted to the zone, reclaim stops above this instead (`WMARK_PROMO`).
    pub promo: u32,
}

impl Watermarks {
    /// The frames that a normal request leaves free if its caller may not wait.
    ///
    /// Linux's `__zone_watermark_ok` with `ALLOC_MIN_RESERVE` and `ALLOC_NON_BLOCK`.
    pub(crate) const fn min_atomic(self) -> u32 {
        let half = self.min - self.min / 2;
        half - half / 4
    }
}

/// Linux's default of `vm.min_free_kbytes` for a machine of `managed` frames, in KiB.
///
/// It is 4·√(size in KiB), between 128 KiB and 256 MiB (`calculate_min_free_kbytes`).
pub(crate) fn min_free_kbytes(managed: u64) -> u64 {
    let kbytes = managed << (PAGE_SHIFT - 10);
    (kbytes * 16).isqrt().clamp(128, 262_144)
}

impl Watermarks {
    /// The watermarks of a zone of `managed` frames on a machine of `machine` frames.
    ///
    /// `scale_factor` is the distance between the marks in units of 1/10,000 of the zone (Linux's
    /// `vm.watermark_scale_factor`). The distance is at least a quarter of `min`.
    pub(crate) fn of_zone(managed: u32, machine: u64, min_free_kbytes: u64, scale_factor: u16) -> Self {
        let pages_min = min_free_kbytes >> (PAGE_SHIFT - 10);
        let min = (u128::from(pages_min) * u128::from(managed) / u128::from(machine)) as u64;
        let gap = (min / 4).max(u64::from(managed) * u64::from(scale_factor) / 10_000);
        let cut = |mark: u64| mark.min(u64::from(managed)) as u32;
        Self { min: cut(min), low: cut(min + gap), high: cut(min + 2 * gap), promo: cut(min + 3 * gap) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermarks_equal_those_of_linux() {
        // 8 GiB in one zone: `min` is 11,585 KiB, and 0.1 % of the zone is more than a quarter of
        // it.
        let frames = 8 << 18;
        assert_eq!(min_free_kbytes(u64::from(frames)), 11_585);
        let marks = Watermarks::of_zone(frames, u64::from(frames), 11_585, 10);
        assert_eq!(marks, Watermarks { min: 2896, low: 2896 + 2097, high: 2896 + 2 * 2097, promo: 2896 + 3 * 2097 });
    }

    /// `vm.watermark_scale_factor` is at most 1,000.
    #[test]
    fn the_scale_factor_is_in_ten_thousandths_of_the_zone() {
        for (factor, gap) in [(1, 200), (10, 2_000), (1000, 200_000)] {
            let marks = Watermarks::of_zone(2_000_000, 2_000_000, 400, factor);
            assert_eq!(
                marks,
                Watermarks { min: 100, low: 100 + gap, high: 100 + 2 * gap, promo: 100 + 3 * gap },
                "factor {factor}"
            );
        }
    }

    #[test]
    fn min_free_is_clamped_on_small_and_large_machines() {
        assert_eq!(min_free_kbytes(16), 128);
        assert_eq!(min_free_kbytes(1 << 32), 262_144);
        let tiny = Watermarks::of_zone(16, 16, 128, 10);
        assert_eq!(tiny, Watermarks { min: 16, low: 16, high: 16, promo: 16 });
    }
}
