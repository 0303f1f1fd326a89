//! `cargo xtask boot`: programs on the kernel in QEMU, {x86-64, arm64} × {1, 4 CPUs}.
//!
//! Each program runs by `pagewright boot`, with a hard limit of time, and must print and answer what it does on Debian's Linux 6.1 in the same
//! QEMU (`kernel/programs/expected`). Then mistakes are planted, each of which some program must notice.
//!
//! Not guaranteed: anything about time; QEMU emulates every instruction.

use crate::cargo::{self, Workspace};
use crate::error::Error;
use crate::setup::on_path;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// An instruction set, its C compiler and its QEMU.
struct Machine {
    isa: &'static str,
    compiler: &'static str,
    qemu: &'static str,
}

const MACHINES: [Machine; 2] = [
    Machine { isa: "x86-64", compiler: "gcc", qemu: "qemu-system-x86_64" },
    Machine { isa: "arm64", compiler: "aarch64-linux-gnu-gcc", qemu: "qemu-system-aarch64" },
];
const CPUS: [&str; 2] = ["1", "4"];

/// A program, with what it must print and answer.
struct Case {
    /// Its name, and that of the file with what it prints.
    name: &'static str,
    /// The source in `kernel/programs`, or a program of the host that runs on x86-64 only.
    program: &'static str,
    arguments: &'static [&'static str],
    memory: &'static str,
    /// Seconds.
    limit: &'static str,
    status: i32,
}

const SHELL: &str = "for i in 1 2 3; do echo $i; done | cat | sort -r; (sleep 1; echo background) & echo foreground; wait; \
                     seq 1 1000 | grep 7 | wc -l; false || echo status $?; exit 7";

const CASES: [Case; 5] = [
    Case { name: "bad", program: "bad.c", arguments: &[], memory: "256M", limit: "60", status: 5 },
    Case { name: "cow", program: "cow.c", arguments: &[], memory: "256M", limit: "60", status: 0 },
    Case { name: "fork", program: "fork.c", arguments: &["64", "256"], memory: "1G", limit: "240", status: 0 },
    Case { name: "threads", program: "threads.c", arguments: &["10"], memory: "256M", limit: "120", status: 0 },
    Case { name: "shell", program: "busybox", arguments: &["sh", "-c", SHELL], memory: "256M", limit: "60", status: 7 },
];

/// Mistakes of the real code, and the program that each of them corrupts or stops. They are made on four CPUs of x86-64.
const PLANTED: [(&str, &str); 5] = [
    ("no-flush", "threads"),
    ("local-only", "threads"),
    ("protect-no-flush", "threads"),
    ("cow-no-flush", "cow"),
    ("lazy-no-catch-up", "cow"),
];
/// Seconds for a program that a mistake may stop for good.
const PLANTED_LIMIT: &str = "30";
/// A mistake that needs two CPUs to meet may stay unseen: tries until one shows it.
const PLANTED_TRIES: usize = 5;

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The programs that take seconds, on four CPUs, and no planted mistakes.
    Quick,
    /// Everything.
    Full,
}

impl Extent {
    /// The programs that the quick run has.
    const QUICK: [&str; 3] = ["bad", "cow", "shell"];

    fn has(self, case: &Case, cpus: &str) -> bool {
        match self {
            Self::Quick => Self::QUICK.contains(&case.name) && cpus == "4",
            Self::Full => true,
        }
    }
}

/// Runs what belongs to `extent`; each run is a line as of a test.
pub(crate) fn run(extent: Extent) -> Result<(), Error> {
    let workspace = Workspace::load()?;
    let root = &workspace.workspace_root;
    let pagewright = pagewright(&workspace)?;
    let folder = workspace.target_directory.join("programs");
    fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    let mut failed = 0;
    for machine in &MACHINES {
        if let Some(missing) = [machine.compiler, machine.qemu].into_iter().find(|program| !on_path(program)) {
            println!("test boot {} ... ignored ({missing} is missing: cargo xtask setup)", machine.isa);
            continue;
        }
        for case in &CASES {
            let wanted: Vec<&str> = CPUS.into_iter().filter(|cpus| extent.has(case, cpus)).collect();
            if wanted.is_empty() {
                continue;
            }
            let Some(program) = program(case, machine, root, &folder)? else { continue };
            for cpus in wanted {
                let run = Run { pagewright: &pagewright, machine, case, program: &program, cpus, plant: None };
                failed += run.judge(root)?;
            }
        }
    }
    if extent == Extent::Full {
        failed += planted(root, &pagewright, &folder)?;
    }
    if failed == 0 { Ok(()) } else { Err(Error::Findings { check: "boot", count: failed }) }
}

/// Each planted mistake on four CPUs of x86-64.
fn planted(root: &Path, pagewright: &Path, folder: &Path) -> Result<usize, Error> {
    let machine = &MACHINES[0];
    if ![machine.compiler, machine.qemu].into_iter().all(on_path) {
        return Ok(0);
    }
    let mut failed = 0;
    for (plant, name) in PLANTED {
        let Some(case) = CASES.iter().find(|case| case.name == name) else { continue };
        let Some(program) = program(case, machine, root, folder)? else { continue };
        let run = Run { pagewright, machine, case, program: &program, cpus: "4", plant: Some(plant) };
        failed += run.judge_any(root)?;
    }
    Ok(failed)
}

/// The program `pagewright`, built.
fn pagewright(workspace: &Workspace) -> Result<PathBuf, Error> {
    let mut build = cargo::command();
    build.args(["build", "--quiet", "--package", "pagewright"]).current_dir(&workspace.workspace_root);
    cargo::status(&mut build)?;
    Ok(workspace.target_directory.join("debug/pagewright"))
}

/// A case's program for a machine, compiled if need be; `None` if it can't run there.
fn program(case: &Case, machine: &Machine, root: &Path, folder: &Path) -> Result<Option<PathBuf>, Error> {
    let Some(name) = case.program.strip_suffix(".c") else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|folder| folder.join(case.program)).find(|file| file.is_file());
        return Ok(found.filter(|_| machine.isa == "x86-64"));
    };
    let compiled = folder.join(format!("{name}-{}", machine.isa));
    let mut compile = Command::new(machine.compiler);
    compile.args(["-O2", "-static", "-pthread", "-w", "-o"]).arg(&compiled);
    cargo::status(compile.arg(root.join("kernel/programs").join(case.program)))?;
    Ok(Some(compiled))
}

/// One boot.
struct Run<'a> {
    pagewright: &'a Path,
    machine: &'a Machine,
    case: &'a Case,
    program: &'a Path,
    cpus: &'a str,
    plant: Option<&'a str>,
}

impl Run<'_> {
    /// Boots, compares, prints the line. Returns 1 for a failure.
    fn judge(&self, root: &Path) -> Result<usize, Error> {
        let output = self.boot()?;
        let wanted = self.is_right(root, &output)?;
        self.show(wanted, &output);
        Ok(usize::from(!wanted))
    }

    /// The same for a mistake, which one of some boots must show.
    fn judge_any(&self, root: &Path) -> Result<usize, Error> {
        let mut output = self.boot()?;
        for _ in 1..PLANTED_TRIES {
            if !self.is_right(root, &output)? {
                break;
            }
            output = self.boot()?;
        }
        let seen = !self.is_right(root, &output)?;
        self.show(seen, &output);
        Ok(usize::from(!seen))
    }

    fn show(&self, wanted: bool, output: &Output) {
        let what = self.plant.map_or(String::new(), |plant| format!(" with {plant}"));
        let verdict = if wanted { "ok" } else { "FAILED" };
        println!("test boot {} {} cpus {}{what} ... {verdict}", self.machine.isa, self.cpus, self.case.name);
        if !wanted {
            println!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            println!("status {}", output.status);
        }
    }

    /// Whether the program printed and answered what it does on Linux.
    fn is_right(&self, root: &Path, output: &Output) -> Result<bool, Error> {
        let expected = format!("kernel/programs/expected/{}-{}", self.case.name, self.machine.isa);
        let expected = root.join(expected);
        let expected = fs::read(&expected).map_err(Error::file(&expected))?;
        Ok(output.stdout == expected && output.status.code() == Some(self.case.status))
    }

    fn boot(&self) -> Result<Output, Error> {
        let Case { arguments, memory, limit, .. } = *self.case;
        let mut boot = Command::new(self.pagewright);
        boot.args(["boot", "--arch", self.machine.isa, "--cpus", self.cpus, "--mem", memory]);
        match self.plant {
            Some(plant) => boot.args(["--limit", PLANTED_LIMIT, "--plant", plant]),
            None => boot.args(["--limit", limit, "--check"]),
        };
        boot.arg("--").arg(self.program).args(arguments).stdin(Stdio::null());
        let program = boot.get_program().display().to_string();
        boot.output().map_err(|source| Error::Spawn { program, source })
    }
}
