//! Each impossible configuration is named, and options are parsed as documented.

use super::parse::{ConfigParseError, cpus, distance, node, nodes, size};
use super::*;

fn possible() -> MachineConfig {
    MachineConfig::default_for(IsaKind::X86_64).expect("the default profile loads")
}

fn refused(change: impl FnOnce(&mut MachineConfig)) -> ConfigError {
    let mut config = possible();
    change(&mut config);
    config.nodes(IsaKind::X86_64).expect_err("an impossible machine")
}

fn list(text: &str) -> CpuMask {
    cpus(text).expect("a list of CPUs")
}

#[test]
fn impossible_machines_are_named() {
    assert_eq!(refused(|config| config.cpus = 0), ConfigError::NoCpus);
    assert_eq!(refused(|config| config.cpus = 257), ConfigError::TooManyCpus { cpus: 257 });
    assert_eq!(refused(|config| config.nodes.clear()), ConfigError::NoMemory);
    assert_eq!(refused(|config| config.nodes[0].bytes = 0), ConfigError::NodeWithoutMemory { node: NodeId::new(0) });
    let odd = refused(|config| config.nodes[0].bytes = 4097);
    assert_eq!(odd, ConfigError::PartOfAPage { node: NodeId::new(0), bytes: 4097 });
    let huge = refused(|config| config.nodes[0].bytes = MAX_MEMORY + PAGE_SIZE);
    assert_eq!(huge, ConfigError::TooMuchMemory { bytes: MAX_MEMORY + PAGE_SIZE });
    let absent = refused(|config| config.nodes[0].cpus = list("4"));
    assert_eq!(absent, ConfigError::NoSuchCpu { node: NodeId::new(0), cpu: CpuId::new(4), cpus: 4 });
    let twice = refused(|config| {
        config.nodes = vec![NodeConfig { bytes: 4096, cpus: list("0-2") }, NodeConfig { bytes: 4096, cpus: list("2") }];
    });
    let (first, second) = (NodeId::new(0), NodeId::new(1));
    assert_eq!(twice, ConfigError::CpuOnTwoNodes { cpu: CpuId::new(2), first, second });
    assert_eq!(twice.to_string(), "CPU 2 is on node 0 and on node 1");
    let other = possible().nodes(IsaKind::Aarch64).expect_err("an x86-64 profile");
    assert_eq!(other.to_string(), "profile 'icelake' is of an x86-64 machine; the machine is arm64");
}

#[test]
fn nodes_start_at_a_gib_and_node_0_takes_the_unclaimed_cpus() {
    let mut config = possible();
    config.nodes = nodes(["0:512M", "1:8G,cpus=2", "2:4K"]).expect("three nodes");
    let nodes = config.nodes(IsaKind::X86_64).expect("a possible machine");
    let starts: Vec<_> = nodes.iter().map(|node| node.frames.start().base().raw() >> 30).collect();
    assert_eq!(starts, [0, 1, 9]);
    assert_eq!(nodes[0].cpus, list("0,1,3"));
    assert_eq!(nodes[1].cpus, list("2"));
    assert!(nodes[2].cpus.is_empty());
    assert_eq!(nodes[2].frames.frames(), 1);
}

fn with_distances(distances: &[&str]) -> MachineConfig {
    let mut config = possible();
    config.nodes = nodes(["0:1G", "1:1G", "2:1G"]).expect("three nodes");
    config.distances = distances.iter().map(|text| distance(text).expect("a distance")).collect();
    config
}

#[test]
fn nodes_are_at_the_given_distance_in_both_directions_and_else_at_linuxs() {
    let config = with_distances(&["0,2:31", "2,1:17"]);
    config.validate(IsaKind::X86_64).expect("possible");
    assert_eq!(config.distance_matrix(), [10, 20, 31, 20, 10, 17, 31, 17, 10]);
    assert_eq!(possible().distance_matrix(), [10]);
}

#[test]
fn impossible_distances_are_named() {
    let refused = |distances: &[&str]| with_distances(distances).validate(IsaKind::X86_64).expect_err("impossible");
    let pair = [0, 1].map(NodeId::new);
    assert_eq!(refused(&["0,3:20"]), ConfigError::DistanceOfNoNode { node: NodeId::new(3), nodes: 3 });
    assert_eq!(refused(&["1,1:10"]), ConfigError::DistanceToItself { node: NodeId::new(1) });
    for impossible in [0, 9, 10, 255, 300] {
        let found = refused(&[&format!("0,1:{impossible}")]);
        assert_eq!(found, ConfigError::Distance { nodes: pair, distance: impossible });
    }
    assert_eq!(refused(&["1,0:20", "0,1:21"]), ConfigError::DistanceTwice { nodes: pair });
    for possible in ["0,1:11", "0,1:254"] {
        with_distances(&[possible]).validate(IsaKind::X86_64).expect("possible");
    }
}

#[test]
fn the_largest_machine_ends_at_the_last_frame_number() {
    let mut config = possible();
    config.nodes[0].bytes = MAX_MEMORY;
    assert_eq!(config.nodes(IsaKind::X86_64).expect("possible")[0].frames.end(), Pfn::new(u32::MAX));
}

#[test]
fn options_are_parsed_as_documented() {
    assert_eq!(size("2G"), Ok(2 << 30));
    assert_eq!(size("512m"), Ok(512 << 20));
    assert_eq!(size("4096"), Ok(4096));
    assert_eq!(list("0-3,8").iter().map(CpuId::raw).collect::<Vec<_>>(), [0, 1, 2, 3, 8]);
    let (number, config) = node("1:1G,cpus=0-1,3").expect("a node");
    assert_eq!((number, config.bytes, config.cpus), (NodeId::new(1), 1 << 30, list("0,1,3")));
}

#[test]
fn malformed_options_are_named() {
    for bad in ["", "G", "-1", "+1G", "1.5G", "2GB"] {
        assert_eq!(size(bad), Err(ConfigParseError::Size { input: bad.to_owned() }));
    }
    assert_eq!(size("99999999999T"), Err(ConfigParseError::Huge { input: "99999999999T".to_owned() }));
    for bad in ["", "3-1", "256", "0,,1", "a", "+1"] {
        assert_eq!(cpus(bad), Err(ConfigParseError::Cpus { input: bad.to_owned() }));
    }
    for bad in ["1G", "x:1G", "300:1G", "0:1G,cpu=1"] {
        assert_eq!(node(bad), Err(ConfigParseError::Node { input: bad.to_owned() }));
    }
    for bad in ["", "0,1", "0:20", "0,1:", "0,1:-1", "0,1,2:20", "0,300:20", "a,b:20", "0,1:99999"] {
        assert_eq!(distance(bad), Err(ConfigParseError::Distance { input: bad.to_owned() }));
    }
    assert_eq!(nodes(["0:1G", "2:1G"]), Err(ConfigParseError::NodeOrder { node: NodeId::new(2), expected: 1 }));
}
