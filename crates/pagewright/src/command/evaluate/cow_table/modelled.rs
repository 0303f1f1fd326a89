//! The matrix of cycles in modelled time, on a simulated machine of each instruction set.
//!
//! Key type: [`ModelledCycle`]. The machine has one CPU and the default profile. It prices each
//! access to an entry, each atomic operation, invalidation and barrier, and each page that is
//! cleared or copied. The cycles are those of [`cycles`](super::cycles), which are measured.
//!
//! Not guaranteed: anything about caches. An access to an entry costs the same wherever it is.

use super::super::{EvaluateError, Figures, Grid, Run, Stats};
use super::cycles::{CYCLE_HEAD, Cycle, GAIN_HEAD, Server};
use super::parent::{ForkMode, Parent, failed, frames_for};
use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_sim::{MachineConfig, NodeConfig, Profile, Sim};
use pagewright_types::{CpuId, CpuMask, IsaKind, PAGE_SIZE};

const CPU: CpuId = CpuId::new(0);

/// The modelled times of a cycle.
pub(super) struct ModelledCycle {
    pub(super) isa: IsaKind,
    pub(super) cycle: Cycle,
    /// Picoseconds, by [`ForkMode`].
    pub(super) picos: [u64; 3],
}

impl ModelledCycle {
    /// Runs a cycle in each way, on a machine of its own.
    pub(super) fn run(isa: IsaKind, cycle: Cycle) -> Result<Self, EvaluateError> {
        let picos = match isa {
            IsaKind::X86_64 => picos::<X86_64>,
            IsaKind::Aarch64 => picos::<Aarch64>,
        };
        let mut times = Self { isa, cycle, picos: [0; 3] };
        for mode in ForkMode::ALL {
            times.picos[mode as usize] = picos(cycle, mode)?;
        }
        Ok(times)
    }

    /// Classic in multiples of another way; every run has the same.
    pub(super) fn gain(&self, mode: ForkMode) -> Stats {
        let [classic, other] = [ForkMode::Classic, mode].map(|mode| self.picos[mode as usize] as f64);
        Stats::exact(classic / other)
    }
}

/// The time of a cycle, after one that warms up.
fn picos<I: Isa>(cycle: Cycle, mode: ForkMode) -> Result<u64, EvaluateError> {
    let profile = Profile::named(Profile::default_for(I::KIND)).map_err(failed)?;
    let mut machine = MachineConfig::new(profile);
    machine.cpus = 1;
    // A parent, a copy of each of its pages, and tables.
    let bytes = u64::from(frames_for(2 * cycle.bytes)) * PAGE_SIZE;
    machine.nodes = vec![NodeConfig { bytes, cpus: CpuMask::EMPTY }];
    let sim = Sim::<I>::new(machine).map_err(failed)?;
    let [node] = sim.nodes() else { return Err(failed("a machine of one node has others")) };
    let server = sim.run_on(CPU, || Server::new(Parent::on(sim.clone(), node.frames)?, cycle))?;
    server.set(mode)?;
    let run = || sim.run_on(CPU, || server.run());
    run()?;
    let before = sim.clock(CPU);
    run()?;
    Ok(sim.clock(CPU).since(before).raw())
}

/// The matrix on one instruction set.
pub(super) fn figures(isa: IsaKind, all: &[ModelledCycle]) -> Figures {
    let of_isa = || all.iter().filter(|times| times.isa == isa);
    let profile = Profile::default_for(isa);
    let runs = of_isa().flat_map(|times| {
        ForkMode::ALL.map(|mode| {
            let [work, size, density] = times.cycle.labels();
            let label = format!("cycle, {profile}, {work}, {}", mode.name());
            let mut run = Run::of(label, format!("a parent of {size}, {density}"));
            run.modelled.insert("cycle_ps".to_owned(), times.picos[mode as usize]);
            run
        })
    });
    Grid::of(format!("The matrix of cycles, modelled µs on {profile}"), of_isa())
        .texts(CYCLE_HEAD, |times| times.cycle.labels())
        .texts(["classic µs", "shared µs", "auto µs"], |times| {
            times.picos.map(|picos| format!("{:.2}", picos as f64 / 1e6))
        })
        .texts(GAIN_HEAD, |times| ForkMode::AGAINST_CLASSIC.map(|mode| format!("{:.3}", times.gain(mode).median)))
        .with_runs(runs)
}
