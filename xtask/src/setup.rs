//! `cargo xtask setup`: installs the packages that the other tasks need.
//!
//! It installs missing packages on Debian as root, and otherwise names them. `cargo xtask test`
//! does the same first.

use crate::cargo::{self, Workspace};
use crate::debian::Archive;
use crate::error::Error;
use crate::toolchain;
use pagewright_types::IsaKind;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages of a toolchain with library source and of a linker.
///
/// They build for bare metal if rustup has no such target.
pub(crate) const BARE_METAL: [&str; 4] = ["rustc-web", "cargo-web", "rust-web-src", "lld"];
/// Programs, and their packages.
///
/// They record captures, boot the kernel, compile the programs that run on it, and show pages.
const PROGRAMS: [(&str, &str); 8] = [
    ("valgrind", "valgrind"),
    ("qemu-x86_64", "qemu-user"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("qemu-system-aarch64", "qemu-system-arm"),
    ("gcc", "gcc"),
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ("busybox", "busybox-static"),
    ("chromium", "chromium"),
];
/// The static C library for arm64, and its package.
const ARM_LIBC: (&str, &str) = ("/usr/aarch64-linux-gnu/lib/libc.a", "libc6-dev-arm64-cross");
/// busybox for arm64, which is extracted from its package: the host's own is installed.
const ARM_BUSYBOX: (&str, &str, &str) = ("arm64", "busybox-static", "bin/busybox");

/// Why packages are still missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The system has no apt.
    NotDebian,
    /// The user is not root.
    NotRoot,
    /// apt failed.
    Apt,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotDebian => "this is not Debian; the names are those of Debian",
            Self::NotRoot => "only root can install packages",
            Self::Apt => "apt could not install them, or has only older versions (the kernel needs Rust 1.91, which Debian 12 has in its security updates)",
        })
    }
}

/// Installs what is missing.
///
/// # Errors
/// [`Error::InstallByHand`] with everything that is still missing.
pub(crate) fn run() -> Result<(), Error> {
    let workspace = Workspace::load()?;
    let why = refusal();
    let packages = missing_packages();
    if why.is_none() && !packages.is_empty() {
        println!("setup: installing {}", packages.join(" "));
        // apt prints its own error, and what is still missing is named below.
        let _ = apt(&["update"])
            .and_then(|()| apt(&[&["install", "--yes", "--no-install-recommends"][..], &packages].concat()));
    }
    if arm_busybox(&workspace).is_none() {
        let (architecture, package, file) = ARM_BUSYBOX;
        println!("setup: fetching {package} for {architecture}");
        let archive = Archive { workspace: &workspace, architecture, suite: None };
        if let Err(error) = archive.fetch(package, &[&format!("./{file}")]) {
            println!("setup: cannot fetch {package} for {architecture}: {error}");
        }
    }
    let missing = missing(&workspace);
    if missing.is_empty() {
        println!("setup: nothing is missing");
        return Ok(());
    }
    Err(Error::InstallByHand { packages: missing, why: why.unwrap_or(Refusal::Apt) })
}

/// The path of busybox for arm64, if it was fetched.
pub(crate) fn arm_busybox(workspace: &Workspace) -> Option<PathBuf> {
    let (architecture, package, file) = ARM_BUSYBOX;
    let archive = Archive { workspace, architecture, suite: None };
    Some(archive.place(package).join(file)).filter(|file| file.exists())
}

/// Runs `apt-get` with `words`.
fn apt(words: &[&str]) -> Result<(), Error> {
    cargo::status(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet=2").args(words))
}

/// What is missing, in Debian's names of packages.
fn missing(workspace: &Workspace) -> Vec<String> {
    let mut missing: Vec<_> = missing_packages().into_iter().map(str::to_owned).collect();
    if arm_busybox(workspace).is_none() {
        let (architecture, package, _) = ARM_BUSYBOX;
        missing.push(format!("{package}:{architecture}"));
    }
    missing
}

/// The missing packages of this machine's architecture.
fn missing_packages() -> Vec<&'static str> {
    let mut packages = Vec::new();
    if IsaKind::ALL.into_iter().any(|target| toolchain::probe(target).is_err()) {
        packages.extend(BARE_METAL);
    }
    packages.extend(PROGRAMS.into_iter().filter(|(program, _)| !on_path(program)).map(|(_, package)| package));
    if !Path::new(ARM_LIBC.0).exists() {
        packages.push(ARM_LIBC.1);
    }
    packages
}

/// Whether a program is on the path.
pub(crate) fn on_path(program: &str) -> bool {
    self::program(program).is_some()
}

/// The path of a program of this system.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn refusal() -> Option<Refusal> {
    if !Path::new("/etc/debian_version").exists() || !on_path("apt-get") {
        Some(Refusal::NotDebian)
    } else if !nix::unistd::geteuid().is_root() {
        Some(Refusal::NotRoot)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_searched_on_the_path() {
        assert!(on_path("sh"));
        assert!(!on_path("no-program-has-this-name"));
    }
}
