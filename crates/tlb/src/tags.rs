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
//!
//! **INV-TLB-ROLLOVER** When tags run out, the tags that CPUs are running stay with their spaces,
//! and every CPU flushes its TLB before it next loads a tag. Otherwise a space would use
//! translations of the previous owner of its tag.

use crate::context::TlbContext;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use pagewright_arch::Caps;
use pagewright_plant::plant;
use pagewright_sync::{AllocError, AtomicCpuMask, PerCpu, Platform, SpinLock, rank, try_boxed};
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
    /// Chooses the slot for a space that is about to run.
    ///
    /// `generation` is that of the space, read after the CPU has joined its mask. The caller loads
    /// the root, which flushes the tag unless it is kept, and then calls
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
    /// Any CPU may ask. A CPU that keeps no slot for the space may have flushed it, and is not
    /// known to have.
    pub(crate) fn has_seen(&self, space: SpaceId, generation: u64) -> bool {
        self.slots.iter().any(|slot| {
            let is_its = || plant!(GenerationOfOtherSpace; true, slot.space.load(Ordering::Acquire) == space.raw());
            // INV-LEDGER-SEEN: the slot may become another space's between the two reads of
            // `space`; then the second read differs.
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
    /// log2 of the distance between two spaces' tags.
    ///
    /// Where user mode has tags of its own, each space has an even one and the next.
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
        let used = try_boxed(words, core::iter::repeat(0))?;
        Ok(Self {
            spaces,
            shift,
            generation: AtomicU64::new(1 << TAG_BITS),
            pool: SpinLock::new(Pool { used, next: 1 }),
            active: PerCpu::try_new(cpus, |_| AtomicU64::new(0))?,
            reserved: PerCpu::try_new(cpus, |_| AtomicU64::new(0))?,
            stale: AtomicCpuMask::new(),
        })
    }

    /// Gives `context` a tag of the current generation, and marks it active on `cpu`.
    ///
    /// Linux: `check_and_switch_context`.
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
            // No other space took it in this generation, so TLBs have entries of this space under
            // it only, if any.
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
        pool.next = 1;
        for (active, reserved) in self.active.iter().zip(self.reserved.iter()) {
            let running = active.swap(0, Ordering::SeqCst);
            // A CPU that has been through two rollovers without switching still runs what it had
            // reserved.
            if running != 0 {
                reserved.store(running, Ordering::SeqCst);
            }
            // Of a CPU that has run nothing, this is 0, which is no space's.
            pool.test_and_set(reserved.load(Ordering::SeqCst) as u16 >> self.shift);
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
    ///
    /// Never 0: that tag belongs to the reserved empty root.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn space(number: usize) -> SpaceId {
        SpaceId::new(number as u64)
    }

    /// The spaces of the slots, in order, and the generation up to which each was flushed.
    struct Model([Option<(usize, u64)>; SLOTS]);

    /// Runs spaces in turn and compares each choice with a list of six places.
    #[test]
    fn a_cpu_keeps_the_translations_of_six_spaces_until_their_generation_moves() {
        let (pcids, mut model, mut victim, mut random) = (PcidSlots::default(), Model([None; SLOTS]), 0, 7_u64);
        let mut generations = [1_u64; 9];
        for _ in 0..4000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (number, moves) = ((random >> 33) as usize % 8 + 1, random >> 60 == 0);
            generations[number] += u64::from(moves);
            let generation = generations[number];
            let known = model.0.iter().position(|slot| slot.is_some_and(|(of, _)| of == number));
            let index = known.unwrap_or(victim);
            victim = if known.is_some() { victim } else { (victim + 1) % SLOTS };
            let keep = known.is_some() && model.0[index] == Some((number, generation));
            let chosen = pcids.choose(space(number), generation, true);
            assert_eq!(chosen, Assignment { tag: Tag::new(index as u16 + 1), keep }, "space {number}");
            assert_eq!(pcids.current_tag(true), chosen.tag);
            // INV-LEDGER-SEEN: nothing is seen before the flush.
            assert_eq!(pcids.has_seen(space(number), generation), keep);
            pcids.set_seen(generation);
            model.0[index] = Some((number, generation));
            assert_eq!(pcids.seen(), generation);
            for (other, generation) in generations.iter().enumerate().skip(1) {
                let seen = model.0.iter().flatten().find(|(of, _)| *of == other).map_or(0, |(_, seen)| *seen);
                for asked in [1, *generation, *generation + 1] {
                    assert_eq!(pcids.has_seen(space(other), asked), seen >= asked, "space {other} up to {asked}");
                }
            }
        }
    }

    #[test]
    fn a_cpu_without_tags_keeps_nothing() {
        let pcids = PcidSlots::default();
        for number in [1, 1, 2, 1] {
            let chosen = pcids.choose(space(number), 1, false);
            assert_eq!(chosen, Assignment { tag: Tag::new(0), keep: false });
            pcids.set_seen(1);
            assert_eq!((pcids.current_tag(false), pcids.seen()), (Tag::new(0), 1));
            assert!(pcids.has_seen(space(number), 1) && !pcids.has_seen(space(3 - number), 1));
        }
    }

    /// Tags are taken in rotation, so that one that was given up rests as long as possible.
    #[test]
    fn a_pool_finds_the_next_free_tag_in_rotation() {
        for spaces in [2, 5, 64, 65, 130] {
            let used = alloc::vec![0; (spaces as usize).div_ceil(64)];
            let mut pool = Pool { used: used.into_boxed_slice(), next: 1 };
            let mut taken = [false; 130];
            let (mut next, mut random) = (1, 3_u64);
            for _ in 0..600 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let index = (random >> 33) as u32 % spaces;
                match random >> 62 {
                    0 => {
                        assert_eq!(pool.test_and_set(index as u16), taken[index as usize], "{index} of {spaces}");
                        taken[index as usize] = true;
                    }
                    1 if index > 0 => {
                        pool.used[index as usize / 64] &= !(1 << (index % 64));
                        taken[index as usize] = false;
                    }
                    _ => {
                        let free = (next..spaces).chain(1..next).find(|tag| !taken[*tag as usize]);
                        assert_eq!(pool.find(spaces).map(u32::from), free, "from {next} of {spaces}");
                        if let Some(free) = free {
                            (taken[free as usize], next) = (true, free + 1);
                        }
                    }
                }
            }
        }
    }
}
