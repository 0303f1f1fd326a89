//! The files that a command reads and writes, compared before its work begins.
//!
//! An output replaces the file of its name. So an output that is an input, or another output, would
//! lose a capture, the recorded program or a result (INV-FILES-APART). Each command names its files
//! in a [`CommandFiles`], and `command::run` checks it in one place.
//!
//! Files are the same if they have the same device and inode, whatever links lead to them. Outputs
//! that do not exist yet are the same if they have the same name in the same folder.
//!
//! **INV-FILES-APART** An output of a command is none of the files that the command line names as
//! its inputs and outputs, nor standard input or output. Otherwise it would replace a capture, the
//! recorded program or another result.
//!
//! Not guaranteed: files that the recorded program finds by itself, or that are created during the
//! work. Devices and pipes lose nothing and are not compared.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The files of a command.
#[derive(Debug, Default)]
pub(crate) struct CommandFiles {
    inputs: Vec<NamedFile>,
    outputs: Vec<NamedFile>,
}

/// A file, and what it is to the command: an option, or words.
#[derive(Clone, Debug)]
pub(crate) struct NamedFile {
    name: &'static str,
    path: PathBuf,
}

/// An output that is also another file of its command.
#[derive(Debug, thiserror::Error)]
#[error("{output}: this file is also {other}")]
pub(crate) struct SharedFile {
    output: NamedFile,
    other: NamedFile,
}

impl fmt::Display for NamedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.path.display())
    }
}

/// What makes two files the same.
#[derive(Debug, PartialEq, Eq)]
enum FileIdentity {
    Inode {
        device: u64,
        inode: u64,
    },
    /// A name in a folder, where no file is.
    Entry {
        device: u64,
        folder: u64,
        name: std::ffi::OsString,
    },
}

impl FileIdentity {
    /// `None` for what cannot be lost, or cannot be read.
    fn of(path: &Path) -> Option<Self> {
        match fs::metadata(path) {
            Ok(found) if found.is_file() => Some(Self::Inode { device: found.dev(), inode: found.ino() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                let folder = fs::metadata(folder.unwrap_or(Path::new("."))).ok()?;
                let name = path.file_name()?.to_owned();
                Some(Self::Entry { device: folder.dev(), folder: folder.ino(), name })
            }
            Ok(_) | Err(_) => None,
        }
    }
}

impl CommandFiles {
    /// Adds a file that the command reads.
    pub(crate) fn reads(mut self, name: &'static str, path: impl Into<PathBuf>) -> Self {
        self.inputs.push(NamedFile { name, path: path.into() });
        self
    }

    /// Adds a file that the command writes, if it is given.
    pub(crate) fn writes(mut self, name: &'static str, path: Option<&Path>) -> Self {
        self.outputs.extend(path.map(|path| NamedFile { name, path: path.to_owned() }));
        self
    }

    /// Checks that no output is another file of the command.
    ///
    /// Standard output is one of its outputs.
    pub(crate) fn check(&self) -> Result<(), SharedFile> {
        let standard = NamedFile { name: "standard output,", path: "/dev/stdout".into() };
        for (index, output) in self.outputs.iter().enumerate() {
            let Some(identity) = FileIdentity::of(&output.path) else { continue };
            let others = self.inputs.iter().chain(&self.outputs[..index]).chain([&standard]);
            for other in others {
                if FileIdentity::of(&other.path).as_ref() == Some(&identity) {
                    return Err(SharedFile { output: output.clone(), other: other.clone() });
                }
            }
        }
        Ok(())
    }
}
