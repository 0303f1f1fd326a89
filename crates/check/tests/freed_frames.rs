//! Frames that are freed too early are found when they are freed (INV-CHECK-FREED).

use crate::raw_tables::{Tables, entry, flush_leaf, leaf, page, pointer};
use pagewright_arch::on_both;
use pagewright_check::{
    Check, CheckFinding, CheckOutcome, Cpu, Harness, Isa, Level, PageRange, Pfn, Rights, Rule, Tag, X86_64, program,
};
use std::rc::Rc;

on_both! {
    a_page_table_is_found_when_it_is_freed_before_its_flush,
    a_page_table_is_found_when_it_is_freed_before_it_is_unhooked,
    a_root_is_found_when_it_is_freed_while_a_cpu_has_loaded_it,
    a_parked_frame_may_be_reached_until_it_is_freed,
}

/// Runs `kernel` on CPU 0 while a thread on CPU 1 reads page 0; no CPU allocates a frame.
fn beside_reader<I: Isa>(kernel: impl Fn(&Cpu<I>, &Tables, Pfn) + 'static + Copy) -> CheckOutcome {
    Check::<I>::new().schedules(2000).explore(move |harness: &Harness<I>| {
        let tables = Rc::new(Tables::run_everywhere(harness));
        let frame = harness.alloc_frame();
        harness.cpu(0).store(tables.leaf(0), leaf(I::KIND, frame, false));
        let reads = program(|cpu: &Cpu<I>| (0..3).for_each(|_| _ = cpu.read(page(0))));
        vec![program(move |cpu| kernel(cpu, &tables, frame)), reads]
    })
}

fn unmap<I: Isa>(cpu: &Cpu<I>, tables: &Tables, frame: Pfn) {
    cpu.call("munmap", |cpu| {
        cpu.will_reduce(PageRange::page(page(0)), Rights::empty());
        cpu.swap(tables.leaf(0), 0);
        flush_leaf(cpu);
        cpu.free_frame(frame);
    });
}

/// Flushes everything below the last table, walk caches too.
fn flush_table<I: Isa>(cpu: &Cpu<I>) {
    match I::KIND {
        pagewright_check::IsaKind::X86_64 => flush_leaf(cpu),
        pagewright_check::IsaKind::Aarch64 => {
            cpu.publish();
            cpu.flush_all(pagewright_check::InvalidateScope::Broadcast);
            cpu.complete();
        }
    }
}

fn a_page_table_is_found_when_it_is_freed_before_its_flush<I: Isa>() {
    let outcome = beside_reader::<I>(|cpu, tables, frame| {
        unmap(cpu, tables, frame);
        cpu.store(entry(tables.0[2], Level::PMD), 0);
        flush_table(cpu);
        cpu.free_frame(tables.0[3]);
    });
    outcome.unwrap_clean();
    assert!(outcome.to_string().contains(" page tables freed\n"), "{outcome}");
    let early = beside_reader::<I>(|cpu, tables, frame| {
        unmap(cpu, tables, frame);
        cpu.store(entry(tables.0[2], Level::PMD), 0);
        cpu.free_frame(tables.0[3]);
        flush_table(cpu);
    });
    early.expect_violation(Rule::Reuse);
    assert!(early.to_string().contains("has it in its walk cache"), "{early}");
}

fn a_page_table_is_found_when_it_is_freed_before_it_is_unhooked<I: Isa>() {
    let hooked = beside_reader::<I>(|cpu, tables, frame| {
        unmap(cpu, tables, frame);
        cpu.free_frame(tables.0[3]);
        cpu.store(entry(tables.0[2], Level::PMD), 0);
        flush_table(cpu);
    });
    hooked.expect_violation(Rule::Reuse);
    assert_eq!(hooked.search().schedules, 1, "it needs no race");
    assert!(hooked.to_string().contains("the tables still lead to it at va\n  0x40000000"), "{hooked}");
}

fn a_root_is_found_when_it_is_freed_while_a_cpu_has_loaded_it<I: Isa>() {
    let exec = |leaves: bool| {
        Check::<I>::new().schedules(100).explore(move |harness: &Harness<I>| {
            let (old, new) = (Tables::new(harness, harness.alloc_frame()), harness.alloc_frame());
            harness.cpu(0).load_root(old.root(), Tag::new(1));
            harness.cpu(0).store(entry(new, Level::PGD), pointer(I::KIND, old.0[1], true));
            vec![program(move |cpu| {
                if leaves {
                    cpu.load_root(new, Tag::new(2));
                }
                cpu.free_frame(old.root());
            })]
        })
    };
    assert!(exec(true).finding().is_none());
    let loaded = exec(false);
    loaded.expect_violation(Rule::Reuse);
    assert!(loaded.to_string().contains("CPU 0 has loaded it as its root"), "{loaded}");
}

fn a_parked_frame_may_be_reached_until_it_is_freed<I: Isa>() {
    let deferred = |flushed: bool| {
        beside_reader::<I>(move |cpu, tables, frame| {
            cpu.call("munmap", |cpu| {
                cpu.will_reduce(PageRange::page(page(0)), Rights::empty());
                cpu.swap(tables.leaf(0), 0);
                cpu.park_frame(frame);
                if flushed {
                    flush_leaf(cpu);
                }
                cpu.free_frame(frame);
                if !flushed {
                    flush_leaf(cpu);
                }
            });
        })
    };
    deferred(true).unwrap_clean();
    deferred(false).expect_violation(Rule::Reuse);
}

#[test]
fn a_frame_that_is_freed_twice_is_a_finding() {
    let twice = Check::<X86_64>::new().explore(|harness| {
        let frame = harness.alloc_frame();
        vec![program(move |cpu| (0..2).for_each(|_| cpu.free_frame(frame)))]
    });
    assert!(
        matches!(twice.finding(), Some(CheckFinding::Panicked { message, .. }) if message.ends_with("is freed twice"))
    );
}
