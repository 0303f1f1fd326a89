//! Linux: `mremap` released the page-table locks before it flushed (CVE-2018-18281).
//!
//! **Shipped.** `mremap` moves entries under both page-table locks, and flushed the old addresses
//! after it had released the locks. In between, a concurrent truncation finds the page at its new
//! address, flushes that address, and frees the page, which other CPUs still reach through the old
//! address. **Fix** (eb66ae030829): the old addresses are flushed before either lock is released,
//! because only the lock keeps the page alive.
//!
//! **Here.** One page moves from page 0 to page 1, under one lock for both tables. One thread uses
//! the old address. A third CPU truncates and frees the page, by which the bug is found.

use crate::corpus::kernel::{Space, flush_and_unlock, flush_everywhere, pages};
use crate::corpus::{Bug, FoundBy, RunMode, Version};
use pagewright_check::{CheckOutcome, Cpu, IsaKind, Rights, Rule, X86_64};

pub(crate) const BUG: Bug = Bug {
    name: "Linux CVE-2018-18281",
    link: "https://git.kernel.org/linus/eb66ae030829605d61fbef1909ce310e29f78821",
    what: "mremap flushes the old addresses after it releases the page-table locks",
    isa: IsaKind::X86_64,
    found_by: FoundBy::Rule(Rule::Reuse),
    check,
};

fn mremap(version: Version, space: &Space, cpu: &Cpu<X86_64>) {
    cpu.call("mremap", |cpu| {
        cpu.will_reduce(pages(0), Rights::empty());
        let held = space.lock.lock();
        if let Some(moved) = space.clear(cpu, 0) {
            space.map(cpu, 1, moved, Rights::RW);
        }
        flush_and_unlock(version, cpu, || drop(held));
    });
}

fn ftruncate(space: &Space, cpu: &Cpu<X86_64>) {
    cpu.call("ftruncate", |cpu| {
        for index in [0, 1] {
            cpu.will_reduce(pages(index), Rights::empty());
            let held = space.lock.lock();
            let gone = space.clear(cpu, index);
            if gone.is_some() {
                flush_everywhere(cpu, index);
            }
            drop(held);
            gone.into_iter().for_each(|frame| cpu.free_frame(frame));
        }
    });
}

fn check(version: Version, mode: &RunMode<'_>) -> CheckOutcome {
    mode.run_around_reader(move |space, cpu| mremap(version, space, cpu), ftruncate)
}
