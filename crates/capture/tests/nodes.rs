//! The figures of a replay by node: accesses, their latency, and what memory holds.

use pagewright_capture::replay::{NodeReport, ReplayConfig, ReplayReport, replay};
use pagewright_capture::workload;
use pagewright_mm::MmSetting;
use pagewright_sim::config::parse::{distance, nodes};
use pagewright_sim::{Cost, MachineConfig, Picos, Profile};
use pagewright_types::{IsaKind, PAGE_SIZE};

/// Replays a workload on a machine that `change` changes.
fn report(isa: IsaKind, change: impl FnOnce(&mut MachineConfig)) -> ReplayReport {
    let mut machine = MachineConfig::default_for(isa).unwrap();
    change(&mut machine);
    replay(isa, &mut workload::named("protect", 1).unwrap(), &ReplayConfig::new(machine)).unwrap()
}

fn on_nodes(isa: IsaKind, texts: &[&str], distances: &[&str]) -> ReplayReport {
    report(isa, |machine| {
        machine.nodes = nodes(texts.iter().copied()).unwrap();
        machine.distances = distances.iter().map(|text| distance(text).unwrap()).collect();
    })
}

/// INV-SIM-NODES: a machine with one node has the figures that it has without any latency.
#[test]
fn latencies_change_no_figure_of_a_machine_with_one_node() {
    for isa in IsaKind::ALL {
        let figures = |profile: fn(Profile) -> Profile| {
            let report = report(isa, |machine| machine.profile = profile(machine.profile.clone()));
            (report.counters, report.modelled, report.nodes)
        };
        let dear = figures(|profile| {
            let profile = profile.with_cost(Cost::DramLatency, Picos::from_nanos(10_000));
            profile.with_cost(Cost::SlowTierLatency, Picos::from_nanos(10_000))
        });
        assert_eq!(figures(|profile| profile), dear, "{isa}");
        assert_eq!((dear.1.memory_ns, dear.1.memory_ns_band), (0, [0, 0]));
        assert_eq!(dear.2[0].loads, dear.0.get("dTLB-loads").unwrap());
    }
}

#[test]
fn each_load_and_store_is_in_the_figures_of_one_node() {
    const LAYOUTS: [&[&str]; 3] = [&["0:1G"], &["0:1G,cpus=0-1", "1:1G,cpus=2-3"], &["0:1G", "1:256M,cpus=3", "2:64M"]];
    for isa in IsaKind::ALL {
        for layout in LAYOUTS {
            let report = on_nodes(isa, layout, &[]);
            let sum = |count: fn(&NodeReport) -> u64| report.nodes.iter().map(count).sum::<u64>();
            let count = |name: &str| report.counters.get(name).unwrap();
            assert_eq!(sum(|node| node.loads), count("dTLB-loads"), "{isa}, {layout:?}");
            assert_eq!(sum(|node| node.stores), count("dTLB-stores"), "{isa}, {layout:?}");
            assert_eq!(sum(|node| node.remote_loads), count("node-load-misses"), "{isa}, {layout:?}");
            assert_eq!(sum(|node| node.remote_stores), count("node-store-misses"), "{isa}, {layout:?}");
            for (index, node) in report.nodes.iter().enumerate() {
                assert_eq!((node.distance.len(), node.distance[index]), (layout.len(), 10));
                let free = node.counters.get("nr_free_pages").expect("of vmstat") * PAGE_SIZE;
                // Pages on the lists of CPUs are free, and not yet back with their node.
                assert!((node.memory_bytes - node.used_bytes..=node.memory_bytes).contains(&free), "{isa}, {layout:?}");
            }
            assert_eq!(report.modelled.memory_ns > 0, layout.len() > 1);
        }
    }
}

/// A program on CPUs far from all memory takes its latency, by the distance that is given.
#[test]
fn a_program_takes_longer_the_farther_its_memory_is() {
    for isa in IsaKind::ALL {
        // Node 0 has the memory that is used first, and no CPU: node 1 has too little.
        let times = [11, 20, 40].map(|distance| {
            let modelled = on_nodes(isa, &["0:1G", "1:1M,cpus=0-3"], &[&format!("0,1:{distance}")]).modelled;
            let [low, high] = modelled.memory_ns_band;
            assert!(low * 2 <= modelled.memory_ns && modelled.memory_ns * 3 >= high * 2 - 3, "{isa}: {modelled:?}");
            (modelled.memory_ns, modelled.elapsed_ns)
        });
        // The only node with CPUs is the nearest one, at any distance.
        assert_eq!(times[0], times[1], "{isa}");
        assert_eq!(times[1], times[2], "{isa}");
        let two = |distance| {
            let layout = ["0:1G,cpus=0-2", "1:1M,cpus=3"];
            on_nodes(isa, &layout, &[&format!("0,1:{distance}")]).modelled.memory_ns
        };
        assert!(two(11) < two(20) && two(20) < two(40), "{isa}: {:?}", [two(11), two(20), two(40)]);
    }
}

/// The fast node turns over, and the counts at that time are a part of those at the end.
#[test]
fn the_counts_at_the_turnover_of_the_fast_node_are_kept() {
    let mut machine = MachineConfig::default_for(IsaKind::X86_64).unwrap();
    machine.nodes = nodes(["0:4M", "1:128M"]).unwrap();
    let mut config = ReplayConfig::new(machine);
    config.settings.extend(workload::machine_of("cross-section").unwrap().settings);
    config.settings.push((MmSetting::NumaBalancing, 2));
    let mut source = workload::named("cross-section", 1).unwrap().with_rounds(400);
    let report = replay(IsaKind::X86_64, &mut source, &config).unwrap();
    let end = |name: &str| report.counters.get(name).unwrap();
    let tiers = &report.tiers;
    println!("{} promoted, of {} frames", end("pgpromote_success"), tiers.frames);
    let at = tiers.at_turnover.as_ref().expect("the node turns over");
    assert!(at.counters.get("pgpromote_success").unwrap() >= tiers.frames);
    for (name, count) in &at.counters.0 {
        assert!(*count <= end(name), "{name}: {count} at the turnover");
    }
    assert!(tiers.low_to_high > 0 && tiers.scans.all >= at.scans.all);
    assert!((1..=end("nr_tlb_remote_flush")).contains(&tiers.scans.all));
    assert!((1..=end("pw_tlb_batch_waits")).contains(&tiers.scans.batches));
}
