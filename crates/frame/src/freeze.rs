//! Freezing: taking all references of a folio at once, so that no lookup finds it during a split.
//!
//! Linux's `folio_ref_freeze` and `__split_unmapped_folio`.
//!
//! Key types: [`FrozenFolio`], a folio without references that has one owner; [`FolioParts`], the
//! smaller folios into which it was split, each still frozen.
//!
//! ```text
//! Folio (refs = expected) ─ freeze ─▶ FrozenFolio (refs = 0) ─ thaw(refs) ─▶ Folio
//!                                          │ split(order)                      ▲
//!                                          └─▶ FolioParts: FrozenFolio, … ─────┘
//! ```
//!
//! Invariants:
//! - **INV-FRAME-FROZEN** A folio is frozen only from exactly the count that the caller accounts
//!   for, and no reference can be taken while it is frozen. So an unexpected reference, such as a
//!   pin or a speculative look-up, prevents it.
//!
//! Not guaranteed: that the count given to `thaw` is right. Only the caller knows the references to
//! each part.

use crate::folio::{Folio, clear_counts};
use crate::folio_flags::FolioFlags;
use crate::folio_ref::FolioRef;
use crate::memmap::Memmap;
use crate::record::{FrameKind, FrameRecord, FrameState};
use core::fmt;
use core::iter::FusedIterator;
use core::sync::atomic::Ordering;
use pagewright_plant::plant;
use pagewright_sync::bomb;
use pagewright_types::{Order, Pfn};

/// The folio has another number of references than the caller can account for.
///
/// Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotFrozen {
    /// The first frame of the folio.
    pub pfn: Pfn,
    /// The number of references that the caller can account for.
    pub expected: u32,
    /// The number of references found.
    pub found: u32,
}

impl fmt::Display for NotFrozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the folio at {} has {} references, not {}", self.pfn, self.found, self.expected)
    }
}

/// A folio without references; the owner of this value owns the folio.
#[must_use = "dropping a frozen folio leaks it"]
pub struct FrozenFolio<'a>(Folio<'a>);

impl<'a> Folio<'a> {
    /// Takes all references of the folio, if there are exactly `expected`.
    ///
    /// The caller gives them back with [`FrozenFolio::thaw`].
    ///
    /// # Errors
    /// [`NotFrozen`] when the count differs; nothing changed.
    ///
    /// # Panics
    /// In debug builds when `expected` is 0.
    pub fn freeze(self, expected: u32) -> Result<FrozenFolio<'a>, NotFrozen> {
        debug_assert!(expected > 0, "INV-FRAME-FROZEN: the folio at {} is frozen from 0 references", self.head);
        match self.record().counts.exchange_refs(expected, 0) {
            Ok(()) => Ok(FrozenFolio(self)),
            Err(found) => Err(NotFrozen { pfn: self.head, expected, found }),
        }
    }
}

impl<'a> FrozenFolio<'a> {
    /// A view of the folio.
    pub fn folio(&self) -> Folio<'a> {
        self.0
    }

    /// Makes the folio visible to lookups again, with `refs` references.
    ///
    /// # Panics
    /// In debug builds when `refs` is 0.
    pub fn thaw(self, refs: u32) {
        let folio = self.into_inner();
        debug_assert!(refs > 0, "INV-FRAME-REFS: the folio at {} is thawed without references", folio.head);
        folio.record().counts.add_refs(refs);
    }

    /// As [`thaw`](Self::thaw), with a reference for each entry and one for the caller.
    ///
    /// The entries are those of the mapcount; their references exist as frame numbers alone.
    pub fn thaw_mapped(self) -> FolioRef {
        let head = self.0.head;
        let refs = self.0.mapcount() + 1;
        self.thaw(refs);
        FolioRef::new(head)
    }

    /// Splits the folio into folios of order `to`, in the order of their frames.
    ///
    /// Each part keeps the owner, flags, age and debt, and gets the index of its own first page.
    /// Only the first part keeps the folio lock.
    ///
    /// # Panics
    /// In debug builds when the folio is mapped, pinned, on an LRU list, or not larger than `to`.
    pub fn split(self, to: Order) -> FolioParts<'a> {
        debug_assert!(!self.0.is_mapped(), "INV-FRAME-MAP: the folio at {} is split while mapped", self.0.head);
        self.split_with(to, |part, new| {
            if part > 0 {
                clear_counts(new);
            }
        })
    }

    /// Splits a folio that entries map into its pages, in the order of their frames.
    ///
    /// As [`split`](Self::split), and each page gets the entries that map it, by itself or with the
    /// whole folio. `mlocks` says how many of these are of locked memory, which makes the page
    /// unevictable. No entry of the folio comes or goes meanwhile: all are migration entries.
    ///
    /// # Panics
    /// In debug builds when the folio is pinned, on an LRU list, or small.
    pub fn split_mapped(self, mlocks: impl Fn(u32) -> u32) -> FolioParts<'a> {
        let (entire, first) = (self.0.entire_mapcount(), self.0.page_mapcount(0));
        self.split_with(Order::ZERO, |index, new| {
            let own = if index == 0 { first } else { new.counts.mappings() };
            new.mapped_or_shares.store(0, Ordering::Relaxed);
            new.pincount_or_swap.store(0, Ordering::Relaxed);
            new.counts.set(0, plant!(SplitLosesWhole; own, own + entire));
            let locked = mlocks(index);
            new.first_page_or_mlocks.store(locked, Ordering::Relaxed);
            let unevictable = FolioFlags::UNEVICTABLE.bits();
            match locked {
                0 => new.flags.fetch_and(!unevictable, Ordering::Relaxed),
                _ => new.flags.fetch_or(unevictable, Ordering::Relaxed),
            };
        })
    }

    /// Makes a folio of each part; `set_counts` sets the counts of its record.
    fn split_with(self, to: Order, set_counts: impl Fn(u32, &FrameRecord)) -> FolioParts<'a> {
        let folio = self.into_inner();
        let (memmap, head) = (folio.memmap, folio.head);
        let record = folio.record();
        let kind = record.kind();
        debug_assert!(to < kind.order(), "INV-FRAME-FROZEN: the folio at {head} is not larger than order {to}");
        debug_assert!(!folio.maybe_pinned(), "INV-FRAME-PIN: the folio at {head} is split while pinned");
        debug_assert!(
            !folio.flags().intersects(FolioFlags::LRU | FolioFlags::DEFERRED),
            "INV-LRU-PLACE, INV-DEFERRED-QUEUE: the folio at {head} is split while on a list"
        );
        let flags = record.flags.load(Ordering::Relaxed) & !FolioFlags::LOCKED.bits();
        let debt = record.debt();
        let owner = record.owner_or_space.load(Ordering::Relaxed);
        let part_kind = FrameKind::block(FrameState::Folio, to, kind.zone());
        let count = 1 << (kind.order().raw() - to.raw());
        // The head is last: until its kind changes, a lookup by a tail finds the whole folio, which
        // has no references to take.
        for part in (0..count).rev() {
            let first = head.add(part << to.raw());
            memmap.name_tails(first, to, part_kind);
            let new = memmap.at(first);
            if part > 0 {
                new.flags.store(flags, Ordering::Relaxed);
                new.owner_or_space.store(owner, Ordering::Relaxed);
                new.index.store(folio.index() + (u64::from(part) << to.raw()), Ordering::Relaxed);
                new.set_debt(plant!(SplitDebtLost; pagewright_types::DebtKey::NONE, debt));
            }
            set_counts(part, new);
            new.set_kind(part_kind);
        }
        FolioParts { memmap, head, order: to, next: 0, count }
    }

    fn into_inner(self) -> Folio<'a> {
        let folio = self.0;
        core::mem::forget(self);
        folio
    }
}

impl fmt::Debug for FrozenFolio<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FrozenFolio").field(&self.0).finish()
    }
}

impl Drop for FrozenFolio<'_> {
    fn drop(&mut self) {
        bomb::dropped(format_args!("INV-FRAME-LINEAR: leaked frozen folio at {}", self.0.head));
    }
}

/// The folios into which a frozen folio was split, each frozen.
#[must_use = "dropping the parts of a folio leaks them"]
pub struct FolioParts<'a> {
    memmap: &'a Memmap,
    head: Pfn,
    order: Order,
    next: u32,
    count: u32,
}

impl<'a> Iterator for FolioParts<'a> {
    type Item = FrozenFolio<'a>;

    fn next(&mut self) -> Option<FrozenFolio<'a>> {
        let part = self.next;
        if part == self.count {
            return None;
        }
        self.next += 1;
        Some(FrozenFolio(Folio::at(self.memmap, self.head.add(part << self.order.raw()))))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.count - self.next) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for FolioParts<'_> {}
impl FusedIterator for FolioParts<'_> {}

impl Drop for FolioParts<'_> {
    fn drop(&mut self) {
        if self.next < self.count {
            bomb::dropped(format_args!(
                "INV-FRAME-LINEAR: leaked {} parts of the folio at {}",
                self.count - self.next,
                self.head
            ));
        }
    }
}
