//! How far a recording is, for another thread to show.
//!
//! Not guaranteed: that the figures are exact. They only grow within a stage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// The stage of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordStage {
    /// The program runs natively.
    Native,
    /// The program runs under valgrind.
    Valgrind,
    /// The logs of valgrind are converted into the trace.
    Import,
}

/// How far a recording is.
#[derive(Debug, Default)]
pub struct RecordProgress {
    stage: AtomicU8,
    logged: AtomicU64,
    imported: Arc<AtomicU64>,
}

impl RecordProgress {
    /// The stage.
    pub fn stage(&self) -> RecordStage {
        match self.stage.load(Ordering::Relaxed) {
            0 => RecordStage::Native,
            1 => RecordStage::Valgrind,
            _ => RecordStage::Import,
        }
    }

    /// Number of bytes that valgrind has logged.
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
        progress.enter(RecordStage::Valgrind);
        progress.add_logged(10);
        assert_eq!((progress.stage(), progress.logged(), progress.imported()), (RecordStage::Valgrind, 10, 0));
        progress.start_import().fetch_add(12, Ordering::Relaxed);
        assert_eq!((progress.stage(), progress.imported()), (RecordStage::Import, 10), "never more than the log has");
    }
}
