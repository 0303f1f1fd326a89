//! Which tables fork shares with the child.
//!
//! The setting `cow_page_tables` and `prctl(PR_SET_COW_PTE)` decide whether it shares any. A table
//! is shared if every mapping under it may be: the child gets the mapping, with its contents, and
//! unlocked. The rest is copied.
//!
//! With `auto`, a fork of a small space copies everything, unless its program has asked. Both
//! processes store to their stacks and data at once, so nearly all of its few tables would be
//! broken, with entries of the program's text that a copy leaves out. A space that has shared
//! tables goes on until it is half as large: a fork that copies them has to take them back first,
//! so a space at the limit would pay for both ways in turn.

use crate::error::MmError;
use crate::mm::Mm;
use crate::settings::MmSetting;
use crate::space::{AddressMap, HeldMap, Space};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::Gather;
use pagewright_tlb::frames::RssKind;
use pagewright_types::{Counter, Level, PAGE_SIZE, PageRange};

/// Entries of pages of its own and of swap from which on a space is not small.
///
/// A huge leaf is one entry, which fork copies.
///
/// Copying an entry and clearing it at exit takes 200 instructions on the bare-metal kernel, and 22
/// ns on a host; breaking the tables of a stack and of data, in parent and child, takes 40 000
/// instructions and 10 µs. So the two are even at 200 pages by instructions, and at 450 by time
/// (`pagewright evaluate cow-table`, the matrix). This is between them.
const SMALL_ENTRIES: u64 = 320;
/// Tables below the root from which on a space is not small; a copy allocates one for each.
///
/// Deposits do not count: they are copied with their leaves, however the tables are.
const SMALL_TABLES: u64 = 16;

/// Whether a program has asked for shared page tables (`MMF_COW_PTE_READY`, `MMF_COW_PTE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum CowPageTables {
    /// It has not.
    No = 0,
    /// It has, and a fork made after it or a fork that made the space shares tables.
    Yes = 1,
}

impl CowPageTables {
    /// The value with this number.
    pub(crate) fn from_raw(raw: u8) -> Self {
        if raw == Self::Yes as u8 { Self::Yes } else { Self::No }
    }
}

impl<P: Platform> Mm<P> {
    /// Lets later forks of the space share page tables (`prctl(PR_SET_COW_PTE)`).
    ///
    /// Children inherit it. It does nothing more if `cow_page_tables` is `never` or `always`.
    ///
    /// # Errors
    /// [`MmError::AlreadySet`], if it was called for the space or an ancestor before.
    pub fn set_cow_page_tables(&self, space: &Space<P>) -> Result<(), MmError> {
        match space.swap_cow_page_tables(CowPageTables::Yes) {
            CowPageTables::No => Ok(()),
            CowPageTables::Yes => Err(MmError::AlreadySet),
        }
    }

    /// Why a fork of the space copies all page tables; `None` if it shares those that it can.
    pub(super) fn why_none_is_shared(&self, space: &Space<P>) -> Option<Counter> {
        let has_asked = || space.cow_page_tables() == CowPageTables::Yes;
        match self.settings.get(MmSetting::CowPageTables) {
            0 => Some(Counter::PwTableCopiedNever),
            1 => (!has_asked()).then_some(Counter::PwTableCopiedUnasked),
            2 => None,
            _ => (!has_asked() && is_small(space)).then_some(Counter::PwTableCopiedSmall),
        }
    }

    /// Shares what may be shared, and returns whether nothing is left to copy.
    ///
    /// # Errors
    /// [`MmError::NoKernelMemory`] or [`MmError::NoFrames`]; the caller ends the child.
    pub(super) fn share_tables(
        &self,
        from: &mut HeldMap<'_, P>,
        to: &mut HeldMap<'_, P>,
        gather: &mut Gather<'_, P>,
    ) -> Result<bool, MmError> {
        if !self.permit() {
            return Err(MmError::NoKernelMemory { wanted: size_of::<PageRange>() });
        }
        from.add_to_family(to)?;
        let all = from.iter().all(|(_, vma)| vma.may_share_tables());
        let map: &AddressMap<P> = from;
        let may_share = |range| all || may_share_all(map, range);
        Ok(from.share_tables(to, &self.tlb, may_share, |reserve| self.fill(reserve, 1), gather)?)
    }
}

/// Whether copying a space costs less than sharing its tables and breaking them.
fn is_small<P: Platform>(space: &Space<P>) -> bool {
    let (table, rss) = (space.table(), space.rss());
    let (pages, huge) = (rss.of(RssKind::Anon) + rss.swapped(), table.deposits());
    // Leaves of the huge page of zeroes have deposits and no pages.
    let entries = pages.saturating_sub(huge * (Level::ENTRIES as u64 - 1));
    let part = plant!(AutoChangesItsMind; 1, if table.has_shared() { 2 } else { 1 });
    entries < SMALL_ENTRIES / part && table.bytes() < (SMALL_TABLES / part + huge) * PAGE_SIZE
}

/// Whether fork may share the page tables of every mapping under `range`.
pub(super) fn may_share_all<P: Platform>(map: &AddressMap<P>, range: PageRange) -> bool {
    map.overlapping(range).all(|(_, vma)| vma.may_share_tables())
}
