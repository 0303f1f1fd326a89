//! The checks after the last operation.
//!
//! Every page shows what it should, counts agree with the tables, and ended processes leave nothing
//! behind.

use super::meetings;
use super::program_run::ProgramRun;
use pagewright_arch::Isa;
use pagewright_check::CheckFinding;
use pagewright_model::{Census, SoftwareBits};
use pagewright_types::{Access, Counter, CpuId, VirtAddr};
use std::collections::BTreeSet;

/// Cells of each page that are read: those that single accesses use, and some others.
const CELLS: [u64; 6] = [0, 1, 2, 67, 259, 511];

impl<I: Isa> ProgramRun<I> {
    /// Reads every page of every process, from the CPUs in turn.
    fn read_all_pages(&self) {
        let cpus: Vec<CpuId> = self.bench.cpus().iter().collect();
        for process in self.processes() {
            let maps = self.uses_spec.then(|| self.spec.borrow().maps(process.id())).flatten().unwrap_or_default();
            let mapped = maps.iter().flat_map(|line| line.range.iter());
            let mapped = mapped.filter(|va| self.window.is_read(*va));
            let pages: BTreeSet<VirtAddr> = mapped.chain(self.window.all_pages()).collect();
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

    /// Lets the oracle check the counts (O4).
    fn check_counts(&self) {
        let mut census = Census::new(SoftwareBits::pagewright(I::KIND));
        self.lab.on(CpuId::new(0), |mm| mm.snapshot(&mut |record| census.add(record)));
        let devices = self.devices.borrow();
        let pages = devices.iter().flat_map(|device| device.pages().iter());
        pages.filter(|page| page.is_pinned()).for_each(|page| census.add_pinned_page(page.pfn()));
        self.bench.at_rest(&census);
    }

    /// Ends everything, and checks that the gauges have their first values again.
    ///
    /// Devices use and release their pages after the end of all processes.
    fn end_all(&self) {
        self.bench.cpus().iter().for_each(|cpu| self.leave(cpu));
        for process in self.processes() {
            self.end_process(CpuId::new(0), &process);
        }
        self.forget_processes();
        self.unpin_all(CpuId::new(0));
        if self.file.is_shmem() {
            self.lab.on(CpuId::new(0), |mm| mm.close_file(&self.file));
        } else {
            self.truncate(CpuId::new(0), 0);
            self.lab.on(CpuId::new(0), |mm| mm.forget_file(&self.file));
        }
        self.check_gauges();
        self.check_pin_counters();
        self.counts.borrow_mut().refused = self.sim().refused_allocations();
    }

    /// Checks that every pin was counted when it was taken and when it was released.
    fn check_pin_counters(&self) {
        let count = |counter| self.lab.mm().counter(counter);
        let [acquired, released] = [Counter::NrFollPinAcquired, Counter::NrFollPinReleased].map(count);
        if acquired != released {
            let message = format!("nr_foll_pin_acquired is {acquired}, and nr_foll_pin_released is {released}");
            self.bench.report(CheckFinding::Reported(message));
        }
        self.counts.borrow_mut().met = meetings::counted(count);
        self.counts.borrow_mut().pins = [Counter::PwUnshare, Counter::PwGupFast, Counter::PwGupFastDropped].map(count);
    }

    /// Runs the checks, up to the first finding.
    pub(super) fn final_checks(&self) {
        self.sim().permit_allocations();
        self.check_counts();
        self.read_all_pages();
        self.check_counts();
        if self.bench.finding_count() == 0 {
            self.end_all();
        }
    }
}
