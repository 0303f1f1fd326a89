//! `cargo xtask soak`: tests that search for hours, where `cargo xtask test` searches for minutes.
//!
//! It can be stopped at any time.

use crate::cargo::{self, Workspace};
use crate::error::Error;
use crate::step::{self, Step};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
/// The cases of each property; `cargo xtask test` runs 256.
const CASES: &str = "200000";

/// The accesses of random programs, on each instruction set.
const STEPS: &str = "100000000";
/// The different schedules of random programs, on each instruction set.
const SCHEDULES: &str = "100000";
/// The operations that are compared with Linux; `cargo xtask test` compares 100,000.
const BESIDE_LINUX: &str = "10000000";

/// Runs the steps.
pub(crate) fn run() -> Result<(), Error> {
    let workspace = Workspace::load()?;
    let mut properties = cargo::command();
    properties
        .args(["test", "--workspace", "--lib", "--tests", "--no-fail-fast"])
        .current_dir(&workspace.workspace_root)
        .env("PROPTEST_CASES", CASES)
        // Scaled with the number of cases.
        .env("PROPTEST_MAX_GLOBAL_REJECTS", CASES)
        // Enough to minimise a failing case of this many.
        .env("PROPTEST_MAX_SHRINK_ITERS", "1000000");
    let mut stream = cargo::command();
    stream
        .args(["test", "--release", "--package", "pagewright-capture", "--test", "replay_memory"])
        .current_dir(&workspace.workspace_root)
        .env("PAGEWRIGHT_SOAK", "1");
    let mut calls = cargo::command();
    calls
        .args(["test", "--release", "--package", "pagewright-fuzz", "--test", "random_calls"])
        .current_dir(&workspace.workspace_root)
        .env("PAGEWRIGHT_SOAK", "1");
    let mut swap = cargo::command();
    swap.args([
        "test",
        "--release",
        "--package",
        "pagewright-mm",
        "--package",
        "pagewright-tlb",
        "--test",
        "swap",
        "--test",
        "reclaim",
        "--test",
        "space",
        "--test",
        "fault",
        "--test",
        "batch_races",
    ])
    .args(["--", "--nocapture"])
    .current_dir(&workspace.workspace_root)
    .env("PAGEWRIGHT_SOAK", "1");
    let mut random = cargo::command();
    random
        .args(["run", "--release", "--package", "pagewright", "--", "check"])
        .args(["--steps", STEPS, "--schedules", SCHEDULES])
        .current_dir(&workspace.workspace_root);
    let mut beside_linux = cargo::command();
    beside_linux
        .args(["test", "--release", "--package", "pagewright-fuzz", "--test", "against_linux"])
        .current_dir(&workspace.workspace_root)
        .env("PAGEWRIGHT_AGAINST_LINUX", BESIDE_LINUX);
    let mut repeat = cargo::command();
    repeat.args(["xtask", "repeat"]).current_dir(&workspace.workspace_root);
    let mut boot = cargo::command();
    boot.args(["xtask", "boot", "planted"]).current_dir(&workspace.workspace_root);
    step::run(vec![
        Step { name: "random programs under the oracle", command: random, limit: 2 * HOUR },
        Step { name: "10,000,000 random operations of every memory call", command: calls, limit: HOUR },
        Step { name: "races with page-outs, in 100 times as many schedules", command: swap, limit: HOUR },
        Step { name: "all captures give the same figures for the same seed", command: repeat, limit: HOUR },
        Step { name: "a capture of 10 GB replays in constant memory", command: stream, limit: HOUR },
        Step { name: "programs on the kernel in QEMU, also with planted bugs", command: boot, limit: HOUR },
        Step { name: "10,000,000 operations match Linux", command: beside_linux, limit: HOUR },
        Step { name: "properties, 200,000 cases each", command: properties, limit: 4 * HOUR },
    ])
}
