//! The faults of a task by operation, as Linux counts them (`ru_minflt`, and `pgfault` beside it).
//!
//! The figures are those of Linux 6.18 on x86-64 for the same operations on 64 fresh pages.

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, GupCall, TestProcess, TestWorld, at};
use pagewright_mm::fault::FaultCounts;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::LockFlags;
use pagewright_mm::user::{FutexAccess, FutexScope, IoVec};
use pagewright_mm::{Advice, MapFlags};
use pagewright_types::{Access, Counter, PAGE_SIZE, Rights, VirtAddr};

on_both! { a_task_has_the_faults_that_linux_counts }

const PAGES: u64 = 64;
const LEN: u64 = PAGES * PAGE_SIZE;
/// Aligned to the window of fault-around.
const FILE_AT: VirtAddr = VirtAddr::new(1 << 30);

/// What an operation acts on: a process with fresh memory, and another one with as much.
struct Tasks<I: Isa> {
    own: TestProcess<I>,
    memory: VirtAddr,
    other: TestProcess<I>,
    others: VirtAddr,
}

impl<I: Isa> Tasks<I> {
    fn new() -> Self {
        let world = TestWorld::new(2);
        let (own, other) = (TestProcess::new(&world), TestProcess::new(&world));
        let [memory, others] = [own.anon(PAGES), other.anon(PAGES)];
        Self { own, memory, other, others }
    }

    /// The same, whose memory cannot be accessed so.
    fn with_rights(rights: Rights) -> Self {
        let tasks = Self::new();
        tasks.own.protect(tasks.memory, PAGES, rights);
        tasks
    }

    fn filled() -> Self {
        let tasks = Self::new();
        (0..PAGES).for_each(|page| tasks.own.write(CPU, at(tasks.memory, page), 1));
        tasks
    }

    /// Minor faults of the task and `pgfault` of what `act` does.
    fn faults<T>(&self, act: impl FnOnce(&Self) -> T) -> (u64, u64) {
        let task = || self.own.world.on(CPU, |mm| mm.faults_of_this_cpu());
        let (before, counted) = (task(), self.own.world.count(Counter::PgFault));
        drop(act(self));
        let FaultCounts { minor, major } = task();
        assert_eq!(major, before.major, "no operation waits for a device");
        (minor - before.minor, self.own.world.count(Counter::PgFault) - counted)
    }

    fn copy_to_memory(&self) -> usize {
        self.own.world.on(CPU, |mm| mm.copy_to_user(&self.own.space, self.memory, &[1; LEN as usize]))
    }

    fn advise(&self, advice: Advice) {
        self.own.advise(self.memory, PAGES, advice);
    }

    fn lock(&self, flags: LockFlags) {
        self.own.world.on(CPU, |mm| mm.mlock2(&self.own.space, self.memory, LEN, flags)).expect("within the limit");
    }

    fn touch(&self, access: Access) {
        (0..PAGES).for_each(|page| self.own.touch(CPU, at(self.memory, page), access).expect("mapped"));
    }

    fn futex_keys(&self, scope: FutexScope) {
        for page in 0..PAGES {
            let key = |mm: &pagewright_mm::Mm<_>| {
                mm.futex_key(&self.own.space, at(self.memory, page), scope, FutexAccess::Write)
            };
            self.own.world.on(CPU, key).expect("mapped");
        }
    }

    /// `process_vm_writev` of a page of the task that is there to each fresh page of the other.
    fn write_to_other(&self) {
        let from: Vec<_> = (0..PAGES).map(|_| IoVec { base: self.memory, len: PAGE_SIZE }).collect();
        let to = [IoVec { base: self.others, len: LEN }];
        let call =
            |mm: &pagewright_mm::Mm<_>| mm.process_vm_writev((&self.own.space, &from), (&self.other.space, &to), 0);
        assert_eq!(self.own.world.on(CPU, call), Ok(LEN));
    }

    /// A private mapping of a cached file, populated at once.
    fn populate_file(&self, rights: Rights) {
        let file = self.own.world.file(PAGES);
        for page in 0..PAGES {
            self.own.world.on(CPU, |mm| mm.read_at(&file, page * PAGE_SIZE, &mut [0; 8])).expect("a good device");
        }
        self.own.map_over(FILE_AT, &file, rights, MapFlags::PRIVATE | MapFlags::POPULATE);
    }

    /// A mapping that the file no longer reaches.
    fn beyond_the_end(&self) {
        let file = self.own.world.file(1);
        let past = at(self.own.map(2, Rights::RW, MapFlags::SHARED, Some(&file)), 1);
        assert_eq!(self.own.world.on(CPU, |mm| mm.copy_to_user(&self.own.space, past, &[1; 8])), 8);
    }

    fn take(&self, call: GupCall) {
        self.own.take(CPU, self.memory, PAGES, call).expect("mapped").release(MakeDirty::Yes);
    }
}

/// An operation, its scene, its act, and the minor faults and `pgfault` that Linux counts.
type Row<I> = (&'static str, fn() -> Tasks<I>, fn(&Tasks<I>), (u64, u64));

const EACH: (u64, u64) = (PAGES, PAGES);
const NONE: (u64, u64) = (0, 0);

fn of_calls<I: Isa>() -> Vec<Row<I>> {
    fn write_locked_on_fault<I: Isa>(tasks: &Tasks<I>) {
        tasks.lock(LockFlags::ONFAULT);
        tasks.touch(Access::Write);
    }
    let new = Tasks::new;
    let populate = |tasks: &Tasks<I>| {
        tasks.own.map(PAGES, Rights::RW, ANON | MapFlags::POPULATE, None);
    };
    let populate_to_read = |tasks: &Tasks<I>| {
        tasks.own.map(PAGES, Rights::READ, ANON | MapFlags::POPULATE, None);
    };
    vec![
        ("MAP_POPULATE", new, populate, EACH),
        ("MAP_POPULATE, read-only", new, populate_to_read, EACH),
        ("MAP_POPULATE of a file", new, |tasks| tasks.populate_file(Rights::READ), (4, 4)),
        ("MAP_POPULATE of a file to be written", new, |tasks| tasks.populate_file(Rights::RW), EACH),
        ("mlock", new, |tasks| tasks.lock(LockFlags::empty()), EACH),
        ("mlock of pages that are there", Tasks::filled, |tasks| tasks.lock(LockFlags::empty()), NONE),
        ("MLOCK_ONFAULT", new, |tasks| tasks.lock(LockFlags::ONFAULT), NONE),
        ("MLOCK_ONFAULT and stores", new, write_locked_on_fault, EACH),
        ("MADV_POPULATE_READ", new, |tasks| tasks.advise(Advice::PopulateRead), EACH),
        ("MADV_POPULATE_WRITE", new, |tasks| tasks.advise(Advice::PopulateWrite), EACH),
        ("MADV_POPULATE_WRITE again", Tasks::filled, |tasks| tasks.advise(Advice::PopulateWrite), NONE),
    ]
}

fn of_user_memory<I: Isa>() -> Vec<Row<I>> {
    let (new, filled) = (Tasks::new, Tasks::filled);
    let from_memory = |tasks: &Tasks<I>| {
        let copy =
            |mm: &pagewright_mm::Mm<_>| mm.copy_from_user(&tasks.own.space, tasks.memory, &mut [0; LEN as usize]);
        assert_eq!(tasks.own.world.on(CPU, copy), 0);
    };
    let debug = |tasks: &Tasks<I>| {
        let write = |mm: &pagewright_mm::Mm<_>| mm.write_remote(&tasks.other.space, tasks.others, &[1; LEN as usize]);
        assert_eq!(tasks.own.world.on(CPU, write), LEN as usize);
    };
    let refused = |tasks: &Tasks<I>| assert_eq!(tasks.copy_to_memory(), LEN as usize);
    let unmapped = || {
        let tasks = Tasks::new();
        tasks.own.unmap(tasks.memory, PAGES);
        tasks
    };
    vec![
        ("stores", new, |tasks| tasks.touch(Access::Write), EACH),
        ("loads", new, |tasks| tasks.touch(Access::Read), EACH),
        ("read", new, |tasks| assert_eq!(tasks.copy_to_memory(), 0), EACH),
        ("write", new, from_memory, EACH),
        ("a direct read", new, |tasks| tasks.take(GupCall::PinFast(GupFlags::WRITE)), EACH),
        ("FUTEX_WAKE, private", new, |tasks| tasks.futex_keys(FutexScope::Private), NONE),
        ("FUTEX_WAKE", new, |tasks| tasks.futex_keys(FutexScope::Shared), EACH),
        ("process_vm_writev", filled, Tasks::write_to_other, EACH),
        ("a write to /proc/PID/mem", new, debug, EACH),
        ("read into unmapped memory", unmapped, refused, NONE),
        ("read into read-only memory", || Tasks::with_rights(Rights::READ), refused, NONE),
        ("read into memory without rights", || Tasks::with_rights(Rights::empty()), refused, NONE),
        ("read into a mapping beyond the end of its file", new, Tasks::beyond_the_end, (0, 1)),
    ]
}

fn a_task_has_the_faults_that_linux_counts<I: Isa>() {
    for (name, scene, act, expected) in of_calls::<I>().into_iter().chain(of_user_memory()) {
        assert_eq!(scene().faults(act), expected, "{name}: minor faults, pgfault");
    }
}
