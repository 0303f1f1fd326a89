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
    /// The part of `nr_tlb_remote_flush` that hint scans caused.
    pub scan_flushes: u64,
    /// The part of `pw_tlb_batch_flushed` that hint scans caused.
    pub scan_batches: u64,
    /// The counts when the node had turned over once; `None` if it did not.
    pub at_turnover: Option<TurnoverCounts>,
}

/// The counts when the fast node had turned over once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnoverCounts {
    /// The counters so far.
    pub counters: NamedCounts,
    /// [`TierReport::scan_flushes`] so far.
    pub scan_flushes: u64,
    /// [`TierReport::scan_batches`] so far.
    pub scan_batches: u64,
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
        let flushes = || [Counter::NrTlbRemoteFlush, Counter::PwTlbBatchFlushed].map(|count| lab.mm().counter(count));
        let before = flushes();
        lab.on(cpu, |mm| mm.numa_tick(space, ticks));
        let after = flushes();
        let tiers = &mut self.tiers;
        tiers.scan_flushes += after[0] - before[0];
        tiers.scan_batches += after[1] - before[1];
        if tiers.at_turnover.is_none() && lab.mm().counter(Counter::PgPromoteSuccess) >= tiers.frames {
            tiers.at_turnover = Some(TurnoverCounts {
                counters: NamedCounts(counters(lab).collect()),
                scan_flushes: tiers.scan_flushes,
                scan_batches: tiers.scan_batches,
                elapsed_ns: lab.sim().elapsed().raw() / 1000,
            });
        }
    }
}
