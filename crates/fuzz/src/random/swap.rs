//! The swap devices of random programs: zram, or a device that stores pages uncompressed.
//!
//! The seed chooses between them. Both are small, so that they fill up.

use super::program_run::ProgramRun;
use pagewright_arch::Isa;
use pagewright_mm::swap::{SwapBacking, SwapOps, Zram};
use pagewright_mm::{Mm, MmError};
use pagewright_model::spec::CallResult;
use pagewright_sim::Sim;
use pagewright_types::{CpuId, Errno, PAGE_SIZE};
use std::collections::BTreeMap;
use std::sync::Mutex;

const SLOTS: u32 = 24;
/// Limit of the frames with compressed pages.
const MAX_FRAMES: u32 = 8;

/// A device that stores pages uncompressed.
#[derive(Default)]
struct UncompressedSwap(Mutex<BTreeMap<u32, Vec<u8>>>);

impl UncompressedSwap {
    fn pages<T>(&self, act: impl FnOnce(&mut BTreeMap<u32, Vec<u8>>) -> T) -> T {
        act(&mut self.0.lock().expect("no thread panicked with the lock"))
    }
}

impl SwapOps for UncompressedSwap {
    fn write_page(&self, slot: u32, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        let mut page = vec![0; PAGE_SIZE as usize];
        get(0, &mut page);
        self.pages(|pages| pages.insert(slot, page));
        Ok(())
    }

    fn read_page(&self, slot: u32, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        let page = self.pages(|pages| pages.get(&slot).cloned()).ok_or(Errno::EIO)?;
        put(0, &page);
        Ok(())
    }

    fn discard(&self, slot: u32) {
        self.pages(|pages| pages.remove(&slot));
    }
}

impl<I: Isa> ProgramRun<I> {
    /// `swapoff`, then `swapon` of a new device.
    ///
    /// If `swapoff` fails for lack of memory, the old device stays; if `swapon` fails, there is no
    /// device until the next call.
    pub(super) fn swap_off(&self, cpu: CpuId) -> CallResult {
        let off = self.lab.on(cpu, |mm| match mm.swap_off(0) {
            // No device: another CPU has removed it, or an earlier `swapon` failed.
            Ok(()) | Err(MmError::NoSuchSwapDevice { .. }) if mm.swap_slots().0 == 0 => swap_on(mm, self.store_count()),
            other => other,
        });
        off.map_or_else(|error| CallResult::Failed(error.errno()), |()| CallResult::Done)
    }
}

/// Adds the swap device that `seed` chooses (`swapon`).
pub(super) fn swap_on<I: Isa>(mm: &Mm<Sim<I>>, seed: u64) -> Result<(), MmError> {
    let device = match seed / 2 % 2 {
        0 => SwapBacking::Zram(Zram::try_new(mm, SLOTS, Some(MAX_FRAMES))?),
        _ => SwapBacking::Device(Box::new(UncompressedSwap::default())),
    };
    mm.swap_on(device, SLOTS).map(drop)
}
