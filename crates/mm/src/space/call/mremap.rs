//! `mremap(2)`: resizes and moves mappings, with their pages.
//!
//! | request | effect |
//! | --- | --- |
//! | a smaller size | the rest is unmapped |
//! | a larger size, with free pages after the mapping | the mapping grows in place |
//! | a larger size with `MAYMOVE` | the mapping moves to a gap |
//! | `FIXED` | the mapping moves to the given address and replaces mappings there |
//! | `DONTUNMAP` | the pages move, and the old mapping stays, empty |
//! | an old size of 0 | a shared mapping is mapped a second time |
//!
//! A move that keeps the size may comprise several mappings, and keeps the gaps between them (Linux
//! 6.17).
//!
//! Neighbours: `entries/move_tables.rs` moves the entries; `munmap` unmaps the destination before
//! the move and the source after it.
//!
//! Protocol: everything that can fail comes first: limits, the charge, reservations in the tree,
//! tables for the destination.
//!
//! **INV-REMAP-WHOLE** A move of one mapping succeeds, or has changed nothing.
//!
//! In some of these cases Linux has unmapped the destination by then; here it is still mapped.
//!
//! Not guaranteed: an order of the flushes of a move. All are complete when the call returns.

use crate::error::{MmError, bounded};
use crate::mm::Mm;
use crate::settings::MmSetting;
use crate::space::entries::EntryMove;
use crate::space::vma::AddressMap;
use crate::space::{HeldMap, MapFlags, RemapFlags, Space, VmFlags, Vma};
use pagewright_arch::Isa;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::TableReserve;
use pagewright_tlb::Gather;
use pagewright_types::{PAGE_SIZE, PageRange, VirtAddr};

/// The arguments of `mremap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemapRequest {
    /// The start of the mapping, or of a part of it.
    pub addr: VirtAddr,
    /// The old length in bytes, rounded up to pages; 0 to map a shared mapping a second time.
    pub old_len: u64,
    /// The new length in bytes, rounded up to pages.
    pub new_len: u64,
    /// The flags of the call.
    pub flags: RemapFlags,
    /// The new address with `FIXED`; a hint with `DONTUNMAP` alone.
    pub new_addr: VirtAddr,
}

/// A request with its lengths rounded up to pages.
#[derive(Clone, Copy)]
struct Resize {
    addr: VirtAddr,
    old: u64,
    new: u64,
    flags: RemapFlags,
    to: VirtAddr,
}

/// A move that has passed its checks.
struct Move {
    /// The range to unmap after the move, unless it stays mapped; may be empty.
    source: PageRange,
    /// The part of the source whose pages move.
    moved: PageRange,
    to: PageRange,
    /// Whether the source stays mapped.
    stays: bool,
}

impl Resize {
    /// Returns whether the request has a new address (`vrm_implies_new_addr`).
    fn has_new_addr(&self) -> bool {
        self.flags.intersects(RemapFlags::FIXED | RemapFlags::DONTUNMAP)
    }

    fn grows_by(&self) -> u64 {
        self.new.saturating_sub(self.old)
    }
}

impl<P: Platform> Mm<P> {
    /// Resizes or moves a mapping, and returns its new address.
    ///
    /// # Errors
    /// [`MmError`]; nothing has changed, except in a move of several mappings: those before the one
    /// that failed have moved.
    pub fn mremap(&self, space: &Space<P>, request: &RemapRequest) -> Result<VirtAddr, MmError> {
        let resize = Self::checked(request)?;
        self.declare_return_of(|| {
            let mut map = space.map().write();
            if map.ended {
                return Err(MmError::SpaceEnded);
            }
            let mut gather = Gather::new(&self.tlb, space.table().context());
            let result = self.remap(space, &mut map, &resize, &mut gather);
            self.settle_charge(&mut map);
            let locked =
                result.is_ok_and(|at| map.find(at).is_some_and(|(_, vma)| vma.flags().contains(VmFlags::LOCKED)));
            // The move of each table has settled its debts; only a planted bug leaves any here.
            drop(map);
            gather.settle();
            let at = result?;
            if locked && resize.grows_by() > 0 {
                let new = PageRange::new(at.add(resize.old), at.add(resize.new));
                self.populate_range(space, new, VmFlags::LOCKED);
            }
            Ok(at)
        })
    }

    /// Checks the arguments, without the mappings (`check_mremap_params`).
    fn checked(request: &RemapRequest) -> Result<Resize, MmError> {
        let RemapRequest { addr, flags, new_addr, .. } = *request;
        let bad_flags = MmError::BadFlags { flags: flags.bits() };
        if !RemapFlags::all().contains(flags) {
            return Err(bad_flags);
        }
        bounded(addr, 0)?;
        let pages = |len: u64| VirtAddr::new(len).align_up(PAGE_SIZE).map_or(0, VirtAddr::raw);
        let resize = Resize { addr, old: pages(request.old_len), new: pages(request.new_len), flags, to: new_addr };
        if resize.new == 0 {
            return Err(MmError::EmptyRange { at: addr });
        }
        let out = MmError::OutOfBounds { addr: new_addr, len: resize.new };
        if resize.new > P::Isa::USER_END.raw() {
            return Err(out);
        }
        if !resize.has_new_addr() {
            return Ok(resize);
        }
        let to = bounded(new_addr, resize.new)?;
        if to.end() > P::Isa::USER_END {
            return Err(out);
        }
        if !flags.contains(RemapFlags::MAYMOVE) || flags.contains(RemapFlags::DONTUNMAP) && resize.old != resize.new {
            return Err(bad_flags);
        }
        // As in Linux, the end of the source may wrap, and the wrapped value is compared.
        if addr.raw().wrapping_add(resize.old) > to.start().raw() && to.end() > addr {
            let from = PageRange::from_len(addr, resize.old);
            return Err(
                from.map_or(MmError::OutOfBounds { addr, len: resize.old }, |from| MmError::Overlaps { from, to })
            );
        }
        Ok(resize)
    }

    fn remap(
        &self,
        space: &Space<P>,
        map: &mut HeldMap<'_, P>,
        resize: &Resize,
        gather: &mut Gather<'_, P>,
    ) -> Result<VirtAddr, MmError> {
        let limit = self.settings.get(MmSetting::MaxMapCount);
        if resize.has_new_addr() && map.len() as u64 + 5 >= limit {
            return Err(MmError::TooManyMappings { limit });
        }
        if resize.flags.contains(RemapFlags::FIXED) && resize.old == resize.new {
            return self.move_several(space, map, resize, gather);
        }
        let (start, vma) = map.find(resize.addr).ok_or(MmError::SourceNotMapped { at: resize.addr })?;
        if vma.flags().contains(VmFlags::SEALED) {
            return Err(MmError::Sealed { at: VirtAddr::from_page_index(start) });
        }
        if resize.has_new_addr() {
            return self.move_one(space, map, resize, gather);
        }
        if resize.old == resize.new {
            return Ok(resize.addr);
        }
        if resize.old > resize.new {
            self.shrink(space, map, resize)?;
            return Ok(resize.addr);
        }
        may_resize(map, resize)?;
        if self.grow_in_place(map, resize)? {
            return Ok(resize.addr);
        }
        if !resize.flags.contains(RemapFlags::MAYMOVE) {
            return Err(MmError::NoUnmappedArea { pages: resize.new / PAGE_SIZE });
        }
        self.move_one(space, map, resize, gather)
    }

    /// Moves every mapping of a range by the same distance (`remap_move`).
    fn move_several(
        &self,
        space: &Space<P>,
        map: &mut HeldMap<'_, P>,
        resize: &Resize,
        gather: &mut Gather<'_, P>,
    ) -> Result<VirtAddr, MmError> {
        let from =
            PageRange::from_len(resize.addr, resize.old).map_err(|_| MmError::SourceNotMapped { at: resize.addr })?;
        if map.find(from.start()).is_none() {
            return Err(MmError::SourceNotMapped { at: from.start() });
        }
        let mut at = from.start();
        // With `DONTUNMAP`, the source of a move may have been merged with the next mapping. It
        // must not move again.
        while at < from.end()
            && let Some((start, vma)) = map.find_or_after(at)
            && let Some(part) = vma.range(start).intersect(PageRange::new(at, from.end()))
        {
            at = part.end();
            let to = resize.to.add(part.start().since(from.start()));
            let step = Resize { addr: part.start(), old: part.len(), new: part.len(), to, ..*resize };
            if vma.flags().contains(VmFlags::SEALED) {
                return Err(MmError::Sealed { at: part.start() });
            }
            self.move_one(space, map, &step, gather)?;
        }
        Ok(resize.to)
    }

    /// Unmaps the end of a range (`shrink_vma`).
    fn shrink(&self, space: &Space<P>, map: &mut HeldMap<'_, P>, resize: &Resize) -> Result<(), MmError> {
        let all = bounded(resize.addr, resize.old)?;
        if all.end() > P::Isa::USER_END {
            return Err(MmError::OutOfBounds { addr: resize.addr, len: resize.old });
        }
        let range = PageRange::new(resize.addr.add(resize.new), all.end());
        self.reserve_unmap(map, range)?;
        self.unmap_reserved(space, map, range);
        Ok(())
    }

    /// Grows a mapping in place if it ends with the range and the next pages are free.
    ///
    /// Returns whether it did. Linux: `vma_expandable`.
    fn grow_in_place(&self, map: &mut HeldMap<'_, P>, resize: &Resize) -> Result<bool, MmError> {
        let Some((start, vma)) = map.find(resize.addr) else { return Ok(false) };
        let end = vma.range(start).end();
        let Ok(more) = PageRange::from_len(end, resize.grows_by()) else { return Ok(false) };
        let room = more.end() <= P::Isa::USER_END && map.overlapping(more).next().is_none();
        if resize.addr.add(resize.old) != end || !room {
            return Ok(false);
        }
        let accounted = vma.flags().contains(VmFlags::ACCOUNT);
        plant!(GrownOverShared; (), self.own_tables(map.tables(&self.tlb), more).map(drop)?);
        if accounted {
            self.charge(map, more.pages())?;
        }
        map.set_end(start, more.end().page_index());
        map.merge_over(PageRange::new(resize.addr, more.end()));
        Ok(true)
    }

    /// Moves one mapping, or a part of it (`mremap_to`, `move_vma`).
    fn move_one(
        &self,
        space: &Space<P>,
        map: &mut HeldMap<'_, P>,
        resize: &Resize,
        gather: &mut Gather<'_, P>,
    ) -> Result<VirtAddr, MmError> {
        may_resize(map, resize)?;
        let plan = self.plan_move(map, resize)?;
        for range in [plan.source, plan.to] {
            self.own_tables(map.tables(&self.tlb), range)?;
        }
        self.split_huge_ends(map, map.tables(&self.tlb), plan.source);
        let Some((_, vma)) = map.find(resize.addr) else { return Err(MmError::SourceNotMapped { at: resize.addr }) };
        let entries = EntryMove::new(vma, plan.moved, plan.to.start());
        let mut reserve = TableReserve::new(&self.tlb);
        self.fill(&mut reserve, self.tables_to_move(map.tables(&self.tlb), entries))?;
        // Nothing below can fail.
        if resize.flags.contains(RemapFlags::FIXED) {
            self.unmap_for_replacement(space, map, plan.to);
        }
        let Some((start, vma)) = map.find(resize.addr) else {
            unreachable!("INV-MM-VMAS: the source was unmapped with the destination")
        };
        if let Some(file) = vma.file() {
            file.join_again(space.id(), vma.may_store_to_file());
        }
        let (from, to) = (resize.addr.page_index(), plan.to.start().page_index());
        let (whole, copy) = (vma.range(start), vma.moved(start, from, to, plan.to.pages()));
        let peak = map.peak;
        map.insert(to, copy);
        let own = map.tables(&self.tlb).owned(plan.moved);
        self.move_entries(space, (map, own), entries, &mut reserve, gather);
        if plan.stays {
            self.relock_pages(map, whole, VmFlags::empty());
            map.change(start, |vma| leave_behind(vma, start, plan.source));
            map.merge_over(plan.source);
        } else if !plan.source.is_empty() {
            self.unmap_reserved(space, map, plan.source);
        }
        // The peak does not count the mapping twice, although both copies existed for a moment.
        map.peak = peak.max(map.totals().pages);
        map.merge_over(plan.to);
        Ok(plan.to.start())
    }

    /// Chooses the destination, checks the move, and reserves everything for it except tables.
    fn plan_move(&self, map: &mut HeldMap<'_, P>, resize: &Resize) -> Result<Move, MmError> {
        let limit = self.settings.get(MmSetting::MaxMapCount);
        if map.len() as u64 + 3 >= limit {
            return Err(MmError::TooManyMappings { limit });
        }
        let (pages, fixed) = (resize.new / PAGE_SIZE, resize.flags.contains(RemapFlags::FIXED));
        let stays = resize.flags.contains(RemapFlags::DONTUNMAP);
        let hint = if stays { resize.to } else { VirtAddr::ZERO };
        let is_private_memory = map.find(resize.addr).is_some_and(|(_, vma)| vma.file().is_none());
        let start = match fixed {
            true => resize.to,
            false => self.choose_near_or_aligned(map, hint, pages, MapFlags::empty(), is_private_memory)?,
        };
        let to = PageRange::new(start, start.add(resize.new));
        // Linux has unmapped the destination by now. That includes the source if the old size is 0,
        // or wraps, and the source is in the destination.
        map.check_none_sealed(to)?;
        if to.contains(resize.addr) {
            return Err(MmError::SourceNotMapped { at: resize.addr });
        }
        let source = bounded(resize.addr, resize.old)?;
        if source.end() > P::Isa::USER_END {
            return Err(MmError::OutOfBounds { addr: resize.addr, len: resize.old });
        }
        map.check_none_sealed(source)?;
        let moved = PageRange::new(source.start(), source.start().add(resize.old.min(resize.new)));
        let Some((_, vma)) = map.find(resize.addr) else { return Err(MmError::SourceNotMapped { at: resize.addr }) };
        let (flags, rights) = (vma.flags(), vma.rights());
        let replaced = map.totals_in(to);
        if stays {
            map.may_grow(flags, rights, pages, replaced.pages)?;
        }
        self.check_may_map_at(map, to.start())?;
        self.reserve_unmap(map, to)?;
        // A split at each end of the source and of the destination, and the new mapping.
        map.reserve_for(self, 5, true)?;
        if flags.contains(VmFlags::ACCOUNT) {
            let more = if stays { pages } else { resize.grows_by() / PAGE_SIZE };
            self.charge(map, more.saturating_sub(replaced.accountable))?;
        }
        Ok(Move { source, moved, to, stays })
    }
}

/// Checks that the mapping at the request's address may have the new size (`check_prep_vma`).
fn may_resize<P: Platform>(map: &AddressMap<P>, resize: &Resize) -> Result<(), MmError> {
    let (start, vma) = map.find(resize.addr).ok_or(MmError::SourceNotMapped { at: resize.addr })?;
    if resize.old == 0 && !vma.is_shared() {
        return Err(MmError::PrivateNotDuplicable { at: resize.addr });
    }
    // A smaller size unmaps the rest first, which need not be in the mapping.
    let range = PageRange::from_len(resize.addr, resize.old.min(resize.new))?;
    if range.end() > vma.range(start).end() {
        return Err(MmError::SpansMappings { range });
    }
    let skipped = resize.addr.page_index() - start;
    if vma.file().is_some() && !AddressMap::<P>::can_map_file_pages(vma.pgoff() + skipped, resize.new / PAGE_SIZE) {
        return Err(MmError::OffsetOverflow { offset: (vma.pgoff() + skipped) * PAGE_SIZE });
    }
    let more = resize.grows_by() / PAGE_SIZE;
    if more > 0 {
        map.may_lock(vma.flags(), more)?;
        map.may_grow(vma.flags(), vma.rights(), more, 0)?;
    }
    Ok(())
}

/// Updates a mapping that stays after its pages in `moved` have moved (`dontunmap_complete`).
///
/// It is no longer locked. If all of it has moved, it has no anonymous pages.
fn leave_behind<P: Platform>(vma: &mut Vma<P>, start: u64, moved: PageRange) {
    vma.set_flags(vma.flags() - VmFlags::LOCK_MASK);
    if vma.range(start) == moved {
        vma.forget_anon();
    }
}
