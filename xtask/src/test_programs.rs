//! `cargo xtask test workspace`: the test programs of the workspace, one on each core.
//!
//! `cargo test` runs one program after the other, and the tests of a program on all cores. A core
//! then idles while the last test of each program ends, and two tests in one process contend for
//! its address space. Here each program runs its tests one by one, beside another program.

use crate::built::{self, TestProgram};
use crate::cargo::{self, Workspace};
use crate::cores::on_every_core;
use crate::error::Error;
use crate::watch;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Builds the test programs with planted bugs, and returns them.
///
/// # Errors
/// [`Error::Program`], if the build failed.
pub(crate) fn build() -> Result<Vec<TestProgram>, Error> {
    let mut build = cargo::command();
    build.args(["test", "--workspace", "--lib", "--bins", "--tests", "--examples", "--no-run"]);
    build.arg("--message-format=json-render-diagnostics").args(cargo::WITH_PLANTED_BUGS);
    build.current_dir(&Workspace::load()?.workspace_root);
    Ok(built::test_programs(built::messages(&cargo::output(&mut build)?)?))
}

/// Builds the test programs, runs them, and prints what each printed.
///
/// # Errors
/// [`Error::TestPrograms`], if one failed; [`Error::Program`], if the build failed.
pub(crate) fn run() -> Result<(), Error> {
    let workspace = Workspace::load()?;
    let mut programs = build()?;
    // A program with many tests takes long and is large; the last one to start should be short.
    programs.sort_by_key(|program| std::cmp::Reverse(fs::metadata(&program.path).map_or(0, |file| file.len())));
    let failed = AtomicUsize::new(0);
    on_every_core(programs.len(), |index| {
        let good = run_program(&workspace, &programs[index])?;
        failed.fetch_add(usize::from(!good), Ordering::Relaxed);
        Ok(())
    })?;
    match failed.into_inner() {
        0 => Ok(()),
        failed => Err(Error::TestPrograms(failed)),
    }
}

/// Runs a program, prints what it printed in one piece, and returns whether it passed.
fn run_program(workspace: &Workspace, program: &TestProgram) -> Result<bool, Error> {
    let TestProgram { target, path, folder } = program;
    let start = Instant::now();
    // The folder and the variable are those that cargo gives it.
    let mut run = Command::new(path);
    run.current_dir(folder).env("CARGO_MANIFEST_DIR", folder).env("RUST_TEST_THREADS", "1").stdin(Stdio::null());
    let output = watch::test_output(&mut run, watch::SHORT)?;
    // One call, so that two programs do not mix their lines.
    print!(
        "{target} of {}: {:.1} s, {}\n{}{}",
        workspace.shown(folder).display(),
        start.elapsed().as_secs_f64(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output.status.success())
}
