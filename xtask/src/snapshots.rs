//! `cargo xtask snapshots`: what `pagewright snapshot` predicts of forks, beside real forks.
//!
//! Each program of [`PROGRAMS`] builds its memory and waits. `pagewright snapshot` reads it and
//! predicts the time of its fork, the page tables and the pages of its child. Then the program
//! forks: first under ptrace(2), which stops the child before its first instruction, so that the
//! child's counts are those of the fork alone; then several times by itself, for the CPU time
//! of its thread. All of that happens [`PASSES`] times, each with a new process. The command writes
//! `docs/snapshots.md` and fails if a median differs by more than [`TOLERANCE`] per cent.
//!
//! Not guaranteed: the same times on another computer, or while others use this one.

use crate::boot::given_pagewright;
use crate::cargo::Workspace;
use crate::error::Error;
use crate::watch::{self, Group};
use nix::sys::ptrace::{self, Event, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const PAGE: &str = "docs/snapshots.md";
/// Processes of each program.
const PASSES: usize = 3;
/// The largest difference of a median from Linux, in per cent.
const TOLERANCE: f64 = 15.0;

/// A program that forks.
struct Program {
    name: &'static str,
    /// Its command, in `tests/snapshots`.
    command: &'static str,
    /// What its memory is.
    memory: &'static str,
    /// Forks whose time is measured, in each pass.
    forks: usize,
}

const fn program(name: &'static str, command: &'static str, memory: &'static str, forks: usize) -> Program {
    Program { name, command, memory, forks }
}

const PROGRAMS: [Program; 6] = [
    program("python, strings", "python3 process.py strings-20M", "170,000 strings in a list", 15),
    program("perl, hash", "perl hash.pl", "a hash of 500,000 keys", 15),
    program("python, more strings", "python3 process.py strings-500M", "7,500,000 strings in a list", 9),
    program(
        "mappings",
        "python3 process.py mappings",
        "2000 mappings of 64 pages, 2000 lone pages, 500 mappings of a file",
        15,
    ),
    program("huge pages", "python3 process.py huge", "512 MiB of huge pages, 512 MiB of base pages", 15),
    program("one mapping", "python3 process.py dense-4G", "4 GiB", 5),
];

/// A figure that was predicted, and Linux's.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Predicted {
    predicted: f64,
    linux: f64,
}

impl Predicted {
    fn percent(self) -> f64 {
        (self.predicted / self.linux - 1.0) * 100.0
    }
}

/// One process of a program.
#[derive(Clone, Copy)]
struct Pass {
    resident: f64,
    micros: Predicted,
    /// Bytes of the child's page tables, without the root.
    table_bytes: Predicted,
    /// The child's pages.
    pages: Predicted,
    /// Bytes of the process's own page tables, without the root.
    own_table_bytes: Predicted,
}

/// The passes of a program.
struct Compared {
    program: &'static Program,
    passes: Vec<Pass>,
}

impl Compared {
    /// The pass with the median difference of a figure.
    fn median(&self, of: fn(&Pass) -> Predicted) -> Predicted {
        let mut all: Vec<Predicted> = self.passes.iter().map(of).collect();
        all.sort_by(|a, b| a.percent().total_cmp(&b.percent()));
        all[all.len() / 2]
    }

    fn is_close(&self) -> bool {
        let figures = [|pass: &Pass| pass.micros, |pass: &Pass| pass.table_bytes, |pass: &Pass| pass.pages];
        figures.into_iter().all(|of| self.median(of).percent().abs() <= TOLERANCE)
    }
}

/// Predicts and measures the forks of all programs, or of those whose command has one of `names`.
///
/// # Errors
/// [`Error::Findings`], if a prediction differs by more than the tolerance; the page is written all
/// the same. [`Error::Spawn`] and [`Error::Program`], if a program cannot run.
pub(crate) fn run(names: &[&str]) -> Result<(), Error> {
    let workspace = Workspace::load()?;
    let pagewright = given_pagewright(&workspace)?;
    let folder = workspace.workspace_root.join("tests/snapshots");
    let json = workspace.target_directory.join(format!("snapshot-{}.json", std::process::id()));
    let is_chosen = |program: &&Program| names.is_empty() || names.iter().any(|name| program.command.contains(name));
    let mut all = Vec::new();
    for program in PROGRAMS.iter().filter(is_chosen) {
        let mut passes = Vec::new();
        for _ in 0..PASSES {
            let pass = Pass::run(&pagewright, &folder, program, &json)?;
            println!("{}", row(program, &pass));
            passes.push(pass);
        }
        all.push(Compared { program, passes });
    }
    fs::remove_file(&json).map_err(Error::file(&json))?;
    if names.is_empty() {
        let page = workspace.workspace_root.join(PAGE);
        fs::write(&page, document(&all)).map_err(Error::file(&page))?;
    }
    match all.iter().filter(|compared| !compared.is_close()).count() {
        0 => Ok(()),
        count => Err(Error::Findings { check: "snapshots", count }),
    }
}

/// A program that runs, and waits for lines.
struct Running {
    _group: Group,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Running {
    /// Starts a program, and waits until its memory is built.
    fn start(folder: &Path, program: &Program) -> Result<Self, Error> {
        let mut words = program.command.split(' ');
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let (group, mut child) = Group::start(&mut command)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or_else(|| failed(program, "no pipes"))?;
        let mut running = Self { _group: group, child, input, output: BufReader::new(output) };
        match running.line() {
            Ok(line) if line == "READY" => Ok(running),
            Ok(line) => Err(failed(program, &line)),
            Err(error) => Err(failed(program, error)),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Has the program fork, and returns the nanoseconds.
    fn fork(&mut self) -> io::Result<f64> {
        self.input.write_all(b"\n")?;
        self.line()?.parse().map_err(io::Error::other)
    }

    /// Has the program fork; returns its child's page tables in bytes and its pages.
    ///
    /// The child has executed nothing.
    fn traced_fork(&mut self) -> io::Result<(f64, f64)> {
        let parent = self.pid();
        ptrace::seize(parent, Options::PTRACE_O_TRACEFORK)?;
        self.input.write_all(b"\n")?;
        let child = match waitpid(parent, None)? {
            WaitStatus::PtraceEvent(_, _, event) if event == Event::PTRACE_EVENT_FORK as i32 => {
                Pid::from_raw(ptrace::getevent(parent)? as i32)
            }
            other => return Err(io::Error::other(format!("{other:?} in place of a fork"))),
        };
        waitpid(child, None)?;
        let kilobytes = |file: &str, name: &str| -> io::Result<f64> {
            let text = fs::read_to_string(format!("/proc/{child}/{file}"))?;
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
            value.unwrap_or_default().trim().parse().map_err(io::Error::other)
        };
        let counted = (kilobytes("status", "VmPTE:")? * 1024.0, kilobytes("smaps_rollup", "Rss:")? / 4.0);
        kill(child, Signal::SIGKILL)?;
        waitpid(child, None)?;
        ptrace::detach(parent, None)?;
        self.line()?;
        Ok(counted)
    }
}

fn failed(program: &Program, reason: impl std::fmt::Display) -> Error {
    Error::Spawn { program: program.command.to_owned(), source: io::Error::other(reason.to_string()) }
}

impl Pass {
    fn run(pagewright: &Path, folder: &Path, program: &Program, json: &Path) -> Result<Self, Error> {
        let mut running = Running::start(folder, program)?;
        let mut snapshot = Command::new(pagewright);
        snapshot.arg("snapshot").arg(running.pid().to_string()).arg("--json").arg(json).stdin(Stdio::null());
        let output = watch::output(&mut snapshot, watch::SHORT)?;
        if !output.status.success() {
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
            return Err(Error::Program { program: pagewright.display().to_string(), status: output.status });
        }
        let text = fs::read(json).map_err(Error::file(json))?;
        let document: Value = serde_json::from_slice(&text).map_err(Error::Replay)?;
        let number = |pointer: &str| document.pointer(pointer).and_then(Value::as_f64).unwrap_or(f64::NAN);
        let mut measured = || -> io::Result<(f64, (f64, f64))> {
            // The first fork is not traced: ptrace adds to its time.
            let mut times = (0..program.forks).map(|_| running.fork()).collect::<io::Result<Vec<f64>>>()?;
            times.sort_by(f64::total_cmp);
            Ok((times[times.len() / 2], running.traced_fork()?))
        };
        let (nanos, (table_bytes, pages)) = measured().map_err(|error| failed(program, error))?;
        let predicted_pages = number("/counted/copied/entries") + 512.0 * number("/counted/copied/huge_leaves");
        Ok(Self {
            resident: number("/counted/vm_rss_bytes"),
            micros: Predicted { predicted: number("/predicted/fork_ns") / 1e3, linux: nanos / 1e3 },
            table_bytes: Predicted { predicted: number("/predicted/child_table_bytes"), linux: table_bytes },
            pages: Predicted { predicted: predicted_pages, linux: pages },
            own_table_bytes: Predicted {
                predicted: number("/counted/table_bytes"),
                linux: number("/counted/vm_pte_bytes"),
            },
        })
    }
}

fn row(program: &Program, pass: &Pass) -> String {
    let Pass { resident, micros, table_bytes, pages, own_table_bytes } = pass;
    let mut row = format!("| {} | {:.0} |", program.name, resident / 1048576.0);
    for (figure, unit) in [(micros, 1.0), (table_bytes, 1024.0), (pages, 1.0), (own_table_bytes, 1024.0)] {
        let Predicted { predicted, linux } = figure;
        // Writing to a `String` cannot fail.
        let _ = write!(row, " {:.0} | {:.0} | {:+.1} |", predicted / unit, linux / unit, figure.percent());
    }
    row
}

fn document(all: &[Compared]) -> String {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpu = text("/proc/cpuinfo")
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or(String::new(), |(_, model)| model.to_owned());
    let close = all.iter().filter(|compared| compared.is_close()).count();
    let mut page = format!(
        "# Predicted forks beside real ones\n\n\
         This page compares what `pagewright snapshot` predicts of the forks of programs with their\n\
         forks. `cargo xtask snapshots` starts each program, reads it, has it fork, and writes this page.\n\
         Times are the CPU time of the thread that forks. The child's page tables and pages are Linux's\n\
         own counts (`VmPTE`, `Rss`), of a child that ptrace(2) stopped before its first instruction. All\n\
         happens {PASSES} times with new processes; the table has the pass with the median difference of each\n\
         figure. {close} of {} programs are within {TOLERANCE} % in time, tables and pages.\n\n\
         The prediction is that of a program that stores to all its memory between its forks, so that\n\
         its page tables have left the caches. *mappings* stores to one line of each page, a few MB in\n\
         all: its page tables stay in the caches, and its forks can take less than is predicted.\n\n\
         Measured on Linux {}, {cpu}.\n\n\
         | program | resident MiB | fork µs, predicted | Linux | % | child's tables kB, predicted | Linux | % \
         | child's pages, predicted | Linux | % | its own tables kB, counted | Linux | % |\n\
         | --- |{}\n",
        all.len(),
        text("/proc/sys/kernel/osrelease"),
        " ---: |".repeat(13),
    );
    for compared in all {
        let pass = Pass {
            resident: compared.passes.iter().map(|pass| pass.resident).fold(0.0, f64::max),
            micros: compared.median(|pass| pass.micros),
            table_bytes: compared.median(|pass| pass.table_bytes),
            pages: compared.median(|pass| pass.pages),
            own_table_bytes: compared.median(|pass| pass.own_table_bytes),
        };
        let _ = writeln!(page, "{}", row(compared.program, &pass));
    }
    page.push_str("\nDifferences of the time in each pass:\n\n| program | memory | % |\n| --- | --- | --- |\n");
    for compared in all {
        let percents: Vec<String> =
            compared.passes.iter().map(|pass| format!("{:+.1}", pass.micros.percent())).collect();
        let Program { name, memory, .. } = compared.program;
        let _ = writeln!(page, "| {name} | {memory} | {} |", percents.join(", "));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(percents: [f64; 3]) -> Compared {
        let predicted = |percent: f64| Predicted { predicted: 100.0 + percent, linux: 100.0 };
        let same = predicted(0.0);
        let pass = |percent| Pass {
            resident: 1048576.0,
            micros: predicted(percent),
            table_bytes: same,
            pages: same,
            own_table_bytes: same,
        };
        Compared { program: &PROGRAMS[0], passes: percents.map(pass).to_vec() }
    }

    #[test]
    fn the_median_pass_decides_whether_a_prediction_is_close() {
        assert!(compared([90.0, -3.0, 14.0]).is_close());
        assert!(!compared([16.0, 17.0, 0.0]).is_close());
        assert!(!compared([-16.0, -17.0, 0.0]).is_close());
        let page = document(&[compared([90.0, -3.0, 14.0]), compared([16.0, 17.0, 0.0])]);
        assert!(page.contains("1 of 2 programs are within 15 %"), "{page}");
        assert!(page.contains("| 114 | 100 | +14.0 |"), "{page}");
    }
}
