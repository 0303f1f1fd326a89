//! Virtual and physical addresses and page frame numbers.
//!
//! The base page is 4 KiB on both instruction sets (arm64 with the 4K granule), so the page shift
//! is a constant. A frame number has 32 bits, which limits physical memory to 16 TiB and list links
//! in the memmap to four bytes.

use core::fmt;
use thiserror::Error;

/// log2 of the base page size.
pub const PAGE_SHIFT: u32 = 12;
/// The base page size, in bytes.
pub const PAGE_SIZE: u64 = 1 << PAGE_SHIFT;

/// The error of an address that is not a multiple of `align` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("address {addr:#x} is not a multiple of {align:#x}")]
pub struct Misaligned {
    /// The address.
    pub addr: u64,
    /// The required alignment, in bytes.
    pub align: u64,
}

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Address zero.
            pub const ZERO: Self = Self(0);

            /// The address `raw`; any 64-bit value is valid.
            #[inline]
            pub const fn new(raw: u64) -> Self {
                Self(raw)
            }

            /// The address as a number.
            #[inline]
            pub const fn raw(self) -> u64 {
                self.0
            }

            /// Offset within the base page, in bytes.
            #[inline]
            pub const fn page_offset(self) -> u64 {
                self.0 & (PAGE_SIZE - 1)
            }

            /// Whether the address is a multiple of the base page size.
            #[inline]
            pub const fn is_page_aligned(self) -> bool {
                self.page_offset() == 0
            }

            /// Largest multiple of `align` (a power of two, in bytes) not above the address.
            #[inline]
            pub const fn align_down(self, align: u64) -> Self {
                debug_assert!(align.is_power_of_two());
                Self(self.0 & !(align - 1))
            }

            /// Smallest multiple of `align` (a power of two, in bytes) not below the address.
            ///
            /// `None` if it is past 2^64.
            #[inline]
            pub const fn align_up(self, align: u64) -> Option<Self> {
                debug_assert!(align.is_power_of_two());
                match self.0.checked_add(align - 1) {
                    Some(sum) => Some(Self(sum & !(align - 1))),
                    None => None,
                }
            }

            /// Whether the address is a multiple of `align` (a power of two, in bytes).
            #[inline]
            pub const fn is_aligned(self, align: u64) -> bool {
                debug_assert!(align.is_power_of_two());
                self.0 & (align - 1) == 0
            }

            /// The address plus `bytes`, or `None` past 2^64.
            #[inline]
            pub const fn checked_add(self, bytes: u64) -> Option<Self> {
                match self.0.checked_add(bytes) {
                    Some(sum) => Some(Self(sum)),
                    None => None,
                }
            }

            /// The address plus `bytes`.
            ///
            /// # Panics
            /// In debug builds, if the sum passes 2^64. [`Self::checked_add`] is for values that
            /// user mode supplies.
            #[inline]
            #[allow(clippy::should_implement_trait)]
            pub const fn add(self, bytes: u64) -> Self {
                Self(self.0 + bytes)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

address! {
    /// A virtual address, in user memory unless stated otherwise.
    VirtAddr
}
address! {
    /// A physical address.
    PhysAddr
}

impl VirtAddr {
    /// The page number: the address divided by the base page size.
    ///
    /// The reverse map finds an anonymous page by it (Linux's `linear_page_index`).
    #[inline]
    pub const fn page_index(self) -> u64 {
        self.0 >> PAGE_SHIFT
    }

    /// The first address of page number `index`.
    #[inline]
    pub const fn from_page_index(index: u64) -> Self {
        Self(index << PAGE_SHIFT)
    }

    /// Bytes from `start` to this address.
    ///
    /// # Panics
    /// In debug builds, if `start` is above this address.
    #[inline]
    pub const fn since(self, start: Self) -> u64 {
        self.0 - start.0
    }
}

/// A page frame number: a physical address divided by the base page size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Pfn(u32);

impl Pfn {
    /// Frame number `raw`.
    #[inline]
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }

    /// The frame that contains `addr`.
    ///
    /// # Panics
    /// If the address is past 16 TiB, which no codec of `arch` produces.
    #[inline]
    pub const fn containing(addr: PhysAddr) -> Self {
        let number = addr.raw() >> PAGE_SHIFT;
        assert!(number <= u32::MAX as u64, "physical address past 16 TiB");
        Self(number as u32)
    }

    /// The number itself.
    #[inline]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// The number as an index into per-frame data.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// First byte of the frame.
    #[inline]
    pub const fn base(self) -> PhysAddr {
        PhysAddr::new((self.0 as u64) << PAGE_SHIFT)
    }

    /// The frame number plus `frames`.
    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub const fn add(self, frames: u32) -> Self {
        Self(self.0 + frames)
    }

    /// Whether the frame is aligned to a block of `order`.
    #[inline]
    pub const fn is_aligned(self, order: crate::Order) -> bool {
        self.0 & (order.frames() - 1) == 0
    }
}

impl fmt::Debug for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pfn({:#x})", self.0)
    }
}

impl fmt::Display for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignment_is_exact_at_the_limits() {
        let a = VirtAddr::new(0x1fff);
        assert_eq!(a.align_down(PAGE_SIZE), VirtAddr::new(0x1000));
        assert_eq!(a.align_up(PAGE_SIZE), Some(VirtAddr::new(0x2000)));
        assert_eq!(VirtAddr::new(u64::MAX).align_up(PAGE_SIZE), None);
        assert_eq!(VirtAddr::ZERO.align_up(PAGE_SIZE), Some(VirtAddr::ZERO));
    }

    #[test]
    fn a_frame_number_round_trips_through_its_address() {
        for raw in [0, 1, 0xabcde, u32::MAX] {
            assert_eq!(Pfn::containing(Pfn::new(raw).base()).raw(), raw);
        }
    }
}
