//! A page that stays mapped while an entry for its whole folio is split.
//!
//! INV-FRAME-MAP: the splitter counts the page before it drops the whole mapping
//! (`Folio::split_entire`), and a reader loads the count of whole mappings first
//! (`Folio::entries_of_page`). So no reader finds the page unmapped.

use crate::counts::{FrameCounts, MappedPages};
use loom::sync::Arc;
use loom::thread;
use pagewright_sync::atomic::AtomicU64;

struct Counts {
    mapped: AtomicU64,
    page: FrameCounts,
}

impl Counts {
    fn mapped(&self) -> MappedPages<'_> {
        MappedPages(&self.mapped)
    }
}

/// The word of a folio that one entry maps whole.
const WHOLE: u64 = 1 << 32;

/// Splits the whole mapping in `split`, beside a reader that loads the counts in `read`.
fn explore(split: [fn(&Counts); 2], read: [fn(&Counts) -> u32; 2]) {
    loom::model(move || {
        let counts = Arc::new(Counts { mapped: AtomicU64::new(WHOLE), page: FrameCounts::zero() });
        let other = Arc::clone(&counts);
        let splitter = thread::spawn(move || split.iter().for_each(|step| step(&other)));
        let [first, second] = read.map(|load| load(&counts));
        assert!(first + second > 0, "a mapped page seems unmapped");
        splitter.join().expect("the splitter");
    });
}

const COUNT_PAGE: fn(&Counts) = |counts| _ = counts.page.add_mapping();
const DROP_ENTIRE: fn(&Counts) = |counts| _ = counts.mapped().split_entire(1);
const ENTIRE: fn(&Counts) -> u32 = |counts| counts.mapped().both().1;
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

/// INV-FRAME-MAP: what calls report as newly mapped and unmapped adds up.
///
/// One entry comes for the whole folio while a page gets an entry of its own and loses it. Two
/// counts in one word are of one moment, so exactly one of the entries finds the page unmapped.
#[test]
fn changes_by_entries_for_a_page_and_for_the_whole_add_up() {
    const PAGES: u32 = 4;
    loom::model(|| {
        let mapped = Arc::new(AtomicU64::new(0));
        let other = Arc::clone(&mapped);
        let whole = thread::spawn(move || {
            let (own, entire) = MappedPages(&other).add_entire();
            assert_eq!(entire, 0, "the only entry for the whole");
            PAGES - own
        });
        let of_page = |entire: u32| u32::from(entire == 0);
        let newly = of_page(MappedPages(&mapped).add_pages(1).1);
        let gone = of_page(MappedPages(&mapped).sub_pages(1).1);
        assert_eq!(whole.join().expect("the other entry") + newly - gone, PAGES, "pages that seem mapped");
    });
}
