//! Checks code that stores an entry in two halves through a pointer, with each store trapped.
//!
//! A page is mapped writable and not executable. The half with XD must be stored before the half
//! with P (Linux: `native_set_pte` of 32-bit PAE): otherwise a walk in between finds the page
//! executable. Without a trap no other CPU runs between the two stores, and both orders look alike.
//!
//! `cargo run -p pagewright-trap --example torn_entry`. The exit status is 1 unless the wrong order
//! is found, and only with the trap. It prints schedules a second, with and without.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use pagewright_check::{Check, CheckOutcome, Cpu, Harness, Level, Tag, VirtAddr, X86_64, program};
use pagewright_trap::map_memory;
use std::process::ExitCode;
use std::time::Instant;

const VA: VirtAddr = VirtAddr::new(1 << 30);
/// Present, writable, user, accessed, dirty; and not executable (Intel SDM table 4-20).
const FLAGS: u64 = 1 << 63 | 0x67;

/// The half that is stored first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    High,
    Low,
}

/// Makes tables without a leaf, loads them on all CPUs, and returns where the leaf's entry is.
fn tables(harness: &Harness<X86_64>) -> *mut u64 {
    let tables = [(); 4].map(|()| harness.alloc_frame());
    for (level, pair) in [Level::PGD, Level::PUD, Level::PMD].into_iter().zip(tables.windows(2)) {
        let at = pair[0].base().add(level.index_of(VA) as u64 * 8);
        harness.cpu(0).store(at, pair[1].base().raw() | 0b111);
    }
    harness.cpus().for_each(|cpu| cpu.load_root(tables[0], Tag::new(1)));
    harness.host_address(tables[3]).cast()
}

fn check(first: First, traps: bool, schedules: u32) -> CheckOutcome {
    let check = Check::<X86_64>::new().schedules(schedules);
    let check = if traps { check.trap_pointer_stores(map_memory) } else { check };
    check.explore(move |harness| {
        let (entry, frame) = (tables(harness).cast::<u32>(), harness.alloc_frame());
        let word = frame.base().raw() | FLAGS;
        let (low, high) = (word as u32, (word >> 32) as u32);
        let maps = program(move |_: &Cpu<X86_64>| {
            let halves = match first {
                First::High => [(1, high), (0, low)],
                First::Low => [(0, low), (1, high)],
            };
            for (index, half) in halves {
                // SAFETY: the pointer is to a word of a frame of the machine.
                unsafe { entry.wrapping_add(index).write_volatile(half) };
            }
        });
        let executes = program(|cpu: &Cpu<X86_64>| {
            if cpu.fetch(VA).is_ok() {
                cpu.report("a page that is not executable was executed");
            }
        });
        vec![maps, executes]
    })
}

fn main() -> ExitCode {
    if all_as_expected(2000) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether the wrong order is found with the trap, and nothing else is.
pub(crate) fn all_as_expected(schedules: u32) -> bool {
    let versions = [(First::High, true), (First::Low, true), (First::Low, false)];
    versions.into_iter().all(|(first, traps)| {
        let started = Instant::now();
        let outcome = check(first, traps, schedules);
        let rate = f64::from(outcome.search().schedules) / started.elapsed().as_secs_f64();
        println!("=== first {first:?}, trap: {traps}; {rate:.0} schedules a second\n{outcome}\n");
        outcome.finding().is_some() == (first == First::Low && traps)
    })
}
