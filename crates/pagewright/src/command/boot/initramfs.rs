//! Packs the initramfs, a cpio archive in the "newc" format.
//!
//! The format is in Linux's `Documentation/driver-api/early-userspace/buffer-format.rst`.

use super::{Args, BootError, library, program};
use pagewright_types::IsaKind;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_755;
const ALIGN: usize = 4;

#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    directories: BTreeSet<String>,
    files: BTreeSet<String>,
}

impl Archive {
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGN), 0);
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) {
        self.entries += 1;
        // ino, mode, uid, gid, nlink, mtime, filesize, maj, min, rmaj, rmin, namesize with the
        // terminating zero, chksum.
        let fields = [self.entries, mode, 0, 0, 1, 0, data.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08X}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(data);
        self.pad();
    }

    /// Adds a file and the directories above it.
    fn file(&mut self, path: &str, data: &[u8]) {
        let path = path.trim_start_matches('/');
        for (end, _) in path.match_indices('/') {
            if self.directories.insert(path[..end].to_owned()) {
                self.entry(&path[..end], DIRECTORY, &[]);
            }
        }
        self.files.insert(path.to_owned());
        self.entry(path, FILE, data);
    }

    /// Adds the libraries that a program needs, unless they were added before.
    fn needed(&mut self, args: &Args, isa: IsaKind, path: &str, data: &[u8]) -> Result<(), BootError> {
        let root = args.sysroot.clone().unwrap_or_else(|| library::default_root(isa));
        for file in library::needed(path, data, isa, &root)? {
            if !self.files.contains(file.path.trim_start_matches('/')) {
                self.file(&file.path, &file.data);
            }
        }
        Ok(())
    }
}

/// The path on this computer of a file that `--file` gives.
pub(super) fn host_path(file: &str) -> &Path {
    Path::new(file.split_once('=').map_or(file, |(host, _)| host))
}

/// The path in the machine of a file whose option gives none.
fn default_path(file: &Path) -> String {
    format!("/bin/{}", file.file_name().unwrap_or_default().to_string_lossy())
}

/// Packs the program `given` and the files of `--file`, with the libraries that they need.
///
/// Returns the path of the archive, which is in `folder`, and the path of the program in the
/// machine.
///
/// # Errors
/// [`BootError`], including for a program that the kernel cannot run. Programs for a kernel given
/// by `--kernel` are not checked.
pub(super) fn pack(args: &Args, given: &str, isa: IsaKind, folder: &Path) -> Result<(PathBuf, String), BootError> {
    let mut archive = Archive::default();
    let add = |archive: &mut Archive, file: &Path, path: &str| {
        let data = std::fs::read(file).map_err(BootError::file(file))?;
        archive.file(path, &data);
        Ok(data)
    };
    for file in &args.file {
        let host = host_path(file);
        let path = file.split_once('=').map_or_else(|| default_path(host), |(_, path)| path.to_owned());
        let data = add(&mut archive, host, &path)?;
        if args.kernel.is_none() && path == given {
            program::check(&path, &data, isa)?;
        }
        archive.needed(args, isa, &path, &data)?;
    }
    let host = Path::new(given);
    // A path that `--file` gives takes precedence over the same path on this computer.
    let is_copied = args.file.iter().any(|file| file.split_once('=').is_some_and(|(_, path)| path == given));
    let program = if is_copied || !host.exists() && !args.file.is_empty() {
        given.to_owned()
    } else {
        let path = default_path(host);
        let data = add(&mut archive, host, &path)?;
        if args.kernel.is_none() {
            program::check(given, &data, isa)?;
        }
        archive.needed(args, isa, given, &data)?;
        path
    };
    archive.entry("TRAILER!!!", 0, &[]);
    let path = folder.join("initramfs");
    std::fs::write(&path, &archive.bytes).map_err(BootError::file(&path))?;
    Ok((path, program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_is_packed_once_and_before_its_files() {
        let mut archive = Archive::default();
        archive.file("/a/b/c", b"12345");
        archive.file("/a/d", b"");
        let text = String::from_utf8_lossy(&archive.bytes);
        let at = |name: &str| text.find(&format!("\0{name}\0")).or_else(|| text.find(&format!("{name}\0")));
        assert!(at("a") < at("a/b") && at("a/b") < at("a/b/c"), "{text}");
        assert_eq!(text.matches("070701").count(), 4);
        assert_eq!(archive.bytes.len() % ALIGN, 0);
    }
}
