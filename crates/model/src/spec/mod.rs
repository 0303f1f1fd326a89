//! The reference memory: the results that a machine without a TLB could give (O3).
//!
//! The semantics are Linux's.
//!
//! - [`Spec`] – processes, their pages, and files. [`MemoryCall`] and [`CallResult`] – memory
//!   calls. [`AccessResult`] – the result of an access.
//! - `in_flight`: calls from entry to return. `exclusive`: calls during which nothing else happens
//!   in their process ([`ExclusiveCall`]), and what rlimits and seals mean for all calls.
//!   `access`: loads, stores, faults. `page`: the possible states of a page. `cells` and
//!   `contents`: its contents. `file_call`: calls about files.
//!
//! **INV-ORACLE-O3** Each load, store, signal and result is one that a machine without any TLB
//! could have given at some moment while the access or call was in progress.
//!
//! **INV-ORACLE-SPEC** The reference memory accepts every result of a memory whose calls act page
//! by page, at any moments between their start and their return. Otherwise a report would not be
//! evidence.
//!
//! Protocol: the caller reports [`Spec::call_begins`] before a call starts and [`Spec::call_ends`]
//! after it has returned. In between, an access may find the state before or after the call. A load
//! or a store is reported when it reaches memory. An access that faults is reported when its fault
//! begins and when it ends ([`Spec::fault_begins`], [`Spec::fault_ends`]). A call that fails
//! changes nothing, except where Linux's does.
//!
//! The unit of comparison is a cell: eight aligned bytes. A torn or shifted store differs from the
//! expected cell.
//!
//! Not guaranteed: consistency between pages at one moment, since each page is judged by itself;
//! two overlapping `brk` calls of one process, or a truncation in the middle of a page, both of
//! which the caller must avoid; address hints, which are ignored.

mod access;
mod call;
mod cells;
mod contents;
mod exclusive;
mod file;
mod file_call;
mod in_flight;
mod maps;
mod page;
mod pins;
mod process_vm;
mod soft_dirty;

pub use access::{AccessResult, FaultId, FaultSignal};
use alloc::boxed::Box;
use alloc::vec::Vec;
pub use call::{CallResult, MemoryCall, MmapObject, MmapPlacement, RangeCall};
pub use exclusive::ExclusiveCall;
pub use file::InitialContents;
pub use file_call::FileCall;
pub use in_flight::CallId;
pub use maps::MapsLine;
pub use page::{MappingFlags, MlockMode, PageBacking, PageMapping};
pub use pins::{PinId, PinMode};
pub use process_vm::ProcessVmCopy;

use crate::FxHashMap;
use crate::tally::Tally;
use crate::violation::{CpuStep, Rule, SpecMismatch, Violation, ViolationKind};
use access::Fault;
use exclusive::MemoryRlimits;
use file::{File, Files};
use in_flight::PendingCall;
use page::{Page, PendingEffect};
use pagewright_types::{FileId, SpaceId, VirtAddr};
use pins::Pin;

/// `Ok` if an event was possible, else the violation.
pub type SpecVerdict = Result<(), Box<Violation>>;

/// A process.
#[derive(Default)]
struct Process {
    /// By page index; a page that is not here is unmapped.
    pages: FxHashMap<u64, Page>,
    pending: Vec<PendingCall>,
    /// The effects of the pending calls on pages.
    acting: Vec<PendingEffect>,
    /// Number of pages removed from `pages` because they were unmapped.
    forgotten: u64,
    heap_start: VirtAddr,
    heap: VirtAddr,
    limits: MemoryRlimits,
    /// Whether anything was mapped since the soft-dirty bits were cleared.
    mapped_since: bool,
    /// How future mappings are locked (`MCL_FUTURE`).
    future: MlockMode,
}

impl Process {
    /// Page `index` with every state that the pending calls make possible now.
    #[inline]
    fn page(&mut self, index: u64) -> Option<&mut Page> {
        let page = self.pages.get_mut(&index)?;
        if !self.acting.is_empty() {
            page.close(index, &self.acting);
        }
        Some(page)
    }

    /// A copy of [`Self::page`].
    fn look(&self, index: u64) -> Option<Page> {
        let mut page = self.pages.get(&index)?.clone();
        page.close(index, &self.acting);
        Some(page)
    }
}

/// The reference memory of one machine: all processes and files.
pub struct Spec {
    user_end: VirtAddr,
    /// Whether any call may fail with `ENOMEM`.
    memory_may_fail: bool,
    processes: FxHashMap<SpaceId, Process>,
    files: Files,
    faults: Vec<Fault>,
    pins: FxHashMap<u64, Pin>,
    next: u64,
    /// Whether pages may be swapped out.
    swaps: bool,
    tally: Tally,
}

impl Spec {
    /// Creates a machine without processes, whose user addresses end at `user_end`.
    ///
    /// With `memory_may_fail`, every call that allocates may fail with `ENOMEM`.
    pub fn new(user_end: VirtAddr, memory_may_fail: bool) -> Self {
        Self {
            user_end,
            memory_may_fail,
            processes: FxHashMap::default(),
            files: Files::default(),
            faults: Vec::new(),
            pins: FxHashMap::default(),
            next: 0,
            swaps: false,
            tally: Tally::default(),
        }
    }

    /// From now on, pages may be swapped out.
    pub fn swap_on(&mut self) {
        self.swaps = true;
    }

    /// Sets whether every call that allocates may fail with `ENOMEM`.
    ///
    /// If not, a call may fail with `ENOMEM` only for another reason that Linux has.
    pub fn set_memory_may_fail(&mut self, may: bool) {
        self.memory_may_fail = may;
    }

    /// Adds a process with nothing mapped, whose heap begins at `heap`.
    pub fn add_space(&mut self, id: SpaceId, heap: VirtAddr) {
        self.processes.insert(id, Process { heap_start: heap, heap, ..Process::default() });
    }

    /// Adds a file of `pages` pages with the given initial contents.
    pub fn add_file(&mut self, id: FileId, pages: u64, contents: InitialContents) {
        self.files.0.insert(id, File::new(pages, contents));
    }

    /// Adds shared memory of `pages` zeroed pages, in which holes can be punched.
    pub fn add_shmem(&mut self, id: FileId, pages: u64) {
        self.files.0.insert(id, File::shmem(pages));
    }

    /// Adds a memfd of `pages` zeroed pages, which can be sealed.
    pub fn add_memfd(&mut self, id: FileId, pages: u64) {
        let mut file = File::shmem(pages);
        file.seals = Some(0);
        self.files.0.insert(id, file);
    }

    /// How often accesses and calls were judged.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Whether the process exists.
    pub fn has_space(&self, space: SpaceId) -> bool {
        self.processes.contains_key(&space)
    }

    fn fresh_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn process(&mut self, space: SpaceId) -> &mut Process {
        self.processes.get_mut(&space).expect("a process that was added and has not exited")
    }

    fn violation(by: CpuStep, mismatch: SpecMismatch) -> Box<Violation> {
        Box::new(Violation { rule: Rule::Memory, cpu: by.cpu, step: by.step, kind: ViolationKind::Memory(mismatch) })
    }
}
