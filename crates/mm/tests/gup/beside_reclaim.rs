//! Pins beside page-out, swap-in, copy-on-write and fork (INV-GUP-EXCLUSIVE).
//!
//! A page comes in each state that swap and fork leave it in. One CPU pins it and then compares
//! what the device and the program see, while two others make calls that a seed chooses. From the
//! return of the pin to its release, the two see the same bytes; and no child sees them.
//!
//! Not covered: calls that remove the mapping, after which a pin and its address part.

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::race::{assert_holds, race_in_short_or_long_turns};
use pagewright_lab::harness::recount::{self, Pins};
use pagewright_lab::harness::{CPU, GupCall, OTHER, THIRD, TestDevice, TestProcess, TestWorld};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::Advice;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, CpuId, NodeId, VirtAddr};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering;

const SCHEDULES: u64 = 700;
/// What the page has before it is pinned.
const OLD: u64 = 11;

/// The state of the page when it is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageState {
    Exclusive,
    SharedWithChild,
    SwappedOut,
    /// Swapped out, and its swap entry shared with a child.
    SwappedOutShared,
    /// As before, and swapped in by the child.
    InSwapCache,
    /// Swapped in, and its slot still has the contents.
    SwappedIn,
    /// `MADV_FREE` permits reclaim to discard it.
    LazilyFreed,
}

impl PageState {
    const ALL: [Self; 7] = [
        Self::Exclusive,
        Self::SharedWithChild,
        Self::SwappedOut,
        Self::SwappedOutShared,
        Self::InSwapCache,
        Self::SwappedIn,
        Self::LazilyFreed,
    ];

    /// Brings the page of a new process into the state; returns the child, if it has one.
    fn enter<I: Isa>(self, process: &TestProcess<I>, base: VirtAddr) -> Option<TestProcess<I>> {
        let page_out = || process.advise(base, 1, Advice::PageOut);
        match self {
            Self::Exclusive => None,
            Self::SharedWithChild => Some(process.fork()),
            Self::SwappedOut => {
                page_out();
                None
            }
            Self::SwappedOutShared => {
                page_out();
                Some(process.fork())
            }
            Self::InSwapCache => {
                page_out();
                let child = process.fork();
                assert_eq!(child.read(CPU, base), OLD);
                Some(child)
            }
            Self::SwappedIn => {
                page_out();
                assert_eq!(process.read(CPU, base), OLD);
                None
            }
            Self::LazilyFreed => {
                process.advise(base, 1, Advice::Free);
                None
            }
        }
    }
}

/// A call beside the pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    PageOut,
    Reclaim,
    Load,
    /// A store of another thread, to the second word.
    Store,
    Fork,
    ForkAndEnd,
    /// A store of the child to its second word.
    ChildStores,
    ChildPagesOut,
}

const FIRST: [Deed; 4] = [Deed::PageOut, Deed::Reclaim, Deed::Load, Deed::Store];
const SECOND: [Deed; 6] =
    [Deed::Fork, Deed::ForkAndEnd, Deed::ChildStores, Deed::ChildPagesOut, Deed::PageOut, Deed::Store];

const CALLS: [GupCall; 6] = [
    GupCall::PinFast(GupFlags::WRITE),
    GupCall::Pin(GupFlags::WRITE),
    GupCall::PinFast(GupFlags::empty()),
    GupCall::Pin(GupFlags::empty()),
    GupCall::PinFast(GupFlags::LONGTERM),
    GupCall::PinFast(GupFlags::LONGTERM.union(GupFlags::WRITE)),
];

/// A process that pins its page, and its children.
struct PinScene<I: Isa> {
    process: TestProcess<I>,
    base: VirtAddr,
    child: Option<TestProcess<I>>,
    later: RefCell<Option<TestProcess<I>>>,
}

impl<I: Isa> PinScene<I> {
    fn act(&self, deed: Deed, cpu: CpuId) {
        let (world, space, base) = (&self.process.world, &self.process.space, self.base);
        match deed {
            Deed::PageOut => (0..2).for_each(|_| world.advise(cpu, space, base, 1, Advice::PageOut)),
            Deed::Reclaim => world.lab.on(cpu, |mm| _ = mm.reclaim(NodeId::new(0), 2)),
            Deed::Load => world.lab.touch(cpu, space, base, Access::Read, 1).expect("readable"),
            Deed::Store => world.store(cpu, space, base.add(8), 5),
            Deed::Fork => {
                let child = world.lab.on(cpu, |mm| mm.fork(space)).expect("memory");
                *self.later.borrow_mut() = Some(TestProcess { world: Rc::clone(world), space: child });
            }
            Deed::ForkAndEnd => world.lab.on(cpu, |mm| {
                let child = mm.fork(space).expect("memory");
                mm.end_space(&child);
            }),
            Deed::ChildStores | Deed::ChildPagesOut => {
                let Some(child) = &self.child else { return };
                if deed == Deed::ChildPagesOut {
                    return world.advise(cpu, &child.space, base, 1, Advice::PageOut);
                }
                world.lab.run(cpu, &child.space);
                world.store(cpu, &child.space, base.add(8), 6);
            }
        }
    }

    /// Whether the program and the device see each other's stores, `rounds` times.
    fn agrees(&self, device: &TestDevice<I>, rounds: u64) -> bool {
        let world = &self.process.world;
        (0..rounds).all(|round| {
            let value = 100 + 2 * round;
            device.write(0, value);
            let load = world.word(CPU, &self.process.space, self.base, Access::Read).load(Ordering::Relaxed);
            world.store(CPU, &self.process.space, self.base, value + 1);
            load == value && device.read(0) == value + 1
        })
    }

    fn children(&self) -> Vec<TestProcess<I>> {
        let later = self.later.borrow();
        let copy = |child: &TestProcess<I>| TestProcess { world: child.world.clone(), space: child.space.clone() };
        self.child.iter().chain(later.iter()).map(copy).collect()
    }
}

/// One CPU pins a page and uses it, two others make calls.
///
/// Returns whether the program and the device see the same page, and the children another.
fn pin_beside_two_calls<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::new(3);
    let slots = world.swap_to(8);
    let process = TestProcess::new(&world);
    let base = process.anon(1);
    process.write(CPU, base, OLD);
    let state = PageState::ALL[seed as usize % PageState::ALL.len()];
    let child = state.enter(&process, base);
    [CPU, OTHER, THIRD].iter().for_each(|cpu| world.lab.run(*cpu, &process.space));
    let scene = Rc::new(PinScene { process, base, child, later: RefCell::default() });
    let call = match CALLS[seed as usize / 7 % CALLS.len()] {
        // If the page is discarded first, such a call takes the zero page, which is never pinned.
        GupCall::Pin(flags) | GupCall::PinFast(flags) if state == PageState::LazilyFreed && flags.is_empty() => {
            GupCall::PinFast(GupFlags::WRITE)
        }
        call => call,
    };
    let (first, second) = (FIRST[seed as usize / 42 % FIRST.len()], SECOND[seed as usize / 168 % SECOND.len()]);
    let taken: Rc<RefCell<Option<TestDevice<I>>>> = Rc::default();
    let torn = Rc::new(Cell::new(false));
    let (pins, one, two) = (scene.clone(), scene.clone(), scene.clone());
    let (into, differs) = (taken.clone(), torn.clone());
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            let device = pins.process.take(CPU, base, 1, call).expect("a page that can be written");
            differs.set(!pins.agrees(&device, 3));
            *into.borrow_mut() = Some(device);
        }),
        Box::new(move || one.act(first, OTHER)),
        Box::new(move || two.act(second, THIRD)),
    ];
    race_in_short_or_long_turns(&world, seed, programs);
    let device = taken.take().expect("pinned");
    let children = scene.children();
    let before: Vec<u64> = children.iter().map(|child| child.read(OTHER, base)).collect();
    world.lab.run(CPU, &scene.process.space);
    let mut sound = !torn.get() && scene.agrees(&device, 2);
    let apart = |(child, before): (&TestProcess<I>, &u64)| {
        child.read(OTHER, base) == *before && child.frame(OTHER, base, Access::Read) != device.pfn(0)
    };
    sound &= children.iter().zip(&before).all(apart);
    sound &= scene.child.is_none() || before[0] == OLD;
    if !sound {
        // A page that is dropped would panic.
        std::mem::forget(device);
        return false;
    }
    let spaces: Vec<_> = children.iter().chain([&scene.process]).map(|process| process.space.clone()).collect();
    let pins = Pins::from([(device.pfn(0), 1)]);
    world.on(CPU, |mm| recount::check_with_pins(mm, &spaces, &pins));
    world.at_rest(&[&device]);
    device.release(MakeDirty::Yes);
    scene.process.advise(base, 1, Advice::PageOut);
    let kept = scene.process.read(CPU, base) == 103;
    children.iter().chain([&scene.process]).for_each(TestProcess::end);
    world.at_rest(&[]);
    kept && slots.used() == 0
}

on_both! {
    a_pinned_page_and_its_mapping_agree_beside_two_calls:
        assert_holds(SCHEDULES, pin_beside_two_calls::<I>, "the mapping shows another page than the pinned one"),
}

planted_bugs_are_found! {
    20 * SCHEDULES;
    PageOutIgnoresPin => pin_beside_two_calls,
    PinNotExclusive => pin_beside_two_calls,
    ForkIgnoresPin => pin_beside_two_calls,
}
