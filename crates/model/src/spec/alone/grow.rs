//! Stacks that grow down when they are touched below (`expand_downwards`).

use super::super::page::{Lock, Mapped, Page, World};
use super::super::{Process, Signal, Spec};
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
    fn growth(&self, page: u64) -> (Growth, u64, Option<Mapped>) {
        let doubt = !self.is_clear();
        let (mut below, mut above) = (None, None);
        for (index, map) in self.all_mapped() {
            if index <= page {
                below = Some((index, map));
            } else if above.is_none() {
                above = Some((index, map));
            }
        }
        let none = (Growth::No, page, None);
        let Some((start, map)) = above.filter(|(_, map)| map.traits.grows) else { return none };
        if let Some((end, neighbour)) = below {
            let apart = neighbour.traits.grows || neighbour.rights.is_empty();
            if end == page || !doubt && !apart && page - (end + 1) < GAP {
                return none;
            }
        }
        let more = start - page;
        let locked = map.traits.lock != Lock::No && self.is_too_much_locked(more);
        if !doubt && (locked || self.is_too_much(&map, more, 0)) {
            return none;
        }
        // Where the mapping ends is known no better than where others begin.
        let like =
            |index: &u64| self.mapped(*index).is_some_and(|other| other.traits.grows && other.rights == map.rights);
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
    pub(in super::super) fn stack_grew(&mut self, space: SpaceId, va: VirtAddr, served: Result<(), Signal>) -> bool {
        let may_fail = self.memory_may_fail;
        let process = self.process(space);
        let page = va.page_index();
        if process.mapped(page).is_some() || !process.pending.is_empty() || !process.has_stacks() {
            return false;
        }
        let (growth, start, Some(mut map)) = process.growth(page) else { return false };
        let refused = served == Err(Signal::NotMapped);
        let grew = match growth {
            Growth::No => false,
            Growth::Maybe => !refused,
            Growth::Yes => !(refused && may_fail),
        };
        if !grew {
            return false;
        }
        map.traits.guarded = false;
        for index in page..start {
            let worlds = vec![World { map: Some(map), ..World::UNMAPPED }];
            let mut grown = Page { worlds, seam: index == page, ..Page::default() };
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
        let grows = |page: &Page| page.worlds.iter().any(|world| world.map.is_some_and(|map| map.traits.grows));
        self.pages.values().any(grows)
    }
}
