//! Writeback and reclaim of a file page beside calls that have not flushed yet.
//!
//! The calls have cleared or weakened its entries (INV-FILE-CLEAN, INV-TLB-DEFERRED). One CPU
//! stores as long as its TLB lets it; two others make calls that a seed chooses. Every store must
//! reach the disk in the end, and none may happen after a call that forbids it.
//!
//! Not covered: shared memory and anonymous pages, which the tests of swap have.

use super::races::OneWordDisk;
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::race::{assert_holds, race, race_in_long_turns, race_in_two_turns};
use pagewright_lab::harness::{CPU, FileHandle, OTHER, THIRD, TestProcess, TestWorld};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::space::ClearRefs;
use pagewright_mm::{Advice, MapFlags, RemapFlags, RemapRequest};
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, CpuId, NodeId, PAGE_SIZE, Rights, VirtAddr};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

const SCHEDULES: u64 = 2000;
/// Where the page is mapped, and where a call moves it.
const PLACE: u64 = 0x10_0000_0000;
const MOVED: u64 = 0x10_4000_0000;

/// A call on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    WriteBack,
    Discard,
    PageOut,
    Reclaim,
    Cold,
    ClearRefs,
    Fork,
    Protect,
    Unmap,
    Move,
}

/// The calls of the second CPU.
const FIRST: [Deed; 5] = [Deed::WriteBack, Deed::WriteBack, Deed::PageOut, Deed::Reclaim, Deed::Cold];
/// The calls of the third CPU.
const SECOND: [Deed; 10] = [
    Deed::WriteBack,
    Deed::Discard,
    Deed::PageOut,
    Deed::Reclaim,
    Deed::Cold,
    Deed::ClearRefs,
    Deed::Fork,
    Deed::Protect,
    Deed::Unmap,
    Deed::Move,
];

impl Deed {
    fn act<I: Isa>(self, world: &TestWorld<I>, cpu: CpuId, process: &TestProcess<I>, file: &FileHandle<I>) {
        let (space, base) = (&process.space, VirtAddr::new(PLACE));
        world.lab.on(cpu, |mm| match self {
            Self::WriteBack => mm.write_back(file, 0, PAGE_SIZE).expect("a working device"),
            Self::Reclaim => _ = mm.reclaim(NodeId::new(0), 4),
            // Another call may have unmapped the page.
            Self::Discard => _ = mm.madvise(space, base, PAGE_SIZE, Advice::DontNeed),
            Self::PageOut => _ = mm.madvise(space, base, PAGE_SIZE, Advice::PageOut),
            Self::Cold => _ = mm.madvise(space, base, PAGE_SIZE, Advice::Cold),
            Self::ClearRefs => mm.clear_refs(space, ClearRefs::SoftDirty).expect("memory"),
            Self::Fork => {
                let child = mm.fork(space).expect("memory");
                mm.end_space(&child);
            }
            Self::Protect => mm.mprotect(space, base, PAGE_SIZE, Rights::READ).expect("mapped"),
            Self::Unmap => mm.munmap(space, base, PAGE_SIZE).expect("mapped"),
            Self::Move => {
                let flags = RemapFlags::MAYMOVE | RemapFlags::FIXED;
                let (old_len, new_len, new_addr) = (PAGE_SIZE, PAGE_SIZE, VirtAddr::new(MOVED));
                let request = RemapRequest { addr: base, old_len, new_len, flags, new_addr };
                mm.mremap(space, &request).expect("mapped");
            }
        });
    }

    /// Whether no store may happen at [`PLACE`] once the call has returned.
    fn forbids_stores(self) -> bool {
        matches!(self, Self::Protect | Self::Unmap | Self::Move)
    }
}

/// One CPU stores to a page of a file, while two others make calls.
///
/// Returns whether the disk has the last store in the end, and no store came too late.
fn stores_beside_two_calls<I: Isa>(seed: u64) -> bool {
    let world = TestWorld::<I>::new(3);
    // The reverse map visits the one or the other first.
    let [one, two] = [TestProcess::new(&world), TestProcess::new(&world)];
    let (process, other) = if seed % 4 < 2 { (one, two) } else { (two, one) };
    let process = Rc::new(process);
    let disk = OneWordDisk::default();
    let file = disk.file(&world);
    let base = VirtAddr::new(PLACE);
    process.map_over(base, &file, Rights::RW, MapFlags::SHARED);
    // With another mapping of the page, a batch has two spaces to flush.
    let elsewhere = other.map_file(&file, Rights::RW, MapFlags::SHARED);
    if seed.is_multiple_of(2) {
        other.write(OTHER, elsewhere, 1);
    }
    process.write(CPU, base, 1);
    let (first, second) = (FIRST[seed as usize / 4 % FIRST.len()], SECOND[seed as usize / 20 % SECOND.len()]);
    let (last, forbidden, late) = (Rc::new(Cell::new(1)), Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let (stores, stored, over, too_late) = (process.clone(), last.clone(), forbidden.clone(), late.clone());
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            let world = &stores.world;
            for value in 2..20 {
                let forbidden = over.get();
                if let Some(word) = world.word_now(CPU, base, Access::Write) {
                    word.store(value, Ordering::Relaxed);
                    stored.set(value);
                    too_late.set(too_late.get() || forbidden);
                } else if value % 4 == 0 && world.lab.touch(CPU, &stores.space, base, Access::Write, 1).is_err() {
                    return;
                }
            }
        }),
        doer(first, OTHER, &process, &file, &forbidden),
        doer(second, THIRD, &process, &file, &forbidden),
    ];
    match seed / 200 % 4 {
        0 => race(&world, seed, programs),
        1 => race_in_long_turns(&world, seed, programs),
        _ => race_in_two_turns(&world, seed, programs),
    }
    world.recount(&[&process, &other]);
    world.on(CPU, |mm| mm.write_back(&file, 0, PAGE_SIZE)).expect("a working device");
    let kept = disk.word() == last.get() && other.read(OTHER, elsewhere) == last.get();
    process.end();
    other.end();
    world.on(CPU, |mm| mm.forget_file(&file));
    world.at_rest(&[]);
    kept && !late.get()
}

/// The program of a CPU that makes one call, and then says whether it forbids stores.
fn doer<I: Isa>(
    deed: Deed,
    cpu: CpuId,
    process: &Rc<TestProcess<I>>,
    file: &FileHandle<I>,
    forbidden: &Rc<Cell<bool>>,
) -> CoroutineBody {
    let (process, file, forbidden) = (process.clone(), file.clone(), forbidden.clone());
    Box::new(move || {
        deed.act(&process.world, cpu, &process, &file);
        if deed.forbids_stores() {
            forbidden.set(true);
        }
    })
}

on_both! {
    no_store_is_lost_or_late_beside_two_calls:
        assert_holds(SCHEDULES, stores_beside_two_calls::<I>, "a store does not reach the disk, or comes too late"),
}

planted_bugs_are_found! {
    40 * SCHEDULES;
    DeferredNotTakenAlong => stores_beside_two_calls,
    WriteBackCleansLate => stores_beside_two_calls,
}
