//! A capture in half of the memory that it took on Linux, with a mechanism off and on.

use super::{CAPTURES, StopEnd};
use crate::command::CommandError;
use crate::command::replay::replay_all;
use crate::options::OptionError;
use crate::setting::Comparison;
use crate::show::{ComparedColumn, ComparedRows, comparison};
use pagewright_capture::replay::{EventSource, ReplayConfig};
use pagewright_capture::trace::{NativeCounts, TraceReader};
use pagewright_sim::{MachineConfig, NodeConfig, Profile};
use pagewright_types::{CpuMask, IsaKind, PAGE_SIZE};
use std::io::{StdoutLock, Write};

const CAPTURE: &str = "python";
const PROFILE: &str = "kunpeng920";
const SETTING: &str = "tlb_batch=never,auto";
/// Memory of the machine, in per cent of the program's peak on Linux.
const PERCENT: u64 = 50;
/// The counts that are shown.
const SHOWN: [&str; 8] = [
    "pgfault",
    "pgmajfault",
    "pgsteal_kswapd",
    "pgsteal_direct",
    "pw_reclaim_waits",
    "nr_tlb_remote_flush",
    "pw_tlbis",
    "pw_tlb_batch_overtaken",
];
/// Swap slots: 256 MiB, more than the program needs.
const SLOTS: u32 = 1 << 16;

/// Replays the capture twice and prints the comparison, with the verdict of the oracle.
pub(super) fn show(out: &mut StdoutLock<'_>) -> Result<StopEnd, CommandError> {
    let bytes = CAPTURES.iter().find(|(name, _)| *name == CAPTURE).map_or(&[][..], |(_, bytes)| *bytes);
    let open = || TraceReader::new(bytes, format!("{CAPTURE}.pwt"));
    let footprint = open()?.header().native.as_ref().map_or(0, NativeCounts::footprint);
    let mut machine = MachineConfig::new(Profile::named(PROFILE).map_err(OptionError::from)?);
    let memory = (footprint * PERCENT / 100).next_multiple_of(PAGE_SIZE);
    machine.nodes = vec![NodeConfig { bytes: memory, cpus: CpuMask::EMPTY }];
    let mut config = ReplayConfig::new(machine);
    (config.oracle, config.swap_slots) = (true, SLOTS);
    let compared = Comparison::parse(SETTING, &[])?;
    let configs = compared.apply(IsaKind::Aarch64, &config)?;
    let source = |_| -> Result<Box<dyn EventSource>, CommandError> { Ok(Box::new(open()?)) };
    let reports = replay_all(IsaKind::Aarch64, &configs, &source)?;
    let clean = reports.iter().all(|report| {
        let judged = report.oracle.as_ref().map_or(0, |oracle| oracle.judged.0.iter().map(|(_, times)| times).sum());
        judged > 0u64 && report.oracle.iter().all(|oracle| oracle.findings.is_empty())
    });
    let column = |(heading, report)| ComparedColumn { heading, reports: vec![report] };
    let columns: Vec<ComparedColumn> = compared.headings().into_iter().zip(reports).map(column).collect();
    comparison(out, &columns, ComparedRows::Named(&SHOWN))?;
    out.flush()?;
    Ok(if clean { StopEnd::Shown } else { StopEnd::Failed })
}
