//! Names of places in swap.

use core::fmt;

/// A slot of a swap device: what stands for a page that is there (Linux's `swp_entry_t`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SwapEntry(u32);

impl SwapEntry {
    /// Devices that can be told apart (`MAX_SWAPFILES`).
    pub const DEVICES: usize = 1 << (u32::BITS - Self::SLOT_BITS);
    /// Slots of one device, at most.
    pub const SLOTS: u32 = 1 << Self::SLOT_BITS;
    const SLOT_BITS: u32 = 27;

    /// Slot `slot` of device `device`.
    ///
    /// # Panics
    /// When there can be no such device or slot.
    pub const fn new(device: u8, slot: u32) -> Self {
        assert!((device as usize) < Self::DEVICES && slot < Self::SLOTS, "no such place in swap");
        Self((device as u32) << Self::SLOT_BITS | slot)
    }

    /// The entry whose word is `raw`.
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// The entry as a word.
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// The device (`swp_type`).
    pub const fn device(self) -> u8 {
        (self.0 >> Self::SLOT_BITS) as u8
    }

    /// The slot (`swp_offset`).
    pub const fn slot(self) -> u32 {
        self.0 & (Self::SLOTS - 1)
    }
}

impl fmt::Debug for SwapEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {} of swap device {}", self.slot(), self.device())
    }
}

impl fmt::Display for SwapEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_gives_back_what_it_was_made_of() {
        for device in [0, 1, SwapEntry::DEVICES as u8 - 1] {
            for slot in [0, 1, SwapEntry::SLOTS - 1] {
                let entry = SwapEntry::from_raw(SwapEntry::new(device, slot).raw());
                assert_eq!((entry.device(), entry.slot()), (device, slot));
            }
        }
    }
}
