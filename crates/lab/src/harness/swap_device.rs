//! A swap device that keeps its pages in the host's memory.

use super::race::device_step;
use pagewright_mm::swap::SwapOps;
use pagewright_types::{Errno, PAGE_SIZE};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A swap device in the host's memory; clones are handles of the same device.
#[derive(Clone, Default)]
pub struct MemorySwap {
    pages: Arc<Mutex<BTreeMap<u32, Vec<u8>>>>,
    /// Whether writes and reads fail (`EIO`).
    pub broken: Arc<AtomicBool>,
}

impl MemorySwap {
    /// The number of slots that hold a page.
    ///
    /// # Panics
    /// If another thread panicked while it held the lock of the pages.
    pub fn used(&self) -> usize {
        self.pages.lock().expect("unpoisoned").len()
    }
}

impl SwapOps for MemorySwap {
    fn write_page(&self, slot: u32, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(Errno::EIO);
        }
        // No step is made with the host's lock held, which other CPUs take too.
        let mut page = vec![0; PAGE_SIZE as usize];
        device_step();
        get(0, &mut page);
        device_step();
        self.pages.lock().expect("unpoisoned").insert(slot, page);
        Ok(())
    }

    fn read_page(&self, slot: u32, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(Errno::EIO);
        }
        let page = self.pages.lock().expect("unpoisoned").get(&slot).cloned().ok_or(Errno::EIO)?;
        device_step();
        put(0, &page);
        device_step();
        Ok(())
    }

    fn discard(&self, slot: u32) {
        self.pages.lock().expect("unpoisoned").remove(&slot);
    }
}
