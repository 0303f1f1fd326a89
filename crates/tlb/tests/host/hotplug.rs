//! CPUs that go offline and come back.
//!
//! INV-TLB-HOTPLUG.

use super::space::{FRAMES, Space, machine, page};
use crate::support::{Delivery, Effect, Host, Step, engine, on};
use pagewright_arch::on_both;
use pagewright_arch::{Aarch64, Caps, Effects, Isa, X86_64};
use pagewright_tlb::frames::{FrameAllocator, MemoryLayout, NodeSpec};
use pagewright_tlb::{Batch, Tlb, TlbConfig};
use pagewright_types::{Access, CpuId, CpuMask, FrameRange, NodeId, Pfn};
use std::sync::Arc;

on_both! {
    a_cpu_that_comes_online_holds_nothing_deferred_meanwhile,
    no_flush_waits_for_an_offline_cpu,
    a_cpu_that_comes_online_has_settled_what_it_owed,
    a_cpu_may_come_online_after_the_set_up,
}

const CPUS: usize = 3;
const GOES: u16 = 1;

/// A space that [`GOES`] and CPU 2 have used.
fn used<I: Isa>() -> (Host<I>, Arc<Tlb<Host<I>>>, Space<I>) {
    let (host, tlb) = machine::<I>(CPUS);
    let space = Space::new(&tlb);
    for index in 0..2 {
        space.map_new(index);
    }
    for cpu in 1..CPUS as u16 {
        on(cpu, || {
            space.run();
            (0..2).for_each(|index| assert!(host.access(page(index), Access::Write).is_some()));
        });
    }
    (host, tlb, space)
}

fn go<I: Isa>(host: &Host<I>, tlb: &Tlb<Host<I>>) {
    on(GOES, || tlb.cpu_dying());
    host.plug(GOES, false);
}

fn come_back<I: Isa>(host: &Host<I>, tlb: &Tlb<Host<I>>) {
    on(GOES, || tlb.cpu_starting());
    host.plug(GOES, true);
}

fn tells(log: &[Step], cpu: u16) -> bool {
    log.iter().any(|step| matches!(step.effect, Effect::SendIpi(targets) if targets.contains(CpuId::new(cpu))))
}

fn a_cpu_that_comes_online_holds_nothing_deferred_meanwhile<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(0));
    go(&host, &tlb);
    batch.absorb(&space.context, space.clear(1));
    let ((), log) = host.log(|| batch.settle());
    assert!(!tells(&log, GOES));
    assert_eq!((host.cached(GOES), host.cached(2)), (2, 0), "out of reach, it keeps what it had");
    come_back(&host, &tlb);
    on(GOES, || {
        space.run();
        (0..2).for_each(|index| assert_eq!(host.access(page(index), Access::Read), None));
    });
    host.assert_fresh(CpuId::new(GOES));
}

/// As with `maxcpus=2`: the layout names the CPU.
pub(super) fn a_cpu_may_come_online_after_the_set_up<I: Isa>() {
    let late = CPUS as u16 - 1;
    let host = Host::<I>::new(CPUS, FRAMES, Caps::baseline(I::KIND), Delivery::AtOnce);
    host.plug(late, false);
    let ranges = [FrameRange::new(Pfn::new(1), Pfn::new(FRAMES))];
    let nodes = [NodeSpec { id: NodeId::new(0), ranges: &ranges, cpus: CpuMask::first(CPUS) }];
    let frames = FrameAllocator::try_new(host.clone(), &MemoryLayout::new(&nodes)).expect("a possible machine");
    let tlb = Tlb::try_new(host.clone(), frames, TlbConfig::default()).expect("a possible machine");
    on(late, || tlb.cpu_starting());
    host.plug(late, true);
    assert_eq!(host.online(), CpuMask::first(CPUS));
}

#[cfg(feature = "planted")]
#[test]
fn an_engine_without_room_for_later_cpus_is_found() {
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::RoomForOnline, a_cpu_may_come_online_after_the_set_up::<X86_64>);
    assert_found_by(PlantedBug::RoomForOnline, a_cpu_may_come_online_after_the_set_up::<Aarch64>);
}

fn no_flush_waits_for_an_offline_cpu<I: Isa>() {
    let (host, tlb, space) = used::<I>();
    let debt = tlb.ledger().open(CpuMask::of(CpuId::new(GOES)));
    go(&host, &tlb);
    let ((), log) = host.log(|| tlb.settle(debt));
    assert!(!tells(&log, GOES));
    assert_eq!(tlb.ledger().owing(debt, &host.online()).0, CpuMask::EMPTY);
    come_back(&host, &tlb);
    assert_eq!(host.cached(GOES), 0);
    // And from then on they do.
    on(GOES, || {
        space.run();
        assert!(host.access(page(0), Access::Read).is_some());
    });
    space.clear(0).settle();
    assert_eq!(host.cached(GOES), 0);
}

/// Its flush is one of everything, so no later one waits for it.
fn a_cpu_that_comes_online_has_settled_what_it_owed<I: Isa>() {
    let (host, tlb, _space) = used::<I>();
    go(&host, &tlb);
    let debt = tlb.ledger().open(CpuMask::of(CpuId::new(GOES)));
    come_back(&host, &tlb);
    assert_eq!(tlb.ledger().owing(debt, &host.online()), (CpuMask::EMPTY, 1));
}

/// Its own barrier is the last chance to end what it has issued.
#[test]
fn a_cpu_completes_its_invalidations_before_it_goes_offline() {
    let (host, tlb, space) = used::<Aarch64>();
    let mut batch = Batch::new(&tlb);
    on(GOES, || batch.absorb(&space.context, space.clear(0)));
    go(&host, &tlb);
    assert_eq!(host.cached(2), 1);
    let ((), log) = host.log(|| batch.settle());
    assert_eq!(log, []);
    let ((), log) =
        host.log(|| tlb.flush_before_install(&space.context, space.slot(0), page(0), pagewright_types::Level::PTE));
    assert_eq!(log, [], "and every CPU knows");
}

/// A request that was sent while the CPU was there is answered before it goes.
#[test]
fn a_cpu_that_goes_offline_acknowledges_pending_requests() {
    let host = Host::<X86_64>::new(CPUS, FRAMES, Caps::baseline(X86_64::KIND), Delivery::Polled);
    let tlb = engine(&host, FRAMES);
    let space = Space::new(&tlb);
    space.map_new(0);
    on(GOES, || {
        space.run();
        assert!(host.access(page(0), Access::Write).is_some());
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            host.start_cpu(0);
            space.clear(0).settle();
        });
        while !host.is_interrupted(GOES) {
            std::thread::yield_now();
        }
        go(&host, &tlb);
    });
    // It had left the space when it was asked, so the answer is all that it owes; the generation
    // does the rest.
    come_back(&host, &tlb);
    assert_eq!(host.cached(GOES), 0);
}
