//! Memory calls, whose results the reference memory checks.

use super::operation::MappedObject;
use super::program_run::{Process, ProgramRun};
use pagewright_arch::Isa;
use pagewright_mm::space::FileMapping;
use pagewright_mm::{Advice, MapFlags, MapRequest, Mm, MmError, Space};
use pagewright_model::spec::{
    self, CallResult, FaultId, MappingFlags, MemoryCall, MlockMode, MmapPlacement, RangeCall,
};
use pagewright_sim::Sim;
use pagewright_sync::Arc;
use pagewright_types::{Access, CpuId, Errno, PAGE_SIZE, PageRange, Rights, VirtAddr};
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// Limit of the pages of one call that the reference memory follows; programs map far fewer.
const MAX_PAGES: u64 = 4096;

impl<I: Isa> ProgramRun<I> {
    /// Makes a call; the reference memory checks the result, if it follows the program.
    pub(super) fn call(
        &self,
        cpu: CpuId,
        process: &Process<I>,
        call: MemoryCall,
        make: impl FnOnce(&Mm<Sim<I>>) -> Result<CallResult, Errno>,
    ) {
        if !self.uses_spec {
            let result = self.lab.on(cpu, make).unwrap_or_else(CallResult::Failed);
            return self.record_result(cpu, call.name(), result);
        }
        let refused = self.sim().refused_allocations();
        let call_id = self.spec.borrow_mut().call_begins(self.cpu_step(cpu), process.id(), call);
        let result = self.lab.on(cpu, make).unwrap_or_else(CallResult::Failed);
        let mut spec = self.spec.borrow_mut();
        spec.set_memory_may_fail(self.sim().refused_allocations() > refused);
        let verdict = spec.call_ends(self.cpu_step(cpu), call_id, result);
        drop(spec);
        self.record_result(cpu, call.name(), result);
        self.judge(verdict);
    }

    /// Counts a call and notes its result in the journal.
    pub(super) fn record_result(&self, cpu: CpuId, name: &'static str, result: CallResult) {
        self.counts.borrow_mut().count_call(name, result);
        self.bench.note(cpu, format_args!("{name}: {result}"));
    }

    /// Makes a call on a range of the CPU's process.
    pub(super) fn range_call(&self, cpu: CpuId, call: RangeCall) {
        let Some(process) = self.current_process(cpu) else { return };
        let space = &process.space;
        let done = |result: Result<(), MmError>| result.map(|()| CallResult::Done).map_err(MmError::errno);
        // The reference memory cannot follow two concurrent calls of one process.
        let moves_break = matches!(call, RangeCall::Brk { .. });
        if moves_break && process.brk_in_progress.replace(true) {
            return self.counts.borrow_mut().count_skipped();
        }
        self.call(cpu, &process, MemoryCall::Range(call), |mm| match call {
            RangeCall::Munmap { addr, len } => done(mm.munmap(space, addr, len)),
            RangeCall::Mprotect { addr, len, rights } => done(mm.mprotect(space, addr, len, rights)),
            RangeCall::DontNeed { addr, len } => done(mm.madvise(space, addr, len, Advice::DontNeed)),
            RangeCall::Brk { to } => Ok(CallResult::Break(mm.brk(space, to))),
        });
        if moves_break {
            process.brk_in_progress.set(false);
        }
    }

    /// Makes a call of `mmap` that the reference memory can predict.
    pub(super) fn map(
        &self,
        cpu: CpuId,
        process: &Process<I>,
        place: MmapPlacement,
        (len, rights): (u64, Rights),
        object: MappedObject,
        (populate, mapping_flags): (bool, MappingFlags),
    ) {
        let opened = if matches!(object, MappedObject::SharedReadOnly(_)) { Rights::READ } else { Rights::RW };
        let of_file = |index| spec::MmapObject::File { file: self.file.id(), index, opened };
        let (flags, page, mapped) = match object {
            MappedObject::PrivateAnon => (MapFlags::PRIVATE | MapFlags::ANONYMOUS, None, spec::MmapObject::Anon),
            MappedObject::SharedAnon => {
                let file = self.fresh_shmem_id();
                self.spec.borrow_mut().add_shmem(file, len.div_ceil(PAGE_SIZE));
                let mapped = spec::MmapObject::File { file, index: 0, opened: Rights::all() };
                (MapFlags::SHARED | MapFlags::ANONYMOUS, None, mapped)
            }
            MappedObject::PrivateFile(page) => (MapFlags::PRIVATE, Some(page), of_file(page)),
            MappedObject::SharedFile(page) | MappedObject::SharedReadOnly(page) => {
                (MapFlags::SHARED, Some(page), of_file(page))
            }
        };
        let shared = flags.contains(MapFlags::SHARED);
        let (addr, place_flag) = match place {
            MmapPlacement::Anywhere => (VirtAddr::ZERO, MapFlags::empty()),
            MmapPlacement::Fixed(at) => (at, MapFlags::FIXED),
            MmapPlacement::FixedNoReplace(at) => (at, MapFlags::FIXED_NOREPLACE),
        };
        // If populating copies pages, the reference memory needs their addresses before the call.
        let populate =
            populate && !(matches!(object, MappedObject::PrivateFile(_)) && place == MmapPlacement::Anywhere);
        let mut flags = flags | place_flag;
        flags.set(MapFlags::POPULATE, populate);
        flags.set(MapFlags::LOCKED, mapping_flags.lock != MlockMode::Unlocked);
        flags.set(MapFlags::GROWSDOWN, mapping_flags.grows_down);
        flags.set(MapFlags::NORESERVE, mapping_flags.no_reserve);
        let call = MemoryCall::Mmap { place, len, rights, shared, object: mapped, flags: mapping_flags };
        self.call(cpu, process, call, |mm| {
            let faults = if populate { self.begin_prefaults(process, addr, len) } else { Vec::new() };
            let file = page.map(|page| FileMapping { file: &self.file, offset: page * PAGE_SIZE, opened });
            let request = MapRequest { addr, len, rights, flags, file };
            let mapped = mm.mmap(&process.space, &request);
            faults.into_iter().for_each(|fault| self.spec.borrow_mut().prefault_ends(fault, mapped.is_ok()));
            mapped.map(CallResult::Mapped).map_err(MmError::errno)
        });
    }

    /// Tells the reference memory that a call may fault in these pages, and so may copy file pages.
    pub(super) fn begin_prefaults(&self, process: &Process<I>, addr: VirtAddr, len: u64) -> Vec<FaultId> {
        let Some(range) = PageRange::from_len(addr, len).ok().filter(|_| self.uses_spec) else { return Vec::new() };
        let mut spec = self.spec.borrow_mut();
        let pages = range.iter().take(MAX_PAGES as usize);
        pages.map(|va| spec.fault_begins(process.id(), va, Access::Write)).collect()
    }

    /// Forks, and returns the child's space if the call succeeds.
    pub(super) fn fork_call(&self, cpu: CpuId, parent: &Process<I>) -> Option<Arc<Space<Sim<I>>>> {
        let mut child = None;
        self.call(cpu, parent, MemoryCall::Fork, |mm| {
            let space = mm.fork(&parent.space).map_err(MmError::errno)?;
            let id = space.id();
            child = Some(space);
            Ok(CallResult::Child(id))
        });
        child
    }

    /// Ends a process that no CPU runs.
    pub(super) fn end_process(&self, cpu: CpuId, process: &Rc<Process<I>>) {
        self.call(cpu, process, MemoryCall::Exit, |mm| {
            mm.end_space(&process.space);
            Ok(CallResult::Done)
        });
    }

    /// Truncates the file, unless another CPU truncates it.
    pub(super) fn truncate(&self, cpu: CpuId, pages: u64) {
        if self.file.is_shmem() {
            return self.truncate_memfd(cpu, pages * PAGE_SIZE);
        }
        if self.truncate_in_progress.replace(true) {
            return self.counts.borrow_mut().count_skipped();
        }
        let file = &self.file;
        self.spec.borrow_mut().truncate_begins(file.id(), pages);
        self.lab.on(cpu, |mm| mm.truncate(file, pages * PAGE_SIZE)).expect("not sealed");
        self.intact_pages.fetch_min(pages, Ordering::Relaxed);
        self.written_back.lock().expect("no thread panicked with the lock").retain(|index, _| *index < pages);
        self.spec.borrow_mut().truncate_ends(file.id());
        self.counts.borrow_mut().count_call("ftruncate", CallResult::Done);
        self.truncate_in_progress.set(false);
    }
}
