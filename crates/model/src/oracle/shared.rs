//! O4: the entries of a shared table change for all its sharers or not at all (D9).
//!
//! [`Fact::TableShared`](pagewright_types::judge::Fact::TableShared) says which tables are shared.
//! While one is, each store to its entries must be one of these:
//!
//! - made in place for all sharers
//!   ([`Fact::EditInPlace`](pagewright_types::judge::Fact::EditInPlace));
//! - a loss of the right to store, of exclusivity or of the accessed bit, of the same frame, as a
//!   break leaves both copies.
//!
//! A hash of the entries, without their accessed bits, finds what no store of the kernel explains:
//! a dirty bit, which a walker sets only where a program could store, or a write by a pointer. The
//! hash follows the allowed stores, and is compared at rest and when the table is no longer shared.

use super::Oracle;
use crate::FxHashMap;
use crate::census::SoftwareBits;
use crate::count::{CountKind, CountMismatch};
use crate::tally::Antecedent;
use crate::violation::{CpuStep, Rule, ViolationKind};
use crate::walk;
use alloc::vec::Vec;
use pagewright_types::judge::{CachedEntryKind, WalkedPlace, Witness};
use pagewright_types::{CpuId, FrameRange, IsaKind, PAGE_SIZE, Pfn, PhysAddr};

/// A shared table.
#[derive(Clone, Copy, Debug)]
struct SharedTable {
    since: CpuStep,
    /// The sum of the hashes of its entries, as they should be.
    hash: u64,
}

/// The shared tables, and the CPUs that edit one in place.
#[derive(Default)]
pub(super) struct SharedTables {
    tables: FxHashMap<Pfn, SharedTable>,
    in_place: Vec<(CpuId, Pfn)>,
    /// Shared tables that a space has left since the last return of a call of this CPU.
    left: Vec<(CpuId, Pfn)>,
}

impl SharedTables {
    pub(super) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    pub(super) fn edit_in_place(&mut self, cpu: CpuId, table: Pfn, begins: bool) {
        self.in_place.retain(|editing| *editing != (cpu, table));
        if begins {
            self.in_place.push((cpu, table));
        }
    }

    pub(super) fn returned(&mut self, cpu: CpuId) {
        self.left.retain(|(by, _)| *by != cpu);
    }

    /// The frames are no tables any more.
    pub(super) fn forget(&mut self, frames: FrameRange) {
        if !self.tables.is_empty() {
            self.tables.retain(|table, _| !frames.contains(*table));
        }
    }
}

/// The bits that a break and a walker change freely in an entry that stays (D9, D10, D11).
struct FreeBits {
    /// Set by walkers and cleared by ageing.
    accessed: u64,
    /// May be cleared.
    cleared: u64,
    /// May be set.
    set: u64,
}

impl FreeBits {
    /// Intel SDM vol. 3A table 4-20; Arm ARM D8.3.1 and D8.4.
    fn of(isa: IsaKind, bits: SoftwareBits, old: u64) -> Self {
        let swap = bits.swap.filter(|format| format.entry(old).is_some());
        if let Some(format) = swap {
            return Self { accessed: 0, cleared: format.exclusive, set: 0 };
        }
        let exclusive = bits.exclusive;
        match isa {
            // A; R/W.
            IsaKind::X86_64 => Self { accessed: 1 << 5, cleared: 1 << 1 | exclusive, set: 0 },
            // AF; DBM; AP[2] or APTable[1], and what software keeps of the dirty state.
            IsaKind::Aarch64 => {
                Self { accessed: 1 << 10, cleared: 1 << 51 | exclusive, set: 1 << 7 | 1 << 62 | bits.kept_dirty }
            }
        }
    }

    /// Whether `new` differs from `old` in nothing else.
    fn explain(&self, old: u64, new: u64) -> bool {
        let (gone, came) = (old & !new, new & !old);
        gone & !(self.cleared | self.accessed) == 0 && came & !(self.set | self.accessed) == 0
    }
}

/// The hash of the entry at `at` (the finaliser of splitmix64).
fn hash(isa: IsaKind, at: PhysAddr, raw: u64) -> u64 {
    let accessed = match isa {
        IsaKind::X86_64 => 1 << 5,
        IsaKind::Aarch64 => 1 << 10,
    };
    // A soft entry uses that bit for its payload.
    let raw = if raw & 1 != 0 { raw & !accessed } else { raw };
    let mut mixed = (raw ^ at.page_offset() << 52).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

impl Oracle {
    fn hash_of_table(&self, witness: &dyn Witness, table: Pfn) -> u64 {
        let at = (0..PAGE_SIZE).step_by(8).map(|offset| table.base().add(offset));
        at.fold(0, |sum: u64, at| sum.wrapping_add(hash(self.isa, at, witness.stored(at))))
    }

    pub(super) fn table_shared(&mut self, witness: &dyn Witness, table: Pfn, shared: bool, since: CpuStep) {
        if shared {
            let hash = self.hash_of_table(witness, table);
            self.shared.tables.entry(table).or_insert(SharedTable { since, hash });
        } else if let Some(ends) = self.shared.tables.remove(&table) {
            self.judge_hash(witness, since.cpu, table, ends);
        }
    }

    fn judge_hash(&mut self, witness: &dyn Witness, cpu: CpuId, table: Pfn, expected: SharedTable) {
        self.tally.note(Antecedent::SharedHash);
        let counted = self.hash_of_table(witness, table);
        if counted != expected.hash {
            let mismatch = CountMismatch { of: CountKind::SharedHash(table), claimed: expected.hash, counted };
            self.report(cpu, Rule::Counts, ViolationKind::Count(mismatch));
        }
    }

    /// Compares the hashes of all shared tables.
    pub(super) fn judge_hashes(&mut self, witness: &dyn Witness, cpu: CpuId) {
        let mut tables: Vec<(Pfn, SharedTable)> =
            self.shared.tables.iter().map(|(pfn, table)| (*pfn, *table)).collect();
        tables.sort_unstable_by_key(|(pfn, _)| *pfn);
        tables.into_iter().for_each(|(pfn, table)| self.judge_hash(witness, cpu, pfn, table));
    }

    /// Judges a store to an entry while tables are shared.
    #[cold]
    pub(super) fn stored_beside_sharers(&mut self, witness: &dyn Witness, cpu: CpuId, at: PhysAddr, words: (u64, u64)) {
        let (old, new) = words;
        self.note_pointer(witness, cpu, old, new);
        let table = Pfn::containing(at);
        let Some(shared) = self.shared.tables.get_mut(&table) else { return };
        shared.hash = shared.hash.wrapping_sub(hash(self.isa, at, old)).wrapping_add(hash(self.isa, at, new));
        let since = shared.since;
        self.tally.note(Antecedent::SharedStore);
        if old & 1 == 0 && new & 1 != 0 && self.shared.left.iter().any(|(_, left)| *left == table) {
            self.tally.note(Antecedent::InstalledBesideBreak);
        }
        let mut roots: Vec<Pfn> = Vec::new();
        witness.walked_at(at, &mut |WalkedPlace { root, .. }| {
            if !roots.contains(&root) {
                roots.push(root);
            }
        });
        if self.shared.in_place.contains(&(cpu, table)) {
            if roots.len() > 1 {
                self.tally.note(Antecedent::InPlaceEdit);
            }
            return;
        }
        if !FreeBits::of(self.isa, self.bits, old).explain(old, new) {
            self.step += 1;
            self.report(cpu, Rule::Counts, ViolationKind::SharedTableStored { table, at, old, new, since });
        }
    }

    /// Notes what happens beside a pointer to a shared table that is cleared or moved.
    fn note_pointer(&mut self, witness: &dyn Witness, cpu: CpuId, old: u64, new: u64) {
        let pointed =
            |raw: u64| walk::table_field(self.isa, raw).filter(|table| self.shared.tables.contains_key(table));
        let Some(table) = pointed(old).filter(|table| walk::table_field(self.isa, new) != Some(*table)) else { return };
        self.shared.left.push((cpu, table));
        let mut walked = false;
        witness.cached(&mut |cached| {
            walked |= matches!(cached.kind, CachedEntryKind::Walk { table: at, .. } if at == table);
        });
        if walked {
            self.tally.note(Antecedent::LeaveBesideWalk);
        }
        if witness.uninterruptible().iter().any(|other| other != cpu) {
            self.tally.note(Antecedent::BreakBesideLockless);
        }
    }
}
