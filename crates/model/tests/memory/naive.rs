//! A memory as simple as can be: calls act page by page, one after the other, on plain arrays.

use pagewright_model::spec::{Answer, Call, Mapped, Object, Place, Signal, Source, Traits};
use pagewright_types::{Access, Errno, FileId, PageRange, Rights, SpaceId, VirtAddr};
use std::collections::BTreeMap;

pub(crate) const FILE: FileId = FileId::new(1);
pub(crate) const CELLS: usize = 4;

/// What cells of the file hold at first.
pub(crate) fn initial(page: u64, cell: u16) -> u64 {
    0xf000 + page * 16 + u64::from(cell)
}

#[derive(Clone)]
pub(crate) struct Page {
    pub(crate) map: Mapped,
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

    /// What the call will answer, and the pages that it acts on.
    pub(crate) fn decide(&self, space: SpaceId, call: Call) -> (Answer, PageRange) {
        let pages = &self.spaces[&space.raw()];
        let range = |addr: VirtAddr, len| PageRange::from_len(addr, len).expect("a range of pages");
        let empty = |at| PageRange::new(at, at);
        match call {
            Call::Mmap { place, len, .. } => {
                let (Place::Fixed(at) | Place::Vacant(at)) = place else { panic!("a place") };
                let range = range(at, len);
                let taken = range.iter().any(|va| pages.contains_key(&va.page_index()));
                if taken && matches!(place, Place::Vacant(_)) {
                    return (Answer::Failed(Errno::EEXIST), empty(at));
                }
                (Answer::Mapped(at), range)
            }
            Call::Munmap { addr, len } => (Answer::Done, range(addr, len)),
            Call::Mprotect { addr, len, rights } => {
                for va in range(addr, len).iter() {
                    let errno = match pages.get(&va.page_index()) {
                        None => Errno::ENOMEM,
                        Some(page) if !page.map.most.contains(rights) => Errno::EACCES,
                        Some(_) => continue,
                    };
                    return (Answer::Failed(errno), PageRange::new(addr, va));
                }
                (Answer::Done, range(addr, len))
            }
            Call::DontNeed { addr, len } => {
                let hole = range(addr, len).iter().any(|va| !pages.contains_key(&va.page_index()));
                (if hole { Answer::Failed(Errno::ENOMEM) } else { Answer::Done }, range(addr, len))
            }
            Call::Fork | Call::Brk { .. } | Call::Exit | Call::Alone(_) => panic!("not acted out here"),
        }
    }

    /// What the call does to one page.
    pub(crate) fn act(&mut self, space: SpaceId, call: Call, va: VirtAddr) {
        let pages = self.spaces.get_mut(&space.raw()).expect("a space");
        let index = va.page_index();
        match call {
            Call::Mmap { place: Place::Fixed(at) | Place::Vacant(at), rights, shared, object, .. } => {
                let (source, most) = match object {
                    Object::Anon => (Source::Anon, Rights::all()),
                    Object::File { file, index: first, opened } => {
                        let most = if shared && !opened.contains(Rights::WRITE) { Rights::RX } else { Rights::all() };
                        (Source::File { file, index: first + index - at.page_index() }, most)
                    }
                };
                pages.insert(
                    index,
                    Page { map: Mapped { rights, most, shared, source, traits: Traits::default() }, own: None },
                );
            }
            Call::Munmap { .. } => {
                pages.remove(&index);
            }
            Call::Mprotect { rights, .. } => {
                if let Some(page) = pages.get_mut(&index) {
                    page.map.rights = rights;
                }
            }
            Call::DontNeed { .. } => {
                if let Some(page) = pages.get_mut(&index) {
                    page.own = None;
                }
            }
            Call::Mmap { .. } | Call::Fork | Call::Brk { .. } | Call::Exit | Call::Alone(_) => {
                panic!("not acted out here")
            }
        }
    }

    pub(crate) fn copy_page(&mut self, parent: SpaceId, child: SpaceId, index: u64) {
        if let Some(page) = self.spaces[&parent.raw()].get(&index).cloned() {
            self.spaces.entry(child.raw()).or_default().insert(index, page);
        }
    }

    /// What signal an access gets, if any.
    pub(crate) fn refuses(&self, space: SpaceId, va: VirtAddr, access: Access) -> Option<Signal> {
        let Some(page) = self.spaces[&space.raw()].get(&va.page_index()) else { return Some(Signal::NotMapped) };
        let rights = page.map.rights;
        let allowed = rights.allow(access) || access == Access::Read && !rights.is_empty();
        match page.map.source {
            _ if !allowed => Some(Signal::NotAllowed),
            Source::File { index, .. } if index >= self.file.len() as u64 => Some(Signal::PastEnd),
            Source::File { .. } | Source::Anon => None,
        }
    }

    pub(crate) fn load(&self, space: SpaceId, va: VirtAddr) -> u64 {
        let page = &self.spaces[&space.raw()][&va.page_index()];
        let cell = (va.page_offset() / 8) as usize;
        match (page.own, page.map.source) {
            (Some(own), _) => own[cell],
            (None, Source::Anon) => 0,
            (None, Source::File { index, .. }) => self.file[index as usize][cell],
        }
    }

    pub(crate) fn store(&mut self, space: SpaceId, va: VirtAddr, value: u64) {
        let cell = (va.page_offset() / 8) as usize;
        let page = self.spaces.get_mut(&space.raw()).and_then(|pages| pages.get_mut(&va.page_index())).expect("a page");
        match (page.map.source, page.map.shared) {
            (Source::File { index, .. }, true) => self.file[index as usize][cell] = value,
            (Source::File { index, .. }, false) => page.own.get_or_insert(self.file[index as usize])[cell] = value,
            (Source::Anon, _) => page.own.get_or_insert([0; CELLS])[cell] = value,
        }
    }

    pub(crate) fn truncate(&mut self, pages: u64) {
        self.file.resize(pages as usize, [0; CELLS]);
        for page in self.spaces.values_mut().flat_map(BTreeMap::values_mut) {
            if matches!(page.map.source, Source::File { index, .. } if index >= pages) {
                page.own = None;
            }
        }
    }
}
