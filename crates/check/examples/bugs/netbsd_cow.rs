//! NetBSD and OpenBSD: two threads saw different pages at one address.
//!
//! **Shipped.** A copy-on-write fault made the copy writable and then flushed the other CPUs, one
//! after the other. The bug corrupted Go programs. The store of thread A copies the page. Thread B,
//! whose CPU has flushed, stores to the copy under a lock. Thread C, whose CPU has not flushed,
//! reads the old page under the same lock, and the new page after it has flushed. **Fix** (OpenBSD,
//! amd64 pmap, 2022-02-01): the copy is mapped read-only, the other CPUs flush, and only then does
//! the copy become writable. FreeBSD's D14347 discusses the same race.
//!
//! **Here.** The three threads and the page of the report. When the fault returns, every CPU has
//! flushed, so no rule of the oracle is broken: the program sees the race as the original program
//! does, by reading twice under the lock.

use crate::corpus::kernel::{Space, copy, flush_everywhere, page, pages};
use crate::corpus::{Bug, FoundBy, RunMode, Version};
use pagewright_check::{Check, CheckOutcome, Cpu, HarnessLock, IsaKind, Pfn, Rights, X86_64, program};
use std::rc::Rc;

pub(crate) const BUG: Bug = Bug {
    name: "NetBSD, in golang/go #34988",
    link: "https://github.com/golang/go/issues/34988",
    what: "a copied page is writable before every CPU has dropped the translation of the original",
    isa: IsaKind::X86_64,
    found_by: FoundBy::Value,
    check,
};

fn write_fault(version: Version, space: &Space, shared: Pfn, cpu: &Cpu<X86_64>) {
    cpu.call("write fault", |cpu| {
        let _held = space.lock.lock();
        if space.writable(cpu, 0).is_some() {
            return;
        }
        cpu.will_reduce(pages(0), Rights::empty());
        let own = cpu.alloc_frame();
        copy(cpu, shared, own);
        if version == Version::Fixed {
            space.map(cpu, 0, own, Rights::READ);
            flush_everywhere(cpu, 0);
        }
        space.map(cpu, 0, own, Rights::RW);
        if version == Version::Shipped {
            flush_everywhere(cpu, 0);
        }
    });
}

fn check(version: Version, mode: &RunMode<'_>) -> CheckOutcome {
    mode.run(Check::<X86_64>::new().cpus(3), move |harness| {
        let space = Space::run_everywhere(harness);
        let shared = space.map_new(harness, 0, Rights::READ, 1);
        let fault = Rc::new(move |cpu: &Cpu<X86_64>| write_fault(version, &space, shared, cpu));
        let lock = Rc::new(HarnessLock::new(()));
        let (faults, locks) = (Rc::clone(&fault), Rc::clone(&lock));
        let (x, y) = (page(0), page(0).add(512));
        vec![
            program(move |cpu| {
                while cpu.write(y, 1).is_err() {
                    fault(cpu);
                }
            }),
            program(move |cpu| {
                for value in 2..5 {
                    let _held = locks.lock();
                    while cpu.write(x, value).is_err() {
                        faults(cpu);
                    }
                }
            }),
            program(move |cpu| {
                for _ in 0..3 {
                    let _held = lock.lock();
                    let (first, then) = (cpu.read(x), cpu.read(x));
                    if first != then {
                        cpu.report(format_args!("x was {first:?} and then {then:?}, while the lock was held"));
                    }
                }
            }),
        ]
    })
}
