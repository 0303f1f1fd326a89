//! The benchmark of the batched-flush series: shared memory is read and paged out repeatedly.
//!
//! The series batches arm64's flushes in reclaim (20220822082120.8347-5-yangyicong@huawei.com). Its
//! program is one process that reads. The mail also discusses several processes that map the
//! memory, several CPUs that have used it, and stores; [`PageOutProgram`] has all of them.
//!
//! In each round, all readers read every page, concurrently on their CPUs. Then CPU 0 pages all
//! pages out, and the next round begins. The pages of a single process are paged out by
//! `MADV_PAGEOUT`, which skips pages that other processes map. The pages of several processes are
//! reclaimed by [`Mm::reclaim`](pagewright_mm::Mm::reclaim).
//!
//! [`run`] runs the program on a lab and not as a replay, because a capture cannot express that a
//! process waits until all others have read.
//!
//! Not guaranteed: anything about page contents; there are none.

use crate::replay::{NamedCounts, ReplayConfig};
use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_lab::{Lab, LabError};
use pagewright_mm::{Advice, FaultError, MapFlags, MapRequest, MmError, MmSettingError, MmSettings, Space};
use pagewright_sim::{Cost, MachineEvent, Picos, Sim};
use pagewright_sync::Arc;
use pagewright_types::{Access, Counter, CpuId, IsaKind, NodeId, PAGE_SIZE, Rights, VirtAddr};

/// The parameters of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageOutProgram {
    /// Number of processes that map the memory.
    pub sharers: u32,
    /// Whether the readers are threads of the first process, one on each CPU.
    ///
    /// Otherwise each process has one reader; process *n* runs on CPU *n* modulo the number of
    /// CPUs.
    pub threads: bool,
    /// Whether the readers store instead of loading.
    pub stores: bool,
    /// Size of the memory, in pages.
    pub pages: u64,
    /// Number of rounds.
    pub rounds: u32,
}

impl PageOutProgram {
    /// The program of the series: one process reads 1 MiB.
    pub fn of_the_series(rounds: u32) -> Self {
        Self { sharers: 1, threads: false, stores: false, pages: 256, rounds }
    }
}

/// The costs of all rounds, without the setup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageOutCosts {
    /// Number of pages paged out.
    pub pages: u64,
    /// All counters, by name.
    pub counters: NamedCounts,
    /// Modelled time from the start of the first round to the end of the last one.
    pub elapsed: Picos,
    /// The part of `elapsed` in which CPU 0 pages out.
    pub paging: Picos,
    /// The part of `paging` in which CPU 0 waits for flushes to complete on other CPUs.
    pub waited: Picos,
}

/// Why the program cannot run.
#[derive(Debug, thiserror::Error)]
pub enum PageOutError {
    /// The machine cannot be built.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A setting refuses its value.
    #[error("{0}")]
    Setting(#[from] MmSettingError),
    /// The memory manager refuses a call.
    #[error("{0}")]
    Call(#[from] MmError),
    /// The memory manager refuses an access.
    #[error("{0}")]
    Fault(#[from] FaultError),
    /// Reclaim leaves pages in memory.
    #[error("{left} of {pages} pages remain in memory after round {round}")]
    Remained {
        /// Number of pages that remain.
        left: u64,
        /// Number of pages of the program.
        pages: u64,
        /// The round, from 1; round 0 is the setup.
        round: u32,
    },
}

/// Runs `program` on the machine of `config`, whose swap must have a slot for each page.
///
/// # Errors
/// [`PageOutError`]: the machine cannot be built, or memory or swap is too small.
pub fn run(isa: IsaKind, config: &ReplayConfig, program: PageOutProgram) -> Result<PageOutCosts, PageOutError> {
    match isa {
        IsaKind::X86_64 => PageOutMachine::<X86_64>::new(config, program)?.run(),
        IsaKind::Aarch64 => PageOutMachine::<Aarch64>::new(config, program)?.run(),
    }
}

const HEAP: VirtAddr = VirtAddr::new(0x7000_0000_0000);
const PAGER: CpuId = CpuId::new(0);

/// A thread that reads every page.
struct PageReader<I: Isa> {
    cpu: CpuId,
    space: Arc<Space<Sim<I>>>,
}

/// The machine of a run, with the processes of the program.
struct PageOutMachine<I: Isa> {
    lab: Lab<I>,
    program: PageOutProgram,
    cpus: u16,
    spaces: Vec<Arc<Space<Sim<I>>>>,
}

impl<I: Isa> PageOutMachine<I> {
    /// Maps the memory, stores to every page, and forks the processes that share it.
    fn new(config: &ReplayConfig, program: PageOutProgram) -> Result<Self, PageOutError> {
        let settings = MmSettings::default();
        for (setting, value) in &config.settings {
            settings.set(*setting, *value)?;
        }
        let lab = Lab::new(config.machine.clone(), settings)?;
        lab.swap_on(config.swap_slots)?;
        let root = lab.on(PAGER, |mm| mm.new_space())?;
        lab.run(PAGER, &root);
        let request = MapRequest {
            addr: HEAP,
            len: program.pages * PAGE_SIZE,
            rights: Rights::RW,
            flags: MapFlags::SHARED | MapFlags::ANONYMOUS | MapFlags::FIXED,
            file: None,
        };
        lab.on(PAGER, |mm| mm.mmap(&root, &request))?;
        let mut spaces = vec![root];
        for page in 0..program.pages {
            lab.touch(PAGER, &spaces[0], HEAP.add(page * PAGE_SIZE), Access::Write, 1)?;
        }
        for _ in 1..program.sharers {
            let child = lab.on(PAGER, |mm| mm.fork(&spaces[0]))?;
            spaces.push(child);
        }
        Ok(Self { lab, program, cpus: config.machine.cpus, spaces })
    }

    fn readers(&self) -> Vec<PageReader<I>> {
        let cpu = |index: usize| CpuId::new((index % usize::from(self.cpus)) as u16);
        if self.program.threads {
            let reader = |index| PageReader { cpu: cpu(index), space: self.spaces[0].clone() };
            return (0..usize::from(self.cpus)).map(reader).collect();
        }
        let reader =
            |(index, space): (usize, &Arc<Space<Sim<I>>>)| PageReader { cpu: cpu(index), space: space.clone() };
        self.spaces.iter().enumerate().map(reader).collect()
    }

    fn run(self) -> Result<PageOutCosts, PageOutError> {
        let readers = self.readers();
        // Every round begins with all pages out, the first one too.
        self.read(&readers)?;
        self.page_out(0)?;
        let sim = self.lab.sim();
        let (counted, began) = (self.counts(), sim.elapsed());
        let (mut paging, mut waited) = (Picos::ZERO, Picos::ZERO);
        for round in 1..=self.program.rounds {
            self.read(&readers)?;
            let (start, before) = (sim.clock(PAGER), sim.count(PAGER, MachineEvent::FlushWaitTime));
            self.page_out(round)?;
            paging += sim.clock(PAGER).since(start);
            waited += Picos::new(sim.count(PAGER, MachineEvent::FlushWaitTime) - before);
        }
        let since = |((name, after), (_, before)): ((&'static str, u64), (&'static str, u64))| (name, after - before);
        Ok(PageOutCosts {
            pages: self.program.pages * u64::from(self.program.rounds),
            counters: NamedCounts(self.counts().into_iter().zip(counted).map(since).collect()),
            elapsed: sim.elapsed().since(began),
            paging,
            waited,
        })
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let machine = MachineEvent::ALL.iter().map(|event| (event.name(), self.lab.sim().total(*event)));
        let kernel = Counter::ALL.iter().map(|counter| (counter.name(), self.lab.mm().counter(*counter)));
        machine.chain(kernel).collect()
    }

    /// Runs all readers concurrently, from one time, and lets every CPU wait for the last reader.
    fn read(&self, readers: &[PageReader<I>]) -> Result<(), PageOutError> {
        let sim = self.lab.sim();
        self.synchronise();
        let access = if self.program.stores { Access::Write } else { Access::Read };
        for (index, reader) in readers.iter().enumerate() {
            if index >= usize::from(self.cpus) {
                sim.charge(reader.cpu, Cost::ContextSwitch, 1);
            }
            self.lab.run(reader.cpu, &reader.space);
            for page in 0..self.program.pages {
                self.lab.touch(reader.cpu, &reader.space, HEAP.add(page * PAGE_SIZE), access, 1)?;
            }
        }
        self.synchronise();
        Ok(())
    }

    /// Sets the clock of every CPU to that of the last one.
    fn synchronise(&self) {
        let sim = self.lab.sim();
        let last = sim.elapsed();
        (0..self.cpus).for_each(|cpu| sim.idle_until(CpuId::new(cpu), last));
    }

    fn page_out(&self, round: u32) -> Result<(), PageOutError> {
        let before = self.lab.mm().counter(Counter::PswpOut);
        let bytes = self.program.pages * PAGE_SIZE;
        self.lab.run(PAGER, &self.spaces[0]);
        self.lab.sim().charge(PAGER, Cost::Syscall, 1);
        if self.program.sharers == 1 {
            self.lab.on(PAGER, |mm| mm.madvise(&self.spaces[0], HEAP, bytes, Advice::PageOut))?;
        } else {
            self.lab.on(PAGER, |mm| mm.reclaim(NodeId::new(0), self.program.pages as u32));
        }
        let paged_out = self.lab.mm().counter(Counter::PswpOut) - before;
        match self.program.pages.checked_sub(paged_out) {
            None | Some(0) => Ok(()),
            Some(left) => Err(PageOutError::Remained { left, pages: self.program.pages, round }),
        }
    }
}
