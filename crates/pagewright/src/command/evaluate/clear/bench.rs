//! A memory manager on this computer's real memory.
//!
//! Key types: [`Bench`]; [`CacheMeasurements`], the results of calibration and of measuring the
//! cache.
//!
//! Not guaranteed: that the host backs the memory with huge pages; [`Bench::huge_pages`] says how
//! much of it.

use super::super::parent::failed;
use super::super::{EvaluateError, Scale};
use pagewright_host::{HostMachine, HostMemory, measure_clearing, pin_to, real_cpus, run_as};
use pagewright_mm::{MapFlags, MapRequest, Mm, MmSetting, MmSettings, Space};
use pagewright_tlb::ClearMeasurements;
use pagewright_tlb::frames::{
    Block, CacheProbeProgress, ClearBackend, ClearExtent, ClearPolicy, FrameRequest, Frames, MemoryLayout, NodeSpec,
};
use pagewright_types::{CpuId, CpuMask, Level, NodeId, Order, PAGE_SIZE, Pfn, Rights, VirtAddr};
use std::fs;

/// The word with which memory is filled before it is cleared.
pub(super) const POISON: u64 = 0xa5c3_5a3c_a5c3_5a3c;
/// The only node.
pub(super) const NODE: NodeId = NodeId::new(0);

/// A memory manager on real memory.
pub(super) struct Bench {
    mm: Mm<HostMachine>,
    memory: HostMemory,
    /// The host's number of each CPU.
    host_cpus: Vec<usize>,
    pub(super) scale: Scale,
}

/// The results of calibration and of measuring the cache.
pub(super) struct CacheMeasurements(pub(super) ClearMeasurements);

impl Bench {
    /// Sets up 3 GiB of memory, or 8 GiB at full scale, and poisons it.
    pub(super) fn new(scale: Scale) -> Result<Self, EvaluateError> {
        Self::with_frames(if scale == Scale::Full { 8 } else { 3 } * Order::PUD.frames(), scale)
    }

    /// Sets up so many frames, a multiple of 2 MiB, and poisons them.
    pub(super) fn with_frames(frames: u32, scale: Scale) -> Result<Self, EvaluateError> {
        let memory = HostMemory::try_new(frames)?;
        let blocks = (0..frames).step_by(Order::PMD.frames() as usize);
        blocks.for_each(|first| memory.fill(Pfn::new(first), Order::PMD, POISON));
        let host_cpus = real_cpus();
        let cpus = host_cpus.len().max(1);
        let ranges = [memory.frames()];
        let nodes = [NodeSpec { id: NODE, ranges: &ranges, cpus: CpuMask::first(cpus) }];
        let layout = MemoryLayout { min_free_kbytes: Some(0), watermark_scale_factor: 0, ..MemoryLayout::new(&nodes) };
        let mm = Mm::try_new(HostMachine::new(memory, cpus), &layout, MmSettings::default());
        let mm = mm.map_err(failed)?;
        let bench = Self { mm, memory, host_cpus, scale };
        bench.become_cpu(0);
        Ok(bench)
    }

    pub(super) fn mm(&self) -> &Mm<HostMachine> {
        &self.mm
    }

    pub(super) fn frames(&self) -> &Frames<HostMachine> {
        self.mm.tlb().frames()
    }

    pub(super) fn memory(&self) -> &HostMemory {
        &self.memory
    }

    pub(super) fn cpus(&self) -> usize {
        self.host_cpus.len().max(1)
    }

    /// Makes the calling thread a CPU of the machine, and pins it to a host CPU of its own.
    pub(super) fn become_cpu(&self, cpu: usize) {
        run_as(CpuId::new(cpu as u16));
        if let Some(host_cpu) = self.host_cpus.get(cpu) {
            pin_to(*host_cpu);
        }
    }

    /// The store instructions that this CPU has for clearing.
    pub(super) fn backends(&self) -> impl Iterator<Item = ClearBackend> {
        self.frames().clear_selector().caps().backends()
    }

    /// The fastest non-temporal stores, if this CPU has any.
    pub(super) fn streaming(&self) -> Option<ClearBackend> {
        self.frames().clear_selector().streaming()
    }

    pub(super) fn set_policy(&self, policy: ClearPolicy) {
        self.frames().clear_selector().set_policy(policy);
    }

    /// Repetitions of each measurement.
    pub(super) fn repetitions(&self) -> usize {
        match self.scale {
            Scale::Quick => 9,
            Scale::Full => 25,
        }
    }

    /// Allocates a block.
    ///
    /// # Errors
    /// [`EvaluateError::Machine`] if no block is free.
    pub(super) fn alloc(&self, order: Order) -> Result<Block, EvaluateError> {
        self.mm.tlb().alloc(FrameRequest::new(order, NODE)).map_err(failed)
    }

    /// Maps private memory, which is faulted in later.
    pub(super) fn map(&self, space: &Space<HostMachine>, bytes: u64) -> Result<VirtAddr, EvaluateError> {
        let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS;
        let request = MapRequest { addr: VirtAddr::ZERO, len: bytes, rights: Rights::RW, flags, file: None };
        self.mm.mmap(space, &request).map_err(failed)
    }

    /// The first frame of the huge page that a fault has mapped.
    pub(super) fn huge_page(&self, space: &Space<HostMachine>, va: VirtAddr) -> Result<Pfn, EvaluateError> {
        let leaf = space.map().read().tables(self.mm.tlb()).peek(va).leaf();
        let huge = leaf.filter(|leaf| leaf.level() == Level::PMD);
        huge.map(|leaf| leaf.pfn()).ok_or_else(|| failed("a fault got no huge page"))
    }

    /// Sets `transparent_hugepage.enabled`.
    pub(super) fn enable_huge(&self, word: &str) -> Result<(), EvaluateError> {
        let value = MmSetting::ThpEnabled.parse(word).ok_or_else(|| failed(word))?;
        self.mm.settings().set(MmSetting::ThpEnabled, value).map_err(failed)
    }

    /// The largest target that fits the cache, in bytes: half of the measured or assumed size.
    pub(super) fn cached_up_to(&self) -> u64 {
        self.frames().clear_selector().cache().frames() * PAGE_SIZE / 2
    }

    /// How much of the memory the host backs with huge pages.
    pub(super) fn huge_pages(&self) -> String {
        let smaps = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
        let line = smaps.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
        let kilobytes: u64 = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
        let all = u64::from(self.memory.frames().frames()) * PAGE_SIZE;
        format!("{} of {} MiB", kilobytes >> 10, all >> 20)
    }
}

impl CacheMeasurements {
    pub(super) fn measure(bench: &Bench) -> Self {
        Self(measure_clearing(bench.mm.tlb()))
    }

    pub(super) fn cache_text(&self) -> String {
        let mebibytes = |extent: ClearExtent| (extent.frames() * PAGE_SIZE) >> 20;
        let result = match self.0.cache() {
            Some(CacheProbeProgress::Found(extent)) => format!("a set of {} MiB does not fit", mebibytes(extent)),
            Some(CacheProbeProgress::AtLeast(extent)) => format!("every set up to {} MiB fits", mebibytes(extent)),
            Some(CacheProbeProgress::More) | None => "not measured".to_owned(),
        };
        format!("{result} (measured in {:.0} ms)", self.0.probe_time().as_secs_f64() * 1e3)
    }

    /// The choice of the calibration, in a line.
    pub(super) fn choice_text(&self) -> String {
        let chosen = self.0.calibration().and_then(|calibration| Some((calibration.streaming?, calibration)));
        match chosen {
            Some((stores, calibration)) => format!(
                "Calibration chose {}, {:.2} × as fast as ordinary stores on cold blocks.",
                stores.name(),
                f64::from(calibration.ratio_permille) / 1e3
            ),
            None => "Calibration chose ordinary stores: all is cleared through the cache.".to_owned(),
        }
    }

    pub(super) fn calibration_text(&self) -> String {
        match self.0.calibration() {
            Some(calibration) => format!(
                "{}, {:.2} times as fast as ordinary stores on cold blocks (measured in {:.2} ms)",
                calibration
                    .streaming
                    .map_or("no non-temporal stores are used; the last tried", |backend| backend.name()),
                f64::from(calibration.ratio_permille) / 1e3,
                calibration.elapsed.as_secs_f64() * 1e3
            ),
            None => "none: this CPU has no non-temporal stores, or too few blocks were free".to_owned(),
        }
    }
}
