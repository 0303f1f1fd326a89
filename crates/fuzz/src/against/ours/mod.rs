//! Our side: programs' operations as calls and accesses of processes on a simulated machine of one
//! CPU.
//!
//! `calls` makes them by number and registers, through the decoder that the kernel has
//! (`pagewright_syscall`).

mod calls;

use super::AgainstError;
use super::lack::{CODE, DATA, DATA_BYTES, END, Host, LIMITS};
use super::seen::{Seen, Signal};
use crate::random::{FILE_PAGES, HEAP, Operation, Syscall};
use pagewright_arch::X86_64;
use pagewright_lab::Lab;
use pagewright_mm::counters::Gauge;
use pagewright_mm::file::{FileObject, MemfdFlags};
use pagewright_mm::gup::{MakeDirty, UserPages};
use pagewright_mm::space::{FileMapping, Resource, Rlimit, Rlimits};
use pagewright_mm::{FaultError, MapFlags, MapRequest, MmError, MmSetting, MmSettings, Space};
use pagewright_sim::{MachineConfig, NodeConfig, Profile, Sim};
use pagewright_sync::Arc;
use pagewright_types::{Access, CpuId, CpuMask, Errno, PAGE_SIZE, PageRange, Rights, VirtAddr};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

type Machine = Sim<X86_64>;

/// Its only CPU.
const CPU: CpuId = CpuId::new(0);
/// Bytes of memory, of which programs need few.
const BYTES: u64 = 32 << 20;
/// How often one access may fault; nobody takes a page away in between.
const TRIES: u32 = 8;

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
    /// What the other side is set to.
    host: Host,
    /// Pages that a pipe would have a reference on, each with the place of the bytes in it.
    spliced: VecDeque<(UserPages, u64)>,
    /// Whether a fetch asks for the right to execute before anything else.
    plain_fetches: bool,
}

impl Ours {
    /// Switches a machine on that is set as the other side is.
    pub(super) fn start(host: Host) -> Result<Self, AgainstError> {
        let profile = Profile::named("icelake").map_err(pagewright_lab::LabError::Profile)?;
        let mut config = MachineConfig::new(profile);
        config.cpus = 1;
        config.nodes = vec![NodeConfig { bytes: BYTES, cpus: CpuMask::EMPTY }];
        let settings = MmSettings::default();
        settings.set(MmSetting::MmapMinAddr, host.least_address).map_err(AgainstError::Setting)?;
        let lab = Lab::<X86_64>::new(config, settings)?;
        let control = lab.on(CPU, |mm| {
            let file = mm.memfd_create("control", MemfdFlags::empty())?;
            mm.truncate(&file, END - CODE)?;
            // Their pages stay, and are no leak.
            mm.write_at(&file, 0, &vec![0; (END - CODE) as usize])?;
            Ok(file)
        });
        let control = control.map_err(AgainstError::Memory)?;
        let levels = levels(&lab);
        let (processes, spliced) = (Vec::new(), VecDeque::new());
        let (file, running, plain_fetches) = (None, None, false);
        Ok(Self { lab, control, file, processes, running, levels, host, spliced, plain_fetches })
    }

    /// From now on, a fetch asks for the right to execute before anything else.
    pub(super) fn fetch_plainly(&mut self) {
        self.plain_fetches = true;
    }

    /// The first process of a program, with the file.
    pub(super) fn begin(&mut self) -> Result<(), AgainstError> {
        let (control, hard) = (&self.control, self.host.hard);
        let begun = self.lab.on(CPU, |mm| {
            let space = mm.new_space()?;
            mm.set_brk_start(&space, HEAP);
            mm.set_stack_start(&space, VirtAddr::new(CODE));
            mm.set_code(&space, PageRange::page(VirtAddr::new(CODE)));
            let limit = |limits: Rlimits, ((resource, soft), hard)| match Resource::from_raw(resource) {
                Some(resource) => limits.with_limit(resource, Rlimit { soft, hard }),
                None => limits,
            };
            mm.set_limits(&space, LIMITS.into_iter().zip(hard).fold(Rlimits::default(), limit));
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

    /// Ends what is left of a program, and says which gauge shows that something was not given
    /// back.
    pub(super) fn finish(&mut self) -> Option<String> {
        self.lab.on(CPU, |mm| mm.tlb().leave_space());
        self.running = None;
        for space in std::mem::take(&mut self.processes).into_iter().flatten() {
            self.lab.on(CPU, |mm| mm.end_space(&space));
        }
        while let Some((pages, _)) = self.spliced.pop_front() {
            self.lab.on(CPU, |mm| mm.release_user_pages(pages, MakeDirty::No));
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
        self.lab.on(CPU, |mm| mm.tlb().leave_space());
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
                // Linux on x86-64 brings a page in for any fetch, and refuses it when it is there
                // (`access_error`).
                Err(FaultError::NotAllowed { .. }) if access == Access::Exec && !self.plain_fetches => {
                    let read = self.access(process, va, Access::Read, value);
                    return if let Seen::Signal(_) = read { read } else { Seen::Signal(Signal::Forbidden) };
                }
                Err(error) => return Seen::Signal(signal(&error)),
            }
        }
        unreachable!("{access} at {va} still faults after {TRIES} faults were served")
    }

    /// Makes a call, or reads what procfs says; `live` are the processes that live.
    pub(super) fn call(&mut self, process: usize, operation: &Operation, value: u64, live: &[usize]) -> Seen {
        self.enter(process);
        let called = match *operation {
            Operation::Syscall(Syscall::Splice { addr }) => self.splice(process, addr),
            Operation::Syscall(Syscall::Drain) => self.drain(),
            Operation::Syscall(Syscall::Read { offset }) => self.lab.on(CPU, |mm| self.read(mm, offset)),
            Operation::Syscall(Syscall::Write { offset }) => self.lab.on(CPU, |mm| self.write(mm, offset, value)),
            Operation::Syscall(ref call @ (Syscall::Maps | Syscall::Usage | Syscall::Pages { .. })) => {
                Ok(self.lab.on(CPU, |mm| self.shown(mm, self.space(process), call)))
            }
            ref operation => {
                let other = if let Operation::Syscall(call) = operation { call.other() } else { None };
                let other = other.map(|other| self.space(live[other % live.len()]));
                self.lab.on(CPU, |mm| self.memory_call(mm, self.space(process), other, operation, value))
            }
        };
        called.unwrap_or_else(failed)
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
