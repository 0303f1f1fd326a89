//! A finding says which step was missing, between which two (INV-CHECK-MISSING).
//!
//! Each program leaves one step out. The sentence names it, and the steps around it.

use crate::raw_tables::{TAG, Tables, entry, flush_leaf, invalidate, leaf, page};
use pagewright_arch::{Effects, on_both};
use pagewright_check::{
    Aarch64, Check, CheckOutcome, Cpu, Harness, HarnessLock, InvalidateScope, Isa, IsaKind, Level, PageRange, Pfn,
    Rights, X86_64, program,
};
use pagewright_types::judge::{Fact, LogicalPage};
use std::rc::Rc;

on_both! {
    an_invalidation_that_reaches_the_cpu,
    a_store_that_clears_the_entry,
    an_invalidation_that_was_deferred,
    a_copy_of_a_shared_table,
    a_barrier_and_an_invalidation,
    a_flush_of_a_parked_frame,
    an_invalidation_before_a_frame_is_parked,
}

/// Runs `kernel` on CPU 0, with a frame of page 0, while CPU 1 reads page 0.
fn beside_reader<I: Isa>(kernel: impl Fn(&Cpu<I>, &Tables, Pfn) + 'static + Copy) -> CheckOutcome {
    Check::<I>::new().explore(move |harness: &Harness<I>| {
        let tables = Rc::new(Tables::run_everywhere(harness));
        let frame = harness.alloc_frame();
        harness.cpu(0).store(tables.leaf(0), leaf(I::KIND, frame, true));
        let reads = program(|cpu: &Cpu<I>| (0..3).for_each(|_| _ = cpu.read(page(0))));
        vec![program(move |cpu| kernel(cpu, &tables, frame)), reads]
    })
}

/// Runs `flush` in a call that has cleared the entry of page 0.
fn unmap<I: Isa>(cpu: &Cpu<I>, tables: &Tables, flush: impl FnOnce(&Cpu<I>)) {
    cpu.call("munmap", |cpu| {
        cpu.will_reduce(PageRange::page(page(0)), Rights::empty());
        cpu.swap(tables.leaf(0), 0);
        flush(cpu);
    });
}

/// The step of the only row of the drawing that contains `what`, on CPU `column`.
fn step_of(outcome: &CheckOutcome, column: usize, what: &str) -> String {
    let text = outcome.to_string();
    let row = |row: &&str| {
        let cell = row.chars().skip(8).collect::<String>();
        cell.split(" │").nth(column).is_some_and(|cell| cell.contains(what))
    };
    let found: Vec<&str> = text.lines().skip_while(|row| !row.starts_with("step")).skip(1).filter(row).collect();
    assert!(!found.is_empty(), "{what} in\n{outcome}");
    let step: String = found[0].chars().skip(1).take(5).collect();
    format!("step {}", step.trim())
}

/// The sentence of the first finding, without the source lines.
fn missing(outcome: &CheckOutcome) -> String {
    let text = outcome.to_string();
    let from = text.find("missing: ").unwrap_or_else(|| panic!("a finding has no sentence:\n{text}"));
    let rows = text[from..].lines().enumerate();
    let rows = rows.take_while(|(index, row)| *index == 0 || row.starts_with("    ")).map(|(_, row)| row);
    let sentence = rows.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    let mut parts = sentence.split(" (");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once(')').expect("the location ends").1)
}

#[track_caller]
fn says(outcome: &CheckOutcome, expected: &str) {
    let missing = missing(outcome);
    assert!(missing.contains(expected), "expected {expected}\nin {missing}\n{outcome}");
}

fn an_invalidation_that_reaches_the_cpu<I: Isa>() {
    let outcome = beside_reader::<I>(|cpu, tables, _| {
        unmap(cpu, tables, |cpu| {
            cpu.publish();
            cpu.flush_all(InvalidateScope::Local);
        });
    });
    let (clears, returns) = (step_of(&outcome, 0, "clears"), step_of(&outcome, 0, "returns"));
    let cached = step_of(&outcome, 1, "reads");
    says(
        &outcome,
        &format!(
            "an invalidation that reaches CPU 1, between {clears}, which changes its entry, and {returns}: CPU 1 \
             holds rw- to frame 0x5 at 0x40000000 since {cached}"
        ),
    );
}

fn a_store_that_clears_the_entry<I: Isa>() {
    let linked = beside_reader::<I>(|cpu, tables, frame| {
        unmap(cpu, tables, flush_leaf);
        cpu.free_frame(frame);
        cpu.free_frame(tables.0[3]);
    });
    let frees = step_of(&linked, 0, "frees frame 0x1");
    says(
        &linked,
        &format!(
            "a store that clears the entry which leads to frame 0x1 at 0x40000000, or another root than 0x2 on CPU \
             0, before {frees}"
        ),
    );
    // Not by a store that the machine takes for one to an entry.
    let unseen = beside_reader::<I>(|cpu, tables, _| {
        cpu.call("munmap", |cpu| {
            cpu.will_reduce(PageRange::page(page(0)), Rights::empty());
            cpu.sim().write(tables.leaf(0), &[0; 8]);
        });
    });
    says(&unseen, "a store that changes the entry, and then an invalidation that reaches CPU 1, before");
}

/// Migrates page 0, which CPU 1 reads, and defers the flush; then the kernel writes to the copy.
fn migration<I: Isa>(writable: bool) -> CheckOutcome {
    Check::<I>::new().explore(move |harness: &Harness<I>| {
        let tables = Rc::new(Tables::run_everywhere(harness));
        let [old, copy] = [(); 2].map(|()| harness.alloc_frame());
        harness.cpu(0).store(tables.leaf(0), leaf(I::KIND, old, writable));
        let migrates = move |cpu: &Cpu<I>| {
            let (root, range) = (tables.root(), PageRange::page(page(0)));
            cpu.call("migrate", |cpu| {
                cpu.will_reduce(range, Rights::empty());
                cpu.swap(tables.leaf(0), leaf(I::KIND, copy, false));
                cpu.publish();
                let page = LogicalPage::File { file: 1, index: 0 };
                cpu.sim().declare(Fact::RightDeferred { root, range, frame: old, copy: Some(copy), page });
            });
            cpu.sim().write(copy.base(), &[7]);
        };
        let reads = program(|cpu: &Cpu<I>| (0..3).for_each(|_| _ = cpu.read(page(0))));
        vec![program(migrates), reads]
    })
}

fn an_invalidation_that_was_deferred<I: Isa>() {
    let outcome = migration::<I>(false);
    // On arm64 the new entry itself, which maps a copy without a break, defers the flush.
    let deferral = if I::KIND == IsaKind::Aarch64 { "will remove" } else { "defers the flush" };
    let (defers, writes) = (step_of(&outcome, 0, deferral), step_of(&outcome, 0, "the kernel writes"));
    says(
        &outcome,
        &format!(
            "an invalidation that reaches CPU 1, between {defers}, from which on its loss is deferred, and {writes}"
        ),
    );
    assert!(outcome.to_string().contains(&format!("INV-ORACLE-O2 at {writes}, on CPU 1")), "{outcome}");
}

/// The flush must not be deferred at all where the CPU may store.
#[test]
fn an_invalidation_in_place_of_its_deferral() {
    let outcome = migration::<X86_64>(true);
    let (changes, defers) = (step_of(&outcome, 0, "stores 0x"), step_of(&outcome, 0, "defers the flush"));
    says(
        &outcome,
        &format!("an invalidation that reaches CPU 1, between {changes}, which changes its entry, and {defers}: CPU 1"),
    );
    assert!(outcome.to_string().contains(&format!("was deferred by CPU 0 at {defers}")), "{outcome}");
}

fn a_copy_of_a_shared_table<I: Isa>() {
    let outcome = beside_reader::<I>(|cpu, tables, _| {
        let table = tables.0[3];
        cpu.sim().declare(Fact::TableShared { table, level: Level::PTE, shared: true });
        cpu.store(tables.leaf(1), leaf(I::KIND, table, false));
    });
    let (shares, stores) = (step_of(&outcome, 0, "share"), step_of(&outcome, 0, "stores"));
    let expected =
        format!("a copy of the table for this sharer, or an edit for all of them, between {shares} and {stores}");
    says(&outcome, &expected);
}

/// Parks the frame of page 0 before the flush that it owes, and does `then` with it.
fn park<I: Isa>(cpu: &Cpu<I>, tables: &Tables, frame: Pfn, then: impl FnOnce(&Cpu<I>)) {
    unmap(cpu, tables, |cpu| {
        cpu.park_frame(frame);
        then(cpu);
        flush_leaf(cpu);
        cpu.free_frame(frame);
        assert_eq!(cpu.alloc_frame(), frame);
    });
}

fn a_flush_of_a_parked_frame<I: Isa>() {
    let outcome = beside_reader::<I>(|cpu, tables, frame| {
        park(cpu, tables, frame, |cpu| {
            let word = &cpu.ram()[frame.index() * Level::ENTRIES];
            word.store(5, std::sync::atomic::Ordering::Release);
        });
    });
    let frees = step_of(&outcome, 0, "frees frame 0x5");
    says(&outcome, &format!("a flush of frame 0x5, before the store that changes it and before {frees}"));
}

fn an_invalidation_before_a_frame_is_parked<I: Isa>() {
    let outcome = Check::<I>::new().explore(|harness: &Harness<I>| {
        let tables = Rc::new(Tables::run_everywhere(harness));
        let frame = harness.alloc_frame();
        harness.cpu(0).store(tables.leaf(0), leaf(I::KIND, frame, true));
        let writes = program(|cpu: &Cpu<I>| (0..3).for_each(|value| _ = cpu.write(page(0), value)));
        vec![program(move |cpu| park(cpu, &tables, frame, |_| {})), writes]
    });
    let parks = step_of(&outcome, 0, "parks frame 0x5");
    says(&outcome, &format!("an invalidation of 0x40000000 that reaches CPU 1, before {parks}"));
}

#[test]
fn a_wait_for_the_ipi() {
    let outcome = beside_reader::<X86_64>(|cpu, tables, _| {
        unmap(cpu, tables, |cpu| {
            invalidate(cpu, 0, false);
            cpu.send_ipi(cpu.others(), |other| invalidate(other, 0, false)).ignore();
        });
    });
    let (sends, returns) = (step_of(&outcome, 0, "sends an IPI"), step_of(&outcome, 0, "returns"));
    says(&outcome, &format!("a wait of CPU 0 until CPU 1 has taken the IPI of {sends}, before {returns}"));
}

#[test]
fn a_dsb_ish_after_the_broadcast() {
    let outcome = beside_reader::<Aarch64>(|cpu, tables, _| {
        unmap(cpu, tables, |cpu| {
            cpu.publish();
            invalidate(cpu, 0, false);
        });
    });
    let (issues, returns) = (step_of(&outcome, 0, "broadcasts"), step_of(&outcome, 0, "returns"));
    says(&outcome, &format!("a DSB ISH on CPU 0 after the broadcast of {issues}, and before {returns}"));
}

#[test]
fn a_dsb_ishst_before_the_invalidation() {
    let outcome = beside_reader::<Aarch64>(|cpu, tables, _| {
        unmap(cpu, tables, |cpu| {
            invalidate(cpu, 0, false);
            cpu.complete();
        });
    });
    let (clears, issues) = (step_of(&outcome, 0, "clears"), step_of(&outcome, 0, "broadcasts"));
    says(
        &outcome,
        &format!("a DSB ISHST, between {clears}, which changes the entry, and the invalidation of {issues}: in"),
    );
    says(&outcome, "CPU 1 has read the entry as it was before");
}

#[test]
fn an_invalidation_of_all_levels() {
    let outcome = beside_reader::<Aarch64>(|cpu, tables, frame| {
        unmap(cpu, tables, flush_leaf);
        cpu.free_frame(frame);
        cpu.store(entry(tables.0[2], Level::PMD), 0);
        flush_leaf(cpu);
        cpu.free_frame(tables.0[3]);
    });
    says(&outcome, "an invalidation of all levels in place of step");
    says(&outcome, ", of the last only, before step");
}

#[test]
fn a_break_before_the_new_entry_is_made() {
    let outcome = beside_reader::<Aarch64>(|cpu, tables, frame| {
        let copy = cpu.alloc_frame();
        cpu.sim().write(copy.base(), &[1; 8]);
        cpu.sim().write(frame.base(), &[2; 8]);
        cpu.store(tables.leaf(0), leaf(IsaKind::Aarch64, copy, true));
    });
    let stores = step_of(&outcome, 0, "stores");
    says(&outcome, "a store that clears the entry, and then an invalidation that reaches CPU 1, after step");
    says(&outcome, &format!("before {stores}, which stores the new one"));
    let mark = "└ INV-ORACLE-O2: CPU 1 can still use rw- on";
    assert!(outcome.to_string().contains(mark), "the drawing shows the store that is reported\n{outcome}");
}

/// Nothing publishes the store and nothing flushes: a barrier alone would not do.
fn a_barrier_and_an_invalidation<I: Isa>() {
    let outcome = beside_reader::<I>(|cpu, tables, _| {
        cpu.call("munmap", |cpu| {
            cpu.will_reduce(PageRange::page(page(0)), Rights::empty());
            cpu.store(tables.leaf(0), 0);
        });
    });
    let barrier = match I::KIND {
        IsaKind::X86_64 => "a locked or serialising instruction",
        IsaKind::Aarch64 => "a DSB ISHST",
    };
    let (stores, returns) = (step_of(&outcome, 0, "clears"), step_of(&outcome, 0, "returns"));
    says(&outcome, &format!("{barrier}, and an invalidation after it, between {stores}, which"));
    says(&outcome, &returns);
}

#[test]
fn an_allocation_of_a_frame_that_is_written_to() {
    let outcome = beside_reader::<X86_64>(|cpu, tables, frame| {
        unmap(cpu, tables, flush_leaf);
        cpu.free_frame(frame);
        cpu.sim().write(frame.base(), &[1; 8]);
    });
    let frees = step_of(&outcome, 0, "frees frame 0x5");
    says(&outcome, &format!("an allocation of frame 0x5, between {frees}"));
    let text = outcome.to_string().replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ");
    let mark = "└ INV-ORACLE-O1: the kernel writes to a free frame";
    let (before, _) = text.split_once(mark).unwrap_or_else(|| panic!("{outcome}"));
    assert!(before.contains("the kernel writes to 1 frames from 0x5"), "{outcome}");
}

#[test]
fn a_deadlock_and_a_loop_name_the_last_calls() {
    let outcome = Check::<X86_64>::new().explore(|_| {
        let (first, second) = (Rc::new(HarnessLock::new(())), Rc::new(HarnessLock::new(())));
        let takes = |first: &Rc<HarnessLock<()>>, second: &Rc<HarnessLock<()>>| {
            let (first, second) = (Rc::clone(first), Rc::clone(second));
            program(move |cpu: &Cpu<X86_64>| {
                let _first = first.lock();
                cpu.note("has the first lock");
                let _second = second.lock();
            })
        };
        vec![takes(&first, &second), takes(&second, &first)]
    });
    let text = missing(&outcome);
    let lock = "the release of the lock that CPU 0 waits for";
    assert!(text.contains(lock) && text.ends_with("by a CPU that can run"), "{text}\n{outcome}");
    let outcome = Check::<X86_64>::new().steps(50).explore(|_| {
        vec![program(|cpu| {
            loop {
                cpu.load_root(Pfn::new(1), TAG);
            }
        })]
    });
    says(&outcome, "the end of the program of CPU 0 after ");
    assert!(outcome.to_string().contains("missing_steps.rs:"), "{outcome}");
}
