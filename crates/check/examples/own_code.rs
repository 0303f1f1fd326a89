//! From an empty test to a finding: the code of a kernel, and the glue that checks it.
//!
//! `paging` is the code under test. It knows nothing of the check: its handlers are static methods,
//! and it stores entries through pointers. It has a mistake ([`paging::Order::FreeFirst`]), which
//! the check finds; the corrected order is clean. The guide of the crate goes through it step by
//! step.
//!
//! `cargo run -p pagewright-check --example own_code`. The exit status is 1 unless the empty test
//! is no evidence, the mistake is found and the correction is clean.

use pagewright_check::{
    Check, CheckOutcome, Cpu, InvalidateScope, PageRange, Pfn, PhysAddr, Rights, Rule, Tag, Vacuity, VirtAddr, X86_64,
    current, program,
};
use paging::{Handlers, Order, Space};
use std::process::ExitCode;

mod paging {
    //! Page tables of x86-64, of a kernel with a direct map.

    use std::marker::PhantomData;

    /// What the kernel supplies.
    pub(crate) trait Handlers: Send + Sync + 'static {
        fn direct_map() -> usize;
        fn alloc_frame() -> u64;
        fn free_frame(frame: u64);
        fn flush_everywhere(va: u64);
    }

    /// The order in which `unmap` frees the frame and flushes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Order {
        FreeFirst,
        FlushFirst,
    }

    pub(crate) struct Space<H> {
        pub(crate) root: u64,
        handlers: PhantomData<H>,
    }

    impl<H: Handlers> Space<H> {
        pub(crate) fn new() -> Self {
            Self { root: H::alloc_frame(), handlers: PhantomData }
        }

        /// The entry of `va` in the last table; makes the tables above it.
        fn entry(&self, va: u64) -> *mut u64 {
            let slot = |table: u64, level: u32| {
                let index = (va >> (12 + 9 * level) & 511) as usize;
                ((H::direct_map() + table as usize) as *mut u64).wrapping_add(index)
            };
            let mut table = self.root;
            for level in [3, 2, 1] {
                let pointer = slot(table, level);
                // SAFETY: the table is in the direct map.
                let mut word = unsafe { pointer.read_volatile() };
                if word & 1 == 0 {
                    word = H::alloc_frame() | 0b111;
                    // SAFETY: as above.
                    unsafe { pointer.write_volatile(word) };
                }
                table = word & 0x000f_ffff_ffff_f000;
            }
            slot(table, 0)
        }

        pub(crate) fn map(&self, va: u64) {
            // SAFETY: as above.
            unsafe { self.entry(va).write_volatile(H::alloc_frame() | 0b111) };
        }

        pub(crate) fn unmap(&self, va: u64, order: Order) {
            let entry = self.entry(va);
            // SAFETY: as above.
            let frame = unsafe { entry.read_volatile() } & 0x000f_ffff_ffff_f000;
            // SAFETY: as above.
            unsafe { entry.write_volatile(0) };
            if order == Order::FreeFirst {
                H::free_frame(frame);
            }
            H::flush_everywhere(va);
            if order == Order::FlushFirst {
                H::free_frame(frame);
            }
        }
    }
}

/// The machine as the kernel's handlers: a type without fields, which asks for the machine.
struct Machine;

fn pfn(frame: u64) -> Pfn {
    Pfn::containing(PhysAddr::new(frame))
}

impl Handlers for Machine {
    fn direct_map() -> usize {
        current::<X86_64>().phys_offset()
    }

    fn alloc_frame() -> u64 {
        current::<X86_64>().alloc_frame().base().raw()
    }

    fn free_frame(frame: u64) {
        current::<X86_64>().free_frame(pfn(frame));
    }

    fn flush_everywhere(va: u64) {
        let (cpu, va) = (current::<X86_64>(), VirtAddr::new(va));
        cpu.flush_page(va, InvalidateScope::Local);
        cpu.shoot_down(cpu.others(), move |cpu: &Cpu<X86_64>| cpu.flush_page(va, InvalidateScope::Local));
    }
}

const VA: u64 = 0x40_0000;

fn check(order: Order) -> CheckOutcome {
    Check::<X86_64>::new().schedules(500).explore(move |harness| {
        // The set-up: one CPU runs, and there are no races.
        let space = Space::<Machine>::new();
        space.map(VA);
        harness.cpus().for_each(|cpu| cpu.load_root(pfn(space.root), Tag::new(1)));
        let page = VirtAddr::new(VA);
        vec![
            // CPU 0 unmaps the page, and says so.
            program(move |cpu: &Cpu<X86_64>| {
                cpu.call("munmap", |cpu| {
                    cpu.will_reduce(PageRange::page(page), Rights::empty());
                    space.unmap(VA, order);
                });
            }),
            // CPU 1 uses it.
            program(move |cpu: &Cpu<X86_64>| (0..3).for_each(|_| _ = cpu.read(page))),
        ]
    })
}

fn main() -> ExitCode {
    if all_as_expected() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether each step of the guide has the result that it states.
pub(crate) fn all_as_expected() -> bool {
    let empty = Check::<X86_64>::new().schedules(10).explore(|_| Vec::new());
    println!("An empty test: {empty}\n");
    let [mistake, corrected] = [Order::FreeFirst, Order::FlushFirst].map(|order| {
        let outcome = check(order);
        println!("{order:?}: {outcome}\n");
        (outcome.finding().map(|finding| finding.rule()), outcome.vacuity())
    });
    let found = mistake.0 == Some(Some(Rule::Reuse));
    empty.vacuity() == Some(Vacuity::NoAccess) && found && corrected == (None, None)
}
