//! Where the two sides differ by intention ([`KnownDifference`]).
//!
//! [`History`] decides what the comparison leaves out because of these differences. A program for
//! each shows that it still exists.

use super::memory_usage::ComparedFigures;
use super::observation::{AccessSignal, Observation};
use super::pair::{BothResults, Pair};
use super::{AgainstError, HugePrograms, nth};
use crate::random::{HEAP, MappedObject, Operation, Syscall, Window};
use pagewright_model::spec::{ExclusiveCall, MmapPlacement, RangeCall};
use pagewright_syscall::KnownDifference;
use pagewright_types::{Access, Errno, Level, PAGE_SIZE, Rights, VirtAddr};

/// The effect on Linux of a call that failed on both sides, and has no effect here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailedCallEffect {
    /// This range, of start and length, may be unmapped: both sides unmap it and go on.
    Unmapped(VirtAddr, u64),
    /// A part of a mapping may be unmapped: the program ends.
    Shorter,
}

/// `PROT_GROWSDOWN`: the call extends to the start of a VMA, so VMA borders matter.
pub(super) const PROT_GROWSDOWN: u32 = 0x100_0000;
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
const MADV_DONTNEED: u32 = 4;
const MADV_DONTNEED_LOCKED: u32 = 24;
const MADV_FREE: u32 = 8;
const MADV_HUGEPAGE: u32 = 14;
const MADV_COLD: u32 = 20;
const MADV_POPULATE_READ: u32 = 22;
const MADV_POPULATE_WRITE: u32 = 23;
const MADV_GUARD_INSTALL: u32 = 102;
const MADV_DONTFORK: u32 = 10;
const MADV_DOFORK: u32 = 11;
/// A number that is no `MADV_*` of Linux.
const MADV_UNKNOWN: u32 = 5;

/// The effect that a failed call may have on Linux ([`KnownDifference::FailedMove`]).
pub(super) fn failed_call_effect(operation: &Operation, observed: &Observation) -> Option<FailedCallEffect> {
    let Observation::Failed(errno) = *observed else { return None };
    if let Operation::Syscall(Syscall::Exclusive(ExclusiveCall::Remap { flags, new_addr, new_len, old_len, .. })) =
        *operation
        && flags & MREMAP_FIXED != 0
    {
        let shrinks = old_len > new_len && errno != Errno::EINVAL.number();
        return Some(if shrinks { FailedCallEffect::Shorter } else { FailedCallEffect::Unmapped(new_addr, new_len) });
    }
    None
}

/// What a program has done that affects later observations on one side only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    /// Its forks share page tables on our side ([`KnownDifference::SharedTables`]).
    shares: bool,
    /// It mapped shared memory or a file.
    mapped_shared: bool,
    /// It called `MADV_PAGEOUT` on such memory.
    paged_out: bool,
    /// It called `fallocate`.
    allocated: bool,
    /// It locked memory.
    locked: bool,
    /// It mapped memory with `MAP_GROWSDOWN`.
    mapped_stack: bool,
    /// It asked for huge pages.
    advised_huge: bool,
    /// It gave advice that may have split one: [`KnownDifference::SplitZeroes`].
    split_huge: bool,
    /// It emptied a table that stays here: [`KnownDifference::EmptiedTables`].
    emptied_table: bool,
    /// It installed guards.
    guarded: bool,
    /// Fault-around may have mapped other pages.
    ///
    /// Either the file was short ([`KnownDifference::PastEnd`]), or VMA borders differ
    /// ([`KnownDifference::FailedMapCuts`], `MAP_STACK` before Linux 6.7).
    fault_around_differs: bool,
    /// A call or another process accessed pages: [`KnownDifference::UsedByCalls`].
    used_by_calls: bool,
    /// Fork may have copied other entries, or shared them.
    ///
    /// See [`KnownDifference::ForkCopies`] and [`KnownDifference::SharedTables`].
    fork_differs: bool,
    /// It called `vmsplice`.
    spliced: bool,
    /// A store may have changed a page in the pipe on our side only.
    ///
    /// See [`KnownDifference::SplicedPage`].
    pipe_differs: bool,
    /// It set `RLIMIT_DATA`.
    limited_data: bool,
    /// VMA borders may differ.
    ///
    /// There was a fork, `MAP_STACK`, which Linux before 6.7 ignores, or a move
    /// ([`KnownDifference::MovedCopies`]).
    borders_differ: bool,
}

impl History {
    /// Of a program whose forks share page tables on our side, or do not.
    pub(super) fn of(shares: bool) -> Self {
        Self { shares, ..Self::default() }
    }

    /// Whether a call can be compared.
    pub(super) fn can_compare(self, call: &Syscall) -> bool {
        if let Syscall::MincoreInto { .. } = call {
            return !self.residence_may_differ();
        }
        // [`KnownDifference::LockStays`]
        !(self.locked
            && matches!(call, Syscall::Exclusive(ExclusiveCall::Remap { flags, .. }) if flags & MREMAP_DONTUNMAP != 0))
    }

    /// Whether pages may be resident on one side only.
    ///
    /// See [`KnownDifference::PagedOut`], [`KnownDifference::Allocated`],
    /// [`KnownDifference::ForkCopies`], [`KnownDifference::SharedTables`],
    /// [`KnownDifference::SplitZeroes`] and [`KnownDifference::EmptiedTables`].
    pub(super) fn residence_may_differ(self) -> bool {
        self.paged_out || self.allocated || self.fork_differs || self.split_huge || self.emptied_table
    }

    /// Whether pages may be mapped by the page tables on one side only.
    pub(super) fn presence_may_differ(self) -> bool {
        self.residence_may_differ() || self.fault_around_differs || self.borders_differ
    }

    /// Whether an operation may fault on one side only.
    ///
    /// A call may if there is other than private anonymous memory: fault-around depends on VMA
    /// borders, and for stores to shared memory see [`KnownDifference::DirtyAtOnce`].
    pub(super) fn faults_may_differ(self, operation: &Operation) -> bool {
        match operation {
            Operation::Fork | Operation::Exit { .. } => true,
            Operation::Access { .. } => self.residence_may_differ(),
            _ => self.residence_may_differ() || self.mapped_shared,
        }
    }

    /// The figures of memory usage that can be compared.
    pub(super) fn compared_figures(self) -> ComparedFigures {
        let files = !(self.fault_around_differs || self.used_by_calls);
        ComparedFigures {
            files,
            resident: !self.residence_may_differ(),
            used: !self.used_by_calls,
            charged: !self.borders_differ,
        }
    }

    /// Whether the bytes in the pipe may differ.
    pub(super) fn pipe_may_differ(self) -> bool {
        self.pipe_differs
    }

    /// Whether `mprotect` may fail by `RLIMIT_DATA`, which it checks VMA by VMA.
    pub(super) fn limits_data(self) -> bool {
        self.limited_data
    }

    /// Whether ours may have VMA borders that Linux does not have.
    pub(super) fn borders_may_differ(self) -> bool {
        self.borders_differ
    }

    /// Records a fork; `same_borders`: the VMA borders of both sides are the same.
    pub(super) fn record_fork(&mut self, same_borders: bool) {
        self.fork_differs |= self.shares || !same_borders || self.mapped_stack || self.guarded;
        self.pipe_differs |= self.shares && self.spliced;
        self.borders_differ = true;
    }

    /// Records an operation and what it showed on Linux.
    pub(super) fn record(&mut self, operation: &Operation, observed: &Observation) {
        let is_map = matches!(operation, Operation::Mmap { .. } | Operation::Syscall(Syscall::Mmap { .. }));
        let splits = [Errno::ENOMEM, Errno::EPERM].map(|errno| Observation::Failed(errno.number()));
        self.fault_around_differs |=
            *observed == Observation::Signal(AccessSignal::PastEnd) || is_map && splits.contains(observed);
        if let Operation::Mmap { populate, object, .. } = operation {
            self.used_by_calls |= populate;
            self.mapped_shared |= *object != MappedObject::PrivateAnon;
        }
        self.emptied_table |= self.advised_huge && discards_block(operation);
        let Operation::Syscall(call) = operation else { return };
        self.spliced |= matches!(call, Syscall::Vmsplice { .. });
        if let Some(advice) = call.advice() {
            self.paged_out |= advice == MADV_PAGEOUT && self.mapped_shared;
            self.guarded |= advice == MADV_GUARD_INSTALL;
            self.advised_huge |= advice == MADV_HUGEPAGE;
            self.split_huge |= self.advised_huge && matches!(advice, MADV_FREE | MADV_COLD | MADV_PAGEOUT);
            self.used_by_calls |= matches!(advice, MADV_COLD | MADV_POPULATE_READ | MADV_POPULATE_WRITE);
        } else if let Syscall::Mmap { flags, .. } = *call {
            self.mapped_shared |= flags & (MAP_ANONYMOUS | MAP_PRIVATE) != MAP_ANONYMOUS | MAP_PRIVATE;
            self.locked |= flags & MAP_LOCKED != 0;
            self.used_by_calls |= flags & (MAP_LOCKED | MAP_POPULATE) != 0;
            self.mapped_stack |= flags & MAP_GROWSDOWN != 0;
            self.borders_differ |= flags & MAP_STACK != 0;
            self.fault_around_differs |= flags & MAP_STACK != 0;
        } else if let Syscall::Fallocate { flags, .. } = *call {
            self.allocated |= flags & FALLOC_FL_PUNCH_HOLE == 0;
        } else if let Syscall::Exclusive(ExclusiveCall::Lock { .. })
        | Syscall::Exclusive(ExclusiveCall::LockAll { .. }) = *call
        {
            self.locked = true;
            self.used_by_calls = true;
        } else if let Syscall::ProcessVmReadv { .. }
        | Syscall::ProcessVmWritev { .. }
        | Syscall::Vmsplice { .. }
        | Syscall::MincoreInto { .. } = *call
        {
            self.used_by_calls = true;
        } else if let Syscall::Exclusive(ExclusiveCall::Limit { resource, .. }) | Syscall::SetLimits { resource, .. } =
            *call
        {
            self.limited_data |= resource == RLIMIT_DATA;
        } else if let Syscall::Exclusive(ExclusiveCall::Remap { flags, .. }) = *call {
            self.borders_differ = true;
            self.emptied_table |= self.advised_huge && flags & MREMAP_FIXED != 0;
        }
    }
}

/// Whether an operation discards the pages of a block of 2 MiB.
fn discards_block(operation: &Operation) -> bool {
    let discards = |advice| matches!(advice, MADV_DONTNEED | MADV_DONTNEED_LOCKED);
    let covers = |addr: VirtAddr, len: u64| {
        let (block, end) = (Level::PMD.span(), addr.raw().saturating_add(len).saturating_add(PAGE_SIZE - 1));
        let first = addr.raw().checked_next_multiple_of(block);
        first.is_some_and(|first| first.saturating_add(block) <= end)
    };
    match *operation {
        Operation::Range(RangeCall::DontNeed { addr, len }) => covers(addr, len),
        Operation::Syscall(Syscall::Exclusive(ExclusiveCall::Advise { addr, len, advice })) => {
            discards(advice) && covers(addr, len)
        }
        Operation::Syscall(Syscall::Exclusive(ExclusiveCall::AdviseRanges { ranges, advice })) => {
            discards(advice) && ranges.iter().any(|(addr, len)| covers(*addr, *len))
        }
        _ => false,
    }
}

/// The address of a page of the window.
fn page(index: u64) -> VirtAddr {
    Window::of(nth(0, 0, HugePrograms::Some).shape).page(index)
}

/// The start and length of `count` pages of the window from page `first` on.
fn pages(first: u64, count: u64) -> (VirtAddr, u64) {
    (page(first), count * PAGE_SIZE)
}

fn map((at, len): (VirtAddr, u64), object: MappedObject) -> Operation {
    Operation::Mmap { place: MmapPlacement::Fixed(at), len, rights: Rights::RW, object, populate: false }
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

const MAPS: Operation = Operation::Syscall(Syscall::ShowMaps);
const ANON: MappedObject = MappedObject::PrivateAnon;

/// A program whose last operation shows the difference.
fn program_of(difference: KnownDifference) -> Vec<Operation> {
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
        KnownDifference::FailedMapCuts => vec![
            map(pages(0, 48), MappedObject::PrivateFile(1)),
            limit(RLIMIT_AS, 37 * PAGE_SIZE),
            map(pages(19, 1), MappedObject::SharedFile(9)),
            MAPS,
        ],
        KnownDifference::MovedCopies => moved_copies(),
        KnownDifference::FetchBringsIn => {
            vec![map(pages(0, 4), ANON), touch(1, Access::Exec), resident(pages(0, 4))]
        }
        KnownDifference::PagedOut => {
            vec![
                map(pages(0, 4), MappedObject::SharedAnon),
                touch(1, Access::Read),
                advise(pages(0, 4), MADV_PAGEOUT),
                resident(pages(0, 4)),
            ]
        }
        KnownDifference::Allocated => {
            let call = Syscall::Fallocate { flags: FALLOC_FL_KEEP_SIZE, offset: 3 * PAGE_SIZE, len: 2 * PAGE_SIZE };
            vec![map(pages(0, 8), MappedObject::SharedFile(1)), Operation::Syscall(call), resident(pages(0, 8))]
        }
        KnownDifference::ForkCopies => fork_copies(),
        KnownDifference::SharedTables => shared_tables(),
        KnownDifference::SplicedPage => spliced_page(),
        KnownDifference::LockStays => vec![
            map(pages(0, 48), ANON),
            lock(pages(33, 6)),
            remap(pages(36, 1), 1 | MREMAP_DONTUNMAP, pages(6, 1)),
            lock(pages(5, 29)),
        ],
        KnownDifference::SplitZeroes => split_zeroes(),
        KnownDifference::EmptiedTables => emptied_tables(),
        KnownDifference::UsedByCalls => used_by_calls(),
        KnownDifference::DirtyAtOnce => dirty_at_once(),
        KnownDifference::PastEnd => past_end(),
        KnownDifference::AdviceFirst => {
            let ranges = [(VirtAddr::new(!(PAGE_SIZE - 1)), PAGE_SIZE), (HEAP, PAGE_SIZE)];
            vec![Operation::Syscall(Syscall::Exclusive(ExclusiveCall::AdviseRanges { ranges, advice: MADV_UNKNOWN }))]
        }
    }
}

/// A flag separates two neighbouring VMAs while they move, and then is cleared.
///
/// One of them has a copied page.
fn moved_copies() -> Vec<Operation> {
    vec![
        map(pages(0, 48), MappedObject::PrivateFile(1)),
        touch(44, Access::Write),
        advise(pages(24, 24), MADV_DONTFORK),
        map(pages(0, 41), MappedObject::PrivateFile(1)),
        remap(pages(40, 6), MREMAP_MAYMOVE_FIXED, pages(24, 6)),
        advise(pages(24, 22), MADV_DOFORK),
        MAPS,
    ]
}

/// A process with a mapping that is two on Linux reads a page of the second, and forks.
fn fork_copies() -> Vec<Operation> {
    vec![
        map(pages(0, 48), ANON),
        limit(RLIMIT_AS, 37 * PAGE_SIZE),
        map(pages(19, 1), MappedObject::SharedFile(9)),
        touch(0, Access::Write),
        touch(30, Access::Read),
        Operation::Fork,
        Operation::Switch { to: 1 },
        resident(pages(24, 24)),
    ]
}

/// A child is asked for the zero page that its parent read.
fn shared_tables() -> Vec<Operation> {
    vec![
        map(pages(0, 4), ANON),
        touch(1, Access::Read),
        Operation::Fork,
        Operation::Switch { to: 1 },
        resident(pages(0, 4)),
    ]
}

/// A process stores to a page in a pipe, after its child has ended.
fn spliced_page() -> Vec<Operation> {
    vec![
        map(pages(0, 4), ANON),
        touch(1, Access::Write),
        Operation::Syscall(Syscall::Vmsplice { addr: page(1) }),
        Operation::Fork,
        Operation::Switch { to: 1 },
        Operation::Exit { lazily: false },
        touch(1, Access::Write),
        Operation::Syscall(Syscall::ReadPipe),
    ]
}

/// A block of 2 MiB, whose pages the program uses as huge pages.
const BLOCK: (VirtAddr, u64) = (VirtAddr::new(0xc020_0000), Level::PMD.span());

fn advise((addr, len): (VirtAddr, u64), advice: u32) -> Operation {
    Operation::Syscall(Syscall::Exclusive(ExclusiveCall::Advise { addr, len, advice }))
}

/// A program with a huge page in the block.
fn huge_block() -> Vec<Operation> {
    let write = Operation::Access { va: BLOCK.0.add(7 * PAGE_SIZE), access: Access::Write };
    vec![map(BLOCK, ANON), advise(BLOCK, MADV_HUGEPAGE), write]
}

/// A part of a huge page that is mapped by page is freed lazily.
fn split_zeroes() -> Vec<Operation> {
    let then = vec![
        Operation::Range(RangeCall::Mprotect { addr: BLOCK.0, len: BLOCK.1 / 2, rights: Rights::READ }),
        advise(BLOCK, MADV_FREE),
        Operation::Syscall(Syscall::ShowSmaps),
    ];
    [huge_block(), then].concat()
}

/// A page is stored to after all pages of its table have been discarded.
fn emptied_tables() -> Vec<Operation> {
    let then = vec![
        Operation::Range(RangeCall::DontNeed { addr: BLOCK.0, len: PAGE_SIZE }),
        Operation::Range(RangeCall::DontNeed { addr: BLOCK.0, len: BLOCK.1 }),
        Operation::Access { va: BLOCK.0, access: Access::Write },
        Operation::Syscall(Syscall::ShowSmaps),
    ];
    [huge_block(), then].concat()
}

/// A call faults pages in, and a child inherits them.
fn used_by_calls() -> Vec<Operation> {
    vec![
        map(pages(0, 4), ANON),
        lock(pages(0, 4)),
        Operation::Fork,
        Operation::Switch { to: 1 },
        Operation::Syscall(Syscall::ShowSmaps),
    ]
}

/// A program stores to a file's page through one mapping and reads it through another.
fn dirty_at_once() -> Vec<Operation> {
    vec![
        map(pages(0, 4), MappedObject::SharedFile(1)),
        touch(0, Access::Read),
        touch(0, Access::Write),
        map(pages(8, 4), MappedObject::SharedFile(1)),
        touch(8, Access::Read),
        Operation::Syscall(Syscall::ShowSmaps),
    ]
}

/// A child reads the page next to one that its parent stored to.
fn past_end() -> Vec<Operation> {
    vec![
        map(pages(0, 16), MappedObject::SharedFile(1)),
        Operation::Truncate { pages: 2 },
        touch(0, Access::Write),
        Operation::Fork,
        Operation::Switch { to: 1 },
        touch(1, Access::Read),
        Operation::Syscall(Syscall::ShowSmaps),
    ]
}

/// The observations of Linux and ours that show a known difference; `None` if they are the same.
///
/// # Errors
/// [`AgainstError`], if the host's Linux cannot be used.
pub fn still_differs(difference: KnownDifference) -> Result<Option<(Observation, Observation)>, AgainstError> {
    let mut pair = Pair::start()?;
    if difference == KnownDifference::FetchBringsIn {
        pair.fetch_plainly();
    }
    if !matches!(difference, KnownDifference::SharedTables | KnownDifference::SplicedPage) {
        pair.copy_page_tables();
    }
    pair.begin()?;
    let mut last = None;
    for operation in program_of(difference) {
        last = Some(pair.run_on_both(operation)?);
    }
    pair.finish()?;
    Ok(last.filter(|results| results.linux != results.ours).map(|BothResults { linux, ours }| (linux, ours)))
}
