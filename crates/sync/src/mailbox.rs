//! Requests of one CPU to many, which each of them answers (Linux's `smp_call_function_many_cond`,
//! `kernel/smp.c`).
//!
//! [`Mailbox`] holds one letter of each CPU, because who has sent one waits for the answers before he
//! sends another. It is not copied, nor is anything written for each of those who are asked: they
//! come and read it.
//!
//! ```text
//!   sender                                          each target, when it is interrupted
//!   letter ← words
//!   unanswered ← targets           (Release)
//!   senders of their groups += me  (locked)         for each of the senders of my group
//!   absent ones: unanswered −= them                   unanswered names me?  (Acquire)
//!   interrupt the others                              read the letter, act on it
//!   unanswered empty?              (Acquire)          unanswered −= me      (locked, Release)
//!   senders of their groups −= me  (locked)
//! ```
//!
//! So a letter costs two locked instructions for each [`GROUP`] of CPUs that it goes to; Linux adds
//! to a list of each CPU, with one for each. A group is what one command can interrupt, a cluster
//! of the x2APIC or the list of a GICv3's SGI. One mask for all would make senders who have nothing
//! to do with each other take one line from each other.
//!
//! **INV-MAIL-READ.** The words are stored before the bit that names the reader (Release), and he
//! looks for his bit before he reads (Acquire). He clears it when he has read and acted (Release),
//! nobody else does, and the sender writes anew when all are clear (Acquire). So what the sender
//! did before the letter the reader sees, and what the reader did before the answer the sender. x86
//! asks no fence for that (SDM vol. 3A §8.2.2: stores are seen in order); on arm64 it is STLR, LDAR
//! and an exclusive or atomic of both.
//!
//! **INV-MAIL-LOST.** Who interrupts sees to it that the handler finds what was stored before: on
//! x86 the locked instruction has drained the store buffer, on arm64 a DSB ISHST stands before the
//! SGI (Linux's `gic_ipi_send_mask`). A handler that has looked too early is called again, because
//! an interrupt that comes meanwhile stays pending. One that finds more than it was called for
//! answers it, and the interrupt for that finds nothing.
//!
//! **INV-MAIL-ABSENT.** Who leaves says so, then looks for letters; who sends names the target,
//! then looks whether it is absent. In between both change the same word of the group's senders by
//! a locked instruction, and the second of the two acquires what the first released. So either the
//! sender sees the absence and takes the letter back, or the one who leaves sees the letter and
//! answers. A letter that may be taken back may be written anew, so it must not be read: on the way
//! out, while absent, and on the way in – a sender may have seen the absence and not taken back yet
//! – a CPU answers without reading. It may, for it owes nothing then. If such an answer comes late
//! it clears the bit of the next letter for the same CPU, which is as absent or has just come in,
//! and owes nothing for that one either.
//!
//! Neighbours: the shootdown by interrupt of `tlb` uses it, and says what the words mean.
//! INV-TLB-HOTPLUG rests on it.
//!
//! Not guaranteed: the order in which letters are answered; that a CPU which is given as sender is
//! the one that runs.

use crate::atomic::{AtomicU64, Ordering};
use crate::backend::Backend;
use crate::cpumask::AtomicCpuMask;
use crate::percpu::{AllocError, PerCpu};
use core::marker::PhantomData;
use pagewright_plant::plant;
use pagewright_types::{CpuId, CpuMask};

/// CPUs that have their senders in one mask.
const GROUP: usize = 16;

/// One CPU's letter and those who have not answered it.
struct Outbox<const WORDS: usize> {
    letter: [AtomicU64; WORDS],
    unanswered: AtomicCpuMask,
}

/// Letters of `WORDS` words, one of each CPU.
pub struct Mailbox<const WORDS: usize, B> {
    out: PerCpu<Outbox<WORDS>>,
    /// For each group, who has a letter out to one of its CPUs.
    senders: PerCpu<AtomicCpuMask>,
    /// CPUs that answer nobody.
    absent: AtomicCpuMask,
    kind: PhantomData<fn() -> B>,
}

impl<const WORDS: usize, B: Backend> Mailbox<WORDS, B> {
    /// Nothing sent, and all of `cpus` CPUs present.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn try_new(cpus: usize) -> Result<Self, AllocError> {
        let letter = || core::array::from_fn(|_| AtomicU64::new(0));
        Ok(Self {
            out: PerCpu::try_new(cpus, |_| Outbox { letter: letter(), unanswered: AtomicCpuMask::new() })?,
            senders: PerCpu::try_new(cpus.div_ceil(GROUP), |_| AtomicCpuMask::new())?,
            absent: AtomicCpuMask::new(),
            kind: PhantomData,
        })
    }

    /// Writes the letter of `me`, the CPU that calls, to `targets`.
    ///
    /// Returns those that are present: the caller interrupts them, and waits until the letter [is
    /// answered](Self::is_answered).
    ///
    /// # Panics
    /// In debug builds when the last letter was not answered.
    pub fn send(&self, me: CpuId, words: [u64; WORDS], targets: &CpuMask) -> CpuMask {
        let out = self.out.get(me);
        debug_assert!(out.unanswered.load().is_empty(), "INV-MAIL-READ: a letter is written while it may be read");
        B::point();
        for (word, value) in out.letter.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        out.unanswered.store(targets);
        self.groups(targets).for_each(|senders| {
            senders.insert(me);
        });
        B::point();
        let absent = self.absent.load().and(targets);
        absent.iter().for_each(|cpu| {
            out.unanswered.remove(cpu);
        });
        targets.without(&absent)
    }

    /// Whether everybody has answered the letter that `me` has sent to `targets`.
    ///
    /// If so it is over, and this is not asked again.
    #[inline]
    pub fn is_acknowledged(&self, me: CpuId, targets: &CpuMask) -> bool {
        let answered = self.out.get(me).unanswered.load().is_empty();
        if answered {
            self.groups(targets).for_each(|senders| {
                senders.remove(me);
            });
        }
        answered
    }

    /// Has `serve` do what each letter to `me`, the CPU that calls, asks for, and answers it.
    ///
    /// Interrupts are closed.
    pub fn serve(&self, me: CpuId, mut serve: impl FnMut([u64; WORDS])) {
        let senders = self.senders_to(me).load();
        let absent = self.absent.contains(me);
        self.answer_each(me, senders, |out| {
            if !absent {
                serve(core::array::from_fn(|word| out.letter[word].load(Ordering::Relaxed)));
            }
        });
    }

    /// `me`, the CPU that calls, answers nobody from here on.
    ///
    /// It owes nothing that a letter could ask for, until it has [entered](Self::enter).
    pub fn leave(&self, me: CpuId) {
        self.absent.insert(me);
        self.answer_unread(me);
    }

    /// `me`, the CPU that calls, answers again.
    ///
    /// Interrupts are closed, and it owes nothing yet.
    pub fn enter(&self, me: CpuId) {
        self.absent.remove(me);
        self.answer_unread(me);
    }

    fn answer_unread(&self, me: CpuId) {
        B::point();
        self.answer_each(me, self.senders_to(me).latest(), |_| {});
    }

    fn answer_each(&self, me: CpuId, senders: CpuMask, mut read: impl FnMut(&Outbox<WORDS>)) {
        for sender in senders.iter() {
            let out = self.out.get(sender);
            if out.unanswered.contains(me) {
                B::point();
                plant!(AcknowledgedEarly => { out.unanswered.remove(me); B::point(); });
                read(out);
                // The answer comes last: from here on the sender may do what it has waited for, and
                // write anew.
                out.unanswered.remove(me);
            }
        }
    }

    fn senders_to(&self, cpu: CpuId) -> &AtomicCpuMask {
        self.senders.get(CpuId::new((cpu.index() / GROUP) as u16))
    }

    /// The senders of each group of which a CPU is in `targets`.
    fn groups(&self, targets: &CpuMask) -> impl Iterator<Item = &AtomicCpuMask> {
        const IN_A_WORD: usize = 64 / GROUP;
        let words = targets.words();
        let is_asked =
            move |group: usize| words[group / IN_A_WORD] >> (group % IN_A_WORD * GROUP) & ((1 << GROUP) - 1) != 0;
        self.senders.iter().enumerate().filter(move |(group, _)| is_asked(*group)).map(|(_, senders)| senders)
    }
}
