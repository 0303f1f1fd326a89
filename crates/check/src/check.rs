//! The entry point: a closure sets a machine up and gives each CPU a program.
//!
//! [`Check::explore`] runs it under many schedules. Key types: [`Check`], and [`CheckOutcome`] in
//! its own file.
//!
//! **INV-CHECK-KERNEL** In a check's kernel range, global mappings are judged under every tag, on
//! lazy CPUs too, and walk caches under the tag of the walk; on x86-64 they are of all roots.
//!
//! **INV-CHECK-LEVELS** With `Check::five_levels`, the machine and the oracle walk five levels,
//! each by its own reading of Intel's manual, and judge all 57 bits of an address.
//!
//! **INV-CHECK-GRANULE** With `Check::granule`, the machine and the oracle walk tables of 16 or 64
//! KiB, each by its own reading of the Arm ARM; a TLBI removes the page of that size in which its
//! address is, and a frame that is allocated or freed is such a page.

use crate::current::Entered;
use crate::exhaustive::{ActReduction, Enumerated, SearchBounds, enumerate};
use crate::harness::{CpuProgram, Harness};
use crate::outcome::CheckOutcome;
use crate::search::{ForeignToken, Search, SearchPlan, replay, search_all, search_in_processes};
use crate::testbench::{Attempt, RunDetail, Testbench};
use crate::trapping::{MapMemory, build_number, was_mapped_twice};
use pagewright_arch::{Effects, Isa};
use pagewright_sim::config::parse;
use pagewright_sim::explore::{self, Chooser, ExploreSettings, ProgramPart, ReplayToken};
use pagewright_sim::{MachineConfig, PointerStores};
use pagewright_types::{CpuId, Granule, PageRange};
use std::marker::PhantomData;
use std::ops::ControlFlow;

/// The environment variable that holds a token to replay.
pub(crate) const REPLAY: &str = "PAGEWRIGHT_REPLAY";

/// The environment variable that holds the number of processes of a search.
const PROCESSES: &str = "PAGEWRIGHT_PROCESSES";

/// A check: the machine to run on, and how many schedules to try.
#[derive(Clone)]
pub struct Check<I> {
    config: MachineConfig,
    plan: SearchPlan,
    settings: ExploreSettings,
    pointer_stores: PointerStores,
    map_memory: Option<MapMemory>,
    exhaustive: Option<SearchBounds>,
    processes: u32,
    isa: PhantomData<fn() -> I>,
}

impl<I: Isa> Default for Check<I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: Isa> Check<I> {
    /// A check on two CPUs with 1 MiB of memory: 2,000 schedules of seed 0.
    ///
    /// # Panics
    /// When the profile that is compiled in does not load.
    pub fn new() -> Self {
        let config = MachineConfig::default_for(I::KIND);
        let config = config.unwrap_or_else(|error| panic!("the default machine: {error}"));
        let (plan, settings) = (SearchPlan::default(), ExploreSettings::default());
        let pointer_stores = PointerStores::Unseen;
        Self {
            config,
            plan,
            settings,
            pointer_stores,
            map_memory: None,
            exhaustive: None,
            processes: 1,
            isa: PhantomData,
        }
        .cpus(2)
        .memory("1M")
    }

    /// Sets the number of CPUs.
    #[must_use]
    pub fn cpus(mut self, cpus: u16) -> Self {
        self.config.cpus = cpus;
        self
    }

    /// Sets the size of memory, such as `"1M"`; frame 0 is never allocated.
    ///
    /// # Panics
    /// When `size` is not a number of bytes with an optional K, M, G or T.
    #[must_use]
    pub fn memory(mut self, size: &str) -> Self {
        let bytes = parse::size(size).unwrap_or_else(|error| panic!("{error}"));
        self.config.nodes[0].bytes = bytes;
        self
    }

    /// Turns tags off (x86-64 with CR4.PCIDE clear): loading a root flushes.
    #[must_use]
    pub fn untagged(mut self) -> Self {
        self.config.tagged = false;
        self
    }

    /// Lets a mapping change its size without break-before-make (arm64 FEAT_BBM level 2).
    ///
    /// No access is aborted for it, as on the CPUs on which Linux relies on this (`BBML2_NOABORT`).
    #[must_use]
    pub fn bbm_level_2(mut self) -> Self {
        self.config.bbm_level_2 = true;
        self
    }

    /// Has the kernel access `range`, in the upper half; user mode accesses all other addresses.
    ///
    /// INV-CHECK-KERNEL.
    ///
    /// [`crate::Cpu::read`], `write` and `fetch` in the range are then accesses of the kernel,
    /// without SMAP or PAN, and its mappings are judged as those of user mode are, on lazy CPUs
    /// too. On x86-64 all roots have the range in common; on arm64 it is translated by
    /// [`crate::Cpu::load_kernel_root`]. A direct map of all memory must lie outside of the range:
    /// there, mappings that only the kernel may use are not judged.
    ///
    /// # Panics
    /// [`Check::explore`] panics when the range is not in the upper half, or not a multiple of
    /// 512 GiB (256 TiB with [`Check::five_levels`], a root entry with [`Check::granule`]).
    #[must_use]
    pub fn kernel_range(mut self, range: PageRange) -> Self {
        self.config.kernel_range = Some(range);
        self
    }

    /// Gives arm64 CPUs range TLBIs (FEAT_TLBIRANGE), such as `RVAE1IS`.
    #[must_use]
    pub fn range_invalidations(mut self) -> Self {
        self.config.profile = self.config.profile.with_ranges();
        self
    }

    /// Gives x86-64 CPUs INVLPGB and TLBSYNC (AMD): a broadcast [`crate::Cpu::invalidate`].
    ///
    /// [`crate::Cpu::complete`] is TLBSYNC. INVLPGB is taken to follow the earlier stores of its
    /// CPU.
    #[must_use]
    pub fn invlpgb(mut self) -> Self {
        self.config.invlpgb = true;
        self
    }

    /// Lets walkers see stores through pointers late, until `DSB ISHST` ([`crate::Cpu::publish`]).
    ///
    /// It has an effect on arm64 only. Set it if the code under test makes all its barriers on the
    /// machine: one that is compiled away on the host would be reported as missing.
    #[must_use]
    pub fn delay_pointer_stores(mut self) -> Self {
        self.pointer_stores = PointerStores::Delayed;
        self
    }

    /// Makes each store to a page table through a pointer a scheduling point of its own.
    ///
    /// `map` is `pagewright_trap::map_memory`, on x86-64 Linux hosts. Code must take its pointers
    /// from [`Harness::host_address`] or [`Harness::phys_offset`]. A CPU that reaches no point and
    /// executes a spin loop counts as waiting; a lock that blocks the host thread must not be held
    /// over a store. Replay tokens bind to the build (INV-TRAP-STORE).
    #[must_use]
    pub fn trap_pointer_stores(mut self, map: MapMemory) -> Self {
        self.map_memory = Some(map);
        self.config.trapping_build = Some(build_number());
        self
    }

    /// Gives page tables five levels, of which PML5 is the root (x86-64 CR4.LA57).
    ///
    /// INV-CHECK-LEVELS. Addresses have 57 bits (Intel SDM vol. 3A §4.5.1).
    ///
    /// # Panics
    /// [`Check::explore`] panics on arm64.
    #[must_use]
    pub fn five_levels(mut self) -> Self {
        self.config.five_levels = true;
        self
    }

    /// Gives base pages and page tables this size (arm64, TCR_EL1.TG0 and TG1).
    ///
    /// INV-CHECK-GRANULE. Addresses have 48 bits, of which a table translates 11 with 16 KiB and 13
    /// with 64 KiB; the root has 2 entries, or 64 (Arm ARM D8.2.5). A frame that the harness
    /// allocates is a page, and is named by the first of its frame numbers, which count 4 KiB.
    ///
    /// # Panics
    /// [`Check::explore`] panics on x86-64.
    #[must_use]
    pub fn granule(mut self, granule: Granule) -> Self {
        self.config.granule = granule;
        self
    }

    /// Sets how many schedules to try at most; the default is 2,000.
    #[must_use]
    pub fn schedules(mut self, schedules: u32) -> Self {
        self.plan.schedules = schedules;
        self
    }

    /// Tries all schedules with at most `preemptions` preemptions and `acts` acts of the machine.
    ///
    /// See [`SearchBounds`]. Each class of schedules that differ by the order of steps that commute
    /// is tried once. A later [`Check::schedules`] limits the number of schedules; if the search
    /// reaches it, the text of the outcome says that it is not complete. Keep programs small. They
    /// must do the same whenever they see the same: a state that was reached before is not searched
    /// again.
    #[must_use]
    pub fn exhaustive(mut self, preemptions: u32, acts: u32) -> Self {
        self.exhaustive = Some(SearchBounds { preemptions, acts });
        self.plan.schedules = u32::MAX;
        // Nothing in flight moves by itself: each act is counted.
        self.settings.max_wait = u32::MAX;
        self.settings.walks = u8::try_from(acts.max(1)).unwrap_or(u8::MAX);
        self
    }

    /// Sets the seed of all random choices.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.plan.seed = seed;
        self
    }

    /// Sets how many processes run the schedules; each has its own copy of foreign statics.
    ///
    /// The result is the same for any number (INV-CHECK-PROCESSES). `PAGEWRIGHT_PROCESSES` in the
    /// environment takes precedence. An exhaustive search runs in this process, and so does a
    /// search in a process that has mapped memory for [`Check::trap_pointer_stores`], because a
    /// forked one would share that memory.
    #[must_use]
    pub fn processes(mut self, processes: u32) -> Self {
        self.processes = processes;
        self
    }

    /// Sets the step limit of one schedule.
    ///
    /// A run that reaches it is a finding
    /// ([`CheckFinding::StepLimit`](crate::CheckFinding::StepLimit)).
    #[must_use]
    pub fn steps(mut self, steps: u32) -> Self {
        self.settings.max_steps = steps;
        self
    }

    /// Runs the programs that `setup` returns under many schedules, until one has a finding.
    ///
    /// The first program runs on CPU 0, the second on CPU 1, and so on. `setup` is called anew for
    /// each schedule, with a machine that was just switched on. It runs on CPU 0 unless it uses
    /// [`Harness::cpu`], without races, and must do the same each time.
    ///
    /// With `PAGEWRIGHT_REPLAY=pw1/…` in the environment, only that schedule is run. A token of
    /// another machine or of other settings is not used, and a line on standard error says so.
    ///
    /// # Panics
    /// When the machine is impossible, when `setup` panics or returns more programs than there are
    /// CPUs, when `PAGEWRIGHT_REPLAY` is not a token or `PAGEWRIGHT_PROCESSES` not a number, and as
    /// [`search_in_processes`].
    pub fn explore(&self, setup: impl Fn(&Harness<I>) -> Vec<CpuProgram<I>>) -> CheckOutcome {
        if let Ok(token) = std::env::var(REPLAY) {
            let token = token.parse().unwrap_or_else(|error| panic!("{REPLAY}: {error}"));
            match self.replay(&token, &setup) {
                Ok(outcome) => return outcome,
                Err(foreign) => eprintln!("{REPLAY} is not used: {foreign}"),
            }
        }
        let attempt = &mut |chooser: &mut dyn Chooser, detail| self.attempt(&setup, chooser, detail);
        let search = match self.exhaustive {
            Some(bounds) => search_all(&self.plan, bounds, attempt),
            None => search_in_processes(&self.plan, self.processes_now(), attempt),
        };
        self.outcome(search, false)
    }

    /// Runs all schedules within the bounds of [`Check::exhaustive`], and visits each run.
    ///
    /// It goes on after a finding. Without bounds it runs the default schedule.
    ///
    /// # Panics
    /// As [`Check::explore`].
    pub fn enumerate(
        &self,
        reduction: ActReduction,
        setup: impl Fn(&Harness<I>) -> Vec<CpuProgram<I>>,
        visit: &mut dyn FnMut(&Attempt) -> ControlFlow<()>,
    ) -> Enumerated {
        let bounds = self.exhaustive.unwrap_or(SearchBounds { preemptions: 0, acts: 0 });
        let attempt = &mut |chooser: &mut dyn Chooser, detail| self.attempt(&setup, chooser, detail);
        enumerate(bounds, reduction, attempt, visit)
    }

    /// Runs only the schedule of `token`.
    ///
    /// # Errors
    /// [`ForeignToken`], when the token belongs to another machine or other settings.
    ///
    /// # Panics
    /// As [`Check::explore`].
    pub fn replay(
        &self,
        token: &ReplayToken,
        setup: impl Fn(&Harness<I>) -> Vec<CpuProgram<I>>,
    ) -> Result<CheckOutcome, ForeignToken> {
        let attempt = replay(token, &mut |chooser, detail| self.attempt(&setup, chooser, detail))?;
        Ok(self.outcome(Search::of_replay(token, attempt), true))
    }

    /// The number of processes of a search that begins now.
    fn processes_now(&self) -> u32 {
        let number = |text: String| text.parse().unwrap_or_else(|_| panic!("{PROCESSES}: `{text}` is not a number"));
        let wanted = std::env::var(PROCESSES).map_or(self.processes, number);
        if self.map_memory.is_some() || was_mapped_twice() { 1 } else { wanted }
    }

    fn outcome(&self, search: Search, replayed: bool) -> CheckOutcome {
        let Self { pointer_stores, map_memory, .. } = *self;
        let (cpus, trapped) = (self.config.cpus, map_memory.is_some());
        CheckOutcome { isa: I::KIND, cpus, seed: self.plan.seed, pointer_stores, trapped, replayed, search }
    }

    fn attempt(
        &self,
        setup: &dyn Fn(&Harness<I>) -> Vec<CpuProgram<I>>,
        chooser: &mut dyn Chooser,
        detail: RunDetail,
    ) -> Attempt {
        let bench = Testbench::new(self.config.clone()).unwrap_or_else(|error| panic!("{error}"));
        bench.journal().turn(detail == RunDetail::Full);
        bench.sim().watch_pointer_stores(self.pointer_stores);
        let left_out = chooser.left_out().to_vec();
        let harness = Harness::<I>::new(bench, left_out.clone());
        self.map_memory.into_iter().for_each(|map| harness.map_twice(map));
        let _entered = Entered::new(&harness);
        let sim = harness.sim();
        let programs = sim.run_on(CpuId::new(0), || setup(&harness));
        // The set-up has no races: its broadcast invalidations complete before the programs start.
        harness.cpus().for_each(|cpu| sim.run_on(cpu.id(), || sim.complete()));
        let parts = (0..programs.len()).map(|cpu| ProgramPart::Program(CpuId::new(cpu as u16))).collect::<Vec<_>>();
        let programs = programs.into_iter().zip(harness.cpus());
        let programs = programs.map(|(program, cpu)| match left_out.contains(&ProgramPart::Program(cpu.id())) {
            // A value of foreign code may panic when it is dropped: then that is the run's end.
            true => Box::new(move || drop(program)) as explore::CoroutineBody,
            false => Box::new(move || program(&cpu)),
        });
        let report = harness.bench().run(&self.settings, programs.collect(), detail, chooser);
        let attempt = harness.bench().attempt(&self.settings, report);
        Attempt { parts: parts.into_iter().chain(harness.operations()).collect(), ..attempt }
    }
}
