//! A machine under judgement with its memory manager.

use super::device::Device;
use super::files::Numbered;
use super::swap_device::MemorySwap;
use crate::Lab;
use pagewright_arch::Isa;
use pagewright_check::Testbench;
use pagewright_mm::counters::Gauge;
use pagewright_mm::file::{FileKind, FileObject, FileOps};
use pagewright_mm::swap::SwapBacking;
use pagewright_mm::{MapFlags, Mm, MmSettings};
use pagewright_model::{Census, SoftwareBits};
use pagewright_sim::{MachineConfig, Sim};
use pagewright_sync::Arc;
use pagewright_types::snapshot::SnapshotRecord;
use pagewright_types::{Counter, CpuId, PAGE_SIZE, Pfn};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// The CPU on which tests act unless they say otherwise.
pub const CPU: CpuId = CpuId::new(0);
/// A second CPU.
pub const OTHER: CpuId = CpuId::new(1);
/// The flags of private anonymous memory.
pub const ANON: MapFlags = MapFlags::PRIVATE.union(MapFlags::ANONYMOUS);

/// A file of the memory manager.
pub type File<I> = Arc<FileObject<Sim<I>>>;

/// A machine under judgement with its memory manager.
pub struct World<I: Isa> {
    /// The machine and its judge.
    pub bench: Testbench<I>,
    /// The memory manager on it.
    pub lab: Lab<I>,
}

impl<I: Isa> World<I> {
    /// A machine of 4 MiB.
    ///
    /// # Panics
    /// When there is no such machine; so do all constructors here.
    pub fn new(cpus: u16) -> Rc<Self> {
        Self::sized(cpus, 4 << 20)
    }

    /// A machine with so many bytes of memory.
    pub fn sized(cpus: u16, bytes: u64) -> Rc<Self> {
        let mut config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
        config.cpus = cpus;
        config.nodes.truncate(1);
        config.nodes[0].bytes = bytes;
        let bench = Testbench::new(config).expect("a possible machine");
        let lab = Lab::over(bench.sim().clone(), MmSettings::default()).expect("room");
        Rc::new(Self { bench, lab })
    }

    /// A machine of three CPUs and 64 MiB whose translations are not judged, for tests that look
    /// at values and counts alone.
    pub fn unjudged() -> Rc<Self> {
        let world = Self::sized(3, 64 << 20);
        world.bench.sim().unbind_judge();
        world
    }

    /// Runs one operation of the memory manager on a CPU.
    pub fn on<T>(&self, cpu: CpuId, call: impl FnOnce(&Mm<Sim<I>>) -> T) -> T {
        self.lab.on(cpu, call)
    }

    /// A file of so many pages, as [`Numbered`].
    pub fn file(&self, pages: u64) -> File<I> {
        let kind = FileKind::File(Box::new(Numbered));
        self.on(CPU, |mm| mm.add_file("/numbered", kind, pages * PAGE_SIZE)).expect("memory")
    }

    /// A file that is `backing`'s.
    pub fn file_of(&self, backing: impl FileOps + 'static, pages: u64) -> File<I> {
        let kind = FileKind::File(Box::new(backing));
        self.on(CPU, |mm| mm.add_file("/data", kind, pages * PAGE_SIZE)).expect("memory")
    }

    /// Shared memory of so many pages.
    pub fn shmem(&self, pages: u64) -> File<I> {
        self.on(CPU, |mm| mm.add_file("/memfd:test (deleted)", FileKind::Shmem, pages * PAGE_SIZE)).expect("memory")
    }

    /// The word at the beginning of a frame.
    pub fn peek(&self, pfn: Pfn) -> u64 {
        self.lab.sim().ram()[pfn.base().raw() as usize / 8].load(Ordering::Relaxed)
    }

    /// Writes the word at the beginning of a frame, as a device would.
    pub fn poke(&self, pfn: Pfn, value: u64) {
        self.lab.sim().ram()[pfn.base().raw() as usize / 8].store(value, Ordering::Relaxed);
    }

    /// Swaps to a device of `slots` slots.
    pub fn swap_to(&self, slots: u32) -> MemorySwap {
        let device = MemorySwap::default();
        let backing = SwapBacking::Device(Box::new(device.clone()));
        self.on(CPU, |mm| mm.swap_on(backing, slots)).expect("memory for the slots");
        device
    }

    /// The value of a counter, over all CPUs.
    pub fn count(&self, counter: Counter) -> u64 {
        self.on(CPU, |mm| mm.counter(counter))
    }

    /// The value of a gauge.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        self.on(CPU, |mm| mm.gauge(gauge))
    }

    /// Lets the oracle count (O4), and asserts that it has found nothing so far, and that what is
    /// pinned is what `devices` have.
    pub fn at_rest(&self, devices: &[&Device<I>]) {
        let mut census = Census::new(SoftwareBits::pagewright(I::KIND));
        let mut told: BTreeMap<Pfn, u64> = BTreeMap::new();
        self.on(CPU, |mm| {
            mm.snapshot(&mut |record| {
                if let SnapshotRecord::Pinned(pinned) = record {
                    told.insert(pinned.pfn, pinned.pins);
                }
                census.add(record);
            });
        });
        self.bench.at_rest(&census);
        let found = self.bench.findings();
        assert!(found.is_empty(), "{}", found[0]);
        let mut had: BTreeMap<Pfn, u64> = BTreeMap::new();
        for page in devices.iter().flat_map(|device| device.pages.iter()).filter(|page| page.is_pinned()) {
            *had.entry(page.pfn()).or_default() += 1;
        }
        assert_eq!(told, had, "what is pinned");
    }
}
