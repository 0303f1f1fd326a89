//! The configuration of a machine, and its validation.
//!
//! Key types: [`MachineConfig`], [`NodeConfig`], [`NodeDistance`], [`ConfigError`]; [`parse`]
//! parses the options of the command line. [`crate::Sim::new`] builds the machine from a valid
//! configuration.

mod distance;
pub mod parse;

pub use distance::{LOCAL_DISTANCE, NodeDistance, REMOTE_DISTANCE};

use crate::machine::MachineNode;
use crate::profile::{Profile, ProfileError};
use crate::walk::Privilege;
use pagewright_types::{
    CpuId, CpuMask, FrameRange, Granule, IsaKind, Level, NodeId, Order, PAGE_SIZE, PageRange, Pfn, PhysAddr, VirtAddr,
};
use thiserror::Error;

/// The most physical memory, in bytes, that 32-bit frame numbers can name.
///
/// The end of the last range is a frame number too, so it is one page less than 16 TiB.
pub const MAX_MEMORY: u64 = u32::MAX as u64 * PAGE_SIZE;

/// The configuration of one NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// The size of its memory in bytes, a multiple of the page size.
    pub bytes: u64,
    /// Its CPUs.
    ///
    /// CPUs that no node names belong to node 0. Any other node without CPUs is a slower memory
    /// tier.
    pub cpus: CpuMask,
}

/// The configuration of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineConfig {
    /// The number of CPUs, 1 to [`CpuMask::MAX`].
    pub cpus: u16,
    /// The nodes, node 0 first.
    pub nodes: Vec<NodeConfig>,
    /// The distances of two nodes that are not [`REMOTE_DISTANCE`].
    pub distances: Vec<NodeDistance>,
    /// TLB geometry and costs.
    pub profile: Profile,
    /// The seed of everything random.
    pub seed: u64,
    /// Whether TLB tags are used; without them (`nopcid`), every switch of root flushes.
    pub tagged: bool,
    /// Whether user mode runs under a tag of its own (page-table isolation; KPTI).
    pub isolated: bool,
    /// Whether software must wait for each TLBI and issue it again (arm64 errata).
    ///
    /// It only sets the capability: on this machine one TLBI removes all entries that it names.
    pub repeat_invalidate: bool,
    /// Whether a mapping may change its size without break-before-make (arm64 FEAT_BBM level 2).
    ///
    /// As on the CPUs on which Linux relies on it (`BBML2_NOABORT`), no access is aborted.
    pub bbm_level_2: bool,
    /// Whether x86-64 CPUs invalidate the TLBs of others by broadcast (AMD INVLPGB and TLBSYNC).
    pub invlpgb: bool,
    /// Whether x86-64 page tables have five levels (CR4.LA57; Intel SDM vol. 3A §4.5.1).
    pub five_levels: bool,
    /// The size of base pages and tables, on arm64 (TCR_EL1.TG0 and TG1).
    pub granule: Granule,
    /// Addresses that the kernel accesses, in the upper half; user mode accesses all others.
    ///
    /// Whole entries of the root, so that no entry is for both.
    /// Translations outside of it that only the kernel may use are never used.
    pub kernel_range: Option<PageRange>,
    /// A number of the program's build, if stores through pointers are scheduling points in it.
    ///
    /// The compiler decides which stores there are, so replay tokens bind to the build.
    pub trapping_build: Option<u64>,
}

impl MachineConfig {
    /// A machine with four CPUs and 2 GiB on one node, seed 0, and tags.
    pub fn new(profile: Profile) -> Self {
        let nodes = vec![NodeConfig { bytes: 2 << 30, cpus: CpuMask::EMPTY }];
        Self {
            cpus: 4,
            nodes,
            distances: Vec::new(),
            profile,
            seed: 0,
            tagged: true,
            isolated: false,
            repeat_invalidate: false,
            bbm_level_2: false,
            invlpgb: false,
            five_levels: false,
            granule: Granule::Size4K,
            kernel_range: None,
            trapping_build: None,
        }
    }

    /// The same machine with the default profile of `isa`.
    ///
    /// # Errors
    /// [`ProfileError`], when the profile that is compiled in does not load.
    pub fn default_for(isa: IsaKind) -> Result<Self, ProfileError> {
        Profile::named(Profile::default_for(isa)).map(Self::new)
    }

    /// The level of the root table.
    #[inline]
    pub fn top(&self) -> Level {
        if self.five_levels { Level::PML5 } else { self.granule.top() }
    }

    /// The level of the tables that map base pages.
    #[inline]
    pub fn last_level(&self) -> Level {
        self.granule.level(Level::PTE.raw())
    }

    /// Whether a range is in the upper half, whole entries of the root, and not its last part.
    ///
    /// The last part is left out because its end is not an address.
    fn is_kernel_range(&self, isa: IsaKind, range: PageRange) -> bool {
        let first = match isa {
            IsaKind::X86_64 if self.five_levels => 0xff00_0000_0000_0000,
            IsaKind::X86_64 => 0xffff_8000_0000_0000,
            IsaKind::Aarch64 => 0xffff_0000_0000_0000,
        };
        let whole = [range.start(), range.end()].iter().all(|va| va.is_aligned(self.top().span()));
        whole && range.start().raw() >= first && !range.is_empty()
    }

    /// Whose access it is, at `va`.
    #[inline]
    pub(crate) fn privilege_at(&self, va: VirtAddr) -> Privilege {
        match self.kernel_range {
            Some(range) if range.contains(va) => Privilege::Kernel,
            Some(_) | None => Privilege::User,
        }
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

    /// Validates the configuration for a machine of `isa`.
    ///
    /// # Errors
    /// [`ConfigError`], which names what is impossible.
    pub fn validate(&self, isa: IsaKind) -> Result<(), ConfigError> {
        if self.profile.isa() != isa {
            let profile = self.profile.name().to_owned();
            return Err(ConfigError::OtherIsa { profile, has: self.profile.isa(), wanted: isa });
        }
        if self.five_levels && isa != IsaKind::X86_64 {
            return Err(ConfigError::FiveLevels);
        }
        if self.granule != Granule::Size4K && isa != IsaKind::Aarch64 {
            return Err(ConfigError::Granule);
        }
        if self.cpus == 0 {
            return Err(ConfigError::NoCpus);
        }
        if usize::from(self.cpus) > CpuMask::MAX {
            return Err(ConfigError::TooManyCpus { cpus: self.cpus });
        }
        if let Some(range) = self.kernel_range.filter(|range| !self.is_kernel_range(isa, *range)) {
            return Err(ConfigError::KernelRange { range });
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
        self.validate_distances()
    }
}

/// The most nodes that a [`NodeId`] can number.
const MAX_NODES: usize = 256;

/// Why a configuration is impossible.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Page tables of another instruction set than x86-64 have five levels.
    #[error("five levels of page tables are of x86-64 only")]
    FiveLevels,
    /// Page tables of another instruction set than arm64 have another granule than 4 KiB.
    #[error("granules of 16 and 64 KiB are of arm64 only")]
    Granule,
    /// There are no CPUs.
    #[error("the machine has 0 CPUs; at least 1 is required")]
    NoCpus,
    /// There are more CPUs than a mask holds.
    #[error("{cpus} CPUs; at most {} are possible", CpuMask::MAX)]
    TooManyCpus {
        /// The number of CPUs.
        cpus: u16,
    },
    /// There are more nodes than node numbers.
    #[error("{nodes} nodes; at most {MAX_NODES} are possible")]
    TooManyNodes {
        /// The number of nodes.
        nodes: usize,
    },
    /// There are no nodes.
    #[error("the machine has no memory")]
    NoMemory,
    /// A node has no memory.
    #[error("node {node} has no memory")]
    NodeWithoutMemory {
        /// The node.
        node: NodeId,
    },
    /// The size of a node is not a multiple of the page size.
    #[error("node {node} has {bytes} bytes, which is not a multiple of {PAGE_SIZE}")]
    PartOfAPage {
        /// The node.
        node: NodeId,
        /// Its size in bytes.
        bytes: u64,
    },
    /// Memory ends past the last frame number.
    #[error("memory ends at {bytes} bytes; at most 16 TiB less one page is possible")]
    TooMuchMemory {
        /// The end of memory, with the 1 GiB alignment of nodes.
        bytes: u64,
    },
    /// A node names a CPU that the machine does not have.
    #[error("node {node} names CPU {cpu}; the last CPU of the machine is {}", cpus - 1)]
    NoSuchCpu {
        /// The node.
        node: NodeId,
        /// The CPU.
        cpu: CpuId,
        /// The number of CPUs of the machine.
        cpus: u16,
    },
    /// Two nodes name the same CPU.
    #[error("CPU {cpu} is on node {first} and on node {second}")]
    CpuOnTwoNodes {
        /// The CPU.
        cpu: CpuId,
        /// The lower node.
        first: NodeId,
        /// The higher node.
        second: NodeId,
    },
    /// A distance is of a node that the machine does not have.
    #[error("a distance is of node {node}; the machine has {nodes} nodes, counted from 0")]
    DistanceOfNoNode {
        /// The node.
        node: NodeId,
        /// The number of nodes of the machine.
        nodes: usize,
    },
    /// A distance is of a node to itself.
    #[error("node {node} is at distance {LOCAL_DISTANCE} from itself; a distance is of two nodes")]
    DistanceToItself {
        /// The node.
        node: NodeId,
    },
    /// A distance is too small or too large.
    #[error(
        "nodes {} and {} are at distance {distance}; it must be from 11 to 254 ({LOCAL_DISTANCE} is a node's own memory)",
        .nodes[0], .nodes[1]
    )]
    Distance {
        /// The two nodes.
        nodes: [NodeId; 2],
        /// The distance.
        distance: u16,
    },
    /// The distance of two nodes is given twice.
    #[error("the distance of nodes {} and {} is given twice; one holds in both directions", .nodes[0], .nodes[1])]
    DistanceTwice {
        /// The two nodes.
        nodes: [NodeId; 2],
    },
    /// The profile is of the other instruction set.
    #[error("profile '{profile}' is of an {has} machine; the machine is {wanted}")]
    OtherIsa {
        /// The name of the profile.
        profile: String,
        /// The instruction set of the profile.
        has: IsaKind,
        /// The instruction set of the machine.
        wanted: IsaKind,
    },
    /// The kernel's range is not in the upper half, or not of whole entries of the root.
    #[error(
        "the kernel range {range} is not in the upper half, or not whole entries of the root (512 GiB; 256 TiB with five levels, 128 TiB and 4 TiB with granules of 16 and 64 KiB)"
    )]
    KernelRange {
        /// The range.
        range: PageRange,
    },
    /// The host cannot allocate the memory.
    #[error("this host cannot allocate {bytes} bytes of simulated memory")]
    HostMemory {
        /// The size in bytes.
        bytes: u64,
    },
}

#[cfg(test)]
mod tests;
