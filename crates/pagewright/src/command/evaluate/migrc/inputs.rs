//! Runs each input in its columns: look-ups on two memory tiers, and captures in little memory.
//!
//! The look-ups run in the quick evaluation on 64 MiB and 512 MiB, with the watermarks of the fast
//! node as far apart as those of 1 GiB: Linux's `watermark_scale_factor` of 10, 16 times. At full
//! scale they also run on the machine that the workload is for. The variants (stores, larger gaps
//! between the watermarks, arm64) run on the workload's machine, at full scale also on the other.
//! So does `unmap` of the look-ups, at full scale only.
//!
//! Not guaranteed: that columns move the same pages. Time decides when scans and reclaim run.

use super::super::half_memory::{NAMES, PERCENT, replay_capture};
use super::super::{Context, EvaluateError, Scale, run_parallel};
use super::column::{ColumnRun, FlushColumn, InputRuns};
use pagewright_capture::replay::{ReplayConfig, replay};
use pagewright_capture::workload;
use pagewright_mm::MmSetting;
use pagewright_sim::{MachineConfig, NodeConfig, Profile};
use pagewright_types::CpuMask;
use std::fmt::Display;

/// The profile of the machines with x86-64.
pub(super) const PROFILE: &str = "icelake";
/// The profile of the machines with arm64.
pub(super) const ARM64: &str = "neoverse-n1";
/// CPUs of all machines; the look-ups have as many threads.
pub(super) const CPUS: u16 = 4;
const WORKLOAD: &str = "cross-section";
/// Memory of the two nodes of the quick machine, in MiB.
const QUICK_MIB: [u64; 2] = [64, 512];
/// `vm.watermark_scale_factor` of the quick machine, and of the least G.
const QUICK_WATERMARKS: u64 = 160;
/// How many times as far apart the watermarks are for each G.
pub(super) const GAPS: [u64; 3] = [1, 4, 16];
/// One of so many runs of loads stores, too, where pages are written between migrations.
const STORES: [u64; 2] = [2, 16];
/// Rounds of look-ups, and fewer of them in the variants and under the oracle.
const ROUNDS: u64 = 10_000;
const FEW_ROUNDS: u64 = 1500;

fn failed(input: &str) -> impl Fn(&dyn Display) -> EvaluateError + '_ {
    move |error| EvaluateError::Machine(format!("{input}: {error}"))
}

/// A machine of two tiers, and the look-ups on it.
#[derive(Clone, Copy)]
pub(super) struct TierMachine {
    profile: &'static str,
    bytes: [u64; 2],
    watermark_scale_factor: u64,
    rounds: u64,
    /// One of so many runs of loads also stores.
    stores: Option<u64>,
    oracle: bool,
    columns: &'static [FlushColumn],
}

impl TierMachine {
    /// The machine whose fast node has the watermarks of a large one.
    fn quick() -> Self {
        Self {
            profile: PROFILE,
            bytes: QUICK_MIB.map(|mib| mib << 20),
            watermark_scale_factor: QUICK_WATERMARKS,
            rounds: ROUNDS,
            stores: None,
            oracle: false,
            columns: &FlushColumn::ALL,
        }
    }

    /// The machine that the workload is for, with a fast node of a fifth of the tables.
    pub(super) fn own(rounds: u64) -> Result<Self, EvaluateError> {
        let wanted = workload::machine_of(WORKLOAD).ok_or_else(|| failed(WORKLOAD)(&"no machine"))?;
        let watermark_scale_factor = MmSetting::WatermarkScaleFactor.default();
        let bytes = [wanted.fast_bytes, wanted.slow_bytes];
        Ok(Self { bytes, watermark_scale_factor, rounds, ..Self::quick() })
    }

    /// The same machine with the setting of the quick one, which puts the watermarks farther apart.
    pub(super) fn apart(self) -> Self {
        Self { watermark_scale_factor: QUICK_WATERMARKS, ..self }
    }

    /// A few rounds, batched and with translations that linger, on the workload's own machine.
    ///
    /// The watermarks of its fast node are as far apart as those of the series' machine.
    pub(super) fn headline() -> Result<Self, EvaluateError> {
        Ok(Self { columns: &FlushColumn::PAIR, ..Self::own(FEW_ROUNDS)?.apart() })
    }

    /// The input as rows name it: the look-ups, what differs from the first ones, and the memory.
    fn name(self) -> String {
        let [fast, slow] = self.bytes.map(|bytes| bytes as f64 / f64::from(1 << 20));
        let arm64 = if self.profile == ARM64 { " on arm64" } else { "" };
        let stores = self.stores.map_or_else(String::new, |every| format!(" with 1 store in {every}"));
        let marks = match self.watermark_scale_factor {
            ..QUICK_WATERMARKS => String::new(),
            QUICK_WATERMARKS if self.bytes[0] == QUICK_MIB[0] << 20 => String::new(),
            factor => format!(", watermark_scale_factor={factor}"),
        };
        let oracle = if self.oracle { ", under the oracle" } else { "" };
        format!("{WORKLOAD}{stores}{arm64}, {} rounds on {fast:.0} + {slow:.0} MiB{marks}{oracle}", self.rounds)
    }

    fn config(self, column: FlushColumn) -> Result<ReplayConfig, EvaluateError> {
        let profile = Profile::named(self.profile).map_err(|error| failed(WORKLOAD)(&error))?;
        let mut machine = MachineConfig::new(profile);
        machine.cpus = CPUS;
        machine.nodes = self.bytes.map(|bytes| NodeConfig { bytes, cpus: CpuMask::EMPTY }).to_vec();
        let mut config = ReplayConfig { oracle: self.oracle, ..ReplayConfig::new(machine) };
        config.settings.extend(workload::machine_of(WORKLOAD).iter().flat_map(|wanted| wanted.settings));
        config.settings.push((MmSetting::NumaBalancing, 2));
        config.settings.push((MmSetting::WatermarkScaleFactor, self.watermark_scale_factor));
        config.settings.extend(column.settings());
        Ok(config)
    }

    /// Runs the look-ups in each column.
    fn run(self, context: &Context<'_>) -> Result<InputRuns, EvaluateError> {
        let input = self.name();
        let columns = each_column(context, &input, self.columns, |column| self.run_column(&self.config(column)?))?;
        Ok(InputRuns { input, columns })
    }

    fn run_column(self, config: &ReplayConfig) -> Result<ColumnRun, EvaluateError> {
        let source = workload::named(WORKLOAD, config.machine.seed).map(|source| source.with_rounds(self.rounds));
        let source = source.ok_or_else(|| failed(WORKLOAD)(&"no such workload"))?;
        let mut source = match self.stores {
            Some(every) => source.with_stores(every),
            None => source,
        };
        let isa = config.machine.profile.isa();
        replay(isa, &mut source, config).map(ColumnRun::of).map_err(|error| failed(WORKLOAD)(&error))
    }
}

/// Runs `columns` of an input, two at a time.
fn each_column(
    context: &Context<'_>,
    input: &str,
    columns: &[FlushColumn],
    run: impl Fn(FlushColumn) -> Result<ColumnRun, EvaluateError> + Sync,
) -> Result<Vec<(FlushColumn, ColumnRun)>, EvaluateError> {
    let mut runs = Vec::new();
    for pair in columns.chunks(2) {
        let names = pair.iter().map(|column| column.name()).collect::<Vec<_>>().join(", ");
        context.show_step(&format!("{input}: {names}"));
        runs.extend(run_parallel(pair.iter().copied(), |column| Ok((column, run(column)?)))?);
    }
    Ok(runs)
}

/// The inputs of the evaluation.
#[derive(Default)]
pub(super) struct InputPlan {
    pub(super) tiers: Vec<TierMachine>,
    pub(super) stores: Vec<TierMachine>,
    /// For each machine one for each of [`GAPS`].
    pub(super) gaps: Vec<TierMachine>,
    pub(super) arm64: Vec<TierMachine>,
    pub(super) judged: Option<TierMachine>,
    pub(super) captures: &'static [&'static str],
    pub(super) arm64_captures: &'static [&'static str],
}

impl InputPlan {
    pub(super) fn of(scale: Scale) -> Result<Self, EvaluateError> {
        let few = TierMachine::own(FEW_ROUNDS)?;
        let quick = TierMachine::quick();
        match scale {
            // Nothing is paged out on two tiers, so `unmap` repeats `migration` there.
            Scale::Quick => Ok(Self {
                tiers: vec![TierMachine { columns: &FlushColumn::ALL[..3], ..quick }],
                ..Self::with_variants(&[few, few.apart()], &STORES[..1], &FlushColumn::PAIR)
            }),
            Scale::Full => Ok(Self {
                tiers: vec![quick, TierMachine::own(ROUNDS)?],
                ..Self::with_variants(&[few, few.apart(), quick], &STORES, &FlushColumn::TRIPLE)
            }),
        }
    }

    /// The variants of the look-ups on each of `machines`, and the captures.
    ///
    /// One of `stores` runs of loads stores, too, where pages are written. The gaps grow from that
    /// of the quick machine's setting.
    pub(super) fn with_variants(machines: &[TierMachine], stores: &[u64], of_arm64: &'static [FlushColumn]) -> Self {
        let each = |columns, change: &dyn Fn(TierMachine) -> Vec<TierMachine>| {
            machines.iter().flat_map(|machine| change(TierMachine { columns, ..*machine })).collect::<Vec<_>>()
        };
        let storing =
            |machine: TierMachine| stores.iter().map(|every| TierMachine { stores: Some(*every), ..machine }).collect();
        let gaps = |machine: TierMachine| {
            let gap = |times| TierMachine { watermark_scale_factor: QUICK_WATERMARKS * times, ..machine };
            if machine.watermark_scale_factor == QUICK_WATERMARKS { GAPS.map(gap).to_vec() } else { Vec::new() }
        };
        let arm64 = |machine: TierMachine| vec![TierMachine { profile: ARM64, ..machine }];
        let pair: &[FlushColumn] = &FlushColumn::PAIR;
        Self {
            tiers: Vec::new(),
            stores: each(pair, &storing),
            gaps: each(&[FlushColumn::Migration], &gaps),
            arm64: each(of_arm64, &arm64),
            judged: machines.first().map(|machine| TierMachine { oracle: true, columns: pair, ..*machine }),
            captures: &NAMES,
            arm64_captures: &NAMES,
        }
    }
}

/// Runs the look-ups on each machine.
pub(super) fn look_ups(context: &Context<'_>, machines: &[TierMachine]) -> Result<Vec<InputRuns>, EvaluateError> {
    machines.iter().map(|machine| machine.run(context)).collect()
}

/// Replays captures in little memory, in `columns`.
pub(super) fn captures(
    context: &Context<'_>,
    names: &[&'static str],
    profile: &'static str,
    columns: &[FlushColumn],
) -> Result<Vec<InputRuns>, EvaluateError> {
    let capture = |name: &&'static str| {
        let arm64 = if profile == ARM64 { " on arm64" } else { "" };
        let input = format!("{name}{arm64} in {PERCENT} %");
        let columns = each_column(context, &input, columns, |column| {
            replay_capture(name, profile, CPUS, false, column.settings()).map(ColumnRun::of)
        })?;
        Ok(InputRuns { input, columns })
    };
    names.iter().map(capture).collect()
}
