//! `mmap(2)`.

use super::Space;
use super::flags::MapFlags;
use super::vma::{Backing, VmFlags, Vma};
use super::vmas::AddressMap;
use crate::error::MmError;
use crate::file::{FileObject, Kind};
use crate::knobs::Knob;
use crate::mm::Mm;
use pagewright_arch::Isa;
use pagewright_sync::{Arc, Platform};
use pagewright_types::{Access, PAGE_SIZE, PageRange, Rights, VirtAddr};

/// The file of a mapping.
pub struct FileMapping<'a, P: Platform> {
    /// The file.
    pub file: &'a Arc<FileObject<P>>,
    /// Byte offset of the mapping's first page; a multiple of the page size.
    pub offset: u64,
    /// What the file was opened for: a shared mapping can be written only through a file opened for writing.
    pub opened: Rights,
}

/// What `mmap` is asked for.
pub struct MapRequest<'a, P: Platform> {
    /// The address, or a hint, or 0.
    pub addr: VirtAddr,
    /// Bytes; rounded up to pages.
    pub len: u64,
    /// Rights.
    pub rights: Rights,
    /// Flags.
    pub flags: MapFlags,
    /// The file, unless `ANONYMOUS`.
    pub file: Option<FileMapping<'a, P>>,
}

/// A request that was found sound, before anything was looked up.
struct Plan<P: Platform> {
    pages: u64,
    shared: bool,
    backing: Backing<P>,
    /// First page of the file, if there is one.
    pgoff: u64,
    most: Rights,
}

impl<P: Platform> Mm<P> {
    /// Maps memory and returns where (`do_mmap`). A mapping at a fixed address replaces what was there.
    ///
    /// # Errors
    /// [`MmError`]; nothing has changed. Populating can't fail: what could not be faulted in will be when it is touched.
    pub fn mmap(&self, space: &Space<P>, request: &MapRequest<'_, P>) -> Result<VirtAddr, MmError> {
        let plan = self.plan(request)?;
        self.call(|| self.map_planned(space, request, &plan))
    }

    fn map_planned(&self, space: &Space<P>, request: &MapRequest<'_, P>, plan: &Plan<P>) -> Result<VirtAddr, MmError> {
        let populate = request.flags.contains(MapFlags::LOCKED)
            || request.flags.contains(MapFlags::POPULATE) && !request.flags.contains(MapFlags::NONBLOCK);
        let mut map = space.map().write();
        if map.ended {
            return Err(MmError::SpaceEnded);
        }
        let start = self.place(&map, request, plan.pages)?;
        let range = PageRange::new(start, start.add(plan.pages * PAGE_SIZE));
        let limit = self.knobs.get(Knob::MaxMapCount);
        // One more than the limit is possible here, as in Linux's do_mmap; splits are stricter.
        if map.len() as u64 > limit {
            return Err(MmError::TooManyMappings { limit });
        }
        self.reserve_unmap(&mut map, range)?;
        let (backing, pgoff) = self.back(space, plan, start)?;
        // From here on nothing can fail.
        self.unmap_reserved(space, &mut map, range);
        let mut flags = VmFlags::empty();
        flags.set(VmFlags::SHARED, plan.shared);
        flags.set(VmFlags::GROWSDOWN, request.flags.contains(MapFlags::GROWSDOWN));
        flags.set(VmFlags::NORESERVE, request.flags.contains(MapFlags::NORESERVE));
        let charged = request.rights.contains(Rights::WRITE);
        flags.set(VmFlags::ACCOUNT, charged && !flags.intersects(VmFlags::SHARED | VmFlags::NORESERVE));
        let vma = Vma::new(range.end().page_index(), pgoff, request.rights, plan.most, flags, backing);
        map.insert(start.page_index(), vma);
        map.merge_over(range);
        drop(map);
        if populate {
            self.populate(space, range);
        }
        Ok(start)
    }

    /// Checks a request on its own (`EINVAL`, `EACCES`, `EOVERFLOW` and length errors).
    fn plan(&self, request: &MapRequest<'_, P>) -> Result<Plan<P>, MmError> {
        if request.len == 0 {
            return Err(MmError::EmptyRange { at: request.addr });
        }
        let Some(len) = VirtAddr::new(request.len).align_up(PAGE_SIZE) else {
            return Err(MmError::TooLong { len: request.len });
        };
        let bad_flags = MmError::BadFlags { flags: request.flags.bits() };
        let kind = request.flags & (MapFlags::SHARED | MapFlags::PRIVATE);
        // Both bits are MAP_SHARED_VALIDATE, which is MAP_SHARED with a check that every flag is known.
        let shared = match (kind.contains(MapFlags::SHARED), kind.contains(MapFlags::PRIVATE)) {
            (true, false) => true,
            (true, true) if !request.flags.contains(MapFlags::ANONYMOUS) => true,
            (false, true) => false,
            (true, true) | (false, false) => return Err(bad_flags),
        };
        if request.flags.contains(MapFlags::GROWSDOWN) && (shared || request.file.is_some()) {
            return Err(bad_flags);
        }
        let pages = len.page_index();
        let Some(mapping) = &request.file else {
            return Ok(Plan { pages, shared, backing: Backing::Anon, pgoff: 0, most: Rights::all() });
        };
        if mapping.offset % PAGE_SIZE != 0 {
            return Err(MmError::MisalignedOffset { offset: mapping.offset });
        }
        let pgoff = mapping.offset / PAGE_SIZE;
        if !AddressMap::<P>::can_name(pgoff, pages) {
            return Err(MmError::OffsetOverflow { offset: mapping.offset });
        }
        let most = match shared {
            true if mapping.opened.contains(Rights::WRITE) => Rights::all(),
            true => Rights::RX,
            false => Rights::all(),
        };
        if !mapping.opened.contains(Rights::READ) || !most.contains(request.rights) {
            return Err(MmError::Forbidden { rights: request.rights, most: most & mapping.opened });
        }
        let backing = Backing::File(mapping.file.clone());
        Ok(Plan { pages, shared, backing, pgoff, most })
    }

    /// Chooses where a mapping goes (`get_unmapped_area`).
    fn place(&self, map: &AddressMap<P>, request: &MapRequest<'_, P>, pages: u64) -> Result<VirtAddr, MmError> {
        let len = pages * PAGE_SIZE;
        if len > P::Isa::USER_END.raw() {
            return Err(MmError::TooLong { len });
        }
        if request.flags.intersects(MapFlags::FIXED | MapFlags::FIXED_NOREPLACE) {
            let range = PageRange::from_len(request.addr, len)?;
            if range.end() > P::Isa::USER_END {
                return Err(MmError::BeyondUser { range });
            }
            let replaces = request.flags.contains(MapFlags::FIXED_NOREPLACE) && map.overlapping(range).next().is_some();
            return if replaces { Err(MmError::Exists { range }) } else { Ok(request.addr) };
        }
        let hint = request.addr.align_down(PAGE_SIZE);
        if let Ok(range) = PageRange::from_len(hint, len)
            && hint > VirtAddr::ZERO
            && range.end() <= P::Isa::USER_END
            && map.is_clear(range, 0)
        {
            return Ok(hint);
        }
        map.find_hole(pages).map(VirtAddr::from_page_index).ok_or(MmError::NoHole { pages })
    }

    /// Makes what is behind a mapping at `start` ready, counts it as one of its file's, and says with which page it begins.
    fn back(&self, space: &Space<P>, plan: &Plan<P>, start: VirtAddr) -> Result<(Backing<P>, u64), MmError> {
        match &plan.backing {
            Backing::Anon if plan.shared => {
                let file = self.add_file("/dev/zero (deleted)", Kind::Shmem, plan.pages * PAGE_SIZE)?;
                if let Err(error) = file.join(self, space.id()) {
                    self.drop_file(&file);
                    return Err(error);
                }
                Ok((Backing::File(file), 0))
            }
            Backing::Anon => Ok((Backing::Anon, start.page_index())),
            Backing::File(file) => {
                file.join(self, space.id())?;
                Ok((plan.backing.clone(), plan.pgoff))
            }
        }
    }

    /// Faults in what can be (`mm_populate`): for writing where the mapping is private and writable.
    fn populate(&self, space: &Space<P>, range: PageRange) {
        for va in range.iter() {
            let access = {
                let map = space.map().read();
                match map.find(va) {
                    Some((_, vma)) if vma.rights().contains(Rights::WRITE) && !vma.is_shared() => Access::Write,
                    Some((_, vma)) if vma.rights().contains(Rights::READ) => Access::Read,
                    Some(_) | None => return,
                }
            };
            if self.fault_in(space, va, access).is_err() {
                return;
            }
        }
    }
}
