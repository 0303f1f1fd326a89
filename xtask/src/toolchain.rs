//! The toolchains on this machine that build for bare metal.
//!
//! In order of preference: the running toolchain with the target (`rustup target add`), the running
//! toolchain with library source (`rust-src`), and Debian's toolchain with its source. The latter
//! two build `core` and `alloc` from source, which a stable compiler allows only with
//! `RUSTC_BOOTSTRAP=1`.
//!
//! Not guaranteed: that the output works. `cargo xtask boot` tests that.

use crate::cargo;
use crate::error::Error;
use pagewright_types::IsaKind;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The triple of rustc's bare-metal target for an instruction set.
///
/// On arm64 it has no floating point, because the kernel must preserve a program's registers.
pub(crate) const fn bare_triple(isa: IsaKind) -> &'static str {
    match isa {
        IsaKind::X86_64 => "x86_64-unknown-none",
        IsaKind::Aarch64 => "aarch64-unknown-none-softfloat",
    }
}

/// A way to build for a bare-metal target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Toolchain {
    /// The running toolchain, with the libraries of the target.
    Target,
    /// The running toolchain, with the source of the libraries.
    Source,
    /// Debian's toolchain, which is independent of rustup.
    Debian,
}

/// The oldest version 1.x that builds the kernel (`rust-version` in `kernel/Cargo.toml`).
const OLDEST: u32 = 91;
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
/// [`Error::NoBareMetal`], which names the packages to install, if there is none; [`Error::Spawn`],
/// if rustc does not run.
pub(crate) fn probe(target: IsaKind) -> Result<Toolchain, Error> {
    let sysroot = sysroot(&mut Command::new(rustc()))?;
    if library(&sysroot).join(bare_triple(target)).join("lib").is_dir() {
        return Ok(Toolchain::Target);
    }
    if has_source(&sysroot) {
        return Ok(Toolchain::Source);
    }
    let debian = Path::new(DEBIAN_CARGO).exists() && Path::new(DEBIAN_RUSTC).exists();
    if debian && is_new_enough(DEBIAN_RUSTC)? && has_source(&self::sysroot(&mut outside_rustup(DEBIAN_RUSTC))?) {
        return Ok(Toolchain::Debian);
    }
    Err(Error::NoBareMetal(target))
}

impl Toolchain {
    /// A call of this toolchain's `cargo subcommand` for `targets`; the caller adds the packages.
    ///
    /// It builds in a folder of its own in `target_directory`, because two compilers in one folder
    /// would rebuild each other's output.
    ///
    /// # Errors
    /// [`Error::Spawn`], if rustc does not run.
    pub(crate) fn cargo(
        &self,
        subcommand: &str,
        targets: &[IsaKind],
        target_directory: &Path,
    ) -> Result<Command, Error> {
        let (mut command, sysroot) = match self {
            Self::Target | Self::Source => (cargo::command(), sysroot(&mut Command::new(rustc()))?),
            Self::Debian => {
                let mut command = outside_rustup(DEBIAN_CARGO);
                command.env("RUSTC", DEBIAN_RUSTC);
                (command, sysroot(&mut outside_rustup(DEBIAN_RUSTC))?)
            }
        };
        // The user's flags, such as a CPU or a cfg, are for the host.
        command.env_remove("RUSTFLAGS").env("CARGO_TARGET_DIR", target_directory.join(self.folder()));
        command.arg(subcommand);
        for target in targets {
            command.args(["--target", bare_triple(*target)]);
        }
        match self {
            Self::Target => {}
            Self::Source | Self::Debian => {
                command
                    .env("RUSTC_BOOTSTRAP", "1")
                    .args(["-Zbuild-std=core,alloc,compiler_builtins", "-Zbuild-std-features=compiler-builtins-mem"]);
            }
        }
        // The bare-metal targets link with rust-lld, which Debian's toolchain lacks.
        if !has_linker(&sysroot) {
            for target in targets {
                let variable = bare_triple(*target).to_uppercase().replace('-', "_");
                command.env(format!("CARGO_TARGET_{variable}_LINKER"), "ld.lld");
            }
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

/// A call of a program without the variables of rustup and of the outer cargo.
fn outside_rustup(program: &str) -> Command {
    let mut command = Command::new(program);
    for (variable, _) in std::env::vars_os() {
        let is_removed = |name: &str| {
            (name.starts_with("CARGO") && name != "CARGO_HOME") || name.starts_with("RUST") || name == "__CARGO_FIX_PLZ"
        };
        if variable.to_str().is_some_and(is_removed) {
            command.env_remove(variable);
        }
    }
    command
}

/// Whether a compiler outside rustup builds the kernel.
fn is_new_enough(rustc: &str) -> Result<bool, Error> {
    let printed = cargo::output(outside_rustup(rustc).arg("--version"))?;
    Ok(minor_version(&String::from_utf8_lossy(&printed)).is_some_and(|minor| minor >= OLDEST))
}

/// The `x` in `rustc 1.x.y`.
fn minor_version(printed: &str) -> Option<u32> {
    printed.strip_prefix("rustc 1.")?.split('.').next()?.parse().ok()
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

/// Whether a host folder of the sysroot has `bin/rust-lld`.
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
    fn the_oldest_version_is_that_of_the_kernel() {
        assert_eq!(minor_version("rustc 1.85.0 (4d91de4e4 2025-02-17) (built from a source tarball)\n"), Some(85));
        assert_eq!(minor_version("cargo 1.85.0"), None);
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel/Cargo.toml");
        let manifest = std::fs::read_to_string(manifest).expect("the kernel's manifest");
        assert!(manifest.contains(&format!("\nrust-version = \"1.{OLDEST}\"\n")), "{manifest}");
    }

    #[test]
    fn source_and_linker_are_found_in_a_sysroot() {
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
    fn only_a_toolchain_without_the_target_builds_the_libraries() {
        let folder = Path::new("/somewhere");
        for (toolchain, builds) in [(Toolchain::Target, false), (Toolchain::Source, true)] {
            let command =
                toolchain.cargo("build", &[IsaKind::Aarch64], folder).expect("rustc runs, since it built this");
            assert_eq!(environment(&command, "RUSTC_BOOTSTRAP").is_some(), builds);
            assert_eq!(command.get_args().any(|word| word.to_string_lossy().starts_with("-Zbuild-std=")), builds);
            let into = environment(&command, "CARGO_TARGET_DIR").expect("a folder of its own");
            assert!(into.starts_with("/somewhere/"));
        }
    }
}
