//! What the files of `/proc` and `mincore` say about large folios.

use super::{ALL, BASE, Mapped, PAGES, end, frame, holds};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::race::{assert_holds, race};
use pagewright_lab::harness::{ANON, CPU, OTHER, TestProcess, TestWorld, at};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::space::ClearRefs;
use pagewright_mm::view::{KpageFlags, PagemapEntry, PagemapFlags};
use pagewright_mm::{MapFlags, MmSetting};
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, PAGE_SIZE, PageRange, Pfn, Rights};
use std::cell::RefCell;
use std::rc::Rc;

on_both! {
    a_share_is_counted_by_page,
    smaps_and_status_say_how_a_folio_is_mapped,
    pagemap_has_a_word_for_each_page,
    the_huge_page_of_zeroes_has_words_and_no_share,
    frames_are_counted_by_page_and_named_by_folio,
    frames_without_a_page_are_named,
    mincore_reports_each_page,
    accessed_bits_are_cleared_by_leaf,
    the_counters_of_huge_pages_are_shown,
    /// INV-SPLIT-HIDDEN.
    a_leaf_that_is_being_split_is_in_memory: assert_holds(SCHEDULES, mincore_beside_split::<I>, "a page was absent"),
    /// INV-SPLIT-ALL.
    pages_keep_their_words_while_a_folio_is_split: assert_holds(SCHEDULES, pagemap_beside_split::<I>, "another page"),
}

const SCHEDULES: u64 = 60;

/// The words of `pagemap` for the first pages.
pub(in crate::thp) fn words<I: Isa>(process: &TestProcess<I>, pages: u64) -> Vec<PagemapEntry> {
    let mut words = vec![PagemapEntry::default(); pages as usize];
    let mut tell = |va: pagewright_types::VirtAddr, word| words[(va.since(BASE) / PAGE_SIZE) as usize] = word;
    let range = PageRange::new(BASE, at(BASE, pages));
    process.world.on(CPU, |mm| mm.pagemap(&process.space, range, &mut tell));
    words
}

/// A child has all pages but four, which are the parent's alone.
fn a_share_is_counted_by_page<I: Isa>() {
    for mapped in ALL {
        let (world, process) = mapped.process::<I>();
        let child = process.fork();
        child.unmap(at(BASE, 4), 4);
        let stats = [&process, &child].map(|one| world.on(CPU, |mm| mm.mem_size_stats(&one.space)));
        let (pages, shared) = (mapped.pages(), mapped.pages() - 4);
        let expected = [(pages, 2 * pages - shared), (shared, shared)];
        let seen = stats.map(|stats| (stats.rss / PAGE_SIZE, stats.pss.bytes() * 2 / PAGE_SIZE));
        assert_eq!(seen, expected, "{mapped:?}");
        let private = stats.map(|stats| (stats.private_clean + stats.private_dirty) / PAGE_SIZE);
        assert_eq!(private, [4, 0], "{mapped:?}");
        let whole = if mapped == Mapped::Whole { pages * PAGE_SIZE } else { 0 };
        assert_eq!(stats.map(|stats| stats.anonymous_thp), [whole, 0], "{mapped:?}");
        end(&world, &[&process, &child]);
    }
}

fn smaps_and_status_say_how_a_folio_is_mapped<I: Isa>() {
    for mapped in ALL {
        let (world, process) = mapped.process::<I>();
        let kb = mapped.pages() * PAGE_SIZE / 1024;
        let whole = if mapped == Mapped::Whole { kb } else { 0 };
        let fields = ["Rss:", "Pss:", "Anonymous:", "AnonHugePages:"].map(|name| process.smaps_field(name));
        assert_eq!(fields, [kb, kb, kb, whole], "{mapped:?}");
        let (mut status, mut meminfo) = (String::new(), String::new());
        world.on(CPU, |mm| mm.show_status(&process.space, &mut status)).expect("a string takes all");
        world.on(CPU, |mm| mm.show_meminfo(&mut meminfo)).expect("a string takes all");
        for line in [format!("RssAnon:\t{kb:8} kB\n"), "THP_enabled:\t1\n".into()] {
            assert!(status.contains(&line), "{mapped:?}: {line} in {status}");
        }
        for (name, kb) in [("AnonPages:", kb), ("AnonHugePages:", whole)] {
            assert!(meminfo.contains(&format!("{name:<16}{kb:>8} kB\n")), "{mapped:?}: {name} in {meminfo}");
        }
        end(&world, &[&process]);
    }
}

fn pagemap_has_a_word_for_each_page<I: Isa>() {
    use PagemapFlags as Flags;
    for mapped in ALL {
        let (world, process) = mapped.process::<I>();
        let first = frame(&process, 0);
        let check = |expected: Flags| {
            for (page, word) in (0..).zip(words(&process, mapped.pages())) {
                assert_eq!((word.pfn(), word.flags()), (Some(first.add(page)), expected), "{mapped:?}, {page}");
            }
        };
        check(Flags::PRESENT | Flags::EXCLUSIVE | Flags::SOFT_DIRTY);
        let child = process.fork();
        check(Flags::PRESENT | Flags::SOFT_DIRTY);
        world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::SoftDirty)).expect("memory");
        check(Flags::PRESENT);
        child.unmap(BASE, PAGES);
        check(Flags::PRESENT | Flags::EXCLUSIVE);
        end(&world, &[&process, &child]);
    }
}

/// A process that has loaded from an empty range of 2 MiB.
fn zeroes<I: Isa>() -> (Rc<TestWorld<I>>, TestProcess<I>) {
    let world = TestWorld::sized(2, 16 << 20);
    let process = TestProcess::new(&world);
    process.map_at(BASE, PAGES, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
    world.set(MmSetting::ThpEnabled, "always");
    assert_eq!(process.read(CPU, at(BASE, 9)), 0);
    (world, process)
}

fn the_huge_page_of_zeroes_has_words_and_no_share<I: Isa>() {
    let (world, process) = zeroes::<I>();
    let first = frame(&process, 0);
    for (page, word) in (0..).zip(words(&process, PAGES)) {
        assert_eq!(word.pfn(), Some(first.add(page)));
        assert!(!word.flags().contains(PagemapFlags::EXCLUSIVE), "page {page}");
    }
    let zero = KpageFlags::ZERO_PAGE | KpageFlags::THP;
    assert!(world.on(CPU, |mm| mm.kpageflags(first.add(7))).contains(zero | KpageFlags::COMPOUND_TAIL));
    assert_eq!(world.on(CPU, |mm| mm.kpagecount(first.add(7))), 0);
    assert_eq!(["Rss:", "AnonHugePages:"].map(|name| process.smaps_field(name)), [0, 0]);
    assert_eq!(process.mincore(BASE, PAGES), Ok(vec![1; PAGES as usize]));
    world.recount(&[&process]);
    TestProcess::end_all_at_rest(&[&process]);
}

fn frames_are_counted_by_page_and_named_by_folio<I: Isa>() {
    for mapped in ALL {
        let (world, process) = mapped.process::<I>();
        let first = frame(&process, 0);
        let seen = |page: u32| world.on(CPU, |mm| (mm.kpagecount(first.add(page)), mm.kpageflags(first.add(page))));
        world.on(CPU, |mm| mm.mlock(&process.space, BASE, mapped.pages() * PAGE_SIZE)).expect("mapped");
        assert!(seen(7).1.contains(KpageFlags::MLOCKED | KpageFlags::UNEVICTABLE), "{mapped:?}");
        world.on(CPU, |mm| mm.munlock(&process.space, BASE, mapped.pages() * PAGE_SIZE)).expect("mapped");
        let child = process.fork();
        child.unmap(at(BASE, 4), 4);
        for page in 0..mapped.pages() as u32 {
            let (count, flags) = seen(page);
            assert_eq!(count, if (4..8).contains(&page) { 1 } else { 2 }, "{mapped:?}, {page}");
            let place = if page == 0 { KpageFlags::COMPOUND_HEAD } else { KpageFlags::COMPOUND_TAIL };
            let both = KpageFlags::COMPOUND_HEAD | KpageFlags::COMPOUND_TAIL;
            assert_eq!(flags & both, place, "{mapped:?}, {page}");
            let of_all = KpageFlags::THP | KpageFlags::MMAP | KpageFlags::ANON | KpageFlags::SWAPBACKED;
            assert!(flags.contains(of_all | KpageFlags::UPTODATE | KpageFlags::LRU), "{mapped:?}, {page}: {flags:?}");
        }
        world.on(CPU, |mm| mm.split_huge_pages(&process.space, PageRange::new(BASE, at(BASE, PAGES))));
        let (count, flags) = seen(7);
        let large = KpageFlags::COMPOUND_HEAD | KpageFlags::COMPOUND_TAIL | KpageFlags::THP;
        assert!(count == 1 && !flags.intersects(large), "{mapped:?}: {flags:?}");
        end(&world, &[&process, &child]);
    }
}

fn frames_without_a_page_are_named<I: Isa>() {
    let (world, process) = Mapped::Pieces16.process::<I>();
    let root = world.on(CPU, |_| process.space.table().root());
    assert_eq!(world.on(CPU, |mm| (mm.kpagecount(root), mm.kpageflags(root))), (0, KpageFlags::PGTABLE));
    let none = Pfn::new(1 << 30);
    assert_eq!(world.on(CPU, |mm| (mm.kpagecount(none), mm.kpageflags(none))), (0, KpageFlags::NOPAGE));
    end(&world, &[&process]);
}

fn mincore_reports_each_page<I: Isa>() {
    for mapped in ALL {
        let (world, process) = mapped.process::<I>();
        let mut expected = vec![0; PAGES as usize];
        expected[..mapped.pages() as usize].fill(1);
        assert_eq!(process.mincore(BASE, PAGES), Ok(expected.clone()), "{mapped:?}");
        process.advise(at(BASE, 4), 4, pagewright_mm::Advice::DontNeed);
        expected[4..8].fill(0);
        assert_eq!(process.mincore(BASE, PAGES), Ok(expected), "{mapped:?}");
        end(&world, &[&process]);
    }
}

/// `Referenced` of a leaf is that of all its pages.
fn accessed_bits_are_cleared_by_leaf<I: Isa>() {
    for mapped in ALL {
        let (world, process) = mapped.process::<I>();
        world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::All)).expect("memory");
        assert_eq!(process.smaps_field("Referenced:"), 0, "{mapped:?}");
        // A translation in a TLB would be used without setting the bit.
        process.protect(BASE, mapped.pages(), Rights::READ);
        process.touch(OTHER, at(BASE, 7), Access::Read).expect("mapped");
        let leaf = if mapped == Mapped::Whole { PAGES } else { 1 };
        assert_eq!(process.smaps_field("Referenced:"), leaf * PAGE_SIZE / 1024, "{mapped:?}");
        end(&world, &[&process]);
    }
}

fn the_counters_of_huge_pages_are_shown<I: Isa>() {
    let (world, process) = Mapped::Pieces.process::<I>();
    world.on(CPU, |mm| mm.split_huge_pages(&process.space, PageRange::new(BASE, at(BASE, PAGES))));
    let mut text = String::new();
    world.on(CPU, |mm| mm.show_vmstat(&mut text)).expect("a string takes all");
    for (name, count) in [
        ("nr_anon_transparent_hugepages", 0),
        ("thp_fault_alloc", 1),
        ("thp_fault_fallback", 0),
        ("thp_split_pmd", 1),
        ("thp_split_page", 1),
        ("thp_split_page_failed", 0),
        ("thp_zero_page_alloc", 0),
        ("thp_zero_page_alloc_failed", 0),
    ] {
        assert!(text.lines().any(|line| line == format!("{name} {count}")), "{name} in {text}");
    }
    end(&world, &[&process]);
}

/// A CPU looks at the process while another one splits the leaf or the folio.
fn beside_split<I: Isa>(seed: u64, split_folio: bool, look: impl Fn(&TestProcess<I>) -> bool + 'static) -> bool {
    let (world, process) = Mapped::Whole.process::<I>();
    world.lab.run(CPU, &process.space);
    world.lab.run(OTHER, &process.space);
    let seen = Rc::new(RefCell::new(true));
    let [splits, looks] = [(); 2].map(|()| TestProcess { world: Rc::clone(&world), space: process.space.clone() });
    let all = Rc::clone(&seen);
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            if split_folio {
                let range = PageRange::new(BASE, at(BASE, PAGES));
                splits.world.on(CPU, |mm| mm.split_huge_pages(&splits.space, range));
            } else {
                let space = &splits.space;
                let call = |mm: &pagewright_mm::Mm<_>| mm.madvise(space, at(BASE, 100), PAGE_SIZE, DISCARD);
                splits.world.on(CPU, call).expect("mapped");
            }
        }),
        Box::new(move || (0..3).for_each(|_| *all.borrow_mut() &= look(&looks))),
    ];
    race(&world, seed, programs);
    let sound = *seen.borrow();
    assert!(holds(&process, 0..0));
    end(&world, &[&process]);
    sound
}

/// Advice that holds the space for reading, as `mincore` does.
const DISCARD: pagewright_mm::Advice = pagewright_mm::Advice::DontNeed;

fn mincore_beside_split<I: Isa>(seed: u64) -> bool {
    beside_split::<I>(seed, false, |process| {
        let mut vec = [9; 4];
        process.world.on(OTHER, |mm| mm.mincore(&process.space, BASE, 4 * PAGE_SIZE, &mut vec)).expect("mapped");
        vec == [1; 4]
    })
}

/// Either the leaf or its migration entry says which page it is.
fn pagemap_beside_split<I: Isa>(seed: u64) -> bool {
    let first = RefCell::new(None);
    beside_split::<I>(seed, true, move |process| {
        let mut sound = true;
        let range = PageRange::new(at(BASE, 6), at(BASE, 9));
        process.world.on(OTHER, |mm| {
            mm.pagemap(&process.space, range, |va, word| {
                let page = (va.since(BASE) / PAGE_SIZE) as u32;
                let head = word.pfn().map(|pfn| pfn.raw() - page);
                let known = *first.borrow_mut().get_or_insert(head);
                sound &= head.is_some() && head == known;
            });
        });
        sound
    })
}

planted_bugs_are_found! {
    20 * SCHEDULES;
    SplitLeavesGap => mincore_beside_split,
    MovedLeafTakenForPage => pagemap_beside_split,
}
