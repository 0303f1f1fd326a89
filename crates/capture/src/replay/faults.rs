//! The faults of a replay by mapping, over time and by node.
//!
//! [`FaultLog`] notes each fault, and becomes the parts of the report.

use super::report::{FaultTimeline, MappingFaults, NamedCounts, NodeReport};
use super::timeline::Timeline;
use pagewright_arch::Isa;
use pagewright_lab::Lab;
use pagewright_mm::Space;
use pagewright_sim::{MachineEvent, NodeAccesses, Sim};
use pagewright_types::{Counter, CpuId, NodeId, PAGE_SIZE, VirtAddr};
use std::collections::BTreeMap;

/// Minor and major faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FaultPair {
    pub(super) minor: u64,
    pub(super) major: u64,
}

/// The faults so far.
pub(super) struct FaultLog {
    by_mapping: BTreeMap<String, FaultPair>,
    timeline: Timeline,
    by_node: Vec<FaultPair>,
    /// The least number of free frames of each node.
    least_free: Vec<u64>,
}

/// The number of free frames of each node.
fn free_frames<I: Isa>(lab: &Lab<I>) -> Vec<u64> {
    let frames = lab.mm().tlb().frames();
    let mut free = vec![0; frames.nodes()];
    for zone in frames.zones() {
        free[usize::from(zone.node().raw())] += u64::from(zone.free());
    }
    free
}

/// The name of the mapping that contains `va`: its file, or what it is.
fn mapping_name<I: Isa>(lab: &Lab<I>, cpu: CpuId, space: &Space<Sim<I>>, va: VirtAddr) -> String {
    lab.on(cpu, |_| {
        let map = space.map().read();
        let Some((_, vma)) = map.find(va) else { return "[unmapped since]".to_owned() };
        match vma.file() {
            Some(file) => file.name().to_owned(),
            None if map.heap().contains(va) => "[heap]".to_owned(),
            None if vma.grows_down() => "[stack]".to_owned(),
            None if vma.is_shared() => "[shared]".to_owned(),
            None => "[anonymous]".to_owned(),
        }
    })
}

impl FaultLog {
    pub(super) fn new<I: Isa>(lab: &Lab<I>) -> Self {
        let least_free = free_frames(lab);
        let by_node = vec![FaultPair::default(); least_free.len()];
        Self { by_mapping: BTreeMap::new(), timeline: Timeline::new(), by_node, least_free }
    }

    /// Notes the faults of an access that a CPU made at `va`.
    #[cold]
    pub(super) fn note<I: Isa>(
        &mut self,
        lab: &Lab<I>,
        cpu: CpuId,
        space: &Space<Sim<I>>,
        va: VirtAddr,
        faults: FaultPair,
    ) {
        self.timeline.add(lab.sim().clock(cpu).raw() / 1000, faults.minor + faults.major);
        let node = lab.mm().tlb().frames().node_of_cpu(cpu);
        let of_mapping = self.by_mapping.entry(mapping_name(lab, cpu, space, va)).or_default();
        for sum in [of_mapping, &mut self.by_node[usize::from(node.raw())]] {
            sum.minor += faults.minor;
            sum.major += faults.major;
        }
        for (least, free) in self.least_free.iter_mut().zip(free_frames(lab)) {
            *least = (*least).min(free);
        }
    }

    /// The mappings by their number of faults, the most first.
    pub(super) fn by_mapping(&self) -> Vec<MappingFaults> {
        let mapping = |(mapping, faults): (&String, &FaultPair)| MappingFaults {
            mapping: mapping.clone(),
            minor_faults: faults.minor,
            major_faults: faults.major,
        };
        let mut mappings: Vec<MappingFaults> = self.by_mapping.iter().map(mapping).collect();
        mappings.sort_by_key(|mapping| std::cmp::Reverse(mapping.minor_faults + mapping.major_faults));
        mappings
    }

    pub(super) fn timeline(&self) -> FaultTimeline {
        FaultTimeline { slot_ns: self.timeline.slot_ns(), faults: self.timeline.used().to_vec() }
    }

    /// The figures of each node.
    pub(super) fn nodes<I: Isa>(&self, lab: &Lab<I>) -> Vec<NodeReport> {
        let frames = lab.mm().tlb().frames();
        let free = free_frames(lab);
        let managed = |node: usize| -> u64 {
            let of_node = frames.zones().filter(|zone| usize::from(zone.node().raw()) == node);
            of_node.map(|zone| u64::from(zone.managed())).sum()
        };
        let (sim, cpu) = (lab.sim(), CpuId::new(0));
        let distances = sim.config().distance_matrix();
        let accesses = sim.node_accesses();
        // A machine with one node counts no accesses by node; all that it translates reach node 0.
        let of_all = |event| if accesses.is_empty() { sim.total(event) } else { 0 };
        let sum = |node: usize, remote: bool, count: fn(&NodeAccesses) -> u64| -> u64 {
            let of_node = accesses.iter().filter(|pair| pair.to.index() == node);
            of_node.filter(|pair| !remote || pair.from != pair.to).map(count).sum()
        };
        let report = |node: usize| NodeReport {
            node: NodeId::new(node as u8),
            memory_bytes: managed(node) * PAGE_SIZE,
            peak_used_bytes: (managed(node) - self.least_free[node]) * PAGE_SIZE,
            used_bytes: (managed(node) - free[node]) * PAGE_SIZE,
            minor_faults: self.by_node[node].minor,
            major_faults: self.by_node[node].major,
            distance: distances.chunks(self.least_free.len()).nth(node).unwrap_or_default().to_vec(),
            loads: of_all(MachineEvent::DtlbLoads) + sum(node, false, |pair| pair.loads),
            stores: of_all(MachineEvent::DtlbStores) + sum(node, false, |pair| pair.stores),
            remote_loads: sum(node, true, |pair| pair.loads),
            remote_stores: sum(node, true, |pair| pair.stores),
            remote_flushes: remote_flushes(lab, NodeId::new(node as u8)),
            counters: NamedCounts(lab.on(cpu, |mm| mm.node_counts(NodeId::new(node as u8)).collect())),
        };
        (0..self.least_free.len()).map(report).collect()
    }
}

/// The shootdowns by the CPUs of a node.
fn remote_flushes<I: Isa>(lab: &Lab<I>, node: NodeId) -> u64 {
    let frames = lab.mm().tlb().frames();
    let cpus = (0..frames.cpus()).map(|cpu| CpuId::new(cpu as u16));
    let of_node = cpus.filter(|cpu| frames.node_of_cpu(*cpu) == node);
    of_node.map(|cpu| frames.counters().of(cpu, Counter::NrTlbRemoteFlush)).sum()
}
