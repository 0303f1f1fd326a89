//! INV-ORACLE-O4 on the memory manager: at rest, its counts are those that the oracle finds.
//!
//! One program with forks, copy-on-write, files, shared memory, pins, swap, huge pages, unmapping
//! and truncation, after each step of which the oracle counts. With the feature `planted`, a bug
//! that forgets a count is found.
//!
//! Not covered: what happens to a shared table beside another CPU.

use pagewright_arch::Isa;
use pagewright_arch::on_both;
use pagewright_lab::Lab;
use pagewright_lab::harness::files::ZeroFile;
use pagewright_mm::file::{FileKind, FileObject};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::FileMapping;
use pagewright_mm::swap::{SwapBacking, Zram};
use pagewright_mm::{Advice, MapFlags, MapRequest, Mm, MmSetting, MmSettings, Space};
use pagewright_model::{Antecedent, Census, Oracle, SoftwareBits};
use pagewright_sim::{MachineConfig, Sim};
use pagewright_sync::Arc;
use pagewright_types::{Access, CpuId, PAGE_SIZE, PageRange, Rights, VirtAddr};
use std::cell::RefCell;
use std::rc::Rc;

const CPU: CpuId = CpuId::new(0);
const OTHER: CpuId = CpuId::new(1);
const PAGES: u64 = 40;

struct World<I: Isa> {
    lab: Lab<I>,
    oracle: Rc<RefCell<Oracle>>,
    file: Arc<FileObject<Sim<I>>>,
}

impl<I: Isa> World<I> {
    fn new() -> Self {
        let config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
        let lab = Lab::<I>::new(config, MmSettings::default()).expect("a possible machine");
        let oracle = Oracle::new(I::KIND).with_software_bits(SoftwareBits::pagewright(I::KIND));
        let oracle = Rc::new(RefCell::new(oracle));
        lab.sim().bind_judge(oracle.clone());
        let kind = FileKind::File(Box::new(ZeroFile));
        let file = lab.on(CPU, |mm| mm.add_file("/zeroes", kind, PAGES * PAGE_SIZE)).expect("memory");
        Self { lab, oracle, file }
    }

    fn on<T>(&self, call: impl FnOnce(&Mm<Sim<I>>) -> T) -> T {
        self.lab.on(CPU, call)
    }

    fn map(&self, space: &Space<Sim<I>>, flags: MapFlags, rights: Rights) -> VirtAddr {
        self.map_pages(space, PAGES, flags, rights)
    }

    fn map_pages(&self, space: &Space<Sim<I>>, pages: u64, flags: MapFlags, rights: Rights) -> VirtAddr {
        let of_file = !flags.contains(MapFlags::ANONYMOUS);
        let file = of_file.then_some(FileMapping { file: &self.file, offset: 0, opened: Rights::RW });
        let request = MapRequest { addr: VirtAddr::ZERO, len: pages * PAGE_SIZE, rights, flags, file };
        self.on(|mm| mm.mmap(space, &request)).expect("room")
    }

    /// Touches every `step`th page.
    fn touch(&self, cpu: CpuId, space: &Arc<Space<Sim<I>>>, base: VirtAddr, step: usize, access: Access) {
        self.lab.run(cpu, space);
        for page in (0..PAGES).step_by(step) {
            self.lab.touch(cpu, space, base.add(page * PAGE_SIZE), access, 1).expect("allowed");
        }
    }

    /// Touches parts of several mappings: base, distance in pages, access.
    fn touch_all(&self, cpu: CpuId, space: &Arc<Space<Sim<I>>>, touches: &[(VirtAddr, usize, Access)]) {
        touches.iter().for_each(|&(base, step, access)| self.touch(cpu, space, base, step, access));
    }

    /// Lets the oracle check the counts.
    fn count(&self) {
        let bits = SoftwareBits::pagewright(I::KIND);
        let mut census = Census::new(bits);
        self.on(|mm| mm.snapshot(&mut |record| census.add(record)));
        self.oracle.borrow_mut().at_rest(self.lab.sim(), CPU, &census);
    }

    /// Lets the oracle check the counts after a step, and asserts that it has no finding.
    fn expect_clean(&self, after: &str) {
        self.count();
        let oracle = self.oracle.borrow();
        assert_eq!(oracle.found(), 0, "after {after}: {}", oracle.violations()[0]);
    }
}

/// Runs the program; calls `check` after each step, with the name of the step.
fn run<I: Isa>(world: &World<I>, check: &dyn Fn(&str)) {
    let space = world.on(|mm| mm.new_space()).expect("memory");
    check("a new space");
    let private = MapFlags::PRIVATE | MapFlags::ANONYMOUS;
    let anon = world.map(&space, private, Rights::RW);
    let shmem = world.map(&space, MapFlags::SHARED | MapFlags::ANONYMOUS, Rights::RW);
    let mapped = world.map(&space, MapFlags::SHARED, Rights::RW);
    let copied = world.map(&space, MapFlags::PRIVATE, Rights::RW);
    world.touch_all(
        CPU,
        &space,
        &[
            (anon, 1, Access::Read),
            (anon, 2, Access::Write),
            (shmem, 3, Access::Write),
            (mapped, 1, Access::Read),
            (copied, 4, Access::Write),
        ],
    );
    check("touching");
    let child = world.on(|mm| mm.fork(&space)).expect("memory");
    check("fork");
    world.touch_all(OTHER, &child, &[(anon, 3, Access::Write), (mapped, 5, Access::Write), (shmem, 1, Access::Read)]);
    world.touch(CPU, &space, anon, 4, Access::Write);
    check("copy-on-write");
    let grandchild = world.on(|mm| mm.fork(&child)).expect("memory");
    let some = PageRange::new(anon, anon.add(3 * PAGE_SIZE));
    let pinned = world.on(|mm| mm.pin_user_pages(&space, some, GupFlags::WRITE)).expect("mapped");
    check("pinning");
    let late = world.on(|mm| mm.fork(&space)).expect("memory");
    check("a fork with pinned pages");
    world.on(|mm| mm.release_user_pages(pinned, MakeDirty::Yes));
    world.on(|mm| mm.end_space(&late));
    check("releasing the pins");
    world.on(|mm| {
        let half = PAGES / 2 * PAGE_SIZE;
        mm.mprotect(&child, anon, half, Rights::empty()).expect("mapped");
        mm.mprotect(&space, copied, half, Rights::READ).expect("mapped");
        mm.madvise(&grandchild, anon, half, Advice::DontNeed).expect("mapped");
        mm.munmap(&space, anon.add(half), half).expect("mapped");
    });
    check("mprotect, madvise and munmap");
    world.on(|mm| mm.truncate(&world.file, PAGES / 4 * PAGE_SIZE)).expect("not sealed");
    check("truncation");
    for (cpu, space) in [(OTHER, &child), (CPU, &space)] {
        world.lab.on(cpu, |mm| mm.tlb().leave_space());
        world.on(|mm| mm.end_space(space));
        check("the end of a space");
    }
    world.on(|mm| mm.end_space(&grandchild));
    world.on(|mm| mm.forget_file(&world.file));
    check("the end of everything");
}

/// Runs a program whose memory is paged out; calls `check` after each step.
fn run_with_swap<I: Isa>(world: &World<I>, check: &dyn Fn(&str)) {
    let zram = world.on(|mm| Zram::try_new(mm, 3 * PAGES as u32, None)).expect("memory");
    world.on(|mm| mm.swap_on(SwapBacking::Zram(zram), 3 * PAGES as u32)).expect("memory");
    let space = world.on(|mm| mm.new_space()).expect("memory");
    let anon = world.map(&space, MapFlags::PRIVATE | MapFlags::ANONYMOUS, Rights::RW);
    let shmem = world.map(&space, MapFlags::SHARED | MapFlags::ANONYMOUS, Rights::RW);
    world.touch_all(CPU, &space, &[(anon, 2, Access::Write), (shmem, 3, Access::Write)]);
    let page_out = |space: &_| {
        for base in [anon, shmem] {
            world.on(|mm| mm.madvise(space, base, PAGES * PAGE_SIZE, Advice::PageOut)).expect("mapped");
        }
    };
    page_out(&space);
    check("paging out");
    let child = world.on(|mm| mm.fork(&space)).expect("memory");
    check("a fork with pages in swap");
    // It shares the table that the child breaks.
    let sibling = world.on(|mm| mm.fork(&space)).expect("memory");
    world.touch(OTHER, &child, anon, 3, Access::Write);
    check("a store beside pages in swap");
    world.on(|mm| mm.end_space(&sibling));
    world.touch(CPU, &space, anon, 4, Access::Read);
    world.touch(OTHER, &child, shmem, 5, Access::Read);
    check("swapping in");
    page_out(&child);
    page_out(&space);
    check("paging out shared pages");
    world.on(|mm| mm.munmap(&space, anon, PAGES / 2 * PAGE_SIZE)).expect("mapped");
    check("unmapping pages in swap");
    for (cpu, space) in [(OTHER, &child), (CPU, &space)] {
        world.lab.on(cpu, |mm| mm.tlb().leave_space());
        world.on(|mm| mm.end_space(space));
        check("the end of a space");
    }
}

/// Runs a program with a huge page, which a fork shares and a call splits.
fn run_with_huge_page<I: Isa>(world: &World<I>, check: &dyn Fn(&str)) {
    world.on(|mm| mm.settings().set(MmSetting::ThpEnabled, 0)).expect("always");
    let space = world.on(|mm| mm.new_space()).expect("memory");
    let huge = world.map_pages(&space, 512, MapFlags::PRIVATE | MapFlags::ANONYMOUS, Rights::RW);
    world.touch(CPU, &space, huge, 7, Access::Write);
    assert_eq!(space.table().deposits(), 1, "it begins where a huge page does");
    check("a store that maps a huge page");
    let child = world.on(|mm| mm.fork(&space)).expect("memory");
    check("a fork with a huge page");
    world.on(|mm| mm.munmap(&child, huge, 3 * PAGE_SIZE)).expect("mapped");
    check("unmapping a part of a huge page");
    world.lab.on(CPU, |mm| mm.tlb().leave_space());
    for space in [&space, &child] {
        world.on(|mm| mm.end_space(space));
        check("the end of a space");
    }
}

fn the_oracle_agrees_with_every_count<I: Isa>() {
    let world = World::<I>::new();
    run(&world, &|after| world.expect_clean(after));
    run_with_swap(&world, &|after| world.expect_clean(after));
    run_with_huge_page(&world, &|after| world.expect_clean(after));
    let oracle = world.oracle.borrow();
    let vacuous: Vec<Antecedent> =
        oracle.tally().vacuous().filter(|antecedent| antecedent.name().starts_with("O4")).collect();
    assert_eq!(
        vacuous,
        [
            Antecedent::LargeUnequal,
            Antecedent::LargeApart,
            Antecedent::LargePinned,
            Antecedent::LargePagePinned,
            Antecedent::InPlaceEdit,
            Antecedent::TableMadeInPlace,
            Antecedent::InstalledBesideBreak,
            Antecedent::LeaveBesideWalk,
            Antecedent::BreakBesideLockless,
            Antecedent::BreakBesideForeign,
            Antecedent::LeaveBesideForeign,
        ],
        "one CPU acts at a time, on a huge page in two spaces; the other rules must not be vacuous"
    );
}

on_both! { the_oracle_agrees_with_every_count }

/// The finding names the count that a planted bug forgets.
#[cfg(feature = "planted")]
#[test]
fn a_forgotten_count_is_found() {
    use pagewright_arch::X86_64;
    use pagewright_model::{CountKind, Rule, ViolationKind};
    use pagewright_plant::{PlantedBug, choose};
    use pagewright_types::snapshot::VmstatGauge;

    type Named = fn(&CountKind) -> bool;
    let plants: [(PlantedBug, Named); 3] = [
        (PlantedBug::MapcountLost, |of| matches!(of, CountKind::Mapcount(_) | CountKind::PageMapcount(_))),
        (PlantedBug::RssDrift, |of| matches!(of, CountKind::Rss(_, _))),
        (PlantedBug::PinKept, |of| matches!(of, CountKind::Gauge(VmstatGauge::Pins))),
    ];
    for (plant, named) in plants {
        let world = World::<X86_64>::new();
        // Pages of a file: the cache keeps them. An anonymous page with a wrong mapcount could not
        // be freed.
        let space = world.on(|mm| mm.new_space()).expect("memory");
        let base = world.map(&space, MapFlags::SHARED, Rights::RW);
        world.touch(CPU, &space, base, 1, Access::Write);
        world.expect_clean("touching");
        choose(Some(plant));
        let pinned = world.on(|mm| mm.pin_user_pages(&space, PageRange::page(base), GupFlags::WRITE)).expect("mapped");
        world.on(|mm| mm.release_user_pages(pinned, MakeDirty::No));
        world.on(|mm| mm.madvise(&space, base, PAGES * PAGE_SIZE, Advice::DontNeed)).expect("mapped");
        choose(None);
        world.count();
        let oracle = world.oracle.borrow();
        let named = |kind: &ViolationKind| matches!(kind, ViolationKind::Count(count) if named(&count.of));
        let found = oracle.violations().iter().any(|violation| named(&violation.kind));
        assert!(found, "{}: {:?}", plant.name(), oracle.violations());
        assert!(oracle.violations().iter().all(|violation| violation.rule == Rule::Counts));
    }
}

#[test]
fn every_part_of_the_memory_manager_agrees_with_the_oracle() {
    pagewright_lab::harness::smoke_test();
}
