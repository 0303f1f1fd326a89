//! `madvise`, page by page.
//!
//! As in `madvise_walk_vmas`, holes are skipped and yield `ENOMEM` at the end. The first page that
//! refuses the advice ends the call.

use super::super::call::CallResult;
use super::super::file::Files;
use super::super::file_call::ANY_WRITE;
use super::super::page::{MappingFlags, MlockMode, PageBacking, PageMapping};
use super::super::{Process, Spec};
use super::{CallEffect, Change, pages};
use alloc::vec::Vec;
use pagewright_types::{Errno, PageRange, Rights, VirtAddr};

macro_rules! advice {
    ($($name:ident = $number:literal),* $(,)?) => {
        $(const $name: u32 = $number;)*

        fn is_known(advice: u32) -> bool {
            [$($name),*].contains(&advice)
        }

        /// The name of the call with this advice.
        pub(super) const fn name(advice: u32) -> &'static str {
            match advice {
                $($name => concat!("madvise(MADV_", stringify!($name), ")"),)*
                _ => "madvise(unknown)",
            }
        }
    };
}

// `include/uapi/asm-generic/mman-common.h`. A kernel without KSM and memory failure does not
// know their advice, and one without shared huge pages does not know MADV_COLLAPSE.
advice! {
    NORMAL = 0,
    RANDOM = 1,
    SEQUENTIAL = 2,
    WILLNEED = 3,
    DONTNEED = 4,
    FREE = 8,
    REMOVE = 9,
    DONTFORK = 10,
    DOFORK = 11,
    HUGEPAGE = 14,
    NOHUGEPAGE = 15,
    DONTDUMP = 16,
    DODUMP = 17,
    WIPEONFORK = 18,
    KEEPONFORK = 19,
    COLD = 20,
    PAGEOUT = 21,
    POPULATE_READ = 22,
    POPULATE_WRITE = 23,
    DONTNEED_LOCKED = 24,
    GUARD_INSTALL = 102,
    GUARD_REMOVE = 103,
}

/// Whether the advice discards contents, here or in a child (`is_discard`).
fn discards(advice: u32) -> bool {
    [DONTNEED, FREE, REMOVE, DONTFORK, WIPEONFORK, DONTNEED_LOCKED, GUARD_INSTALL].contains(&advice)
}

/// The error with which a page refuses the advice.
fn refusal(map: &PageMapping, advice: u32, files: &Files) -> Option<Errno> {
    let anonymous = map.backing == PageBacking::Anon;
    if discards(advice) && map.flags.sealed && anonymous && !map.rights.contains(Rights::WRITE) {
        return Some(Errno::EPERM);
    }
    let locked = map.flags.lock != MlockMode::Unlocked;
    let unfit = match advice {
        DONTNEED | COLD | PAGEOUT | GUARD_INSTALL => locked,
        FREE => locked || !anonymous,
        REMOVE => locked || anonymous,
        WIPEONFORK => !anonymous || map.shared,
        _ => false,
    };
    if unfit {
        return Some(Errno::EINVAL);
    }
    if advice != REMOVE {
        return None;
    }
    if !map.shared || !map.max_rights.contains(Rights::WRITE) {
        return Some(Errno::EACCES);
    }
    match map.backing {
        PageBacking::File { file, .. } => match files.0.get(&file) {
            Some(file) if file.shmem => (file.seals.unwrap_or(0) & ANY_WRITE != 0).then_some(Errno::EPERM),
            Some(_) | None => Some(Errno::EOPNOTSUPP),
        },
        PageBacking::Anon => None,
    }
}

/// The effect of the advice on a page.
fn change(map: &PageMapping, advice: u32) -> Option<Change> {
    let flags = map.flags;
    Some(match advice {
        NORMAL | RANDOM | SEQUENTIAL => Change::Flags(MappingFlags { readahead: advice as u8, ..flags }),
        HUGEPAGE | NOHUGEPAGE => Change::Flags(MappingFlags { huge_pages: advice as u8, ..flags }),
        DONTFORK | DOFORK => Change::Flags(MappingFlags { dont_fork: advice == DONTFORK, ..flags }),
        DONTDUMP | DODUMP => Change::Flags(MappingFlags { dont_dump: advice == DONTDUMP, ..flags }),
        WIPEONFORK | KEEPONFORK => Change::Flags(MappingFlags { wipe_on_fork: advice == WIPEONFORK, ..flags }),
        DONTNEED | DONTNEED_LOCKED => Change::Drop,
        FREE => Change::Free,
        REMOVE => Change::Punch,
        GUARD_INSTALL => Change::Guard,
        GUARD_REMOVE => Change::Unguard,
        POPULATE_WRITE => Change::Copy,
        _ => return None,
    })
}

impl Spec {
    pub(super) fn advised(&self, process: &Process, addr: VirtAddr, len: u64, advice: u32) -> CallEffect {
        match pages(addr, len) {
            Some(_) if !is_known(advice) => CallEffect::failed(Errno::EINVAL),
            Some(range) => process.advised(range, advice, &self.files),
            None => CallEffect::failed(Errno::EINVAL),
        }
    }

    /// The result and the effects of `process_madvise`.
    ///
    /// The ranges are advised in turn until one fails. If an earlier one succeeded, the result is
    /// the number of bytes before the failure.
    pub(super) fn advised_ranges(&self, process: &Process, ranges: [(VirtAddr, u64); 2], advice: u32) -> CallEffect {
        if !is_known(advice) || ranges.iter().any(|(_, len)| *len > i64::MAX as u64) {
            return CallEffect::failed(Errno::EINVAL);
        }
        let outside = |(addr, len): &(VirtAddr, u64)| addr.checked_add(*len).is_none_or(|end| end > self.user_end);
        if ranges.iter().any(outside) {
            return CallEffect::failed(Errno::EFAULT);
        }
        let mut changes = Vec::new();
        let (mut bytes, total) = (0, ranges[0].1 + ranges[1].1);
        for (addr, len) in ranges {
            if bytes == total {
                break;
            }
            // The second range is judged without the effects of the first, which matter only where
            // the two overlap.
            let effect = self.advised(process, addr, len, advice);
            changes.extend(effect.changes);
            match effect.result {
                CallResult::Failed(errno) if bytes == 0 => {
                    return CallEffect { result: CallResult::Failed(errno), changes };
                }
                CallResult::Failed(_) => break,
                _ => bytes += len,
            }
        }
        CallEffect { result: CallResult::Bytes(bytes), changes }
    }
}

impl Process {
    fn advised(&self, range: PageRange, advice: u32, files: &Files) -> CallEffect {
        if advice == POPULATE_READ || advice == POPULATE_WRITE {
            return self.populated(range, advice, files);
        }
        let (mapped, whole) = self.mapped_in(range);
        let mut changes = Vec::new();
        for (index, map) in mapped {
            if let Some(errno) = refusal(&map, advice, files) {
                return CallEffect { result: CallResult::Failed(errno), changes };
            }
            changes.extend(change(&map, advice).map(|change| (index, change)));
        }
        let result = if whole { CallResult::Done } else { CallResult::Failed(Errno::ENOMEM) };
        CallEffect { result, changes }
    }

    /// Populates page by page, up to the first page that cannot be faulted in.
    fn populated(&self, range: PageRange, advice: u32, files: &Files) -> CallEffect {
        let needed = if advice == POPULATE_WRITE { Rights::WRITE } else { Rights::READ };
        let mut changes = Vec::new();
        let mut next = range.start().page_index();
        for (index, map) in self.mapped_in(range).0 {
            if index != next {
                break;
            }
            next += 1;
            let errno = if !map.rights.contains(needed) {
                Some(Errno::EINVAL)
            } else if map.flags.guarded || is_past_end(&map, files) {
                Some(Errno::EFAULT)
            } else {
                None
            };
            if let Some(errno) = errno {
                return CallEffect { result: CallResult::Failed(errno), changes };
            }
            changes.extend(change(&map, advice).map(|change| (index, change)));
        }
        let whole = next == range.end().page_index();
        CallEffect { result: if whole { CallResult::Done } else { CallResult::Failed(Errno::ENOMEM) }, changes }
    }
}

/// Whether an access would get `SIGBUS`, because the page is past the end of its file.
pub(super) fn is_past_end(map: &PageMapping, files: &Files) -> bool {
    match map.backing {
        PageBacking::Anon => false,
        PageBacking::File { file, index } => files.0.get(&file).is_none_or(|file| !file.has(index).0),
    }
}
