//! Calls that populate or pin many pages offer the CPU to other work.
//!
//! The machine counts the offers, and panics if the caller holds a lock. INV-MM-RESCHED.

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, GupCall, TestProcess};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{Advice, MapFlags};
use pagewright_sim::MachineEvent;
use pagewright_types::{PAGE_SIZE, Rights, VirtAddr};

on_both! { a_call_on_many_pages_offers_the_cpu_before_each }

const PAGES: u64 = 70;

/// Does to `PAGES` untouched pages what a row of the table names.
type Call<I> = fn(&TestProcess<I>, VirtAddr);

fn advise<I: Isa>(process: &TestProcess<I>, at: VirtAddr, advice: Advice) {
    process.advise(at, PAGES, advice);
}

fn take<I: Isa>(process: &TestProcess<I>, at: VirtAddr, call: GupCall) {
    process.take(CPU, at, PAGES, call).expect("memory").release(MakeDirty::No);
}

fn a_call_on_many_pages_offers_the_cpu_before_each<I: Isa>() {
    let rows: [(&str, Call<I>); 8] = [
        ("MAP_POPULATE", |process, _| {
            process.map(PAGES, Rights::RW, ANON | MapFlags::POPULATE, None);
        }),
        ("MADV_POPULATE_READ", |process, at| advise(process, at, Advice::PopulateRead)),
        ("MADV_POPULATE_WRITE", |process, at| advise(process, at, Advice::PopulateWrite)),
        ("mlock", |process, at| {
            process.world.on(CPU, |mm| mm.mlock(&process.space, at, PAGES * PAGE_SIZE)).expect("memory");
        }),
        ("get_user_pages", |process, at| take(process, at, GupCall::Get(GupFlags::WRITE))),
        ("get_user_pages_fast", |process, at| take(process, at, GupCall::GetFast(GupFlags::WRITE))),
        ("pin_user_pages", |process, at| take(process, at, GupCall::Pin(GupFlags::WRITE))),
        ("a bulk pin", |process, at| take(process, at, GupCall::Pin(GupFlags::WRITE | GupFlags::HINT_BULK))),
    ];
    for (name, call) in rows {
        let (world, process) = TestProcess::<I>::judged(1);
        let offers = || world.lab.sim().total(MachineEvent::ReschedOffers);
        let at = process.anon(PAGES);
        assert_eq!(offers(), 0, "{name}");
        call(&process, at);
        assert_eq!(offers(), PAGES, "{name}");
        // The same holds for pages that are present.
        call(&process, at);
        assert_eq!(offers(), 2 * PAGES, "{name}, the second time");
        TestProcess::end_all_at_rest(&[&process]);
    }
}

#[cfg(feature = "planted")]
#[test]
fn a_populate_that_never_offers_the_cpu_is_found() {
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(
        PlantedBug::PopulateNoResched,
        a_call_on_many_pages_offers_the_cpu_before_each::<pagewright_arch::X86_64>,
    );
}
