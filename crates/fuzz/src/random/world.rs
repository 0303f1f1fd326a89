//! What a random program runs in: a machine under judgement, its memory manager, the reference
//! memory, and the processes.
//!
//! One world is used by all CPUs. In explore mode each CPU is a coroutine, so nothing here is
//! borrowed across a call into the memory manager or the machine, and whatever is decided between
//! two of those happens at once.
//!
//! A CPU runs a process, a kernel thread, or nothing. Who operates without a process first switches
//! to one; a process ends only by the last CPU that runs it.

use super::generate::{FILE_PAGES, HEAP, Window};
use super::kernel;
use super::operation::Operation;
use super::program::{Mode, Shape, Theme};
use super::swap::swap_on;
use super::tally::Done;
use pagewright_arch::Isa;
use pagewright_check::{CheckFinding, Testbench};
use pagewright_lab::{Lab, LabError};
use pagewright_mm::counters::Gauge;
use pagewright_mm::file::{FileKind, FileObject, FileOps, MemfdFlags};
use pagewright_mm::{Mm, MmError, MmSettings, Space};
use pagewright_model::CpuStep;
use pagewright_model::spec::{Spec, SpecVerdict};
use pagewright_sim::{MachineConfig, NodeConfig, Profile, Sim};
use pagewright_sync::Arc;
use pagewright_types::{CpuId, CpuMask, Errno, FileId, IsaKind, PAGE_SIZE, SpaceId};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// One walk in so many loses an entry of its CPU, in fast mode.
const EVICT_ONE_IN: NonZeroU32 = NonZeroU32::new(64).unwrap();
/// Processes that live at once; a fork beyond that is left out.
const MOST_PROCESSES: usize = 4;
/// Tags of an arm64 machine beyond one for each CPU: few, so that they run out.
const SPARE_TAGS: u32 = 2;
/// Names of shared anonymous memory begin here, past those that the memory manager gives.
const FIRST_SHARED: u32 = 1 << 24;

/// What cell `cell` of page `index` of the file holds at first.
pub(super) fn initial(index: u64, cell: u16) -> u64 {
    1 << 60 | index << 16 | u64::from(cell)
}

/// Pages of the file that were never cut off; shared with the device.
type SharedCount = std::sync::Arc<AtomicU64>;

/// What was written back, by page.
pub(super) type Written = std::sync::Arc<Mutex<BTreeMap<u64, Vec<u8>>>>;

/// The device behind the file: each cell of it differs, and what was cut off once is zero.
struct Device {
    intact: SharedCount,
    written: Written,
}

impl FileOps for Device {
    fn is_resident(&self, index: u64) -> bool {
        !index.is_multiple_of(3)
    }

    fn read_page(&self, index: u64, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        if let Some(bytes) = self.written.lock().expect("nobody has panicked with it").get(&index) {
            put(0, bytes);
        } else if index < self.intact.load(Ordering::Relaxed) {
            let cells: Vec<u8> = (0..512).flat_map(|cell| initial(index, cell).to_le_bytes()).collect();
            put(0, &cells);
        }
        Ok(())
    }

    fn write_page(&self, index: u64, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        let mut bytes = vec![0; PAGE_SIZE as usize];
        get(0, &mut bytes);
        self.written.lock().expect("nobody has panicked with it").insert(index, bytes);
        Ok(())
    }
}

/// A process.
pub(super) struct Process<I: Isa> {
    pub(super) space: Arc<Space<Sim<I>>>,
    /// CPUs that run it or are about to.
    users: Cell<u32>,
    /// Whether a `brk` is under way.
    pub(super) breaking: Cell<bool>,
}

impl<I: Isa> Process<I> {
    pub(super) fn id(&self) -> SpaceId {
        self.space.id()
    }
}

/// What a CPU runs.
enum Runs<I: Isa> {
    Process(Rc<Process<I>>),
    /// A kernel thread, after this process.
    KernelThread(Rc<Process<I>>),
    Nothing,
}

/// Everything that one run of one program needs.
pub(super) struct World<I: Isa> {
    pub(super) bench: Testbench<I>,
    pub(super) lab: Lab<I>,
    pub(super) spec: RefCell<Spec>,
    pub(super) done: RefCell<Done>,
    pub(super) window: Window,
    pub(super) file: Arc<FileObject<Sim<I>>>,
    pub(super) intact: SharedCount,
    pub(super) written: Written,
    pub(super) truncating: Cell<bool>,
    /// Whether the reference memory is told what is done, and judges it.
    pub(super) is_told: bool,
    /// In the order of their births.
    processes: RefCell<Vec<Rc<Process<I>>>>,
    forks: Cell<usize>,
    pub(super) devices: RefCell<Vec<kernel::Device>>,
    cpus: Vec<RefCell<Runs<I>>>,
    stores: Cell<u64>,
    shared: Cell<u32>,
    /// Allocations refused when one was to fail.
    starved: Cell<Option<u64>>,
    /// The gauges before there was any process.
    levels: Vec<u64>,
}

/// The machine that programs of this shape run on.
///
/// # Errors
/// [`LabError`], when there is no such machine.
fn machine<I: Isa>(shape: Shape, seed: u64) -> Result<MachineConfig, LabError> {
    let profile = Profile::named(Profile::default_for(I::KIND))?;
    // One machine in four has page-table isolation: each space needs two tags.
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
        Mode::Fast | Mode::Linux => 32 << 20,
        Mode::Calls => 16 << 20,
        Mode::Explore(_) => 8 << 20,
    };
    config.nodes = vec![NodeConfig { bytes, cpus: CpuMask::EMPTY }];
    config.validate(I::KIND)?;
    Ok(config)
}

/// The file of a program whose file can be sealed.
fn make_memfd<I: Isa>(mm: &Mm<Sim<I>>) -> Result<Arc<FileObject<Sim<I>>>, MmError> {
    let file = mm.memfd_create("file", MemfdFlags::ALLOW_SEALING)?;
    mm.truncate(&file, FILE_PAGES * PAGE_SIZE)?;
    Ok(file)
}

impl<I: Isa> World<I> {
    /// A machine that was just switched on, with one process that nobody runs.
    pub(super) fn new(shape: Shape, seed: u64) -> Result<Self, LabError> {
        let bench = Testbench::new(machine::<I>(shape, seed)?)?;
        let lab = Lab::over(bench.sim().clone(), MmSettings::default())?;
        if !matches!(shape.mode, Mode::Explore(_)) {
            bench.sim().evict_at_random(Some(EVICT_ONE_IN));
        }
        lab.on(CpuId::new(0), |mm| swap_on(mm, seed)).map_err(LabError::Start)?;
        let levels = levels(&lab);
        let intact = SharedCount::new(AtomicU64::new(FILE_PAGES));
        let written = Written::default();
        let mut spec = Spec::new(I::USER_END, false);
        spec.swap_on();
        let sealable = matches!(shape.mode, Mode::Calls | Mode::Explore(Theme::Calls));
        let file = if sealable && seed.is_multiple_of(2) {
            let file = lab.on(CpuId::new(0), make_memfd).map_err(LabError::Start)?;
            spec.add_memfd(file.id(), FILE_PAGES);
            file
        } else {
            let device = Device { intact: SharedCount::clone(&intact), written: Written::clone(&written) };
            let add = |mm: &Mm<Sim<I>>| mm.add_file("/file", FileKind::File(Box::new(device)), FILE_PAGES * PAGE_SIZE);
            let file = lab.on(CpuId::new(0), add).map_err(LabError::Start)?;
            spec.add_file(file.id(), FILE_PAGES, Box::new(initial));
            file
        };
        let world = Self {
            bench,
            lab,
            spec: RefCell::new(spec),
            done: RefCell::default(),
            window: Window::of(shape.mode),
            file,
            intact,
            written,
            truncating: Cell::new(false),
            is_told: shape.mode != Mode::Explore(Theme::Calls),
            processes: RefCell::default(),
            forks: Cell::new(0),
            devices: RefCell::default(),
            cpus: (0..shape.cpus).map(|_| RefCell::new(Runs::Nothing)).collect(),
            stores: Cell::new(0),
            shared: Cell::new(FIRST_SHARED),
            starved: Cell::new(None),
            levels,
        };
        world.start(CpuId::new(0)).map_err(LabError::Start)?;
        Ok(world)
    }

    pub(super) fn sim(&self) -> &Sim<I> {
        self.bench.sim()
    }

    /// Whether an allocation that is to fail has not yet been asked for.
    pub(super) fn is_starving(&self) -> bool {
        self.starved.get() == Some(self.sim().refused_allocations())
    }

    pub(super) fn cpu_step(&self, cpu: CpuId) -> CpuStep {
        CpuStep { cpu, step: self.bench.oracle().step() }
    }

    /// Takes down what the reference memory says.
    #[inline]
    pub(super) fn judge(&self, verdict: SpecVerdict) {
        if let Err(violation) = verdict {
            self.bench.report(CheckFinding::Violation(*violation));
        }
    }

    /// A value that was never stored before.
    pub(super) fn fresh_value(&self) -> u64 {
        self.stores.set(self.stores.get() + 1);
        self.stores.get()
    }

    /// Values that were stored so far.
    pub(super) fn stores(&self) -> u64 {
        self.stores.get()
    }

    /// A name for shared memory that is about to be made.
    pub(super) fn fresh_file(&self) -> FileId {
        self.shared.set(self.shared.get() + 1);
        FileId::new(self.shared.get())
    }

    pub(super) fn processes(&self) -> Vec<Rc<Process<I>>> {
        self.processes.borrow().clone()
    }

    fn is_alive(&self, process: &Rc<Process<I>>) -> bool {
        self.processes.borrow().iter().any(|other| Rc::ptr_eq(other, process))
    }

    fn add(&self, space: Arc<Space<Sim<I>>>) -> Rc<Process<I>> {
        let process = Rc::new(Process { space, users: Cell::new(0), breaking: Cell::new(false) });
        self.processes.borrow_mut().push(Rc::clone(&process));
        process
    }

    /// Starts a process with nothing mapped.
    fn start(&self, cpu: CpuId) -> Result<Rc<Process<I>>, MmError> {
        let space = self.lab.on(cpu, |mm| {
            let space = mm.new_space()?;
            mm.set_brk_start(&space, HEAP);
            Ok::<_, MmError>(space)
        })?;
        self.spec.borrow_mut().add_space(space.id(), HEAP);
        Ok(self.add(space))
    }

    /// Makes `cpu` run `process`, which lives.
    pub(super) fn switch(&self, cpu: CpuId, process: &Rc<Process<I>>) {
        process.users.set(process.users.get() + 1);
        self.lab.on(cpu, |mm| mm.tlb().switch_to(process.space.table().context()));
        self.set_runs(cpu, Runs::Process(Rc::clone(process)));
    }

    /// The process that `cpu` runs.
    fn running(&self, cpu: CpuId) -> Option<Rc<Process<I>>> {
        match &*self.cpus[cpu.index()].borrow() {
            Runs::Process(process) => Some(Rc::clone(process)),
            Runs::KernelThread(_) | Runs::Nothing => None,
        }
    }

    fn set_runs(&self, cpu: CpuId, runs: Runs<I>) {
        let before = self.cpus[cpu.index()].replace(runs);
        if let Runs::Process(before) = before {
            before.users.set(before.users.get() - 1);
        }
    }

    /// The process that `cpu` runs: the one it has, had before a kernel thread ran, or the oldest.
    ///
    /// `None` when there is none and no memory for one.
    pub(super) fn enter(&self, cpu: CpuId) -> Option<Rc<Process<I>>> {
        if let Some(process) = self.running(cpu) {
            return Some(process);
        }
        let before = match &*self.cpus[cpu.index()].borrow() {
            Runs::Process(process) | Runs::KernelThread(process) => Some(Rc::clone(process)),
            Runs::Nothing => None,
        };
        let before = before.filter(|process| self.is_alive(process));
        let process = before.or_else(|| self.processes.borrow().first().cloned());
        let process = match process {
            Some(process) => process,
            None => self.start(cpu).ok()?,
        };
        self.switch(cpu, &process);
        Some(process)
    }

    /// Does one operation.
    pub(super) fn step(&self, cpu: CpuId, operation: Operation) {
        self.bench.note(cpu, operation);
        match operation {
            Operation::Switch { to } => {
                let live = self.processes();
                if let Some(process) = (!live.is_empty()).then(|| &live[to % live.len()]) {
                    self.switch(cpu, process);
                }
            }
            Operation::Lazy => self.run_kernel_thread(cpu),
            Operation::Starve { after } => {
                self.starved.set(Some(self.sim().refused_allocations()));
                self.sim().fail_allocation_after(after, pagewright_sim::AllocationFailure::One);
            }
            Operation::Exit { lazily } => self.exit(cpu, lazily),
            Operation::Fork => self.fork(cpu),
            Operation::Truncate { pages } => self.truncate(cpu, pages),
            Operation::Map { .. }
            | Operation::Unmap { .. }
            | Operation::Protect { .. }
            | Operation::DontNeed { .. }
            | Operation::Break { .. } => self.memory_call(cpu, operation),
            Operation::Access { va, access } => {
                if let Some(process) = self.enter(cpu) {
                    self.access(cpu, &process, va, access);
                }
            }
            Operation::Roam { start, pages, times, seed } => self.roam(cpu, (start, pages), times, seed),
            Operation::Syscall(call) => self.syscall(cpu, call),
            Operation::Kernel(kernel) => self.kernel(cpu, kernel),
        }
    }

    fn run_kernel_thread(&self, cpu: CpuId) {
        let Some(process) = self.running(cpu) else { return };
        self.lab.on(cpu, |mm| mm.tlb().enter_lazy());
        self.set_runs(cpu, Runs::KernelThread(process));
    }

    /// Makes `cpu` run nothing.
    pub(super) fn leave(&self, cpu: CpuId) {
        self.lab.on(cpu, |mm| mm.tlb().leave_space());
        self.set_runs(cpu, Runs::Nothing);
    }

    fn fork(&self, cpu: CpuId) {
        let Some(parent) = self.enter(cpu) else { return };
        if self.processes.borrow().len() + self.forks.get() >= MOST_PROCESSES {
            return self.done.borrow_mut().leave_out();
        }
        self.forks.set(self.forks.get() + 1);
        let child = self.fork_call(cpu, &parent);
        self.forks.set(self.forks.get() - 1);
        if let Some(space) = child {
            self.add(space);
        }
    }

    fn exit(&self, cpu: CpuId, lazily: bool) {
        let Some(process) = self.enter(cpu) else { return };
        if process.users.get() > 1 {
            return self.done.borrow_mut().leave_out();
        }
        // From here on nobody switches to it.
        self.processes.borrow_mut().retain(|other| !Rc::ptr_eq(other, &process));
        if lazily {
            self.lab.on(cpu, |mm| mm.tlb().enter_lazy());
        } else {
            self.lab.on(cpu, |mm| mm.tlb().leave_space());
        }
        self.set_runs(cpu, Runs::Nothing);
        self.end_process(cpu, &process);
    }

    /// Whether every gauge, and what is promised, shows what it did before there was any process;
    /// else which does not.
    pub(super) fn check_levels(&self) {
        let now = levels(&self.lab);
        let names = Gauge::ALL.iter().map(|gauge| gauge.name()).chain(["Committed_AS", "swap in use"]);
        for ((name, before), now) in names.zip(&self.levels).zip(now) {
            if *before != now {
                let what = format!("everything has ended, and {name} is {now}; it was {before}");
                self.bench.report(CheckFinding::Reported(what));
            }
        }
    }

    /// Forgets the processes: they have ended.
    pub(super) fn forget_processes(&self) {
        self.processes.borrow_mut().clear();
    }
}

/// By the sums, which must be what the devices say (INV-SWAP-COUNT).
fn swap_in_use<I: Isa>(mm: &Mm<Sim<I>>) -> u64 {
    let (slots, free) = mm.swap_slots();
    let mut used = 0;
    mm.for_each_swap(|device| used += u64::from(device.used));
    assert_eq!(slots - free, used, "INV-SWAP-COUNT: the sums of all devices");
    used
}

fn levels<I: Isa>(lab: &Lab<I>) -> Vec<u64> {
    lab.on(CpuId::new(0), |mm| {
        Gauge::ALL.iter().map(|gauge| mm.gauge(*gauge)).chain([mm.committed(), swap_in_use(mm)]).collect()
    })
}
