//! The facts that the memory manager declares to a judge, and when (`docs/oracle.md`).
//!
//! A listener records every fact and, when a right is reduced, whether the tables still granted it
//! at that moment. It therefore detects a fact declared after the edit, which the oracle cannot.
//!
//! Not covered: what the oracle derives from the facts. Its own tests cover that.

use pagewright_arch::Isa;
use pagewright_arch::on_both;
use pagewright_lab::Lab;
use pagewright_lab::harness::files::ZeroFile;
use pagewright_mm::file::{FileKind, FileObject};
use pagewright_mm::space::FileMapping;
use pagewright_mm::{Advice, MapFlags, MapRequest, Mm, MmSettings, Space};
use pagewright_model::walk;
use pagewright_sim::{AllocationFailure, MachineConfig, Sim};
use pagewright_sync::Arc;
use pagewright_types::judge::{Fact, Judge, MemoryAccess, Witness};
use pagewright_types::{Access, CpuId, IsaKind, PAGE_SIZE, PageRange, Pfn, Rights, Tag, VirtAddr};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

on_both! {
    a_call_declares_each_reduced_right_before_the_edit,
    a_failed_call_declares_its_return,
    a_frame_is_declared_freed_between_two_allocations,
}

const CPU: CpuId = CpuId::new(0);
const PAGES: u64 = 8;

/// A fact that was declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Declared {
    /// The rights of pages are reduced to `left`; `in_time`: some table entry still granted more.
    Reduced {
        range: PageRange,
        left: Rights,
        in_time: bool,
    },
    Returned,
}

struct Listener {
    isa: IsaKind,
    declared: Vec<Declared>,
    /// By frame named in a fact: whether it is allocated.
    allocated: BTreeMap<Pfn, bool>,
    reused: u64,
}

impl Judge for Listener {
    fn fact(&mut self, witness: &dyn Witness, _cpu: CpuId, fact: Fact) {
        match fact {
            Fact::RightReduced { root, range, left } => {
                let more = |va: VirtAddr| {
                    let leaf = walk::lookup(self.isa, root, va, &|at| witness.stored(at));
                    leaf.is_some_and(|leaf| !left.contains(leaf.rights))
                };
                self.declared.push(Declared::Reduced { range, left, in_time: range.iter().any(more) });
            }
            Fact::CallReturned => self.declared.push(Declared::Returned),
            Fact::RightDeferred { .. }
            | Fact::PageMoved { .. }
            | Fact::PageFilled { .. }
            | Fact::PagesRemoved { .. }
            | Fact::PageReplaced { .. }
            | Fact::TableShared { .. }
            | Fact::EditInPlace { .. } => {}
            Fact::FrameReused { pfn, order } => {
                for pfn in (0..order.frames()).map(|index| pfn.add(index)) {
                    let before = self.allocated.insert(pfn, true);
                    assert_ne!(before, Some(true), "{pfn} is allocated twice");
                    self.reused += u64::from(before == Some(false));
                }
            }
            Fact::FrameFreed { pfn, order } | Fact::FrameReleased { pfn, order } => {
                for pfn in (0..order.frames()).map(|index| pfn.add(index)) {
                    assert_ne!(self.allocated.insert(pfn, false), Some(false), "{pfn} is freed twice");
                }
            }
        }
    }

    fn access(&mut self, _witness: &dyn Witness, made: MemoryAccess) {
        let pfn = Pfn::containing(made.at);
        assert_ne!(self.allocated.get(&pfn), Some(&false), "the access to {} reaches the free frame {pfn}", made.va);
    }

    fn loaded(&mut self, _witness: &dyn Witness, _cpu: CpuId, root: Pfn, _tag: Tag) {
        assert_ne!(self.allocated.get(&root), Some(&false), "the root {root} is a free frame");
    }
}

struct World<I: Isa> {
    lab: Lab<I>,
    listener: Rc<RefCell<Listener>>,
    space: Arc<Space<Sim<I>>>,
    file: Arc<FileObject<Sim<I>>>,
    /// The addresses of private memory, of the mapped file and of the heap.
    anon: VirtAddr,
    mapped: VirtAddr,
    heap: VirtAddr,
}

impl<I: Isa> World<I> {
    fn new() -> Self {
        let config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
        let lab = Lab::<I>::new(config, MmSettings::default()).expect("a possible machine");
        let listener = Listener { isa: I::KIND, declared: Vec::new(), allocated: BTreeMap::new(), reused: 0 };
        let listener = Rc::new(RefCell::new(listener));
        lab.sim().bind_judge(listener.clone());
        let space = lab.on(CPU, |mm| mm.new_space()).expect("memory");
        let kind = FileKind::File(Box::new(ZeroFile));
        let file = lab.on(CPU, |mm| mm.add_file("/zeroes", kind, PAGES * PAGE_SIZE)).expect("memory");
        let heap = VirtAddr::new(5 << 30);
        let at = VirtAddr::ZERO;
        let mut world = Self { lab, listener, space, file, anon: at, mapped: at, heap };
        let shared = Some(FileMapping { file: &world.file, offset: 0, opened: Rights::RW });
        let private = MapFlags::PRIVATE | MapFlags::ANONYMOUS;
        let (anon, mapped) = (world.map(at, private, None), world.map(at, MapFlags::SHARED, shared));
        (world.anon, world.mapped) = (anon, mapped);
        world.lab.on(CPU, |mm| {
            mm.set_brk_start(&world.space, heap);
            mm.brk(&world.space, heap.add(PAGES * PAGE_SIZE))
        });
        world.lab.run(CPU, &world.space);
        for va in [world.anon, world.mapped, world.heap] {
            (0..PAGES).for_each(|page| world.write(va.add(page * PAGE_SIZE)));
        }
        world
    }

    fn map(&self, addr: VirtAddr, flags: MapFlags, file: Option<FileMapping<'_, Sim<I>>>) -> VirtAddr {
        let request = MapRequest { addr, len: PAGES * PAGE_SIZE, rights: Rights::RW, flags, file };
        self.lab.on(CPU, |mm| mm.mmap(&self.space, &request)).expect("room")
    }

    fn write(&self, va: VirtAddr) {
        self.lab.touch(CPU, &self.space, va, Access::Write, 1).expect("writable");
    }

    /// The facts that `call` declares.
    fn during(&self, call: impl FnOnce(&Mm<Sim<I>>, &Space<Sim<I>>)) -> Vec<Declared> {
        self.listener.borrow_mut().declared.clear();
        self.lab.on(CPU, |mm| call(mm, &self.space));
        std::mem::take(&mut self.listener.borrow_mut().declared)
    }

    /// Asserts that `call` reduces the page at `va` to `left`, in time, and returns once.
    #[track_caller]
    fn expect(&self, va: VirtAddr, left: Rights, call: impl FnOnce(&Mm<Sim<I>>, &Space<Sim<I>>)) {
        let declared = self.during(call);
        let in_time = declared.iter().any(|fact| match fact {
            Declared::Reduced { range, left: rights, in_time } => range.contains(va) && *rights == left && *in_time,
            Declared::Returned => false,
        });
        assert!(in_time, "the call does not declare in time that {va} keeps {left} only: {declared:?}");
        let returned = declared.iter().filter(|fact| **fact == Declared::Returned).count();
        assert_eq!((returned, declared.last()), (1, Some(&Declared::Returned)), "{declared:?}");
    }

    fn end(&self) {
        self.lab.on(CPU, |mm| {
            mm.tlb().leave_space();
            mm.end_space(&self.space);
            mm.forget_file(&self.file);
        });
    }
}

/// INV-ORACLE-O2 depends on this.
fn a_call_declares_each_reduced_right_before_the_edit<I: Isa>() {
    let world = World::<I>::new();
    let (none, private) = (Rights::empty(), MapFlags::PRIVATE | MapFlags::ANONYMOUS);
    let page = |base: VirtAddr, index: u64| base.add(index * PAGE_SIZE);
    let at = page(world.anon, 1);
    world.expect(at, Rights::READ, |mm, space| mm.mprotect(space, at, PAGE_SIZE, Rights::READ).expect("mapped"));
    let at = page(world.anon, 2);
    world.expect(at, none, |mm, space| mm.madvise(space, at, PAGE_SIZE, Advice::DontNeed).expect("mapped"));
    let at = page(world.anon, 3);
    let flags = private | MapFlags::FIXED | MapFlags::POPULATE;
    let replace = MapRequest { addr: at, len: PAGE_SIZE, rights: Rights::RW, flags, file: None };
    world.expect(at, none, |mm, space| assert_eq!(mm.mmap(space, &replace), Ok(at)));
    let at = page(world.anon, 4);
    world.expect(at, none, |mm, space| mm.munmap(space, at, PAGE_SIZE).expect("mapped"));
    let at = page(world.heap, PAGES - 1);
    world.expect(at, none, |mm, space| assert_eq!(mm.brk(space, at), at));
    // The child, which no CPU runs, keeps the page that the store copies.
    let at = world.anon;
    world.expect(at, Rights::RX, |mm, space| drop(mm.fork(space).expect("memory")));
    world.expect(at, none, |mm, space| mm.fault(space, at, Access::Write).map(drop).expect("writable"));
    let at = page(world.mapped, PAGES - 1);
    world.expect(at, none, |mm, _| mm.truncate(&world.file, (PAGES - 1) * PAGE_SIZE).expect("not sealed"));
    world.expect(world.mapped, none, |mm, _| mm.forget_file(&world.file));
}

/// Otherwise its reductions would be judged at the return of the next call.
fn a_failed_call_declares_its_return<I: Isa>() {
    let world = World::<I>::new();
    let base = world.anon;
    let page = |index: u64| base.add(index * PAGE_SIZE);
    world.lab.on(CPU, |mm| mm.munmap(&world.space, page(3), PAGE_SIZE)).expect("mapped");
    let taken = |declared: &[Declared]| declared.iter().filter(|fact| **fact != Declared::Returned).count();
    for declared in [
        world.during(|mm, space| {
            mm.mprotect(space, page(0), PAGES * PAGE_SIZE, Rights::READ).expect_err("a hole");
        }),
        world.during(|mm, space| {
            mm.madvise(space, page(0), PAGES * PAGE_SIZE, Advice::DontNeed).expect_err("a hole");
        }),
    ] {
        assert!(taken(&declared) > 0 && declared.last() == Some(&Declared::Returned), "{declared:?}");
    }
    world.lab.sim().fail_allocation_after(0, AllocationFailure::One);
    let declared = world.during(|mm, space| {
        mm.fault(space, page(0), Access::Write).expect_err("not writable");
        mm.fork(space).map(drop).expect_err("no memory");
    });
    assert_eq!(declared, [Declared::Returned; 2]);
}

/// INV-ORACLE-O1 depends on this.
fn a_frame_is_declared_freed_between_two_allocations<I: Isa>() {
    let world = World::<I>::new();
    for round in 0..4 {
        let child = world.lab.on(CPU, |mm| mm.fork(&world.space)).expect("memory");
        (0..PAGES).for_each(|page| world.write(world.anon.add(page * PAGE_SIZE)));
        world.lab.on(CPU, |mm| {
            mm.truncate(&world.file, round * PAGE_SIZE).expect("not sealed");
            mm.madvise(&world.space, world.anon, 3 * PAGE_SIZE, Advice::DontNeed).expect("mapped");
            mm.end_space(&child);
        });
    }
    world.end();
    let listener = world.listener.borrow();
    assert!(listener.reused > PAGES, "only {} frames were reused", listener.reused);
    // The listener was bound before the space began, so it has seen every frame of the space.
    assert_eq!(listener.allocated.values().filter(|allocated| **allocated).count(), 0);
}
