//! Our side: runs operations as calls and accesses of processes on a simulated machine of one CPU.
//!
//! `calls` makes the calls by number and registers, through the decoder (`pagewright_syscall`).

mod calls;

use super::AgainstError;
use super::initial_state::{CODE, DATA, DATA_BYTES, END, HostSettings, LIMITS, data_pages};
use super::observation::{AccessSignal, Observation};
use crate::random::{FILE_PAGES, HEAP, Operation, Syscall};
use pagewright_arch::X86_64;
use pagewright_lab::Lab;
use pagewright_mm::counters::Gauge;
use pagewright_mm::file::{FileObject, MemfdFlags};
use pagewright_mm::gup::{MakeDirty, UserPages};
use pagewright_mm::space::{FileMapping, Resource, Rlimit, Rlimits};
use pagewright_mm::{FaultError, MapFlags, MapRequest, Mm, MmError, MmSetting, MmSettings, Space};
use pagewright_model::spec::RangeCall;
use pagewright_sim::{MachineConfig, NodeConfig, Profile, Sim};
use pagewright_sync::Arc;
use pagewright_types::{Access, Counter, CpuId, CpuMask, Errno, Order, PAGE_SIZE, PageRange, Rights, VirtAddr};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

type Machine = Sim<X86_64>;

/// The only CPU of the machine.
const CPU: CpuId = CpuId::new(0);
/// Memory of the machine in bytes: three huge pages of four processes, and as much again.
const MEMORY_BYTES: u64 = 64 << 20;
/// Limit of the faults of one access; no other CPU unmaps a page in between.
const MAX_FAULTS: u32 = 8;

/// The memory manager and the processes of a program.
pub(super) struct Ours {
    lab: Lab<X86_64>,
    /// The file that backs code and data, as on the other side.
    control: Arc<FileObject<Machine>>,
    file: Option<Arc<FileObject<Machine>>>,
    /// The processes by number; `None` if ended.
    processes: Vec<Option<Arc<Space<Machine>>>>,
    /// The process that the CPU runs.
    running: Option<usize>,
    /// The gauges after the last program.
    gauges: Vec<u64>,
    /// The settings of the other side.
    host: HostSettings,
    /// The pages in the pipe, each with the offset of the bytes in it.
    spliced: VecDeque<(UserPages, u64)>,
    /// Whether a fetch checks the right to execute before it faults a page in.
    plain_fetches: bool,
}

impl Ours {
    /// Makes a machine with the settings of the other side.
    pub(super) fn start(host: HostSettings) -> Result<Self, AgainstError> {
        let profile = Profile::named("icelake").map_err(pagewright_lab::LabError::Profile)?;
        let mut config = MachineConfig::new(profile);
        config.cpus = 1;
        config.nodes = vec![NodeConfig { bytes: MEMORY_BYTES, cpus: CpuMask::EMPTY }];
        let settings = MmSettings::default();
        settings.set(MmSetting::MmapMinAddr, host.mmap_min_addr).map_err(AgainstError::Setting)?;
        settings.set(MmSetting::ThpEnabled, host.huge_pages).map_err(AgainstError::Setting)?;
        let lab = Lab::<X86_64>::new(config, settings)?;
        let control = lab.on(CPU, |mm| {
            let file = mm.memfd_create("control", MemfdFlags::empty())?;
            mm.truncate(&file, END - CODE)?;
            // Their pages stay, so allocate them before the gauges are read.
            mm.write_at(&file, 0, &vec![0; (END - CODE) as usize])?;
            Ok(file)
        });
        let control = control.map_err(AgainstError::Memory)?;
        let gauges = gauges(&lab);
        let (processes, spliced) = (Vec::new(), VecDeque::new());
        let (file, running, plain_fetches) = (None, None, false);
        Ok(Self { lab, control, file, processes, running, gauges, host, spliced, plain_fetches })
    }

    /// Makes a fetch check the right to execute before it faults a page in.
    pub(super) fn fetch_plainly(&mut self) {
        self.plain_fetches = true;
    }

    /// Starts the first process of a program, and creates its file.
    ///
    /// `shares`: its forks share page tables.
    pub(super) fn begin(&mut self, shares: bool) -> Result<(), AgainstError> {
        let settings = self.lab.mm().settings();
        settings.set(MmSetting::CowPageTables, if shares { 2 } else { 0 }).map_err(AgainstError::Setting)?;
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
        self.map_data(0);
        Ok(())
    }

    /// Ends the remaining processes of a program; returns the first gauge that shows a leak.
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
        let now = gauges(&self.lab);
        let changed = Gauge::ALL.iter().zip(&self.gauges).zip(&now).find(|((_, before), now)| before != now);
        let leak = changed.map(|((gauge, before), now)| format!("{} is {now}; at first it was {before}", gauge.name()));
        self.gauges = now;
        leak
    }

    /// The minor faults that the CPU has served so far.
    pub(super) fn minor_faults(&self) -> u64 {
        self.lab.on(CPU, |mm| mm.faults_of_this_cpu()).minor
    }

    /// Whether private anonymous memory is mapped at `va`.
    pub(super) fn is_private_memory(&mut self, process: usize, va: VirtAddr) -> bool {
        let maps = self.call(process, &Operation::Syscall(Syscall::ShowMaps), 0, &[]);
        let Observation::Maps(mappings) = maps else { unreachable!("the mappings are shown") };
        mappings.iter().any(|mapping| mapping.contains(va.raw()) && mapping.is_private_memory())
    }

    /// Stores to the data of a new process, as on the other side, which also runs its code.
    fn map_data(&mut self, process: usize) {
        let fetched = self.access(process, VirtAddr::new(CODE), Access::Exec, 0);
        assert_eq!(fetched, Observation::Done, "the code is executable");
        for at in data_pages() {
            let stored = self.access(process, VirtAddr::new(at), Access::Write, 0);
            assert_eq!(stored, Observation::Done, "the data is writable");
        }
    }

    fn space(&self, process: usize) -> &Arc<Space<Machine>> {
        match self.processes.get(process) {
            Some(Some(space)) => space,
            Some(None) | None => unreachable!("process {process} is live on the other side"),
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
    pub(super) fn fork_process(&mut self, process: usize) -> Observation {
        self.enter(process);
        match self.lab.on(CPU, |mm| mm.fork(self.space(process))) {
            Ok(child) => {
                self.processes.push(Some(child));
                self.map_data(self.processes.len() - 1);
                Observation::Done
            }
            Err(error) => failed(error.errno()),
        }
    }

    /// Ends a process.
    pub(super) fn exit_process(&mut self, process: usize) -> Observation {
        self.enter(process);
        self.lab.on(CPU, |mm| mm.tlb().leave_space());
        self.running = None;
        if let Some(space) = self.processes[process].take() {
            self.lab.on(CPU, |mm| mm.end_space(&space));
        }
        Observation::Done
    }

    /// Accesses the cell at `va`; a store stores `value`.
    pub(super) fn access(&mut self, process: usize, va: VirtAddr, access: Access, value: u64) -> Observation {
        self.enter(process);
        for _ in 0..MAX_FAULTS {
            let sim = self.lab.sim();
            if let Ok(found) = sim.access(CPU, va, access, 1) {
                let cell = &sim.ram()[((found.pfn.base().raw() + va.page_offset()) / 8) as usize];
                return match access {
                    Access::Read => Observation::Value(cell.load(Ordering::Relaxed)),
                    Access::Write => {
                        cell.store(value, Ordering::Relaxed);
                        Observation::Done
                    }
                    Access::Exec => Observation::Done,
                };
            }
            match self.lab.on(CPU, |mm| mm.fault(self.space(process), va, access)) {
                Ok(_) => {}
                // Linux on x86-64 faults the page in for any fetch, and refuses the fetch only when
                // the page is mapped (`access_error`).
                Err(FaultError::NotAllowed { .. }) if access == Access::Exec && !self.plain_fetches => {
                    let read = self.access(process, va, Access::Read, value);
                    return if let Observation::Signal(_) = read {
                        read
                    } else {
                        Observation::Signal(AccessSignal::Forbidden)
                    };
                }
                Err(error) => return Observation::Signal(access_signal(&error)),
            }
        }
        unreachable!("{access} at {va} still faults after {MAX_FAULTS} faults were served")
    }

    /// Makes a call, or reads a file of procfs; `live` are the live processes.
    pub(super) fn call(&mut self, process: usize, operation: &Operation, value: u64, live: &[usize]) -> Observation {
        self.enter(process);
        let called = match *operation {
            Operation::Syscall(Syscall::Vmsplice { addr }) => self.vmsplice(process, addr),
            Operation::Syscall(Syscall::ReadPipe) => self.read_pipe(),
            Operation::Syscall(Syscall::Pread { offset }) => self.lab.on(CPU, |mm| self.pread(mm, offset)),
            Operation::Syscall(Syscall::Pwrite { offset }) => self.lab.on(CPU, |mm| self.pwrite(mm, offset, value)),
            Operation::Syscall(ref call @ (Syscall::ShowMaps | Syscall::ShowSmaps | Syscall::ShowPagemap { .. })) => {
                Ok(self.lab.on(CPU, |mm| self.read_procfs(mm, self.space(process), call)))
            }
            ref operation => {
                let other = if let Operation::Syscall(call) = operation { call.other_process() } else { None };
                let other = other.map(|other| self.space(live[other % live.len()]));
                let called = self.lab.on(CPU, |mm| self.memory_call(mm, self.space(process), other, operation, value));
                if adds_rights(operation) {
                    // This needs no flush, so an access through the TLB could fault for it.
                    self.lab.evict_translations(CPU);
                }
                called
            }
        };
        called.unwrap_or_else(failed)
    }
}

fn gauges(lab: &Lab<X86_64>) -> Vec<u64> {
    // The huge page of zeroes is kept.
    let kept = |gauge, mm: &Mm<Machine>| match gauge {
        Gauge::FreePages => mm.counter(Counter::ThpZeroPageAlloc) * u64::from(Order::PMD.frames()),
        _ => 0,
    };
    lab.on(CPU, |mm| Gauge::ALL.iter().map(|gauge| mm.gauge(*gauge) + kept(*gauge, mm)).collect())
}

/// Whether a call may add rights to entries.
fn adds_rights(operation: &Operation) -> bool {
    matches!(operation, Operation::Range(RangeCall::Mprotect { .. }) | Operation::Syscall(Syscall::Mprotect { .. }))
}

fn with_errno(result: Result<Observation, MmError>) -> Result<Observation, Errno> {
    result.map_err(MmError::errno)
}

fn failed(errno: Errno) -> Observation {
    Observation::Failed(errno.number())
}

fn access_signal(error: &FaultError) -> AccessSignal {
    match error {
        FaultError::NotMapped { .. } | FaultError::Guarded { .. } => AccessSignal::Unmapped,
        FaultError::NotAllowed { .. } => AccessSignal::Forbidden,
        FaultError::PastEnd { .. } | FaultError::Device { .. } | FaultError::TooManyHolders { .. } => {
            AccessSignal::PastEnd
        }
        // SIGKILL with code SI_KERNEL.
        FaultError::OutOfMemory(_) => AccessSignal::Other(9, 0x80),
    }
}
