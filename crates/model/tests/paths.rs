//! O2 along walk caches, on histories made by hand.
//!
//! The leaf below a pointer stays as it is; a call write-protects the pointer or clears it.

use crate::support::{ABOVE, CPU0, CPU1, FRAME, LAST, Machine, ROOT, TAG, VA, broken};
use pagewright_model::{Antecedent, Oracle, Rule};
use pagewright_types::judge::{CachedEntryKind, CachedEntryState, Fact, Judge};
use pagewright_types::{Access, IsaKind, Level, PageRange, Pfn, Rights, VirtAddr};

const NONE: Rights = Rights::empty();
const USABLE: CachedEntryState = CachedEntryState::Usable;

/// The pages below the pointer to the last table.
fn span() -> PageRange {
    PageRange::new(VirtAddr::ZERO, VirtAddr::new(Level::PMD.span()))
}

/// INV-ORACLE-O2.
#[test]
fn a_right_that_a_walk_cache_keeps_is_reported() {
    let history = |cached: Rights, leaf: Rights, flushed: bool| {
        broken(|machine, oracle| {
            machine.map(VA, FRAME, leaf);
            machine.fill_path(cached, USABLE);
            machine.reduced_in(oracle, CPU0, span(), Rights::READ);
            machine.link(ABOVE, Some((LAST, Rights::RX)));
            if flushed {
                machine.flush();
            }
            assert_eq!(oracle.found(), 0, "the call has not returned");
            machine.returned(oracle, CPU0);
            assert_eq!(oracle.tally().of(Antecedent::PathReduced), u64::from(cached == Rights::all()));
            assert_eq!(oracle.tally().of(Antecedent::SharedPathReduced), 0);
        })
    };
    assert_eq!(history(Rights::all(), Rights::RW, false), [Rule::Rights]);
    assert_eq!(history(Rights::all(), Rights::RW, true), []);
    assert_eq!(history(Rights::RX, Rights::RW, false), [], "the cached pointer is write-protected, too");
    assert_eq!(history(Rights::all(), Rights::READ, false), [], "no leaf below it is writable");
}

#[test]
fn a_walk_in_flight_that_has_read_the_old_pointer_is_reported() {
    let history = |allows: Rights, leaf: Rights| {
        broken(|machine, oracle| {
            machine.map(VA, FRAME, leaf);
            machine.remember(CachedEntryKind::Walk { table: LAST, allows }, Level::PTE, USABLE);
            machine.reduced_in(oracle, CPU0, span(), Rights::READ);
            machine.link(ABOVE, Some((LAST, Rights::RX)));
            machine.returned(oracle, CPU0);
        })
    };
    assert_eq!(history(Rights::all(), Rights::RW), [Rule::Rights]);
    assert_eq!(history(Rights::RX, Rights::RW), []);
    assert_eq!(history(Rights::all(), NONE), [], "it reads an empty entry and ends");
}

/// The table stays in use by another space, so O1 never judges it.
#[test]
fn a_table_that_a_space_has_left_is_not_reached_by_it() {
    let history = |leaf: Rights, range: PageRange, flushed: bool| {
        broken(|machine, oracle| {
            machine.link(Pfn::new(0x22), Some((LAST, Rights::RX)));
            oracle.fact(machine, CPU1, Fact::TableShared { table: LAST, level: Level::PTE, shared: true });
            machine.map(VA, FRAME, leaf);
            machine.fill_path(Rights::RX, USABLE);
            machine.reduced_in(oracle, CPU0, range, NONE);
            machine.link(ABOVE, None);
            if flushed {
                machine.flush();
            }
            machine.returned(oracle, CPU0);
            assert_eq!(oracle.tally().of(Antecedent::PathReduced), 1);
            assert_eq!(oracle.tally().of(Antecedent::SharedPathReduced), 1);
        })
    };
    assert_eq!(history(Rights::READ, span(), false), [Rule::Rights]);
    assert_eq!(history(Rights::READ, span(), true), []);
    assert_eq!(history(NONE, span(), false), [Rule::Rights], "the other space may map a page there later");
    assert_eq!(history(Rights::READ, PageRange::page(VA), false), [Rule::Rights]);
    assert_eq!(history(NONE, PageRange::page(VA), false), [], "the call took nothing from the page");
}

#[test]
fn a_path_that_the_tables_still_have_or_have_again_is_not_reported() {
    let history = |table: Pfn, rights: Rights| {
        broken(|machine, oracle| {
            machine.map(VA, FRAME, Rights::RW);
            machine.fill_path(Rights::all(), USABLE);
            machine.reduced_in(oracle, CPU0, span(), Rights::READ);
            machine.link(ABOVE, Some((table, rights)));
            machine.returned(oracle, CPU0);
        })
    };
    assert_eq!(history(LAST, Rights::all()), []);
    assert_eq!(history(LAST, Rights::RX), [Rule::Rights]);
    assert_eq!(history(Pfn::new(0x14), Rights::all()), [Rule::Rights], "the new table has no such leaf");
}

#[test]
fn a_call_in_flight_on_another_cpu_excuses_a_path_until_it_returns() {
    let history = |leaf: Rights| {
        broken(|machine, oracle| {
            machine.map(VA, FRAME, leaf);
            machine.reduced_in(oracle, CPU0, span(), NONE);
            machine.fill_path(Rights::all(), USABLE);
            machine.reduced_in(oracle, CPU1, span(), NONE);
            machine.link(ABOVE, None);
            machine.returned(oracle, CPU0);
            assert_eq!(oracle.found(), 0);
            machine.returned(oracle, CPU1);
        })
    };
    assert_eq!(history(Rights::RW), [Rule::Rights]);
    assert_eq!(history(NONE), [Rule::Rights]);
}

/// A speculative walk of a lazy CPU reads a live table and no program uses what it fills.
#[test]
fn a_stale_path_of_a_lazy_cpu_or_of_another_tag_is_reported_when_it_becomes_usable() {
    let history = |state: CachedEntryState, flushed: bool| {
        broken(|machine, oracle| {
            machine.map(VA, FRAME, Rights::RW);
            machine.fill_path(Rights::all(), state);
            machine.reduced_in(oracle, CPU0, span(), Rights::READ);
            machine.link(ABOVE, Some((LAST, Rights::RX)));
            machine.returned(oracle, CPU0);
            assert_eq!((oracle.found(), oracle.tally().of(Antecedent::Condemned)), (0, 1));
            if flushed {
                machine.flush();
            }
            oracle.loaded(machine, CPU1, ROOT, TAG);
        })
    };
    for state in [CachedEntryState::Speculative, CachedEntryState::Condemned] {
        assert_eq!(history(state, false), [Rule::Rights]);
        assert_eq!(history(state, true), []);
    }
}

/// A freed table is different: a walk may read what its next owner stores there.
#[test]
fn a_lazy_cpu_that_reaches_a_reused_table_is_reported_at_once() {
    let found = broken(|machine, oracle| {
        machine.fill_path(Rights::all(), CachedEntryState::Speculative);
        machine.freed(oracle, LAST);
        machine.reused(oracle, LAST);
    });
    assert_eq!(found, [Rule::Reuse]);
}

#[test]
fn a_report_names_the_path_and_the_page() {
    let (mut machine, mut oracle) = (Machine::new(IsaKind::X86_64), Oracle::new(IsaKind::X86_64));
    machine.map(VA, FRAME, Rights::RW);
    machine.fill_path(Rights::all(), USABLE);
    machine.hit(&mut oracle, Access::Read);
    machine.reduced_in(&mut oracle, CPU0, span(), Rights::READ);
    machine.link(ABOVE, Some((LAST, Rights::RX)));
    machine.returned(&mut oracle, CPU0);
    assert_eq!(
        oracle.violations()[0].to_string(),
        "INV-ORACLE-O2 at step 3, on CPU 0: CPU 1 holds a stale path: \
         rwx through table 0x13, from a PMD entry for va 0x7000 (tag 3, root 0x10)\n\
         \x20 CPU 0 reduced the rights to r-- at step 2, and its call returned at step 3"
    );
}
