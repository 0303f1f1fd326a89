//! Watermarks: how many frames a zone keeps back, and for whom (Linux's `__setup_per_zone_wmarks`).
//!
//! Key types: [`Watermarks`], and [`Urgency`], which says how far down a request may go.
//!
//! - above `low`: any request is served;
//! - between `low` and `min`: normal requests are still served, but only when no other zone is
//!   above its `low`; this is where Linux wakes kswapd, and what
//!   [`ZoneView::below_low`](crate::ZoneView::below_low) is for;
//! - below `min`: only [`Urgency::Reserve`] is served;
//! - `high`: where reclaim that was started below `low` may stop.
//!
//! Not guaranteed: that memory above a watermark is contiguous. Nothing is kept back for DMA32
//! (Linux's `lowmem_reserve_ratio`), because no request here asks for low addresses.

use pagewright_types::PAGE_SHIFT;

/// How badly a request needs memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Urgency {
    /// Stops at `min`.
    #[default]
    Normal,
    /// May take the last frame, for a caller that will free more than it takes or must not fail
    /// (Linux's `PF_MEMALLOC`).
    Reserve,
}

/// A zone's watermarks, in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Watermarks {
    /// What normal requests leave.
    pub min: u32,
    /// Where reclaim starts.
    pub low: u32,
    /// Where reclaim stops.
    pub high: u32,
}

/// Linux's `vm.min_free_kbytes` for a machine with `managed` frames: 4·√kbytes, between 128 KiB and
/// 256 MiB (`calculate_min_free_kbytes`).
pub(crate) fn min_free_kbytes(managed: u64) -> u64 {
    let kbytes = managed << (PAGE_SHIFT - 10);
    (kbytes * 16).isqrt().clamp(128, 262_144)
}

impl Watermarks {
    /// The share of a zone of `managed` frames in a machine of `machine` frames.
    ///
    /// `scale_factor` is the distance between the marks in units of 1/10 000 of the zone (Linux's
    /// `vm.watermark_scale_factor`), at least a quarter of `min`.
    pub(crate) fn of_zone(managed: u32, machine: u64, min_free_kbytes: u64, scale_factor: u16) -> Self {
        let pages_min = min_free_kbytes >> (PAGE_SHIFT - 10);
        let min = (u128::from(pages_min) * u128::from(managed) / u128::from(machine.max(1))) as u64;
        let gap = (min / 4).max(u64::from(managed) * u64::from(scale_factor) / 10_000);
        let cut = |mark: u64| mark.min(u64::from(managed)) as u32;
        Self { min: cut(min), low: cut(min + gap), high: cut(min + 2 * gap) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_those_of_a_linux_machine() {
        // 8 GiB in one zone: 11585 kB, and 0.1 % between the marks is less than a quarter of that.
        let frames = 8 << 18;
        assert_eq!(min_free_kbytes(u64::from(frames)), 11_585);
        let marks = Watermarks::of_zone(frames, u64::from(frames), 11_585, 10);
        assert_eq!(marks, Watermarks { min: 2896, low: 2896 + 2097, high: 2896 + 2 * 2097 });
    }

    #[test]
    fn small_and_large_machines_meet_the_clamps() {
        assert_eq!(min_free_kbytes(16), 128);
        assert_eq!(min_free_kbytes(1 << 32), 262_144);
        let tiny = Watermarks::of_zone(16, 16, 128, 10);
        assert_eq!(tiny, Watermarks { min: 16, low: 16, high: 16 });
    }
}
