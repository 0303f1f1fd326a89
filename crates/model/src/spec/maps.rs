//! The mappings of a process, as `/proc/PID/maps` lists them if all mergeable VMAs are merged.

use super::Spec;
use super::page::{PageBacking, PageMapping};
use alloc::vec::Vec;
use pagewright_types::{FileId, PageRange, Rights, SpaceId, VirtAddr};

/// A line of `/proc/PID/maps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapsLine {
    /// The addresses.
    pub range: PageRange,
    /// The protection.
    pub rights: Rights,
    /// `MAP_SHARED`: stores go to the file.
    pub shared: bool,
    /// The file, and the index of the first page in it.
    pub file: Option<(FileId, u64)>,
}

impl MapsLine {
    fn of(va: VirtAddr, map: PageMapping) -> Self {
        let file = match map.backing {
            PageBacking::Anon => None,
            PageBacking::File { file, index } => Some((file, index)),
        };
        Self { range: PageRange::page(va), rights: map.rights, shared: map.shared, file }
    }

    /// Merges `next` into `self`, if `next` continues it.
    #[must_use]
    pub fn join(self, next: Self) -> Option<Self> {
        let follows = match (self.file, next.file) {
            (None, None) => true,
            (Some((a, index)), Some((b, from))) => a == b && index + self.range.pages() == from,
            (None, Some(_)) | (Some(_), None) => false,
        };
        let alike = self.rights == next.rights && self.shared == next.shared && self.range.end() == next.range.start();
        (follows && alike).then(|| Self { range: PageRange::new(self.range.start(), next.range.end()), ..self })
    }
}

impl Spec {
    /// The mappings of a process, in order.
    ///
    /// Returns `None` while a call is in flight, and if the mappings are uncertain.
    ///
    /// # Panics
    /// If the process is unknown.
    pub fn maps(&self, space: SpaceId) -> Option<Vec<MapsLine>> {
        let process = self.processes.get(&space).expect("a process that was added and has not exited");
        if !process.acting.is_empty() {
            return None;
        }
        let mut indices: Vec<u64> = process.pages.keys().copied().collect();
        indices.sort_unstable();
        let mut maps: Vec<MapsLine> = Vec::new();
        for index in indices {
            let states = &process.pages[&index].states;
            let map = states.first().and_then(|state| state.map);
            if states.iter().any(|state| state.map != map) {
                return None;
            }
            let Some(map) = map else { continue };
            let line = MapsLine::of(VirtAddr::from_page_index(index), map);
            match maps.last_mut() {
                Some(last) if let Some(joined) = last.join(line) => *last = joined,
                Some(_) | None => maps.push(line),
            }
        }
        Some(maps)
    }
}
