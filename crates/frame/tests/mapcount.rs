//! Mapcounts against a model that keeps the entries.

use crate::support::{self, Host, one_node, take};
use pagewright_frame::{Folio, FrameAllocator, MapcountChange, PageCounts};
use pagewright_sync::FullBarrier;
use proptest::prelude::*;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[derive(Clone, Copy, Debug)]
enum Step {
    MapPage(u32),
    /// A run that begins at a page, of so many pages at most.
    GetAndMapPages(u32, u32),
    UnmapPages(u32, u32),
    MapEntire,
    GetAndMapEntire,
    UnmapEntire,
    SplitEntire,
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => any::<u32>().prop_map(Step::MapPage),
        4 => (any::<u32>(), 1..8u32).prop_map(|(first, pages)| Step::GetAndMapPages(first, pages)),
        8 => (any::<u32>(), 1..8u32).prop_map(|(first, pages)| Step::UnmapPages(first, pages)),
        1 => Just(Step::MapEntire),
        1 => Just(Step::GetAndMapEntire),
        1 => Just(Step::UnmapEntire),
        1 => Just(Step::SplitEntire),
    ]
}

/// The number of entries that map each page by itself, and of those that map the whole folio.
struct Model {
    pages: Vec<u32>,
    entire: u32,
}

impl Model {
    fn entries(&self) -> u32 {
        self.entire + self.pages.iter().sum::<u32>()
    }

    fn mapped_pages(&self) -> u32 {
        let own = self.pages.iter().filter(|count| **count > 0).count() as u32;
        if self.entire > 0 { self.pages.len() as u32 } else { own }
    }

    /// INV-FRAME-MAP.
    fn check(&self, folio: Folio<'_>) {
        assert_eq!(folio.mapcount(), self.entries());
        assert_eq!(folio.entire_mapcount(), self.entire);
        let own = self.pages.iter().filter(|count| **count > 0).count() as u32;
        if folio.is_large() {
            assert_eq!(folio.nr_pages_mapped(), own);
        }
        for (index, count) in self.pages.iter().enumerate() {
            assert_eq!(folio.page_mapcount(index as u32), *count);
            assert_eq!(folio.entries_of_page(index as u32), *count + self.entire);
        }
        assert_eq!(folio.is_partially_mapped(), self.entire == 0 && own > 0 && own < self.pages.len() as u32);
        assert!(folio.refs() >= folio.mapcount());
    }
}

/// The pages of a run, and how their counts may change when each has `entries` by itself.
fn run_of(model: &Model, first: u32, most: u32, entries: impl Fn(u32) -> bool) -> (Range<u32>, PageCounts) {
    let pages = model.pages.len() as u32;
    let first = first % pages;
    let run = (first..pages.min(first + most)).take_while(|page| entries(model.pages[*page as usize])).count() as u32;
    // No other CPU is there: both ways are right for pages of one entry or none.
    let counts = if first.is_multiple_of(2) { PageCounts::Shared } else { PageCounts::Sole };
    (first..first + run, counts)
}

/// Takes a step if the entries permit it, and compares what it says has changed.
fn take_step(
    frames: &FrameAllocator<Host>,
    folio: Folio<'_>,
    model: &mut Model,
    step: Step,
) -> Result<(), TestCaseError> {
    let (mapped, refs, mapcount) = (model.mapped_pages(), folio.refs(), model.entries());
    let was_partly_mapped = folio.is_partially_mapped();
    let change = match step {
        Step::MapPage(index) => {
            let index = index % folio.pages();
            folio.get_raw(1);
            model.pages[index as usize] += 1;
            folio.map_page(index)
        }
        Step::GetAndMapPages(first, most) => {
            let (run, counts) = run_of(model, first, most, |_| true);
            run.clone().for_each(|page| model.pages[page as usize] += 1);
            folio.get_and_map_pages(run, counts)
        }
        Step::UnmapPages(first, most) if model.pages[(first % folio.pages()) as usize] > 0 => {
            let (run, counts) = run_of(model, first, most, |entries| entries > 0);
            run.clone().for_each(|page| model.pages[page as usize] -= 1);
            let change = folio.unmap_pages(run.clone(), counts);
            prop_assert!(frames.put_refs(support::take_back_all(frames, folio.pfn(), run.len() as u32)).is_none());
            change
        }
        Step::MapEntire if folio.is_large() => {
            folio.get_raw(1);
            model.entire += 1;
            folio.map_entire()
        }
        Step::GetAndMapEntire if folio.is_large() => {
            model.entire += 1;
            folio.get_and_map_entire()
        }
        Step::UnmapEntire if model.entire > 0 => {
            model.entire -= 1;
            let change = folio.unmap_entire();
            prop_assert!(frames.put(support::take_back(frames, folio.pfn())).is_none());
            change
        }
        Step::SplitEntire if model.entire > 0 => {
            model.entire -= 1;
            model.pages.iter_mut().for_each(|count| *count += 1);
            let change = folio.split_entire(PageCounts::Shared);
            prop_assert_eq!(change.mapcount, model.entries());
            change
        }
        Step::UnmapPages(..) | Step::MapEntire | Step::GetAndMapEntire | Step::UnmapEntire | Step::SplitEntire => {
            return Ok(());
        }
    };
    prop_assert_eq!(folio.refs() - model.entries(), refs - mapcount, "a reference for each entry");
    prop_assert_eq!(change.mapcount, model.entries());
    prop_assert_eq!(change.pages, mapped.abs_diff(model.mapped_pages()));
    if model.entries() < mapcount && (change.leaves_partly_mapped() || !was_partly_mapped) {
        prop_assert_eq!(change.leaves_partly_mapped(), folio.is_partially_mapped());
    }
    Ok(())
}

proptest! {
    #[test]
    fn mapcounts_equal_the_number_of_entries(raw in 0u8..=4, steps in prop::collection::vec(a_step(), 1..200)) {
        let frames = one_node(&Host::new(1), 0, 64);
        let own = frames.new_folio(take(&frames, raw));
        let folio = frames.folio_of(&own);
        let mut model = Model { pages: vec![0; folio.pages() as usize], entire: 0 };
        for step in steps {
            take_step(&frames, folio, &mut model, step)?;
            model.check(folio);
        }
        // The remaining entries keep the folio alive. Without them it can be freed.
        for index in 0..folio.pages() {
            for _ in 0..model.pages[index as usize] {
                folio.unmap_page(index);
                prop_assert!(frames.put(support::take_back(&frames, folio.pfn())).is_none());
            }
        }
        for _ in 0..model.entire {
            folio.unmap_entire();
            prop_assert!(frames.put(support::take_back(&frames, folio.pfn())).is_none());
        }
        let block = frames.put(own).expect("the last reference");
        frames.free(block);
    }
}

/// INV-FRAME-MAP: no entry maps or stops mapping a folio without references.
#[test]
#[cfg(debug_assertions)]
fn a_folio_without_references_is_neither_mapped_nor_unmapped() {
    type Change = fn(Folio<'_>) -> MapcountChange;
    let changes: [Change; 6] = [
        |folio| folio.map_page(0),
        |folio| folio.unmap_page(0),
        |folio| folio.map_entire(),
        |folio| folio.unmap_entire(),
        |folio| folio.get_and_map_page(0),
        // The same, of a small folio.
        |folio| folio.get_and_map_page(0),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let frames = one_node(&Host::new(1), 0, 64);
        let own = frames.new_folio(take(&frames, if number == 5 { 0 } else { 2 }));
        let frozen = frames.folio_of(&own).freeze(1).expect("one reference");
        let folio = frozen.folio();
        let done = catch_unwind(AssertUnwindSafe(|| change(folio)));
        let text = done.expect_err("it has no reference").downcast_ref::<String>().cloned().expect("a text");
        assert!(text.starts_with("INV-FRAME-MAP"), "change {number}: {text}");
        frozen.thaw(1);
        let _ = own.into_raw();
    }
}

/// References above which a small folio seems to be pinned, as in Linux.
const GUP_PIN_COUNTING_BIAS: u32 = 1024;

#[test]
fn a_small_folio_with_few_references_is_mapped_at_once() {
    let frames = one_node(&Host::new(1), 0, 2048);
    let own = frames.new_folio(take(&frames, 0));
    let folio = frames.folio_of(&own);
    let kind = folio.rss_kind();
    for first in [true, false] {
        let refs = folio.refs();
        assert!(folio.has_few_refs());
        assert_eq!(frames.get_and_map_small(folio.pfn(), FullBarrier::execute()), Some((kind, first)));
        assert_eq!(folio.refs(), refs + 1);
    }
    assert_eq!((folio.mapcount(), folio.nr_pages_mapped()), (2, 0), "a small folio has no pages beside itself");
    // Many references look like a pin.
    folio.get_raw(GUP_PIN_COUNTING_BIAS - folio.refs());
    let refs = folio.refs();
    assert!(!folio.has_few_refs());
    assert_eq!(frames.get_and_map_small(folio.pfn(), FullBarrier::execute()), None);
    assert_eq!((folio.refs(), folio.mapcount()), (refs, 2));
    let large = frames.new_folio(take(&frames, 1));
    let folio = frames.folio_of(&large);
    assert!(!folio.has_few_refs());
    assert_eq!(frames.get_and_map_small(folio.pfn(), FullBarrier::execute()), None);
    assert_eq!((folio.refs(), folio.mapcount()), (1, 0));
    for own in [own, large] {
        own.into_raw();
    }
}
