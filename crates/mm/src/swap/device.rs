//! Swap devices.
//!
//! Key types: [`SwapOps`], a device of the embedder; [`SwapBacking`], such a device or compressed
//! memory.
//!
//! Not guaranteed: that reading a discarded slot fails. Nothing reads one.

use super::zram::Zram;
use alloc::boxed::Box;
use pagewright_sync::Platform;
use pagewright_tlb::Tlb;
use pagewright_types::Errno;

/// The operations of a swap device with page-sized slots, which an embedder supplies.
///
/// Every CPU may call them, concurrently for different slots. One slot is written, read or
/// discarded by one caller at a time.
pub trait SwapOps: Send + Sync {
    /// Writes a page, whose bytes `get` copies into a slice from an offset in the page.
    ///
    /// # Errors
    /// [`Errno`] if the device fails or is full; the page stays in memory, and the slot's contents
    /// are undefined.
    fn write_page(&self, slot: u32, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno>;

    /// Passes all bytes of a slot to `put`, in pieces with their offsets in the page.
    ///
    /// # Errors
    /// [`Errno`] if the device fails; the access raises `SIGBUS`.
    fn read_page(&self, slot: u32, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno>;

    /// Discards the contents of a slot (`swap_slot_free_notify`).
    ///
    /// Called with the lock of the device's slots held: it must not wait, and must not call the
    /// memory manager except to free frames.
    fn discard(&self, slot: u32);
}

/// Where a swap device keeps its pages.
pub enum SwapBacking<P: Platform> {
    /// A device of the embedder.
    Device(Box<dyn SwapOps>),
    /// Memory of the machine, compressed.
    Zram(Zram<P>),
}

impl<P: Platform> SwapBacking<P> {
    /// Whether both are known to be the same device; only a [`Zram`] can be recognised.
    pub(super) fn is_same_device(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Zram(one), Self::Zram(other)) => one.is_same_device(other),
            (Self::Device(_) | Self::Zram(_), _) => false,
        }
    }

    /// Writes a page, as [`SwapOps::write_page`].
    ///
    /// # Errors
    /// [`Errno`] if the device fails or is full; a [`Zram`] is unchanged.
    pub fn write_page(&self, tlb: &Tlb<P>, slot: u32, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        match self {
            Self::Device(ops) => ops.write_page(slot, get),
            Self::Zram(zram) => zram.write_page(tlb, slot, get),
        }
    }

    /// Reads a page, as [`SwapOps::read_page`].
    ///
    /// # Errors
    /// [`Errno`] if the device fails.
    pub fn read_page(&self, tlb: &Tlb<P>, slot: u32, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        match self {
            Self::Device(ops) => ops.read_page(slot, put),
            Self::Zram(zram) => zram.read_page(tlb, slot, put),
        }
    }

    /// Discards the contents of a slot; may be called with the device's slots locked.
    pub fn discard(&self, tlb: &Tlb<P>, slot: u32) {
        match self {
            Self::Device(ops) => ops.discard(slot),
            Self::Zram(zram) => zram.discard(tlb, slot),
        }
    }
}
