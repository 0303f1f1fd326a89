//! What the memory manager declares to a judge, and when: `docs/oracle.md`, "What is declared".
//!
//! A listener takes down every fact and, when a right is reduced, whether the tables still gave it
//! at that moment. So a fact that comes after the edit is seen, which the oracle itself could not.
//!
//! Not covered: what the facts are good for. That is the oracle's own test.

use pagewright_arch::Isa;
use pagewright_lab::Lab;
use pagewright_lab::harness::files::Zeroes;
use pagewright_lab::on_both;
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
    every_call_says_what_it_takes_before_it_takes_it,
    a_call_that_fails_returns_too,
    frames_are_handed_out_and_given_back_in_turn,
}

const CPU: CpuId = CpuId::new(0);
const PAGES: u64 = 8;

/// What was declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// Rights go from these pages; whether any of them still had more.
    Reduced {
        range: PageRange,
        left: Rights,
        in_time: bool,
    },
    Returned,
}

struct Listener {
    isa: IsaKind,
    heard: Vec<Heard>,
    /// Whether each frame that was named is handed out.
    in_use: BTreeMap<Pfn, bool>,
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
                self.heard.push(Heard::Reduced { range, left, in_time: range.iter().any(more) });
            }
            Fact::CallReturned => self.heard.push(Heard::Returned),
            Fact::FrameReused { pfn, order } => {
                for pfn in (0..order.frames()).map(|index| pfn.add(index)) {
                    let before = self.in_use.insert(pfn, true);
                    assert_ne!(before, Some(true), "{pfn} is handed out twice");
                    self.reused += u64::from(before == Some(false));
                }
            }
            Fact::FrameFreed { pfn, order } => {
                for pfn in (0..order.frames()).map(|index| pfn.add(index)) {
                    assert_ne!(self.in_use.insert(pfn, false), Some(false), "{pfn} is given back twice");
                }
            }
        }
    }

    fn access(&mut self, _witness: &dyn Witness, made: MemoryAccess) {
        let pfn = Pfn::containing(made.at);
        assert_ne!(self.in_use.get(&pfn), Some(&false), "{} reaches {pfn}, which is nobody's", made.va);
    }

    fn loaded(&mut self, _witness: &dyn Witness, _cpu: CpuId, root: Pfn, _tag: Tag) {
        assert_ne!(self.in_use.get(&root), Some(&false), "the root {root} is nobody's");
    }
}

struct World<I: Isa> {
    lab: Lab<I>,
    listener: Rc<RefCell<Listener>>,
    space: Arc<Space<Sim<I>>>,
    file: Arc<FileObject<Sim<I>>>,
    /// Where private memory, the file and the heap are.
    anon: VirtAddr,
    mapped: VirtAddr,
    heap: VirtAddr,
}

impl<I: Isa> World<I> {
    fn new() -> Self {
        let config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
        let lab = Lab::<I>::new(config, MmSettings::default()).expect("a possible machine");
        let listener = Listener { isa: I::KIND, heard: Vec::new(), in_use: BTreeMap::new(), reused: 0 };
        let listener = Rc::new(RefCell::new(listener));
        lab.sim().bind_judge(listener.clone());
        let space = lab.on(CPU, |mm| mm.new_space()).expect("memory");
        let kind = FileKind::File(Box::new(Zeroes));
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

    /// What is declared during `call`.
    fn during(&self, call: impl FnOnce(&Mm<Sim<I>>, &Space<Sim<I>>)) -> Vec<Heard> {
        self.listener.borrow_mut().heard.clear();
        self.lab.on(CPU, |mm| call(mm, &self.space));
        std::mem::take(&mut self.listener.borrow_mut().heard)
    }

    /// Asserts that `call` says in time that it leaves `left` of the page at `va`, and returns
    /// once.
    #[track_caller]
    fn expect(&self, va: VirtAddr, left: Rights, call: impl FnOnce(&Mm<Sim<I>>, &Space<Sim<I>>)) {
        let heard = self.during(call);
        let told = heard.iter().any(|heard| match heard {
            Heard::Reduced { range, left: said, in_time } => range.contains(va) && *said == left && *in_time,
            Heard::Returned => false,
        });
        assert!(told, "it does not say in time what it takes: {heard:?}");
        let returned = heard.iter().filter(|heard| **heard == Heard::Returned).count();
        assert_eq!((returned, heard.last()), (1, Some(&Heard::Returned)), "{heard:?}");
    }

    fn end(&self) {
        self.lab.on(CPU, |mm| {
            mm.tlb().leave_space();
            mm.end_space(&self.space);
            mm.forget_file(&self.file);
        });
    }
}

/// INV-ORACLE-O2 rests on it.
fn every_call_says_what_it_takes_before_it_takes_it<I: Isa>() {
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
    // What the store copies is kept by the child, which no CPU runs.
    let at = world.anon;
    world.expect(at, Rights::RX, |mm, space| drop(mm.fork(space).expect("memory")));
    world.expect(at, none, |mm, space| mm.fault(space, at, Access::Write).map(drop).expect("writable"));
    let at = page(world.mapped, PAGES - 1);
    world.expect(at, none, |mm, _| mm.truncate(&world.file, (PAGES - 1) * PAGE_SIZE).expect("not sealed"));
    world.expect(world.mapped, none, |mm, _| mm.forget_file(&world.file));
}

/// What a failed call has declared must not wait for the next.
fn a_call_that_fails_returns_too<I: Isa>() {
    let world = World::<I>::new();
    let base = world.anon;
    let page = |index: u64| base.add(index * PAGE_SIZE);
    world.lab.on(CPU, |mm| mm.munmap(&world.space, page(3), PAGE_SIZE)).expect("mapped");
    let taken = |heard: &[Heard]| heard.iter().filter(|heard| **heard != Heard::Returned).count();
    for heard in [
        world.during(|mm, space| {
            mm.mprotect(space, page(0), PAGES * PAGE_SIZE, Rights::READ).expect_err("a hole");
        }),
        world.during(|mm, space| {
            mm.madvise(space, page(0), PAGES * PAGE_SIZE, Advice::DontNeed).expect_err("a hole");
        }),
    ] {
        assert!(taken(&heard) > 0 && heard.last() == Some(&Heard::Returned), "{heard:?}");
    }
    world.lab.sim().fail_allocation_after(0, AllocationFailure::One);
    let heard = world.during(|mm, space| {
        mm.fault(space, page(0), Access::Write).expect_err("not writable");
        mm.fork(space).map(drop).expect_err("no memory");
    });
    assert_eq!(heard, [Heard::Returned; 2]);
}

/// INV-ORACLE-O1 rests on it.
fn frames_are_handed_out_and_given_back_in_turn<I: Isa>() {
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
    assert!(listener.reused > PAGES, "only {} frames were used again", listener.reused);
    // The space began after the listener did: of what it had, nothing is left.
    assert_eq!(listener.in_use.values().filter(|in_use| **in_use).count(), 0);
}
