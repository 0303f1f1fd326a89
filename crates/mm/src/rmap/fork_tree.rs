//! All address spaces, and the tree of forks by which anonymous pages are found.
//!
//! ```text
//!            1 ── shell, gone                 a page that 2 allocated before its forks names 2:
//!            └─ 2 ── server                   it may be mapped by 2, 3, 4 and 5 only
//!               ├─ 3 ── worker
//!               └─ 4 ── worker
//!                  └─ 5 ── its child
//! ```
//!
//! A node lives while a space belongs to it or a child hangs below it. A chain in which every
//! parent exits after its fork would grow for ever. At [`MAX_DEPTH`] a child therefore joins its
//! parent's node: the search becomes wider and misses no space (INV-RMAP-SUPERSET).
//!
//! **INV-RMAP-CURSOR** A walk of the reverse map holds the node of the tree of forks that it is in,
//! so the node keeps its place until the walk has left it. Otherwise a fork could take the node
//! over, and the walk would go on there and miss spaces.

use crate::error::MmError;
use crate::space::Space;
use alloc::vec::Vec;
use pagewright_btree::{BPlusTree, TreeItem};
use pagewright_plant::plant;
use pagewright_sync::{Arc, Platform, SpinLock, rank};
use pagewright_types::{ForkNodeId, SpaceId};

/// Generations below one root that get nodes of their own.
const MAX_DEPTH: u16 = 64;

/// A known space.
pub(crate) struct KnownSpace<P: Platform>(Arc<Space<P>>);

impl<P: Platform> TreeItem for KnownSpace<P> {
    type Key = u64;
    type Summary = ();

    fn summary(&self, _key: u64) {}
}

/// That a space (second part of the key) belongs to a node (first part).
struct NodeMembership;

impl TreeItem for NodeMembership {
    type Key = (u64, u64);
    type Summary = ();

    fn summary(&self, _key: (u64, u64)) {}
}

#[derive(Clone, Copy)]
struct ForkNode {
    parent: ForkNodeId,
    depth: u16,
    /// The children, each linked to its neighbours.
    first_child: ForkNodeId,
    prev_sibling: ForkNodeId,
    next_sibling: ForkNodeId,
    /// Spaces that belong to it, inserted or about to be, and walks that are in it.
    ///
    /// A node with neither these nor children is free.
    members: u32,
}

struct Inner<P: Platform> {
    members: BPlusTree<KnownSpace<P>>,
    by_node: BPlusTree<NodeMembership>,
    nodes: Vec<ForkNode>,
    free: Vec<ForkNodeId>,
}

/// Every space of a machine.
pub(crate) struct ForkTree<P: Platform> {
    inner: SpinLock<Inner<P>, rank::ForkTreeRank, P::Locks>,
}

/// No node: the parent of a root, the end of a list.
const NO_NODE: ForkNodeId = ForkNodeId::new(u32::MAX);

impl<P: Platform> ForkTree<P> {
    pub(crate) const fn new() -> Self {
        Self { inner: SpinLock::new(Inner::new()) }
    }

    /// A node for a space forked from one of `parent`, or a root for `None`.
    ///
    /// The space must be [inserted](ForkTree::insert_space) or the node
    /// [removed](ForkTree::remove_space).
    pub(crate) fn new_node(&self, parent: Option<ForkNodeId>, permit: bool) -> Result<ForkNodeId, MmError> {
        self.inner.lock().new_node(parent, permit)
    }

    /// Makes a space known, under the node that was branched for it.
    pub(crate) fn insert_space(&self, space: &Arc<Space<P>>, mut permit: impl FnMut() -> bool) -> Result<(), MmError> {
        let mut inner = self.inner.lock();
        inner.members.try_reserve(1, &mut permit)?;
        inner.by_node.try_reserve(1, &mut permit)?;
        let key = space.id().raw();
        inner.members.insert(key, KnownSpace(space.clone()));
        inner.by_node.insert((u64::from(space.fork_node().raw()), key), NodeMembership);
        Ok(())
    }

    /// Forgets a space, and its node and those above that have no spaces or children left.
    pub(crate) fn remove_space(&self, space: SpaceId, fork_node: ForkNodeId) {
        let mut inner = self.inner.lock();
        let key = space.raw();
        let member = inner.members.remove(key);
        inner.by_node.remove((u64::from(fork_node.raw()), key));
        inner.release(fork_node);
        drop(inner);
        // Dropped outside the lock: it may be the last handle.
        drop(member);
    }

    /// The root of the tree that contains `fork_node`.
    pub(crate) fn root_of(&self, fork_node: ForkNodeId) -> ForkNodeId {
        self.inner.lock().root_of(fork_node)
    }

    /// A space by its id.
    pub(crate) fn space(&self, space: SpaceId) -> Option<Arc<Space<P>>> {
        self.inner.lock().members.get(space.raw()).map(|member| member.0.clone())
    }

    /// The spaces that belong to `fork_node` or to a node below it, node by node.
    pub(crate) fn spaces_below(&self, fork_node: ForkNodeId) -> SpacesBelow<'_, P> {
        SpacesBelow { tree: self, top: fork_node, at: CursorPlace::Start, nodes: 0 }
    }

    /// Calls `visit` for every space, by id, without holding the lock meanwhile.
    pub(crate) fn for_each_space(&self, mut visit: impl FnMut(&Arc<Space<P>>)) {
        let mut from = 0;
        loop {
            let next = self.inner.lock().members.ceiling(from).map(|(key, member)| (key, member.0.clone()));
            let Some((key, space)) = next else { return };
            visit(&space);
            from = key + 1;
        }
    }
}

/// Where a walk is.
#[derive(Clone, Copy)]
enum CursorPlace {
    /// Before the first node.
    Start,
    /// In a node that the walk holds, before its space with this id.
    In(ForkNodeId, u64),
    /// After the last node.
    End,
}

/// A walk over the spaces at or below a node, parents first, that keeps its place.
///
/// The lock is not held between two steps. The walk holds the node that it is in as a member does
/// (INV-RMAP-CURSOR), so the node stays in the tree when its spaces end, and no other space gets
/// it. Nodes keep their order, and the spaces of a node are visited by id. So a space that is
/// known from the first step to the last is visited; one that comes meanwhile may be missed. All
/// steps together look at each node and each space once.
pub(crate) struct SpacesBelow<'a, P: Platform> {
    tree: &'a ForkTree<P>,
    top: ForkNodeId,
    at: CursorPlace,
    /// Nodes looked at so far.
    pub(super) nodes: u64,
}

impl<P: Platform> Iterator for SpacesBelow<'_, P> {
    type Item = Arc<Space<P>>;

    fn next(&mut self) -> Option<Arc<Space<P>>> {
        let mut inner = self.tree.inner.lock();
        let (held, mut at, mut from) = match self.at {
            CursorPlace::Start if inner.is_free(self.top) => (None, NO_NODE, 0),
            CursorPlace::Start => {
                self.nodes += 1;
                (None, self.top, 0)
            }
            CursorPlace::In(node, from) => (Some(node), node, from),
            CursorPlace::End => return None,
        };
        let found = loop {
            if at == NO_NODE {
                break None;
            }
            let node = u64::from(at.raw());
            let next = inner.by_node.ceiling((node, from)).map(|(key, _)| key).filter(|(of, _)| *of == node);
            if let Some((_, space)) = next {
                break Some(space);
            }
            (at, from) = (inner.next_below(at, self.top), 0);
            self.nodes += u64::from(at != NO_NODE);
        };
        if held != Some(at) {
            if found.is_some() {
                inner.hold(at);
            }
            if let Some(left) = held {
                inner.let_go(left);
            }
        }
        self.at = found.map_or(CursorPlace::End, |space| CursorPlace::In(at, space + 1));
        found.and_then(|space| inner.members.get(space)).map(|member| member.0.clone())
    }
}

impl<P: Platform> Drop for SpacesBelow<'_, P> {
    fn drop(&mut self) {
        if let CursorPlace::In(node, _) = self.at {
            self.tree.inner.lock().let_go(node);
        }
    }
}

impl<P: Platform> Inner<P> {
    const fn new() -> Self {
        Self { members: BPlusTree::new(), by_node: BPlusTree::new(), nodes: Vec::new(), free: Vec::new() }
    }

    fn node(&mut self, id: ForkNodeId) -> &mut ForkNode {
        &mut self.nodes[id.index()]
    }

    /// As [`ForkTree::root_of`].
    fn root_of(&mut self, fork_node: ForkNodeId) -> ForkNodeId {
        let mut at = fork_node;
        loop {
            match self.node(at).parent {
                NO_NODE => return at,
                parent => at = parent,
            }
        }
    }

    /// Whether a node has no spaces and no nodes below it, and so is in no tree.
    fn is_free(&mut self, id: ForkNodeId) -> bool {
        let node = self.node(id);
        node.members == 0 && node.first_child == NO_NODE
    }

    /// Keeps a node in its tree for a walk.
    fn hold(&mut self, id: ForkNodeId) {
        plant!(WalkLosesPlace => return);
        self.node(id).members += 1;
    }

    /// Ends [`Inner::hold`].
    fn let_go(&mut self, id: ForkNodeId) {
        plant!(WalkLosesPlace => return);
        self.release(id);
    }

    /// As [`ForkTree::new_node`].
    fn new_node(&mut self, parent: Option<ForkNodeId>, permit: bool) -> Result<ForkNodeId, MmError> {
        let depth = parent.map_or(0, |parent| self.node(parent).depth + 1);
        if let Some(parent) = parent
            && depth > MAX_DEPTH
        {
            self.node(parent).members += 1;
            return Ok(parent);
        }
        let parent = parent.unwrap_or(NO_NODE);
        let next_sibling = if parent == NO_NODE { NO_NODE } else { self.node(parent).first_child };
        let node = ForkNode { parent, depth, first_child: NO_NODE, prev_sibling: NO_NODE, next_sibling, members: 1 };
        let id = self.place_node(node, permit)?;
        if next_sibling != NO_NODE {
            self.node(next_sibling).prev_sibling = id;
        }
        if parent != NO_NODE {
            self.node(parent).first_child = id;
        }
        Ok(id)
    }

    /// Stores a node where one was removed, or after all others if `permit` permits it.
    fn place_node(&mut self, node: ForkNode, permit: bool) -> Result<ForkNodeId, MmError> {
        if let Some(id) = self.free.pop() {
            *self.node(id) = node;
            return Ok(id);
        }
        let refused = MmError::NoKernelMemory { wanted: size_of::<ForkNode>() };
        if !permit {
            return Err(refused);
        }
        self.nodes.try_reserve(1).map_err(|_| refused)?;
        // Room for every node on the free list, so that leaving can't fail.
        let missing = self.nodes.len() + 1 - self.free.len();
        self.free.try_reserve(missing).map_err(|_| refused)?;
        self.nodes.push(node);
        Ok(ForkNodeId::new(self.nodes.len() as u32 - 1))
    }

    /// The node after `at` in a walk of everything below `top`, parents first.
    fn next_below(&mut self, mut at: ForkNodeId, top: ForkNodeId) -> ForkNodeId {
        let child = self.node(at).first_child;
        if child != NO_NODE {
            return child;
        }
        while at != top {
            let ForkNode { next_sibling, parent, .. } = *self.node(at);
            if next_sibling != NO_NODE {
                return next_sibling;
            }
            at = parent;
        }
        NO_NODE
    }

    fn release(&mut self, fork_node: ForkNodeId) {
        self.node(fork_node).members -= 1;
        let mut at = fork_node;
        while at != NO_NODE && self.node(at).members == 0 && self.node(at).first_child == NO_NODE {
            let ForkNode { parent, prev_sibling, next_sibling, .. } = *self.node(at);
            if prev_sibling != NO_NODE {
                self.node(prev_sibling).next_sibling = next_sibling;
            } else if parent != NO_NODE {
                self.node(parent).first_child = next_sibling;
            }
            if next_sibling != NO_NODE {
                self.node(next_sibling).prev_sibling = prev_sibling;
            }
            debug_assert!(self.free.len() < self.free.capacity(), "leaving allocates memory");
            self.free.push(at);
            at = parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use pagewright_arch::X86_64;

    type Nodes = Inner<pagewright_sim::Sim<X86_64>>;

    /// A node as a list has it; the list's order is that of the forks.
    #[derive(Clone, Debug)]
    struct Listed {
        id: ForkNodeId,
        parent: Option<ForkNodeId>,
        members: u32,
    }

    /// The nodes at or below `top`, each parent before its children, the latest child first.
    fn below(list: &[Listed], top: ForkNodeId) -> Vec<ForkNodeId> {
        let children = list.iter().rev().filter(|node| node.parent == Some(top));
        let mut all = vec![top];
        children.for_each(|child| all.extend(below(list, child.id)));
        all
    }

    fn depth(list: &[Listed], id: ForkNodeId) -> u16 {
        let node = list.iter().find(|node| node.id == id).expect("a listed node");
        node.parent.map_or(0, |parent| depth(list, parent) + 1)
    }

    fn root(list: &[Listed], id: ForkNodeId) -> ForkNodeId {
        let node = list.iter().find(|node| node.id == id).expect("a listed node");
        node.parent.map_or(id, |parent| root(list, parent))
    }

    /// Removes the nodes that nothing keeps.
    fn prune(list: &mut Vec<Listed>) {
        while let Some(at) =
            list.iter().position(|node| node.members == 0 && list.iter().all(|child| child.parent != Some(node.id)))
        {
            list.remove(at);
        }
    }

    /// INV-RMAP-SUPERSET, INV-RMAP-CURSOR: a list of the nodes, from which each answer is computed.
    #[test]
    fn a_tree_of_forks_says_what_a_list_of_its_nodes_says() {
        let (mut nodes, mut list, mut random) = (Nodes::new(), Vec::<Listed>::new(), 5_u64);
        let mut most = 0;
        for step in 0..1500 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let grows = step % 300 < 150;
            let which = (random >> 20) as usize;
            match random >> 61 {
                0 => {
                    let id = nodes.new_node(None, true).expect("memory is left");
                    list.push(Listed { id, parent: None, members: 1 });
                }
                1..=3 if grows && !list.is_empty() => {
                    let parent = list[which % list.len()].id;
                    let id = nodes.new_node(Some(parent), true).expect("memory is left");
                    assert!(list.iter().all(|node| node.id != id), "{id:?} belongs to a space");
                    list.push(Listed { id, parent: Some(parent), members: 1 });
                }
                4 if !list.is_empty() => {
                    let at = which % list.len();
                    nodes.hold(list[at].id);
                    list[at].members += 1;
                }
                _ => {
                    let held: Vec<usize> = (0..list.len()).filter(|at| list[*at].members > 0).collect();
                    let Some(at) = held.get(which % held.len().max(1)) else { continue };
                    nodes.release(list[*at].id);
                    list[*at].members -= 1;
                    prune(&mut list);
                }
            }
            most = most.max(list.len());
            assert_eq!(nodes.free.len(), nodes.nodes.len() - list.len(), "a node that nothing keeps is free");
            let free = nodes.free.clone();
            assert!(free.iter().all(|id| nodes.is_free(*id)));
            if let Some(node) = list.get(which % list.len().max(1)) {
                assert!(!nodes.is_free(node.id));
                assert_eq!(
                    (nodes.root_of(node.id), nodes.node(node.id).depth),
                    (root(&list, node.id), depth(&list, node.id))
                );
                let (mut walk, mut at) = (Vec::new(), node.id);
                while at != NO_NODE {
                    walk.push(at);
                    at = nodes.next_below(at, node.id);
                }
                assert_eq!(walk, below(&list, node.id), "below {:?}", node.id);
            }
        }
        assert_eq!(nodes.nodes.len(), most, "nodes are reused before the tree grows");
    }

    /// A chain in which every parent exits after its fork.
    #[test]
    fn a_child_below_the_deepest_generation_joins_its_parents_node() {
        let mut nodes = Nodes::new();
        let top = nodes.new_node(None, true).expect("memory is left");
        let mut at = top;
        for generation in 1..=200_u16 {
            let child = nodes.new_node(Some(at), true).expect("memory is left");
            assert_eq!(child == at, generation > 64, "generation {generation}");
            nodes.release(at);
            at = child;
            assert_eq!(nodes.root_of(at), top);
            assert_eq!(nodes.nodes.len() - nodes.free.len(), usize::from(generation.min(64)) + 1);
        }
        nodes.release(at);
        assert_eq!(nodes.free.len(), nodes.nodes.len());
    }

    #[test]
    fn a_node_that_is_not_permitted_changes_nothing() {
        let mut nodes = Nodes::new();
        assert!(nodes.new_node(None, false).is_err() && nodes.nodes.is_empty());
        let top = nodes.new_node(None, true).expect("permitted");
        assert!(nodes.new_node(Some(top), false).is_err());
        assert_eq!((nodes.next_below(top, top), nodes.node(top).members), (NO_NODE, 1));
        nodes.release(top);
        assert_eq!(nodes.new_node(None, false).ok(), Some(top), "a free node needs no memory");
    }
}
