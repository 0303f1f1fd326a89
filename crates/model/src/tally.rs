//! How often each rule had something to judge.
//!
//! A rule whose antecedent never held has judged nothing, and its silence is no evidence
//! (`docs/oracle.md`). [`Tally::vacuous`] names those antecedents; the author of a test decides
//! which of them its run must exercise.

use core::ops::AddAssign;

pagewright_types::named_table! {
    /// An event that gives a rule something to judge.
    pub enum Antecedent {
        Accessed = "O1 O2 accesses", "A program accessed memory by a translation.";
        FrameReused = "O1 frame reused", "A frame that a program had accessed was allocated again.";
        FrameDebt = "O1 free frame read", "A program read a frame that was free and still owed a flush.";
        FrameSwept = "O1 reach checked", "The machine could not rule out that a reused frame was reachable, so everything cached was searched.";
        ReusedAtOnce = "O1 reused without waiting", "A frame that a program had accessed was allocated by a CPU that must not wait.";
        PageReleased = "O1 page freed", "A frame that a program had accessed was freed, with no flush owed.";
        TableReleased = "O1 table freed", "A frame that a walk had read as a page table was freed, with no flush owed.";
        Parked = "O1 parked frame", "The contents of a frame were compared with those that it had when it was freed and still reachable.";
        Condemned = "O1 O2 condemned", "A stale entry could not be used at once, and was watched from then on.";
        RightHeld = "O2 right held", "A right was reduced while another CPU held a translation that granted more.";
        RightHeldLocally = "O2 right held locally", "A right was reduced while the CPU that reduces it held a translation that granted more.";
        HugeHeld = "O2 huge page held", "A right was reduced while another CPU held a translation by a leaf above the last level that granted more.";
        HugeHidden = "O2 huge page hidden", "A leaf above the last level that another CPU held was replaced by an entry that is neither present nor empty.";
        RightReduced = "O2 right reduced", "A call that had reduced a right returned.";
        RightRegranted = "O2 right regranted", "A translation granted more than a call had left, and the page tables granted it again.";
        PathReduced = "O2 path reduced", "A call weakened or moved a pointer to a table that another CPU had in a walk cache.";
        SharedPathReduced = "O2 shared path reduced", "The same, and several spaces reached the table before or after.";
        RightDeferred = "O2 right deferred", "The loss of a right was deferred while a TLB held a translation of the page.";
        DeferralEnded = "O2 deferral ended", "An event required that every TLB has lost a page whose flush was deferred.";
        DeferralStored = "O2 ended by store", "The same, and the event was a store of a program to the page or a copy.";
        DeferralWritten = "O2 ended by kernel write", "The same, and the kernel wrote to the page or a copy.";
        DeferralReplaced = "O2 ended by truncation", "The same, and the page was truncated, or another took its place.";
        DeferralMapped = "O2 ended by mapping", "The same, and another page was mapped at the address.";
        DeferralReturned = "O2 ended by return", "The same, and a call that takes rights there returned.";
        DeferralTaken = "O2 ended by allocation", "The same, and the frame was allocated.";
        LargeTaken = "O2 ended by large block", "The same, and the frame was one of several that were allocated together.";
        StaleHit = "O2 stale hit", "A program read a page that had moved by a translation whose loss was deferred.";
        MovedAgain = "O2 moved again", "A page was mapped at its second copy while a TLB held where it was before the first.";
        CopyTaken = "O2 copy allocated", "The frame of a copy was allocated while a TLB held where the page was before.";
        KeyTableFreed = "O2 key's table freed", "A page table was freed while a TLB held a page whose flush was deferred in it.";
        KeyTableMoved = "O2 key's table moved", "The same, and the table moved to other addresses.";
        KeyTableShared = "O2 key's table shared", "The same, and several spaces reach the table from then on.";
        SharedMoved = "O2 moved, shared", "A page was mapped at its copy in a table that several spaces reach.";
        EntryReplaced = "O2 entry replaced", "A valid entry was stored where a walk had found another translation (arm64).";
        ReplacedReadOnly = "O2 replaced read-only", "Break-before-make was not needed: both entries read-only, equal contents (arm64).";
        ReplacedSize = "O2 resized in place", "Break-before-make was not needed: the same frames in another size (arm64 FEAT_BBM level 2).";
        Loaded = "O3 loads", "A load was compared with the reference memory.";
        Stored = "O3 stores", "A store was compared with the reference memory.";
        Faulted = "O3 faults", "A fault or its signal was compared with the reference memory.";
        Returned = "O3 calls", "The result of a call was compared with the reference memory.";
        Overlapped = "O3 overlapped", "An access was judged while a call on its page was in flight.";
        FolioRefs = "O4 references", "References of a folio were counted (D1).";
        FolioMaps = "O4 mapcounts", "Mappings of a folio were counted (D2).";
        Tails = "O4 tails", "A tail page of a folio was inspected (D3).";
        AnonWritable = "O4 writable", "Mappings of a writable anonymous page were counted (D6).";
        Exclusive = "O4 exclusive", "Mappings of an exclusive anonymous page were counted (D7).";
        Pinned = "O4 pinned", "References of a pinned folio were counted (D1, D7).";
        LargeBothWays = "O4 large both ways", "A large folio was counted that an entry maps whole and another by page (D1, D2, D19).";
        LargeShared = "O4 large shared", "A large folio was counted of which several spaces map a page (D1, D2, D18).";
        LargeUnequal = "O4 large unequal", "A large folio was counted of which some mapped pages have more entries of their own than others (D2).";
        LargeApart = "O4 large apart", "A large folio was counted whose entries are not beside each other as its pages are (D2).";
        LargePinned = "O4 large pinned", "References of a large folio were counted of which a page is pinned (D1, D3).";
        LargePagePinned = "O4 large page pinned", "Mappings were counted of a page of a large folio that its holder has pinned (D7).";
        Slots = "O4 swap slots", "Entries that name a swap slot were counted (D17, D7).";
        TableShares = "O4 sharers", "Entries that point to a page table were counted (D9).";
        SharedTables = "O4 shared tables", "The same for a table that several entries point to (D1, D2, D9, D16, D18).";
        SharedStore = "O4 shared store", "An entry of a shared table was stored (D9).";
        SharedHash = "O4 shared hash", "The entries of a shared table were compared with what stores had made of them (D9).";
        InPlaceEdit = "O4 in-place edit", "An entry that walks of several spaces had used was edited in place.";
        TableMadeInPlace = "O4 table in place", "An empty table came in place of an empty entry of a shared table.";
        InstalledBesideBreak = "O4 install beside break", "An entry was installed in place in a table that a call in flight had left.";
        LeaveBesideWalk = "O4 leave beside walk", "A pointer to a shared table went while a walk in flight was about to read the table.";
        BreakBesideLockless = "O4 break beside lockless", "The same while a lockless walk of the kernel had read the pointer's table, or the shared one.";
        BreakBesideForeign = "O4 break beside foreign", "A break, beside such a walk on a CPU that does not run the space that it walks.";
        LeaveBesideForeign = "O4 leave beside foreign", "A space left the table, beside such a walk.";
        TablePages = "O4 tables", "Page tables of a space were counted (D12).";
        PartlyMapped = "O4 partly mapped", "A large folio was looked up on the queues whose pages are mapped in part (D19).";
        Deposits = "O4 deposits", "The deposited tables of a table with huge leaves were counted (D12, D13).";
        Resident = "O4 resident sets", "A resident set was counted (D16).";
        Listed = "O4 lists", "A folio was looked up on the LRU lists (D22).";
        Proportional = "O4 proportional sets", "The proportional set size of a space was computed (D18).";
        UnequalSharers = "O4 unequal sharers", "Different numbers of spaces reached the entries of a page (D18).";
        UnequalSwapSharers = "O4 unequal swap sharers", "Different numbers of spaces reached the swap entries that name a slot (D18).";
    }
}

/// A count for each [`Antecedent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally([u64; Antecedent::COUNT]);

impl Default for Tally {
    fn default() -> Self {
        Self([0; Antecedent::COUNT])
    }
}

impl Tally {
    pub(crate) fn note(&mut self, what: Antecedent) {
        self.0[what as usize] += 1;
    }

    /// How often the antecedent held.
    pub fn of(&self, what: Antecedent) -> u64 {
        self.0[what as usize]
    }

    /// All counts.
    pub fn iter(&self) -> impl Iterator<Item = (Antecedent, u64)> {
        Antecedent::ALL.iter().map(|&what| (what, self.of(what)))
    }

    /// The antecedents that never held.
    pub fn vacuous(&self) -> impl Iterator<Item = Antecedent> {
        self.iter().filter(|&(_, count)| count == 0).map(|(what, _)| what)
    }
}

impl FromIterator<(Antecedent, u64)> for Tally {
    fn from_iter<T: IntoIterator<Item = (Antecedent, u64)>>(counts: T) -> Self {
        let mut tally = Self::default();
        counts.into_iter().for_each(|(what, count)| tally.0[what as usize] += count);
        tally
    }
}

impl AddAssign<&Self> for Tally {
    fn add_assign(&mut self, other: &Self) {
        for (mine, more) in self.0.iter_mut().zip(other.0) {
            *mine += more;
        }
    }
}
