//! Soft-dirty tracking (`/proc/PID/clear_refs`, and bit 55 of `/proc/PID/pagemap`).
//!
//! A page is soft-dirty if it was stored to or mapped since the bits were last cleared. A page that
//! was not is clean, unless anything was mapped in its process since: then its VMA may have merged
//! with a new one, which is soft-dirty as a whole.
//!
//! A file page that is reclaimed loses its soft-dirty bit with its entry, as on Linux.
//!
//! Not guaranteed: anything about pages whose contents were dropped or moved, or that were faulted
//! in for a write that did not happen.

use super::page::{Page, PageBacking, PossibleState};
use super::{CallResult, Spec, SpecVerdict};
use crate::violation::{CpuStep, SpecMismatch};
use pagewright_types::{FileId, SpaceId, VirtAddr};

/// Whether a page is soft-dirty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SoftDirtyBit {
    #[default]
    Set,
    Unknown,
    Clear,
}

impl Page {
    /// Whether the process may map a page that is not a private copy.
    fn may_be_shared(&self) -> bool {
        self.states.iter().any(|state| state.own.is_none())
    }

    /// Makes the soft-dirty bit uncertain.
    pub(super) fn forget_soft_dirty(&mut self) {
        self.soft_dirty = SoftDirtyBit::Unknown;
    }
}

impl Spec {
    /// Makes the soft-dirty bits of dropped file pages uncertain, in all processes.
    pub(super) fn forget_soft_dirty_of(&mut self, went: impl Fn(FileId, u64) -> bool) {
        let shows = |page: &Page| {
            let backing = |state: &PossibleState| state.map.map(|map| map.backing);
            let of = |backing: PageBacking| matches!(backing, PageBacking::File { file, index } if went(file, index));
            page.states.iter().filter_map(backing).any(of)
        };
        // A child in the making has no soft-dirty bits yet.
        for process in self.processes.values_mut() {
            process.pages.values_mut().filter(|page| shows(page)).for_each(Page::forget_soft_dirty);
        }
    }

    /// Reports that the soft-dirty bits of a process were cleared through `clear_refs`.
    ///
    /// Pinned pages may keep theirs.
    ///
    /// # Panics
    /// If the process is unknown.
    pub fn clear_soft_dirty(&mut self, space: SpaceId) {
        let process = self.process(space);
        process.mapped_since = !process.is_certain();
        for page in process.pages.values_mut() {
            let pinned = page.states.iter().any(|state| state.own.as_ref().is_some_and(|own| own.is_pinned()));
            page.soft_dirty = if pinned { SoftDirtyBit::Unknown } else { SoftDirtyBit::Clear };
        }
    }

    /// Reports whether `pagemap` shows the page of `va` as soft-dirty.
    ///
    /// # Errors
    /// A [`crate::Violation`] if that is impossible.
    ///
    /// # Panics
    /// If the process is unknown.
    pub fn pagemap_soft_dirty(&self, by: CpuStep, space: SpaceId, va: VirtAddr, soft_dirty: bool) -> SpecVerdict {
        let process = self.processes.get(&space).expect("a process that was added and has not exited");
        let page = process.pages.get(&va.page_index());
        let expected = match page.map(|page| (page.map(), page.soft_dirty)) {
            None | Some((Ok(None), _)) => false,
            Some((Ok(Some(_)), SoftDirtyBit::Set)) if self.swaps && page.is_some_and(Page::may_be_shared) => {
                return Ok(());
            }
            Some((Ok(Some(_)), SoftDirtyBit::Set)) => true,
            Some((Ok(Some(_)), SoftDirtyBit::Clear)) if !process.mapped_since => false,
            Some((Ok(Some(_)), SoftDirtyBit::Clear | SoftDirtyBit::Unknown) | (Err(_), _)) => return Ok(()),
        };
        if soft_dirty == expected {
            return Ok(());
        }
        let expected = alloc::format!("{:#x} as the soft-dirty bit of page {va}", u64::from(expected));
        let got = CallResult::Number(u64::from(soft_dirty));
        Err(Self::violation(by, SpecMismatch::Call { space, call: "pagemap", got, expected }))
    }
}
