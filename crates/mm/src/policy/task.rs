//! The policy of the task that a CPU runs, and `set_mempolicy(2)` and `get_mempolicy(2)`.
//!
//! Key type: [`TaskPolicies`]. A task is the embedder's: it keeps the policy of each and tells it
//! to the CPU by [`Mm::set_task_policy`] when the task begins to run there. A task inherits the
//! policy of the one that makes it, and keeps it over `execve`.
//!
//! Protocol: only a CPU itself reads or changes its entry, and no interrupt handler allocates user
//! memory. So its three words agree.

use super::{MemPolicy, PolicyFlags, PolicyMode, PolicyRequest};
use crate::error::MmError;
use crate::gup::{GupFlags, MakeDirty};
use crate::mm::Mm;
use crate::space::Space;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_sync::{AllocError, PerCpu, Platform};
use pagewright_types::{NodeId, NodeMask, PAGE_SIZE, PageRange, VirtAddr};

/// The policy of the task that each CPU runs.
pub(crate) struct TaskPolicies(PerCpu<[AtomicU64; 3]>);

impl TaskPolicies {
    pub(crate) fn try_new(cpus: usize) -> Result<Self, AllocError> {
        PerCpu::try_new(cpus, |_| [const { AtomicU64::new(0) }; 3]).map(Self)
    }
}

bitflags::bitflags! {
    /// What `get_mempolicy` reports (`MPOL_F_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PolicyQuery: u32 {
        /// A node instead of a mode.
        const NODE = 1;
        /// The mapping at an address instead of the task.
        const ADDR = 1 << 1;
        /// The nodes that the task may use.
        const MEMS_ALLOWED = 1 << 2;
    }
}

/// What `get_mempolicy` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyReport {
    /// A mode with its flags, or the number of a node.
    pub value: u32,
    /// The nodes.
    pub nodes: NodeMask,
}

impl<P: Platform> Mm<P> {
    /// Returns the policy of the task that this CPU runs.
    #[inline]
    pub fn task_policy(&self) -> MemPolicy {
        let [word, named, nodes] = self.task_policies.0.get(self.fx().cpu());
        let word = word.load(Ordering::Relaxed) as u32;
        let mode = match word & !PolicyFlags::all().bits() {
            0 => return MemPolicy::DEFAULT,
            1 => PolicyMode::Preferred,
            _ => PolicyMode::Bind,
        };
        let mask = |word: &AtomicU64| NodeMask::from_word(word.load(Ordering::Relaxed));
        MemPolicy { mode, flags: PolicyFlags::from_bits_truncate(word), named: mask(named), nodes: mask(nodes) }
    }

    /// Sets the policy of the task that this CPU begins to run, and returns that of the last one.
    pub fn set_task_policy(&self, policy: MemPolicy) -> MemPolicy {
        let last = self.task_policy();
        let words = [u64::from(policy.mode_word()), policy.named.word(), policy.nodes.word()];
        for (entry, word) in self.task_policies.0.get(self.fx().cpu()).iter().zip(words) {
            entry.store(word, Ordering::Relaxed);
        }
        last
    }

    /// Sets the policy of the calling task (`set_mempolicy(2)`).
    ///
    /// # Errors
    /// [`MmError::BadPolicyNodes`]; nothing has changed.
    pub fn set_mempolicy(&self, request: PolicyRequest) -> Result<(), MmError> {
        self.set_task_policy(MemPolicy::new(request, self.frames().nodes())?);
        Ok(())
    }

    /// Reports a policy or the node of a page (`get_mempolicy(2)`).
    ///
    /// The page at an address is faulted in, as by a read.
    ///
    /// # Errors
    /// [`MmError::BadFlags`]; [`MmError::Inaccessible`] if nothing is mapped at `addr`; what the
    /// fault fails with. Nothing has changed.
    pub fn get_mempolicy(&self, space: &Space<P>, addr: VirtAddr, query: PolicyQuery) -> Result<PolicyReport, MmError> {
        let bad = MmError::BadFlags { flags: query.bits() };
        if !PolicyQuery::all().contains(query) {
            return Err(bad);
        }
        if query.contains(PolicyQuery::MEMS_ALLOWED) {
            let all = self.node_mask();
            return if query == PolicyQuery::MEMS_ALLOWED {
                Ok(PolicyReport { value: 0, nodes: all })
            } else {
                Err(bad)
            };
        }
        let policy = if query.contains(PolicyQuery::ADDR) {
            let map = space.map().read();
            map.find(addr).map(|(_, vma)| vma.policy()).ok_or(MmError::Inaccessible { va: addr })?
        } else if addr > VirtAddr::ZERO {
            return Err(bad);
        } else {
            self.task_policy()
        };
        let value = match (query.contains(PolicyQuery::NODE), query.contains(PolicyQuery::ADDR)) {
            (false, _) => policy.mode_word(),
            (true, true) => u32::from(self.node_at(space, addr)?.raw()),
            // Only a policy that interleaves has a next node.
            (true, false) => return Err(bad),
        };
        Ok(PolicyReport { value, nodes: policy.reported_nodes() })
    }

    /// Returns the node of the page at an address (`lookup_node`).
    fn node_at(&self, space: &Space<P>, addr: VirtAddr) -> Result<NodeId, MmError> {
        let page = PageRange::page(addr.align_down(PAGE_SIZE));
        let pages = self.get_user_pages(space, page, GupFlags::empty())?;
        let node = pages.iter().next().and_then(|page| self.frames().node_of(page.pfn()));
        self.release_user_pages(pages, MakeDirty::No);
        node.ok_or(MmError::Inaccessible { va: addr })
    }
}
