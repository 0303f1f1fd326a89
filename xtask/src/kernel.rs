//! `cargo xtask kernel`: builds the kernel's image in the form that the loader needs.
//!
//! `kernel/` is a workspace of its own, and cargo runs in it, because its `.cargo` has the linker
//! flags. The image for x86-64 is the ELF file with its PVH note. The image for arm64 is flat with
//! Linux's header, because QEMU passes the device tree and the initramfs only to such an image.
//!
//! Not guaranteed: that the image boots. [`crate::boot`] tests that.

use crate::cargo::{self, Workspace};
use crate::error::Error;
use crate::toolchain::{self, Toolchain, bare_triple};
use pagewright_types::IsaKind;
use std::fs;
use std::path::{Path, PathBuf};

/// The optional features of an image.
///
/// `planted`: bugs, one of which `plant=NAME` on the kernel's command line chooses. `oracle`: the
/// judge of its counts.
const FEATURES: [&str; 2] = ["planted", "oracle"];

/// How a kernel is optimised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Profile {
    /// As it is shipped and measured.
    Release,
    /// For tests of what it does: it builds in two thirds of the time.
    Boot,
}

impl Profile {
    const fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Boot => "boot",
        }
    }

    /// The compiler's flags beside those of `kernel/.cargo/config.toml`.
    ///
    /// With LLVM's default threshold (225) a page fault is a chain of a dozen functions, and about
    /// a tenth of its instructions move values between them.
    ///
    /// On arm64, plain accesses need no alignment: all memory is Normal and SCTLR_EL1.A is clear
    /// before any Rust code runs, and device registers are accessed as volatile words. With the
    /// target's default, each move of more than 32 bytes is a call of `memcpy`. rustc does not know
    /// this LLVM feature and warns, so warnings are off there; the other builds have them.
    const fn flags(self, target: IsaKind) -> &'static [&'static str] {
        match (self, target) {
            (Self::Release, IsaKind::X86_64) => &["-Cllvm-args=-inline-threshold=500"],
            (Self::Release, IsaKind::Aarch64) => {
                &["-Cllvm-args=-inline-threshold=500", "-Ctarget-feature=-strict-align", "-Awarnings"]
            }
            (Self::Boot, _) => &[],
        }
    }
}

/// Builds the image with these features, and prints its path.
pub(crate) fn run(isa: &str, features: &[&str]) -> Result<(), Error> {
    let target = IsaKind::ALL.into_iter().find(|known| known.name() == isa);
    let target = target.ok_or_else(|| Error::Usage(format!("kernel {isa}")))?;
    if features.iter().any(|feature| !FEATURES.contains(feature)) {
        return Err(Error::Usage(format!("kernel {isa} {}", features.join(" "))));
    }
    println!("{}", build(target, features)?.display());
    Ok(())
}

/// Builds the image and returns its path.
pub(crate) fn build(target: IsaKind, features: &[&str]) -> Result<PathBuf, Error> {
    build_for(&toolchain::probe(target)?, &[target], features, Profile::Release)?.pop().ok_or_else(no_image)
}

/// Builds the images that tests boot, for `targets` concurrently.
///
/// Their paths have the same order.
/// Targets that need different toolchains are built one after the other.
pub(crate) fn build_for_boots(targets: &[IsaKind], features: &[&str]) -> Result<Vec<PathBuf>, Error> {
    let toolchains = targets.iter().map(|target| toolchain::probe(*target)).collect::<Result<Vec<_>, _>>()?;
    match toolchains.first() {
        Some(first) if toolchains.iter().all(|other| other == first) => {
            build_for(first, targets, features, Profile::Boot)
        }
        _ => {
            let each = toolchains.iter().zip(targets.chunks(1));
            let built = each.map(|(toolchain, target)| build_for(toolchain, target, features, Profile::Boot));
            Ok(built.collect::<Result<Vec<_>, _>>()?.concat())
        }
    }
}

/// Builds the kernel and returns the path of the linked file, which has the names of functions.
pub(crate) fn link(target: IsaKind) -> Result<PathBuf, Error> {
    let folder = Workspace::load()?.target_directory.join("kernel");
    link_for(&toolchain::probe(target)?, &[target], &[], (&folder, Profile::Release))?.pop().ok_or_else(no_image)
}

/// Builds for several targets, and returns the paths of the linked files.
fn link_for(
    toolchain: &Toolchain,
    targets: &[IsaKind],
    features: &[&str],
    (folder, profile): (&Path, Profile),
) -> Result<Vec<PathBuf>, Error> {
    let workspace = Workspace::load()?;
    let mut build = toolchain.cargo("build", targets, folder)?;
    build.args(["--profile", profile.name(), "--locked", "--package", "pagewright-kernel"]);
    for target in targets {
        // Cargo appends them to those of its configuration.
        build.arg("--config").arg(format!("target.{}.rustflags={:?}", bare_triple(*target), profile.flags(*target)));
    }
    build.args(["--features", &features.join(",")]);
    build.args(["--message-format", "json-render-diagnostics"]);
    let messages = cargo::output(build.current_dir(workspace.workspace_root.join("kernel")))?;
    executables(&messages)
}

fn build_for(
    toolchain: &Toolchain,
    targets: &[IsaKind],
    features: &[&str],
    profile: Profile,
) -> Result<Vec<PathBuf>, Error> {
    let folder = Workspace::load()?.target_directory.join("kernel");
    let linked = link_for(toolchain, targets, features, (&folder, profile))?;
    let mut name: String =
        FEATURES.iter().filter(|feature| features.contains(feature)).map(|feature| format!("-{feature}")).collect();
    if profile == Profile::Boot {
        name.push_str("-boot");
    }
    let image = |target: &IsaKind| {
        let of_target = |path: &&PathBuf| path.iter().any(|part| part == bare_triple(*target));
        let linked = linked.iter().find(of_target).ok_or_else(no_image)?;
        let image = folder.join(format!("pagewright-{}{name}", bare_triple(*target)));
        let bytes = fs::read(linked).map_err(Error::file(linked))?;
        let bytes = match target {
            IsaKind::X86_64 => bytes,
            IsaKind::Aarch64 => flat(&bytes).ok_or_else(|| Error::NoImage(linked.clone()))?,
        };
        fs::write(&image, bytes).map_err(Error::file(&image))?;
        Ok(image)
    };
    targets.iter().map(image).collect()
}

fn no_image() -> Error {
    Error::NoImage(Path::new("kernel").to_owned())
}

/// The executables among cargo's messages.
fn executables(messages: &[u8]) -> Result<Vec<PathBuf>, Error> {
    let lines = messages.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut found = Vec::new();
    for line in lines {
        let message: serde_json::Value = serde_json::from_slice(line)?;
        found.extend(message["executable"].as_str().map(PathBuf::from));
    }
    Ok(found)
}

/// The memory image of an ELF file's segments, from the lowest physical address.
fn flat(elf: &[u8]) -> Option<Vec<u8>> {
    const LOAD: u64 = 1;
    let number = |at: usize, len: usize| {
        let bytes = elf.get(at..at + len)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    let headers = number(32, 8)? as usize;
    let (size, count) = (number(54, 2)? as usize, number(56, 2)? as usize);
    let mut segments = Vec::new();
    for header in (0..count).map(|index| headers + index * size) {
        if number(header, 4)? == LOAD {
            let (offset, len) = (number(header + 8, 8)? as usize, number(header + 32, 8)? as usize);
            segments.push((number(header + 24, 8)?, elf.get(offset..offset + len)?));
        }
    }
    let lowest = segments.iter().map(|(address, _)| *address).min()?;
    let mut image = Vec::new();
    for (address, bytes) in segments {
        let start = (address - lowest) as usize;
        image.resize(image.len().max(start + bytes.len()), 0);
        image[start..start + bytes.len()].copy_from_slice(bytes);
    }
    Some(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with two segments, the second at the lower address.
    fn elf() -> Vec<u8> {
        let mut elf = vec![0; 64 + 2 * 56];
        elf[32] = 64;
        elf[54] = 56;
        elf[56] = 2;
        for (index, (address, bytes)) in [(0x1004_u64, [3, 4]), (0x1000, [1, 2])].into_iter().enumerate() {
            let header = 64 + index * 56;
            let offset = elf.len() as u64;
            elf[header] = 1;
            elf[header + 8..header + 16].copy_from_slice(&offset.to_le_bytes());
            elf[header + 24..header + 32].copy_from_slice(&address.to_le_bytes());
            elf[header + 32] = 2;
            elf.extend(bytes);
        }
        elf
    }

    #[test]
    fn segments_keep_their_distance_from_the_lowest_address() {
        assert_eq!(flat(&elf()), Some(vec![1, 2, 0, 0, 3, 4]));
        assert_eq!(flat(&elf()[..100]), None, "a program header is truncated");
        assert_eq!(flat(b"text"), None);
    }
}
