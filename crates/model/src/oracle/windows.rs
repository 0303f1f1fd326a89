//! The open windows of deferred rights, and how an event finds those that it concerns.
//!
//! A mechanism may have thousands of windows open, so no event looks at all of them:
//!
//! | event | finds windows by |
//! | --- | --- |
//! | a store, a write of the kernel, an allocation | the frames of the page, wherever it has been |
//! | a TLB hit, the return of a call | root and address |
//! | truncation, replacement | the logical page |
//! | a store to an entry | the tables that a walk of their addresses reads, and the entry in them |
//!
//! The frame to which a page moves is known when it was copied
//! ([`Fact::PageMoved`](pagewright_types::judge::Fact::PageMoved)), if not before.
//!
//! A page may move again while a TLB still has the translation of before. So windows of one logical
//! page that have a frame in common are linked: they share the set of frames that hold the page.
//! A frame that is allocated for something else leaves that set.

use crate::FxHashMap;
use crate::violation::CpuStep;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::hash::Hash;
use core::ops::Range;
use pagewright_types::judge::LogicalPage;
use pagewright_types::{CpuId, FrameRange, PAGE_SIZE, PageRange, Pfn, PhysAddr, Rights, VirtAddr};

/// A page that TLBs may still read at an address that it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) root: Pfn,
    pub(super) range: PageRange,
    /// What TLBs may hold.
    pub(super) frame: Pfn,
    /// To where the page moved; `None` once that frame is allocated again.
    pub(super) copy: Option<Pfn>,
    /// `None` for two entries of which one replaced the other (see [`super::replaced`]).
    ///
    /// Such a window forbids stores and excuses nothing.
    pub(super) page: Option<LogicalPage>,
    pub(super) by: CpuStep,
}

impl Window {
    /// The frame of `page` in the block that begins at `first`.
    pub(super) fn frame_of(&self, first: Pfn, page: VirtAddr) -> Pfn {
        first.add((page.since(self.range.start()) / PAGE_SIZE) as u32)
    }

    fn block(&self, first: Pfn) -> FrameRange {
        block(first, self.range.pages())
    }
}

fn block(first: Pfn, pages: u64) -> FrameRange {
    FrameRange::new(first, first.add(pages as u32))
}

fn each(frames: FrameRange) -> impl Iterator<Item = Pfn> {
    (frames.start().raw()..frames.end().raw()).map(Pfn::new)
}

/// The number of a window; one that was opened later has a higher one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct WindowId(u64);

impl WindowId {
    const ALL: (Self, Self) = (Self(0), Self(u64::MAX));
}

/// The number of a [`DeferredPage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct PageId(u64);

/// An open window, its page, and the entries that a walk of its addresses reads.
struct Open {
    window: Window,
    of: PageId,
    entries: Vec<PhysAddr>,
}

/// A page with open windows.
#[derive(Default)]
struct DeferredPage {
    label: Option<LogicalPage>,
    /// The number of base pages.
    pages: u64,
    /// The first frame of each block that holds it.
    firsts: BTreeSet<Pfn>,
    /// Whether there were two at once.
    moved: bool,
    windows: BTreeSet<WindowId>,
}

/// Numbers by a key.
struct Index<K, V>(FxHashMap<K, BTreeSet<V>>);

impl<K, V> Default for Index<K, V> {
    fn default() -> Self {
        Self(FxHashMap::default())
    }
}

impl<K: Copy + Eq + Hash, V: Copy + Ord> Index<K, V> {
    fn add(&mut self, key: K, value: V) {
        self.0.entry(key).or_default().insert(value);
    }

    fn remove(&mut self, key: K, value: V) {
        if let Some(values) = self.0.get_mut(&key) {
            values.remove(&value);
            if values.is_empty() {
                self.0.remove(&key);
            }
        }
    }

    fn of(&self, key: K) -> impl Iterator<Item = V> {
        self.0.get(&key).into_iter().flatten().copied()
    }
}

/// The windows that the allocation of frames concerns.
pub(super) struct Taken {
    /// Windows of which the frame was taken.
    pub(super) over: Vec<Window>,
    /// Open windows of which the copy was taken.
    pub(super) left: Vec<Window>,
}

/// The open windows.
#[derive(Default)]
pub(super) struct Windows {
    /// The number of the last window or page.
    last: u64,
    open: FxHashMap<WindowId, Open>,
    pages: FxHashMap<PageId, DeferredPage>,
    by_address: BTreeSet<(Pfn, VirtAddr, WindowId)>,
    by_frame: Index<Pfn, PageId>,
    by_label: Index<LogicalPage, PageId>,
    /// By the table that a walk reads, and the entry in it.
    by_table: Index<Pfn, (PhysAddr, WindowId)>,
}

impl Windows {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn get(&self, id: WindowId) -> Option<Window> {
        self.open.get(&id).map(|open| open.window)
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Opens a window, of which [`Self::set_entries`] sets the entries.
    ///
    /// It replaces one with the same page, frame and addresses.
    pub(super) fn open(&mut self, window: Window) -> WindowId {
        let is_same = |id: &WindowId| {
            let Window { root, range, frame, page, .. } = self.open[id].window;
            (root, range, frame, page) == (window.root, window.range, window.frame, window.page)
        };
        let replaced: Vec<WindowId> = self.at(window.root, window.range.start()).filter(is_same).collect();
        let of = self.page_of(&window);
        let id = WindowId(self.number());
        if let Some(page) = self.pages.get_mut(&of) {
            page.windows.insert(id);
        }
        window.range.iter().for_each(|page| _ = self.by_address.insert((window.root, page, id)));
        self.open.insert(id, Open { window, of, entries: Vec::new() });
        replaced.into_iter().for_each(|replaced| _ = self.close(replaced));
        id
    }

    /// Closes a window; with the last of a page, its frames are forgotten.
    pub(super) fn close(&mut self, id: WindowId) -> Option<Window> {
        self.set_entries(id, Vec::new());
        let Open { window, of, .. } = self.open.remove(&id)?;
        window.range.iter().for_each(|page| _ = self.by_address.remove(&(window.root, page, id)));
        let page = self.pages.get_mut(&of)?;
        page.windows.remove(&id);
        if page.windows.is_empty() {
            let firsts: Vec<Pfn> = page.firsts.iter().copied().collect();
            firsts.into_iter().for_each(|first| self.remove_frame(of, first));
            self.set_label(of, None);
            self.pages.remove(&of);
        }
        Some(window)
    }

    /// Sets the entries that a walk of the addresses of a window reads.
    ///
    /// Returns the tables that it read before and does not read any more.
    pub(super) fn set_entries(&mut self, id: WindowId, entries: Vec<PhysAddr>) -> BTreeSet<Pfn> {
        let Some(open) = self.open.get_mut(&id).filter(|open| open.entries != entries) else { return BTreeSet::new() };
        open.entries.iter().for_each(|at| self.by_table.remove(Pfn::containing(*at), (*at, id)));
        entries.iter().for_each(|at| self.by_table.add(Pfn::containing(*at), (*at, id)));
        let tables = |entries: &[PhysAddr]| entries.iter().map(|at| Pfn::containing(*at)).collect::<BTreeSet<Pfn>>();
        let lost = &tables(&open.entries) - &tables(&entries);
        open.entries = entries;
        lost
    }
}

/// What the windows share that are linked.
impl Windows {
    /// The page of a window that opens: that of the windows with which it is linked, or a new one.
    fn page_of(&mut self, window: &Window) -> PageId {
        let firsts = [Some(window.frame), window.copy].into_iter().flatten();
        let known: BTreeSet<PageId> = firsts.clone().flat_map(|first| self.by_frame.of(first)).collect();
        let (mut found, mut label) = (None, window.page);
        for id in known {
            let page = &self.pages[&id];
            let agrees = label.is_none() || page.label.is_none() || page.label == label;
            let shares = page.pages == window.range.pages() && firsts.clone().any(|first| page.firsts.contains(&first));
            if agrees && shares {
                label = label.or(page.label);
                match found {
                    None => found = Some(id),
                    Some(found) => self.merge(found, id),
                }
            }
        }
        let id = found.unwrap_or_else(|| {
            let id = PageId(self.number());
            self.pages.insert(id, DeferredPage { pages: window.range.pages(), ..DeferredPage::default() });
            id
        });
        self.set_label(id, label);
        firsts.for_each(|first| self.add_frame(id, first));
        id
    }

    /// The pages that the block from `frame` on holds are at `copy`, too.
    pub(super) fn moved(&mut self, frame: Pfn, copy: Pfn) {
        let holds = |id: &PageId| self.pages[id].firsts.contains(&frame);
        let pages: Vec<PageId> = self.by_frame.of(frame).filter(holds).collect();
        for id in pages {
            self.add_frame(id, copy);
            for window in self.pages[&id].windows.clone() {
                let Some(Open { window, .. }) = self.open.get_mut(&window) else { continue };
                if window.frame == frame && window.copy.is_none() {
                    window.copy = Some(copy);
                }
            }
        }
    }

    /// A logical page of one frame is at `frame`, too.
    pub(super) fn filled(&mut self, label: LogicalPage, frame: Pfn) {
        let pages: Vec<PageId> = self.by_label.of(label).filter(|id| self.pages[id].pages == 1).collect();
        pages.into_iter().for_each(|id| self.add_frame(id, frame));
    }

    /// Adds the windows and frames of `other` to `page`.
    fn merge(&mut self, page: PageId, other: PageId) {
        let firsts: Vec<Pfn> = self.pages[&other].firsts.iter().copied().collect();
        for first in firsts {
            self.remove_frame(other, first);
            self.add_frame(page, first);
        }
        self.set_label(other, None);
        let Some(other) = self.pages.remove(&other) else { return };
        self.pages.entry(page).and_modify(|page| page.moved |= other.moved);
        for id in &other.windows {
            self.open.entry(*id).and_modify(|open| open.of = page);
        }
        self.pages.entry(page).and_modify(|page| page.windows.extend(other.windows));
    }

    fn set_label(&mut self, id: PageId, label: Option<LogicalPage>) {
        let Some(page) = self.pages.get_mut(&id) else { return };
        let before = core::mem::replace(&mut page.label, label);
        before.into_iter().for_each(|label| self.by_label.remove(label, id));
        label.into_iter().for_each(|label| self.by_label.add(label, id));
    }

    fn add_frame(&mut self, id: PageId, first: Pfn) {
        if let Some(page) = self.pages.get_mut(&id)
            && page.firsts.insert(first)
        {
            page.moved |= page.firsts.len() > 1;
            each(block(first, page.pages)).for_each(|frame| self.by_frame.add(frame, id));
        }
    }

    fn remove_frame(&mut self, id: PageId, first: Pfn) {
        let Some(page) = self.pages.get_mut(&id) else { return };
        page.firsts.remove(&first);
        let others = |frame: &Pfn| page.firsts.iter().any(|first| block(*first, page.pages).contains(*frame));
        each(block(first, page.pages)).filter(|frame| !others(frame)).for_each(|frame| self.by_frame.remove(frame, id));
    }

    /// Frames are allocated: windows end whose frame is among them, and others lose their copy.
    pub(super) fn take(&mut self, frames: FrameRange) -> Taken {
        let (mut over, mut left) = (Vec::new(), Vec::new());
        for id in self.pages_with(frames) {
            let page = &self.pages[&id];
            let firsts = page.firsts.iter().copied().filter(|first| block(*first, page.pages).overlaps(frames));
            let (firsts, windows) = (firsts.collect::<Vec<Pfn>>(), page.windows.clone());
            firsts.into_iter().for_each(|first| self.remove_frame(id, first));
            for id in windows {
                let Some(Open { window, .. }) = self.open.get_mut(&id) else { continue };
                if window.block(window.frame).overlaps(frames) {
                    over.push(id);
                } else if window.copy.is_some_and(|copy| window.block(copy).overlaps(frames)) {
                    window.copy = None;
                    left.push(*window);
                }
            }
        }
        over.sort_unstable();
        Taken { over: over.into_iter().filter_map(|id| self.close(id)).collect(), left }
    }

    /// The pages that one of `frames` holds.
    fn pages_with(&self, frames: FrameRange) -> BTreeSet<PageId> {
        if u64::from(frames.frames()) <= self.by_frame.0.len() as u64 {
            return each(frames).flat_map(|frame| self.by_frame.of(frame)).collect();
        }
        let keys = self.by_frame.0.iter().filter(|(frame, _)| frames.contains(**frame));
        keys.flat_map(|(_, pages)| pages).copied().collect()
    }
}

/// What an event concerns.
impl Windows {
    /// Whether a window lets TLBs keep `rights` to `frame` at `page`.
    pub(super) fn excuse(&self, root: Pfn, page: VirtAddr, frame: Pfn, rights: Rights) -> bool {
        !rights.contains(Rights::WRITE) && self.excusing(root, page, frame).next().is_some()
    }

    /// Whether a page has moved whose translation to `frame` at `page` a window lets TLBs keep.
    pub(super) fn excuse_moved(&self, root: Pfn, page: VirtAddr, frame: Pfn) -> bool {
        self.excusing(root, page, frame).any(|window| window.copy.is_some())
    }

    /// Whether `frame` holds a page with open windows.
    pub(super) fn has_frame(&self, frame: Pfn) -> bool {
        self.by_frame.0.contains_key(&frame)
    }

    fn excusing(&self, root: Pfn, page: VirtAddr, frame: Pfn) -> impl Iterator<Item = &Window> {
        let at = self.at(root, page).map(|id| &self.open[&id].window);
        at.filter(move |window| window.page.is_some() && window.frame_of(window.frame, page) == frame)
    }

    fn at(&self, root: Pfn, page: VirtAddr) -> impl Iterator<Item = WindowId> {
        let (first, last) = WindowId::ALL;
        self.by_address.range((root, page, first)..=(root, page, last)).map(|(_, _, id)| *id)
    }

    /// The windows of `root` that have an address in `range`, in the order in which they opened.
    pub(super) fn in_range(&self, root: Pfn, range: PageRange) -> BTreeSet<WindowId> {
        let (first, _) = WindowId::ALL;
        let at = self.by_address.range((root, range.start(), first)..(root, range.end(), first));
        at.map(|(_, _, id)| *id).collect()
    }

    /// The windows whose translations show old contents after a store to one of `frames`.
    ///
    /// A page that has one frame shows what is stored there; two entries of which one replaced the
    /// other do not.
    pub(super) fn outdated_by(&self, frames: FrameRange) -> BTreeSet<WindowId> {
        let moved = |id: &PageId| self.pages[id].moved || self.pages[id].label.is_none();
        self.of_pages(self.pages_with(frames).into_iter().filter(moved))
    }

    /// The windows of some pages of a file.
    pub(super) fn of_pages_of_file(&self, file: u64, indices: Range<u64>) -> BTreeSet<WindowId> {
        let is_one = |label: &LogicalPage| match label {
            LogicalPage::File { file: of, index } => *of == file && indices.contains(index),
            LogicalPage::Anon { .. } => false,
        };
        let pages = self.by_label.0.iter().filter(|(label, _)| is_one(label)).flat_map(|(_, pages)| pages);
        self.of_pages(pages.copied())
    }

    /// The windows of a logical page; those of replaced entries that are linked with them are not.
    pub(super) fn of_label(&self, label: LogicalPage) -> BTreeSet<WindowId> {
        let mut windows = self.of_pages(self.by_label.of(label));
        windows.retain(|id| self.open[id].window.page.is_some());
        windows
    }

    fn of_pages(&self, pages: impl IntoIterator<Item = PageId>) -> BTreeSet<WindowId> {
        pages.into_iter().flat_map(|page| &self.pages[&page].windows).copied().collect()
    }

    /// The windows of which a walk reads the entry at `at`.
    pub(super) fn served_by(&self, at: PhysAddr) -> Vec<WindowId> {
        let (first, last) = WindowId::ALL;
        let table = self.by_table.0.get(&Pfn::containing(at));
        table.into_iter().flat_map(|table| table.range((at, first)..=(at, last))).map(|(_, id)| *id).collect()
    }

    /// The windows of which a walk reads a table in one of `frames`.
    pub(super) fn below(&self, frames: FrameRange) -> BTreeSet<WindowId> {
        if u64::from(frames.frames()) <= self.by_table.0.len() as u64 {
            return each(frames).flat_map(|table| self.by_table.of(table)).map(|(_, id)| id).collect();
        }
        let tables = self.by_table.0.iter().filter(|(table, _)| frames.contains(**table));
        tables.flat_map(|(_, entries)| entries).map(|(_, id)| *id).collect()
    }

    /// Whether `frame` holds the page of a window at the address `page`.
    pub(super) fn holds(&self, id: WindowId, page: VirtAddr, frame: Pfn) -> bool {
        self.open.get(&id).is_some_and(|Open { window, of, .. }| {
            self.pages[of].firsts.iter().any(|first| window.frame_of(*first, page) == frame)
        })
    }

    /// Whether `cpu` has opened this window since `step`, or a linked one at the same addresses.
    pub(super) fn opened_since(&self, id: WindowId, cpu: CpuId, step: u64) -> bool {
        let Some(Open { window, of, .. }) = self.open.get(&id) else { return false };
        self.at(window.root, window.range.start()).any(|other| {
            let other = &self.open[&other];
            let Window { range, page, by, .. } = other.window;
            other.of == *of && range == window.range && page.is_some() && by.cpu == cpu && by.step >= step
        })
    }
}
