//! The reference memory: what calls and accesses may answer on a machine without any TLB (O3), with
//! Linux's semantics.
//!
//! - [`Spec`] – processes, their pages, files. [`MemoryCall`] and [`CallResult`] – memory calls. [`AccessResult`] –
//!   what an access gave.
//! - `calls`: from beginning to return. `access`: loads, stores, faults. `page`: the possible
//!   states of a page. `descriptor`: calls about files. `data`: contents.
//!
//! Protocol: tell [`Spec::call_begins`] before a call starts and [`Spec::call_ends`] when it has returned;
//! between the two, an access may find what was before or what will be. Loads and stores are told
//! at the moment at which they reach memory; an access that faults is told from the beginning of
//! its fault to the end ([`Spec::fault_begins`], [`Spec::fault_ends`]). Calls that fail change
//! nothing, except where Linux's do.
//!
//! The finest grain is an aligned cell of eight bytes; what is stored there is compared as a whole,
//! so a torn byte shows and a shifted one does, too.
//!
//! Promises INV-ORACLE-O3, INV-ORACLE-SPEC.
//!
//! Some calls must have their process for themselves ([`ExclusiveCall`]): see `alone`. What limits and
//! seals mean for the others is judged there, too.
//!
//! Not guaranteed: anything across pages at one moment (each page is judged by itself); when two
//! `brk` of one process overlap, or a truncation ends in the middle of a page – both are left to
//! the caller to avoid. Hints are not known here.

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
pub use call::{CallResult, MemoryCall, MmapObject, MmapPlacement};
pub use exclusive::{ExclusiveCall, MemoryRlimits};
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
use file::{File, Files};
use in_flight::PendingCall;
use page::{Page, PendingEffect};
use pagewright_types::{FileId, SpaceId, VirtAddr};
use pins::Pin;

/// Whether what happened could have happened.
pub type SpecVerdict = Result<(), Box<Violation>>;

/// One process.
#[derive(Default)]
struct Process {
    /// By page of the address space.
    ///
    /// What is not here is unmapped.
    pages: FxHashMap<u64, Page>,
    pending: Vec<PendingCall>,
    /// What `pending` does to pages.
    acting: Vec<PendingEffect>,
    /// Pages that were forgotten because nothing was mapped there any more.
    forgotten: u64,
    heap_start: VirtAddr,
    heap: VirtAddr,
    limits: MemoryRlimits,
    /// Whether anything was mapped since the marks of stores were cleared.
    mapped_since: bool,
    /// How what is mapped from now on is locked (`MCL_FUTURE`).
    future: MlockMode,
}

impl Process {
    /// Page `index` as it may be now.
    #[inline]
    fn page(&mut self, index: u64) -> Option<&mut Page> {
        let page = self.pages.get_mut(&index)?;
        if !self.acting.is_empty() {
            page.close(index, &self.acting);
        }
        Some(page)
    }

    /// The same, without changing anything.
    fn look(&self, index: u64) -> Option<Page> {
        let mut page = self.pages.get(&index)?.clone();
        page.close(index, &self.acting);
        Some(page)
    }
}

/// All processes and files of one machine.
pub struct Spec {
    user_end: VirtAddr,
    /// Whether a call may fail for want of memory at any time.
    memory_may_fail: bool,
    processes: FxHashMap<SpaceId, Process>,
    files: Files,
    faults: Vec<Fault>,
    pins: FxHashMap<u64, Pin>,
    next: u64,
    /// Whether pages may go to swap.
    swaps: bool,
    tally: Tally,
}

impl Spec {
    /// A machine on which programs may map addresses below `user_end`.
    ///
    /// With `memory_may_fail`, `ENOMEM` is always a right answer.
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

    /// Pages may go to swap from now on.
    pub fn swap_on(&mut self) {
        self.swaps = true;
    }

    /// From now on, until it is said otherwise, `ENOMEM` is always a right answer, or only where
    /// Linux has another reason for it.
    pub fn set_memory_may_fail(&mut self, may: bool) {
        self.memory_may_fail = may;
    }

    /// A process with nothing mapped, whose heap begins at `heap`.
    pub fn add_space(&mut self, id: SpaceId, heap: VirtAddr) {
        self.processes.insert(id, Process { heap_start: heap, heap, ..Process::default() });
    }

    /// A file of so many pages.
    ///
    /// `contents` says what its cells hold at first.
    pub fn add_file(&mut self, id: FileId, pages: u64, contents: InitialContents) {
        self.files.0.insert(id, File::new(pages, contents));
    }

    /// Shared memory of so many pages: zeroes, of which pages can be thrown away.
    pub fn add_shmem(&mut self, id: FileId, pages: u64) {
        self.files.0.insert(id, File::shmem(pages));
    }

    /// The same with a descriptor, through which it can be sealed.
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
        self.processes.get_mut(&space).expect("a process that was told of and has not ended")
    }

    fn violation(by: CpuStep, misread: SpecMismatch) -> Box<Violation> {
        Box::new(Violation { rule: Rule::Memory, cpu: by.cpu, step: by.step, kind: ViolationKind::Memory(misread) })
    }
}
