//! O2 on arm64: break before make, judged when the entry is stored.
//!
//! Arm ARM D8.16.1, "Using break-before-make when updating translation table entries", requires
//! that the old entry is made invalid and that a TLBI for it completes, before an entry with
//! another output address, another block size, or other memory attributes is stored. Otherwise a
//! TLB may hold both; an access may then use either, an amalgamation of them, or take a TLB
//! Conflict abort (D8.16.3).
//!
//! So at the store of a valid entry, each address is judged that a walk has translated by that
//! word, or by an entry above it. No CPU may hold, under the tag of the walk:
//!
//! - a translation to another frame or of another size than the tables now give;
//! - a walk-cache entry or a walk for another table, or for a table in place of which a block is.
//!
//! Two replacements are exempt, and counted. The first: old and new are leaves of one level,
//! neither is writable, a leaf that is writable and clean counts as writable, and the frames have
//! equal contents. Nothing may store to either frame until every TLB has lost the old one, which is
//! a window as of a deferred right ([`super::deferred`]).
//!
//! The second needs FEAT_BBM level 2 ([`Oracle::with_bbm_level_2`]): a block and the table that
//! replaces it, or the reverse, translate each page to the same frame (Arm ARM D8.16.2). The old
//! table must not be freed before the TLBI completes, which O1 judges.
//!
//! x86-64 has no such rule for one page size: a TLB replaces what it holds. Its change of page size
//! (Intel SDM vol. 3A §4.10.2.3) is not judged.

use super::Oracle;
use super::deferred::same_contents;
use super::windows::Window;
use crate::tally::Antecedent;
use crate::violation::{CpuStep, Rule, ViolationKind};
use crate::walk::{self, DecodedEntry, PathRights, WalkedLeaf};
use alloc::vec::Vec;
use pagewright_types::judge::{CachedEntry, CachedEntryKind, WalkedPlace, Witness};
use pagewright_types::{CpuId, IsaKind, Level, PageRange, Pfn, PhysAddr, Rights, VirtAddr};

/// How a cached entry disagrees with the tables.
enum Conflict {
    /// At this page, it leads to the first frame and the tables to the second.
    At(VirtAddr, Pfn, Pfn),
    /// The same, and the manual exempts it.
    Exempt(VirtAddr, Pfn, Pfn),
    /// It leads to the same frame by an entry of another size, which the CPU permits.
    Resized,
}

impl Oracle {
    pub(super) fn entry_replaced(&mut self, witness: &dyn Witness, cpu: CpuId, at: PhysAddr, new: u64) {
        if self.isa != IsaKind::Aarch64 {
            return;
        }
        let mut places: Vec<WalkedPlace> = Vec::new();
        witness.walked_at(at, &mut |place| places.push(place));
        for place in places {
            let leads_elsewhere = match walk::decode(self.isa, place.level, new, PathRights::ROOT) {
                DecodedEntry::Leaf { pfn, .. } => !place.is_leaf || pfn != place.pfn,
                DecodedEntry::Table { pfn, .. } => place.is_leaf || pfn != place.pfn,
                DecodedEntry::NotPresent | DecodedEntry::Malformed => return,
            };
            if leads_elsewhere {
                self.tally.note(Antecedent::EntryReplaced);
                self.judge_replaced(witness, cpu, place);
            }
        }
    }

    fn judge_replaced(&mut self, witness: &dyn Witness, cpu: CpuId, place: WalkedPlace) {
        let range = PageRange::new(place.va, place.va.add(place.level.span()));
        let mut held = Vec::new();
        witness.cached_in(range, &mut |cached| {
            if self.is_of_space(cached.root, place.root, place.va) && (cached.tag == place.tag || cached.global) {
                held.push(cached);
            }
        });
        let conflicts = held.into_iter().filter_map(|cached| Some((cached, self.conflict(witness, range, &cached)?)));
        let conflicts: Vec<(CachedEntry, Conflict)> = conflicts.collect();
        let by = CpuStep { cpu, step: self.step };
        for (held, conflict) in conflicts {
            match conflict {
                Conflict::At(page, from, to) => {
                    self.step += 1;
                    self.report(cpu, Rule::Rights, ViolationKind::BreakMissing { held, page, from, to });
                    return;
                }
                Conflict::Exempt(page, from, to) => {
                    self.tally.note(Antecedent::ReplacedReadOnly);
                    let range = PageRange::new(page, page.add(held.level.span()));
                    let window = Window { root: place.root, range, frame: from, copy: Some(to), page: None, by };
                    self.right_deferred(witness, window);
                }
                Conflict::Resized => self.tally.note(Antecedent::ReplacedSize),
            }
        }
    }

    fn conflict(&self, witness: &dyn Witness, range: PageRange, cached: &CachedEntry) -> Option<Conflict> {
        let (table, level) = match cached.kind {
            CachedEntryKind::Translation { pfn, rights } => {
                let below = (cached.root, self.top, self.format().root_rights(cached.va));
                let pages = cached.range().intersect(range)?;
                let mut resized = None;
                let worse =
                    walk::leaves_below(self.isa, below, pages, &|at| witness.stored(at), &mut |leaf| match self
                        .translation_conflict(witness, pages, (cached, pfn, rights), &leaf)?
                    {
                        Conflict::Resized => {
                            resized = Some(Conflict::Resized);
                            None
                        }
                        conflict @ (Conflict::At(..) | Conflict::Exempt(..)) => Some(conflict),
                    });
                return worse.or(resized);
            }
            CachedEntryKind::Table { table, .. } => (table, cached.level.down()?),
            CachedEntryKind::Walk { table, .. } => (table, cached.level),
        };
        let read = |at| witness.stored(at);
        match walk::path(self.format(), cached.root, cached.va, level, &read) {
            Some((now, _)) => (now != table).then_some(Conflict::At(cached.va, table, now)),
            None => self.path_conflict(witness, cached, table, level),
        }
    }

    /// How the translation to `pfn` with `rights` that a CPU holds disagrees with `leaf`.
    fn translation_conflict(
        &self,
        witness: &dyn Witness,
        pages: PageRange,
        (cached, pfn, rights): (&CachedEntry, Pfn, Rights),
        leaf: &WalkedLeaf,
    ) -> Option<Conflict> {
        let page = leaf.range().intersect(pages)?.start();
        let (from, to) = (walk::frame_under(pfn, cached.level, page), leaf.frame_at(page));
        if (from, cached.level, cached.global) == (to, leaf.level, leaf.global) {
            return None;
        }
        if cached.level != leaf.level && from == to && cached.global == leaf.global && self.resizes {
            return Some(Conflict::Resized);
        }
        // What the leaf itself allows: a write-protected path does not make it read-only.
        let own = match walk::decode(self.isa, leaf.level, leaf.raw, self.format().root_rights(leaf.va)) {
            DecodedEntry::Leaf { rights, .. } => rights,
            DecodedEntry::NotPresent | DecodedEntry::Table { .. } | DecodedEntry::Malformed => return None,
        };
        let exempt = cached.level == leaf.level
            && cached.level.is_last()
            && cached.global == leaf.global
            && !(rights | own).contains(Rights::WRITE)
            && same_contents(witness, cached.level.span(), from, to);
        Some(if exempt { Conflict::Exempt(page, from, to) } else { Conflict::At(page, from, to) })
    }

    /// How `table`, to which a CPU holds the path, disagrees with a block in its place.
    fn path_conflict(&self, witness: &dyn Witness, cached: &CachedEntry, table: Pfn, level: Level) -> Option<Conflict> {
        let read = |at| witness.stored(at);
        let block = walk::lookup(self.format(), cached.root, cached.va, &read)?;
        let span = cached.range().intersect(block.range())?;
        let differs = walk::leaves_below(self.isa, (table, level, PathRights::ROOT), span, &read, &mut |leaf| {
            (leaf.pfn != block.frame_at(leaf.va) || leaf.global != block.global).then_some(())
        });
        match differs {
            None if self.resizes => Some(Conflict::Resized),
            Some(()) | None => Some(Conflict::At(cached.va, table, block.frame_at(cached.va))),
        }
    }
}
