//! The memory manager on the simulated machine: what calls and faults do.
//!
//! Nothing is left over afterwards, on both instruction sets.

use pagewright_arch::Isa;
use pagewright_arch::on_both;
use pagewright_lab::Lab;
use pagewright_lab::harness::files::DiskFile;
use pagewright_mm::counters::{Gauge, RssKind};
use pagewright_mm::file::FileKind;
use pagewright_mm::space::{FileMapping, Resource, Rlimits};
use pagewright_mm::{Advice, FaultError, MapFlags, MapRequest, MmError, MmSetting, MmSettings, Space};
use pagewright_sim::{MachineConfig, Sim};
use pagewright_sync::Arc;
use pagewright_types::{Access, Counter, CpuId, Errno, PAGE_SIZE, Rights, VirtAddr};

const CPU: CpuId = CpuId::new(0);
const OTHER: CpuId = CpuId::new(1);

on_both! {
    anonymous_memory_comes_zeroed_and_goes_without_a_trace,
    a_read_maps_the_zero_page_and_a_write_replaces_it,
    fork_shares_pages_until_one_side_writes,
    unmapping_reaches_the_other_cpus,
    lowering_rights_reaches_the_other_cpus,
    protect_splits_and_merges_mappings,
    files_are_shared_through_the_cache_and_copied_when_private,
    fault_around_maps_what_is_cached,
    shared_anonymous_memory_is_shared_with_children,
    the_heap_grows_and_shrinks,
    a_stack_grows_to_its_limit_and_no_further,
    bad_calls_say_why_and_change_nothing,
    calls_past_user_memory_do_what_lies_before_it,
    every_allocation_can_fail_and_leaves_no_trace,
    the_reverse_map_finds_every_mapping,
    truncation_unmaps_everywhere,
    generations_of_forks_are_bounded,
}

fn lab<I: Isa>() -> Lab<I> {
    let config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
    Lab::new(config, MmSettings::default()).expect("a possible machine")
}

struct Process<'a, I: Isa> {
    lab: &'a Lab<I>,
    space: Arc<Space<Sim<I>>>,
}

impl<'a, I: Isa> Process<'a, I> {
    fn new(lab: &'a Lab<I>) -> Self {
        let space = lab.on(CPU, |mm| mm.new_space()).expect("memory for a space");
        lab.run(CPU, &space);
        Self { lab, space }
    }

    fn map(&self, len: u64, rights: Rights, flags: MapFlags) -> Result<VirtAddr, MmError> {
        self.map_at(VirtAddr::ZERO, len, rights, flags)
    }

    fn map_at(&self, addr: VirtAddr, len: u64, rights: Rights, flags: MapFlags) -> Result<VirtAddr, MmError> {
        let request = MapRequest { addr, len, rights, flags: flags | MapFlags::ANONYMOUS, file: None };
        self.lab.on(CPU, |mm| mm.mmap(&self.space, &request))
    }

    fn anon(&self, pages: u64) -> VirtAddr {
        self.map(pages * PAGE_SIZE, Rights::RW, MapFlags::PRIVATE).expect("room for a mapping")
    }

    fn touch(&self, cpu: CpuId, va: VirtAddr, access: Access) -> Result<(), FaultError> {
        self.lab.run(cpu, &self.space);
        self.lab.touch(cpu, &self.space, va, access, 1)
    }

    fn write(&self, va: VirtAddr, value: u64) {
        self.touch(CPU, va, Access::Write).expect("a writable page");
        self.store(va, value);
    }

    /// Stores through the translation that the last access left.
    fn store(&self, va: VirtAddr, value: u64) {
        let at = self.lab.sim().access(CPU, va, Access::Write, 1).expect("just touched");
        let word = at.pfn.base().raw() / 8 + va.page_offset() / 8;
        self.lab.sim().ram()[word as usize].store(value, std::sync::atomic::Ordering::Relaxed);
    }

    fn read(&self, va: VirtAddr) -> u64 {
        self.touch(CPU, va, Access::Read).expect("a readable page");
        let at = self.lab.sim().access(CPU, va, Access::Read, 1).expect("just touched");
        let word = at.pfn.base().raw() / 8 + va.page_offset() / 8;
        self.lab.sim().ram()[word as usize].load(std::sync::atomic::Ordering::Relaxed)
    }

    fn fork(&self) -> Self {
        let space = self.lab.on(CPU, |mm| mm.fork(&self.space)).expect("memory for a child");
        Self { lab: self.lab, space }
    }

    fn mappings(&self) -> usize {
        self.space.map().read().len()
    }

    fn end(self) {
        for cpu in [CPU, OTHER] {
            self.lab.on(cpu, |mm| mm.tlb().leave_space());
        }
        self.lab.on(CPU, |mm| mm.end_space(&self.space));
    }
}

fn page(base: VirtAddr, index: u64) -> VirtAddr {
    base.add(index * PAGE_SIZE)
}

/// Everything that is counted in pages, except the page caches of files.
fn levels<I: Isa>(lab: &Lab<I>) -> Vec<u64> {
    lab.on(CPU, |mm| Gauge::ALL.iter().map(|gauge| mm.gauge(*gauge)).collect())
}

/// A process with one page, which has the value 5 and is in the TLBs of two CPUs.
fn page_of_two_cpus<I: Isa>(lab: &Lab<I>) -> (Process<'_, I>, VirtAddr) {
    let process = Process::new(lab);
    let base = process.anon(1);
    process.write(base, 5);
    assert_eq!(process.touch(OTHER, base, Access::Write), Ok(()));
    (process, base)
}

/// Ends the last process; then every level is as before the first.
fn end_without_trace<I: Isa>(process: Process<'_, I>, before: &[u64]) {
    let lab = process.lab;
    process.end();
    assert_eq!(levels(lab), before);
}

fn anonymous_memory_comes_zeroed_and_goes_without_a_trace<I: Isa>() {
    let lab = lab::<I>();
    let before = levels(&lab);
    let process = Process::new(&lab);
    let base = process.anon(600);
    for index in 0..600 {
        assert_eq!(process.read(page(base, index)), 0);
        process.write(page(base, index), index + 1);
    }
    for index in 0..600 {
        assert_eq!(process.read(page(base, index)), index + 1);
    }
    assert_eq!(process.space.rss().of(RssKind::Anon), 600);
    // 600 pages below the top of the mapping area straddle two or three last-level tables, one PMD
    // and one PUD table.
    assert!((4..=5).contains(&(process.space.table().bytes() / PAGE_SIZE)));
    end_without_trace(process, &before);
}

fn a_read_maps_the_zero_page_and_a_write_replaces_it<I: Isa>() {
    let lab = lab::<I>();
    let process = Process::new(&lab);
    let base = process.anon(2);
    assert_eq!(process.touch(CPU, base, Access::Read), Ok(()));
    assert_eq!(process.space.rss().pages(), 0, "the zero page is not resident");
    assert_eq!(process.touch(CPU, base, Access::Write), Ok(()));
    assert_eq!(process.space.rss().pages(), 1);
    assert_eq!(process.touch(CPU, base, Access::Write), Ok(()));
    assert_eq!(process.space.minor_faults(), 2, "no fault once it is its own");
    process.store(base, 7);
    assert_eq!(process.read(page(base, 1)), 0, "the zero page was not written");
    process.end();
}

fn fork_shares_pages_until_one_side_writes<I: Isa>() {
    let lab = lab::<I>();
    let before = levels(&lab);
    let parent = Process::new(&lab);
    let base = parent.anon(3);
    for index in 0..3 {
        parent.write(page(base, index), 10 + index);
    }
    let child = parent.fork();
    assert_eq!(lab.mm().gauge(Gauge::AnonPages), 3, "no page was copied");
    assert_eq!(child.space.rss().pages(), 3);
    parent.write(base, 20);
    assert_eq!(child.read(base), 10, "the child does not see what the parent wrote after the fork");
    child.write(page(base, 1), 30);
    assert_eq!(parent.read(page(base, 1)), 11);
    assert_eq!(lab.mm().counter(Counter::PwCowCopy), 2);
    // The other side of each copied page is alone on it now: its store reuses the page.
    child.write(base, 40);
    assert_eq!(lab.mm().counter(Counter::PgReuse), 1);
    assert_eq!(parent.read(base), 20);
    child.end();
    parent.write(page(base, 2), 50);
    assert_eq!(lab.mm().counter(Counter::PwCowCopy), 2, "after the child's end the page is the parent's alone");
    end_without_trace(parent, &before);
}

fn unmapping_reaches_the_other_cpus<I: Isa>() {
    let lab = lab::<I>();
    let (process, base) = page_of_two_cpus(&lab);
    lab.on(CPU, |mm| mm.munmap(&process.space, base, PAGE_SIZE)).expect("a mapped page");
    // The machine uses whatever its TLB holds: a translation that survived would be used here.
    for cpu in [CPU, OTHER] {
        assert!(lab.sim().access(cpu, base, Access::Read, 1).is_err(), "CPU {cpu} still reaches the page");
    }
    let refused = process.touch(OTHER, base, Access::Read);
    assert_eq!(refused, Err(FaultError::NotMapped { va: base, access: Access::Read }));
    process.end();
}

fn lowering_rights_reaches_the_other_cpus<I: Isa>() {
    let lab = lab::<I>();
    let (process, base) = page_of_two_cpus(&lab);
    lab.on(CPU, |mm| mm.mprotect(&process.space, base, PAGE_SIZE, Rights::READ)).expect("a mapped page");
    for cpu in [CPU, OTHER] {
        assert!(lab.sim().access(cpu, base, Access::Write, 1).is_err(), "CPU {cpu} can still write");
        assert!(lab.sim().access(cpu, base, Access::Read, 1).is_ok(), "CPU {cpu} may read");
    }
    let refused = process.touch(OTHER, base, Access::Write);
    assert_eq!(refused, Err(FaultError::NotAllowed { va: base, access: Access::Write, rights: Rights::READ }));
    lab.on(CPU, |mm| mm.mprotect(&process.space, base, PAGE_SIZE, Rights::RW)).expect("a mapped page");
    assert_eq!(process.read(base), 5);
    process.end();
}

fn protect_splits_and_merges_mappings<I: Isa>() {
    let lab = lab::<I>();
    let process = Process::new(&lab);
    let base = process.anon(8);
    process.write(page(base, 3), 9);
    let protect = |from: u64, pages: u64, rights| {
        lab.on(CPU, |mm| mm.mprotect(&process.space, page(base, from), pages * PAGE_SIZE, rights))
    };
    assert_eq!(protect(2, 3, Rights::empty()), Ok(()));
    assert_eq!(process.mappings(), 3);
    let va = page(base, 3);
    let refused = process.touch(CPU, va, Access::Read);
    assert_eq!(refused, Err(FaultError::NotAllowed { va, access: Access::Read, rights: Rights::empty() }));
    assert_eq!(protect(3, 1, Rights::READ), Ok(()));
    assert_eq!(process.mappings(), 5);
    assert_eq!(process.read(va), 9, "a page without rights keeps its contents");
    assert_eq!(protect(0, 8, Rights::RW), Ok(()));
    assert_eq!(process.mappings(), 1, "equal neighbours are one mapping again");
    assert_eq!(protect(6, 4, Rights::READ), Err(MmError::NotMapped { at: page(base, 8) }));
    assert_eq!(process.mappings(), 2, "as in Linux, what lies before the hole was changed");
    let dropped = lab.on(CPU, |mm| mm.madvise(&process.space, page(base, 6), 4 * PAGE_SIZE, Advice::DontNeed));
    assert_eq!(dropped, Err(MmError::NotMapped { at: page(base, 8) }));
    process.end();
}

fn files_are_shared_through_the_cache_and_copied_when_private<I: Isa>() {
    let lab = lab::<I>();
    let file = lab
        .on(CPU, |mm| mm.add_file("/data", FileKind::File(Box::new(DiskFile::default())), 4 * PAGE_SIZE + 10))
        .expect("memory");
    let (one, two) = (Process::new(&lab), Process::new(&lab));
    let map = |process: &Process<'_, I>, flags, opened| {
        let file = Some(FileMapping { file: &file, offset: PAGE_SIZE, opened });
        let request = MapRequest { addr: VirtAddr::ZERO, len: 6 * PAGE_SIZE, rights: Rights::RW, flags, file };
        lab.on(CPU, |mm| mm.mmap(&process.space, &request))
    };
    let refused = map(&one, MapFlags::SHARED, Rights::READ).map_err(MmError::errno);
    assert_eq!(refused, Err(Errno::EACCES), "a file opened for reading can't be written through a shared mapping");
    let shared = map(&one, MapFlags::SHARED, Rights::RW).expect("room");
    let private = map(&two, MapFlags::PRIVATE, Rights::READ).expect("room");
    assert_eq!((one.read(page(shared, 1)), two.read(page(private, 1))), (2, 2));
    one.write(page(shared, 1), 70);
    assert_eq!(two.read(page(private, 1)), 70, "a private mapping shows the file until it is written");
    two.write(page(private, 1), 80);
    assert_eq!(one.read(page(shared, 1)), 70);
    assert_eq!(two.space.rss().of(RssKind::Anon), 1);
    let end = page(shared, 4);
    assert_eq!(
        one.touch(CPU, end, Access::Read),
        Err(FaultError::PastEnd { va: end }),
        "page 5 of a file of 4 and a bit"
    );
    one.end();
    two.end();
    assert_eq!(lab.mm().gauge(Gauge::Mapped), 0);
    lab.on(CPU, |mm| mm.forget_file(&file));
    assert_eq!(lab.mm().gauge(Gauge::FilePages), 0);
}

fn fault_around_maps_what_is_cached<I: Isa>() {
    for (bytes, faults) in [(PAGE_SIZE, 64), (65536, 4)] {
        let settings = MmSettings::default();
        settings.set(MmSetting::FaultAroundBytes, bytes).expect("a power of two");
        let config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
        let lab = Lab::<I>::new(config, settings).expect("a possible machine");
        let file = lab
            .on(CPU, |mm| mm.add_file("/lib", FileKind::File(Box::new(DiskFile::default())), 64 * PAGE_SIZE))
            .expect("memory");
        let process = Process::new(&lab);
        let mapping = Some(FileMapping { file: &file, offset: 0, opened: Rights::READ });
        let (flags, rights) = (MapFlags::PRIVATE | MapFlags::FIXED, Rights::RX);
        let base = VirtAddr::new(0x40_0000);
        let request = MapRequest { addr: base, len: 64 * PAGE_SIZE, rights, flags, file: mapping };
        assert_eq!(lab.on(CPU, |mm| mm.mmap(&process.space, &request)), Ok(base));
        for index in 0..64 {
            process.touch(CPU, page(base, index), Access::Exec).expect("a page of the file");
        }
        assert_eq!(process.space.minor_faults(), faults);
        assert_eq!(process.space.rss().of(RssKind::File), 64);
        process.end();
    }
}

fn shared_anonymous_memory_is_shared_with_children<I: Isa>() {
    let lab = lab::<I>();
    lab.mm().settings().set(MmSetting::CowPageTables, 0).expect("never");
    let before = levels(&lab);
    let parent = Process::new(&lab);
    let base = parent.map(4 * PAGE_SIZE, Rights::RW, MapFlags::SHARED).expect("room");
    parent.write(base, 1);
    let child = parent.fork();
    assert_eq!(child.read(base), 1);
    child.write(page(base, 1), 2);
    assert_eq!(parent.read(page(base, 1)), 2);
    assert_eq!(parent.space.rss().of(RssKind::Shmem), 2);
    parent.end();
    assert_eq!(child.read(base), 1, "it lives as long as a process maps it");
    end_without_trace(child, &before);
}

fn the_heap_grows_and_shrinks<I: Isa>() {
    let lab = lab::<I>();
    let process = Process::new(&lab);
    let start = VirtAddr::new(0x5555_0000_0000);
    lab.on(CPU, |mm| mm.set_brk_start(&process.space, start));
    let brk = |to: VirtAddr| lab.on(CPU, |mm| mm.brk(&process.space, to));
    assert_eq!(brk(VirtAddr::ZERO), start);
    let end = start.add(3 * PAGE_SIZE + 5);
    assert_eq!(brk(end), end);
    process.write(page(start, 3), 1);
    assert_eq!(brk(page(start, 10)), page(start, 10));
    assert_eq!(process.mappings(), 1, "growing extends the mapping");
    assert_eq!(brk(page(start, 1)), page(start, 1));
    let va = page(start, 3);
    assert_eq!(process.touch(CPU, va, Access::Read), Err(FaultError::NotMapped { va, access: Access::Read }));
    process.map_at(page(start, 2), PAGE_SIZE, Rights::READ, MapFlags::PRIVATE | MapFlags::FIXED).expect("room");
    assert_eq!(brk(page(start, 5)), page(start, 1), "something is in the way: the break stays");
    process.end();
}

fn a_stack_grows_to_its_limit_and_no_further<I: Isa>() {
    let lab = lab::<I>();
    let process = Process::new(&lab);
    lab.on(CPU, |mm| mm.set_limits(&process.space, Rlimits::default().with(Resource::Stack, 64 * PAGE_SIZE)));
    let top = VirtAddr::new(0x7000_0000_0000);
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::GROWSDOWN;
    process.map_at(VirtAddr::new(top.raw() - PAGE_SIZE), PAGE_SIZE, Rights::RW, flags).expect("room");
    let below = |pages: u64| VirtAddr::new(top.raw() - pages * PAGE_SIZE);
    process.write(below(64), 1);
    assert_eq!(process.space.map().read().bytes(), 64 * PAGE_SIZE);
    let va = below(65);
    assert_eq!(process.touch(CPU, va, Access::Write), Err(FaultError::NotMapped { va, access: Access::Write }));
    process.end();
}

fn bad_calls_say_why_and_change_nothing<I: Isa>() {
    let lab = lab::<I>();
    let process = Process::new(&lab);
    let base = process.anon(2);
    process.map(1, Rights::READ, MapFlags::PRIVATE).expect("room");
    let before = (process.mappings(), levels(&lab));
    let unmap = |addr: VirtAddr, len| lab.on(CPU, |mm| mm.munmap(&process.space, addr, len)).map_err(MmError::errno);
    assert_eq!(unmap(base.add(1), PAGE_SIZE), Err(Errno::EINVAL));
    assert_eq!(unmap(base, 0), Err(Errno::EINVAL));
    assert_eq!(unmap(I::USER_END, PAGE_SIZE), Err(Errno::EINVAL));
    assert_eq!(unmap(base, I::USER_END.raw()), Err(Errno::EINVAL));
    assert_eq!(unmap(base, u64::MAX), Err(Errno::EINVAL));
    let protect =
        |addr, len| lab.on(CPU, |mm| mm.mprotect(&process.space, addr, len, Rights::RW)).map_err(MmError::errno);
    assert_eq!(protect(base.add(1), u64::MAX), Err(Errno::EINVAL));
    assert_eq!(protect(base, u64::MAX), Err(Errno::ENOMEM));
    assert_eq!(protect(I::USER_END, PAGE_SIZE), Err(Errno::ENOMEM));
    let drop_pages =
        |addr, len| lab.on(CPU, |mm| mm.madvise(&process.space, addr, len, Advice::DontNeed)).map_err(MmError::errno);
    assert_eq!(drop_pages(base, u64::MAX), Err(Errno::EINVAL));
    assert_eq!(drop_pages(I::USER_END, PAGE_SIZE), Err(Errno::ENOMEM));
    assert_eq!(process.map(0, Rights::RW, MapFlags::PRIVATE).map_err(MmError::errno), Err(Errno::EINVAL));
    assert_eq!(process.map(1, Rights::RW, MapFlags::empty()).map_err(MmError::errno), Err(Errno::EINVAL));
    assert_eq!(process.map(1 << 60, Rights::RW, MapFlags::PRIVATE).map_err(MmError::errno), Err(Errno::ENOMEM));
    assert_eq!(process.map(u64::MAX, Rights::RW, MapFlags::PRIVATE).map_err(MmError::errno), Err(Errno::ENOMEM));
    let over = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
    assert_eq!(process.map_at(base, 1, Rights::RW, over).map_err(MmError::errno), Err(Errno::EEXIST));
    let fixed = MapFlags::PRIVATE | MapFlags::FIXED;
    assert_eq!(process.map_at(base.add(8), 1, Rights::RW, fixed).map_err(MmError::errno), Err(Errno::EINVAL));
    assert_eq!(process.map_at(I::USER_END, 1, Rights::RW, fixed).map_err(MmError::errno), Err(Errno::ENOMEM));
    lab.mm().settings().set(MmSetting::MaxMapCount, 1).expect("a possible limit");
    assert_eq!(process.map(1, Rights::EXEC, MapFlags::PRIVATE).map_err(MmError::errno), Err(Errno::ENOMEM));
    assert_eq!((process.mappings(), levels(&lab)), before);
    process.end();
}

/// As in Linux, where only a hole stops them, and the end of user memory is one.
fn calls_past_user_memory_do_what_lies_before_it<I: Isa>() {
    let lab = lab::<I>();
    let process = Process::new(&lab);
    let last = VirtAddr::new(I::USER_END.raw() - PAGE_SIZE);
    process.map_at(last, PAGE_SIZE, Rights::RW, MapFlags::PRIVATE | MapFlags::FIXED).expect("user memory");
    process.write(last, 1);
    let dropped = lab.on(CPU, |mm| mm.madvise(&process.space, last, 1 << 40, Advice::DontNeed));
    assert_eq!(dropped, Err(MmError::NotMapped { at: I::USER_END }));
    assert_eq!((process.space.rss().pages(), process.read(last)), (0, 0));
    let protected = lab.on(CPU, |mm| mm.mprotect(&process.space, last, 1 << 40, Rights::READ));
    assert_eq!(protected, Err(MmError::NotMapped { at: I::USER_END }));
    let refused = FaultError::NotAllowed { va: last, access: Access::Write, rights: Rights::READ };
    assert_eq!(process.touch(CPU, last, Access::Write), Err(refused));
    process.end();
}

/// A little of everything; returns at the first failure.
fn a_little_of_everything<I: Isa>(lab: &Lab<I>) -> Result<(), String> {
    let space = lab.on(CPU, |mm| mm.new_space()).map_err(|e| e.to_string())?;
    lab.run(CPU, &space);
    let process = Process { lab, space };
    let result = calls(&process);
    process.end();
    result
}

fn calls<I: Isa>(process: &Process<'_, I>) -> Result<(), String> {
    let lab = process.lab;
    let base = process.map(700 * PAGE_SIZE, Rights::RW, MapFlags::PRIVATE).map_err(|e| e.to_string())?;
    for index in (0..700).step_by(100) {
        process.touch(CPU, page(base, index), Access::Read).map_err(|e| e.to_string())?;
        process.touch(CPU, page(base, index), Access::Write).map_err(|e| e.to_string())?;
    }
    let shared = process.map(3 * PAGE_SIZE, Rights::RW, MapFlags::SHARED).map_err(|e| e.to_string())?;
    process.touch(CPU, shared, Access::Write).map_err(|e| e.to_string())?;
    let protect =
        |from, pages: u64| lab.on(CPU, |mm| mm.mprotect(&process.space, from, pages * PAGE_SIZE, Rights::READ));
    protect(page(base, 100), 50).map_err(|e| e.to_string())?;
    let child = lab.on(CPU, |mm| mm.fork(&process.space)).map_err(|e| e.to_string())?;
    let child = Process { lab, space: child };
    let copied = child.touch(CPU, base, Access::Write).map_err(|e| e.to_string());
    lab.run(CPU, &process.space);
    lab.on(CPU, |mm| mm.end_space(&child.space));
    copied?;
    lab.on(CPU, |mm| mm.munmap(&process.space, page(base, 200), 7 * PAGE_SIZE)).map_err(|e| e.to_string())
}

fn every_allocation_can_fail_and_leaves_no_trace<I: Isa>() {
    let lab = lab::<I>();
    let before = levels(&lab);
    let mut failures = 0;
    for depth in 0.. {
        lab.sim().fail_allocation_after(depth, pagewright_sim::AllocationFailure::One);
        let outcome = a_little_of_everything(&lab);
        lab.sim().permit_allocations();
        assert_eq!(levels(&lab), before, "the allocation after {depth} others failed: {outcome:?}");
        if outcome.is_ok() && lab.sim().refused_allocations() == failures {
            break;
        }
        failures = lab.sim().refused_allocations();
    }
    assert!(failures > 30, "only {failures} allocations could fail");
}

fn the_reverse_map_finds_every_mapping<I: Isa>() {
    let lab = lab::<I>();
    let parent = Process::new(&lab);
    let base = parent.anon(2);
    parent.write(base, 1);
    let pfn = lab.sim().access(CPU, base, Access::Read, 1).expect("just written").pfn;
    let children: Vec<_> = (0..5).map(|_| parent.fork()).collect();
    let grandchild = children[0].fork();
    children[3].write(base, 2);
    let mut found = Vec::new();
    lab.on(CPU, |mm| {
        mm.for_each_mapping(pfn, |visit| {
            assert_eq!((visit.va, visit.leaf.pfn()), (base, pfn));
            found.push(visit.space.id());
            std::ops::ControlFlow::Continue(())
        });
    });
    let expected: Vec<_> = [&parent, &children[0], &children[1], &children[2], &children[4], &grandchild]
        .map(|process| process.space.id())
        .to_vec();
    found.sort_unstable();
    assert_eq!(found, expected, "everyone but the child that has a copy of its own");
    for process in children.into_iter().chain([grandchild, parent]) {
        process.end();
    }
}

fn truncation_unmaps_everywhere<I: Isa>() {
    let lab = lab::<I>();
    let file = lab
        .on(CPU, |mm| mm.add_file("/log", FileKind::File(Box::new(DiskFile::default())), 8 * PAGE_SIZE))
        .expect("memory");
    let process = Process::new(&lab);
    let mapping = |opened| Some(FileMapping { file: &file, offset: 0, opened });
    let flags = MapFlags::SHARED;
    let request =
        MapRequest { addr: VirtAddr::ZERO, len: 8 * PAGE_SIZE, rights: Rights::RW, flags, file: mapping(Rights::RW) };
    let base = lab.on(CPU, |mm| mm.mmap(&process.space, &request)).expect("room");
    for index in 0..8 {
        process.write(page(base, index), 1);
    }
    lab.on(CPU, |mm| mm.truncate(&file, 3 * PAGE_SIZE)).expect("not sealed");
    assert_eq!(process.space.rss().pages(), 3);
    let va = page(base, 3);
    assert_eq!(process.touch(CPU, va, Access::Read), Err(FaultError::PastEnd { va }));
    assert_eq!(process.read(page(base, 2)), 1);
    process.end();
}

fn generations_of_forks_are_bounded<I: Isa>() {
    let lab = lab::<I>();
    let before = levels(&lab);
    let mut process = Process::new(&lab);
    let base = process.anon(1);
    process.write(base, 1);
    for generation in 0..200 {
        let child = process.fork();
        process.end();
        lab.run(CPU, &child.space);
        assert_eq!(child.read(base), generation + 1);
        child.write(base, generation + 2);
        process = child;
    }
    assert!(lab.mm().counter(Counter::PwCowCopy) == 0, "each generation is alone with its page");
    end_without_trace(process, &before);
}
