//! Linux's memory calls, and the results that their arguments and their range allow.
//!
//! The arguments are judged once, at entry (`EINVAL` and similar errors). Results that depend on
//! mappings are judged page by page, over every state that the pages may have had while the call
//! was in flight.

use super::exclusive::ExclusiveCall;
use super::file_call::ANY_WRITE;
use super::page::{Effect, MappingFlags, Page, PageBacking, PageMapping};
use core::fmt;
use pagewright_types::{Errno, FileId, PAGE_SIZE, PageRange, Rights, SpaceId, VirtAddr};

/// Where `mmap` places the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmapPlacement {
    /// Anywhere; an address hint is ignored.
    ///
    /// The result says where. Until the call returns, an access to the mapping is a violation.
    Anywhere,
    /// At this address, replacing what is mapped there (`MAP_FIXED`).
    Fixed(VirtAddr),
    /// At this address, if nothing is mapped there (`MAP_FIXED_NOREPLACE`).
    FixedNoReplace(VirtAddr),
}

/// What `mmap` maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmapObject {
    /// Private anonymous memory.
    Anon,
    /// A file or shared memory.
    File {
        /// The file.
        file: FileId,
        /// The first page of it.
        index: u64,
        /// The rights with which the file was opened.
        opened: Rights,
    },
}

/// A call that changes the pages of a range, or moves the break.
///
/// Other operations of its process may overlap it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeCall {
    /// `munmap(2)`.
    Munmap {
        /// Start.
        addr: VirtAddr,
        /// Length in bytes.
        len: u64,
    },
    /// `mprotect(2)`.
    Mprotect {
        /// Start.
        addr: VirtAddr,
        /// Length in bytes.
        len: u64,
        /// The new protection.
        rights: Rights,
    },
    /// `madvise(2)` with `MADV_DONTNEED`.
    DontNeed {
        /// Start.
        addr: VirtAddr,
        /// Length in bytes.
        len: u64,
    },
    /// `brk(2)`.
    Brk {
        /// The requested break.
        to: VirtAddr,
    },
}

impl RangeCall {
    /// The name of the call, with its advice if it is `madvise`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Munmap { .. } => "munmap",
            Self::Mprotect { .. } => "mprotect",
            Self::DontNeed { .. } => "madvise(MADV_DONTNEED)",
            Self::Brk { .. } => "brk",
        }
    }
}

impl fmt::Display for RangeCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Munmap { addr, len } => write!(f, "munmap({addr}, {len:#x})"),
            Self::Mprotect { addr, len, rights } => write!(f, "mprotect({addr}, {len:#x}, {rights})"),
            Self::DontNeed { addr, len } => write!(f, "madvise({addr}, {len:#x}, MADV_DONTNEED)"),
            Self::Brk { to } => write!(f, "brk({to})"),
        }
    }
}

/// A memory call and its arguments; lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryCall {
    /// `mmap(2)`.
    Mmap {
        /// The placement.
        place: MmapPlacement,
        /// Length in bytes.
        len: u64,
        /// The protection.
        rights: Rights,
        /// `MAP_SHARED`: stores go to the object.
        ///
        /// Shared anonymous memory is an [`MmapObject::File`] opened with all rights, which the
        /// caller has added with [`Spec::add_shmem`](super::Spec::add_shmem).
        shared: bool,
        /// The object.
        object: MmapObject,
        /// `MAP_LOCKED` as the mlock mode, `MAP_GROWSDOWN`, `MAP_NORESERVE`.
        flags: MappingFlags,
    },
    /// A call on a range of addresses.
    Range(RangeCall),
    /// `fork(2)`.
    Fork,
    /// The exit of the process.
    Exit,
    /// A call during which nothing else happens in its process.
    Exclusive(ExclusiveCall),
}

impl MemoryCall {
    /// The name of the call, with its advice if it is `madvise`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Mmap { .. } => "mmap",
            Self::Range(call) => call.name(),
            Self::Fork => "fork",
            Self::Exit => "exit",
            Self::Exclusive(call) => call.name(),
        }
    }
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallResult {
    /// Success, without a value.
    Done,
    /// The address of the mapping.
    Mapped(VirtAddr),
    /// The break after the call.
    Break(VirtAddr),
    /// The child process.
    Child(SpaceId),
    /// A number of bytes.
    Bytes(u64),
    /// Another number.
    Number(u64),
    /// An error.
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

/// What the arguments of a call determine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// It fails with one of these errors and changes nothing.
    Refused([Option<Errno>; 3]),
    /// It succeeds and changes nothing.
    Idle,
    /// It has this effect on its range.
    Acts(Effect),
    /// It maps `pages` pages, the first as `first`, at an address of its choice.
    Places { pages: u64, first: PageMapping },
}

fn refused(errno: Errno) -> Plan {
    Plan::Refused([Some(errno), None, None])
}

impl MemoryCall {
    /// Judges the arguments, as Linux does.
    ///
    /// Linux: `do_mmap`, `do_vmi_munmap`, `do_mprotect_pkey`, `madvise_should_skip`. `heap` is the
    /// current break, `seals` are the seals of the file.
    pub(super) fn plan(&self, user_end: VirtAddr, heap: VirtAddr, seals: u32) -> Plan {
        match *self {
            Self::Mmap { place, len, rights, shared, object, flags } => {
                plan_mmap(place, len, (rights, shared, flags), (object, seals), user_end)
            }
            Self::Range(RangeCall::Munmap { addr, len }) => match pages(addr, len) {
                Some(range) if !range.is_empty() && range.end() <= user_end => Plan::Acts(Effect::Unmap { range }),
                Some(_) | None => refused(Errno::EINVAL),
            },
            Self::Range(RangeCall::Mprotect { addr, len, rights }) => match pages(addr, len) {
                _ if !addr.is_page_aligned() => refused(Errno::EINVAL),
                Some(range) if range.is_empty() => Plan::Idle,
                Some(range) => Plan::Acts(Effect::Protect { range, rights }),
                None => refused(Errno::ENOMEM),
            },
            Self::Range(RangeCall::DontNeed { addr, len }) => match pages(addr, len) {
                Some(range) if range.is_empty() => Plan::Idle,
                Some(range) => Plan::Acts(Effect::Drop { range }),
                None => refused(Errno::EINVAL),
            },
            Self::Range(RangeCall::Brk { to }) => plan_brk(to, heap),
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
    // A stack is private and anonymous.
    let no_stack = (flags.grows_down && (shared || object != MmapObject::Anon)).then_some(Errno::EINVAL);
    let (max_rights, backing, forbidden) = match object {
        MmapObject::Anon => (Rights::all(), PageBacking::Anon, false),
        MmapObject::File { file, index, opened } => {
            let max_rights = if shared && !opened.contains(Rights::WRITE) { Rights::RX } else { Rights::all() };
            let forbidden = !opened.contains(Rights::READ) || !max_rights.contains(rights);
            (max_rights, PageBacking::File { file, index }, forbidden)
        }
    };
    // A shared mapping of a file that is sealed against writing can never become writable
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
    // Linux reports an existing mapping before it looks at the file. Whether there is one does not
    // matter here: both errors are allowed.
    let taken = (range.is_some() && matches!(place, MmapPlacement::FixedNoReplace(_))).then_some(Errno::EEXIST);
    if forbidden.or(too_long).or(misplaced).or(outside).or(no_stack).is_some() {
        return Plan::Refused([forbidden, too_long.or(outside).or(taken), misplaced.or(no_stack)]);
    }
    match range {
        Some(range) => Plan::Acts(Effect::Map { range, first }),
        None => Plan::Places { pages: len.div_ceil(PAGE_SIZE), first },
    }
}

/// The plan of `brk`; the heap is private, anonymous, readable and writable.
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

/// What a call may find on the pages of its range at any time while it is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outlook {
    /// All pages may be mapped.
    pub(super) all_mapped: bool,
    /// All pages may be free.
    pub(super) all_free: bool,
    /// Some page may be mapped.
    pub(super) any_mapped: bool,
    /// All pages may be mapped and permit the requested rights.
    pub(super) all_permit: bool,
    /// The first obstacle may be a page that is free.
    pub(super) hole: bool,
    /// The first obstacle may be a page that forbids the requested rights.
    pub(super) forbids: bool,
    /// Pages from the start that certainly permit.
    pub(super) sure: u64,
    /// Pages from the start that possibly permit.
    pub(super) possible: u64,
}

impl Outlook {
    /// Inspects the range of `effect`; `page` returns an existing page in all its possible states.
    ///
    /// An effect whose result does not depend on mappings inspects nothing, and one that unmaps is
    /// the caller's to inspect.
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

    /// Combines what was possible at two times.
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
