//! Pinned pages, which a device reads and writes by their frames (`pin_user_pages`).
//!
//! A pin and the mapping share the contents of the page: the private copy or the page of the file.
//! A store through one is visible through the other, across fork, `mprotect` and `mremap`. The pin
//! keeps the contents when the mapping loses the page.
//!
//! Not guaranteed: anything about pages whose state is uncertain. The caller must not pin those
//! ([`Spec::pinnable`]).

use super::cells::{Base, Cells};
use super::contents::{PageContents, PinnedCells};
use super::page::{PageBacking, PossibleState};
use super::{AccessResult, CallResult, Spec, SpecVerdict};
use crate::violation::{CpuStep, SpecMismatch};
use alloc::string::ToString;
use alloc::vec;
use pagewright_types::{Access, Errno, FileId, PAGE_SIZE, PageRange, Rights, SpaceId, VirtAddr};

/// How pages are pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinMode {
    /// The device will write the pages (`FOLL_WRITE`).
    pub write: bool,
    /// The pages stay pinned indefinitely (`FOLL_LONGTERM`).
    pub longterm: bool,
    /// A lockless walk of the page tables is tried first (`pin_user_pages_fast`).
    ///
    /// The walk sees only the entry, where a writable or executable page is readable.
    pub fast: bool,
}

/// Identifies a pinned page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the unpinning must be reported"]
pub struct PinId(u64);

/// A pinned page.
pub(super) struct Pin {
    space: SpaceId,
    va: VirtAddr,
    /// The contents; `None` for the zero page.
    contents: Option<PinnedCells>,
    /// The page of a file that was pinned.
    of: Option<(FileId, u64)>,
}

impl Spec {
    /// The number of pages of a range that can be pinned, or the error.
    ///
    /// Returns `None` if that is uncertain.
    ///
    /// # Panics
    /// If the process is unknown.
    pub fn pinnable(&self, space: SpaceId, range: PageRange, mode: PinMode) -> Option<Result<u64, Errno>> {
        let process = self.processes.get(&space).expect("a process that was added and has not exited");
        if !process.is_certain() {
            return None;
        }
        let mut had = 0;
        for va in range.iter() {
            match process.pages.get(&va.page_index()).map(|page| &page.states[..]) {
                Some([PossibleState { map: Some(map), .. }])
                    if mode.fast && !mode.write && !map.rights.is_empty() && !map.rights.contains(Rights::READ) =>
                {
                    return None;
                }
                Some([only]) if self.can_pin(only, mode) => had += 1,
                Some([_]) | None => break,
                Some(_) => return None,
            }
        }
        Some(if had == 0 && !range.is_empty() { Err(Errno::EFAULT) } else { Ok(had) })
    }

    /// Whether a page can be pinned (`check_vma_flags`) without a signal.
    pub(super) fn can_pin(&self, state: &PossibleState, mode: PinMode) -> bool {
        let Some(map) = state.map.filter(|map| !map.flags.guarded) else { return false };
        let file = match map.backing {
            PageBacking::Anon => None,
            PageBacking::File { file, index } => self.files.0.get(&file).map(|file| (file, index)),
        };
        if file.is_some_and(|(file, index)| !file.has(index).0) {
            return false;
        }
        if !mode.write {
            return map.rights.contains(Rights::READ);
        }
        // Writeback would not notice the stores of a device.
        let unnoticed = mode.longterm && map.shared && file.is_some_and(|(file, _)| !file.shmem);
        map.rights.contains(Rights::WRITE) && !unnoticed
    }

    /// Reports the result of `pin_user_pages` on a range.
    ///
    /// # Errors
    /// A [`crate::Violation`] if the result is impossible.
    ///
    /// # Panics
    /// If the process is unknown.
    pub fn pin_returned(
        &mut self,
        by: CpuStep,
        space: SpaceId,
        range: PageRange,
        mode: PinMode,
        result: CallResult,
    ) -> SpecVerdict {
        let lacks = self.memory_may_fail;
        let right = match (self.pinnable(space, range, mode), result) {
            (None, _) => return Ok(()),
            (Some(_), CallResult::Failed(Errno::ENOMEM)) if lacks => return Ok(()),
            (Some(Ok(most)), CallResult::Number(pages)) if lacks && pages <= most => return Ok(()),
            (Some(Ok(pages)), _) => CallResult::Number(pages),
            (Some(Err(errno)), _) => CallResult::Failed(errno),
        };
        if result == right {
            return Ok(());
        }
        let call = "pin_user_pages";
        Err(Self::violation(by, SpecMismatch::Call { space, call, got: result, expected: right.to_string() }))
    }

    /// Reports that the page of `va` was pinned.
    ///
    /// `held` says whether the page holds a pin; the zero page never does.
    ///
    /// # Panics
    /// If nothing is mapped at `va`.
    pub fn pin_page(&mut self, space: SpaceId, va: VirtAddr, mode: PinMode, held: bool) -> PinId {
        let id = self.fresh_id();
        let Self { processes, files, .. } = self;
        let process = processes.get_mut(&space).expect("a process that was added and has not exited");
        let page = process.pages.get_mut(&va.page_index()).expect("a page that can be pinned");
        let state = &mut page.states[0];
        let map = state.map.expect("a page that can be pinned");
        let copies = !map.shared && (mode.write || mode.longterm);
        let (mut contents, mut of) = (None, None);
        match map.backing {
            PageBacking::Anon if state.own.is_some() || copies || held => {
                contents = Some(state.own_mut(PossibleState::zeroes).pin());
            }
            PageBacking::Anon => {}
            PageBacking::File { file, index } => {
                if let Some(known) = files.0.get_mut(&file) {
                    if state.own.is_none() && copies {
                        state.own = Some(PageContents::Cow(known.page(file, index)));
                    }
                    contents = Some(match &mut state.own {
                        Some(own) => own.pin(),
                        None => {
                            of = Some((file, index));
                            known.page_mut(file, index).pin()
                        }
                    });
                }
            }
        }
        page.forget_soft_dirty();
        self.pins.insert(id, Pin { space, va: va.align_down(PAGE_SIZE), contents, of });
        self.revise_faults();
        PinId(id)
    }

    /// Reports that the device has read a cell of a pinned page.
    ///
    /// # Errors
    /// A [`crate::Violation`] if the cell cannot hold `value`.
    ///
    /// # Panics
    /// If the page was unpinned.
    pub fn device_loads(&mut self, by: CpuStep, PinId(id): PinId, cell: u16, value: u64) -> SpecVerdict {
        let pin = self.pins.get(&id).expect("a page that is pinned");
        let base = |base: Base| self.files.initial(base, cell);
        let fits = match &pin.contents {
            Some(data) => data.borrow().can_hold(cell, value, &base),
            None => value == 0,
        };
        if fits {
            if let Some(data) = pin.contents.as_ref().filter(|data| data.borrow().is_uncertain(cell)) {
                data.borrow_mut().set(cell, value);
            }
            return Ok(());
        }
        let values = pin.contents.as_ref().map_or_else(|| vec![0], |data| data.borrow().values(cell, &base));
        let misread = SpecMismatch::Access {
            space: pin.space,
            va: pin.va.add(u64::from(cell) * 8),
            access: Access::Read,
            got: AccessResult::Value(value),
            expected: values.into_iter().map(AccessResult::Value).collect(),
            stored: None,
            changed: Some((by, "pin_user_pages")),
        };
        Err(Self::violation(by, misread))
    }

    /// Reports that the device has written a cell of a pinned page.
    ///
    /// # Panics
    /// If the page was unpinned, or is the zero page.
    pub fn device_stores(&mut self, PinId(id): PinId, cell: u16, value: u64) {
        let pin = self.pins.get(&id).expect("a page that is pinned");
        let data: &PinnedCells = pin.contents.as_ref().expect("not the zero page");
        Cells::set(&mut data.borrow_mut(), cell, value);
        self.revise_faults();
    }

    /// Reports that a page was unpinned.
    pub fn unpin_page(&mut self, PinId(id): PinId) {
        self.pins.remove(&id);
    }

    /// Whether a page that still belongs to the file is pinned.
    pub(super) fn is_file_pinned(&self, id: FileId) -> bool {
        let Some(file) = self.files.0.get(&id) else { return false };
        self.pins.values().any(|pin| {
            let Some((_, index)) = pin.of.filter(|(of, _)| *of == id) else { return false };
            let now = file.contents(index);
            now.is_some_and(|now| pin.contents.as_ref().is_some_and(|mine| now.is(&PageContents::Pinned(mine.clone()))))
        })
    }
}
