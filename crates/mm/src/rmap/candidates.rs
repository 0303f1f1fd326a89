//! The spaces that may map a page.

use crate::mm::Mm;
use crate::rmap::fork_tree::SpacesBelow;
use crate::space::Space;
use pagewright_sync::{Arc, Platform};
use pagewright_tlb::frames::FolioOwner;
use pagewright_types::{Counter, FileId, SpaceId};

impl<P: Platform> Mm<P> {
    /// The spaces that may map pages of `owner`.
    pub(super) fn candidates(&self, owner: FolioOwner) -> CandidateSpaces<'_, P> {
        match owner {
            FolioOwner::None => CandidateSpaces::None,
            FolioOwner::Anon(fork_node) => CandidateSpaces::Anon(self, self.fork_tree.spaces_below(fork_node)),
            FolioOwner::File(file) => CandidateSpaces::File { mm: self, file, after: None },
        }
    }
}

/// A walk over the spaces that may map a page; no lock is held between two steps.
///
/// A space that may map the page from the first step to the last is visited (INV-RMAP-SUPERSET).
pub(super) enum CandidateSpaces<'a, P: Platform> {
    /// No space does.
    None,
    /// Spaces that descend from the one that made an anonymous page.
    Anon(&'a Mm<P>, SpacesBelow<'a, P>),
    /// Spaces that map a file, by id.
    File {
        /// The files.
        mm: &'a Mm<P>,
        /// The file.
        file: FileId,
        /// The space visited last.
        after: Option<SpaceId>,
    },
}

impl<P: Platform> Iterator for CandidateSpaces<'_, P> {
    type Item = Arc<Space<P>>;

    fn next(&mut self) -> Option<Arc<Space<P>>> {
        match self {
            Self::None => None,
            Self::Anon(mm, spaces) => {
                let before = spaces.nodes;
                let space = spaces.next();
                mm.tlb.count(Counter::PwRmapNodes, spaces.nodes - before);
                space
            }
            Self::File { mm, file, after } => {
                let object = mm.files.get(*file)?;
                loop {
                    let id = object.mapper_after(*after)?;
                    *after = Some(id);
                    // A space that ended between the two look-ups maps nothing any more.
                    if let Some(space) = mm.fork_tree.space(id) {
                        return Some(space);
                    }
                }
            }
        }
    }
}
