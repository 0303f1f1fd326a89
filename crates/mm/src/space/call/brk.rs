//! `brk(2)`: grows and shrinks the heap.

use crate::error::MmError;
use crate::mm::Mm;
use crate::settings::MmSetting;
use crate::space::HeldMap;
use crate::space::Space;
use crate::space::limits::Resource;
use crate::space::vma::{VmFlags, Vma};
use pagewright_arch::Isa;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_types::{PAGE_SIZE, PageRange, Rights, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Sets the start of the heap, as `execve` does; the heap is then empty (`mm->start_brk`).
    pub fn set_brk_start(&self, space: &Space<P>, start: VirtAddr) {
        let mut map = space.map().write();
        map.brk_start = start;
        map.brk = start;
    }

    /// Moves the program break to `to` if possible, and returns the break.
    ///
    /// As in Linux, `brk` returns no error: it returns the old break, and the C library turns that
    /// into `ENOMEM`.
    pub fn brk(&self, space: &Space<P>, to: VirtAddr) -> VirtAddr {
        self.declare_return_of(|| self.move_break(space, to))
    }

    fn move_break(&self, space: &Space<P>, to: VirtAddr) -> VirtAddr {
        let mut map = space.map().write();
        if to < map.brk_start || map.ended {
            return map.brk;
        }
        let Some(new_end) = to.align_up(PAGE_SIZE) else { return map.brk };
        let old_end = map.brk.align_up(PAGE_SIZE).unwrap_or(map.brk);
        let mut added = None;
        let done = if to.since(map.brk_start) > map.limits().get(Resource::Data) {
            // Checked first, even if the heap shrinks (check_data_rlimit).
            return map.brk;
        } else if new_end == old_end {
            Ok(())
        } else if new_end < old_end {
            self.shrink_heap(space, &mut map, PageRange::new(new_end, old_end))
        } else {
            let range = PageRange::new(old_end, new_end);
            added = map.new_flags.contains(VmFlags::LOCKED).then_some(range);
            self.grow_heap(&mut map, range)
        };
        self.settle_charge(&mut map);
        if done.is_err() {
            return map.brk;
        }
        map.brk = to;
        drop(map);
        if let Some(range) = added {
            self.populate_range(space, range, VmFlags::LOCKED);
        }
        to
    }

    /// Unmaps the end of the heap; as in Linux, it fails if nothing is mapped there any more.
    fn shrink_heap(&self, space: &Space<P>, map: &mut HeldMap<'_, P>, range: PageRange) -> Result<(), MmError> {
        if plant!(BreakMovesOverHole; false, map.overlapping(range).next().is_none()) {
            return Err(MmError::NotMapped { at: range.start() });
        }
        self.reserve_unmap(map, range)?;
        self.unmap_reserved(space, map, range);
        Ok(())
    }

    fn grow_heap(&self, map: &mut HeldMap<'_, P>, range: PageRange) -> Result<(), MmError> {
        if range.end() > P::Isa::USER_END {
            return Err(MmError::BeyondUser { range });
        }
        let flags = VmFlags::ACCOUNT | map.new_flags;
        map.may_lock(flags, range.pages())?;
        // Linux keeps a page free between the heap and the next mapping.
        if !map.is_free(range, 1) {
            return Err(MmError::AlreadyMapped { range });
        }
        let limit = self.settings.get(MmSetting::MaxMapCount);
        if map.len() as u64 > limit {
            return Err(MmError::TooManyMappings { limit });
        }
        map.may_grow(flags, Rights::RW, range.pages(), 0)?;
        self.charge(map, range.pages())?;
        map.reserve(self, 1)?;
        plant!(GrownOverShared; (), self.own_tables(map.tables(&self.tlb), range).map(drop)?);
        let (start, end) = (range.start().page_index(), range.end().page_index());
        map.insert(start, Vma::new((start, end), 0, Rights::RW, Rights::all(), flags, None));
        map.merge_over(range);
        Ok(())
    }
}
