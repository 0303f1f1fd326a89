//! A page that stays mapped while an entry for its whole folio is split.
//!
//! INV-FRAME-MAP: the splitter counts the page before it drops the whole mapping
//! (`Folio::split_entire`), and a reader loads the count of whole mappings first
//! (`Folio::entries_of_page`). So no reader finds the page unmapped.

use crate::counts::FrameCounts;
use loom::sync::Arc;
use loom::thread;
use pagewright_sync::atomic::{AtomicU32, Ordering};

struct Counts {
    entire: AtomicU32,
    page: FrameCounts,
}

/// Splits the whole mapping in `split`, beside a reader that loads the counts in `read`.
fn explore(split: [fn(&Counts); 2], read: [fn(&Counts) -> u32; 2]) {
    loom::model(move || {
        let counts = Arc::new(Counts { entire: AtomicU32::new(1), page: FrameCounts::zero() });
        let other = Arc::clone(&counts);
        let splitter = thread::spawn(move || split.iter().for_each(|step| step(&other)));
        let [first, second] = read.map(|load| load(&counts));
        assert!(first + second > 0, "a mapped page seems unmapped");
        splitter.join().expect("the splitter");
    });
}

const COUNT_PAGE: fn(&Counts) = |counts| _ = counts.page.add_mapping();
const DROP_ENTIRE: fn(&Counts) = |counts| _ = counts.entire.fetch_sub(1, Ordering::AcqRel);
const ENTIRE: fn(&Counts) -> u32 = |counts| counts.entire.load(Ordering::Acquire);
const PAGE: fn(&Counts) -> u32 = |counts| counts.page.mappings();

#[test]
fn a_page_is_mapped_while_a_whole_mapping_is_split() {
    explore([COUNT_PAGE, DROP_ENTIRE], [ENTIRE, PAGE]);
}

/// Checks the test: loom must catch a splitter that drops the whole mapping first.
#[test]
#[should_panic(expected = "a mapped page seems unmapped")]
fn a_whole_mapping_that_is_dropped_first_is_caught() {
    explore([DROP_ENTIRE, COUNT_PAGE], [ENTIRE, PAGE]);
}

/// The same of a reader that loads the count of the page first.
#[test]
#[should_panic(expected = "a mapped page seems unmapped")]
fn a_page_that_is_read_first_is_caught() {
    explore([COUNT_PAGE, DROP_ENTIRE], [PAGE, ENTIRE]);
}
