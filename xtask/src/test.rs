//! `cargo xtask test`: every test, the quick steps first.
//!
//! `README.md` says how long it takes, and the table at the end where the time went. It installs
//! what is missing, as [`setup`] does; if that fails, the steps run all the same, and the run fails
//! with the list.
//!
//! Each step is built before it runs, and only what runs is watched ([`watch`]). All steps build
//! with the same features and profiles, so that none builds again what another has built.

use crate::cargo::{self, Workspace};
use crate::error::Error;
use crate::setup;
use crate::step::{self, Step};
use crate::watch;
use std::process::Command;

/// The cfgs of published crates that are compiled without their flushes on a host.
const CFGS: [&str; 4] = ["--cfg", "page_table_multiarch:target_os=none", "--cfg", "patina_paging:target_os=uefi"];

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
    let watched = watch::cargo_options(watch::SHORT)?;
    let cargo = |words: &[&str]| {
        let mut command = cargo::command();
        command.args(words).current_dir(&workspace.workspace_root);
        command
    };
    let planted = |words: &[&str]| {
        let mut command = cargo(words);
        command.args(cargo::WITH_PLANTED_BUGS);
        command
    };
    let mut examples = planted(&["test", "--workspace", "--doc"]);
    examples.args(&watched);
    let mut documented = cargo(&["doc", "--workspace", "--no-deps", "--keep-going"]);
    documented.env("RUSTDOCFLAGS", "-Dwarnings");
    let loom = |words: &[&str]| {
        let mut loom = cargo(&["test", "--package", "pagewright-sync", "--test", "loom"]);
        // `--cfg loom` applies to every crate, so these builds need a directory of their own.
        loom.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", workspace.target_directory.join("loom"));
        // The tests run in a second without optimisation, so less of it is less to wait for.
        loom.env("CARGO_PROFILE_TEST_OPT_LEVEL", "0").args(words);
        loom
    };
    // A version that the workspace has in a later one, and a crate that needs a cfg of its own.
    let published = |words: &[&str]| {
        let mut published = cargo::calling_cargo(workspace.target_directory.join("debug/cargo-pagewright"));
        published.args(CFGS).args(["test", "--quiet", "--locked", "--no-fail-fast"]);
        published.args(["--manifest-path", "tests/published/Cargo.toml"]).args(words);
        published.current_dir(&workspace.workspace_root);
        published
    };
    let words = watched.each_ref().map(String::as_str);
    let programs = || planted(&["build", "--package", "pagewright", "--package", "cargo-pagewright"]);
    // The kernel is a workspace of its own, which `cargo fmt` in the root does not cover.
    let mut formatted = cargo(&["fmt", "--all", "--check"]);
    formatted.current_dir(workspace.workspace_root.join("kernel"));
    let step = |name, build, run| Step { name, build, run };
    step::run(vec![
        step("dependencies between crates", vec![], this(&["arrows"])?),
        step("formatting of the kernel", vec![], formatted),
        step(
            "tests of the workspace, with planted bugs",
            vec![this(&["test", "build"])?],
            this(&["test", "workspace"])?,
        ),
        step("examples in documentation, built and run", vec![], examples),
        step(
            "published crates in a workspace of their own",
            vec![programs(), published(&["--no-run"])],
            published(&words),
        ),
        step("documentation without warnings", vec![], documented),
        step("packages as they would be published", vec![], this(&["package"])?),
        step("locks under every memory order (loom)", vec![loom(&["--no-run"])], loom(&words)),
        step("captures give the same figures for the same seed", vec![programs()], this(&["repeat", "quick"])?),
        step("programs on the kernel in QEMU", vec![this(&["boot", "build"])?], this(&["boot"])?),
    ])
}

/// A call of another command of this program.
fn this(words: &[&str]) -> Result<Command, Error> {
    let program = std::env::current_exe().map_err(Error::file("xtask"))?;
    let mut command = Command::new(program);
    command.args(words);
    Ok(command)
}
