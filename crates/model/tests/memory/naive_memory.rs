//! A naive memory: calls act page by page, one after the other, on plain arrays.

use pagewright_model::spec::{
    CallResult, FaultSignal, MappingFlags, MemoryCall, MmapObject, MmapPlacement, PageBacking, PageMapping, RangeCall,
};
use pagewright_types::{Access, Errno, FileId, PageRange, Rights, SpaceId, VirtAddr};
use std::collections::BTreeMap;

pub(crate) const FILE: FileId = FileId::new(1);
pub(crate) const CELLS: usize = 4;

/// The initial value of a cell of the file.
pub(crate) fn initial(page: u64, cell: u16) -> u64 {
    0xf000 + page * 16 + u64::from(cell)
}

#[derive(Clone)]
pub(crate) struct Page {
    pub(crate) map: PageMapping,
    own: Option<[u64; CELLS]>,
}

#[derive(Default)]
pub(crate) struct Naive {
    pub(crate) spaces: BTreeMap<u64, BTreeMap<u64, Page>>,
    pub(crate) file: Vec<[u64; CELLS]>,
}

impl Naive {
    pub(crate) fn new(file_pages: u64) -> Self {
        let page = |index| std::array::from_fn(|cell| initial(index, cell as u16));
        Self { spaces: BTreeMap::from([(1, BTreeMap::new())]), file: (0..file_pages).map(page).collect() }
    }

    /// The result of a call, and the pages on which it acts.
    pub(crate) fn decide(&self, space: SpaceId, call: MemoryCall) -> (CallResult, PageRange) {
        let pages = &self.spaces[&space.raw()];
        let range = |addr: VirtAddr, len| PageRange::from_len(addr, len).expect("a range of pages");
        let empty = |at| PageRange::new(at, at);
        match call {
            MemoryCall::Mmap { place, len, .. } => {
                let (MmapPlacement::Fixed(at) | MmapPlacement::FixedNoReplace(at)) = place else { panic!("a place") };
                let range = range(at, len);
                let taken = range.iter().any(|va| pages.contains_key(&va.page_index()));
                if taken && matches!(place, MmapPlacement::FixedNoReplace(_)) {
                    return (CallResult::Failed(Errno::EEXIST), empty(at));
                }
                (CallResult::Mapped(at), range)
            }
            MemoryCall::Range(RangeCall::Munmap { addr, len }) => (CallResult::Done, range(addr, len)),
            MemoryCall::Range(RangeCall::Mprotect { addr, len, rights }) => {
                for va in range(addr, len).iter() {
                    let errno = match pages.get(&va.page_index()) {
                        None => Errno::ENOMEM,
                        Some(page) if !page.map.max_rights.contains(rights) => Errno::EACCES,
                        Some(_) => continue,
                    };
                    return (CallResult::Failed(errno), PageRange::new(addr, va));
                }
                (CallResult::Done, range(addr, len))
            }
            MemoryCall::Range(RangeCall::DontNeed { addr, len }) => {
                let hole = range(addr, len).iter().any(|va| !pages.contains_key(&va.page_index()));
                (if hole { CallResult::Failed(Errno::ENOMEM) } else { CallResult::Done }, range(addr, len))
            }
            MemoryCall::Fork
            | MemoryCall::Range(RangeCall::Brk { .. })
            | MemoryCall::Exit
            | MemoryCall::Exclusive(_) => {
                panic!("the naive memory does not model this call")
            }
        }
    }

    /// Applies a call to one page.
    pub(crate) fn act(&mut self, space: SpaceId, call: MemoryCall, va: VirtAddr) {
        let pages = self.spaces.get_mut(&space.raw()).expect("a space");
        let index = va.page_index();
        match call {
            MemoryCall::Mmap {
                place: MmapPlacement::Fixed(at) | MmapPlacement::FixedNoReplace(at),
                rights,
                shared,
                object,
                ..
            } => {
                let (backing, max_rights) = match object {
                    MmapObject::Anon => (PageBacking::Anon, Rights::all()),
                    MmapObject::File { file, index: first, opened } => {
                        let max_rights =
                            if shared && !opened.contains(Rights::WRITE) { Rights::RX } else { Rights::all() };
                        (PageBacking::File { file, index: first + index - at.page_index() }, max_rights)
                    }
                };
                pages.insert(
                    index,
                    Page {
                        map: PageMapping { rights, max_rights, shared, backing, flags: MappingFlags::default() },
                        own: None,
                    },
                );
            }
            MemoryCall::Range(RangeCall::Munmap { .. }) => {
                pages.remove(&index);
            }
            MemoryCall::Range(RangeCall::Mprotect { rights, .. }) => {
                if let Some(page) = pages.get_mut(&index) {
                    page.map.rights = rights;
                }
            }
            MemoryCall::Range(RangeCall::DontNeed { .. }) => {
                if let Some(page) = pages.get_mut(&index) {
                    page.own = None;
                }
            }
            MemoryCall::Mmap { .. }
            | MemoryCall::Fork
            | MemoryCall::Range(RangeCall::Brk { .. })
            | MemoryCall::Exit
            | MemoryCall::Exclusive(_) => {
                panic!("the naive memory does not model this call")
            }
        }
    }

    pub(crate) fn copy_page(&mut self, parent: SpaceId, child: SpaceId, index: u64) {
        if let Some(page) = self.spaces[&parent.raw()].get(&index).cloned() {
            self.spaces.entry(child.raw()).or_default().insert(index, page);
        }
    }

    /// The signal that an access gets, if any.
    pub(crate) fn refuses(&self, space: SpaceId, va: VirtAddr, access: Access) -> Option<FaultSignal> {
        let Some(page) = self.spaces[&space.raw()].get(&va.page_index()) else { return Some(FaultSignal::NotMapped) };
        let rights = page.map.rights;
        let allowed = rights.allow(access) || access == Access::Read && !rights.is_empty();
        match page.map.backing {
            _ if !allowed => Some(FaultSignal::NotAllowed),
            PageBacking::File { index, .. } if index >= self.file.len() as u64 => Some(FaultSignal::PastEnd),
            PageBacking::File { .. } | PageBacking::Anon => None,
        }
    }

    pub(crate) fn load(&self, space: SpaceId, va: VirtAddr) -> u64 {
        let page = &self.spaces[&space.raw()][&va.page_index()];
        let cell = (va.page_offset() / 8) as usize;
        match (page.own, page.map.backing) {
            (Some(own), _) => own[cell],
            (None, PageBacking::Anon) => 0,
            (None, PageBacking::File { index, .. }) => self.file[index as usize][cell],
        }
    }

    pub(crate) fn store(&mut self, space: SpaceId, va: VirtAddr, value: u64) {
        let cell = (va.page_offset() / 8) as usize;
        let page = self.spaces.get_mut(&space.raw()).and_then(|pages| pages.get_mut(&va.page_index())).expect("a page");
        match (page.map.backing, page.map.shared) {
            (PageBacking::File { index, .. }, true) => self.file[index as usize][cell] = value,
            (PageBacking::File { index, .. }, false) => page.own.get_or_insert(self.file[index as usize])[cell] = value,
            (PageBacking::Anon, _) => page.own.get_or_insert([0; CELLS])[cell] = value,
        }
    }

    pub(crate) fn truncate(&mut self, pages: u64) {
        self.file.resize(pages as usize, [0; CELLS]);
        for page in self.spaces.values_mut().flat_map(BTreeMap::values_mut) {
            if matches!(page.map.backing, PageBacking::File { index, .. } if index >= pages) {
                page.own = None;
            }
        }
    }
}
