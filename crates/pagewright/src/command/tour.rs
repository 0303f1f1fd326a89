//! `pagewright` without a command: replays six captures with fault-around off and on, on both ISAs.

use super::CommandError;
use crate::options::OptionError;
use crate::setting::Comparison;
use crate::show;
use pagewright_capture::replay::{ReplayConfig, ReplayReport, replay};
use pagewright_capture::trace::TraceReader;
use pagewright_sim::{MachineConfig, Profile};
use pagewright_types::IsaKind;
use std::io::Write;
use std::thread;
use std::time::Instant;

/// The captures by name; `tests/captures/README.md` says how each was made.
pub(super) const CAPTURES: [(&str, &[u8]); 6] = [
    ("sort", include_bytes!("../../captures/sort.pwt")),
    ("sqlite", include_bytes!("../../captures/sqlite.pwt")),
    ("python", include_bytes!("../../captures/python.pwt")),
    ("compile", include_bytes!("../../captures/compile.pwt")),
    ("pigz", include_bytes!("../../captures/pigz.pwt")),
    ("shell", include_bytes!("../../captures/shell.pwt")),
];

/// The setting of the tour.
///
/// Fault-around maps the cached neighbours of a file page that faults. A value of one page turns it
/// off.
const SETTING: &str = "fault_around_bytes=4096,65536";

pub(crate) fn run() -> Result<(), CommandError> {
    let began = Instant::now();
    let comparison = Comparison::parse(SETTING)?;
    let mut out = std::io::stdout().lock();
    show::tour::opening(&mut out, &comparison)?;
    for (name, bytes) in CAPTURES {
        out.flush()?;
        // The two replays of an instruction set depend on nothing that the other computes.
        let sides = thread::scope(|scope| {
            let comparison = &comparison;
            IsaKind::ALL.map(|isa| scope.spawn(move || replay_off_and_on(isa, name, bytes, comparison))).map(|thread| {
                match thread.join() {
                    Ok(reports) => reports,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            })
        });
        let [x86, arm] = sides;
        show::tour::capture(&mut out, name, &[x86?, arm?])?;
    }
    show::tour::closing(&mut out, began.elapsed())?;
    out.flush()?;
    Ok(())
}

/// Replays one capture with the setting off and on.
fn replay_off_and_on(
    isa: IsaKind,
    name: &str,
    bytes: &'static [u8],
    comparison: &Comparison,
) -> Result<[ReplayReport; 2], CommandError> {
    let profile = Profile::named(Profile::default_for(isa)).map_err(OptionError::from)?;
    let config = ReplayConfig::new(MachineConfig::new(profile));
    let [off, on] = comparison.apply(isa, &config)?;
    let run = |config| -> Result<ReplayReport, CommandError> {
        let mut reader = TraceReader::new(bytes, format!("{name}.pwt"))?;
        Ok(replay(isa, &mut reader, config)?)
    };
    Ok([run(&off)?, run(&on)?])
}
