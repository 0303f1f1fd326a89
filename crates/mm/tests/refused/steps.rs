//! Every call that can allocate, and how those that fail half-way do so on Linux, too.

use super::scene::{
    FILE_PRIVATE, FILE_SHARED, FIXED, FREE, GUARDED, HEAP, LOCKED, MEMFD, MOVED, OWN, READ_ONLY, SHARED, STACK, Scene,
    page,
};
use pagewright_arch::Isa;
use pagewright_lab::harness::{ANON, CPU, GupCall};
use pagewright_mm::file::{FallocateFlags, MemfdFlags, Seals};
use pagewright_mm::gup::GupFlags;
use pagewright_mm::space::{AdviceTarget, ClearRefs, SyncFlags};
use pagewright_mm::swap::{SwapBacking, Zram};
use pagewright_mm::user::{FutexAccess, FutexScope, IoVec};
use pagewright_mm::{Advice, LockAllFlags, LockFlags, MapFlags, Mm, MmError, MmSetting, RemapFlags};
use pagewright_types::{Access, Errno, PAGE_SIZE, Rights};

pub(crate) struct Step<I: Isa> {
    pub(crate) name: &'static str,
    /// What comes before, while nothing fails.
    pub(crate) prepare: fn(&Scene<I>),
    pub(crate) call: fn(&Scene<I>) -> Result<(), Errno>,
    pub(crate) errnos: &'static [Errno],
    /// Whether a failed call leaves what it has done so far, as on Linux.
    ///
    /// If not, it has changed nothing.
    pub(crate) part: bool,
    /// It may not fail: what it could not have is had when it is touched.
    pub(crate) later: bool,
    /// What it had done when it failed can't be done again.
    pub(crate) once: bool,
    /// Whether it asks for memory at all.
    pub(crate) allocates: bool,
    /// Whether it asks for memory if it edits tables that fork shares, and only then.
    pub(crate) breaks: bool,
    /// As `part`, if other processes have all pages of the process, too.
    pub(crate) part_of_shared: bool,
}

impl<I: Isa> Step<I> {
    fn new(name: &'static str, call: fn(&Scene<I>) -> Result<(), Errno>) -> Self {
        Self {
            name,
            prepare: |_| (),
            call,
            errnos: &[Errno::ENOMEM],
            part: false,
            later: false,
            once: false,
            allocates: true,
            breaks: false,
            part_of_shared: false,
        }
    }

    fn after(self, prepare: fn(&Scene<I>)) -> Self {
        Self { prepare, ..self }
    }

    fn part(self) -> Self {
        Self { part: true, ..self }
    }

    fn part_of_shared(self) -> Self {
        Self { part_of_shared: true, ..self }
    }

    fn later(self) -> Self {
        Self { later: true, ..self }
    }

    fn once(self) -> Self {
        Self { once: true, ..self }
    }

    fn fails_with(self, errnos: &'static [Errno]) -> Self {
        Self { errnos, ..self }
    }

    fn needs_nothing(self) -> Self {
        Self { allocates: false, ..self }
    }

    fn needs_nothing_unless_shared(self) -> Self {
        Self { breaks: true, ..self.needs_nothing() }
    }
}

/// An error for lack of memory, unless all that was wanted is done.
fn all_of<T: PartialEq>(done: T, wanted: T) -> Result<(), Errno> {
    if done == wanted { Ok(()) } else { Err(Errno::ENOMEM) }
}

pub(crate) fn all<I: Isa>() -> Vec<Step<I>> {
    let lists = [
        maps(),
        changes(),
        moves(),
        advice(),
        locks(),
        files(),
        pages(),
        users(),
        faults(),
        stores_after_fork(),
        swap(),
        free_where_nothing_is_shared(),
        free_of_charge(),
    ];
    lists.into_iter().flatten().collect()
}

const PRIVATE_FILE: MapFlags = MapFlags::PRIVATE.union(MapFlags::FIXED);
const SHARED_FILE: MapFlags = MapFlags::SHARED.union(MapFlags::FIXED);
const SHARED_ANON: MapFlags = SHARED_FILE.union(MapFlags::ANONYMOUS);

fn maps<I: Isa>() -> Vec<Step<I>> {
    vec![
        Step::new("mmap, anywhere", |s| s.map((page(0, 0), 3, Rights::RW, ANON, None))),
        Step::new("mmap, private", |s| s.map((page(FREE, 0), 3, Rights::RW, FIXED, None))),
        Step::new("mmap, over the middle of another", |s| s.map((page(OWN, 6), 4, Rights::READ, FIXED, None))),
        Step::new("mmap, if free", |s| s.map((page(FREE, 0), 1, Rights::RW, ANON | MapFlags::FIXED_NOREPLACE, None))),
        Step::new("mmap, shared", |s| s.map((page(OWN, 6), 4, Rights::RW, SHARED_ANON, None))),
        Step::new("mmap, shared and populated", |s| {
            s.map((page(FREE, 510), 4, Rights::RW, SHARED_ANON | MapFlags::POPULATE, None))
        })
        .later(),
        Step::new("mmap, a file, private", |s| s.map((page(OWN, 6), 4, Rights::RW, PRIVATE_FILE, Some(&s.file)))),
        Step::new("mmap, a file, private and populated", |s| {
            s.map((page(FREE, 510), 4, Rights::RW, PRIVATE_FILE | MapFlags::POPULATE, Some(&s.file)))
        })
        .later(),
        Step::new("mmap, a memfd", |s| s.map((page(FILE_PRIVATE, 2), 4, Rights::RW, SHARED_FILE, Some(&s.memfd)))),
        Step::new("mmap, the first of a file", |s| {
            s.map((page(FREE, 0), 1, Rights::RW, SHARED_FILE, Some(&s.unmapped)))
        }),
        Step::new("mmap, populated", |s| s.map((page(FREE, 510), 4, Rights::RW, FIXED | MapFlags::POPULATE, None)))
            .later(),
        Step::new("mmap, locked", |s| s.map((page(FREE, 510), 4, Rights::RW, FIXED | MapFlags::LOCKED, None))).later(),
        Step::new("mmap, a stack", |s| s.map((page(FREE, 0), 4, Rights::RW, FIXED | MapFlags::GROWSDOWN, None))),
        Step::new("a space", |s| s.ask(|mm| mm.new_space())),
        Step::new("fork", |s| s.ask(|mm| mm.fork(&s.process.space))),
        Step::new("fork, by a child", |s| s.ask(|mm| mm.fork(&s.child.space))),
    ]
}

fn changes<I: Isa>() -> Vec<Step<I>> {
    vec![
        Step::new("munmap, a middle", |s| s.ask(|mm| mm.munmap(&s.process.space, page(OWN, 6), 4 * PAGE_SIZE))),
        Step::new("munmap, several", |s| {
            s.ask(|mm| mm.munmap(&s.process.space, page(FILE_PRIVATE, 4), 30 * PAGE_SIZE))
        }),
        Step::new("munmap, the end of a mapping", |s| {
            s.ask(|mm| mm.munmap(&s.process.space, page(GUARDED, 2), 2 * PAGE_SIZE))
        }),
        Step::new("mprotect, a middle", |s| {
            s.ask(|mm| mm.mprotect(&s.process.space, page(OWN, 6), 4 * PAGE_SIZE, Rights::READ))
        }),
        Step::new("mprotect, a file", |s| {
            s.ask(|mm| mm.mprotect(&s.process.space, page(FILE_SHARED, 1), 4 * PAGE_SIZE, Rights::READ))
        }),
        Step::new("mprotect, locked pages become writable", |s| {
            s.ask(|mm| mm.mprotect(&s.process.space, page(LOCKED, 1), 2 * PAGE_SIZE, Rights::RW))
        })
        .after(|s| {
            s.map((page(LOCKED, 0), 4, Rights::READ, FIXED | MapFlags::LOCKED, None)).expect("nothing fails yet");
        })
        .later(),
        Step::new("mseal, a middle", |s| s.ask(|mm| mm.mseal(&s.process.space, page(OWN, 6), 4 * PAGE_SIZE, 0))),
        Step::new("brk, up", |s| s.on(|mm| all_of(mm.brk(&s.process.space, page(HEAP, 9)), page(HEAP, 9)))),
        Step::new("brk, up, locked", |s| s.on(|mm| all_of(mm.brk(&s.process.space, page(HEAP, 6)), page(HEAP, 6))))
            .after(|s| s.ask(|mm| mm.mlockall(&s.process.space, LockAllFlags::FUTURE)).expect("needs no memory"))
            .later(),
        Step::new("brk, down", |s| s.on(|mm| all_of(mm.brk(&s.process.space, page(HEAP, 1)), page(HEAP, 1)))),
    ]
}

const GO: RemapFlags = RemapFlags::MAYMOVE;
const GO_THERE: RemapFlags = GO.union(RemapFlags::FIXED);

fn moves<I: Isa>() -> Vec<Step<I>> {
    vec![
        Step::new("mremap, smaller", |s| s.remap((page(OWN, 2), 4), 2, RemapFlags::empty(), 0)),
        Step::new("mremap, larger where it is", |s| s.remap((page(GUARDED, 0), 4), 8, RemapFlags::empty(), 0))
            .needs_nothing_unless_shared(),
        Step::new("mremap, larger where it is, locked", |s| s.remap((page(LOCKED, 0), 4), 8, RemapFlags::empty(), 0))
            .later(),
        Step::new("mremap, a middle, larger elsewhere", |s| s.remap((page(OWN, 6), 4), 8, GO, 0)),
        Step::new("mremap, locked, larger elsewhere", |s| s.remap((page(LOCKED, 1), 2), 4, GO, 0)).later(),
        Step::new("mremap, to a free place", |s| s.remap((page(OWN, 0), 16), 16, GO_THERE, FREE + 510 * PAGE_SIZE)),
        Step::new("mremap, over another mapping", |s| s.remap((page(OWN, 6), 4), 4, GO_THERE, SHARED)),
        Step::new("mremap, and the place stays", |s| {
            s.remap((page(OWN, 6), 4), 4, GO_THERE | RemapFlags::DONTUNMAP, FREE)
        }),
        Step::new("mremap, what was moved before", |s| s.remap((page(MOVED, 1), 2), 2, GO_THERE, FREE)),
        Step::new("mremap, shared, a second time", |s| s.remap((page(SHARED, 1), 0), 4, GO_THERE, FREE)),
        Step::new("mremap, a file", |s| s.remap((page(FILE_PRIVATE, 1), 3), 5, GO, 0)),
        Step::new("mremap, several", |s| s.remap((page(FILE_PRIVATE, 0), 48), 48, GO_THERE, FREE + 500 * PAGE_SIZE))
            .part()
            .once(),
    ]
}

fn advice<I: Isa>() -> Vec<Step<I>> {
    let flag = |name, call| Step::new(name, call).fails_with(&[Errno::EAGAIN]);
    vec![
        flag("madvise, RANDOM", |s: &Scene<I>| s.advise(page(OWN, 6), 4, Advice::Random)),
        flag("madvise, SEQUENTIAL", |s| s.advise(page(FILE_SHARED, 2), 4, Advice::Sequential)),
        flag("madvise, DONTFORK", |s| s.advise(page(OWN, 6), 4, Advice::DontFork)),
        flag("madvise, DONTDUMP", |s| s.advise(page(OWN, 6), 4, Advice::DontDump)),
        flag("madvise, WIPEONFORK", |s| s.advise(page(OWN, 6), 4, Advice::WipeOnFork)),
        flag("madvise, several mappings", |s| s.advise(page(FILE_PRIVATE, 4), 8, Advice::Random)).after(|s| {
            s.map((page(FILE_PRIVATE, 8), 8, Rights::RW, FIXED, None)).expect("nothing fails yet");
        }),
        Step::new("madvise, POPULATE_READ", |s| s.advise(page(FILE_SHARED, 0), 8, Advice::PopulateRead)).part().later(),
        Step::new("madvise, POPULATE_READ of a file with no page yet", |s| {
            s.advise(page(FREE, 510), 4, Advice::PopulateRead)
        })
        .after(|s| {
            s.map((page(FREE, 510), 4, Rights::READ, SHARED_FILE, Some(&s.unmapped))).expect("nothing fails yet");
        })
        .part()
        .later(),
        Step::new("madvise, POPULATE_WRITE", |s| s.advise(page(OWN, 0), 16, Advice::PopulateWrite)).part(),
        Step::new("madvise, POPULATE_WRITE of copies", |s| s.advise(page(FILE_PRIVATE, 0), 8, Advice::PopulateWrite))
            .part(),
        Step::new("madvise, GUARD_INSTALL", |s| s.advise(page(FREE, 0), 1024, Advice::GuardInstall))
            .after(|s| {
                s.map((page(FREE, 0), 1024, Rights::RW, FIXED, None)).expect("nothing fails yet");
            })
            .part(),
        Step::new("madvise, WILLNEED", |s| s.advise(page(FILE_SHARED, 0), 8, Advice::WillNeed)).later(),
        Step::new("process_madvise", |s| {
            let ranges = [(page(OWN, 2), 2 * PAGE_SIZE), (page(OWN, 10), 2 * PAGE_SIZE)];
            let advised =
                |mm: &Mm<_>| mm.process_madvise(&s.process.space, AdviceTarget::Own, &ranges, Advice::PopulateWrite);
            all_of(s.on(advised).map_err(MmError::errno)?, 4 * PAGE_SIZE)
        })
        .part(),
    ]
}

fn locks<I: Isa>() -> Vec<Step<I>> {
    fn lock<I: Isa>(s: &Scene<I>, first: u64, pages: u64, flags: LockFlags) -> Result<(), Errno> {
        s.ask(|mm| mm.mlock2(&s.process.space, page(OWN, first), pages * PAGE_SIZE, flags))
    }
    vec![
        Step::new("mlock2, as they are touched", |s| lock(s, 6, 4, LockFlags::ONFAULT)),
        Step::new("mlock, a mapping", |s| lock(s, 0, 16, LockFlags::empty()))
            .fails_with(&[Errno::ENOMEM, Errno::EAGAIN])
            .part(),
        Step::new("munlock, a middle", |s| s.ask(|mm| mm.munlock(&s.process.space, page(LOCKED, 1), 2 * PAGE_SIZE))),
        Step::new("mlockall", |s| s.ask(|mm| mm.mlockall(&s.process.space, LockAllFlags::CURRENT))).later(),
    ]
}

fn files<I: Isa>() -> Vec<Step<I>> {
    vec![
        Step::new("memfd_create", |s| {
            s.ask(|mm| mm.memfd_create("step", MemfdFlags::ALLOW_SEALING).map(|file| mm.close_file(&file)))
        }),
        Step::new("fallocate", |s| s.fallocate(FallocateFlags::empty(), 2, 12)).part(),
        Step::new("fallocate, past the end", |s| s.fallocate(FallocateFlags::KEEP_SIZE, 20, 20)),
        Step::new("write, shared memory", |s| {
            let bytes = [7; 3 * PAGE_SIZE as usize];
            all_of(s.on(|mm| mm.write_at(&s.memfd, 3 * PAGE_SIZE + 5, &bytes)), Ok(bytes.len()))
        })
        .part(),
        Step::new("write, a file", |s| {
            let bytes = [7; 3 * PAGE_SIZE as usize];
            all_of(s.on(|mm| mm.write_at(&s.file, 3 * PAGE_SIZE + 5, &bytes)), Ok(bytes.len()))
        })
        .part(),
        Step::new("read, a file", |s| {
            let mut bytes = [0; 3 * PAGE_SIZE as usize];
            all_of(s.on(|mm| mm.read_at(&s.unmapped, 0, &mut bytes)), Ok(bytes.len()))
        })
        .part(),
    ]
}

const NONE: GupFlags = GupFlags::empty();
const LONG: GupFlags = GupFlags::LONGTERM;

fn pages<I: Isa>() -> Vec<Step<I>> {
    vec![
        Step::new("get_user_pages", |s| s.take(page(OWN, 2), 3, GupCall::Get(GupFlags::WRITE))).part(),
        Step::new("get_user_pages, fast", |s| s.take(page(FREE, 510), 4, GupCall::GetFast(GupFlags::WRITE)))
            .after(free_pages)
            .part(),
        Step::new("pin_user_pages, after a fork", |s| s.take(page(OWN, 7), 2, GupCall::Pin(GupFlags::WRITE))).part(),
        Step::new("pin_user_pages, unshared to be read", |s| s.take(page(READ_ONLY, 0), 2, GupCall::Pin(NONE))).part(),
        Step::new("pin_user_pages, fast", |s| s.take(page(READ_ONLY, 0), 2, GupCall::PinFast(NONE))).part(),
        Step::new("pin_user_pages, a file for long", |s| s.take(page(FILE_PRIVATE, 0), 4, GupCall::Pin(LONG)))
            .part()
            .later(),
        Step::new("pin_user_pages, zeroes for long", |s| s.take(page(OWN, 13), 2, GupCall::Pin(LONG))).part(),
        Step::new("pin_user_pages, shared memory", |s| s.take(page(MEMFD, 0), 4, GupCall::Pin(GupFlags::WRITE | LONG)))
            .part(),
    ]
}

fn users<I: Isa>() -> Vec<Step<I>> {
    vec![
        Step::new("copy_from_user", |s| {
            let mut bytes = [0; 3 * PAGE_SIZE as usize];
            all_of(s.on(|mm| mm.copy_from_user(&s.process.space, page(FREE, 510), &mut bytes)), 0)
        })
        .after(free_pages)
        .part(),
        Step::new("copy_to_user", |s| {
            all_of(s.on(|mm| mm.copy_to_user(&s.process.space, page(OWN, 7), &[9; 3 * PAGE_SIZE as usize])), 0)
        })
        .part(),
        Step::new("clear_user", |s| {
            all_of(s.on(|mm| mm.clear_user(&s.process.space, page(OWN, 7), 3 * PAGE_SIZE as usize)), 0)
        })
        .part(),
        Step::new("strncpy_from_user", |s| {
            let mut bytes = [0; 8];
            s.ask(|mm| mm.strncpy_from_user(&s.process.space, page(FREE, 510), &mut bytes))
        })
        .fails_with(&[Errno::EFAULT])
        .after(free_pages),
        Step::new("get_user", |s| s.ask(|mm| mm.get_user::<u64>(&s.process.space, page(FREE, 510))))
            .fails_with(&[Errno::EFAULT])
            .after(free_pages),
        Step::new("put_user", |s| s.ask(|mm| mm.put_user(&s.process.space, page(OWN, 8), 5u64)))
            .fails_with(&[Errno::EFAULT]),
        Step::new("process_vm_readv", |s| vm(s, Way::Read)).fails_with(&[Errno::EFAULT]).part(),
        Step::new("process_vm_writev", |s| vm(s, Way::Write)).fails_with(&[Errno::EFAULT]).part(),
        Step::new("futex, anonymous", |s| futex(s, FREE + 510 * PAGE_SIZE)).after(free_pages),
        Step::new("futex, a file mapped privately", |s| futex(s, FILE_PRIVATE + 4 * PAGE_SIZE)),
        Step::new("futex, shared memory", |s| futex(s, MEMFD + 6 * PAGE_SIZE)),
    ]
}

/// Four pages without an access so far, across the border of two tables that do not exist.
fn free_pages<I: Isa>(s: &Scene<I>) {
    s.map((page(FREE, 510), 4, Rights::RW, FIXED, None)).expect("nothing fails yet");
}

enum Way {
    Read,
    Write,
}

/// Three pages between the child and the process.
fn vm<I: Isa>(s: &Scene<I>, way: Way) -> Result<(), Errno> {
    let len = 3 * PAGE_SIZE;
    let (here, there) = ([IoVec { base: page(OWN, 2), len }], [IoVec { base: page(OWN, 7), len }]);
    let (ours, theirs) = ((&*s.process.space, &here[..]), (&*s.child.space, &there[..]));
    let moved = s.on(|mm| match way {
        Way::Read => mm.process_vm_readv(ours, theirs, 0),
        Way::Write => mm.process_vm_writev(ours, theirs, 0),
    });
    let moved = moved.map_err(|error| error.errno())?;
    if moved == len { Ok(()) } else { Err(Errno::EFAULT) }
}

fn futex<I: Isa>(s: &Scene<I>, at: u64) -> Result<(), Errno> {
    s.ask(|mm| mm.futex_key(&s.process.space, page(at, 0), FutexScope::Shared, FutexAccess::Write))
}

fn faults<I: Isa>() -> Vec<Step<I>> {
    vec![
        Step::new("fault, a load of nothing", |s| s.fault(page(FREE, 510), Access::Read)).after(free_pages),
        Step::new("fault, a store to nothing", |s| s.fault(page(FREE, 510), Access::Write)).after(free_pages),
        Step::new("fault, a store to zeroes", |s| s.fault(page(OWN, 13), Access::Write)),
        Step::new("fault, a load of a file", |s| s.fault(page(FREE, 510), Access::Read))
            .after(|s| {
                let mapped = (page(FREE, 510), 2, Rights::RW, SHARED_FILE, Some(&s.unmapped));
                s.map(mapped).expect("nothing fails yet");
            })
            .later(),
        Step::new("fault, a store to a file", |s| s.fault(page(FILE_SHARED, 5), Access::Write)),
        Step::new("fault, a store to a private file", |s| s.fault(page(FILE_PRIVATE, 5), Access::Write)),
        Step::new("fault, a store to a loaded page of a private file", |s| {
            s.fault(page(FILE_PRIVATE, 6), Access::Write)
        })
        .after(|s| s.fault(page(FILE_PRIVATE, 6), Access::Read).expect("nothing fails yet")),
        Step::new("fault, shared memory", |s| s.fault(page(MEMFD, 6), Access::Write)),
        Step::new("fault, a fetch", |s| s.fault(page(FREE, 510), Access::Exec)).after(|s| {
            s.map((page(FREE, 510), 1, Rights::RX, FIXED, None)).expect("nothing fails yet");
        }),
        Step::new("fault, a stack grows", |s| s.fault(page(STACK - 600 * PAGE_SIZE, 0), Access::Write))
            .fails_with(&[Errno::EFAULT, Errno::ENOMEM])
            .part(),
    ]
}

fn stores_after_fork<I: Isa>() -> Vec<Step<I>> {
    vec![
        Step::new("fault, copy-on-write", |s| s.fault(page(OWN, 8), Access::Write)),
        Step::new("fault, copy-on-write of a moved page", |s| s.fault(page(MOVED, 2), Access::Write)),
    ]
}

/// Slots of the device in these steps.
const SLOTS: u32 = 64;

/// Four pages of the process's own, and compressed memory as a swap device.
///
/// The pages cross the border of two tables.
fn swap_on<I: Isa>(s: &Scene<I>) {
    free_pages(s);
    (510..514).for_each(|index| s.process.write(CPU, page(FREE, index), 70 + index));
    s.ask(|mm| mm.swap_on(SwapBacking::Zram(Zram::try_new(mm, SLOTS, None)?), SLOTS)).expect("nothing fails yet");
}

/// The same, with those pages, a page of shared memory, and one of the memfd in swap.
fn swapped<I: Isa>(s: &Scene<I>) {
    swap_on(s);
    for (at, pages) in [(page(FREE, 510), 4), (page(SHARED, 0), 1), (page(MEMFD, 1), 1)] {
        s.advise(at, pages, Advice::PageOut).expect("nothing fails yet");
    }
    // The child shares the tables in which the last two are mapped, or has not touched them.
    let gone = if s.on(|mm| mm.settings().get(MmSetting::CowPageTables)) > 0 { 4 } else { 6 };
    assert_eq!(s.on(|mm| mm.swap_slots()), (u64::from(SLOTS), u64::from(SLOTS) - gone));
}

fn swap<I: Isa>() -> Vec<Step<I>> {
    let step = |name, call| Step::new(name, call).after(swapped);
    vec![
        Step::new("swapon", |s| s.ask(|mm| mm.swap_on(SwapBacking::Zram(Zram::try_new(mm, SLOTS, None)?), SLOTS))),
        Step::new("madvise, PAGEOUT", |s| s.advise(page(FREE, 510), 4, Advice::PageOut)).after(swap_on).later(),
        step("swapoff", |s: &Scene<I>| s.ask(|mm| mm.swap_off(0))).part(),
        step("fault, a load of what is in swap", |s| s.fault(page(FREE, 511), Access::Read)),
        // The page is read for all that share it, before there is no memory for a copy.
        step("fault, a store to what is in swap", |s| s.fault(page(FREE, 511), Access::Write)).part_of_shared(),
        step("fault, a store to what is in swap for two", |s| s.fault(page(FREE, 511), Access::Write))
            .after(|s| {
                swapped(s);
                s.ask(|mm| mm.fork(&s.process.space)).expect("nothing fails yet");
            })
            .part(),
        step("fault, shared memory in swap", |s| s.fault(page(SHARED, 0), Access::Write)),
        step("fork of what is in swap", |s| s.ask(|mm| mm.fork(&s.process.space))),
        step("mremap of what is in swap", |s| s.remap((page(FREE, 510), 4), 4, GO_THERE, FREE + 1022 * PAGE_SIZE)),
        step("read, shared memory in swap", |s| {
            let mut bytes = [0; 3 * PAGE_SIZE as usize];
            all_of(s.on(|mm| mm.read_at(&s.memfd, 0, &mut bytes)), Ok(bytes.len()))
        }),
        step("write, shared memory in swap", |s| {
            all_of(s.on(|mm| mm.write_at(&s.memfd, PAGE_SIZE + 5, &[7; 9])), Ok(9))
        }),
        step("ftruncate, within a page in swap", |s| s.ask(|mm| mm.truncate(&s.memfd, PAGE_SIZE + 8))),
        step("fallocate, a hole within a page in swap", |s| {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            s.ask(|mm| mm.fallocate(&s.memfd, flags, PAGE_SIZE + 8, 8))
        }),
        step("mlock of what is in swap", |s| s.ask(|mm| mm.mlock(&s.process.space, page(FREE, 510), 4 * PAGE_SIZE)))
            .fails_with(&[Errno::ENOMEM, Errno::EAGAIN])
            .part(),
        step("pin_user_pages, of what is in swap", |s| s.take(page(FREE, 510), 4, GupCall::PinFast(GupFlags::WRITE)))
            .part(),
        step("munmap of what is in swap", |s| s.ask(|mm| mm.munmap(&s.process.space, page(FREE, 510), 4 * PAGE_SIZE))),
        step("madvise, FREE of what is in swap", |s| s.advise(page(FREE, 510), 4, Advice::Free))
            .needs_nothing_unless_shared(),
        step("clear_refs of what is in swap", |s| clear_refs(s, ClearRefs::SoftDirty)).needs_nothing_unless_shared(),
        step("madvise, DONTNEED of what is in swap", |s| s.advise(page(FREE, 510), 4, Advice::DontNeed))
            .needs_nothing_unless_shared(),
    ]
}

fn clear_refs<I: Isa>(s: &Scene<I>, what: ClearRefs) -> Result<(), Errno> {
    s.ask(|mm| mm.clear_refs(&s.process.space, what))
}

/// What needs no memory unless fork shares the tables that it edits.
fn free_where_nothing_is_shared<I: Isa>() -> Vec<Step<I>> {
    let free = |name, call| Step::new(name, call).needs_nothing_unless_shared();
    vec![
        free("madvise, DONTNEED", |s: &Scene<I>| s.advise(page(OWN, 0), 16, Advice::DontNeed)),
        free("madvise, DONTNEED, a file", |s| s.advise(page(FILE_PRIVATE, 1), 4, Advice::DontNeed)),
        free("madvise, DONTNEED_LOCKED", |s| s.advise(page(OWN, 0), 4, Advice::DontNeedLocked)),
        free("madvise, FREE", |s| s.advise(page(OWN, 0), 16, Advice::Free)),
        free("madvise, GUARD_REMOVE", |s| s.advise(page(GUARDED, 0), 4, Advice::GuardRemove)),
        free("clear_refs", |s| clear_refs(s, ClearRefs::SoftDirty)),
    ]
}

/// What needs no memory, and so can't fail for lack of it.
fn free_of_charge<I: Isa>() -> Vec<Step<I>> {
    let free = |name, call| Step::new(name, call).needs_nothing();
    vec![
        free("madvise, REMOVE", |s: &Scene<I>| s.advise(page(SHARED, 0), 4, Advice::Remove)),
        free("madvise, COLD", |s| s.advise(page(OWN, 0), 16, Advice::Cold)),
        free("munlockall", |s| {
            s.on(|mm| mm.munlockall(&s.process.space));
            Ok(())
        }),
        free("mlockall, of the future", |s| s.ask(|mm| mm.mlockall(&s.process.space, LockAllFlags::FUTURE))),
        free("msync", |s| s.ask(|mm| mm.msync(&s.process.space, page(SHARED, 0), 8 * PAGE_SIZE, SyncFlags::SYNC))),
        free("mincore", |s| s.ask(|mm| mm.mincore(&s.process.space, page(OWN, 0), 4 * PAGE_SIZE, &mut [0; 4]))),
        free("clear_refs, accessed bits", |s| clear_refs(s, ClearRefs::All)),
        free("clear_refs, the peak", |s| clear_refs(s, ClearRefs::Peak)),
        free("ftruncate", |s| s.ask(|mm| mm.truncate(&s.memfd, 3 * PAGE_SIZE))),
        free("ftruncate, larger", |s| s.ask(|mm| mm.truncate(&s.memfd, 30 * PAGE_SIZE))),
        free("fallocate, a hole", |s| s.fallocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4)),
        free("fcntl, seals", |s| s.ask(|mm| mm.add_seals(&s.memfd, Rights::RW, Seals::GROW))),
        free("read, shared memory", |s| s.ask(|mm| mm.read_at(&s.memfd, 0, &mut [0; 3 * PAGE_SIZE as usize]))),
        free("futex, private", |s| {
            s.ask(|mm| mm.futex_key(&s.process.space, page(FREE, 0), FutexScope::Private, FutexAccess::Write))
        }),
    ]
}
