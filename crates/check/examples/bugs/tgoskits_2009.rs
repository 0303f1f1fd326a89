//! tgoskits: a page table was freed while walk caches pointed to it.
//!
//! **Shipped.** `unmap_range_recursive` of page-table-generic flushes each leaf that it clears. A
//! table that becomes empty was unlinked from the table above and freed at once. A walk after the
//! flush of the last leaf may have left a walk-cache entry that points to the table. Once the frame
//! is reallocated, that CPU reads it as a page table. **Fix** (proposed, open): the addresses of
//! the table are flushed before its frame is freed.
//!
//! **Here.** One leaf, its table, and a thread on the other CPU that uses the page. The program
//! runs on arm64, where the kernel's flush is broadcast; the discussion of the pull request says
//! that it is local elsewhere.

use crate::corpus::kernel::{page, pages, tlbi_vae1is};
use crate::corpus::{Bug, FoundBy, RunMode, Version};
use pagewright_check::{Aarch64, CheckOutcome, Cpu, IsaKind, Level, Rights, Rule};

pub(crate) const BUG: Bug = Bug {
    name: "tgoskits #2009",
    link: "https://github.com/rcore-os/tgoskits/pull/2009",
    what: "an empty table is unlinked and freed without a flush",
    isa: IsaKind::Aarch64,
    found_by: FoundBy::Rule(Rule::Reuse),
    check,
};

fn flush(cpu: &Cpu<Aarch64>) {
    cpu.publish();
    tlbi_vae1is(cpu, page(0).raw() >> 12);
    cpu.complete();
}

fn check(version: Version, mode: &RunMode<'_>) -> CheckOutcome {
    mode.run_beside_reader(Rights::RW, |space, _| {
        move |cpu: &Cpu<Aarch64>| {
            cpu.call("unmap_range", |cpu| {
                cpu.will_reduce(pages(0), Rights::empty());
                space.clear(cpu, 0);
                flush(cpu);
                cpu.store(space.entry(Level::PMD, 0), 0);
                if version == Version::Fixed {
                    flush(cpu);
                }
                cpu.free_frame(space.last_table());
            });
        }
    })
}
