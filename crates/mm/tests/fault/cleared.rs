//! Installs where another CPU has cleared an entry and not flushed yet.
//!
//! INV-TLB-CLEARED, INV-TLB-DEFERRED.
//!
//! One CPU clears the entry of a page, one stores there, and one loads through whatever its TLB
//! has. The page that is cleared has contents that nothing else has. Once a store to its successor
//! has happened, or the call that cleared it has returned, no CPU may load them. The same holds
//! once a call has returned that removed the guard in its place.
//!
//! Not covered: entries that a call clears while it holds the space, such as `munmap`; random
//! programs have those.

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::race::{assert_holds, race, race_in_long_turns, race_in_two_turns};
use pagewright_lab::harness::{CPU, OTHER, THIRD, TestProcess, TestWorld};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::file::{FallocateFlags, MemfdFlags};
use pagewright_mm::{Advice, FaultError, MapFlags};
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, NodeId, PAGE_SIZE, Rights, VirtAddr};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

const SCHEDULES: u64 = 400;
/// What the page has before it is cleared.
const OLD: u64 = 11;
/// What is stored to the page that takes its place.
const NEW: u64 = 22;

/// A way to clear an entry that leaves the space to others meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clearing {
    /// `MADV_DONTNEED` of an anonymous page.
    Discard,
    /// `MADV_DONTNEED` of the private copy of a file page.
    DiscardCopy,
    /// A guard over an anonymous page, which the CPU that stores removes.
    InstallGuard,
    /// A hole in shared memory.
    PunchHole,
    /// A truncation of shared memory, and its growth.
    Truncate,
    /// Reclaim of a clean file page that a private mapping shows.
    EvictFilePage,
    /// Reclaim of a lazily freed page.
    FreeLazily,
}

impl Clearing {
    const ALL: [Self; 7] = [
        Self::Discard,
        Self::DiscardCopy,
        Self::InstallGuard,
        Self::PunchHole,
        Self::Truncate,
        Self::EvictFilePage,
        Self::FreeLazily,
    ];

    /// Whether no CPU may load the old contents once the call has returned.
    fn removes_contents(self) -> bool {
        match self {
            Self::Discard | Self::DiscardCopy | Self::InstallGuard | Self::PunchHole | Self::Truncate => true,
            Self::EvictFilePage | Self::FreeLazily => false,
        }
    }
}

/// A process with one page, and the call that clears its entry.
struct Scene<I: Isa> {
    process: TestProcess<I>,
    base: VirtAddr,
    clear: Box<dyn FnOnce()>,
    /// Closes the file.
    close: Box<dyn FnOnce()>,
}

fn scene<I: Isa>(world: &Rc<TestWorld<I>>, clearing: Clearing) -> Scene<I> {
    let process = TestProcess::new(world);
    let (acts, closes, space) = (world.clone(), world.clone(), process.space.clone());
    let advise = move |base, advice| {
        let close: Box<dyn FnOnce()> = Box::new(|| {});
        (base, Box::new(move || acts.advise(CPU, &space, base, 1, advice)) as Box<dyn FnOnce()>, close)
    };
    let (base, clear, close) = match clearing {
        Clearing::Discard | Clearing::InstallGuard => {
            let base = process.anon(1);
            process.write(CPU, base, OLD);
            advise(base, if clearing == Clearing::Discard { Advice::DontNeed } else { Advice::GuardInstall })
        }
        Clearing::DiscardCopy => {
            let base = process.map_file(&world.file(1), Rights::RW, MapFlags::PRIVATE);
            process.write(CPU, base, OLD);
            advise(base, Advice::DontNeed)
        }
        Clearing::PunchHole | Clearing::Truncate => {
            let file = world.on(CPU, |mm| mm.memfd_create("cleared", MemfdFlags::empty())).expect("memory");
            world.on(CPU, |mm| mm.write_at(&file, 0, &OLD.to_le_bytes())).expect("memory");
            let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
            let (acts, cleared) = (world.clone(), file.clone());
            let clear = move || {
                acts.lab.on(CPU, |mm| {
                    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    let cleared = if clearing == Clearing::PunchHole {
                        mm.fallocate(&cleared, hole, 0, PAGE_SIZE)
                    } else {
                        mm.truncate(&cleared, 0).and_then(|()| mm.truncate(&cleared, PAGE_SIZE))
                    };
                    cleared.expect("not sealed");
                });
            };
            (base, Box::new(clear) as _, Box::new(move || closes.on(CPU, |mm| mm.close_file(&file))) as _)
        }
        Clearing::EvictFilePage => {
            // Its contents are those of the file, which no store reaches.
            let base = process.map_file(&world.file(1), Rights::RW, MapFlags::PRIVATE);
            advise(base, Advice::PageOut)
        }
        Clearing::FreeLazily => {
            let base = process.anon(1);
            process.write(CPU, base, OLD);
            process.advise(base, 1, Advice::Free);
            advise(base, Advice::PageOut)
        }
    };
    Scene { process, base, clear, close }
}

/// One CPU clears the entry of a page, one stores there, one loads from there for a while.
///
/// Returns whether each load was one that memory without TLBs could have given, and whether all
/// CPUs agree in the end.
fn clear_store_and_load<I: Isa>(seed: u64) -> bool {
    let count = Clearing::ALL.len() as u64;
    store_and_load_beside::<I>(Clearing::ALL[(seed % count) as usize], seed / count)
}

/// The same, of the guard alone.
#[cfg(feature = "planted")]
fn guard_store_and_load<I: Isa>(seed: u64) -> bool {
    store_and_load_beside::<I>(Clearing::InstallGuard, seed)
}

/// The same, of reclaim alone, whose flushes are deferred.
#[cfg(feature = "planted")]
fn evict_store_and_load<I: Isa>(seed: u64) -> bool {
    let clearing = if seed.is_multiple_of(2) { Clearing::EvictFilePage } else { Clearing::FreeLazily };
    store_and_load_beside::<I>(clearing, seed / 2)
}

fn store_and_load_beside<I: Isa>(clearing: Clearing, seed: u64) -> bool {
    let world = TestWorld::<I>::new(3);
    let Scene { process, base, clear, close } = scene(&world, clearing);
    // The CPU that stores has no translation, so that its store finds the entry as it is.
    let old = [CPU, THIRD].map(|cpu| process.read(cpu, base))[0];
    world.lab.run(OTHER, &process.space);
    let (cleared, stored, stale) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let (returned, unguarded, was_stored) = (cleared.clone(), cleared.clone(), stored.clone());
    let (stores, loads, found) = (world.clone(), world.clone(), stale.clone());
    let [storing, loading] = [process.space.clone(), process.space.clone()];
    let reclaims = seed.is_multiple_of(5) && !clearing.removes_contents();
    let reclaimed = world.clone();
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            clear();
            if reclaims {
                reclaimed.lab.on(CPU, |mm| mm.reclaim(NodeId::new(0), 1));
            }
            returned.set(clearing.removes_contents());
        }),
        Box::new(move || {
            // Past the end of a truncated file the store is refused, and is tried again.
            for _ in 0..8 {
                let touched = stores.lab.touch(OTHER, &storing, base, Access::Write, 1);
                if matches!(touched, Err(FaultError::Guarded { .. })) {
                    stores.advise(OTHER, &storing, base, 1, Advice::GuardRemove);
                    unguarded.set(true);
                }
                if touched.is_ok()
                    && let Some(word) = stores.word_now(OTHER, base, Access::Write)
                {
                    word.store(NEW, Ordering::Relaxed);
                    was_stored.set(true);
                    return;
                }
            }
        }),
        Box::new(move || {
            for round in 0..24 {
                let over = stored.get() || cleared.get();
                match loads.word_now(THIRD, base, Access::Read) {
                    Some(word) if over && word.load(Ordering::Relaxed) == old => found.set(true),
                    Some(_) => {}
                    // As above.
                    None if round % 8 == 0 => _ = loads.lab.touch(THIRD, &loading, base, Access::Read, 1),
                    None => {}
                }
            }
        }),
    ];
    // The window is the flush of one call, and a whole fault must fall into it.
    match seed % 4 {
        0 => race(&world, seed, programs),
        1 => race_in_long_turns(&world, seed, programs),
        _ => race_in_two_turns(&world, seed, programs),
    }
    // A guard that was installed after the last store is still there.
    process.advise(base, 1, Advice::GuardRemove);
    let seen = [CPU, OTHER, THIRD].map(|cpu| process.read(cpu, base));
    let agree = seen[1..].iter().all(|word| *word == seen[0]);
    let kept = clearing.removes_contents() || seen[0] == NEW;
    world.recount(&[&process]);
    process.end();
    close();
    world.at_rest(&[]);
    !stale.get() && agree && kept
}

on_both! {
    no_cpu_loads_from_a_page_that_another_has_replaced:
        assert_holds(Clearing::ALL.len() as u64 * SCHEDULES, clear_store_and_load::<I>,
            "a CPU loads the contents of a page that was cleared"),
}

planted_bugs_are_found! {
    20 * SCHEDULES;
    ZapNotConcurrent => clear_store_and_load,
    DeferredNotSeenAtInstall => evict_store_and_load,
    NestedNotSeen => guard_store_and_load,
    ZapNotConcurrent => guard_store_and_load,
}
