//! INV-TABLE-ZERO: a walker that finds a table finds its entries, however the table is hooked.

use crate::pending::own;
use crate::space::{Child, Space, is_of_last_table};
use crate::support::{Delivery, Effect, Step};
use pagewright_arch::{Entry, Isa, on_both};
use pagewright_types::{Level, PageRange, Pfn, VirtAddr};
use std::collections::HashMap;

on_both! {
    the_tables_of_a_child_are_published_before_it_has_them,
    a_copied_table_is_published_before_it_is_hooked,
    a_table_that_a_child_takes_back_is_published_before_it_is_its_own,
}

const VA: VirtAddr = VirtAddr::new(0x4000_0000);

/// Whatever was stored to a table was published before the first pointer to it for one space.
///
/// So were the zeroes of a table to which nothing was stored. Returns the number of such tables.
fn assert_published<I: Isa>(space: &Space<I>, log: &[Step]) -> usize {
    let (mut stored, mut hooked, mut published) = (HashMap::<Pfn, usize>::new(), HashMap::<Pfn, ()>::new(), None);
    for (at, step) in log.iter().enumerate() {
        match step.effect {
            Effect::Publish => published = Some(at),
            Effect::Store(slot, pte) => {
                let level = space.tlb.frames().table(slot.table).level();
                if let Entry::Table(table) = I::decode(level, pte)
                    && !table.write_protected
                    && hooked.insert(table.pfn, ()).is_none()
                {
                    let since = stored.get(&table.pfn).copied();
                    assert!(published > since && published.is_some(), "{step:?} at {at}: {log:?}");
                }
                stored.insert(slot.table, at);
            }
            _ => {}
        }
    }
    hooked.len()
}

/// A space with a page, a child that shares its last table, and what the fork did.
fn fork<I: Isa>() -> (Space<I>, Child<I>, Vec<Step>) {
    let space = Space::<I>::new(4, Delivery::AtOnce);
    space.map_special(VA, Level::PTE, Pfn::new(5));
    let ((child, _), log) = space.host.log(|| space.fork(is_of_last_table));
    (space, child, log)
}

fn the_tables_of_a_child_are_published_before_it_has_them<I: Isa>() {
    let (space, _, log) = fork::<I>();
    assert_eq!(assert_published(&space, &log), 2, "tables of levels PUD and PMD");
}

fn a_copied_table_is_published_before_it_is_hooked<I: Isa>() {
    let (space, child, _) = fork::<I>();
    let ((), log) = space.host.log(|| own(&space, &child));
    assert_eq!(assert_published(&space, &log), 1, "the table of the last level");
}

/// Its leaves lose what they allowed the parent.
///
/// The pointer is published at the end, too.
fn a_table_that_a_child_takes_back_is_published_before_it_is_its_own<I: Isa>() {
    let (space, child, _) = fork::<I>();
    let all = PageRange::new(VirtAddr::ZERO, I::USER_END);
    space.mmap.write().leave_shared(&space.tlb, all, core::iter::once(all));
    let ((), log) = space.host.log(|| own(&space, &child));
    assert_eq!(assert_published(&space, &log), 1, "the table of the last level");
    let last = log.iter().rposition(|step| matches!(step.effect, Effect::Store(..))).expect("it takes a table back");
    assert!(log[last..].iter().any(|step| step.effect == Effect::Publish), "{log:?}");
}

#[cfg(feature = "planted")]
#[test]
fn a_table_that_is_its_own_too_early_is_found() {
    use pagewright_arch::{Aarch64, X86_64};
    use pagewright_plant::{PlantedBug, assert_found_by};
    let bug = PlantedBug::StrippedUnpublished;
    assert_found_by(bug, a_table_that_a_child_takes_back_is_published_before_it_is_its_own::<X86_64>);
    assert_found_by(bug, a_table_that_a_child_takes_back_is_published_before_it_is_its_own::<Aarch64>);
}
