//! Captures of real programs in half the memory that they took on Linux, with swap.
//!
//! Not guaranteed: their times. A capture has no contents, so what a page costs on its way to swap
//! and back is one figure for all.

use super::super::{Context, EvaluateError, Run, Table};
use super::at_once;
use super::grid::{KUNPENG, PHONE, X86};
use crate::command::tour::CAPTURES;
use pagewright_capture::replay::{ReplayConfig, Report, replay};
use pagewright_capture::trace::{Native, Reader};
use pagewright_mm::Knob;
use pagewright_sim::{MachineConfig, Profile};
use pagewright_types::PAGE_SIZE;
use std::collections::BTreeMap;

/// Those that still run in so little.
const NAMES: [&str; 3] = ["python", "sqlite", "pigz"];
/// Of what the program took on Linux.
const PERCENT: u64 = 50;
const CPUS: u16 = 8;
const SLOTS: u32 = 1 << 16;

/// A capture on a machine, before and after.
pub(super) struct Squeezed {
    pub(super) name: &'static str,
    pub(super) profile: &'static str,
    pub(super) reports: [Report; 2],
}

impl Squeezed {
    pub(super) fn count(&self, side: usize, name: &str) -> u64 {
        self.reports[side].counters.get(name).unwrap_or(0)
    }

    /// Pages that reclaim freed.
    pub(super) fn reclaimed(&self, side: usize) -> u64 {
        self.count(side, "pgsteal_kswapd") + self.count(side, "pgsteal_direct")
    }

    /// Waits of reclaim for each page that it freed.
    pub(super) fn waits(&self, side: usize) -> f64 {
        self.count(side, "pw_reclaim_waits") as f64 / self.reclaimed(side).max(1) as f64
    }

    /// Waits of the run that are not reclaim's: for copies, forks, and what the program unmaps and
    /// protects.
    pub(super) fn other_waits(&self, side: usize) -> u64 {
        self.count(side, "nr_tlb_remote_flush") - self.count(side, "pw_reclaim_waits")
    }

    /// Entries whose flush a batch put off.
    pub(super) fn entries_a_batch(&self) -> f64 {
        self.count(1, "pw_tlb_batch_entries") as f64 / self.count(1, "pw_tlb_batch_flushed").max(1) as f64
    }

    fn saved(&self) -> f64 {
        1.0 - self.reports[1].modelled.elapsed_ns as f64 / self.reports[0].modelled.elapsed_ns as f64
    }
}

pub(super) struct Pressure(pub(super) Vec<Squeezed>);

/// Replays them.
pub(super) fn run(context: &Context<'_>) -> Result<Pressure, EvaluateError> {
    let mut all = Vec::new();
    for name in NAMES {
        context.doing(&format!("{name} in {PERCENT} % of its memory"));
        all.extend(at_once([PHONE, KUNPENG, X86], |profile| squeeze(name, profile))?);
    }
    Ok(Pressure(all))
}

fn squeeze(name: &'static str, profile: &'static str) -> Result<Squeezed, EvaluateError> {
    let failed = |error: &dyn std::fmt::Display| EvaluateError::Machine(format!("{name} on {profile}: {error}"));
    let bytes = CAPTURES.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, bytes)| *bytes);
    let side = |batch: u64| {
        let mut reader = Reader::new(bytes, format!("{name}.pwt")).map_err(|error| failed(&error))?;
        let footprint = reader.header().native.as_ref().map_or(0, Native::footprint);
        let profile = Profile::named(profile).map_err(|error| failed(&error))?;
        let isa = profile.isa();
        let mut machine = MachineConfig::new(profile);
        machine.cpus = CPUS;
        machine.nodes[0].bytes = (footprint * PERCENT / 100).next_multiple_of(PAGE_SIZE);
        let mut config = ReplayConfig::new(machine);
        config.swap_slots = SLOTS;
        config.knobs.push((Knob::TlbBatch, batch));
        replay(isa, &mut reader, &config).map_err(|error| failed(&error))
    };
    Ok(Squeezed { name, profile, reports: [side(0)?, side(1)?] })
}

impl Pressure {
    pub(super) fn table(&self) -> Table {
        let head = [
            "capture",
            "machine",
            "reclaimed",
            "refaults",
            "waits of reclaim a page before",
            "after",
            "other waits before",
            "after",
            "entries a batch",
            "ms before",
            "after",
            "saved",
        ];
        let row = |squeezed: &Squeezed| {
            let milliseconds = |side: usize| format!("{:.1}", squeezed.reports[side].modelled.elapsed_ns as f64 / 1e6);
            let refaults = squeezed.count(1, "workingset_refault_anon") + squeezed.count(1, "workingset_refault_file");
            vec![
                squeezed.name.to_owned(),
                squeezed.profile.to_owned(),
                squeezed.reclaimed(1).to_string(),
                refaults.to_string(),
                format!("{:.3}", squeezed.waits(0)),
                format!("{:.4}", squeezed.waits(1)),
                squeezed.other_waits(0).to_string(),
                squeezed.other_waits(1).to_string(),
                format!("{:.1}", squeezed.entries_a_batch()),
                milliseconds(0),
                milliseconds(1),
                format!("{:.1} %", squeezed.saved() * 100.0),
            ]
        };
        Table {
            title: format!("Captures in {PERCENT} % of their memory, {CPUS} CPUs"),
            head: head.map(str::to_owned).to_vec(),
            rows: self.0.iter().map(row).collect(),
        }
    }

    pub(super) fn runs(&self) -> Vec<Run> {
        let run = |squeezed: &Squeezed, side: usize, way: &str| {
            let report = &squeezed.reports[side];
            Run {
                counters: report.counters.0.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
                modelled: BTreeMap::from([("elapsed_ns".to_owned(), report.modelled.elapsed_ns)]),
                ..Run::of(
                    format!("{}, {CPUS} CPUs, {way}", squeezed.profile),
                    format!("{} in {PERCENT} %", squeezed.name),
                )
            }
        };
        self.0.iter().flat_map(|squeezed| [run(squeezed, 0, "before"), run(squeezed, 1, "after")]).collect()
    }
}
