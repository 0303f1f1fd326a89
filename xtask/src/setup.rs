//! `cargo xtask setup`: what the other tasks need from the system.
//!
//! Installs on Debian as root, names the packages elsewhere. What is there already is left alone.

use crate::cargo;
use crate::error::Error;
use crate::toolchain::{self, BareTarget};
use std::fmt;
use std::path::Path;
use std::process::Command;

/// What builds for bare metal where rustup has no target for it: a toolchain with library source, and a linker.
pub(crate) const BARE_METAL: [&str; 4] = ["rustc-web", "cargo-web", "rust-web-src", "lld"];
/// Programs, and the packages that have them: what records captures; what boots the kernel; what compiles the programs that it runs.
const PROGRAMS: [(&str, &str); 6] = [
    ("valgrind", "valgrind"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("qemu-system-aarch64", "qemu-system-arm"),
    ("gcc", "gcc"),
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ("busybox", "busybox-static"),
];
/// What comes without a program on the path: the static C library for arm64.
const ARM_LIBC: (&str, &str) = ("/usr/aarch64-linux-gnu/lib/libc.a", "libc6-dev-arm64-cross");

/// Why packages are not installed from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The system has no apt.
    NotDebian,
    /// The user may not install.
    NotRoot,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotDebian => "this is not Debian; the names are Debian's",
            Self::NotRoot => "only root may install",
        })
    }
}

/// Installs what is missing, or says what it is.
pub(crate) fn run() -> Result<(), Error> {
    let packages = missing();
    if packages.is_empty() {
        println!("setup: nothing is missing");
        return Ok(());
    }
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

pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
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
    fn programs_are_looked_for_on_the_path() {
        assert!(on_path("sh"));
        assert!(!on_path("no-program-has-this-name"));
    }
}
