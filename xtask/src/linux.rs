//! Debian's Linux for cloud machines, the smaller one, and its modules for swap on zram.
//!
//! `pagewright boot` boots it as it boots Pagewright's kernel, with `kernel/programs/init.c` as
//! init.
//!
//! Not guaranteed: a fixed version. Each run uses the newest kernel of a release.

use crate::boot::cases::Swap;
use crate::cargo::Workspace;
use crate::debian::Archive;
use crate::error::Error;
use pagewright_types::IsaKind;
use std::fs;
use std::path::{Path, PathBuf};

/// The kernel command line: a serial console that shows only the output of the program.
const WORDS: &str = "console=ttyS0 console=ttyAMA0 quiet loglevel=0 rdinit=/init";
/// The modules that zram needs, dependencies first.
///
/// `lz4` is the compressor for versions of zram that use the crypto interface.
const MODULES: [&str; 5] = ["zsmalloc", "lz4_compress", "lz4hc_compress", "lz4", "zram"];

/// A Linux kernel.
pub(crate) struct Linux {
    /// The name of its Debian package.
    pub(crate) package: String,
    image: PathBuf,
    modules: Vec<PathBuf>,
}

impl Linux {
    /// Downloads the newest kernel of a version, such as `6.1`, from a release of Debian.
    ///
    /// Without a `suite`, from the release of the system's apt sources.
    ///
    /// # Errors
    /// As [`Archive::fetch`] and [`Archive::dependency`].
    pub(crate) fn fetch(
        workspace: &Workspace,
        target: IsaKind,
        suite: Option<&str>,
        version: &str,
    ) -> Result<Self, Error> {
        let architecture = match target {
            IsaKind::X86_64 => "amd64",
            IsaKind::Aarch64 => "arm64",
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

    /// The arguments of `pagewright boot` for this kernel.
    ///
    /// With a swap device, the initramfs has the modules of zram, which init loads in the order of
    /// their names. Linux passes unknown words of the command line to init as its environment.
    ///
    /// `words` are further words of its command line.
    pub(crate) fn arguments(&self, init: &Path, swap: Swap, words: &str) -> Vec<String> {
        let swap_to = if matches!(swap, Swap::On(_)) { "swap_to=zram0" } else { "" };
        let words = format!("{WORDS} {swap_to} {words}");
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

/// A file in the tree of `folder` whose name starts with `prefix`.
fn found(folder: &Path, prefix: &str) -> Option<PathBuf> {
    fs::read_dir(folder).ok()?.flatten().find_map(|entry| {
        let (path, name) = (entry.path(), entry.file_name());
        match path.is_dir() {
            true => found(&path, prefix),
            false => name.to_string_lossy().starts_with(prefix).then_some(path),
        }
    })
}
