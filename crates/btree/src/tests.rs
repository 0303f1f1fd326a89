//! Comparisons of the tree with `BTreeMap` and with exhaustive searches.
//!
//! Every invariant is checked after every step.

use super::*;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use proptest::prelude::*;

/// Disjoint items, as VMAs are.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Area {
    end: u64,
    guard: u64,
}

impl TreeItem for Area {
    type Key = u64;
    type Summary = Gaps;

    fn summary(&self, _key: u64) -> Gaps {
        Gaps::until(self.end)
    }

    fn guard(&self) -> u64 {
        self.guard
    }
}

/// Items that may overlap, several of them at one page, as mappings of a file do.
#[derive(Clone, Copy, Debug, PartialEq)]
struct FileMapping {
    end: u64,
}

impl TreeItem for FileMapping {
    type Key = (u64, u64);
    type Summary = MaxEnd;

    fn summary(&self, _key: (u64, u64)) -> MaxEnd {
        MaxEnd::until(self.end)
    }
}

/// An item without a summary, as in the page cache, whose drop the tests observe.
#[derive(Clone, Debug, PartialEq)]
struct Cached(Rc<u64>);

impl TreeItem for Cached {
    type Key = u64;
    type Summary = ();

    fn summary(&self, _key: u64) {}
}

fn insert<V: TreeItem>(tree: &mut BPlusTree<V>, key: V::Key, item: V) -> Option<V> {
    tree.try_reserve(1, || true).expect("the host has memory");
    tree.insert(key, item)
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64),
    Append(u64),
    Remove(u64),
    RemoveRun(u64, usize),
    PopFirst,
    Update(u64, u64),
    Rekey(u64, u64),
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        200 => (0..2000u64).prop_map(Step::Insert),
        60 => (1..40u64).prop_map(Step::Append),
        60 => (0..2000u64).prop_map(Step::Remove),
        10 => (0..2000u64, 1..60usize).prop_map(|(key, count)| Step::RemoveRun(key, count)),
        10 => Just(Step::PopFirst),
        30 => (0..2000u64, 0..500u64).prop_map(|(key, len)| Step::Update(key, len)),
        30 => (0..2000u64, 0..2000u64).prop_map(|(old, new)| Step::Rekey(old, new)),
        1 => Just(Step::Clear),
    ]
}

/// Applies `step` to both and compares the results.
fn apply(step: &Step, tree: &mut BPlusTree<FileMapping>, model: &mut BTreeMap<(u64, u64), FileMapping>) {
    let at_or_after =
        |model: &BTreeMap<(u64, u64), FileMapping>, key| model.range((key, 0)..).next().map(|(key, _)| *key);
    match *step {
        Step::Insert(key) => {
            // Few starts and many tie-breakers, so that keys of one start cross nodes.
            let (key, item) = ((key / 40, key % 40), FileMapping { end: key / 40 + key % 7 + 1 });
            assert_eq!(insert(tree, key, item), model.insert(key, item));
        }
        Step::Append(count) => {
            let last = model.last_key_value().map_or(0, |(key, _)| key.0);
            for start in last + 1..last + 1 + count {
                let item = FileMapping { end: start + count };
                assert_eq!(insert(tree, (start, 0), item), model.insert((start, 0), item));
            }
        }
        Step::Remove(key) => {
            let key = at_or_after(model, key / 40).unwrap_or((key, key));
            assert_eq!(tree.remove(key), model.remove(&key));
            assert_eq!(tree.remove(key), None);
        }
        Step::RemoveRun(key, count) => {
            for _ in 0..count {
                let Some(key) = at_or_after(model, key / 40) else { break };
                assert_eq!(tree.remove(key), model.remove(&key));
                tree.validate();
            }
        }
        Step::PopFirst => assert_eq!(tree.pop_first(), model.pop_first()),
        Step::Update(key, len) => {
            let key = at_or_after(model, key / 40).unwrap_or((key, key));
            let set = |item: &mut FileMapping| core::mem::replace(&mut item.end, key.0 + len + 1);
            assert_eq!(tree.update(key, set), model.get_mut(&key).map(set));
        }
        Step::Rekey(old, new) => {
            let old = at_or_after(model, old / 40).unwrap_or((old, old));
            let above = model.range(..old).next_back().is_none_or(|(prev, _)| *prev < (new / 40, new));
            let below = model.range((old.0, old.1 + 1)..).next().is_none_or(|(next, _)| (new / 40, new) < *next);
            if above && below {
                assert_eq!(tree.rekey(old, (new / 40, new), |item| item.end += 1).is_some(), model.contains_key(&old));
                if let Some(item) = model.remove(&old) {
                    model.insert((new / 40, new), FileMapping { end: item.end + 1 });
                }
            }
        }
        Step::Clear => {
            tree.clear();
            model.clear();
            assert_eq!(tree.memory_bytes(), 0);
        }
    }
}

fn owned<K, V: Copy>(entry: Option<(K, &V)>) -> Option<(K, V)> {
    entry.map(|(key, item)| (key, *item))
}

/// Compares every look-up of `key`.
fn assert_same_lookups(tree: &BPlusTree<FileMapping>, model: &BTreeMap<(u64, u64), FileMapping>, key: (u64, u64)) {
    use core::ops::Bound::{Excluded, Unbounded};
    let owned_model = |entry: Option<(&(u64, u64), &FileMapping)>| entry.map(|(key, item)| (*key, *item));
    assert_eq!(tree.get(key), model.get(&key));
    assert_eq!(tree.contains_key(key), model.contains_key(&key));
    assert_eq!(owned(tree.floor(key)), owned_model(model.range(..=key).next_back()));
    assert_eq!(owned(tree.ceiling(key)), owned_model(model.range(key..).next()));
    assert_eq!(owned(tree.prev(key)), owned_model(model.range(..key).next_back()));
    assert_eq!(owned(tree.next(key)), owned_model(model.range((Excluded(key), Unbounded)).next()));
    assert!(tree.iter_from(key).eq(model.range(key..).map(|(key, item)| (*key, item))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// INV-TREE-ORDER, INV-TREE-FILL, INV-TREE-SUMMARY, INV-TREE-LINKS, INV-TREE-RETURN.
    #[test]
    fn every_operation_agrees_with_a_sorted_map(
        steps in prop::collection::vec(step(), 1..400),
        probes in prop::collection::vec((0..60u64, 0..45u64), 20),
    ) {
        let (mut tree, mut model) = (BPlusTree::new(), BTreeMap::new());
        for step in &steps {
            apply(step, &mut tree, &mut model);
            tree.validate();
            assert_eq!((tree.len(), tree.is_empty()), (model.len(), model.is_empty()));
        }
        assert!(tree.iter().eq(model.iter().map(|(key, item)| (*key, item))));
        assert_eq!(owned(tree.first()), model.first_key_value().map(|(key, item)| (*key, *item)));
        assert_eq!(owned(tree.last()), model.last_key_value().map(|(key, item)| (*key, *item)));
        for key in probes.into_iter().chain([(0, 0), <(u64, u64)>::MAX]) {
            assert_same_lookups(&tree, &model, key);
        }
    }

    #[test]
    fn a_search_for_overlaps_finds_exactly_the_items_that_overlap(
        items in prop::collection::vec((0..300u64, 0..4u64, 1..30u64, any::<bool>()), 0..400),
        queries in prop::collection::vec((0..330u64, 0..40u64), 30),
    ) {
        let mut tree = BPlusTree::new();
        for (start, tie, len, long) in items {
            insert(&mut tree, (start, tie), FileMapping { end: start + len * if long { 10 } else { 1 } });
        }
        for (from, len) in queries {
            let to = from + len;
            let expected = tree.iter().filter(|(key, item)| from < to && key.0 < to && item.end > from);
            assert!(tree.overlapping(from, to).eq(expected), "over {from}..{to}");
        }
    }

    /// A copy has the nodes of its original, and a filled tree only full ones.
    ///
    /// INV-TREE-ORDER, INV-TREE-FILL, INV-TREE-SUMMARY, INV-TREE-LINKS, INV-TREE-RESERVE. Both go
    /// on as the original does.
    #[test]
    fn a_copy_and_a_filled_tree_agree_with_their_original(
        steps in prop::collection::vec(step(), 1..400),
        later in prop::collection::vec(step(), 1..60),
        leave_out in 1..9u64,
    ) {
        let (mut tree, mut model) = (BPlusTree::new(), BTreeMap::new());
        for step in &steps {
            apply(step, &mut tree, &mut model);
        }
        let mut copy = BPlusTree::new();
        if !tree.is_empty() {
            let refused = copy.try_reserve_copy(&tree, || false);
            prop_assert_eq!(refused, Err(TreeReserveError { inserts: tree.len() }));
            prop_assert_eq!((copy.memory_bytes(), copy.len()), (0, 0));
        }
        copy.try_reserve_copy(&tree, || true).expect("the host has memory");
        let bytes = copy.memory_bytes();
        copy.copy_from(&tree, |_, item| *item);
        copy.validate();
        prop_assert_eq!((copy.memory_bytes(), copy.len()), (bytes, tree.len()));
        prop_assert_eq!((copy.leaves.used(), copy.inners.used()), (tree.leaves.used(), tree.inners.used()));
        prop_assert!(copy.iter().eq(tree.iter()));

        let kept = |key: &(u64, u64)| (key.0 + key.1) % 9 >= leave_out;
        let mut some: BTreeMap<_, _> = model.iter().filter(|(key, _)| kept(key)).map(|(k, v)| (*k, *v)).collect();
        let mut filled = BPlusTree::new();
        filled.try_reserve_fill(some.len(), || true).expect("the host has memory");
        let (bytes, leaves) = (filled.memory_bytes(), some.len().div_ceil(CAPACITY));
        filled.fill(some.iter().map(|(key, item)| (*key, *item)));
        filled.validate();
        prop_assert_eq!((filled.memory_bytes(), filled.leaves.used()), (bytes, leaves));
        prop_assert!(filled.iter().eq(some.iter().map(|(key, item)| (*key, item))));

        let mut copied = model.clone();
        for step in &later {
            apply(step, &mut copy, &mut copied);
            copy.validate();
            apply(step, &mut filled, &mut some);
            filled.validate();
        }
        tree.validate();
        prop_assert!(tree.iter().eq(model.iter().map(|(key, item)| (*key, item))), "the original is as it was");
    }

    /// INV-TREE-RESERVE: an exact reservation suffices for trees of any size.
    #[test]
    fn a_tree_of_any_size_is_filled_within_its_reservation(items in 0..CAPACITY as u64 * 300) {
        let mut tree = BPlusTree::new();
        tree.try_reserve_fill(items as usize, || true).expect("the host has memory");
        let bytes = tree.memory_bytes();
        tree.fill((0..items).map(|key| (key, Area { end: key + 1, guard: 0 })));
        tree.validate();
        prop_assert_eq!((tree.len() as u64, tree.memory_bytes()), (items, bytes));
    }

    #[test]
    fn a_gap_search_agrees_with_trying_every_page(
        gaps in prop::collection::vec((0..12u64, 1..9u64, prop_oneof![9 => Just(0), 1 => 1..10u64]), 0..300),
        queries in prop::collection::vec((1..14u64, 0..1000u64, 0..1500u64, 0..4u32, 0..8u64, any::<bool>()), 30),
        shuffle in any::<u64>(),
    ) {
        let mut areas = Vec::new();
        let mut page = 0;
        for (gap, len, guard) in gaps {
            areas.push((page + gap, Area { end: page + gap + len, guard }));
            page += gap + len;
        }
        let mut order: Vec<_> = areas.iter().enumerate().collect();
        order.sort_by_key(|(i, _)| (*i as u64 + 1).wrapping_mul(shuffle | 1));
        let mut tree = BPlusTree::new();
        for (_, (start, area)) in order {
            insert(&mut tree, *start, *area);
        }
        tree.validate();
        for (pages, low, high, align, align_offset, top_down) in queries {
            let direction = if top_down { GapDirection::TopDown } else { GapDirection::BottomUp };
            let query = GapQuery { pages, low, high, align: 1 << align, align_offset, direction };
            prop_assert_eq!(tree.find_gap(&query), gap_by_trial(&areas, &query), "{:?}", query);
        }
        for page in (0..page + 3).step_by(3) {
            let covering = areas.iter().find(|(start, area)| (*start..area.end).contains(&page)).copied();
            let ending_after = areas.iter().find(|(_, area)| area.end > page).copied();
            prop_assert_eq!(owned(tree.at(page)), covering);
            prop_assert_eq!(owned(tree.at_or_after(page)), ending_after);
            let from = tree.iter_at_or_after(page).map(|(key, area)| (key, *area));
            prop_assert!(from.eq(areas.iter().filter(|(_, area)| area.end > page).copied()), "from page {} on", page);
        }
    }

    /// INV-TREE-RESERVE: a reservation suffices for any keys, and with any removals in between.
    #[test]
    fn a_reservation_suffices(
        before in prop::collection::vec(0..5000u64, 0..600),
        sparse in any::<bool>(),
        during in prop::collection::vec((0..5000u64, prop_oneof![3 => Just(false), 1 => Just(true)]), 1..300),
        in_order in any::<bool>(),
    ) {
        let mut tree = BPlusTree::new();
        for key in &before {
            insert(&mut tree, *key, Area { end: key + 1, guard: 0 });
        }
        if sparse {
            for key in before.iter().filter(|key| *key % 3 != 0) {
                tree.remove(*key);
            }
        }
        tree.try_reserve(during.len(), || true).expect("the host has memory");
        let bytes = tree.memory_bytes();
        // The vectors may grow by more than was reserved, so this tests the bound itself, too.
        let (demand, leaves, inners) = (tree.demand(during.len()), tree.leaves.used(), tree.inners.used());
        for (i, (key, remove_too)) in during.iter().enumerate() {
            let key = if in_order { 5000 + i as u64 } else { *key };
            tree.insert(key, Area { end: key + 1, guard: 0 });
            prop_assert!(tree.leaves.used() <= leaves + demand.leaves && tree.inners.used() <= inners + demand.inners);
            if *remove_too && let Some((other, _)) = tree.next(key / 2) {
                tree.remove(other);
            }
            tree.validate();
        }
        prop_assert_eq!(tree.memory_bytes(), bytes);
    }
}

/// Returns the highest or lowest start whose pages are free and in no guard, by trying each.
fn gap_by_trial(areas: &[(u64, Area)], query: &GapQuery) -> Option<u64> {
    // As in Linux, a guard ends with the gap that it guards.
    let is_free = |page: u64| {
        let next = areas.iter().find(|(_, area)| area.end > page);
        next.is_none_or(|(start, area)| page < start.saturating_sub(area.guard))
    };
    let fits = |start: &u64| {
        start.wrapping_sub(query.align_offset).is_multiple_of(query.align) && (*start..start + query.pages).all(is_free)
    };
    let mut starts = query.low..(query.high + 1).saturating_sub(query.pages);
    match query.direction {
        GapDirection::TopDown => starts.rfind(fits),
        GapDirection::BottomUp => starts.find(fits),
    }
}

/// INV-TREE-RESERVE: an insert into a tree of full nodes uses its whole reservation.
///
/// That is one node of each level and a new root.
#[test]
fn a_reservation_for_one_insert_covers_a_split_of_every_level() {
    let mut tree = BPlusTree::new();
    for key in 0..(CAPACITY as u64).pow(3) {
        insert(&mut tree, key * 2, Area { end: key * 2 + 1, guard: 0 });
    }
    let (height, leaves, inners) = (tree.height, tree.leaves.used(), tree.inners.used());
    tree.try_reserve(1, || true).expect("the host has memory");
    let demand = tree.demand(1);
    tree.insert(1001, Area { end: 1002, guard: 0 });
    tree.validate();
    assert_eq!(tree.height, height + 1);
    assert_eq!((tree.leaves.used(), tree.inners.used()), (leaves + demand.leaves, inners + demand.inners));
}

#[test]
fn a_refused_permit_changes_nothing_and_is_asked_only_if_memory_is_needed() {
    let mut tree = BPlusTree::new();
    assert_eq!(tree.try_reserve(3, || false), Err(TreeReserveError { inserts: 3 }));
    assert_eq!(tree.memory_bytes(), 0);
    insert(&mut tree, 1, Area { end: 2, guard: 0 });
    let bytes = tree.memory_bytes();
    assert_eq!(tree.try_reserve(3, || panic!("the leaf has room for three")), Ok(()));
    assert_eq!(tree.try_reserve(1000, || false), Err(TreeReserveError { inserts: 1000 }));
    assert_eq!((tree.len(), tree.memory_bytes()), (1, bytes));
}

#[test]
fn a_reservation_larger_than_the_address_space_is_refused() {
    let mut tree: BPlusTree<Area> = BPlusTree::new();
    assert_eq!(tree.try_reserve(usize::MAX, || true), Err(TreeReserveError { inserts: usize::MAX }));
    tree.try_reserve(1, || true).expect("a refusal changes nothing");
    tree.insert(0, Area { end: 1, guard: 0 });
    tree.validate();
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "INV-TREE-RESERVE")]
fn an_insert_without_a_reservation_panics() {
    BPlusTree::new().insert(0, Area { end: 1, guard: 0 });
}

#[test]
#[should_panic(expected = "passes a neighbour")]
fn a_new_key_that_passes_a_neighbour_panics() {
    let mut tree = BPlusTree::new();
    insert(&mut tree, 1, Area { end: 2, guard: 0 });
    insert(&mut tree, 3, Area { end: 4, guard: 0 });
    tree.rekey(1, 3, |_| ());
}

/// INV-TREE-RETURN: removed and replaced items are dropped, and emptied nodes are reused.
#[test]
fn removal_drops_items_and_reuses_nodes() {
    let witness = Rc::new(7);
    let mut tree = BPlusTree::new();
    let fill = |tree: &mut BPlusTree<Cached>| {
        (0..1000).for_each(|key| drop(insert(tree, key * 7 % 1000, Cached(witness.clone()))))
    };
    fill(&mut tree);
    let bytes = tree.memory_bytes();
    for _ in 0..3 {
        fill(&mut tree);
        assert_eq!(Rc::strong_count(&witness), 1001);
        for key in 0..1000 {
            assert_eq!(tree.remove(key * 3 % 1000).as_ref(), Some(&Cached(witness.clone())));
        }
        assert_eq!((tree.len(), Rc::strong_count(&witness)), (0, 1));
        tree.validate();
        fill(&mut tree);
    }
    assert_eq!(tree.memory_bytes(), bytes);
    tree.clear();
    assert_eq!((tree.memory_bytes(), Rc::strong_count(&witness)), (0, 1));
}

/// A fork copies VMAs in order, so its nodes must not stay half empty.
#[test]
fn filling_in_order_leaves_nodes_full() {
    let mut tree = BPlusTree::new();
    for key in 0..CAPACITY as u64 * 100 {
        insert(&mut tree, key, Area { end: key + 1, guard: 0 });
    }
    tree.validate();
    assert_eq!(tree.leaves.used(), 100);
}

#[test]
fn the_greatest_key_can_be_inserted_found_and_removed() {
    let mut tree = BPlusTree::new();
    for key in (0..40).map(|i| u64::MAX - i) {
        insert(&mut tree, key, Cached(Rc::new(key)));
        tree.validate();
    }
    assert_eq!(tree.get(u64::MAX), Some(&Cached(Rc::new(u64::MAX))));
    assert_eq!(tree.last().map(|(key, _)| key), Some(u64::MAX));
    assert_eq!(tree.next(u64::MAX), None);
    assert_eq!(tree.remove(u64::MAX), Some(Cached(Rc::new(u64::MAX))));
    assert_eq!(tree.floor(u64::MAX).map(|(key, _)| key), Some(u64::MAX - 1));
    tree.validate();
}
