//! A memory manager that pages out: to a disk, and to compressed memory.
//!
//! The machine has one CPU, an array as its memory, and a disk for swap. A program stores more than
//! fits in memory and reads it back. `docs/embedding.md` begins with less; a kernel has
//! instructions in place of the array (`kernel/hal/src/machine.rs`).
//!
//! `cargo run -p pagewright-mm --example embedding`
//!
//! Not guaranteed: address translation. Only the memory manager reads these page tables, so there
//! is nothing to invalidate.

use core::sync::atomic::AtomicU64;
use pagewright_arch::{Caps, Effects, X86_64};
use pagewright_mm::swap::{SwapBacking, SwapOps, Zram};
use pagewright_mm::{MapRequest, Mm, MmError, MmSettings};
use pagewright_sync::{FrameWords, OneCpuLocks, Platform};
use pagewright_tlb::frames::{MemoryLayout, NodeSpec};
use pagewright_types::{Counter, CpuId, Errno, FrameRange, IsaKind, PAGE_SIZE, Pfn};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

const FRAMES: u32 = 2048;
const PAGE: usize = PAGE_SIZE as usize;

/// The memory of the machine, in words.
static MEMORY: [AtomicU64; FRAMES as usize * PAGE / 8] = [const { AtomicU64::new(0) }; FRAMES as usize * PAGE / 8];

/// The machine, a handle to the array.
#[derive(Clone, Copy, Debug)]
struct Machine(FrameWords);

impl Effects for Machine {
    type Isa = X86_64;

    fn caps(&self) -> &Caps {
        const { &Caps { tagged: false, tags: 1, ..Caps::baseline(IsaKind::X86_64) } }
    }

    pagewright_arch::one_cpu!(CpuId::new(0));

    pagewright_arch::entries_are_words!(0);

    pagewright_arch::pages_are_words!(0);

    pagewright_arch::no_tlb_and_no_interrupts!();
}

impl Platform for Machine {
    type Locks = OneCpuLocks;
}

/// A disk for swap; its lock is innermost, below all locks of the memory manager.
#[derive(Default)]
struct Disk(Mutex<BTreeMap<u32, [u8; PAGE]>>);

impl SwapOps for Disk {
    fn write_page(&self, slot: u32, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        let mut page = [0; PAGE];
        get(0, &mut page);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(slot, page);
        Ok(())
    }

    fn read_page(&self, slot: u32, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        let pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        put(0, pages.get(&slot).ok_or(Errno::EIO)?);
        Ok(())
    }

    fn discard(&self, slot: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&slot);
    }
}

/// Boots the memory manager with all frames but the first, as a kernel reserves its image.
fn boot() -> Mm<Machine> {
    let ranges = [FrameRange::new(Pfn::new(1), Pfn::new(FRAMES))];
    let machine = Machine(FrameWords::new(&MEMORY, Pfn::new(0)));
    Mm::try_new(machine, &MemoryLayout::new(&[NodeSpec::only(&ranges, 1)]), MmSettings::default())
        .expect("a valid layout")
}

/// A program that stores to half as many pages again as there is memory, and reads them back.
fn program(mm: &Mm<Machine>) -> Result<(), MmError> {
    let pages = u64::from(FRAMES) * 3 / 2;
    let space = mm.new_space()?;
    mm.tlb().switch_to(space.table().context());
    let start = mm.mmap(&space, &MapRequest::anonymous(pages * PAGE_SIZE))?;
    for page in 0..pages {
        mm.put_user(&space, start.add(page * PAGE_SIZE), page)?;
        // An idle CPU would call this. Without it the faults reclaim directly.
        mm.balance_all();
    }
    for page in 0..pages {
        assert_eq!(
            mm.get_user::<u64>(&space, start.add(page * PAGE_SIZE))?,
            page,
            "the page has the value that was stored"
        );
    }
    // A space may only end when no CPU runs it.
    mm.tlb().enter_lazy();
    mm.end_space(&space);
    Ok(())
}

fn main() -> Result<(), MmError> {
    let mm = boot();
    let report = |device: &str, before: u64| {
        let pages = mm.counter(Counter::PswpOut) - before;
        println!("{pages} pages were swapped out to {device}");
        assert!(pages > u64::from(FRAMES) / 2, "{pages} pages were swapped out to {device}, fewer than do not fit");
    };

    let disk = mm.swap_on(SwapBacking::Device(Box::new(Disk::default())), 2 * FRAMES)?;
    program(&mm)?;
    report("the disk", 0);
    mm.swap_off(disk)?;

    // Compressed pages are stored in frames of the machine.
    let before = mm.counter(Counter::PswpOut);
    let zram = mm.swap_on(SwapBacking::Zram(Zram::try_new(&mm, 2 * FRAMES, None)?), 2 * FRAMES)?;
    program(&mm)?;
    report("compressed memory", before);
    mm.swap_off(zram)
}

#[test]
fn the_example_runs() {
    main().expect("no call fails");
}
