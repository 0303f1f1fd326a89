//! O4: the entries of a shared table change for all its sharers or not at all (D9).
//!
//! [`Fact::TableShared`](pagewright_types::judge::Fact::TableShared) says to which tables several
//! entries point. Several spaces reach these tables and all below them. While they do, each store
//! to an entry of such a table must be one of these:
//!
//! - made in place for all sharers
//!   ([`Fact::EditInPlace`](pagewright_types::judge::Fact::EditInPlace)): of a pointer to a table
//!   only that an empty table comes where nothing was, which the sharers reach from then on;
//! - a loss of the right to store, of exclusivity or of the accessed bit, of the same frame, as a
//!   break leaves both copies; or the undoing of that by the same call, which has failed.
//!
//! A hash of the entries, without their accessed bits, finds what no store of the kernel explains:
//! a dirty bit, which a walker sets only where a program could store, or a write by a pointer. It
//! is taken when the call that shared the table returns, because until then a program may store
//! through a translation of before. It follows the allowed stores, and is compared at rest and when
//! the table is no longer shared.

use super::Oracle;
use crate::FxHashMap;
use crate::census::SoftwareBits;
use crate::count::{CountKind, CountMismatch};
use crate::tally::Antecedent;
use crate::violation::{CpuStep, Rule, ViolationKind};
use crate::walk::{self, DecodedEntry, PathRights};
use alloc::vec::Vec;
use pagewright_types::judge::{CachedEntryKind, WalkedPlace, Witness};
use pagewright_types::{CpuId, FrameRange, IsaKind, Level, Pfn, PhysAddr};

/// A table that several spaces reach.
#[derive(Clone, Copy, Debug)]
struct SharedTable {
    level: Level,
    since: CpuStep,
    /// Whether several entries point to it; otherwise it is below such a table.
    declared: bool,
    /// The sum of the hashes of its entries, as they should be.
    ///
    /// `None` until the call that shared it has returned.
    hash: Option<u64>,
}

/// An entry of a shared table that has lost rights.
#[derive(Clone, Copy, Debug)]
struct Weakened {
    by: CpuId,
    at: PhysAddr,
    /// Its word before.
    old: u64,
}

/// A pointer that a call takes from a space, and the shared table to which it pointed.
#[derive(Clone, Copy, Debug)]
struct Left {
    by: CpuId,
    at: PhysAddr,
    table: (Pfn, Level),
}

/// The shared tables, and the CPUs that edit one in place.
#[derive(Default)]
pub(super) struct SharedTables {
    tables: FxHashMap<Pfn, SharedTable>,
    in_place: Vec<(CpuId, Pfn)>,
    /// What spaces have left since the last return of a call of each CPU.
    left: Vec<Left>,
    /// Tables in which an entry was installed while the pointer above them was in transition.
    installed: Vec<(Left, Pfn)>,
    /// What each CPU has weakened since the last return of its call.
    weakened: Vec<Weakened>,
    /// What pointers to shared tables were that are being replaced, and are not present meanwhile.
    in_transition: FxHashMap<PhysAddr, u64>,
    /// Pointers to shared tables that went beside a walk of a space that its CPU does not run.
    beside_foreign: Vec<(PhysAddr, Pfn)>,
}

impl SharedTables {
    pub(super) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// The entry at `at` as the judge of another call takes it.
    ///
    /// A pointer that a break or a leave is replacing is still the old one: what CPUs hold by it is
    /// flushed before that call hooks another table or returns.
    pub(super) fn entry(&self, witness: &dyn Witness, at: PhysAddr) -> u64 {
        let transition = if self.in_transition.is_empty() { None } else { self.in_transition.get(&at) };
        transition.copied().unwrap_or_else(|| witness.stored(at))
    }

    /// Whether several spaces reach a table.
    pub(super) fn contains(&self, table: Pfn) -> bool {
        self.tables.contains_key(&table)
    }

    pub(super) fn edit_in_place(&mut self, cpu: CpuId, table: Pfn, begins: bool) {
        self.in_place.retain(|editing| *editing != (cpu, table));
        if begins {
            self.in_place.push((cpu, table));
        }
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
    /// The bits of an entry that was `old`, in a table of `level`.
    ///
    /// Intel SDM vol. 3A table 4-20; Arm ARM D8.3.1 and D8.4.
    fn of(isa: IsaKind, level: Level, bits: SoftwareBits, old: u64) -> Self {
        let swap = bits.swap.filter(|format| format.entry(old).is_some());
        if let Some(format) = swap {
            return Self { accessed: 0, cleared: format.exclusive, set: 0 };
        }
        let exclusive = bits.exclusive;
        let origin = if level.is_last() { 0 } else { bits.origin };
        match isa {
            // A; R/W.
            IsaKind::X86_64 => Self { accessed: 1 << 5, cleared: 1 << 1 | exclusive, set: origin },
            // AF; DBM; AP[2] or APTable[1], and what software keeps of the dirty state.
            IsaKind::Aarch64 => {
                let set = 1 << 7 | 1 << 62 | bits.kept_dirty | origin;
                Self { accessed: 1 << 10, cleared: 1 << 51 | exclusive, set }
            }
        }
    }

    /// Whether `new` differs from `old` in nothing else.
    fn explain(&self, old: u64, new: u64) -> bool {
        let (gone, came) = (old & !new, new & !old);
        gone & !(self.cleared | self.accessed) == 0 && came & !(self.set | self.accessed) == 0
    }
}

/// The hash of the entry at `at` (the finaliser of splitmix64); 0 if it is empty.
fn hash(isa: IsaKind, at: PhysAddr, raw: u64) -> u64 {
    if raw == 0 {
        return 0;
    }
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
    fn hash_of_table(&self, witness: &dyn Witness, (table, level): (Pfn, Level)) -> u64 {
        let at = (0..level.entries() as u64).map(|index| table.base().add(8 * index));
        at.fold(0, |sum: u64, at| sum.wrapping_add(hash(self.isa, at, witness.stored(at))))
    }

    /// Several entries point to a table from now on, or at most one does.
    pub(super) fn table_shared(
        &mut self,
        witness: &dyn Witness,
        (table, level): (Pfn, Level),
        shared: bool,
        by: CpuStep,
    ) {
        match self.shared.tables.get_mut(&table) {
            Some(known) => known.declared = shared,
            None if shared => self.add_shared(witness, (table, level), true, by),
            None => {}
        }
        if !shared && !self.is_below_shared(witness, table) {
            self.remove_shared(witness, table, by.cpu);
        }
    }

    /// Adds a table and those below it that are not shared yet.
    fn add_shared(&mut self, witness: &dyn Witness, (table, level): (Pfn, Level), declared: bool, since: CpuStep) {
        if self.shared.tables.contains_key(&table) {
            return;
        }
        self.shared.tables.insert(table, SharedTable { level, since, declared, hash: None });
        for below in self.tables_below(witness, table, level) {
            self.add_shared(witness, below, false, since);
        }
    }

    /// Removes a table, and those below it to which one entry points.
    fn remove_shared(&mut self, witness: &dyn Witness, table: Pfn, cpu: CpuId) {
        let Some(ends) = self.shared.tables.remove(&table) else { return };
        self.judge_hash(witness, cpu, table, ends);
        for (below, _) in self.tables_below(witness, table, ends.level) {
            if self.shared.tables.get(&below).is_some_and(|below| !below.declared) {
                self.remove_shared(witness, below, cpu);
            }
        }
    }

    /// Whether a shared table points to `table`.
    fn is_below_shared(&self, witness: &dyn Witness, table: Pfn) -> bool {
        self.shared.tables.iter().any(|(above, shared)| {
            self.tables_below(witness, *above, shared.level).iter().any(|(below, _)| *below == table)
        })
    }

    /// The tables to which a table of `level` points, and their level.
    fn tables_below(&self, witness: &dyn Witness, table: Pfn, level: Level) -> Vec<(Pfn, Level)> {
        let read = |at| witness.stored(at);
        walk::words(table, level, &read).filter_map(|raw| self.pointed_table(level, raw)).collect()
    }

    /// The call of `cpu` returns: no program can store through what was before it.
    pub(super) fn shared_returned(&mut self, witness: &dyn Witness, cpu: CpuId) {
        self.shared.left.retain(|left| left.by != cpu);
        self.shared.installed.retain(|(left, _)| left.by != cpu);
        self.shared.weakened.retain(|weakened| weakened.by != cpu);
        let is_new = |shared: &SharedTable| shared.hash.is_none() && shared.since.cpu == cpu;
        let tables = self.shared.tables.iter();
        let new = tables.filter(|(_, shared)| is_new(shared)).map(|(table, shared)| (*table, shared.level));
        for (table, level) in new.collect::<Vec<(Pfn, Level)>>() {
            let hash = self.hash_of_table(witness, (table, level));
            self.shared.tables.entry(table).and_modify(|shared| shared.hash = Some(hash));
        }
    }

    fn judge_hash(&mut self, witness: &dyn Witness, cpu: CpuId, table: Pfn, shared: SharedTable) {
        let Some(claimed) = shared.hash else { return };
        self.tally.note(Antecedent::SharedHash);
        let counted = self.hash_of_table(witness, (table, shared.level));
        if counted != claimed {
            let mismatch = CountMismatch { of: CountKind::SharedHash(table), claimed, counted };
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
        let in_transition = self.shared.in_transition.remove(&at).is_some();
        self.note_replaced_pointer(witness, at, new);
        self.note_pointer(witness, cpu, at, words);
        let table = Pfn::containing(at);
        let Some(shared) = self.shared.tables.get_mut(&table) else { return };
        if let Some(sum) = &mut shared.hash {
            *sum = sum.wrapping_sub(hash(self.isa, at, old)).wrapping_add(hash(self.isa, at, new));
        }
        let (since, level) = (shared.since, shared.level);
        self.tally.note(Antecedent::SharedStore);
        if old & 1 == 0 && new & 1 != 0 {
            self.note_install(witness, table);
        }
        let in_place = self.shared.in_place.contains(&(cpu, table));
        let [pointed, points] = [old, new].map(|raw| self.pointed_table(level, raw));
        if in_place && pointed.is_none() && points.is_none() {
            self.note_in_place(witness, at);
            return;
        }
        if in_place
            && old & 1 == 0
            && !in_transition
            && let Some(made) = points.filter(|made| self.is_empty_table(witness, *made))
        {
            self.tally.note(Antecedent::TableMadeInPlace);
            self.add_shared(witness, made, false, CpuStep { cpu, step: self.step });
            return;
        }
        let free = FreeBits::of(self.isa, level, self.bits, old);
        if free.explain(old, new) {
            self.shared.weakened.push(Weakened { by: cpu, at, old });
            return;
        }
        let undone =
            |weakened: &Weakened| weakened.by == cpu && weakened.at == at && (weakened.old ^ new) & !free.accessed == 0;
        if !self.shared.weakened.iter().any(undone) {
            self.step += 1;
            self.report(cpu, Rule::Counts, ViolationKind::SharedTableStored { table, at, old, new, since });
        }
    }

    /// The table to which an entry of a table of `level` points, and its level.
    fn pointed_table(&self, level: Level, raw: u64) -> Option<(Pfn, Level)> {
        let down = level.down()?;
        match walk::decode(self.isa, level, raw, PathRights::ROOT) {
            DecodedEntry::Table { pfn, .. } => Some((pfn, down)),
            DecodedEntry::NotPresent | DecodedEntry::Leaf { .. } | DecodedEntry::Malformed => None,
        }
    }

    /// Whether no entry of a table is in use.
    fn is_empty_table(&self, witness: &dyn Witness, (table, level): (Pfn, Level)) -> bool {
        let mut words = (0..level.entries() as u64).map(|index| witness.stored(table.base().add(8 * index)));
        words.all(|word| word == 0)
    }

    /// Notes an edit in place of an entry that walks of several spaces have used.
    fn note_in_place(&mut self, witness: &dyn Witness, at: PhysAddr) {
        let mut roots: Vec<Pfn> = Vec::new();
        witness.walked_at(at, &mut |WalkedPlace { root, .. }| {
            if !roots.contains(&root) {
                roots.push(root);
            }
        });
        if roots.len() > 1 {
            self.tally.note(Antecedent::InPlaceEdit);
        }
    }

    /// Notes what happens beside a pointer to a shared table that is cleared or moved.
    fn note_pointer(&mut self, witness: &dyn Witness, cpu: CpuId, at: PhysAddr, (old, new): (u64, u64)) {
        let pointed =
            |raw: u64| walk::table_field(self.isa, raw).filter(|table| self.shared.tables.contains_key(table));
        let Some(table) = pointed(old).filter(|table| walk::table_field(self.isa, new) != Some(*table)) else { return };
        let level = self.shared.tables[&table].level;
        self.shared.left.push(Left { by: cpu, at, table: (table, level) });
        if new != 0 && new & 1 == 0 {
            self.shared.in_transition.insert(at, old);
        }
        let mut walked = false;
        witness.cached(&mut |cached| {
            walked |= matches!(cached.kind, CachedEntryKind::Walk { table: at, .. } if at == table);
        });
        if walked {
            self.tally.note(Antecedent::LeaveBesideWalk);
        }
        let (mut lockless, mut foreign) = (false, false);
        witness.lockless_walks(&mut |walker, tables| {
            if walker != cpu && [Pfn::containing(at), table].iter().any(|near| tables.contains(near)) {
                lockless = true;
                foreign |= self.running.get(&walker) != tables.first();
            }
        });
        if lockless {
            self.tally.note(Antecedent::BreakBesideLockless);
        }
        if foreign {
            self.shared.beside_foreign.push((at, table));
        }
    }

    /// Whether tables lead from a table to `wanted`, or it is that table.
    fn reaches(&self, witness: &dyn Witness, (table, level): (Pfn, Level), wanted: Pfn) -> bool {
        table == wanted
            || self.tables_below(witness, table, level).into_iter().any(|below| self.reaches(witness, below, wanted))
    }

    /// Notes that an entry of `table` was installed, if a call in flight has left that table.
    ///
    /// Whether a break leaves a table shows when it hooks its copy: what both have stays shared.
    fn note_install(&mut self, witness: &dyn Witness, table: Pfn) {
        let above = |left: &&Left| self.reaches(witness, left.table, table);
        let left: Vec<Left> = self.shared.left.iter().filter(above).copied().collect();
        for left in left {
            if self.shared.in_transition.contains_key(&left.at) {
                self.shared.installed.push((left, table));
            } else {
                self.tally.note(Antecedent::InstalledBesideBreak);
            }
        }
    }

    /// Notes what becomes of a pointer beside which something happened.
    ///
    /// A break hooks a copy, a leave nothing; a break that fails puts the pointer back.
    fn note_replaced_pointer(&mut self, witness: &dyn Witness, at: PhysAddr, new: u64) {
        let installed: Vec<_> = self.shared.installed.extract_if(.., |(left, _)| left.at == at).collect();
        for (left, table) in installed {
            let copy = walk::table_field(self.isa, new).map(|copy| (copy, left.table.1));
            if !copy.is_some_and(|copy| self.reaches(witness, copy, table)) {
                self.tally.note(Antecedent::InstalledBesideBreak);
            }
        }
        let Some(index) = self.shared.beside_foreign.iter().position(|(slot, _)| *slot == at) else { return };
        let (_, table) = self.shared.beside_foreign.swap_remove(index);
        match walk::table_field(self.isa, new) {
            None => self.tally.note(Antecedent::LeaveBesideForeign),
            Some(copy) if copy != table => self.tally.note(Antecedent::BreakBesideForeign),
            Some(_) => {}
        }
    }
}
