//! Shootdown by interrupt (x86-64; Linux's `arch/x86/mm/tlb.c`).
//!
//! Each CPU has one outgoing request, because it waits for the answers before it sends another. A target reads the request out of the
//! sender's mail, so nothing is allocated and nothing is copied per target.
//!
//! A CPU that runs the space brings its slot up to the space's generation. It flushes page by page only if it has missed nothing
//! before this request and knows of nothing after it; else it flushes the whole tag and has caught up with everything.

use super::{Flush, Tlb};
use crate::context::Context;
use core::sync::atomic::Ordering;
use pagewright_arch::Target;
use pagewright_sync::{AtomicMask, Backend, Platform, SpinLock, rank};
use pagewright_types::plant;
use pagewright_types::{Counter, CpuId, CpuMask, SpaceId};

/// What a sender asks of its targets.
#[derive(Clone, Copy, Debug)]
enum Ask {
    /// Catch up with a space's generation.
    Space { space: SpaceId, generation: u64, flush: Flush },
    /// Forget everything but global entries.
    Everything,
}

/// A CPU's outgoing request and the targets that have not answered.
pub(super) struct Mail<P: Platform> {
    ask: SpinLock<Option<Ask>, rank::Mailbox, P::Locks>,
    pending: AtomicMask,
}

impl<P: Platform> Mail<P> {
    pub(super) fn new() -> Self {
        Self { ask: SpinLock::new(None), pending: AtomicMask::new() }
    }
}

impl<P: Platform> Tlb<P> {
    pub(super) fn flush_ipi(&self, context: &Context, flush: Flush) {
        // INV-TLB-SWITCH: the generation moves (a full barrier) before the mask is read.
        let (generation, mut targets) = plant!(
            MaskBeforeBump;
            { let mask = context.cpus(); P::Locks::point(); (context.bump(), mask) },
            { let generation = context.bump(); P::Locks::point(); (generation, context.cpus()) }
        );
        let ask = Ask::Space { space: context.id(), generation, flush };
        let me = self.fx().cpu();
        targets.remove(me);
        plant!(LocalOnly => targets = CpuMask::EMPTY);
        if plant!(LazySkipped; true, !flush.tables) {
            // A lazy CPU looks at the generation before it returns to user mode, but its walker may still read tables.
            targets = targets.iter().filter(|cpu| !self.cpus.get(*cpu).lazy.load(Ordering::SeqCst)).collect();
        }
        self.post(me, ask, targets);
        self.fx().without_interrupts(|| self.serve(me, ask));
        self.await_answers(me, &targets);
    }

    pub(super) fn everything_ipi(&self, owing: &CpuMask) {
        let me = self.fx().cpu();
        let mut targets = *owing;
        targets.remove(me);
        self.post(me, Ask::Everything, targets);
        if owing.contains(me) {
            self.fx().without_interrupts(|| self.serve(me, Ask::Everything));
        }
        self.await_answers(me, &targets);
    }

    /// Sends `ask`; the targets work while the caller does its own part (concurrent flushing, Amit et al., EuroSys '20).
    fn post(&self, me: CpuId, ask: Ask, targets: CpuMask) {
        if targets.is_empty() {
            return;
        }
        let mail = &self.cpus.get(me).mail;
        self.fx().without_interrupts(|| *mail.ask.lock() = Some(ask));
        mail.pending.insert_all(&targets);
        let mut reached = targets;
        for target in targets.iter() {
            let state = self.cpus.get(target);
            state.inbox.insert(me);
            // INV-TLB-HOTPLUG: if it has read the letter it answers, gone or not.
            if state.gone.load(Ordering::SeqCst) && state.inbox.remove(me) {
                mail.pending.remove(target);
                reached.remove(target);
            }
        }
        if !reached.is_empty() {
            self.count(Counter::NrTlbRemoteFlush, 1);
            self.fx().kick(&reached);
        }
    }

    fn await_answers(&self, me: CpuId, targets: &CpuMask) {
        if targets.is_empty() {
            return;
        }
        let mail = &self.cpus.get(me).mail;
        loop {
            self.fx().relax();
            if mail.pending.load().is_empty() {
                return;
            }
        }
    }

    /// The interrupt handler: serves every CPU that has written to this one. The embedder calls it on the CPU that was kicked,
    /// with interrupts closed.
    pub fn on_kick(&self) {
        let me = self.fx().cpu();
        for sender in self.cpus.get(me).inbox.take().iter() {
            let mail = &self.cpus.get(sender).mail;
            let ask = *mail.ask.lock();
            if let Some(ask) = ask {
                self.count(Counter::NrTlbRemoteFlushReceived, 1);
                self.serve(me, ask);
            }
            // The answer comes last: the sender may free frames, and reuse its mail, from here on.
            mail.pending.remove(me);
        }
    }

    /// Does one request on this CPU (`flush_tlb_func`). Interrupts are closed.
    fn serve(&self, me: CpuId, ask: Ask) {
        match ask {
            Ask::Everything => {
                let sampled = self.ledger().sample();
                self.invalidate_local(Target::AllTags);
                self.count(Counter::NrTlbLocalFlushAll, 1);
                self.ledger().advance(me, sampled);
            }
            Ask::Space { space, generation, flush } => {
                let state = self.cpus.get(me);
                if state.loaded.load(Ordering::SeqCst) != space.raw() {
                    // Not running it: its slot, if any, is caught up by generation when it runs again.
                    return;
                }
                if state.lazy.load(Ordering::SeqCst) {
                    // The tables may go: leave them now and do not come back without a full switch.
                    self.leave_lazy_space(me);
                    return;
                }
                self.catch_up(me, generation, flush);
            }
        }
    }

    /// Brings this CPU's slot of the running space up to date.
    fn catch_up(&self, me: CpuId, asked: u64, flush: Flush) {
        let state = self.cpus.get(me);
        let seen = state.pcids.seen();
        let newest = {
            let context = state.context.lock();
            context.as_ref().map_or(asked, |context| context.generation())
        };
        if seen >= newest {
            return;
        }
        let tag = state.pcids.current_tag(self.fx().caps().tagged);
        let stride = flush.level.span();
        let pages = flush.range.map_or(u64::MAX, |range| range.len().div_ceil(stride));
        let in_step = asked == seen + 1 && asked == newest;
        match flush.range {
            Some(range) if in_step && pages <= u64::from(self.single_page_flush_ceiling()) => {
                let mut va = range.start();
                while va < range.end() {
                    self.invalidate_local(Target::Page { tag, va, level: flush.level, last_level: !flush.tables });
                    va = va.add(stride);
                }
                plant!(PartialClock => self.ledger().advance(me, self.ledger().sample()));
                self.count(Counter::NrTlbLocalFlushOne, pages);
                state.pcids.set_seen(asked);
            }
            _ => {
                self.invalidate_local(Target::Tag(tag));
                self.count(Counter::NrTlbLocalFlushAll, 1);
                state.pcids.set_seen(newest);
            }
        }
    }
}
