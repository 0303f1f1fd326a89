//! `mremap` on the simulated machine: what moves, what stays, and what a failed call leaves.
//!
//! The tests also say which CPUs are notified, on both instruction sets.

use pagewright_arch::on_both;
use pagewright_arch::{Isa, LeafFlags};
use pagewright_lab::Lab;
use pagewright_lab::harness::recount;
use pagewright_mm::counters::Gauge;
use pagewright_mm::{MapFlags, MapRequest, MmError, MmSetting, MmSettings, RemapFlags, RemapRequest, Space};
use pagewright_sim::{AllocationFailure, MachineConfig, Sim};
use pagewright_sync::Arc;
use pagewright_types::{Access, CpuId, Errno, PAGE_SIZE, Rights, VirtAddr};
use std::ops::ControlFlow;

const CPU: CpuId = CpuId::new(0);
const OTHER: CpuId = CpuId::new(1);
const MOVE: RemapFlags = RemapFlags::MAYMOVE;
const FIXED: RemapFlags = RemapFlags::MAYMOVE.union(RemapFlags::FIXED);
const STAY: RemapFlags = RemapFlags::MAYMOVE.union(RemapFlags::DONTUNMAP);

on_both! {
    pages_go_along_and_are_still_found,
    a_move_reaches_the_other_cpus,
    sizes_change_in_place_where_they_can,
    a_mapping_that_stays_is_empty,
    a_shared_mapping_can_be_there_twice,
    moved_copies_of_a_file_are_found_by_their_old_index,
    several_mappings_move_as_one,
    what_stays_is_moved_once,
    a_smaller_size_elsewhere_drops_the_rest_whatever_it_is,
    a_twin_in_the_place_of_its_mapping_is_refused,
    a_moved_mapping_grows_no_further_than_its_neighbours,
    bad_requests_say_why_and_change_nothing,
    every_allocation_can_fail_and_leaves_no_trace,
}

fn page(base: VirtAddr, index: u64) -> VirtAddr {
    base.add(index * PAGE_SIZE)
}

fn lab<I: Isa>() -> Lab<I> {
    let config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
    Lab::new(config, MmSettings::default()).expect("a possible machine")
}

/// Everything that is counted in pages, and what is promised.
fn levels<I: Isa>(lab: &Lab<I>) -> (Vec<u64>, u64) {
    lab.on(CPU, |mm| (Gauge::ALL.iter().map(|gauge| mm.gauge(*gauge)).collect(), mm.committed()))
}

struct Process<'a, I: Isa> {
    lab: &'a Lab<I>,
    space: Arc<Space<Sim<I>>>,
}

impl<'a, I: Isa> Process<'a, I> {
    fn new(lab: &'a Lab<I>) -> Result<Self, MmError> {
        let space = lab.on(CPU, |mm| mm.new_space())?;
        lab.run(CPU, &space);
        Ok(Self { lab, space })
    }

    fn map(&self, addr: u64, pages: u64, flags: MapFlags) -> Result<VirtAddr, MmError> {
        let (addr, flags) = (VirtAddr::new(addr), flags | MapFlags::ANONYMOUS | MapFlags::FIXED);
        let request = MapRequest { addr, len: pages * PAGE_SIZE, rights: Rights::RW, flags, file: None };
        self.lab.on(CPU, |mm| mm.mmap(&self.space, &request))
    }

    fn remap(&self, addr: VirtAddr, old: u64, new: u64, flags: RemapFlags, to: u64) -> Result<VirtAddr, MmError> {
        let (old_len, new_len) = (old.wrapping_mul(PAGE_SIZE), new.wrapping_mul(PAGE_SIZE));
        let request = RemapRequest { addr, old_len, new_len, flags, new_addr: VirtAddr::new(to) };
        self.lab.on(CPU, |mm| mm.mremap(&self.space, &request))
    }

    fn touch(&self, cpu: CpuId, va: VirtAddr, access: Access) -> bool {
        self.lab.run(cpu, &self.space);
        self.lab.touch(cpu, &self.space, va, access, 1).is_ok()
    }

    fn cell(&self, va: VirtAddr, access: Access) -> &std::sync::atomic::AtomicU64 {
        assert!(self.touch(CPU, va, access), "{access} at {va}");
        let at = self.lab.sim().access(CPU, va, access, 1).expect("just touched");
        &self.lab.sim().ram()[at.pfn.base().raw() as usize / 8]
    }

    fn write(&self, va: VirtAddr, value: u64) {
        self.cell(va, Access::Write).store(value, std::sync::atomic::Ordering::Relaxed);
    }

    fn read(&self, va: VirtAddr) -> u64 {
        self.cell(va, Access::Read).load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Where the reverse map finds the page at `va`.
    fn places(&self, va: VirtAddr) -> Vec<(u64, VirtAddr)> {
        assert!(self.touch(CPU, va, Access::Read));
        let pfn = self.lab.sim().access(CPU, va, Access::Read, 1).expect("just touched").pfn;
        let mut places = Vec::new();
        self.lab.on(CPU, |mm| {
            mm.for_each_mapping(pfn, |visit| {
                places.push((visit.space.id().raw(), visit.va));
                ControlFlow::Continue(())
            });
        });
        places
    }

    fn maps(&self) -> String {
        let mut text = String::new();
        self.lab.on(CPU, |mm| mm.show_maps(&self.space, &mut text)).expect("a string takes everything");
        text
    }

    fn end(self) {
        for cpu in [CPU, OTHER] {
            self.lab.on(cpu, |mm| mm.tlb().leave_space());
        }
        self.lab.on(CPU, |mm| mm.end_space(&self.space));
    }
}

const PRIVATE: MapFlags = MapFlags::PRIVATE;
const AT: u64 = 0x10_0000_0000;
/// In another last-level table, and not aligned to where it was in the first.
const TO: u64 = 0x20_0000_3000;

/// INV-RMAP-SUPERSET: the reverse map finds pages at their place in each process.
///
/// That is the old place in a child that moved nothing, and the new and the newest in the parent.
fn pages_go_along_and_are_still_found<I: Isa>() {
    let lab = lab::<I>();
    let before = levels(&lab);
    let process = Process::new(&lab).expect("memory");
    // 1024 pages: three tables here, four there.
    let base = process.map(AT, 1024, PRIVATE).expect("room");
    for index in [0, 1, 511, 512, 1023] {
        process.write(page(base, index), 100 + index);
    }
    assert_eq!(process.read(page(base, 5)), 0, "the zero page goes along, too");
    let child = lab.on(CPU, |mm| mm.fork(&process.space)).expect("memory");
    process.write(page(base, 1), 201);
    let rss = process.space.rss().pages();
    let to = process.remap(base, 1024, 1024, FIXED, TO).expect("a free place");
    assert_eq!(to, VirtAddr::new(TO));
    assert_eq!(process.space.rss().pages(), rss);
    for (index, value) in [(0, 100), (1, 201), (511, 611), (512, 612), (1023, 1123), (5, 0)] {
        assert_eq!(process.read(page(to, index)), value, "page {index}");
    }
    assert!(!process.touch(CPU, base, Access::Read), "nothing is left at the old place");
    let (ours, theirs) = (process.space.id().raw(), child.id().raw());
    assert_eq!(process.places(page(to, 511)), [(ours, page(to, 511)), (theirs, page(base, 511))]);
    assert_eq!(process.places(page(to, 1)), [(ours, page(to, 1))], "a copy that was made before the move");
    process.write(page(to, 512), 7);
    assert_eq!(process.places(page(to, 512)), [(ours, page(to, 512))], "a copy that was made after it");
    process.write(page(to, 30), 8);
    assert_eq!(process.places(page(to, 30)), [(ours, page(to, 30))], "a page that was made after it");
    // A split and a move of one part, to where the other part's pages are looked for.
    let part = process.remap(page(to, 500), 20, 20, FIXED, AT).expect("a free place");
    assert_eq!(process.places(page(part, 11)), [(ours, page(part, 11)), (theirs, page(base, 511))]);
    assert_eq!(process.places(page(part, 12)), [(ours, page(part, 12))]);
    let leaf = recount::leaf(lab.mm(), &process.space, page(part, 12));
    let flags = LeafFlags::DIRTY | LeafFlags::EXCLUSIVE | LeafFlags::SOFT_DIRTY;
    assert!(leaf.is_some_and(|leaf| leaf.has(flags)), "{leaf:?}");
    process.end();
    lab.on(CPU, |mm| mm.end_space(&child));
    assert_eq!(levels(&lab), before);
}

/// A process with four pages at [`AT`], of which the first has the value 1.
fn four_pages<I: Isa>(lab: &Lab<I>) -> (Process<'_, I>, VirtAddr) {
    let process = Process::new(lab).expect("memory");
    let base = process.map(AT, 4, PRIVATE).expect("room");
    process.write(base, 1);
    (process, base)
}

/// INV-REMAP-FLUSH.
fn a_move_reaches_the_other_cpus<I: Isa>() {
    let lab = lab::<I>();
    let (process, base) = four_pages(&lab);
    assert!(process.touch(OTHER, base, Access::Write));
    assert!(lab.sim().access(OTHER, base, Access::Write, 1).is_ok());
    let to = process.remap(base, 4, 4, FIXED, TO).expect("a free place");
    assert!(lab.sim().access(OTHER, base, Access::Read, 1).is_err(), "a stale translation");
    assert!(process.touch(OTHER, to, Access::Read));
    process.end();
}

fn sizes_change_in_place_where_they_can<I: Isa>() {
    let lab = lab::<I>();
    let (process, base) = four_pages(&lab);
    let committed = lab.mm().committed();
    assert_eq!(process.remap(base, 4, 6, RemapFlags::empty(), 0), Ok(base));
    process.write(page(base, 5), 6);
    assert_eq!(lab.mm().committed(), committed + 2);
    assert_eq!(process.space.map().read().len(), 1);
    assert_eq!(process.remap(base, 6, 2, RemapFlags::empty(), 0), Ok(base));
    assert!(!process.touch(CPU, page(base, 5), Access::Read));
    assert_eq!(lab.mm().committed(), committed - 2);
    // Something is behind now: it has to move, and may not.
    process.map(AT + 2 * PAGE_SIZE, 1, MapFlags::SHARED).expect("room");
    assert_eq!(process.remap(base, 2, 3, RemapFlags::empty(), 0), Err(MmError::NoUnmappedArea { pages: 3 }));
    let to = process.remap(base, 2, 3, MOVE, 0).expect("a hole");
    assert_ne!(to, base);
    assert_eq!((process.read(to), process.read(page(to, 2))), (1, 0));
    // A smaller size at another place: the rest goes.
    let to = process.remap(to, 3, 1, FIXED, TO).expect("a free place");
    assert_eq!((process.read(to), process.space.map().read().bytes()), (1, 2 * PAGE_SIZE));
    process.end();
}

fn a_mapping_that_stays_is_empty<I: Isa>() {
    let lab = lab::<I>();
    let (process, base) = four_pages(&lab);
    let committed = lab.mm().committed();
    let to = process.remap(base, 4, 4, STAY, TO).expect("room");
    assert_eq!(to, VirtAddr::new(TO), "a hint that is free is taken");
    assert_eq!(lab.mm().committed(), committed + 4);
    assert_eq!((process.read(to), process.read(base)), (1, 0));
    process.write(base, 2);
    let ours = process.space.id().raw();
    assert_eq!((process.places(base), process.places(to)), (vec![(ours, base)], vec![(ours, to)]));
    // A part: the mapping is not cut.
    let part = process.remap(page(to, 1), 1, 1, STAY, 0).expect("room");
    assert_eq!(process.space.map().read().len(), 3, "{}", process.maps());
    assert_eq!(process.read(part), 0);
    process.end();
}

fn a_shared_mapping_can_be_there_twice<I: Isa>() {
    let lab = lab::<I>();
    let before = levels(&lab);
    let process = Process::new(&lab).expect("memory");
    let base = process.map(AT, 4, MapFlags::SHARED).expect("room");
    process.write(page(base, 1), 1);
    let twin = process.remap(page(base, 1), 0, 3, MOVE, 0).expect("room");
    process.write(twin, 2);
    assert_eq!(process.read(page(base, 1)), 2);
    lab.on(CPU, |mm| mm.munmap(&process.space, base, 4 * PAGE_SIZE)).expect("mapped");
    assert_eq!(process.read(twin), 2, "the memory lives as long as one of them");
    process.end();
    assert_eq!(levels(&lab), before);
}

fn moved_copies_of_a_file_are_found_by_their_old_index<I: Isa>() {
    struct Zeroes;
    impl pagewright_mm::file::FileOps for Zeroes {
        fn is_resident(&self, _index: u64) -> bool {
            true
        }
        fn read_page(&self, _index: u64, _put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
            Ok(())
        }
    }
    let lab = lab::<I>();
    let process = Process::new(&lab).expect("memory");
    let kind = pagewright_mm::file::FileKind::File(Box::new(Zeroes));
    let file = lab.on(CPU, |mm| mm.add_file("/data", kind, 64 * PAGE_SIZE)).expect("memory");
    let mapping = pagewright_mm::space::FileMapping { file: &file, offset: 8 * PAGE_SIZE, opened: Rights::READ };
    let (addr, flags) = (VirtAddr::new(AT), MapFlags::PRIVATE | MapFlags::FIXED);
    let request = MapRequest { addr, len: 4 * PAGE_SIZE, rights: Rights::RW, flags, file: Some(mapping) };
    let base = lab.on(CPU, |mm| mm.mmap(&process.space, &request)).expect("room");
    process.write(page(base, 1), 5);
    process.read(page(base, 2));
    let to = process.remap(base, 4, 4, FIXED, TO).expect("a free place");
    let ours = process.space.id().raw();
    assert_eq!(process.read(page(to, 1)), 5);
    assert_eq!(process.places(page(to, 1)), [(ours, page(to, 1))], "a copy");
    assert_eq!(process.places(page(to, 2)), [(ours, page(to, 2))], "the file's own page");
    lab.on(CPU, |mm| mm.truncate(&file, 0)).expect("not sealed");
    assert!(!process.touch(CPU, page(to, 2), Access::Read));
    process.end();
    lab.on(CPU, |mm| mm.forget_file(&file));
}

fn several_mappings_move_as_one<I: Isa>() {
    let lab = lab::<I>();
    let process = Process::new(&lab).expect("memory");
    let base = process.map(AT, 8, PRIVATE).expect("room");
    for index in 0..8 {
        process.write(page(base, index), index + 1);
    }
    lab.on(CPU, |mm| mm.mprotect(&process.space, page(base, 2), 2 * PAGE_SIZE, Rights::READ)).expect("mapped");
    lab.on(CPU, |mm| mm.munmap(&process.space, page(base, 5), PAGE_SIZE)).expect("mapped");
    process.map(TO + 5 * PAGE_SIZE, 1, MapFlags::SHARED).expect("room");
    let to = process.remap(base, 8, 8, FIXED, TO).expect("room");
    for index in [0, 1, 2, 3, 4, 6, 7] {
        assert_eq!(process.read(page(to, index)), index + 1);
    }
    assert_eq!(process.read(page(to, 5)), 0, "what was in the gap is still there");
    assert_eq!(process.remap(page(to, 100), 8, 8, FIXED, AT).map_err(MmError::errno), Err(Errno::EFAULT));
    assert_eq!(process.space.map().read().len(), 5, "{}", process.maps());
    // Back together: what was one mapping is one again.
    process.remap(to, 5, 5, FIXED, AT).expect("room");
    lab.on(CPU, |mm| mm.mprotect(&process.space, base, 5 * PAGE_SIZE, Rights::RW)).expect("mapped");
    assert_eq!(process.space.map().read().iter().next().map(|(start, vma)| vma.end() - start), Some(5));
    process.end();
}

/// The mapping that stays merges with the next one, and no part of it is moved again.
fn what_stays_is_moved_once<I: Isa>() {
    let lab = lab::<I>();
    let process = Process::new(&lab).expect("memory");
    let base = process.map(AT, 8, PRIVATE).expect("room");
    process.write(page(base, 1), 1);
    process.write(page(base, 6), 6);
    let to = process.remap(base, 4, 4, FIXED | RemapFlags::DONTUNMAP, TO).expect("room");
    let found = [page(to, 1), page(base, 1), page(base, 6)].map(|va| process.read(va));
    assert_eq!((found, process.space.map().read().len()), ([1, 0, 6], 2), "{}", process.maps());
    process.end();
}

/// As Linux does: only what moves must be one mapping.
fn a_smaller_size_elsewhere_drops_the_rest_whatever_it_is<I: Isa>() {
    let lab = lab::<I>();
    let before = levels(&lab);
    let process = Process::new(&lab).expect("memory");
    let base = process.map(AT, 2, PRIVATE).expect("room");
    process.write(page(base, 1), 1);
    let other = process.map(AT + 4 * PAGE_SIZE, 4, MapFlags::SHARED).expect("room");
    process.write(page(other, 3), 3);
    let to = process.remap(base, 6, 2, FIXED, TO).expect("room");
    assert_eq!((process.read(page(to, 1)), process.read(page(other, 3))), (1, 3));
    assert!(!process.touch(CPU, page(other, 1), Access::Read), "{}", process.maps());
    // A sealed one stays, and with it all.
    lab.on(CPU, |mm| mm.mseal(&process.space, page(other, 3), PAGE_SIZE, 0)).expect("mapped");
    let maps = process.maps();
    let over = process.remap(page(other, 2), 2, 1, FIXED, AT);
    assert_eq!((over.map_err(MmError::errno), process.maps()), (Err(Errno::EPERM), maps));
    process.end();
    assert_eq!(levels(&lab), before);
}

/// Linux unmaps it, and then finds nothing there.
fn a_twin_in_the_place_of_its_mapping_is_refused<I: Isa>() {
    let lab = lab::<I>();
    let process = Process::new(&lab).expect("memory");
    let base = process.map(AT, 4, MapFlags::SHARED).expect("room");
    process.write(base, 1);
    let twin = process.remap(base, 0, 4, FIXED, AT);
    assert_eq!((twin.map_err(MmError::errno), process.read(base)), (Err(Errno::EFAULT), 1));
    process.end();
}

fn a_moved_mapping_grows_no_further_than_its_neighbours<I: Isa>() {
    let lab = lab::<I>();
    let process = Process::new(&lab).expect("memory");
    process.map(AT, 2, PRIVATE).expect("room");
    let next = process.map(AT + 4 * PAGE_SIZE, 2, PRIVATE).expect("room");
    process.write(next, 9);
    let base = VirtAddr::new(AT);
    assert_eq!(process.remap(base, 2, 4, MOVE, 0), Ok(base), "up to the next, with which it becomes one");
    assert_eq!(process.space.map().read().len(), 1, "{}", process.maps());
    assert_eq!(process.remap(base, 6, 6, MOVE, 0), Ok(base));
    // The top of user memory ends it, too.
    let last = process.map(I::USER_END.raw() - PAGE_SIZE, 1, PRIVATE).expect("room");
    assert_eq!(process.remap(last, 1, 2, RemapFlags::empty(), 0).map_err(MmError::errno), Err(Errno::ENOMEM));
    process.end();
}

/// Answers as Linux 6.18 gives them.
fn bad_requests_say_why_and_change_nothing<I: Isa>() {
    let lab = lab::<I>();
    let process = Process::new(&lab).expect("memory");
    let base = process.map(AT, 8, PRIVATE).expect("room");
    process.map(TO, 4, MapFlags::SHARED).expect("room");
    process.write(base, 1);
    let (maps, counted) = (process.maps(), levels(&lab));
    let none = RemapFlags::empty();
    let huge = 1 << 36;
    let end = I::USER_END.raw() / PAGE_SIZE;
    let cases = [
        ((base, 1, 1, RemapFlags::from_bits_retain(8), 0), Errno::EINVAL),
        ((base.add(1), 1, 1, none, 0), Errno::EINVAL),
        ((base, 1, 0, none, 0), Errno::EINVAL),
        ((base, 1, huge * 2, MOVE, 0), Errno::EINVAL),
        ((base, 1, end, MOVE, 0), Errno::ENOMEM),
        ((base, 1, 1, RemapFlags::FIXED, TO), Errno::EINVAL),
        ((base, 1, 2, STAY, 0), Errno::EINVAL),
        ((base, 4, 4, FIXED, AT + 2 * PAGE_SIZE), Errno::EINVAL),
        ((base, 4, 4, FIXED, TO + 1), Errno::EINVAL),
        ((base, 4, 4, FIXED, I::USER_END.raw() - PAGE_SIZE), Errno::EINVAL),
        ((page(base, 8), 1, 2, MOVE, 0), Errno::EFAULT),
        ((page(base, 8), 1, 1, none, 0), Errno::EFAULT),
        ((base, 9, 16, MOVE, 0), Errno::EFAULT),
        ((base, 0, 1, MOVE, 0), Errno::EINVAL),
        ((base, 1 << 40, 1, none, 0), Errno::EINVAL),
        // The end of the source wraps, and lies in the destination; or not.
        ((page(base, 8), u64::MAX, 4, FIXED, AT + 5 * PAGE_SIZE), Errno::EINVAL),
        ((page(base, 8), u64::MAX, 4, FIXED, TO), Errno::EFAULT),
        ((page(base, 2), u64::MAX, 2, FIXED, AT + 2 * PAGE_SIZE), Errno::EFAULT),
    ];
    for ((addr, old, new, flags, to), errno) in cases {
        let answer = process.remap(addr, old, new, flags, to);
        assert_eq!(answer.map_err(MmError::errno), Err(errno), "{addr} {old} {new} {flags:?} {to:#x}: {answer:?}");
    }
    assert_eq!(process.remap(base, 12, 12, none, 0), Ok(base), "a size that stays is not looked at");
    let limit = process.space.map().read().len() as u64 + 5;
    lab.mm().settings().set(MmSetting::MaxMapCount, limit).expect("a limit");
    let many = process.remap(base, 8, 8, FIXED, TO);
    assert_eq!(many, Err(MmError::TooManyMappings { limit }));
    assert_eq!((process.maps(), levels(&lab)), (maps, counted));
    process.end();
}

/// INV-REMAP-WHOLE: a move over another mapping, with tables to be made.
fn every_allocation_can_fail_and_leaves_no_trace<I: Isa>() {
    let lab = lab::<I>();
    let process = Process::new(&lab).expect("memory");
    let base = process.map(AT, 1030, PRIVATE).expect("room");
    for index in [0, 600, 1029] {
        process.write(page(base, index), index + 1);
    }
    process.map(TO + 100 * PAGE_SIZE, 4, PRIVATE).expect("room");
    process.write(VirtAddr::new(TO + 101 * PAGE_SIZE), 77);
    let (maps, counted) = (process.maps(), levels(&lab));
    let mut failures = 0;
    for depth in 0.. {
        lab.sim().fail_allocation_after(depth, AllocationFailure::One);
        let outcome = process.remap(page(base, 1), 1029, 1029, FIXED, TO);
        lab.sim().permit_allocations();
        if outcome.is_ok() {
            break;
        }
        failures += 1;
        assert_eq!(outcome.map_err(MmError::errno), Err(Errno::ENOMEM));
        assert_eq!((process.maps(), levels(&lab)), (maps.clone(), counted.clone()), "{depth}");
        assert_eq!(process.read(VirtAddr::new(TO + 101 * PAGE_SIZE)), 77);
        assert_eq!(process.read(page(base, 600)), 601);
    }
    assert!(failures >= 3, "only {failures} allocations could fail");
    assert_eq!(process.read(VirtAddr::new(TO + 599 * PAGE_SIZE)), 601);
    process.end();
}
