//! Nodes in one vector, linked by 32-bit numbers, with a free list.
//!
//! Key types: [`NodeId`], [`Arena`]. Neighbours: `node` says what a node is, `reserve` how many are
//! needed.
//!
//! Protocol: [`Arena::try_reserve`] is the only allocation; [`Arena::take`] spends what it put
//! aside (INV-TREE-RESERVE). Released nodes must be empty, so an item is dropped when it is removed
//! and not when its node is reused.
//!
//! Not guaranteed: that an id is still in use; ids never leave the tree, which upholds
//! INV-TREE-RETURN.

use super::node::Node;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// Number of a node in its arena.
///
/// Leaves and inner nodes have an arena each; the level tells which is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeId(u32);

impl NodeId {
    /// No node: the root of an empty tree, the link past the outermost leaf.
    pub(super) const NONE: Self = Self(u32::MAX);

    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// All nodes of one kind.
pub(super) struct Arena<T> {
    nodes: Vec<T>,
    free: Vec<NodeId>,
}

impl<T> Arena<T> {
    pub(super) const fn new() -> Self {
        Self { nodes: Vec::new(), free: Vec::new() }
    }

    /// Nodes in use.
    pub(super) const fn used(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Nodes that can be taken without allocating.
    pub(super) const fn spare(&self) -> usize {
        self.nodes.capacity() - self.used()
    }

    /// Heap bytes, spare nodes included.
    pub(super) const fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<T>() + self.free.capacity() * size_of::<NodeId>()
    }

    /// Makes [`Self::spare`] at least `wanted`, or fails and changes nothing that can be seen.
    ///
    /// Room on the free list for every node is part of it, so that a release can't fail.
    pub(super) fn try_reserve(&mut self, wanted: usize) -> Result<(), alloc::collections::TryReserveError> {
        if self.spare() < wanted {
            self.nodes.try_reserve(wanted - self.free.len())?;
        }
        self.free.try_reserve(self.nodes.capacity() - self.free.len())
    }
}

impl<T: Node> Arena<T> {
    /// An empty node out of the reserve.
    ///
    /// # Panics
    /// When nothing was reserved (INV-TREE-RESERVE).
    pub(super) fn take(&mut self) -> NodeId {
        if let Some(id) = self.free.pop() {
            return id;
        }
        assert!(self.nodes.len() < self.nodes.capacity(), "INV-TREE-RESERVE: a node is needed and none was reserved");
        let number = u32::try_from(self.nodes.len()).ok().map(NodeId).filter(|id| *id != NodeId::NONE);
        self.nodes.push(T::empty());
        number.expect("2^32 - 1 nodes take more memory than try_reserve can have granted")
    }

    /// Puts an empty node back on the free list.
    pub(super) fn release(&mut self, id: NodeId) {
        debug_assert_eq!(self[id].len(), 0, "released a node that holds entries");
        self.free.push(id);
    }

    /// Moves entries between two neighbours until `left` has `target`, and returns how many `right`
    /// has then.
    pub(super) fn balance(&mut self, left: NodeId, right: NodeId, target: usize) {
        match self.nodes.get_disjoint_mut([left.index(), right.index()]) {
            Ok([left, right]) => left.balance(right, target),
            Err(error) => unreachable!("neighbours {left:?} and {right:?} are two nodes of one arena: {error}"),
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
