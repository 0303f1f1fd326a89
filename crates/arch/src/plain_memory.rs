//! Methods of [`Effects`](crate::Effects) that machines of plain memory share.
//!
//! Such a machine has no TLB, and its CPUs are threads of the host. The macros are invoked in its
//! implementation of the trait, in a crate that depends on `pagewright-types`.

/// Defines the accesses to entries that are words of memory.
///
/// The field `$frames` of the machine has a method `table`, which returns the words of a table's
/// frame, such as `FrameWords` of `pagewright-sync`.
#[macro_export]
macro_rules! entries_are_words {
    ($frames:tt) => {
        #[inline]
        fn table_words(&self, table: ::pagewright_types::Pfn) -> Option<$crate::TableWords<'_>> {
            Some(self.$frames.table(table))
        }

        #[inline]
        fn load(&self, slot: $crate::PteSlot) -> $crate::Pte {
            self.$frames.table(slot.table).load(slot.index as usize)
        }

        #[inline]
        fn store(&self, slot: $crate::PteSlot, pte: $crate::Pte) {
            self.$frames.table(slot.table).store(slot.index as usize, pte);
        }

        #[inline]
        fn swap(&self, slot: $crate::PteSlot, pte: $crate::Pte) -> $crate::Pte {
            self.$frames.table(slot.table).swap(slot.index as usize, pte)
        }

        fn compare_exchange(
            &self,
            slot: $crate::PteSlot,
            current: $crate::Pte,
            new: $crate::Pte,
        ) -> Result<(), $crate::Pte> {
            self.$frames.table(slot.table).compare_exchange(slot.index as usize, current, new)
        }
    };
}

/// Defines the accesses to pages that are words of memory.
///
/// The field `$frames` of the machine has methods `fill`, `copy`, `read` and `write`, such as
/// `FrameWords` of `pagewright-sync`.
#[macro_export]
macro_rules! pages_are_words {
    ($frames:tt) => {
        fn zero(&self, pfn: ::pagewright_types::Pfn, order: ::pagewright_types::Order) {
            self.$frames.fill(pfn, order, 0);
        }

        fn copy(&self, from: ::pagewright_types::Pfn, to: ::pagewright_types::Pfn, order: ::pagewright_types::Order) {
            self.$frames.copy(from, to, order);
        }

        fn read(&self, from: ::pagewright_types::PhysAddr, to: &mut [u8]) {
            self.$frames.read(from, to);
        }

        fn write(&self, to: ::pagewright_types::PhysAddr, from: &[u8]) {
            self.$frames.write(to, from);
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

/// Defines the methods about CPUs on a machine that has only the CPU `$cpu`.
#[macro_export]
macro_rules! one_cpu {
    ($cpu:expr) => {
        fn cpu(&self) -> ::pagewright_types::CpuId {
            $cpu
        }

        fn online(&self) -> ::pagewright_types::CpuMask {
            ::pagewright_types::CpuMask::of($cpu)
        }

        fn send_ipi(&self, _: &::pagewright_types::CpuMask) {
            unreachable!("one CPU sends no IPI")
        }

        fn relax(&self) {
            unreachable!("a lock is never contended on one CPU")
        }
    };
}

/// Defines the accesses to bytes of pages on a machine on which nothing makes them.
#[macro_export]
macro_rules! no_access_to_bytes {
    () => {
        fn read(&self, _: ::pagewright_types::PhysAddr, _: &mut [u8]) {
            unreachable!("nothing reads bytes on this machine")
        }

        fn write(&self, _: ::pagewright_types::PhysAddr, _: &[u8]) {
            unreachable!("nothing writes bytes on this machine")
        }
    };
}
