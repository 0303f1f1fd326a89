//! O2: which windows of deferred rights an event finds, on histories made by hand (INV-ORACLE-O2).

use crate::support::{ABOVE, CPU0, CPU1, FRAME, LAST, Machine, OTHER, ROOT, VA, broken};
use core::cell::Cell;
use pagewright_model::{Antecedent, Oracle, Rule};
use pagewright_types::judge::{CachedEntry, CachedEntryKind, CachedEntryState, Fact, Judge, LogicalPage, Witness};
use pagewright_types::{Access, FrameRange, Level, Order, PageRange, Pfn, PhysAddr, Rights, VirtAddr};

const NONE: Rights = Rights::empty();
const COPY: Pfn = Pfn::new(0x2222);
const OTHER_FRAME: Pfn = Pfn::new(0x3333);
const PAGE: LogicalPage = LogicalPage::Anon { id: 5 };
/// A second table of the last level.
const SECOND: Pfn = Pfn::new(0x14);

fn slot(table: Pfn) -> PhysAddr {
    table.base().add(VA.page_index() * 8)
}

/// Stores an entry, and tells the oracle.
fn store(machine: &mut Machine, oracle: &mut Oracle, at: PhysAddr, raw: u64) {
    let old = machine.put_word(at, raw);
    oracle.entry_stored(machine, CPU0, at, old, raw);
}

/// Points the entry for [`VA`] above the last level to another table.
fn relink(machine: &mut Machine, oracle: &mut Oracle, table: Option<Pfn>) {
    let old = machine.word(ABOVE.base());
    machine.link(ABOVE, table.map(|table| (table, Rights::all())));
    oracle.entry_stored(machine, CPU0, ABOVE.base(), old, machine.word(ABOVE.base()));
}

/// The page at [`VA`] has moved to [`COPY`] in a space in which CPU 1 reads its old frame.
fn moved(machine: &mut Machine, oracle: &mut Oracle, root: Pfn) {
    let kind = CachedEntryKind::Translation { pfn: FRAME, rights: Rights::READ };
    machine.remember(kind, Level::PTE, CachedEntryState::Usable);
    machine.cached.last_mut().expect("it was remembered").root = root;
    machine.map(VA, COPY, Rights::READ);
    let range = PageRange::page(VA);
    oracle.fact(machine, CPU0, Fact::RightDeferred { root, range, frame: FRAME, copy: Some(COPY), page: PAGE });
}

/// What is reported after [`moved`] in [`ROOT`].
fn after_move(then: impl Fn(&mut Machine, &mut Oracle)) -> Vec<Rule> {
    broken(|machine, oracle| {
        moved(machine, oracle, ROOT);
        then(machine, oracle);
    })
}

#[test]
fn a_pointer_to_a_table_that_maps_another_page_needs_the_flush() {
    let history = |frame: Pfn| {
        after_move(|machine, oracle| {
            let leaf = machine.leaf(frame, Rights::READ);
            store(machine, oracle, slot(SECOND), leaf);
            assert_eq!(oracle.found(), 0, "no walk reads that table");
            relink(machine, oracle, Some(SECOND));
        })
    };
    assert_eq!(history(OTHER_FRAME), [Rule::Rights]);
    assert_eq!(history(COPY), []);
}

#[test]
fn stores_are_judged_in_the_tables_that_walks_read_now() {
    let history = |table: Pfn, unhooked: bool| {
        after_move(|machine, oracle| {
            let (copy, other) = (machine.leaf(COPY, Rights::READ), machine.leaf(OTHER_FRAME, Rights::READ));
            machine.put_word(slot(SECOND), copy);
            if unhooked {
                relink(machine, oracle, None);
            }
            relink(machine, oracle, Some(SECOND));
            store(machine, oracle, slot(table), other);
        })
    };
    for unhooked in [false, true] {
        assert_eq!(history(SECOND, unhooked), [Rule::Rights]);
        assert_eq!(history(LAST, unhooked), [], "a table of before");
    }
}

#[test]
fn a_store_to_a_shared_table_is_judged_for_each_space() {
    let found = broken(|machine, oracle| {
        machine.link(Pfn::new(0x22), Some((LAST, Rights::all())));
        moved(machine, oracle, ROOT);
        moved(machine, oracle, OTHER);
        let other = machine.leaf(OTHER_FRAME, Rights::READ);
        store(machine, oracle, slot(LAST).add(8), other);
        assert_eq!(oracle.found(), 0, "the entry of another address");
        store(machine, oracle, slot(LAST), other);
    });
    assert_eq!(found, [Rule::Rights, Rule::Rights]);
    let left = broken(|machine, oracle| {
        machine.link(Pfn::new(0x22), Some((LAST, Rights::all())));
        moved(machine, oracle, ROOT);
        moved(machine, oracle, OTHER);
        relink(machine, oracle, None);
        let other = machine.leaf(OTHER_FRAME, Rights::READ);
        store(machine, oracle, slot(LAST), other);
    });
    assert_eq!(left, [Rule::Rights], "the first space has left the table");
}

#[test]
fn a_store_that_walkers_cannot_see_yet_is_judged() {
    let found = after_move(|machine, oracle| {
        let (old, new) = (machine.word(slot(LAST)), machine.leaf(OTHER_FRAME, Rights::READ));
        machine.map_late(VA, OTHER_FRAME, Rights::READ);
        oracle.entry_stored(machine, CPU0, slot(LAST), old, new);
    });
    assert_eq!(found, [Rule::Rights]);
}

#[test]
fn a_table_that_the_kernel_writes_as_memory_is_judged() {
    let history = |frame: Pfn| {
        after_move(|machine, oracle| {
            machine.map(VA, frame, Rights::READ);
            oracle.written(machine, CPU0, FrameRange::new(LAST, LAST.add(1)));
        })
    };
    assert_eq!(history(OTHER_FRAME), [Rule::Rights]);
    assert_eq!(history(COPY), []);
}

#[test]
fn a_page_that_another_one_has_replaced_at_its_address_must_not_be_deferred() {
    let history = |frame: Pfn| {
        broken(|machine, oracle| {
            machine.fill(Rights::READ, CachedEntryState::Usable);
            machine.map(VA, frame, Rights::READ);
            let (root, range, copy) = (ROOT, PageRange::page(VA), Some(COPY));
            oracle.fact(machine, CPU0, Fact::RightDeferred { root, range, frame: FRAME, copy, page: PAGE });
        })
    };
    assert_eq!(history(OTHER_FRAME), [Rule::Rights]);
    assert_eq!(history(COPY), []);
}

/// A window that was opened again ends once, and the same events end it.
#[test]
fn a_window_that_opens_again_is_one() {
    let found = after_move(|machine, oracle| {
        moved(machine, oracle, ROOT);
        oracle.fact(machine, CPU1, Fact::PageReplaced { page: PAGE });
        assert_eq!(oracle.tally().of(Antecedent::DeferralEnded), 1);
    });
    assert_eq!(found, [Rule::Rights]);
}

/// The copy's frame is allocated for another page while CPU 1 still reads the old frame.
fn copy_taken(then: impl Fn(&mut Machine, &mut Oracle)) -> Vec<Rule> {
    after_move(|machine, oracle| {
        machine.map(VA, COPY, NONE);
        oracle.entry_stored(machine, CPU0, slot(LAST), 1, 0);
        machine.freed(oracle, COPY);
        machine.reused(oracle, COPY);
        assert_eq!(oracle.tally().of(Antecedent::CopyTaken), 1, "CPU 1 holds the old frame");
        then(machine, oracle);
    })
}

#[test]
fn the_copy_leaves_the_window_when_its_frame_is_allocated() {
    let stored = copy_taken(|machine, oracle| {
        machine.access(oracle, COPY, Access::Write, false);
        oracle.written(machine, CPU0, FrameRange::new(COPY, COPY.add(1)));
        assert_eq!(oracle.tally().of(Antecedent::DeferralEnded), 0, "the window stays open");
    });
    assert_eq!(stored, [], "the frame holds another page");
    let mapped = copy_taken(|machine, oracle| {
        machine.map(VA, COPY, Rights::READ);
        oracle.entry_stored(machine, CPU0, slot(LAST), 0, 1);
    });
    assert_eq!(mapped, [Rule::Rights], "another page at the address, although it has equal contents");
    let unheld = after_move(|machine, oracle| {
        machine.flush();
        machine.reused(oracle, COPY);
        assert_eq!(oracle.tally().of(Antecedent::CopyTaken), 0);
    });
    assert_eq!(unheld, []);
    let source = copy_taken(|machine, oracle| machine.access(oracle, FRAME, Access::Write, false));
    assert_eq!(source, [Rule::Rights], "the page itself is still in the window");
    let allocated = copy_taken(|machine, oracle| {
        machine.freed(oracle, FRAME);
        machine.reused(oracle, FRAME);
        assert_eq!(oracle.tally().of(Antecedent::DeferralEnded), 1);
    });
    assert_eq!(allocated, [Rule::Reuse], "O1 judges the frame of the window");
}

#[test]
fn windows_of_a_folio_end_by_any_of_its_frames() {
    let range = PageRange::new(VA, VA.add(4 << 12));
    let history = |frame: Pfn, flushed: bool| {
        broken(|machine, oracle| {
            let [first, last] = [range.start(), range.last()];
            let held = |va: VirtAddr, pfn: Pfn| CachedEntry {
                cpu: CPU1,
                kind: CachedEntryKind::Translation { pfn, rights: Rights::READ },
                tag: crate::support::TAG,
                root: ROOT,
                va,
                level: Level::PTE,
                global: false,
                state: CachedEntryState::Usable,
            };
            machine.cached = vec![held(first, FRAME), held(last, FRAME.add(3))];
            let copy = Some(COPY);
            oracle.fact(machine, CPU0, Fact::RightDeferred { root: ROOT, range, frame: FRAME, copy, page: PAGE });
            if flushed {
                machine.flush();
            }
            machine.access(oracle, frame, Access::Write, false);
        })
    };
    for frame in [FRAME, FRAME.add(3), COPY, COPY.add(2)] {
        assert_eq!(history(frame, false), [Rule::Rights]);
        assert_eq!(history(frame, true), []);
    }
    for frame in [FRAME.add(4), COPY.add(4)] {
        assert_eq!(history(frame, false), []);
    }
}

/// What becomes of the table in which a page is deferred is counted, while a TLB has the page.
#[test]
fn the_end_of_a_table_with_a_window_is_counted() {
    let counts = |held: bool, then: &dyn Fn(&mut Machine, &mut Oracle)| {
        let counts = Cell::new([0; 4]);
        broken(|machine, oracle| {
            moved(machine, oracle, ROOT);
            if !held {
                machine.flush();
            }
            then(machine, oracle);
            let of = [
                Antecedent::KeyTableFreed,
                Antecedent::KeyTableMoved,
                Antecedent::KeyTableShared,
                Antecedent::SharedMoved,
            ];
            counts.set(of.map(|what| oracle.tally().of(what)));
        });
        counts.get()
    };
    let freed = Fact::FrameFreed { pfn: LAST, order: Order::ZERO };
    let free = |machine: &mut Machine, oracle: &mut Oracle| {
        relink(machine, oracle, None);
        oracle.fact(machine, CPU0, freed);
        oracle.fact(machine, CPU0, freed);
    };
    let move_away = |machine: &mut Machine, oracle: &mut Oracle| {
        let word = machine.word(ABOVE.base());
        relink(machine, oracle, None);
        store(machine, oracle, ABOVE.base().add(8), word);
        oracle.fact(machine, CPU0, freed);
    };
    let share = |machine: &mut Machine, oracle: &mut Oracle| {
        oracle.fact(machine, CPU0, Fact::TableShared { table: LAST, level: Level::PTE, shared: true });
        oracle.fact(machine, CPU0, Fact::PageMoved { frame: COPY, copy: OTHER_FRAME });
        let leaf = machine.leaf(OTHER_FRAME, Rights::READ);
        store(machine, oracle, slot(LAST).add(8), leaf);
    };
    assert_eq!(counts(true, &free), [1, 0, 0, 0]);
    assert_eq!(counts(false, &free), [0; 4]);
    assert_eq!(counts(true, &move_away), [0, 1, 0, 0]);
    assert_eq!(counts(true, &share), [0, 0, 1, 1]);
    assert_eq!(counts(false, &share), [0, 0, 0, 1]);
}
