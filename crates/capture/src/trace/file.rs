//! A file that appears complete or not at all.

use crate::cleanup::Cleanup;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that is written under a temporary name in the directory of its final name.
///
/// [`commit`](Self::commit) renames it to its final name. Dropping it before that removes it, and
/// so does an [interrupt](crate::cleanup) of the program. If the path is a device or a pipe, the
/// bytes are written to it directly, and `commit` renames nothing.
#[derive(Debug)]
pub struct TraceFile {
    file: File,
    rename: Option<Rename>,
}

/// The rename that [`TraceFile::commit`] makes.
#[derive(Debug)]
struct Rename {
    temporary: PathBuf,
    path: PathBuf,
    /// Removes the temporary file.
    removal: Cleanup,
}

impl TraceFile {
    /// Creates a temporary file that the commit renames to `path`.
    ///
    /// An existing file is unchanged until the commit. If `path` is a symbolic link, the commit
    /// replaces its target.
    ///
    /// # Errors
    /// `IsADirectory`, and the errors of creating a file in that directory.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let path = match fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) if !found.is_file() => {
                return Ok(Self { file: OpenOptions::new().write(true).open(path)?, rename: None });
            }
            Ok(_) => path.canonicalize()?,
            Err(_) => path.to_owned(),
        };
        let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
        let mut temporary = name.to_owned();
        temporary.push(format!(".{}.part", std::process::id()));
        let temporary = path.with_file_name(temporary);
        let part = temporary.clone();
        let removal = Cleanup::new(move || {
            // An error cannot be reported any more.
            let _ = fs::remove_file(&part);
        });
        let file = File::create(&temporary)?;
        Ok(Self { file, rename: Some(Rename { temporary, path, removal }) })
    }

    /// Writes the file to its device and renames it to its final name, replacing an existing file.
    ///
    /// # Errors
    /// Those of `fsync` and `rename`. An existing file is then unchanged.
    pub fn commit(self) -> io::Result<()> {
        if let Some(Rename { temporary, path, removal }) = self.rename {
            self.file.sync_all()?;
            fs::rename(temporary, path)?;
            removal.cancel();
        }
        Ok(())
    }
}

impl Write for TraceFile {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.file.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
