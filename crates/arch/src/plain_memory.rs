//! Methods of [`Effects`](crate::Effects) that machines of plain memory share.
//!
//! Such a machine has no TLB, and its CPUs are threads of the host. The macros are invoked in its
//! implementation of the trait, in a crate that depends on `pagewright-types`.

/// Defines the accesses to entries that are words of memory.
///
/// The machine has a method `word`, which returns the `AtomicU64` of a
/// [`PteSlot`](crate::PteSlot).
#[macro_export]
macro_rules! entries_are_words {
    () => {
        fn load(&self, slot: $crate::PteSlot) -> $crate::Pte {
            $crate::Pte::from_raw(self.word(slot).load(::core::sync::atomic::Ordering::Acquire))
        }

        fn store(&self, slot: $crate::PteSlot, pte: $crate::Pte) {
            self.word(slot).store(pte.raw(), ::core::sync::atomic::Ordering::Release);
        }

        fn swap(&self, slot: $crate::PteSlot, pte: $crate::Pte) -> $crate::Pte {
            $crate::Pte::from_raw(self.word(slot).swap(pte.raw(), ::core::sync::atomic::Ordering::AcqRel))
        }

        fn compare_exchange(
            &self,
            slot: $crate::PteSlot,
            current: $crate::Pte,
            new: $crate::Pte,
        ) -> Result<(), $crate::Pte> {
            use ::core::sync::atomic::Ordering::{AcqRel, Acquire};
            let outcome = self.word(slot).compare_exchange(current.raw(), new.raw(), AcqRel, Acquire);
            outcome.map(drop).map_err($crate::Pte::from_raw)
        }
    };
}

/// Defines what does nothing on a machine without a TLB and without interrupts.
#[macro_export]
macro_rules! no_tlb_and_no_interrupts {
    () => {
        fn publish(&self) {}

        fn invalidate(&self, _: $crate::Invalidate) {}

        fn complete(&self) {}

        fn install_root(&self, _: ::pagewright_types::Pfn, _: ::pagewright_types::Tag, _: bool) {}

        fn without_interrupts<T>(&self, body: impl FnOnce() -> T) -> T {
            body()
        }

        fn may_wait(&self) -> bool {
            true
        }
    };
}
