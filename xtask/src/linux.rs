//! Debian's Linux for machines in a cloud, the smaller one, and what it needs to swap to zram.
//!
//! It is booted by `pagewright boot` as our own kernel is, with `kernel/programs/init.c` as its
//! first program.
//!
//! Not guaranteed: the same version each time; a release's newest is taken.

use crate::boot::cases::Swap;
use crate::cargo::Workspace;
use crate::debian::Archive;
use crate::error::Error;
use crate::toolchain::BareTarget;
use std::fs;
use std::path::{Path, PathBuf};

/// Words for Linux: the serial line, and nothing on it that the program didn't print.
const WORDS: &str = "console=ttyS0 console=ttyAMA0 quiet loglevel=0 rdinit=/init";
/// What zram needs, in the order of dependence.
///
/// Where it compresses by the kernel's crypto interface, that is `lz4`.
const MODULES: [&str; 5] = ["zsmalloc", "lz4_compress", "lz4hc_compress", "lz4", "zram"];

/// A Linux.
pub(crate) struct Linux {
    /// Debian's name for it.
    pub(crate) package: String,
    image: PathBuf,
    modules: Vec<PathBuf>,
}

impl Linux {
    /// The newest of a version, such as `6.1`, from a release of Debian or the one that runs here.
    ///
    /// # Errors
    /// As of [`Archive::fetch`] and [`Archive::dependency`].
    pub(crate) fn fetch(
        workspace: &Workspace,
        target: BareTarget,
        suite: Option<&str>,
        version: &str,
    ) -> Result<Self, Error> {
        let architecture = match target {
            BareTarget::X86_64 => "amd64",
            BareTarget::Aarch64 => "arm64",
        };
        let archive = Archive { workspace, architecture, suite };
        let newest = format!("linux-image-cloud-{architecture}");
        let package = archive.dependency(&newest, &format!("linux-image-{version}."))?;
        let patterns = MODULES.map(|module| format!("*/{module}.ko*"));
        let patterns: Vec<&str> = patterns.iter().map(String::as_str).chain(["./boot/vmlinuz-*"]).collect();
        let folder = archive.fetch(&package, &patterns)?;
        let named = |name: &str| found(&folder, name).ok_or_else(|| Error::NoPackage(format!("{package}: {name}")));
        let modules = MODULES.iter().map(|module| named(&format!("{module}.ko"))).collect::<Result<_, _>>()?;
        Ok(Self { image: named("vmlinuz-")?, package, modules })
    }

    /// What `pagewright boot` is told.
    ///
    /// Where there is something to swap to, its first program finds what zram needs, in the order
    /// of names; words that Linux does not know are that program's environment.
    pub(crate) fn arguments(&self, init: &Path, swap: Swap) -> Vec<String> {
        let words = if matches!(swap, Swap::On(_)) { format!("{WORDS} swap_to=zram0") } else { WORDS.to_owned() };
        let mut arguments = vec!["--append".to_owned(), words];
        let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        option("--kernel", self.image.display().to_string());
        option("--file", format!("{}=/init", init.display()));
        for (index, module) in self.modules.iter().enumerate().filter(|_| swap != Swap::Nothing) {
            let name = module.file_name().unwrap_or_default().to_string_lossy();
            option("--file", format!("{}=/modules/{index}-{name}", module.display()));
        }
        arguments
    }
}

/// The file below `folder` whose name begins so.
fn found(folder: &Path, prefix: &str) -> Option<PathBuf> {
    fs::read_dir(folder).ok()?.flatten().find_map(|entry| {
        let (path, name) = (entry.path(), entry.file_name());
        match path.is_dir() {
            true => found(&path, prefix),
            false => name.to_string_lossy().starts_with(prefix).then_some(path),
        }
    })
}
