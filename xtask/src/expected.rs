//! `cargo xtask expected`: records the output of the programs of `cargo xtask boot` on Linux.
//!
//! Runs each program on Debian's Linux 6.1 ([`crate::linux`]) in the same QEMU, on the first number
//! of CPUs of its boots, and writes its output to `kernel/programs/expected`.
//!
//! Not guaranteed: a fixed version of Linux. Each run uses Debian's newest 6.1.

use crate::boot::cases::{CASES, Case, MACHINES, Machine};
use crate::boot::{long, pagewright};
use crate::cargo::Workspace;
use crate::error::Error;
use crate::linux::Linux;
use crate::watch;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The time that a program may spend, which includes Linux's boot.
const ALLOWED: Duration = Duration::from_secs(900);

/// Records the cases with these names, or all cases.
pub(crate) fn run(names: &[&str]) -> Result<(), Error> {
    let cases = || CASES.iter().chain(&long::CASES);
    if let Some(unknown) = names.iter().find(|name| !cases().any(|case| case.name == **name)) {
        return Err(Error::Usage(format!("expected {unknown}")));
    }
    let workspace = Workspace::load()?;
    let pagewright = pagewright(&workspace)?;
    let folder = workspace.programs()?;
    let mut failed = 0;
    for machine in &MACHINES {
        let linux = Linux::fetch(&workspace, machine.isa, None, "6.1")?;
        println!("{}: {}", machine.isa, linux.package);
        let init = machine.compile(&workspace.workspace_root, &folder, "init.c")?;
        let wanted = |case: &&Case| case.on_linux && (names.is_empty() || names.contains(&case.name));
        for case in cases().filter(wanted) {
            let Some(program) = case.program(machine, &workspace, &folder)? else {
                return Err(Error::NoPackage(case.name.to_owned()));
            };
            let mut boot = boot(&pagewright, machine, case, &linux.arguments(&init, case.swap, ""));
            if let Some(root) = case.sysroot(machine, &workspace) {
                boot.arg("--sysroot").arg(root);
            }
            let (printed, status) = run_program(boot.arg("--").arg(&program).args(case.arguments), ALLOWED)?;
            let path = case.expected(machine, &workspace.workspace_root);
            fs::write(&path, printed).map_err(Error::file(&path))?;
            println!("{}: status {status:?}", workspace.shown(&path).display());
            failed += usize::from(status != Some(case.status));
        }
    }
    if failed == 0 { Ok(()) } else { Err(Error::Findings { check: "expected: wrong exit statuses", count: failed }) }
}

/// The command that boots Linux, without the program.
fn boot(pagewright: &Path, machine: &Machine, case: &Case, linux: &[String]) -> Command {
    let mut boot = Command::new(pagewright);
    boot.args(["boot", "--arch", machine.isa.name()]).args(case.size(case.memory_on_linux, case.cpus[0])).args(linux);
    boot
}

/// The output of a program, and the exit status that `init` printed after it.
pub(crate) fn run_program(boot: &mut Command, allowed: Duration) -> Result<(String, Option<i32>), Error> {
    let output = watch::output(boot.stdin(Stdio::null()), allowed)?;
    // The terminal ends lines with CR LF.
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    Ok(match text.rsplit_once("\nstatus ") {
        Some((printed, status)) => (printed.to_owned(), status.trim().parse().ok()),
        None => {
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
            (text, None)
        }
    })
}
