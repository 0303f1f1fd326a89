//! Which space a CPU runs (Linux's `switch_mm_irqs_off`, `enter_lazy_tlb`).

use crate::context::TlbContext;
use crate::engine::Tlb;
use core::sync::atomic::Ordering;
use pagewright_arch::InvalidateTarget;
use pagewright_plant::plant;
use pagewright_sync::{Arc, Backend, LineUse, Platform};
use pagewright_types::{Counter, CpuId, Pfn, SpaceId, Tag};

impl<P: Platform> Tlb<P> {
    /// Makes this CPU run the space of `next` (`switch_mm_irqs_off`).
    ///
    /// Costs nothing when it runs that space already.
    pub fn switch_to(&self, next: &Arc<TlbContext>) {
        self.fx().without_interrupts(|| match &self.asids {
            None => self.switch_tagged_per_cpu(next),
            Some(_) => self.switch_broadcast(next),
        });
    }

    /// Makes this CPU lazy: it makes no user access until the next [`Tlb::switch_to`].
    ///
    /// For a kernel thread or the idle loop (`enter_lazy_tlb`).
    pub fn enter_lazy(&self) {
        let me = self.fx().cpu();
        let state = self.cpus.get(me);
        if state.loaded.load(Ordering::SeqCst) == 0 {
            return;
        }
        match &self.asids {
            // x86: stay on the root; the next run of the same space is free unless its generation
            // moved. User mode is out of reach before senders may leave this CPU out.
            None => {
                self.fx().set_lazy(true);
                state.lazy.store(true, Ordering::SeqCst);
            }
            // arm64: broadcast invalidations can't tell a lazy CPU to leave a dying root, so it
            // leaves at once.
            Some(_) => self.fx().without_interrupts(|| self.unload(me)),
        }
    }

    /// Loads the empty root in place of the space that this CPU runs (`leave_mm`).
    pub fn leave_space(&self) {
        self.fx().without_interrupts(|| self.unload(self.fx().cpu()));
    }

    fn unload(&self, me: CpuId) {
        let state = self.cpus.get(me);
        if let Some(context) = self.put_loaded(me, None) {
            self.load_root(me, self.kernel_root, Tag::new(0), true);
            self.use_context(&context, LineUse::Store);
            context.cpus.remove(me);
        }
        if state.lazy.swap(false, Ordering::SeqCst) {
            self.fx().set_lazy(false);
        }
    }

    /// In the shootdown handler: the tables under a lazy CPU are about to go.
    pub(crate) fn leave_lazy_space(&self, me: CpuId) {
        self.unload(me);
    }

    /// Loads a root, which on a machine without tags flushes everything (SDM vol. 3A §4.10.4.1).
    ///
    /// Such a flush advances the clock of this CPU (INV-LEDGER-SAMPLE).
    fn load_root(&self, me: CpuId, root: Pfn, tag: Tag, keep: bool) {
        let sampled = self.ledger().sample();
        self.fx().install_root(root, tag, keep);
        if !self.fx().caps().tagged {
            self.ledger().advance(me, plant!(UntaggedSampledLate; self.ledger().sample(), sampled));
        }
    }

    fn put_loaded(&self, me: CpuId, next: Option<Arc<TlbContext>>) -> Option<Arc<TlbContext>> {
        let state = self.cpus.get(me);
        state.loaded.store(next.as_ref().map_or(SpaceId::default(), |context| context.id()).raw(), Ordering::SeqCst);
        core::mem::replace(&mut *state.context.lock(), next)
    }

    fn switch_tagged_per_cpu(&self, next: &Arc<TlbContext>) {
        let me = self.fx().cpu();
        let state = self.cpus.get(me);
        let tagged = self.fx().caps().tagged;
        // Out of lazy mode before the mask is joined and the generation is read: a sender that
        // still saw it has moved the generation before, and is seen below (as at the top of
        // `switch_mm_irqs_off`).
        let was_lazy = plant!(
            LazyWhileJoining;
            state.lazy.load(Ordering::SeqCst),
            state.lazy.swap(false, Ordering::SeqCst)
        );
        if state.loaded.load(Ordering::SeqCst) == next.id().raw() {
            plant!(LazyWhileJoining => state.lazy.store(false, Ordering::SeqCst));
            if was_lazy {
                let generation = next.generation();
                if plant!(LazyNoCatchUp; false, state.pcids.seen() != generation) {
                    self.invalidate_local(InvalidateTarget::Tag(state.pcids.current_tag(tagged)));
                    self.count(Counter::NrTlbLocalFlushAll, 1);
                    state.pcids.set_seen(generation);
                }
                self.fx().set_lazy(false);
            }
            return;
        }
        self.use_context(next, LineUse::Store);
        // INV-TLB-SWITCH: join the mask (a full barrier), then read the generation.
        plant!(JoinAfterRead; (), { next.cpus.insert(me); });
        P::Locks::point();
        let generation = next.generation();
        plant!(JoinAfterRead => P::Locks::point());
        plant!(JoinAfterRead => { next.cpus.insert(me); });
        let assignment = state.pcids.choose(next.id(), generation, tagged);
        if !assignment.keep {
            self.count(Counter::NrTlbLocalFlushAll, 1);
        }
        plant!(SeenBeforeFlush => state.pcids.set_seen(generation));
        self.load_root(me, next.root(), assignment.tag, assignment.keep);
        state.pcids.set_seen(generation);
        plant!(LazyWhileJoining => state.lazy.store(false, Ordering::SeqCst));
        if was_lazy {
            self.fx().set_lazy(false);
        }
        if let Some(previous) = self.put_loaded(me, Some(next.clone())) {
            // After the root is gone: what the slot keeps is judged by its generation from now on.
            self.use_context(&previous, LineUse::Store);
            previous.cpus.remove(me);
        }
    }

    fn switch_broadcast(&self, next: &Arc<TlbContext>) {
        let me = self.fx().cpu();
        if self.cpus.get(me).loaded.load(Ordering::SeqCst) == next.id().raw() {
            return;
        }
        let Some(asids) = &self.asids else { return };
        let grant = asids.grant(me, next, &self.fx().online());
        if grant.rolled_over {
            self.count(Counter::PwTlbTagRollover, 1);
        }
        if grant.flush_local {
            // INV-TLB-ROLLOVER: whatever this CPU kept was tagged in an older generation.
            let sampled = self.ledger().sample();
            self.invalidate_local(InvalidateTarget::AllTags);
            self.count(Counter::NrTlbLocalFlushAll, 1);
            self.fx().complete();
            self.ledger().advance(me, sampled);
        }
        self.use_context(next, LineUse::Store);
        next.cpus.insert(me);
        self.fx().install_root(next.root(), grant.tag, true);
        if let Some(previous) = self.put_loaded(me, Some(next.clone())) {
            self.use_context(&previous, LineUse::Store);
            previous.cpus.remove(me);
        }
    }
}
