//! `mremap(2)`: a mapping of another size, or in another place, with its pages.
//!
//! | what is asked | what happens |
//! | --- | --- |
//! | a smaller size | the rest is unmapped |
//! | a larger size, and there is room behind | the mapping grows where it is |
//! | a larger size with `MAYMOVE` | it moves to a hole |
//! | `FIXED` | it moves there, in the place of what is there |
//! | `DONTUNMAP` | its pages move, and it stays, empty |
//! | an old size of 0 | a shared mapping is there a second time |
//!
//! A move that changes no size may be of several mappings; what lies between them stays between
//! them (Linux 6.17).
//!
//! Neighbours: `relocate` moves the entries; `unmap` clears the destination before and the source
//! after.
//!
//! Protocol: whatever can fail comes first – limits, promises, room in the tree, tables for the
//! destination. INV-REMAP-WHOLE: a move of one mapping succeeds or has changed nothing; where Linux
//! has by then unmapped the destination, here it is still mapped.
//!
//! Not guaranteed: that tables move with their entries. Linux moves whole tables where both places
//! are aligned.

use crate::error::{MmError, bounded};
use crate::mm::Mm;
use crate::settings::MmSetting;
use crate::space::vma::AddressMap;
use crate::space::{MapFlags, RemapFlags, Space, VmFlags, Vma};
use pagewright_arch::Isa;
use pagewright_sync::Platform;
use pagewright_table::TableReserve;
use pagewright_tlb::Gather;
use pagewright_types::{PAGE_SIZE, PageRange, VirtAddr};

/// What `mremap` is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemapRequest {
    /// Where the mapping is, or the part of it that is meant.
    pub addr: VirtAddr,
    /// Its bytes, rounded up to pages; 0 to have a shared mapping twice.
    pub old_len: u64,
    /// The bytes wanted, rounded up to pages.
    pub new_len: u64,
    /// Flags.
    pub flags: RemapFlags,
    /// The place wanted, with `FIXED`; a hint with `DONTUNMAP` alone.
    pub new_addr: VirtAddr,
}

/// A request whose sizes are whole pages.
#[derive(Clone, Copy)]
struct Resize {
    addr: VirtAddr,
    old: u64,
    new: u64,
    flags: RemapFlags,
    to: VirtAddr,
}

/// A move that was found possible.
struct Move {
    /// What is unmapped at the end, unless it stays; may be empty.
    source: PageRange,
    /// The part of it whose pages move.
    moved: PageRange,
    to: PageRange,
    stays: bool,
}

impl Resize {
    /// Whether a place is asked for (`vrm_implies_new_addr`).
    fn names_place(&self) -> bool {
        self.flags.intersects(RemapFlags::FIXED | RemapFlags::DONTUNMAP)
    }

    fn grows_by(&self) -> u64 {
        self.new.saturating_sub(self.old)
    }
}

impl<P: Platform> Mm<P> {
    /// Changes the size or the place of a mapping, and returns where it is then.
    ///
    /// # Errors
    /// [`MmError`]; nothing has changed. Of a move of several mappings, those before the one that
    /// could not be moved have been.
    pub fn mremap(&self, space: &Space<P>, request: &RemapRequest) -> Result<VirtAddr, MmError> {
        let resize = Self::checked(request)?;
        self.call(|| {
            let mut map = space.map().write();
            if map.ended {
                return Err(MmError::SpaceEnded);
            }
            let mut gather = Gather::new(&self.tlb, space.table().context());
            let outcome = self.remap(space, &mut map, &resize, &mut gather);
            self.settle_charge(&mut map);
            let locked =
                outcome.is_ok_and(|at| map.find(at).is_some_and(|(_, vma)| vma.flags().contains(VmFlags::LOCKED)));
            // Every table's move has been paid for already; only a planted mistake leaves
            // something.
            drop(map);
            gather.settle();
            let at = outcome?;
            if locked && resize.grows_by() > 0 {
                let new = PageRange::new(at.add(resize.old), at.add(resize.new));
                self.populate_what_can_be(space, new, VmFlags::LOCKED);
            }
            Ok(at)
        })
    }

    /// Checks a request on its own (`check_mremap_params`).
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
        if !resize.names_place() {
            return Ok(resize);
        }
        let to = bounded(new_addr, resize.new)?;
        if to.end() > P::Isa::USER_END {
            return Err(out);
        }
        if !flags.contains(RemapFlags::MAYMOVE) || flags.contains(RemapFlags::DONTUNMAP) && resize.old != resize.new {
            return Err(bad_flags);
        }
        // The source's end may wrap, and is compared as it is then.
        if addr.raw().wrapping_add(resize.old) > to.start().raw() && to.end() > addr {
            let from = PageRange::from_len(addr, resize.old);
            return Err(
                from.map_or(MmError::OutOfBounds { addr, len: resize.old }, |from| MmError::Overlaps { from, to })
            );
        }
        Ok(resize)
    }

    fn remap<'a>(
        &'a self,
        space: &'a Space<P>,
        map: &mut AddressMap<P>,
        resize: &Resize,
        gather: &mut Gather<'a, P>,
    ) -> Result<VirtAddr, MmError> {
        let limit = self.settings.get(MmSetting::MaxMapCount);
        if resize.names_place() && map.len() as u64 + 5 >= limit {
            return Err(MmError::TooManyMappings { limit });
        }
        if resize.flags.contains(RemapFlags::FIXED) && resize.old == resize.new {
            return self.move_several(space, map, resize, gather);
        }
        let (start, vma) = map.find(resize.addr).ok_or(MmError::SourceNotMapped { at: resize.addr })?;
        if vma.flags().contains(VmFlags::SEALED) {
            return Err(MmError::Sealed { at: VirtAddr::from_page_index(start) });
        }
        if resize.names_place() {
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
        if self.grows_in_place(map, resize)? {
            return Ok(resize.addr);
        }
        if !resize.flags.contains(RemapFlags::MAYMOVE) {
            return Err(MmError::NoHole { pages: resize.new / PAGE_SIZE });
        }
        self.move_one(space, map, resize, gather)
    }

    /// Moves every mapping of a range, each as far as the first (`remap_move`).
    fn move_several<'a>(
        &'a self,
        space: &'a Space<P>,
        map: &mut AddressMap<P>,
        resize: &Resize,
        gather: &mut Gather<'a, P>,
    ) -> Result<VirtAddr, MmError> {
        let from =
            PageRange::from_len(resize.addr, resize.old).map_err(|_| MmError::SourceNotMapped { at: resize.addr })?;
        if map.find(from.start()).is_none() {
            return Err(MmError::SourceNotMapped { at: from.start() });
        }
        let mut at = from.start();
        // What was moved with `DONTUNMAP` may since be one with what comes next, and is not to be
        // moved again.
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
    fn shrink(&self, space: &Space<P>, map: &mut AddressMap<P>, resize: &Resize) -> Result<(), MmError> {
        let all = bounded(resize.addr, resize.old)?;
        if all.end() > P::Isa::USER_END {
            return Err(MmError::OutOfBounds { addr: resize.addr, len: resize.old });
        }
        let range = PageRange::new(resize.addr.add(resize.new), all.end());
        self.reserve_unmap(map, range)?;
        self.unmap_reserved(space, map, range);
        Ok(())
    }

    /// Lets a mapping grow where it is, if it ends with the range and nothing is behind it
    /// (`vma_expandable`).
    fn grows_in_place(&self, map: &mut AddressMap<P>, resize: &Resize) -> Result<bool, MmError> {
        let Some((start, vma)) = map.find(resize.addr) else { return Ok(false) };
        let end = vma.range(start).end();
        let Ok(more) = PageRange::from_len(end, resize.grows_by()) else { return Ok(false) };
        let room = more.end() <= P::Isa::USER_END && map.overlapping(more).next().is_none();
        if resize.addr.add(resize.old) != end || !room {
            return Ok(false);
        }
        if vma.flags().contains(VmFlags::ACCOUNT) {
            self.charge(map, more.pages())?;
        }
        map.set_end(start, more.end().page_index());
        map.merge_over(PageRange::new(resize.addr, more.end()));
        Ok(true)
    }

    /// Moves one mapping, or a part of it (`mremap_to`, `move_vma`).
    fn move_one<'a>(
        &'a self,
        space: &'a Space<P>,
        map: &mut AddressMap<P>,
        resize: &Resize,
        gather: &mut Gather<'a, P>,
    ) -> Result<VirtAddr, MmError> {
        may_resize(map, resize)?;
        let plan = self.plan_move(map, resize)?;
        let mut reserve = TableReserve::new(&self.tlb);
        self.fill(&mut reserve, self.tables_to_move(space, plan.moved, plan.to.start()))?;
        // From here on nothing can fail.
        if resize.flags.contains(RemapFlags::FIXED) {
            self.unmap_for_another(space, map, plan.to);
        }
        let Some((start, vma)) = map.find(resize.addr) else {
            unreachable!("INV-MM-VMAS: the source is not in the destination")
        };
        if let Some(file) = vma.file() {
            file.join_again(space.id(), vma.may_store_to_file());
        }
        let (from, to) = (resize.addr.page_index(), plan.to.start().page_index());
        let (whole, copy) = (vma.range(start), vma.moved(start, from, to, plan.to.pages()));
        let peak = map.peak;
        map.insert(to, copy);
        self.move_entries(space, plan.moved, plan.to.start(), &mut reserve, gather);
        if plan.stays {
            self.relock_pages(space, map, whole, VmFlags::empty());
            map.change(start, |vma| leave_behind(vma, start, plan.source));
            map.merge_over(plan.source);
        } else if !plan.source.is_empty() {
            self.unmap_reserved(space, map, plan.source);
        }
        // That it was in both places for a moment does not count.
        map.peak = peak.max(map.totals().pages);
        map.merge_over(plan.to);
        Ok(plan.to.start())
    }

    /// Finds a place, and has everything but tables ready for a move there.
    fn plan_move(&self, map: &mut AddressMap<P>, resize: &Resize) -> Result<Move, MmError> {
        let limit = self.settings.get(MmSetting::MaxMapCount);
        if map.len() as u64 + 3 >= limit {
            return Err(MmError::TooManyMappings { limit });
        }
        let (pages, fixed) = (resize.new / PAGE_SIZE, resize.flags.contains(RemapFlags::FIXED));
        let stays = resize.flags.contains(RemapFlags::DONTUNMAP);
        let hint = if stays { resize.to } else { VirtAddr::ZERO };
        let start = if fixed { resize.to } else { self.place_near(map, hint, pages, MapFlags::empty())? };
        let to = PageRange::new(start, start.add(resize.new));
        // Linux has unmapped the destination by now, with the source if that is in it: of an old
        // size of 0, or one that wraps.
        map.none_sealed(to)?;
        if to.contains(resize.addr) {
            return Err(MmError::SourceNotMapped { at: resize.addr });
        }
        let source = bounded(resize.addr, resize.old)?;
        if source.end() > P::Isa::USER_END {
            return Err(MmError::OutOfBounds { addr: resize.addr, len: resize.old });
        }
        map.none_sealed(source)?;
        let moved = PageRange::new(source.start(), source.start().add(resize.old.min(resize.new)));
        let Some((_, vma)) = map.find(resize.addr) else { return Err(MmError::SourceNotMapped { at: resize.addr }) };
        let (flags, rights) = (vma.flags(), vma.rights());
        let there = map.totals_in(to);
        if stays {
            map.may_grow(flags, rights, pages, there.pages)?;
        }
        self.may_map_at(map, to.start())?;
        self.reserve_unmap(map, to)?;
        // A split at each end of either place, and the mapping itself.
        map.reserve_for(self, 5, true)?;
        if flags.contains(VmFlags::ACCOUNT) {
            let more = if stays { pages } else { resize.grows_by() / PAGE_SIZE };
            self.charge(map, more.saturating_sub(there.charged))?;
        }
        Ok(Move { source, moved, to, stays })
    }
}

/// Whether the mapping at the request's address may have the size that is asked for
/// (`check_prep_vma`).
fn may_resize<P: Platform>(map: &AddressMap<P>, resize: &Resize) -> Result<(), MmError> {
    let (start, vma) = map.find(resize.addr).ok_or(MmError::SourceNotMapped { at: resize.addr })?;
    if resize.old == 0 && !vma.is_shared() {
        return Err(MmError::PrivateNotDuplicable { at: resize.addr });
    }
    // What a smaller size leaves over may be anything: it goes first.
    let range = PageRange::from_len(resize.addr, resize.old.min(resize.new))?;
    if range.end() > vma.range(start).end() {
        return Err(MmError::SpansMappings { range });
    }
    let skipped = resize.addr.page_index() - start;
    if vma.file().is_some() && !AddressMap::<P>::can_name(vma.pgoff() + skipped, resize.new / PAGE_SIZE) {
        return Err(MmError::OffsetOverflow { offset: (vma.pgoff() + skipped) * PAGE_SIZE });
    }
    let more = resize.grows_by() / PAGE_SIZE;
    if more > 0 {
        map.may_lock(vma.flags(), more)?;
        map.may_grow(vma.flags(), vma.rights(), more, 0)?;
    }
    Ok(())
}

/// What becomes of a mapping whose pages in `moved` went elsewhere while it stays
/// (`dontunmap_complete`): it is locked no longer, and if all of it was moved, none of its own
/// pages are left.
fn leave_behind<P: Platform>(vma: &mut Vma<P>, start: u64, moved: PageRange) {
    vma.set_flags(vma.flags() - VmFlags::LOCK_MASK);
    if vma.range(start) == moved {
        vma.forget_anon();
    }
}
