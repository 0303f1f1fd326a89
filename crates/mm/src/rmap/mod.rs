//! The reverse map: from a page to the entries that map it.
//!
//! An anonymous page names a node of the tree of forks (`ForkTree`) and its page index; it can be
//! mapped only by spaces at or below that node. A page of a file names the file, which knows the
//! spaces that map it. Either way the candidates are *spaces*; the VMAs and the entry are then
//! looked up in each, so a fork or a split costs the reverse map nothing per VMA.
//!
//! Linux hangs every VMA onto chains of `anon_vma`s instead and allocates for each at fork; a tree
//! of spaces needs one node per fork, and a walk one VMA lookup per space.
//!
//! **INV-RMAP-SUPERSET** The spaces that the reverse map visits for a page include every space that
//! maps it. More is harmless, since the entry is checked.

mod candidates;
mod fork_tree;
mod visit;

pub(crate) use fork_tree::ForkTree;
pub use visit::RmapEntry;
pub(crate) use visit::{CandidateSpace, FolioVisit, MappedLeaf, SpaceLock};
