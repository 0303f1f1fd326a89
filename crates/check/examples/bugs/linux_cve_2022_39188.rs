//! Linux: a driver reclaimed its pages before `munmap` had flushed (CVE-2022-39188).
//!
//! **Shipped.** `munmap` clears the entries, unlinks the mapping from its file, and flushes last. A
//! driver that reclaims pages has every mapping of the file cleared (`unmap_mapping_range`). Once
//! the mapping is unlinked, that call does nothing, and the driver goes on while TLBs still map its
//! pages. **Fix** (b67fbebd4cf9): for mappings of raw page frames, flush before the mapping is
//! unlinked.
//!
//! **Here.** One page of a driver, a thread that uses it, a thread that unmaps it, and the driver
//! on a third CPU, which frees the page: by that the bug is found. While the
//! mapping is linked, the call of the driver flushes even if it finds the entry cleared, as Linux
//! does while another flush is pending.

use crate::corpus::kernel::{Space, flush_everywhere, pages, reads};
use crate::corpus::{Bug, FoundBy, RunMode, Version};
use pagewright_check::{Check, CheckOutcome, Cpu, IsaKind, Rights, Rule, X86_64, program};
use std::cell::Cell;
use std::rc::Rc;

pub(crate) const BUG: Bug = Bug {
    name: "Linux CVE-2022-39188",
    link: "https://git.kernel.org/linus/b67fbebd4cf980aecbcc750e1462128bffe8ae15",
    what: "munmap unlinks a driver's mapping before it flushes, so the driver does not wait for the flush",
    isa: IsaKind::X86_64,
    found_by: FoundBy::Rule(Rule::Reuse),
    check,
};

/// A space, and whether its mapping is linked to the file; the lock of the space protects both.
struct Mapping {
    space: Rc<Space>,
    linked: Cell<bool>,
}

impl Mapping {
    fn munmap(&self, version: Version, cpu: &Cpu<X86_64>) {
        cpu.call("munmap", |cpu| {
            cpu.will_reduce(pages(0), Rights::empty());
            self.space.clear(cpu, 0);
            if version == Version::Fixed {
                flush_everywhere(cpu, 0);
            }
            let held = self.space.lock.lock();
            self.linked.set(false);
            drop(held);
            if version == Version::Shipped {
                flush_everywhere(cpu, 0);
            }
        });
    }

    fn unmap_mapping_range(&self, cpu: &Cpu<X86_64>) {
        cpu.call("unmap_mapping_range", |cpu| {
            let _held = self.space.lock.lock();
            if self.linked.get() {
                cpu.will_reduce(pages(0), Rights::empty());
                self.space.clear(cpu, 0);
                flush_everywhere(cpu, 0);
            }
        });
    }
}

fn check(version: Version, mode: &RunMode<'_>) -> CheckOutcome {
    mode.run(Check::<X86_64>::new().cpus(3), move |harness| {
        let space = Space::run_everywhere(harness);
        let page = space.map_new(harness, 0, Rights::RW, 1);
        let mapping = Rc::new(Mapping { space, linked: Cell::new(true) });
        let same = Rc::clone(&mapping);
        vec![
            program(move |cpu| mapping.munmap(version, cpu)),
            program(|cpu| reads(cpu, 1)),
            program(move |cpu| {
                same.unmap_mapping_range(cpu);
                cpu.free_frame(page);
            }),
        ]
    })
}
