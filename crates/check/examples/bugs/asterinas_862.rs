//! Asterinas: a page was replaced by its copy, and nothing was flushed.
//!
//! **Shipped.** A write by the kernel into a program's memory (`VmMappingInner::write_bytes`) found
//! a read-only page that was to be copied on write, replaced it by a writable copy
//! (`VmSpace::unmap`, `VmSpace::map`) and wrote to that. No TLB was flushed on this path, so the
//! program could go on reading the old page. It came to light when other changes stopped loading
//! CR3 at each return to user mode. **Fix.** `VmSpace` flushes what it unmaps – on this CPU; the
//! pull request says itself that other CPUs are left for later.
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
                cpu.report(format_args!("the program reads {seen:?} where 2 was written"));
            }
        })]
    })
}
