//! The counts of a program image, here or on Linux.
//!
//! A program image is a process from its `fork` or `execve` to its next `execve` or its exit.
//!
//! Not guaranteed: that a count which the kernel of the run does not keep is there.

use serde::{Deserialize, Serialize};

/// The counts of a program image, as Linux counts them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageCounts {
    /// The process, as a path of child indices from the root.
    ///
    /// The root is `[]`, its second child `[1]`, and the first child of that one `[1, 0]`.
    pub process: Vec<u32>,
    /// The number of `execve`s of the process so far; the first image of the root has 1.
    pub image: u32,
    /// The name of the process (`comm`), or the file name of its program in a replay.
    pub command: String,
    /// Minor faults of all threads of the image.
    ///
    /// Faults inside `execve` count for the image that called it.
    pub minor_faults: u64,
    /// Major faults of all threads of the image; `execve` as above.
    pub major_faults: u64,
    /// `VmHWM` at the end, in bytes.
    ///
    /// On Linux it is `None` if `execve` replaced the image, and in a replay for a `vfork` child in
    /// its parent's memory.
    pub peak_rss_bytes: Option<u64>,
    /// `VmPTE` at the end, in bytes: the tables of all levels below the root; `None` as above.
    pub page_table_bytes: Option<u64>,
}

impl ImageCounts {
    /// The sum of the peak RSS of all `images`, in bytes.
    pub fn footprint(images: &[Self]) -> u64 {
        images.iter().filter_map(|image| image.peak_rss_bytes).sum()
    }

    /// The counts of the same image in another run, if `images` has them.
    pub fn find_in<'a>(&self, images: &'a [Self]) -> Option<&'a Self> {
        images.iter().find(|other| other.process == self.process && other.image == self.image)
    }

    /// The command, followed by the process's path in the process tree.
    pub fn label(&self) -> String {
        let path: Vec<String> = self.process.iter().map(u32::to_string).collect();
        if path.is_empty() { self.command.clone() } else { format!("{} [{}]", self.command, path.join(".")) }
    }
}
