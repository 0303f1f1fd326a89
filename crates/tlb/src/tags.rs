//! Tags: which translations in a TLB belong to which space.
//!
//! x86-64: each CPU keeps the PCIDs of the few spaces it ran last ([`PcidSlots`], Linux's
//! `TLB_NR_DYN_ASIDS`); a tag means nothing on another CPU, and whether a slot's translations are
//! still good is told by the space's generation.
//!
//! arm64: a tag means the same on every CPU, because invalidations are broadcast by tag ([`Asids`],
//! Linux's `arch/arm64/mm/context.c`). When they run out, a new generation starts: tags running on
//! some CPU are carried over, all others are free again, and every CPU flushes its TLB before it
//! next loads a tag (INV-TLB-ROLLOVER).
//!
//! Where the kernel has tables that programs can't see, a space has two tags ([`Caps::user_tag`]);
//! what is said of one here is true of both.

use crate::context::TlbContext;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use pagewright_arch::Caps;
use pagewright_plant::plant;
use pagewright_sync::{AllocError, AtomicCpuMask, PerCpu, Platform, SpinLock, rank};
use pagewright_types::{CpuId, CpuMask, SpaceId, Tag};

/// Spaces whose translations one x86 CPU keeps.
const SLOTS: usize = 6;

/// One space whose translations this CPU keeps.
#[derive(Default)]
struct PcidSlot {
    space: AtomicU64,
    /// The space's generation up to which this CPU has flushed.
    seen: AtomicU64,
}

/// One CPU's PCIDs.
///
/// Only that CPU changes them, with interrupts closed. Any CPU may ask what this one has flushed
/// ([`has_seen`](Self::has_seen)), so a flush is noted after it is done.
#[derive(Default)]
pub(crate) struct PcidSlots {
    slots: [PcidSlot; SLOTS],
    current: AtomicU8,
    victim: AtomicU8,
}

/// What a CPU must do to run a space under a tag of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) tag: Tag,
    /// Whether what the TLB has under the tag is still good.
    pub(crate) keep: bool,
}

impl PcidSlots {
    /// Chooses the slot for a space that is about to run, whose generation (read after the CPU
    /// joined its mask) is `generation`.
    ///
    /// The caller loads the root, which flushes the tag unless it is kept, and then calls
    /// [`set_seen`](Self::set_seen).
    pub(crate) fn choose(&self, space: SpaceId, generation: u64, tagged: bool) -> Assignment {
        let used = if tagged { SLOTS } else { 1 };
        let known = self.slots[..used].iter().position(|slot| slot.space.load(Ordering::Relaxed) == space.raw());
        let index = known.unwrap_or_else(|| {
            let victim = self.victim.load(Ordering::Relaxed);
            self.victim.store((victim + 1) % used as u8, Ordering::Relaxed);
            victim as usize
        });
        let slot = &self.slots[index];
        let current = known.is_some() && slot.seen.load(Ordering::Relaxed) == generation;
        let keep = tagged && plant!(TagReused; true, current);
        if known.is_none() {
            // INV-LEDGER-SEEN: before the slot is the new space's, which has seen nothing.
            plant!(SlotKeepsGeneration; (), slot.seen.store(0, Ordering::Release));
            slot.space.store(space.raw(), Ordering::Release);
        }
        self.current.store(index as u8, Ordering::Relaxed);
        Assignment { tag: self.tag(index, tagged), keep }
    }

    /// PCID 0 is the kernel's own.
    fn tag(&self, index: usize, tagged: bool) -> Tag {
        Tag::new(if tagged { index as u16 + 1 } else { 0 })
    }

    /// The tag of the space that runs.
    pub(crate) fn current_tag(&self, tagged: bool) -> Tag {
        self.tag(self.current.load(Ordering::Relaxed) as usize, tagged)
    }

    /// The generation up to which the running space's translations were flushed here.
    pub(crate) fn seen(&self) -> u64 {
        self.slots[self.current.load(Ordering::Relaxed) as usize].seen.load(Ordering::Relaxed)
    }

    /// Records a flush of the running space's translations, which is done.
    pub(crate) fn set_seen(&self, generation: u64) {
        self.slots[self.current.load(Ordering::Relaxed) as usize].seen.store(generation, Ordering::Release);
    }

    /// Whether this CPU has flushed its translations of a space up to a generation.
    ///
    /// Any CPU may ask. A CPU that keeps no slot for the space may have flushed it, and is not known
    /// to have.
    pub(crate) fn has_seen(&self, space: SpaceId, generation: u64) -> bool {
        self.slots.iter().any(|slot| {
            let is_its = || plant!(GenerationOfOtherSpace; true, slot.space.load(Ordering::Acquire) == space.raw());
            // INV-LEDGER-SEEN: the slot may change hands between the two reads; then the second look
            // at its space tells.
            is_its() && slot.seen.load(Ordering::Acquire) >= generation && is_its()
        })
    }
}

/// The low bits of a context's ASID word hold the tag; the rest is the generation.
const TAG_BITS: u32 = 16;

struct Pool {
    used: Box<[u64]>,
    next: u32,
}

/// The machine-wide ASIDs of arm64.
pub(crate) struct Asids<P: Platform> {
    /// Spaces that can have a tag at once, one tag being taken by the empty root.
    spaces: u32,
    /// log2 of the distance between two spaces' tags: where user mode has tags of its own, each
    /// space has an even one and the next.
    shift: u32,
    generation: AtomicU64,
    pool: SpinLock<Pool, rank::ContextRank, P::Locks>,
    /// What each CPU runs: generation and tag; 0 when taken by a rollover.
    active: PerCpu<AtomicU64>,
    /// What each CPU ran at the last rollover, kept out of the new generation's pool.
    reserved: PerCpu<AtomicU64>,
    /// CPUs that have not flushed since the last rollover.
    stale: AtomicCpuMask,
}

/// What an arm64 CPU must do before it runs a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AsidGrant {
    pub(crate) tag: Tag,
    /// A rollover happened since this CPU last looked: flush everything locally first.
    pub(crate) flush_local: bool,
    /// This grant started a new generation.
    pub(crate) rolled_over: bool,
}

impl<P: Platform> Asids<P> {
    /// Spaces that can have a tag at once.
    pub(crate) fn spaces(caps: &Caps) -> u32 {
        caps.tags >> Self::shift(caps)
    }

    fn shift(caps: &Caps) -> u32 {
        u32::from(caps.user_tag_bit.is_some())
    }

    pub(crate) fn try_new(cpus: usize, caps: &Caps) -> Result<Self, AllocError> {
        let (spaces, shift) = (Self::spaces(caps), Self::shift(caps));
        let words = spaces.div_ceil(64) as usize;
        let mut used = Vec::new();
        used.try_reserve_exact(words).map_err(|_| AllocError { bytes: words * 8 })?;
        used.resize(words, 0);
        // Tag 0 belongs to the reserved empty root.
        used[0] = 1;
        Ok(Self {
            spaces,
            shift,
            generation: AtomicU64::new(1 << TAG_BITS),
            pool: SpinLock::new(Pool { used: used.into_boxed_slice(), next: 1 }),
            active: PerCpu::try_new(cpus, |_| AtomicU64::new(0))?,
            reserved: PerCpu::try_new(cpus, |_| AtomicU64::new(0))?,
            stale: AtomicCpuMask::new(),
        })
    }

    /// Gives `context` a tag of the current generation and marks it active on `cpu`
    /// (`check_and_switch_context`).
    pub(crate) fn grant(&self, cpu: CpuId, context: &TlbContext, online: &CpuMask) -> AsidGrant {
        let word = context.asid.load(Ordering::SeqCst);
        let active = self.active.get(cpu);
        let before = active.load(Ordering::SeqCst);
        // The exchange fails if a rollover took the active word meanwhile; then the tag may have
        // been reused.
        if before != 0
            && self.is_current(word)
            && active.compare_exchange(before, word, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            return AsidGrant { tag: Tag::new(word as u16), flush_local: false, rolled_over: false };
        }
        let mut pool = self.pool.lock();
        let word = context.asid.load(Ordering::SeqCst);
        let (word, rolled_over) =
            if self.is_current(word) { (word, false) } else { self.renew(&mut pool, word, online) };
        context.asid.store(word, Ordering::SeqCst);
        let flush_local = self.stale.remove(cpu);
        active.store(word, Ordering::SeqCst);
        AsidGrant { tag: Tag::new(word as u16), flush_local, rolled_over }
    }

    fn is_current(&self, word: u64) -> bool {
        word != 0 && word >> TAG_BITS == self.generation.load(Ordering::SeqCst) >> TAG_BITS
    }

    /// A tag of the current generation for a context whose word is of an older one (`new_context`).
    fn renew(&self, pool: &mut Pool, old: u64, online: &CpuMask) -> (u64, bool) {
        let generation = self.generation.load(Ordering::SeqCst);
        if old != 0 {
            let renewed = generation | (old & ((1 << TAG_BITS) - 1));
            // Running on some CPU at the last rollover: the tag was kept for it.
            let mut kept = false;
            for word in self.reserved.iter() {
                if word.load(Ordering::SeqCst) == old {
                    word.store(renewed, Ordering::SeqCst);
                    kept = true;
                }
            }
            // Nobody took it in this generation, so its entries, if any CPU has some, are its own.
            if kept || !pool.test_and_set(renewed as u16 >> self.shift) {
                return (renewed, false);
            }
        }
        if let Some(index) = pool.find(self.spaces) {
            return (generation | u64::from(index) << self.shift, false);
        }
        let generation = self.generation.fetch_add(1 << TAG_BITS, Ordering::SeqCst) + (1 << TAG_BITS);
        self.roll_over(pool, online);
        let index = pool.find(self.spaces).expect("more tags than CPUs");
        (generation | u64::from(index) << self.shift, true)
    }

    /// Takes every tag back except those running now (`flush_context`).
    fn roll_over(&self, pool: &mut Pool, online: &CpuMask) {
        pool.used.fill(0);
        pool.used[0] = 1;
        pool.next = 1;
        for (active, reserved) in self.active.iter().zip(self.reserved.iter()) {
            let running = active.swap(0, Ordering::SeqCst);
            // A CPU that has been through two rollovers without switching still runs what it had
            // reserved.
            if running != 0 {
                reserved.store(running, Ordering::SeqCst);
            }
            let kept = reserved.load(Ordering::SeqCst);
            if kept != 0 {
                pool.test_and_set(kept as u16 >> self.shift);
            }
        }
        plant!(RolloverNoFlush => return);
        self.stale.insert_all(online);
    }
}

impl Pool {
    fn test_and_set(&mut self, index: u16) -> bool {
        let (word, bit) = (usize::from(index) / 64, 1 << (index % 64));
        let was = self.used[word] & bit != 0;
        self.used[word] |= bit;
        was
    }

    /// The next of `spaces` that is free, in rotation, marked used.
    fn find(&mut self, spaces: u32) -> Option<u16> {
        let found = (self.next..spaces).chain(1..self.next).find(|&index| {
            let word = self.used[index as usize / 64];
            word >> (index % 64) & 1 == 0
        })?;
        self.test_and_set(found as u16);
        self.next = found + 1;
        Some(found as u16)
    }
}
