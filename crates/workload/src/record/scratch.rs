//! A directory that goes away with its owner.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::error::RecordError;

/// A private temporary directory.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new() -> Result<Self, RecordError> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pagewright-record-{}-{number}", std::process::id()));
        fs::create_dir(&path).map_err(|source| RecordError::Io { path: path.clone(), source })?;
        Ok(Self(path))
    }

    /// A name in the directory.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Best effort: what is left lies in the system's temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}
