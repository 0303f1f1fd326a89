//! QEMU's user mode with the plugin of `pagewright-recorder`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pagewright_recorder::launch::{AARCH64, Launch, STACK_BYTES, TOTAL, X86_64};

use super::error::RecordError;
use super::find_program;
use crate::cleanup::ScratchDir;

/// The file name of the plugin.
const PLUGIN: &str = "libpagewright_recorder.so";
/// Size of the file with the number of accesses, which the plugin maps: a page.
const TOTAL_BYTES: u64 = 4096;

/// QEMU and the program that it is to run.
#[derive(Debug)]
pub(super) struct Qemu {
    path: PathBuf,
    plugin: PathBuf,
    launch: Launch,
    version: String,
}

impl Qemu {
    /// Finds QEMU and the plugin for a program.
    ///
    /// # Errors
    /// The reason why QEMU cannot record it.
    pub(super) fn find(program: &Path, name: &str, args: &[String]) -> Result<Self, String> {
        let command = std::iter::once(name).chain(args.iter().map(String::as_str)).map(OsString::from).collect();
        let launch = Launch::of(program, command).ok_or("the program is no 64-bit ELF file")?;
        let qemu = match launch.machine {
            X86_64 => "qemu-x86_64",
            AARCH64 => "qemu-aarch64",
            machine => return Err(format!("the program is for another machine (e_machine {machine})")),
        };
        let path = find_program(qemu)
            .ok_or_else(|| format!("{qemu} is not installed (apt install qemu-user on Debian and Ubuntu)"))?;
        let plugin = find_plugin().ok_or_else(|| format!("{PLUGIN} is not beside this program"))?;
        let output = |option| {
            let output = Command::new(&path).arg(option).stdin(Stdio::null()).output();
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
        };
        if !output("--help").contains("-plugin") {
            return Err(format!("{} loads no plugins", path.display()));
        }
        let version = output("--version").lines().next().unwrap_or_default().to_owned();
        Ok(Self { path, plugin, launch, version })
    }

    /// Whether the program runs on this host without QEMU.
    pub(super) fn is_native(&self) -> bool {
        self.launch.machine == if cfg!(target_arch = "aarch64") { AARCH64 } else { X86_64 }
    }

    /// The name and version, for the trace.
    pub(super) fn tool(&self) -> String {
        format!("{}, recorder plugin", self.version)
    }

    /// The command that runs the program, with its logs in `scratch`; 0 is no limit of accesses.
    pub(super) fn command(&self, scratch: &ScratchDir, max: u64) -> Result<Command, RecordError> {
        let total = scratch.file(TOTAL);
        let created = File::create(&total).and_then(|file| file.set_len(TOTAL_BYTES));
        created.map_err(|source| RecordError::Io { path: total, source })?;
        let mut plugin = quoted(self.plugin.as_os_str());
        plugin.push(",dir=");
        plugin.push(quoted(scratch.path().as_os_str()));
        plugin.push(format!(",max={max}"));
        let mut command = Command::new(&self.path);
        // The default processor lacks what the host has, such as AVX2, so libraries would choose
        // other code than natively.
        command.args(["-cpu", "max", "-s", &STACK_BYTES.to_string(), "-plugin"]).arg(plugin);
        command.args(self.launch.qemu_args());
        Ok(command)
    }
}

/// A value of an option of QEMU, in which a comma is doubled.
fn quoted(value: &OsStr) -> OsString {
    let mut bytes = Vec::new();
    for &byte in value.as_bytes() {
        bytes.push(byte);
        if byte == b',' {
            bytes.push(byte);
        }
    }
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}

/// Finds the plugin: beside the program, where a package has it, or where cargo builds it.
fn find_plugin() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let folder = program.parent()?;
    let folders = [folder.to_owned(), folder.join("deps"), folder.join("../deps"), folder.join("../lib/pagewright")];
    folders.iter().map(|folder| folder.join(PLUGIN)).find(|plugin| plugin.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugin_is_where_cargo_builds_it_and_commas_are_doubled() {
        assert!(find_plugin().is_some(), "the recorder is a dependency, so cargo has built it");
        assert_eq!(quoted(OsStr::new("/a,b")), "/a,,b");
    }

    #[test]
    fn a_program_of_no_known_machine_is_refused_with_the_reason() {
        let error = Qemu::find(Path::new("/etc/passwd"), "passwd", &[]).unwrap_err();
        assert_eq!(error, "the program is no 64-bit ELF file");
    }
}
