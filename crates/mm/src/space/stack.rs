//! Growth of a stack when an access faults below it (`expand_downwards`, `acct_stack_growth`).

use crate::error::MmError;
use crate::mm::Mm;
use crate::settings::MmSetting;
use crate::space::vma::AddressMap;
use crate::space::{HeldMap, Space, VmFlags};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_types::{PAGE_SIZE, PageRange, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Grows the mapping above `va` down to it, if it is a stack.
    ///
    /// Returns whether `va` is mapped afterwards.
    pub(crate) fn grow_stack(&self, space: &Space<P>, va: VirtAddr) -> bool {
        let mut map = space.map().write();
        let page = va.page_index();
        let Some((start, vma)) = map.find_or_after(va) else { return false };
        if start <= page {
            // A concurrent fault has grown it.
            return true;
        }
        if !vma.grows_down()
            || VirtAddr::from_page_index(page) < self.min_address()
            || self.is_too_near(&map, start, page)
        {
            return false;
        }
        let grown = self.grow_to(&mut map, start, page);
        self.settle_charge(&mut map);
        grown.is_ok()
    }

    /// Returns whether a stack that grows down to `page` would be too near to the mapping below.
    ///
    /// `start` is its present first page. It may touch another stack, or a mapping without rights,
    /// which a program uses as a guard.
    fn is_too_near(&self, map: &AddressMap<P>, start: u64, page: u64) -> bool {
        map.before(start).is_some_and(|(_, below)| {
            let guarded = !below.grows_down() && !below.rights().is_empty();
            let gap = if guarded { self.settings.get(MmSetting::StackGuardGap) } else { 0 };
            page < below.end() + gap
        })
    }

    fn grow_to(&self, map: &mut HeldMap<'_, P>, start: u64, page: u64) -> Result<(), MmError> {
        let Some((_, vma)) = map.find(VirtAddr::from_page_index(start)) else {
            return Err(MmError::NotMapped { at: VirtAddr::from_page_index(start) });
        };
        let (flags, rights, linear) = (vma.flags(), vma.rights(), vma.linear_index());
        let more = start - page;
        // The linear index of a page cannot be negative.
        if more > linear {
            return Err(MmError::NoUnmappedArea { pages: more });
        }
        map.may_grow(flags, rights, more, 0)?;
        map.may_stack((vma.end() - page) * PAGE_SIZE)?;
        map.may_lock(flags, more)?;
        if flags.contains(VmFlags::ACCOUNT) {
            self.charge(map, more)?;
        }
        map.reserve(self, 1)?;
        let more = PageRange::new(VirtAddr::from_page_index(page), VirtAddr::from_page_index(start));
        plant!(GrownOverShared; (), self.own_tables(map.tables(&self.tlb), more).map(drop)?);
        if let Some((_, vma)) = map.find(VirtAddr::from_page_index(start)) {
            // Linux has called anon_vma_prepare by now.
            vma.note_anon();
        }
        map.grow_down(start, page);
        Ok(())
    }
}
