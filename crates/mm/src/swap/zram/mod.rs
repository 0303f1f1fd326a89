//! Pages compressed in the machine's own memory (Linux's zram, `drivers/block/zram`).
//!
//! - [`Zram`] – a device of so many slots, which several may have. A page of one word is kept as
//!   the word, one that LZ4 makes at most half as large is kept compressed, any other as it is.
//! - [`MmStat`] – what it holds and what that takes.
//! - `pool`: places in frames. `scratch`: a CPU's buffers and the compressor.
//!
//! Neighbours: frames come from `tlb` and are folios with one reference, which a snapshot tells;
//! nobody maps them.
//!
//! Protocol: a page is compressed with its CPU's buffers locked; the store is locked for looking
//! up, copying to or from a place, and nothing else. A frame is had before the store is locked, at
//! [`Urgency::Reserve`]: a page that is written out frees more than it takes. Beside frames nothing
//! is allocated once the device is made.
//!
//! INV-ZRAM-KEPT: a slot holds what was written to it last, until it is discarded; a write that
//! fails has changed nothing.
//!
//! Not guaranteed: that memory gets free. A page that can't be compressed takes a frame, as it did
//! before.

mod pool;
mod scratch;

use crate::error::MmError;
use crate::mm::Mm;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use pagewright_sync::{AllocError, Arc, Platform, SpinLock, rank};
use pagewright_tlb::Tlb;
use pagewright_tlb::frames::{FolioRef, FrameRequest, Urgency};
use pagewright_types::{Errno, Order, PAGE_SIZE, Pfn};
use pool::{Lack, Place, Pool};
use scratch::{Packed, Scratch, Word};

/// What a slot holds.
#[derive(Clone, Copy)]
enum Slot {
    Nothing,
    Same(Word),
    Object { place: Place, len: u16 },
}

/// Everything that is stored.
struct Store {
    slots: Box<[Slot]>,
    pool: Pool,
    stat: Stat,
}

/// What is counted as it comes and goes.
#[derive(Default)]
struct Stat {
    pages: u64,
    same: u64,
    huge: u64,
    huge_since: u64,
    bytes: u64,
    most_frames: u32,
}

/// A device that keeps pages compressed.
///
/// Clones are the same device, or a part of it ([`Zram::after`]).
pub struct Zram<P: Platform> {
    whole: Arc<Whole<P>>,
    /// Pages of the device before slot 0.
    first: u32,
}

struct Whole<P: Platform> {
    store: SpinLock<Store, rank::ZramRank, P::Locks>,
    /// By CPU.
    scratch: Box<[SpinLock<Scratch, rank::ZramRank, P::Locks>]>,
}

impl<P: Platform> Clone for Zram<P> {
    fn clone(&self) -> Self {
        self.after(0)
    }
}

/// `/sys/block/zram<id>/mm_stat` (`Documentation/admin-guide/blockdev/zram.rst`), in bytes and
/// pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MmStat {
    /// Bytes that were written: pages held, those of one word included.
    pub orig_data_size: u64,
    /// Bytes after compression.
    pub compr_data_size: u64,
    /// Bytes of the frames that it takes.
    pub mem_used_total: u64,
    /// Bytes that it may take.
    pub mem_limit: u64,
    /// The most that it took at once.
    pub mem_used_max: u64,
    /// Pages of one word.
    pub same_pages: u64,
    /// Pages that could not be compressed.
    pub huge_pages: u64,
    /// The same, ever since it was made.
    pub huge_pages_since: u64,
}

impl fmt::Display for MmStat {
    /// The line as Linux has it; nothing is ever compacted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { orig_data_size, compr_data_size, mem_used_total, mem_limit, mem_used_max, .. } = self;
        write!(f, "{orig_data_size:>8} {compr_data_size:>8} {mem_used_total:>8} {mem_limit:>8} {mem_used_max:>8} ")?;
        write!(f, "{:>8} {:>8} {:>8} {:>8}", self.same_pages, 0, self.huge_pages, self.huge_pages_since)
    }
}

impl<P: Platform> Zram<P> {
    /// A device of `slots` pages (`disksize`) that takes up to `mem_limit` frames, or as many as
    /// there are slots.
    ///
    /// # Errors
    /// [`MmError`] for want of kernel memory; nothing is kept.
    pub fn try_new(mm: &Mm<P>, slots: u32, mem_limit: Option<u32>) -> Result<Self, MmError> {
        let wanted = slots as usize * size_of::<Slot>();
        if !mm.permit() {
            return Err(AllocError { bytes: wanted }.into());
        }
        let mut scratch = Vec::new();
        let cpus = mm.frames().cpus();
        let bytes = cpus * size_of::<SpinLock<Scratch, rank::ZramRank, P::Locks>>();
        scratch.try_reserve_exact(cpus).map_err(|_| AllocError { bytes })?;
        for _ in 0..cpus {
            scratch.push(SpinLock::new(Scratch::try_new()?));
        }
        let mut empty = Vec::new();
        empty.try_reserve_exact(slots as usize).map_err(|_| AllocError { bytes: wanted })?;
        empty.resize(slots as usize, Slot::Nothing);
        // A slot takes one frame at most.
        let pool = Pool::try_new(mem_limit.unwrap_or(slots).min(slots))?;
        let store = Store { slots: empty.into_boxed_slice(), pool, stat: Stat::default() };
        let whole = Whole { store: SpinLock::new(store), scratch: scratch.into_boxed_slice() };
        Ok(Self { whole: Arc::try_new(whole)?, first: 0 })
    }

    /// The same device without its first `pages` pages: what was slot `pages` is slot 0.
    ///
    /// So swap leaves alone the page that says what it is.
    #[must_use]
    pub fn after(&self, pages: u32) -> Self {
        Self { whole: self.whole.clone(), first: self.first + pages }
    }

    /// Whether it is the same device, or another part of it.
    pub(in crate::swap) fn is_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.whole, &other.whole)
    }

    /// Number of slots.
    pub fn slots(&self) -> u32 {
        (self.whole.store.lock().slots.len() as u32).saturating_sub(self.first)
    }

    /// Where a slot is on the whole device.
    fn place(&self, slot: u32) -> u32 {
        self.first + slot
    }

    /// What the whole device holds and what that takes.
    pub fn mm_stat(&self) -> MmStat {
        let store = self.whole.store.lock();
        let frames = |frames: u32| u64::from(frames) * PAGE_SIZE;
        MmStat {
            orig_data_size: store.stat.pages * PAGE_SIZE,
            compr_data_size: store.stat.bytes,
            mem_used_total: frames(store.pool.used()),
            mem_limit: frames(store.pool.limit()),
            mem_used_max: frames(store.stat.most_frames),
            same_pages: store.stat.same,
            huge_pages: store.stat.huge,
            huge_pages_since: store.stat.huge_since,
        }
    }

    /// Compresses a page into a slot; `get` fills a slice with its bytes from an offset on, and
    /// takes no locks.
    ///
    /// # Errors
    /// `ENOMEM` when it has as many frames as it may have, or there is none to be had. Nothing has
    /// changed.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn write_page(&self, tlb: &Tlb<P>, slot: u32, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        let mut scratch = self.whole.scratch[tlb.fx().cpu().index()].lock();
        get(0, &mut scratch.page);
        match scratch.pack() {
            Packed::Same(word) => {
                self.replace(tlb, slot, Slot::Same(word));
                Ok(())
            }
            Packed::Bytes(bytes) => self.store_bytes(tlb, slot, bytes),
        }
    }

    /// Hands the bytes of a slot's page to `put`.
    ///
    /// # Errors
    /// `EIO` when nothing was written there.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn read_page(&self, tlb: &Tlb<P>, slot: u32, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        let mut scratch = self.whole.scratch[tlb.fx().cpu().index()].lock();
        let store = self.whole.store.lock();
        let page = match store.slots[self.place(slot) as usize] {
            Slot::Nothing => return Err(Errno::EIO),
            Slot::Same(word) => {
                drop(store);
                scratch.fill(word)
            }
            Slot::Object { place, len } => {
                // Copied under the lock, and taken apart without it.
                let len = usize::from(len);
                tlb.fx().read(store.pool.address(place), scratch.stored(len));
                drop(store);
                scratch.unpack(len).ok_or(Errno::EIO)?
            }
        };
        put(0, page);
        Ok(())
    }

    /// Forgets a slot.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn discard(&self, tlb: &Tlb<P>, slot: u32) {
        self.replace(tlb, slot, Slot::Nothing);
    }

    /// Forgets everything and gives back every frame.
    pub fn reset(&self, tlb: &Tlb<P>) {
        (0..self.slots()).for_each(|slot| self.discard(tlb, slot));
    }

    /// Calls `visit` for each frame that the whole device takes, with the store locked.
    ///
    /// It has one reference on each.
    pub fn for_each_frame(&self, visit: impl FnMut(Pfn)) {
        self.whole.store.lock().pool.iter().for_each(visit);
    }

    fn store_bytes(&self, tlb: &Tlb<P>, slot: u32, bytes: &[u8]) -> Result<(), Errno> {
        let mut spare = None;
        let stored = loop {
            let mut store = self.whole.store.lock();
            match store.pool.take(bytes.len(), &mut spare) {
                Ok(place) => {
                    tlb.fx().write(store.pool.address(place), bytes);
                    store.stat.most_frames = store.stat.most_frames.max(store.pool.used());
                    let old = store.replace(self.place(slot), Slot::Object { place, len: bytes.len() as u16 });
                    drop(store);
                    self.free(tlb, old);
                    break Ok(());
                }
                Err(Lack::Limit) => break Err(Errno::ENOMEM),
                Err(Lack::Frame) => {}
            }
            drop(store);
            let request = FrameRequest { urgency: Urgency::Reserve, ..tlb.request(Order::ZERO) };
            match tlb.alloc(request) {
                Ok(block) => spare = Some(tlb.frames().new_folio(block).into_raw()),
                Err(_) => break Err(Errno::ENOMEM),
            }
        };
        // Somebody else made room meanwhile.
        self.free(tlb, spare);
        stored
    }

    fn replace(&self, tlb: &Tlb<P>, slot: u32, new: Slot) {
        let old = self.whole.store.lock().replace(self.place(slot), new);
        self.free(tlb, old);
    }

    /// Gives back a frame that nothing is in.
    fn free(&self, tlb: &Tlb<P>, frame: Option<Pfn>) {
        let folio: Option<FolioRef> = frame.map(|pfn| tlb.frames().folio_ref_from_raw(pfn));
        if let Some(block) = folio.and_then(|folio| tlb.frames().put(folio)) {
            tlb.free(block);
        }
    }
}

impl Store {
    /// Puts something else in a slot; returns the frame that nothing is in any more.
    fn replace(&mut self, slot: u32, new: Slot) -> Option<Pfn> {
        let old = core::mem::replace(&mut self.slots[slot as usize], new);
        self.stat.note(old, false);
        self.stat.note(new, true);
        match old {
            Slot::Object { place, .. } => self.pool.give(place),
            Slot::Nothing | Slot::Same(_) => None,
        }
    }
}

impl Stat {
    fn note(&mut self, slot: Slot, comes: bool) {
        let count = |what: &mut u64, by: u64| *what = if comes { *what + by } else { *what - by };
        match slot {
            Slot::Nothing => {}
            Slot::Same(_) => {
                count(&mut self.pages, 1);
                count(&mut self.same, 1);
            }
            Slot::Object { len, .. } => {
                count(&mut self.pages, 1);
                count(&mut self.bytes, u64::from(len));
                if u64::from(len) == PAGE_SIZE {
                    count(&mut self.huge, 1);
                    self.huge_since += u64::from(comes);
                }
            }
        }
    }
}
