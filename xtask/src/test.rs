//! `cargo xtask test`: every test, in an order in which the quick and telling ones come first.
//!
//! At most a quarter of an hour on two cores.

use crate::cargo::{self, Workspace};
use crate::error::Error;
use crate::step::{self, Step};
use std::process::Command;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Tests that plant bugs.
const PLANTED: &[&str] = &[
    "planted",
    "planted_clear",
    "check",
    "oracle_counts",
    "batch_races",
    "ledger_races",
    "gup_races",
    "file_races",
    "remap_races",
    "swap",
    "swap_shared",
];

/// Packages whose tests plant bugs.
const WITH_PLANTS: [&str; 6] =
    ["pagewright", "pagewright-fuzz", "pagewright-host", "pagewright-lab", "pagewright-mm", "pagewright-tlb"];

/// Runs the steps.
pub(crate) fn run() -> Result<(), Error> {
    let workspace = Workspace::load()?;
    let cargo = |words: &[&str]| {
        let mut command = cargo::command();
        command.args(words).current_dir(&workspace.workspace_root);
        command
    };
    // Loom's atomics are chosen by a cfg on everything, so it needs a target directory of its own.
    let mut loom = cargo(&["test", "--release", "--package", "pagewright-sync", "--test", "loom"]);
    loom.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", workspace.target_directory.join("loom"));
    let workspace_tests = ["test", "--workspace", "--lib", "--bins", "--tests", "--examples", "--no-fail-fast"];
    // Planted bugs are a feature of crates that everything else is built without.
    let mut planted = cargo(&["test", "--no-fail-fast"]);
    planted
        .args(WITH_PLANTS.iter().flat_map(|package| ["--package", package]))
        .args(["--features", &WITH_PLANTS.map(|package| format!("{package}/planted")).join(",")])
        .args(PLANTED.iter().flat_map(|test| ["--test", test]));
    // A workspace of its own, which `cargo fmt` here does not see.
    let mut formatted = cargo(&["fmt", "--all", "--check"]);
    formatted.current_dir(workspace.workspace_root.join("kernel"));
    step::run(vec![
        Step { name: "arrows between crates", command: this(&["arrows"])?, limit: MINUTE },
        Step { name: "formatting of the kernel", command: formatted, limit: MINUTE },
        Step { name: "tests of the workspace", command: cargo(&workspace_tests), limit: 10 * MINUTE },
        Step {
            name: "examples in documentation",
            command: cargo(&["test", "--workspace", "--doc"]),
            limit: 3 * MINUTE,
        },
        Step { name: "planted bugs are found", command: planted, limit: 8 * MINUTE },
        Step { name: "locks in every order (loom)", command: loom, limit: 4 * MINUTE },
        Step { name: "the same seed, the same figures", command: this(&["repeat", "quick"])?, limit: 5 * MINUTE },
        Step { name: "library crates on bare metal", command: this(&["no-std"])?, limit: 4 * MINUTE },
        Step { name: "programs on the kernel in QEMU", command: this(&["boot"])?, limit: 8 * MINUTE },
    ])
}

/// Another command of this program.
fn this(words: &[&str]) -> Result<Command, Error> {
    let program = std::env::current_exe().map_err(Error::file("xtask"))?;
    let mut command = Command::new(program);
    command.args(words);
    Ok(command)
}
