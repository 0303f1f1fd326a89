//! seL4: without PCIDs, unmapping a page of a space that another core runs flushed nothing.
//!
//! **Shipped.** On x86 CPUs without PCIDs, `unmapPage` skipped the invalidation if the space was
//! not that of the running thread; `flushTable` still has this condition in the fixed source. On
//! one core the condition is correct, since loading CR3 of the other space flushes. With several
//! cores, a thread of that space may run on another core. **Fix.** `unmapPage` always invalidates,
//! on all cores that may have the space loaded.
//!
//! **Here.** A machine without PCIDs. A thread on CPU 0 unmaps a page of the space that CPU 1 runs.
//! Left out: capabilities, and the mask of cores that have a space loaded.

use crate::corpus::kernel::{Space, TAG, flush_everywhere, pages, reads};
use crate::corpus::{Bug, FoundBy, RunMode, Version};
use pagewright_check::{Check, CheckOutcome, IsaKind, Rights, Rule, X86_64, program};

pub(crate) const BUG: Bug = Bug {
    name: "seL4 #107",
    link: "https://github.com/seL4/seL4/pull/107",
    what: "without PCIDs, an unmap from a space that another CPU runs flushes nothing",
    isa: IsaKind::X86_64,
    found_by: FoundBy::Rule(Rule::Rights),
    check,
};

fn check(version: Version, mode: &RunMode<'_>) -> CheckOutcome {
    mode.run(Check::<X86_64>::new().cpus(2).untagged(), move |harness| {
        let space = Space::run_everywhere(harness);
        let own = Space::new(harness);
        space.map_new(harness, 0, Rights::RW, 1);
        harness.cpu(0).load_root(own.root(), TAG);
        vec![
            program(move |cpu| {
                cpu.call("unmapPage", |cpu| {
                    cpu.will_reduce_under(space.root(), pages(0), Rights::empty());
                    space.clear(cpu, 0);
                    let runs_here = own.root() == space.root();
                    if runs_here || version == Version::Fixed {
                        flush_everywhere(cpu, 0);
                    }
                });
            }),
            program(|cpu| reads(cpu, 1)),
        ]
    })
}
