//! Nodes in one vector, linked by 32-bit numbers, with a free list.
//!
//! Key types: [`NodeId`], [`Arena`]. Neighbours: `node` defines nodes, `reserve` computes how many
//! an operation needs.
//!
//! Protocol: only [`Arena::try_reserve`] allocates; [`Arena::take`] uses what it reserved
//! (INV-TREE-RESERVE). Released nodes must be empty, so that an item is dropped when it is removed,
//! not when its node is reused.
//!
//! Not guaranteed: that an id is in use. Ids never leave the tree, which maintains INV-TREE-RETURN.

use super::node::Node;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// Number of a node in its arena.
///
/// Leaves and inner nodes have an arena each; the level says to which an id belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeId(u32);

impl NodeId {
    /// No node: the root of an empty tree, or the link past the first or last leaf.
    pub(super) const NONE: Self = Self(u32::MAX);

    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The nodes of one kind, leaves or inner nodes.
pub(super) struct Arena<T> {
    nodes: Vec<T>,
    free: Vec<NodeId>,
}

impl<T> Arena<T> {
    pub(super) const fn new() -> Self {
        Self { nodes: Vec::new(), free: Vec::new() }
    }

    /// Returns the number of nodes in use.
    pub(super) const fn used(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Returns the number of nodes that can be taken without allocating.
    pub(super) const fn spare(&self) -> usize {
        self.nodes.capacity() - self.used()
    }

    /// Returns the bytes of heap, including spare nodes.
    pub(super) const fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<T>() + self.free.capacity() * size_of::<NodeId>()
    }

    /// Makes [`Self::spare`] at least `wanted`.
    ///
    /// Also reserves space for every node on the free list, so that a release cannot fail. After an
    /// error the arena may have more memory than before, but no other difference.
    pub(super) fn try_reserve(&mut self, wanted: usize) -> Result<(), alloc::collections::TryReserveError> {
        if self.spare() < wanted {
            self.nodes.try_reserve(wanted - self.free.len())?;
        }
        self.free.try_reserve(self.nodes.capacity() - self.free.len())
    }
}

impl<T: Node> Arena<T> {
    /// Takes an empty node from the reserve.
    ///
    /// # Panics
    /// If no node is spare (INV-TREE-RESERVE).
    pub(super) fn take(&mut self) -> NodeId {
        if let Some(id) = self.free.pop() {
            return id;
        }
        assert!(self.nodes.len() < self.nodes.capacity(), "INV-TREE-RESERVE: no reserved node is left");
        let number = u32::try_from(self.nodes.len()).ok().map(NodeId).filter(|id| *id != NodeId::NONE);
        self.nodes.push(T::empty());
        number.expect("2^32 - 1 nodes take more memory than try_reserve can allocate")
    }

    /// Puts an empty node on the free list.
    pub(super) fn release(&mut self, id: NodeId) {
        debug_assert_eq!(self[id].len(), 0, "a released node has entries");
        self.free.push(id);
    }

    /// Moves entries between two neighbours until `left` has `target` entries.
    pub(super) fn balance(&mut self, left: NodeId, right: NodeId, target: usize) {
        match self.nodes.get_disjoint_mut([left.index(), right.index()]) {
            Ok([left, right]) => left.balance(right, target),
            Err(error) => unreachable!("neighbours {left:?} and {right:?} are distinct nodes: {error}"),
        }
    }
}

impl<T> Index<NodeId> for Arena<T> {
    type Output = T;

    #[inline]
    fn index(&self, id: NodeId) -> &T {
        &self.nodes[id.index()]
    }
}

impl<T> IndexMut<NodeId> for Arena<T> {
    #[inline]
    fn index_mut(&mut self, id: NodeId) -> &mut T {
        &mut self.nodes[id.index()]
    }
}
