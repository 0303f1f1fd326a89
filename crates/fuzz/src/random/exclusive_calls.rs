//! Exclusive calls, with raw arguments: they do not overlap other operations of their process.

use super::operation::MappedObject;
use super::program_run::{Process, ProgramRun};
use super::registers::{CallOutput, CallRegisters, CallerNumbers};
use super::syscall::{FileDescriptor, Syscall};
use pagewright_arch::Isa;
use pagewright_lab::LabCaller;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::Resource;
use pagewright_mm::{MapFlags, Mm, Space};
use pagewright_model::spec::{CallResult, ExclusiveCall, MappingFlags, MemoryCall, MlockMode, MmapPlacement};
use pagewright_sim::Sim;
use pagewright_sync::Arc;
use pagewright_types::{Access, CpuId, Errno, PAGE_SIZE, PageRange, Rights, VirtAddr};

/// Address of the words that a call reads, which a buffer replaces.
///
/// So a call changes no memory that the reference memory follows.
const INPUT: u64 = 0x1000;
/// Address of the bytes that a call stores, in the same buffer.
const OUTPUT: u64 = 0x1800;
/// Limit of the bytes that a call stores.
const MAX_OUTPUT: usize = 4096;

/// Makes a call through the decoder; returns its result and the bytes that it stores.
fn decode_and_call<I: Isa>(
    mm: &Mm<Sim<I>>,
    space: &Arc<Space<Sim<I>>>,
    exclusive: ExclusiveCall,
) -> Result<(CallResult, Vec<u8>), Errno> {
    let hard_limit = |resource| {
        let resource = Resource::from_raw(resource);
        resource.map_or(u64::MAX, |resource| space.map().read().limits().limit(resource).hard)
    };
    let numbers = CallerNumbers {
        read_write: u64::MAX,
        read_only: u64::MAX,
        pid: 0,
        pidfd: u64::MAX,
        input: INPUT,
        output: OUTPUT,
        hard_limit: &hard_limit,
    };
    let CallRegisters { call, arguments, input, output } = CallRegisters::of_exclusive(&exclusive, &numbers);
    let stores = if let CallOutput::Bytes(count) = output { count.min(MAX_OUTPUT) } else { 0 };
    let start = (OUTPUT - INPUT) as usize;
    let mut memory: Vec<u8> = input.iter().flat_map(|word| word.to_le_bytes()).collect();
    memory.resize(start + stores, 0);
    let caller = LabCaller::new(mm, space).with_buffer(VirtAddr::new(INPUT), memory);
    let returned = caller.call(call, arguments)?;
    let result = match exclusive {
        ExclusiveCall::Remap { .. } => CallResult::Mapped(VirtAddr::new(returned)),
        ExclusiveCall::AdviseRanges { .. } => CallResult::Bytes(returned),
        _ => CallResult::Done,
    };
    Ok((result, caller.into_buffer().split_off(start)))
}

impl<I: Isa> ProgramRun<I> {
    /// Makes a call that the reference memory can predict, and skips others.
    pub(super) fn syscall(&self, cpu: CpuId, call: Syscall) {
        let Some(process) = self.current_process(cpu) else { return };
        match call {
            Syscall::Exclusive(call)
                if !self.uses_spec
                    || self.spec.borrow().is_determined(process.id(), &call, self.allocation_failure_is_pending()) =>
            {
                self.exclusive_call(cpu, &process, call);
            }
            Syscall::Mmap { addr, len, prot, flags, file, offset } => {
                self.raw_mmap(cpu, &process, (addr, len, prot), flags, (file, offset));
            }
            Syscall::Fallocate { .. }
            | Syscall::AddSeals { .. }
            | Syscall::GetSeals
            | Syscall::Pread { .. }
            | Syscall::Pwrite { .. } => self.file_call(cpu, &process, call),
            Syscall::ProcessVmReadv { process: index, addr, len } => self.access_by_frames(cpu, index, addr, len),
            Syscall::Exclusive(_)
            | Syscall::Mprotect { .. }
            | Syscall::MincoreInto { .. }
            | Syscall::SetLimits { .. }
            | Syscall::ProcessVmWritev { .. }
            | Syscall::ProcessMadvise { .. }
            | Syscall::Vmsplice { .. }
            | Syscall::ReadPipe
            | Syscall::ShowMaps
            | Syscall::ShowSmaps
            | Syscall::ShowPagemap { .. } => self.counts.borrow_mut().count_skipped(),
        }
    }

    fn exclusive_call(&self, cpu: CpuId, process: &Process<I>, call: ExclusiveCall) {
        let (space, mut stored) = (&process.space, None);
        self.call(cpu, process, MemoryCall::Exclusive(call), |mm| {
            let (result, bytes) = decode_and_call(mm, space, call)?;
            stored = Some(bytes);
            Ok(result)
        });
        if let (ExclusiveCall::Resident { addr, .. }, Some(vec), true) = (call, stored, self.uses_spec) {
            for (va, resident) in (0..).map(|page| addr.add(page * PAGE_SIZE)).zip(vec) {
                let verdict = self.spec.borrow().mincore_page(self.cpu_step(cpu), process.id(), va, resident & 1 == 1);
                self.judge(verdict);
            }
        }
    }

    /// `mmap` with further flags.
    fn raw_mmap(
        &self,
        cpu: CpuId,
        process: &Process<I>,
        (addr, len, prot): (VirtAddr, u64, u32),
        flags: u32,
        (file, offset): (FileDescriptor, u64),
    ) {
        let flags = MapFlags::from_bits_truncate(flags);
        let has = |flag| flags.contains(flag);
        let page = offset % (1 << 32) / PAGE_SIZE;
        let object = match (has(MapFlags::SHARED), has(MapFlags::ANONYMOUS), file) {
            (false, true, _) => MappedObject::PrivateAnon,
            (true, true, _) => MappedObject::SharedAnon,
            (false, false, _) => MappedObject::PrivateFile(page),
            (true, false, FileDescriptor::ReadOnly) => MappedObject::SharedReadOnly(page),
            (true, false, FileDescriptor::ReadWrite | FileDescriptor::None) => MappedObject::SharedFile(page),
        };
        let place = match (has(MapFlags::FIXED), has(MapFlags::FIXED_NOREPLACE)) {
            (true, _) => MmapPlacement::Fixed(addr),
            (false, true) => MmapPlacement::FixedNoReplace(addr),
            (false, false) => MmapPlacement::Anywhere,
        };
        let mapping_flags = MappingFlags {
            lock: if has(MapFlags::LOCKED) { MlockMode::Locked } else { MlockMode::Unlocked },
            grows_down: has(MapFlags::GROWSDOWN),
            no_reserve: has(MapFlags::NORESERVE),
            ..MappingFlags::default()
        };
        let rights = Rights::from_bits_truncate(prot as u8);
        self.map(cpu, process, place, (len, rights), object, (has(MapFlags::POPULATE), mapping_flags));
    }

    /// Takes pages of a process by `get_user_pages` or `pin_user_pages`, and accesses their frames.
    ///
    /// It pins and stores if `len` is a multiple of 16, else it gets references and loads.
    fn access_by_frames(&self, cpu: CpuId, index: usize, addr: VirtAddr, len: u64) {
        let live = self.processes();
        // If operations overlap, another process could end during the call.
        let other =
            if self.uses_spec { live.get(index % live.len().max(1)).cloned() } else { self.current_process(cpu) };
        let Some(other) = &other else { return };
        let at = addr.align_down(8);
        let Ok(range) = PageRange::from_len(at.align_down(PAGE_SIZE), (1 + len / 16) * PAGE_SIZE) else { return };
        let stores = len.is_multiple_of(16);
        let flags = if stores { GupFlags::WRITE } else { GupFlags::empty() };
        // The call copies a page (copy-on-write), not the store.
        let copied = if stores { self.begin_prefaults(other, range.start(), range.len()) } else { Vec::new() };
        let taken = self.lab.on(cpu, |mm| {
            if stores {
                mm.pin_user_pages(&other.space, range, flags)
            } else {
                mm.get_user_pages(&other.space, range, flags)
            }
        });
        copied.into_iter().for_each(|fault| self.spec.borrow_mut().prefault_ends(fault, true));
        let name = if stores { "pin_user_pages" } else { "get_user_pages" };
        let result = taken.as_ref().map_or_else(|error| CallResult::Failed(error.errno()), |_| CallResult::Done);
        self.record_result(cpu, name, result);
        let Ok(pages) = taken else { return };
        for (page, va) in pages.iter().zip(range.iter()) {
            let va = va.add(at.page_offset());
            self.complete_access(cpu, other, va, Access::Read, page.pfn());
            if stores {
                self.complete_access(cpu, other, va, Access::Write, page.pfn());
            }
        }
        let make_dirty = if stores { MakeDirty::Yes } else { MakeDirty::No };
        self.lab.on(cpu, |mm| mm.release_user_pages(pages, make_dirty));
    }
}
