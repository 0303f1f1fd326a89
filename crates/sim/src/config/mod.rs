//! What a machine is made of, and why some machines are impossible.
//!
//! Key types: [`MachineConfig`], [`NodeConfig`], [`ConfigError`]; [`parse`] reads the command
//! line's words for them. Nothing is built here: [`crate::Sim::new`] does that from a configuration
//! that passed.

pub mod parse;

use crate::machine::MachineNode;
use crate::profile::{Profile, ProfileError};
use pagewright_types::{CpuId, CpuMask, FrameRange, IsaKind, NodeId, Order, PAGE_SIZE, Pfn, PhysAddr};
use thiserror::Error;

/// Physical memory that frame numbers of 32 bits can name, in bytes: the end of the last range is a
/// frame number too.
pub const MAX_MEMORY: u64 = u32::MAX as u64 * PAGE_SIZE;

/// One node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Memory, in bytes; whole pages.
    pub bytes: u64,
    /// CPUs near it.
    ///
    /// CPUs that no node names belong to node 0; another node without CPUs is a slower tier.
    pub cpus: CpuMask,
}

/// A machine to be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineConfig {
    /// Number of CPUs, 1 to [`CpuMask::MAX`].
    pub cpus: u16,
    /// Nodes, node 0 first.
    pub nodes: Vec<NodeConfig>,
    /// TLB geometry and costs.
    pub profile: Profile,
    /// Seeds everything that is random.
    pub seed: u64,
    /// Whether the TLB's tags are used; without (`nopcid`), every switch of root flushes.
    pub tagged: bool,
    /// Whether user mode runs under a tag of its own, because the kernel has tables that programs
    /// can't see (KPTI, PTI).
    pub isolated: bool,
    /// Whether each TLBI must be waited for and issued again (arm64 errata).
    ///
    /// It is only said to be so: one TLBI removes all that it names here.
    pub repeat_invalidate: bool,
}

impl MachineConfig {
    /// Four CPUs and 2 GiB on one node, seed 0, tags on.
    pub fn new(profile: Profile) -> Self {
        let nodes = vec![NodeConfig { bytes: 2 << 30, cpus: CpuMask::EMPTY }];
        Self { cpus: 4, nodes, profile, seed: 0, tagged: true, isolated: false, repeat_invalidate: false }
    }

    /// The same with the default profile of `isa`.
    ///
    /// # Errors
    /// [`ProfileError`] when the profile that is compiled in is broken.
    pub fn default_for(isa: IsaKind) -> Result<Self, ProfileError> {
        Profile::named(Profile::default_for(isa)).map(Self::new)
    }

    /// Lays the nodes out in physical memory.
    pub(crate) fn nodes(&self, isa: IsaKind) -> Result<Vec<MachineNode>, ConfigError> {
        self.validate(isa)?;
        let mut start = 0u64;
        let mut nodes = Vec::new();
        let mut unclaimed = CpuMask::first(usize::from(self.cpus));
        for (index, node) in self.nodes.iter().enumerate() {
            for cpu in node.cpus.iter() {
                unclaimed.remove(cpu);
            }
            let end = start + node.bytes;
            if end > MAX_MEMORY {
                return Err(ConfigError::TooMuchMemory { bytes: end });
            }
            let frame = |bytes| Pfn::containing(PhysAddr::new(bytes));
            let frames = FrameRange::new(frame(start), frame(end));
            nodes.push(MachineNode { id: NodeId::new(index as u8), frames, cpus: node.cpus });
            start = end.next_multiple_of(Order::PUD.bytes());
        }
        if let Some(first) = nodes.first_mut() {
            first.cpus.insert_all(&unclaimed);
        }
        Ok(nodes)
    }

    /// Whether such a machine can be, with processors of `isa`.
    ///
    /// # Errors
    /// [`ConfigError`], naming what is impossible.
    pub fn validate(&self, isa: IsaKind) -> Result<(), ConfigError> {
        if self.profile.isa() != isa {
            let profile = self.profile.name().to_owned();
            return Err(ConfigError::OtherIsa { profile, has: self.profile.isa(), wanted: isa });
        }
        if self.cpus == 0 {
            return Err(ConfigError::NoCpus);
        }
        if usize::from(self.cpus) > CpuMask::MAX {
            return Err(ConfigError::TooManyCpus { cpus: self.cpus });
        }
        if self.nodes.is_empty() {
            return Err(ConfigError::NoMemory);
        }
        if self.nodes.len() > MAX_NODES {
            return Err(ConfigError::TooManyNodes { nodes: self.nodes.len() });
        }
        let mut claimed = [None; CpuMask::MAX];
        for (index, node) in self.nodes.iter().enumerate() {
            let id = NodeId::new(index as u8);
            if node.bytes == 0 {
                return Err(ConfigError::NodeWithoutMemory { node: id });
            }
            if !node.bytes.is_multiple_of(PAGE_SIZE) {
                return Err(ConfigError::PartOfAPage { node: id, bytes: node.bytes });
            }
            if node.bytes > MAX_MEMORY {
                return Err(ConfigError::TooMuchMemory { bytes: node.bytes });
            }
            for cpu in node.cpus.iter() {
                if cpu.raw() >= self.cpus {
                    return Err(ConfigError::NoSuchCpu { node: id, cpu, cpus: self.cpus });
                }
                if let Some(first) = claimed[cpu.index()].replace(id) {
                    return Err(ConfigError::CpuOnTwoNodes { cpu, first, second: id });
                }
            }
        }
        Ok(())
    }
}

/// Nodes that a [`NodeId`] can tell apart.
const MAX_NODES: usize = 256;

/// Why there can be no such machine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Nothing would run.
    #[error("a machine with 0 CPUs")]
    NoCpus,
    /// More CPUs than a mask holds.
    #[error("{cpus} CPUs; at most {} are possible", CpuMask::MAX)]
    TooManyCpus {
        /// How many.
        cpus: u16,
    },
    /// More nodes than a node number tells apart.
    #[error("{nodes} nodes; at most {MAX_NODES} are possible")]
    TooManyNodes {
        /// How many.
        nodes: usize,
    },
    /// There is no node at all.
    #[error("a machine without memory")]
    NoMemory,
    /// A node has none.
    #[error("node {node} has no memory")]
    NodeWithoutMemory {
        /// Which.
        node: NodeId,
    },
    /// Memory is counted in pages.
    #[error("node {node} has {bytes} bytes, which are not whole pages of {PAGE_SIZE}")]
    PartOfAPage {
        /// Which.
        node: NodeId,
        /// Its size.
        bytes: u64,
    },
    /// The end of memory lies past what frame numbers reach.
    #[error("memory up to {bytes} bytes; at most 16 TiB less a page are possible")]
    TooMuchMemory {
        /// Where memory would end, the 1 GiB alignment of nodes included.
        bytes: u64,
    },
    /// A node names a CPU that the machine does not have.
    #[error("node {node} has CPU {cpu}, but the machine's {cpus} CPUs are counted from 0")]
    NoSuchCpu {
        /// The node.
        node: NodeId,
        /// The CPU.
        cpu: CpuId,
        /// CPUs of the machine.
        cpus: u16,
    },
    /// A CPU is near one node only.
    #[error("CPU {cpu} is on node {first} and on node {second}")]
    CpuOnTwoNodes {
        /// The CPU.
        cpu: CpuId,
        /// The lower node.
        first: NodeId,
        /// The higher.
        second: NodeId,
    },
    /// The profile describes a machine of the other instruction set.
    #[error("profile '{profile}' is of an {has} machine, and {wanted} was asked for")]
    OtherIsa {
        /// The profile.
        profile: String,
        /// What it describes.
        has: IsaKind,
        /// What was to be built.
        wanted: IsaKind,
    },
    /// The host refused.
    #[error("this host has no room for {bytes} bytes of simulated memory")]
    HostMemory {
        /// How much.
        bytes: u64,
    },
}

#[cfg(test)]
mod tests;
