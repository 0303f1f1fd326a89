//! `cargo xtask expected`: what the programs of `cargo xtask boot` print and answer on Debian's Linux 6.1 in the same QEMU, recorded in
//! `kernel/programs/expected`.
//!
//! Linux is booted by `pagewright boot` as our own kernel is, on one CPU, with `kernel/programs/init.c` as its first program. Its image comes out of
//! Debian's package for machines in a cloud, the smaller one.
//!
//! Not guaranteed: the same version of Linux each time; Debian's newest 6.1 is taken.

use crate::boot::cases::{CASES, Case, MACHINES, Machine};
use crate::boot::pagewright;
use crate::cargo::Workspace;
use crate::debian::Archive;
use crate::error::Error;
use crate::toolchain::BareTarget;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Seconds for one program: Linux takes some to start.
const LIMIT: &str = "900";
/// Words for Linux: the serial line, and nothing on it that the program didn't print.
pub(crate) const WORDS: &str = "console=ttyS0 console=ttyAMA0 quiet loglevel=0 rdinit=/init";

/// Records everything, or the cases of these names.
pub(crate) fn run(names: &[&str]) -> Result<(), Error> {
    if let Some(unknown) = names.iter().find(|name| !CASES.iter().any(|case| case.name == **name)) {
        return Err(Error::Usage(format!("expected {unknown}")));
    }
    let workspace = Workspace::load()?;
    let pagewright = pagewright(&workspace)?;
    let folder = workspace.target_directory.join("programs");
    fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    let mut failed = 0;
    for machine in &MACHINES {
        let linux = linux(&workspace, machine)?;
        let init = machine.compile(&workspace.workspace_root, &folder, "init.c")?;
        let wanted = |case: &&Case| case.on_linux && (names.is_empty() || names.contains(&case.name));
        for case in CASES.iter().filter(wanted) {
            let Some(program) = case.program(machine, &workspace, &folder)? else {
                return Err(Error::NoPackage(case.name.to_owned()));
            };
            let mut boot = boot(&pagewright, machine, case, &linux, &init);
            let (printed, status) = answer(boot.arg("--").arg(&program).args(case.arguments))?;
            let path = case.expected(machine, &workspace.workspace_root);
            fs::write(&path, printed).map_err(Error::file(&path))?;
            println!("{}: status {status:?}", workspace.shown(&path).display());
            failed += usize::from(status != Some(case.status));
        }
    }
    if failed == 0 { Ok(()) } else { Err(Error::Findings { check: "other statuses than expected", count: failed }) }
}

/// The image of Debian's Linux for a machine.
fn linux(workspace: &Workspace, machine: &Machine) -> Result<PathBuf, Error> {
    let architecture = match machine.target {
        BareTarget::X86_64 => "amd64",
        BareTarget::Aarch64 => "arm64",
    };
    let archive = Archive { workspace, architecture, suite: None };
    let package = archive.dependency(&format!("linux-image-cloud-{architecture}"), "linux-image-6.1.")?;
    let folder = archive.fetch(&package, &["./boot/vmlinuz-*"])?.join("boot");
    println!("{}: {package}", machine.isa);
    let mut files = fs::read_dir(&folder).map_err(Error::file(&folder))?.flatten();
    files.next().map(|file| file.path()).ok_or(Error::NoPackage(package))
}

/// The command that boots it, without the program.
fn boot(pagewright: &Path, machine: &Machine, case: &Case, linux: &Path, init: &Path) -> Command {
    let mut boot = Command::new(pagewright);
    boot.args(["boot", "--arch", machine.isa, "--mem", case.memory, "--limit", LIMIT, "--append", WORDS, "--kernel"]);
    boot.arg(linux).arg("--file").arg(format!("{}=/init", init.display()));
    boot
}

/// What a program printed, and the status that `init` told last.
fn answer(boot: &mut Command) -> Result<(String, Option<i32>), Error> {
    let program = boot.get_program().display().to_string();
    let output = boot.stdin(Stdio::null()).output().map_err(|source| Error::Spawn { program, source })?;
    // The terminal's line ends.
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    Ok(match text.rsplit_once("\nstatus ") {
        Some((printed, status)) => (printed.to_owned(), status.trim().parse().ok()),
        None => {
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
            (text, None)
        }
    })
}
