//! `mmap(2)`.

use crate::error::MmError;
use crate::file::FileObject;
use crate::mm::Mm;
use crate::settings::MmSetting;
use crate::space::Space;
use crate::space::call::MapFlags;
use crate::space::limits::Overcommit;
use crate::space::limits::Privileges;
use crate::space::vma::AddressMap;
use crate::space::vma::{VmFlags, Vma, VmaBacking};
use pagewright_arch::Isa;
use pagewright_sync::{Arc, Platform};
use pagewright_types::{PAGE_SIZE, PageRange, Rights, VirtAddr};

/// The file of a mapping.
pub struct FileMapping<'a, P: Platform> {
    /// The file.
    pub file: &'a Arc<FileObject<P>>,
    /// Byte offset of the mapping's first page; a multiple of the page size.
    pub offset: u64,
    /// What the file was opened for: a shared mapping can be written only through a file opened for
    /// writing.
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
    backing: VmaBacking<P>,
    /// First page of the file, if there is one.
    pgoff: u64,
    most: Rights,
}

impl<P: Platform> Mm<P> {
    /// Maps memory and returns where (`do_mmap`).
    ///
    /// A mapping at a fixed address replaces what was there.
    ///
    /// # Errors
    /// [`MmError`]; nothing has changed. Populating can't fail: what could not be faulted in will
    /// be when it is touched.
    pub fn mmap(&self, space: &Space<P>, request: &MapRequest<'_, P>) -> Result<VirtAddr, MmError> {
        let pages = pages_of(request)?;
        self.call(|| self.map_pages(space, request, pages))
    }

    fn map_pages(&self, space: &Space<P>, request: &MapRequest<'_, P>, pages: u64) -> Result<VirtAddr, MmError> {
        let mut map = space.map().write();
        if map.ended {
            return Err(MmError::SpaceEnded);
        }
        let limit = self.settings.get(MmSetting::MaxMapCount);
        // One more than the limit is possible here, as in Linux's do_mmap; splits are stricter.
        if map.len() as u64 > limit {
            return Err(MmError::TooManyMappings { limit });
        }
        let start = self.place(&map, request, pages)?;
        let range = PageRange::new(start, start.add(pages * PAGE_SIZE));
        let mut lock = map.new_flags;
        if request.flags.contains(MapFlags::LOCKED) {
            map.can_lock()?;
            lock |= VmFlags::LOCKED;
        }
        map.may_lock(lock, pages)?;
        // What is to be mapped is looked at after where, as in Linux.
        let plan = Self::plan(request, pages)?;
        let flags = self.flags_of(lock, request, &plan);
        let mapped = self.map_at(space, &mut map, request, &plan, (range, flags));
        self.settle_charge(&mut map);
        drop(map);
        mapped?;
        let populate = flags.contains(VmFlags::LOCKED)
            || request.flags.contains(MapFlags::POPULATE) && !request.flags.contains(MapFlags::NONBLOCK);
        if populate {
            self.populate_what_can_be(space, range, VmFlags::empty());
        }
        Ok(start)
    }

    /// What the mapping will be (`calc_vm_flag_bits`, `accountable_mapping`).
    fn flags_of(&self, lock: VmFlags, request: &MapRequest<'_, P>, plan: &Plan<P>) -> VmFlags {
        let mut flags = lock;
        flags.set(VmFlags::MAYSHARE, plan.shared);
        let for_writing = request.file.as_ref().is_none_or(|mapping| mapping.opened.contains(Rights::WRITE));
        flags.set(VmFlags::SHARED, plan.shared && for_writing);
        flags.set(VmFlags::GROWSDOWN, request.flags.contains(MapFlags::GROWSDOWN));
        flags.set(VmFlags::SYNC, request.flags.contains(MapFlags::SYNC));
        let unreserved = request.flags.contains(MapFlags::NORESERVE) && self.overcommit() != Overcommit::Never;
        flags.set(VmFlags::NORESERVE, unreserved);
        let charged = request.rights.contains(Rights::WRITE);
        flags.set(VmFlags::ACCOUNT, charged && !flags.intersects(VmFlags::MAYSHARE | VmFlags::NORESERVE));
        flags
    }

    /// Puts the mapping where it goes, in the place of what is there (`mmap_region`).
    fn map_at(
        &self,
        space: &Space<P>,
        map: &mut AddressMap<P>,
        request: &MapRequest<'_, P>,
        plan: &Plan<P>,
        (range, flags): (PageRange, VmFlags),
    ) -> Result<(), MmError> {
        let there = map.totals_in(range);
        self.reserve_unmap(map, range)?;
        map.may_grow(flags, request.rights, plan.pages, there.pages)?;
        if flags.contains(VmFlags::ACCOUNT) {
            self.charge(map, plan.pages - there.charged)?;
        }
        let (backing, pgoff) = self.back(space, map, plan, flags)?;
        // From here on nothing can fail.
        self.unmap_reserved(space, map, range);
        let (start, end) = (range.start().page_index(), range.end().page_index());
        let mut vma = Vma::new((start, end), pgoff, request.rights, plan.most, flags, backing);
        vma.set_guard(self.settings.get(MmSetting::StackGuardGap));
        map.insert(start, vma);
        map.merge_over(range);
        Ok(())
    }

    /// What a request maps, if it can be had (the second half of `do_mmap`).
    fn plan(request: &MapRequest<'_, P>, pages: u64) -> Result<Plan<P>, MmError> {
        if let Some(mapping) = &request.file
            && !AddressMap::<P>::can_name(mapping.offset / PAGE_SIZE, pages)
        {
            return Err(MmError::OffsetOverflow { offset: mapping.offset });
        }
        let bad_flags = MmError::BadFlags { flags: request.flags.bits() };
        let kind = request.flags.bits() & MapFlags::TYPE;
        let shared = match (kind, &request.file) {
            (MapFlags::SHARED_ONLY, _) => true,
            (MapFlags::SHARED_VALIDATE, Some(_)) if !MapFlags::valid::<P::Isa>().contains(request.flags) => {
                return Err(MmError::NotSupported { flags: request.flags.bits() });
            }
            (MapFlags::SHARED_VALIDATE, Some(_)) => true,
            (MapFlags::PRIVATE_ONLY, _) => false,
            _ => return Err(bad_flags),
        };
        let grows = request.flags.contains(MapFlags::GROWSDOWN);
        let Some(mapping) = &request.file else {
            if grows && shared {
                return Err(bad_flags);
            }
            return Ok(Plan { pages, shared, backing: VmaBacking::Anon, pgoff: 0, most: Rights::all() });
        };
        let most = match shared {
            true if mapping.opened.contains(Rights::WRITE) => Rights::all(),
            true => Rights::RX,
            false => Rights::all(),
        };
        if !mapping.opened.contains(Rights::READ) || !most.contains(request.rights) {
            return Err(MmError::Forbidden { rights: request.rights, most: most & mapping.opened });
        }
        if grows {
            return Err(bad_flags);
        }
        let most = if shared { mapping.file.sealed_rights(request.rights, most)? } else { most };
        let backing = VmaBacking::File(mapping.file.clone());
        Ok(Plan { pages, shared, backing, pgoff: mapping.offset / PAGE_SIZE, most })
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
            self.may_map_at(map, request.addr)?;
            let replaces = request.flags.contains(MapFlags::FIXED_NOREPLACE) && map.overlapping(range).next().is_some();
            return if replaces { Err(MmError::AlreadyMapped { range }) } else { Ok(request.addr) };
        }
        // A hint that is too low is moved up (`round_hint_to_min`).
        let hint = request.addr.align_down(PAGE_SIZE);
        let hint = if hint > VirtAddr::ZERO { hint.max(self.least_address()) } else { hint };
        self.place_near(map, hint, pages, request.flags)
    }

    /// The lowest address at which anything is placed.
    pub(in crate::space) fn least_address(&self) -> VirtAddr {
        let least = VirtAddr::new(self.settings.get(MmSetting::MmapMinAddr));
        least.align_up(PAGE_SIZE).unwrap_or(least)
    }

    /// Whether the program may map at `at` what it says itself (`security_mmap_addr`).
    pub(in crate::space) fn may_map_at(&self, map: &AddressMap<P>, at: VirtAddr) -> Result<(), MmError> {
        let least = VirtAddr::new(self.settings.get(MmSetting::MmapMinAddr));
        let may = at >= least || map.limits().privileges().contains(Privileges::SYS_RAWIO);
        if may { Ok(()) } else { Err(MmError::TooLow { at, least }) }
    }

    /// A hole at `hint` if there is one, else anywhere, as far as `flags` don't limit it.
    pub(in crate::space) fn place_near(
        &self,
        map: &AddressMap<P>,
        hint: VirtAddr,
        pages: u64,
        flags: MapFlags,
    ) -> Result<VirtAddr, MmError> {
        let low = P::Isa::LOW_MAPPINGS.filter(|_| flags.contains(MapFlags::LOW));
        let end = low.map_or(P::Isa::USER_END, |low| low.end());
        let hint = hint.align_down(PAGE_SIZE);
        if let Ok(range) = PageRange::from_len(hint, pages * PAGE_SIZE)
            && hint > VirtAddr::ZERO
            && range.end() <= end
            && map.is_clear(range, 0)
        {
            return Ok(hint);
        }
        let hole = match low {
            Some(low) => map.find_hole_in(low, pages),
            None if P::Isa::LOW_MAPPINGS.is_some() && flags.contains(MapFlags::ABOVE4G) => {
                map.find_hole(pages, VirtAddr::new(4 << 30))
            }
            None => map.find_hole(pages, self.least_address()),
        };
        hole.map(VirtAddr::from_page_index).ok_or(MmError::NoHole { pages })
    }

    /// Makes what is behind a mapping ready, counts it as one of its file's, and says with which
    /// page it begins.
    fn back(
        &self,
        space: &Space<P>,
        map: &AddressMap<P>,
        plan: &Plan<P>,
        flags: VmFlags,
    ) -> Result<(VmaBacking<P>, u64), MmError> {
        match &plan.backing {
            VmaBacking::Anon if plan.shared => {
                let charged = if flags.contains(VmFlags::NORESERVE) { 0 } else { plan.pages };
                self.promise(Some(map), charged)?;
                let file = self.add_shared_memory(plan.pages * PAGE_SIZE);
                let file = file.inspect_err(|_| self.take_back(charged))?;
                if charged > 0 {
                    file.charge_whole(charged);
                }
                if let Err(error) = file.join(self, space.id(), true) {
                    self.drop_file(&file);
                    return Err(error);
                }
                Ok((VmaBacking::File(file), 0))
            }
            VmaBacking::Anon => Ok((VmaBacking::Anon, 0)),
            VmaBacking::File(file) => {
                file.join(self, space.id(), plan.shared && plan.most.contains(Rights::WRITE))?;
                Ok((plan.backing.clone(), plan.pgoff))
            }
        }
    }
}

/// The length of a request in pages, and what else is checked before anything is looked up.
fn pages_of<P: Platform>(request: &MapRequest<'_, P>) -> Result<u64, MmError> {
    if let Some(mapping) = request.file.as_ref().filter(|mapping| mapping.offset % PAGE_SIZE != 0) {
        return Err(MmError::MisalignedOffset { offset: mapping.offset });
    }
    if request.flags.bits() & MapFlags::HUGETLB != 0 {
        return Err(MmError::BadFlags { flags: request.flags.bits() });
    }
    if request.len == 0 {
        return Err(MmError::EmptyRange { at: request.addr });
    }
    let len = VirtAddr::new(request.len).align_up(PAGE_SIZE).ok_or(MmError::TooLong { len: request.len })?;
    Ok(len.page_index())
}
