//! `mmap(2)`: creates mappings.

use crate::error::MmError;
use crate::file::FileObject;
use crate::mm::Mm;
use crate::settings::MmSetting;
use crate::space::HeldMap;
use crate::space::Space;
use crate::space::call::MapFlags;
use crate::space::limits::Overcommit;
use crate::space::limits::Privileges;
use crate::space::vma::AddressMap;
use crate::space::vma::{VmFlags, Vma};
use pagewright_arch::Isa;
use pagewright_sync::{Arc, Platform};
use pagewright_types::{Level, Order, PAGE_SIZE, PageRange, Rights, VirtAddr};

/// The file of a mapping.
pub struct FileMapping<'a, P: Platform> {
    /// The file.
    pub file: &'a Arc<FileObject<P>>,
    /// Offset in bytes of the mapping's first page in the file; a multiple of the page size.
    pub offset: u64,
    /// The rights with which the file was opened.
    ///
    /// A shared mapping can be writable only if the file was opened for writing.
    pub opened: Rights,
}

/// The arguments of `mmap`.
pub struct MapRequest<'a, P: Platform> {
    /// The address, a hint, or 0 for any address.
    pub addr: VirtAddr,
    /// Length in bytes, rounded up to pages.
    pub len: u64,
    /// The rights of the mapping.
    pub rights: Rights,
    /// The flags of the call.
    pub flags: MapFlags,
    /// The file; `None` maps anonymous memory.
    pub file: Option<FileMapping<'a, P>>,
}

impl<P: Platform> MapRequest<'_, P> {
    /// Asks for private anonymous memory at any address, which may be read and written.
    pub const fn anonymous(len: u64) -> Self {
        let flags = MapFlags::PRIVATE.union(MapFlags::ANONYMOUS);
        Self { addr: VirtAddr::ZERO, len, rights: Rights::RW, flags, file: None }
    }
}

/// The mapping that a valid request asks for.
struct Plan<P: Platform> {
    pages: u64,
    shared: bool,
    file: Option<Arc<FileObject<P>>>,
    /// First page in the file, if any.
    pgoff: u64,
    max_rights: Rights,
}

/// The file of a mapping, unless it is anonymous, and the first page of it.
type FileStart<P> = (Option<Arc<FileObject<P>>>, u64);

impl<P: Platform> Mm<P> {
    /// Creates a mapping and returns its address (`do_mmap`).
    ///
    /// With [`MapFlags::FIXED`], it replaces existing mappings. If the mapping is locked or to be
    /// populated, pages that cannot be faulted in are no error.
    ///
    /// # Errors
    /// [`MmError`]; nothing has changed.
    pub fn mmap(&self, space: &Space<P>, request: &MapRequest<'_, P>) -> Result<VirtAddr, MmError> {
        let pages = checked_pages(request)?;
        self.declare_return_of(|| self.map_pages(space, request, pages))
    }

    fn map_pages(&self, space: &Space<P>, request: &MapRequest<'_, P>, pages: u64) -> Result<VirtAddr, MmError> {
        let mut map = space.map().write();
        if map.ended {
            return Err(MmError::SpaceEnded);
        }
        let limit = self.settings.get(MmSetting::MaxMapCount);
        // As in Linux's do_mmap, the limit can be passed by one here; splits check it exactly.
        if map.len() as u64 > limit {
            return Err(MmError::TooManyMappings { limit });
        }
        let start = self.choose_address(&map, request, pages)?;
        let range = PageRange::new(start, start.add(pages * PAGE_SIZE));
        let mut lock = map.new_flags;
        if request.flags.contains(MapFlags::LOCKED) {
            map.can_lock()?;
            lock |= VmFlags::LOCKED;
        }
        map.may_lock(lock, pages)?;
        // As in Linux, the address is checked before the file.
        let plan = Self::plan(request, pages)?;
        if request.flags.is_huge() {
            return Err(MmError::NoHugePages { pages });
        }
        let flags = self.flags_of(lock, request, &plan);
        let mapped = self.map_at(space, &mut map, request, &plan, (range, flags));
        self.settle_charge(&mut map);
        drop(map);
        mapped?;
        let populate = flags.contains(VmFlags::LOCKED)
            || request.flags.contains(MapFlags::POPULATE) && !request.flags.contains(MapFlags::NONBLOCK);
        if populate {
            self.populate_range(space, range, VmFlags::empty());
        }
        Ok(start)
    }

    /// Returns the flags of the new mapping (`calc_vm_flag_bits`, `accountable_mapping`).
    fn flags_of(&self, lock: VmFlags, request: &MapRequest<'_, P>, plan: &Plan<P>) -> VmFlags {
        let mut flags = lock;
        flags.set(VmFlags::MAYSHARE, plan.shared);
        let for_writing = request.file.as_ref().is_none_or(|mapping| mapping.opened.contains(Rights::WRITE));
        flags.set(VmFlags::SHARED, plan.shared && for_writing);
        flags.set(VmFlags::GROWSDOWN, request.flags.contains(MapFlags::GROWSDOWN));
        flags.set(VmFlags::SYNC, request.flags.contains(MapFlags::SYNC));
        flags.set(VmFlags::NOHUGEPAGE, request.flags.contains(MapFlags::STACK));
        let unreserved = request.flags.contains(MapFlags::NORESERVE) && self.overcommit() != Overcommit::Never;
        flags.set(VmFlags::NORESERVE, unreserved);
        let charged = request.rights.contains(Rights::WRITE);
        flags.set(VmFlags::ACCOUNT, charged && !flags.intersects(VmFlags::MAYSHARE | VmFlags::NORESERVE));
        flags
    }

    /// Creates the mapping at `range`, and removes existing mappings there (`mmap_region`).
    fn map_at(
        &self,
        space: &Space<P>,
        map: &mut HeldMap<'_, P>,
        request: &MapRequest<'_, P>,
        plan: &Plan<P>,
        (range, flags): (PageRange, VmFlags),
    ) -> Result<(), MmError> {
        let replaced = map.totals_in(range);
        self.reserve_unmap(map, range)?;
        map.may_grow(flags, request.rights, plan.pages, replaced.pages)?;
        if flags.contains(VmFlags::ACCOUNT) {
            self.charge(map, plan.pages - replaced.accountable)?;
        }
        let (file, pgoff) = self.prepare_file(space, map, plan, flags)?;
        // Nothing below can fail.
        self.unmap_reserved(space, map, range);
        let (start, end) = (range.start().page_index(), range.end().page_index());
        let mut vma = Vma::new((start, end), pgoff, request.rights, plan.max_rights, flags, file);
        vma.set_guard(self.settings.get(MmSetting::StackGuardGap));
        map.insert(start, vma);
        map.merge_over(range);
        Ok(())
    }

    /// Checks the type and the file of a request (the second half of `do_mmap`).
    fn plan(request: &MapRequest<'_, P>, pages: u64) -> Result<Plan<P>, MmError> {
        if let Some(mapping) = &request.file
            && !AddressMap::<P>::can_map_file_pages(mapping.offset / PAGE_SIZE, pages)
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
            return Ok(Plan { pages, shared, file: None, pgoff: 0, max_rights: Rights::all() });
        };
        let max_rights = match shared {
            true if mapping.opened.contains(Rights::WRITE) => Rights::all(),
            true => Rights::RX,
            false => Rights::all(),
        };
        if !mapping.opened.contains(Rights::READ) || !max_rights.contains(request.rights) {
            return Err(MmError::Forbidden { rights: request.rights, max: max_rights & mapping.opened });
        }
        let max_rights = mapping.file.executable_rights(request.rights, max_rights)?;
        if grows {
            return Err(bad_flags);
        }
        let max_rights = if shared { mapping.file.sealed_rights(request.rights, max_rights)? } else { max_rights };
        Ok(Plan { pages, shared, file: Some(mapping.file.clone()), pgoff: mapping.offset / PAGE_SIZE, max_rights })
    }

    /// Chooses the address of a mapping (`get_unmapped_area`).
    fn choose_address(
        &self,
        map: &AddressMap<P>,
        request: &MapRequest<'_, P>,
        pages: u64,
    ) -> Result<VirtAddr, MmError> {
        let len = pages * PAGE_SIZE;
        if len > P::Isa::USER_END.raw() {
            return Err(MmError::TooLong { len });
        }
        if request.flags.intersects(MapFlags::FIXED | MapFlags::FIXED_NOREPLACE) {
            let range = PageRange::from_len(request.addr, len)?;
            if range.end() > P::Isa::USER_END {
                return Err(MmError::BeyondUser { range });
            }
            self.check_may_map_at(map, request.addr)?;
            let replaces = request.flags.contains(MapFlags::FIXED_NOREPLACE) && map.overlapping(range).next().is_some();
            return if replaces { Err(MmError::AlreadyMapped { range }) } else { Ok(request.addr) };
        }
        // A hint below the minimum is raised to it (`round_hint_to_min`).
        let hint = request.addr.align_down(PAGE_SIZE);
        let hint = if hint > VirtAddr::ZERO { hint.max(self.min_address()) } else { hint };
        let is_private_memory = request.file.is_none() && !request.flags.contains(MapFlags::SHARED);
        self.choose_near_or_aligned(map, hint, pages, request.flags, is_private_memory)
    }

    /// Returns the lowest address at which a mapping is placed (`vm.mmap_min_addr`).
    pub(in crate::space) fn min_address(&self) -> VirtAddr {
        let min = VirtAddr::new(self.settings.get(MmSetting::MmapMinAddr));
        min.align_up(PAGE_SIZE).unwrap_or(min)
    }

    /// Checks that the program may map at `at`, a fixed address (`security_mmap_addr`).
    pub(in crate::space) fn check_may_map_at(&self, map: &AddressMap<P>, at: VirtAddr) -> Result<(), MmError> {
        let min = VirtAddr::new(self.settings.get(MmSetting::MmapMinAddr));
        let may = at >= min || map.limits().privileges().contains(Privileges::SYS_RAWIO);
        if may { Ok(()) } else { Err(MmError::TooLow { at, min }) }
    }

    /// As [`choose_near`](Self::choose_near), but private memory of whole huge pages begins at one.
    ///
    /// Not with a hint, nor if no gap has room for one huge page more. Linux:
    /// `thp_get_unmapped_area_vmflags`.
    pub(in crate::space) fn choose_near_or_aligned(
        &self,
        map: &AddressMap<P>,
        hint: VirtAddr,
        pages: u64,
        flags: MapFlags,
        is_private_memory: bool,
    ) -> Result<VirtAddr, MmError> {
        let huge = u64::from(Order::PMD.frames());
        if is_private_memory
            && hint == VirtAddr::ZERO
            && pages.is_multiple_of(huge)
            && let Ok(gap) = self.choose_near(map, hint, pages + huge, flags)
        {
            return Ok(gap.align_down(Level::PMD.span()).add(Level::PMD.span()));
        }
        self.choose_near(map, hint, pages, flags)
    }

    /// Returns `hint` if its pages are free, or else the address of a gap that `flags` allow.
    pub(in crate::space) fn choose_near(
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
            && map.is_free(range, 0)
        {
            return Ok(hint);
        }
        let gap = match low {
            Some(low) => map.find_gap_in(low, pages),
            None if P::Isa::LOW_MAPPINGS.is_some() && flags.contains(MapFlags::ABOVE4G) => {
                map.find_gap(pages, VirtAddr::new(4 << 30))
            }
            None => map.find_gap(pages, self.min_address()),
        };
        gap.map(VirtAddr::from_page_index).ok_or(MmError::NoUnmappedArea { pages })
    }

    /// Prepares the file of a mapping, if it has one, and returns it with the first page in it.
    ///
    /// Registers the mapping with its file. For a shared anonymous mapping it creates shared
    /// memory.
    fn prepare_file(
        &self,
        space: &Space<P>,
        map: &AddressMap<P>,
        plan: &Plan<P>,
        flags: VmFlags,
    ) -> Result<FileStart<P>, MmError> {
        match &plan.file {
            None if plan.shared => {
                let charged = if flags.contains(VmFlags::NORESERVE) { 0 } else { plan.pages };
                self.account_pages(Some(map), charged)?;
                let file = self.add_shared_memory(plan.pages * PAGE_SIZE);
                let file = file.inspect_err(|_| self.unaccount_pages(charged))?;
                if charged > 0 {
                    file.charge_whole(charged);
                }
                if let Err(error) = file.join(self, space.id(), true) {
                    self.drop_file(&file);
                    return Err(error);
                }
                Ok((Some(file), 0))
            }
            None => Ok((None, 0)),
            Some(file) => {
                file.join(self, space.id(), plan.shared && plan.max_rights.contains(Rights::WRITE))?;
                Ok((plan.file.clone(), plan.pgoff))
            }
        }
    }
}

/// Returns the length of a request in pages, after the checks that need no lock.
fn checked_pages<P: Platform>(request: &MapRequest<'_, P>) -> Result<u64, MmError> {
    if let Some(mapping) = request.file.as_ref().filter(|mapping| mapping.offset % PAGE_SIZE != 0) {
        return Err(MmError::MisalignedOffset { offset: mapping.offset });
    }
    if request.flags.is_huge() {
        let size = request.flags.huge_page_size::<P::Isa>().filter(|_| request.file.is_none());
        let fixed = request.flags.intersects(MapFlags::FIXED | MapFlags::FIXED_NOREPLACE);
        if size.is_none_or(|size| fixed && !request.addr.is_aligned(size)) {
            return Err(MmError::BadFlags { flags: request.flags.bits() });
        }
    }
    if request.len == 0 {
        return Err(MmError::EmptyRange { at: request.addr });
    }
    let len = VirtAddr::new(request.len).align_up(PAGE_SIZE).ok_or(MmError::TooLong { len: request.len })?;
    Ok(len.page_index())
}
