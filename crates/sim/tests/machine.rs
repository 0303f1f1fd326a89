//! The machine without its TLBs: lock ranks, the running CPU, failing allocations, memory, time.

use pagewright_arch::{Aarch64, Effects, Isa, Pte, PteSlot, X86_64};
use pagewright_sim::{AllocationFailure, Cost, MachineConfig, Picos, Sim, SimLocks};
use pagewright_sync::rank::{SpaceRank, TableRank};
use pagewright_sync::{Backend, SpinLock};
use pagewright_types::{CpuId, Level, Order, Pfn, PhysAddr};
use std::sync::atomic::Ordering;

const CPU0: CpuId = CpuId::new(0);
const CPU1: CpuId = CpuId::new(1);

fn machine<I: Isa>() -> Sim<I> {
    let config = MachineConfig::default_for(I::KIND).expect("the default profile");
    Sim::new(config).expect("a possible machine")
}

type Lock<R> = SpinLock<u32, R, SimLocks>;

#[test]
fn each_cpu_keeps_its_ranks_while_another_runs() {
    let sim = machine::<X86_64>();
    let outer: Lock<SpaceRank> = Lock::new(0);
    let inner: Lock<TableRank> = Lock::new(0);
    // INV-SIM-RANKS.
    sim.run_on(CPU0, || {
        let held = inner.lock();
        sim.run_on(CPU1, || {
            assert_eq!((SimLocks::cpu(), sim.cpu()), (CPU1, CPU1));
            // The lock order holds on CPU 1, although CPU 0 holds an inner lock.
            drop(outer.lock());
            assert!(SimLocks::held().is_empty());
            sim.run_on(CPU0, || assert!(!SimLocks::held().is_empty(), "CPU 0 lost the ranks that it holds"));
        });
        assert_eq!(SimLocks::cpu(), CPU0);
        assert!(!SimLocks::held().is_empty());
        drop(held);
        assert!(SimLocks::held().is_empty());
    });
}

#[test]
#[should_panic(expected = "deadlock in fast mode: CPU 1 waits for a lock")]
fn a_contended_lock_is_a_deadlock() {
    let sim = machine::<X86_64>();
    let lock: Lock<TableRank> = Lock::new(0);
    sim.run_on(CPU0, || {
        let _held = lock.lock();
        sim.run_on(CPU1, || drop(lock.lock()));
    });
}

#[test]
fn two_machines_share_a_host_thread() {
    let (one, other) = (machine::<X86_64>(), machine::<Aarch64>());
    one.run_on(CPU1, || {
        other.run_on(CPU0, || assert_eq!((other.cpu(), SimLocks::cpu()), (CPU0, CPU0)));
        assert_eq!((one.cpu(), SimLocks::cpu()), (CPU1, CPU1));
    });
}

#[test]
fn allocations_fail_as_requested() {
    let sim = machine::<X86_64>();
    let ask = |times: usize| (0..times).map(|_| sim.permit_allocation()).collect::<Vec<_>>();
    assert_eq!(ask(3), [true; 3]);
    sim.fail_allocation_after(2, AllocationFailure::One);
    assert_eq!(ask(4), [true, true, false, true]);
    sim.fail_allocation_after(1, AllocationFailure::All);
    assert_eq!(ask(4), [true, false, false, false]);
    sim.permit_allocations();
    assert_eq!(ask(2), [true; 2]);
    assert_eq!(sim.refused_allocations(), 4);
}

#[test]
fn direct_stores_and_effects_see_the_same_memory() {
    let sim = machine::<X86_64>();
    let slot = PteSlot { table: Pfn::new(3), index: 5 };
    sim.ram()[(slot.addr().raw() / 8) as usize].store(0xfeed, Ordering::Relaxed);
    assert_eq!(sim.load(slot).raw(), 0xfeed);
    assert_eq!(sim.swap(slot, Pte::from_raw(1)).raw(), 0xfeed);
    assert_eq!(sim.compare_exchange(slot, Pte::from_raw(2), Pte::EMPTY), Err(Pte::from_raw(1)));
    assert_eq!(sim.compare_exchange(slot, Pte::from_raw(1), Pte::from_raw(7)), Ok(()));
    let mut bytes = [0; 2];
    sim.read(PhysAddr::new(slot.addr().raw()), &mut bytes);
    assert_eq!(bytes, [7, 0]);
    sim.copy(Pfn::new(2), Pfn::new(6), Order::new(1));
    assert_eq!(sim.load(PteSlot { table: Pfn::new(7), index: 5 }).raw(), 7);
    sim.zero(Pfn::new(6), Order::new(1));
    assert_eq!(sim.load(PteSlot { table: Pfn::new(7), index: 5 }), Pte::EMPTY);
}

#[test]
fn only_the_working_cpu_is_charged() {
    let sim = machine::<X86_64>();
    sim.run_on(CPU1, || sim.zero(Pfn::new(0), Order::PMD));
    assert_eq!(sim.clock(CPU1), sim.profile().cost(Cost::ZeroPage) * Level::PMD.pages());
    assert_eq!(sim.clock(CPU0), Picos::ZERO);
    sim.charge(CPU0, Cost::Syscall, 2);
    assert_eq!(sim.clock(CPU0), sim.profile().cost(Cost::Syscall) * 2);
    assert_eq!(sim.elapsed(), sim.clock(CPU1));
    sim.idle_until(CPU1, Picos::ZERO);
    assert_eq!(sim.elapsed(), sim.clock(CPU1), "the clock went back");
}
