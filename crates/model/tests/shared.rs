//! O4 for stores to shared tables, and O1 for parked frames, on histories made by hand.

use crate::support::{ABOVE, CPU0, CPU1, FRAME, LAST, Machine, OTHER, ROOT, TAG, VA, broken};
use pagewright_model::{Antecedent, Census, Oracle, Rule, SoftwareBits};
use pagewright_types::judge::{CachedEntryKind, CachedEntryState, Fact, Judge, Witness};
use pagewright_types::{CpuId, CpuMask, FrameRange, IsaKind, Level, Order, Pfn, PhysAddr, Rights};

const SLOT: PhysAddr = PhysAddr::new((0x13 << 12) + 7 * 8);

fn share(machine: &Machine, oracle: &mut Oracle, shared: bool) {
    oracle.fact(machine, CPU0, Fact::TableShared { table: LAST, level: Level::PTE, shared });
}

/// Shares the last table; the call that does so returns.
fn shared(machine: &Machine, oracle: &mut Oracle) {
    share(machine, oracle, true);
    machine.returned(oracle, CPU0);
}

fn in_place(machine: &Machine, oracle: &mut Oracle, begins: bool) {
    oracle.fact(machine, CPU0, Fact::EditInPlace { table: LAST, begins });
}

/// Stores an entry, and tells the oracle.
fn store(machine: &mut Machine, oracle: &mut Oracle, cpu: CpuId, new: u64) {
    let old = machine.put_word(SLOT, new);
    oracle.entry_stored(machine, cpu, SLOT, old, new);
}

fn bits(isa: IsaKind) -> (u64, u64, u64, u64) {
    // Writable, read-only, exclusive, accessed.
    match isa {
        IsaKind::X86_64 => (0x2, 0, 1 << 56, 1 << 5),
        IsaKind::Aarch64 => (0, 1 << 7, 1 << 57, 1 << 10),
    }
}

/// INV-ORACLE-O4.
#[test]
fn an_entry_of_a_shared_table_changes_for_all_sharers_or_not_at_all() {
    let history = |shared: bool, token: bool, cpu: CpuId| {
        broken(|machine, oracle| {
            machine.map(VA, FRAME, Rights::READ);
            self::shared(machine, oracle);
            if !shared {
                share(machine, oracle, false);
            }
            if token {
                in_place(machine, oracle, true);
            }
            store(machine, oracle, cpu, 0);
            in_place(machine, oracle, false);
            oracle.at_rest(machine, CPU0, &Census::new(SoftwareBits::default()));
            assert_eq!(oracle.tally().of(Antecedent::SharedStore), u64::from(shared));
            assert_eq!(oracle.tally().of(Antecedent::SharedHash), 1);
        })
    };
    assert_eq!(history(true, false, CPU0), [Rule::Counts]);
    assert_eq!(history(true, true, CPU0), []);
    assert_eq!(history(true, true, CPU1), [Rule::Counts], "the token is another CPU's");
    assert_eq!(history(false, false, CPU0), []);
}

#[test]
fn a_break_may_take_writability_and_exclusivity_and_nothing_else() {
    let history = |change: fn(IsaKind, u64) -> u64| {
        broken(|machine, oracle| {
            let isa = machine.isa;
            *oracle = Oracle::new(isa).with_software_bits(SoftwareBits::pagewright(isa));
            let (writable, _, exclusive, _) = bits(isa);
            machine.map(VA, FRAME, Rights::RW);
            let before = machine.put_word(SLOT, 0) | writable | exclusive;
            machine.put_word(SLOT, before);
            shared(machine, oracle);
            store(machine, oracle, CPU0, change(isa, before));
            share(machine, oracle, false);
        })
    };
    let broken_copy = |isa: IsaKind, raw: u64| {
        let (writable, read_only, exclusive, _) = bits(isa);
        raw & !(writable | exclusive) | read_only
    };
    assert_eq!(history(broken_copy), []);
    assert_eq!(history(|isa, raw| raw & !bits(isa).3), [], "ageing clears the accessed bit");
    assert_eq!(history(|_, raw| raw ^ 0x1000), [Rule::Counts], "another frame");
    assert_eq!(history(|_, _| 0), [Rule::Counts]);
    let gained = broken(|machine, oracle| {
        machine.map(VA, FRAME, Rights::READ);
        let writable = machine.leaf(FRAME, Rights::RW);
        shared(machine, oracle);
        store(machine, oracle, CPU0, writable);
    });
    assert_eq!(gained, [Rule::Counts], "the right to store is gained");
}

/// INV-ORACLE-O4: the sharers reach the new table, so its entries change for all of them, too.
#[test]
fn an_empty_table_comes_in_place_of_an_empty_entry_and_nothing_else_does() {
    const MADE: Pfn = Pfn::new(0x33);
    let slot = |index: u64| ABOVE.base().add(8 * index);
    let history = |edit: fn(&mut Machine, &mut Oracle, u64) -> (u64, u64), token: bool| {
        let shared_above = |oracle: &mut Oracle, machine: &Machine, shared: bool| {
            oracle.fact(machine, CPU0, Fact::TableShared { table: ABOVE, level: Level::PMD, shared });
        };
        let noted = std::cell::Cell::new(0);
        let found = broken(|machine, oracle| {
            shared_above(oracle, machine, true);
            machine.returned(oracle, CPU0);
            if token {
                oracle.fact(machine, CPU0, Fact::EditInPlace { table: ABOVE, begins: true });
            }
            // A pointer to the new table, as the one to the last table is.
            let pointer = machine.stored(ABOVE.base()) & 0xfff | MADE.base().raw();
            let (index, new) = edit(machine, oracle, pointer);
            let old = machine.put_word(slot(index), new);
            oracle.entry_stored(machine, CPU0, slot(index), old, new);
            oracle.fact(machine, CPU0, Fact::EditInPlace { table: ABOVE, begins: false });
            machine.returned(oracle, CPU0);
            if (index, new) == (1, pointer) {
                let old = machine.put_word(MADE.base(), 0x1000);
                oracle.entry_stored(machine, CPU0, MADE.base(), old, 0x1000);
            }
            noted.set(oracle.tally().of(Antecedent::TableMadeInPlace));
            shared_above(oracle, machine, false);
        });
        (found, noted.get())
    };
    let counts = Rule::Counts;
    assert_eq!(history(|_, _, pointer| (1, pointer), true), (vec![counts], 1), "an entry of it is no sharer's own");
    assert_eq!(history(|_, _, pointer| (1, pointer), false), (vec![counts], 0), "without the token");
    assert_eq!(history(|_, _, pointer| (0, pointer), true), (vec![counts], 0), "instead of another table");
    assert_eq!(history(|_, _, _| (0, 0), true), (vec![counts], 0), "a table is removed");
    let full = |machine: &mut Machine, _: &mut Oracle, pointer: u64| {
        machine.put_word(MADE.base(), 0x1000);
        (2, pointer)
    };
    assert_eq!(history(full, true), (vec![counts], 0), "a table with an entry");
    assert_eq!(history(|_, _, pointer| (2, pointer), true), (vec![], 1));
    assert_eq!(history(|_, _, _| (2, 0), true), (vec![], 0));
}

#[test]
fn a_change_of_a_shared_table_that_no_store_explains_is_found_at_rest_and_when_sharing_ends() {
    let history = |at_rest: bool, accessed: bool| {
        broken(|machine, oracle| {
            machine.map(VA, FRAME, Rights::READ);
            shared(machine, oracle);
            let before = machine.put_word(SLOT, 0);
            let bit = if accessed { bits(machine.isa).3 } else { 1 << 6 };
            machine.put_word(SLOT, before ^ bit);
            match at_rest {
                true => oracle.at_rest(machine, CPU0, &Census::new(SoftwareBits::default())),
                false => share(machine, oracle, false),
            }
        })
    };
    for at_rest in [false, true] {
        assert_eq!(history(at_rest, false), [Rule::Counts]);
        assert_eq!(history(at_rest, true), [], "walkers set the accessed bit");
    }
}

#[test]
fn what_happens_beside_a_break_or_a_leave_is_counted() {
    let noted = |antecedent: Antecedent, history: fn(&mut Machine, &mut Oracle)| {
        let (mut machine, mut oracle) = (Machine::new(IsaKind::Aarch64), Oracle::new(IsaKind::Aarch64));
        share(&machine, &mut oracle, true);
        history(&mut machine, &mut oracle);
        oracle.tally().of(antecedent)
    };
    let leave: fn(&mut Machine, &mut Oracle) = |machine, oracle| {
        let old = machine.put_word(ABOVE.base(), 0);
        oracle.entry_stored(machine, CPU0, ABOVE.base(), old, 0);
    };
    assert_eq!(noted(Antecedent::LeaveBesideWalk, leave), 0);
    let beside_walk = |machine: &mut Machine, oracle: &mut Oracle| {
        let walk = CachedEntryKind::Walk { table: LAST, allows: Rights::all() };
        machine.remember(walk, Level::PTE, CachedEntryState::Usable);
        let old = machine.put_word(ABOVE.base(), 0);
        oracle.entry_stored(machine, CPU0, ABOVE.base(), old, 0);
    };
    assert_eq!(noted(Antecedent::LeaveBesideWalk, beside_walk), 1);
    let lockless = |machine: &mut Machine, oracle: &mut Oracle| {
        machine.lockless = vec![(CPU1, vec![ROOT, ABOVE])];
        oracle.loaded(machine, CPU1, ROOT, TAG);
        let old = machine.put_word(ABOVE.base(), 0);
        oracle.entry_stored(machine, CPU0, ABOVE.base(), old, 0);
        oracle.entry_stored(machine, CPU0, ABOVE.base(), 0, 0);
        assert_eq!(oracle.tally().of(Antecedent::LeaveBesideForeign), 0, "the CPU runs the space that it walks");
    };
    assert_eq!(noted(Antecedent::BreakBesideLockless, leave), 0);
    assert_eq!(noted(Antecedent::BreakBesideLockless, lockless), 1);
    let breaks = [(FRAME.base().raw() | 3, Antecedent::BreakBesideForeign), (0, Antecedent::LeaveBesideForeign)];
    for (then, expected) in breaks {
        let (mut machine, mut oracle) = (Machine::new(IsaKind::Aarch64), Oracle::new(IsaKind::Aarch64));
        share(&machine, &mut oracle, true);
        machine.lockless = vec![(CPU1, vec![OTHER, LAST])];
        oracle.loaded(&machine, CPU1, ROOT, TAG);
        let old = machine.put_word(ABOVE.base(), 0x40);
        oracle.entry_stored(&machine, CPU0, ABOVE.base(), old, 0x40);
        machine.put_word(ABOVE.base(), then);
        oracle.entry_stored(&machine, CPU0, ABOVE.base(), 0x40, then);
        let noted =
            [Antecedent::BreakBesideForeign, Antecedent::LeaveBesideForeign].map(|what| oracle.tally().of(what));
        assert_eq!(
            noted,
            [expected == Antecedent::BreakBesideForeign, expected == Antecedent::LeaveBesideForeign].map(u64::from)
        );
    }
    let install = |machine: &mut Machine, oracle: &mut Oracle| {
        let old = machine.put_word(ABOVE.base(), 0);
        oracle.entry_stored(machine, CPU0, ABOVE.base(), old, 0);
        let leaf = machine.leaf(FRAME, Rights::READ);
        store(machine, oracle, CPU1, leaf);
        machine.returned(oracle, CPU0);
        store(machine, oracle, CPU1, 0);
        store(machine, oracle, CPU1, leaf);
    };
    assert_eq!(noted(Antecedent::InstalledBesideBreak, install), 1, "until the call that left returns");
    let edit = |machine: &mut Machine, oracle: &mut Oracle| {
        in_place(machine, oracle, true);
        machine.walked(ROOT, LAST, VA, FRAME);
        store(machine, oracle, CPU0, 0x40);
        machine.walked(OTHER, LAST, VA, FRAME);
        store(machine, oracle, CPU0, 0x80);
    };
    assert_eq!(noted(Antecedent::InPlaceEdit, edit), 1, "the second edit, when both spaces had walked");
}

/// The table above the last one is shared, or not, and CPU 1 stores to the last one.
///
/// INV-ORACLE-O4.
#[test]
fn tables_below_a_shared_one_are_shared_and_cease_to_be_with_it() {
    let above = |shared: bool| Fact::TableShared { table: ABOVE, level: Level::PMD, shared };
    let history = |facts: &[Fact]| {
        broken(|machine, oracle| {
            machine.map(VA, FRAME, Rights::READ);
            for fact in facts {
                oracle.fact(machine, CPU0, *fact);
            }
            machine.returned(oracle, CPU0);
            store(machine, oracle, CPU1, 0);
        })
    };
    let last = |shared: bool| Fact::TableShared { table: LAST, level: Level::PTE, shared };
    assert_eq!(history(&[above(true)]), [Rule::Counts]);
    assert_eq!(history(&[above(true), above(false)]), []);
    assert_eq!(history(&[above(true), last(true), above(false)]), [Rule::Counts], "another entry points to it");
    assert_eq!(history(&[above(true), last(true), last(false)]), [Rule::Counts], "the shared table points to it");
    assert_eq!(history(&[above(true), last(true), last(false), above(false)]), []);
}

/// A break that fails gives the rights back that it took, which no path lets a program use.
#[test]
fn a_call_may_undo_what_it_took_from_a_shared_entry_until_it_returns() {
    let history = |by: CpuId, returns: bool| {
        broken(|machine, oracle| {
            machine.map(VA, FRAME, Rights::RW);
            let (before, weaker) = (machine.leaf(FRAME, Rights::RW), machine.leaf(FRAME, Rights::READ));
            shared(machine, oracle);
            store(machine, oracle, CPU0, weaker);
            if returns {
                machine.returned(oracle, CPU0);
            }
            store(machine, oracle, by, before);
        })
    };
    assert_eq!(history(CPU0, false), []);
    assert_eq!(history(CPU0, true), [Rule::Counts]);
    assert_eq!(history(CPU1, false), [Rule::Counts]);
}

/// INV-ORACLE-O1.
#[test]
fn a_free_frame_is_written_by_nothing() {
    let written = |reused: bool| {
        broken(|machine, oracle| {
            machine.freed(oracle, FRAME);
            if reused {
                machine.reused(oracle, FRAME);
            }
            oracle.written(machine, CPU1, FrameRange::new(FRAME, FRAME.add(1)));
        })
    };
    assert_eq!(written(false), [Rule::Reuse]);
    assert_eq!(written(true), []);
}

#[test]
fn a_parked_frame_that_changed_is_found_when_it_is_taken() {
    let history = |order: u8, changed: u32| {
        broken(|machine, oracle| {
            let (pfn, order) = (Pfn::new(0x4000), Order::new(order));
            machine.put_word(pfn.add(1).base().add(64), 5);
            oracle.fact(machine, CPU0, Fact::FrameFreed { pfn, order });
            machine.put_word(pfn.add(changed).base().add(64), 6);
            oracle.fact(machine, CPU1, Fact::FrameReused { pfn, order });
            assert_eq!(oracle.tally().of(Antecedent::Parked), u64::from(order.frames()));
            oracle.fact(machine, CPU0, Fact::FrameReused { pfn, order });
        })
    };
    assert_eq!(history(0, 0), [Rule::Reuse]);
    assert_eq!(history(1, 1), [Rule::Reuse]);
    assert_eq!(history(1, 2), [], "a frame outside of the block");
}

#[test]
fn a_frame_taken_by_a_cpu_that_must_not_wait_is_counted() {
    broken(|machine, oracle| {
        machine.hit(oracle, pagewright_types::Access::Write);
        machine.freed(oracle, FRAME);
        machine.uninterruptible = CpuMask::of(CPU0);
        machine.reused(oracle, FRAME);
        assert_eq!(oracle.tally().of(Antecedent::ReusedAtOnce), 1);
    });
}
