//! OSv: a copy on write that told only its own CPU.
//!
//! **Proposed** (an open pull request; a reviewer saw it in the source). A write fault on a page
//! shared after `fork()` that comes nested in another exception must not wait for other CPUs, so it
//! flushed only its own TLB: the new page is private to this address space, and other CPUs were
//! taken to run other spaces. But the parent may have threads on other CPUs, and nothing bounds how
//! long they go on reading the page that it shared. **Fix.** The path for faults that are not
//! nested flushes all CPUs.
//!
//! **Here.** A parent of two threads; one writes, the other reads. The fix waits, which a nested
//! fault must not: the program keeps what is right, and not how OSv gets there.

use crate::corpus::kernel::{Space, copy, flush_everywhere, page, pages, reads};
use crate::corpus::{Bug, FoundBy, RunMode, Version};
use pagewright_check::{Check, CheckOutcome, InvalidateScope, IsaKind, Rights, Rule, X86_64, program};

pub(crate) const BUG: Bug = Bug {
    name: "OSv #1475",
    link: "https://github.com/cloudius-systems/osv/pull/1475",
    what: "a nested write fault after fork flushes only the local CPU, while the parent runs on others",
    isa: IsaKind::X86_64,
    found_by: FoundBy::Rule(Rule::Rights),
    check,
};

fn check(version: Version, mode: &RunMode<'_>) -> CheckOutcome {
    mode.run(Check::<X86_64>::new().cpus(2), move |harness| {
        let space = Space::run_everywhere(harness);
        let shared = space.map_new(harness, 0, Rights::READ, 1);
        vec![
            program(move |cpu| {
                while cpu.write(page(0), 2).is_err() {
                    cpu.call("write fault", |cpu| {
                        cpu.will_reduce(pages(0), Rights::empty());
                        let own = cpu.alloc_frame();
                        copy(cpu, shared, own);
                        space.map(cpu, 0, own, Rights::RW);
                        match version {
                            Version::Shipped => cpu.flush_all(InvalidateScope::Local),
                            Version::Fixed => flush_everywhere(cpu, 0),
                        }
                    });
                }
            }),
            program(|cpu| reads(cpu, 1)),
        ]
    })
}
