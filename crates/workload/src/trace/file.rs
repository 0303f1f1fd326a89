//! A trace file that appears whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file written under a temporary name beside its own; [`commit`](Self::commit) gives it its name, dropping it removes it.
#[derive(Debug)]
pub struct TraceFile {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    committed: bool,
}

impl TraceFile {
    /// Start writing what will be `path`. An existing file there stays as it is until the commit.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        if path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
        let mut temporary = name.to_owned();
        temporary.push(format!(".{}.part", std::process::id()));
        let temporary = path.with_file_name(temporary);
        let file = File::create(&temporary)?;
        Ok(Self { file, temporary, path, committed: false })
    }

    /// Give the file its name, replacing what was there.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.temporary, &self.path)?;
        self.committed = true;
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

impl Drop for TraceFile {
    fn drop(&mut self) {
        if !self.committed {
            // Best effort: there is nobody left to tell.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}
