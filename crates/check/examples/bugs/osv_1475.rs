//! OSv: a copy-on-write fault flushed only its own CPU.
//!
//! **Proposed** (an open pull request; a reviewer found the bug in the source). A write fault on a
//! page shared by `fork()`, nested in another exception, must not wait for other CPUs. It flushed
//! only its own TLB, on the assumption that other CPUs run other address spaces. But the parent may
//! have threads on other CPUs, which go on reading the shared page for an unbounded time. **Fix.**
//! The path for faults that are not nested flushes all CPUs.
//!
//! **Here.** A parent with two threads: one writes, the other reads. The fixed version waits for
//! the other CPU, which a nested fault must not do: the program keeps the result of OSv's fix, and
//! not its mechanism.

use crate::corpus::kernel::{copy, flush_everywhere, page, pages};
use crate::corpus::{Bug, FoundBy, RunMode, Version};
use pagewright_check::{CheckOutcome, Cpu, InvalidateScope, IsaKind, Rights, Rule, X86_64};

pub(crate) const BUG: Bug = Bug {
    name: "OSv #1475",
    link: "https://github.com/cloudius-systems/osv/pull/1475",
    what: "a nested write fault after fork flushes only the local CPU, while the parent runs on others",
    isa: IsaKind::X86_64,
    found_by: FoundBy::Rule(Rule::Rights),
    check,
};

fn check(version: Version, mode: &RunMode<'_>) -> CheckOutcome {
    mode.run_beside_reader(Rights::READ, |space, shared| {
        move |cpu: &Cpu<X86_64>| {
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
        }
    })
}
