//! Memory policies: on which nodes pages are allocated (`mm/mempolicy.c`).
//!
//! | file | what it does |
//! | --- | --- |
//! | `mod` | one policy: how a call makes it, and which request it makes of the allocator |
//! | `task` | the policy of the task that a CPU runs (`set_mempolicy`), and `get_mempolicy` |
//! | `misplaced` | the pages of a range that are on other nodes than a policy names |
//!
//! A page of user memory is allocated by the policy of its mapping (`mbind`), which is part of the
//! [`Vma`](crate::Vma). If the mapping has none, the policy of the task decides, and without that
//! the node of the CPU. Pages that enter the cache of a file by `read` or `write`, and those of a
//! file on a disk, obey the policy of the task.
//!
//! **INV-POLICY-OBEYED** A page of user memory is allocated on a node that the policy of its
//! mapping permits, else that of the task, whatever makes it: a fault, a copy, a populate, a page
//! from swap, or a batch that was cleared ahead.
//!
//! **INV-POLICY-VMA** A memory policy covers the pages that its call named and no others, also
//! after a split, a merge, a fork and a move.
//!
//! Differences from Linux. `mbind` on shared memory changes the policy of that mapping; Linux keeps
//! it with the object, for all its mappings. Page tables, and the memory of swap devices, come from
//! the node of the CPU; Linux's page tables obey the policy of the task.
//! `MPOL_PREFERRED` without nodes is reported as such; Linux reports `MPOL_LOCAL`, which is unknown
//! here.
//!
//! Neighbours: `reclaim::direct` allocates by a policy; `space/call/mbind.rs` changes the policies
//! of mappings.
//!
//! Not guaranteed: that pages allocated before a change of policy move.

mod misplaced;
mod task;

pub use misplaced::MisplacedPage;
pub(crate) use task::TaskPolicies;
pub use task::{PolicyQuery, PolicyReport};

use crate::error::MmError;
use crate::mm::Mm;
use pagewright_sync::Platform;
use pagewright_tlb::frames::FrameRequest;
use pagewright_types::{NodeId, NodeMask, Order};

/// The mode of a [`MemPolicy`] (`MPOL_*` of `include/uapi/linux/mempolicy.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum PolicyMode {
    /// No policy of its own: the next one in order decides (`MPOL_DEFAULT`).
    #[default]
    Default = 0,
    /// One node first, then the others by distance; without nodes, that of the CPU.
    Preferred = 1,
    /// Some nodes only, in the order of their distance (`MPOL_BIND`).
    Bind = 2,
}

bitflags::bitflags! {
    /// The mode flags of a policy (`MPOL_F_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct PolicyFlags: u32 {
        /// Hinting faults move pages to the nodes that use them.
        const NUMA_BALANCING = 1 << 13;
        /// The nodes are counted among those that the task may use.
        const RELATIVE_NODES = 1 << 14;
        /// The nodes stay if those that the task may use change.
        const STATIC_NODES = 1 << 15;
    }
}

impl PolicyFlags {
    /// The flags with which a policy keeps the nodes that its call named.
    const KEEPS_NAMED: Self = Self::RELATIVE_NODES.union(Self::STATIC_NODES);
}

/// A policy as a call names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyRequest {
    /// The mode.
    pub mode: PolicyMode,
    /// The mode flags.
    pub flags: PolicyFlags,
    /// The nodes.
    pub nodes: NodeMask,
}

impl PolicyRequest {
    /// Splits the mode of a call into the mode and its flags (`sanitize_mpol_flags`).
    ///
    /// # Errors
    /// [`MmError::BadFlags`] for a mode that is unknown, or flags that contradict it.
    pub fn mode_of(word: u32) -> Result<(PolicyMode, PolicyFlags), MmError> {
        let bad = MmError::BadFlags { flags: word };
        let flags = PolicyFlags::from_bits_truncate(word);
        let mode = match word & !flags.bits() {
            0 => PolicyMode::Default,
            1 => PolicyMode::Preferred,
            2 => PolicyMode::Bind,
            _ => return Err(bad),
        };
        let balances = flags.contains(PolicyFlags::NUMA_BALANCING);
        if flags.contains(PolicyFlags::KEEPS_NAMED) || balances && mode != PolicyMode::Bind {
            return Err(bad);
        }
        Ok((mode, flags))
    }
}

/// A memory policy (`struct mempolicy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct MemPolicy {
    mode: PolicyMode,
    flags: PolicyFlags,
    /// The nodes that the call named, if a flag says that they are kept.
    named: NodeMask,
    /// The node that is preferred, if any, or those that are permitted.
    nodes: NodeMask,
}

impl MemPolicy {
    /// No policy (`MPOL_DEFAULT`).
    pub const DEFAULT: Self =
        Self { mode: PolicyMode::Default, flags: PolicyFlags::empty(), named: NodeMask::EMPTY, nodes: NodeMask::EMPTY };

    /// Makes the policy that a call names, on a machine with nodes 0 to `nodes` - 1.
    ///
    /// Linux: `mpol_new`, `mpol_set_nodemask`.
    ///
    /// # Errors
    /// [`MmError::BadPolicyNodes`].
    pub(crate) fn new(request: PolicyRequest, nodes: usize) -> Result<Self, MmError> {
        let PolicyRequest { mode, flags, nodes: named } = request;
        let bad = MmError::BadPolicyNodes { mode, nodes: named };
        let keeps_named = flags.intersects(PolicyFlags::KEEPS_NAMED);
        match mode {
            PolicyMode::Default if named.is_empty() => return Ok(Self::DEFAULT),
            PolicyMode::Default => return Err(bad),
            PolicyMode::Preferred if named.is_empty() && !keeps_named => {
                return Ok(Self { mode, flags, ..Self::DEFAULT });
            }
            PolicyMode::Preferred | PolicyMode::Bind if named.is_empty() => return Err(bad),
            PolicyMode::Preferred | PolicyMode::Bind => {}
        }
        let usable = if flags.contains(PolicyFlags::RELATIVE_NODES) {
            // `mpol_relative_nodemask`: a task may use all nodes, so only the fold remains.
            let fold = |node: NodeId| 1 << (node.index() % nodes);
            NodeMask::from_word(named.iter().map(fold).fold(0, |word, bit: u64| word | bit))
        } else {
            named.intersection(NodeMask::first(nodes))
        };
        let first = usable.iter().next().ok_or(bad)?;
        let nodes = if mode == PolicyMode::Preferred { NodeMask::of(first) } else { usable };
        Ok(Self { mode, flags, named: if keeps_named { named } else { NodeMask::EMPTY }, nodes })
    }

    /// The mode.
    pub fn mode(self) -> PolicyMode {
        self.mode
    }

    /// The mode flags.
    pub fn flags(self) -> PolicyFlags {
        self.flags
    }

    /// The mode and its flags as `get_mempolicy` stores them.
    pub fn mode_word(self) -> u32 {
        self.mode as u32 | self.flags.bits()
    }

    /// The nodes as `get_mempolicy` stores them: those that the call named, if they are kept.
    pub fn reported_nodes(self) -> NodeMask {
        if self.flags.intersects(PolicyFlags::KEEPS_NAMED) { self.named } else { self.nodes }
    }

    /// Whether pages may be on `node`, as far as this policy says.
    pub(crate) fn permits(self, node: NodeId) -> bool {
        self.nodes.is_empty() || self.nodes.contains(node)
    }

    /// Whether hint faults move pages of this policy (`MPOL_F_MOF`).
    pub(crate) fn balances(self) -> bool {
        self.mode == PolicyMode::Default || self.flags.contains(PolicyFlags::NUMA_BALANCING)
    }

    /// The policy, or `next` if it is none.
    pub(crate) fn or(self, next: impl FnOnce() -> Self) -> Self {
        if self.mode == PolicyMode::Default { next() } else { self }
    }

    /// The request for 2^`order` frames by a CPU of node `local` (`policy_nodemask`).
    fn request(self, order: Order, local: NodeId) -> FrameRequest {
        match self.mode {
            PolicyMode::Default => FrameRequest::new(order, local),
            PolicyMode::Preferred => FrameRequest::new(order, self.nodes.iter().next().unwrap_or(local)),
            PolicyMode::Bind => FrameRequest { permitted: self.nodes, ..FrameRequest::new(order, local) },
        }
    }
}

impl<P: Platform> Mm<P> {
    /// Creates a request for a page by `policy`, else by the policy of the task.
    ///
    /// INV-POLICY-OBEYED: every page of user memory is requested so.
    pub(crate) fn request(&self, order: Order, policy: MemPolicy) -> FrameRequest {
        let local = self.frames().node_of_cpu(self.fx().cpu());
        policy.or(|| self.task_policy()).request(order, local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(word: u64) -> NodeMask {
        NodeMask::from_word(word)
    }

    fn made(word: u32, nodes: u64) -> Result<MemPolicy, MmError> {
        let (mode, flags) = PolicyRequest::mode_of(word)?;
        MemPolicy::new(PolicyRequest { mode, flags, nodes: mask(nodes) }, 3)
    }

    const STATIC: u32 = 1 << 15;
    const RELATIVE: u32 = 1 << 14;
    const BALANCING: u32 = 1 << 13;

    /// `sanitize_mpol_flags`, `mpol_new` and the `create` functions of `mpol_ops`.
    #[test]
    fn a_policy_is_refused_as_linux_refuses_it() {
        let refused = [
            (3, 1),
            (4, 0),
            (5, 1),
            (6, 1),
            (7, 1),
            (u32::MAX, 1),
            (0, 1),
            (2, 0),
            (2, 0b1000),
            (1, 0b1000),
            (1 | STATIC, 0),
            (1 | RELATIVE, 0),
            (2 | STATIC | RELATIVE, 1),
            (1 | BALANCING, 1),
            (BALANCING, 0),
        ];
        for (word, nodes) in refused {
            let errno = made(word, nodes).map_err(MmError::errno);
            assert_eq!(errno, Err(pagewright_types::Errno::EINVAL), "mode {word:#x}, nodes {nodes:#b}");
        }
        for (word, nodes) in [(0, 0), (STATIC, 0), (1, 0), (1, 1), (2, 0b111), (2 | BALANCING, 1), (2 | STATIC, 0b1100)]
        {
            assert!(made(word, nodes).is_ok(), "mode {word:#x}, nodes {nodes:#b}");
        }
    }

    #[test]
    fn relative_nodes_are_folded_and_static_ones_are_cut() {
        let nodes = |word, nodes| made(word, nodes).map(|policy| (policy.nodes.word(), policy.reported_nodes().word()));
        assert_eq!(nodes(2, 0b1_0010), Ok((0b010, 0b010)));
        assert_eq!(nodes(2 | STATIC, 0b1_0010), Ok((0b010, 0b1_0010)));
        assert_eq!(nodes(2 | RELATIVE, 0b10_1000), Ok((0b101, 0b10_1000)));
        assert_eq!(nodes(1, 0b110), Ok((0b010, 0b010)));
    }

    #[test]
    fn a_policy_requests_its_nodes() {
        let local = NodeId::new(2);
        let request = |word, nodes| made(word, nodes).map(|policy| policy.request(Order::ZERO, local));
        let near = |node| FrameRequest::new(Order::ZERO, NodeId::new(node));
        assert_eq!(request(0, 0), Ok(near(2)));
        assert_eq!(request(1, 0), Ok(near(2)));
        assert_eq!(request(1, 0b011), Ok(near(0)));
        assert_eq!(request(2, 0b011), Ok(FrameRequest { permitted: mask(0b011), ..near(2) }));
    }
}
