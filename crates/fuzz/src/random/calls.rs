//! Memory calls: made on the memory manager, told to the reference memory before and after.

use super::operation::{Object, Operation, Where};
use super::world::{Process, World};
use pagewright_arch::Isa;
use pagewright_mm::space::FileMapping;
use pagewright_mm::{Advice, MapFlags, MapRequest, Mm, MmError, Space};
use pagewright_model::spec::{self, CallResult, FaultId, MappingFlags, MemoryCall, MlockMode, MmapPlacement};
use pagewright_sim::Sim;
use pagewright_sync::Arc;
use pagewright_types::{Access, CpuId, Errno, PAGE_SIZE, PageRange, Rights, VirtAddr};
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// Pages that one call may populate or put behind shared memory; programs map far fewer.
const MOST_PAGES: u64 = 4096;

impl<I: Isa> World<I> {
    /// Makes a call, and has its answer judged by the reference memory, if that is told of calls.
    pub(super) fn call(
        &self,
        cpu: CpuId,
        process: &Process<I>,
        call: MemoryCall,
        make: impl FnOnce(&Mm<Sim<I>>) -> Result<CallResult, Errno>,
    ) {
        if !self.is_told {
            let answer = self.lab.on(cpu, make).unwrap_or_else(CallResult::Failed);
            return self.say(cpu, call.name(), answer);
        }
        let refused = self.sim().refused_allocations();
        let under_way = self.spec.borrow_mut().call_begins(self.cpu_step(cpu), process.id(), call);
        let answer = self.lab.on(cpu, make).unwrap_or_else(CallResult::Failed);
        let mut spec = self.spec.borrow_mut();
        spec.set_memory_may_fail(self.sim().refused_allocations() > refused);
        let verdict = spec.call_ends(self.cpu_step(cpu), under_way, answer);
        drop(spec);
        self.say(cpu, call.name(), answer);
        self.judge(verdict);
    }

    /// Takes down what a call has answered.
    pub(super) fn say(&self, cpu: CpuId, name: &'static str, answer: CallResult) {
        self.done.borrow_mut().called(name, answer);
        self.bench.note(cpu, format_args!("{name}: {answer}"));
    }

    /// One of the calls that change a process's mappings.
    pub(super) fn memory_call(&self, cpu: CpuId, operation: Operation) {
        let Some(process) = self.enter(cpu) else { return };
        let space = &process.space;
        match operation {
            Operation::Map { place, len, rights, object, populate } => {
                self.map(cpu, &process, place, (len, rights), object, (populate, MappingFlags::default()));
            }
            Operation::Unmap { addr, len } => {
                let make =
                    |mm: &Mm<Sim<I>>| mm.munmap(space, addr, len).map(|()| CallResult::Done).map_err(MmError::errno);
                self.call(cpu, &process, MemoryCall::Munmap { addr, len }, make);
            }
            Operation::Protect { addr, len, rights } => {
                let make = |mm: &Mm<Sim<I>>| {
                    mm.mprotect(space, addr, len, rights).map(|()| CallResult::Done).map_err(MmError::errno)
                };
                self.call(cpu, &process, MemoryCall::Mprotect { addr, len, rights }, make);
            }
            Operation::DontNeed { addr, len } => {
                let make = |mm: &Mm<Sim<I>>| {
                    mm.madvise(space, addr, len, Advice::DontNeed).map(|()| CallResult::Done).map_err(MmError::errno)
                };
                self.call(cpu, &process, MemoryCall::DontNeed { addr, len }, make);
            }
            Operation::Break { to } => {
                // Of two at once the reference memory could not say where the break is.
                if process.breaking.replace(true) {
                    return self.done.borrow_mut().leave_out();
                }
                self.call(cpu, &process, MemoryCall::Brk { to }, |mm| Ok(CallResult::Break(mm.brk(space, to))));
                process.breaking.set(false);
            }
            Operation::Fork
            | Operation::Exit { .. }
            | Operation::Truncate { .. }
            | Operation::Access { .. }
            | Operation::Roam { .. }
            | Operation::Switch { .. }
            | Operation::Lazy
            | Operation::Syscall(_)
            | Operation::Kernel(_)
            | Operation::Starve { .. } => unreachable!("{operation} changes no mappings of one process"),
        }
    }

    pub(super) fn map(
        &self,
        cpu: CpuId,
        process: &Process<I>,
        place: Where,
        (len, rights): (u64, Rights),
        object: Object,
        (populate, mapping_flags): (bool, MappingFlags),
    ) {
        let opened = if matches!(object, Object::SharedReadOnly(_)) { Rights::READ } else { Rights::RW };
        let of_file = |index| spec::MmapObject::File { file: self.file.id(), index, opened };
        let (flags, page, told) = match object {
            Object::PrivateAnon => (MapFlags::PRIVATE | MapFlags::ANONYMOUS, None, spec::MmapObject::Anon),
            Object::SharedAnon => {
                let file = self.fresh_file();
                self.spec.borrow_mut().add_shmem(file, len.div_ceil(PAGE_SIZE));
                let told = spec::MmapObject::File { file, index: 0, opened: Rights::all() };
                (MapFlags::SHARED | MapFlags::ANONYMOUS, None, told)
            }
            Object::PrivateFile(page) => (MapFlags::PRIVATE, Some(page), of_file(page)),
            Object::SharedFile(page) | Object::SharedReadOnly(page) => (MapFlags::SHARED, Some(page), of_file(page)),
        };
        let shared = flags.contains(MapFlags::SHARED);
        let (addr, at, place_told) = match place {
            Where::Anywhere => (VirtAddr::ZERO, MapFlags::empty(), MmapPlacement::Anywhere),
            Where::Fixed(at) => (at, MapFlags::FIXED, MmapPlacement::Fixed(at)),
            Where::Vacant(at) => (at, MapFlags::FIXED_NOREPLACE, MmapPlacement::FixedNoReplace(at)),
        };
        // Where populating copies pages, the reference memory must know since when, and so where.
        let populate = populate && !(matches!(object, Object::PrivateFile(_)) && place == Where::Anywhere);
        let mut flags = flags | at;
        flags.set(MapFlags::POPULATE, populate);
        flags.set(MapFlags::LOCKED, mapping_flags.lock != MlockMode::Unlocked);
        flags.set(MapFlags::GROWSDOWN, mapping_flags.grows_down);
        flags.set(MapFlags::NORESERVE, mapping_flags.no_reserve);
        let call = MemoryCall::Mmap { place: place_told, len, rights, shared, object: told, flags: mapping_flags };
        self.call(cpu, process, call, |mm| {
            let faults = if populate { self.populating(process, addr, len) } else { Vec::new() };
            let file = page.map(|page| FileMapping { file: &self.file, offset: page * PAGE_SIZE, opened });
            let request = MapRequest { addr, len, rights, flags, file };
            let mapped = mm.mmap(&process.space, &request);
            faults.into_iter().for_each(|fault| self.spec.borrow_mut().prefault_ends(fault, mapped.is_ok()));
            mapped.map(CallResult::Mapped).map_err(MmError::errno)
        });
    }

    /// The faults that populating may make: whatever is mapped there by then, it may be a file's
    /// page that is copied.
    pub(super) fn populating(&self, process: &Process<I>, addr: VirtAddr, len: u64) -> Vec<FaultId> {
        let Some(range) = PageRange::from_len(addr, len).ok().filter(|_| self.is_told) else { return Vec::new() };
        let mut spec = self.spec.borrow_mut();
        let pages = range.iter().take(MOST_PAGES as usize);
        pages.map(|va| spec.fault_begins(process.id(), va, Access::Write)).collect()
    }

    /// Forks, and returns the child's space.
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

    /// Ends a process that nobody runs.
    pub(super) fn end_process(&self, cpu: CpuId, process: &Rc<Process<I>>) {
        self.call(cpu, process, MemoryCall::Exit, |mm| {
            mm.end_space(&process.space);
            Ok(CallResult::Done)
        });
    }

    /// Truncates the file, unless somebody is at it.
    pub(super) fn truncate(&self, cpu: CpuId, pages: u64) {
        if self.file.is_shmem() {
            return self.resize(cpu, pages * PAGE_SIZE);
        }
        if self.truncating.replace(true) {
            return self.done.borrow_mut().leave_out();
        }
        let file = &self.file;
        self.spec.borrow_mut().truncate_begins(file.id(), pages);
        self.lab.on(cpu, |mm| mm.truncate(file, pages * PAGE_SIZE)).expect("not sealed");
        self.intact.fetch_min(pages, Ordering::Relaxed);
        self.written.lock().expect("nobody has panicked with it").retain(|index, _| *index < pages);
        self.spec.borrow_mut().truncate_ends(file.id());
        self.done.borrow_mut().called("ftruncate", CallResult::Done);
        self.truncating.set(false);
    }
}
