//! Slots of swap devices.

use core::fmt;

/// A slot of a swap device, in place of the page that it holds (Linux's `swp_entry_t`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SwapEntry(u32);

impl SwapEntry {
    /// The largest number of devices (`MAX_SWAPFILES`).
    pub const DEVICES: usize = 1 << (u32::BITS - Self::SLOT_BITS);
    /// The largest number of slots of a device.
    pub const SLOTS: u32 = 1 << Self::SLOT_BITS;
    const SLOT_BITS: u32 = 27;

    /// Slot `slot` of device `device`.
    ///
    /// # Panics
    /// If the device or the slot is out of range.
    pub const fn new(device: u8, slot: u32) -> Self {
        assert!((device as usize) < Self::DEVICES && slot < Self::SLOTS, "the swap device or slot is out of range");
        Self((device as u32) << Self::SLOT_BITS | slot)
    }

    /// The entry with the word `raw`.
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
    fn an_entry_keeps_its_device_and_slot() {
        for device in [0, 1, SwapEntry::DEVICES as u8 - 1] {
            for slot in [0, 1, SwapEntry::SLOTS - 1] {
                let entry = SwapEntry::from_raw(SwapEntry::new(device, slot).raw());
                assert_eq!((entry.device(), entry.slot()), (device, slot));
            }
        }
    }
}
