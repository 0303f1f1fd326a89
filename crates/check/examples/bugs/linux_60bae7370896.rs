//! Linux: `madvise` returned before a concurrent migration had flushed.
//!
//! **Shipped.** `migrate_vma_collect_pmd`, which collects pages to migrate to a device, cleared
//! their entries under the page-table lock and flushed after it had released the lock. A concurrent
//! `MADV_DONTNEED` in between finds no entry, flushes nothing, and returns while TLBs still map the
//! page. **Fix** (60bae7370896): flush before the lock is released.
//!
//! **Here.** One page, collected by CPU 0 and discarded by CPU 2, and a thread that uses it. The
//! migration declares no reduction, because it would map the page again. Left out: the migration
//! itself.

use crate::corpus::kernel::{Space, flush_and_unlock, flush_everywhere, pages};
use crate::corpus::{Bug, FoundBy, RunMode, Version};
use pagewright_check::{CheckOutcome, Cpu, IsaKind, Rights, Rule, X86_64};

pub(crate) const BUG: Bug = Bug {
    name: "Linux 60bae7370896",
    link: "https://git.kernel.org/linus/60bae73708963de4a17231077285bd9ff2f41c44",
    what: "migrate_vma flushes after it releases the page-table lock, so madvise finds nothing left to flush",
    isa: IsaKind::X86_64,
    found_by: FoundBy::Rule(Rule::Rights),
    check,
};

fn collect(version: Version, space: &Space, cpu: &Cpu<X86_64>) {
    let held = space.lock.lock();
    space.clear(cpu, 0);
    flush_and_unlock(version, cpu, || drop(held));
}

fn discard(space: &Space, cpu: &Cpu<X86_64>) {
    cpu.call("madvise(MADV_DONTNEED)", |cpu| {
        cpu.will_reduce(pages(0), Rights::empty());
        let _held = space.lock.lock();
        if space.clear(cpu, 0).is_some() {
            flush_everywhere(cpu, 0);
        }
    });
}

fn check(version: Version, mode: &RunMode<'_>) -> CheckOutcome {
    mode.run_around_reader(move |space, cpu| collect(version, space, cpu), discard)
}
