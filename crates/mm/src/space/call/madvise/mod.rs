//! `madvise(2)`: advice of a program about its memory.
//!
//! | file | advice | shared tables |
//! | --- | --- | --- |
//! | `mappings` | sets flags of the mapping: order of access, fork, huge pages, core dumps | broken (`reserve_splits`) |
//! | `pages` | discards pages now (`DontNeed`) or when memory is short (`Free`) | broken (`advise_pages`) |
//! | `guard` | installs and removes guards (`GuardInstall`, `GuardRemove`) | broken (`advise_pages`) |
//! | `file` | acts on the file of the mapping (`Remove`, `WillNeed`) | edited for all sharers |
//! | `populate` | faults pages in (`PopulateRead`, `PopulateWrite`) | as a fault |
//! | `reclaim` | deactivates pages (`Cold`) or pages them out (`PageOut`) | left out (`own_part`) |
//! | `process` | `process_madvise(2)`: several ranges, also of another process | as the advice |
//!
//! Key type: [`Advice`], each of which is one row of the table in `advice`. For all of them a
//! [`Walk`] visits the mappings of the range (`madvise_walk_vmas`). It skips unmapped pages, and
//! the call then fails at its end. A mapping to which the advice does not apply ends the call at
//! once.
//!
//! Neighbours: uses `zap`, `fault`, `file`; `mlock` and `mseal` define which advice their mappings
//! refuse.
//!
//! Not guaranteed: that `Free`, `Cold` and `PageOut` free memory. `Free` makes pages clean, and
//! reclaim may discard them later.

mod advice;
mod file;
mod guard;
mod mappings;
mod pages;
mod populate;
mod process;
mod reclaim;

pub use advice::Advice;
pub use process::AdviceTarget;

use crate::error::{MmError, bounded};
use crate::mm::Mm;
use crate::space::entries::zap::Zap;
use crate::space::vma::AddressMap;
use crate::space::{Space, VmFlags, Vma};
use advice::{AdviceAction, AdviceRules};
use pagewright_sync::Platform;
use pagewright_types::{PAGE_SIZE, PageRange, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Applies advice to `len` bytes at `addr`, rounded up to pages.
    ///
    /// # Errors
    /// As in Linux, [`MmError::NotMapped`] leaves the advice applied to all mappings of the range.
    /// After an error that one mapping or one page causes, it is applied to the mappings before.
    /// After an error in the arguments nothing has changed.
    pub fn madvise(&self, space: &Space<P>, addr: VirtAddr, len: u64, advice: Advice) -> Result<(), MmError> {
        let range = bounded(addr, len)?;
        if range.is_empty() {
            return Ok(());
        }
        self.declare_return_of(|| self.advise(space, range, advice))
    }

    /// Does the same as [`Mm::madvise`], within a call (`madvise_do_behavior`).
    fn advise(&self, space: &Space<P>, range: PageRange, advice: Advice) -> Result<(), MmError> {
        match advice.action() {
            AdviceAction::SetFlags { without, with } => {
                self.advise_mappings(space, range, advice, |flags| (flags - without) | with)
            }
            AdviceAction::Zap => self.advise_pages(space, range, advice, |own, vma, part, gather| {
                self.zap(space, own, (vma, Zap::Pages), part, gather);
                Ok(())
            }),
            AdviceAction::FreeLazily => self.advise_free(space, range, advice),
            AdviceAction::InstallGuards => self.advise_pages(space, range, advice, |own, vma, part, gather| {
                self.install_guards(space, own, vma, part, gather)
            }),
            AdviceAction::RemoveGuards => self.advise_pages(space, range, advice, |own, vma, part, gather| {
                self.remove_guards(own, vma, part, gather);
                Ok(())
            }),
            AdviceAction::ReadAhead => self.advise_file(space, range, advice, |file, first, pages| {
                self.read_ahead(file, first, pages);
                Ok(())
            }),
            AdviceAction::PunchHole => self.advise_file(space, range, advice, |file, first, pages| {
                self.punch_hole(file, first * PAGE_SIZE, (first + pages) * PAGE_SIZE)
            }),
            AdviceAction::Deactivate => {
                self.advise_reclaim(space, range, advice, |part| self.deactivate_range(space, part))
            }
            AdviceAction::PageOut => self.advise_reclaim(space, range, advice, |part| self.page_out_range(space, part)),
            AdviceAction::Populate(access) => self.madvise_populate(space, range, advice, access),
        }
    }
}

/// A walk over the mappings of a range, which records the first unmapped page.
struct Walk {
    at: VirtAddr,
    end: VirtAddr,
    unmapped: Option<VirtAddr>,
}

impl Walk {
    fn over(range: PageRange) -> Self {
        Self { at: range.start(), end: range.end(), unmapped: None }
    }

    /// Returns the next mapping, its first page, and its part in the range.
    ///
    /// The caller may have released the `map` lock since the last call.
    fn next<'m, P: Platform>(&mut self, map: &'m AddressMap<P>) -> Option<(&'m Vma<P>, u64, PageRange)> {
        if self.at >= self.end {
            return None;
        }
        let next = map.find_or_after(self.at).map(|(start, vma)| (vma, start, vma.range(start)));
        let Some((vma, start, range)) = next.filter(|(_, _, range)| range.start() < self.end) else {
            self.unmapped = self.unmapped.or(Some(self.at));
            return None;
        };
        if range.start() > self.at {
            self.unmapped = self.unmapped.or(Some(self.at));
        }
        let part = PageRange::new(range.start().max(self.at), range.end().min(self.end));
        self.at = part.end();
        Some((vma, start, part))
    }

    /// Checks that the advice applies to the next mapping, and returns what `take` takes from it.
    ///
    /// `take` gets what [`Walk::next`] returns. The `map` lock is held for reading only meanwhile,
    /// for advice that acts without it.
    fn next_unlocked<P: Platform, T>(
        &mut self,
        space: &Space<P>,
        advice: Advice,
        take: impl FnOnce(&Vma<P>, u64, PageRange) -> T,
    ) -> Result<Option<T>, MmError> {
        let map = space.map().read();
        let Some((vma, start, part)) = self.next(&map) else { return Ok(None) };
        check(vma, part.start(), advice)?;
        Ok(Some(take(vma, start, part)))
    }

    fn finish(self) -> Result<(), MmError> {
        self.unmapped.map_or(Ok(()), |at| Err(MmError::NotMapped { at }))
    }
}

/// Checks that the advice applies to a mapping, in Linux's order of checks.
///
/// `at` is the address for the error.
fn check<P: Platform>(vma: &Vma<P>, at: VirtAddr, advice: Advice) -> Result<(), MmError> {
    if advice.obeys(AdviceRules::DISCARDS) && vma.refuses_discard() {
        return Err(MmError::Sealed { at });
    }
    let (locked, anonymous) = (vma.flags().contains(VmFlags::LOCKED), vma.file().is_none());
    let applies = !(locked && advice.obeys(AdviceRules::UNLOCKED)
        || !anonymous && advice.obeys(AdviceRules::ANONYMOUS)
        || anonymous && advice.obeys(AdviceRules::WRITABLE_FILE));
    if !applies {
        return Err(MmError::AdviceNotApplicable { at, advice });
    }
    if advice.obeys(AdviceRules::WRITABLE_FILE) && !vma.may_store_to_file() {
        return Err(MmError::FileNotWritable { at });
    }
    Ok(())
}
