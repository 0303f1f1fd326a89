//! O1 when a frame is given back, on histories made by hand (INV-ORACLE-O1).

use crate::support::{ABOVE, CPU0, CPU1, FRAME, LAST, OTHER, ROOT, TAG, VA, broken};
use pagewright_model::{Antecedent, Rule};
use pagewright_types::judge::{CachedEntryKind, CachedEntryState, Judge};
use pagewright_types::{Level, Pfn, PhysAddr, Rights};

const NONE: Rights = Rights::empty();

#[test]
fn a_page_that_is_given_back_is_not_cached() {
    let history = |flushed: bool, parked: bool| {
        broken(|machine, oracle| {
            machine.unmap_used(oracle, flushed);
            if parked {
                machine.freed(oracle, FRAME);
            } else {
                machine.released(oracle, FRAME);
                assert_eq!(oracle.tally().of(Antecedent::PageReleased), 1);
            }
        })
    };
    assert_eq!(history(false, false), [Rule::Reuse]);
    assert_eq!(history(true, false), []);
    assert_eq!(history(false, true), [], "a parked frame may be cached");
}

#[test]
fn a_parked_frame_is_judged_when_it_is_given_back() {
    let history = |flushed: bool, changed: bool| {
        broken(|machine, oracle| {
            machine.fill(Rights::READ, CachedEntryState::Usable);
            machine.freed(oracle, FRAME);
            if changed {
                machine.put_word(FRAME.base(), 7);
            }
            if flushed {
                machine.flush();
            }
            machine.released(oracle, FRAME);
        })
    };
    assert_eq!(history(false, false), [Rule::Reuse]);
    assert_eq!(history(true, false), []);
    assert_eq!(history(true, true), [Rule::Reuse], "it changed while a CPU could read it");
}

#[test]
fn a_table_that_is_given_back_is_in_no_walk_cache_and_no_walk() {
    let history = |kind: CachedEntryKind, state: CachedEntryState| {
        broken(|machine, oracle| {
            machine.remember(kind, Level::PMD, state);
            machine.released(oracle, FRAME);
        })
    };
    let table = CachedEntryKind::Table { table: FRAME, allows: Rights::all() };
    let walk = CachedEntryKind::Walk { table: FRAME, allows: Rights::all() };
    for kind in [table, walk] {
        assert_eq!(history(kind, CachedEntryState::Usable), [Rule::Reuse]);
        assert_eq!(history(kind, CachedEntryState::Speculative), [Rule::Reuse], "a lazy CPU walks, too");
        assert_eq!(history(kind, CachedEntryState::Condemned), [], "its tag is not loaded");
    }
}

#[test]
fn no_loaded_root_leads_to_a_frame_that_is_given_back() {
    let history = |loaded: Pfn, rights: Rights, given_back: Pfn| {
        broken(|machine, oracle| {
            oracle.loaded(machine, CPU1, loaded, TAG);
            machine.map(VA, FRAME, Rights::RW);
            if rights.is_empty() {
                // A page of the kernel: neither instruction set lets user mode load or store there.
                let kernel = machine.leaf(FRAME, Rights::RW) & !(1 << 2 | 1 << 6) | 1 << 63 | 1 << 54;
                machine.put_word(PhysAddr::new((0x13 << 12) + 7 * 8), kernel);
            }
            machine.released(oracle, given_back);
        })
    };
    for frame in [ROOT, ABOVE, LAST, FRAME] {
        assert_eq!(history(ROOT, Rights::RW, frame), [Rule::Reuse], "{frame}");
        assert_eq!(history(OTHER, Rights::RW, frame), [], "{frame}");
    }
    assert_eq!(history(ROOT, NONE, FRAME), [], "a kernel may map all of memory");
    assert_eq!(history(ROOT, NONE, LAST), [Rule::Reuse]);
}

#[test]
fn a_frame_that_another_cpu_unmapped_may_be_given_back() {
    let rules = broken(|machine, oracle| {
        oracle.loaded(machine, CPU0, ROOT, TAG);
        oracle.loaded(machine, CPU1, ROOT, TAG);
        machine.map(VA, FRAME, Rights::RW);
        machine.map(VA, FRAME, NONE);
        machine.released(oracle, FRAME);
    });
    assert_eq!(rules, []);
}
