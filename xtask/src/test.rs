//! `cargo xtask test`: every test, in an order in which the quick and telling ones come first.
//!
//! At most a quarter of an hour on two cores.

use crate::cargo::{self, Workspace};
use crate::error::Error;
use crate::step::{self, Step};
use std::process::Command;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

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
    // One build for all of them: planted bugs are compiled in and chosen by their own tests alone. What
    // ships, without them, is built by the steps that follow.
    let mut tests = cargo(&["test", "--workspace", "--lib", "--bins", "--tests", "--examples", "--no-fail-fast"]);
    tests.args(["--features", &WITH_PLANTS.map(|package| format!("{package}/planted")).join(",")]);
    // A workspace of its own, which `cargo fmt` here does not see.
    let mut formatted = cargo(&["fmt", "--all", "--check"]);
    formatted.current_dir(workspace.workspace_root.join("kernel"));
    step::run(vec![
        Step { name: "arrows between crates", command: this(&["arrows"])?, limit: MINUTE },
        Step { name: "formatting of the kernel", command: formatted, limit: MINUTE },
        Step { name: "tests of the workspace, planted bugs among them", command: tests, limit: 12 * MINUTE },
        Step {
            name: "examples in documentation",
            command: cargo(&["test", "--workspace", "--doc"]),
            limit: 3 * MINUTE,
        },
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
