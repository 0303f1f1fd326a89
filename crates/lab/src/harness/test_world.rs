//! A machine under the oracle with its memory manager.

use super::files::NumberedFile;
use super::swap_device::MemorySwap;
use super::test_device::TestDevice;
use crate::Lab;
use pagewright_arch::Isa;
use pagewright_check::Testbench;
use pagewright_mm::counters::Gauge;
use pagewright_mm::file::{FileKind, FileObject, FileOps};
use pagewright_mm::swap::SwapBacking;
use pagewright_mm::{MapFlags, Mm, MmSetting, MmSettings};
use pagewright_model::{Census, SoftwareBits};
use pagewright_sim::{MachineConfig, NodeConfig, Sim};
use pagewright_sync::Arc;
use pagewright_types::snapshot::SnapshotRecord;
use pagewright_types::{Counter, CpuId, CpuMask, PAGE_SIZE, Pfn};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// The CPU on which the harness acts where a method takes no CPU.
pub const CPU: CpuId = CpuId::new(0);
/// A second CPU.
pub const OTHER: CpuId = CpuId::new(1);
/// A third CPU.
pub const THIRD: CpuId = CpuId::new(2);
/// The flags of private anonymous memory.
pub const ANON: MapFlags = MapFlags::PRIVATE.union(MapFlags::ANONYMOUS);

/// A handle of a file of the memory manager.
pub type FileHandle<I> = Arc<FileObject<Sim<I>>>;

/// A machine under the oracle with its memory manager.
pub struct TestWorld<I: Isa> {
    /// The machine and its oracle.
    pub bench: Testbench<I>,
    /// The memory manager on it.
    pub lab: Lab<I>,
    /// [`Self::levels`] of the machine without processes.
    pub(super) initial_levels: Vec<u64>,
}

/// The default configuration with one node of `bytes` bytes.
///
/// # Panics
/// If the default profile cannot be loaded.
pub fn one_node_machine<I: Isa>(cpus: u16, bytes: u64) -> MachineConfig {
    let mut config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
    config.cpus = cpus;
    config.nodes.truncate(1);
    config.nodes[0].bytes = bytes;
    config
}

impl<I: Isa> TestWorld<I> {
    /// A machine with 4 MiB of memory.
    ///
    /// # Panics
    /// If the configuration is invalid; the same holds for the other constructors.
    pub fn new(cpus: u16) -> Rc<Self> {
        Self::sized(cpus, 4 << 20)
    }

    /// A machine with `bytes` bytes of memory.
    pub fn sized(cpus: u16, bytes: u64) -> Rc<Self> {
        Self::on_machine(one_node_machine::<I>(cpus, bytes))
    }

    /// A machine with `bytes` bytes on node 0, which has the CPUs, and as many on node 1.
    pub fn two_nodes(cpus: u16, bytes: u64) -> Rc<Self> {
        let mut config = one_node_machine::<I>(cpus, bytes);
        config.nodes.push(NodeConfig { bytes, cpus: CpuMask::EMPTY });
        Self::on_machine(config)
    }

    /// The machine that `config` describes.
    pub fn on_machine(config: MachineConfig) -> Rc<Self> {
        let bench = Testbench::new(config).expect("a valid configuration");
        let lab = Lab::over(bench.sim().clone(), MmSettings::default()).expect("memory for the memory manager");
        let mut world = Self { bench, lab, initial_levels: Vec::new() };
        world.initial_levels = world.levels();
        Rc::new(world)
    }

    /// A machine of three CPUs and 64 MiB without the oracle, for tests of values and counts.
    pub fn unjudged() -> Rc<Self> {
        let world = Self::sized(3, 64 << 20);
        world.bench.sim().unbind_judge();
        world
    }

    /// Runs one operation of the memory manager on a CPU.
    pub fn on<T>(&self, cpu: CpuId, call: impl FnOnce(&Mm<Sim<I>>) -> T) -> T {
        self.lab.on(cpu, call)
    }

    /// A [`NumberedFile`] of `pages` pages.
    pub fn file(&self, pages: u64) -> FileHandle<I> {
        let kind = FileKind::File(Box::new(NumberedFile));
        self.on(CPU, |mm| mm.add_file("/numbered", kind, pages * PAGE_SIZE)).expect("memory")
    }

    /// A file of `pages` pages that `backing` reads and writes.
    pub fn file_of(&self, backing: impl FileOps + 'static, pages: u64) -> FileHandle<I> {
        let kind = FileKind::File(Box::new(backing));
        self.on(CPU, |mm| mm.add_file("/data", kind, pages * PAGE_SIZE)).expect("memory")
    }

    /// A shared-memory object of `pages` pages.
    pub fn shmem(&self, pages: u64) -> FileHandle<I> {
        self.on(CPU, |mm| mm.add_file("/memfd:test (deleted)", FileKind::Shmem, pages * PAGE_SIZE)).expect("memory")
    }

    /// Reads the first word of a frame, as DMA does.
    pub fn peek(&self, pfn: Pfn) -> u64 {
        self.lab.sim().ram()[pfn.base().raw() as usize / 8].load(Ordering::Relaxed)
    }

    /// Writes the first word of a frame, as DMA does.
    pub fn poke(&self, pfn: Pfn, value: u64) {
        self.lab.sim().ram()[pfn.base().raw() as usize / 8].store(value, Ordering::Relaxed);
    }

    /// Adds a swap device of `slots` slots (`swapon`).
    pub fn swap_to(&self, slots: u32) -> MemorySwap {
        let device = MemorySwap::default();
        let backing = SwapBacking::Device(Box::new(device.clone()));
        self.on(CPU, |mm| mm.swap_on(backing, slots)).expect("memory for the slots");
        device
    }

    /// Changes a setting to `value`, a number or one of the setting's words.
    ///
    /// # Panics
    /// If the setting does not accept it.
    pub fn set(&self, setting: MmSetting, value: &str) {
        let value = setting.parse(value).expect("a value of the setting");
        self.on(CPU, |mm| mm.settings().set(setting, value)).expect("an accepted value");
    }

    /// The sum of a counter over all CPUs.
    pub fn count(&self, counter: Counter) -> u64 {
        self.on(CPU, |mm| mm.counter(counter))
    }

    /// The value of a gauge.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        self.on(CPU, |mm| mm.gauge(gauge))
    }

    /// Asserts that the oracle has no finding, and that `devices` hold all pins.
    ///
    /// Lets the oracle check the counts (O4) first.
    ///
    /// # Panics
    /// If either is not so.
    pub fn at_rest(&self, devices: &[&TestDevice<I>]) {
        let mut census = Census::new(SoftwareBits::pagewright(I::KIND));
        let mut counted: BTreeMap<Pfn, u64> = BTreeMap::new();
        self.on(CPU, |mm| {
            mm.snapshot(&mut |record| {
                if let SnapshotRecord::Pinned(pinned) = record {
                    counted.insert(pinned.pfn, pinned.pins);
                }
                census.add(record);
            });
        });
        let mut held: BTreeMap<Pfn, u64> = BTreeMap::new();
        for page in devices.iter().flat_map(|device| device.pages.iter()).filter(|page| page.is_pinned()) {
            census.add_pinned_page(page.pfn());
            let folio = self.on(CPU, |mm| mm.tlb().frames().folio(page.pfn()).pfn());
            *held.entry(folio).or_default() += 1;
        }
        self.bench.at_rest(&census);
        let findings = self.bench.findings();
        assert!(findings.is_empty(), "{}", findings[0]);
        assert_eq!(counted, held, "the pins of each folio: the memory manager's, and the devices'");
    }
}
