//! Asterinas: a page was replaced by its copy without a flush.
//!
//! **Shipped.** When the kernel wrote into the memory of a program (`VmMappingInner::write_bytes`)
//! and found a read-only copy-on-write page, it replaced the page by a writable copy
//! (`VmSpace::unmap`, `VmSpace::map`) and wrote to the copy. This path flushed no TLB, so the
//! program could go on reading the old page. The bug surfaced when other changes stopped loading
//! CR3 at each return to user mode. **Fix.** `VmSpace` flushes the pages that it unmaps, on this
//! CPU only; the pull request leaves other CPUs for later.
//!
//! **Here.** One CPU, one page, one system call that writes to it.

use crate::corpus::kernel::{Space, copy, fill, page, pages};
use crate::corpus::{Bug, FoundBy, RunMode, Version};
use pagewright_check::{Check, CheckOutcome, InvalidateScope, IsaKind, Rights, Rule, X86_64, program};

pub(crate) const BUG: Bug = Bug {
    name: "Asterinas #862",
    link: "https://github.com/asterinas/asterinas/pull/862",
    what: "a copy-on-write fault replaces the entry without a flush",
    isa: IsaKind::X86_64,
    found_by: FoundBy::Rule(Rule::Rights),
    check,
};

fn check(version: Version, mode: &RunMode<'_>) -> CheckOutcome {
    mode.run(Check::<X86_64>::new().cpus(1), move |harness| {
        let space = Space::run_everywhere(harness);
        let shared = space.map_new(harness, 0, Rights::READ, 1);
        vec![program(move |cpu| {
            cpu.read(page(0)).ok();
            cpu.call("read(2) into the page", |cpu| {
                cpu.will_reduce(pages(0), Rights::empty());
                let own = cpu.alloc_frame();
                copy(cpu, shared, own);
                space.clear(cpu, 0);
                space.map(cpu, 0, own, Rights::RW);
                match version {
                    Version::Shipped => {}
                    Version::Fixed => cpu.flush_page(page(0), InvalidateScope::Local),
                }
                fill(cpu, own, 2);
            });
            let seen = cpu.read(page(0));
            if seen != Ok(2) {
                cpu.report(format_args!("the program reads {seen:?} where the kernel wrote 2"));
            }
        })]
    })
}
