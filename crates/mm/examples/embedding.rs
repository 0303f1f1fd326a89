//! A minimal embedder: everything that the memory manager needs from a kernel, in one file.
//!
//! The machine has one CPU, an array as its memory, and a disk for swap. A program stores more than
//! fits in memory and reads it back. `docs/embedding.md` describes this file; a kernel has
//! instructions in place of the array (`kernel/hal/src/machine.rs`).
//!
//! `cargo run -p pagewright-mm --example embedding`
//!
//! Not guaranteed: address translation. Only the memory manager reads these page tables, so there
//! is nothing to invalidate.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_arch::{Caps, Effects, Invalidate, Pte, PteSlot, ShootdownKind, X86_64};
use pagewright_mm::swap::{SwapBacking, SwapOps, Zram};
use pagewright_mm::{MapFlags, MapRequest, Mm, MmError, MmSettings};
use pagewright_sync::{Backend, Platform, RankSet};
use pagewright_tlb::frames::{MemoryLayout, NodeSpec};
use pagewright_types::{
    Counter, CpuId, CpuMask, Errno, FrameRange, NodeId, Order, PAGE_SIZE, Pfn, PhysAddr, Rights, Tag, VirtAddr,
};
use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};

const FRAMES: u32 = 2048;
const WORD: u64 = 8;
const PAGE: usize = PAGE_SIZE as usize;

/// The memory of the machine, in words.
static MEMORY: LazyLock<Vec<AtomicU64>> =
    LazyLock::new(|| (0..u64::from(FRAMES) * PAGE_SIZE / WORD).map(|_| AtomicU64::new(0)).collect());

fn word(at: PhysAddr) -> &'static AtomicU64 {
    &MEMORY[(at.raw() / WORD) as usize]
}

/// The words of a block of frames.
fn words(block: Pfn, order: Order) -> impl Iterator<Item = &'static AtomicU64> {
    (0..order.bytes() / WORD).map(move |at| word(block.base().add(at * WORD)))
}

/// The machine; there is only one, so a handle to it is empty.
#[derive(Clone, Copy, Debug)]
struct Machine;

impl Effects for Machine {
    type Isa = X86_64;

    fn caps(&self) -> &Caps {
        const CAPS: Caps = Caps {
            shootdown: ShootdownKind::Ipi,
            tagged: false,
            tags: 1,
            keeps_faulting_entry: false,
            range_invalidate: false,
            repeat_invalidate: false,
            user_tag_bit: None,
        };
        &CAPS
    }

    fn cpu(&self) -> CpuId {
        CpuId::new(0)
    }

    fn online(&self) -> CpuMask {
        CpuMask::first(1)
    }

    fn load(&self, slot: PteSlot) -> Pte {
        Pte::from_raw(word(slot.addr()).load(Ordering::Acquire))
    }

    fn store(&self, slot: PteSlot, pte: Pte) {
        word(slot.addr()).store(pte.raw(), Ordering::Release);
    }

    fn swap(&self, slot: PteSlot, pte: Pte) -> Pte {
        Pte::from_raw(word(slot.addr()).swap(pte.raw(), Ordering::AcqRel))
    }

    fn compare_exchange(&self, slot: PteSlot, current: Pte, new: Pte) -> Result<(), Pte> {
        let (current, new) = (current.raw(), new.raw());
        let exchanged = word(slot.addr()).compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire);
        exchanged.map(drop).map_err(Pte::from_raw)
    }

    fn publish(&self) {}

    fn invalidate(&self, _op: Invalidate) {}

    fn complete(&self) {}

    fn send_ipi(&self, _targets: &CpuMask) {}

    fn relax(&self) {}

    fn install_root(&self, _root: Pfn, _tag: Tag, _keep: bool) {}

    fn without_interrupts<T>(&self, body: impl FnOnce() -> T) -> T {
        body()
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn zero(&self, pfn: Pfn, order: Order) {
        words(pfn, order).for_each(|word| word.store(0, Ordering::Relaxed));
    }

    fn copy(&self, from: Pfn, to: Pfn, order: Order) {
        let pairs = words(from, order).zip(words(to, order));
        pairs.for_each(|(from, to)| to.store(from.load(Ordering::Relaxed), Ordering::Relaxed));
    }

    fn read(&self, from: PhysAddr, to: &mut [u8]) {
        for (at, byte) in (0..).zip(to) {
            let at = from.add(at);
            *byte = word(at).load(Ordering::Relaxed).to_le_bytes()[(at.raw() % WORD) as usize];
        }
    }

    fn write(&self, to: PhysAddr, from: &[u8]) {
        for (at, byte) in (0..).zip(from) {
            let at = to.add(at);
            let mut bytes = word(at).load(Ordering::Relaxed).to_le_bytes();
            bytes[(at.raw() % WORD) as usize] = *byte;
            word(at).store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
    }
}

thread_local! {
    /// The ranks of the locks that the CPU holds.
    static HELD: Cell<RankSet> = const { Cell::new(RankSet::EMPTY) };
}

/// The lock backend; on one CPU a lock is never contended.
struct Locks;

impl Backend for Locks {
    type Line = ();

    fn pause() {}

    fn cpu() -> CpuId {
        CpuId::new(0)
    }

    fn held() -> RankSet {
        HELD.get()
    }

    fn set_held(held: RankSet) {
        HELD.set(held);
    }
}

impl Platform for Machine {
    type Locks = Locks;
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
    let nodes = [NodeSpec { id: NodeId::new(0), ranges: &ranges, cpus: CpuMask::first(1) }];
    Mm::try_new(Machine, &MemoryLayout::new(&nodes), MmSettings::default()).expect("a valid layout")
}

/// A program that stores to half as many pages again as there is memory, and reads them back.
fn program(mm: &Mm<Machine>) -> Result<(), MmError> {
    let pages = u64::from(FRAMES) * 3 / 2;
    let space = mm.new_space()?;
    mm.tlb().switch_to(space.table().context());
    let request = MapRequest {
        addr: VirtAddr::new(0),
        len: pages * PAGE_SIZE,
        rights: Rights::READ | Rights::WRITE,
        flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS,
        file: None,
    };
    let start = mm.mmap(&space, &request)?;
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
