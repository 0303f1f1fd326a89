//! Devices that walk a space's tables.
//!
//! INV-TLB-SECONDARY.

use super::space::{Space, machine, page};
use crate::refusing_heap::refusing;
use crate::support::{Effect, Host};
use pagewright_arch::Isa;
use pagewright_arch::on_both;
use pagewright_tlb::{Batch, Gather, SecondaryMmu, Tlb};
use pagewright_types::{Level, PageRange, VirtAddr};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};

on_both! {
    a_device_is_invalidated_when_a_flush_is_deferred,
    a_device_is_invalidated_before_any_cpu_is_waited_for,
    a_device_is_invalidated_for_its_space_while_registered,
    a_device_is_invalidated_after_another_is_gone,
    registering_a_device_without_memory_fails,
}

const PAGES: u16 = 6;

/// A TLB outside of the CPUs.
#[derive(Default)]
struct Device {
    cached: Mutex<BTreeSet<VirtAddr>>,
    told: Mutex<Vec<Option<PageRange>>>,
}

impl Device {
    fn cached(&self) -> MutexGuard<'_, BTreeSet<VirtAddr>> {
        self.cached.lock().expect("no test panicked here")
    }

    fn told(&self) -> Vec<Option<PageRange>> {
        std::mem::take(&mut self.told.lock().expect("no test panicked here"))
    }
}

impl SecondaryMmu for Device {
    fn invalidate_secondary(&self, range: Option<PageRange>) {
        self.told.lock().expect("no test panicked here").push(range);
        self.cached().retain(|va| range.is_some_and(|range| *va < range.start() || range.end() <= *va));
    }
}

type Shared<I> = (Host<I>, Arc<Tlb<Host<I>>>, Space<I>, Arc<Device>);

/// A space of [`PAGES`] pages that CPU 1 runs, all of them known to a device.
fn shared<I: Isa>() -> Shared<I> {
    let (host, tlb) = machine::<I>(2);
    let space = Space::new(&tlb);
    crate::support::on(1, || space.run());
    let device = Arc::new(Device::default());
    tlb.register_secondary(&space.context, device.clone()).expect("memory is left");
    for index in 0..PAGES {
        space.map_new(index);
        device.cached().insert(page(index));
    }
    (host, tlb, space, device)
}

fn a_device_is_invalidated_when_a_flush_is_deferred<I: Isa>() {
    let (host, tlb, space, device) = shared::<I>();
    let mut batch = Batch::new(&tlb);
    for index in 0..PAGES {
        let ((), log) = host.log(|| batch.absorb(&space.context, space.clear(index)));
        assert!(!log.iter().any(|step| matches!(step.effect, Effect::Complete | Effect::SendIpi(_))), "{log:?}");
        assert!(!device.cached().contains(&page(index)), "page {index}");
        assert_eq!(device.cached().len(), usize::from(PAGES - 1 - index));
    }
    assert_eq!(batch.len(), u32::from(PAGES));
    batch.settle();
}

fn a_device_is_invalidated_before_any_cpu_is_waited_for<I: Isa>() {
    let (host, tlb, space, device) = shared::<I>();
    let seen = device.clone();
    host.watch(move || seen.cached().len() as u64);
    let waited = |body: &mut dyn FnMut()| -> Vec<u64> {
        let ((), log) = host.log(body);
        let waits = log.iter().filter(|step| matches!(step.effect, Effect::Complete | Effect::SendIpi(_)));
        waits.map(|step| step.probe).collect()
    };
    let left = u64::from(PAGES);
    assert_eq!(waited(&mut || space.clear(0).settle()), [left - 1]);
    let two = |first: u16| {
        let mut gather = Gather::new(&tlb, &space.context);
        gather.absorb(space.clear(first));
        gather.absorb(space.clear(first + 1));
        gather
    };
    assert_eq!(waited(&mut || two(1).settle()), [left - 3]);
    // Dropped in debug builds it is a mistake, and told of all the same.
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(two(3))));
    assert_eq!((dropped.is_err(), device.cached().len()), (cfg!(debug_assertions), 0), "which pages is not known");
    assert_eq!(device.told().len(), 3);
}

fn a_device_is_invalidated_for_its_space_while_registered<I: Isa>() {
    let (_, tlb, space, device) = shared::<I>();
    let other = Space::new(&tlb);
    other.map_new(0);
    other.clear(0).settle();
    assert_eq!(device.told(), []);
    tlb.flush_before_install(&space.context, space.slot(0), page(0), Level::PTE);
    assert_eq!(device.told(), [], "nothing was cleared");
    let mmu: Arc<dyn SecondaryMmu> = device.clone();
    tlb.unregister_secondary(&other.context, &mmu);
    space.clear(0).settle();
    assert_eq!(device.told(), [Some(PageRange::page(page(0)))]);
    tlb.unregister_secondary(&space.context, &mmu);
    space.clear(1).settle();
    assert_eq!(device.told(), []);
    assert_eq!(Arc::strong_count(&device), 2, "the engine has let go of it");
}

fn a_device_is_invalidated_after_another_is_gone<I: Isa>() {
    let (_, tlb, space, device) = shared::<I>();
    let others = [(); 2].map(|()| Arc::new(Device::default()));
    for other in &others {
        tlb.register_secondary(&space.context, other.clone()).expect("memory is left");
    }
    for (gone, other) in (0..).zip(&others) {
        let mmu: Arc<dyn SecondaryMmu> = other.clone();
        tlb.unregister_secondary(&space.context, &mmu);
        assert_eq!(Arc::strong_count(other), 2, "the engine has let go of it");
        space.clear(gone).settle();
        assert_eq!((device.told().len(), other.told().len()), (1, usize::from(gone)), "{gone} and the first");
    }
}

fn registering_a_device_without_memory_fails<I: Isa>() {
    let (host, tlb) = machine::<I>(1);
    let space = Space::new(&tlb);
    space.map_new(0);
    let device = Arc::new(Device::default());
    host.permit(0);
    assert!(tlb.register_secondary(&space.context, device.clone()).is_err());
    host.permit_all();
    let (registered, refused) = refusing(0, || tlb.register_secondary(&space.context, device.clone()));
    assert!(registered.is_err() && refused.is_some(), "{registered:?} by the heap, {refused:?}");
    space.clear(0).settle();
    assert_eq!((device.told(), Arc::strong_count(&device)), (vec![], 1));
}
