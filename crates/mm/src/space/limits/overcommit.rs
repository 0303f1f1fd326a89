//! Overcommit: the memory that all spaces may demand at any time.
//!
//! Linux: `__vm_enough_memory` and `vm_commit_limit` of `mm/util.c`.
//!
//! A private writable page that was never accessed takes no memory, but the program may demand it
//! at any time. Such pages are counted as committed. The policy `vm.overcommit_memory` refuses a
//! single request larger than memory and swap (0), nothing (1), or what passes the commit limit
//! (2).
//!
//! Protocol: a call *charges* the pages that it is about to map before it changes anything
//! ([`Mm::charge`]), and the space records the charge. At the end of the call, successful or not,
//! [`Mm::settle_charge`] returns the part of the charge that no mapping needs.
//!
//! **INV-MM-COMMITTED** At rest, the committed memory is the pages of all mappings with the
//! `ACCOUNT` flag, and what was charged for shared memory.
//!
//! An object is charged all its pages if a mapping created it, otherwise the pages that it has.
//!
//! Not guaranteed: that a committed page can be allocated. Only policy 2 has a limit, and not all
//! memory is counted.

use crate::error::MmError;
use crate::mm::Mm;
use crate::settings::MmSetting;
use crate::space::limits::Privileges;
use crate::space::vma::{AddressMap, CopiedTotals};
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_sync::{Backend, LineRef, LineUse, Platform};
use pagewright_types::PAGE_SIZE;

/// The overcommit policy, `vm.overcommit_memory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::space) enum Overcommit {
    /// Refuses a single request larger than memory and swap (`OVERCOMMIT_GUESS`).
    Guess,
    /// Refuses nothing (`OVERCOMMIT_ALWAYS`).
    Always,
    /// Refuses what passes the commit limit (`OVERCOMMIT_NEVER`).
    Never,
}

/// The number of committed pages of one machine (`vm_committed_as`).
#[derive(Default)]
pub(crate) struct CommittedPages(AtomicU64);

/// Reports a use of the line of the committed pages.
#[inline]
fn use_committed<P: Platform>(used: LineUse) {
    P::Locks::line(LineRef::Word(0), "committed pages", used);
}

impl<P: Platform> Mm<P> {
    /// Returns the number of committed pages, of spaces and of shared memory (`Committed_AS`).
    pub fn committed(&self) -> u64 {
        use_committed::<P>(LineUse::Load);
        self.committed.0.load(Ordering::Relaxed)
    }

    /// Returns the commit limit of policy 2 in pages (`CommitLimit`).
    ///
    /// It is a part of memory, and all swap.
    pub fn commit_limit(&self) -> u64 {
        let of_memory = match self.settings.get(MmSetting::OvercommitKbytes) {
            0 => self.frames().managed() * self.settings.get(MmSetting::OvercommitRatio) / 100,
            kbytes => kbytes * 1024 / PAGE_SIZE,
        };
        of_memory + self.swap_slots().0
    }

    pub(in crate::space) fn overcommit(&self) -> Overcommit {
        match self.settings.get(MmSetting::OvercommitMemory) {
            0 => Overcommit::Guess,
            1 => Overcommit::Always,
            _ => Overcommit::Never,
        }
    }

    /// Charges `pages` pages to the space, before it gets the mappings that need them.
    ///
    /// # Errors
    /// [`MmError::CommitRefused`]; nothing has changed.
    pub(crate) fn charge(&self, map: &mut AddressMap<P>, pages: u64) -> Result<(), MmError> {
        self.account_pages(Some(map), pages)?;
        map.charged += pages;
        Ok(())
    }

    /// Charges what fork copies to the child, within the commit limit of its parent.
    ///
    /// The guess of policy 0 is about one mapping at a time, so the largest decides. The limit of
    /// policy 2 is exceeded by the sum if by any part of it.
    pub(crate) fn charge_child(
        &self,
        parent: &AddressMap<P>,
        child: &mut AddressMap<P>,
        copied: &CopiedTotals,
    ) -> Result<(), MmError> {
        self.account_mappings(Some(parent), copied.charged, copied.largest_charge)?;
        child.charged += copied.charged;
        Ok(())
    }

    /// Returns the part of the charge that no mapping needs.
    ///
    /// Every call that maps, unmaps or changes rights ends with it.
    pub(crate) fn settle_charge(&self, map: &mut AddressMap<P>) {
        let accountable = map.totals().accountable;
        debug_assert!(
            map.charged >= accountable,
            "INV-MM-COMMITTED: {accountable} pages are accountable and {} are charged",
            map.charged
        );
        self.unaccount_pages(map.charged.saturating_sub(accountable));
        map.charged = accountable;
    }

    /// Adds `pages` pages to the committed memory; the caller records them (`__vm_enough_memory`).
    ///
    /// `map` is of the space on whose behalf it is done, if any.
    ///
    /// # Errors
    /// [`MmError::CommitRefused`]; nothing has changed.
    pub(crate) fn account_pages(&self, map: Option<&AddressMap<P>>, pages: u64) -> Result<(), MmError> {
        self.account_mappings(map, pages, pages)
    }

    /// Does the same for several mappings with `pages` pages in all, of which one has `largest`.
    fn account_mappings(&self, map: Option<&AddressMap<P>>, pages: u64, largest: u64) -> Result<(), MmError> {
        if pages == 0 {
            return Ok(());
        }
        use_committed::<P>(LineUse::Store);
        let now = self.committed.0.fetch_add(pages, Ordering::Relaxed) + pages;
        let enough = match self.overcommit() {
            Overcommit::Always => true,
            Overcommit::Guess => {
                let memory = self.frames().managed();
                largest <= memory || largest <= memory + self.swap_slots().0
            }
            Overcommit::Never => now < self.commit_limit_for(map),
        };
        if !enough {
            self.unaccount_pages(pages);
            return Err(MmError::CommitRefused { pages });
        }
        Ok(())
    }

    /// Subtracts `pages` pages from the committed memory (`vm_unacct_memory`).
    pub(crate) fn unaccount_pages(&self, pages: u64) {
        if pages == 0 {
            return;
        }
        use_committed::<P>(LineUse::Store);
        let before = self.committed.0.fetch_sub(pages, Ordering::Relaxed);
        debug_assert!(before >= pages, "INV-MM-COMMITTED: {pages} pages uncommitted of {before}");
    }

    /// Returns the commit limit for a space, in pages.
    ///
    /// It is the limit of the machine less two reserves: one with which an administrator can repair
    /// the machine, one with which a user can kill a process that has taken all memory.
    fn commit_limit_for(&self, map: Option<&AddressMap<P>>) -> u64 {
        let pages = |setting| self.settings.get(setting) * 1024 / PAGE_SIZE;
        let privileged = map.is_some_and(|map| map.limits().privileges().contains(Privileges::SYS_ADMIN));
        let for_admin = if privileged { 0 } else { pages(MmSetting::AdminReserveKbytes) };
        let for_user = map.map_or(0, |map| pages(MmSetting::UserReserveKbytes).min(map.totals().pages / 32));
        self.commit_limit().saturating_sub(for_admin).saturating_sub(for_user)
    }
}
