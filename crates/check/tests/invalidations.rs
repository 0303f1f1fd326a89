//! Each form of invalidation that a kernel may use completes an unmap, and its lack is found.

use crate::raw_tables::{TAG, Tables, leaf, page};
use pagewright_check::{
    Aarch64, Check, CheckOutcome, Cpu, Harness, Invalidate, InvalidateScope, InvalidateTarget, Isa, Level, PageRange,
    Rights, Rule, Tag, VirtAddr, X86_64, program,
};
use std::rc::Rc;

/// CPU 0 unmaps page 0 and flushes by `flush` while CPU 1 reads the page.
fn unmap<I: Isa>(check: Check<I>, global: bool, flush: impl Fn(&Cpu<I>) + Copy + 'static) -> CheckOutcome {
    check.schedules(500).explore(move |harness: &Harness<I>| {
        let tables = Rc::new(Tables::run_everywhere(harness));
        let frame = harness.alloc_frame();
        let global = match (global, I::KIND) {
            (false, _) => 0,
            (true, pagewright_check::IsaKind::X86_64) => 1 << 8,
            // Without nG the leaf is global.
            (true, pagewright_check::IsaKind::Aarch64) => 1 << 11,
        };
        harness.cpu(0).store(tables.leaf(0), leaf(I::KIND, frame, true) ^ global);
        let unmaps = program(move |cpu: &Cpu<I>| {
            cpu.call("munmap", |cpu| {
                cpu.will_reduce(PageRange::page(page(0)), Rights::empty());
                cpu.swap(tables.leaf(0), 0);
                cpu.publish();
                flush(cpu);
            });
        });
        vec![unmaps, program(|cpu| (0..3).for_each(|_| _ = cpu.read(page(0))))]
    })
}

fn everywhere(cpu: &Cpu<Aarch64>, target: InvalidateTarget) {
    cpu.invalidate(Invalidate { scope: InvalidateScope::Broadcast, target });
    cpu.complete();
}

fn of_all_tags(va: VirtAddr) -> InvalidateTarget {
    InvalidateTarget::PageOfAllTags { va, level: Level::PTE, last_level: true }
}

fn of_range(tag: Tag, pages: u64) -> InvalidateTarget {
    let range = PageRange::new(page(0), page(pages));
    InvalidateTarget::Range { tag, range, level: Level::PTE, last_level: true }
}

#[test]
fn arm64_unmaps_by_vaae1is_vmalle1is_and_ranges() {
    let check = Check::<Aarch64>::new;
    unmap(check(), true, |cpu| everywhere(cpu, of_all_tags(page(0)))).unwrap_clean();
    unmap(check(), false, |cpu| everywhere(cpu, of_all_tags(page(1)))).expect_violation(Rule::Rights);
    unmap(check(), true, |cpu| everywhere(cpu, InvalidateTarget::AllTags)).unwrap_clean();
    unmap(check(), true, |cpu| everywhere(cpu, InvalidateTarget::Tag(TAG))).expect_violation(Rule::Rights);
    let ranges = check().range_invalidations();
    unmap(ranges.clone(), false, |cpu| everywhere(cpu, of_range(TAG, 4))).unwrap_clean();
    unmap(ranges, false, |cpu| everywhere(cpu, of_range(Tag::new(2), 4))).expect_violation(Rule::Rights);
}

#[test]
fn x86_64_drops_a_global_page_by_cr4_and_not_by_cr3() {
    let on_all = |cpu: &Cpu<X86_64>, target: InvalidateTarget| {
        let op = Invalidate { scope: InvalidateScope::Local, target };
        cpu.invalidate(op);
        cpu.shoot_down(cpu.others(), move |other| other.invalidate(op));
    };
    let check = Check::<X86_64>::new;
    unmap(check(), true, move |cpu| on_all(cpu, InvalidateTarget::Everything)).unwrap_clean();
    unmap(check(), true, move |cpu| on_all(cpu, InvalidateTarget::Tag(TAG))).expect_violation(Rule::Rights);
    unmap(check(), true, move |cpu| on_all(cpu, InvalidateTarget::AllTags)).expect_violation(Rule::Rights);
}

#[test]
fn invlpgb_needs_tlbsync_on_the_cpu_that_issued_it() {
    let check = || Check::<X86_64>::new().invlpgb();
    let broadcast =
        |cpu: &Cpu<X86_64>, target| cpu.invalidate(Invalidate { scope: InvalidateScope::Broadcast, target });
    unmap(check(), false, move |cpu| {
        broadcast(cpu, of_range(TAG, 1));
        cpu.complete();
    })
    .unwrap_clean();
    unmap(check(), false, move |cpu| broadcast(cpu, of_range(TAG, 1))).expect_violation(Rule::Rights);
}
