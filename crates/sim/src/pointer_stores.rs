//! Stores that code makes to page tables through a pointer into memory, not through the effects.
//!
//! The machine cannot see such a store when it is made. [`Sim::watch_pointer_stores`] keeps a copy
//! of each table to which a loaded root leads. Whenever a CPU stops, its tables are compared with
//! the copies, and each changed word is a store of that CPU: no other CPU has run meanwhile. The
//! judge is told ([`Judge::pointer_stored`](pagewright_types::judge::Judge::pointer_stored);
//! INV-CHECK-POINTER).
//!
//! On arm64 the store may also be put into the store buffer of its CPU, as a store by the effects
//! is, so that walkers see it late ([`PointerStores::Delayed`]). On x86-64 it may not: stores
//! become visible in program order, which a comparison cannot tell.
//!
//! ```text
//!   CPU runs: stores through pointers ──▶ stops ──▶ compare ──▶ judge, store buffer ──▶ other CPUs
//! ```
//!
//! A host may trap the stores ([`Sim::trap_pointer_stores`]): it is told which frames are watched,
//! calls [`Sim::before_pointer_store`] before each store to one, which is a point to stop, and
//! [`Sim::after_pointer_store`] after it. Then each is judged, drawn and buffered by itself.
//!
//! **INV-CHECK-POINTER** A store to a page table of a loaded root through a pointer is judged
//! before another CPU runs, and drawn with both words.
//!
//! Not guaranteed without that: that every store is found. Of several stores to one word without a
//! stop between them, only the last is; a table is watched from when a watched entry points to it;
//! and bits that a walker sets by itself are taken for a walker's.

use crate::explore::StopPoint;
use crate::machine::Sim;
use crate::ram::Ram;
use crate::walk::{Privilege, Word, decode};
use pagewright_arch::{Isa, Pte, PteSlot};
use pagewright_types::{FrameRange, IsaKind, Level, Pfn, PhysAddr};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// What the machine does about stores through pointers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PointerStores {
    /// They are not looked for, and walkers see them at once.
    #[default]
    Unseen,
    /// They are told to the judge, and walkers see them at once.
    Judged,
    /// The same, and on arm64 walkers may see them as late as a store by the effects.
    Delayed,
}

/// The copy of one table.
struct Watched {
    level: Level,
    words: Box<[u64]>,
}

/// A word that differs from its copy.
struct ChangedWord {
    slot: PteSlot,
    old: u64,
    new: u64,
}

/// The copies of all watched tables.
#[derive(Default)]
pub(crate) struct WatchedTables {
    mode: Cell<PointerStores>,
    tables: RefCell<BTreeMap<Pfn, Watched>>,
    /// Stores found since the machine was switched on.
    found: Cell<u64>,
    /// Told when a table starts to be watched, or ceases to be.
    trap: RefCell<Option<Rc<TrapFrame>>>,
}

/// Has stores to a frame trap, or not.
pub type TrapFrame = dyn Fn(Pfn, bool);

impl WatchedTables {
    fn set_trap(&self, (table, level): (Pfn, Level), traps: bool) {
        if let Some(trap) = &*self.trap.borrow() {
            let frames = level.granule().order().frames();
            (0..frames).for_each(|frame| trap(table.add(frame), traps));
        }
    }

    /// Watches `table` and those below it, as they are now.
    fn learn(&self, isa: IsaKind, ram: &Ram, table: Pfn, level: Level) {
        let at = (table.base().raw() / 8) as usize;
        let Some(words) = ram.words().get(at..at + level.entries()) else { return };
        if self.tables.borrow().contains_key(&table) {
            return;
        }
        let copy: Box<[u64]> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        let below = copy.iter().filter_map(|raw| pointer(isa, level, *raw)).collect::<Vec<Pfn>>();
        self.tables.borrow_mut().insert(table, Watched { level, words: copy });
        self.set_trap((table, level), true);
        for (pfn, down) in below.into_iter().zip(std::iter::repeat(level.down())) {
            down.into_iter().for_each(|down| self.learn(isa, ram, pfn, down));
        }
    }

    /// Takes over a store that the machine has seen.
    pub(crate) fn seen(&self, isa: IsaKind, ram: &Ram, slot: PteSlot, new: u64) {
        if self.mode.get() == PointerStores::Unseen {
            return;
        }
        let level = self.tables.borrow_mut().get_mut(&slot.table).map(|table| {
            table.words[usize::from(slot.index)] = new;
            table.level
        });
        self.learn_below(isa, ram, level, new);
    }

    fn learn_below(&self, isa: IsaKind, ram: &Ram, level: Option<Level>, raw: u64) {
        if let Some(level) = level
            && let (Some(table), Some(down)) = (pointer(isa, level, raw), level.down())
        {
            self.learn(isa, ram, table, down);
        }
    }

    /// These frames are not the tables any more that they were.
    pub(crate) fn forget(&self, frames: FrameRange) {
        if self.mode.get() != PointerStores::Unseen {
            self.tables.borrow_mut().retain(|table, watched| {
                let forgotten = frames.contains(*table);
                if forgotten {
                    self.set_trap((*table, watched.level), false);
                }
                !forgotten
            });
        }
    }

    /// The words that differ from their copies, which are brought up to date.
    fn changed(&self, isa: IsaKind, ram: &Ram) -> Vec<ChangedWord> {
        let mut changed = Vec::new();
        for (table, Watched { level, words }) in self.tables.borrow_mut().iter_mut() {
            let now = &ram.words()[(table.base().raw() / 8) as usize..];
            for (index, (copy, word)) in words.iter_mut().zip(now).enumerate() {
                let (old, new) = (*copy, word.load(Ordering::Relaxed));
                if old != new {
                    *copy = new;
                    if !is_update(isa, *level, old, new) {
                        changed.push(ChangedWord { slot: PteSlot { table: *table, index: index as u16 }, old, new });
                    }
                }
            }
        }
        for ChangedWord { slot, new, .. } in &changed {
            let level = self.tables.borrow().get(&slot.table).map(|table| table.level);
            self.learn_below(isa, ram, level, *new);
        }
        changed
    }
}

/// The table to which an entry of a table of `level` points.
fn pointer(isa: IsaKind, level: Level, raw: u64) -> Option<Pfn> {
    match decode(isa, level, raw, Privilege::User) {
        Word::Table(next) => Some(next.table),
        Word::Absent | Word::Malformed | Word::Leaf(_) => None,
    }
}

/// Whether a walker makes `new` of `old` when it sets accessed and dirty bits.
fn is_update(isa: IsaKind, level: Level, old: u64, new: u64) -> bool {
    match decode(isa, level, old, Privilege::User) {
        Word::Absent | Word::Malformed => false,
        Word::Table(next) => new == next.used,
        Word::Leaf(leaf) => new == leaf.used || new == leaf.used_by_store,
    }
}

impl<I: Isa> Sim<I> {
    /// Looks for stores to page tables through pointers from now on, while schedules are explored.
    ///
    /// A later call with a weaker mode changes nothing.
    pub fn watch_pointer_stores(&self, mode: PointerStores) {
        let watched = &self.0.pointer_stores;
        if watched.mode.get() == PointerStores::Unseen || mode == PointerStores::Delayed {
            watched.mode.set(mode);
        }
    }

    /// What the machine does about stores through pointers.
    pub fn pointer_stores(&self) -> PointerStores {
        self.0.pointer_stores.mode.get()
    }

    /// The number of stores through pointers that were found.
    pub fn pointer_stores_found(&self) -> u64 {
        self.0.pointer_stores.found.get()
    }

    /// Has `trap` told which frames are watched, from now on.
    ///
    /// The host traps stores to these frames, and calls the two methods below around each.
    pub fn trap_pointer_stores(&self, trap: Rc<TrapFrame>) {
        *self.0.pointer_stores.trap.borrow_mut() = Some(trap);
        self.watch_pointer_stores(PointerStores::Judged);
    }

    /// Stops the current CPU before it stores to the entry at `at` by a trapped instruction.
    pub fn before_pointer_store(&self, at: PhysAddr) {
        let slot = PteSlot::containing(at, self.0.config.granule);
        self.stop_before(StopPoint::PointerStore(slot));
    }

    /// Judges the store that the current CPU has just made by a trapped instruction.
    pub fn after_pointer_store(&self) {
        self.find_pointer_stores();
    }

    /// The current CPU executes a loop that waits for another CPU, and not for the machine.
    pub fn spins(&self) {
        self.stop_before(StopPoint::Relax);
    }

    /// Finds the stores that the current CPU has made through pointers since it was resumed.
    pub(crate) fn find_pointer_stores(&self) {
        let watched = &self.0.pointer_stores;
        if watched.mode.get() == PointerStores::Unseen || !self.0.judged.get() {
            return;
        }
        for table in self.0.cores.iter().flat_map(|core| core.roots_of_tables()) {
            watched.learn(I::KIND, &self.0.ram, table, self.0.config.top());
        }
        for ChangedWord { slot, old, new } in watched.changed(I::KIND, &self.0.ram) {
            watched.found.set(watched.found.get() + 1);
            if watched.mode.get() == PointerStores::Delayed && I::KIND == IsaKind::Aarch64 {
                self.buffer_found_store(slot, old, new);
            }
            self.judge_pointer_stored(slot, Pte::from_raw(old), Pte::from_raw(new));
        }
    }
}
