//! `madvise(2)`: what a program says about its memory.
//!
//! | file | advice |
//! | --- | --- |
//! | `mappings` | flags of the mapping: order of access, fork, core dumps |
//! | `pages` | pages thrown away now (`DontNeed`) or when memory is short (`Free`) |
//! | `guard` | pages that nobody may touch |
//! | `file` | `Remove`, `WillNeed`: what concerns the file behind the mapping |
//! | `populate` | pages faulted in |
//! | `reclaim` | `PageOut`, `Cold`: pages that may go |
//! | `process` | `process_madvise(2)`: many ranges, perhaps of somebody else |
//!
//! Key type: [`Advice`]. One [`Walk`] goes over the mappings of a range for all of them
//! (`madvise_walk_vmas`): a hole is passed over, and the call fails because of it after everything
//! else was done; a mapping that can't take the advice ends the call there.
//!
//! Neighbours: uses `zap`, `fault`, `file`; `lock` and `seal` say what advice their mappings
//! refuse.
//!
//! Not guaranteed: that `Free`, `Cold` and `PageOut` have an effect. They are checked, and `Free`
//! leaves its pages clean; taking them is the business of reclaim.

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
use crate::space::vma::AddressMap;
use crate::space::{Space, VmFlags, Vma, VmaBacking};
use pagewright_sync::Platform;
use pagewright_types::{Access, PageRange, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Takes advice about `len` bytes at `addr`, rounded up to pages.
    ///
    /// # Errors
    /// [`MmError`]. As in Linux, the mappings beside a hole, and those before one that can't take
    /// the advice, have taken it when the call fails for that reason; so have those before a page
    /// for which memory is missing. For any other error nothing has changed.
    pub fn madvise(&self, space: &Space<P>, addr: VirtAddr, len: u64, advice: Advice) -> Result<(), MmError> {
        let range = bounded(addr, len)?;
        if range.is_empty() {
            return Ok(());
        }
        self.call(|| self.advise(space, range, advice))
    }

    /// The same, within a call (`madvise_do_behavior`).
    fn advise(&self, space: &Space<P>, range: PageRange, advice: Advice) -> Result<(), MmError> {
        match advice {
            Advice::Normal
            | Advice::Random
            | Advice::Sequential
            | Advice::DontFork
            | Advice::DoFork
            | Advice::DontDump
            | Advice::DoDump
            | Advice::WipeOnFork
            | Advice::KeepOnFork => self.advise_mappings(space, range, advice),
            Advice::Cold | Advice::PageOut => self.advise_reclaim(space, range, advice),
            Advice::DontNeed | Advice::DontNeedLocked | Advice::Free | Advice::GuardInstall | Advice::GuardRemove => {
                self.advise_pages(space, range, advice)
            }
            Advice::WillNeed | Advice::Remove => self.advise_file(space, range, advice),
            Advice::PopulateRead => self.populate_as_advised(space, range, Access::Read),
            Advice::PopulateWrite => self.populate_as_advised(space, range, Access::Write),
        }
    }
}

/// Goes over the mappings of a range and remembers the first hole.
struct Walk {
    at: VirtAddr,
    end: VirtAddr,
    hole: Option<VirtAddr>,
}

impl Walk {
    fn over(range: PageRange) -> Self {
        Self { at: range.start(), end: range.end(), hole: None }
    }

    /// The next mapping, and its part in the range.
    ///
    /// The space may have been let go since the last.
    fn next<'m, P: Platform>(&mut self, map: &'m AddressMap<P>) -> Option<(&'m Vma<P>, u64, PageRange)> {
        if self.at >= self.end {
            return None;
        }
        let next = map.find_or_after(self.at).map(|(start, vma)| (vma, start, vma.range(start)));
        let Some((vma, start, range)) = next.filter(|(_, _, range)| range.start() < self.end) else {
            self.hole = self.hole.or(Some(self.at));
            self.at = self.end;
            return None;
        };
        if range.start() > self.at {
            self.hole = self.hole.or(Some(self.at));
        }
        let part = PageRange::new(range.start().max(self.at), range.end().min(self.end));
        self.at = part.end();
        Some((vma, start, part))
    }

    fn finish(self) -> Result<(), MmError> {
        self.hole.map_or(Ok(()), |at| Err(MmError::NotMapped { at }))
    }
}

/// Whether a mapping can take the advice, in Linux's order of refusals; `at` is where it is asked.
fn check<P: Platform>(vma: &Vma<P>, at: VirtAddr, advice: Advice) -> Result<(), MmError> {
    if advice.discards() && vma.refuses_discard() {
        return Err(MmError::Sealed { at });
    }
    let locked = vma.flags().contains(VmFlags::LOCKED);
    let anonymous = matches!(vma.backing(), VmaBacking::Anon);
    let suits = match advice {
        Advice::DontNeed | Advice::Cold | Advice::PageOut | Advice::GuardInstall => !locked,
        Advice::Free => !locked && anonymous,
        Advice::Remove => !locked && !anonymous,
        Advice::WipeOnFork => anonymous,
        Advice::Normal
        | Advice::Random
        | Advice::Sequential
        | Advice::WillNeed
        | Advice::DontFork
        | Advice::DoFork
        | Advice::DontDump
        | Advice::DoDump
        | Advice::KeepOnFork
        | Advice::PopulateRead
        | Advice::PopulateWrite
        | Advice::DontNeedLocked
        | Advice::GuardRemove => true,
    };
    if !suits {
        return Err(MmError::AdviceNotApplicable { at, advice });
    }
    if advice == Advice::Remove && !vma.may_store_to_file() {
        return Err(MmError::FileNotWritable { at });
    }
    Ok(())
}
