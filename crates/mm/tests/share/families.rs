//! Families of processes that share page tables, under random calls.
//!
//! A seed chooses forks, ends, stores, loads, calls, and the pages that devices take. The memory is
//! at places of which some have all tables in common, some only the upper ones, and some only the
//! root: so breaks and take-backs happen at each level. After each call this holds:
//!
//! - Each process loads what it stored, or had at its fork.
//! - A device sees no store of a process other than the one that took its page (CVE-2020-29374). It
//!   sees each store of the process that pinned the page (INV-GUP-EXCLUSIVE).
//! - A page is exclusive to a space only if that space stored to it or pinned it, and to one space
//!   at most (INV-SHARE-ORIGIN). [`paths`] has the other rules of pointers (INV-SHARE-PIN).
//! - `MADV_COLD` and `MADV_PAGEOUT` leave a page alone that another space maps, and `MADV_FREE`
//!   leaves the other entry alone (INV-ADVICE-ALONE).
//! - `swapoff` ends, and leaves no page of any process in swap (INV-SWAP-COUNT).
//!
//! Not covered: races (`races.rs`, `gup/races.rs`).

use pagewright_arch::{Entry, Isa, LeafFlags, SoftKind, on_both};
use pagewright_lab::harness::race::{assert_short_race_holds, race};
use pagewright_lab::harness::recount::Pins;
use pagewright_lab::harness::{ANON, CPU, GupCall, MemorySwap, TestDevice, TestProcess, TestWorld, at, paths};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{Advice, MapFlags, MmSetting};
use pagewright_sim::explore::{Chooser, CoroutineBody, RandomChooser, Rates};
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{Counter, NodeId, Pfn, Rights, VirtAddr};
use std::collections::BTreeSet;
use std::rc::Rc;

on_both! {
    a_family_keeps_its_pages_apart_under_random_calls:
        assert_short_race_holds(FAMILIES, random_family::<I>, "a family broke a rule"),
    the_last_sharer_has_the_rights_that_it_had_before,
}

const FAMILIES: u64 = 60;
const CALLS: u32 = 120;
const BASE: VirtAddr = VirtAddr::new(1 << 30);
/// The first page of each mapping; from one to the next, one more level of tables differs.
const PLACES: [u64; 4] = [0, 512, 1 << 18, 1 << 27];
/// Pages of each mapping.
const PAGES: u64 = 2;
const MOST_MEMBERS: usize = 5;
const MOST_DEVICES: usize = 4;
const NODE: NodeId = NodeId::new(0);

/// What a process must find at a page.
#[derive(Clone, Copy)]
struct ExpectedPage {
    value: u64,
    /// Whether reclaim may have discarded the page (`MADV_FREE`).
    or_zero: bool,
    /// Whether the page may be exclusive to the process.
    stored: bool,
}

struct Member<I: Isa> {
    id: u64,
    process: TestProcess<I>,
    pages: Vec<ExpectedPage>,
}

/// A page that a member has taken for a device.
struct TakenPage<I: Isa> {
    device: TestDevice<I>,
    taker: u64,
    page: usize,
    /// The value when it was taken, and those that the taker stored since.
    allowed: BTreeSet<u64>,
    pinned: bool,
    /// Whether the taker still maps the pinned page, so that both see the same bytes.
    agrees: bool,
}

/// An entry of another space for a page that advice is about.
#[derive(Debug, PartialEq, Eq)]
struct OtherEntry {
    member: u64,
    page: usize,
    pfn: Pfn,
    entry: LeafFlags,
    folio: FolioFlags,
}

struct Family<I: Isa> {
    world: Rc<TestWorld<I>>,
    device: MemorySwap,
    members: Vec<Member<I>>,
    taken: Vec<TakenPage<I>>,
    chooser: RandomChooser,
    seed: u64,
    /// The last value stored, and the last process made.
    values: u64,
    ids: u64,
}

fn address(page: usize) -> VirtAddr {
    at(BASE, PLACES[page / PAGES as usize] + page as u64 % PAGES)
}

fn number_of_pages() -> usize {
    PLACES.len() * PAGES as usize
}

impl<I: Isa> Family<I> {
    fn new(seed: u64) -> Self {
        let (world, process) = TestProcess::<I>::judged(1);
        for place in PLACES {
            process.map_at(at(BASE, place), PAGES, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
        }
        let device = world.swap_to(64);
        let empty = ExpectedPage { value: 0, or_zero: false, stored: false };
        let members = vec![Member { id: 0, process, pages: vec![empty; number_of_pages()] }];
        let chooser = RandomChooser::new(seed, Rates::default());
        Self { world, device, members, taken: Vec::new(), chooser, seed, values: 0, ids: 0 }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.chooser.pick(CPU, limit as u32) as usize
    }

    fn any_member(&mut self) -> usize {
        let members = self.members.len();
        self.below(members)
    }

    fn any_page(&mut self) -> usize {
        self.below(number_of_pages())
    }

    fn call(&mut self) {
        match self.below(20) {
            0..3 => self.fork(),
            3 => self.end(),
            4..9 => self.store(),
            9..11 => self.load(),
            11..14 => self.take(),
            14 => self.release(),
            15 => self.advise_alone(Advice::Cold),
            16 => self.advise_alone(Advice::PageOut),
            17 => self.give_up(),
            18 => _ = self.world.on(CPU, |mm| mm.reclaim(NODE, 8)),
            _ => self.swap_off(),
        }
    }

    fn fork(&mut self) {
        let parent = self.any_member();
        if self.members.len() == MOST_MEMBERS {
            return;
        }
        let shares = if self.below(4) == 0 { "never" } else { "always" };
        self.world.set(MmSetting::CowPageTables, shares);
        self.ids += 1;
        let parent = &self.members[parent];
        let mut pages = parent.pages.clone();
        for (page, expected) in pages.iter_mut().enumerate() {
            // The child of a process with a pinned page gets a copy of its own.
            expected.stored =
                self.taken.iter().any(|taken| taken.agrees && (taken.taker, taken.page) == (parent.id, page));
        }
        self.members.push(Member { id: self.ids, process: parent.process.fork(), pages });
    }

    fn end(&mut self) {
        if self.members.len() == 1 {
            return;
        }
        let ended = self.any_member();
        let ended = self.members.remove(ended);
        ended.process.end();
        self.taken.iter_mut().filter(|taken| taken.taker == ended.id).for_each(|taken| taken.agrees = false);
    }

    fn store(&mut self) {
        let (member, page) = (self.any_member(), self.any_page());
        self.values += 1;
        let (value, member) = (self.values, &mut self.members[member]);
        member.process.write(CPU, address(page), value);
        member.pages[page] = ExpectedPage { value, or_zero: false, stored: true };
        for taken in self.taken.iter_mut().filter(|taken| (taken.taker, taken.page) == (member.id, page)) {
            taken.allowed.insert(value);
            assert!(!taken.agrees || taken.device.read(0) == value, "INV-GUP-EXCLUSIVE: page {page}");
        }
    }

    fn load(&mut self) {
        let (member, page) = (self.any_member(), self.any_page());
        self.members[member].check_page(page);
    }

    /// A device takes a page.
    fn take(&mut self) {
        let (member, page) = (self.any_member(), self.any_page());
        if self.taken.len() == MOST_DEVICES {
            return;
        }
        let flags = if self.below(2) == 0 { GupFlags::empty() } else { GupFlags::WRITE };
        let (call, pinned) = match self.below(5) {
            0 => (GupCall::Get(flags), false),
            1 => (GupCall::GetFast(flags), false),
            2 => (GupCall::Pin(flags), true),
            _ => (GupCall::PinFast(flags), true),
        };
        let member = &mut self.members[member];
        let device = member.process.take(CPU, address(page), 1, call).expect("a page");
        let (entry, _) = self.world.on(CPU, |mm| paths::last_entry(mm, &member.process.space, address(page)));
        // The zero page is taken as it is.
        let is_zero_page = matches!(entry, Entry::Leaf(leaf) if leaf.flags.contains(LeafFlags::SPECIAL));
        let (id, agrees, expected) = (member.id, pinned && !is_zero_page, &mut member.pages[page]);
        expected.stored |= agrees || flags.contains(GupFlags::WRITE);
        let now = device.read(0);
        assert!(now == expected.value || expected.or_zero && now == 0, "page {page} is taken with {now}");
        self.taken.push(TakenPage { device, taker: id, page, allowed: BTreeSet::from([now]), pinned: agrees, agrees });
    }

    fn release(&mut self) {
        if !self.taken.is_empty() {
            let taken = self.below(self.taken.len());
            self.taken.swap_remove(taken).device.release(MakeDirty::No);
        }
    }

    /// The entries that members other than `member` have for the pages that it maps at a place.
    fn other_entries(&self, member: usize, place: usize, folio: FolioFlags) -> Vec<OtherEntry> {
        let leaf =
            |mm: &_, member: &Member<I>, page| match paths::last_entry(mm, &member.process.space, address(page)).0 {
                Entry::Leaf(leaf) if !leaf.flags.contains(LeafFlags::SPECIAL) => Some(leaf),
                Entry::Leaf(_) | Entry::Table(_) | Entry::Soft(_) | Entry::Empty => None,
            };
        let pages = place * PAGES as usize..(place + 1) * PAGES as usize;
        let mut found = Vec::new();
        self.world.on(CPU, |mm| {
            for (page, other) in pages.flat_map(|page| (0..self.members.len()).map(move |other| (page, other))) {
                let (Some(own), Some(theirs)) =
                    (leaf(mm, &self.members[member], page), leaf(mm, &self.members[other], page))
                else {
                    continue;
                };
                if other != member && own.pfn == theirs.pfn {
                    let entry = theirs.flags & (LeafFlags::ACCESSED | LeafFlags::DIRTY);
                    let folio = mm.tlb().frames().folio(own.pfn).flags() & folio;
                    found.push(OtherEntry { member: self.members[other].id, page, pfn: own.pfn, entry, folio });
                }
            }
        });
        found
    }

    /// INV-ADVICE-ALONE.
    fn advise(&mut self, advice: Advice, folio: FolioFlags) -> (usize, usize) {
        let (member, place) = (self.any_member(), self.below(PLACES.len()));
        let before = self.other_entries(member, place, folio);
        self.members[member].process.advise(at(BASE, PLACES[place]), PAGES, advice);
        for entry in &before {
            let other = self.members.iter().find(|other| other.id == entry.member).expect("a member");
            self.world.on(CPU, |mm| match paths::last_entry(mm, &other.process.space, address(entry.page)).0 {
                Entry::Leaf(leaf) => {
                    let now = OtherEntry {
                        pfn: leaf.pfn,
                        entry: leaf.flags & (LeafFlags::ACCESSED | LeafFlags::DIRTY),
                        folio: mm.tlb().frames().folio(leaf.pfn).flags() & folio,
                        ..*entry
                    };
                    assert_eq!(now, *entry, "INV-ADVICE-ALONE: {advice:?}");
                }
                gone => panic!("INV-ADVICE-ALONE: {advice:?} of {entry:?} leaves {gone:?}"),
            });
        }
        (member, place)
    }

    /// Advice that does not concern pages which others map.
    fn advise_alone(&mut self, advice: Advice) {
        self.advise(advice, FolioFlags::ACTIVE | FolioFlags::REFERENCED);
    }

    /// Advice that gives up the contents for one process.
    fn give_up(&mut self) {
        let discards = self.below(2) == 0;
        let advice = if discards { Advice::DontNeed } else { Advice::Free };
        let (member, place) = self.advise(advice, FolioFlags::empty());
        let member = &mut self.members[member];
        for page in place * PAGES as usize..(place + 1) * PAGES as usize {
            let expected = &mut member.pages[page];
            if discards {
                *expected = ExpectedPage { value: 0, or_zero: false, stored: false };
                let lost = |taken: &&mut TakenPage<I>| (taken.taker, taken.page) == (member.id, page);
                self.taken.iter_mut().filter(lost).for_each(|taken| taken.agrees = false);
            } else {
                expected.or_zero = true;
            }
        }
    }

    /// Moves everything from one swap device to memory, and begins with another.
    fn swap_off(&mut self) {
        let world = Rc::clone(&self.world);
        // A race ends with an error if a program runs for ever.
        let program: CoroutineBody = Box::new(move || world.on(CPU, |mm| mm.swap_off(0)).expect("memory"));
        race(&self.world, self.seed, vec![program]);
        assert_eq!(self.device.used(), 0, "INV-SWAP-COUNT: a slot is left");
        for member in &self.members {
            assert_eq!(self.world.on(CPU, |mm| mm.rss(&member.process.space)).swapped(), 0, "swapped after swapoff");
        }
        self.device = self.world.swap_to(64);
    }

    fn check(&self) {
        let pins: Pins = self.taken.iter().filter(|taken| taken.pinned).map(|taken| (taken.device.pfn(0), 1)).collect();
        let spaces: Vec<_> = self.members.iter().map(|member| member.process.space.clone()).collect();
        self.world.on(CPU, |mm| paths::check(mm, &spaces, &pins));
        for taken in &self.taken {
            let (seen, page) = (taken.device.read(0), taken.page);
            assert!(taken.allowed.contains(&seen), "the page {page} that {} took has {seen}", taken.taker);
        }
        for member in &self.members {
            for (page, expected) in member.pages.iter().enumerate() {
                let (entry, way) = self.world.on(CPU, |mm| paths::last_entry(mm, &member.process.space, address(page)));
                let is_exclusive = match entry {
                    Entry::Leaf(leaf) => leaf.flags.contains(LeafFlags::EXCLUSIVE),
                    Entry::Soft(soft) => soft.kind == SoftKind::Swap && soft.exclusive,
                    Entry::Table(_) | Entry::Empty => false,
                };
                let allowed = expected.stored || !way.claims || !is_exclusive;
                assert!(allowed, "INV-SHARE-ORIGIN: page {page} is exclusive to {}, which never stored it", member.id);
            }
        }
    }

    /// Gives up everything; all counts must agree then.
    fn end_all(mut self) {
        self.taken.drain(..).for_each(|taken| taken.device.release(MakeDirty::No));
        self.members.iter_mut().for_each(Member::check_pages);
        let all: Vec<_> = self.members.iter().map(|member| &member.process).collect();
        self.world.recount(&all);
        TestProcess::end_all_at_rest(&all);
        assert_eq!(self.device.used(), 0, "a slot is left");
    }
}

impl<I: Isa> Member<I> {
    fn check_pages(&mut self) {
        (0..number_of_pages()).for_each(|page| self.check_page(page));
    }

    fn check_page(&mut self, page: usize) {
        let expected = &mut self.pages[page];
        let value = self.process.read(CPU, address(page));
        if expected.or_zero && value == 0 {
            *expected = ExpectedPage { value: 0, or_zero: false, ..*expected };
        }
        assert_eq!(value, expected.value, "page {page} of process {}", self.id);
    }
}

/// One family; panics if a rule is broken.
fn random_family<I: Isa>(seed: u64) -> bool {
    let mut family = Family::<I>::new(seed);
    for _ in 0..CALLS {
        family.call();
        family.check();
    }
    family.end_all();
    true
}

/// Whether the process may store to each page without a copy.
fn rights<I: Isa>(process: &TestProcess<I>) -> Vec<bool> {
    let has_right = |page| {
        let (entry, way) = process.world.on(CPU, |mm| paths::last_entry(mm, &process.space, address(page)));
        way.claims && matches!(entry, Entry::Leaf(leaf) if leaf.flags.contains(LeafFlags::EXCLUSIVE))
    };
    (0..number_of_pages()).map(has_right).collect()
}

/// INV-SHARE-ORIGIN, exactly: what the origin has lost, and what the child has.
///
/// The child stores to one page and so copies the tables on the way to it, or it stores nothing.
/// Then one of the two ends. The other one has its rights at once, and the same when it has taken
/// all tables back.
fn the_last_sharer_has_the_rights_that_it_had_before<I: Isa>() {
    let stores = [None, Some(0), Some(1), Some(2), Some(3)];
    for (place, origin_stays) in stores.into_iter().flat_map(|place| [(place, true), (place, false)]) {
        let Family { world, members, .. } = Family::<I>::new(0);
        world.set(MmSetting::CowPageTables, "always");
        let parent = &members[0].process;
        (0..number_of_pages()).for_each(|page| parent.write(CPU, address(page), 1 + page as u64));
        let child = parent.fork();
        let first_of = |place| place * PAGES as usize;
        if let Some(place) = place {
            child.write(CPU, address(first_of(place)), 100);
        }
        let (stays, ends) = if origin_stays { (parent, &child) } else { (&child, parent) };
        ends.end();
        let is_copied = |page: usize| place == Some(page / PAGES as usize);
        let has_right = |page| if origin_stays { !is_copied(page) } else { place.map(first_of) == Some(page) };
        let mut expected: Vec<bool> = (0..number_of_pages()).map(has_right).collect();
        let case = format!("the child stored at {place:?}, the origin stays: {origin_stays}");
        assert_eq!(rights(stays), expected, "{case}");
        let copies = world.count(Counter::PwCowCopy);
        for page in (0..PLACES.len()).map(|place| first_of(place) + 1) {
            stays.write(CPU, address(page), 200);
            expected[page] = true;
        }
        assert_eq!(rights(stays), expected, "{case}, after stores");
        assert_eq!(world.count(Counter::PwCowCopy), copies, "{case}: no other space has a page");
        world.recount(&[stays]);
        TestProcess::end_all_at_rest(&[stays]);
    }
}

#[cfg(feature = "planted")]
fn still_the_same_rights<I: Isa>(_seed: u64) -> bool {
    the_last_sharer_has_the_rights_that_it_had_before::<I>();
    true
}

planted_bugs_are_found! {
    10 * FAMILIES;
    OriginCopied => random_family,
    OriginGivenToChild => random_family,
    StripKeepsOrigin => random_family,
    OriginLost => still_the_same_rights,
    TakenBackByAnyone => random_family,
    PinMarkLost => random_family,
    FastPinUnmarked => random_family,
    SwapOffOwnOnly => random_family,
    ColdIgnoresSharers => random_family,
    PageOutIgnoresSharers => random_family,
}
