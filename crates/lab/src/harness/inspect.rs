//! Assertions on counts, and the state of a process as `/proc` shows it.

use super::recount;
use super::test_process::TestProcess;
use super::test_world::{CPU, TestWorld};
use pagewright_arch::Isa;
use pagewright_mm::MmError;
use pagewright_mm::counters::Gauge;
use pagewright_mm::space::VmFlags;
use pagewright_types::{Errno, PAGE_SIZE, VirtAddr};

impl<I: Isa> TestWorld<I> {
    /// Asserts that every count agrees with the tables of `processes`, which are all processes.
    ///
    /// # Panics
    /// If a count differs.
    pub fn recount(&self, processes: &[&TestProcess<I>]) {
        let spaces: Vec<_> = processes.iter().map(|process| process.space.clone()).collect();
        self.on(CPU, |mm| recount::check(mm, &spaces));
        if spaces.iter().all(|space| space.map().read().totals().locked == 0) {
            spaces.iter().for_each(|space| recount::check_merged(space));
        }
    }

    /// The value of every gauge, and the committed pages (`Committed_AS`).
    pub fn levels(&self) -> Vec<u64> {
        self.on(CPU, |mm| Gauge::ALL.iter().map(|gauge| mm.gauge(*gauge)).chain([mm.committed()]).collect())
    }

    /// Asserts that [`Self::levels`] are those of the machine before its first process.
    ///
    /// # Panics
    /// If one differs.
    pub fn assert_nothing_leaked(&self) {
        assert_eq!(self.levels(), self.initial_levels, "a level is not that of the machine without processes");
    }
}

impl<I: Isa> TestProcess<I> {
    /// The number of its VMAs.
    pub fn mappings(&self) -> usize {
        self.space.map().read().len()
    }

    /// The flags of the VMA at an address.
    ///
    /// # Panics
    /// If nothing is mapped there.
    pub fn flags(&self, va: VirtAddr) -> VmFlags {
        self.space.map().read().find(va).expect("mapped").1.flags()
    }

    /// The vector that `mincore` returns for `pages` pages.
    ///
    /// # Errors
    /// The errno of the call.
    pub fn mincore(&self, at: VirtAddr, pages: u64) -> Result<Vec<u8>, Errno> {
        let mut vec = vec![9; pages as usize];
        let result = self.world.on(CPU, |mm| mm.mincore(&self.space, at, pages * PAGE_SIZE, &mut vec));
        result.map(|()| vec).map_err(MmError::errno)
    }

    /// The text of `/proc/PID/smaps`.
    ///
    /// # Panics
    /// If the memory manager cannot write the text.
    pub fn smaps(&self) -> String {
        let mut text = String::new();
        self.world.on(CPU, |mm| mm.show_smaps(&self.space, &mut text)).expect("a string takes everything");
        text
    }

    /// A figure of `/proc/PID/smaps_rollup`, in kB.
    ///
    /// # Panics
    /// If the text has no line that begins with `name`.
    pub fn smaps_field(&self, name: &str) -> u64 {
        let mut text = String::new();
        self.world.on(CPU, |mm| mm.show_smaps_rollup(&self.space, &mut text)).expect("a string takes everything");
        let line = text.lines().find(|line| line.starts_with(name)).expect("a known field");
        line.split_whitespace().nth(1).and_then(|figure| figure.parse().ok()).expect("a figure")
    }
}
