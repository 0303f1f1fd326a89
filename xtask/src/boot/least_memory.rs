//! Boots with the least memory that `pagewright boot` accepts.
//!
//! The least memory follows from the image (`crates/pagewright/src/command/boot/memory.rs`), so the
//! boots notice when the kernel needs more than that says. How much memory alignment leaves unused
//! depends on the size of the initramfs, so each boot has another size.
//!
//! Not guaranteed: that a program which does more has enough memory.

use super::cases::Machine;
use super::{Bench, CPUS, Task};
use crate::error::Error;
use crate::watch;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The sizes of a file in the initramfs, in KiB.
///
/// They are a quarter of a MiB apart, because sizes of memory are whole MiB, and reach over the
/// 2 MiB to which QEMU aligns the device tree of an arm64 machine.
const FILES: [usize; 8] = [0, 256, 512, 768, 1024, 1280, 1536, 1792];

/// Compiles the program, and returns the boots of a machine on one CPU and on four.
pub(super) fn tasks<'a>(
    bench: &'a Bench,
    machine: &'a Machine,
    kernel: &'a Path,
) -> Result<impl Iterator<Item = Task<'a>>, Error> {
    let program = machine.compile(&bench.workspace.workspace_root, &bench.folder, "nothing.c")?;
    Ok(CPUS.into_iter().map(move |cpus| -> Task<'a> {
        let program = program.clone();
        Box::new(move || judge(bench, machine, kernel, &program, cpus))
    }))
}

/// Boots with each file, prints a line, and returns the number of failures.
fn judge(bench: &Bench, machine: &Machine, kernel: &Path, program: &Path, cpus: &str) -> Result<usize, Error> {
    let mut failed = String::new();
    for kib in FILES {
        let file = bench.folder.join(format!("least-memory-{}-{cpus}", machine.isa));
        fs::write(&file, vec![0; kib << 10]).map_err(Error::file(&file))?;
        let boot = LeastBoot { bench, machine, kernel, cpus, file, program };
        failed.push_str(&boot.failure()?.map_or(String::new(), |failure| format!("\n{kib} KiB: {failure}")));
    }
    let verdict = if failed.is_empty() { "ok" } else { "FAILED" };
    println!("test boot {} cpus {cpus} with the least memory ... {verdict}{failed}", machine.isa);
    Ok(usize::from(!failed.is_empty()))
}

/// The boots with one size of the initramfs.
struct LeastBoot<'a> {
    bench: &'a Bench,
    machine: &'a Machine,
    kernel: &'a Path,
    cpus: &'a str,
    file: PathBuf,
    program: &'a Path,
}

impl LeastBoot<'_> {
    /// The failure, if the machine does not boot with the least memory or does not refuse less.
    fn failure(&self) -> Result<Option<String>, Error> {
        let Some(least) = least(&self.boot(1)?) else { return Ok(Some("1 MiB is not refused".to_owned())) };
        if self::least(&self.boot(least - 1)?) != Some(least) {
            return Ok(Some(format!("{} MiB are not refused, or for another least memory", least - 1)));
        }
        let output = self.boot(least)?;
        let said = String::from_utf8_lossy(&output.stderr);
        let good = output.status.success() && said.contains("recounted");
        Ok((!good).then(|| format!("{least} MiB, status {}\n{said}", output.status)))
    }

    fn boot(&self, mebibytes: u64) -> Result<Output, Error> {
        let mut boot = Command::new(&self.bench.pagewright);
        boot.args(["boot", "--arch", self.machine.isa.name(), "--cpus", self.cpus, "--check"]);
        boot.args(["--mem", &format!("{mebibytes}M"), "--kernel"]).arg(self.kernel);
        boot.arg("--file").arg(&self.file).arg("--").arg(self.program).stdin(Stdio::null());
        watch::output(&mut boot, watch::SHORT)
    }
}

/// The least memory in MiB that the message of a refused boot names.
fn least(output: &Output) -> Option<u64> {
    let said = String::from_utf8_lossy(&output.stderr);
    let (_, least) = said.split_once("are too little for the kernel, the program and its files: at least ")?;
    least.split(' ').next()?.parse().ok()
}
