//! Calls that must be refused, and with which errno.

use super::scene::{
    FILE_PAGES, FILE_PRIVATE, FILE_SHARED, FIXED, FREE, GUARDED, HEAP, LOCKED, MEMFD, OWN, READ_ONLY, SHARED, STACK,
    Scene, page,
};
use pagewright_arch::Isa;
use pagewright_lab::harness::{ANON, CPU, FileHandle, GupCall};
use pagewright_mm::file::{FallocateFlags, MemfdFlags, Seals};
use pagewright_mm::gup::GupFlags;
use pagewright_mm::space::{AdviceTarget, FileMapping, Resource, SyncFlags};
use pagewright_mm::swap::{SwapBacking, Zram};
use pagewright_mm::user::{FutexAccess, FutexScope, IoVec};
use pagewright_mm::{Advice, LockAllFlags, LockFlags, MapFlags, MapRequest, Mm, MmError, RemapFlags};
use pagewright_sim::Sim;
use pagewright_types::{Access, Errno, PAGE_SIZE, Rights, VirtAddr};

/// 4 pages that are sealed; two can only be read.
const SEALED: u64 = 8 << 30;
/// 2 pages of the file, of a descriptor that can only be read.
const OPENED_TO_READ: u64 = FILE_PRIVATE + 112 * PAGE_SIZE;
/// The last page.
const LAST: u64 = !(PAGE_SIZE - 1);

/// The scene, with things that are sealed.
pub(crate) struct Stage<I: Isa> {
    pub(crate) scene: Scene<I>,
    /// It stays as it is.
    sealed: FileHandle<I>,
}

pub(crate) struct Refused<I: Isa> {
    pub(crate) name: &'static str,
    pub(crate) call: Call<I>,
    pub(crate) errno: Errno,
}

type Call<I> = fn(&Stage<I>) -> Result<(), Errno>;

fn refused<I: Isa>(name: &'static str, errno: Errno, call: Call<I>) -> Refused<I> {
    Refused { name, call, errno }
}

impl<I: Isa> Stage<I> {
    pub(crate) fn new() -> Self {
        let scene = Scene::new(3, "never");
        let fine = "nothing is wrong with it";
        scene.map((page(SEALED, 0), 2, Rights::RW, FIXED, None)).expect(fine);
        scene.map((page(SEALED, 2), 2, Rights::READ, FIXED, None)).expect(fine);
        scene.process.write(CPU, page(SEALED, 0), 5);
        scene.ask(|mm| mm.mseal(&scene.process.space, page(SEALED, 0), 4 * PAGE_SIZE, 0)).expect(fine);
        let sealed = scene.on(|mm| {
            let sealed = mm.memfd_create("sealed", MemfdFlags::ALLOW_SEALING)?;
            mm.truncate(&sealed, 4 * PAGE_SIZE)?;
            mm.write_at(&sealed, 0, &[1; 100])?;
            mm.add_seals(&sealed, Rights::RW, Seals::SHRINK | Seals::GROW | Seals::WRITE | Seals::SEAL)?;
            Ok::<_, MmError>(sealed)
        });
        let stage = Self { scene, sealed: sealed.expect(fine) };
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        stage.map_file(page(OPENED_TO_READ, 0), (Rights::READ, Rights::READ), flags, 0).expect(fine);
        stage
    }

    pub(crate) fn end(self) {
        self.scene.on(|mm| mm.close_file(&self.sealed));
        self.scene.end("all calls were refused");
    }

    fn ask<T>(&self, call: impl FnOnce(&Mm<Sim<I>>) -> Result<T, MmError>) -> Result<(), Errno> {
        self.scene.ask(call)
    }

    fn map(&self, addr: u64, len: u64, flags: MapFlags) -> Result<(), Errno> {
        let (addr, rights) = (VirtAddr::new(addr), Rights::RW);
        self.ask(|mm| mm.mmap(&self.scene.process.space, &MapRequest { addr, len, rights, flags, file: None }))
    }

    /// Two pages of the file from `offset` on.
    fn map_file(
        &self,
        addr: VirtAddr,
        (rights, opened): (Rights, Rights),
        flags: MapFlags,
        offset: u64,
    ) -> Result<(), Errno> {
        let file = Some(FileMapping { file: &self.scene.file, offset, opened });
        let request = MapRequest { addr, len: 2 * PAGE_SIZE, rights, flags, file };
        self.ask(|mm| mm.mmap(&self.scene.process.space, &request))
    }

    fn unmap(&self, addr: u64, len: u64) -> Result<(), Errno> {
        self.ask(|mm| mm.munmap(&self.scene.process.space, VirtAddr::new(addr), len))
    }

    fn protect(&self, addr: u64, len: u64, rights: Rights) -> Result<(), Errno> {
        self.ask(|mm| mm.mprotect(&self.scene.process.space, VirtAddr::new(addr), len, rights))
    }

    /// `mremap` of so many pages; the address may be anything.
    fn remap(&self, (addr, old): (u64, u64), new: u64, flags: u32, to: u64) -> Result<(), Errno> {
        self.scene.remap((VirtAddr::new(addr), old), new, RemapFlags::from_bits_retain(flags), to)
    }

    fn advise(&self, addr: u64, len: u64, advice: u32) -> Result<(), Errno> {
        let space = &self.scene.process.space;
        self.ask(|mm| mm.madvise(space, VirtAddr::new(addr), len, Advice::from_raw(advice)?))
    }

    fn advise_ranges(&self, whose: AdviceTarget, ranges: &[(VirtAddr, u64)]) -> Result<(), Errno> {
        self.ask(|mm| mm.process_madvise(&self.scene.process.space, whose, ranges, Advice::DontNeed))
    }

    fn lock(&self, addr: u64, len: u64, flags: u32) -> Result<(), Errno> {
        let flags = LockFlags::from_bits_retain(flags);
        self.ask(|mm| mm.mlock2(&self.scene.process.space, VirtAddr::new(addr), len, flags))
    }

    fn lock_all(&self, flags: u32) -> Result<(), Errno> {
        self.ask(|mm| mm.mlockall(&self.scene.process.space, LockAllFlags::from_bits_retain(flags)))
    }

    fn sync(&self, addr: u64, len: u64, flags: u32) -> Result<(), Errno> {
        let flags = SyncFlags::from_bits_retain(flags);
        self.ask(|mm| mm.msync(&self.scene.process.space, VirtAddr::new(addr), len, flags))
    }

    fn resident(&self, addr: u64, len: u64) -> Result<(), Errno> {
        self.ask(|mm| mm.mincore(&self.scene.process.space, VirtAddr::new(addr), len, &mut [0; 8]))
    }

    fn seal(&self, addr: u64, len: u64, flags: u32) -> Result<(), Errno> {
        self.ask(|mm| mm.mseal(&self.scene.process.space, VirtAddr::new(addr), len, flags))
    }

    /// Makes a call under another limit, and sets it back.
    fn limited(&self, resource: Resource, bytes: u64, call: Call<I>) -> Result<(), Errno> {
        let space = &self.scene.process.space;
        let limits = *space.map().read().limits();
        self.scene.on(|mm| mm.set_limits(space, limits.with(resource, bytes)));
        let answer = call(self);
        self.scene.on(|mm| mm.set_limits(space, limits));
        answer
    }

    fn allocate(&self, file: &FileHandle<I>, flags: u32, offset: u64, len: u64) -> Result<(), Errno> {
        self.ask(|mm| mm.fallocate(file, FallocateFlags::from_bits_retain(flags), offset, len))
    }

    fn vm(&self, here: &[(u64, u64)], there: &[(u64, u64)], flags: u64, writes: bool) -> Result<(), Errno> {
        let pieces = |list: &[(u64, u64)]| -> Vec<IoVec> {
            list.iter().map(|&(base, len)| IoVec { base: VirtAddr::new(base), len }).collect()
        };
        let (here, there) = (pieces(here), pieces(there));
        let (ours, theirs) = ((&*self.scene.process.space, &here[..]), (&*self.scene.child.space, &there[..]));
        self.ask(|mm| match writes {
            false => mm.process_vm_readv(ours, theirs, flags),
            true => mm.process_vm_writev(ours, theirs, flags),
        })
    }

    fn futex(&self, at: u64) -> Result<(), Errno> {
        let space = &self.scene.process.space;
        self.ask(|mm| mm.futex_key(space, VirtAddr::new(at), FutexScope::Shared, FutexAccess::Read))
    }

    fn take(&self, addr: u64, pages: u64, how: GupCall) -> Result<(), Errno> {
        self.scene.take(VirtAddr::new(addr), pages, how)
    }

    /// The signal that an access gets, as an errno.
    ///
    /// `EFAULT` stands for `SIGSEGV`, `EACCES` for `SEGV_ACCERR`, `EIO` for `SIGBUS`.
    fn access(&self, addr: u64, access: Access) -> Result<(), Errno> {
        use pagewright_mm::FaultError;
        let fault = self.scene.on(|mm| mm.fault(&self.scene.process.space, VirtAddr::new(addr), access));
        fault.map(drop).map_err(|error| match error {
            FaultError::NotMapped { .. } | FaultError::Guarded { .. } => Errno::EFAULT,
            FaultError::NotAllowed { .. } => Errno::EACCES,
            FaultError::PastEnd { .. } | FaultError::Device { .. } | FaultError::TooManyHolders { .. } => Errno::EIO,
            FaultError::OutOfMemory(error) => error.errno(),
        })
    }
}

pub(crate) fn all<I: Isa>() -> Vec<Refused<I>> {
    let lists =
        [maps(), unmaps(), moves(), advice(), locks(), questions(), files(), pages(), users(), swap(), accesses()];
    lists.into_iter().flatten().collect()
}

const PRIVATE: MapFlags = MapFlags::PRIVATE.union(MapFlags::FIXED);
const SHARED_FIXED: MapFlags = MapFlags::SHARED.union(MapFlags::FIXED);

fn maps<I: Isa>() -> Vec<Refused<I>> {
    use Errno::{EACCES, EAGAIN, EEXIST, EINVAL, ENOMEM, EOPNOTSUPP, EOVERFLOW, EPERM};
    vec![
        refused("mmap: no length", EINVAL, |s| s.map(FREE, 0, FIXED)),
        refused("mmap: not aligned", EINVAL, |s| s.map(FREE + 1, PAGE_SIZE, FIXED)),
        refused("mmap: past the end", ENOMEM, |s| s.map(I::USER_END.raw() - PAGE_SIZE, 2 * PAGE_SIZE, FIXED)),
        refused("mmap: beyond the end", ENOMEM, |s| s.map(I::USER_END.raw(), PAGE_SIZE, FIXED)),
        refused("mmap: round the end", ENOMEM, |s| s.map(LAST, 2 * PAGE_SIZE, FIXED)),
        refused("mmap: a length that wraps", ENOMEM, |s| s.map(0, u64::MAX, ANON)),
        refused("mmap: more than there is", ENOMEM, |s| s.map(0, I::USER_END.raw() + PAGE_SIZE, ANON)),
        refused("mmap: not free", EEXIST, |s| s.map(OWN, PAGE_SIZE, ANON | MapFlags::FIXED_NOREPLACE)),
        refused("mmap: neither shared nor private", EINVAL, |s| {
            s.map(FREE, PAGE_SIZE, MapFlags::ANONYMOUS | MapFlags::FIXED)
        }),
        refused("mmap: huge pages", ENOMEM, |s| s.map(FREE, PAGE_SIZE, FIXED | MapFlags::from_bits_retain(0x4_0000))),
        refused("mmap: huge pages of 8 KiB", EINVAL, |s| {
            s.map(FREE, PAGE_SIZE, FIXED | MapFlags::from_bits_retain(0x4_0000 | 13 << 26))
        }),
        refused("mmap: huge pages between two", EINVAL, |s| {
            s.map(FREE + PAGE_SIZE, PAGE_SIZE, FIXED | MapFlags::from_bits_retain(0x4_0000))
        }),
        refused("mmap: a shared stack", EINVAL, |s| {
            s.map(FREE, PAGE_SIZE, SHARED_FIXED | MapFlags::ANONYMOUS | MapFlags::GROWSDOWN)
        }),
        refused("mmap: a stack of a file", EINVAL, |s| {
            s.map_file(page(FREE, 0), (Rights::RW, Rights::RW), PRIVATE | MapFlags::GROWSDOWN, 0)
        }),
        refused("mmap: an offset in a page", EINVAL, |s| {
            s.map_file(page(FREE, 0), (Rights::RW, Rights::RW), PRIVATE, 100)
        }),
        refused("mmap: an offset that wraps", EOVERFLOW, |s| {
            s.map_file(page(FREE, 0), (Rights::RW, Rights::RW), PRIVATE, LAST)
        }),
        refused("mmap: a flag that must be known", EOPNOTSUPP, |s| {
            let flags = MapFlags::from_bits_retain(0x3 | 0x8_0000) | MapFlags::FIXED;
            s.map_file(page(FREE, 0), (Rights::RW, Rights::RW), flags, 0)
        }),
        refused("mmap: shared and writable, opened to be read", EACCES, |s| {
            s.map_file(page(FREE, 0), (Rights::RW, Rights::READ), SHARED_FIXED, 0)
        }),
        refused("mmap: opened to be written only", EACCES, |s| {
            s.map_file(page(FREE, 0), (Rights::READ, Rights::WRITE), PRIVATE, 0)
        }),
        refused("mmap: writable, of a sealed file", EPERM, |s| {
            s.scene.map((page(OWN, 0), 2, Rights::RW, SHARED_FIXED, Some(&s.sealed)))
        }),
        refused("mmap: over a sealed mapping", EPERM, |s| s.map(SEALED - PAGE_SIZE, 2 * PAGE_SIZE, FIXED)),
        refused("mmap: too much to lock", EAGAIN, |s| {
            let call = |s: &Stage<I>| s.map(OWN, 2 * PAGE_SIZE, FIXED | MapFlags::LOCKED);
            s.limited(Resource::Memlock, 5 * PAGE_SIZE, call)
        }),
        refused("mmap: locked, and nothing may be", EPERM, |s| {
            s.limited(Resource::Memlock, 0, |s| s.map(FREE, PAGE_SIZE, FIXED | MapFlags::LOCKED))
        }),
        refused("mmap: too much address space", ENOMEM, |s| {
            s.limited(Resource::AddressSpace, 20 * PAGE_SIZE, |s| s.map(OWN, PAGE_SIZE, FIXED))
        }),
        refused("mmap: too much data", ENOMEM, |s| {
            s.limited(Resource::Data, 20 * PAGE_SIZE, |s| s.map(SHARED, PAGE_SIZE, FIXED))
        }),
        refused("brk: below its start", ENOMEM, |s| s.brk(HEAP - PAGE_SIZE)),
        refused("brk: over a mapping", ENOMEM, |s| s.brk(STACK + PAGE_SIZE)),
        refused("brk: past the end", ENOMEM, |s| s.brk(I::USER_END.raw() + PAGE_SIZE)),
        refused("brk: too much data", ENOMEM, |s| {
            s.limited(Resource::Data, PAGE_SIZE, |s| s.brk(HEAP + 5 * PAGE_SIZE))
        }),
    ]
}

impl<I: Isa> Stage<I> {
    fn brk(&self, to: u64) -> Result<(), Errno> {
        let to = VirtAddr::new(to);
        if self.scene.on(|mm| mm.brk(&self.scene.process.space, to)) == to { Ok(()) } else { Err(Errno::ENOMEM) }
    }
}

fn unmaps<I: Isa>() -> Vec<Refused<I>> {
    use Errno::{EACCES, EINVAL, ENOMEM, EPERM};
    vec![
        refused("munmap: not aligned", EINVAL, |s| s.unmap(OWN + 1, PAGE_SIZE)),
        refused("munmap: no length", EINVAL, |s| s.unmap(OWN, 0)),
        refused("munmap: past the end", EINVAL, |s| s.unmap(I::USER_END.raw() - PAGE_SIZE, 2 * PAGE_SIZE)),
        refused("munmap: round the end", EINVAL, |s| s.unmap(LAST, 2 * PAGE_SIZE)),
        refused("munmap: a length that wraps", EINVAL, |s| s.unmap(OWN, u64::MAX)),
        refused("munmap: sealed", EPERM, |s| s.unmap(SEALED - PAGE_SIZE, 2 * PAGE_SIZE)),
        refused("mprotect: not aligned", EINVAL, |s| s.protect(OWN + 1, PAGE_SIZE, Rights::READ)),
        refused("mprotect: round the end", ENOMEM, |s| s.protect(LAST, 2 * PAGE_SIZE, Rights::READ)),
        refused("mprotect: a hole first", ENOMEM, |s| s.protect(OWN - PAGE_SIZE, 2 * PAGE_SIZE, Rights::READ)),
        refused("mprotect: more than the descriptor", EACCES, |s| s.protect(OPENED_TO_READ, 2 * PAGE_SIZE, Rights::RW)),
        refused("mprotect: sealed", EPERM, |s| s.protect(SEALED, PAGE_SIZE, Rights::READ)),
        refused("mprotect: too much data", ENOMEM, |s| {
            s.limited(Resource::Data, 20 * PAGE_SIZE, |s| s.protect(READ_ONLY, PAGE_SIZE, Rights::RW))
        }),
    ]
}

const MAYMOVE: u32 = 1;
const THERE: u32 = 3;
const STAYS: u32 = 7;

fn moves<I: Isa>() -> Vec<Refused<I>> {
    use Errno::{EAGAIN, EFAULT, EINVAL, ENOMEM, EPERM};
    vec![
        refused("mremap: not aligned", EINVAL, |s| s.remap((OWN + 1, 1), 2, MAYMOVE, 0)),
        refused("mremap: to nothing", EINVAL, |s| s.remap((OWN, 1), 0, MAYMOVE, 0)),
        refused("mremap: an unknown flag", EINVAL, |s| s.remap((OWN, 1), 2, 8, 0)),
        refused("mremap: a place, and it may not move", EINVAL, |s| s.remap((OWN, 1), 1, 2, FREE)),
        refused("mremap: it stays, with another size", EINVAL, |s| s.remap((OWN, 2), 1, STAYS, FREE)),
        refused("mremap: onto itself", EINVAL, |s| s.remap((OWN, 4), 4, THERE, OWN + 2 * PAGE_SIZE)),
        refused("mremap: a place that is not aligned", EINVAL, |s| s.remap((OWN, 1), 1, THERE, FREE + 1)),
        refused("mremap: a place past the end", EINVAL, |s| s.remap((OWN, 2), 2, THERE, I::USER_END.raw() - PAGE_SIZE)),
        refused("mremap: more than there is", EINVAL, |s| s.remap((OWN, 1), I::USER_END.page_index() + 1, MAYMOVE, 0)),
        refused("mremap: nothing there", EFAULT, |s| s.remap((FREE, 1), 2, MAYMOVE, 0)),
        refused("mremap: several, larger", EFAULT, |s| s.remap((FILE_PRIVATE + 7 * PAGE_SIZE, 2), 3, MAYMOVE, 0)),
        refused("mremap: a private one twice", EINVAL, |s| s.remap((OWN, 0), 1, MAYMOVE, 0)),
        refused("mremap: no room", ENOMEM, |s| s.remap((OWN, 1), 2, 0, 0)),
        refused("mremap: sealed", EPERM, |s| s.remap((SEALED, 1), 2, MAYMOVE, 0)),
        refused("mremap: over a sealed mapping", EPERM, |s| s.remap((OWN, 1), 1, THERE, SEALED)),
        refused("mremap: too much to lock", EAGAIN, |s| {
            s.limited(Resource::Memlock, 5 * PAGE_SIZE, |s| s.remap((LOCKED, 4), 6, MAYMOVE, 0))
        }),
        refused("mremap: too much address space", ENOMEM, |s| {
            s.limited(Resource::AddressSpace, 20 * PAGE_SIZE, |s| s.remap((OWN, 16), 18, MAYMOVE, 0))
        }),
    ]
}

fn advice<I: Isa>() -> Vec<Refused<I>> {
    use Errno::{EACCES, EFAULT, EINVAL, ENOMEM, EOPNOTSUPP, EPERM};
    vec![
        refused("madvise: not aligned", EINVAL, |s| s.advise(OWN + 1, PAGE_SIZE, 4)),
        refused("madvise: round the end", EINVAL, |s| s.advise(LAST, 2 * PAGE_SIZE, 4)),
        refused("madvise: unknown", EINVAL, |s| s.advise(OWN, PAGE_SIZE, 5)),
        refused("madvise: nothing but a hole", ENOMEM, |s| s.advise(FREE, PAGE_SIZE, 4)),
        refused("madvise: DONTNEED of locked memory", EINVAL, |s| s.advise(LOCKED, PAGE_SIZE, 4)),
        refused("madvise: FREE of a file", EINVAL, |s| s.advise(FILE_PRIVATE, PAGE_SIZE, 8)),
        refused("madvise: REMOVE of no file", EINVAL, |s| s.advise(OWN, PAGE_SIZE, 9)),
        refused("madvise: REMOVE of a private mapping", EACCES, |s| s.advise(FILE_PRIVATE, PAGE_SIZE, 9)),
        refused("madvise: REMOVE where the device can't", EOPNOTSUPP, |s| s.advise(FILE_SHARED, PAGE_SIZE, 9)),
        refused("madvise: WIPEONFORK of a file", EINVAL, |s| s.advise(FILE_PRIVATE, PAGE_SIZE, 18)),
        refused("madvise: POPULATE_READ of a hole", ENOMEM, |s| s.advise(FREE, PAGE_SIZE, 22)),
        refused("madvise: POPULATE_READ of a guard", EFAULT, |s| s.advise(GUARDED + PAGE_SIZE, PAGE_SIZE, 22)),
        refused("madvise: POPULATE_WRITE without the right", EINVAL, |s| s.advise(READ_ONLY, PAGE_SIZE, 23)),
        refused("madvise: DONTNEED of what is sealed", EPERM, |s| s.advise(SEALED + 2 * PAGE_SIZE, PAGE_SIZE, 4)),
        refused("madvise: GUARD_INSTALL in locked memory", EINVAL, |s| s.advise(LOCKED, PAGE_SIZE, 102)),
        refused("process_madvise: of others", EINVAL, |s| {
            s.advise_ranges(AdviceTarget::Other, &[(page(OWN, 0), PAGE_SIZE)])
        }),
        refused("process_madvise: too many", EINVAL, |s| {
            s.advise_ranges(AdviceTarget::Own, &[(page(OWN, 0), 8); 1025])
        }),
        refused("process_madvise: past the end", EFAULT, |s| {
            s.advise_ranges(AdviceTarget::Own, &[(page(OWN, 0), PAGE_SIZE), (I::USER_END, PAGE_SIZE)])
        }),
        refused("process_madvise: a negative length", EINVAL, |s| {
            s.advise_ranges(AdviceTarget::Own, &[(page(OWN, 0), PAGE_SIZE), (page(OWN, 0), u64::MAX)])
        }),
    ]
}

fn locks<I: Isa>() -> Vec<Refused<I>> {
    use Errno::{EINVAL, ENOMEM, EPERM};
    vec![
        refused("mlock: a hole first", ENOMEM, |s| s.lock(FREE, PAGE_SIZE, 0)),
        refused("mlock: unknown flags", EINVAL, |s| s.lock(OWN, PAGE_SIZE, 2)),
        refused("mlock: too much", ENOMEM, |s| {
            s.limited(Resource::Memlock, 5 * PAGE_SIZE, |s| s.lock(OWN, 2 * PAGE_SIZE, 0))
        }),
        refused("mlock: nothing may be", EPERM, |s| s.limited(Resource::Memlock, 0, |s| s.lock(OWN, PAGE_SIZE, 0))),
        refused("munlock: a hole first", ENOMEM, |s| {
            s.ask(|mm| mm.munlock(&s.scene.process.space, page(FREE, 0), PAGE_SIZE))
        }),
        refused("mlockall: of nothing", EINVAL, |s| s.lock_all(0)),
        refused("mlockall: unknown flags", EINVAL, |s| s.lock_all(9)),
        refused("mlockall: only how", EINVAL, |s| s.lock_all(4)),
        refused("mlockall: too much", ENOMEM, |s| s.limited(Resource::Memlock, 9 * PAGE_SIZE, |s| s.lock_all(1))),
        refused("mlockall: nothing may be", EPERM, |s| s.limited(Resource::Memlock, 0, |s| s.lock_all(2))),
        refused("mseal: flags", EINVAL, |s| s.seal(OWN, PAGE_SIZE, 1)),
        refused("mseal: not aligned", EINVAL, |s| s.seal(OWN + 1, PAGE_SIZE, 0)),
        refused("mseal: round the end", EINVAL, |s| s.seal(LAST, 2 * PAGE_SIZE, 0)),
        refused("mseal: a hole", ENOMEM, |s| s.seal(OWN, 17 * PAGE_SIZE, 0)),
    ]
}

fn questions<I: Isa>() -> Vec<Refused<I>> {
    use Errno::{EBUSY, EINVAL, ENOMEM};
    vec![
        refused("msync: not aligned", EINVAL, |s| s.sync(OWN + 1, PAGE_SIZE, 4)),
        refused("msync: both at once", EINVAL, |s| s.sync(OWN, PAGE_SIZE, 5)),
        refused("msync: unknown flags", EINVAL, |s| s.sync(OWN, PAGE_SIZE, 8)),
        refused("msync: a hole", ENOMEM, |s| s.sync(FREE, PAGE_SIZE, 1)),
        refused("msync: locked memory", EBUSY, |s| s.sync(LOCKED, PAGE_SIZE, 2)),
        refused("mincore: not aligned", EINVAL, |s| s.resident(OWN + 1, PAGE_SIZE)),
        refused("mincore: a hole", ENOMEM, |s| s.resident(FREE, PAGE_SIZE)),
        refused("mincore: past the end", ENOMEM, |s| s.resident(I::USER_END.raw(), PAGE_SIZE)),
    ]
}

fn files<I: Isa>() -> Vec<Refused<I>> {
    use Errno::{EBUSY, EFBIG, EINVAL, ENOSYS, EOPNOTSUPP, EPERM};
    vec![
        refused("memfd_create: unknown flags", EINVAL, |s| {
            s.ask(|mm| mm.memfd_create("bad", MemfdFlags::from_bits_retain(0x20)))
        }),
        refused("memfd_create: a long name", EINVAL, |s| {
            s.ask(|mm| mm.memfd_create(&"x".repeat(250), MemfdFlags::empty()))
        }),
        refused("memfd_create: huge pages", ENOSYS, |s| s.ask(|mm| mm.memfd_create("bad", MemfdFlags::HUGETLB))),
        refused("fallocate: no length", EINVAL, |s| s.allocate(&s.scene.memfd, 0, 0, 0)),
        refused("fallocate: a negative offset", EINVAL, |s| s.allocate(&s.scene.memfd, 0, u64::MAX, 1)),
        refused("fallocate: unknown flags", EOPNOTSUPP, |s| s.allocate(&s.scene.memfd, 0x10, 0, PAGE_SIZE)),
        refused("fallocate: a hole that may shrink", EOPNOTSUPP, |s| s.allocate(&s.scene.memfd, 2, 0, PAGE_SIZE)),
        refused("fallocate: too large", EFBIG, |s| s.allocate(&s.scene.memfd, 0, 1 << 62, PAGE_SIZE)),
        refused("fallocate: no shared memory", EOPNOTSUPP, |s| s.allocate(&s.scene.file, 0, 0, PAGE_SIZE)),
        refused("fallocate: sealed against growth", EPERM, |s| s.allocate(&s.sealed, 0, 0, 9 * PAGE_SIZE)),
        refused("fallocate: a hole in what is sealed", EPERM, |s| s.allocate(&s.sealed, 3, 0, PAGE_SIZE)),
        refused("ftruncate: too large", EFBIG, |s| s.ask(|mm| mm.truncate(&s.scene.memfd, 1 << 62))),
        refused("ftruncate: sealed against growth", EPERM, |s| s.ask(|mm| mm.truncate(&s.sealed, 9 * PAGE_SIZE))),
        refused("ftruncate: sealed against shrinking", EPERM, |s| s.ask(|mm| mm.truncate(&s.sealed, 0))),
        refused("write: sealed", EPERM, |s| s.ask(|mm| mm.write_at(&s.sealed, 0, &[1; 8]))),
        refused("write: too large", EFBIG, |s| s.ask(|mm| mm.write_at(&s.scene.memfd, 1 << 62, &[1; 8]))),
        refused("write: a negative offset", EINVAL, |s| s.ask(|mm| mm.write_at(&s.scene.memfd, u64::MAX, &[1; 8]))),
        refused("read: a negative offset", EINVAL, |s| s.ask(|mm| mm.read_at(&s.scene.memfd, u64::MAX, &mut [1; 8]))),
        refused("F_ADD_SEALS: opened to be read", EPERM, |s| {
            s.ask(|mm| mm.add_seals(&s.scene.memfd, Rights::READ, Seals::GROW))
        }),
        refused("F_ADD_SEALS: unknown", EINVAL, |s| {
            s.ask(|mm| mm.add_seals(&s.scene.memfd, Rights::RW, Seals::from_bits_retain(0x40)))
        }),
        refused("F_ADD_SEALS: no shared memory", EINVAL, |s| {
            s.ask(|mm| mm.add_seals(&s.scene.file, Rights::RW, Seals::GROW))
        }),
        refused("F_ADD_SEALS: sealed", EPERM, |s| s.ask(|mm| mm.add_seals(&s.sealed, Rights::RW, Seals::EXEC))),
        refused("F_ADD_SEALS: mapped with the right to write", EBUSY, |s| {
            s.ask(|mm| mm.add_seals(&s.scene.memfd, Rights::RW, Seals::WRITE))
        }),
    ]
}

fn pages<I: Isa>() -> Vec<Refused<I>> {
    use Errno::{EFAULT, EINVAL};
    const NONE: GupFlags = GupFlags::empty();
    const LONG: GupFlags = GupFlags::LONGTERM;
    vec![
        refused("get_user_pages: a hole", EFAULT, |s| s.take(FREE, 1, GupCall::Get(NONE))),
        refused("get_user_pages: past the end", EFAULT, |s| s.take(I::USER_END.raw(), 1, GupCall::GetFast(NONE))),
        refused("get_user_pages: for long", EINVAL, |s| s.take(OWN, 1, GupCall::Get(LONG))),
        refused("get_user_pages: unknown flags", EINVAL, |s| {
            s.take(OWN, 1, GupCall::Get(GupFlags::from_bits_retain(1 << 20)))
        }),
        refused("get_user_pages: to write without the right", EFAULT, |s| {
            s.take(READ_ONLY, 1, GupCall::GetFast(GupFlags::WRITE))
        }),
        refused("get_user_pages: without a fault", EFAULT, |s| {
            s.take(OWN + 3 * PAGE_SIZE, 1, GupCall::Get(GupFlags::NOFAULT))
        }),
        refused("pin_user_pages: a guard", EFAULT, |s| s.take(GUARDED + PAGE_SIZE, 1, GupCall::Pin(NONE))),
        refused("pin_user_pages: a file, for long, to write", EFAULT, |s| {
            s.take(FILE_SHARED, 1, GupCall::Pin(LONG | GupFlags::WRITE))
        }),
    ]
}

fn users<I: Isa>() -> Vec<Refused<I>> {
    use Errno::{EFAULT, EINVAL};
    fn left(bytes: usize, all: usize) -> Result<(), Errno> {
        if bytes == all { Err(EFAULT) } else { Ok(()) }
    }
    vec![
        refused("copy_from_user: a hole", EFAULT, |s| {
            left(s.scene.on(|mm| mm.copy_from_user(&s.scene.process.space, page(FREE, 0), &mut [0; 8])), 8)
        }),
        refused("copy_to_user: past the end", EFAULT, |s| {
            left(s.scene.on(|mm| mm.copy_to_user(&s.scene.process.space, I::USER_END, &[0; 8])), 8)
        }),
        refused("clear_user: without the right", EFAULT, |s| {
            left(s.scene.on(|mm| mm.clear_user(&s.scene.process.space, page(READ_ONLY, 0), 8)), 8)
        }),
        refused("strncpy_from_user: a guard", EFAULT, |s| {
            s.ask(|mm| mm.strncpy_from_user(&s.scene.process.space, page(GUARDED, 1), &mut [0; 8]))
        }),
        refused("get_user: a hole", EFAULT, |s| s.ask(|mm| mm.get_user::<u64>(&s.scene.process.space, page(FREE, 0)))),
        refused("put_user: without the right", EFAULT, |s| {
            s.ask(|mm| mm.put_user(&s.scene.process.space, page(READ_ONLY, 0), 5u64))
        }),
        refused("process_vm_readv: flags", EINVAL, |s| s.vm(&[(OWN, 8)], &[(OWN, 8)], 1, false)),
        refused("process_vm_readv: too many pieces", EINVAL, |s| s.vm(&[(OWN, 8); 1025], &[(OWN, 8)], 0, false)),
        refused("process_vm_readv: a negative length", EINVAL, |s| s.vm(&[(OWN, u64::MAX)], &[(OWN, 8)], 0, false)),
        refused("process_vm_readv: to what is no user's", EFAULT, |s| {
            s.vm(&[(I::USER_END.raw(), 8)], &[(OWN, 8)], 0, false)
        }),
        refused("process_vm_readv: from a hole", EFAULT, |s| s.vm(&[(OWN, 8)], &[(FREE, 8)], 0, false)),
        refused("process_vm_writev: without the right", EFAULT, |s| {
            s.vm(&[(OWN, 8)], &[(GUARDED + PAGE_SIZE, 8)], 0, true)
        }),
        refused("futex: not aligned", EINVAL, |s| s.futex(OWN + 2)),
        refused("futex: a hole", EFAULT, |s| s.futex(FREE)),
        refused("futex: past the end", EFAULT, |s| s.futex(I::USER_END.raw())),
        refused("futex: what can only be read", EFAULT, |s| s.futex(READ_ONLY)),
    ]
}

fn swap<I: Isa>() -> Vec<Refused<I>> {
    use Errno::EINVAL;
    vec![
        refused("swapon, a priority below 0", EINVAL, |s| {
            s.scene.ask(|mm| mm.swap_on_with(SwapBacking::Zram(Zram::try_new(mm, 8, None)?), 8, Some(-1)))
        }),
        refused("swapoff, nothing there", EINVAL, |s| s.scene.ask(|mm| mm.swap_off(0))),
        refused("swapoff, no such number", EINVAL, |s| s.scene.ask(|mm| mm.swap_off(u8::MAX))),
    ]
}

fn accesses<I: Isa>() -> Vec<Refused<I>> {
    use Errno::{EACCES, EFAULT, EIO};
    vec![
        refused("a load where nothing is", EFAULT, |s| s.access(FREE, Access::Read)),
        refused("a store without the right", EACCES, |s| s.access(READ_ONLY, Access::Write)),
        refused("a fetch without the right", EACCES, |s| s.access(OWN, Access::Exec)),
        refused("a store to a guard", EFAULT, |s| s.access(GUARDED + PAGE_SIZE, Access::Write)),
        refused("a load of a guard in shared memory", EFAULT, |s| s.access(SHARED + 5 * PAGE_SIZE, Access::Read)),
        refused("a load past the end of a file", EIO, |s| {
            // The mapping of the memfd ends with it: one page of it is cut off, and comes back
            // empty.
            s.ask(|mm| mm.truncate(&s.scene.memfd, (FILE_PAGES - 1) * PAGE_SIZE))?;
            let answer = s.access(MEMFD + (FILE_PAGES - 1) * PAGE_SIZE, Access::Read);
            s.ask(|mm| mm.truncate(&s.scene.memfd, FILE_PAGES * PAGE_SIZE))?;
            answer
        }),
        refused("a load below a stack that may not grow", EFAULT, |s| {
            s.limited(Resource::Stack, 4 * PAGE_SIZE, |s| s.access(STACK - PAGE_SIZE, Access::Read))
        }),
    ]
}
