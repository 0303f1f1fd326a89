//! O2 for a page that moves again before the first flush, on histories made by hand.
//!
//! (INV-ORACLE-O2.)

use crate::support::{CPU0, CPU1, FRAME, LAST, Machine, OTHER, ROOT, VA, broken};
use pagewright_model::{Antecedent, Oracle, Rule};
use pagewright_types::judge::{CachedEntryKind, CachedEntryState, Fact, Judge, LogicalPage};
use pagewright_types::{Access, FrameRange, Level, PageRange, Pfn, PhysAddr, Rights};

const NONE: Rights = Rights::empty();
const COPY: Pfn = Pfn::new(0x2222);
const SECOND: Pfn = Pfn::new(0x3333);
const PAGE: LogicalPage = LogicalPage::Anon { id: 5 };
const OTHER_PAGE: LogicalPage = LogicalPage::Anon { id: 6 };

type Event<'a> = &'a dyn Fn(&mut Machine, &mut Oracle);

fn slot() -> PhysAddr {
    LAST.base().add(VA.page_index() * 8)
}

/// How a page moves: between which frames, in which space, and as which page.
#[derive(Clone, Copy)]
struct Move {
    from: Pfn,
    to: Pfn,
    root: Pfn,
    page: LogicalPage,
}

const FIRST_MOVE: Move = Move { from: FRAME, to: COPY, root: ROOT, page: PAGE };
const SECOND_MOVE: Move = Move { from: COPY, to: SECOND, root: ROOT, page: PAGE };

fn store(machine: &mut Machine, oracle: &mut Oracle, frame: Pfn, rights: Rights) {
    machine.map(VA, frame, rights);
    oracle.entry_stored(machine, CPU0, slot(), 1, 2);
}

fn declare(machine: &Machine, oracle: &mut Oracle, Move { from, to, root, page }: Move) {
    let range = PageRange::page(VA);
    oracle.fact(machine, CPU0, Fact::RightDeferred { root, range, frame: from, copy: Some(to), page });
}

/// A call on CPU 0 moves the page: it clears the leaf, copies, declares and maps the copy.
fn moves(machine: &mut Machine, oracle: &mut Oracle, made: Move) {
    machine.reduced(oracle, CPU0, NONE);
    // As a migration entry does, the word names the frame and is not present.
    let soft = machine.leaf(made.from, Rights::READ) & !1;
    machine.put_word(slot(), soft);
    oracle.entry_stored(machine, CPU0, slot(), 1, soft);
    oracle.written(machine, CPU0, FrameRange::new(made.to, made.to.add(1)));
    declare(machine, oracle, made);
    store(machine, oracle, made.to, Rights::READ);
    machine.returned(oracle, CPU0);
}

/// CPU 1 reads the page from where it was before the first of two moves.
fn moved_twice(second: Move, then: impl Fn(&mut Machine, &mut Oracle)) -> Vec<Rule> {
    broken(|machine, oracle| {
        machine.map(VA, FRAME, Rights::READ);
        machine.fill(Rights::READ, CachedEntryState::Usable);
        moves(machine, oracle, FIRST_MOVE);
        moves(machine, oracle, second);
        then(machine, oracle);
    })
}

#[test]
fn a_page_may_move_again_before_the_first_flush() {
    let found = moved_twice(SECOND_MOVE, |machine, oracle| {
        let counts = [Antecedent::DeferralEnded, Antecedent::MovedAgain].map(|what| oracle.tally().of(what));
        assert_eq!(counts, [0, 1]);
        machine.hit(oracle, Access::Read);
        let third = Move { from: SECOND, to: Pfn::new(0x4444), ..SECOND_MOVE };
        moves(machine, oracle, third);
        machine.hit(oracle, Access::Read);
        assert_eq!(oracle.tally().of(Antecedent::StaleHit), 2);
        machine.flush();
        store(machine, oracle, third.to, Rights::READ);
        assert_eq!(oracle.tally().of(Antecedent::MovedAgain), 2, "not when the first frame is held no more");
    });
    assert_eq!(found, []);
}

#[test]
fn a_second_copy_that_differs_or_is_another_page_needs_the_flush() {
    let found = broken(|machine, oracle| {
        machine.fill(Rights::READ, CachedEntryState::Usable);
        moves(machine, oracle, FIRST_MOVE);
        machine.put_word(SECOND.base(), 1);
        declare(machine, oracle, SECOND_MOVE);
        store(machine, oracle, SECOND, Rights::READ);
    });
    assert_eq!(found, [Rule::Rights], "the contents differ");
    let another = |made: Move| {
        broken(|machine, oracle| {
            machine.fill(Rights::READ, CachedEntryState::Usable);
            moves(machine, oracle, FIRST_MOVE);
            declare(machine, oracle, made);
            store(machine, oracle, SECOND, Rights::READ);
        })
    };
    assert_eq!(another(Move { page: OTHER_PAGE, ..SECOND_MOVE }), [Rule::Rights], "another page of that frame");
    assert_eq!(another(Move { from: Pfn::new(0x5555), ..SECOND_MOVE }), [Rule::Rights], "no frame in common");
    assert_eq!(another(SECOND_MOVE), []);
    let undeclared = broken(|machine, oracle| {
        machine.fill(Rights::READ, CachedEntryState::Usable);
        moves(machine, oracle, FIRST_MOVE);
        store(machine, oracle, SECOND, Rights::READ);
    });
    assert_eq!(undeclared, [Rule::Rights], "equal contents alone");
}

#[test]
fn a_store_to_any_frame_of_the_page_ends_the_windows_of_all_its_moves() {
    for frame in [FRAME, COPY, SECOND] {
        let events: [Event<'_>; 2] =
            [&|machine, oracle| machine.access(oracle, frame, Access::Write, false), &|machine, oracle| {
                oracle.written(machine, CPU0, FrameRange::new(frame, frame.add(1)))
            }];
        for event in events {
            assert_eq!(moved_twice(SECOND_MOVE, event), [Rule::Rights]);
            let flushed = moved_twice(SECOND_MOVE, |machine, oracle| {
                machine.flush();
                event(machine, oracle);
                assert_eq!(oracle.tally().of(Antecedent::DeferralEnded), 2);
            });
            assert_eq!(flushed, []);
        }
    }
}

/// The page has left one space, and moves again in another.
#[test]
fn moves_of_one_page_are_linked_across_spaces() {
    let elsewhere = Move { root: OTHER, ..SECOND_MOVE };
    let history = |made: Move, flushed: bool| {
        broken(|machine, oracle| {
            machine.fill(Rights::READ, CachedEntryState::Usable);
            moves(machine, oracle, FIRST_MOVE);
            declare(machine, oracle, made);
            if flushed {
                machine.flush();
            }
            machine.access(oracle, SECOND, Access::Write, false);
        })
    };
    assert_eq!(history(elsewhere, false), [Rule::Rights]);
    assert_eq!(history(elsewhere, true), []);
    assert_eq!(history(Move { page: OTHER_PAGE, ..elsewhere }, false), [], "a store to another page");
}

/// Windows may be declared in any order: one that has a frame of two others links them.
#[test]
fn a_window_links_those_between_which_it_lies() {
    let third = Move { from: SECOND, to: Pfn::new(0x4444), ..SECOND_MOVE };
    let history = |links: bool| {
        broken(|machine, oracle| {
            machine.map(VA, COPY, Rights::READ);
            machine.fill(Rights::READ, CachedEntryState::Usable);
            declare(machine, oracle, FIRST_MOVE);
            declare(machine, oracle, Move { root: OTHER, ..third });
            if links {
                declare(machine, oracle, Move { root: OTHER, ..SECOND_MOVE });
            }
            machine.access(oracle, third.to, Access::Write, false);
            assert_eq!(oracle.tally().of(Antecedent::DeferralEnded), if links { 3 } else { 1 });
        })
    };
    assert_eq!(history(true), [Rule::Rights]);
    assert_eq!(history(false), []);
}

#[test]
fn a_page_that_moved_may_be_reclaimed_but_not_unmapped_before_the_first_flush() {
    let leaves = |entry: fn(&Machine) -> u64| {
        moved_twice(SECOND_MOVE, |machine, oracle| {
            machine.reduced(oracle, CPU0, NONE);
            let (raw, range) = (entry(machine), PageRange::page(VA));
            machine.put_word(slot(), raw);
            oracle.entry_stored(machine, CPU0, slot(), 1, raw);
            let declared = Fact::RightDeferred { root: ROOT, range, frame: SECOND, copy: None, page: PAGE };
            oracle.fact(machine, CPU0, declared);
            machine.returned(oracle, CPU0);
        })
    };
    assert_eq!(leaves(|_| 0x8000), [], "a swap entry");
    assert_eq!(leaves(|_| 0), [Rule::Rights, Rule::Rights], "munmap: the window, and what it excuses no more");
}

#[test]
fn another_call_that_returns_ends_the_windows_of_all_moves() {
    let found = moved_twice(SECOND_MOVE, |machine, oracle| {
        machine.reduced(oracle, CPU1, NONE);
        machine.returned(oracle, CPU1);
        assert_eq!(oracle.tally().of(Antecedent::DeferralEnded), 2);
    });
    assert_eq!(found, [Rule::Rights, Rule::Rights], "the window, and what it excuses no more");
    let later = moved_twice(SECOND_MOVE, |machine, oracle| {
        machine.reduced(oracle, CPU0, NONE);
        machine.returned(oracle, CPU0);
    });
    assert_eq!(later, [Rule::Rights, Rule::Rights], "a later call of the CPU that moved it");
}

/// The frame between two moves is allocated for another page.
#[test]
fn a_move_outlasts_the_frame_between() {
    let taken = |then: Event<'_>| {
        moved_twice(SECOND_MOVE, |machine, oracle| {
            machine.freed(oracle, COPY);
            machine.reused(oracle, COPY);
            assert_eq!(oracle.tally().of(Antecedent::DeferralEnded), 1, "the second move's is over");
            machine.access(oracle, COPY, Access::Write, false);
            // The accessed bit of the leaf is cleared.
            store(machine, oracle, SECOND, Rights::READ);
            assert_eq!(oracle.found(), 0, "another page is stored to, and the second copy stays mapped");
            then(machine, oracle);
        })
    };
    assert_eq!(taken(&|_, _| {}), []);
    assert_eq!(taken(&|machine, oracle| machine.access(oracle, SECOND, Access::Write, false)), [Rule::Rights]);
    assert_eq!(taken(&|machine, oracle| store(machine, oracle, COPY, Rights::READ)), [Rule::Rights]);
}

#[test]
fn each_window_excuses_its_own_frame() {
    let history = |held: &[Pfn]| {
        broken(|machine, oracle| {
            moves(machine, oracle, FIRST_MOVE);
            for pfn in held {
                let kind = CachedEntryKind::Translation { pfn: *pfn, rights: Rights::READ };
                machine.remember(kind, Level::PTE, CachedEntryState::Usable);
            }
            moves(machine, oracle, SECOND_MOVE);
        })
    };
    assert_eq!(history(&[FRAME, COPY, SECOND]), []);
    assert_eq!(history(&[FRAME, COPY, Pfn::new(0x4444)]), [Rule::Rights]);
}
