//! A machine of this computer's memory.
//!
//! Key types: [`Bed`]; [`Measured`], what calibration and knee gave.
//!
//! Not guaranteed: that the host backs the memory by huge pages; [`Bed::huge_pages`] says how much
//! of it.

use super::super::{EvaluateError, Scale};
use pagewright_host::{HostMachine, HostMemory, ThreadClock, pin_to, real_cpus, run_as};
use pagewright_mm::{Knobs, Mm};
use pagewright_tlb::frames::{
    Block, BlockList, CacheProbe, CacheProbeProgress, ClearBackend, ClearCalibration, ClearExtent, ClearPolicy,
    FrameRequest, Frames, MemoryLayout, NodeSpec,
};
use pagewright_types::{CpuId, CpuMask, NodeId, Order, PAGE_SIZE, Pfn};
use std::fs;
use std::time::Duration;

/// What no cleared memory holds.
pub(super) const POISON: u64 = 0xa5c3_5a3c_a5c3_5a3c;
/// The only node.
pub(super) const NODE: NodeId = NodeId::new(0);

/// The machine.
pub(super) struct Bed {
    mm: Mm<HostMachine>,
    memory: HostMemory,
    real: Vec<usize>,
    pub(super) scale: Scale,
}

/// What was measured before anything else.
pub(super) struct Measured {
    pub(super) calibration: Option<ClearCalibration>,
    pub(super) knee: CacheProbeProgress,
    pub(super) knee_took: Duration,
}

impl Bed {
    /// 3 GiB, or 8 at full scale, touched and poisoned.
    ///
    /// # Errors
    /// [`EvaluateError`]: no memory, no machine.
    pub(super) fn new(scale: Scale) -> Result<Self, EvaluateError> {
        let gibibytes = if scale == Scale::Full { 8 } else { 3 };
        let memory = HostMemory::try_new(gibibytes * Order::PUD.frames())?;
        (0..gibibytes).for_each(|at| memory.fill(Pfn::new(at * Order::PUD.frames()), Order::PUD, POISON));
        let real = real_cpus();
        let cpus = real.len().max(1);
        let ranges = [memory.frames()];
        let nodes = [NodeSpec { id: NODE, ranges: &ranges, cpus: CpuMask::first(cpus) }];
        let layout = MemoryLayout { min_free_kbytes: Some(0), watermark_scale_factor: 0, ..MemoryLayout::new(&nodes) };
        let mm = Mm::try_new(HostMachine::new(memory, cpus), &layout, Knobs::default());
        let mm = mm.map_err(|error| EvaluateError::Machine(error.to_string()))?;
        let bed = Self { mm, memory, real, scale };
        bed.become_cpu(0);
        Ok(bed)
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
        self.real.len().max(1)
    }

    /// Makes the calling thread a CPU of the machine, on a real one of its own.
    pub(super) fn become_cpu(&self, cpu: usize) {
        run_as(CpuId::new(cpu as u16));
        if let Some(real) = self.real.get(cpu) {
            pin_to(*real);
        }
    }

    /// The stores that this CPU has.
    pub(super) fn backends(&self) -> impl Iterator<Item = ClearBackend> {
        self.frames().clear_selector().caps().backends()
    }

    /// The best stores past the cache, if there are any.
    pub(super) fn streaming(&self) -> Option<ClearBackend> {
        self.frames().clear_selector().streaming()
    }

    pub(super) fn set(&self, policy: ClearPolicy) {
        self.frames().clear_selector().set_policy(policy);
    }

    /// Repetitions of everything.
    pub(super) fn repetitions(&self) -> usize {
        if self.scale == Scale::Full { 25 } else { 9 }
    }

    /// # Errors
    /// [`EvaluateError::Machine`] when frames run out.
    pub(super) fn take(&self, order: Order) -> Result<Block, EvaluateError> {
        self.mm.tlb().alloc(FrameRequest::new(order, NODE)).map_err(|error| EvaluateError::Machine(error.to_string()))
    }

    fn list(&self, (blocks, order): (usize, Order)) -> BlockList {
        let mut list = BlockList::new();
        for _ in 0..blocks {
            // Whoever gets fewer says that they were too few.
            let Ok(block) = self.take(order) else { break };
            list.push(self.frames(), block);
        }
        list
    }

    /// Calibrates and measures the cache.
    pub(super) fn measure(&self) -> Measured {
        let clock = ThreadClock::start_running();
        let frames = self.frames();
        let calibration =
            frames.calibrate_clearing(self.list(Frames::<HostMachine>::CALIBRATION_BLOCKS), || clock.elapsed());
        let mut knee = CacheProbe::new(self.list(CacheProbe::BLOCKS));
        let progress = loop {
            match knee.step(frames, || clock.elapsed()) {
                CacheProbeProgress::More => {}
                done @ (CacheProbeProgress::Found(_) | CacheProbeProgress::AtLeast(_)) => break done,
            }
        };
        let knee_took = knee.elapsed();
        knee.finish(frames);
        Measured { calibration, knee: progress, knee_took }
    }

    /// Bytes up to which a target may be called cached: half of what was measured or assumed.
    pub(super) fn cached_up_to(&self) -> u64 {
        self.frames().clear_selector().cache().frames() * PAGE_SIZE / 2
    }

    /// How much of the memory has huge pages.
    pub(super) fn huge_pages(&self) -> String {
        let smaps = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
        let line = smaps.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
        let kilobytes: u64 = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
        let all = u64::from(self.memory.frames().frames()) * PAGE_SIZE;
        format!("{} of {} MiB", kilobytes >> 10, all >> 20)
    }
}

impl Measured {
    pub(super) fn knee_text(&self) -> String {
        let mebibytes = |extent: ClearExtent| (extent.frames() * PAGE_SIZE) >> 20;
        let what = match self.knee {
            CacheProbeProgress::Found(extent) => format!("sets of {} MiB do not fit", mebibytes(extent)),
            CacheProbeProgress::AtLeast(extent) => format!("no set up to {} MiB was slow", mebibytes(extent)),
            CacheProbeProgress::More => "not measured".to_owned(),
        };
        format!("{what} (measured in {:.0} ms)", self.knee_took.as_secs_f64() * 1e3)
    }

    pub(super) fn calibration_text(&self) -> String {
        match self.calibration {
            Some(found) => format!(
                "{}, {:.2} times as fast as ordinary stores on cold blocks (measured in {:.2} ms)",
                found.streaming.map_or("all vetoed; the last tried", |backend| backend.name()),
                f64::from(found.ratio_permille) / 1e3,
                found.elapsed.as_secs_f64() * 1e3
            ),
            None => "nothing to compare".to_owned(),
        }
    }
}
