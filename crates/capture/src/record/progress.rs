//! How far a recording is, for another thread to show.
//!
//! Not guaranteed: that the figures are exact. They only grow within a stage.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::error::RecordError;

/// The stage of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordStage {
    /// The program runs natively.
    Native,
    /// The program runs under valgrind or QEMU.
    Tool,
    /// The logs of the tool are converted into the trace.
    Import,
}

/// How far a recording is.
#[derive(Debug, Default)]
pub struct RecordProgress {
    stage: AtomicU8,
    logged: AtomicU64,
    imported: Arc<AtomicU64>,
    /// The file with the number of accesses, if the tool has one, and the limit.
    total: OnceLock<(File, Option<u64>)>,
    /// The start of the tool.
    started: OnceLock<Instant>,
}

impl RecordProgress {
    /// The stage.
    pub fn stage(&self) -> RecordStage {
        match self.stage.load(Ordering::Relaxed) {
            0 => RecordStage::Native,
            1 => RecordStage::Tool,
            _ => RecordStage::Import,
        }
    }

    /// Number of accesses so far, if the tool counts them.
    pub fn accesses(&self) -> Option<u64> {
        let mut count = [0; 8];
        self.total.get()?.0.read_exact_at(&mut count, 0).ok()?;
        Some(u64::from_le_bytes(count))
    }

    /// The limit of accesses, if there is one.
    pub fn max_accesses(&self) -> Option<u64> {
        self.total.get()?.1
    }

    /// The time since the tool started.
    pub fn tool_time(&self) -> Option<Duration> {
        self.started.get().map(Instant::elapsed)
    }

    /// Whether the number of accesses has reached the limit.
    pub(super) fn is_limit_reached(&self) -> bool {
        self.max_accesses().zip(self.accesses()).is_some_and(|(max, accesses)| accesses >= max)
    }

    /// Enters the stage of the tool, which counts accesses in the file `total`.
    pub(super) fn start_tool(&self, total: Option<PathBuf>, max: Option<u64>) -> Result<(), RecordError> {
        if let Some(path) = total {
            let file = File::open(&path).map_err(|source| RecordError::Io { path, source })?;
            let _ = self.total.set((file, max));
        }
        let _ = self.started.set(Instant::now());
        self.enter(RecordStage::Tool);
        Ok(())
    }

    /// Number of bytes that the tool has logged.
    pub fn logged(&self) -> u64 {
        self.logged.load(Ordering::Relaxed)
    }

    /// Number of these bytes that have been converted.
    pub fn imported(&self) -> u64 {
        self.imported.load(Ordering::Relaxed).min(self.logged())
    }

    pub(super) fn enter(&self, stage: RecordStage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    pub(super) fn add_logged(&self, bytes: u64) {
        self.logged.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Enters the last stage; the import counts the bytes that it reads in the result.
    pub(super) fn start_import(&self) -> Arc<AtomicU64> {
        self.enter(RecordStage::Import);
        Arc::clone(&self.imported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_follow_each_other_and_the_import_is_a_part_of_the_log() {
        let progress = RecordProgress::default();
        assert_eq!(progress.stage(), RecordStage::Native);
        progress.enter(RecordStage::Tool);
        progress.add_logged(10);
        assert_eq!((progress.stage(), progress.logged(), progress.imported()), (RecordStage::Tool, 10, 0));
        progress.start_import().fetch_add(12, Ordering::Relaxed);
        assert_eq!((progress.stage(), progress.imported()), (RecordStage::Import, 10), "never more than the log has");
    }
}
