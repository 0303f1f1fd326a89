//! Requests of one CPU to many CPUs, each of which acknowledges it.
//!
//! Linux's equivalent is `smp_call_function_many_cond` (`kernel/smp.c`). A [`Mailbox`] holds one
//! request per sending CPU, because a CPU waits for all acknowledgements before it sends its next
//! request. A request is neither copied nor queued per target: the targets read it in place.
//!
//! ```text
//!   sender                                          each target, in its IPI handler
//!   request ← words
//!   pending ← targets              (Release)
//!   senders of their groups += me  (locked)         for each of the senders of my group
//!   offline targets: pending −= them                  pending names me?     (Acquire)
//!   send an IPI to the others                         read the request, act on it
//!   pending empty?                 (Acquire)          pending −= me         (locked, Release)
//!   senders of their groups −= me  (locked)
//! ```
//!
//! A request costs two locked instructions per [`GROUP`] of targets, where Linux appends to a list
//! per target, with one locked instruction each. A group is the set of CPUs that one command can
//! interrupt: a cluster of the x2APIC, or the target list of a GICv3 SGI. With one mask for all
//! CPUs, unrelated senders would contend for one cache line.
//!
//! **INV-MAIL-READ** A CPU that reads a request sees all of it, and everything that the sender did
//! before it. The sender reuses the request only after every target has acknowledged it, and then
//! sees everything that the targets did before. Otherwise a CPU would flush the wrong thing, or a
//! frame would be freed before the flush.
//!
//! The sender stores the words before it sets the target's pending bit (Release); the target checks
//! its bit before it reads the words (Acquire). The target clears the bit after it has acted on the
//! request (Release); the sender writes its next request when all bits are clear (Acquire). So the
//! target sees everything that the sender did before the request, and the sender sees everything
//! that the target did before the acknowledgement. On x86 this needs no fence (Intel SDM vol. 3A
//! §8.2.2: other processors see stores in program order). On arm64 it needs STLR, LDAR, and an
//! exclusive or atomic instruction with both semantics.
//!
//! **INV-MAIL-LOST** Each target of a request acknowledges it exactly once. Otherwise the sender
//! would wait for ever, or not at all.
//!
//! An IPI handler sees the stores that precede the IPI: on x86 the locked instruction has drained
//! the store buffer; on arm64 a DSB ISHST precedes the SGI (Linux's `gic_ipi_send_mask`). A handler
//! that ran too early runs again, because an interrupt that arrives meanwhile stays pending. A
//! handler that finds further requests serves them too; their interrupts then find none.
//!
//! **INV-MAIL-ABSENT** No sender waits for an offline CPU. No CPU reads a request that its sender
//! may withdraw; it acknowledges such a request unread, while it owes no flush.
//!
//! A CPU that goes offline first marks itself offline, then checks for requests. A sender first
//! sets the pending bit, then checks whether the target is offline. Between the two steps, both
//! modify the same word of the group's senders by a locked instruction, and the second of the two
//! acquires what the first released. So either the sender sees the target offline and withdraws the
//! request, or the target sees the request and acknowledges it. The sender may overwrite a request
//! that it withdraws, so the target must not read it: while it goes offline, is offline, or comes
//! online, a CPU acknowledges requests unread. That is correct because the CPU owes no flush then.
//! A late acknowledgement of this kind may clear the pending bit of the sender's next request to
//! the same CPU. That CPU is still offline or has just come online, and owes nothing for that
//! request either.
//!
//! Neighbours: the IPI shootdown of `tlb` uses it and defines the words. INV-TLB-HOTPLUG depends on
//! it.
//!
//! Not guaranteed: the order in which a CPU serves requests. Nor that the CPU named as sender is
//! the one that runs.

use crate::atomic::{AtomicU64, Ordering};
use crate::backend::Backend;
use crate::boxed::AllocError;
use crate::cpumask::AtomicCpuMask;
use crate::percpu::PerCpu;
use core::marker::PhantomData;
use pagewright_plant::plant;
use pagewright_types::{CpuId, CpuMask};

/// The number of CPUs that share one mask of senders.
const GROUP: usize = 16;

/// One CPU's request and the targets that have not acknowledged it.
struct Outbox<const WORDS: usize> {
    request: [AtomicU64; WORDS],
    pending: AtomicCpuMask,
}

/// Requests of `WORDS` words, one per sending CPU.
pub struct Mailbox<const WORDS: usize, B> {
    outboxes: PerCpu<Outbox<WORDS>>,
    /// For each group of targets, the CPUs with a pending request to one of them.
    senders: PerCpu<AtomicCpuMask>,
    /// The CPUs that serve no requests.
    offline: AtomicCpuMask,
    kind: PhantomData<fn() -> B>,
}

impl<const WORDS: usize, B: Backend> Mailbox<WORDS, B> {
    /// A mailbox for `cpus` CPUs, all of them online, without requests.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn try_new(cpus: usize) -> Result<Self, AllocError> {
        let request = || core::array::from_fn(|_| AtomicU64::new(0));
        Ok(Self {
            outboxes: PerCpu::try_new(cpus, |_| Outbox { request: request(), pending: AtomicCpuMask::new() })?,
            senders: PerCpu::try_new(cpus.div_ceil(GROUP), |_| AtomicCpuMask::new())?,
            offline: AtomicCpuMask::new(),
            kind: PhantomData,
        })
    }

    /// Publishes a request of `me`, the calling CPU, to `targets`.
    ///
    /// Returns the targets that are online. The caller sends them an IPI and waits until the
    /// request [is acknowledged](Self::is_acknowledged).
    ///
    /// # Panics
    /// In debug builds, if the previous request of `me` is still pending.
    pub fn send(&self, me: CpuId, words: [u64; WORDS], targets: &CpuMask) -> CpuMask {
        let out = self.outboxes.get(me);
        debug_assert!(out.pending.load().is_empty(), "INV-MAIL-READ: CPU {me} overwrites a pending request");
        B::point();
        for (word, value) in out.request.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        out.pending.store(targets);
        self.groups(targets).for_each(|senders| {
            senders.insert(me);
        });
        B::point();
        let offline = self.offline.load().and(targets);
        offline.iter().for_each(|cpu| {
            out.pending.remove(cpu);
        });
        targets.without(&offline)
    }

    /// Whether all of `targets` have acknowledged the request of `me`.
    ///
    /// `true` ends the request; the caller does not call this again for it.
    #[inline]
    pub fn is_acknowledged(&self, me: CpuId, targets: &CpuMask) -> bool {
        let acknowledged = self.outboxes.get(me).pending.load().is_empty();
        if acknowledged {
            self.groups(targets).for_each(|senders| {
                senders.remove(me);
            });
        }
        acknowledged
    }

    /// Calls `act` for each pending request to `me`, the calling CPU, and acknowledges it.
    ///
    /// An offline CPU acknowledges without a call. Interrupts must be disabled.
    pub fn serve(&self, me: CpuId, mut act: impl FnMut([u64; WORDS])) {
        let senders = self.senders_to(me).load();
        let offline = self.offline.contains(me);
        self.acknowledge_each(me, senders, |out| {
            if !offline {
                act(core::array::from_fn(|word| out.request[word].load(Ordering::Relaxed)));
            }
        });
    }

    /// Takes `me`, the calling CPU, offline: it serves no requests from now on.
    ///
    /// The CPU must owe nothing that a request could ask for, until it has [come
    /// online](Self::enter).
    pub fn leave(&self, me: CpuId) {
        self.offline.insert(me);
        self.acknowledge_unread(me);
    }

    /// Brings `me`, the calling CPU, online: it serves requests from now on.
    ///
    /// Interrupts must be disabled, and the CPU must owe nothing yet.
    pub fn enter(&self, me: CpuId) {
        self.offline.remove(me);
        self.acknowledge_unread(me);
    }

    fn acknowledge_unread(&self, me: CpuId) {
        B::point();
        self.acknowledge_each(me, self.senders_to(me).load_by_rmw(), |_| {});
    }

    fn acknowledge_each(&self, me: CpuId, senders: CpuMask, mut read: impl FnMut(&Outbox<WORDS>)) {
        for sender in senders.iter() {
            let out = self.outboxes.get(sender);
            if out.pending.contains(me) {
                B::point();
                plant!(AcknowledgedEarly => { out.pending.remove(me); B::point(); });
                read(out);
                // The acknowledgement comes last: after it the sender continues, and may overwrite
                // its request.
                out.pending.remove(me);
            }
        }
    }

    fn senders_to(&self, cpu: CpuId) -> &AtomicCpuMask {
        self.senders.get(CpuId::new((cpu.index() / GROUP) as u16))
    }

    /// The masks of senders of all groups that have a CPU in `targets`.
    fn groups(&self, targets: &CpuMask) -> impl Iterator<Item = &AtomicCpuMask> {
        const PER_WORD: usize = 64 / GROUP;
        let words = targets.words();
        let has_target =
            move |group: usize| words[group / PER_WORD] >> (group % PER_WORD * GROUP) & ((1 << GROUP) - 1) != 0;
        self.senders.iter().enumerate().filter(move |(group, _)| has_target(*group)).map(|(_, senders)| senders)
    }
}
