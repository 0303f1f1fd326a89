//! All address spaces, and the tree of forks by which anonymous pages are found.
//!
//! ```text
//!            1 ── shell, gone                 a page made by 2 before its forks is labelled 2:
//!            └─ 2 ── server                   it may be mapped by 2, 3, 4 and 5, and nobody else
//!               ├─ 3 ── worker
//!               └─ 4 ── worker
//!                  └─ 5 ── its child
//! ```
//!
//! A node lives while a space belongs to it or a child hangs below it. A chain in which every parent exits after its fork would
//! grow for ever; at [`MAX_DEPTH`] a child therefore joins its parent's node instead of getting its own, which widens the search
//! and never misses a space (INV-RMAP-SUPERSET).

use crate::error::MmError;
use crate::space::Space;
use crate::tree::{Item, Tree};
use alloc::vec::Vec;
use pagewright_sync::{Arc, Platform, SpinLock, rank};
use pagewright_types::{LineageId, SpaceId};

/// Generations below one root that get nodes of their own.
const MAX_DEPTH: u16 = 64;

/// A space and the node it belongs to.
pub(crate) struct Member<P: Platform> {
    pub(crate) space: Arc<Space<P>>,
    lineage: LineageId,
}

impl<P: Platform> Item for Member<P> {
    type Key = u64;
    type Summary = ();

    fn summary(&self, _key: u64) {}
}

#[derive(Clone, Copy)]
struct Node {
    parent: LineageId,
    depth: u16,
    /// Children that hang below it.
    children: u32,
    /// Spaces that belong to it; a node with neither is free.
    members: u32,
}

struct Inner<P: Platform> {
    members: Tree<Member<P>>,
    nodes: Vec<Node>,
    free: Vec<LineageId>,
}

/// Every space of a machine.
pub(crate) struct Family<P: Platform> {
    inner: SpinLock<Inner<P>, rank::Family, P::Locks>,
}

/// No node: the parent of a root.
const NONE: LineageId = LineageId::new(u32::MAX);

impl<P: Platform> Family<P> {
    pub(crate) const fn new() -> Self {
        Self { inner: SpinLock::new(Inner { members: Tree::new(), nodes: Vec::new(), free: Vec::new() }) }
    }

    /// A node for a space forked from one of `parent`, or a root for `None`. The space must be [enrolled](Family::enroll)
    /// or the node [left](Family::leave).
    pub(crate) fn branch(&self, parent: Option<LineageId>, permit: bool) -> Result<LineageId, MmError> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let depth = parent.map_or(0, |parent| inner.nodes[parent.index()].depth + 1);
        if let Some(parent) = parent
            && depth > MAX_DEPTH
        {
            inner.nodes[parent.index()].members += 1;
            return Ok(parent);
        }
        let node = Node { parent: parent.unwrap_or(NONE), depth, children: 0, members: 1 };
        let id = match inner.free.pop() {
            Some(id) => id,
            None => {
                let wanted = MmError::NoKernelMemory { wanted: size_of::<Node>() };
                if !permit {
                    return Err(wanted);
                }
                inner.nodes.try_reserve(1).map_err(|_| wanted)?;
                // Room for every node on the free list, so that leaving can't fail.
                let missing = inner.nodes.len() + 1 - inner.free.len();
                inner.free.try_reserve(missing).map_err(|_| wanted)?;
                inner.nodes.push(node);
                LineageId::new(inner.nodes.len() as u32 - 1)
            }
        };
        inner.nodes[id.index()] = node;
        if let Some(parent) = parent {
            inner.nodes[parent.index()].children += 1;
        }
        Ok(id)
    }

    /// Makes a space known, under the node that was branched for it.
    pub(crate) fn enroll(&self, space: &Arc<Space<P>>, permit: impl FnOnce() -> bool) -> Result<(), MmError> {
        let mut inner = self.inner.lock();
        inner.members.try_reserve(1, permit)?;
        let member = Member { space: space.clone(), lineage: space.lineage() };
        inner.members.insert(u64::from(space.id().raw()), member);
        Ok(())
    }

    /// Forgets a space, and its node and those above that nobody needs any more.
    pub(crate) fn leave(&self, space: SpaceId, lineage: LineageId) {
        let mut inner = self.inner.lock();
        let member = inner.members.remove(u64::from(space.raw()));
        inner.release(lineage);
        drop(inner);
        // Dropped outside the lock: it may be the last handle.
        drop(member);
    }

    /// A space by its id.
    pub(crate) fn get(&self, space: SpaceId) -> Option<Arc<Space<P>>> {
        self.inner.lock().members.get(u64::from(space.raw())).map(|member| member.space.clone())
    }

    /// The first space after `after` that belongs to `lineage` or to a node below it.
    pub(crate) fn below_after(&self, lineage: LineageId, after: Option<SpaceId>) -> Option<Arc<Space<P>>> {
        let inner = self.inner.lock();
        let from = after.map_or(0, |space| u64::from(space.raw()) + 1);
        let found = inner.members.iter_from(from).find(|(_, member)| inner.is_at_or_below(member.lineage, lineage));
        found.map(|(_, member)| member.space.clone())
    }

    /// Calls `visit` for every space, by id, without holding the lock meanwhile.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&Arc<Space<P>>)) {
        let mut from = 0;
        loop {
            let next = self.inner.lock().members.ceiling(from).map(|(key, member)| (key, member.space.clone()));
            let Some((key, space)) = next else { return };
            visit(&space);
            from = key + 1;
        }
    }
}

impl<P: Platform> Inner<P> {
    fn release(&mut self, lineage: LineageId) {
        self.nodes[lineage.index()].members -= 1;
        let mut at = lineage;
        while at != NONE && self.nodes[at.index()].members == 0 && self.nodes[at.index()].children == 0 {
            let parent = self.nodes[at.index()].parent;
            self.free.push(at);
            if parent != NONE {
                self.nodes[parent.index()].children -= 1;
            }
            at = parent;
        }
    }

    fn is_at_or_below(&self, mut at: LineageId, top: LineageId) -> bool {
        loop {
            if at == top {
                return true;
            }
            let parent = self.nodes[at.index()].parent;
            if parent == NONE {
                return false;
            }
            at = parent;
        }
    }
}
