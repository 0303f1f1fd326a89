//! Asterinas: a task ran on the stack of another task.
//!
//! **Shipped.** Kernel stacks are mapped in areas (`KVirtArea`) whose addresses are reused. Their
//! TLB entries could not be kept coherent: an area is created with interrupts disabled, when
//! waiting for other CPUs could deadlock. A task that migrated to a CPU which had earlier run a
//! task on a stack at the same addresses found the contents of the earlier stack. **Fix.** In the
//! source since then, a stack records the CPUs on which it is coherent, and a CPU that switches to
//! it for the first time flushes its addresses (`KernelStack::flush_tlb`).
//!
//! **Here.** One page of stack, two tasks, two CPUs. The machine has no kernel mappings, so a user
//! page stands for the stack. The frame of the first stack is not freed: its early reuse is another
//! bug (#2849), which the fix leaves open.

use crate::corpus::kernel::{Space, page};
use crate::corpus::{Bug, FoundBy, RunMode, Version};
use pagewright_check::{Check, CheckOutcome, InvalidateScope, IsaKind, Rights, X86_64, program};
use std::cell::Cell;
use std::rc::Rc;

pub(crate) const BUG: Bug = Bug {
    name: "Asterinas #1952",
    link: "https://github.com/asterinas/asterinas/pull/1952",
    what: "addresses of kernel stacks are reused without a flush on other CPUs",
    isa: IsaKind::X86_64,
    found_by: FoundBy::Value,
    check,
};

/// How far the tasks have come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    FirstRuns,
    FirstEnded,
    SecondMoves,
}

fn check(version: Version, mode: &RunMode<'_>) -> CheckOutcome {
    mode.run(Check::<X86_64>::new().cpus(2), move |harness| {
        let space = Space::run_everywhere(harness);
        space.map_new(harness, 0, Rights::RW, 1);
        let stage = Rc::new(Cell::new(Stage::FirstRuns));
        let there = Rc::clone(&stage);
        vec![
            program(move |cpu| {
                while stage.get() != Stage::FirstEnded {
                    cpu.relax();
                }
                space.clear(cpu, 0);
                space.map(cpu, 0, cpu.alloc_frame(), Rights::RW);
                cpu.flush_page(page(0), InvalidateScope::Local);
                cpu.write(page(0), 2).ok();
                stage.set(Stage::SecondMoves);
            }),
            program(move |cpu| {
                cpu.read(page(0)).ok();
                there.set(Stage::FirstEnded);
                while there.get() != Stage::SecondMoves {
                    cpu.relax();
                }
                if version == Version::Fixed {
                    cpu.flush_page(page(0), InvalidateScope::Local);
                }
                let seen = cpu.read(page(0));
                if seen != Ok(2) {
                    cpu.report(format_args!("the second task reads {seen:?} on its stack, where it wrote 2"));
                }
            }),
        ]
    })
}
