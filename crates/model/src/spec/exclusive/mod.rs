//! Calls that have their process for themselves while they are under way, and what limits and seals
//! mean for the others.
//!
//! - [`ExclusiveCall`] – the calls. `advise`, `lock`, `remap`: what they do, page by page. `limits`: what
//!   may not be passed. `grow`: stacks.
//! - [`Change`] – what becomes of one page. Where memory may fail in the middle of a call, a change
//!   *may* have been made.
//!
//! Mappings are not known here, pages are. Where a call asks whether pages are one mapping
//! (`mremap`), pages that differ surely are not, pages that one call mapped and none has parted
//! since surely are, and of others both answers are right ([`Process::sew`]).
//!
//! Not guaranteed: what may be asked of a page that `MADV_FREE` has given away, until it is stored
//! to.

mod madvise;
mod mlock;
mod mremap;
mod rlimit;
mod stack_growth;

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
pub(super) use rlimit::Denial;
pub use rlimit::MemoryRlimits;

use super::call::CallResult;
use super::contents::PageContents;
use super::file::Files;
use super::page::{MappingFlags, Page, PageBacking, PageMapping, PossibleState};
use super::{Process, Spec};
use crate::violation::CpuStep;
use pagewright_types::{Errno, PAGE_SIZE, PageRange, Rights, SpaceId, VirtAddr};

/// A call that is alone in its process.
///
/// Flags and advice are Linux's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExclusiveCall {
    /// `mremap(2)`.
    Remap {
        /// Where it is.
        addr: VirtAddr,
        /// Its bytes.
        old_len: u64,
        /// The bytes wanted.
        new_len: u64,
        /// `MREMAP_*`.
        flags: u32,
        /// The place wanted.
        new_addr: VirtAddr,
    },
    /// `madvise(2)`.
    Advise {
        /// Where.
        addr: VirtAddr,
        /// Bytes.
        len: u64,
        /// `MADV_*`.
        advice: u32,
    },
    /// `process_madvise(2)` of one's own memory.
    AdviseRanges {
        /// Where, and bytes.
        ranges: [(VirtAddr, u64); 2],
        /// `MADV_*`.
        advice: u32,
    },
    /// `mlock2(2)`.
    Lock {
        /// Where.
        addr: VirtAddr,
        /// Bytes.
        len: u64,
        /// `MLOCK_*`.
        flags: u32,
    },
    /// `munlock(2)`.
    Unlock {
        /// Where.
        addr: VirtAddr,
        /// Bytes.
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
        /// Where.
        addr: VirtAddr,
        /// Bytes.
        len: u64,
        /// `MS_*`.
        flags: u32,
    },
    /// `mincore(2)`; what it says of each page is told with [`Spec::mincore_page`].
    Resident {
        /// Where.
        addr: VirtAddr,
        /// Bytes.
        len: u64,
    },
    /// `mseal(2)`.
    Seal {
        /// Where.
        addr: VirtAddr,
        /// Bytes.
        len: u64,
        /// There are none.
        flags: u32,
    },
    /// `setrlimit(2)`.
    Limit {
        /// `RLIMIT_*`.
        resource: u32,
        /// Bytes.
        bytes: u64,
    },
}

impl ExclusiveCall {
    /// What users call it.
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

/// What becomes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// This is said of it from now on.
    Flags(MappingFlags),
    /// Its private contents go.
    Drop,
    /// They may go.
    Free,
    /// They go, and nobody may touch it.
    Guard,
    /// It may be touched again.
    Unguard,
    /// It gets a private copy, if a store would give it one.
    Copy,
    /// It may have got one.
    MayCopy,
    /// What the shared memory behind it holds goes.
    Punch,
}

/// What a call comes to: what it answers, and what becomes of which pages.
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

/// Bytes rounded up to pages; a length that wraps is none, as with Linux's `PAGE_ALIGN`.
fn rounded(len: u64) -> u64 {
    len.wrapping_add(PAGE_SIZE - 1) / PAGE_SIZE * PAGE_SIZE
}

/// The pages of an argument, whose start must be a page's.
fn pages(addr: VirtAddr, len: u64) -> Option<PageRange> {
    PageRange::from_len(addr, len).ok()
}

fn indices(range: PageRange) -> impl Iterator<Item = u64> {
    range.start().page_index()..range.end().page_index()
}

impl Process {
    /// What is mapped at page `index`.
    ///
    /// Where that is in doubt, whoever makes calls has left this one out.
    fn mapped(&self, index: u64) -> Option<PageMapping> {
        self.pages.get(&index)?.states.first()?.map
    }

    /// All that is mapped, in order.
    fn all_mapped(&self) -> Vec<(u64, PageMapping)> {
        let mut all: Vec<(u64, PageMapping)> =
            self.pages.keys().filter_map(|index| Some((*index, self.mapped(*index)?))).collect();
        all.sort_unstable_by_key(|(index, _)| *index);
        all
    }

    /// Pages of `range` that are mapped, in order, and whether all are.
    ///
    /// A range may be far larger than what is mapped.
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

    /// Whether it is beyond doubt what is mapped, and no call is under way.
    pub(super) fn is_certain(&self) -> bool {
        self.pending.is_empty() && self.pages.values().all(|page| page.map().is_ok())
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
    /// Makes a change, or one that may have been made.
    fn change(&mut self, change: Change, surely: bool, files: &Files) {
        let changed: Vec<PossibleState> = self.states.iter().map(|state| state.changed(change, files)).collect();
        if surely && !matches!(change, Change::Free | Change::MayCopy) {
            self.states.clear();
        }
        self.drops += 1;
        self.fleeting |= change == Change::Free;
        if !matches!(change, Change::Flags(_)) {
            self.blur();
        }
        for state in changed {
            self.add(state);
        }
    }
}

impl Spec {
    /// A call that was alone in its process has answered: judges the answer, and does what it did.
    pub(super) fn alone(
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
        let course = self.course(space, call);
        let lacks =
            may_fail && matches!(result, CallResult::Failed(Errno::ENOMEM | Errno::EAGAIN) | CallResult::Bytes(_));
        let surely = course.result == result && !lacks;
        if surely && let ExclusiveCall::LockAll { flags } = *call {
            self.process(space).lock_future(flags, result);
        }
        if surely && *call == ExclusiveCall::UnlockAll {
            self.process(space).lock_future(0, result);
        }
        if !surely && !lacks {
            return Err(course.result.to_string());
        }
        self.make(by, space, call.name(), &course.changes, surely);
        self.process(space).seams_of(call);
        Ok(())
    }

    /// What a call comes to if memory suffices.
    fn course(&self, space: SpaceId, call: &ExclusiveCall) -> CallEffect {
        let process = &self.processes[&space];
        match *call {
            ExclusiveCall::Advise { addr, len, advice } => self.advised(process, addr, len, advice),
            ExclusiveCall::AdviseRanges { ranges, advice } => self.advised_ranges(process, ranges, advice),
            ExclusiveCall::Lock { addr, len, flags } => process.lock(&self.files, addr, len, flags),
            ExclusiveCall::Unlock { addr, len } => process.unlock(addr, len),
            ExclusiveCall::LockAll { flags } => process.lock_all(flags),
            ExclusiveCall::UnlockAll => process.unlock_all(),
            ExclusiveCall::Sync { addr, len, flags } => process.sync(addr, len, flags),
            ExclusiveCall::Resident { addr, len } => process.ask_resident(addr, len, self.user_end),
            ExclusiveCall::Seal { addr, len, flags } => process.seal(addr, len, flags),
            ExclusiveCall::Limit { .. } | ExclusiveCall::Remap { .. } => CallEffect::done(),
        }
    }

    /// A page may have been made ready to be written.
    pub(super) fn may_have_copied(&mut self, space: SpaceId, va: VirtAddr) {
        let Self { processes, files, .. } = self;
        let page = processes.get_mut(&space).and_then(|process| process.pages.get_mut(&va.page_index()));
        if let Some(page) = page {
            page.change(Change::MayCopy, false, files);
        }
    }

    fn make(&mut self, by: CpuStep, space: SpaceId, name: &'static str, changes: &[(u64, Change)], surely: bool) {
        let Self { processes, files, .. } = self;
        let process = processes.get_mut(&space).expect("a process that was told of and has not ended");
        let mut punched = Vec::new();
        for (index, change) in changes {
            let Some(page) = process.pages.get_mut(index) else { continue };
            page.changed = Some((by, name));
            if *change == Change::Punch {
                let backing = page.states.first().and_then(|state| state.map).map(|map| map.backing);
                if let Some(PageBacking::File { file: id, index }) = backing
                    && let Some(file) = files.0.get_mut(&id)
                {
                    // Needs no memory.
                    file.throw_away(index);
                    punched.push((id, index));
                }
            }
            page.change(*change, surely, files);
        }
        if !punched.is_empty() {
            self.blur_all_of(|file, index| punched.contains(&(file, index)));
        }
    }
}

impl Process {
    /// A call about mappings may part them where its range begins and ends.
    fn seams_of(&mut self, call: &ExclusiveCall) {
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
                self.sew(range);
            }
        }
    }
}
