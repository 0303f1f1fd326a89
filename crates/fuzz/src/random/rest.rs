//! What must be true once everything has returned: every page shows what it should, on every CPU,
//! and when all processes have ended nothing is left of them.

use super::world::World;
use pagewright_arch::Isa;
use pagewright_model::{Census, SoftwareBits};
use pagewright_types::{Access, CpuId, VirtAddr};
use std::collections::BTreeSet;

/// Cells of each page that are read at the end: those that single accesses use, and some of the
/// others.
const CELLS: [u64; 6] = [0, 1, 2, 67, 259, 511];

impl<I: Isa> World<I> {
    /// Looks at every page of every process, from each CPU in turn.
    pub(super) fn look_at_all(&self) {
        let cpus: Vec<CpuId> = self.bench.cpus().iter().collect();
        for process in self.processes() {
            let maps = self.is_told.then(|| self.spec.borrow().maps(process.id())).flatten().unwrap_or_default();
            let mapped = maps.iter().flat_map(|line| line.range.iter());
            let pages: BTreeSet<VirtAddr> = mapped.chain(self.window.all()).collect();
            cpus.iter().for_each(|&cpu| self.switch(cpu, &process));
            for (turn, page) in pages.into_iter().enumerate() {
                let cpu = cpus[turn % cpus.len()];
                for cell in CELLS {
                    if self.bench.finding_count() > 0 || !self.access(cpu, &process, page.add(cell * 8), Access::Read) {
                        break;
                    }
                }
            }
        }
    }

    /// Counts everything again (O4).
    fn count_again(&self) {
        let mut census = Census::new(SoftwareBits::pagewright(I::KIND));
        self.lab.on(CpuId::new(0), |mm| mm.snapshot(&mut |record| census.add(record)));
        self.bench.at_rest(&census);
    }

    /// Ends everything and compares the gauges with what they were.
    pub(super) fn end_all(&self) {
        self.bench.cpus().iter().for_each(|cpu| self.leave(cpu));
        for process in self.processes() {
            self.end_process(CpuId::new(0), &process);
        }
        self.forget_processes();
        if self.file.is_shmem() {
            self.lab.on(CpuId::new(0), |mm| mm.close_file(&self.file));
        } else {
            self.truncate(CpuId::new(0), 0);
            self.lab.on(CpuId::new(0), |mm| mm.forget_file(&self.file));
        }
        self.check_levels();
        self.done.borrow_mut().refused = self.sim().refused_allocations();
    }

    /// Everything that is asked at rest, up to the first finding.
    pub(super) fn ask_at_rest(&self) {
        self.sim().permit_allocations();
        self.count_again();
        self.look_at_all();
        self.count_again();
        if self.bench.finding_count() == 0 {
            self.unpin_all(CpuId::new(0));
            self.end_all();
        }
    }
}
