//! Why forks copy tables (`pw_table_copied_…`).
//!
//! Every last-level table that a fork copies counts under one reason, however many mappings have
//! entries in it.

use super::{PAGES, PLACES, fork_after, parent};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{CPU, GupCall, TestProcess, TestWorld, at};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{Advice, MmSetting};
use pagewright_types::{Counter, PAGE_SIZE, Rights, VirtAddr};

on_both! {
    each_table_that_a_fork_copies_counts_under_one_reason,
    unpinned_memory_that_may_be_shared_is_never_copied_under_always,
    a_table_without_copied_entries_has_no_reason,
    a_fork_that_fails_counts_no_reason,
}

/// What was counted under each reason since boot; reasons without tables are left out.
fn reasons<I: Isa>(world: &TestWorld<I>) -> Vec<(Counter, u64)> {
    Counter::COPY_REASONS
        .map(|reason| (reason, world.count(reason)))
        .into_iter()
        .filter(|(_, tables)| *tables > 0)
        .collect()
}

/// Cuts the mapping so that each of its last-level tables has entries of three mappings.
fn cut<I: Isa>(process: &TestProcess<I>, base: VirtAddr) {
    for page in PLACES {
        process.protect(at(base, page), 1, Rights::READ);
        process.write(CPU, at(base, page + 1), page);
    }
}

/// Forks a parent with three last-level tables after `prepare`, and compares the reasons.
fn assert_reasons<I: Isa>(what: &str, prepare: fn(&TestProcess<I>, VirtAddr), expected: &[(Counter, u64)]) {
    let (world, process, base) = parent::<I>(2);
    cut(&process, base);
    prepare(&process, base);
    let child = process.fork();
    assert_eq!(reasons(&world), expected, "{what}");
    let copied: u64 = expected.iter().map(|(_, tables)| tables).sum();
    let bytes = world.on(CPU, |mm| mm.table_bytes(&child.space));
    // The root, and a table at each of two levels above the last one, if anything is copied.
    let above = if copied == 0 { 1 } else { 3 };
    assert_eq!(bytes.private, (copied + above) * PAGE_SIZE, "{what}: the child's own tables are those copied");
    world.recount(&[&process, &child]);
    TestProcess::end_all_at_rest(&[&process, &child]);
}

fn each_table_that_a_fork_copies_counts_under_one_reason<I: Isa>() {
    let check = assert_reasons::<I>;
    check("always", |_, _| {}, &[]);
    check(
        "never",
        |process, _| process.world.set(MmSetting::CowPageTables, "never"),
        &[(Counter::PwTableCopiedNever, 3)],
    );
    check(
        "prctl",
        |process, _| process.world.set(MmSetting::CowPageTables, "prctl"),
        &[(Counter::PwTableCopiedUnasked, 3)],
    );
    check(
        "auto",
        |process, _| process.world.set(MmSetting::CowPageTables, "auto"),
        &[(Counter::PwTableCopiedSmall, 3)],
    );
    let asks = |process: &TestProcess<I>, _| {
        process.world.set(MmSetting::CowPageTables, "prctl");
        process.world.on(CPU, |mm| mm.set_cow_page_tables(&process.space)).expect("the first time");
    };
    check("prctl, asked", asks, &[]);
    let locks = |process: &TestProcess<I>, base| {
        process.world.on(CPU, |mm| mm.mlock(&process.space, base, 600 * PAGE_SIZE)).expect("within the limit");
    };
    check("the first two tables locked", locks, &[(Counter::PwTableCopiedMapping, 2)]);
    let wipes = |process: &TestProcess<I>, base| process.advise(at(base, PLACES[2] + 2), 1, Advice::WipeOnFork);
    check("one page wiped", wipes, &[(Counter::PwTableCopiedMapping, 1)]);
}

/// Also after pins are gone, in a space with many mappings, and if the tables were shared before.
fn unpinned_memory_that_may_be_shared_is_never_copied_under_always<I: Isa>() {
    let (world, process, base) = parent::<I>(2);
    cut(&process, base);
    let device = process.take(CPU, at(base, PLACES[1] + 1), 1, GupCall::Pin(GupFlags::WRITE)).expect("a page");
    process.fork().end();
    let pinned = vec![(Counter::PwTableCopiedPinned, 1)];
    assert_eq!(reasons(&world), pinned, "the table of the pinned page");
    device.release(MakeDirty::Yes);
    for round in 0..8 {
        let child = process.fork();
        let grandchild = child.fork();
        child.write(CPU, at(base, PLACES[2] + 1), round);
        process.write(CPU, at(base, PLACES[0] + 1), round);
        process.advise(at(base, PLACES[1] + 1), 1, Advice::DontNeed);
        process.fork().end();
        grandchild.unmap(at(base, PLACES[0]), 3);
        grandchild.fork().end();
        child.end();
        grandchild.end();
    }
    assert_eq!(reasons(&world), pinned, "nothing was copied since the pin is gone");
    world.recount(&[&process]);
    TestProcess::end_all_at_rest(&[&process]);
}

/// Their pages a fault finds again, or the child does not get the mapping.
fn a_table_without_copied_entries_has_no_reason<I: Isa>() {
    let (world, process, base) = parent::<I>(2);
    process.advise(base, PAGES, Advice::DontFork);
    let file = world.file(1);
    let flags = pagewright_mm::MapFlags::SHARED;
    let shown = process.map_file(&file, Rights::READ, flags);
    process.read(CPU, shown);
    world.on(CPU, |mm| mm.mlock(&process.space, shown, PAGE_SIZE)).expect("within the limit");
    process.fork().end();
    assert_eq!((reasons(&world), world.count(Counter::PwForkEntries)), (vec![], 0));
    TestProcess::end_all_at_rest(&[&process]);
}

fn a_fork_that_fails_counts_no_reason<I: Isa>() {
    let (world, process, base) = parent::<I>(2);
    world.set(MmSetting::CowPageTables, "never");
    let copied = |world: &TestWorld<I>| (world.count(Counter::PwFork), reasons(world));
    for failing in 0.. {
        match fork_after(&process, failing) {
            None => assert_eq!(copied(&world), (0, vec![]), "allocation {failing} fails"),
            Some(child) => {
                assert!(failing > 3, "a fork allocates at least its tables");
                assert_eq!(copied(&world), (1, vec![(Counter::PwTableCopiedNever, 3)]));
                child.end();
                break;
            }
        }
    }
    assert_eq!(super::values(&process, base), [1, 2, 3]);
    TestProcess::end_all_at_rest(&[&process]);
}
