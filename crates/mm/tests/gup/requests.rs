//! What a request is permitted, which fault comes first, and what a page taken for writing becomes.

use pagewright_arch::{Isa, LeafFlags, on_both};
use pagewright_lab::harness::race::{assert_holds, race};
use pagewright_lab::harness::recount;
use pagewright_lab::harness::{ANON, CPU, GupCall, OTHER, TestProcess, at};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{Advice, MapFlags, MmError};
use pagewright_sim::explore::CoroutineBody;
use pagewright_table::LeafView;
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{Counter, NodeId, PAGE_SIZE, Rights, VirtAddr};
use std::rc::Rc;

const SCHEDULES: u64 = 100;
const NONE: GupFlags = GupFlags::empty();
/// What the page has before it is taken.
const OLD: u64 = 11;

on_both! {
    a_request_needs_exactly_its_right,
    a_request_ends_within_the_addresses_of_programs,
    a_forced_write_that_needs_no_force_takes_the_fault_of_any_other,
    a_page_taken_for_writing_is_dirty_and_one_taken_for_reading_is_as_before,
    no_stack_grows_for_a_request:
        assert_holds(SCHEDULES, take_beside_an_unmap_of_a_stack::<I>, "a stack has grown"),
}

/// A request to read needs the right to read, although the CPU reads whatever it can execute.
///
/// `check_vma_flags`.
fn a_request_needs_exactly_its_right<I: Isa>() {
    let (_, process) = TestProcess::<I>::judged(1);
    for rights in (0..8).map(Rights::from_bits_truncate) {
        let base = process.map(1, rights, ANON, None);
        for (flags, needed) in [(NONE, Rights::READ), (GupFlags::WRITE, Rights::WRITE)] {
            for force in [NONE, GupFlags::FORCE] {
                for call in [GupCall::Get(flags | force), GupCall::Pin(flags | force)] {
                    let taken = process.take(CPU, base, 1, call).map(|device| device.release(MakeDirty::No));
                    let permitted = rights.contains(needed) || force == GupFlags::FORCE;
                    assert_eq!(taken.is_ok(), permitted, "{rights:?}, {call:?}: {taken:?}");
                }
            }
        }
    }
    TestProcess::end_all_at_rest(&[&process]);
}

/// A request with a page that no program can have takes none of the others either (`access_ok`).
fn a_request_ends_within_the_addresses_of_programs<I: Isa>() {
    let (_, process) = TestProcess::<I>::judged(1);
    let last = process.map_at(VirtAddr::new(I::USER_END.raw() - 2 * PAGE_SIZE), 2, Rights::RW, ANON | MapFlags::FIXED);
    for call in [GupCall::Get(NONE), GupCall::Pin(NONE), GupCall::PinFast(NONE)] {
        process.take(CPU, last, 2, call).expect("all of it is mapped").release(MakeDirty::No);
        let refused = process.take(CPU, last, 3, call).map(|device| device.release(MakeDirty::No));
        assert_eq!(refused, Err(MmError::Inaccessible { va: I::USER_END.add(PAGE_SIZE) }), "{call:?}");
    }
    TestProcess::end_all_at_rest(&[&process]);
}

/// How an exclusive page comes to be mapped read-only in a mapping that can be written.
#[derive(Clone, Copy, Debug)]
enum ReadOnlyLeaf {
    SwappedIn,
    Unshared,
}

pub(super) fn leaf_at<I: Isa>(process: &TestProcess<I>, va: VirtAddr) -> Option<LeafView> {
    process.world.on(CPU, |mm| recount::leaf(mm, &process.space, va))
}

/// A process whose page is exclusive and read-only.
fn read_only<I: Isa>(state: ReadOnlyLeaf) -> (TestProcess<I>, VirtAddr) {
    let (world, process) = TestProcess::<I>::judged(1);
    world.swap_to(8);
    let base = process.anon(1);
    match state {
        ReadOnlyLeaf::SwappedIn => {
            process.write(CPU, base, OLD);
            process.advise(base, 1, Advice::PageOut);
            assert_eq!(process.read(CPU, base), OLD);
        }
        ReadOnlyLeaf::Unshared => {
            let pin = process.take(CPU, base, 1, GupCall::Pin(GupFlags::LONGTERM)).expect("memory");
            pin.release(MakeDirty::No);
        }
    }
    let leaf = leaf_at(&process, base).expect("a leaf");
    assert!(leaf.is_exclusive() && !leaf.rights().contains(Rights::WRITE), "{state:?}: {leaf:?}");
    (process, base)
}

/// `can_follow_write_pte`: a mapping that can be written takes the fault, which frees the slot.
fn a_forced_write_that_needs_no_force_takes_the_fault_of_any_other<I: Isa>() {
    for state in [ReadOnlyLeaf::SwappedIn, ReadOnlyLeaf::Unshared] {
        let [forced, other] = [GupFlags::FORCE, NONE].map(|force| {
            let (process, base) = read_only::<I>(state);
            let faults = process.world.count(Counter::PgFault);
            let device = process.take(CPU, base, 1, GupCall::Get(GupFlags::WRITE | force)).expect("writable");
            device.release(MakeDirty::Yes);
            let faults = process.world.count(Counter::PgFault) - faults;
            let leaf = leaf_at(&process, base).expect("a leaf");
            TestProcess::end_all_at_rest(&[&process]);
            (faults, leaf.rights(), leaf.flags())
        });
        assert_eq!(forced, other, "{state:?}");
        assert!(forced.0 == 1 && forced.1 == Rights::RW && forced.2.contains(LeafFlags::DIRTY), "{state:?}");
    }
}

/// No entry notes the stores of a caller that reaches the page by its frame.
fn a_page_taken_for_writing_is_dirty_and_one_taken_for_reading_is_as_before<I: Isa>() {
    let is_dirty = |process: &TestProcess<I>, va| {
        let pfn = leaf_at(process, va).expect("a leaf").pfn();
        process.world.on(CPU, |mm| mm.tlb().frames().folio(pfn).flags().contains(FolioFlags::DIRTY))
    };
    for lazily_freed in [false, true] {
        for write in [false, true] {
            let (process, base) = read_only::<I>(ReadOnlyLeaf::SwappedIn);
            if lazily_freed {
                process.write(CPU, base, OLD);
                process.advise(base, 1, Advice::Free);
            } else {
                process.protect(base, 1, Rights::READ);
            }
            assert!(!leaf_at(&process, base).expect("a leaf").has(LeafFlags::DIRTY) && !is_dirty(&process, base));
            let faults = process.world.count(Counter::PgFault);
            let flags = if write { GupFlags::WRITE | GupFlags::FORCE } else { NONE };
            let device = process.take(CPU, base, 1, GupCall::Get(flags)).expect("a private mapping");
            assert_eq!(process.world.count(Counter::PgFault), faults, "the entry permits it");
            assert_eq!(is_dirty(&process, base), write, "lazily freed: {lazily_freed}");
            if write {
                device.write(0, 99);
            }
            device.release(MakeDirty::No);
            for _ in 0..3 {
                process.world.on(CPU, |mm| mm.reclaim(NodeId::new(0), 1));
            }
            let expected = match (write, lazily_freed) {
                (true, _) => 99,
                (false, true) => 0,
                (false, false) => OLD,
            };
            assert_eq!(process.read(CPU, base), expected, "lazily freed: {lazily_freed}, write: {write}");
            TestProcess::end_all_at_rest(&[&process]);
        }
    }
}

/// One CPU takes the lowest page of a stack, while another unmaps it.
///
/// Returns whether the page stays unmapped: as in Linux since 6.5, only an access grows a stack.
fn take_beside_an_unmap_of_a_stack<I: Isa>(seed: u64) -> bool {
    let (world, process) = TestProcess::<I>::judged(2);
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::GROWSDOWN;
    let base = process.map_at(VirtAddr::new(1 << 32), 4, Rights::RW, flags);
    process.write(CPU, at(base, 3), OLD);
    let process = Rc::new(process);
    let (takes, unmaps, unmapped) = (process.clone(), world.clone(), process.space.clone());
    let call = if seed.is_multiple_of(2) { GupCall::Pin(GupFlags::WRITE) } else { GupCall::GetFast(NONE) };
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            if let Ok(device) = takes.take(CPU, base, 1, call) {
                device.release(MakeDirty::No);
            }
        }),
        Box::new(move || unmaps.on(OTHER, |mm| mm.munmap(&unmapped, base, PAGE_SIZE)).expect("a range")),
    ];
    race(&world, seed, programs);
    let stays = process.space.map().read().find(base).is_none();
    TestProcess::end_all_at_rest(&[&process]);
    stays
}
