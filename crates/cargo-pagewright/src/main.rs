//! Sets a `cfg` for one crate of a build, so that it keeps its flushes on a host.
//!
//! A crate may compile its flushes away unless `cfg(target_os = "none")` or `"uefi"`. A check on a
//! host would then judge a crate without them. This program builds the named crate, and no other,
//! as if the `cfg` held.
//!
//! # Example
//!
//! ```sh
//! cargo pagewright --cfg page_table_multiarch:target_os=none test
//! ```
//!
//! The words after `--cfg CRATE:CFG`, which may be repeated, are cargo's. `CFG` is `NAME` or
//! `NAME=VALUE`.
//!
//! # How
//!
//! ```text
//!   cargo pagewright ─▶ cargo, with RUSTC_WRAPPER and a target directory of its own
//!                         └▶ cargo-pagewright rustc --crate-name C … ─▶ rustc … --cfg CFG, if C is named
//! ```
//!
//! Cargo does not build a crate again when its wrapper changes. So each set of `--cfg` has a target
//! directory below the usual one. A wrapper in `RUSTC_WRAPPER` still runs; one that a configuration
//! file of cargo names does not.
//!
//! Not guaranteed: that the crate does not see the host's own `cfg(target_os = "linux")`. A `cfg`
//! can be added and not taken away.
#![forbid(unsafe_code)]

mod plan;

use plan::{CrateCfg, Plan};
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The cfgs, from the subcommand to the wrapper; one a line, in the form of the command line.
const CFGS: &str = "PAGEWRIGHT_CFG";
/// The wrapper that the user had.
const INNER_WRAPPER: &str = "PAGEWRIGHT_RUSTC_WRAPPER";

fn main() -> ExitCode {
    let words: Vec<OsString> = env::args_os().skip(1).collect();
    let done = match env::var(CFGS) {
        Ok(cfgs) if words.first().is_some_and(|first| first != "pagewright") => wrap(&cfgs, words),
        _ => subcommand(words),
    };
    done.unwrap_or_else(|error| {
        eprintln!("cargo-pagewright: {error}");
        ExitCode::FAILURE
    })
}

/// Runs cargo with this program as its wrapper.
fn subcommand(words: Vec<OsString>) -> Result<ExitCode, String> {
    // Cargo passes the name of the subcommand.
    let words = words.into_iter().skip_while(|word| word == "pagewright");
    let words = words.map(|word| word.into_string().map_err(|word| format!("{word:?} is not UTF-8")));
    let plan = Plan::parse(words.collect::<Result<Vec<_>, _>>()?)?;
    let target = target_directory(&plan)?;
    let this = env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let mut build = cargo();
    build.args(&plan.cargo).env(CFGS, plan.cfgs_as_text()).env("RUSTC_WRAPPER", this).env("CARGO_TARGET_DIR", target);
    if let Some(inner) = env::var_os("RUSTC_WRAPPER").filter(|inner| !inner.is_empty()) {
        build.env(INNER_WRAPPER, inner);
    }
    run(build)
}

/// Runs rustc, with the cfgs of the crate that it is to compile.
fn wrap(cfgs: &str, words: Vec<OsString>) -> Result<ExitCode, String> {
    let cfgs = cfgs.lines().map(str::parse).collect::<Result<Vec<CrateCfg>, String>>()?;
    let added = plan::rustc_words(&cfgs, &words);
    let mut words = words.into_iter();
    let rustc = words.next().ok_or("the wrapper is called without rustc")?;
    let mut command = match env::var_os(INNER_WRAPPER) {
        Some(inner) => {
            let mut command = Command::new(inner);
            command.arg(rustc);
            command
        }
        None => Command::new(rustc),
    };
    command.args(words).args(added);
    run(command)
}

/// The target directory of the plan; also checks that the build has the crates that it names.
fn target_directory(plan: &Plan) -> Result<PathBuf, String> {
    let mut metadata = cargo();
    metadata.args(["metadata", "--format-version", "1"]).args(plan.metadata_words());
    let output = metadata.output().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed\n{}", String::from_utf8_lossy(&output.stderr).trim_end()));
    }
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let targets = packages.iter().filter_map(|package| package["targets"].as_array()).flatten();
    let crates: Vec<String> =
        targets.filter_map(|target| target["name"].as_str()).map(|name| name.replace('-', "_")).collect();
    if let Some(missing) = plan.cfgs.iter().find(|cfg| !crates.contains(&cfg.of)) {
        return Err(format!("--cfg {missing}: this build has no crate {}", missing.of));
    }
    let usual = metadata["target_directory"].as_str().ok_or("cargo metadata names no target directory")?;
    Ok(Path::new(usual).join("pagewright").join(plan.directory()))
}

fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a command; its status is the result.
fn run(mut command: Command) -> Result<ExitCode, String> {
    let status = command.status().map_err(|error| format!("cannot run {:?}: {error}", command.get_program()))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
