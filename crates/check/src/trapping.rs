//! Stores through pointers as scheduling points: the interface between a check and a trap.
//!
//! ```text
//!   Check::trap_pointer_stores(map) ─▶ each attempt: map(ram, machine) ─▶ a second mapping
//!   foreign code stores to a watched frame ─▶ the trap: machine.before_store() ─▶ other CPUs run
//!                                                       the store, machine.after_store()
//! ```
//!
//! `pagewright-trap` has such a trap; this crate has no unsafe code.

use pagewright_arch::Isa;
use pagewright_sim::Sim;
use pagewright_types::{Pfn, PhysAddr};
use std::hash::Hasher;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

/// A second mapping of a machine's memory, which foreign code uses until it is dropped.
pub trait SecondMapping {
    /// The address at which physical address 0 lies in it.
    fn address(&self) -> usize;

    /// Has stores to a frame trap from now on, or not.
    fn set_trap(&self, frame: Pfn, traps: bool);
}

/// The machine, as a trap sees it.
pub trait TrappedMachine {
    /// The CPU that runs is about to store to the eight bytes at `at`; other CPUs may run.
    fn before_store(&self, at: PhysAddr);

    /// It has made that store, and no other.
    fn after_store(&self);

    /// The CPU that runs waits in a loop of its own for another CPU, which may run.
    fn spins(&self);
}

/// Makes the second mapping of the memory of a machine.
pub type MapMemory = fn(&[AtomicU64], Rc<dyn TrappedMachine>) -> Rc<dyn SecondMapping>;

/// The handle of one machine.
pub(crate) struct TrappedSim<I: Isa>(pub(crate) Sim<I>);

impl<I: Isa> TrappedMachine for TrappedSim<I> {
    fn before_store(&self, at: PhysAddr) {
        self.0.before_pointer_store(at);
    }

    fn after_store(&self) {
        self.0.after_pointer_store();
    }

    fn spins(&self) {
        self.0.spins();
    }
}

/// A number of the running program: a hash of its file.
///
/// # Panics
/// When the file cannot be read.
pub(crate) fn build_number() -> u64 {
    static BUILD: OnceLock<u64> = OnceLock::new();
    *BUILD.get_or_init(|| {
        let file = std::env::current_exe().and_then(std::fs::read);
        let file = file.unwrap_or_else(|error| panic!("the file of this program: {error}"));
        let mut hasher = rustc_hash::FxHasher::default();
        hasher.write(&file);
        hasher.finish()
    })
}
