//! Stores to page tables through a pointer are found, judged and drawn (INV-CHECK-POINTER).

use crate::raw_tables::{Tables, flush_leaf, leaf, page};
use pagewright_check::{
    Aarch64, Check, CheckOutcome, Cpu, Harness, Isa, PageRange, PhysAddr, Rights, Rule, X86_64, program,
};
use std::rc::Rc;
use std::sync::atomic::Ordering;

fn store<I: Isa>(harness: &Harness<I>, at: PhysAddr, entry: u64) {
    harness.ram()[(at.raw() / 8) as usize].store(entry, Ordering::Release);
}

/// How page 0 is replaced by another page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replacing {
    BreakBeforeMake,
    /// The entry is cleared, and the TLBI comes too late.
    LateFlush,
    Live,
}

/// CPU 0 replaces page 0 through pointers while CPU 1 reads it.
fn replace<I: Isa>(how: Replacing) -> CheckOutcome {
    Check::<I>::new().schedules(1000).explore(move |harness: &Harness<I>| {
        let tables = Rc::new(Tables::run_everywhere(harness));
        let (old, new) = (harness.alloc_frame(), harness.alloc_frame());
        store(harness, tables.leaf(0), leaf(I::KIND, old, true));
        let replaces = program(move |cpu: &Cpu<I>| {
            cpu.call("replace", |cpu| {
                cpu.will_reduce(PageRange::page(page(0)), Rights::empty());
                if how != Replacing::Live {
                    store(cpu, tables.leaf(0), 0);
                    cpu.publish();
                }
                if how == Replacing::BreakBeforeMake {
                    flush_leaf(cpu);
                }
                store(cpu, tables.leaf(0), leaf(I::KIND, new, true));
                flush_leaf(cpu);
            });
            cpu.free_frame(old);
        });
        vec![replaces, program(|cpu| (0..3).for_each(|_| _ = cpu.read(page(0))))]
    })
}

#[test]
fn a_live_entry_that_is_replaced_through_a_pointer_is_found_at_the_store() {
    let correct = replace::<Aarch64>(Replacing::BreakBeforeMake);
    correct.unwrap_clean();
    let text = correct.to_string();
    assert!(text.contains("break-before-make: judged ") && text.contains(" exempt"), "{text}");
    for how in [Replacing::Live, Replacing::LateFlush] {
        let live = replace::<Aarch64>(how);
        live.expect_violation(Rule::Rights);
        let text = live.to_string();
        let unwrapped = text.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
        assert!(text.contains("without break-before-make"), "{text}");
        assert!(unwrapped.contains("by pointer (was 0x"), "{text}");
        let mut marked = text.lines().filter(|line| line.starts_with('►'));
        assert!(marked.next_back().is_some_and(|line| line.contains("stores 0x")), "{text}");
    }
    replace::<X86_64>(Replacing::Live).unwrap_clean();
}

/// CPU 0 unmaps page 0 through a pointer, with or without DSB ISHST.
fn unmap(publish: bool, delay: bool) -> CheckOutcome {
    let mut check = Check::<Aarch64>::new().schedules(2000);
    if delay {
        check = check.delay_pointer_stores();
    }
    check.explore(move |harness| {
        let tables = Rc::new(Tables::run_everywhere(harness));
        let frame = harness.alloc_frame();
        store(harness, tables.leaf(0), leaf(Aarch64::KIND, frame, true));
        let unmaps = program(move |cpu: &Cpu<Aarch64>| {
            cpu.call("munmap", |cpu| {
                cpu.will_reduce(PageRange::page(page(0)), Rights::empty());
                store(cpu, tables.leaf(0), 0);
                if publish {
                    cpu.publish();
                }
                cpu.flush_page(page(0), pagewright_check::InvalidateScope::Broadcast);
                // A DSB of its own would publish the store.
                cpu.others().iter().for_each(|_| cpu.relax());
                cpu.complete();
            });
        });
        vec![unmaps, program(|cpu| (0..3).for_each(|_| _ = cpu.read(page(0))))]
    })
}

#[test]
fn a_missing_dsb_ishst_after_a_store_through_a_pointer_is_found_if_stores_are_delayed() {
    unmap(true, true).unwrap_clean();
    unmap(false, true).expect_violation(Rule::Rights);
    let unseen = unmap(false, false);
    unseen.unwrap_clean();
    assert!(unseen.to_string().contains("NOT judged: a missing DSB ISHST"), "{unseen}");
}

#[test]
fn entries_that_are_cleared_in_a_row_are_drawn_in_one_line() {
    let outcome = Check::<X86_64>::new().explore(|harness| {
        let tables = Rc::new(Tables::run_everywhere(harness));
        let entries = (0..3).map(|index| (tables.leaf(index), harness.alloc_frame()));
        entries.for_each(|(at, frame)| store(harness, at, leaf(X86_64::KIND, frame, true)));
        let unmaps = program(move |cpu: &Cpu<X86_64>| {
            cpu.call("munmap", |cpu| {
                cpu.will_reduce(PageRange::new(page(0), page(3)), Rights::empty());
                (0..3).for_each(|index| store(cpu, tables.leaf(index), 0));
            });
        });
        vec![unmaps, program(|cpu| _ = cpu.read(page(1)))]
    });
    outcome.expect_violation(Rule::Rights);
    let text = outcome.to_string();
    assert!(text.contains("clears entry 0x1[0] to [2] by pointer") && !text.contains("[1]"), "{text}");
}
