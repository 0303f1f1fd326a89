//! `cargo xtask kernel`: the kernel's image, as a loader wants it.
//!
//! `kernel/` is a workspace of its own and is built where it stands, because its linker flags are
//! in its `.cargo`. x86-64's image is the ELF file with its PVH note. arm64's is flat: QEMU passes
//! device tree and initramfs only to what has Linux's header.
//!
//! Not guaranteed: that it boots; [`crate::boot`] shows that.

use crate::cargo::{self, Workspace};
use crate::error::Error;
use crate::toolchain::{self, BareTarget};
use std::fs;
use std::path::{Path, PathBuf};

/// What an image can have beside the kernel: mistakes, of which `plant=NAME` on its command line
/// chooses one; and the oracle, which judges its counts.
const EXTRAS: [&str; 2] = ["planted", "oracle"];

/// Builds and prints the path of the image, which has these extras.
pub(crate) fn run(isa: &str, extras: &[&str]) -> Result<(), Error> {
    let target = match isa {
        "x86-64" => BareTarget::X86_64,
        "arm64" => BareTarget::Aarch64,
        other => return Err(Error::Usage(format!("kernel {other}"))),
    };
    if extras.iter().any(|extra| !EXTRAS.contains(extra)) {
        return Err(Error::Usage(format!("kernel {isa} {}", extras.join(" "))));
    }
    println!("{}", build(target, extras)?.display());
    Ok(())
}

/// Builds the image.
pub(crate) fn build(target: BareTarget, extras: &[&str]) -> Result<PathBuf, Error> {
    let workspace = Workspace::load()?;
    let toolchain = toolchain::probe(target)?;
    let folder = workspace.target_directory.join("kernel");
    let mut build = toolchain.cargo("build", target, &folder)?;
    build.args(["--release", "--locked", "--package", "pagewright-kernel"]);
    build.args(["--features", &extras.join(",")]);
    build.args(["--message-format", "json-render-diagnostics"]);
    let messages = cargo::output(build.current_dir(workspace.workspace_root.join("kernel")))?;
    let linked = executable(&messages)?;
    let name: String = EXTRAS.iter().filter(|extra| extras.contains(extra)).map(|extra| format!("-{extra}")).collect();
    let image = folder.join(format!("pagewright-{target}{name}"));
    let bytes = fs::read(&linked).map_err(Error::file(&linked))?;
    let bytes = match target {
        BareTarget::X86_64 => bytes,
        BareTarget::Aarch64 => flat(&bytes).ok_or(Error::NoImage(linked))?,
    };
    fs::write(&image, bytes).map_err(Error::file(&image))?;
    Ok(image)
}

/// The program among what cargo says that it has built.
fn executable(messages: &[u8]) -> Result<PathBuf, Error> {
    let lines = messages.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut found = None;
    for line in lines {
        let message: serde_json::Value = serde_json::from_slice(line)?;
        found = message["executable"].as_str().map(PathBuf::from).or(found);
    }
    found.ok_or_else(|| Error::NoImage(Path::new("kernel").to_owned()))
}

/// What an ELF file's segments put into memory, from the lowest physical address on.
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

    /// A file with two segments, the second at the lower address.
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
    fn segments_lie_at_their_distance_from_the_lowest() {
        assert_eq!(flat(&elf()), Some(vec![1, 2, 0, 0, 3, 4]));
        assert_eq!(flat(&elf()[..100]), None, "a header is cut off");
        assert_eq!(flat(b"text"), None);
    }
}
