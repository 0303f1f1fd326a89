//! Who on this machine can build for bare metal.
//!
//! First hit wins: the target of the running toolchain (`rustup target add`), its source
//! (`rust-src`), Debian's toolchain with its source. The two latter build `core` and `alloc`
//! themselves, which a stable compiler allows only under `RUSTC_BOOTSTRAP=1`.
//!
//! Not guaranteed: that what was built works; whether the kernel does is shown by booting it.

use crate::cargo;
use crate::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A target without an operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BareTarget {
    /// x86-64.
    X86_64,
    /// arm64, without floating point: a kernel must not touch a program's registers.
    Aarch64,
}

impl BareTarget {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// The name by which rustc knows it.
    pub(crate) const fn triple(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-none",
            Self::Aarch64 => "aarch64-unknown-none-softfloat",
        }
    }
}

impl fmt::Display for BareTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.triple())
    }
}

/// A way to build for a bare-metal target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Toolchain {
    /// The running one, which has the target's libraries.
    Target,
    /// The running one, which has the source of the libraries.
    Source,
    /// Debian's, which lives beside a rustup that knows nothing of it.
    Debian,
}

const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Target => "the toolchain's own libraries",
            Self::Source => "the toolchain's library source",
            Self::Debian => "Debian's toolchain and library source",
        })
    }
}

/// Finds a toolchain for `target`.
///
/// # Errors
/// [`Error::NoBareMetal`], which names the fix, when there is none; [`Error::Spawn`] when the
/// running toolchain does not run.
pub(crate) fn probe(target: BareTarget) -> Result<Toolchain, Error> {
    let sysroot = sysroot(&mut Command::new(rustc()))?;
    if library(&sysroot).join(target.triple()).join("lib").is_dir() {
        return Ok(Toolchain::Target);
    }
    if has_source(&sysroot) {
        return Ok(Toolchain::Source);
    }
    let debian = Path::new(DEBIAN_CARGO).exists() && Path::new(DEBIAN_RUSTC).exists();
    if debian && has_source(&self::sysroot(&mut on_its_own(DEBIAN_RUSTC))?) {
        return Ok(Toolchain::Debian);
    }
    Err(Error::NoBareMetal(target))
}

impl Toolchain {
    /// This toolchain's `cargo subcommand`, set up for `target` below `target_directory`; what is
    /// missing are the packages. The directory must be one of its own: two compilers in one would
    /// rebuild each other's work.
    ///
    /// # Errors
    /// [`Error::Spawn`] when the toolchain does not run.
    pub(crate) fn cargo(
        &self,
        subcommand: &str,
        target: BareTarget,
        target_directory: &Path,
    ) -> Result<Command, Error> {
        let (mut command, sysroot) = match self {
            Self::Target | Self::Source => (cargo::command(), sysroot(&mut Command::new(rustc()))?),
            Self::Debian => {
                let mut command = on_its_own(DEBIAN_CARGO);
                command.env("RUSTC", DEBIAN_RUSTC);
                (command, sysroot(&mut on_its_own(DEBIAN_RUSTC))?)
            }
        };
        // Flags meant for the host (a CPU, a cfg) do not fit bare metal.
        command.env_remove("RUSTFLAGS").env("CARGO_TARGET_DIR", target_directory.join(self.folder()));
        command.args([subcommand, "--target", target.triple()]);
        match self {
            Self::Target => {}
            Self::Source | Self::Debian => {
                command
                    .env("RUSTC_BOOTSTRAP", "1")
                    .args(["-Zbuild-std=core,alloc,compiler_builtins", "-Zbuild-std-features=compiler-builtins-mem"]);
            }
        }
        // The bare-metal targets name rust-lld, which Debian's toolchain does not bring.
        if !has_linker(&sysroot) {
            let variable = target.triple().to_uppercase().replace('-', "_");
            command.env(format!("CARGO_TARGET_{variable}_LINKER"), "ld.lld");
        }
        Ok(command)
    }

    const fn folder(&self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Source => "source",
            Self::Debian => "debian",
        }
    }
}

fn rustc() -> std::ffi::OsString {
    std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())
}

/// A program outside rustup: without the variables by which rustup and the outer cargo would steer
/// it.
fn on_its_own(program: &str) -> Command {
    let mut command = Command::new(program);
    for (variable, _) in std::env::vars_os() {
        let steers = |name: &str| {
            (name.starts_with("CARGO") && name != "CARGO_HOME") || name.starts_with("RUST") || name == "__CARGO_FIX_PLZ"
        };
        if variable.to_str().is_some_and(steers) {
            command.env_remove(variable);
        }
    }
    command
}

fn sysroot(rustc: &mut Command) -> Result<PathBuf, Error> {
    let output = cargo::output(rustc.args(["--print", "sysroot"]))?;
    Ok(PathBuf::from(String::from_utf8_lossy(&output).trim()))
}

fn library(sysroot: &Path) -> PathBuf {
    sysroot.join("lib/rustlib")
}

fn has_source(sysroot: &Path) -> bool {
    library(sysroot).join("src/rust/library/core/src/lib.rs").exists()
}

/// Whether some host folder of the sysroot has `bin/rust-lld`.
fn has_linker(sysroot: &Path) -> bool {
    let Ok(folders) = std::fs::read_dir(library(sysroot)) else { return false };
    folders.flatten().any(|folder| folder.path().join("bin/rust-lld").exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(command: &Command, name: &str) -> Option<String> {
        let (_, value) = command.get_envs().find(|(key, _)| *key == name)?;
        value.map(|value| value.to_string_lossy().into_owned())
    }

    #[test]
    fn a_sysroot_is_judged_by_what_lies_in_it() {
        let root = std::env::temp_dir().join(format!("pagewright-sysroot-{}", std::process::id()));
        let core = root.join("lib/rustlib/src/rust/library/core/src");
        std::fs::create_dir_all(&core).expect("a temporary folder");
        assert!(!has_source(&root) && !has_linker(&root));
        std::fs::write(core.join("lib.rs"), "").expect("a file");
        assert!(has_source(&root));
        let host = root.join("lib/rustlib/some-host/bin");
        std::fs::create_dir_all(&host).expect("a folder");
        std::fs::write(host.join("rust-lld"), "").expect("a file");
        assert!(has_linker(&root));
        std::fs::remove_dir_all(root).expect("to be removed");
    }

    #[test]
    fn only_those_that_lack_the_libraries_build_them() {
        let folder = Path::new("/somewhere");
        for (toolchain, builds) in [(Toolchain::Target, false), (Toolchain::Source, true)] {
            let command =
                toolchain.cargo("build", BareTarget::Aarch64, folder).expect("rustc runs, since it built this");
            assert_eq!(environment(&command, "RUSTC_BOOTSTRAP").is_some(), builds);
            assert_eq!(command.get_args().any(|word| word.to_string_lossy().starts_with("-Zbuild-std=")), builds);
            let into = environment(&command, "CARGO_TARGET_DIR").expect("a folder of its own");
            assert!(into.starts_with("/somewhere/"));
        }
    }
}
