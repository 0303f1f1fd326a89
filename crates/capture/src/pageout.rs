//! Shared memory that is read and paged out again and again: the program of the series that batches
//! arm64's flushes in reclaim (20220822082120.8347-5-yangyicong@huawei.com), with what its mail
//! speaks of and its program does not do: several processes that map the memory, several CPUs that
//! have used it, stores.
//!
//! Key types: [`PageOutProgram`]; [`PageOutCosts`], what it cost. [`run`] runs it on a lab, outside
//! of replay, because a capture can't say that one process pages out only when all others have
//! read.
//!
//! Protocol: in a round every reader reads every page, side by side on the CPUs; when all have, CPU
//! 0 pages them out, and when it has, the next round begins. One process has its pages paged out by
//! `MADV_PAGEOUT`. Pages that others map, too, are not a program's to page out, so of several
//! processes they are reclaimed because somebody asks for it.
//!
//! Not guaranteed: anything about contents; there are none.

use crate::replay::{NamedCounts, ReplayConfig};
use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_lab::{Lab, LabError};
use pagewright_mm::{Advice, FaultError, MapFlags, MapRequest, MmError, MmSettingError, MmSettings, Space};
use pagewright_sim::{Cost, MachineEvent, Picos, Sim};
use pagewright_sync::Arc;
use pagewright_types::{Access, Counter, CpuId, IsaKind, NodeId, PAGE_SIZE, Rights, VirtAddr};

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageOutProgram {
    /// Processes that map the memory.
    pub sharers: u32,
    /// Whether each CPU has a thread of the process that reads, too.
    ///
    /// Else the process with number *n* runs on CPU *n*, or where that is once CPUs are used up.
    pub threads: bool,
    /// Whether the readers store.
    pub stores: bool,
    /// Pages of the memory.
    pub pages: u64,
    /// How often it is read and paged out.
    pub rounds: u32,
}

impl PageOutProgram {
    /// The series' own: one process, 1 MiB, reads.
    pub fn of_the_series(rounds: u32) -> Self {
        Self { sharers: 1, threads: false, stores: false, pages: 256, rounds }
    }
}

/// What the rounds cost; what came before is not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageOutCosts {
    /// Pages that went out.
    pub pages: u64,
    /// Everything that is counted, under its name.
    pub counters: NamedCounts,
    /// Modelled time from the first round's beginning to the last one's end.
    pub elapsed: Picos,
    /// Of it, what CPU 0 spent paging out.
    pub paging: Picos,
    /// Of that, what it waited until other CPUs had dropped translations.
    pub waited: Picos,
}

/// Why it could not be run.
#[derive(Debug, thiserror::Error)]
pub enum PageOutError {
    /// The machine.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A setting.
    #[error("{0}")]
    Setting(#[from] MmSettingError),
    /// The memory manager refused a call.
    #[error("{0}")]
    Call(#[from] MmError),
    /// It refused an access.
    #[error("{0}")]
    Fault(#[from] FaultError),
    /// A page did not go.
    #[error("{left} of {pages} pages stayed in round {round}")]
    Stayed {
        /// Pages that did not go.
        left: u64,
        /// Of so many.
        pages: u64,
        /// When.
        round: u32,
    },
}

/// Runs `program` on the machine of `config`, which must have room for the memory in its swap.
///
/// # Errors
/// [`PageOutError`].
pub fn run(isa: IsaKind, config: &ReplayConfig, program: PageOutProgram) -> Result<PageOutCosts, PageOutError> {
    match isa {
        IsaKind::X86_64 => PageOutMachine::<X86_64>::new(config, program)?.run(),
        IsaKind::Aarch64 => PageOutMachine::<Aarch64>::new(config, program)?.run(),
    }
}

const HEAP: VirtAddr = VirtAddr::new(0x7000_0000_0000);
const PAGER: CpuId = CpuId::new(0);

/// A thread that reads.
struct PageReader<I: Isa> {
    cpu: CpuId,
    space: Arc<Space<Sim<I>>>,
}

struct PageOutMachine<I: Isa> {
    lab: Lab<I>,
    program: PageOutProgram,
    cpus: u16,
    spaces: Vec<Arc<Space<Sim<I>>>>,
}

impl<I: Isa> PageOutMachine<I> {
    /// Maps the memory, stores to every page of it, and forks the processes that share it.
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
        // Once, so that every round begins alike: with all pages out.
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

    /// All readers begin together; when it returns, CPU 0 has waited for all of them.
    fn read(&self, readers: &[PageReader<I>]) -> Result<(), PageOutError> {
        let sim = self.lab.sim();
        self.meet();
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
        self.meet();
        Ok(())
    }

    /// Every CPU waits for the last.
    fn meet(&self) {
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
        let went = self.lab.mm().counter(Counter::PswpOut) - before;
        match self.program.pages.checked_sub(went) {
            None | Some(0) => Ok(()),
            Some(left) => Err(PageOutError::Stayed { left, pages: self.program.pages, round }),
        }
    }
}
