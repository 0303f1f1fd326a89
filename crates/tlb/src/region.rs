//! Parts of an address space by which edits for all sharers are told apart.
//!
//! Spaces that share a table have it at the same addresses. So a family notes the region of each
//! edit, and a space looks only at its tables of the regions that were edited.
//!
//! Key types: [`Region`], [`RegionSet`].
//!
//! Not guaranteed: that addresses of one region are near each other. In a space of more than 64 GiB
//! several gigabytes are one region.

use pagewright_types::{Level, PageRange, VirtAddr};

/// The addresses of every 64th GiB: what an entry of the level PUD spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region(u8);

impl Region {
    /// The number of regions.
    pub const COUNT: usize = u64::BITS as usize;

    /// The region of an address.
    #[inline]
    pub fn of(va: VirtAddr) -> Self {
        Self((va.raw() / Level::PUD.span() % Self::COUNT as u64) as u8)
    }

    /// The index of the region.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A set of regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionSet(u64);

impl RegionSet {
    /// The regions that have an address of `range`.
    pub fn of(range: PageRange) -> Self {
        if range.is_empty() {
            return Self(0);
        }
        let last = range.last();
        let more = last.raw() / Level::PUD.span() - range.start().raw() / Level::PUD.span();
        let ones = if more < 63 { (1 << (more + 1)) - 1 } else { u64::MAX };
        Self(ones.rotate_left(u32::from(Region::of(range.start()).0)))
    }

    /// The set of these bits, one for each region.
    #[inline]
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// One bit for each region.
    #[inline]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether a region is in the set.
    #[inline]
    pub fn contains(self, region: Region) -> bool {
        self.0 >> region.0 & 1 != 0
    }

    /// The regions that are in both sets.
    pub fn intersect(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The regions of the set, in time by their number.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = Region> + Clone {
        let without_first = |rest: &u64| Some(rest & rest.wrapping_sub(1));
        let rests = core::iter::successors(Some(self.0), without_first).take_while(|rest| *rest != 0);
        rests.map(|rest| Region(rest.trailing_zeros() as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::{Region, RegionSet};
    use alloc::vec::Vec;
    use pagewright_types::{PageRange, VirtAddr};

    const GIB: u64 = 1 << 30;

    fn range(from: u64, to: u64) -> PageRange {
        PageRange::new(VirtAddr::new(from), VirtAddr::new(to))
    }

    #[test]
    fn a_set_has_the_region_of_each_address_and_no_other() {
        let indices = |from, to| RegionSet::of(range(from, to)).iter().map(Region::index).collect::<Vec<_>>();
        assert!(RegionSet::of(range(GIB, GIB)).is_empty());
        assert_eq!(indices(GIB - 4096, GIB), [0]);
        assert_eq!(indices(GIB - 4096, GIB + 4096), [0, 1]);
        assert_eq!(indices(62 * GIB, 66 * GIB), [0, 1, 62, 63], "the 64th is the first again");
        assert_eq!(indices(5 * GIB, 68 * GIB).len(), 63);
        assert_eq!(indices(5 * GIB, 69 * GIB).len(), 64);
        assert_eq!(indices(0, 1 << 47).len(), 64);
    }

    #[test]
    fn a_set_contains_its_regions_and_an_intersection_those_of_both() {
        let at = |gib: u64| Region::of(VirtAddr::new(gib * GIB));
        let (one, other) = (RegionSet::of(range(3 * GIB, 7 * GIB)), RegionSet::of(range(5 * GIB, 9 * GIB)));
        let of_both = one.intersect(other);
        for gib in 0..Region::COUNT as u64 {
            let (in_one, in_other) = ((3..7).contains(&gib), (5..9).contains(&gib));
            assert_eq!((one.contains(at(gib)), other.contains(at(gib))), (in_one, in_other), "GiB {gib}");
            assert_eq!(of_both.contains(at(gib)), in_one && in_other, "GiB {gib}");
        }
        assert!(!of_both.is_empty() && one.intersect(RegionSet::of(range(7 * GIB, 8 * GIB))).is_empty());
    }
}
