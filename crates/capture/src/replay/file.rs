//! The files of a capture.

use pagewright_mm::file::FileOps;
use pagewright_types::Errno;

/// A file without contents whose pages are all in the host's cache, as after a first run.
pub(super) struct ContentlessFile;

impl FileOps for ContentlessFile {
    fn is_resident(&self, _index: u64) -> bool {
        true
    }

    fn read_page(&self, _index: u64, _put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        Ok(())
    }
}
