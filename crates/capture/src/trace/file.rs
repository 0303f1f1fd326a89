//! A trace file that appears whole or not at all.

use crate::cleanup::Cleanup;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file written under a temporary name beside its own; [`commit`](Self::commit) gives it its
/// name, dropping it removes it, and so does a program that is [interrupted](crate::undo).
///
/// What stands at its path and is no file – a device, a pipe – is written to as it comes, and stays
/// what it is.
#[derive(Debug)]
pub struct TraceFile {
    file: File,
    renamed: Option<Renamed>,
}

/// What a file is called until the commit, and from then on.
#[derive(Debug)]
struct Renamed {
    temporary: PathBuf,
    path: PathBuf,
    removed: Cleanup,
}

impl TraceFile {
    /// Starts writing what will be `path`, or what a symbolic link of that name leads to.
    ///
    /// An existing file there stays as it is until the commit.
    ///
    /// # Errors
    /// Those of creating a file beside it, and `IsADirectory`.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let path = match fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) if !found.is_file() => {
                return Ok(Self { file: OpenOptions::new().write(true).open(path)?, renamed: None });
            }
            Ok(_) => path.canonicalize()?,
            Err(_) => path.to_owned(),
        };
        let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
        let mut temporary = name.to_owned();
        temporary.push(format!(".{}.part", std::process::id()));
        let temporary = path.with_file_name(temporary);
        let part = temporary.clone();
        let removed = Cleanup::new(move || {
            // Best effort: there is nobody left to tell.
            let _ = fs::remove_file(&part);
        });
        let file = File::create(&temporary)?;
        Ok(Self { file, renamed: Some(Renamed { temporary, path, removed }) })
    }

    /// Gives the file its name, replacing what was there.
    ///
    /// # Errors
    /// Those of writing it to its device and of renaming; what was there is as it was.
    pub fn commit(self) -> io::Result<()> {
        if let Some(Renamed { temporary, path, removed }) = self.renamed {
            self.file.sync_all()?;
            fs::rename(temporary, path)?;
            removed.forget();
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
