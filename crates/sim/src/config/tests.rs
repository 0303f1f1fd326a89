//! Each impossible configuration is named, and options are parsed as documented.

use super::parse::{ConfigParseError, cpus, node, nodes, size};
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
    assert_eq!(nodes(["0:1G", "2:1G"]), Err(ConfigParseError::NodeOrder { node: NodeId::new(2), expected: 1 }));
}
