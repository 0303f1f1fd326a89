//! Replays captures in half of the peak memory that their programs had on Linux, with swap.
//!
//! Not guaranteed: the times. A capture has no page contents, so every page costs the same to swap
//! out and in.

use super::EvaluateError;
use crate::command::captures;
use pagewright_capture::replay::{ReplayConfig, ReplayReport, replay};
use pagewright_capture::trace::NativeCounts;
use pagewright_mm::MmSetting;
use pagewright_sim::{MachineConfig, Profile};
use pagewright_types::PAGE_SIZE;
use std::fmt::Display;

/// The captures that run to their end in so little memory.
pub(super) const NAMES: [&str; 3] = ["python", "sqlite", "pigz"];
/// Memory of the machine, in per cent of the program's peak on Linux.
pub(super) const PERCENT: u64 = 50;
const SLOTS: u32 = 1 << 16;

/// Replays one of [`NAMES`] on a machine of a profile; with `oracle`, each translation is judged.
///
/// # Errors
/// [`EvaluateError::Machine`], which names the capture and the profile.
pub(in crate::command) fn replay_capture(
    name: &str,
    profile: &str,
    cpus: u16,
    oracle: bool,
    settings: impl IntoIterator<Item = (MmSetting, u64)>,
) -> Result<ReplayReport, EvaluateError> {
    let failed = |error: &dyn Display| EvaluateError::Machine(format!("{name} on {profile}: {error}"));
    let mut reader = captures::open(name).map_err(|error| failed(&error))?;
    let footprint = reader.header().native.as_ref().map_or(0, NativeCounts::footprint);
    let machine_profile = Profile::named(profile).map_err(|error| failed(&error))?;
    let isa = machine_profile.isa();
    let mut machine = MachineConfig::new(machine_profile);
    machine.cpus = cpus;
    machine.nodes[0].bytes = (footprint * PERCENT / 100).next_multiple_of(PAGE_SIZE);
    let mut config = ReplayConfig::new(machine);
    (config.swap_slots, config.oracle) = (SLOTS, oracle);
    config.settings.extend(settings);
    replay(isa, &mut reader, &config).map_err(|error| failed(&error))
}
