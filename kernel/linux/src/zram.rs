//! The swap device `/dev/zram0`, and its files below `/sys/block/zram0`.
//!
//! The device compresses pages in the memory of the machine.
//!
//! A program sets its size (`disksize`), writes a swap header (`mkswap`), and starts to swap to it
//! (`swapon`, `call/swap.rs`). From then on all pages but the first belong to the memory manager,
//! and writes fail.
//!
//! [`ZramAttribute`] – a file below `/sys`.
//!
//! Locks: `DISK` may be held across calls of the memory manager, never the other way round.
//!
//! Not guaranteed: compressors other than LZ4, limits, statistics other than `mm_stat`.

use crate::errno::Errno;
use crate::memory::mm;
use crate::report;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use pagewright_hal::Machine;
use pagewright_mm::swap::{MmStat, SwapBacking, Zram};
#[cfg(feature = "oracle")]
use pagewright_types::Pfn;
use pagewright_types::{PAGE_SIZE, SwapEntry};
use spin::Mutex;

/// The device, once it has a size.
struct ZramDisk {
    zram: Zram<Machine>,
    /// The number of the swap device, while it is one.
    swap: Option<u8>,
}

static DISK: Mutex<Option<ZramDisk>> = Mutex::new(None);

const PAGE: usize = PAGE_SIZE as usize;
/// The first page of a swap device (`union swap_header`).
///
/// The version, the last page and the number of bad pages follow the boot block; the magic is at
/// the end.
const HEADER: usize = 1024;
const VERSION: u32 = 1;
const MAGIC: &[u8] = b"SWAPSPACE2";

/// The exit status of the machine if `swap=` fails (`EX_UNAVAILABLE`).
const NO_SWAP: u8 = 69;

/// A file of the device below `/sys/block/zram0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZramAttribute {
    /// The size in bytes, which can be set once.
    DiskSize,
    /// Removes the size and the contents.
    Reset,
    /// Statistics.
    MmStat,
    /// The compressor.
    Algorithm,
}

impl ZramAttribute {
    /// All, with their paths and modes.
    pub(crate) const ALL: [(&'static str, u32, Self); 4] = [
        ("/sys/block/zram0/disksize", 0o100_644, Self::DiskSize),
        ("/sys/block/zram0/reset", 0o100_200, Self::Reset),
        ("/sys/block/zram0/mm_stat", 0o100_444, Self::MmStat),
        ("/sys/block/zram0/comp_algorithm", 0o100_644, Self::Algorithm),
    ];

    /// The text of the file.
    pub(crate) fn show(self) -> Result<String, Errno> {
        let text = match self {
            Self::DiskSize => format!("{}\n", size()),
            Self::MmStat => {
                let stat = DISK.lock().as_ref().map_or(MmStat::default(), |disk| disk.zram.mm_stat());
                format!("{stat}\n")
            }
            Self::Algorithm => "[lz4] \n".into(),
            Self::Reset => return Err(Errno::EIO),
        };
        Ok(text)
    }

    /// Writes the file.
    pub(crate) fn store(self, text: &[u8]) -> Result<(), Errno> {
        let text = core::str::from_utf8(text).map_err(|_| Errno::EINVAL)?.trim_end();
        match self {
            Self::DiskSize => set_size(parse_size(text).ok_or(Errno::EINVAL)?),
            Self::Reset if text.parse::<u16>().is_ok_and(|wanted| wanted != 0) => reset(),
            Self::Algorithm if text == "lz4" => Ok(()),
            Self::Reset | Self::Algorithm => Err(Errno::EINVAL),
            Self::MmStat => Err(Errno::EIO),
        }
    }
}

/// Parses a number of bytes with an optional suffix (`memparse`); `None` if it is not valid or 0.
fn parse_size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    let shift = match suffix.bytes().next().map(|suffix| suffix.to_ascii_uppercase()) {
        Some(b'K') => 10,
        Some(b'M') => 20,
        Some(b'G') => 30,
        Some(_) | None => 0,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

/// Sets the size of the device.
///
/// Not inlined, because the buffers of the compressor pass over the stack while the device is made.
#[inline(never)]
fn set_size(bytes: u64) -> Result<(), Errno> {
    let mut disk = DISK.lock();
    if disk.is_some() {
        return Err(Errno::EBUSY);
    }
    let pages = u32::try_from(bytes.div_ceil(PAGE_SIZE)).ok().filter(|pages| *pages <= SwapEntry::SLOTS);
    *disk = Some(ZramDisk { zram: Zram::try_new(mm(), pages.ok_or(Errno::ENOMEM)?, None)?, swap: None });
    Ok(())
}

fn reset() -> Result<(), Errno> {
    let mut disk = DISK.lock();
    if disk.as_ref().is_some_and(|disk| disk.swap.is_some()) {
        return Err(Errno::EBUSY);
    }
    if let Some(disk) = disk.take() {
        disk.zram.reset(mm().tlb());
    }
    Ok(())
}

/// The size in bytes; 0 before it is set.
pub(crate) fn size() -> u64 {
    DISK.lock().as_ref().map_or(0, |disk| u64::from(disk.zram.slots()) * PAGE_SIZE)
}

/// The bytes of a page, which are zero before the first write.
fn page(zram: &Zram<Machine>, slot: u32) -> Vec<u8> {
    let mut bytes = alloc::vec![0; PAGE];
    let mut put = |offset: u64, piece: &[u8]| bytes[offset as usize..][..piece.len()].copy_from_slice(piece);
    // The read fails only for a page that was never written.
    let _ = zram.read_page(mm().tlb(), slot, &mut put);
    bytes
}

/// Splits `len` bytes at `from` into pages, up to the end of the device.
///
/// Each part is a page, the offset in it, and a number of bytes.
fn parts(zram: &Zram<Machine>, from: u64, len: usize) -> impl Iterator<Item = (u32, usize, usize)> {
    let end = (u64::from(zram.slots()) * PAGE_SIZE).min(from.saturating_add(len as u64));
    let mut at = from;
    core::iter::from_fn(move || {
        let (slot, inside) = ((at / PAGE_SIZE) as u32, at % PAGE_SIZE);
        let bytes = end.checked_sub(at).filter(|left| *left > 0)?.min(PAGE_SIZE - inside);
        at += bytes;
        Some((slot, inside as usize, bytes as usize))
    })
}

/// Reads at most `len` bytes at `from`.
pub(crate) fn read(from: u64, len: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    if let Some(disk) = &*DISK.lock() {
        for (slot, inside, count) in parts(&disk.zram, from, len) {
            bytes.try_reserve(count)?;
            bytes.extend_from_slice(&page(&disk.zram, slot)[inside..inside + count]);
        }
    }
    Ok(bytes)
}

/// Writes bytes at `from`, up to the end of the device, and returns how many.
pub(crate) fn write(from: u64, bytes: &[u8]) -> Result<usize, Errno> {
    let disk = DISK.lock();
    let disk = disk.as_ref().ok_or(Errno::ENOSPC)?;
    if disk.swap.is_some() {
        return Err(Errno::ETXTBSY);
    }
    let mut done = 0;
    for (slot, inside, count) in parts(&disk.zram, from, bytes.len()) {
        let mut whole = page(&disk.zram, slot);
        whole[inside..inside + count].copy_from_slice(&bytes[done..done + count]);
        let mut get = |offset: u64, piece: &mut [u8]| piece.copy_from_slice(&whole[offset as usize..][..piece.len()]);
        disk.zram.write_page(mm().tlb(), slot, &mut get).map_err(|_| Errno::EIO)?;
        done += count;
    }
    if done == 0 && !bytes.is_empty() { Err(Errno::ENOSPC) } else { Ok(done) }
}

/// Starts to swap to the device, as its header says (`read_swap_header`).
///
/// A header with bad pages is refused, because memory has none.
pub(crate) fn swap_on(priority: Option<i16>) -> Result<(), Errno> {
    let mut disk = DISK.lock();
    let disk = disk.as_mut().ok_or(Errno::EINVAL)?;
    if disk.swap.is_some() {
        return Err(Errno::EBUSY);
    }
    let header = page(&disk.zram, 0);
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let (version, last, bad) = (word(HEADER), word(HEADER + 4), word(HEADER + 8));
    let fits = (1..disk.zram.slots()).contains(&last);
    if !header.ends_with(MAGIC) || version != VERSION || !fits || bad != 0 {
        return Err(Errno::EINVAL);
    }
    disk.swap = Some(mm().swap_on_with(SwapBacking::Zram(disk.zram.starting_at(1)), last, priority)?);
    Ok(())
}

/// Stops swapping to the device.
pub(crate) fn swap_off() -> Result<(), Errno> {
    let mut disk = DISK.lock();
    let disk = disk.as_mut().ok_or(Errno::EINVAL)?;
    mm().swap_off(disk.swap.ok_or(Errno::EINVAL)?)?;
    disk.swap = None;
    Ok(())
}

/// Sets up a swap device of `pages` pages at boot, as `mkswap` and `swapon` do.
///
/// If that fails, the machine powers off.
pub(crate) fn swap_at_boot(pages: u32) {
    let mut header = alloc::vec![0; PAGE];
    for (at, word) in [(HEADER, VERSION), (HEADER + 4, pages.saturating_sub(1))] {
        header[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    header[PAGE - MAGIC.len()..].copy_from_slice(MAGIC);
    let on = set_size(u64::from(pages) * PAGE_SIZE).and_then(|()| write(0, &header)).and_then(|_| swap_on(None));
    if let Err(error) = on {
        report::say(format_args!("no swap of {pages} pages: {error}"));
        report::power_off(NO_SWAP)
    }
}

/// Calls `visit` for each frame of the device, unless the memory manager swaps to it.
#[cfg(feature = "oracle")]
pub(crate) fn for_each_own_frame(visit: impl FnMut(Pfn)) {
    if let Some(disk) = DISK.lock().as_ref().filter(|disk| disk.swap.is_none()) {
        disk.zram.for_each_frame(visit);
    }
}
