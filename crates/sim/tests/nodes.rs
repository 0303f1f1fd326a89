//! Loads and stores by node: their latency and their counts.

use crate::common::{Bench, CPU0, page};
use pagewright_arch::{Isa, Leaf, LeafFlags, on_both};
use pagewright_sim::config::parse::{distance, nodes};
use pagewright_sim::{Cost, MachineEvent, NodeAccesses, Picos};
use pagewright_types::{Access, CpuId, Level, NodeId, Pfn, Rights, VirtAddr};

const CPU1: CpuId = CpuId::new(1);

on_both!(
    each_load_and_store_costs_the_latency_of_its_node,
    accesses_are_counted_by_the_nodes_of_cpu_and_memory,
    a_machine_with_one_node_charges_and_counts_no_memory,
);

/// A machine with a CPU on each of two nodes and a slow tier; the CPUs have cached a page of each.
fn three_nodes<I: Isa>() -> Bench<I> {
    let bench = Bench::<I>::with(|config| {
        config.cpus = 2;
        config.nodes = nodes(["0:1G,cpus=0", "1:1G,cpus=1", "2:1G"]).expect("three nodes");
        config.distances = ["0,1:21", "1,2:30"].map(|text| distance(text).expect("a distance")).into();
    });
    let root = bench.frame(Level::PTE);
    for node in 0..3 {
        // Frames of node 0 from the second MiB on; the bench allocates tables below.
        let pfn = Pfn::new(node << 18 | 0x100);
        let leaf = Leaf { pfn, rights: Rights::all(), flags: LeafFlags::USER };
        bench.put(root, Level::PTE, page(node.into()), I::leaf(Level::PTE, leaf));
    }
    for cpu in [CPU0, CPU1] {
        bench.switch(cpu, root, 1);
        for node in 0..3 {
            // The first fetch and the first store leave nothing for a walk to do.
            bench.sim.access(cpu, page(node), Access::Exec, 1).expect("mapped");
            bench.sim.access(cpu, page(node), Access::Write, 1).expect("mapped");
        }
    }
    bench
}

/// The time of one access by a CPU beyond that of a hit in the TLB.
fn time_of<I: Isa>(bench: &Bench<I>, cpu: CpuId, va: VirtAddr, access: Access) -> Picos {
    let before = bench.sim.clock(cpu);
    bench.sim.access(cpu, va, access, 3).expect("mapped");
    let taken = bench.sim.clock(cpu).since(before).raw() / 3;
    Picos::new(taken - bench.sim.profile().cost(Cost::Access).raw())
}

/// INV-SIM-NODES.
fn each_load_and_store_costs_the_latency_of_its_node<I: Isa>() {
    let bench = three_nodes::<I>();
    let (dram, tier) = (bench.sim.profile().cost(Cost::DramLatency), bench.sim.profile().cost(Cost::SlowTierLatency));
    let scaled = |base: Picos, numerator, denominator| Picos::new(base.raw() * numerator / denominator);
    // Node 0 is the nearest with CPUs to the slow tier, by the default distance of 20.
    let expected =
        [(CPU0, [dram, scaled(dram, 21, 10), tier]), (CPU1, [scaled(dram, 21, 10), dram, scaled(tier, 30, 20)])];
    for (cpu, latencies) in expected {
        for (node, latency) in (0..).zip(latencies) {
            for access in [Access::Read, Access::Write] {
                assert_eq!(time_of(&bench, cpu, page(node), access), latency, "{access} of node {node} by CPU {cpu}");
            }
            assert_eq!(time_of(&bench, cpu, page(node), Access::Exec), Picos::ZERO, "a fetch of node {node}");
        }
    }
    for (cost, value) in [(Cost::DramLatency, dram), (Cost::SlowTierLatency, tier)] {
        assert_eq!(bench.sim.profile().band(cost).map(Picos::raw), [value.raw() / 2, value.raw() * 3 / 2]);
    }
}

/// INV-SIM-NODES.
fn accesses_are_counted_by_the_nodes_of_cpu_and_memory<I: Isa>() {
    let bench = three_nodes::<I>();
    let counts = |bench: &Bench<I>| {
        let of = |found: NodeAccesses| (found.from.raw(), found.to.raw(), found.loads, found.stores);
        bench.sim.node_accesses().into_iter().map(of).collect::<Vec<_>>()
    };
    // Each CPU has stored once to each node, to set the dirty bits.
    let pairs = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)];
    let expected = |loads: u64, stores: u64, at: (u8, u8)| {
        let of = |(from, to)| if (from, to) == at { (from, to, loads, stores) } else { (from, to, 0, 1) };
        let mut all: Vec<_> = pairs.map(of).into();
        all.extend((0..3).map(|to| (2, to, 0, 0)));
        all
    };
    bench.sim.access(CPU1, page(2), Access::Read, 7).expect("mapped");
    bench.sim.access(CPU1, page(2), Access::Write, 4).expect("mapped");
    bench.sim.access(CPU1, page(2), Access::Exec, 9).expect("mapped");
    assert_eq!(counts(&bench), expected(7, 5, (1, 2)));
    let events = [
        MachineEvent::NodeLoads,
        MachineEvent::NodeLoadMisses,
        MachineEvent::NodeStores,
        MachineEvent::NodeStoreMisses,
    ];
    assert_eq!(events.map(|event| bench.sim.count(CPU1, event)), [7, 7, 7, 6]);
    assert_eq!(events.map(|event| bench.sim.count(CPU0, event)), [0, 0, 3, 2]);
    let far =
        bench.sim.node_accesses().into_iter().find(|pair| pair.from == NodeId::new(1) && pair.to == NodeId::new(2));
    let far = far.expect("each pair of nodes");
    assert_eq!(far.band.map(Picos::raw), [far.latency.raw() / 2, far.latency.raw() * 3 / 2]);
}

/// INV-SIM-NODES.
fn a_machine_with_one_node_charges_and_counts_no_memory<I: Isa>() {
    let (bench, _) = Bench::<I>::with_one_page(1);
    bench.sim.access(CPU0, page(0), Access::Write, 1).expect("mapped");
    for access in [Access::Read, Access::Write] {
        assert_eq!(time_of(&bench, CPU0, page(0), access), Picos::ZERO);
    }
    assert!(bench.sim.node_accesses().is_empty());
    assert_eq!(bench.sim.total(MachineEvent::NodeLoads) + bench.sim.total(MachineEvent::NodeStores), 0);
    assert!(bench.sim.total(MachineEvent::DtlbLoads) > 0);
}
