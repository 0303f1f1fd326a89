//! Files for tests.

use super::race::device_step;
use pagewright_mm::file::FileOps;
use pagewright_types::Errno;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A file whose pages are zero.
pub struct ZeroFile;

impl FileOps for ZeroFile {
    fn is_resident(&self, _index: u64) -> bool {
        true
    }

    fn read_page(&self, _index: u64, _put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        Ok(())
    }
}

/// A file whose pages begin with their index plus 7.
pub struct NumberedFile;

impl FileOps for NumberedFile {
    fn is_resident(&self, _index: u64) -> bool {
        true
    }

    fn read_page(&self, index: u64, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        put(0, &(index + 7).to_le_bytes());
        Ok(())
    }
}

/// A disk with files that records what is written.
#[derive(Default)]
pub struct TestDisk {
    /// The index and first word of each page written, in order.
    pub written: Mutex<Vec<(u64, u64)>>,
    /// The index of the page whose write fails (`ENOSPC`).
    pub broken: Mutex<Option<u64>>,
    /// Whether the process may not write to the files ([`FileOps::could_be_written`]).
    pub foreign: bool,
}

/// A file on a [`TestDisk`] whose pages begin with their index.
#[derive(Default)]
pub struct DiskFile(pub Arc<TestDisk>);

impl FileOps for DiskFile {
    fn is_resident(&self, _index: u64) -> bool {
        true
    }

    fn read_page(&self, index: u64, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        device_step();
        put(0, &index.to_le_bytes());
        device_step();
        Ok(())
    }

    fn write_page(&self, index: u64, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        if *self.0.broken.lock().expect("unpoisoned") == Some(index) {
            return Err(Errno::ENOSPC);
        }
        let mut word = [0; 8];
        device_step();
        get(0, &mut word);
        device_step();
        self.0.written.lock().expect("unpoisoned").push((index, u64::from_le_bytes(word)));
        Ok(())
    }

    fn could_be_written(&self) -> bool {
        !self.0.foreign
    }
}

/// A file that keeps the first word of each page that is written; others begin with their index.
#[derive(Default)]
pub struct KeepingFile(Mutex<HashMap<u64, u64>>);

impl FileOps for KeepingFile {
    fn is_resident(&self, _index: u64) -> bool {
        true
    }

    fn read_page(&self, index: u64, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        let word = self.0.lock().expect("unpoisoned").get(&index).copied().unwrap_or(index);
        put(0, &word.to_le_bytes());
        Ok(())
    }

    fn write_page(&self, index: u64, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        let mut word = [0; 8];
        get(0, &mut word);
        self.0.lock().expect("unpoisoned").insert(index, u64::from_le_bytes(word));
        Ok(())
    }
}
