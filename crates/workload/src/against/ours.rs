//! Our side: programs' operations as methods of the memory manager on a simulated machine of one CPU.
//!
//! What a kernel's system-call layer would do is done here: unknown flags, descriptors, and the errno of an answer.

use super::AgainstError;
use super::lack::{CODE, DATA, DATA_BYTES, END, LIMITS};
use super::maps;
use super::seen::{Seen, Signal};
use crate::lab::Lab;
use crate::random::{Descriptor, FILE_PAGES, HEAP, Object, Operation, Syscall, Where};
use pagewright_arch::X86_64;
use pagewright_mm::counters::Gauge;
use pagewright_mm::file::{FallocateFlags, FileObject, MemfdFlags, Seals};
use pagewright_mm::space::{FileMapping, Limits, Resource, SyncFlags, Whose};
use pagewright_mm::user::IoVec;
use pagewright_mm::{
    Advice, FaultError, Knobs, LockAllFlags, LockFlags, MapFlags, MapRequest, Mm, MmError, RemapFlags, RemapRequest,
    Space,
};
use pagewright_sim::{MachineConfig, NodeConfig, Profile, Sim};
use pagewright_sync::Arc;
use pagewright_types::{Access, CpuId, CpuMask, Errno, PAGE_SIZE, Rights, VirtAddr};
use std::sync::atomic::Ordering;

type Machine = Sim<X86_64>;

/// Its only CPU.
const CPU: CpuId = CpuId::new(0);
/// Bytes of memory, of which programs need few.
const BYTES: u64 = 32 << 20;
/// How often one access may fault; nobody takes a page away in between.
const TRIES: u32 = 8;
/// Where [`Syscall::ReadOther`] puts its bytes.
const BUFFER: VirtAddr = VirtAddr::new(DATA + 0x800);

/// The memory manager and the processes of a program.
pub(super) struct Ours {
    lab: Lab<X86_64>,
    /// What is behind the two mappings that every process of the other side has.
    control: Arc<FileObject<Machine>>,
    file: Option<Arc<FileObject<Machine>>>,
    /// By number; those that have ended are `None`.
    processes: Vec<Option<Arc<Space<Machine>>>>,
    /// Which one the CPU runs.
    running: Option<usize>,
    levels: Vec<u64>,
    /// Whether a fetch asks for the right to execute before anything else.
    plain_fetches: bool,
}

impl Ours {
    /// Switches a machine on.
    pub(super) fn start() -> Result<Self, AgainstError> {
        let profile = Profile::named("icelake").map_err(crate::lab::LabError::Profile)?;
        let mut config = MachineConfig::new(profile);
        config.cpus = 1;
        config.nodes = vec![NodeConfig { bytes: BYTES, cpus: CpuMask::EMPTY }];
        let lab = Lab::<X86_64>::new(config, Knobs::default())?;
        let control = lab.on(CPU, |mm| {
            let file = mm.memfd_create("control", MemfdFlags::empty())?;
            mm.truncate(&file, END - CODE)?;
            // Their pages stay, and are no leak.
            mm.write_at(&file, 0, &vec![0; (END - CODE) as usize])?;
            Ok(file)
        });
        let control = control.map_err(AgainstError::Memory)?;
        let levels = levels(&lab);
        Ok(Self { lab, control, file: None, processes: Vec::new(), running: None, levels, plain_fetches: false })
    }

    /// From now on, a fetch asks for the right to execute before anything else.
    pub(super) fn fetch_plainly(&mut self) {
        self.plain_fetches = true;
    }

    /// The first process of a program, with the file.
    pub(super) fn begin(&mut self) -> Result<(), AgainstError> {
        let control = &self.control;
        let begun = self.lab.on(CPU, |mm| {
            let space = mm.new_space()?;
            mm.set_brk_start(&space, HEAP);
            mm.set_stack_start(&space, VirtAddr::new(CODE));
            let limit = |limits: Limits, (resource, bytes)| match Resource::from_raw(resource) {
                Some(resource) => limits.with(resource, bytes),
                None => limits,
            };
            mm.set_limits(&space, LIMITS.into_iter().fold(Limits::default(), limit));
            for (at, len, rights) in [(CODE, DATA - CODE, Rights::RX), (DATA, DATA_BYTES, Rights::RW)] {
                let file = FileMapping { file: control, offset: at - CODE, opened: Rights::RW };
                let flags = MapFlags::SHARED | MapFlags::FIXED;
                mm.mmap(&space, &MapRequest { addr: VirtAddr::new(at), len, rights, flags, file: Some(file) })?;
            }
            let file = mm.memfd_create("file", MemfdFlags::ALLOW_SEALING)?;
            mm.truncate(&file, FILE_PAGES * PAGE_SIZE)?;
            Ok((space, file))
        });
        let (space, file) = begun.map_err(AgainstError::Memory)?;
        self.processes = vec![Some(space)];
        self.file = Some(file);
        Ok(())
    }

    /// Ends what is left of a program, and says which gauge shows that something was not given back.
    pub(super) fn finish(&mut self) -> Option<String> {
        self.lab.on(CPU, |mm| mm.tlb().leave());
        self.running = None;
        for space in std::mem::take(&mut self.processes).into_iter().flatten() {
            self.lab.on(CPU, |mm| mm.end_space(&space));
        }
        if let Some(file) = self.file.take() {
            self.lab.on(CPU, |mm| mm.close_file(&file));
        }
        let now = levels(&self.lab);
        let changed = Gauge::ALL.iter().zip(&self.levels).zip(&now).find(|((_, before), now)| before != now);
        let leak = changed.map(|((gauge, before), now)| format!("{} is {now}; it was {before}", gauge.name()));
        self.levels = now;
        leak
    }

    fn space(&self, process: usize) -> &Arc<Space<Machine>> {
        match self.processes.get(process) {
            Some(Some(space)) => space,
            Some(None) | None => unreachable!("process {process} lives on the other side"),
        }
    }

    /// Makes the CPU run a process.
    fn enter(&mut self, process: usize) {
        if self.running != Some(process) {
            self.lab.run(CPU, self.space(process));
            self.running = Some(process);
        }
    }

    /// Forks; the child gets the next number.
    pub(super) fn fork_process(&mut self, process: usize) -> Seen {
        self.enter(process);
        match self.lab.on(CPU, |mm| mm.fork(self.space(process))) {
            Ok(child) => {
                self.processes.push(Some(child));
                Seen::Done
            }
            Err(error) => failed(error.errno()),
        }
    }

    /// Ends a process.
    pub(super) fn exit_process(&mut self, process: usize) -> Seen {
        self.enter(process);
        self.lab.on(CPU, |mm| mm.tlb().leave());
        self.running = None;
        if let Some(space) = self.processes[process].take() {
            self.lab.on(CPU, |mm| mm.end_space(&space));
        }
        Seen::Done
    }

    /// Accesses the cell at `va`; `value` is what a store stores.
    pub(super) fn access(&mut self, process: usize, va: VirtAddr, access: Access, value: u64) -> Seen {
        self.enter(process);
        for _ in 0..TRIES {
            let sim = self.lab.sim();
            if let Ok(found) = sim.access(CPU, va, access, 1) {
                let cell = &sim.ram()[((found.pfn.base().raw() + va.page_offset()) / 8) as usize];
                return match access {
                    Access::Read => Seen::Value(cell.load(Ordering::Relaxed)),
                    Access::Write => {
                        cell.store(value, Ordering::Relaxed);
                        Seen::Done
                    }
                    Access::Exec => Seen::Done,
                };
            }
            match self.lab.on(CPU, |mm| mm.fault(self.space(process), va, access)) {
                Ok(_) => {}
                // Linux on x86-64 brings a page in for any fetch, and refuses it when it is there (`access_error`).
                Err(FaultError::NotAllowed { .. }) if access == Access::Exec && !self.plain_fetches => {
                    let read = self.access(process, va, Access::Read, value);
                    return if let Seen::Signal(_) = read { read } else { Seen::Signal(Signal::Forbidden) };
                }
                Err(error) => return Seen::Signal(signal(&error)),
            }
        }
        unreachable!("{access} at {va} still faults after {TRIES} faults were served")
    }

    /// Makes a call that concerns one process; `live` are those that live.
    pub(super) fn call(&mut self, process: usize, operation: &Operation, value: u64, live: &[usize]) -> Seen {
        self.enter(process);
        let space = self.space(process);
        let called = self.lab.on(CPU, |mm| match operation {
            Operation::Syscall(Syscall::ReadOther { process: other, addr, len }) => {
                self.read_other(mm, space, self.space(live[other % live.len()]), *addr, *len)
            }
            Operation::Syscall(call) => self.syscall(mm, space, call, value),
            operation => self.plain(mm, space, operation),
        });
        called.unwrap_or_else(failed)
    }

    fn plain(&self, mm: &Mm<Machine>, space: &Space<Machine>, operation: &Operation) -> Result<Seen, Errno> {
        let done = |()| Seen::Value(0);
        match *operation {
            Operation::Map { place, len, rights, object, populate } => {
                let (addr, at) = match place {
                    Where::Anywhere => (VirtAddr::ZERO, MapFlags::empty()),
                    Where::Fixed(at) => (at, MapFlags::FIXED),
                    Where::Vacant(at) => (at, MapFlags::FIXED_NOREPLACE),
                };
                let (kind, file, page) = match object {
                    Object::PrivateAnon => (MapFlags::PRIVATE | MapFlags::ANONYMOUS, Descriptor::None, 0),
                    Object::SharedAnon => (MapFlags::SHARED | MapFlags::ANONYMOUS, Descriptor::None, 0),
                    Object::PrivateFile(page) => (MapFlags::PRIVATE, Descriptor::Both, page),
                    Object::SharedFile(page) => (MapFlags::SHARED, Descriptor::Both, page),
                    Object::SharedReadOnly(page) => (MapFlags::SHARED, Descriptor::Reading, page),
                };
                let populate = if populate { MapFlags::POPULATE } else { MapFlags::empty() };
                self.map(mm, space, (addr, len), rights, kind | at | populate, (file, page * PAGE_SIZE))
            }
            Operation::Unmap { addr, len } => answer(mm.munmap(space, addr, len).map(done)),
            Operation::Protect { addr, len, rights } => answer(mm.mprotect(space, addr, len, rights).map(done)),
            Operation::DontNeed { addr, len } => answer(mm.madvise(space, addr, len, Advice::DontNeed).map(done)),
            Operation::Break { to } => Ok(Seen::Value(mm.brk(space, to).raw())),
            Operation::Truncate { pages } => answer(mm.truncate(self.file(), pages * PAGE_SIZE).map(done)),
            Operation::Fork
            | Operation::Exit { .. }
            | Operation::Access { .. }
            | Operation::Roam { .. }
            | Operation::Switch { .. }
            | Operation::Lazy
            | Operation::Starve { .. }
            | Operation::Syscall(_) => unreachable!("{operation} is no call of one process"),
        }
    }

    fn file(&self) -> &Arc<FileObject<Machine>> {
        match &self.file {
            Some(file) => file,
            None => unreachable!("a program has its file from its beginning to its end"),
        }
    }

    fn map(
        &self,
        mm: &Mm<Machine>,
        space: &Space<Machine>,
        (addr, len): (VirtAddr, u64),
        rights: Rights,
        flags: MapFlags,
        (descriptor, offset): (Descriptor, u64),
    ) -> Result<Seen, Errno> {
        let opened = match descriptor {
            Descriptor::None => None,
            Descriptor::Both => Some(Rights::RW),
            Descriptor::Reading => Some(Rights::READ),
        };
        let file = match (flags.contains(MapFlags::ANONYMOUS), opened) {
            (true, _) => None,
            (false, None) => return Err(Errno::EBADF),
            (false, Some(opened)) => Some(FileMapping { file: self.file(), offset, opened }),
        };
        let request = MapRequest { addr, len, rights, flags, file };
        answer(mm.mmap(space, &request).map(|at| Seen::Value(at.raw())))
    }

    fn syscall(&self, mm: &Mm<Machine>, space: &Space<Machine>, call: &Syscall, value: u64) -> Result<Seen, Errno> {
        let done = |()| Seen::Value(0);
        match *call {
            Syscall::Map { addr, len, prot, flags, file, offset } => {
                // Linux looks at the offset of an anonymous mapping, too.
                if offset % PAGE_SIZE != 0 {
                    return Err(Errno::EINVAL);
                }
                let rights = Rights::from_bits_truncate(prot as u8);
                self.map(mm, space, (addr, len), rights, MapFlags::from_bits_retain(flags), (file, offset))
            }
            Syscall::Remap { addr, old_len, new_len, flags, new_addr } => {
                let flags = RemapFlags::from_bits_retain(flags);
                let request = RemapRequest { addr, old_len, new_len, flags, new_addr };
                answer(mm.mremap(space, &request).map(|at| Seen::Value(at.raw())))
            }
            Syscall::Advise { addr, len, advice } => {
                answer(Advice::from_raw(advice).and_then(|advice| mm.madvise(space, addr, len, advice)).map(done))
            }
            Syscall::Lock { addr, len, flags } => {
                answer(mm.mlock2(space, addr, len, LockFlags::from_bits_retain(flags)).map(done))
            }
            Syscall::Unlock { addr, len } => answer(mm.munlock(space, addr, len).map(done)),
            Syscall::LockAll { flags } => answer(mm.mlockall(space, LockAllFlags::from_bits_retain(flags)).map(done)),
            Syscall::UnlockAll => {
                mm.munlockall(space);
                Ok(Seen::Value(0))
            }
            Syscall::Sync { addr, len, flags } => {
                answer(mm.msync(space, addr, len, SyncFlags::from_bits_retain(flags)).map(done))
            }
            Syscall::Resident { addr, len } => {
                let mut vec = vec![0; len.min(1 << 20).div_ceil(PAGE_SIZE) as usize];
                answer(mm.mincore(space, addr, len, &mut vec).map(|()| Seen::Bytes(0, vec)))
            }
            Syscall::Seal { addr, len, flags } => answer(mm.mseal(space, addr, len, flags).map(done)),
            Syscall::Limit { resource, bytes } => {
                let resource = Resource::from_raw(resource).ok_or(Errno::EINVAL)?;
                let limits = *space.map().read().limits();
                mm.set_limits(space, limits.with(resource, bytes));
                Ok(Seen::Value(0))
            }
            Syscall::Maps => {
                let mut text = String::new();
                // Writing to a String does not fail.
                let _ = mm.show_maps(space, &mut text);
                Ok(Seen::Maps(maps::parse(&text, |address| address)))
            }
            Syscall::AdviseRanges { ranges, advice } => {
                let advised =
                    Advice::from_raw(advice).and_then(|advice| mm.process_madvise(space, Whose::Own, &ranges, advice));
                answer(advised.map(Seen::Value))
            }
            Syscall::Allocate { .. }
            | Syscall::AddSeals { .. }
            | Syscall::GetSeals
            | Syscall::Read { .. }
            | Syscall::Write { .. } => self.file_call(mm, call, value),
            Syscall::ReadOther { .. } => unreachable!("it concerns two processes"),
        }
    }

    /// A call that concerns the file.
    fn file_call(&self, mm: &Mm<Machine>, call: &Syscall, value: u64) -> Result<Seen, Errno> {
        let file = self.file();
        match *call {
            Syscall::Allocate { flags, offset, len } => {
                let flags = FallocateFlags::from_bits_retain(flags);
                answer(mm.fallocate(file, flags, offset, len).map(|()| Seen::Value(0)))
            }
            Syscall::AddSeals { file: descriptor, seals } => {
                let opened = match descriptor {
                    Descriptor::None => return Err(Errno::EBADF),
                    Descriptor::Both => Rights::RW,
                    Descriptor::Reading => Rights::READ,
                };
                answer(mm.add_seals(file, opened, Seals::from_bits_retain(seals)).map(|()| Seen::Value(0)))
            }
            Syscall::GetSeals => answer(file.seals().map(|seals| Seen::Value(seals.bits().into()))),
            Syscall::Read { offset } => {
                let mut bytes = vec![0; 8];
                answer(mm.read_at(file, offset, &mut bytes).map(|count| {
                    bytes.truncate(count);
                    Seen::Bytes(count as u64, bytes)
                }))
            }
            Syscall::Write { offset } => {
                answer(mm.write_at(file, offset, &value.to_le_bytes()).map(|count| Seen::Value(count as u64)))
            }
            Syscall::Map { .. }
            | Syscall::Remap { .. }
            | Syscall::Advise { .. }
            | Syscall::Lock { .. }
            | Syscall::Unlock { .. }
            | Syscall::LockAll { .. }
            | Syscall::UnlockAll
            | Syscall::Sync { .. }
            | Syscall::Resident { .. }
            | Syscall::Seal { .. }
            | Syscall::Limit { .. }
            | Syscall::ReadOther { .. }
            | Syscall::AdviseRanges { .. }
            | Syscall::Maps => unreachable!("{call} does not concern the file"),
        }
    }

    fn read_other(
        &self,
        mm: &Mm<Machine>,
        space: &Space<Machine>,
        other: &Space<Machine>,
        addr: VirtAddr,
        len: u64,
    ) -> Result<Seen, Errno> {
        let (to, from) = ([IoVec { base: BUFFER, len }], [IoVec { base: addr, len }]);
        let count = mm.process_vm_readv((space, &to), (other, &from), 0).map_err(MmError::errno)?;
        let mut bytes = vec![0; count as usize];
        let left = mm.copy_from_user(space, BUFFER, &mut bytes);
        debug_assert_eq!(left, 0, "the bytes were just put there");
        Ok(Seen::Bytes(count, bytes))
    }
}

fn levels(lab: &Lab<X86_64>) -> Vec<u64> {
    lab.on(CPU, |mm| Gauge::ALL.iter().map(|gauge| mm.gauge(*gauge)).collect())
}

fn answer(answer: Result<Seen, MmError>) -> Result<Seen, Errno> {
    answer.map_err(MmError::errno)
}

fn failed(errno: Errno) -> Seen {
    Seen::Failed(errno.number())
}

fn signal(error: &FaultError) -> Signal {
    match error {
        FaultError::NotMapped { .. } | FaultError::Guarded { .. } => Signal::Unmapped,
        FaultError::NotAllowed { .. } => Signal::Forbidden,
        FaultError::PastEnd { .. } | FaultError::Device { .. } => Signal::PastEnd,
        // SIGKILL, from the kernel.
        FaultError::OutOfMemory(_) => Signal::Other(9, 0x80),
    }
}
