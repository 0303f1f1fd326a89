//! Locked and sealed memory, the limits of a space, and what the machine promises.
//!
//! On both instruction sets, with Linux's answers.

use pagewright_arch::on_both;
use pagewright_arch::{Isa, X86_64};
use pagewright_lab::Lab;
use pagewright_mm::file::MemfdFlags;
use pagewright_mm::space::{FileMapping, Privileges, Resource, Rlimits};
use pagewright_mm::{
    FaultError, LockAllFlags, LockFlags, MapFlags, MapRequest, Mm, MmError, MmSetting, MmSettings, RemapFlags,
    RemapRequest, Space,
};
use pagewright_sim::{MachineConfig, Sim};
use pagewright_sync::Arc;
use pagewright_types::{Access, CpuId, Errno, PAGE_SIZE, Rights, VirtAddr};

const CPU: CpuId = CpuId::new(0);

on_both! {
    locked_memory_is_there_and_counted,
    the_limit_of_locked_memory_holds,
    future_mappings_are_locked,
    what_can_not_be_locked_says_why,
    sealed_mappings_stay_as_they_are,
    a_refusal_precedes_the_limit_of_mappings,
    address_space_and_data_are_limited,
    stacks_keep_their_distance,
    promises_are_counted_and_taken_back,
    promises_are_refused_by_policy,
    shared_memory_is_charged_by_page,
}

struct Bed<I: Isa> {
    lab: Lab<I>,
    space: Arc<Space<Sim<I>>>,
}

const NONE: Rights = Rights::empty();
const PRIVATE: MapFlags = MapFlags::PRIVATE;
const AT: u64 = 0x10_0000_0000;

fn page(base: VirtAddr, index: u64) -> VirtAddr {
    base.add(index * PAGE_SIZE)
}

impl<I: Isa> Bed<I> {
    fn new() -> Self {
        let config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
        let lab = Lab::new(config, MmSettings::default()).expect("a possible machine");
        let space = lab.on(CPU, Mm::new_space).expect("memory for a space");
        lab.run(CPU, &space);
        Self { lab, space }
    }

    fn limit(&self, resource: Resource, bytes: u64) {
        let limits = *self.space.map().read().limits();
        self.on(|mm, space| mm.set_limits(space, limits.with(resource, bytes)));
    }

    fn on<T>(&self, operation: impl FnOnce(&Mm<Sim<I>>, &Space<Sim<I>>) -> T) -> T {
        self.lab.on(CPU, |mm| operation(mm, &self.space))
    }

    /// In Linux's words: what the call gave, or why it failed.
    fn call<T>(&self, operation: impl FnOnce(&Mm<Sim<I>>, &Space<Sim<I>>) -> Result<T, MmError>) -> Result<T, Errno> {
        self.on(operation).map_err(MmError::errno)
    }

    fn map(&self, at: u64, pages: u64, rights: Rights, flags: MapFlags) -> Result<VirtAddr, Errno> {
        let fixed = if at == 0 { MapFlags::empty() } else { MapFlags::FIXED };
        let (addr, flags) = (VirtAddr::new(at), flags | fixed | MapFlags::ANONYMOUS);
        let request = MapRequest { addr, len: pages * PAGE_SIZE, rights, flags, file: None };
        self.call(|mm, space| mm.mmap(space, &request))
    }

    fn remap(&self, addr: VirtAddr, old: u64, new: u64) -> Result<VirtAddr, Errno> {
        let (old_len, new_len) = (old * PAGE_SIZE, new * PAGE_SIZE);
        let request = RemapRequest { addr, old_len, new_len, flags: RemapFlags::MAYMOVE, new_addr: VirtAddr::ZERO };
        self.call(|mm, space| mm.mremap(space, &request))
    }

    fn lock(&self, addr: VirtAddr, pages: u64) -> Result<(), Errno> {
        self.call(|mm, space| mm.mlock(space, addr, pages * PAGE_SIZE))
    }

    fn locked(&self) -> u64 {
        self.space.map().read().totals().locked
    }

    fn mappings(&self) -> usize {
        self.space.map().read().len()
    }

    fn touch(&self, va: VirtAddr, access: Access) -> bool {
        self.lab.touch(CPU, &self.space, va, access, 1).is_ok()
    }

    fn end(self) {
        self.on(|mm, space| {
            mm.tlb().leave_space();
            mm.end_space(space);
        });
        assert_eq!(self.lab.mm().committed(), 0, "INV-MM-COMMITTED: a space that ended was promised nothing");
    }
}

fn locked_memory_is_there_and_counted<I: Isa>() {
    let bed = Bed::<I>::new();
    let base = bed.map(AT, 8, Rights::RW, PRIVATE).expect("room");
    assert_eq!(bed.lock(page(base, 2).add(1), 2), Ok(()), "the three pages that it touches");
    assert_eq!((bed.locked(), bed.space.rss().pages(), bed.mappings()), (3, 3, 3));
    assert_eq!(bed.call(|mm, space| mm.mlock2(space, base, PAGE_SIZE, LockFlags::ONFAULT)), Ok(()));
    assert_eq!((bed.locked(), bed.space.rss().pages()), (4, 3));
    let mut status = String::new();
    bed.on(|mm, space| mm.show_status(space, &mut status)).expect("a string takes everything");
    assert!(status.contains("VmLck:\t      16 kB\n"), "{status}");
    let child = bed.lab.on(CPU, |mm| mm.fork(&bed.space)).expect("memory");
    assert_eq!(child.map().read().totals().locked, 0, "locks are not inherited");
    bed.lab.on(CPU, |mm| mm.end_space(&child));
    let moved = bed.remap(page(base, 2), 3, 5).expect("room");
    assert_eq!((bed.locked(), bed.space.rss().pages()), (6, 5), "locked still, and all there");
    bed.call(|mm, space| mm.munlock(space, moved, 5 * PAGE_SIZE)).expect("mapped");
    bed.on(|mm, space| mm.munlockall(space));
    assert_eq!((bed.locked(), bed.space.rss().pages()), (0, 5));
    // Read-only and then writable: the pages of a locked mapping are its own before they are stored
    // to.
    let base = bed.map(0, 2, Rights::READ, PRIVATE | MapFlags::LOCKED).expect("room");
    let before = bed.space.rss().pages();
    bed.call(|mm, space| mm.mprotect(space, base, 2 * PAGE_SIZE, Rights::RW)).expect("mapped");
    assert_eq!(bed.space.rss().pages(), before + 2);
    bed.end();
}

/// INV-LOCK-LIMIT.
fn the_limit_of_locked_memory_holds<I: Isa>() {
    let bed = Bed::<I>::new();
    bed.limit(Resource::Memlock, 4 * PAGE_SIZE + 17);
    let base = bed.map(AT, 16, Rights::RW, PRIVATE).expect("room");
    let last = VirtAddr::new(0_u64.wrapping_sub(PAGE_SIZE));
    let beyond = |pages| bed.on(|mm, space| mm.mlock(space, last, pages * PAGE_SIZE).expect_err("no memory"));
    assert!(!matches!(beyond(4), MmError::OverLockLimit { .. }), "so many may be locked");
    assert!(matches!(beyond(5), MmError::OverLockLimit { pages: 5, .. }), "the limit is looked at first");
    assert_eq!(bed.lock(base, 5), Err(Errno::ENOMEM));
    assert_eq!(bed.lock(base, 4), Ok(()));
    assert_eq!(bed.lock(page(base, 2), 2), Ok(()), "what is locked counts once");
    assert_eq!(bed.lock(page(base, 3), 2), Err(Errno::ENOMEM));
    assert_eq!(bed.map(0, 1, Rights::RW, PRIVATE | MapFlags::LOCKED), Err(Errno::EAGAIN));
    assert_eq!(bed.remap(base, 4, 5), Err(Errno::EAGAIN));
    assert_eq!(bed.call(|mm, space| mm.mlockall(space, LockAllFlags::CURRENT)), Err(Errno::ENOMEM));
    assert_eq!(bed.locked(), 4);
    bed.on(|mm, space| {
        let limits = *space.map().read().limits();
        mm.set_limits(space, limits.with_privileges(Privileges::IPC_LOCK));
    });
    assert_eq!(bed.lock(base, 16), Ok(()));
    bed.on(|mm, space| mm.munlockall(space));
    bed.on(|mm, space| mm.set_limits(space, Rlimits::default().with(Resource::Memlock, 0)));
    assert_eq!(bed.lock(base, 1), Err(Errno::EPERM));
    assert_eq!(bed.map(0, 1, Rights::RW, PRIVATE | MapFlags::LOCKED), Err(Errno::EPERM));
    bed.end();
}

fn future_mappings_are_locked<I: Isa>() {
    let bed = Bed::<I>::new();
    bed.limit(Resource::Memlock, 8 * PAGE_SIZE);
    let old = bed.map(AT, 2, Rights::RW, PRIVATE).expect("room");
    bed.on(|mm, space| mm.set_brk_start(space, VirtAddr::new(0x40_0000)));
    let lock = |flags| bed.call(|mm, space| mm.mlockall(space, flags));
    for bad in [LockAllFlags::empty(), LockAllFlags::ONFAULT, LockAllFlags::from_bits_retain(8)] {
        assert_eq!(lock(bad), Err(Errno::EINVAL));
    }
    assert_eq!(lock(LockAllFlags::FUTURE), Ok(()));
    assert_eq!(bed.locked(), 0);
    bed.map(0, 3, Rights::RW, PRIVATE).expect("room");
    let end = bed.on(|mm, space| mm.brk(space, VirtAddr::new(0x40_2000)));
    assert_eq!((end, bed.locked(), bed.space.rss().pages()), (VirtAddr::new(0x40_2000), 5, 5));
    assert_eq!(bed.map(0, 4, Rights::RW, PRIVATE), Err(Errno::EAGAIN));
    let stays = bed.on(|mm, space| mm.brk(space, VirtAddr::new(0x40_7000)));
    assert_eq!(stays, end, "a heap that may not be locked does not grow");
    assert_eq!(lock(LockAllFlags::CURRENT | LockAllFlags::ONFAULT), Ok(()));
    assert_eq!((bed.locked(), bed.space.rss().pages()), (7, 5), "locked as they are touched");
    bed.map(0, 4, Rights::RW, PRIVATE).expect("the future is unlocked again");
    assert!(bed.touch(old, Access::Write));
    bed.end();
}

/// Answers as Linux 6.18 gives them.
fn what_can_not_be_locked_says_why<I: Isa>() {
    let bed = Bed::<I>::new();
    let base = bed.map(AT, 8, Rights::RW, PRIVATE).expect("room");
    assert_eq!(bed.lock(base, 16), Err(Errno::ENOMEM), "a hole");
    assert_eq!(bed.locked(), 8, "what lies before it is locked");
    let lock = |len| bed.call(|mm, space| mm.mlock(space, base, len));
    assert_eq!(lock(u64::MAX), Ok(()), "a length that wraps to 0");
    assert_eq!(lock(u64::MAX - 2 * PAGE_SIZE), Err(Errno::ENOMEM), "more than the limit is asked first");
    let overflow = bed.call(|mm, space| mm.munlock(space, base, u64::MAX - 2 * PAGE_SIZE));
    assert_eq!(overflow, Err(Errno::EINVAL));
    assert_eq!(bed.lock(VirtAddr::new(0x1_0000), 0), Ok(()));
    let bad = bed.call(|mm, space| mm.mlock2(space, base, PAGE_SIZE, LockFlags::from_bits_retain(2)));
    assert_eq!(bad, Err(Errno::EINVAL));
    let barred = bed.map(0, 4, NONE, PRIVATE).expect("room");
    assert_eq!(bed.lock(barred, 1), Err(Errno::ENOMEM), "no access brings the page");
    assert_eq!(bed.locked(), 9, "it is locked all the same");
    bed.end();
}

fn sealed_mappings_stay_as_they_are<I: Isa>() {
    let bed = Bed::<I>::new();
    let base = bed.map(AT, 8, Rights::RW, PRIVATE).expect("room");
    let seal = |at, len, flags| bed.call(|mm, space| mm.mseal(space, at, len, flags));
    assert_eq!(seal(base, PAGE_SIZE, 1), Err(Errno::EINVAL));
    assert_eq!(seal(base.add(1), PAGE_SIZE, 0), Err(Errno::EINVAL));
    assert_eq!(seal(base, u64::MAX, 0), Err(Errno::EINVAL));
    assert_eq!(seal(page(base, 6), 4 * PAGE_SIZE, 0), Err(Errno::ENOMEM), "a hole");
    assert_eq!(bed.mappings(), 1, "nothing is sealed then");
    assert_eq!(seal(page(base, 2), 2 * PAGE_SIZE, 0), Ok(()));
    assert_eq!(bed.mappings(), 3);
    let all = 8 * PAGE_SIZE;
    assert_eq!(bed.call(|mm, space| mm.munmap(space, base, all)), Err(Errno::EPERM));
    assert_eq!(bed.remap(page(base, 2), 1, 2), Err(Errno::EPERM));
    assert_eq!(bed.remap(page(base, 2), 1, 1), Err(Errno::EPERM));
    assert_eq!(bed.map(AT, 4, Rights::RW, PRIVATE), Err(Errno::EPERM));
    let onto = RemapRequest {
        addr: page(base, 6),
        old_len: PAGE_SIZE,
        new_len: PAGE_SIZE,
        flags: RemapFlags::MAYMOVE | RemapFlags::FIXED,
        new_addr: page(base, 2),
    };
    assert_eq!(bed.call(|mm, space| mm.mremap(space, &onto)), Err(Errno::EPERM));
    assert_eq!(bed.mappings(), 3);
    assert_eq!(bed.call(|mm, space| mm.mprotect(space, base, all, Rights::READ)), Err(Errno::EPERM));
    let rights: Vec<_> = bed.space.map().read().iter().map(|(_, vma)| vma.rights()).collect();
    assert_eq!(rights, [Rights::READ, Rights::RW, Rights::RW], "what lies before it has changed, as in Linux");
    assert_eq!(bed.lock(page(base, 2), 1), Ok(()), "it may be locked");
    let mut smaps = String::new();
    bed.on(|mm, space| mm.show_smaps(space, &mut smaps)).expect("a string takes everything");
    assert!(smaps.contains("Locked:                4 kB\n"), "{smaps}");
    assert!(smaps.contains("VmFlags: rd wr mr mw me lo ac sd sl \n"), "{smaps}");
    bed.end();
}

/// Linux splits nothing before it has checked the mapping (`mprotect_fixup`).
fn a_refusal_precedes_the_limit_of_mappings<I: Isa>() {
    let bed = Bed::<I>::new();
    let base = bed.map(AT, 4, Rights::RW, PRIVATE).expect("room");
    assert_eq!(bed.call(|mm, space| mm.mseal(space, base, 4 * PAGE_SIZE, 0)), Ok(()));
    bed.lab.mm().settings().set(MmSetting::MaxMapCount, 1).expect("a possible limit");
    let protected = bed.call(|mm, space| mm.mprotect(space, page(base, 1), PAGE_SIZE, Rights::READ));
    assert_eq!((protected, bed.mappings()), (Err(Errno::EPERM), 1));
    bed.end();
}

#[cfg(feature = "planted")]
#[test]
fn a_call_that_splits_for_nothing_is_found() {
    use pagewright_arch::Aarch64;
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::SplitsForNothing, a_refusal_precedes_the_limit_of_mappings::<X86_64>);
    assert_found_by(PlantedBug::SplitsForNothing, a_refusal_precedes_the_limit_of_mappings::<Aarch64>);
}

fn address_space_and_data_are_limited<I: Isa>() {
    let bed = Bed::<I>::new();
    let base = bed.map(AT, 8, Rights::RW, PRIVATE).expect("room");
    bed.limit(Resource::AddressSpace, 12 * PAGE_SIZE);
    assert_eq!(bed.map(0, 5, NONE, PRIVATE), Err(Errno::ENOMEM));
    assert_eq!(bed.map(AT, 12, Rights::RW, PRIVATE), Ok(base), "what is replaced makes room");
    assert_eq!(bed.remap(base, 12, 13), Err(Errno::ENOMEM));
    bed.limit(Resource::AddressSpace, Rlimits::INFINITY);
    bed.limit(Resource::Data, 14 * PAGE_SIZE);
    assert_eq!(bed.map(0, 3, Rights::RW, PRIVATE), Err(Errno::ENOMEM));
    let shared = bed.map(0, 3, Rights::RW, MapFlags::SHARED);
    assert!(shared.is_ok(), "shared memory is no data");
    let code = bed.map(0, 3, Rights::READ, PRIVATE).expect("no data");
    let protect = |pages| bed.call(|mm, space| mm.mprotect(space, code, pages * PAGE_SIZE, Rights::RW));
    assert_eq!((protect(3), protect(2)), (Err(Errno::ENOMEM), Ok(())));
    assert_eq!(bed.space.map().read().totals().data, 14);
    // What is data already may stay so, whatever the limit.
    bed.limit(Resource::Data, 16 * PAGE_SIZE);
    let both = bed.call(|mm, space| mm.mprotect(space, page(code, 1), 2 * PAGE_SIZE, Rights::all()));
    assert_eq!((both, bed.space.map().read().totals().data), (Ok(()), 15));
    bed.limit(Resource::Data, 15 * PAGE_SIZE);
    bed.on(|mm, space| mm.set_brk_start(space, VirtAddr::new(0x40_0000)));
    let end = bed.on(|mm, space| mm.brk(space, VirtAddr::new(0x40_1000)));
    assert_eq!(end, VirtAddr::new(0x40_0000));
    bed.end();
}

fn stacks_keep_their_distance<I: Isa>() {
    let bed = Bed::<I>::new();
    bed.lab.mm().settings().set(MmSetting::StackGuardGap, 4).expect("a gap");
    let stack = bed.map(AT + 64 * PAGE_SIZE, 2, Rights::RW, PRIVATE | MapFlags::GROWSDOWN | MapFlags::STACK);
    let stack = stack.expect("room");
    bed.map(AT, 32, Rights::RW, PRIVATE).expect("room");
    let below = |pages: u64| VirtAddr::new(stack.raw() - pages * PAGE_SIZE);
    let committed = bed.lab.mm().committed();
    assert!(bed.touch(below(8), Access::Write));
    assert_eq!(bed.lab.mm().committed(), committed + 8);
    assert!(!bed.touch(below(29), Access::Write), "too near to what lies below");
    assert!(bed.touch(below(28), Access::Write));
    bed.limit(Resource::AddressSpace, (32 + 30) * PAGE_SIZE);
    bed.call(|mm, space| mm.munmap(space, VirtAddr::new(AT), PAGE_SIZE)).expect("mapped");
    bed.call(|mm, space| mm.mprotect(space, page(VirtAddr::new(AT), 30), 2 * PAGE_SIZE, NONE)).expect("mapped");
    assert!(!bed.touch(below(30), Access::Write), "more than the address space may have");
    bed.limit(Resource::AddressSpace, Rlimits::INFINITY);
    assert!(bed.touch(below(30), Access::Write), "a mapping without rights needs no distance");
    bed.end();
}

fn promises_are_counted_and_taken_back<I: Isa>() {
    let bed = Bed::<I>::new();
    let committed = || bed.lab.mm().committed();
    let base = bed.map(AT, 8, Rights::RW, PRIVATE).expect("room");
    assert_eq!(committed(), 8);
    bed.map(AT, 4, Rights::RW, PRIVATE).expect("room");
    assert_eq!(committed(), 8, "replaced");
    bed.map(0, 4, Rights::RW, PRIVATE | MapFlags::NORESERVE).expect("room");
    bed.map(0, 4, Rights::READ, PRIVATE).expect("room");
    assert_eq!(committed(), 8);
    bed.map(AT + 8 * PAGE_SIZE, 3, Rights::READ, PRIVATE).expect("room");
    let protect = |rights| bed.call(|mm, space| mm.mprotect(space, page(base, 9), PAGE_SIZE, rights));
    assert_eq!((protect(Rights::RW), committed()), (Ok(()), 9));
    assert_eq!((protect(Rights::READ), committed()), (Ok(()), 8), "nothing was stored there");
    protect(Rights::RW).expect("mapped");
    assert!(bed.touch(page(base, 9), Access::Write));
    assert_eq!((protect(Rights::READ), committed()), (Ok(()), 9), "something was");
    let shared = bed.map(0, 5, Rights::READ, MapFlags::SHARED).expect("room");
    assert_eq!(committed(), 14, "shared memory is promised when it is made, whatever its rights");
    let child = bed.lab.on(CPU, |mm| mm.fork(&bed.space)).expect("memory");
    assert_eq!(committed(), 23);
    bed.call(|mm, space| mm.munmap(space, shared, 5 * PAGE_SIZE)).expect("mapped");
    assert_eq!(committed(), 23, "the child has it still");
    bed.lab.on(CPU, |mm| mm.end_space(&child));
    assert_eq!(committed(), 9);
    bed.end();
}

fn promises_are_refused_by_policy<I: Isa>() {
    let bed = Bed::<I>::new();
    let mm = bed.lab.mm();
    let ram = mm.tlb().frames().managed();
    let set = |setting, value| mm.settings().set(setting, value).expect("a value that it takes");
    assert_eq!(bed.map(0, ram + 1, Rights::RW, PRIVATE), Err(Errno::ENOMEM), "more than the machine has, at once");
    for index in 1..4 {
        bed.map(AT * index, ram, Rights::RW, PRIVATE).expect("but not one after the other");
    }
    let child = bed.lab.on(CPU, |mm| mm.fork(&bed.space)).expect("mapping by mapping");
    bed.lab.on(CPU, |mm| mm.end_space(&child));
    set(MmSetting::OvercommitMemory, 1);
    let base = bed.map(AT, 2 * ram, Rights::RW, PRIVATE).expect("everything goes");
    set(MmSetting::OvercommitMemory, 2);
    assert_eq!(bed.map(0, 1, Rights::RW, PRIVATE), Err(Errno::ENOMEM));
    assert_eq!(bed.map(0, 1, Rights::RW, PRIVATE | MapFlags::NORESERVE), Err(Errno::ENOMEM), "not honoured here");
    assert!(bed.map(0, 1, Rights::READ, PRIVATE).is_ok());
    bed.call(|mm, space| mm.munmap(space, VirtAddr::ZERO, I::USER_END.raw())).expect("everything goes");
    assert_eq!(mm.committed(), 0);
    assert_eq!(mm.commit_limit(), ram / 2);
    set(MmSetting::OvercommitKbytes, 1000 * PAGE_SIZE / 1024);
    set(MmSetting::AdminReserveKbytes, 100 * PAGE_SIZE / 1024);
    assert_eq!(mm.commit_limit(), 1000);
    bed.map(AT, 320, Rights::RW, PRIVATE).expect("within the limit");
    // A 32nd of what is mapped is kept back: 10 pages.
    assert_eq!(bed.remap(base, 320, 890), Err(Errno::ENOMEM));
    assert_eq!(bed.remap(base, 320, 889), Ok(base));
    assert_eq!(mm.committed(), 889);
    assert_eq!(bed.lab.on(CPU, |mm| mm.fork(&bed.space)).map(drop).map_err(MmError::errno), Err(Errno::ENOMEM));
    assert_eq!(mm.committed(), 889, "a fork that failed was promised nothing");
    let privileged = Rlimits::default().with_privileges(Privileges::SYS_ADMIN);
    bed.on(|mm, space| mm.set_limits(space, privileged));
    assert!(bed.map(0, 80, Rights::RW, PRIVATE).is_ok(), "what is kept for an administrator");
    bed.end();
}

/// Shared memory that no mapping made is charged page by page.
///
/// A touch of more than the machine promises gets `SIGBUS`.
fn shared_memory_is_charged_by_page<I: Isa>() {
    let bed = Bed::<I>::new();
    let mm = bed.lab.mm();
    let file = bed.lab.on(CPU, |mm| mm.memfd_create("it", MemfdFlags::empty())).expect("memory");
    bed.lab.on(CPU, |mm| mm.truncate(&file, 8 * PAGE_SIZE)).expect("not sealed");
    let mapping = FileMapping { file: &file, offset: 0, opened: Rights::RW };
    let (len, rights, flags) = (8 * PAGE_SIZE, Rights::RW, MapFlags::SHARED);
    let request = MapRequest { addr: VirtAddr::ZERO, len, rights, flags, file: Some(mapping) };
    let base = bed.call(|mm, space| mm.mmap(space, &request)).expect("room");
    assert_eq!(mm.committed(), 0);
    assert!(bed.touch(base, Access::Write) && bed.touch(page(base, 1), Access::Read));
    assert_eq!(mm.committed(), 2);
    mm.settings().set(MmSetting::OvercommitMemory, 2).expect("a policy");
    mm.settings().set(MmSetting::OvercommitKbytes, 4).expect("a limit");
    let fault = bed.on(|mm, space| mm.fault(space, page(base, 2), Access::Write));
    assert_eq!(fault, Err(FaultError::Device { index: 2, errno: Errno::ENOSPC }));
    bed.lab.on(CPU, |mm| mm.truncate(&file, PAGE_SIZE)).expect("not sealed");
    assert_eq!(mm.committed(), 1);
    bed.lab.on(CPU, |mm| mm.forget_file(&file));
    bed.end();
}

#[test]
fn meminfo_has_the_lines_of_linux() {
    let bed = Bed::<X86_64>::new();
    bed.map(AT, 3, Rights::RW, PRIVATE).expect("room");
    let mut ours = String::new();
    bed.on(|mm, _| mm.show_meminfo(&mut ours)).expect("a string takes everything");
    let linux = std::fs::read_to_string("/proc/meminfo").expect("Linux");
    let columns = |line: &str| line.split_once(':').map(|(name, rest)| (name.to_owned(), rest.len() + name.len()));
    let theirs: Vec<_> = linux.lines().filter_map(columns).collect();
    let places: Vec<_> =
        ours.lines().map(|line| theirs.iter().position(|their| Some(their) == columns(line).as_ref())).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{ours}");
    assert!(ours.contains("Committed_AS:         12 kB\n"), "{ours}");
    bed.end();
}
