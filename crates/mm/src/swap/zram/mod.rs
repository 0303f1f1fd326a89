//! Pages compressed in memory (Linux's zram, `drivers/block/zram`).
//!
//! - [`Zram`] – a device with a fixed number of slots; clones share it. A page that repeats one
//!   word is stored as the word; a page that LZ4 compresses to at most half a frame is stored
//!   compressed; any other page is stored as it is.
//! - [`MmStat`] – what the device holds, and the memory that this takes.
//! - `pool` – objects in frames. `scratch` – the buffers and the compressor of each CPU.
//!
//! Neighbours: frames come from `tlb` and are folios with one reference, which a snapshot reports;
//! they are never mapped.
//!
//! Protocol: a page is compressed with its CPU's buffers locked. The store is locked only to look
//! up a slot and to copy an object. A frame is allocated before the store is locked, at
//! [`Urgency::Reserve`], because writing a page out frees more memory than it takes. Only frames
//! are allocated once the device exists.
//!
//! **INV-ZRAM-KEPT** A slot of a compressed device holds the page that was written to it last,
//! until it is discarded. A write that fails has changed nothing.
//!
//! Not guaranteed: that swapping to the device frees memory. An incompressible page takes a whole
//! frame, as before.

mod pool;
mod scratch;

use crate::error::MmError;
use crate::mm::Mm;
use alloc::boxed::Box;
use core::fmt;
use pagewright_sync::{AllocError, Arc, Platform, SpinLock, rank, try_boxed, try_boxed_each};
use pagewright_tlb::Tlb;
use pagewright_tlb::frames::{FrameRequest, StoredFolioRef, Urgency};
use pagewright_types::{Errno, Order, PAGE_SIZE, Pfn, PhysAddr};
use pool::{ObjectHandle, Pool, PoolError};
use scratch::{Compressed, Scratch, Word};

/// The contents of a slot (`struct zram_table_entry`).
#[derive(Clone, Copy)]
enum ZramSlot {
    Empty,
    Same(Word),
    Object { handle: ObjectHandle, len: u16 },
}

/// The slots of a device and the objects that they refer to.
struct ZramStore {
    slots: Box<[ZramSlot]>,
    pool: Pool<StoredFolioRef>,
    /// The limit of frames with which the device was made; 0 is none (`limit_pages`).
    mem_limit: u32,
    stat: ZramStats,
}

/// Statistics, updated as slots change (`struct zram_stats`).
#[derive(Default)]
struct ZramStats {
    pages: u64,
    same: u64,
    huge: u64,
    huge_ever: u64,
    bytes: u64,
    max_frames: u32,
}

/// A device that stores pages compressed; clones share it ([`Zram::starting_at`]).
pub struct Zram<P: Platform> {
    device: Arc<ZramDevice<P>>,
    /// The device's slot that is slot 0 here.
    first: u32,
}

struct ZramDevice<P: Platform> {
    store: SpinLock<ZramStore, rank::ZramRank, P::Locks>,
    /// By CPU.
    scratch: Box<[SpinLock<Scratch, rank::ZramRank, P::Locks>]>,
}

impl<P: Platform> Clone for Zram<P> {
    fn clone(&self) -> Self {
        self.starting_at(0)
    }
}

/// `/sys/block/zram<id>/mm_stat` (`Documentation/admin-guide/blockdev/zram.rst`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MmStat {
    /// The uncompressed size of all stored pages, in bytes.
    pub orig_data_size: u64,
    /// The compressed size of all stored pages, in bytes.
    pub compr_data_size: u64,
    /// The frames in use, in bytes.
    pub mem_used_total: u64,
    /// The limit of frames, in bytes; 0 is none.
    pub mem_limit: u64,
    /// The most frames ever in use, in bytes.
    pub mem_used_max: u64,
    /// Pages that repeat one word.
    pub same_pages: u64,
    /// Pages stored uncompressed.
    pub huge_pages: u64,
    /// Pages stored uncompressed since the device was made.
    pub huge_pages_since: u64,
}

impl fmt::Display for MmStat {
    /// Writes Linux's line; the number of compacted pages is always 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { orig_data_size, compr_data_size, mem_used_total, mem_limit, mem_used_max, .. } = self;
        write!(f, "{orig_data_size:>8} {compr_data_size:>8} {mem_used_total:>8} {mem_limit:>8} {mem_used_max:>8} ")?;
        write!(f, "{:>8} {:>8} {:>8} {:>8}", self.same_pages, 0, self.huge_pages, self.huge_pages_since)
    }
}

impl<P: Platform> Zram<P> {
    /// Makes a device of `slots` pages (`disksize`) and at most `mem_limit` frames.
    ///
    /// Without a limit there may be as many frames as slots.
    ///
    /// # Errors
    /// [`MmError::NoKernelMemory`]; nothing is kept.
    pub fn try_new(mm: &Mm<P>, slots: u32, mem_limit: Option<u32>) -> Result<Self, MmError> {
        if !mm.permit() {
            return Err(AllocError { bytes: slots as usize * size_of::<ZramSlot>() }.into());
        }
        let cpus = mm.frames().cpus();
        let scratch = try_boxed_each(cpus, (0..cpus).map(|_| Scratch::try_new().map(SpinLock::new)))?;
        let empty = try_boxed(slots as usize, core::iter::repeat(ZramSlot::Empty))?;
        // A slot takes at most one frame.
        let pool = Pool::try_new(mem_limit.unwrap_or(slots).min(slots))?;
        let mem_limit = mem_limit.unwrap_or(0);
        let store = ZramStore { slots: empty, pool, mem_limit, stat: ZramStats::default() };
        let device = ZramDevice { store: SpinLock::new(store), scratch };
        Ok(Self { device: Arc::try_new(device)?, first: 0 })
    }

    /// The same device without its first `pages` slots: slot `pages` becomes slot 0.
    ///
    /// Swap starts at slot 1, after the swap header.
    #[must_use]
    pub fn starting_at(&self, pages: u32) -> Self {
        Self { device: self.device.clone(), first: self.first + pages }
    }

    /// Whether both share one device, whatever their first slots.
    pub(in crate::swap) fn is_same_device(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.device, &other.device)
    }

    /// The number of slots.
    pub fn slots(&self) -> u32 {
        (self.device.store.lock().slots.len() as u32).saturating_sub(self.first)
    }

    /// The number of a slot on the whole device.
    fn device_slot(&self, slot: u32) -> u32 {
        self.first + slot
    }

    /// The statistics of the whole device.
    pub fn mm_stat(&self) -> MmStat {
        let store = self.device.store.lock();
        let frames = |frames: u32| u64::from(frames) * PAGE_SIZE;
        MmStat {
            orig_data_size: store.stat.pages * PAGE_SIZE,
            compr_data_size: store.stat.bytes,
            mem_used_total: frames(store.pool.used()),
            mem_limit: frames(store.mem_limit),
            mem_used_max: frames(store.stat.max_frames),
            same_pages: store.stat.same,
            huge_pages: store.stat.huge,
            huge_pages_since: store.stat.huge_ever,
        }
    }

    /// Compresses a page into a slot; `get` copies its bytes from an offset in the page.
    ///
    /// `get` takes no locks.
    ///
    /// # Errors
    /// `ENOMEM` if the limit of frames is reached or no frame can be allocated. Nothing has
    /// changed.
    ///
    /// # Panics
    /// If the device has no such slot.
    pub fn write_page(&self, tlb: &Tlb<P>, slot: u32, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        let mut scratch = self.device.scratch[tlb.fx().cpu().index()].lock();
        get(0, &mut scratch.page);
        match scratch.compress() {
            Compressed::Same(word) => {
                self.replace(tlb, slot, ZramSlot::Same(word));
                Ok(())
            }
            Compressed::Bytes(bytes) => self.store_bytes(tlb, slot, bytes),
        }
    }

    /// Passes the bytes of a slot's page to `put`.
    ///
    /// # Errors
    /// `EIO` if the slot is empty or its contents cannot be decompressed.
    ///
    /// # Panics
    /// If the device has no such slot.
    pub fn read_page(&self, tlb: &Tlb<P>, slot: u32, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        let mut scratch = self.device.scratch[tlb.fx().cpu().index()].lock();
        let store = self.device.store.lock();
        let page = match store.slots[self.device_slot(slot) as usize] {
            ZramSlot::Empty => return Err(Errno::EIO),
            ZramSlot::Same(word) => {
                drop(store);
                scratch.fill(word)
            }
            ZramSlot::Object { handle, len } => {
                // Copied under the lock, decompressed without it.
                let len = usize::from(len);
                tlb.fx().read(store.address(handle), scratch.stored(len));
                drop(store);
                scratch.decompress(len).ok_or(Errno::EIO)?
            }
        };
        put(0, page);
        Ok(())
    }

    /// Empties a slot.
    ///
    /// # Panics
    /// If the device has no such slot.
    pub fn discard(&self, tlb: &Tlb<P>, slot: u32) {
        self.replace(tlb, slot, ZramSlot::Empty);
    }

    /// Empties all slots, and so frees all their frames.
    pub fn reset(&self, tlb: &Tlb<P>) {
        (0..self.slots()).for_each(|slot| self.discard(tlb, slot));
    }

    /// Calls `visit` for each frame of the whole device, with the store locked.
    ///
    /// The device holds one reference to each.
    pub fn for_each_frame(&self, visit: impl FnMut(Pfn)) {
        self.device.store.lock().pool.iter().map(StoredFolioRef::pfn).for_each(visit);
    }

    fn store_bytes(&self, tlb: &Tlb<P>, slot: u32, bytes: &[u8]) -> Result<(), Errno> {
        let mut spare = None;
        let stored = loop {
            let mut store = self.device.store.lock();
            match store.pool.alloc(bytes.len(), &mut spare) {
                Ok(handle) => {
                    tlb.fx().write(store.address(handle), bytes);
                    store.stat.max_frames = store.stat.max_frames.max(store.pool.used());
                    let old =
                        store.replace(self.device_slot(slot), ZramSlot::Object { handle, len: bytes.len() as u16 });
                    drop(store);
                    self.free_frame(tlb, old);
                    break Ok(());
                }
                Err(PoolError::LimitReached) => break Err(Errno::ENOMEM),
                Err(PoolError::NoFrame) => {}
            }
            drop(store);
            let request = FrameRequest { urgency: Urgency::Reserve, ..tlb.request(Order::ZERO) };
            match tlb.alloc(request) {
                Ok(block) => spare = Some(tlb.frames().new_folio(block).into_stored()),
                Err(_) => break Err(Errno::ENOMEM),
            }
        };
        // Unused if another CPU has made room meanwhile.
        self.free_frame(tlb, spare);
        stored
    }

    fn replace(&self, tlb: &Tlb<P>, slot: u32, new: ZramSlot) {
        let old = self.device.store.lock().replace(self.device_slot(slot), new);
        self.free_frame(tlb, old);
    }

    /// Frees a frame without objects.
    fn free_frame(&self, tlb: &Tlb<P>, frame: Option<StoredFolioRef>) {
        if let Some(block) = frame.and_then(|folio| tlb.frames().put(folio.into_ref())) {
            tlb.free(block);
        }
    }
}

impl ZramStore {
    /// The address of an object's bytes, which lie within one frame.
    fn address(&self, handle: ObjectHandle) -> PhysAddr {
        let (frame, offset) = self.pool.object(handle);
        frame.pfn().base().add(offset)
    }

    /// Replaces the contents of a slot; returns the frame that became empty, if any.
    fn replace(&mut self, slot: u32, new: ZramSlot) -> Option<StoredFolioRef> {
        let old = core::mem::replace(&mut self.slots[slot as usize], new);
        self.stat.count(old, false);
        self.stat.count(new, true);
        match old {
            ZramSlot::Object { handle, .. } => self.pool.free(handle),
            ZramSlot::Empty | ZramSlot::Same(_) => None,
        }
    }
}

impl ZramStats {
    fn count(&mut self, slot: ZramSlot, added: bool) {
        let add = |total: &mut u64, by: u64| *total = if added { *total + by } else { *total - by };
        match slot {
            ZramSlot::Empty => {}
            ZramSlot::Same(_) => {
                add(&mut self.pages, 1);
                add(&mut self.same, 1);
            }
            ZramSlot::Object { len, .. } => {
                add(&mut self.pages, 1);
                add(&mut self.bytes, u64::from(len));
                if u64::from(len) == PAGE_SIZE {
                    add(&mut self.huge, 1);
                    self.huge_ever += u64::from(added);
                }
            }
        }
    }
}
