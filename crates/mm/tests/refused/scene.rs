//! A process that has something of everything, with a child, files and a device.
//!
//! Tests compare all of it before and after a call.

use pagewright_arch::Isa;
use pagewright_lab::harness::{ANON, CPU, FileHandle, GupCall, OTHER, TestDevice, TestProcess, TestWorld};
use pagewright_mm::file::{FallocateFlags, MemfdFlags};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::FileMapping;
use pagewright_mm::{Advice, FaultError, MapFlags, MapRequest, Mm, MmError, MmSetting, RemapFlags, RemapRequest};
use pagewright_sim::Sim;
use pagewright_types::{Access, Errno, PAGE_SIZE, Rights, VirtAddr};
use std::rc::Rc;

/// Page `index` from `base` on.
pub(crate) fn page(base: u64, index: u64) -> VirtAddr {
    VirtAddr::new(base + index * PAGE_SIZE)
}

/// 16 pages of the process's own, some written.
///
/// They cross the border of two tables of the last level, and of two of the one above.
pub(crate) const OWN: u64 = (3 << 30) - 8 * PAGE_SIZE;
/// 8 pages of the file, mapped privately; one is a copy.
pub(crate) const FILE_PRIVATE: u64 = 4 << 30;
/// 8 pages of the file, shared.
pub(crate) const FILE_SHARED: u64 = FILE_PRIVATE + 16 * PAGE_SIZE;
/// 8 pages of shared anonymous memory, with a guard.
pub(crate) const SHARED: u64 = FILE_PRIVATE + 32 * PAGE_SIZE;
/// 8 pages of the memfd, shared.
pub(crate) const MEMFD: u64 = FILE_PRIVATE + 48 * PAGE_SIZE;
/// 4 pages that were moved here with what is in them.
pub(crate) const MOVED: u64 = FILE_PRIVATE + 64 * PAGE_SIZE;
/// 4 pages, one of them guarded.
pub(crate) const GUARDED: u64 = FILE_PRIVATE + 80 * PAGE_SIZE;
/// 2 pages that can only be read, and that the child has, too.
pub(crate) const READ_ONLY: u64 = FILE_PRIVATE + 96 * PAGE_SIZE;
/// 4 pages of a stack that grows down.
pub(crate) const STACK: u64 = 6 << 30;
/// 4 locked pages.
pub(crate) const LOCKED: u64 = 7 << 30;
/// Where the heap begins, with three pages in it.
pub(crate) const HEAP: u64 = 5 << 30;
/// Nothing is here, nor a table.
pub(crate) const FREE: u64 = 40 << 30;
/// Where fillers go.
const FILL: u64 = 60 << 30;

/// Pages of either file.
pub(crate) const FILE_PAGES: u64 = 8;

pub(crate) const FIXED: MapFlags = ANON.union(MapFlags::FIXED);

pub(crate) struct Scene<I: Isa> {
    pub(crate) world: Rc<TestWorld<I>>,
    pub(crate) process: TestProcess<I>,
    pub(crate) child: TestProcess<I>,
    pub(crate) file: FileHandle<I>,
    pub(crate) memfd: FileHandle<I>,
    /// A file of which nothing was ever mapped or read.
    pub(crate) unmapped: FileHandle<I>,
    device: Option<TestDevice<I>>,
    /// A later child, after which the process has next to no table to itself.
    sibling: Option<TestProcess<I>>,
    /// The gauges before there was anything.
    levels: Vec<u64>,
}

/// What is asked for in its simplest form: a fixed place, and the beginning of a file.
pub(crate) type Mapped<'a, I> = (VirtAddr, u64, Rights, MapFlags, Option<&'a FileHandle<I>>);

impl<I: Isa> Scene<I> {
    /// The scene, with `fillers` small mappings, each unlike its neighbours.
    ///
    /// With some numbers of them the trees of mappings have no free node. `shares` is the value of
    /// the setting `cow_page_tables`.
    pub(crate) fn new(fillers: u64, shares: &str) -> Self {
        let world = TestWorld::<I>::new(2);
        world.set(MmSetting::CowPageTables, shares);
        let levels = levels(&world);
        let (file, unmapped) = (world.file(FILE_PAGES), world.file(FILE_PAGES));
        let memfd = world.on(CPU, |mm| {
            let memfd = mm.memfd_create("scene", MemfdFlags::ALLOW_SEALING)?;
            mm.truncate(&memfd, FILE_PAGES * PAGE_SIZE)?;
            Ok::<_, MmError>(memfd)
        });
        let memfd = memfd.expect("memory for a file");
        let process = TestProcess::new(&world);
        let scene = Setup { world: &world, process: &process, file: &file, memfd: &memfd };
        scene.map_all();
        scene.write_all();
        let device = process.take(CPU, page(OWN, 12), 1, GupCall::Pin(GupFlags::WRITE)).expect("a page of its own");
        let child = process.fork();
        process.write(CPU, page(OWN, 1), 101);
        process.protect(page(READ_ONLY, 0), 2, Rights::READ);
        for va in [page(OWN, 0), page(OWN, 13), page(FILE_SHARED, 2), page(SHARED, 0)] {
            process.read(OTHER, va);
        }
        // Last, so that nothing else has a node made ready after it.
        scene.fill(fillers);
        world.lab.run(CPU, &process.space);
        Self { world, process, child, file, memfd, unmapped, device: Some(device), sibling: None, levels }
    }

    /// Forks once more, so that the process shares every table that may be shared.
    pub(crate) fn share_again(&mut self) {
        self.sibling = Some(self.process.fork());
        self.world.lab.run(CPU, &self.process.space);
    }

    /// The process and its children.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &TestProcess<I>> {
        [&self.process, &self.child].into_iter().chain(&self.sibling)
    }

    pub(crate) fn on<T>(&self, call: impl FnOnce(&Mm<Sim<I>>) -> T) -> T {
        self.world.on(CPU, call)
    }

    /// A call in Linux's words.
    pub(crate) fn ask<T>(&self, call: impl FnOnce(&Mm<Sim<I>>) -> Result<T, MmError>) -> Result<(), Errno> {
        self.on(call).map(drop).map_err(MmError::errno)
    }

    pub(crate) fn map(&self, mapped: Mapped<'_, I>) -> Result<(), Errno> {
        self.ask(|mm| mm.mmap(&self.process.space, &request(mapped)))
    }

    pub(crate) fn remap(
        &self,
        (addr, old): (VirtAddr, u64),
        new: u64,
        flags: RemapFlags,
        to: u64,
    ) -> Result<(), Errno> {
        let (old_len, new_len, new_addr) = (old * PAGE_SIZE, new * PAGE_SIZE, VirtAddr::new(to));
        let request = RemapRequest { addr, old_len, new_len, flags, new_addr };
        self.ask(|mm| mm.mremap(&self.process.space, &request))
    }

    pub(crate) fn advise(&self, at: VirtAddr, pages: u64, advice: Advice) -> Result<(), Errno> {
        self.ask(|mm| mm.madvise(&self.process.space, at, pages * PAGE_SIZE, advice))
    }

    pub(crate) fn fallocate(&self, flags: FallocateFlags, first: u64, pages: u64) -> Result<(), Errno> {
        self.ask(|mm| mm.fallocate(&self.memfd, flags, first * PAGE_SIZE, pages * PAGE_SIZE))
    }

    /// One fault, as the processor reports it.
    pub(crate) fn fault(&self, va: VirtAddr, access: Access) -> Result<(), Errno> {
        self.on(|mm| mm.fault(&self.process.space, va, access)).map(drop).map_err(|error| match error {
            FaultError::OutOfMemory(error) => error.errno(),
            // A stack that could not grow.
            FaultError::NotMapped { .. } => Errno::EFAULT,
            other => panic!("{other}"),
        })
    }

    /// Takes pages and gives them back.
    pub(crate) fn take(&self, at: VirtAddr, pages: u64, how: GupCall) -> Result<(), Errno> {
        let device = self.process.take(CPU, at, pages, how).map_err(MmError::errno)?;
        let whole = device.pages.len() as u64 == pages;
        device.release(MakeDirty::No);
        if whole { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// What the device has pinned.
    pub(crate) fn devices(&self) -> Vec<&TestDevice<I>> {
        self.device.iter().collect()
    }

    /// Ends everything, and asserts that nothing is left of it.
    pub(crate) fn end(mut self, what: &str) {
        if let Some(device) = self.device.take() {
            device.release(MakeDirty::Yes);
        }
        let mut processes: Vec<_> = self.processes().collect();
        processes.rotate_left(1);
        processes.into_iter().for_each(TestProcess::end);
        self.on(|mm| {
            // Whatever else the call made.
            let mut left = Vec::new();
            mm.for_each_space(|space| left.push(space.clone()));
            left.iter().for_each(|space| mm.end_space(space));
            mm.close_file(&self.memfd);
            [&self.file, &self.unmapped].into_iter().for_each(|file| mm.forget_file(file));
        });
        self.world.at_rest(&[]);
        assert_eq!(levels(&self.world), self.levels, "{what}: something is left");
    }
}

fn request<I: Isa>((addr, pages, rights, flags, file): Mapped<'_, I>) -> MapRequest<'_, Sim<I>> {
    let file = file.map(|file| FileMapping { file, offset: 0, opened: Rights::RW });
    MapRequest { addr, len: pages * PAGE_SIZE, rights, flags, file }
}

/// Everything that is counted in pages.
pub(crate) fn levels<I: Isa>(world: &TestWorld<I>) -> Vec<u64> {
    use pagewright_mm::counters::Gauge;
    world.on(CPU, |mm| Gauge::ALL.iter().map(|gauge| mm.gauge(*gauge)).chain([mm.committed()]).collect())
}

/// A scene on its way.
struct Setup<'a, I: Isa> {
    world: &'a Rc<TestWorld<I>>,
    process: &'a TestProcess<I>,
    file: &'a FileHandle<I>,
    memfd: &'a FileHandle<I>,
}

impl<I: Isa> Setup<'_, I> {
    fn call<T>(&self, call: impl FnOnce(&Mm<Sim<I>>) -> Result<T, MmError>) {
        self.world.on(CPU, call).map(drop).expect("nothing fails yet");
    }

    fn map_all(&self) {
        let (space, fixed) = (&self.process.space, MapFlags::FIXED);
        let (private, shared) = (MapFlags::PRIVATE | fixed, MapFlags::SHARED | fixed);
        let all: [Mapped<'_, I>; 10] = [
            (page(OWN, 0), 16, Rights::RW, FIXED, None),
            (page(FILE_PRIVATE, 0), FILE_PAGES, Rights::RW, private, Some(self.file)),
            (page(FILE_SHARED, 0), FILE_PAGES, Rights::RW, shared, Some(self.file)),
            (page(SHARED, 0), 8, Rights::RW, shared | MapFlags::ANONYMOUS, None),
            (page(MEMFD, 0), FILE_PAGES, Rights::RW, shared, Some(self.memfd)),
            (page(FREE, 0), 4, Rights::RW, FIXED, None),
            (page(GUARDED, 0), 4, Rights::RW, FIXED, None),
            (page(READ_ONLY, 0), 2, Rights::RW, FIXED, None),
            (page(STACK, 0), 4, Rights::RW, FIXED | MapFlags::GROWSDOWN, None),
            (page(LOCKED, 0), 4, Rights::RW, FIXED | MapFlags::LOCKED, None),
        ];
        for mapped in all {
            self.call(|mm| mm.mmap(space, &request(mapped)));
        }
        self.world.on(CPU, |mm| {
            mm.set_brk_start(space, VirtAddr::new(HEAP));
            assert_eq!(mm.brk(space, page(HEAP, 3)), page(HEAP, 3));
        });
    }

    fn fill(&self, fillers: u64) {
        for index in 0..fillers {
            let rights = if index % 2 == 0 { Rights::READ } else { Rights::RX };
            let mapped = (page(FILL, index), 1, rights, MapFlags::PRIVATE | MapFlags::FIXED, Some(self.file));
            self.call(|mm| mm.mmap(&self.process.space, &request(mapped)));
        }
    }

    fn write_all(&self) {
        let (space, process) = (&self.process.space, self.process);
        let written = [
            (OWN, 0),
            (OWN, 1),
            (OWN, 7),
            (OWN, 8),
            (OWN, 12),
            (FILE_PRIVATE, 1),
            (FILE_SHARED, 2),
            (SHARED, 0),
            (MEMFD, 1),
            (FREE, 0),
            (FREE, 2),
            (GUARDED, 0),
            (READ_ONLY, 0),
            (READ_ONLY, 1),
            (STACK, 3),
            (HEAP, 0),
        ];
        for (value, (base, index)) in (1..).zip(written) {
            process.write(CPU, page(base, index), value);
        }
        process.read(CPU, page(OWN, 13));
        let flags = RemapFlags::MAYMOVE | RemapFlags::FIXED;
        let (old_len, new_addr) = (4 * PAGE_SIZE, VirtAddr::new(MOVED));
        let request = RemapRequest { addr: VirtAddr::new(FREE), old_len, new_len: old_len, flags, new_addr };
        self.call(|mm| mm.mremap(space, &request));
        for at in [page(GUARDED, 1), page(SHARED, 5)] {
            self.call(|mm| mm.madvise(space, at, PAGE_SIZE, Advice::GuardInstall));
        }
    }
}
