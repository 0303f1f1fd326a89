//! What programs start with on both sides: limits, code, data, and settings of the host.

use pagewright_types::PAGE_SIZE;

/// The limits of memory: `RLIMIT_*` and soft limit in bytes.
pub(super) const LIMITS: [(u32, u64); 4] = [(9, u64::MAX), (2, u64::MAX), (3, 8 << 20), (8, 32 * PAGE_SIZE)];

/// Address of the instructions that a tracee runs.
///
/// Both sides map code and data.
pub(super) const CODE: u64 = 0x20_0000;
/// Address of the data to which arguments of calls point.
pub(super) const DATA: u64 = 0x20_1000;
/// Length of the data in bytes.
pub(super) const DATA_BYTES: u64 = 0x2000;
/// End of the data.
pub(super) const END: u64 = DATA + DATA_BYTES;

/// The addresses of the pages of the data.
pub(super) fn data_pages() -> impl Iterator<Item = u64> {
    (DATA..END).step_by(PAGE_SIZE as usize)
}

/// Capacity of the pipe in pages.
pub(super) const PIPE_PAGES: usize = 16;

/// Settings of the host's kernel, which our side takes over.
#[derive(Clone, Copy)]
pub(super) struct HostSettings {
    /// The hard limits, in the order of [`LIMITS`].
    pub(super) hard: [u64; LIMITS.len()],
    /// The bits that the kernel's `pagemap` words can have.
    pub(super) pagemap_bits: u64,
    /// `vm.mmap_min_addr`, in bytes.
    pub(super) mmap_min_addr: u64,
    /// Where memory gets huge pages: always, where it is advised, or never.
    pub(super) huge_pages: u64,
}
