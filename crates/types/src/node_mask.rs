//! Sets of NUMA nodes.

use crate::NodeId;
use core::fmt;

/// A set of nodes, up to [`NodeMask::MAX`] (`nodemask_t`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct NodeMask(u64);

impl NodeMask {
    /// The largest number of nodes of a machine (`MAX_NUMNODES`).
    pub const MAX: usize = 64;
    /// The empty set.
    pub const EMPTY: Self = Self(0);
    /// Every node that a machine can have.
    pub const ALL: Self = Self(u64::MAX);

    /// The set whose node n is bit n of `word`.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// The word, as [`Self::from_word`] takes it.
    #[inline]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The set with one node.
    ///
    /// # Panics
    /// In debug builds if its number is not below [`Self::MAX`].
    #[inline]
    pub const fn of(node: NodeId) -> Self {
        Self(1 << node.raw())
    }

    /// Nodes 0 to `count` - 1.
    ///
    /// # Panics
    /// If `count` is 0 or above [`Self::MAX`].
    pub const fn first(count: usize) -> Self {
        assert!(count > 0 && count <= Self::MAX, "no machine has so many nodes");
        Self(u64::MAX >> (Self::MAX - count))
    }

    /// Whether the set has a node.
    #[inline]
    pub const fn contains(self, node: NodeId) -> bool {
        self.0 >> node.raw() & 1 != 0
    }

    /// Whether the set is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The nodes that both sets have.
    #[inline]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The nodes, in ascending order.
    pub fn iter(self) -> impl Iterator<Item = NodeId> + Clone {
        (0..Self::MAX as u8).map(NodeId::new).filter(move |node| self.contains(*node))
    }
}

impl fmt::Debug for NodeMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(NodeId::raw)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_the_nodes_of_its_bits() {
        let mask = NodeMask::from_word(1 << 63 | 0b101);
        assert!(mask.iter().map(NodeId::raw).eq([0, 2, 63]));
        assert!(mask.contains(NodeId::new(2)) && !mask.contains(NodeId::new(1)));
        assert_eq!(NodeMask::first(3).word(), 0b111);
        assert_eq!(NodeMask::first(64), NodeMask::ALL);
        assert_eq!(mask.intersection(NodeMask::first(2)), NodeMask::of(NodeId::new(0)));
    }
}
