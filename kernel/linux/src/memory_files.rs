//! Files of the memory manager that are neither text nor a setting.
//!
//! | file | contents | source in Linux |
//! | --- | --- | --- |
//! | `/proc/kpagecount`, `kpageflags` | a word for each frame | `fs/proc/page.c` |
//! | `/sys/kernel/mm/page_idle/bitmap` | a bit for each frame | `mm/page_idle.c` |
//! | `/sys/kernel/debug/split_huge_pages` | a request, which is written | `split_huge_pages_write` |
//!
//! Not guaranteed: words of one moment.

use crate::errno::Errno;
use crate::memory::mm;
use crate::task::{TaskId, scheduler};
use alloc::vec::Vec;
use pagewright_arch::Effects;
use pagewright_hal::Machine;
use pagewright_mm::SplitRequest;
use pagewright_types::Pfn;

/// The bytes of a word, of which a file is read and written in multiples.
const WORD: u64 = size_of::<u64>() as u64;
/// The most bytes of one read.
const MOST: u64 = 1 << 20;

/// A file of the memory manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryFile {
    KpageCount,
    KpageFlags,
    IdleBitmap,
    SplitHugePages,
}

impl MemoryFile {
    /// The files, with their modes.
    pub(crate) const FILES: [(&str, u32, Self); 4] = [
        ("/proc/kpagecount", 0o100_400, Self::KpageCount),
        ("/proc/kpageflags", 0o100_400, Self::KpageFlags),
        ("/sys/kernel/mm/page_idle/bitmap", 0o100_600, Self::IdleBitmap),
        ("/sys/kernel/debug/split_huge_pages", 0o100_200, Self::SplitHugePages),
    ];

    /// Reads at most `wanted` bytes from an offset.
    ///
    /// # Errors
    /// `EINVAL` for parts of words, and for a file that is only written.
    pub(crate) fn read(self, from: u64, wanted: usize) -> Result<Vec<u8>, Errno> {
        let word = |at: u64| match self {
            Self::KpageCount => mm().kpagecount(Pfn::new(at as u32)),
            Self::KpageFlags => mm().kpageflags(Pfn::new(at as u32)).bits(),
            Self::IdleBitmap | Self::SplitHugePages => idle_word(at),
        };
        let size = match self {
            Self::KpageCount | Self::KpageFlags => frames() * WORD,
            Self::IdleBitmap => frames().div_ceil(u64::from(u64::BITS)) * WORD,
            Self::SplitHugePages => return Err(Errno::EINVAL),
        };
        let wanted = (wanted as u64).min(MOST);
        if !from.is_multiple_of(WORD) || !wanted.is_multiple_of(WORD) {
            return Err(Errno::EINVAL);
        }
        let end = from.saturating_add(wanted).min(size);
        Ok((from / WORD..end / WORD).flat_map(|at| word(at).to_ne_bytes()).collect())
    }

    /// Writes at an offset, and returns how many bytes.
    ///
    /// # Errors
    /// `EINVAL` for what is no request and for parts of words; `EIO` for a file that is only read;
    /// `ENXIO` behind the last frame; `ESRCH` for a request about no process.
    pub(crate) fn write(self, start: u64, bytes: &[u8]) -> Result<usize, Errno> {
        match self {
            Self::KpageCount | Self::KpageFlags => return Err(Errno::EIO),
            Self::SplitHugePages => split_huge_pages(bytes)?,
            Self::IdleBitmap => mark_idle(start, bytes)?,
        }
        Ok(bytes.len())
    }
}

/// The number of frames, from frame 0 on.
fn frames() -> u64 {
    u64::from(mm().max_pfn().raw())
}

/// The frames of a word of the bitmap, with their bits.
fn frames_of(word: u64) -> impl Iterator<Item = (u64, Pfn)> {
    let (first, end) = (word * u64::from(u64::BITS), frames());
    (0..u64::from(u64::BITS))
        .filter(move |bit| first + bit < end)
        .map(move |bit| (1 << bit, Pfn::new((first + bit) as u32)))
}

/// A bit for each frame whose page is idle.
fn idle_word(word: u64) -> u64 {
    frames_of(word).filter(|(_, pfn)| mm().page_is_idle(*pfn)).map(|(bit, _)| bit).sum()
}

/// Marks the frames whose bits are set.
fn mark_idle(start: u64, bytes: &[u8]) -> Result<(), Errno> {
    let (words, rest) = bytes.as_chunks();
    if !start.is_multiple_of(WORD) || !rest.is_empty() {
        return Err(Errno::EINVAL);
    }
    let first = start / WORD;
    if first >= frames().div_ceil(u64::from(u64::BITS)) {
        return Err(Errno::ENXIO);
    }
    for (word, bits) in (first..).zip(words) {
        let bits = u64::from_ne_bytes(*bits);
        frames_of(word).filter(|(bit, _)| bits & bit != 0).for_each(|(_, pfn)| mm().mark_page_idle(pfn));
    }
    Ok(())
}

/// Splits the large folios that a program names.
fn split_huge_pages(bytes: &[u8]) -> Result<(), Errno> {
    match SplitRequest::parse::<<Machine as Effects>::Isa>(bytes).ok_or(Errno::EINVAL)? {
        SplitRequest::All => _ = mm().split_all_huge_pages(),
        SplitRequest::Of { process, range } => {
            let process = u32::try_from(process).map_err(|_| Errno::ESRCH)?;
            let space = scheduler().processes.get(&TaskId(process)).map(|process| process.space.upgrade());
            let space = space.ok_or(Errno::ESRCH)?.ok_or(Errno::EINVAL)?;
            mm().split_huge_pages(&space.0, range);
        }
    }
    Ok(())
}
