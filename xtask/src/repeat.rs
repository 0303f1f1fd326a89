//! `cargo xtask repeat`: a replay with the same seed gives the same figures.
//!
//! Replays each shipped capture twice, in two processes, on each instruction set, and compares the
//! JSON without `measured`. `repeat quick` takes the smaller half of the captures.
//!
//! Not guaranteed: the same figures on another machine.

use crate::boot::pagewright;
use crate::cargo::Workspace;
use crate::error::Error;
use crate::watch;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The values of `--arch`.
const ARCHS: [&str; 2] = ["x86-64", "arm64"];

/// The captures to replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The smaller half.
    Quick,
    /// All.
    All,
}

/// The captures in a folder, in ascending size.
fn captures_in(folder: &Path, extent: Extent) -> Result<Vec<PathBuf>, Error> {
    let mut captures = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::file(folder))? {
        let path = entry.map_err(Error::file(folder))?.path();
        if path.extension().is_some_and(|extension| extension == "pwt") {
            let bytes = fs::metadata(&path).map_err(Error::file(&path))?.len();
            captures.push((bytes, path));
        }
    }
    captures.sort();
    let kept = if extent == Extent::Quick { captures.len().div_ceil(2) } else { captures.len() };
    captures.truncate(kept);
    Ok(captures.into_iter().map(|(_, path)| path).collect())
}

/// Replays each capture twice, and prints those whose figures differ.
pub(crate) fn run(extent: Extent) -> Result<(), Error> {
    let workspace = Workspace::load()?;
    let program = pagewright(&workspace)?;
    let json = workspace.target_directory.join(format!("repeat-{}.json", std::process::id()));
    let captures = workspace.workspace_root.join("tests/captures");
    let mut different = 0;
    for path in captures_in(&captures, extent)? {
        for arch in ARCHS {
            let replay = || replayed(&program, &path, arch, &json);
            if replay()? != replay()? {
                println!("{} on {arch}: two replays differ", workspace.shown(&path).display());
                different += 1;
            }
        }
    }
    if different == 0 { Ok(()) } else { Err(Error::Findings { check: "repeat", count: different }) }
}

/// The JSON of one replay, without the measured times and the date.
fn replayed(program: &Path, capture: &Path, arch: &str, json: &Path) -> Result<Value, Error> {
    let mut replay = Command::new(program);
    replay.arg("replay").arg(capture).args(["--arch", arch, "--seed", "1", "--json"]).arg(json).stdin(Stdio::null());
    let output = watch::output(&mut replay, watch::SHORT)?;
    if !output.status.success() {
        eprint!("{} on {arch}: {}", capture.display(), String::from_utf8_lossy(&output.stderr));
        return Err(Error::Program { program: program.display().to_string(), status: output.status });
    }
    let text = fs::read(json).map_err(Error::file(json))?;
    fs::remove_file(json).map_err(Error::file(json))?;
    let mut value = serde_json::from_slice(&text).map_err(Error::Replay)?;
    without_measured(&mut value);
    Ok(value)
}

fn without_measured(document: &mut Value) {
    document.as_object_mut().and_then(|document| document.remove("made_by"));
    let runs = document.get_mut("runs").and_then(Value::as_array_mut);
    for run in runs.into_iter().flatten().filter_map(Value::as_object_mut) {
        run.remove("measured");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn measured_times_and_dates_are_not_compared() {
        let mut one =
            json!({"made_by": {"date": "1"}, "runs": [{"counters": {"pgfault": 1}, "measured": {"seconds": 0.1}}]});
        let mut other =
            json!({"made_by": {"date": "2"}, "runs": [{"counters": {"pgfault": 1}, "measured": {"seconds": 0.2}}]});
        assert_ne!(one, other);
        without_measured(&mut one);
        without_measured(&mut other);
        assert_eq!(one, other);
        other["runs"][0]["counters"]["pgfault"] = json!(2);
        assert_ne!(one, other);
    }
}
