//! Turns options into a simulated machine and the configuration of a replay.
//!
//! Key types: [`MachineOptions`], the options that `replay` and `run` share; [`NodeOptions`], which
//! `check` and `boot` have, too; [`OptionError`], one line that names the option.

use crate::setting::{Setting, SettingError};
use clap::Args;
use pagewright_capture::replay::ReplayConfig;
use pagewright_capture::workload::WorkloadMachine;
use pagewright_sim::config::{self, parse::ConfigParseError};
use pagewright_sim::{ConfigError, MachineConfig, NodeConfig, NodeDistance, Profile, ProfileError};
use pagewright_types::{CpuMask, IsaKind, PAGE_SIZE, SwapEntry};

/// Memory of a machine for which no option gives it.
const DEFAULT_MEM: &str = "2G";

/// Options that describe a simulated machine.
#[derive(Args, Clone, Debug)]
pub(crate) struct MachineOptions {
    /// Instruction set: x86-64 or arm64.
    ///
    /// The default is that of --profile, and x86-64 without one.
    #[arg(long, value_name = "ISA")]
    pub(crate) arch: Option<String>,
    /// Real CPU whose TLB geometry and costs the machine has.
    ///
    /// x86-64: icelake (the default), milan, sapphire-rapids. arm64: neoverse-n1 (the default),
    /// kunpeng920, snapdragon888.
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Number of CPUs, 1 to 256.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = parse_cpus)]
    pub(crate) cpus: u16,
    /// Memory on a single node, in bytes or with a suffix K, M, G or T (units of 1024).
    ///
    /// The default is 2G, and for a workload about memory tiers the nodes that it is for. --node
    /// replaces it.
    ///
    /// For a capture also a percentage, such as 50%: 100% is the sum of the peak RSS of its program
    /// images on Linux.
    #[arg(long, value_name = "SIZE", conflicts_with = "node")]
    pub(crate) mem: Option<String>,
    #[command(flatten)]
    pub(crate) nodes: NodeOptions,
    /// Size of a swap device outside the machine's memory, 4K to 512G.
    ///
    /// There is no swap by default.
    #[arg(long, value_name = "SIZE")]
    pub(crate) swap: Option<String>,
    /// Seed of the scheduler, of TLB replacement and of the workload.
    ///
    /// The same seed gives the same counters and modelled times, bit for bit.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Value of a setting listed below, such as fault_around_bytes=4096; repeat for each setting.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Options that describe the NUMA nodes of a machine.
#[derive(Args, Clone, Debug)]
pub(crate) struct NodeOptions {
    /// Memory and CPUs of one NUMA node, such as 0:1G,cpus=0-3; repeat for each node.
    ///
    /// Nodes are numbered from 0, and node 0 has the CPUs that no node names. A node without CPUs
    /// (1:4G) is a slower memory tier.
    #[arg(long, value_name = "NODE")]
    node: Vec<String>,
    /// Distance of two nodes in both directions, such as 0,1:21; repeat for each pair.
    ///
    /// As in a firmware's SLIT: 11 to 254, and a node's own memory is at 10. The default is 20, as
    /// in Linux.
    #[arg(long, value_name = "NODE,NODE:DISTANCE")]
    distance: Vec<String>,
}

impl NodeOptions {
    /// Whether `--node` gives the machine's memory.
    pub(crate) fn are_given(&self) -> bool {
        !self.node.is_empty()
    }

    /// Parses `--node`; no nodes if it is not given.
    pub(crate) fn nodes(&self) -> Result<Vec<NodeConfig>, OptionError> {
        let nodes = config::parse::nodes(self.node.iter().map(String::as_str));
        nodes.map_err(|error| OptionError::Parse { option: "--node", error })
    }

    /// Parses `--distance`.
    pub(crate) fn distances(&self) -> Result<Vec<NodeDistance>, OptionError> {
        let distances = self.distance.iter().map(|text| config::parse::distance(text)).collect::<Result<_, _>>();
        distances.map_err(|error| OptionError::Parse { option: "--distance", error })
    }

    /// The options as words of a command line.
    pub(crate) fn words(&self) -> impl Iterator<Item = String> {
        let nodes = self.node.iter().map(|node| format!("--node {node}"));
        nodes.chain(self.distance.iter().map(|distance| format!("--distance {distance}")))
    }
}

/// Why an option was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OptionError {
    #[error("--arch {0}: must be x86-64 or arm64")]
    Arch(String),
    #[error("--profile: {0}")]
    Profile(#[from] ProfileError),
    #[error("{option}: {error}")]
    Parse { option: &'static str, error: ConfigParseError },
    #[error("--mem {0}: write a whole percentage, such as 50%")]
    Percent(String),
    #[error("--mem {0}: a percentage needs a capture with Linux's own counts, which `pagewright record` makes")]
    NoFootprint(String),
    #[error("--swap {0}: must be at least 4K and at most 512G")]
    Swap(String),
    #[error("{option}: {error}")]
    Machine { option: &'static str, error: ConfigError },
    #[error("{option} {argument}: {error}")]
    Setting { option: &'static str, argument: String, error: SettingError },
    #[error("unknown workload {0}{similar}: the workloads are {known}",
        similar = crate::setting::suggestion(.0, pagewright_capture::workload::names()),
        known = pagewright_capture::workload::names().collect::<Vec<_>>().join(", "))]
    UnknownWorkload(String),
}

impl OptionError {
    /// Adds the option that is to blame; `has_nodes` says whether memory came from `--node`.
    pub(crate) fn machine(error: ConfigError, has_nodes: bool) -> Self {
        let option = match error {
            ConfigError::NoCpus | ConfigError::TooManyCpus { .. } => "--cpus",
            // No option sets these; the instruction set says what is possible.
            ConfigError::OtherIsa { .. }
            | ConfigError::KernelRange { .. }
            | ConfigError::FiveLevels
            | ConfigError::Granule => "--profile",
            ConfigError::TooManyNodes { .. } | ConfigError::NoSuchCpu { .. } | ConfigError::CpuOnTwoNodes { .. } => {
                "--node"
            }
            ConfigError::DistanceOfNoNode { .. }
            | ConfigError::DistanceToItself { .. }
            | ConfigError::Distance { .. }
            | ConfigError::DistanceTwice { .. } => "--distance",
            ConfigError::NoMemory
            | ConfigError::NodeWithoutMemory { .. }
            | ConfigError::PartOfAPage { .. }
            | ConfigError::TooMuchMemory { .. }
            | ConfigError::HostMemory { .. } => memory_option(has_nodes),
        };
        Self::Machine { option, error }
    }
}

/// The option that gives the machine's memory.
pub(crate) fn memory_option(has_nodes: bool) -> &'static str {
    if has_nodes { "--node" } else { "--mem" }
}

impl MachineOptions {
    /// Parses `--mem`, in bytes.
    fn memory(&self, footprint: Option<u64>) -> Result<u64, OptionError> {
        let text = self.mem.as_deref().unwrap_or(DEFAULT_MEM);
        match text.strip_suffix('%') {
            None => config::parse::size(text).map_err(|error| OptionError::Parse { option: "--mem", error }),
            Some(number) => {
                let percent: u64 = number.parse().map_err(|_| OptionError::Percent(text.to_owned()))?;
                let whole = footprint.ok_or_else(|| OptionError::NoFootprint(text.to_owned()))?;
                Ok((whole.saturating_mul(percent) / 100).next_multiple_of(PAGE_SIZE))
            }
        }
    }

    /// The settings that `--set` gives.
    pub(crate) fn settings(&self) -> Result<Vec<Setting>, OptionError> {
        Ok(Setting::parse_all(&self.set)?.into_iter().map(|(setting, _)| setting).collect())
    }

    /// Builds the instruction set and the configuration of a replay.
    ///
    /// `footprint` is the number of bytes that `--mem 100%` means, if it is known. `wanted` is the
    /// machine of a workload; options that are given win.
    pub(crate) fn build(
        &self,
        footprint: Option<u64>,
        wanted: Option<WorkloadMachine>,
    ) -> Result<(IsaKind, ReplayConfig), OptionError> {
        let arch = self.arch.as_deref().map(parse_isa).transpose()?;
        let profile = match (&self.profile, arch) {
            (Some(name), _) => Profile::named(name)?,
            (None, arch) => Profile::named(Profile::default_for(arch.unwrap_or(IsaKind::X86_64)))?,
        };
        let isa = arch.unwrap_or(profile.isa());
        let mut machine = MachineConfig::new(profile);
        machine.cpus = self.cpus;
        machine.seed = self.seed;
        let node = |bytes| NodeConfig { bytes, cpus: CpuMask::EMPTY };
        machine.nodes = match wanted {
            _ if self.nodes.are_given() => self.nodes.nodes()?,
            Some(wanted) if self.mem.is_none() => vec![node(wanted.fast_bytes), node(wanted.slow_bytes)],
            Some(_) | None => vec![node(self.memory(footprint)?)],
        };
        machine.distances = self.nodes.distances()?;
        machine.validate(isa).map_err(|error| OptionError::machine(error, self.nodes.are_given()))?;
        let mut config = ReplayConfig::new(machine);
        config.swap_slots = self.swap.as_deref().map_or(Ok(0), parse_swap)?;
        config.settings.extend(wanted.iter().flat_map(|wanted| wanted.settings));
        for ((setting, value), argument) in Setting::parse_all(&self.set)?.into_iter().zip(&self.set) {
            setting.apply(value, isa, &mut config).map_err(SettingError::of("--set", argument))?;
        }
        Ok((isa, config))
    }
}

/// Parses the argument of `--cpus`.
pub(crate) fn parse_cpus(text: &str) -> Result<u16, String> {
    let cpus = text.parse().ok().filter(|cpus| (1..=CpuMask::MAX).contains(cpus));
    cpus.map(|cpus| cpus as u16).ok_or_else(|| format!("must be a number from 1 to {}", CpuMask::MAX))
}

/// Parses the argument of `--swap` into a number of swap slots, one for each page.
pub(crate) fn parse_swap(text: &str) -> Result<u32, OptionError> {
    let refused = |error| OptionError::Parse { option: "--swap", error };
    let slots = config::parse::size(text).map_err(refused)? / PAGE_SIZE;
    let slots = u32::try_from(slots).ok().filter(|slots| (1..=SwapEntry::SLOTS).contains(slots));
    slots.ok_or_else(|| OptionError::Swap(text.to_owned()))
}

/// Parses the argument of `--arch`.
pub(crate) fn parse_isa(name: &str) -> Result<IsaKind, OptionError> {
    match name {
        "x86-64" | "x86_64" => Ok(IsaKind::X86_64),
        "arm64" | "aarch64" => Ok(IsaKind::Aarch64),
        other => Err(OptionError::Arch(other.to_owned())),
    }
}
