//! Secondary MMUs: devices that walk a space's tables and cache translations.
//!
//! Such a device has shared virtual addresses, or is a GPU (Linux's `mmu_notifier`,
//! `arch_invalidate_secondary_tlbs`).
//!
//! **INV-TLB-SECONDARY** A secondary MMU that walks a space's tables is notified of each entry that
//! was cleared or weakened before any wait for CPUs, deferred or not. Otherwise a device would use
//! a page that the CPUs have lost.
//!
//! It is notified when a flush is deferred, when it is made, and when a debt is dropped, and waits
//! for its device within the call.
//!
//! It may be notified more than once, and of more than was edited. It must read the tables again.
//!
//! Not guaranteed: that a page it uses stays. Code that unmaps pages to free them looks for pins.
//! The embedder must refuse to free a page that such a device maps without a pin.

use crate::context::TlbContext;
use crate::engine::Tlb;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use pagewright_sync::{AllocError, Platform, SpinLock, rank};
use pagewright_types::{PageRange, SpaceId};

/// A device that walks a space's tables and caches translations (Linux's `mmu_notifier`).
pub trait SecondaryMmu: Send + Sync {
    /// Flushes the device's translations for `range`, or for the whole space if `None`.
    ///
    /// Returns when the device can no longer use them. The caller may hold the lock of a page
    /// table: the implementation must not acquire locks that are held around memory calls,
    /// allocate, or call this crate.
    fn invalidate_secondary(&self, range: Option<PageRange>);
}

type Registered = (SpaceId, Arc<dyn SecondaryMmu>);

/// All of them on one machine.
///
/// There are few, so they are searched one by one.
pub(crate) struct Secondaries<P: Platform>(SpinLock<Vec<Registered>, rank::ContextRank, P::Locks>);

impl<P: Platform> Secondaries<P> {
    pub(crate) fn new() -> Self {
        Self(SpinLock::new(Vec::new()))
    }
}

impl<P: Platform> Tlb<P> {
    /// Registers `mmu`, which may walk the tables of the space afterwards.
    ///
    /// Each later flush of the space, made or deferred, calls it. Unregister it before the space
    /// ends.
    ///
    /// # Errors
    /// [`AllocError`]; it is not registered.
    pub fn register_secondary(&self, context: &TlbContext, mmu: Arc<dyn SecondaryMmu>) -> Result<(), AllocError> {
        let error = AllocError { bytes: size_of::<Registered>() };
        if !self.fx().permit_allocation() {
            return Err(error);
        }
        let mut registered = self.secondaries.0.lock();
        registered.try_reserve(1).map_err(|_| error)?;
        registered.push((context.id(), mmu));
        // SeqCst: an operation reads the count after it has cleared an entry, and the device reads
        // the entry after this.
        context.secondaries.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Unregisters `mmu`, which no longer walks the tables of the space.
    ///
    /// No call to it is in flight when this returns. Does nothing if it was not registered.
    pub fn unregister_secondary(&self, context: &TlbContext, mmu: &Arc<dyn SecondaryMmu>) {
        let mut registered = self.secondaries.0.lock();
        let is_it = |(space, other): &Registered| {
            *space == context.id() && core::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(mmu))
        };
        if let Some(at) = registered.iter().position(is_it) {
            context.secondaries.fetch_sub(1, Ordering::SeqCst);
            let gone = registered.swap_remove(at);
            drop(registered);
            drop(gone);
        }
    }

    /// Notifies the secondary MMUs of the space that entries in `range`, or anywhere, have changed.
    ///
    /// The edits are published to page-table walkers already.
    #[inline]
    pub(crate) fn tell_secondaries(&self, context: &TlbContext, range: Option<PageRange>) {
        if context.secondaries.load(Ordering::SeqCst) > 0 {
            self.tell_each_secondary(context, range);
        }
    }

    #[cold]
    fn tell_each_secondary(&self, context: &TlbContext, range: Option<PageRange>) {
        let registered = self.secondaries.0.lock();
        let of_space = registered.iter().filter(|(space, _)| *space == context.id());
        debug_assert_eq!(of_space.clone().count(), context.secondaries.load(Ordering::SeqCst) as usize);
        of_space.for_each(|(_, mmu)| mmu.invalidate_secondary(range));
    }
}
