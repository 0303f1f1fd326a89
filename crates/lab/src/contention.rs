//! First stores by many CPUs at once: what each fault costs, and which lines it pays for.
//!
//! Key types: [`FaultWorkload`], in whose space the CPUs fault; [`FaultContention`], the result.
//!
//! Each CPU stores to pages of a range of its own. The CPU whose clock is least faults next, as in
//! a replay, so the faults overlap in modelled time.
//!
//! Not guaranteed: that a real machine takes this time. Memory bandwidth has no price, and lines
//! that are not reported have none ([`pagewright_sync::Backend::line`]).

use crate::machine::{Lab, LabError};
use pagewright_arch::Isa;
use pagewright_mm::{FaultError, MapFlags, MapRequest, MmError, MmSettings, Space};
use pagewright_sim::{LineCosts, MachineConfig, Picos, Sim};
use pagewright_sync::Arc;
use pagewright_types::{Access, CpuId, Level, PAGE_SIZE, Rights, VirtAddr};

/// Whose space the CPUs fault in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultWorkload {
    /// All CPUs run threads of one process.
    OneSpace,
    /// Each CPU runs a process of its own.
    OwnSpaces,
}

impl FaultWorkload {
    /// Both workloads.
    pub const ALL: [Self; 2] = [Self::OneSpace, Self::OwnSpaces];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneSpace => "threads of one space",
            Self::OwnSpaces => "spaces of their own",
        }
    }
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum ContentionError {
    /// The machine cannot be set up.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A call failed.
    #[error(transparent)]
    Call(#[from] MmError),
    /// A store failed.
    #[error(transparent)]
    Fault(#[from] FaultError),
}

/// What the faults of one run cost, in modelled time.
#[derive(Clone, Debug)]
pub struct FaultContention {
    /// The number of faults, on all CPUs together.
    pub faults: u64,
    /// The time that the CPUs took together.
    pub time: Picos,
    /// The costs of each line, the largest first.
    pub lines: Vec<LineCosts>,
}

impl FaultContention {
    /// The time of one fault, in picoseconds.
    pub fn per_fault(&self) -> u64 {
        self.time.raw() / self.faults.max(1)
    }
}

/// A CPU, the space that it runs, and where the CPU faults in it.
type FaultRange<I> = (CpuId, Arc<Space<Sim<I>>>, VirtAddr);

/// Lets every CPU of a machine store to `pages` new pages, with the settings given.
///
/// Calls `after_each` on the CPU after each fault, as a part of its time.
///
/// # Errors
/// [`ContentionError`], if the machine is impossible or too small.
pub fn run<I: Isa>(
    config: MachineConfig,
    settings: MmSettings,
    workload: FaultWorkload,
    pages: u64,
    after_each: impl Fn(),
) -> Result<FaultContention, ContentionError> {
    let cpus: Vec<CpuId> = (0..config.cpus).map(CpuId::new).collect();
    let lab = Lab::<I>::new(config, settings)?;
    let mut ranges: Vec<FaultRange<I>> = Vec::new();
    for cpu in &cpus {
        let space = match (workload, ranges.first()) {
            (FaultWorkload::OneSpace, Some((_, space, _))) => space.clone(),
            (FaultWorkload::OneSpace, None) | (FaultWorkload::OwnSpaces, _) => lab.on(*cpu, |mm| mm.new_space())?,
        };
        // Whole tables, so that no two CPUs fault in one.
        let len = (pages * PAGE_SIZE).next_multiple_of(Level::PMD.span());
        let (rights, flags) = (Rights::RW, MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED);
        let addr = VirtAddr::new(1 << 32).add(len * u64::from(cpu.raw()));
        let va = lab.on(*cpu, |mm| mm.mmap(&space, &MapRequest { addr, len, rights, flags, file: None }))?;
        lab.run(*cpu, &space);
        ranges.push((*cpu, space, va));
    }
    let (start, before) = (lab.sim().elapsed(), lab.sim().line_costs());
    cpus.iter().for_each(|cpu| lab.sim().idle_until(*cpu, start));
    let mut done = vec![0; ranges.len()];
    while let Some(next) =
        (0..ranges.len()).filter(|at| done[*at] < pages).min_by_key(|at| lab.sim().clock(ranges[*at].0))
    {
        let (cpu, space, va) = &ranges[next];
        lab.touch(*cpu, space, va.add(done[next] * PAGE_SIZE), Access::Write, 1)?;
        lab.on(*cpu, |_| after_each());
        done[next] += 1;
    }
    let time = cpus.iter().fold(Picos::ZERO, |time, cpu| time + lab.sim().clock(*cpu).since(start));
    let lines = lab.sim().line_costs().into_iter().map(|after| after.since(&before)).collect();
    Ok(FaultContention { faults: pages * cpus.len() as u64, time, lines: dearest_first(lines) })
}

fn dearest_first(mut lines: Vec<LineCosts>) -> Vec<LineCosts> {
    lines.sort_by_key(|line| core::cmp::Reverse(line.transfer_time + line.wait_time));
    lines
}
