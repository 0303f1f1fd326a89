//! The files of a capture.

use pagewright_mm::file::FileOps;
use pagewright_types::Errno;

/// A file of a capture: at hand, as after a first run, and without contents.
pub(super) struct Contentless;

impl FileOps for Contentless {
    fn is_resident(&self, _index: u64) -> bool {
        true
    }

    fn read_page(&self, _index: u64, _put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        Ok(())
    }
}
