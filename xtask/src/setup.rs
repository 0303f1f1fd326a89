//! `cargo xtask setup`: installs the packages that the other tasks need.
//!
//! It installs missing packages on Debian as root, and otherwise names them.

use crate::cargo::{self, Workspace};
use crate::debian::Archive;
use crate::error::Error;
use crate::toolchain::{self, BareTarget};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages of a toolchain with library source and of a linker.
///
/// They build for bare metal if rustup has no such target.
pub(crate) const BARE_METAL: [&str; 4] = ["rustc-web", "cargo-web", "rust-web-src", "lld"];
/// Programs, and their packages.
///
/// They record captures, boot the kernel, and compile the programs that run on it.
const PROGRAMS: [(&str, &str); 6] = [
    ("valgrind", "valgrind"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("qemu-system-aarch64", "qemu-system-arm"),
    ("gcc", "gcc"),
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ("busybox", "busybox-static"),
];
/// The static C library for arm64, and its package.
const ARM_LIBC: (&str, &str) = ("/usr/aarch64-linux-gnu/lib/libc.a", "libc6-dev-arm64-cross");
/// busybox for arm64, which is extracted from its package: the host's own is installed.
const ARM_BUSYBOX: (&str, &str, &str) = ("arm64", "busybox-static", "bin/busybox");

/// Why this task cannot install packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The system has no apt.
    NotDebian,
    /// The user is not root.
    NotRoot,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotDebian => "this is not Debian; the names are those of Debian",
            Self::NotRoot => "only root can install packages",
        })
    }
}

/// Installs the missing packages, or returns an error that names them.
pub(crate) fn run() -> Result<(), Error> {
    let packages = missing();
    if packages.is_empty() {
        println!("setup: no package is missing");
    } else {
        install(packages)?;
    }
    let workspace = Workspace::load()?;
    if arm_busybox(&workspace).is_none() {
        let (architecture, package, file) = ARM_BUSYBOX;
        println!("setup: fetching {package} for {architecture}");
        let archive = Archive { workspace: &workspace, architecture, suite: None };
        // Not an error: `boot` then skips the programs of busybox on arm64, and prints that.
        if let Err(error) = archive.fetch(package, &[&format!("./{file}")]) {
            println!("setup: cannot fetch {package} for {architecture}: {error}");
        }
    }
    Ok(())
}

/// The path of busybox for arm64, if it was fetched.
pub(crate) fn arm_busybox(workspace: &Workspace) -> Option<PathBuf> {
    let (architecture, package, file) = ARM_BUSYBOX;
    let archive = Archive { workspace, architecture, suite: None };
    Some(archive.place(package).join(file)).filter(|file| file.exists())
}

fn install(packages: Vec<&'static str>) -> Result<(), Error> {
    if let Some(why) = refusal() {
        return Err(Error::InstallByHand { packages, why });
    }
    println!("setup: installing {}", packages.join(" "));
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet=2");
        apt
    };
    cargo::status(apt().arg("update"))?;
    cargo::status(apt().args(["install", "--yes", "--no-install-recommends"]).args(packages))
}

fn missing() -> Vec<&'static str> {
    let mut packages = Vec::new();
    if BareTarget::ALL.into_iter().any(|target| toolchain::probe(target).is_err()) {
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
