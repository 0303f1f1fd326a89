//! The state of a run, as a hash: when two runs can go on in the same ways.
//!
//! The state is that of the machine, of its judge, and of the programs. A program is a coroutine,
//! whose stack cannot be compared, and programs share memory that the machine cannot see. But they
//! are deterministic: what they hold follows from the order in which their pieces ran between two
//! stops, and from what the machine returned to each. That is [`SeenByPrograms`]. A step between
//! two stops of one access runs no piece of a program, and is not part of it; so are the steps of
//! all agents but CPUs.
//!
//! Memory follows from the same, but for what walks store: the entries in which they have set a bit
//! are part of the state, with their words, and where programs have pointers to memory, so is the
//! moment at which a walk stored.
//!
//! Not part of the state: clocks, counts of events, numbers of steps, and the order in which full
//! sets replace entries (as of [`super::footprint`]).

use super::point::StopPoint;
use crate::machine::Sim;
use crate::pointer_stores::PointerStores;
use crate::walk::WalkerMemory;
use pagewright_arch::Isa;
use pagewright_types::judge::StatePart;
use pagewright_types::{CpuId, PhysAddr};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

fn hash(value: impl Hash) -> u64 {
    // FxHasher is not enough: by it, different states of a search were equal.
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A hash of a set of values; each names its kind.
#[derive(Default)]
pub(crate) struct StateHash(u64);

impl StateHash {
    pub(crate) fn add(&mut self, value: impl Hash) {
        self.0 = self.0.wrapping_add(hash(value));
    }

    /// Adds a value that `part` hashes.
    pub(crate) fn add_part(&mut self, part: &StatePart<'_>) {
        let mut hasher = DefaultHasher::new();
        part(&mut hasher);
        self.0 = self.0.wrapping_add(hasher.finish());
    }

    pub(crate) fn value(&self) -> u64 {
        self.0
    }
}

/// The state of a run, as hashes of its three parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RunState {
    /// What programs have done and seen.
    pub programs: u64,
    /// The machine.
    pub machine: u64,
    /// What its judge remembers.
    pub judge: u64,
}

/// What programs have done and seen in a run.
#[derive(Default)]
pub(crate) struct SeenByPrograms {
    /// A hash of all pieces of programs that ran, and of what the machine returned to them.
    history: Cell<u64>,
    /// Whether an access has returned to its program since the last stop.
    returned: Cell<bool>,
    /// Whether anything is recorded.
    on: Cell<bool>,
    /// The entries in which walks have set a bit.
    written: RefCell<BTreeSet<PhysAddr>>,
}

impl SeenByPrograms {
    /// Begins to record, if `on`.
    pub(crate) fn begin(&self, on: bool) {
        self.clear();
        self.on.set(on);
    }

    pub(crate) fn clear(&self) {
        self.on.set(false);
        self.history.set(0);
        self.returned.set(false);
        self.written.borrow_mut().clear();
    }

    /// The program of `cpu` sees `value`.
    pub(crate) fn add(&self, cpu: CpuId, value: u64) {
        if self.on.get() {
            self.history.set(hash((self.history.get(), cpu, value)));
        }
    }

    /// An access returns to its program.
    pub(crate) fn returned(&self) {
        self.returned.set(true);
    }

    /// `cpu` has run from one stop to the next; first the interrupt handler, if it took one.
    pub(crate) fn passed(&self, cpu: CpuId, interrupt: bool, from: StopPoint, to: StopPoint) {
        let in_access = matches!(from, StopPoint::Access(..) | StopPoint::Walk(..) | StopPoint::Fill(..))
            && matches!(to, StopPoint::Walk(..) | StopPoint::Fill(..));
        if self.returned.replace(false) || interrupt || !in_access {
            self.add(cpu, u64::from(interrupt));
        }
    }

    /// A walk has set a bit of the entry at `at`; `by_pointer` if programs may see that by pointer.
    fn walk_stored(&self, at: PhysAddr, by_pointer: bool) {
        if !self.on.get() {
            return;
        }
        self.written.borrow_mut().insert(at);
        if by_pointer {
            self.history.set(hash((self.history.get(), "walk", at)));
        }
    }
}

impl<I: Isa> Sim<I> {
    /// Records that a walk has set a bit of the entry at `at`.
    pub(crate) fn walk_stored(&self, at: PhysAddr) {
        self.0.in_flight.seen.walk_stored(at, self.pointer_stores() != PointerStores::Unseen);
    }

    /// A hash of what programs have done and seen.
    pub(crate) fn hash_of_programs(&self) -> u64 {
        self.0.in_flight.seen.history.get()
    }

    /// Adds the state of the machine to `state`.
    pub(crate) fn hash_machine(&self, state: &mut StateHash) {
        let machine = &*self.0;
        let in_flight = &machine.in_flight;
        for at in in_flight.seen.written.borrow().iter() {
            state.add(("word", at, machine.ram.load_entry(*at)));
        }
        state.add(("machine", machine.online.get(), machine.allocations.get(), in_flight.replaced_live.get()));
        for (index, core) in machine.cores.iter().enumerate() {
            let root = core.root.get().map(|root| (root.table, root.tag, root.kernel_tag));
            let kernel = core.kernel_root.get().map(|(table, _)| table);
            let registers = (core.lazy.get(), core.interrupts_off.get(), core.incomplete_tlbis.get());
            state.add(("core", index, root, kernel, registers, core.in_flight.ipi_pending.get()));
            core.lockless_walk.borrow().iter().for_each(|table| state.add(("lockless", index, table)));
            core.tlbs.borrow().each(|array, key, held| state.add(("held", index, array, key, held)));
            for (place, hit) in core.in_flight.conflicts.borrow().iter().enumerate() {
                state.add(("conflict", index, place, hit));
            }
            let broadcasts = in_flight.broadcasts.borrow();
            for walk in core.in_flight.walks.borrow().iter() {
                let doomed = broadcasts.iter().filter(|broadcast| walk.doomed_by.contains(&broadcast.serial));
                let doomed: Vec<u64> = doomed.map(|broadcast| broadcast.number).collect();
                let walk = (walk.va, walk.access, walk.root.table, walk.root.tag, walk.state, walk.demanded);
                state.add(("walk", index, walk, doomed));
            }
        }
        for broadcast in in_flight.broadcasts.borrow().iter() {
            let to = (broadcast.issuer, broadcast.target, broadcast.undelivered, broadcast.late_fills);
            state.add(("broadcast", broadcast.number, to));
        }
        let mut order = 0;
        in_flight.stores.borrow().each(|cpu, at, value| {
            order += 1;
            state.add(("store", order, cpu, at, value));
        });
        in_flight.recent.borrow().iter().for_each(|va| state.add(("recent", va)));
        in_flight.reducing.borrow().iter().for_each(|reducing| state.add(("reducing", reducing)));
        machine.walked.borrow().each(|walked| state.add(("walked", walked)));
    }
}
