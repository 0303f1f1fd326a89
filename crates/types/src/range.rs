//! Half-open ranges of pages and of frames.

use crate::addr::{Misaligned, PAGE_SIZE, Pfn, VirtAddr};
use core::fmt;
use thiserror::Error;

/// A half-open range of whole virtual pages, possibly empty.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageRange {
    start: VirtAddr,
    end: VirtAddr,
}

impl PageRange {
    /// The pages from `start` up to `end`.
    ///
    /// # Panics
    /// If an end is not page-aligned, or `end < start`.
    #[inline]
    pub const fn new(start: VirtAddr, end: VirtAddr) -> Self {
        assert!(start.is_page_aligned() && end.is_page_aligned(), "a range of pages is page-aligned");
        assert!(start.raw() <= end.raw(), "a range ends after it starts");
        Self { start, end }
    }

    /// The range of `len` bytes at `start`, rounded up to whole pages as in Linux's calls.
    ///
    /// # Errors
    /// [`RangeError`], if `start` is not page-aligned or the end is past 2^64.
    pub const fn from_len(start: VirtAddr, len: u64) -> Result<Self, RangeError> {
        if !start.is_page_aligned() {
            return Err(RangeError::Misaligned(Misaligned { addr: start.raw(), align: PAGE_SIZE }));
        }
        let Some(end) = start.checked_add(len) else {
            return Err(RangeError::Overflow { start, len });
        };
        match end.align_up(PAGE_SIZE) {
            Some(end) => Ok(Self { start, end }),
            None => Err(RangeError::Overflow { start, len }),
        }
    }

    /// The one page that contains `addr`.
    #[inline]
    pub const fn page(addr: VirtAddr) -> Self {
        let start = addr.align_down(PAGE_SIZE);
        Self { start, end: start.add(PAGE_SIZE) }
    }

    /// First byte.
    #[inline]
    pub const fn start(self) -> VirtAddr {
        self.start
    }

    /// First byte past the range.
    #[inline]
    pub const fn end(self) -> VirtAddr {
        self.end
    }

    /// The start of the last page; of an empty range, that of the page before it.
    #[inline]
    pub const fn last(self) -> VirtAddr {
        VirtAddr::new(self.end.raw().saturating_sub(PAGE_SIZE))
    }

    /// The length in bytes.
    #[inline]
    pub const fn len(self) -> u64 {
        self.end.raw() - self.start.raw()
    }

    /// The number of base pages.
    #[inline]
    pub const fn pages(self) -> u64 {
        self.len() / PAGE_SIZE
    }

    /// Whether the range is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.start.raw() == self.end.raw()
    }

    /// Whether the range contains `addr`.
    #[inline]
    pub const fn contains(self, addr: VirtAddr) -> bool {
        self.start.raw() <= addr.raw() && addr.raw() < self.end.raw()
    }

    /// Whether the range contains all of `other`.
    #[inline]
    pub const fn covers(self, other: Self) -> bool {
        self.start.raw() <= other.start.raw() && other.end.raw() <= self.end.raw()
    }

    /// Whether the ranges share a page.
    #[inline]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start.raw() < other.end.raw() && other.start.raw() < self.end.raw()
    }

    /// The pages in both ranges, if any.
    #[inline]
    pub fn intersect(self, other: Self) -> Option<Self> {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        (start < end).then_some(Self { start, end })
    }

    /// The first address of each page, in order.
    pub fn iter(self) -> impl Iterator<Item = VirtAddr> {
        (self.start.page_index()..self.end.page_index()).map(VirtAddr::from_page_index)
    }
}

impl fmt::Debug for PageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for PageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}-{:#x}", self.start.raw(), self.end.raw())
    }
}

/// The error of an address and a length that form no range of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RangeError {
    /// The start is not page-aligned.
    #[error(transparent)]
    Misaligned(Misaligned),
    /// The end is past 2^64.
    #[error("{len:#x} bytes at {start} pass the end of the address space")]
    Overflow {
        /// The start of the range.
        start: VirtAddr,
        /// The length in bytes.
        len: u64,
    },
}

/// A half-open range of frames, possibly empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameRange {
    start: Pfn,
    end: Pfn,
}

impl FrameRange {
    /// The frames from `start` up to `end`.
    ///
    /// # Panics
    /// If `end < start`.
    #[inline]
    pub const fn new(start: Pfn, end: Pfn) -> Self {
        assert!(start.raw() <= end.raw(), "a range ends after it starts");
        Self { start, end }
    }

    /// First frame.
    #[inline]
    pub const fn start(self) -> Pfn {
        self.start
    }

    /// First frame past the range.
    #[inline]
    pub const fn end(self) -> Pfn {
        self.end
    }

    /// The number of frames.
    #[inline]
    pub const fn frames(self) -> u32 {
        self.end.raw() - self.start.raw()
    }

    /// Whether the range contains `pfn`.
    #[inline]
    pub const fn contains(self, pfn: Pfn) -> bool {
        self.start.raw() <= pfn.raw() && pfn.raw() < self.end.raw()
    }

    /// Whether the ranges share a frame.
    #[inline]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start.raw() < other.end.raw() && other.start.raw() < self.end.raw()
    }
}

impl fmt::Display for FrameRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_rounded_up_to_pages() {
        let r = PageRange::from_len(VirtAddr::new(0x1000), 1);
        assert_eq!(r.map(PageRange::len), Ok(PAGE_SIZE));
        assert_eq!(PageRange::from_len(VirtAddr::new(0x1000), 0).map(PageRange::is_empty), Ok(true));
    }

    #[test]
    fn the_last_page_is_that_before_the_end() {
        let range = |a: u64, b: u64| PageRange::new(VirtAddr::new(a << 12), VirtAddr::new(b << 12));
        assert_eq!((range(2, 5).last(), range(2, 3).last()), (VirtAddr::new(4 << 12), VirtAddr::new(2 << 12)));
        assert_eq!((range(2, 2).last(), range(0, 0).last()), (VirtAddr::new(1 << 12), VirtAddr::ZERO));
    }

    #[test]
    fn ranges_that_wrap_or_straddle_are_refused() {
        assert!(matches!(PageRange::from_len(VirtAddr::new(0x1001), 1), Err(RangeError::Misaligned(_))));
        assert!(matches!(PageRange::from_len(VirtAddr::new(0x1000), u64::MAX), Err(RangeError::Overflow { .. })));
        // The end of the address space's last page does not fit a u64.
        assert!(matches!(PageRange::from_len(VirtAddr::new(!0xfff), 1), Err(RangeError::Overflow { .. })));
    }

    #[test]
    fn intersect_yields_the_pages_of_both_ranges() {
        let range = |a: u64, b: u64| PageRange::new(VirtAddr::new(a << 12), VirtAddr::new(b << 12));
        for (a, b) in [(range(0, 4), range(2, 6)), (range(0, 2), range(2, 4)), (range(1, 9), range(3, 4))] {
            let both = a.intersect(b);
            assert_eq!(both.is_some(), a.overlaps(b));
            for page in range(0, 10).iter() {
                assert_eq!(both.is_some_and(|r| r.contains(page)), a.contains(page) && b.contains(page));
            }
        }
    }
}
