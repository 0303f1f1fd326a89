//! Shootdown by interrupt (x86-64; Linux's `arch/x86/mm/tlb.c`).
//!
//! A request is one of a [`Mailbox`](pagewright_sync::Mailbox), which all targets read where it was
//! written. Its module says why none is lost, or read half.
//!
//! A CPU that runs the space brings its slot up to the space's generation. It flushes page by page
//! only if it has missed nothing before this request and knows of nothing after it; else it flushes
//! the whole tag and has caught up with everything.

use super::{FlushInfo, Tlb};
use crate::context::TlbContext;
use core::sync::atomic::Ordering;
use pagewright_arch::InvalidateTarget;
use pagewright_plant::plant;
use pagewright_sync::{Backend, LineUse, Platform};
use pagewright_types::{Counter, CpuId, CpuMask, Level, PageRange, SpaceId, VirtAddr};

/// What a sender asks of its targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    /// Catch up with a space's generation.
    Space { space: SpaceId, generation: u64, flush: FlushInfo },
    /// Forget everything but global entries.
    Everything,
}

/// Words of an [`Ask`] in the mail.
pub(super) const WORDS: usize = 4;

impl Ask {
    const TABLES: u64 = 1;
    const LEVEL: u32 = 1;
    const SPACE: u32 = 8;

    /// The request as words: the space's id with the kind of flush, the generation, the range.
    ///
    /// The id is never 0. The range is empty for the whole space.
    fn to_words(self) -> [u64; WORDS] {
        match self {
            Self::Everything => [0; WORDS],
            Self::Space { space, generation, flush } => {
                let tables = if flush.freed_tables { Self::TABLES } else { 0 };
                let kind = space.raw() << Self::SPACE | u64::from(flush.level.raw()) << Self::LEVEL | tables;
                let (start, end) = flush.range.map_or((0, 0), |range| (range.start().raw(), range.end().raw()));
                [kind, generation, start, end]
            }
        }
    }

    fn from_words([kind, generation, start, end]: [u64; WORDS]) -> Self {
        let space = SpaceId::new(kind >> Self::SPACE);
        if space == SpaceId::default() {
            return Self::Everything;
        }
        let range = (start != end).then(|| PageRange::new(VirtAddr::new(start), VirtAddr::new(end)));
        let (level, freed_tables) = (Level::new((kind as u8) >> Self::LEVEL), kind & Self::TABLES != 0);
        Self::Space { space, generation, flush: FlushInfo { range, level, freed_tables } }
    }
}

impl<P: Platform> Tlb<P> {
    pub(super) fn flush_ipi(&self, context: &TlbContext, flush: FlushInfo) {
        self.use_context(context, LineUse::Store);
        // INV-TLB-SWITCH: the generation moves (a full barrier) before the mask is read. A CPU that
        // sees the new generation sees the entries that were edited before: the locked addition
        // empties the store buffer, at the point before it.
        P::Locks::point();
        let (generation, mut targets) = plant!(
            MaskBeforeBump;
            { let mask = context.cpus(); P::Locks::point(); (context.bump(), mask) },
            { let generation = context.bump(); P::Locks::point(); (generation, context.cpus()) }
        );
        let ask = Ask::Space { space: context.id(), generation, flush };
        let me = self.fx().cpu();
        targets.remove(me);
        plant!(LocalOnly => targets = CpuMask::EMPTY);
        if plant!(LazySkipped; true, !flush.freed_tables) {
            // A lazy CPU looks at the generation before it returns to user mode, but its walker may
            // still read tables.
            targets.retain(|cpu| !self.cpus.get(cpu).lazy.load(Ordering::SeqCst));
        }
        self.post(me, ask, &targets);
        self.fx().without_interrupts(|| self.serve(me, ask));
        self.await_answers(me, &targets);
    }

    pub(super) fn everything_ipi(&self, owing: &CpuMask) {
        let me = self.fx().cpu();
        let mut targets = *owing;
        targets.remove(me);
        self.post(me, Ask::Everything, &targets);
        if owing.contains(me) {
            self.fx().without_interrupts(|| self.serve(me, Ask::Everything));
        }
        self.await_answers(me, &targets);
    }

    /// Sends `ask`; the targets flush while the caller does its own part.
    ///
    /// This is the concurrent flushing of Amit et al., EuroSys '20.
    fn post(&self, me: CpuId, ask: Ask, targets: &CpuMask) {
        if targets.is_empty() {
            return;
        }
        let reached = self.mailbox.send(me, ask.to_words(), targets);
        if !reached.is_empty() {
            self.count(Counter::NrTlbRemoteFlush, 1);
            self.fx().send_ipi(&reached);
        }
    }

    fn await_answers(&self, me: CpuId, targets: &CpuMask) {
        if targets.is_empty() {
            return;
        }
        loop {
            self.fx().relax();
            if self.mailbox.is_acknowledged(me, targets) {
                return;
            }
        }
    }

    /// Handles a shootdown IPI: serves every CPU that has sent this one a request.
    ///
    /// The embedder calls it on the CPU that was interrupted, with interrupts disabled.
    pub fn handle_ipi(&self) {
        let me = self.fx().cpu();
        self.mailbox.serve(me, |words| {
            self.count(Counter::NrTlbRemoteFlushReceived, 1);
            self.serve(me, Ask::from_words(words));
        });
    }

    /// Does one request on this CPU (`flush_tlb_func`).
    ///
    /// Interrupts are closed.
    fn serve(&self, me: CpuId, ask: Ask) {
        match ask {
            Ask::Everything => {
                let sampled = self.ledger().sample();
                self.invalidate_local(InvalidateTarget::AllTags);
                self.count(Counter::NrTlbLocalFlushAll, 1);
                self.ledger().advance(me, sampled);
            }
            Ask::Space { space, generation, flush } => {
                let state = self.cpus.get(me);
                if state.loaded.load(Ordering::SeqCst) != space.raw() {
                    // Not running it: its slot, if any, is caught up by generation when it runs
                    // again.
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
    fn catch_up(&self, me: CpuId, asked: u64, flush: FlushInfo) {
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
                    self.invalidate_local(InvalidateTarget::Page {
                        tag,
                        va,
                        level: flush.level,
                        last_level: !flush.freed_tables,
                    });
                    va = va.add(stride);
                }
                plant!(PartialClock => self.ledger().advance(me, self.ledger().sample()));
                self.count(Counter::NrTlbLocalFlushOne, pages);
                state.pcids.set_seen(asked);
            }
            _ => {
                self.invalidate_local(InvalidateTarget::Tag(tag));
                self.count(Counter::NrTlbLocalFlushAll, 1);
                state.pcids.set_seen(newest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ask() -> impl Strategy<Value = Ask> {
        // A space's id is never 0, nor is one ever as large as this.
        let (space, generation) = (1..1_u64 << (u64::BITS - Ask::SPACE), any::<u64>());
        let range = prop::option::of((0_u64..1 << 36, 1_u64..1 << 12));
        let space = (space, generation, range, 0..Level::COUNT as u8, any::<bool>());
        let space = space.prop_map(|(space, generation, range, level, freed_tables)| {
            let page = VirtAddr::from_page_index;
            let range = range.map(|(start, pages)| PageRange::new(page(start), page(start + pages)));
            let flush = FlushInfo { range, level: Level::new(level), freed_tables };
            Ask::Space { space: SpaceId::new(space), generation, flush }
        });
        prop_oneof![1 => Just(Ask::Everything), 20 => space]
    }

    proptest! {
        #[test]
        fn a_request_survives_encoding(ask in ask()) {
            prop_assert_eq!(Ask::from_words(ask.to_words()), ask);
        }
    }
}
