//! Random programs, and what each of their pages should show.

use pagewright_arch::Isa;
use pagewright_lab::Lab;
use pagewright_lab::harness::recount;
use pagewright_mm::counters::Gauge;
use pagewright_mm::file::{FileKind, FileObject, FileOps};
use pagewright_mm::space::FileMapping;
use pagewright_mm::{Advice, FaultError, MapFlags, MapRequest, Mm, MmError, MmSettings, Space};
use pagewright_sim::{AllocationFailure, MachineConfig, Sim};
use pagewright_sync::Arc;
use pagewright_types::{Access, CpuId, Errno, PAGE_SIZE, Rights, VirtAddr};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Pages that programs map, across the border of two 1 GiB tables.
const PAGES: u64 = 96;
const BASE: u64 = (3 << 30) - 40 * PAGE_SIZE;
/// Where heaps start, out of the others' way, and how many pages they may get.
const HEAP: u64 = 5 << 30;
const HEAP_PAGES: u64 = 12;
const FILE_PAGES: u64 = 24;
const CPUS: u16 = 3;
const PROCESSES: usize = 5;

/// The address of a page of the window, or of the heap behind it.
fn address(page: u64) -> VirtAddr {
    VirtAddr::new(if page < PAGES { BASE + page * PAGE_SIZE } else { HEAP + (page - PAGES) * PAGE_SIZE })
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    PrivateAnon,
    SharedAnon,
    PrivateFile,
    SharedFile,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    Map { what: What, from: u64, pages: u64, rights: u8, replace: bool, populate: bool },
    Unmap { from: u64, pages: u64 },
    Protect { from: u64, pages: u64, rights: u8 },
    Drop { from: u64, pages: u64 },
    Break { pages: u64 },
    Touch { page: u64, access: Access },
    Fork,
    Exit,
    Truncate { pages: u64 },
}

/// A call of some process on some CPU, in which the allocation after `fail` others is refused
/// (INV-MM-COMMIT).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    process: usize,
    cpu: u16,
    call: Call,
    fail: Option<u64>,
}

fn call() -> impl Strategy<Value = Call> {
    let what = prop_oneof![
        4 => Just(What::PrivateAnon),
        1 => Just(What::SharedAnon),
        2 => Just(What::PrivateFile),
        1 => Just(What::SharedFile),
    ];
    let access = prop_oneof![3 => Just(Access::Read), 5 => Just(Access::Write), 1 => Just(Access::Exec)];
    let (from, pages) = (0..PAGES, 1..20u64);
    let rights = prop_oneof![4 => Just(3u8), 1 => 0..8u8];
    prop_oneof![
        6 => (what, from.clone(), pages.clone(), rights.clone(), any::<bool>(), any::<bool>()).prop_map(
            |(what, from, pages, rights, replace, populate)| Call::Map { what, from, pages, rights, replace, populate }
        ),
        3 => (from.clone(), pages.clone()).prop_map(|(from, pages)| Call::Unmap { from, pages }),
        4 => (from.clone(), pages.clone(), rights).prop_map(|(from, pages, rights)| Call::Protect { from, pages, rights }),
        1 => (from, pages).prop_map(|(from, pages)| Call::Drop { from, pages }),
        2 => (0..HEAP_PAGES).prop_map(|pages| Call::Break { pages }),
        24 => (0..PAGES + HEAP_PAGES, access).prop_map(|(page, access)| Call::Touch { page, access }),
        3 => Just(Call::Fork),
        1 => Just(Call::Exit),
        1 => (0..FILE_PAGES).prop_map(|pages| Call::Truncate { pages }),
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let fail = proptest::option::weighted(0.2, 0..12u64);
    (0..PROCESSES, 0..CPUS, call(), fail).prop_map(|(process, cpu, call, fail)| Step { process, cpu, call, fail })
}

/// A file whose pages start with their number plus a thousand.
struct Numbers;

fn number(index: u64) -> u64 {
    index + 1000
}

impl FileOps for Numbers {
    fn is_resident(&self, index: u64) -> bool {
        !index.is_multiple_of(3)
    }

    fn read_page(&self, index: u64, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        put(0, &number(index).to_le_bytes());
        Ok(())
    }
}

/// What a page shows.
#[derive(Clone, Copy, Debug)]
enum Shows {
    /// The process's own page, or what lies below: zeroes, or a page of the file.
    Private { own: Option<u64>, file: Option<u64> },
    /// A page of a shared object; object 0 is the file.
    Shared { object: usize, index: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Page {
    rights: Rights,
    shows: Shows,
}

struct Process<I: Isa> {
    space: Arc<Space<Sim<I>>>,
    pages: BTreeMap<u64, Page>,
    heap: u64,
}

/// A machine, its processes and what they should see.
pub(crate) struct World<I: Isa> {
    lab: Lab<I>,
    before: Vec<u64>,
    file: Arc<FileObject<Sim<I>>>,
    file_pages: u64,
    /// What was stored to shared objects; object 0 is the file.
    objects: Vec<BTreeMap<u64, u64>>,
    processes: Vec<Process<I>>,
    running: [Option<usize>; CPUS as usize],
    stores: u64,
}

fn levels<I: Isa>(lab: &Lab<I>) -> Vec<u64> {
    lab.on(CpuId::new(0), |mm| Gauge::ALL.iter().map(|gauge| mm.gauge(*gauge)).collect())
}

/// Whether a call failed because an allocation was refused.
fn starved(error: MmError) -> bool {
    matches!(error, MmError::NoFrames(_) | MmError::NoKernelMemory { .. })
}

impl<I: Isa> World<I> {
    pub(crate) fn new() -> Self {
        let mut config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
        config.cpus = CPUS;
        let lab = Lab::<I>::new(config, MmSettings::default()).expect("a possible machine");
        let before = levels(&lab);
        let add = |mm: &Mm<Sim<I>>| mm.add_file("/numbers", FileKind::File(Box::new(Numbers)), FILE_PAGES * PAGE_SIZE);
        let file = lab.on(CpuId::new(0), add).expect("memory");
        let objects = vec![BTreeMap::new()];
        let (processes, running) = (Vec::new(), [None; CPUS as usize]);
        let mut world = Self { lab, before, file, file_pages: FILE_PAGES, objects, processes, running, stores: 0 };
        world.start();
        world
    }

    fn start(&mut self) {
        let space = self.lab.on(CpuId::new(0), |mm| {
            let space = mm.new_space().expect("memory for a space");
            mm.set_brk_start(&space, VirtAddr::new(HEAP));
            space
        });
        self.processes.push(Process { space, pages: BTreeMap::new(), heap: 0 });
    }

    pub(crate) fn step(&mut self, step: Step) {
        let (number, cpu) = (step.process % self.processes.len(), CpuId::new(step.cpu));
        if let Some(after) = step.fail {
            self.lab.sim().fail_allocation_after(after, AllocationFailure::One);
        }
        match step.call {
            Call::Map { what, from, pages, rights, replace, populate } => {
                let rights = Rights::from_bits_truncate(rights);
                // How far populating came when memory ran out is not for the caller to know; of
                // a file it makes a difference.
                let populate = populate && (step.fail.is_none() || !matches!(what, What::PrivateFile));
                self.map(number, cpu, what, (from, pages.min(PAGES - from)), rights, (replace, populate));
            }
            Call::Unmap { from, pages } => self.unmap(number, cpu, from, pages.min(PAGES - from)),
            Call::Protect { from, pages, rights } => {
                self.protect(number, cpu, from, pages.min(PAGES - from), Rights::from_bits_truncate(rights));
            }
            Call::Drop { from, pages } => self.drop_pages(number, cpu, from, pages.min(PAGES - from)),
            Call::Break { pages } => self.set_break(number, cpu, pages),
            Call::Touch { page, access } => self.touch(number, cpu, page, access),
            Call::Fork => self.fork(number, cpu),
            Call::Exit => self.exit(number),
            Call::Truncate { pages } => self.truncate(cpu, pages),
        }
        self.lab.sim().permit_allocations();
        self.check();
    }

    fn map(
        &mut self,
        number: usize,
        cpu: CpuId,
        what: What,
        (from, pages): (u64, u64),
        rights: Rights,
        (replace, populate): (bool, bool),
    ) {
        let (flags, file) = match what {
            What::PrivateAnon => (MapFlags::PRIVATE | MapFlags::ANONYMOUS, None),
            What::SharedAnon => (MapFlags::SHARED | MapFlags::ANONYMOUS, None),
            What::PrivateFile => (MapFlags::PRIVATE, Some(from % 7)),
            What::SharedFile => (MapFlags::SHARED, Some(from % 7)),
        };
        let place = if replace { MapFlags::FIXED } else { MapFlags::FIXED_NOREPLACE };
        let flags = flags | place | if populate { MapFlags::POPULATE } else { MapFlags::empty() };
        let mapping = file.map(|first| FileMapping { file: &self.file, offset: first * PAGE_SIZE, opened: Rights::RW });
        let request = MapRequest { addr: address(from), len: pages * PAGE_SIZE, rights, flags, file: mapping };
        let process = &mut self.processes[number];
        let outcome = self.lab.on(cpu, |mm| mm.mmap(&process.space, &request));
        let occupied = process.pages.range(from..from + pages).next().is_some();
        match outcome {
            Err(error) if starved(error) => return,
            Err(MmError::AlreadyMapped { .. }) => return assert!(!replace && occupied),
            other => assert_eq!((other, !replace && occupied), (Ok(address(from)), false)),
        }
        if matches!(what, What::SharedAnon) {
            self.objects.push(BTreeMap::new());
        }
        for page in from..from + pages {
            let index = page - from + file.unwrap_or(0);
            let shows = match what {
                What::PrivateAnon => Shows::Private { own: None, file: None },
                What::PrivateFile => Shows::Private { own: None, file: Some(index) },
                What::SharedAnon => Shows::Shared { object: self.objects.len() - 1, index },
                What::SharedFile => Shows::Shared { object: 0, index },
            };
            process.pages.insert(page, Page { rights, shows });
        }
        if populate && rights.contains(Rights::WRITE) {
            self.copy_populated(number, from..from + pages);
        }
    }

    /// Populating a private mapping that can be written copies its pages at once: later stores to
    /// the file do not show.
    fn copy_populated(&mut self, number: usize, pages: Range<u64>) {
        for page in pages {
            let shows = self.processes[number].pages[&page].shows;
            if let Shows::Private { own: None, file: Some(index) } = shows
                && index < self.file_pages
            {
                let shows = Shows::Private { own: Some(self.shown(shows)), file: Some(index) };
                self.processes[number].pages.entry(page).and_modify(|page| page.shows = shows);
            }
        }
    }

    fn unmap(&mut self, number: usize, cpu: CpuId, from: u64, pages: u64) {
        let process = &mut self.processes[number];
        match self.lab.on(cpu, |mm| mm.munmap(&process.space, address(from), pages * PAGE_SIZE)) {
            Ok(()) => process.pages.retain(|page, _| !(from..from + pages).contains(page)),
            Err(error) => assert!(starved(error), "{error}"),
        }
    }

    /// The pages from `from` up to the first hole.
    fn until_hole(process: &Process<I>, from: u64, pages: u64) -> u64 {
        (from..from + pages).find(|page| !process.pages.contains_key(page)).unwrap_or(from + pages)
    }

    fn protect(&mut self, number: usize, cpu: CpuId, from: u64, pages: u64, rights: Rights) {
        let process = &mut self.processes[number];
        let end = Self::until_hole(process, from, pages);
        let expected = if end < from + pages { Err(MmError::NotMapped { at: address(end) }) } else { Ok(()) };
        let outcome = self.lab.on(cpu, |mm| mm.mprotect(&process.space, address(from), pages * PAGE_SIZE, rights));
        if outcome.is_err_and(starved) {
            return;
        }
        assert_eq!(outcome, expected);
        process.pages.range_mut(from..end).for_each(|(_, page)| page.rights = rights);
    }

    fn drop_pages(&mut self, number: usize, cpu: CpuId, from: u64, pages: u64) {
        let process = &mut self.processes[number];
        let end = Self::until_hole(process, from, pages);
        let expected = if end < from + pages { Err(MmError::NotMapped { at: address(end) }) } else { Ok(()) };
        let outcome =
            self.lab.on(cpu, |mm| mm.madvise(&process.space, address(from), pages * PAGE_SIZE, Advice::DontNeed));
        assert_eq!(outcome, expected);
        for (_, page) in process.pages.range_mut(from..from + pages) {
            if let Shows::Private { own, .. } = &mut page.shows {
                *own = None;
            }
        }
    }

    fn set_break(&mut self, number: usize, cpu: CpuId, pages: u64) {
        let process = &mut self.processes[number];
        let at = |pages: u64| VirtAddr::new(HEAP + pages * PAGE_SIZE);
        let reached = self.lab.on(cpu, |mm| mm.brk(&process.space, at(pages)));
        if reached != at(pages) {
            // It stays where it was, and says so.
            assert!(reached == at(process.heap) && self.lab.sim().refused_allocations() > 0);
            return;
        }
        let fresh = Page { rights: Rights::RW, shows: Shows::Private { own: None, file: None } };
        process.pages.extend((process.heap..pages).map(|page| (PAGES + page, fresh)));
        process.pages.retain(|page, _| *page < PAGES + pages);
        process.heap = pages;
    }

    /// What a load of a page gives.
    fn shown(&self, shows: Shows) -> u64 {
        let (object, index) = match shows {
            Shows::Private { own: Some(own), .. } => return own,
            Shows::Private { own: None, file: None } => return 0,
            Shows::Private { own: None, file: Some(index) } => (0, index),
            Shows::Shared { object, index } => (object, index),
        };
        let untouched = if object == 0 { number(index) } else { 0 };
        self.objects[object].get(&index).copied().unwrap_or(untouched)
    }

    /// What an access to a page comes to, if memory suffices.
    fn expected(&self, number: usize, at: u64, access: Access) -> Result<u64, FaultError> {
        let va = address(at);
        let Some(page) = self.processes[number].pages.get(&at) else {
            return Err(FaultError::NotMapped { va, access });
        };
        let allowed = if access == Access::Read { !page.rights.is_empty() } else { page.rights.allow(access) };
        if !allowed {
            return Err(FaultError::NotAllowed { va, access, rights: page.rights });
        }
        let past = |index: u64| index >= self.file_pages;
        match page.shows {
            Shows::Private { own: None, file: Some(index) } | Shows::Shared { object: 0, index } if past(index) => {
                Err(FaultError::PastEnd { va })
            }
            shows => Ok(self.shown(shows)),
        }
    }

    fn touch(&mut self, number: usize, cpu: CpuId, at: u64, access: Access) {
        let space = self.processes[number].space.clone();
        self.lab.run(cpu, &space);
        self.running[cpu.index()] = Some(number);
        let expected = self.expected(number, at, access);
        let outcome = self.lab.touch(cpu, &space, address(at), access, 1);
        if let Err(FaultError::OutOfMemory(error)) = outcome {
            assert!(starved(error) && self.lab.sim().refused_allocations() > 0);
            return;
        }
        assert_eq!(outcome, expected.map(drop), "{access} of page {at}");
        let Ok(value) = expected else { return };
        let pfn = self.lab.sim().access(cpu, address(at), access, 1).expect("just touched").pfn;
        let word = &self.lab.sim().ram()[pfn.base().raw() as usize / 8];
        assert_eq!(word.load(Ordering::Relaxed), value, "page {at} at {pfn:?}");
        if access == Access::Write {
            self.stores += 1;
            let value = self.stores << 32;
            word.store(value, Ordering::Relaxed);
            let page = self.processes[number].pages.get_mut(&at).expect("it was expected to be mapped");
            match &mut page.shows {
                Shows::Private { own, .. } => *own = Some(value),
                Shows::Shared { object, index } => self.objects[*object].extend([(*index, value)]),
            }
        }
    }

    fn fork(&mut self, number: usize, cpu: CpuId) {
        if self.processes.len() == PROCESSES {
            return;
        }
        let parent = &self.processes[number];
        match self.lab.on(cpu, |mm| mm.fork(&parent.space)) {
            Ok(space) => {
                let child = Process { space, pages: parent.pages.clone(), heap: parent.heap };
                self.processes.push(child);
            }
            Err(error) => assert!(starved(error), "{error}"),
        }
    }

    fn exit(&mut self, number: usize) {
        let process = self.processes.remove(number);
        for (cpu, running) in self.running.iter_mut().enumerate() {
            match running {
                Some(other) if *other == number => {
                    self.lab.on(CpuId::new(cpu as u16), |mm| mm.tlb().leave_space());
                    *running = None;
                }
                Some(other) if *other > number => *other -= 1,
                Some(_) | None => {}
            }
        }
        self.lab.on(CpuId::new(0), |mm| mm.end_space(&process.space));
        if self.processes.is_empty() {
            self.lab.sim().permit_allocations();
            self.start();
        }
    }

    fn truncate(&mut self, cpu: CpuId, pages: u64) {
        self.lab.on(cpu, |mm| mm.truncate(&self.file, pages * PAGE_SIZE)).expect("not sealed");
        self.file_pages = pages;
        self.objects[0].retain(|index, _| *index < pages);
        for page in self.processes.iter_mut().flat_map(|process| process.pages.values_mut()) {
            if let Shows::Private { own, file: Some(index) } = &mut page.shows
                && *index >= pages
            {
                *own = None;
            }
        }
    }

    /// Counts everything again, and tries what running CPUs could do without a fault.
    fn check(&self) {
        let spaces: Vec<_> = self.processes.iter().map(|process| process.space.clone()).collect();
        self.lab.on(CpuId::new(0), |mm| recount::check(mm, &spaces));
        spaces.iter().for_each(|space| recount::check_merged(space));
        for (cpu, running) in self.running.iter().enumerate() {
            let Some(number) = *running else { continue };
            for page in 0..PAGES + HEAP_PAGES {
                for access in [Access::Read, Access::Write, Access::Exec] {
                    // INV-MM-UNMAPPED, INV-MM-REDUCED, INV-FORK-FLUSHED: the machine uses whatever
                    // its TLB has.
                    let Ok(at) = self.lab.sim().access(CpuId::new(cpu as u16), address(page), access, 1) else {
                        continue;
                    };
                    let space = &self.processes[number].space;
                    let leaf = self.lab.on(CpuId::new(0), |mm| recount::leaf(mm, space, address(page)));
                    let leaf = leaf.expect("the TLB has what the tables have not");
                    assert!(
                        leaf.pfn == at.pfn && leaf.rights.allow(access),
                        "page {page}: {leaf:?}, and {access} works"
                    );
                    assert!(self.expected(number, page, access).is_ok(), "{access} of page {page} should fault");
                }
            }
        }
    }

    /// Looks at every page of every process, ends them all, and asserts that nothing is left.
    pub(crate) fn end(mut self) {
        for number in 0..self.processes.len() {
            (0..PAGES + HEAP_PAGES).for_each(|page| self.touch(number, CpuId::new(0), page, Access::Read));
        }
        while self.processes.len() > 1 {
            self.exit(0);
        }
        self.check();
        (0..CPUS).for_each(|cpu| self.lab.on(CpuId::new(cpu), |mm| mm.tlb().leave_space()));
        self.lab.on(CpuId::new(0), |mm| {
            mm.end_space(&self.processes[0].space);
            mm.forget_file(&self.file);
        });
        assert_eq!(levels(&self.lab), self.before, "something is left over");
    }
}
