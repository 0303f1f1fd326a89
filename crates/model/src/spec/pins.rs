//! Pages that somebody has taken hold of, and goes on reading and writing by their frames
//! (`pin_user_pages`).
//!
//! A pin is a second name of what the page shows then: the private copy, or the page of the file.
//! It keeps that when the mapping goes. So what is stored through the one is loaded through the
//! other, whatever else happens – fork, `mprotect`, `mremap`.
//!
//! Not guaranteed: anything about pages of which it is in doubt what they show. Who pins leaves
//! those alone ([`Spec::taking`]).

use super::data::{Base, Data};
use super::page::{Source, World};
use super::sheet::{Pinned, Sheet};
use super::{Answer, Got, Spec, Verdict};
use crate::violation::{Did, Misread};
use alloc::string::ToString;
use alloc::vec;
use pagewright_types::{Access, Errno, FileId, PAGE_SIZE, PageRange, Rights, SpaceId, VirtAddr};

/// How pages are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take {
    /// They will be written (`FOLL_WRITE`).
    pub writes: bool,
    /// For as long as somebody likes (`FOLL_LONGTERM`).
    pub long: bool,
    /// A walk of the tables is tried first.
    ///
    /// It knows only what an entry allows, and whatever can be written or executed can be read.
    pub fast: bool,
}

/// Names a page that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "that it is given back must be told"]
pub struct PinId(u64);

/// A page that was taken.
pub(super) struct Pin {
    space: SpaceId,
    va: VirtAddr,
    /// What it holds; nothing for the zero page.
    sheet: Option<Pinned>,
    /// The page of a file that it was then.
    of: Option<(FileId, u64)>,
}

impl Spec {
    /// What comes of taking the pages of a range: how many can be had, or why none.
    ///
    /// `None` where that is in doubt.
    ///
    /// # Panics
    /// When the process is unknown.
    pub fn taking(&self, space: SpaceId, range: PageRange, take: Take) -> Option<Result<u64, Errno>> {
        let process = self.processes.get(&space).expect("a process that was told of and has not ended");
        if !process.is_clear() {
            return None;
        }
        let mut had = 0;
        for va in range.iter() {
            match process.pages.get(&va.page_index()).map(|page| &page.worlds[..]) {
                Some([World { map: Some(map), .. }])
                    if take.fast && !take.writes && !map.rights.is_empty() && !map.rights.contains(Rights::READ) =>
                {
                    return None;
                }
                Some([only]) if self.can_take(only, take) => had += 1,
                Some([_]) | None => break,
                Some(_) => return None,
            }
        }
        Some(if had == 0 && !range.is_empty() { Err(Errno::EFAULT) } else { Ok(had) })
    }

    /// `check_vma_flags`, and whether an access would get a signal.
    pub(super) fn can_take(&self, world: &World, take: Take) -> bool {
        let Some(map) = world.map.filter(|map| !map.traits.guarded) else { return false };
        let file = match map.source {
            Source::Anon => None,
            Source::File { file, index } => self.files.0.get(&file).map(|file| (file, index)),
        };
        if file.is_some_and(|(file, index)| !file.has(index).0) {
            return false;
        }
        if !take.writes {
            return map.rights.contains(Rights::READ);
        }
        // Write-back would not know of a device's stores.
        let unnoticed = take.long && map.shared && file.is_some_and(|(file, _)| !file.shmem);
        map.rights.contains(Rights::WRITE) && !unnoticed
    }

    /// Pages were taken, so many, or none.
    ///
    /// # Errors
    /// A [`crate::Violation`] when it could not have come to that.
    ///
    /// # Panics
    /// When the process is unknown.
    pub fn taken(&mut self, did: Did, space: SpaceId, range: PageRange, take: Take, answer: Answer) -> Verdict {
        let lacks = self.memory_may_fail;
        let right = match (self.taking(space, range, take), answer) {
            (None, _) => return Ok(()),
            (Some(_), Answer::Failed(Errno::ENOMEM)) if lacks => return Ok(()),
            (Some(Ok(most)), Answer::Number(pages)) if lacks && pages <= most => return Ok(()),
            (Some(Ok(pages)), _) => Answer::Number(pages),
            (Some(Err(errno)), _) => Answer::Failed(errno),
        };
        if answer == right {
            return Ok(());
        }
        let call = "pin_user_pages";
        Err(Self::violation(did, Misread::Call { space, call, got: answer, expected: right.to_string() }))
    }

    /// The page of `va` was taken.
    ///
    /// `held` says whether it is pinned: the zero page never is.
    ///
    /// # Panics
    /// When nothing is mapped there, or it is in doubt what.
    pub fn take(&mut self, space: SpaceId, va: VirtAddr, take: Take, held: bool) -> PinId {
        let id = self.fresh_id();
        let Self { processes, files, .. } = self;
        let process = processes.get_mut(&space).expect("a process that was told of and has not ended");
        let page = process.pages.get_mut(&va.page_index()).expect("a page that can be taken");
        let world = &mut page.worlds[0];
        let map = world.map.expect("a page that can be taken");
        let copies = !map.shared && (take.writes || take.long);
        let (mut sheet, mut of) = (None, None);
        match map.source {
            Source::Anon if world.own.is_some() || copies || held => {
                sheet = Some(world.own_mut(World::zeroes).pin());
            }
            Source::Anon => {}
            Source::File { file, index } => {
                if let Some(known) = files.0.get_mut(&file) {
                    if world.own.is_none() && copies {
                        world.own = Some(Sheet::Lent(known.page(file, index)));
                    }
                    sheet = Some(match &mut world.own {
                        Some(own) => own.pin(),
                        None => {
                            of = Some((file, index));
                            known.page_mut(file, index).pin()
                        }
                    });
                }
            }
        }
        page.blur();
        self.pins.insert(id, Pin { space, va: va.align_down(PAGE_SIZE), sheet, of });
        self.revise_faults();
        PinId(id)
    }

    /// Whoever has the page has read a cell of it.
    ///
    /// # Errors
    /// A [`crate::Violation`] when it could not hold that.
    ///
    /// # Panics
    /// When the page was given back.
    pub fn device_loads(&mut self, did: Did, PinId(id): PinId, cell: u16, value: u64) -> Verdict {
        let pin = self.pins.get(&id).expect("a page that was not given back");
        let base = |base: Base| self.files.initial(base, cell);
        let fits = match &pin.sheet {
            Some(data) => data.borrow().can_hold(cell, value, &base),
            None => value == 0,
        };
        if fits {
            if let Some(data) = pin.sheet.as_ref().filter(|data| data.borrow().is_in_doubt(cell)) {
                data.borrow_mut().set(cell, value);
            }
            return Ok(());
        }
        let values = pin.sheet.as_ref().map_or_else(|| vec![0], |data| data.borrow().values(cell, &base));
        let misread = Misread::Access {
            space: pin.space,
            va: pin.va.add(u64::from(cell) * 8),
            access: Access::Read,
            got: Got::Value(value),
            expected: values.into_iter().map(Got::Value).collect(),
            stored: None,
            changed: Some((did, "pin_user_pages")),
        };
        Err(Self::violation(did, misread))
    }

    /// Whoever has the page has written a cell of it.
    ///
    /// # Panics
    /// When the page was given back, or is the zero page, which nobody may write.
    pub fn device_stores(&mut self, PinId(id): PinId, cell: u16, value: u64) {
        let pin = self.pins.get(&id).expect("a page that was not given back");
        let data: &Pinned = pin.sheet.as_ref().expect("no zero page");
        Data::set(&mut data.borrow_mut(), cell, value);
        self.revise_faults();
    }

    /// The page is given back.
    pub fn give_back(&mut self, PinId(id): PinId) {
        self.pins.remove(&id);
    }

    /// Whether somebody has a page that the file still has.
    pub(super) fn is_taken(&self, id: FileId) -> bool {
        let Some(file) = self.files.0.get(&id) else { return false };
        self.pins.values().any(|pin| {
            let Some((_, index)) = pin.of.filter(|(of, _)| *of == id) else { return false };
            let now = file.sheet(index);
            now.is_some_and(|now| pin.sheet.as_ref().is_some_and(|mine| now.is(&Sheet::Pinned(mine.clone()))))
        })
    }
}
