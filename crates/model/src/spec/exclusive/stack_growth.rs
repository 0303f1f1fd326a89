//! Stacks, which grow down when an access hits below them (`expand_downwards`).

use super::super::page::{MlockMode, Page, PageMapping, PossibleState};
use super::super::{FaultSignal, Process, Spec};
use alloc::vec;
use pagewright_types::{PAGE_SIZE, SpaceId, VirtAddr};

/// Free pages that a stack keeps above the next lower mapping (`stack_guard_gap`).
const GAP: u64 = 256;

/// Whether a stack can grow to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    No,
    /// It depends on where one VMA ends and the next begins.
    Maybe,
    Yes,
}

impl Process {
    /// Whether the stack above `page` can grow down to it, its first page, and its mapping.
    fn growth(&self, page: u64) -> (Growth, u64, Option<PageMapping>) {
        let uncertain = !self.is_certain();
        let (mut below, mut above) = (None, None);
        for (index, map) in self.all_mapped() {
            if index <= page {
                below = Some((index, map));
            } else if above.is_none() {
                above = Some((index, map));
            }
        }
        let none = (Growth::No, page, None);
        let Some((start, map)) = above.filter(|(_, map)| map.flags.grows_down) else { return none };
        if let Some((end, neighbour)) = below {
            let apart = neighbour.flags.grows_down || neighbour.rights.is_empty();
            if end == page || !uncertain && !apart && page - (end + 1) < GAP {
                return none;
            }
        }
        let more = start - page;
        let locked = map.flags.lock != MlockMode::Unlocked && self.exceeds_lock_limit(more);
        if !uncertain && (locked || self.exceeds_limits(&map, more, 0)) {
            return none;
        }
        // The end of the stack's VMA is uncertain where similar VMAs are adjacent.
        let like =
            |index: &u64| self.mapped(*index).is_some_and(|other| other.flags.grows_down && other.rights == map.rights);
        let longest = (start..).take_while(like).count() as u64;
        let limit = self.limits.stack / PAGE_SIZE;
        let growth = if uncertain {
            Growth::Maybe
        } else if more + longest <= limit {
            Growth::Yes
        } else if more < limit {
            Growth::Maybe
        } else {
            Growth::No
        };
        (growth, start, Some(map))
    }
}

impl Spec {
    /// Maps the pages by which an access at `va` has grown a stack.
    ///
    /// Returns whether a stack has grown.
    pub(in super::super) fn stack_grew(
        &mut self,
        space: SpaceId,
        va: VirtAddr,
        served: Result<(), FaultSignal>,
    ) -> bool {
        let may_fail = self.memory_may_fail;
        let process = self.process(space);
        let page = va.page_index();
        if process.mapped(page).is_some() || !process.pending.is_empty() || !process.has_stacks() {
            return false;
        }
        let (growth, start, Some(mut map)) = process.growth(page) else { return false };
        let refused = served == Err(FaultSignal::NotMapped);
        let grew = match growth {
            Growth::No => false,
            Growth::Maybe => !refused,
            Growth::Yes => !(refused && may_fail),
        };
        if !grew {
            return false;
        }
        map.flags.guarded = false;
        for index in page..start {
            let states = vec![PossibleState { map: Some(map), ..PossibleState::UNMAPPED }];
            let mut grown = Page { states, seam: index == page, ..Page::default() };
            grown.forget_soft_dirty();
            process.pages.insert(index, grown);
            process.mapped_since = true;
        }
        if let Some(page) = process.pages.get_mut(&start) {
            page.seam = false;
        }
        true
    }
}

impl Process {
    pub(in super::super) fn has_stacks(&self) -> bool {
        let grows = |page: &Page| page.states.iter().any(|state| state.map.is_some_and(|map| map.flags.grows_down));
        self.pages.values().any(grows)
    }
}
