//! Calls that have their process for themselves: made with raw flags, and told to the reference
//! memory.

use super::operation::{Object, Where};
use super::registers::{CallOutput, CallRegisters, Numbers};
use super::syscall::{Descriptor, Syscall};
use super::world::{Process, World};
use pagewright_arch::Isa;
use pagewright_lab::LabCaller;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::Resource;
use pagewright_mm::{MapFlags, Mm, Space};
use pagewright_model::spec::{CallResult, ExclusiveCall, MappingFlags, MemoryCall, MlockMode};
use pagewright_sim::Sim;
use pagewright_sync::Arc;
use pagewright_types::{Access, CpuId, Errno, PAGE_SIZE, PageRange, Rights, VirtAddr};

/// Where a buffer stands for user memory, so that calls change none that is judged: what they read,
/// then what they store.
const INPUT: u64 = 0x1000;
const OUTPUT: u64 = 0x1800;
/// Bytes that a call stores there at most.
const OUTPUT_MAX: usize = 4096;

/// Makes a call through the decoder of the kernel.
///
/// Returns what it stores to user memory beside its result.
fn make<I: Isa>(
    mm: &Mm<Sim<I>>,
    space: &Arc<Space<Sim<I>>>,
    exclusive: ExclusiveCall,
) -> Result<(CallResult, Vec<u8>), Errno> {
    let hard_limit = |resource| {
        let resource = Resource::from_raw(resource);
        resource.map_or(u64::MAX, |resource| space.map().read().limits().limit(resource).hard)
    };
    let numbers = Numbers {
        both: u64::MAX,
        reading: u64::MAX,
        pid: 0,
        pidfd: u64::MAX,
        input: INPUT,
        output: OUTPUT,
        hard_limit: &hard_limit,
    };
    let CallRegisters { call, arguments, input, output } = CallRegisters::of_exclusive(&exclusive, &numbers);
    let stores = if let CallOutput::Bytes(count) = output { count.min(OUTPUT_MAX) } else { 0 };
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

impl<I: Isa> World<I> {
    /// Makes a call that has its process for itself, unless it can't be foretold how far it gets.
    pub(super) fn syscall(&self, cpu: CpuId, call: Syscall) {
        let Some(process) = self.enter(cpu) else { return };
        match call {
            Syscall::Exclusive(call)
                if !self.is_told || self.spec.borrow().is_determined(process.id(), &call, self.is_starving()) =>
            {
                self.call_alone(cpu, &process, call);
            }
            Syscall::Map { addr, len, prot, flags, file, offset } => {
                self.map_raw(cpu, &process, (addr, len, prot), flags, (file, offset));
            }
            Syscall::Allocate { .. }
            | Syscall::AddSeals { .. }
            | Syscall::GetSeals
            | Syscall::Read { .. }
            | Syscall::Write { .. } => self.file_call(cpu, &process, call),
            Syscall::ReadOther { process: place, addr, len } => self.look_into(cpu, place, addr, len),
            Syscall::Exclusive(_)
            | Syscall::Protect { .. }
            | Syscall::ResidentInto { .. }
            | Syscall::BothLimits { .. }
            | Syscall::WriteOther { .. }
            | Syscall::AdviseOther { .. }
            | Syscall::Splice { .. }
            | Syscall::Drain
            | Syscall::Maps
            | Syscall::Usage
            | Syscall::Pages { .. } => self.done.borrow_mut().leave_out(),
        }
    }

    fn call_alone(&self, cpu: CpuId, process: &Process<I>, call: ExclusiveCall) {
        let (space, mut stored) = (&process.space, None);
        self.call(cpu, process, MemoryCall::Exclusive(call), |mm| {
            let (answer, bytes) = make(mm, space, call)?;
            stored = Some(bytes);
            Ok(answer)
        });
        if let (ExclusiveCall::Resident { addr, .. }, Some(vec), true) = (call, stored, self.is_told) {
            for (va, resident) in (0..).map(|page| addr.add(page * PAGE_SIZE)).zip(vec) {
                let verdict = self.spec.borrow().mincore_page(self.cpu_step(cpu), process.id(), va, resident & 1 == 1);
                self.judge(verdict);
            }
        }
    }

    /// `mmap` with flags beside those that say what is mapped, and where.
    fn map_raw(
        &self,
        cpu: CpuId,
        process: &Process<I>,
        (addr, len, prot): (VirtAddr, u64, u32),
        flags: u32,
        (file, offset): (Descriptor, u64),
    ) {
        let flags = MapFlags::from_bits_truncate(flags);
        let has = |flag| flags.contains(flag);
        let page = offset % (1 << 32) / PAGE_SIZE;
        let object = match (has(MapFlags::SHARED), has(MapFlags::ANONYMOUS), file) {
            (false, true, _) => Object::PrivateAnon,
            (true, true, _) => Object::SharedAnon,
            (false, false, _) => Object::PrivateFile(page),
            (true, false, Descriptor::Reading) => Object::SharedReadOnly(page),
            (true, false, Descriptor::Both | Descriptor::None) => Object::SharedFile(page),
        };
        let place = match (has(MapFlags::FIXED), has(MapFlags::FIXED_NOREPLACE)) {
            (true, _) => Where::Fixed(addr),
            (false, true) => Where::Vacant(addr),
            (false, false) => Where::Anywhere,
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

    /// Takes hold of pages of a process as a device or another process's `process_vm_readv` does,
    /// and compares what is in their frames; stores to them if `len` says so.
    fn look_into(&self, cpu: CpuId, place: usize, addr: VirtAddr, len: u64) {
        let live = self.processes();
        // Another could end meanwhile, if anything else is under way.
        let other = if self.is_told { live.get(place % live.len().max(1)).cloned() } else { self.enter(cpu) };
        let Some(other) = &other else { return };
        let at = addr.align_down(8);
        let Ok(range) = PageRange::from_len(at.align_down(PAGE_SIZE), (1 + len / 16) * PAGE_SIZE) else { return };
        let stores = len.is_multiple_of(16);
        let flags = if stores { GupFlags::WRITE } else { GupFlags::empty() };
        // A copy is made when a page is taken hold of, not when it is stored to.
        let copied = if stores { self.populating(other, range.start(), range.len()) } else { Vec::new() };
        let held = self.lab.on(cpu, |mm| {
            if stores {
                mm.pin_user_pages(&other.space, range, flags)
            } else {
                mm.get_user_pages(&other.space, range, flags)
            }
        });
        copied.into_iter().for_each(|fault| self.spec.borrow_mut().prefault_ends(fault, true));
        let name = if stores { "pin_user_pages" } else { "get_user_pages" };
        let answer = held.as_ref().map_or_else(|error| CallResult::Failed(error.errno()), |_| CallResult::Done);
        self.done.borrow_mut().called(name, answer);
        self.bench.note(cpu, format_args!("{name}: {answer}"));
        let Ok(pages) = held else { return };
        for (page, va) in pages.iter().zip(range.iter()) {
            let va = va.add(at.page_offset());
            self.reach(cpu, other, va, Access::Read, page.pfn());
            if stores {
                self.reach(cpu, other, va, Access::Write, page.pfn());
            }
        }
        let make_dirty = if stores { MakeDirty::Yes } else { MakeDirty::No };
        self.lab.on(cpu, |mm| mm.release_user_pages(pages, make_dirty));
    }
}
