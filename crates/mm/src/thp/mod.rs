//! Transparent huge pages: which sizes anonymous memory gets, and where.
//!
//! Key types: [`ThpSizes`], what the settings say together; [`ThpOrders`], the orders that one
//! mapping may get.
//!
//! ```text
//!   transparent_hugepage.hugepages-<size>   always │ inherit │ madvise │ never        for each order
//!   transparent_hugepage.enabled            always │ madvise │ never                  for those that inherit
//!   mapping                                 MADV_HUGEPAGE │ MADV_NOHUGEPAGE, MAP_STACK
//!   space                                   prctl(PR_SET_THP_DISABLE)
//! ```
//!
//! Linux's `thp_vma_allowable_orders`.
//!
//! Neighbours: `fault/huge.rs` maps huge pages; `settings` keeps the masks up to date; `zero_page`
//! has the one that loads map.
//!
//! Not guaranteed: that a fault which reads the masks while a setting changes sees all of them
//! changed.

mod deferred;
mod pieces;
mod split;
mod split_range;
mod split_request;
mod zero_page;

pub(crate) use pieces::{WholeFolios, are_all_beside, end_of_pieces, pieces_beside};
pub use split_range::SplitCounts;
pub use split_request::SplitRequest;

use crate::mm::Mm;
use crate::settings::MmSetting;
use crate::space::{Space, VmFlags, Vma};
use core::sync::atomic::{AtomicU32, Ordering};
use pagewright_sync::Platform;
use pagewright_types::Order;

/// The orders of huge pages, smallest first, each with the setting that enables it.
const SIZES: [(Order, MmSetting); 8] = [
    (Order::new(2), MmSetting::ThpEnabled16k),
    (Order::new(3), MmSetting::ThpEnabled32k),
    (Order::new(4), MmSetting::ThpEnabled64k),
    (Order::new(5), MmSetting::ThpEnabled128k),
    (Order::new(6), MmSetting::ThpEnabled256k),
    (Order::new(7), MmSetting::ThpEnabled512k),
    (Order::new(8), MmSetting::ThpEnabled1024k),
    (Order::PMD, MmSetting::ThpEnabled2048k),
];

/// A set of orders of huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct ThpOrders(u32);

impl ThpOrders {
    const NONE: Self = Self(0);
    /// That of pages of 2 MiB alone.
    pub(crate) const PMD: Self = Self(1 << Order::PMD.raw());

    fn with(self, order: Order, is_in: bool) -> Self {
        Self(self.0 | u32::from(is_in) << order.raw())
    }

    /// Whether there is none.
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `order` is one of them.
    pub(crate) fn contains(self, order: Order) -> bool {
        self.0 >> order.raw() & 1 != 0
    }

    /// The orders, the largest first.
    pub(crate) fn largest_first(self) -> impl Iterator<Item = Order> {
        SIZES.iter().rev().map(|(order, _)| *order).filter(move |order| self.contains(*order))
    }
}

/// The orders that mappings get, by what they have asked for.
#[derive(Debug, Default)]
pub(crate) struct ThpSizes {
    /// Those of a mapping that has asked for nothing.
    anywhere: AtomicU32,
    /// Those of a mapping with `MADV_HUGEPAGE`.
    advised: AtomicU32,
}

impl ThpSizes {
    /// Reads the settings again; `get` gives the value of one.
    pub(crate) fn update(&self, get: impl Fn(MmSetting) -> u64) {
        let enabled = get(MmSetting::ThpEnabled);
        let (mut anywhere, mut advised) = (ThpOrders::NONE, ThpOrders::NONE);
        for (order, setting) in SIZES {
            // 0 always, 1 inherit, 2 madvise, 3 never; of `enabled`: 0 always, 1 madvise, 2 never.
            let (everywhere, if_advised) = match get(setting) {
                0 => (true, true),
                1 => (enabled == 0, enabled <= 1),
                2 => (false, true),
                _ => (false, false),
            };
            anywhere = anywhere.with(order, everywhere);
            advised = advised.with(order, if_advised);
        }
        self.anywhere.store(anywhere.0, Ordering::Relaxed);
        self.advised.store(advised.0, Ordering::Relaxed);
    }
}

impl<P: Platform> Mm<P> {
    /// The orders of huge pages that anonymous memory of a mapping may get.
    #[inline]
    pub(crate) fn thp_orders(&self, space: &Space<P>, vma: &Vma<P>) -> ThpOrders {
        let sizes = self.settings.thp();
        let advised = ThpOrders(sizes.advised.load(Ordering::Relaxed));
        // One load where huge pages are off.
        if advised.is_empty() {
            return ThpOrders::NONE;
        }
        let flags = vma.flags();
        if flags.contains(VmFlags::NOHUGEPAGE) || space.thp_disabled().forbids(flags) {
            return ThpOrders::NONE;
        }
        if flags.contains(VmFlags::HUGEPAGE) { advised } else { ThpOrders(sizes.anywhere.load(Ordering::Relaxed)) }
    }
}

impl<P: Platform> Mm<P> {
    /// Whether a mapping that begins at page `start` may get a huge page somewhere (`THPeligible`).
    pub(crate) fn is_thp_eligible(&self, space: &Space<P>, vma: &Vma<P>, start: u64) -> bool {
        let fits = |order: Order| {
            let pages = u64::from(order.frames());
            start.next_multiple_of(pages) + pages <= vma.end()
        };
        let orders = self.thp_orders(space, vma);
        vma.file().is_none() && SIZES.iter().any(|(order, _)| orders.contains(*order) && fits(*order))
    }
}

/// What a process has asked for by `prctl(PR_SET_THP_DISABLE)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ThpDisabled {
    /// Nothing.
    No = 0,
    /// No huge pages anywhere.
    Yes = 1,
    /// None but where a mapping has `MADV_HUGEPAGE` (`PR_THP_DISABLE_EXCEPT_ADVISED`).
    ExceptAdvised = 3,
}

impl ThpDisabled {
    /// The value with this number, which is what `PR_GET_THP_DISABLE` returns.
    pub(crate) fn from_raw(raw: u8) -> Self {
        match raw {
            0 => Self::No,
            3 => Self::ExceptAdvised,
            _ => Self::Yes,
        }
    }

    #[inline]
    fn forbids(self, flags: VmFlags) -> bool {
        match self {
            Self::No => false,
            Self::Yes => true,
            Self::ExceptAdvised => !flags.contains(VmFlags::HUGEPAGE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::MmSettings;

    #[test]
    fn settings_say_which_orders_a_mapping_gets() {
        let settings = MmSettings::default();
        let set = |setting, value| settings.set(setting, value).expect("a value that it accepts");
        let orders = |mask: &AtomicU32| ThpOrders(mask.load(Ordering::Relaxed));
        let both = || (orders(&settings.thp().anywhere), orders(&settings.thp().advised));
        let only = |order| ThpOrders::NONE.with(order, true);
        let (none, pmd, small) = (ThpOrders::NONE, ThpOrders::PMD, Order::new(4));
        assert_eq!(both(), (none, pmd), "madvise, for 2 MiB alone");
        for (enabled, expected) in [(0, (pmd, pmd)), (2, (none, none)), (1, (none, pmd))] {
            set(MmSetting::ThpEnabled, enabled);
            assert_eq!(both(), expected, "enabled = {enabled}");
        }
        for (of_size, expected) in [
            (0, (only(small), pmd.with(small, true))),
            (1, (none, pmd.with(small, true))),
            (2, (none, pmd.with(small, true))),
            (3, (none, pmd)),
        ] {
            set(MmSetting::ThpEnabled64k, of_size);
            assert_eq!(both(), expected, "hugepages-64kB = {of_size}");
        }
        set(MmSetting::ThpEnabled, 2);
        set(MmSetting::ThpEnabled64k, 0);
        assert_eq!(both(), (only(small), only(small)), "a size of its own, although all others are off");
    }

    #[test]
    fn a_process_forbids_huge_pages_everywhere_or_where_they_are_not_asked_for() {
        for (disabled, plain, advised) in
            [(ThpDisabled::No, false, false), (ThpDisabled::Yes, true, true), (ThpDisabled::ExceptAdvised, true, false)]
        {
            assert_eq!(ThpDisabled::from_raw(disabled as u8), disabled);
            assert_eq!((disabled.forbids(VmFlags::empty()), disabled.forbids(VmFlags::HUGEPAGE)), (plain, advised));
        }
    }
}
