//! `mbind(2)`: sets the memory policy of mappings.
//!
//! The policy applies to pages that are allocated later. With `MPOL_MF_MOVE`, pages on other nodes
//! move after that. With `MPOL_MF_STRICT`, the call fails if a page is on a node that it does not
//! name; if it moves pages, too, it fails if one has not moved, and the policy is set.
//!
//! **INV-POLICY-SHARED** A change of policy first breaks the page tables of its range that other
//! spaces share. Otherwise a fault for all sharers would choose a node for spaces that do not
//! agree.
//!
//! Not guaranteed: that all pages move.

use crate::error::{MmError, bounded};
use crate::mm::Mm;
use crate::policy::{MemPolicy, PolicyMode, PolicyRequest};
use crate::space::{AddressMap, HeldMap, Space};
use core::ops::ControlFlow;
use pagewright_arch::Isa;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_types::{NodeMask, PAGE_SIZE, PageRange, VirtAddr};

bitflags::bitflags! {
    /// Flags of `mbind` (`MPOL_MF_*` of `include/uapi/linux/mempolicy.h`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct BindFlags: u32 {
        /// The call fails if a page is on another node.
        const STRICT = 1;
        /// Pages that only the caller maps are moved.
        const MOVE = 1 << 1;
        /// Pages are moved also if other processes map them; for a privileged caller.
        const MOVE_ALL = 1 << 2;
    }
}

/// An `mbind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindRequest {
    /// The first address.
    pub addr: VirtAddr,
    /// The length in bytes, rounded up to pages.
    pub len: u64,
    /// The policy.
    pub policy: PolicyRequest,
    /// The flags.
    pub flags: BindFlags,
}

impl<P: Platform> Mm<P> {
    /// Sets the memory policy of a range (`do_mbind`).
    ///
    /// `may_move_all` says whether the caller has `CAP_SYS_NICE`.
    ///
    /// # Errors
    /// [`MmError::BadFlags`], [`MmError::MoveAllNotPermitted`], [`MmError::Range`],
    /// [`MmError::OutOfBounds`], [`MmError::BadPolicyNodes`]; [`MmError::Inaccessible`] if nothing
    /// in the range is mapped or, unless the policy is the default, a page of it is not;
    /// [`MmError::Misplaced`]; [`MmError::TooManyMappings`], or memory for splits. Nothing has
    /// changed.
    pub fn mbind(&self, space: &Space<P>, request: BindRequest, may_move_all: bool) -> Result<(), MmError> {
        let BindRequest { addr, len, policy, flags } = request;
        let bad = MmError::BadFlags { flags: flags.bits() };
        if !BindFlags::all().contains(flags) {
            return Err(bad);
        }
        if flags.contains(BindFlags::MOVE_ALL) && !may_move_all {
            return Err(MmError::MoveAllNotPermitted);
        }
        // As in Linux, rounding up may wrap to a short length (`PAGE_ALIGN`).
        let range = bounded(addr, len.wrapping_add(PAGE_SIZE - 1) / PAGE_SIZE * PAGE_SIZE)?;
        if range.is_empty() {
            return Ok(());
        }
        let new = MemPolicy::new(policy, self.frames().nodes())?;
        self.declare_return_of(|| {
            let mut map = space.map().write();
            check_mapped(&map, range, policy.mode)?;
            // With the default policy the range may end anywhere; only user memory has entries.
            let Some(range) = range.intersect(P::Isa::USER) else { return Ok(()) };
            let (moves, strict) =
                (flags.intersects(BindFlags::MOVE | BindFlags::MOVE_ALL), flags.contains(BindFlags::STRICT));
            // `do_mbind` ignores the flag for the default policy, which names no node.
            let strict = strict && policy.mode != PolicyMode::Default;
            if strict && !moves {
                self.check_placed(&map, range, policy.nodes)?;
            }
            self.bind(&mut map, range, new)?;
            drop(map);
            if !moves {
                return Ok(());
            }
            let all = flags.contains(BindFlags::MOVE_ALL);
            match self.move_to_policy(space, range, (new, policy.nodes), all)? {
                failed if strict && failed > 0 => self.check_placed(&space.map().write(), range, policy.nodes),
                _ => Ok(()),
            }
        })
    }

    /// Checks that no page of `range` is on a node that a call does not name.
    ///
    /// As in Linux, these are the nodes of the call, not those of the policy.
    fn check_placed(&self, map: &HeldMap<'_, P>, range: PageRange, nodes: NodeMask) -> Result<(), MmError> {
        let found = self.for_each_misplaced((map, map.tables(&self.tlb)), range, nodes, |_, page| {
            ControlFlow::Break(MmError::Misplaced { at: page.va, node: page.node })
        });
        found.break_value().map_or(Ok(()), Err)
    }

    /// Gives the mappings of `range` a policy (`mbind_range`).
    ///
    /// INV-POLICY-SHARED: what other spaces share in the range is broken first, because the sharers
    /// of a table agree on its mappings (INV-SHARE-FILL).
    fn bind(&self, map: &mut HeldMap<'_, P>, range: PageRange, policy: MemPolicy) -> Result<(), MmError> {
        if map.overlapping(range).all(|(_, vma)| vma.policy() == policy) {
            return Ok(());
        }
        plant!(
            PolicyInSharedTable;
            map.reserve(self, 2),
            self.reserve_splits(map, range, |vma| vma.policy() != policy)
        )?;
        map.update(range, |vma| vma.policy() != policy, |vma| vma.set_policy(policy));
        Ok(())
    }
}

/// Checks that a policy may apply to `range` (`queue_pages_test_walk`).
///
/// The default policy may apply to a range with holes, but not to a hole.
fn check_mapped<P: Platform>(map: &AddressMap<P>, range: PageRange, mode: PolicyMode) -> Result<(), MmError> {
    let mapped = map.mapped_up_to(range);
    let allowed = match mode {
        PolicyMode::Default => map.overlapping(range).next().is_some(),
        PolicyMode::Preferred | PolicyMode::Bind => mapped == range.end(),
    };
    if allowed { Ok(()) } else { Err(MmError::Inaccessible { va: mapped }) }
}
