//! What swaps to somewhere.

use pagewright_types::Errno;

/// A device with slots of one page each, which an embedder supplies, or zram. Any CPU may call it, and different slots at the same
/// time; one slot is written, read and discarded by one caller at a time.
pub trait SwapOps: Send + Sync {
    /// Takes the bytes of a page; `get` fills a slice with those from an offset in the page on.
    ///
    /// # Errors
    /// [`Errno`] when the device fails or is full; the page stays in memory, and what the slot held is of no meaning.
    fn write_page(&self, slot: u32, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno>;

    /// Hands the bytes of a slot to `put`, piece by piece, each with its offset in the page. What is not handed over is zero.
    ///
    /// # Errors
    /// [`Errno`] when the device fails; the access gets `SIGBUS`.
    fn read_page(&self, slot: u32, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno>;

    /// Forgets a slot (`swap_slot_free_notify`). Called with the device's lock held: it must neither wait nor call the memory manager, beyond
    /// giving frames back.
    fn discard(&self, slot: u32);
}
