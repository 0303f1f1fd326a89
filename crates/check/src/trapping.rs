//! Stores through pointers as scheduling points: the interface between a check and a trap.
//!
//! ```text
//!   Check::trap_pointer_stores(map) ─▶ each attempt: map(ram, machine) ─▶ a second mapping
//!   foreign code stores to a watched frame ─▶ the trap: machine.before_store() ─▶ other CPUs run
//!                                                       the store, machine.after_store()
//! ```
//!
//! `pagewright-trap` has such a trap; this crate has no unsafe code.

use crate::cpu::Cpu;
use crate::journal::{CodeLocation, Journal};
use crate::user_code;
use pagewright_arch::{Effects, Isa};
use pagewright_sim::Sim;
use pagewright_types::{CpuId, Pfn, PhysAddr};
use std::cell::RefCell;
use std::hash::Hasher;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
    ///
    /// `instruction` is the address of the instruction that stores.
    fn before_store(&self, at: PhysAddr, instruction: usize);

    /// It has made that store, and no other.
    fn after_store(&self);

    /// The CPU that runs waits in a loop of its own for another CPU, which may run.
    fn spins(&self);
}

/// Makes the second mapping of the memory of a machine.
pub type MapMemory = fn(&[AtomicU64], Rc<dyn TrappedMachine>) -> Rc<dyn SecondMapping>;

/// Whether the memory of a machine was ever mapped a second time in this process.
///
/// The allocator may use that memory again, which remains shared with a process that is forked.
static MAPPED_TWICE: AtomicBool = AtomicBool::new(false);

pub(crate) fn was_mapped_twice() -> bool {
    MAPPED_TWICE.load(Ordering::Relaxed)
}

/// Maps the memory of a machine a second time.
pub(crate) fn map_twice(map: MapMemory, ram: &[AtomicU64], machine: Rc<dyn TrappedMachine>) -> Rc<dyn SecondMapping> {
    MAPPED_TWICE.store(true, Ordering::Relaxed);
    map(ram, machine)
}

/// The handle of one machine.
pub(crate) struct TrappedSim<I: Isa> {
    sim: Sim<I>,
    journal: Journal,
    /// The stores that have begun.
    storing: RefCell<Vec<(CpuId, AtInstruction)>>,
}

impl<I: Isa> TrappedSim<I> {
    pub(crate) fn new(sim: Sim<I>, journal: Journal) -> Self {
        Self { sim, journal, storing: RefCell::default() }
    }
}

impl<I: Isa> TrappedMachine for TrappedSim<I> {
    fn before_store(&self, at: PhysAddr, instruction: usize) {
        let cpu = self.sim.cpu();
        if let Some(location) = AtInstruction::new(&self.journal, cpu, instruction) {
            self.storing.borrow_mut().push((cpu, location));
        }
        self.sim.before_pointer_store(at);
    }

    fn after_store(&self) {
        self.sim.after_pointer_store();
        let cpu = self.sim.cpu();
        self.storing.borrow_mut().retain(|(storing, _)| *storing != cpu);
    }

    fn spins(&self) {
        self.sim.spins();
    }
}

/// While it lives, what a CPU does is drawn as done by a trapped instruction.
struct AtInstruction {
    journal: Journal,
    cpu: CpuId,
    before: Option<CodeLocation>,
}

impl AtInstruction {
    /// `None` if nothing is drawn.
    fn new(journal: &Journal, cpu: CpuId, instruction: usize) -> Option<Self> {
        journal.is_on().then(|| {
            let before = journal.location(cpu);
            journal.move_to(cpu, Some(CodeLocation::Instruction(user_code::name_of_trapped(instruction).into())));
            Self { journal: journal.clone(), cpu, before }
        })
    }
}

impl Drop for AtInstruction {
    fn drop(&mut self) {
        self.journal.move_to(self.cpu, self.before.take());
    }
}

impl<I: Isa> Cpu<I> {
    /// Runs `body`, which executes the trapped instruction at the address `instruction`.
    pub fn execute_trapped<R>(&self, instruction: usize, body: impl FnOnce(&Self) -> R) -> R {
        let _at = AtInstruction::new(self.bench().journal(), self.id(), instruction);
        body(self)
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
