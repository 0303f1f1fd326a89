//! A file for tests that are not about contents.

use pagewright_mm::file::FileOps;
use pagewright_types::Errno;

/// A file of zeroes.
pub struct Zeroes;

impl FileOps for Zeroes {
    fn is_resident(&self, _index: u64) -> bool {
        true
    }

    fn read_page(&self, _index: u64, _put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        Ok(())
    }
}
