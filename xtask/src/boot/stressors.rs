//! `cargo xtask boot stressors`: what passes of stress-ng on Linux must pass on the kernel.
//!
//! The stressors are those of memory and processes: all of stress-ng's classes `vm`, `memory` and
//! `cpu-cache`, and those of `scheduler`, `interrupt` and `os` that are in none of `filesystem`,
//! `network`, `device`, `io` and `security`. `kernel/programs/stressors.c` runs them with
//! `--verify`, each for a second. `record` runs all of them on Debian's Linux 6.1 in the same QEMU
//! and writes what became of them to [`TABLE`]. On the kernel each has a boot of its own, under
//! `--check`.
//!
//! A stressor that passes on Linux must pass here, on the same number of CPUs, unless it is in
//! [`MISSING`] or [`HOLLOW`]. Those in `MISSING` must not pass, so that the list stays true.
//!
//! Not guaranteed: that a stressor does much in a second, or makes every call that it could.
//! Several go on after a call that fails with `ENOSYS`.

use super::cases::{MACHINES, Machine, Swap};
use super::{CPUS, Task, concurrently, machines, pagewright, verdict};
use crate::cargo::Workspace;
use crate::error::Error;
use crate::expected::run_program;
use crate::kernel;
use crate::linux::Linux;
use crate::watch;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

/// What became of each stressor on Linux: a line of names of machines, then a line for each.
const TABLE: &str = "kernel/programs/expected/stressors";
const MEMORY: &str = "1G";
/// The time that a boot of one stressor may spend.
const ALLOWED: Duration = Duration::from_secs(180);
/// The time that a boot of Linux may spend.
const ALLOWED_ON_LINUX: Duration = Duration::from_secs(1800);
/// The stressors of one boot of Linux, which passes at most 32 words to init.
const ON_LINUX_AT_ONCE: usize = 20;
const PASSED: &str = "ok";

/// The stressors that do not pass on the kernel, and what they need that it lacks.
///
/// `vm-segv` unmaps the memory of a child that it traces; `processes.c` does that untraced.
const MISSING: [(&str, &str); 27] = [
    ("chroot", "chroot"),
    ("cpu-online", "/sys/devices/system/cpu/cpuN/online"),
    ("cyclic", "SCHED_DEADLINE"),
    ("get", "adjtimex"),
    ("key", "add_key"),
    ("klog", "syslog"),
    ("l1cache", "the caches of each CPU below /sys/devices/system/cpu"),
    ("landlock", "landlock_create_ruleset"),
    ("llc-affinity", "the caches of each CPU below /sys/devices/system/cpu"),
    ("memhotplug", "blocks of memory below /sys/devices/system/memory"),
    ("mq", "mq_open"),
    ("netlink-proc", "AF_NETLINK"),
    ("netlink-task", "AF_NETLINK"),
    ("pci", "devices below /sys/devices/pci0000:00"),
    ("ptrace", "ptrace"),
    ("reboot", "reboot"),
    ("seccomp", "seccomp"),
    ("sem-sysv", "semget"),
    ("sigfd", "signalfd4"),
    ("splice", "splice"),
    ("tee", "tee"),
    ("timerfd", "timerfd_create"),
    ("userfaultfd", "userfaultfd"),
    ("usersyscall", "PR_SET_SYSCALL_USER_DISPATCH"),
    ("vdso", "a vDSO"),
    ("vm-segv", "ptrace"),
    ("vm-splice", "splice"),
];

/// The stressors that may pass although the one call that they make is missing.
///
/// They are not run: `unshare` waits for ever if it kills a child that is about to tell the error.
const HOLLOW: [(&str, &str); 4] =
    [("kcmp", "kcmp"), ("msg", "msgget"), ("personality", "personality"), ("unshare", "unshare")];

/// The name of a machine with so many CPUs.
fn column(machine: &Machine, cpus: &str) -> String {
    format!("{}-{cpus}", machine.isa)
}

/// What became of each stressor on each machine.
type Results = BTreeMap<String, BTreeMap<String, String>>;

/// Reads [`TABLE`].
fn read(root: &Path) -> Result<Results, Error> {
    let path = root.join(TABLE);
    let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
    let mut lines = text.lines().map(str::split_whitespace);
    let columns: Vec<&str> = lines.next().into_iter().flatten().skip(1).collect();
    let row = |mut words: std::str::SplitWhitespace<'_>| {
        let name = words.next()?.to_owned();
        Some((name, columns.iter().zip(words).map(|(column, word)| ((*column).to_owned(), word.to_owned())).collect()))
    };
    Ok(lines.filter_map(row).collect())
}

/// The text of [`TABLE`].
fn table(results: &Results) -> String {
    let columns: Vec<String> =
        MACHINES.iter().flat_map(|machine| CPUS.iter().map(|cpus| column(machine, cpus))).collect();
    let mut text = format!("stressor {}\n", columns.join(" "));
    for (name, row) in results {
        let words: Vec<&str> = columns.iter().map(|column| row.get(column).map_or("none", String::as_str)).collect();
        text.push_str(&format!("{name} {}\n", words.join(" ")));
    }
    text
}

/// What the program printed of each stressor: its name and what became of it.
fn printed(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let told = text.lines().filter(|line| !line.starts_with(' ')).filter_map(|line| line.split_once(' '));
    told.filter(|(_, result)| !result.contains(' '))
}

/// What the boots need.
struct Bench {
    workspace: Workspace,
    pagewright: PathBuf,
    folder: PathBuf,
}

impl Bench {
    fn new() -> Result<Self, Error> {
        let workspace = Workspace::load()?;
        let pagewright = pagewright(&workspace)?;
        let folder = workspace.programs()?;
        Ok(Self { workspace, pagewright, folder })
    }

    /// The start of a command that boots a machine with stress-ng.
    fn boot(&self, machine: &Machine, cpus: &str) -> Result<Command, Error> {
        let root = machine.archive(&self.workspace).fetch_all("stress-ng")?;
        let mut boot = Command::new(&self.pagewright);
        boot.args(["boot", "--arch", machine.isa.name(), "--cpus", cpus, "--mem", MEMORY]);
        boot.arg("--file").arg(format!("{}=/usr/bin/stress-ng", root.join("usr/bin/stress-ng").display()));
        boot.arg("--sysroot").arg(&root).stdin(Stdio::null());
        Ok(boot)
    }

    fn program(&self, machine: &Machine) -> Result<PathBuf, Error> {
        machine.compile(&self.workspace.workspace_root, &self.folder, "stressors.c")
    }
}

/// Runs the stressors with these names, or those of the table, on Linux, and writes the table.
///
/// # Errors
/// [`Error::Findings`], if Linux printed nothing of a stressor.
pub(crate) fn record(names: &[&str]) -> Result<(), Error> {
    let bench = Bench::new()?;
    let root = &bench.workspace.workspace_root;
    let mut results = read(root)?;
    let names: Vec<String> = match names {
        [] => results.keys().cloned().collect(),
        names => names.iter().map(|name| (*name).to_owned()).collect(),
    };
    let mut missed = 0;
    for machine in &MACHINES {
        let linux = Linux::fetch(&bench.workspace, machine.isa, None, "6.1")?;
        let init = machine.compile(root, &bench.folder, "init.c")?;
        let program = bench.program(machine)?;
        for cpus in CPUS {
            for some in names.chunks(ON_LINUX_AT_ONCE) {
                let mut boot = bench.boot(machine, cpus)?;
                boot.args(linux.arguments(&init, Swap::Nothing, "")).arg("--").arg(&program).args(some);
                let (text, _) = run_program(&mut boot, ALLOWED_ON_LINUX)?;
                let told: BTreeMap<&str, &str> = printed(&text).collect();
                for name in some {
                    let Some(result) = told.get(name.as_str()) else {
                        println!("{} {name}: Linux printed nothing of it", column(machine, cpus));
                        missed += 1;
                        continue;
                    };
                    println!("{} {name} {result}", column(machine, cpus));
                    results.entry(name.clone()).or_default().insert(column(machine, cpus), (*result).to_owned());
                }
            }
        }
    }
    let path = root.join(TABLE);
    fs::write(&path, table(&results)).map_err(Error::file(&path))?;
    if missed == 0 { Ok(()) } else { Err(Error::Findings { check: "stressors without a result", count: missed }) }
}

/// What became of a stressor on the kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Passed,
    /// The kernel lacks what it needs.
    Lacking,
    Failed,
}

/// The stressors of each machine by what became of them.
type Tally = Mutex<BTreeMap<String, BTreeMap<Verdict, usize>>>;

/// What the kernel lacks for a stressor in one of the lists.
fn lacks(list: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    list.iter().find(|(known, _)| *known == name).map(|(_, missing)| *missing)
}

/// Boots the kernel with each stressor that passes on Linux, or with those of these names.
///
/// # Errors
/// [`Error::Usage`] for an unknown name; [`Error::Findings`], if a stressor fails that should pass.
pub(crate) fn run(names: &[&str]) -> Result<(), Error> {
    let bench = Bench::new()?;
    let results = read(&bench.workspace.workspace_root)?;
    if let Some(unknown) = names.iter().find(|name| !results.contains_key(**name)) {
        return Err(Error::Usage(format!("boot stressors {unknown}")));
    }
    let (machines, targets) = machines();
    let kernels = kernel::build_for_boots(&targets, &["oracle"])?;
    let tally = Tally::default();
    let mut tasks: Vec<Task<'_>> = Vec::new();
    for (machine, kernel) in machines.into_iter().zip(&kernels) {
        let program = bench.program(machine)?;
        for cpus in CPUS {
            let column = column(machine, cpus);
            let passes = |row: &BTreeMap<String, String>| row.get(&column).is_some_and(|result| result == PASSED);
            let is_named = |name: &str| names.is_empty() || names.contains(&name);
            for (name, _) in results.iter().filter(|(name, row)| passes(row) && is_named(name)) {
                let (bench, program, column, tally) = (&bench, program.clone(), column.clone(), &tally);
                tasks.push(Box::new(move || {
                    let mut boot = bench.boot(machine, cpus)?;
                    boot.arg("--kernel").arg(kernel).args(["--check", "--"]).arg(&program).arg(name);
                    let verdict = judge(&column, name, &mut boot)?;
                    if let Ok(mut tally) = tally.lock() {
                        *tally.entry(column).or_default().entry(verdict).or_default() += 1;
                    }
                    Ok(usize::from(verdict == Verdict::Failed))
                }));
            }
        }
    }
    let here = thread::available_parallelism().map_or(1, usize::from);
    let failed = concurrently(tasks, (here / 4).max(2))?;
    for (column, counts) in tally.into_inner().unwrap_or_default() {
        let count = |verdict| counts.get(&verdict).copied().unwrap_or(0);
        let (passed, lacking) = (count(Verdict::Passed), count(Verdict::Lacking));
        let all = passed + lacking + count(Verdict::Failed);
        println!("{column}: {passed} of {all} stressors that pass on Linux pass; {lacking} need what is missing");
    }
    verdict(failed)
}

/// Boots with one stressor, and prints its line.
fn judge(column: &str, name: &str, boot: &mut Command) -> Result<Verdict, Error> {
    if let Some(missing) = lacks(&HOLLOW, name) {
        println!("test boot {column} stressor {name} ... ignored ({missing} is missing)");
        return Ok(Verdict::Lacking);
    }
    let output = watch::output(boot, ALLOWED)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let has_passed = printed(&text).any(|told| told == (name, PASSED));
    let (verdict, line) = match (output.status.success(), has_passed, lacks(&MISSING, name)) {
        (true, true, None) => (Verdict::Passed, "ok".to_owned()),
        (true, false, Some(missing)) => (Verdict::Lacking, format!("ignored ({missing} is missing)")),
        (true, true, Some(_)) => (Verdict::Failed, "FAILED\nit passes, so it must not be in MISSING".to_owned()),
        // A machine without the status of the program has stopped, or a count was wrong.
        (false, ..) | (true, false, None) => {
            let error = String::from_utf8_lossy(&output.stderr);
            (Verdict::Failed, format!("FAILED\n{text}\n{error}\nstatus {}", output.status))
        }
    };
    // One call, so that the output of several machines does not mix.
    println!("test boot {column} stressor {name} ... {line}");
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_told_from_what_stress_ng_said() {
        let text = "brk ok\nvm late\n    stress-ng: info\nstatus 0 of it\n";
        assert_eq!(printed(text).collect::<Vec<_>>(), [("brk", "ok"), ("vm", "late")]);
    }

    #[test]
    fn every_missing_stressor_passes_on_linux() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let results = read(&root).unwrap();
        for (name, _) in MISSING.iter().chain(&HOLLOW) {
            assert!(results[*name].values().any(|result| result == PASSED), "{name}");
        }
    }
}
