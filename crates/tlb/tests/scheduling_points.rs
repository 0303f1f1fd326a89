//! Each lock of the explored machine is a scheduling point, and each effect but those on contents.
//!
//! A search finds a race only if it can switch CPUs between the two steps that race. An effect that
//! no longer yields makes searches blind without a failure, so this test looks for the switch
//! itself: one CPU raises a number around the effect, and another sees it in between under some
//! schedule.

use crate::bare::{self, Bare, Shape, nothing_was_found};
use pagewright_arch::{Effects, Invalidate, InvalidateScope, InvalidateTarget, Isa, Pte, PteSlot, on_both};
use pagewright_sim::Sim;
use pagewright_sim::explore::CoroutineBody;
use pagewright_sync::{Backend, Mailbox, Platform, RwLock, SpinLock, WordLock, rank};
use pagewright_tlb::BatchPolicy;
use pagewright_types::judge::Fact;
use pagewright_types::{CpuId, CpuMask, IsaKind, Order, Pfn, Tag};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::AtomicU32;

const SHAPE: Shape = Shape { cpus: 2, pages: 2, isolated: false, batch: BatchPolicy::Auto };
const SCHEDULES: u32 = 200;
/// The schedules of one search; the searches end with the first one that finds the switch.
const AT_ONCE: u32 = 20;
/// The effects on contents of frames, which are one step each.
///
/// A program that races with one of them, such as a device, adds a scheduling point of its own
/// (`xtask/src/tidy/scheduling_points.toml`).
const CONTENTS: [&str; 4] = ["zero", "copy", "read", "write"];

/// A step; the frames of the two pages, looked up before, because that is an effect.
type Step<I> = fn(&Bare<I>, [Pfn; 2]);

type Locks<I> = <Sim<I> as Platform>::Locks;

/// An entry of the second page's frame, which is no table, so that stores to it do no harm.
fn slot(frames: [Pfn; 2]) -> PteSlot {
    PteSlot { table: frames[1], index: 7 }
}

/// The steps, each with its name.
fn steps<I: Isa>() -> Vec<(&'static str, Step<I>)> {
    let mut steps: Vec<(&'static str, Step<I>)> = vec![
        ("load", |bare, at| _ = bare.sim().load(slot(at))),
        ("store", |bare, at| bare.sim().store(slot(at), Pte::EMPTY)),
        ("swap", |bare, at| _ = bare.sim().swap(slot(at), Pte::EMPTY)),
        ("compare_exchange", |bare, at| _ = bare.sim().compare_exchange(slot(at), Pte::EMPTY, Pte::EMPTY)),
        ("publish", |bare, _| bare.sim().publish()),
        ("zero", |bare, at| bare.sim().zero(at[1], Order::ZERO)),
        ("copy", |bare, at| bare.sim().copy(at[0], at[1], Order::ZERO)),
        ("read", |bare, at| bare.sim().read(at[0].base(), &mut [0; 8])),
        ("write", |bare, at| bare.sim().write(at[1].base(), &[0; 8])),
        ("relax", |bare, _| bare.sim().relax()),
        ("point", |_, _| Locks::<I>::point()),
        ("declare", |bare, _| bare.sim().declare(Fact::CallReturned)),
        ("set_lazy", |bare, _| bare.sim().set_lazy(false)),
        ("install_root", |bare, _| bare.sim().install_root(bare.context.root(), Tag::new(1), false)),
        ("send_ipi", |bare, _| bare.sim().send_ipi(&CpuMask::of(CpuId::new(1)))),
    ];
    let local: Step<I> = |bare, _| {
        let target = InvalidateTarget::Tag(Tag::new(1));
        bare.sim().invalidate(Invalidate { scope: InvalidateScope::Local, target });
    };
    steps.push(("invalidate", local));
    if I::KIND == IsaKind::Aarch64 {
        steps.push(("complete", |bare, _| bare.sim().complete()));
    }
    steps.extend(locks::<I>());
    steps
}

/// The operations that acquire a lock, and the request of a mailbox.
fn locks<I: Isa>() -> [(&'static str, Step<I>); 7] {
    type Rank = rank::LedgerRank;
    [
        ("lock", |_, _| drop(SpinLock::<_, Rank, Locks<I>>::new(()).lock())),
        ("read", |_, _| drop(RwLock::<_, Rank, Locks<I>>::new(()).read())),
        ("try_read", |_, _| drop(RwLock::<_, Rank, Locks<I>>::new(()).try_read())),
        ("write", |_, _| drop(RwLock::<_, Rank, Locks<I>>::new(()).write())),
        ("lock a word", |_, at| drop(WordLock::lock::<Rank, Locks<I>>(&AtomicU32::new(0), at[1]))),
        ("try to lock a word", |_, at| drop(WordLock::try_lock::<Rank, Locks<I>>(&AtomicU32::new(0), at[1]))),
        ("send a request", |_, _| {
            let mailbox = Mailbox::<1, Locks<I>>::try_new(2).expect("memory");
            mailbox.send(CpuId::new(0), [0], &CpuMask::EMPTY);
        }),
    ]
}

/// Whether another CPU can run in the middle of a step, under some schedule.
fn yields<I: Isa>(step: Step<I>) -> bool {
    (0..SCHEDULES / AT_ONCE).any(|seed| yields_with(seed, step))
}

/// As [`yields`], under the schedules of one seed.
fn yields_with<I: Isa>(seed: u32, step: Step<I>) -> bool {
    let seen = Rc::<Cell<bool>>::default();
    let search = bare::explore(u64::from(seed), AT_ONCE, |chooser, detail| {
        let bare = Bare::<I>::new(SHAPE);
        let place = Rc::<Cell<u32>>::default();
        let at = bare.sim().run_on(CpuId::new(0), || [0, 1].map(|index| bare.frame(index)));
        let (steps, looks) = (Rc::clone(&bare), Rc::clone(&bare));
        let (mine, theirs, seen) = (Rc::clone(&place), place, Rc::clone(&seen));
        let programs: Vec<CoroutineBody> = vec![
            Box::new(move || {
                mine.set(1);
                step(&steps, at);
                mine.set(2);
            }),
            Box::new(move || {
                for _ in 0..4 {
                    seen.set(seen.get() | (theirs.get() == 1));
                    looks.sim().publish();
                }
            }),
        ];
        bare.run(programs, &mut |_| {}, chooser, detail)
    });
    nothing_was_found(&search);
    seen.get()
}

fn every_lock_and_every_effect_on_entries_is_a_scheduling_point<I: Isa>() {
    let blind: Vec<&str> = steps::<I>().into_iter().filter(|(_, step)| !yields(*step)).map(|(name, _)| name).collect();
    assert_eq!(blind, CONTENTS, "the steps in the middle of which no other CPU ever runs");
}

/// Checks the test.
fn a_step_without_an_effect_is_seen<I: Isa>() {
    assert!(!yields::<I>(|_, _| {}));
}

on_both! { every_lock_and_every_effect_on_entries_is_a_scheduling_point, a_step_without_an_effect_is_seen }
