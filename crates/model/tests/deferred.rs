//! O2 for deferred losses of a right, on histories made by hand (INV-ORACLE-O2).

use crate::support::{ABOVE, CPU0, CPU1, FRAME, LAST, Machine, ROOT, TAG, VA, broken};
use pagewright_model::{Antecedent, Oracle, Rule};
use pagewright_types::judge::{CachedEntryKind, CachedEntryState, Fact, Judge, LogicalPage};
use pagewright_types::{Access, FrameRange, Level, PageRange, Pfn, PhysAddr, Rights};

const NONE: Rights = Rights::empty();
const COPY: Pfn = Pfn::new(0x2222);
const OTHER_FRAME: Pfn = Pfn::new(0x3333);
const PAGE: LogicalPage = LogicalPage::File { file: 7, index: 3 };
const SLOT: PhysAddr = PhysAddr::new((0x13 << 12) + 7 * 8);

fn defer(machine: &Machine, oracle: &mut Oracle, copy: Option<Pfn>) {
    let (range, frame) = (PageRange::page(VA), FRAME);
    oracle.fact(machine, CPU0, Fact::RightDeferred { root: ROOT, range, frame, copy, page: PAGE });
}

fn stored(machine: &Machine, oracle: &mut Oracle) {
    oracle.entry_stored(machine, CPU0, SLOT, 1, 0);
}

/// A page is migrated from [`FRAME`] to [`COPY`], and CPU 1 still reads the old frame.
fn migrated(then: impl Fn(&mut Machine, &mut Oracle)) -> Vec<Rule> {
    broken(|machine, oracle| {
        machine.map(VA, FRAME, Rights::READ);
        machine.fill(Rights::READ, CachedEntryState::Usable);
        machine.reduced(oracle, CPU0, NONE);
        machine.map(VA, COPY, Rights::READ);
        defer(machine, oracle, Some(COPY));
        stored(machine, oracle);
        machine.returned(oracle, CPU0);
        assert_eq!(oracle.found(), 0, "the call may return: {:?}", oracle.violations());
        assert_eq!(oracle.tally().of(Antecedent::RightDeferred), 1);
        then(machine, oracle);
        assert!(oracle.tally().of(Antecedent::DeferralEnded) <= 1);
    })
}

/// The event is a report while CPU 1 holds the page, and none after a flush.
fn must_be_flushed_before(event: impl Fn(&mut Machine, &mut Oracle)) {
    let found = migrated(|machine, oracle| {
        event(machine, oracle);
        event(machine, oracle);
    });
    assert_eq!(found, [Rule::Rights], "the window ends with the first event");
    let flushed = migrated(|machine, oracle| {
        machine.flush();
        event(machine, oracle);
        assert_eq!(oracle.tally().of(Antecedent::DeferralEnded), 1);
    });
    assert_eq!(flushed, []);
}

#[test]
fn a_store_to_either_copy_needs_the_flush() {
    for frame in [FRAME, COPY] {
        must_be_flushed_before(|machine, oracle| machine.access(oracle, frame, Access::Write, false));
        must_be_flushed_before(|machine, oracle| {
            oracle.written(machine, CPU0, FrameRange::new(frame, frame.add(1)));
        });
    }
    let read = migrated(|machine, oracle| {
        machine.access(oracle, FRAME, Access::Read, true);
        machine.access(oracle, OTHER_FRAME, Access::Write, false);
    });
    assert_eq!(read, [], "the page may be read, and other pages may be stored to");
}

#[test]
fn another_page_at_the_address_needs_the_flush() {
    must_be_flushed_before(|machine, oracle| {
        machine.map(VA, OTHER_FRAME, Rights::READ);
        stored(machine, oracle);
    });
    must_be_flushed_before(|machine, oracle| {
        machine.put_word(COPY.base(), 1);
        stored(machine, oracle);
    });
    let elsewhere = migrated(|machine, oracle| {
        machine.map(VA.add(0x1000), OTHER_FRAME, Rights::READ);
        machine.map(VA, FRAME, Rights::READ);
        stored(machine, oracle);
    });
    assert_eq!(elsewhere, [], "the page itself may be mapped there, and others elsewhere");
}

#[test]
fn truncation_and_the_return_of_another_call_need_the_flush() {
    must_be_flushed_before(|machine, oracle| oracle.fact(machine, CPU1, Fact::PageReplaced { page: PAGE }));
    let returned = |flushed: bool| {
        migrated(|machine, oracle| {
            if flushed {
                machine.flush();
            }
            machine.reduced(oracle, CPU1, NONE);
            machine.map(VA, FRAME, NONE);
            machine.returned(oracle, CPU1);
        })
    };
    assert_eq!(returned(false), [Rule::Rights, Rule::Rights], "the window, and what it excuses no more");
    assert_eq!(returned(true), []);
    let other = migrated(|machine, oracle| {
        oracle.fact(machine, CPU1, Fact::PageReplaced { page: LogicalPage::Anon { id: 3 } });
        machine.returned(oracle, CPU1);
    });
    assert_eq!(other, [], "another page, and a call that takes nothing there");
}

/// A program relies on the effect of munmap and mprotect when they return.
#[test]
fn a_call_whose_effect_is_visible_must_not_defer_past_its_return() {
    let history = |rights: Rights, frame: Pfn, left: Rights, flushed: bool| {
        broken(|machine, oracle| {
            machine.map(VA, FRAME, Rights::RX);
            machine.fill(Rights::RX, CachedEntryState::Usable);
            machine.reduced(oracle, CPU0, left);
            machine.map(VA, frame, rights);
            defer(machine, oracle, Some(COPY));
            if flushed {
                machine.flush();
            }
            machine.returned(oracle, CPU0);
        })
    };
    assert_eq!(history(NONE, FRAME, NONE, false), [Rule::Rights, Rule::Rights], "munmap: the window, and the right");
    assert_eq!(history(Rights::READ, FRAME, Rights::READ, false), [Rule::Rights, Rule::Rights], "mprotect");
    assert_eq!(history(Rights::READ, COPY, NONE, false), [], "a migration");
    assert_eq!(history(NONE, FRAME, NONE, true), []);
}

#[test]
fn a_page_that_a_cpu_may_store_to_must_not_be_deferred() {
    let history = |fill: &dyn Fn(&mut Machine)| {
        broken(|machine, oracle| {
            fill(machine);
            defer(machine, oracle, Some(COPY));
        })
    };
    let translation = |rights: Rights| {
        history(&move |machine| {
            machine.map(VA, FRAME, Rights::READ);
            machine.fill(rights, CachedEntryState::Usable);
        })
    };
    assert_eq!(translation(Rights::RW), [Rule::Rights]);
    assert_eq!(translation(Rights::READ), []);
    let path = |kind: CachedEntryKind, level: Level, leaf: Rights| {
        history(&move |machine| {
            machine.map(VA, FRAME, leaf);
            machine.link(ABOVE, Some((LAST, Rights::RX)));
            machine.remember(kind, level, CachedEntryState::Usable);
        })
    };
    let table = |allows| CachedEntryKind::Table { table: LAST, allows };
    let walk = |allows| CachedEntryKind::Walk { table: LAST, allows };
    assert_eq!(path(table(Rights::all()), Level::PMD, Rights::RW), [Rule::Rights], "a walk cache keeps the right");
    assert_eq!(path(walk(Rights::all()), Level::PTE, Rights::RW), [Rule::Rights], "a walk has read the pointer");
    assert_eq!(path(table(Rights::RX), Level::PMD, Rights::RW), []);
    assert_eq!(path(walk(Rights::all()), Level::PTE, Rights::READ), []);
}

/// A CPU that runs another space may come back to it, unless it invalidates before.
#[test]
fn a_condemned_right_to_store_is_reported_when_its_tag_is_loaded() {
    let history = |rights: Rights, flushed: bool| {
        broken(|machine, oracle| {
            machine.map(VA, COPY, Rights::READ);
            machine.fill(rights, CachedEntryState::Condemned);
            defer(machine, oracle, Some(COPY));
            assert_eq!(oracle.found(), 0, "the call that takes the right may be in flight");
            if flushed {
                machine.flush();
            }
            oracle.loaded(machine, CPU1, ROOT, TAG);
        })
    };
    assert_eq!(history(Rights::RW, false), [Rule::Rights]);
    assert_eq!(history(Rights::RW, true), []);
    assert_eq!(history(Rights::READ, false), []);
}

/// `mprotect` leaves the right to read, which a lingering translation gives, too.
#[test]
fn a_call_that_leaves_what_lingers_needs_no_flush_of_a_cpu_that_runs_another_space() {
    let history = |other: CachedEntryState| {
        broken(|machine, oracle| {
            machine.map(VA, COPY, Rights::READ);
            machine.fill(Rights::READ, CachedEntryState::Usable);
            defer(machine, oracle, Some(COPY));
            machine.fill(Rights::RW, other);
            machine.reduced(oracle, CPU0, Rights::READ);
            machine.returned(oracle, CPU0);
        })
    };
    assert_eq!(history(CachedEntryState::Condemned), []);
    assert_ne!(history(CachedEntryState::Usable), []);
}

#[test]
fn a_window_excuses_the_declared_page_alone() {
    let history = |frame: Pfn, rights: Rights| {
        broken(|machine, oracle| {
            machine.remember(CachedEntryKind::Translation { pfn: frame, rights }, Level::PTE, CachedEntryState::Usable);
            machine.reduced(oracle, CPU0, NONE);
            machine.map(VA, COPY, Rights::READ);
            defer(machine, oracle, Some(COPY));
            machine.returned(oracle, CPU0);
        })
    };
    assert_eq!(history(FRAME, Rights::READ), []);
    assert_eq!(history(OTHER_FRAME, Rights::READ), [Rule::Rights]);
}

#[test]
fn a_condemned_translation_is_reported_only_when_used_after_the_window() {
    let history = |flushed: bool| {
        broken(|machine, oracle| {
            machine.map(VA, FRAME, Rights::READ);
            machine.fill(Rights::READ, CachedEntryState::Condemned);
            machine.reduced(oracle, CPU0, NONE);
            machine.map(VA, COPY, Rights::READ);
            defer(machine, oracle, Some(COPY));
            machine.returned(oracle, CPU0);
            oracle.fact(machine, CPU0, Fact::PageReplaced { page: PAGE });
            assert_eq!(oracle.found(), 0);
            if flushed {
                machine.flush();
            }
            oracle.loaded(machine, CPU1, ROOT, TAG);
        })
    };
    assert_eq!(history(false), [Rule::Rights]);
    assert_eq!(history(true), []);
}

#[test]
fn the_allocation_of_the_frame_ends_the_window_and_is_judged_by_o1() {
    let found = migrated(|machine, oracle| {
        machine.freed(oracle, FRAME);
        machine.reused(oracle, FRAME);
        machine.access(oracle, FRAME, Access::Write, false);
    });
    assert_eq!(found, [Rule::Reuse]);
}

#[test]
fn windows_are_counted_by_the_event_that_ends_them() {
    let ends = [
        Antecedent::DeferralStored,
        Antecedent::DeferralWritten,
        Antecedent::DeferralMapped,
        Antecedent::DeferralReplaced,
        Antecedent::DeferralReturned,
        Antecedent::DeferralTaken,
    ];
    let ended_by = |by: Antecedent, event: &dyn Fn(&mut Machine, &mut Oracle)| {
        let found = migrated(|machine, oracle| {
            machine.flush();
            event(machine, oracle);
            let counts = ends.map(|end| oracle.tally().of(end));
            assert_eq!(counts, ends.map(|end| u64::from(end == by)), "{by:?}");
            assert_eq!(oracle.tally().of(Antecedent::DeferralEnded), 1);
        });
        assert_eq!(found, []);
    };
    let [stored_by_program, written, mapped, replaced, returned, taken] = ends;
    ended_by(stored_by_program, &|machine, oracle| machine.access(oracle, COPY, Access::Write, false));
    ended_by(written, &|machine, oracle| oracle.written(machine, CPU0, FrameRange::new(COPY, COPY.add(1))));
    ended_by(mapped, &|machine, oracle| {
        machine.map(VA, OTHER_FRAME, Rights::READ);
        stored(machine, oracle);
    });
    ended_by(replaced, &|machine, oracle| oracle.fact(machine, CPU1, Fact::PageReplaced { page: PAGE }));
    ended_by(returned, &|machine, oracle| {
        machine.reduced(oracle, CPU1, NONE);
        machine.returned(oracle, CPU1);
    });
    ended_by(taken, &|machine, oracle| {
        machine.freed(oracle, FRAME);
        machine.reused(oracle, FRAME);
    });
}

#[test]
fn hits_on_what_a_moved_page_left_are_counted() {
    let found = migrated(|machine, oracle| {
        let counts = |oracle: &Oracle| {
            [Antecedent::StaleHit, Antecedent::FrameDebt].map(|antecedent| oracle.tally().of(antecedent))
        };
        machine.access(oracle, COPY, Access::Read, true);
        machine.access(oracle, FRAME, Access::Read, false);
        machine.access(oracle, OTHER_FRAME, Access::Read, true);
        assert_eq!(counts(oracle), [0, 0], "by the tables, by a walk, of another page");
        machine.hit(oracle, Access::Read);
        machine.hit(oracle, Access::Exec);
        assert_eq!(counts(oracle), [2, 0]);
        machine.freed(oracle, FRAME);
        machine.hit(oracle, Access::Read);
        assert_eq!(counts(oracle), [3, 1], "O1 counts what is read of a parked frame, moved or not");
        machine.map(VA, FRAME, Rights::READ);
        machine.hit(oracle, Access::Read);
        assert_eq!(counts(oracle)[0], 3, "the tables give the frame again");
    });
    assert_eq!(found, []);
    let reclaimed = broken(|machine, oracle| {
        machine.fill(Rights::READ, CachedEntryState::Usable);
        machine.map(VA, FRAME, NONE);
        defer(machine, oracle, None);
        machine.freed(oracle, FRAME);
        machine.hit(oracle, Access::Read);
        let counts = [Antecedent::StaleHit, Antecedent::FrameDebt].map(|antecedent| oracle.tally().of(antecedent));
        assert_eq!(counts, [0, 1], "no page has moved");
    });
    assert_eq!(reclaimed, []);
}
