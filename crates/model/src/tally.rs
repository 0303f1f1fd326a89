//! How often each rule had something to judge.
//!
//! A rule whose antecedent never held has judged nothing, and its silence means nothing
//! (`docs/oracle.md`). [`Tally::vacuous`] names such rules; whoever runs a test decides which of
//! them the run should have exercised.

use core::ops::AddAssign;
use pagewright_types::named_table;

named_table! {
    /// Something that must have happened for a rule to have judged.
    pub enum Antecedent {
        FrameReused = "O1 frame reused", "A frame that a program had reached was handed out again.";
        FrameDebt = "O1 frame owed", "A program read a frame that was free: its translation was still to be flushed.";
        FrameSwept = "O1 reach checked", "A machine said that a reused frame could still be reached, and everything cached was looked at.";
        Condemned = "O1 O2 condemned", "Something stale was cached where it could not be used at once, and was watched from then on.";
        RightHeld = "O2 right held", "A right was reduced while another CPU held a translation that allowed more.";
        RightReduced = "O2 right reduced", "A call that had reduced a right returned.";
        RightRegranted = "O2 right regranted", "A translation allowed more than a call had left, and the tables allowed it again.";
        Loaded = "O3 loads", "A load was compared with the reference memory.";
        Stored = "O3 stores", "A store was compared with the reference memory.";
        Refused = "O3 faults", "A signal was compared with the reference memory.";
        Answered = "O3 calls", "A call's answer was compared with the reference memory.";
        Overlapped = "O3 overlapped", "An access was judged while a call on its page was under way.";
        FolioRefs = "O4 references", "References of a folio were counted again (D1).";
        FolioMaps = "O4 mapcounts", "Mappings of a folio were counted again (D2).";
        Tails = "O4 tails", "A page inside a folio was looked at (D3).";
        AnonWritable = "O4 writable", "A writable anonymous page was looked at (D6).";
        Exclusive = "O4 exclusive", "An exclusive anonymous page was looked at (D7).";
        Pinned = "O4 pinned", "References of a folio that somebody has pinned were counted again (D1, D7).";
        Slots = "O4 swap slots", "Entries that name a slot of a swap device were counted again (D17, D7).";
        TableShares = "O4 sharers", "Entries that point to a table were counted again (D9).";
        TablePages = "O4 tables", "Page tables were counted again (D12).";
        Resident = "O4 resident sets", "A resident set was counted again (D16).";
        Listed = "O4 lists", "A folio's place on the lists by use was looked for (D22).";
        Proportional = "O4 proportional sets", "Proportional sets were added up (D18).";
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

    /// How often it held.
    pub fn of(&self, what: Antecedent) -> u64 {
        self.0[what as usize]
    }

    /// All counts.
    pub fn iter(&self) -> impl Iterator<Item = (Antecedent, u64)> {
        Antecedent::ALL.iter().map(|&what| (what, self.of(what)))
    }

    /// What never held.
    pub fn vacuous(&self) -> impl Iterator<Item = Antecedent> {
        self.iter().filter(|&(_, count)| count == 0).map(|(what, _)| what)
    }
}

impl AddAssign<&Self> for Tally {
    fn add_assign(&mut self, other: &Self) {
        for (mine, more) in self.0.iter_mut().zip(other.0) {
            *mine += more;
        }
    }
}
