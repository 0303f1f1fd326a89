//! What random programs swap to: every second one a device that keeps pages as they are, the others
//! memory with compressed pages in it. Both are small, so that they fill up.

use super::world::World;
use pagewright_arch::Isa;
use pagewright_mm::swap::{SwapBacking, SwapOps, Zram};
use pagewright_mm::{Mm, MmError};
use pagewright_model::spec::CallResult;
use pagewright_sim::Sim;
use pagewright_types::{CpuId, Errno, PAGE_SIZE};
use std::collections::BTreeMap;
use std::sync::Mutex;

const SLOTS: u32 = 24;
/// Frames that compressed pages may take.
const FRAMES: u32 = 8;

/// A device that keeps pages as they are.
#[derive(Default)]
struct Slots(Mutex<BTreeMap<u32, Vec<u8>>>);

impl Slots {
    fn pages<T>(&self, act: impl FnOnce(&mut BTreeMap<u32, Vec<u8>>) -> T) -> T {
        act(&mut self.0.lock().expect("nobody has panicked with it"))
    }
}

impl SwapOps for Slots {
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

impl<I: Isa> World<I> {
    /// Everything comes back, and then there is a device again.
    ///
    /// Either may fail for want of memory: then it is swapped to the old one, or, until this is
    /// done again, to none.
    pub(super) fn swap_off(&self, cpu: CpuId) -> CallResult {
        let off = self.lab.on(cpu, |mm| match mm.swap_off(0) {
            // Another CPU may be at it.
            Ok(()) | Err(MmError::NoSuchSwapDevice { .. }) if mm.swap_slots().0 == 0 => swap_on(mm, self.stores()),
            other => other,
        });
        off.map_or_else(|error| CallResult::Failed(error.errno()), |()| CallResult::Done)
    }
}

/// Swaps to a device, by the seed of the program.
pub(super) fn swap_on<I: Isa>(mm: &Mm<Sim<I>>, seed: u64) -> Result<(), MmError> {
    let device = match seed / 2 % 2 {
        0 => SwapBacking::Zram(Zram::try_new(mm, SLOTS, Some(FRAMES))?),
        _ => SwapBacking::Device(Box::new(Slots::default())),
    };
    mm.swap_on(device, SLOTS).map(drop)
}
