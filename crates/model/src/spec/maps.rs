//! What is mapped, as `/proc/PID/maps` would list it if neighbours that look alike were always one.

use super::Spec;
use super::page::{PageBacking, PageMapping};
use alloc::vec::Vec;
use pagewright_types::{FileId, PageRange, Rights, SpaceId, VirtAddr};

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapsLine {
    /// Where.
    pub range: PageRange,
    /// What accesses it allows.
    pub rights: Rights,
    /// Stores go to the file.
    pub shared: bool,
    /// The file and the page of it with which the mapping begins.
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

    /// Itself and `next` as one, if `next` continues it.
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
    /// What a process has mapped; `None` while one of its calls is under way, or if calls have left
    /// it open.
    ///
    /// # Panics
    /// When the process is unknown.
    pub fn maps(&self, space: SpaceId) -> Option<Vec<MapsLine>> {
        let process = self.processes.get(&space).expect("a process that was told of and has not ended");
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
