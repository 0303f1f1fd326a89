//! The counts of a replay on memory tiers up to the turnover of the fast node.
//!
//! Key type: [`TierReport`]. The fast node, node 0, has turned over once when as many pages have
//! been promoted as it has frames. Until then most pages that leave it are those with which the
//! program filled it. The engine looks at each timer tick, so the counts are up to a tick late.
//!
//! Not guaranteed: that each frame of the node was used anew.

use super::engine::Engine;
use super::report::NamedCounts;
use pagewright_arch::Isa;
use pagewright_lab::Lab;
use pagewright_mm::Space;
use pagewright_sim::{MachineEvent, Sim};
use pagewright_types::{Counter, CpuId, NodeId};

/// The fast node, whose turnover is reported.
const FAST: NodeId = NodeId::new(0);

/// What a replay counts of the fast node and of hint scans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierReport {
    /// The frames of the fast node.
    pub frames: u64,
    /// The frames between its low and its high watermark.
    pub low_to_high: u64,
    /// The remote flushes that hint scans caused.
    pub scans: RemoteFlushes,
    /// The counts when the node had turned over once; `None` if it did not.
    pub at_turnover: Option<TurnoverCounts>,
}

/// Remote flushes, and the parts of them that have counters of their own.
///
/// Each flush is in one part at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteFlushes {
    /// `nr_tlb_remote_flush`.
    pub all: u64,
    /// `pw_tlb_batch_waits`.
    pub batches: u64,
    /// `pw_tlb_settle_waits`.
    pub settles: u64,
    /// `pw_linger_store_waits`.
    pub stores: u64,
}

impl RemoteFlushes {
    /// The counts so far.
    pub fn of(count: impl Fn(Counter) -> u64) -> Self {
        Self {
            all: count(Counter::NrTlbRemoteFlush),
            batches: count(Counter::PwTlbBatchWaits),
            settles: count(Counter::PwTlbSettleWaits),
            stores: count(Counter::PwLingerStoreWaits),
        }
    }

    /// What was counted since `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            all: self.all - before.all,
            batches: self.batches - before.batches,
            settles: self.settles - before.settles,
            stores: self.stores - before.stores,
        }
    }

    const fn and(self, more: Self) -> Self {
        Self {
            all: self.all + more.all,
            batches: self.batches + more.batches,
            settles: self.settles + more.settles,
            stores: self.stores + more.stores,
        }
    }

    /// Those in no part.
    pub const fn rest(self) -> u64 {
        self.all - self.batches - self.settles - self.stores
    }
}

/// The counts when the fast node had turned over once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnoverCounts {
    /// The counters so far.
    pub counters: NamedCounts,
    /// [`TierReport::scans`] so far.
    pub scans: RemoteFlushes,
    /// The modelled time so far, in nanoseconds.
    pub elapsed_ns: u64,
}

impl TierReport {
    pub(super) fn new<I: Isa>(lab: &Lab<I>) -> Self {
        let zones = || lab.mm().tlb().frames().zones().filter(|zone| zone.node() == FAST);
        let marks = zones().map(|zone| zone.watermarks());
        Self {
            frames: zones().map(|zone| u64::from(zone.managed())).sum(),
            low_to_high: marks.map(|marks| u64::from(marks.high - marks.low)).sum(),
            ..Self::default()
        }
    }
}

/// All counters: the machine's events, then the memory manager's.
pub(super) fn counters<I: Isa>(lab: &Lab<I>) -> impl Iterator<Item = (&'static str, u64)> {
    let machine = MachineEvent::ALL.iter().map(|event| (event.name(), lab.sim().total(*event)));
    machine.chain(Counter::ALL.iter().map(|counter| (counter.name(), lab.mm().counter(*counter))))
}

impl<I: Isa> Engine<'_, I> {
    /// Runs the memory manager's part of a timer tick, and attributes its flushes to scans.
    pub(super) fn scan(&mut self, cpu: CpuId, space: &Space<Sim<I>>, ticks: u64) {
        let lab = self.lab;
        let so_far = || RemoteFlushes::of(|counter| lab.mm().counter(counter));
        let before = so_far();
        lab.on(cpu, |mm| mm.numa_tick(space, ticks));
        let tiers = &mut self.tiers;
        tiers.scans = tiers.scans.and(so_far().since(before));
        if tiers.at_turnover.is_none() && lab.mm().counter(Counter::PgPromoteSuccess) >= tiers.frames {
            tiers.at_turnover = Some(TurnoverCounts {
                counters: NamedCounts(counters(lab).collect()),
                scans: tiers.scans,
                elapsed_ns: lab.sim().elapsed().raw() / 1000,
            });
        }
    }
}
