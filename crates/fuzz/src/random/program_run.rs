//! The run of a random program.
//!
//! A run has a machine under the oracle, its memory manager, the reference memory and the
//! processes. All CPUs share it. In explore mode each CPU is a coroutine, which yields only in
//! calls into the memory manager and the machine. So no `RefCell` is borrowed across such a call,
//! and code between two of them is atomic.
//!
//! A CPU runs a process, a kernel thread, or nothing. An operation that needs a process first
//! switches to one. Only the last CPU that runs a process can end it.

use super::generator::FILE_PAGES;
use super::huge::set_huge_pages;
use super::kernel_operation::PinDevice;
use super::operation::Operation;
use super::operation_counts::OperationCounts;
use super::program::{ProgramMode, ProgramShape, RandomProgram, Theme};
use super::swap::swap_on;
use super::window::{HEAP, Window};
use pagewright_arch::Isa;
use pagewright_check::{CheckFinding, Testbench};
use pagewright_lab::{Lab, LabError};
use pagewright_mm::counters::Gauge;
use pagewright_mm::file::{FileKind, FileObject, FileOps, MemfdFlags};
use pagewright_mm::{Mm, MmError, MmSetting, MmSettings, Space};
use pagewright_model::CpuStep;
use pagewright_model::spec::{MappingFlags, Spec, SpecVerdict};
use pagewright_sim::{MachineConfig, Profile, Sim};
use pagewright_sync::Arc;
use pagewright_types::{Counter, CpuId, Errno, FileId, IsaKind, Order, PAGE_SIZE, SpaceId};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// In fast mode, one walk in this many evicts a TLB entry.
const EVICT_ONE_IN: NonZeroU32 = NonZeroU32::new(64).unwrap();
/// One program in this many of those that are mostly calls has the checks after each operation.
const STEP_CHECKS_ONE_IN: u64 = 16;
/// Limit of the live processes; further forks are skipped.
const MAX_PROCESSES: usize = 4;
/// Tags of an arm64 machine beyond one per CPU: few, so that rollovers occur.
const SPARE_TAGS: u32 = 2;
/// First id that the reference memory uses for shared anonymous memory.
///
/// It is above the ids that the memory manager assigns.
const FIRST_SHMEM_ID: u32 = 1 << 24;

/// The first value of cell `cell` of page `index` of the file.
pub(super) fn initial_cell(index: u64, cell: u16) -> u64 {
    1 << 60 | index << 16 | u64::from(cell)
}

/// A counter that the file shares with the run.
type SharedCounter = std::sync::Arc<AtomicU64>;

/// The pages that were written back, by index.
pub(super) type WrittenPages = std::sync::Arc<Mutex<BTreeMap<u64, Vec<u8>>>>;

/// The backing of the file.
///
/// Each cell has another value; pages that were truncated once and not written since are zero.
struct FileBacking {
    /// Pages from the first on that were never truncated.
    intact_pages: SharedCounter,
    written_back: WrittenPages,
}

impl FileOps for FileBacking {
    fn is_resident(&self, index: u64) -> bool {
        !index.is_multiple_of(3)
    }

    fn read_page(&self, index: u64, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        if let Some(bytes) = self.written_back.lock().expect("no thread panicked with the lock").get(&index) {
            put(0, bytes);
        } else if index < self.intact_pages.load(Ordering::Relaxed) {
            let cells: Vec<u8> = (0..512).flat_map(|cell| initial_cell(index, cell).to_le_bytes()).collect();
            put(0, &cells);
        }
        Ok(())
    }

    fn write_page(&self, index: u64, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        let mut bytes = vec![0; PAGE_SIZE as usize];
        get(0, &mut bytes);
        self.written_back.lock().expect("no thread panicked with the lock").insert(index, bytes);
        Ok(())
    }
}

/// A process.
pub(super) struct Process<I: Isa> {
    pub(super) space: Arc<Space<Sim<I>>>,
    /// Number of CPUs that run it or are about to.
    users: Cell<u32>,
    /// Whether a CPU is in a `brk` of the process.
    pub(super) brk_in_progress: Cell<bool>,
}

impl<I: Isa> Process<I> {
    pub(super) fn id(&self) -> SpaceId {
        self.space.id()
    }
}

/// What a CPU runs.
enum CpuState<I: Isa> {
    Process(Rc<Process<I>>),
    /// A kernel thread, on the tables of this process.
    KernelThread(Rc<Process<I>>),
    Idle,
}

/// The run of one program.
pub(super) struct ProgramRun<I: Isa> {
    pub(super) bench: Testbench<I>,
    pub(super) lab: Lab<I>,
    pub(super) spec: RefCell<Spec>,
    pub(super) counts: RefCell<OperationCounts>,
    pub(super) window: Window,
    pub(super) file: Arc<FileObject<Sim<I>>>,
    /// Pages of the file from the first on that were never truncated.
    pub(super) intact_pages: SharedCounter,
    pub(super) written_back: WrittenPages,
    /// Whether a CPU truncates the file.
    pub(super) truncate_in_progress: Cell<bool>,
    /// Whether the reference memory follows the program and checks its results.
    pub(super) uses_spec: bool,
    /// Whether the reference memory predicts what pins return, which it cannot beside other calls.
    pub(super) predicts_pins: bool,
    /// The live processes, the oldest first.
    processes: RefCell<Vec<Rc<Process<I>>>>,
    /// Number of CPUs in `fork`.
    forks_in_progress: Cell<usize>,
    pub(super) devices: RefCell<Vec<PinDevice>>,
    cpus: Vec<RefCell<CpuState<I>>>,
    store_count: Cell<u64>,
    /// The time that ticks tell, in ms.
    pub(super) now_ms: Cell<u64>,
    last_shmem_id: Cell<u32>,
    /// Number of allocations that had failed when the last failure was requested.
    failure_requested_at: Cell<Option<u64>>,
    /// Whether the program has the checks after each operation.
    pub(super) checks_each_step: bool,
    /// Whether a process has locked memory so far.
    pub(super) has_locked: Cell<bool>,
    /// The gauges before the first process.
    first_gauges: Vec<u64>,
}

/// The machine of a program.
fn machine<I: Isa>(program: &RandomProgram) -> Result<MachineConfig, LabError> {
    let (shape, seed) = (program.shape, program.seed);
    let profile = Profile::named(Profile::default_for(I::KIND))?;
    // One machine in four has page-table isolation, for which a space needs two tags.
    let isolated = seed.is_multiple_of(4);
    let profile = match I::KIND {
        IsaKind::X86_64 => profile,
        IsaKind::Aarch64 => profile.with_tags((u32::from(shape.cpus) + SPARE_TAGS) << u32::from(isolated)),
    };
    let mut config = MachineConfig::new(profile);
    config.isolated = isolated;
    config.cpus = shape.cpus;
    config.seed = seed;
    let bytes = match shape.mode {
        // Three blocks of some processes, but not of all.
        _ if shape.is_huge() => 32 << 20,
        ProgramMode::Fast | ProgramMode::Linux => 32 << 20,
        ProgramMode::Calls => 16 << 20,
        ProgramMode::Explore(_) => 8 << 20,
    };
    config.nodes = program.nodes.on_machine(shape.cpus, bytes);
    config.distances.clone_from(&program.nodes.distances);
    config.validate(I::KIND)?;
    Ok(config)
}

/// Whether fork shares page tables in the program with this seed.
///
/// It does in half of the programs, and always with the theme `Families`. Linux has no such fork,
/// and its views of what is resident differ.
fn shares_tables(shape: ProgramShape, seed: u64) -> bool {
    match shape.mode {
        ProgramMode::Linux => false,
        ProgramMode::Explore(Theme::Families) => true,
        ProgramMode::Fast | ProgramMode::Calls | ProgramMode::Explore(_) => seed / 4 % 2 == 1,
    }
}

/// Creates a file that can be sealed.
fn make_memfd<I: Isa>(mm: &Mm<Sim<I>>) -> Result<Arc<FileObject<Sim<I>>>, MmError> {
    let file = mm.memfd_create("file", MemfdFlags::ALLOW_SEALING)?;
    mm.truncate(&file, FILE_PAGES * PAGE_SIZE)?;
    Ok(file)
}

impl<I: Isa> ProgramRun<I> {
    /// A new machine with one process, which no CPU runs yet.
    pub(super) fn new(program: &RandomProgram) -> Result<Self, LabError> {
        let (shape, seed) = (program.shape, program.seed);
        let bench = Testbench::new(machine::<I>(program)?)?;
        let settings = MmSettings::default();
        let shares = if shares_tables(shape, seed) { 2 } else { 0 };
        settings.set(MmSetting::CowPageTables, shares).expect("an accepted value");
        let lingers = if shape.mode == ProgramMode::Explore(Theme::Lingering) { 2 } else { seed / 48 % 3 };
        settings.set(MmSetting::TlbLinger, lingers).expect("an accepted value");
        if program.nodes.nodes.len() > 1 {
            let values = [
                (MmSetting::DemotionEnabled, seed / 8 % 2),
                (MmSetting::NumaBalancing, seed / 16 % 3),
                (MmSetting::NumaScanDelayMs, 0),
            ];
            values.iter().for_each(|(setting, value)| settings.set(*setting, *value).expect("an accepted value"));
        }
        set_huge_pages(&settings, shape, seed);
        let lab = Lab::over(bench.sim().clone(), settings)?;
        if !matches!(shape.mode, ProgramMode::Explore(_)) {
            bench.sim().evict_at_random(Some(EVICT_ONE_IN));
        }
        lab.on(CpuId::new(0), |mm| swap_on(mm, seed)).map_err(LabError::Start)?;
        let first_gauges = gauges(&lab);
        let intact_pages = SharedCounter::new(AtomicU64::new(FILE_PAGES));
        let written_back = WrittenPages::default();
        let mut spec = Spec::new(I::USER_END, false);
        spec.swap_on();
        let sealable = matches!(shape.mode, ProgramMode::Calls | ProgramMode::Explore(Theme::Calls));
        let file = if sealable && seed.is_multiple_of(2) {
            let file = lab.on(CpuId::new(0), make_memfd).map_err(LabError::Start)?;
            spec.add_memfd(file.id(), FILE_PAGES);
            file
        } else {
            let backing = FileBacking {
                intact_pages: SharedCounter::clone(&intact_pages),
                written_back: WrittenPages::clone(&written_back),
            };
            let add = |mm: &Mm<Sim<I>>| mm.add_file("/file", FileKind::File(Box::new(backing)), FILE_PAGES * PAGE_SIZE);
            let file = lab.on(CpuId::new(0), add).map_err(LabError::Start)?;
            spec.add_file(file.id(), FILE_PAGES, Box::new(initial_cell));
            file
        };
        let run = Self {
            bench,
            lab,
            spec: RefCell::new(spec),
            counts: RefCell::default(),
            window: Window::of(shape),
            file,
            intact_pages,
            written_back,
            truncate_in_progress: Cell::new(false),
            uses_spec: shape.mode != ProgramMode::Explore(Theme::Calls),
            predicts_pins: !matches!(shape.mode, ProgramMode::Explore(_)),
            processes: RefCell::default(),
            forks_in_progress: Cell::new(0),
            devices: RefCell::default(),
            cpus: (0..shape.cpus).map(|_| RefCell::new(CpuState::Idle)).collect(),
            store_count: Cell::new(0),
            now_ms: Cell::new(1),
            last_shmem_id: Cell::new(FIRST_SHMEM_ID),
            failure_requested_at: Cell::new(None),
            checks_each_step: shape.mode == ProgramMode::Calls && seed.is_multiple_of(STEP_CHECKS_ONE_IN),
            has_locked: Cell::new(false),
            first_gauges,
        };
        run.start_process(CpuId::new(0)).map_err(LabError::Start)?;
        Ok(run)
    }

    pub(super) fn sim(&self) -> &Sim<I> {
        self.bench.sim()
    }

    /// Whether an allocation failure was requested that has not occurred yet.
    pub(super) fn allocation_failure_is_pending(&self) -> bool {
        self.failure_requested_at.get() == Some(self.sim().refused_allocations())
    }

    pub(super) fn cpu_step(&self, cpu: CpuId) -> CpuStep {
        CpuStep { cpu, step: self.bench.oracle().step() }
    }

    /// Records the violation, if the reference memory found one.
    #[inline]
    pub(super) fn judge(&self, verdict: SpecVerdict) {
        if let Err(violation) = verdict {
            self.bench.report(CheckFinding::Violation(*violation));
        }
    }

    /// A value that was not stored before.
    pub(super) fn fresh_value(&self) -> u64 {
        self.store_count.set(self.store_count.get() + 1);
        self.store_count.get()
    }

    /// Number of values that [`Self::fresh_value`] has returned.
    pub(super) fn store_count(&self) -> u64 {
        self.store_count.get()
    }

    /// A new id for shared anonymous memory.
    pub(super) fn fresh_shmem_id(&self) -> FileId {
        self.last_shmem_id.set(self.last_shmem_id.get() + 1);
        FileId::new(self.last_shmem_id.get())
    }

    pub(super) fn processes(&self) -> Vec<Rc<Process<I>>> {
        self.processes.borrow().clone()
    }

    fn is_alive(&self, process: &Rc<Process<I>>) -> bool {
        self.processes.borrow().iter().any(|other| Rc::ptr_eq(other, process))
    }

    fn add_process(&self, space: Arc<Space<Sim<I>>>) -> Rc<Process<I>> {
        let process = Rc::new(Process { space, users: Cell::new(0), brk_in_progress: Cell::new(false) });
        self.processes.borrow_mut().push(Rc::clone(&process));
        process
    }

    /// Starts a process with nothing mapped.
    fn start_process(&self, cpu: CpuId) -> Result<Rc<Process<I>>, MmError> {
        let space = self.lab.on(cpu, |mm| {
            let space = mm.new_space()?;
            mm.set_brk_start(&space, HEAP);
            Ok::<_, MmError>(space)
        })?;
        self.spec.borrow_mut().add_space(space.id(), HEAP);
        Ok(self.add_process(space))
    }

    /// Makes `cpu` run a live process.
    pub(super) fn switch(&self, cpu: CpuId, process: &Rc<Process<I>>) {
        process.users.set(process.users.get() + 1);
        self.lab.on(cpu, |mm| mm.tlb().switch_to(process.space.table().context()));
        self.set_cpu_state(cpu, CpuState::Process(Rc::clone(process)));
    }

    /// The process that `cpu` runs.
    pub(super) fn running(&self, cpu: CpuId) -> Option<Rc<Process<I>>> {
        match &*self.cpus[cpu.index()].borrow() {
            CpuState::Process(process) => Some(Rc::clone(process)),
            CpuState::KernelThread(_) | CpuState::Idle => None,
        }
    }

    fn set_cpu_state(&self, cpu: CpuId, state: CpuState<I>) {
        let before = self.cpus[cpu.index()].replace(state);
        if let CpuState::Process(before) = before {
            before.users.set(before.users.get() - 1);
        }
    }

    /// The process that `cpu` runs; it switches to one if it runs none.
    ///
    /// It prefers the process that it ran before a kernel thread, then the oldest, then a new one.
    /// `None` if there is no memory for a new one.
    pub(super) fn current_process(&self, cpu: CpuId) -> Option<Rc<Process<I>>> {
        if let Some(process) = self.running(cpu) {
            return Some(process);
        }
        let before = match &*self.cpus[cpu.index()].borrow() {
            CpuState::Process(process) | CpuState::KernelThread(process) => Some(Rc::clone(process)),
            CpuState::Idle => None,
        };
        let before = before.filter(|process| self.is_alive(process));
        let process = before.or_else(|| self.processes.borrow().first().cloned());
        let process = match process {
            Some(process) => process,
            None => self.start_process(cpu).ok()?,
        };
        self.switch(cpu, &process);
        Some(process)
    }

    /// Runs one operation on `cpu`.
    pub(super) fn step(&self, cpu: CpuId, operation: Operation) {
        self.bench.note(cpu, operation);
        match operation {
            Operation::Switch { to } => {
                let live = self.processes();
                if let Some(process) = (!live.is_empty()).then(|| &live[to % live.len()]) {
                    self.switch(cpu, process);
                }
            }
            Operation::RunKernelThread => self.run_kernel_thread(cpu),
            Operation::FailAllocation { after } => {
                self.failure_requested_at.set(Some(self.sim().refused_allocations()));
                self.sim().fail_allocation_after(after, pagewright_sim::AllocationFailure::One);
            }
            Operation::Exit { lazily } => self.exit(cpu, lazily),
            Operation::Fork => self.fork(cpu),
            Operation::Truncate { pages } => self.truncate(cpu, pages),
            Operation::Mmap { place, len, rights, object, populate } => {
                if let Some(process) = self.current_process(cpu) {
                    self.map(cpu, &process, place, (len, rights), object, (populate, MappingFlags::default()));
                }
            }
            Operation::Range(call) => self.range_call(cpu, call),
            Operation::Access { va, access } => {
                if let Some(process) = self.current_process(cpu) {
                    self.access(cpu, &process, va, access);
                }
            }
            Operation::AccessMany { start, pages, times, seed } => self.access_many(cpu, (start, pages), times, seed),
            Operation::Syscall(call) => self.syscall(cpu, call),
            Operation::Kernel(kernel) => self.kernel(cpu, kernel),
        }
    }

    fn run_kernel_thread(&self, cpu: CpuId) {
        let Some(process) = self.running(cpu) else { return };
        self.lab.on(cpu, |mm| mm.tlb().enter_lazy());
        self.set_cpu_state(cpu, CpuState::KernelThread(process));
    }

    /// Makes `cpu` run nothing.
    pub(super) fn leave(&self, cpu: CpuId) {
        self.lab.on(cpu, |mm| mm.tlb().leave_space());
        self.set_cpu_state(cpu, CpuState::Idle);
    }

    fn fork(&self, cpu: CpuId) {
        let Some(parent) = self.current_process(cpu) else { return };
        if self.processes.borrow().len() + self.forks_in_progress.get() >= MAX_PROCESSES {
            return self.counts.borrow_mut().count_skipped();
        }
        self.forks_in_progress.set(self.forks_in_progress.get() + 1);
        let child = self.fork_call(cpu, &parent);
        self.forks_in_progress.set(self.forks_in_progress.get() - 1);
        if let Some(space) = child {
            self.add_process(space);
        }
    }

    fn exit(&self, cpu: CpuId, lazily: bool) {
        let Some(process) = self.current_process(cpu) else { return };
        if process.users.get() > 1 {
            return self.counts.borrow_mut().count_skipped();
        }
        // From here on no CPU switches to it.
        self.processes.borrow_mut().retain(|other| !Rc::ptr_eq(other, &process));
        if lazily {
            self.lab.on(cpu, |mm| mm.tlb().enter_lazy());
        } else {
            self.lab.on(cpu, |mm| mm.tlb().leave_space());
        }
        self.set_cpu_state(cpu, CpuState::Idle);
        self.end_process(cpu, &process);
    }

    /// Reports each gauge that differs from its value before the first process: a leak.
    pub(super) fn check_gauges(&self) {
        let mut now = gauges(&self.lab);
        // The huge page of zeroes is kept.
        let kept = self.lab.mm().counter(Counter::ThpZeroPageAlloc) * u64::from(Order::PMD.frames());
        now[Gauge::FreePages as usize] += kept;
        let names = Gauge::ALL.iter().map(|gauge| gauge.name()).chain(["Committed_AS", "swap in use"]);
        for ((name, before), now) in names.zip(&self.first_gauges).zip(now) {
            if *before != now {
                let message = format!("after the end of all processes, {name} is {now}; at first it was {before}");
                self.bench.report(CheckFinding::Reported(message));
            }
        }
    }

    /// Removes the processes, which have ended.
    pub(super) fn forget_processes(&self) {
        self.processes.borrow_mut().clear();
    }
}

/// Slots in use: the sums, which must agree with those of the devices (INV-SWAP-COUNT).
fn swap_slots_in_use<I: Isa>(mm: &Mm<Sim<I>>) -> u64 {
    let (slots, free) = mm.swap_slots();
    let mut used = 0;
    mm.for_each_swap(|device| used += u64::from(device.used));
    assert_eq!(slots - free, used, "INV-SWAP-COUNT: the sum over all devices");
    used
}

fn gauges<I: Isa>(lab: &Lab<I>) -> Vec<u64> {
    lab.on(CpuId::new(0), |mm| {
        Gauge::ALL.iter().map(|gauge| mm.gauge(*gauge)).chain([mm.committed(), swap_slots_in_use(mm)]).collect()
    })
}
