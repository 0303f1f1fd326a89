//! Built-in workloads: small programs of memory calls and accesses, generated event by event.
//!
//! A [`Workload`] is an [`EventSource`], as a trace is, and so can be replayed in the same way. It
//! has no page contents either.
//!
//! A workload about memory tiers comes with the machine that it is for ([`WorkloadMachine`]).

mod cross_section;
mod heaps;

use crate::replay::EventSource;
use crate::trace::{
    AccessOrigin, AccessRun, AccessStream, AddressLayout, CapturedFile, ExecImage, FileId, ImageBacking, ImageMapping,
    MappingSource, MemCall, MemOp, PageNo, Pid, Prot, RawMapFlags, TaskEvent, Tid, TraceError, TraceEvent, TraceHeader,
    UserAddr,
};
use cross_section::CROSS_SECTION;
use pagewright_mm::MmSetting;
use pagewright_types::IsaKind;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;

const PAGE: u64 = 4096;
const HEAP: u64 = 0x7000_0000_0000;
const HEAP_PAGE: u64 = HEAP / PAGE;
const RW: Prot = Prot(3);
const PRIVATE_ANON: RawMapFlags = RawMapFlags(0x22);
const SHARED_ANON: RawMapFlags = RawMapFlags(0x21);
/// `MADV_PAGEOUT`.
const PAGEOUT: u32 = 21;
const ROOT: Pid = Pid(1);
/// Added to the seed of a workload for the choices of [`Workload::with_stores`].
const STORE_STREAM: u64 = 0x5354_4f52_4553;

/// A program: a set-up, a number of rounds, and the exit.
struct Program {
    name: &'static str,
    rounds: u64,
    machine: Option<WorkloadMachine>,
    set_up: fn(&mut Script),
    round: fn(&mut Script),
}

/// The machine that a workload is for: a node with the CPUs, and a slower one without.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadMachine {
    /// Memory of the node with CPUs.
    pub fast_bytes: u64,
    /// Memory of the node without CPUs.
    pub slow_bytes: u64,
    /// Settings that differ from their defaults.
    pub settings: &'static [(MmSetting, u64)],
}

/// The workloads.
const ALL: [&Program; 10] = [
    &CROSS_SECTION,
    &FORK_SERVER,
    &heaps::DENSE,
    &heaps::EVACUATING,
    &heaps::PURGING,
    &heaps::SPARSE,
    &MAP_UNMAP,
    &PAGE_OUT,
    &PROTECT,
    &SWEEP,
];

/// The names of the workloads.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|program| program.name)
}

/// The machine that the workload with this name is for, if it needs a certain one.
pub fn machine_of(name: &str) -> Option<WorkloadMachine> {
    ALL.iter().find(|program| program.name == name)?.machine
}

/// How unevenly a workload loads its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// Pages that are loaded from at all.
    pub pages: u64,
    /// The loads that were counted.
    pub loads: u64,
    /// Those of them that reach the pages with the most.
    pub of_hottest: u64,
}

/// Counts the loads of a workload's first rounds by page; those of `hottest` pages are told apart.
///
/// Instruction fetches and the set-up are left out.
pub fn skew(name: &str, seed: u64, hottest: u64) -> Option<Skew> {
    const ROUNDS: u64 = 64;
    let program = ALL.iter().find(|program| program.name == name)?;
    let mut script = Script::new(seed);
    (program.set_up)(&mut script);
    script.events.clear();
    let mut loads = BTreeMap::<u64, u64>::new();
    for _ in 0..ROUNDS.min(program.rounds) {
        (program.round)(&mut script);
        for event in script.events.drain(..) {
            if let TraceEvent::Run(run) = event
                && run.stream == AccessStream::Data
            {
                *loads.entry(run.page.0).or_default() += u64::from(run.reads);
            }
        }
    }
    let mut by_page: Vec<u64> = loads.into_values().collect();
    by_page.sort_unstable_by_key(|loads| std::cmp::Reverse(*loads));
    let of_hottest = by_page.iter().take(hottest as usize).sum();
    Some(Skew { pages: by_page.len() as u64, loads: by_page.iter().sum(), of_hottest })
}

/// The workload with this name; its random choices depend on `seed` only.
pub fn named(name: &str, seed: u64) -> Option<Workload> {
    ALL.iter().find(|program| program.name == name).map(|program| Workload::new(program, seed))
}

/// A workload, which generates its events step by step.
pub struct Workload {
    header: TraceHeader,
    script: Script,
    program: &'static Program,
    rounds: u64,
    steps: u64,
    seed: u64,
}

impl Workload {
    fn new(program: &'static Program, seed: u64) -> Self {
        let header = TraceHeader {
            command: vec![program.name.to_owned()],
            tool: "built in".to_owned(),
            isa: IsaKind::X86_64,
            page_size: PAGE,
            mappings: MappingSource::SystemCalls,
            layout: AddressLayout::Linux,
            native: None,
        };
        let mut script = Script::new(seed);
        script.begin(program.name);
        Self { header, script, program, rounds: program.rounds, steps: 0, seed }
    }

    /// The same workload with at most so many rounds.
    #[must_use]
    pub fn with_rounds(mut self, rounds: u64) -> Self {
        self.rounds = rounds.min(self.rounds);
        self
    }

    /// The same workload, in whose rounds one of `every` runs of loads of a page also stores there.
    ///
    /// Which of them is random and depends on the seed of the workload, whose loads stay the same.
    #[must_use]
    pub fn with_stores(mut self, every: u64) -> Self {
        self.script.stores = Some((Pcg64::seed_from_u64(self.seed ^ STORE_STREAM), every));
        self
    }

    /// Generates the events of the next step; returns `false` after the last one.
    fn step(&mut self) -> bool {
        match self.steps {
            0 => (self.program.set_up)(&mut self.script),
            step if step <= self.rounds => (self.program.round)(&mut self.script),
            step if step == self.rounds + 1 => self.script.finish(),
            _ => return false,
        }
        self.steps += 1;
        true
    }
}

impl EventSource for Workload {
    fn header(&self) -> &TraceHeader {
        &self.header
    }

    fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<bool, TraceError> {
        batch.clear();
        while self.script.events.is_empty() {
            if !self.step() {
                return Ok(false);
            }
        }
        batch.append(&mut self.script.events);
        Ok(true)
    }
}

/// The events of the current step.
struct Script {
    events: Vec<TraceEvent>,
    random: Pcg64,
    /// The highest number of a thread or process so far.
    last_id: u32,
    /// Which of its two spaces a copying collector uses.
    last_space: u64,
    /// One of so many runs of loads also stores, by random choices of their own.
    stores: Option<(Pcg64, u64)>,
}

impl Script {
    fn new(seed: u64) -> Self {
        Self { events: Vec::new(), random: Pcg64::seed_from_u64(seed), last_id: 1, last_space: 0, stores: None }
    }

    fn begin(&mut self, name: &str) {
        let program = FileId(1);
        let info = CapturedFile { id: program, path: format!("/bin/{name}"), size: Some(16 * PAGE) };
        let text = ImageMapping {
            start: UserAddr(0x40_0000),
            len: 16 * PAGE,
            prot: Prot(5),
            backing: ImageBacking::File { file: program, offset: 0 },
        };
        let top = 0x7fff_ffff_f000;
        let stack = ImageMapping { start: UserAddr(top - PAGE), len: PAGE, prot: RW, backing: ImageBacking::Stack {} };
        let image = ExecImage {
            executable: program,
            args: vec![name.to_owned()],
            mappings: vec![text, stack],
            brk: UserAddr(0x50_0000),
            stack_top: UserAddr(top),
            stack_limit: 8 << 20,
        };
        self.events.push(TraceEvent::File(Box::new(info)));
        self.events.push(TraceEvent::Task(Box::new(TaskEvent::Begin { pid: ROOT, tid: Tid(ROOT.0) })));
        self.events.push(TraceEvent::Task(Box::new(TaskEvent::Exec { image })));
    }

    fn run(&mut self, page: u64, stream: AccessStream, reads: u32, writes: u32) {
        let write_first = writes > 0;
        let stores_too = match &mut self.stores {
            Some((random, every)) if stream == AccessStream::Data && !write_first => random.next_u64() % *every == 0,
            Some(_) | None => false,
        };
        let writes = if stores_too { 1 } else { writes };
        let origin = AccessOrigin::User;
        let run = AccessRun { page: PageNo(page), reads, writes, stream, origin, write_first };
        self.events.push(TraceEvent::Run(run));
    }

    /// Fetches a few instructions and stores to a page.
    fn store(&mut self, page: u64) {
        self.run(0x400, AccessStream::Fetch, 8, 0);
        self.run(page, AccessStream::Data, 0, 2);
    }

    /// Fetches a few instructions and loads from a page.
    fn load(&mut self, page: u64) {
        self.run(0x400, AccessStream::Fetch, 8, 0);
        self.run(page, AccessStream::Data, 2, 0);
    }

    fn call(&mut self, op: MemOp, result: u64) {
        self.events.push(TraceEvent::Call(Box::new(MemCall { op, result: Ok(result) })));
    }

    fn map(&mut self, at: u64, pages: u64) {
        self.map_as(PRIVATE_ANON, at, pages);
    }

    fn map_as(&mut self, flags: RawMapFlags, at: u64, pages: u64) {
        let op = MemOp::Mmap { addr: UserAddr(0), len: pages * PAGE, prot: RW, flags, file: None, offset: 0 };
        self.call(op, at);
    }

    /// Maps private anonymous memory from [`HEAP`] on, and stores to each page.
    fn fill_heap(&mut self, pages: u64) {
        self.map(HEAP, pages);
        self.store_all(pages);
    }

    fn store_all(&mut self, pages: u64) {
        (0..pages).for_each(|page| self.store(HEAP_PAGE + page));
    }

    fn unmap(&mut self, at: u64, pages: u64) {
        self.call(MemOp::Munmap { addr: UserAddr(at), len: pages * PAGE }, 0);
    }

    fn switch(&mut self, pid: Pid, tid: Tid) {
        self.events.push(TraceEvent::Switch { pid, tid });
    }

    fn task(&mut self, task: TaskEvent) {
        self.events.push(TraceEvent::Task(Box::new(task)));
    }

    /// Starts threads beside the first, so that there are `threads`, numbered from 1.
    fn start_threads(&mut self, threads: u32) {
        for _ in 1..threads {
            self.last_id += 1;
            let tid = Tid(self.last_id);
            self.task(TaskEvent::CloneThread { tid });
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }

    fn finish(&mut self) {
        self.task(TaskEvent::ExitProcess { status: 0 });
    }
}

/// A server with 64 MiB of memory forks a child for each of 32 requests.
///
/// The child reads some pages, stores to a few, and exits.
const FORK_SERVER: Program = {
    const PAGES: u64 = 16384;
    Program {
        name: "fork-server",
        rounds: 32,
        machine: None,
        set_up: |script| script.fill_heap(PAGES),
        round: |script| {
            script.last_id += 1;
            let child = Pid(script.last_id);
            script.task(TaskEvent::Fork { child, tid: Tid(child.0), vfork: false });
            for _ in 0..64 {
                let page = script.below(PAGES);
                script.store(HEAP_PAGE + page);
            }
            script.switch(child, Tid(child.0));
            for _ in 0..512 {
                let page = script.below(PAGES);
                script.load(HEAP_PAGE + page);
                if script.below(8) == 0 {
                    script.store(HEAP_PAGE + page);
                }
            }
            script.finish();
            script.switch(ROOT, Tid(ROOT.0));
            script.task(TaskEvent::Reaped { child });
        },
    }
};

/// Maps 1 to 64 pages, stores to each, and unmaps them, 20,000 times.
const MAP_UNMAP: Program = Program {
    name: "map-unmap",
    rounds: 20_000,
    machine: None,
    set_up: |_| {},
    round: |script| {
        let pages = 1 << script.below(7);
        let at = HEAP + script.below(1 << 12) * 64 * PAGE;
        script.map(at, pages);
        (0..pages).for_each(|page| script.store(at / PAGE + page));
        script.unmap(at, pages);
    },
};

/// Reads 1 MiB of shared memory and pages it out, 200 times; needs a machine with swap.
///
/// This is the program of the series that batches arm64's flushes in reclaim
/// (20220822082120.8347-5-yangyicong@huawei.com).
const PAGE_OUT: Program = {
    const PAGES: u64 = 256;
    Program {
        name: "pageout",
        rounds: 200,
        machine: None,
        set_up: |script| {
            script.map_as(SHARED_ANON, HEAP, PAGES);
            script.store_all(PAGES);
        },
        round: |script| {
            (0..PAGES).for_each(|page| script.load(HEAP_PAGE + page));
            script.call(MemOp::Madvise { addr: UserAddr(HEAP), len: PAGES * PAGE, advice: PAGEOUT }, 0);
        },
    }
};

/// Four threads read 256 pages, while one of them revokes and restores write access, 2,000 times.
const PROTECT: Program = {
    const PAGES: u64 = 256;
    const THREADS: u32 = 4;
    Program {
        name: "protect",
        rounds: 2_000,
        machine: None,
        set_up: |script| {
            script.fill_heap(PAGES);
            script.start_threads(THREADS);
        },
        round: |script| {
            for thread in 1..=THREADS {
                script.switch(ROOT, Tid(thread));
                for _ in 0..32 {
                    let page = script.below(PAGES);
                    script.load(HEAP_PAGE + page);
                }
            }
            script.switch(ROOT, Tid(ROOT.0));
            let pages = 1 + script.below(8);
            let at = script.below(PAGES - pages);
            let (addr, len) = (UserAddr(HEAP + at * PAGE), pages * PAGE);
            script.call(MemOp::Mprotect { addr, len, prot: Prot(1) }, 0);
            script.call(MemOp::Mprotect { addr, len, prot: RW }, 0);
        },
    }
};

/// Reads 256 MiB at random, a million times; the range is larger than a TLB covers.
const SWEEP: Program = {
    const PAGES: u64 = 65536;
    Program {
        name: "sweep",
        rounds: 1024,
        machine: None,
        set_up: |script| script.fill_heap(PAGES),
        round: |script| {
            for _ in 0..1024 {
                let page = script.below(PAGES);
                script.load(HEAP_PAGE + page);
            }
        },
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The runs of data after the set-up.
    fn runs(mut workload: Workload) -> Vec<AccessRun> {
        workload.step();
        workload.script.events.clear();
        while workload.step() {}
        let run = |event| match event {
            TraceEvent::Run(run) => Some(run),
            _ => None,
        };
        workload.script.events.drain(..).filter_map(run).collect()
    }

    #[test]
    fn stores_are_added_to_a_share_of_the_loads_which_stay_the_same() {
        let workload = || named("cross-section", 7).expect("a workload").with_rounds(2);
        let (plain, storing) = (runs(workload()), runs(workload().with_stores(2)));
        assert!(plain.iter().all(|run| run.writes == 0));
        let loads = |runs: &[AccessRun]| runs.iter().map(|run| (run.page.0, run.reads)).collect::<Vec<_>>();
        assert_eq!(loads(&plain), loads(&storing));
        let is_data = |run: &&AccessRun| run.stream == AccessStream::Data;
        let stored = storing.iter().filter(|run| run.writes == 1 && !run.write_first).count();
        let share = stored as f64 / storing.iter().filter(is_data).count() as f64;
        assert!((0.45..0.55).contains(&share), "{share}");
        assert!(storing.iter().all(|run| run.stream == AccessStream::Data || run.writes == 0));
    }
}
