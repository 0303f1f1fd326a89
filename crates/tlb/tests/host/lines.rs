//! The shared lines that operations on a space report.
//!
//! A machine that prices lines prices just these.

use super::space::{Space, flush_of, machine, page};
use crate::support::on;
use pagewright_arch::{Isa, on_both};
use pagewright_sync::LineUse;
use pagewright_sync::host::line_reports;
use pagewright_tlb::{Batch, Gather};
use pagewright_types::{IsaKind, Level};

on_both! {
    a_new_space_stores_to_the_number_of_the_next,
    a_switch_stores_to_the_contexts_of_both_spaces,
    a_flush_stores_to_the_context_of_its_space,
    a_look_at_what_is_owed_loads_the_context_of_the_space,
}

/// How `body` used the context of `space`: loads and stores.
fn uses<I: Isa>(space: &Space<I>, body: impl FnOnce()) -> (bool, bool) {
    let reports = line_reports(body);
    let has = |used| reports.contains(&("TLB context", space.context.id().raw(), used));
    (has(LineUse::Load), has(LineUse::Store))
}

const NOT: (bool, bool) = (false, false);
const LOADED: (bool, bool) = (true, false);
const STORED: (bool, bool) = (false, true);

fn a_new_space_stores_to_the_number_of_the_next<I: Isa>() {
    let (_, tlb) = machine::<I>(1);
    let reports = line_reports(|| drop(Space::new(&tlb)));
    assert!(reports.contains(&("space ids", 0, LineUse::Store)), "{reports:?}");
}

fn a_switch_stores_to_the_contexts_of_both_spaces<I: Isa>() {
    let (_, tlb) = machine::<I>(2);
    let [first, second] = [(); 2].map(|()| Space::new(&tlb));
    on(1, || {
        assert_eq!(uses(&first, || first.run()), STORED, "the first space of the CPU");
        assert_eq!(uses(&first, || first.run()), NOT, "it runs it already");
        assert_eq!(uses(&second, || second.run()), STORED);
        assert_eq!(uses(&second, || first.run()), STORED, "the space that it leaves");
        assert_eq!(uses(&second, || first.run()), NOT);
        assert_eq!(uses(&first, || tlb.leave_space()), STORED);
        assert_eq!(uses(&first, || tlb.leave_space()), NOT, "it runs none");
    });
}

fn a_flush_stores_to_the_context_of_its_space<I: Isa>() {
    let (_, tlb) = machine::<I>(2);
    let [space, other] = [(); 2].map(|()| Space::new(&tlb));
    on(1, || space.run());
    // On arm64 no mask and no generation is involved, and nothing of the context is stored to.
    let flushed = if I::KIND == IsaKind::X86_64 { STORED } else { NOT };
    assert_eq!(uses(&space, || tlb.flush(&space.context, flush_of(1))), flushed);
    assert_eq!(uses(&other, || tlb.flush(&space.context, flush_of(1))), NOT);
    let mut batch = Batch::new(&tlb);
    assert_eq!(uses(&space, || batch.absorb(&space.context, space.clear(0))), STORED, "it defers a flush");
    batch.settle();
    assert_eq!(uses(&space, || Gather::new(&tlb, &space.context).settle()), NOT, "nothing is owed");
    let concurrent = || Gather::concurrent(&tlb, &space.context).settle();
    assert_eq!(uses(&space, concurrent), STORED, "others look at the number of open gathers");
}

fn a_look_at_what_is_owed_loads_the_context_of_the_space<I: Isa>() {
    let (_, tlb) = machine::<I>(2);
    let space = Space::new(&tlb);
    on(1, || space.run());
    let install = || tlb.flush_before_install(&space.context, space.slot(1), page(1), Level::PTE);
    assert_eq!(uses(&space, install), LOADED);
    assert_eq!(uses(&space, || assert!(!tlb.may_owe_flush(&space.context, space.last()))), LOADED);
    assert_eq!(uses(&space, || assert!(!tlb.may_owe_flush_anywhere(&space.context))), LOADED);
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(1));
    assert!(tlb.may_owe_flush_anywhere(&space.context), "a batch has deferred a flush");
    batch.settle();
    assert!(!tlb.may_owe_flush_anywhere(&space.context), "it is settled");
}
