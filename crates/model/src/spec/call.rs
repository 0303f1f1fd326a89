//! Memory calls in Linux's words, and which answers of theirs are right.
//!
//! Arguments are judged by themselves (`EINVAL` and its like); what depends on the mappings is
//! judged page by page, over everything that the mappings may have been while the call was under
//! way.

use super::exclusive::ExclusiveCall;
use super::file_call::ANY_WRITE;
use super::page::{Effect, MappingFlags, Page, PageBacking, PageMapping};
use core::fmt;
use pagewright_types::{Errno, FileId, PAGE_SIZE, PageRange, Rights, SpaceId, VirtAddr};

/// Where `mmap` is to map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmapPlacement {
    /// Anywhere; a hint counts as no more than that.
    ///
    /// Where it was is told with the answer, and until then nobody is expected to find it.
    Anywhere,
    /// Here, in the place of what is there (`MAP_FIXED`).
    Fixed(VirtAddr),
    /// Here or not at all (`MAP_FIXED_NOREPLACE`).
    FixedNoReplace(VirtAddr),
}

/// What `mmap` maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmapObject {
    /// Zeroes.
    Anon,
    /// A file, from this page of it on.
    File {
        /// Which.
        file: FileId,
        /// First page.
        index: u64,
        /// What the file was opened for.
        opened: Rights,
    },
}

/// A memory call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryCall {
    /// `mmap(2)`.
    Mmap {
        /// Where.
        place: MmapPlacement,
        /// Bytes.
        len: u64,
        /// Rights.
        rights: Rights,
        /// Whether stores go to the object.
        ///
        /// Shared anonymous memory is a file that the caller has told of, opened for everything.
        shared: bool,
        /// What.
        object: MmapObject,
        /// What else is asked for: `MAP_LOCKED` as its lock, `MAP_GROWSDOWN`, `MAP_NORESERVE`.
        flags: MappingFlags,
    },
    /// `munmap(2)`.
    Munmap {
        /// Where.
        addr: VirtAddr,
        /// Bytes.
        len: u64,
    },
    /// `mprotect(2)`.
    Mprotect {
        /// Where.
        addr: VirtAddr,
        /// Bytes.
        len: u64,
        /// The rights from then on.
        rights: Rights,
    },
    /// `madvise(2)` with `MADV_DONTNEED`.
    DontNeed {
        /// Where.
        addr: VirtAddr,
        /// Bytes.
        len: u64,
    },
    /// `brk(2)`.
    Brk {
        /// The break wanted.
        to: VirtAddr,
    },
    /// `fork(2)`.
    Fork,
    /// The end of the process.
    Exit,
    /// A call that has its process for itself: while it is under way, nothing else happens in it.
    Exclusive(ExclusiveCall),
}

impl MemoryCall {
    /// What users call it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Mmap { .. } => "mmap",
            Self::Munmap { .. } => "munmap",
            Self::Mprotect { .. } => "mprotect",
            Self::DontNeed { .. } => "madvise(MADV_DONTNEED)",
            Self::Brk { .. } => "brk",
            Self::Fork => "fork",
            Self::Exit => "exit",
            Self::Exclusive(call) => call.name(),
        }
    }
}

/// What a call answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallResult {
    /// Done.
    Done,
    /// Mapped here.
    Mapped(VirtAddr),
    /// The break is here.
    Break(VirtAddr),
    /// The child is this.
    Child(SpaceId),
    /// So many bytes.
    Bytes(u64),
    /// This number.
    Number(u64),
    /// It failed.
    Failed(Errno),
}

impl fmt::Display for CallResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("success"),
            Self::Mapped(va) => write!(f, "address {va}"),
            Self::Break(va) => write!(f, "break {va}"),
            Self::Child(id) => write!(f, "child {id}"),
            Self::Bytes(bytes) => write!(f, "{bytes} bytes"),
            Self::Number(number) => write!(f, "{number:#x}"),
            Self::Failed(errno) => errno.fmt(f),
        }
    }
}

/// What is known of a call from its arguments alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// It fails, with one of these; nothing changes.
    Refused([Option<Errno>; 3]),
    /// It does nothing, successfully.
    Idle,
    /// It does this.
    Acts(Effect),
    /// It maps so many pages like this wherever there is room.
    Places { pages: u64, first: PageMapping },
}

fn refused(errno: Errno) -> Plan {
    Plan::Refused([Some(errno), None, None])
}

impl MemoryCall {
    /// Judges the arguments (`do_mmap`, `do_vmi_munmap`, `do_mprotect_pkey`,
    /// `madvise_should_skip`). `heap` is the present break, `seals` are those of the file.
    pub(super) fn plan(&self, user_end: VirtAddr, heap: VirtAddr, seals: u32) -> Plan {
        match *self {
            Self::Mmap { place, len, rights, shared, object, flags } => {
                plan_mmap(place, len, (rights, shared, flags), (object, seals), user_end)
            }
            Self::Munmap { addr, len } => match pages(addr, len) {
                Some(range) if !range.is_empty() && range.end() <= user_end => Plan::Acts(Effect::Unmap { range }),
                Some(_) | None => refused(Errno::EINVAL),
            },
            Self::Mprotect { addr, len, rights } => match pages(addr, len) {
                _ if !addr.is_page_aligned() => refused(Errno::EINVAL),
                Some(range) if range.is_empty() => Plan::Idle,
                Some(range) => Plan::Acts(Effect::Protect { range, rights }),
                None => refused(Errno::ENOMEM),
            },
            Self::DontNeed { addr, len } => match pages(addr, len) {
                Some(range) if range.is_empty() => Plan::Idle,
                Some(range) => Plan::Acts(Effect::Drop { range }),
                None => refused(Errno::EINVAL),
            },
            Self::Brk { to } => plan_brk(to, heap),
            Self::Fork | Self::Exit | Self::Exclusive(_) => Plan::Acts(Effect::None),
        }
    }
}

fn pages(addr: VirtAddr, len: u64) -> Option<PageRange> {
    PageRange::from_len(addr, len).ok()
}

fn plan_mmap(
    place: MmapPlacement,
    len: u64,
    (rights, shared, flags): (Rights, bool, MappingFlags),
    (object, seals): (MmapObject, u32),
    user_end: VirtAddr,
) -> Plan {
    if len == 0 {
        return refused(Errno::EINVAL);
    }
    // A stack is nobody else's, and no file's.
    let no_stack = (flags.grows_down && (shared || object != MmapObject::Anon)).then_some(Errno::EINVAL);
    let (max_rights, backing, forbidden) = match object {
        MmapObject::Anon => (Rights::all(), PageBacking::Anon, false),
        MmapObject::File { file, index, opened } => {
            let max_rights = if shared && !opened.contains(Rights::WRITE) { Rights::RX } else { Rights::all() };
            let forbidden = !opened.contains(Rights::READ) || !max_rights.contains(rights);
            (max_rights, PageBacking::File { file, index }, forbidden)
        }
    };
    // What is sealed against writing is mapped shared to be read only, and for good
    // (`memfd_check_seals_mmap`).
    let unwritable = shared && seals & ANY_WRITE != 0;
    let max_rights = if unwritable { max_rights - Rights::WRITE } else { max_rights };
    let first = PageMapping { rights, max_rights, shared, backing, flags };
    let sealed = (unwritable && rights.contains(Rights::WRITE)).then_some(Errno::EPERM);
    let forbidden = forbidden.then_some(Errno::EACCES).or(sealed);
    let too_long = (len > user_end.raw()).then_some(Errno::ENOMEM);
    let (at, misplaced) = match place {
        MmapPlacement::Anywhere => (None, None),
        MmapPlacement::Fixed(at) | MmapPlacement::FixedNoReplace(at) => {
            (Some(at), (!at.is_page_aligned()).then_some(Errno::EINVAL))
        }
    };
    let range = at.and_then(|at| pages(at, len).filter(|range| range.end() <= user_end));
    let outside = (at.is_some() && misplaced.is_none() && range.is_none()).then_some(Errno::ENOMEM);
    // What is there already is noticed before what is to be mapped; whether something is, is not
    // looked at.
    let taken = (range.is_some() && matches!(place, MmapPlacement::FixedNoReplace(_))).then_some(Errno::EEXIST);
    if forbidden.or(too_long).or(misplaced).or(outside).or(no_stack).is_some() {
        return Plan::Refused([forbidden, too_long.or(outside).or(taken), misplaced.or(no_stack)]);
    }
    match range {
        Some(range) => Plan::Acts(Effect::Map { range, first }),
        None => Plan::Places { pages: len.div_ceil(PAGE_SIZE), first },
    }
}

/// The heap is private, anonymous, readable and writable.
fn plan_brk(to: VirtAddr, heap: VirtAddr) -> Plan {
    let first = PageMapping {
        rights: Rights::RW,
        max_rights: Rights::all(),
        shared: false,
        backing: PageBacking::Anon,
        flags: MappingFlags::default(),
    };
    match (heap.align_up(PAGE_SIZE), to.align_up(PAGE_SIZE)) {
        (Some(old), Some(new)) if new > old => Plan::Acts(Effect::Map { range: PageRange::new(old, new), first }),
        (Some(old), Some(new)) if new < old => Plan::Acts(Effect::Unmap { range: PageRange::new(new, old) }),
        (Some(_), Some(_)) => Plan::Idle,
        (_, _) => refused(Errno::ENOMEM),
    }
}

/// What a call may find on the pages of its range, gathered over all the time that it is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outlook {
    /// All pages may be mapped.
    pub(super) all_mapped: bool,
    /// All pages may be free.
    pub(super) all_free: bool,
    /// Some page may be mapped.
    pub(super) any_mapped: bool,
    /// All pages may be mapped and may have the rights wanted.
    pub(super) all_permit: bool,
    /// Some page may be free before one that forbids.
    pub(super) hole: bool,
    /// Some page may forbid the rights wanted before one that is free.
    pub(super) forbids: bool,
    /// Pages from the start that surely permit.
    pub(super) sure: u64,
    /// Pages from the start that possibly permit.
    pub(super) possible: u64,
}

impl Outlook {
    /// Looks at the range of `effect`, whose existing pages `page` finds as they may be now.
    ///
    /// An effect that asks for nothing sees nothing.
    pub(super) fn of(effect: Effect, page: impl Fn(u64) -> Option<Page>) -> Self {
        let (range, rights, until_hole) = match effect {
            Effect::Map { range, .. } => (range, Rights::empty(), false),
            Effect::Protect { range, rights } => (range, rights, true),
            Effect::Drop { range } => (range, Rights::empty(), true),
            Effect::None | Effect::Unmap { .. } => (Effect::None.range(), Rights::empty(), true),
        };
        let total = range.pages();
        let mut look = Self {
            all_mapped: true,
            all_free: true,
            any_mapped: false,
            all_permit: true,
            hole: false,
            forbids: false,
            sure: total,
            possible: total,
        };
        let first = range.start().page_index();
        for index in first..range.end().page_index() {
            let page = page(index).unwrap_or_default();
            let maps = || page.states.iter().map(|state| state.map);
            let free = maps().any(|map| map.is_none());
            let forbids = maps().flatten().any(|map| !map.max_rights.contains(rights));
            let permits = maps().flatten().any(|map| map.max_rights.contains(rights));
            look.all_mapped &= permits || forbids;
            look.all_free &= free;
            look.any_mapped |= permits || forbids;
            if look.all_permit {
                look.hole |= free;
                look.forbids |= forbids;
            }
            if free || forbids {
                look.sure = look.sure.min(index - first);
            }
            if !permits {
                look.possible = look.possible.min(index - first);
                look.all_permit = false;
            }
            if !look.all_permit && !look.all_mapped && (until_hole || !look.all_free) {
                break;
            }
        }
        look
    }

    /// What was possible at one time or at another.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            all_mapped: self.all_mapped || other.all_mapped,
            all_free: self.all_free || other.all_free,
            any_mapped: self.any_mapped || other.any_mapped,
            all_permit: self.all_permit || other.all_permit,
            hole: self.hole || other.hole,
            forbids: self.forbids || other.forbids,
            sure: self.sure.min(other.sure),
            possible: self.possible.max(other.possible),
        }
    }
}
