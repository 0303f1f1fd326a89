//! Calls during which nothing else happens in their process.
//!
//! - [`ExclusiveCall`] – the calls. `madvise`, `mlock`, `mremap`: their effects, page by page.
//!   `rlimit`: what rlimits and seals forbid, also to other calls. `stack_growth`: stacks.
//! - [`Change`] – the effect on one page. If an allocation may have failed in the middle of a call,
//!   a change may or may not have happened.
//!
//! The reference memory knows pages, not VMAs. `mremap` depends on whether pages are one VMA. Pages
//! with different mappings are not. Pages that one call mapped are, if no call has split them
//! since. For all others, both results are possible ([`Process::mark_seams`]).
//!
//! Not guaranteed: whether a page after `MADV_FREE` has contents, until the next store.

mod madvise;
mod mlock;
mod mremap;
mod rlimit;
mod stack_growth;

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
pub(super) use rlimit::{Denial, MemoryRlimits};

use super::call::CallResult;
use super::contents::PageContents;
use super::file::Files;
use super::page::{MappingFlags, Page, PageBacking, PageMapping, PossibleState};
use super::{Process, Spec};
use crate::violation::CpuStep;
use pagewright_types::{Errno, PAGE_SIZE, PageRange, Rights, SpaceId, VirtAddr};

/// A call during which nothing else happens in its process.
///
/// Flags, advice and resources are Linux's numbers; lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExclusiveCall {
    /// `mremap(2)`.
    Remap {
        /// The old address.
        addr: VirtAddr,
        /// The old length.
        old_len: u64,
        /// The new length.
        new_len: u64,
        /// `MREMAP_*`.
        flags: u32,
        /// The requested address.
        new_addr: VirtAddr,
    },
    /// `madvise(2)`.
    Advise {
        /// Start.
        addr: VirtAddr,
        /// Length in bytes.
        len: u64,
        /// `MADV_*`.
        advice: u32,
    },
    /// `process_madvise(2)` on the calling process.
    AdviseRanges {
        /// Start and length of each range.
        ranges: [(VirtAddr, u64); 2],
        /// `MADV_*`.
        advice: u32,
    },
    /// `mlock2(2)`.
    Lock {
        /// Start.
        addr: VirtAddr,
        /// Length in bytes.
        len: u64,
        /// `MLOCK_*`.
        flags: u32,
    },
    /// `munlock(2)`.
    Unlock {
        /// Start.
        addr: VirtAddr,
        /// Length in bytes.
        len: u64,
    },
    /// `mlockall(2)`.
    LockAll {
        /// `MCL_*`.
        flags: u32,
    },
    /// `munlockall(2)`.
    UnlockAll,
    /// `msync(2)`.
    Sync {
        /// Start.
        addr: VirtAddr,
        /// Length in bytes.
        len: u64,
        /// `MS_*`.
        flags: u32,
    },
    /// `mincore(2)`; the result for each page is reported with [`Spec::mincore_page`].
    Resident {
        /// Start.
        addr: VirtAddr,
        /// Length in bytes.
        len: u64,
    },
    /// `mseal(2)`.
    Seal {
        /// Start.
        addr: VirtAddr,
        /// Length in bytes.
        len: u64,
        /// `mseal` has no flags: anything but 0 is an error.
        flags: u32,
    },
    /// `setrlimit(2)`.
    Limit {
        /// `RLIMIT_*`.
        resource: u32,
        /// The new limit in bytes.
        bytes: u64,
    },
}

impl ExclusiveCall {
    /// The name of the call, with its advice if it is `madvise`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Remap { .. } => "mremap",
            Self::Advise { advice, .. } => madvise::name(*advice),
            Self::AdviseRanges { .. } => "process_madvise",
            Self::Lock { .. } => "mlock2",
            Self::Unlock { .. } => "munlock",
            Self::LockAll { .. } => "mlockall",
            Self::UnlockAll => "munlockall",
            Self::Sync { .. } => "msync",
            Self::Resident { .. } => "mincore",
            Self::Seal { .. } => "mseal",
            Self::Limit { .. } => "setrlimit",
        }
    }
}

impl fmt::Display for ExclusiveCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::Remap { addr, old_len, new_len, flags, new_addr } => {
                write!(f, "mremap({addr}, {old_len:#x}, {new_len:#x}, flags {flags:#x}, {new_addr})")
            }
            Self::Advise { addr, len, advice } => write!(f, "madvise({addr}, {len:#x}, advice {advice})"),
            Self::AdviseRanges { ranges: [(a, m), (b, n)], advice } => {
                write!(f, "process_madvise({a} {m:#x}, {b} {n:#x}, advice {advice})")
            }
            Self::Lock { addr, len, flags } | Self::Sync { addr, len, flags } | Self::Seal { addr, len, flags } => {
                write!(f, "{name}({addr}, {len:#x}, flags {flags:#x})")
            }
            Self::Unlock { addr, len } | Self::Resident { addr, len } => write!(f, "{name}({addr}, {len:#x})"),
            Self::LockAll { flags } => write!(f, "mlockall({flags:#x})"),
            Self::UnlockAll => f.write_str(name),
            Self::Limit { resource, bytes } => write!(f, "setrlimit({resource}, {bytes:#x})"),
        }
    }
}

/// The effect of a call on one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Its mapping has these flags from now on.
    Flags(MappingFlags),
    /// Its private copy is dropped.
    Drop,
    /// Its private copy may be dropped at any time (`MADV_FREE`).
    Free,
    /// Its private copy is dropped, and accesses get a signal (`MADV_GUARD_INSTALL`).
    Guard,
    /// The guard is removed (`MADV_GUARD_REMOVE`).
    Unguard,
    /// It is faulted in for a write, which may make a private copy.
    Copy,
    /// It may have been faulted in for a write.
    MayCopy,
    /// Its shared memory is discarded (`MADV_REMOVE`).
    Punch,
}

/// The expected result of a call and its effects on pages.
struct CallEffect {
    result: CallResult,
    changes: Vec<(u64, Change)>,
}

impl CallEffect {
    fn failed(errno: Errno) -> Self {
        Self { result: CallResult::Failed(errno), changes: Vec::new() }
    }

    fn done() -> Self {
        Self { result: CallResult::Done, changes: Vec::new() }
    }

    fn ends(self, result: CallResult) -> Self {
        Self { result, ..self }
    }
}

/// A length rounded up to pages; it may wrap to 0, as in Linux's `PAGE_ALIGN`.
fn rounded(len: u64) -> u64 {
    len.wrapping_add(PAGE_SIZE - 1) / PAGE_SIZE * PAGE_SIZE
}

/// The pages of a range whose start is page-aligned.
fn pages(addr: VirtAddr, len: u64) -> Option<PageRange> {
    PageRange::from_len(addr, len).ok()
}

fn indices(range: PageRange) -> impl Iterator<Item = u64> {
    range.start().page_index()..range.end().page_index()
}

impl Process {
    /// The mapping of page `index`, which must not be uncertain.
    fn mapped(&self, index: u64) -> Option<PageMapping> {
        self.pages.get(&index)?.states.first()?.map
    }

    /// All mapped pages, in order.
    fn all_mapped(&self) -> Vec<(u64, PageMapping)> {
        let mut all: Vec<(u64, PageMapping)> =
            self.pages.keys().filter_map(|index| Some((*index, self.mapped(*index)?))).collect();
        all.sort_unstable_by_key(|(index, _)| *index);
        all
    }

    /// The mapped pages of `range`, in order, and whether all of its pages are mapped.
    ///
    /// The range may be far larger than what is mapped.
    fn mapped_in(&self, range: PageRange) -> (Vec<(u64, PageMapping)>, bool) {
        let mut all = if range.pages() <= 1 << 12 {
            indices(range).filter_map(|index| Some((index, self.mapped(index)?))).collect()
        } else {
            self.all_mapped()
        };
        all.retain(|(index, _)| range.contains(VirtAddr::from_page_index(*index)));
        let whole = all.len() as u64 == range.pages();
        (all, whole)
    }

    /// Whether no call is in flight and the mapping of every page is certain.
    pub(super) fn is_certain(&self) -> bool {
        self.pending.is_empty() && self.pages.values().all(|page| page.map().is_ok())
    }

    /// Whether it is uncertain for some page of `range` that it is mapped.
    fn may_be_mapped(&self, range: PageRange) -> bool {
        let uncertain = |page: &Page| {
            let free = page.states.iter().filter(|state| state.map.is_none()).count();
            0 < free && free < page.states.len()
        };
        let mut inside = self.pages.iter().filter(|(index, _)| range.contains(VirtAddr::from_page_index(**index)));
        inside.any(|(_, page)| uncertain(page))
    }
}

impl PossibleState {
    fn changed(&self, change: Change, files: &Files) -> Self {
        let with = |map: PageMapping, flags| Some(PageMapping { flags, ..map });
        let mut state = self.clone();
        let Some(map) = self.map else { return state };
        match change {
            Change::Flags(flags) => {
                state.map = with(map, MappingFlags { guarded: map.flags.guarded, ..flags });
            }
            Change::Drop | Change::Free => state.own = None,
            Change::Guard => {
                state.own = None;
                state.map = with(map, MappingFlags { guarded: true, ..map.flags });
            }
            Change::Unguard => state.map = with(map, MappingFlags { guarded: false, ..map.flags }),
            Change::Copy | Change::MayCopy => {
                if let (PageBacking::File { file, index }, None, false) = (map.backing, &self.own, map.shared)
                    && let Some(known) = files.0.get(&file)
                    && map.rights.contains(Rights::WRITE)
                    && known.has(index).0
                {
                    state.own = Some(PageContents::Cow(known.page(file, index)));
                }
            }
            Change::Punch => {}
        }
        state
    }
}

impl Page {
    /// Applies a change that has happened (`surely`) or may have happened.
    fn change(&mut self, change: Change, surely: bool, files: &Files) {
        let changed: Vec<PossibleState> = self.states.iter().map(|state| state.changed(change, files)).collect();
        if surely && !matches!(change, Change::Free | Change::MayCopy) {
            self.states.clear();
        }
        self.drops += 1;
        self.fleeting |= change == Change::Free;
        if !matches!(change, Change::Flags(_)) {
            self.forget_soft_dirty();
        }
        for state in changed {
            self.add(state);
        }
    }
}

impl Spec {
    /// Judges the result of an exclusive call and applies its effects.
    ///
    /// # Errors
    /// The possible results, in words.
    pub(super) fn exclusive_call(
        &mut self,
        by: CpuStep,
        space: SpaceId,
        call: &ExclusiveCall,
        result: CallResult,
    ) -> Result<(), String> {
        let may_fail = self.memory_may_fail;
        if let ExclusiveCall::Remap { .. } = call {
            return self.remapped(by, space, call, result);
        }
        if let ExclusiveCall::Limit { resource, bytes } = *call {
            self.process(space).limits.set(resource, bytes);
        }
        let effect = self.expected_effect(space, call);
        let may_lack_memory =
            may_fail && matches!(result, CallResult::Failed(Errno::ENOMEM | Errno::EAGAIN) | CallResult::Bytes(_));
        let surely = effect.result == result && !may_lack_memory;
        if surely && let ExclusiveCall::LockAll { flags } = *call {
            self.process(space).lock_future(flags, result);
        }
        if surely && *call == ExclusiveCall::UnlockAll {
            self.process(space).lock_future(0, result);
        }
        if !surely && !may_lack_memory {
            return Err(effect.result.to_string());
        }
        self.apply(by, space, call.name(), &effect.changes, surely);
        self.process(space).mark_seams_of(call);
        Ok(())
    }

    /// The result and the effects of a call if no allocation fails.
    fn expected_effect(&self, space: SpaceId, call: &ExclusiveCall) -> CallEffect {
        let process = &self.processes[&space];
        match *call {
            ExclusiveCall::Advise { addr, len, advice } => self.advised(process, addr, len, advice),
            ExclusiveCall::AdviseRanges { ranges, advice } => self.advised_ranges(process, ranges, advice),
            ExclusiveCall::Lock { addr, len, flags } => process.lock(&self.files, addr, len, flags),
            ExclusiveCall::Unlock { addr, len } => process.unlock(addr, len),
            ExclusiveCall::LockAll { flags } => process.lock_all(flags),
            ExclusiveCall::UnlockAll => process.unlock_all(),
            ExclusiveCall::Sync { addr, len, flags } => process.sync(addr, len, flags),
            ExclusiveCall::Resident { addr, len } => process.mincore(addr, len, self.user_end),
            ExclusiveCall::Seal { addr, len, flags } => process.seal(addr, len, flags),
            ExclusiveCall::Limit { .. } | ExclusiveCall::Remap { .. } => CallEffect::done(),
        }
    }

    /// Records that a page may have been faulted in for a write.
    pub(super) fn may_have_copied(&mut self, space: SpaceId, va: VirtAddr) {
        let Self { processes, files, .. } = self;
        let page = processes.get_mut(&space).and_then(|process| process.pages.get_mut(&va.page_index()));
        if let Some(page) = page {
            page.change(Change::MayCopy, false, files);
        }
    }

    fn apply(&mut self, by: CpuStep, space: SpaceId, name: &'static str, changes: &[(u64, Change)], surely: bool) {
        let Self { processes, files, .. } = self;
        let process = processes.get_mut(&space).expect("a process that was added and has not exited");
        let mut punched = Vec::new();
        for (index, change) in changes {
            let Some(page) = process.pages.get_mut(index) else { continue };
            page.changed = Some((by, name));
            if *change == Change::Punch {
                let backing = page.states.first().and_then(|state| state.map).map(|map| map.backing);
                if let Some(PageBacking::File { file: id, index }) = backing
                    && let Some(file) = files.0.get_mut(&id)
                {
                    // This allocates nothing, so it has happened.
                    file.discard(index);
                    punched.push((id, index));
                }
            }
            page.change(*change, surely, files);
        }
        if !punched.is_empty() {
            self.forget_soft_dirty_of(|file, index| punched.contains(&(file, index)));
        }
    }
}

impl Process {
    /// Marks where a call may have split VMAs: at the start and at the end of its range.
    fn mark_seams_of(&mut self, call: &ExclusiveCall) {
        let ranges = match *call {
            ExclusiveCall::Advise { addr, len, .. } | ExclusiveCall::Seal { addr, len, .. } => [(addr, len), (addr, 0)],
            ExclusiveCall::AdviseRanges { ranges, .. } => ranges,
            ExclusiveCall::Lock { addr, len, .. } | ExclusiveCall::Unlock { addr, len } => {
                [mlock::touched(addr, len), (addr, 0)]
            }
            ExclusiveCall::LockAll { .. }
            | ExclusiveCall::UnlockAll
            | ExclusiveCall::Sync { .. }
            | ExclusiveCall::Resident { .. }
            | ExclusiveCall::Limit { .. }
            | ExclusiveCall::Remap { .. } => return,
        };
        for (addr, len) in ranges {
            if let Some(range) = pages(addr, len).filter(|range| !range.is_empty()) {
                self.mark_seams(range);
            }
        }
    }
}
