//! Runs each input in each column: the look-ups on two memory tiers, and captures in little memory.
//!
//! The look-ups run in the quick evaluation on 64 MiB and 512 MiB, with the watermarks of the fast
//! node as far apart as those of 1 GiB: Linux's `watermark_scale_factor` of 10, 16 times. At full
//! scale they also run on the machine that the workload is for.
//!
//! Not guaranteed: that columns move the same pages. Time decides when scans and reclaim run.

use super::super::{Context, EvaluateError, Scale, run_parallel};
use super::column::{ColumnRun, FlushColumn, InputRuns};
use crate::command::tour::CAPTURES;
use pagewright_capture::replay::{ReplayConfig, replay};
use pagewright_capture::trace::{NativeCounts, TraceReader};
use pagewright_capture::workload;
use pagewright_mm::MmSetting;
use pagewright_sim::{MachineConfig, NodeConfig, Profile};
use pagewright_types::{CpuMask, PAGE_SIZE};
use std::fmt::Display;

/// The profile of all machines.
pub(super) const PROFILE: &str = "icelake";
/// CPUs of all machines; the look-ups have as many threads.
pub(super) const CPUS: u16 = 4;
const WORKLOAD: &str = "cross-section";
/// Memory of the two nodes of the quick machine, in MiB.
const QUICK_MIB: [u64; 2] = [64, 512];
/// `vm.watermark_scale_factor` of the quick machine.
const QUICK_WATERMARKS: u64 = 160;
/// Rounds of look-ups, and fewer of them in the tour and under the oracle.
const ROUNDS: u64 = 10_000;
const TOUR_ROUNDS: u64 = 1500;
const JUDGED_ROUNDS: u64 = 1500;
/// The captures that run to their end in so little memory.
const NAMES: [&str; 3] = ["python", "sqlite", "pigz"];
/// Memory for a capture, in per cent of the program's peak on Linux.
const PERCENT: u64 = 50;
const SLOTS: u32 = 1 << 16;

fn failed(input: &str) -> impl Fn(&dyn Display) -> EvaluateError + '_ {
    move |error| EvaluateError::Machine(format!("{input} on {PROFILE}: {error}"))
}

/// A machine of two tiers, and the number of rounds of look-ups on it.
#[derive(Clone, Copy)]
struct TierMachine {
    bytes: [u64; 2],
    watermark_scale_factor: u64,
    rounds: u64,
}

impl TierMachine {
    /// The machine whose fast node has the watermarks of a large one.
    fn quick() -> Self {
        let bytes = QUICK_MIB.map(|mib| mib << 20);
        Self { bytes, watermark_scale_factor: QUICK_WATERMARKS, rounds: ROUNDS }
    }

    /// The machine that the workload is for, with a fast node of a fifth of the tables.
    fn own(rounds: u64) -> Result<Self, EvaluateError> {
        let wanted = workload::machine_of(WORKLOAD).ok_or_else(|| failed(WORKLOAD)(&"no machine"))?;
        let watermark_scale_factor = MmSetting::WatermarkScaleFactor.default();
        Ok(Self { bytes: [wanted.fast_bytes, wanted.slow_bytes], watermark_scale_factor, rounds })
    }

    fn name(self) -> String {
        let [fast, slow] = self.bytes.map(|bytes| bytes as f64 / f64::from(1 << 20));
        format!("{WORKLOAD}, {} rounds on {fast:.0} + {slow:.0} MiB", self.rounds)
    }

    fn config(self, column: FlushColumn) -> Result<ReplayConfig, EvaluateError> {
        let profile = Profile::named(PROFILE).map_err(|error| failed(WORKLOAD)(&error))?;
        let mut machine = MachineConfig::new(profile);
        machine.cpus = CPUS;
        machine.nodes = self.bytes.map(|bytes| NodeConfig { bytes, cpus: CpuMask::EMPTY }).to_vec();
        let mut config = ReplayConfig::new(machine);
        config.settings.extend(workload::machine_of(WORKLOAD).iter().flat_map(|wanted| wanted.settings));
        config.settings.push((MmSetting::NumaBalancing, 2));
        config.settings.push((MmSetting::WatermarkScaleFactor, self.watermark_scale_factor));
        config.settings.extend(column.settings());
        Ok(config)
    }

    /// Runs the look-ups in each column, two at a time.
    fn columns(self, context: &Context<'_>, oracle: bool) -> Result<InputRuns, EvaluateError> {
        let input = format!("{}{}", self.name(), if oracle { ", under the oracle" } else { "" });
        let mut columns = Vec::new();
        for pair in FlushColumn::ALL.chunks(2) {
            let names = pair.iter().map(|column| column.name()).collect::<Vec<_>>().join(", ");
            context.show_step(&format!("{input}: {names}"));
            columns.extend(run_parallel(pair.iter().copied(), |column| {
                self.run(&ReplayConfig { oracle, ..self.config(column)? })
            })?);
        }
        Ok(InputRuns { input, columns })
    }

    fn run(self, config: &ReplayConfig) -> Result<ColumnRun, EvaluateError> {
        let seed = config.machine.seed;
        let source = workload::named(WORKLOAD, seed).map(|source| source.with_rounds(self.rounds));
        let mut source = source.ok_or_else(|| failed(WORKLOAD)(&"no such workload"))?;
        let isa = config.machine.profile.isa();
        replay(isa, &mut source, config).map(ColumnRun::of).map_err(|error| failed(WORKLOAD)(&error))
    }
}

/// Runs the look-ups on each machine.
pub(super) fn tiers(context: &Context<'_>) -> Result<Vec<InputRuns>, EvaluateError> {
    let machines = match context.scale {
        Scale::Tour => vec![TierMachine::own(TOUR_ROUNDS)?],
        Scale::Quick => vec![TierMachine::quick()],
        Scale::Full => vec![TierMachine::quick(), TierMachine::own(ROUNDS)?],
    };
    machines.into_iter().map(|machine| machine.columns(context, false)).collect()
}

/// Runs fewer look-ups under the oracle, which sees the reads that lingering translations answer.
pub(super) fn judged(context: &Context<'_>) -> Result<InputRuns, EvaluateError> {
    TierMachine::own(JUDGED_ROUNDS)?.columns(context, true)
}

/// Replays the captures in little memory.
pub(super) fn captures(context: &Context<'_>) -> Result<Vec<InputRuns>, EvaluateError> {
    NAMES.iter().map(|name| capture(context, name)).collect()
}

fn capture(context: &Context<'_>, name: &'static str) -> Result<InputRuns, EvaluateError> {
    let bytes = CAPTURES.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, bytes)| *bytes);
    let mut columns = Vec::new();
    for pair in FlushColumn::ALL.chunks(2) {
        context.show_step(&format!("{name} in {PERCENT} % of its memory"));
        columns.extend(run_parallel(pair.iter().copied(), |column| {
            let mut reader = TraceReader::new(bytes, format!("{name}.pwt")).map_err(|error| failed(name)(&error))?;
            let footprint = reader.header().native.as_ref().map_or(0, NativeCounts::footprint);
            let profile = Profile::named(PROFILE).map_err(|error| failed(name)(&error))?;
            let isa = profile.isa();
            let mut machine = MachineConfig::new(profile);
            machine.cpus = CPUS;
            machine.nodes[0].bytes = (footprint * PERCENT / 100).next_multiple_of(PAGE_SIZE);
            let mut config = ReplayConfig::new(machine);
            config.swap_slots = SLOTS;
            config.settings.extend(column.settings());
            replay(isa, &mut reader, &config).map(ColumnRun::of).map_err(|error| failed(name)(&error))
        })?);
    }
    Ok(InputRuns { input: format!("{name} in {PERCENT} %"), columns })
}
