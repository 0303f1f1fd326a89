//! Page faults: one table that says what a fault is, and a file for each way to serve it.
//!
//! | entry | mapping | access | action |
//! | --- | --- | --- | --- |
//! | empty | anonymous, private | read, execute | the zero page, read-only |
//! | empty | anonymous, private | write | a cleared page of its own, or a huge one |
//! | empty | file, private or shared | read, execute | the cached page, with its neighbours |
//! | empty | file, private | write | a copy of the cached page |
//! | empty | shared | write | the cached page, writable |
//! | hint: a leaf without rights | any that has rights | any | moves the page to this CPU's node if it should, and gives the leaf its rights |
//! | leaf that allows the access | any | any | nothing: another fault served it, or a TLB was stale |
//! | leaf that does not | private | write | copy-on-write: reuse or copy; a huge leaf is split first if it must be copied |
//! | leaf that does not | shared | write | make it writable, note the page dirty |
//! | leaf that does not | any | read, execute | give it the mapping's rights |
//! | page in swap | any | any | the page, read if need be; a store to one that others may have comes again |
//! | guard | any | any | refused: `SIGSEGV` |
//! | leaf that is not exclusive | private | unshare | make it exclusive: take it over or copy it |
//!
//! An *unshare* fault precedes a pin ([`crate::gup`]); for other mappings it is a read. A *forced*
//! fault (a debugger's) may do what the mapping does not allow, and the entry gets no right from
//! it. A caller that faults pages in has checked the mapping and released the space since, so the
//! fault checks the mapping again.
//!
//! Below a pointer that other spaces share, the table says what the fault would do. A page that is
//! only read is mapped for every sharer in the shared table, which is made if it is missing; they
//! agree on the mapping. For any other action the fault breaks the shared tables down to the page
//! and starts over.
//!
//! The table is `classify`. A fault looks at the entry without a lock, prepares what the action
//! needs – pages, tables, contents – and commits under the lock of the last-level table after
//! checking that the entry is still what it was. If it is not, everything is given back and the
//! fault starts over.
//!
//! **INV-FAULT-RETRY** A fault that lost a race has changed nothing and starts over. Each lost
//! attempt means that another operation made progress.

mod account;
mod anon;
mod cow;
mod file;
mod hint;
mod huge;
mod precleared;
mod swap;
mod unshare;

pub use account::FaultCounts;
pub(crate) use precleared::{ClearedPageSource, NewPages, PreclearedPages};

use crate::error::FaultError;
use crate::mm::Mm;
use crate::numa::HintedPage;
use crate::space::{Space, Vma};
use crate::swap::SwapPte;
use pagewright_arch::SoftKind;
use pagewright_sync::Platform;
use pagewright_table::{EditForAll, EntryView, FoundEntry, LeafView, LockedTable, TableReserve, Tables};
use pagewright_tlb::FamilyToken;
use pagewright_types::{Access, Counter, Level, PAGE_SIZE, PageRange, Rights, VirtAddr};

/// Whether serving a fault waited for a device (`ru_minflt`, `ru_majflt`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Without waiting for a device.
    Minor,
    /// After waiting for a device.
    Major,
}

/// The action that serves a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultAction {
    ZeroPage,
    NewPage,
    MapFile,
    CopyFile,
    /// The access is allowed; a TLB may still refuse it, by an entry of this level.
    Spurious(Level),
    CopyOnWrite(LeafView),
    Widen(LeafView),
    Unshare(LeafView),
    SwapIn(SwapPte),
    /// A scan made the leaf inaccessible, to see which CPU uses the page.
    Hint,
    /// A marker forbids every access.
    Refuse,
    /// Another operation is changing the entry: wait until it has.
    Wait,
}

bitflags::bitflags! {
    /// What a fault is beside its access; none of these for an access of a program.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub(crate) struct FaultFlags: u8 {
        /// The rights that the mapping could have decide, not those that it has (`FOLL_FORCE`).
        const FORCE = 1;
        /// A private page becomes exclusive (`FAULT_FLAG_UNSHARE`).
        ///
        /// It is no more writable than before.
        const UNSHARE = 1 << 1;
        /// Only a page in swap is served, whatever its mapping allows (`unuse_pte`).
        const UNUSE = 1 << 2;
        /// No program has touched the page, so no stack grows down to it.
        const UNTOUCHED = 1 << 3;
    }
}

/// The access that a fault must make possible, and where the fault gets cleared pages.
#[derive(Clone, Copy)]
pub(crate) struct FaultRequest<'a> {
    /// The byte that is accessed.
    pub(crate) va: VirtAddr,
    pub(crate) access: Access,
    pub(crate) flags: FaultFlags,
    /// `None` for the allocator.
    pub(crate) pages: Option<&'a dyn ClearedPageSource>,
}

impl<'a> FaultRequest<'a> {
    /// The fault of an access by a program.
    pub(crate) fn touch(va: VirtAddr, access: Access) -> Self {
        Self { va, access, flags: FaultFlags::empty(), pages: None }
    }

    /// The fault for a page that no program has touched.
    pub(crate) fn populate(va: VirtAddr, access: Access, pages: Option<&'a dyn ClearedPageSource>) -> Self {
        Self { va, access, flags: FaultFlags::UNTOUCHED, pages }
    }
}

/// One fault being served, with its space held for reading.
struct Fault<'a, P: Platform> {
    mm: &'a Mm<P>,
    space: &'a Space<P>,
    request: FaultRequest<'a>,
    tables: Tables<'a, P>,
    /// First page of the mapping.
    start: u64,
    vma: &'a Vma<P>,
    /// The page, not the byte.
    va: VirtAddr,
    found: &'a FoundEntry<'a, P>,
    /// Whether an earlier try has judged the hint.
    hint_is_judged: bool,
}

/// The result of one try to serve a fault.
enum FaultProgress {
    Done(FaultKind),
    /// What stood in the way is done; the access needs more.
    Again(FaultKind),
    /// The page is to be moved, without the lock of its table; the access needs more.
    Hinted(HintedPage),
    /// The entry changed meanwhile.
    RaceLost,
}

impl<P: Platform> Mm<P> {
    /// Serves a page fault of a user access, and counts it (`handle_mm_fault`).
    ///
    /// # Errors
    /// [`FaultError`]: what signal the access gets. Nothing has changed, except that a stack may have grown.
    pub fn fault(&self, space: &Space<P>, va: VirtAddr, access: Access) -> Result<FaultKind, FaultError> {
        self.declare_return_of(|| self.fault_counted(space, FaultRequest::touch(va, access)))
    }

    /// Brings back the page of an entry that says that it is in swap, whatever its mapping allows.
    ///
    /// An entry of another kind is left as it is.
    ///
    /// # Errors
    /// [`FaultError::OutOfMemory`], or [`FaultError::Device`]; nothing has changed.
    pub(crate) fn swap_in_at(&self, space: &Space<P>, va: VirtAddr) -> Result<(), FaultError> {
        let flags = FaultFlags::UNUSE | FaultFlags::UNTOUCHED;
        match self.fault_in(space, FaultRequest { va, access: Access::Read, flags, pages: None }) {
            Err(error @ (FaultError::OutOfMemory(_) | FaultError::Device { .. })) => Err(error),
            // It was unmapped meanwhile.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Serves a fault within a call, and does not count it.
    fn fault_in(&self, space: &Space<P>, request: FaultRequest<'_>) -> Result<FaultKind, FaultError> {
        let FaultRequest { va, access, flags, pages: _ } = request;
        let (mut waited, mut hint_is_judged) = (false, false);
        loop {
            let map = space.map().read();
            let Some((start, vma)) = map.find(va) else {
                drop(map);
                if !flags.contains(FaultFlags::UNTOUCHED) && self.grow_stack(space, va) {
                    continue;
                }
                return Err(FaultError::NotMapped { va, access });
            };
            let forced = flags.contains(FaultFlags::FORCE) && vma.may_be_forced(access);
            if !permits(vma.rights(), access) && !forced && !flags.contains(FaultFlags::UNUSE) {
                return Err(FaultError::NotAllowed { va, access, rights: vma.rights() });
            }
            let va = va.align_down(PAGE_SIZE);
            let tables = map.tables(&self.tlb);
            let found = tables.find(va, Level::PTE);
            let action = classify(found.entry, vma, access, flags);
            if flags.contains(FaultFlags::UNUSE) && !matches!(action, FaultAction::SwapIn(_)) {
                return Ok(FaultKind::Minor);
            }
            if found.is_shared() && !action.is_for_all(access) {
                self.own_tables(tables, PageRange::page(va))?;
                // A table that was taken back owes no flush. The pointer that this CPU has cached
                // would refuse the access once more.
                self.tlb.fix_spurious_fault(space.table().context(), va, Level::PTE, true);
                continue;
            }
            let fault = || Fault { mm: self, space, request, tables, start, vma, va, found: &found, hint_is_judged };
            match Fault::act(fault, action)? {
                FaultProgress::Done(served) => return Ok(if waited { FaultKind::Major } else { served }),
                FaultProgress::Again(served) => waited |= served == FaultKind::Major,
                FaultProgress::Hinted(page) => {
                    self.end_hint(space, page);
                    hint_is_judged = true;
                }
                FaultProgress::RaceLost => self.fx().relax(),
            }
        }
    }
}

/// Whether a mapping allows an access.
///
/// Both instruction sets read whatever they can write or execute.
fn permits(rights: Rights, access: Access) -> bool {
    match access {
        Access::Read => !rights.is_empty(),
        Access::Write | Access::Exec => rights.allow(access),
    }
}

/// The table at the top of this file.
fn classify<P: Platform>(entry: EntryView, vma: &Vma<P>, access: Access, flags: FaultFlags) -> FaultAction {
    let write = access == Access::Write;
    match (entry, vma.file()) {
        (EntryView::Empty | EntryView::Table, None) if write => FaultAction::NewPage,
        (EntryView::Empty | EntryView::Table, None) => FaultAction::ZeroPage,
        (EntryView::Empty | EntryView::Table, Some(_)) if write && !vma.is_shared() => FaultAction::CopyFile,
        (EntryView::Empty | EntryView::Table, Some(_)) => FaultAction::MapFile,
        (EntryView::Leaf(leaf), _) if leaf.rights().is_empty() && !vma.rights().is_empty() => FaultAction::Hint,
        (EntryView::Leaf(leaf), _) if flags.contains(FaultFlags::UNSHARE) && !vma.is_shared() => {
            if leaf.is_exclusive() { FaultAction::Spurious(leaf.level()) } else { FaultAction::Unshare(leaf) }
        }
        (EntryView::Leaf(leaf), _) if permits(leaf.rights(), access) => FaultAction::Spurious(leaf.level()),
        (EntryView::Leaf(leaf), _) if write && !vma.is_shared() => FaultAction::CopyOnWrite(leaf),
        (EntryView::Leaf(leaf), _) => FaultAction::Widen(leaf),
        (EntryView::Soft(soft), _) => match soft.kind {
            SoftKind::Marker => FaultAction::Refuse,
            SoftKind::Swap => SwapPte::decode(soft).map_or(FaultAction::Wait, FaultAction::SwapIn),
            SoftKind::Migration | SoftKind::InTransition => FaultAction::Wait,
        },
    }
}

impl FaultAction {
    /// Whether the action can be done for every space that reaches the entry.
    fn is_for_all(self, access: Access) -> bool {
        match self {
            Self::Spurious(_) | Self::Hint | Self::Refuse | Self::Wait => true,
            Self::ZeroPage | Self::MapFile | Self::SwapIn(_) => access != Access::Write,
            Self::NewPage | Self::CopyFile | Self::CopyOnWrite(_) | Self::Widen(_) | Self::Unshare(_) => false,
        }
    }
}

impl<'a, P: Platform> Fault<'a, P> {
    // Each action makes its own fault, which stays in registers where the action is inlined.
    #[inline(always)]
    fn act(fault: impl FnOnce() -> Self, action: FaultAction) -> Result<FaultProgress, FaultError> {
        match action {
            FaultAction::ZeroPage => fault().map_zero_page(),
            FaultAction::NewPage => fault().map_new_page(),
            FaultAction::MapFile => fault().map_file_page(),
            FaultAction::CopyFile => fault().map_file_copy(),
            FaultAction::CopyOnWrite(leaf) => fault().copy_on_write(leaf),
            FaultAction::Widen(leaf) => Ok(fault().widen(leaf)),
            FaultAction::Unshare(leaf) => fault().unshare(leaf),
            FaultAction::SwapIn(seen) => fault().swap_in(seen),
            FaultAction::Hint => Ok(fault().serve_hint()),
            FaultAction::Refuse => fault().refuse(),
            FaultAction::Wait => Ok(FaultProgress::RaceLost),
            FaultAction::Spurious(level) => Ok(fault().fix_spurious(level)),
        }
    }

    #[cold]
    fn refuse(&self) -> Result<FaultProgress, FaultError> {
        Err(FaultError::Guarded { va: self.va, access: self.access() })
    }

    fn fix_spurious(&self, level: Level) -> FaultProgress {
        self.mm.tlb.count(Counter::PwSpuriousFault, 1);
        let table = self.space.table();
        self.mm.tlb.fix_spurious_fault(table.context(), self.va, level, table.ever_shared());
        FaultProgress::Done(FaultKind::Minor)
    }

    /// The access that the fault must make possible.
    fn access(&self) -> Access {
        self.request.access
    }

    /// Whether other spaces share the table of the entry.
    fn is_shared(&self) -> bool {
        self.found.is_shared()
    }

    /// Whether the space has no table for the entry, and shares none.
    fn is_table_missing(&self) -> bool {
        !self.found.is_own() && !self.found.is_shared()
    }

    /// The permission to fill an entry for all sharers, if there are any.
    fn family_token(&self) -> Option<FamilyToken<'a, P>> {
        self.is_shared().then(|| self.tables.family_token()).flatten()
    }

    /// Allocates the missing tables, before anything is locked.
    #[inline]
    fn reserve_tables(&self, reserve: &mut TableReserve<'a, P>) -> Result<(), FaultError> {
        if self.found.is_own() { Ok(()) } else { self.reserve_missing_tables(reserve) }
    }

    #[cold]
    fn reserve_missing_tables(&self, reserve: &mut TableReserve<'a, P>) -> Result<(), FaultError> {
        let missing = self.found.level.raw() - Level::PTE.raw();
        Ok(self.mm.fill(reserve, usize::from(missing))?)
    }

    /// Locks the table of the entry, which it makes first if it was missing.
    ///
    /// `None` if the entry has changed since the fault was classified.
    #[inline(always)]
    fn lock_if_unchanged(&self, reserve: &mut TableReserve<'a, P>) -> Option<LockedTable<'a, P>> {
        if self.is_table_missing() { self.lock_new_table(reserve) } else { self.found.lock_if_unchanged() }
    }

    /// Locks the last-level table, own or shared, to fill the entry in it.
    ///
    /// As [`lock_if_unchanged`](Self::lock_if_unchanged). `token` is what
    /// [`family_token`](Self::family_token) gives.
    #[inline(always)]
    fn lock_to_fill<'f>(
        &self,
        reserve: &mut TableReserve<'a, P>,
        token: Option<&'f FamilyToken<'f, P>>,
    ) -> Option<LockedTable<'a, P, EditForAll<'f, P>>> {
        if self.found.is_own() {
            return self.found.lock_for_all_if_unchanged();
        }
        self.lock_made_to_fill(reserve, token)
    }

    /// Makes the missing tables, own or shared, and locks the last.
    #[cold]
    fn lock_made_to_fill<'f>(
        &self,
        reserve: &mut TableReserve<'a, P>,
        token: Option<&'f FamilyToken<'f, P>>,
    ) -> Option<LockedTable<'a, P, EditForAll<'f, P>>> {
        match token {
            Some(token) if !reserve.is_empty() => self.tables.make_tables_for_all(self.va, token, reserve),
            Some(_) => {}
            None => drop(self.tables.try_own(PageRange::page(self.va))?.ensure(self.va, Level::PTE, reserve)),
        }
        let table = self.tables.lock_for_all(self.va, token)?;
        (table.entry(self.va) == self.found.entry).then_some(table)
    }

    /// Makes the missing tables and locks the last; `None` if the entry is not empty now.
    #[cold]
    fn lock_new_table(&self, reserve: &mut TableReserve<'a, P>) -> Option<LockedTable<'a, P>> {
        let own = self.tables.try_own(PageRange::page(self.va))?;
        own.ensure(self.va, Level::PTE, reserve);
        own.lock(self.va).filter(|locked| locked.level() == Level::PTE && locked.is_empty(self.va))
    }

    /// The index by which the reverse map finds a page that is made for the fault.
    fn linear_index(&self) -> u64 {
        self.vma.linear_index() + (self.va.page_index() - self.start)
    }

    /// The rights of a leaf that is the space's own.
    fn mapping_rights(&self) -> Rights {
        self.vma.rights().readable()
    }

    /// The page of the file under the fault.
    fn file_index(&self) -> u64 {
        self.vma.pgoff() + (self.va.page_index() - self.start)
    }
}
