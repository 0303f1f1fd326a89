//! What the machine has promised to all spaces (`mm/util.c`: `__vm_enough_memory`,
//! `vm_commit_limit`).
//!
//! A private writable page that nobody has touched takes no memory, and still somebody may insist
//! on it. What may be insisted on is counted, and `vm.overcommit_memory` says when it is too much:
//! never for a single call but an absurd one (0), never (1), beyond a limit (2).
//!
//! Protocol: a call *charges* what it is about to map before it changes anything ([`Mm::charge`]),
//! and the space remembers what it has charged. When the call is over, however it ended,
//! [`Mm::settle_charge`] gives back what no mapping stands for. INV-MM-COMMITTED: at rest what is
//! promised is the pages of all mappings with [`VmFlags::ACCOUNT`](crate::space::VmFlags::ACCOUNT) and
//! what each piece of shared memory remembers: all its pages if a mapping made it, else those that
//! it has.
//!
//! Not guaranteed: that memory is there when it is touched. Only policy 2 limits promises, and only
//! those that are counted.

use crate::error::MmError;
use crate::mm::Mm;
use crate::settings::MmSetting;
use crate::space::limits::Privileges;
use crate::space::vma::AddressMap;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_sync::Platform;
use pagewright_types::PAGE_SIZE;

/// `vm.overcommit_memory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::space) enum Overcommit {
    /// Everything but more than there is in one piece.
    Guess,
    /// Everything.
    Always,
    /// Up to the limit.
    Never,
}

/// Pages promised on one machine (`vm_committed_as`).
#[derive(Default)]
pub(crate) struct CommittedPages(AtomicU64);

impl<P: Platform> Mm<P> {
    /// Pages promised to spaces and to shared memory (`Committed_AS`).
    pub fn committed(&self) -> u64 {
        self.committed.0.load(Ordering::Relaxed)
    }

    /// Pages that may be promised under policy 2 (`CommitLimit`): a part of memory, and all swap.
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

    /// Promises `pages` pages to the space, before it gets mappings that insist on them.
    ///
    /// # Errors
    /// [`MmError::CommitRefused`]; nothing is promised.
    pub(crate) fn charge(&self, map: &mut AddressMap<P>, pages: u64) -> Result<(), MmError> {
        self.promise(Some(map), pages)?;
        map.paid += pages;
        Ok(())
    }

    /// Promises `pages` pages to the child of a space, which is as large as its parent will find
    /// it.
    pub(crate) fn charge_like(
        &self,
        parent: &AddressMap<P>,
        child: &mut AddressMap<P>,
        pages: u64,
    ) -> Result<(), MmError> {
        self.promise(Some(parent), pages)?;
        child.paid += pages;
        Ok(())
    }

    /// Gives back what was charged and no mapping stands for.
    ///
    /// Ends every call that maps, unmaps or changes rights.
    pub(crate) fn settle_charge(&self, map: &mut AddressMap<P>) {
        let charged = map.totals().charged;
        debug_assert!(
            map.paid >= charged,
            "INV-MM-COMMITTED: {charged} pages are insisted on and {} charged",
            map.paid
        );
        self.take_back(map.paid.saturating_sub(charged));
        map.paid = charged;
    }

    /// Promises `pages` pages, on behalf of a space if one is known, for something that remembers
    /// them itself (`__vm_enough_memory`).
    ///
    /// # Errors
    /// [`MmError::CommitRefused`]; nothing is promised.
    pub(crate) fn promise(&self, map: Option<&AddressMap<P>>, pages: u64) -> Result<(), MmError> {
        if pages == 0 {
            return Ok(());
        }
        let now = self.committed.0.fetch_add(pages, Ordering::Relaxed) + pages;
        let enough = match self.overcommit() {
            Overcommit::Always => true,
            Overcommit::Guess => {
                let memory = self.frames().managed();
                pages <= memory || pages <= memory + self.swap_slots().0
            }
            Overcommit::Never => now < self.allowance(map),
        };
        if !enough {
            self.take_back(pages);
            return Err(MmError::CommitRefused { pages });
        }
        Ok(())
    }

    /// Takes back a promise.
    pub(crate) fn take_back(&self, pages: u64) {
        if pages == 0 {
            return;
        }
        let before = self.committed.0.fetch_sub(pages, Ordering::Relaxed);
        debug_assert!(before >= pages, "INV-MM-COMMITTED: more was taken back than was promised");
    }

    /// What this space may see promised in all: the limit, less what is kept for an administrator
    /// who wants to repair things, and for a user who wants to get rid of a process that has taken
    /// everything.
    fn allowance(&self, map: Option<&AddressMap<P>>) -> u64 {
        let pages = |setting| self.settings.get(setting) * 1024 / PAGE_SIZE;
        let privileged = map.is_some_and(|map| map.limits().privileges().contains(Privileges::SYS_ADMIN));
        let for_admin = if privileged { 0 } else { pages(MmSetting::AdminReserveKbytes) };
        let for_user = map.map_or(0, |map| pages(MmSetting::UserReserveKbytes).min(map.totals().pages / 32));
        self.commit_limit().saturating_sub(for_admin).saturating_sub(for_user)
    }
}
