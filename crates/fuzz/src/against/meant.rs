//! Where the two sides differ because we mean them to: what is left out of the comparison for that,
//! and a program for each that shows that it is still so.

use super::AgainstError;
use super::pair::{Answers, Pair};
use super::seen::{Seen, Signal};
use super::usage::Looked;
use crate::random::{Descriptor, HEAP, Mode, Object, Operation, Syscall, Where, Window};
use pagewright_model::spec::ExclusiveCall;
use pagewright_syscall::KnownDifference;
use pagewright_types::{Access, Errno, PAGE_SIZE, Rights, VirtAddr};

/// How the two sides are left by a call that failed on both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unlike {
    /// These bytes may be unmapped on Linux and not here: they are, on both, before the program
    /// goes on.
    Unmapped(VirtAddr, u64),
    /// A part of a mapping may be gone on Linux and not here: the program ends.
    Shorter,
}

/// Which mapping is meant depends on where each begins.
pub(super) const PROT_GROWSDOWN: u32 = 0x100_0000;
const MAP_PRIVATE_ANONYMOUS_FIXED: u32 = 0x32;
const MAP_PRIVATE: u32 = 2;
const MAP_ANONYMOUS: u32 = 0x20;
const MAP_GROWSDOWN: u32 = 0x100;
const MAP_LOCKED: u32 = 0x2000;
const MAP_POPULATE: u32 = 0x8000;
const MAP_STACK: u32 = 0x2_0000;
const MREMAP_MAYMOVE_FIXED: u32 = 3;
const MREMAP_FIXED: u32 = 2;
const MREMAP_DONTUNMAP: u32 = 4;
const FALLOC_FL_KEEP_SIZE: u32 = 1;
const FALLOC_FL_PUNCH_HOLE: u32 = 2;
const RLIMIT_DATA: u32 = 2;
const RLIMIT_AS: u32 = 9;
const MADV_PAGEOUT: u32 = 21;
const MADV_COLD: u32 = 20;
const MADV_POPULATE_READ: u32 = 22;
const MADV_POPULATE_WRITE: u32 = 23;
const MADV_GUARD_INSTALL: u32 = 102;
const MADV_DONTFORK: u32 = 10;
const MADV_DOFORK: u32 = 11;
/// Linux knows no advice of this number.
const MADV_UNKNOWN: u32 = 5;

/// How a call leaves the two ([`KnownDifference::FailedMove`]).
pub(super) fn left_by(operation: &Operation, seen: &Seen) -> Option<Unlike> {
    let Seen::Failed(errno) = *seen else { return None };
    if let Operation::Syscall(Syscall::Exclusive(ExclusiveCall::Remap { flags, new_addr, new_len, old_len, .. })) =
        *operation
        && flags & MREMAP_FIXED != 0
    {
        let shrinks = old_len > new_len && errno != Errno::EINVAL.number();
        return Some(if shrinks { Unlike::Shorter } else { Unlike::Unmapped(new_addr, new_len) });
    }
    None
}

/// What a program has done that makes a difference later, because only one side remembers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Past {
    /// There was memory that others may share.
    shared: bool,
    paged_out: bool,
    allocated: bool,
    locked: bool,
    grown: bool,
    guarded: bool,
    /// A fault of a program on a file may have brought in other pages around it:
    /// [`KnownDifference::PastEnd`], or mappings were not the same, even shared ones:
    /// [`KnownDifference::StackFlag`], [`KnownDifference::FailedMapCuts`].
    around_unlike: bool,
    /// A call, or another process, used pages: [`KnownDifference::UsedByCalls`].
    used: bool,
    forked_unlike: bool,
    /// There is a limit of data, or was one.
    limited: bool,
    /// There was a fork, or a mapping that Linux keeps apart: [`KnownDifference::ChargedPart`]; or
    /// something was moved: [`KnownDifference::MovedCopies`].
    cut_unlike: bool,
}

impl Past {
    /// Whether a call can be compared after all this.
    pub(super) fn allows(self, call: &Syscall) -> bool {
        if let Syscall::ResidentInto { .. } = call {
            return !self.hides_residence();
        }
        // [`KnownDifference::LockStays`]
        !(self.locked
            && matches!(call, Syscall::Exclusive(ExclusiveCall::Remap { flags, .. }) if flags & MREMAP_DONTUNMAP != 0))
    }

    /// Whether pages may be at hand on one side only: [`KnownDifference::PagedOut`],
    /// [`KnownDifference::Allocated`], [`KnownDifference::ForkCopies`].
    pub(super) fn hides_residence(self) -> bool {
        self.paged_out || self.allocated || self.forked_unlike
    }

    /// Whether a page may stand in the tables on one side only.
    pub(super) fn hides_presence(self) -> bool {
        self.hides_residence() || self.around_unlike || self.cut_unlike
    }

    /// What of a process's pages can be compared.
    pub(super) fn looked(self) -> Looked {
        let files = !(self.around_unlike || self.used);
        Looked { files, resident: !self.hides_residence(), used: !self.used, charged: !self.cut_unlike }
    }

    /// Whether a change of rights can be refused by what it comes to, which is reckoned mapping by
    /// mapping.
    pub(super) fn limits_data(self) -> bool {
        self.limited
    }

    /// Whether ours may be cut where Linux's are not.
    pub(super) fn cuts_unlike(self) -> bool {
        self.cut_unlike
    }

    /// A fork, where mappings are the same on both sides or not.
    pub(super) fn forks(&mut self, alike: bool) {
        self.forked_unlike |= !alike || self.grown || self.guarded;
        self.cut_unlike = true;
    }

    pub(super) fn remember(&mut self, operation: &Operation, seen: &Seen) {
        let is_map = matches!(operation, Operation::Map { .. } | Operation::Syscall(Syscall::Map { .. }));
        let cut = [Errno::ENOMEM, Errno::EPERM].map(|errno| Seen::Failed(errno.number()));
        self.around_unlike |= *seen == Seen::Signal(Signal::PastEnd) || is_map && cut.contains(seen);
        if let Operation::Map { populate, object, .. } = operation {
            self.used |= populate;
            self.shared |= *object != Object::PrivateAnon;
        }
        let Operation::Syscall(call) = operation else { return };
        if let Some(advice) = call.advice() {
            self.paged_out |= advice == MADV_PAGEOUT && self.shared;
            self.guarded |= advice == MADV_GUARD_INSTALL;
            self.used |= matches!(advice, MADV_COLD | MADV_POPULATE_READ | MADV_POPULATE_WRITE);
        } else if let Syscall::Map { flags, .. } = *call {
            self.shared |= flags & (MAP_ANONYMOUS | MAP_PRIVATE) != MAP_ANONYMOUS | MAP_PRIVATE;
            self.locked |= flags & MAP_LOCKED != 0;
            self.used |= flags & (MAP_LOCKED | MAP_POPULATE) != 0;
            self.grown |= flags & MAP_GROWSDOWN != 0;
            self.cut_unlike |= flags & MAP_STACK != 0;
            self.around_unlike |= flags & MAP_STACK != 0;
        } else if let Syscall::Allocate { flags, .. } = *call {
            self.allocated |= flags & FALLOC_FL_PUNCH_HOLE == 0;
        } else if let Syscall::Exclusive(ExclusiveCall::Lock { .. })
        | Syscall::Exclusive(ExclusiveCall::LockAll { .. }) = *call
        {
            self.locked = true;
            self.used = true;
        } else if let Syscall::ReadOther { .. }
        | Syscall::WriteOther { .. }
        | Syscall::Splice { .. }
        | Syscall::ResidentInto { .. } = *call
        {
            self.used = true;
        } else if let Syscall::Exclusive(ExclusiveCall::Limit { resource, .. }) | Syscall::BothLimits { resource, .. } =
            *call
        {
            self.limited |= resource == RLIMIT_DATA;
        } else if let Syscall::Exclusive(ExclusiveCall::Remap { .. }) = *call {
            self.cut_unlike = true;
        }
    }
}

/// A page of the window.
fn page(index: u64) -> VirtAddr {
    Window::of(Mode::Linux).start.add(index * PAGE_SIZE)
}

/// So many pages from one of the window's on.
fn pages(first: u64, count: u64) -> (VirtAddr, u64) {
    (page(first), count * PAGE_SIZE)
}

fn map((at, len): (VirtAddr, u64), object: Object) -> Operation {
    Operation::Map { place: Where::Fixed(at), len, rights: Rights::RW, object, populate: false }
}

fn map_raw((addr, len): (VirtAddr, u64), prot: u32, flags: u32) -> Operation {
    let flags = MAP_PRIVATE_ANONYMOUS_FIXED | flags;
    Operation::Syscall(Syscall::Map { addr, len, prot, flags, file: Descriptor::None, offset: 0 })
}

fn touch(index: u64, access: Access) -> Operation {
    Operation::Access { va: page(index), access }
}

fn resident((addr, len): (VirtAddr, u64)) -> Operation {
    Operation::Syscall(Syscall::Exclusive(ExclusiveCall::Resident { addr, len }))
}

fn limit(resource: u32, bytes: u64) -> Operation {
    Operation::Syscall(Syscall::Exclusive(ExclusiveCall::Limit { resource, bytes }))
}

fn remap((addr, old_len): (VirtAddr, u64), flags: u32, (new_addr, new_len): (VirtAddr, u64)) -> Operation {
    Operation::Syscall(Syscall::Exclusive(ExclusiveCall::Remap { addr, old_len, new_len, flags, new_addr }))
}

fn lock((addr, len): (VirtAddr, u64)) -> Operation {
    Operation::Syscall(Syscall::Exclusive(ExclusiveCall::Lock { addr, len, flags: 0 }))
}

fn protect((addr, len): (VirtAddr, u64), rights: Rights) -> Operation {
    Operation::Protect { addr, len, rights }
}

const MAPS: Operation = Operation::Syscall(Syscall::Maps);
const ANON: Object = Object::PrivateAnon;

/// A program whose last operation shows the difference.
fn shown_by(difference: KnownDifference) -> Vec<Operation> {
    match difference {
        KnownDifference::FailedMove => vec![
            map(pages(0, 48), ANON),
            limit(RLIMIT_AS, 2 * PAGE_SIZE),
            remap(pages(3, 7), MREMAP_MAYMOVE_FIXED | MREMAP_DONTUNMAP, pages(29, 7)),
            touch(33, Access::Read),
        ],
        KnownDifference::KeptApart => vec![
            map(pages(0, 4), ANON),
            touch(0, Access::Write),
            map(pages(8, 4), ANON),
            touch(8, Access::Write),
            map(pages(4, 4), ANON),
            MAPS,
        ],
        KnownDifference::StackFlag => vec![map(pages(0, 4), ANON), map_raw(pages(4, 4), 3, MAP_STACK), MAPS],
        KnownDifference::FailedMapCuts => vec![
            map(pages(0, 48), Object::PrivateFile(1)),
            limit(RLIMIT_AS, 37 * PAGE_SIZE),
            map(pages(19, 1), Object::SharedFile(9)),
            MAPS,
        ],
        KnownDifference::ChargedPart => vec![
            map(pages(0, 48), ANON),
            touch(46, Access::Write),
            Operation::Fork,
            Operation::Switch { to: 1 },
            map_raw(pages(24, 12), 1, 0),
            protect(pages(22, 5), Rights::WRITE | Rights::EXEC),
            protect(pages(24, 24), Rights::RX),
            MAPS,
        ],
        KnownDifference::MovedCopies => moved_copies(),
        KnownDifference::FetchBringsIn => {
            vec![map(pages(0, 4), ANON), touch(1, Access::Exec), resident(pages(0, 4))]
        }
        KnownDifference::PagedOut => {
            let (addr, len) = pages(0, 4);
            let advise = Syscall::Exclusive(ExclusiveCall::Advise { addr, len, advice: MADV_PAGEOUT });
            vec![
                map(pages(0, 4), Object::SharedAnon),
                touch(1, Access::Read),
                Operation::Syscall(advise),
                resident(pages(0, 4)),
            ]
        }
        KnownDifference::Allocated => {
            let call = Syscall::Allocate { flags: FALLOC_FL_KEEP_SIZE, offset: 3 * PAGE_SIZE, len: 2 * PAGE_SIZE };
            vec![map(pages(0, 8), Object::SharedFile(1)), Operation::Syscall(call), resident(pages(0, 8))]
        }
        KnownDifference::ForkCopies => fork_copies(),
        KnownDifference::LockStays => vec![
            map(pages(0, 48), ANON),
            lock(pages(33, 6)),
            remap(pages(36, 1), 1 | MREMAP_DONTUNMAP, pages(6, 1)),
            lock(pages(5, 29)),
        ],
        KnownDifference::UsedByCalls => used_by_calls(),
        KnownDifference::DirtyAtOnce => dirty_at_once(),
        KnownDifference::PastEnd => past_end(),
        KnownDifference::AdviceFirst => {
            let ranges = [(VirtAddr::new(!(PAGE_SIZE - 1)), PAGE_SIZE), (HEAP, PAGE_SIZE)];
            vec![Operation::Syscall(Syscall::Exclusive(ExclusiveCall::AdviseRanges { ranges, advice: MADV_UNKNOWN }))]
        }
    }
}

/// Two neighbours of which one has a page of its own are kept apart by a flag while they move, and
/// then have it no longer.
fn moved_copies() -> Vec<Operation> {
    let advise =
        |(addr, len), advice| Operation::Syscall(Syscall::Exclusive(ExclusiveCall::Advise { addr, len, advice }));
    vec![
        map(pages(0, 48), Object::PrivateFile(1)),
        touch(44, Access::Write),
        advise(pages(24, 24), MADV_DONTFORK),
        map(pages(0, 41), Object::PrivateFile(1)),
        remap(pages(40, 6), MREMAP_MAYMOVE_FIXED, pages(24, 6)),
        advise(pages(24, 22), MADV_DOFORK),
        MAPS,
    ]
}

/// A child replaces half of a mapping, reads a page there, and has a child.
fn fork_copies() -> Vec<Operation> {
    vec![
        map(pages(0, 48), ANON),
        touch(8, Access::Write),
        Operation::Fork,
        Operation::Switch { to: 1 },
        map(pages(0, 24), ANON),
        touch(8, Access::Read),
        Operation::Fork,
        Operation::Switch { to: 2 },
        resident(pages(7, 4)),
    ]
}

/// A call brings pages in, and a child has them.
fn used_by_calls() -> Vec<Operation> {
    vec![
        map(pages(0, 4), ANON),
        lock(pages(0, 4)),
        Operation::Fork,
        Operation::Switch { to: 1 },
        Operation::Syscall(Syscall::Usage),
    ]
}

/// A page of a file is stored to through one mapping and shown by another.
fn dirty_at_once() -> Vec<Operation> {
    vec![
        map(pages(0, 4), Object::SharedFile(1)),
        touch(0, Access::Read),
        touch(0, Access::Write),
        map(pages(8, 4), Object::SharedFile(1)),
        touch(8, Access::Read),
        Operation::Syscall(Syscall::Usage),
    ]
}

/// A page beside one of a file is read.
fn past_end() -> Vec<Operation> {
    vec![
        map(pages(0, 16), Object::SharedFile(1)),
        Operation::Truncate { pages: 2 },
        touch(0, Access::Write),
        Operation::Fork,
        Operation::Switch { to: 1 },
        touch(1, Access::Read),
        Operation::Syscall(Syscall::Usage),
    ]
}

/// What the two sides answer where they are to differ; `None` if they don't.
///
/// # Errors
/// [`AgainstError`], when they can't be compared on this machine.
pub fn still_differs(difference: KnownDifference) -> Result<Option<(Seen, Seen)>, AgainstError> {
    let mut pair = Pair::start()?;
    if difference == KnownDifference::FetchBringsIn {
        pair.fetch_plainly();
    }
    pair.begin()?;
    let mut last = None;
    for operation in shown_by(difference) {
        last = Some(pair.answers(operation)?);
    }
    pair.finish()?;
    Ok(last.filter(|answers| answers.linux != answers.ours).map(|Answers { linux, ours }| (linux, ours)))
}
