//! `cargo xtask test`: every test, the quick steps first.
//!
//! `README.md` says how long it takes. It installs what is missing, as [`setup`] does; if that
//! fails, the steps run all the same, and the run fails with the list.

use crate::cargo::{self, Workspace};
use crate::error::Error;
use crate::setup;
use crate::step::{self, Step};
use std::process::Command;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Installs what is missing, and runs the steps.
///
/// # Errors
/// [`Error::Steps`], if a step failed; [`Error::InstallByHand`], if something is still missing.
pub(crate) fn run() -> Result<(), Error> {
    let prepared = setup::run();
    if let Err(error) = &prepared {
        println!("setup: {error}\nsetup: what needs them fails or is ignored");
    }
    let tested = steps();
    match (tested, prepared) {
        (Err(failed), Err(missing)) => {
            eprintln!("xtask: {failed}");
            Err(missing)
        }
        (tested, prepared) => tested.and(prepared),
    }
}

/// Runs the steps.
fn steps() -> Result<(), Error> {
    let workspace = Workspace::load()?;
    let cargo = |words: &[&str]| {
        let mut command = cargo::command();
        command.args(words).current_dir(&workspace.workspace_root);
        command
    };
    // `--cfg loom` applies to every crate, so these builds need a target directory of their own.
    let mut loom = cargo(&["test", "--package", "pagewright-sync", "--test", "loom"]);
    loom.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", workspace.target_directory.join("loom"));
    // The tests run in a second without optimisation, so less of it is less to wait for.
    loom.env("CARGO_PROFILE_TEST_OPT_LEVEL", "0");
    let mut examples = cargo(&["test", "--workspace", "--doc"]);
    examples.args(cargo::WITH_PLANTED_BUGS);
    let mut documented = cargo(&["doc", "--workspace", "--no-deps", "--keep-going"]);
    documented.env("RUSTDOCFLAGS", "-Dwarnings");
    // A version that the workspace has in a later one, and a crate that needs a cfg of its own.
    let mut published = cargo(&["run", "--quiet", "--locked", "--package", "cargo-pagewright", "--"]);
    published.args(["--cfg", "page_table_multiarch:target_os=none", "--cfg", "patina_paging:target_os=uefi"]);
    published.args(["test", "--quiet", "--locked", "--no-fail-fast", "--manifest-path", "tests/published/Cargo.toml"]);
    // The kernel is a workspace of its own, which `cargo fmt` in the root does not cover.
    let mut formatted = cargo(&["fmt", "--all", "--check"]);
    formatted.current_dir(workspace.workspace_root.join("kernel"));
    step::run(vec![
        Step { name: "dependencies between crates", command: this(&["arrows"])?, limit: MINUTE },
        Step { name: "formatting of the kernel", command: formatted, limit: MINUTE },
        Step {
            name: "tests of the workspace, with planted bugs",
            command: this(&["test", "workspace"])?,
            limit: 20 * MINUTE,
        },
        Step { name: "examples in documentation", command: examples, limit: 3 * MINUTE },
        Step { name: "published crates in a workspace of their own", command: published, limit: 3 * MINUTE },
        Step { name: "documentation without warnings", command: documented, limit: 3 * MINUTE },
        Step { name: "locks under every memory order (loom)", command: loom, limit: 4 * MINUTE },
        Step {
            name: "captures give the same figures for the same seed",
            command: this(&["repeat", "quick"])?,
            limit: 5 * MINUTE,
        },
        Step { name: "programs on the kernel in QEMU", command: this(&["boot"])?, limit: 12 * MINUTE },
    ])
}

/// A call of another command of this program.
fn this(words: &[&str]) -> Result<Command, Error> {
    let program = std::env::current_exe().map_err(Error::file("xtask"))?;
    let mut command = Command::new(program);
    command.args(words);
    Ok(command)
}
