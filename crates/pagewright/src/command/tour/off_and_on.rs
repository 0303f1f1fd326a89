//! A capture of a real program with a mechanism off and on, under the oracle.
//!
//! Key type: [`OffAndOn`], which capture, machine and setting, and which counts are shown.

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

/// A capture, and the setting with which it is replayed twice.
struct OffAndOn {
    capture: &'static str,
    isa: IsaKind,
    profile: &'static str,
    setting: &'static str,
    /// Memory of the machine, in per cent of the program's peak on Linux.
    percent: u64,
    /// The counts that are shown.
    shown: &'static [&'static str],
}

/// A program in half of its memory, which pages out.
const BATCHES: OffAndOn = OffAndOn {
    capture: "python",
    isa: IsaKind::Aarch64,
    profile: "kunpeng920",
    setting: "tlb_batch=never,auto",
    percent: 50,
    shown: &[
        "pgfault",
        "pgmajfault",
        "pgsteal_kswapd",
        "pgsteal_direct",
        "pw_reclaim_waits",
        "nr_tlb_remote_flush",
        "pw_tlbis",
        "pw_tlb_batch_overtaken",
    ],
};

/// A shell script that forks, with and without exec.
const FORKS: OffAndOn = OffAndOn {
    capture: "shell",
    isa: IsaKind::X86_64,
    profile: "icelake",
    setting: "cow_page_tables=never,always",
    percent: 400,
    shown: &[
        "pgfault",
        "pw_cow_copy",
        "pw_fork",
        "pw_fork_entries",
        "pw_table_shared",
        "pw_table_broken",
        "pw_table_taken_back",
        "pw_table_left",
        "nr_tlb_remote_flush",
    ],
};

/// Swap slots: 256 MiB, more than the programs need.
const SLOTS: u32 = 1 << 16;

pub(super) fn batches(out: &mut StdoutLock<'_>) -> Result<StopEnd, CommandError> {
    BATCHES.show(out)
}

pub(super) fn forks(out: &mut StdoutLock<'_>) -> Result<StopEnd, CommandError> {
    FORKS.show(out)
}

impl OffAndOn {
    /// Replays the capture twice and prints the comparison, with the verdict of the oracle.
    fn show(&self, out: &mut impl Write) -> Result<StopEnd, CommandError> {
        let bytes = CAPTURES.iter().find(|(name, _)| *name == self.capture).map_or(&[][..], |(_, bytes)| *bytes);
        let open = || TraceReader::new(bytes, format!("{}.pwt", self.capture));
        let footprint = open()?.header().native.as_ref().map_or(0, NativeCounts::footprint);
        let mut machine = MachineConfig::new(Profile::named(self.profile).map_err(OptionError::from)?);
        let memory = (footprint * self.percent / 100).next_multiple_of(PAGE_SIZE);
        machine.nodes = vec![NodeConfig { bytes: memory, cpus: CpuMask::EMPTY }];
        let mut config = ReplayConfig::new(machine);
        (config.oracle, config.swap_slots) = (true, SLOTS);
        let compared = Comparison::parse(&[self.setting.to_owned()], &[])?;
        let configs = compared.apply(self.isa, &config)?;
        let source = |_| -> Result<Box<dyn EventSource>, CommandError> { Ok(Box::new(open()?)) };
        let reports = replay_all(self.isa, &configs, &source)?;
        let clean = reports.iter().all(|report| {
            let judged =
                report.oracle.as_ref().map_or(0, |oracle| oracle.judged.0.iter().map(|(_, times)| times).sum());
            judged > 0u64 && report.oracle.iter().all(|oracle| oracle.findings.is_empty())
        });
        let column = |(heading, report)| ComparedColumn { heading, reports: vec![report] };
        let columns: Vec<ComparedColumn> = compared.headings().into_iter().zip(reports).map(column).collect();
        comparison(out, &columns, ComparedRows::Named(self.shown))?;
        out.flush()?;
        Ok(if clean { StopEnd::Shown } else { StopEnd::Failed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of a row of the comparison: with tables copied, and with tables shared.
    fn row(text: &str, name: &str) -> [u64; 2] {
        let words = |line: &str| line.split_whitespace().map(|word| word.replace(',', "")).collect::<Vec<_>>();
        let mut rows = text.lines().map(words).filter(|words| words.first().is_some_and(|first| first == name));
        let words = rows.next_back().unwrap_or_else(|| panic!("no row {name} in: {text}"));
        [1, 2].map(|at| words[at].parse().unwrap_or_else(|error| panic!("{words:?}: {error}")))
    }

    #[test]
    fn the_captured_forks_share_tables_and_copy_no_entries() {
        let mut text = Vec::new();
        assert_eq!(FORKS.show(&mut text).expect("the embedded capture"), StopEnd::Shown);
        let text = String::from_utf8(text).expect("text");
        println!("{text}");
        for heading in FORKS.setting.split_once('=').expect("a setting").1.split(',') {
            assert!(text.contains(heading), "no column {heading} in: {text}");
        }
        let [copied, none] = row(&text, "pw_fork_entries");
        assert!(copied > 0 && none == 0, "only a classic fork copies entries: {text}");
        let [none, shared] = row(&text, "pw_table_shared");
        assert!(none == 0 && shared > 0, "only the other one shares tables: {text}");
        assert!(row(&text, "pw_table_broken")[1] > 0, "parent and child store after a fork: {text}");
    }
}
