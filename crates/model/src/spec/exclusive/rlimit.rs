//! Rlimits and seals: why a call fails that could otherwise succeed.

use super::super::Process;
use super::super::call::{MemoryCall, MmapPlacement, Plan, RangeCall};
use super::super::page::{Effect, MlockMode, PageMapping};
use pagewright_types::{Errno, PAGE_SIZE, PageRange, Rights, VirtAddr};

/// The memory limits of `setrlimit`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct MemoryRlimits {
    /// `RLIMIT_DATA`.
    pub(super) data: u64,
    /// `RLIMIT_STACK`.
    pub(super) stack: u64,
    /// `RLIMIT_MEMLOCK`.
    pub(super) locked: u64,
    /// `RLIMIT_AS`.
    pub(super) space: u64,
}

impl Default for MemoryRlimits {
    /// The limits of Linux's first process.
    fn default() -> Self {
        Self { data: u64::MAX, stack: 8 << 20, locked: 8 << 20, space: u64::MAX }
    }
}

impl MemoryRlimits {
    /// Sets the limit of Linux's number `resource`; other resources are ignored.
    pub(super) fn set(&mut self, resource: u32, bytes: u64) {
        match resource {
            2 => self.data = bytes,
            3 => self.stack = bytes,
            8 => self.locked = bytes,
            9 => self.space = bytes,
            _ => {}
        }
    }
}

/// Numbers of mapped pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) pages: u64,
    /// Pages that count as data: private, writable, and not on a stack.
    pub(super) data: u64,
    pub(super) locked: u64,
}

/// The errors that rlimits and seals cause for a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Denial {
    /// Errors with which the call may fail.
    pub(in super::super) may: [Option<Errno>; 3],
    /// The call fails with one of them.
    pub(in super::super) must: bool,
    /// For `mprotect`: the plan ends before a sealed page, at which the call fails.
    pub(in super::super) sealed_after: bool,
}

impl Denial {
    fn must(may: [Option<Errno>; 3]) -> Self {
        Self { may, must: may.iter().any(Option::is_some), sealed_after: false }
    }
}

fn exceeds(pages: u64, limit: u64) -> bool {
    pages > limit / PAGE_SIZE
}

/// Whether a page counts as data (`RLIMIT_DATA`).
pub(super) fn is_data(map: &PageMapping) -> bool {
    map.rights.contains(Rights::WRITE) && !map.shared && !map.flags.grows_down
}

impl Process {
    /// Totals of the whole process.
    pub(super) fn totals(&self) -> Totals {
        total(self.all_mapped().iter().map(|(_, map)| map))
    }

    /// Totals of `range`.
    pub(super) fn totals_in(&self, range: PageRange) -> Totals {
        total(self.mapped_in(range).0.iter().map(|(_, map)| map))
    }

    /// Whether a page in `range` is sealed (`mseal`).
    pub(super) fn is_sealed(&self, range: PageRange) -> bool {
        self.mapped_in(range).0.iter().any(|(_, map)| map.flags.sealed)
    }

    /// Whether `pages` more pages like `map`, less `less`, exceed `RLIMIT_AS` or `RLIMIT_DATA`.
    pub(super) fn exceeds_limits(&self, map: &PageMapping, pages: u64, less: u64) -> bool {
        let (totals, limits) = (self.totals(), self.limits);
        let then = |now: u64| (now + pages).saturating_sub(less);
        exceeds(then(totals.pages), limits.space) || is_data(map) && exceeds(then(totals.data), limits.data)
    }

    /// Whether `pages` more locked pages exceed `RLIMIT_MEMLOCK`.
    pub(super) fn exceeds_lock_limit(&self, pages: u64) -> bool {
        exceeds(self.totals().locked.saturating_add(pages), self.limits.locked)
    }

    /// Whether the process may lock nothing.
    pub(super) fn may_not_lock(&self) -> bool {
        self.limits.locked == 0
    }

    /// Applies rlimits and seals to a call that is about to begin.
    ///
    /// The returned plan has the lock mode of a new mapping, and a range of `mprotect` that ends
    /// before the first sealed page.
    pub(in super::super) fn denial(&self, call: MemoryCall, plan: Plan) -> (Plan, Denial) {
        let asked = plan;
        let (plan, denial) = self.deny_if_certain(call, plan);
        if self.is_certain() || denial.sealed_after {
            return (plan, denial);
        }
        // The totals are uncertain, so every limit may or may not be exceeded. A seal is certain,
        // unless its page may be a hole.
        let sealed = denial.must && denial.may.contains(&Some(Errno::EPERM));
        let hole = sealed && matches!(asked, Plan::Acts(effect) if self.may_be_mapped(effect.range()));
        let limited = self.limits.data != u64::MAX || self.limits.space != u64::MAX;
        let wanted = match plan {
            Plan::Acts(Effect::Map { range, .. }) => range.pages(),
            Plan::Places { pages, .. } => pages,
            Plan::Acts(_) | Plan::Refused(_) | Plan::Idle => 0,
        };
        let too_many = exceeds(self.pages.len() as u64 * 2 + wanted, self.limits.locked);
        let may = [
            sealed.then_some(Errno::EPERM),
            (limited || hole || denial.may.contains(&Some(Errno::ENOMEM))).then_some(Errno::ENOMEM),
            (too_many || denial.may.contains(&Some(Errno::EAGAIN))).then_some(Errno::EAGAIN),
        ];
        (plan, Denial { may, must: sealed && !hole, sealed_after: false })
    }

    fn deny_if_certain(&self, call: MemoryCall, plan: Plan) -> (Plan, Denial) {
        match (call, plan) {
            (MemoryCall::Mmap { place, .. }, Plan::Acts(Effect::Map { range, first })) => {
                let (first, denial) = self.deny_mmap(first, range.pages(), Some(range));
                // An existing mapping makes the call fail before any limit does.
                let taken = matches!(place, MmapPlacement::FixedNoReplace(_)) && self.totals_in(range).pages > 0;
                let denial = if taken { Denial::default() } else { denial };
                (Plan::Acts(Effect::Map { range, first }), denial)
            }
            (MemoryCall::Mmap { len, flags, .. }, Plan::Refused(_)) => {
                // Any of several applicable errors is accepted.
                let locks = flags.lock != MlockMode::Unlocked || self.future != MlockMode::Unlocked;
                let asked = flags.lock != MlockMode::Unlocked && self.may_not_lock();
                let many = locks && self.exceeds_lock_limit(len.div_ceil(PAGE_SIZE));
                (
                    plan,
                    Denial {
                        may: [asked.then_some(Errno::EPERM), many.then_some(Errno::EAGAIN), None],
                        ..Denial::default()
                    },
                )
            }
            (MemoryCall::Mmap { .. }, Plan::Places { pages, first }) => {
                let (first, denial) = self.deny_mmap(first, pages, None);
                (Plan::Places { pages, first }, denial)
            }
            (MemoryCall::Range(RangeCall::Munmap { .. }), Plan::Acts(Effect::Unmap { range })) => {
                let sealed = self.is_sealed(range).then_some(Errno::EPERM);
                (plan, Denial::must([sealed, None, None]))
            }
            (MemoryCall::Range(RangeCall::Mprotect { .. }), Plan::Acts(Effect::Protect { range, rights })) => {
                self.deny_mprotect(range, rights)
            }
            (MemoryCall::Range(RangeCall::Brk { to }), Plan::Acts(effect)) => self.deny_brk(to, effect),
            (MemoryCall::Range(RangeCall::Brk { to }), Plan::Idle) => (plan, self.deny_brk(to, Effect::None).1),
            (_, plan) => (plan, Denial::default()),
        }
    }

    fn deny_mmap(&self, first: PageMapping, pages: u64, range: Option<PageRange>) -> (PageMapping, Denial) {
        let asked = first.flags.lock != MlockMode::Unlocked;
        let lock = if asked { MlockMode::Locked } else { self.future };
        let lock = if asked && self.future == MlockMode::OnFault { MlockMode::OnFault } else { lock };
        let mut first = first;
        first.flags.lock = lock;
        let there = range.map_or(0, |range| self.totals_in(range).pages);
        let mut may = [None; 3];
        let sealed = range.is_some_and(|range| self.is_sealed(range));
        if asked && self.may_not_lock() || sealed {
            may[0] = Some(Errno::EPERM);
        }
        if lock != MlockMode::Unlocked && self.exceeds_lock_limit(pages) {
            may[1] = Some(Errno::EAGAIN);
        }
        if self.exceeds_limits(&first, pages, there) {
            may[2] = Some(Errno::ENOMEM);
        }
        (first, Denial::must(may))
    }

    fn deny_mprotect(&self, range: PageRange, rights: Rights) -> (Plan, Denial) {
        let mut denial = Denial::default();
        let (mapped, _) = self.mapped_in(range);
        // Pages that become data may exceed the limit, VMA by VMA.
        let more = mapped.iter().filter(|(_, map)| !is_data(map) && is_data(&PageMapping { rights, ..*map })).count();
        if more > 0 && exceeds(self.totals().data + mapped.len() as u64, self.limits.data) {
            denial.may[0] = Some(Errno::ENOMEM);
        }
        let sealed = mapped.iter().find(|(_, map)| map.flags.sealed && map.max_rights.contains(rights));
        let Some((index, _)) = sealed else { return (Plan::Acts(Effect::Protect { range, rights }), denial) };
        let end = VirtAddr::from_page_index(*index);
        if end == range.start() {
            return (Plan::Acts(Effect::None), Denial::must([Some(Errno::EPERM), None, None]));
        }
        denial.sealed_after = true;
        (Plan::Acts(Effect::Protect { range: PageRange::new(range.start(), end), rights }), denial)
    }

    fn deny_brk(&self, to: VirtAddr, effect: Effect) -> (Plan, Denial) {
        let too_long = to.since(self.heap_start) > self.limits.data;
        let (effect, barred) = match effect {
            Effect::Map { range, mut first } => {
                first.flags.lock = self.future;
                let locks = self.future != MlockMode::Unlocked && self.exceeds_lock_limit(range.pages());
                (Effect::Map { range, first }, locks || self.exceeds_limits(&first, range.pages(), 0))
            }
            Effect::Unmap { range } => (effect, self.is_sealed(range)),
            Effect::None | Effect::Protect { .. } | Effect::Drop { .. } => (effect, false),
        };
        let errno = (too_long || barred).then_some(Errno::ENOMEM);
        (Plan::Acts(effect), Denial::must([errno, None, None]))
    }
}

fn total<'a>(maps: impl Iterator<Item = &'a PageMapping>) -> Totals {
    maps.fold(Totals::default(), |sum, map| Totals {
        pages: sum.pages + 1,
        data: sum.data + u64::from(is_data(map)),
        locked: sum.locked + u64::from(map.flags.lock != MlockMode::Unlocked),
    })
}
