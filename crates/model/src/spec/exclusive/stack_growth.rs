//! Stacks that grow down when they are touched below (`expand_downwards`).

use super::super::page::{MlockMode, Page, PageMapping, PossibleState};
use super::super::{FaultSignal, Process, Spec};
use alloc::vec;
use pagewright_types::{PAGE_SIZE, SpaceId, VirtAddr};

/// Pages that a stack keeps free between itself and what lies below (`stack_guard_gap`).
const GAP: u64 = 256;

/// Whether a stack can grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    No,
    /// It depends on where one mapping ends and another begins.
    Maybe,
    Yes,
}

impl Process {
    /// The first page of the mapping above a hole, if it can grow down to `page`.
    fn growth(&self, page: u64) -> (Growth, u64, Option<PageMapping>) {
        let doubt = !self.is_certain();
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
            if end == page || !doubt && !apart && page - (end + 1) < GAP {
                return none;
            }
        }
        let more = start - page;
        let locked = map.flags.lock != MlockMode::Unlocked && self.is_too_much_locked(more);
        if !doubt && (locked || self.is_too_much(&map, more, 0)) {
            return none;
        }
        // Where the mapping ends is known no better than where others begin.
        let like =
            |index: &u64| self.mapped(*index).is_some_and(|other| other.flags.grows_down && other.rights == map.rights);
        let longest = (start..).take_while(like).count() as u64;
        let limit = self.limits.stack / PAGE_SIZE;
        let growth = if doubt {
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
    /// If an access at `va` has made a stack grow, maps what it has grown by.
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
            grown.blur();
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
