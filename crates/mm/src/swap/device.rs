//! What swaps to somewhere.
//!
//! Key types: [`SwapOps`], an embedder's device; [`SwapBacking`], that or the machine's own memory.
//!
//! Not guaranteed: that a slot which was discarded can't be read. Nobody asks.

use super::zram::Zram;
use alloc::boxed::Box;
use pagewright_sync::Platform;
use pagewright_tlb::Tlb;
use pagewright_types::Errno;

/// A device with slots of one page each, which an embedder supplies.
///
/// Any CPU may call it, and for different slots at the same time; one slot is written, read and
/// discarded by one caller at a time.
pub trait SwapOps: Send + Sync {
    /// Takes the bytes of a page; `get` fills a slice with those from an offset in the page on.
    ///
    /// # Errors
    /// [`Errno`] when the device fails or is full; the page stays in memory, and what the slot held
    /// is of no meaning.
    fn write_page(&self, slot: u32, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno>;

    /// Hands all bytes of a slot to `put`, piece by piece, each with its offset in the page.
    ///
    /// # Errors
    /// [`Errno`] when the device fails; the access gets `SIGBUS`.
    fn read_page(&self, slot: u32, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno>;

    /// Forgets a slot (`swap_slot_free_notify`).
    ///
    /// Called with the device's lock held: it must neither wait nor call the memory manager, beyond
    /// giving frames back.
    fn discard(&self, slot: u32);
}

/// What is behind a device.
pub enum SwapBacking<P: Platform> {
    /// A device of the embedder's.
    Device(Box<dyn SwapOps>),
    /// The machine's own memory, compressed.
    Zram(Zram<P>),
}

impl<P: Platform> SwapBacking<P> {
    /// Whether both keep their pages in the same place, as far as that can be known.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Zram(one), Self::Zram(other)) => one.is_of(other),
            (Self::Device(_) | Self::Zram(_), _) => false,
        }
    }

    /// Writes a page, as [`SwapOps::write_page`].
    ///
    /// # Errors
    /// [`Errno`]; a compressed device is as it was before.
    pub fn write_page(&self, tlb: &Tlb<P>, slot: u32, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        match self {
            Self::Device(ops) => ops.write_page(slot, get),
            Self::Zram(zram) => zram.write_page(tlb, slot, get),
        }
    }

    /// Reads a page, as [`SwapOps::read_page`].
    ///
    /// # Errors
    /// [`Errno`] when the device fails.
    pub fn read_page(&self, tlb: &Tlb<P>, slot: u32, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        match self {
            Self::Device(ops) => ops.read_page(slot, put),
            Self::Zram(zram) => zram.read_page(tlb, slot, put),
        }
    }

    /// Forgets a slot.
    ///
    /// May be called under the lock of the device's slots.
    pub fn discard(&self, tlb: &Tlb<P>, slot: u32) {
        match self {
            Self::Device(ops) => ops.discard(slot),
            Self::Zram(zram) => zram.discard(tlb, slot),
        }
    }
}
