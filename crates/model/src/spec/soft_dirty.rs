//! Which pages were stored to since the marks were last cleared (`/proc/PID/clear_refs`, and bit 55
//! of `pagemap`).
//!
//! A page that was stored to, or mapped, since is marked; one that was not is not, unless something
//! was mapped in its process since: then its mapping may be one with what is new.
//!
//! A page of a file that goes to swap loses its mark with its entry, as on Linux.
//!
//! Not guaranteed: anything about pages whose contents went or moved, or that were faulted in to be
//! written and were not.

use super::page::{Page, PageBacking, PossibleState};
use super::{CallResult, Spec, SpecVerdict};
use crate::violation::{CpuStep, SpecMismatch};
use pagewright_types::{FileId, SpaceId, VirtAddr};

/// Whether a page is marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mark {
    #[default]
    Set,
    Maybe,
    Clear,
}

impl Page {
    /// Whether what the process sees there may be a page that others have, too.
    fn may_be_shared(&self) -> bool {
        self.states.iter().any(|state| state.own.is_none())
    }

    /// Something has happened to it that may have set the mark, or taken it away.
    pub(super) fn blur(&mut self) {
        self.mark = Mark::Maybe;
    }
}

impl Spec {
    /// Pages of files went, from all processes that had them mapped, and marks with them.
    pub(super) fn blur_all_of(&mut self, went: impl Fn(FileId, u64) -> bool) {
        let shows = |page: &Page| {
            let backing = |state: &PossibleState| state.map.map(|map| map.backing);
            let of = |backing: PageBacking| matches!(backing, PageBacking::File { file, index } if went(file, index));
            page.states.iter().filter_map(backing).any(of)
        };
        // A child that is being made knows nothing of marks yet.
        for process in self.processes.values_mut() {
            process.pages.values_mut().filter(|page| shows(page)).for_each(Page::blur);
        }
    }

    /// The marks of a process were cleared.
    ///
    /// Pages that are pinned may keep theirs.
    ///
    /// # Panics
    /// When the process is unknown.
    pub fn clear_soft_dirty(&mut self, space: SpaceId) {
        let process = self.process(space);
        process.mapped_since = !process.is_certain();
        for page in process.pages.values_mut() {
            let pinned = page.states.iter().any(|state| state.own.as_ref().is_some_and(|own| own.is_pinned()));
            page.mark = if pinned { Mark::Maybe } else { Mark::Clear };
        }
    }

    /// `pagemap` has said whether the page of `va` is marked.
    ///
    /// # Errors
    /// A [`crate::Violation`] when it can't be so.
    ///
    /// # Panics
    /// When the process is unknown.
    pub fn pagemap_soft_dirty(&self, by: CpuStep, space: SpaceId, va: VirtAddr, marked: bool) -> SpecVerdict {
        let process = self.processes.get(&space).expect("a process that was told of and has not ended");
        let page = process.pages.get(&va.page_index());
        let expected = match page.map(|page| (page.map(), page.mark)) {
            None | Some((Ok(None), _)) => false,
            Some((Ok(Some(_)), Mark::Set)) if self.swaps && page.is_some_and(Page::may_be_shared) => return Ok(()),
            Some((Ok(Some(_)), Mark::Set)) => true,
            Some((Ok(Some(_)), Mark::Clear)) if !process.mapped_since => false,
            Some((Ok(Some(_)), Mark::Clear | Mark::Maybe) | (Err(_), _)) => return Ok(()),
        };
        if marked == expected {
            return Ok(());
        }
        let expected = alloc::format!("soft-dirty {expected} of {va}");
        let got = CallResult::Number(u64::from(marked));
        Err(Self::violation(by, SpecMismatch::Call { space, call: "pagemap", got, expected }))
    }
}
