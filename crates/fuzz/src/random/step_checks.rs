//! The checks after each operation, of one program in 16 of those that are mostly calls.
//!
//! - Every count agrees with the tables, also that of the reverse map ([`recount`]); VMAs are
//!   merged.
//! - The memory manager knows the pins that the devices hold, and no others.
//! - A TLB grants nothing that the tables do not grant, whatever reductions the calls declared
//!   (INV-MM-UNMAPPED, INV-MM-REDUCED, INV-FORK-FLUSHED).

use super::program_run::ProgramRun;
use pagewright_arch::Isa;
use pagewright_check::CheckFinding;
use pagewright_lab::harness::recount::{self, Pins};
use pagewright_types::snapshot::SnapshotRecord;
use pagewright_types::{Access, CpuId};

/// The kinds of access, of which each step checks one.
const ACCESSES: [Access; 3] = [Access::Read, Access::Write, Access::Exec];

impl<I: Isa> ProgramRun<I> {
    /// Runs the checks after an operation, if the program has them.
    ///
    /// # Panics
    /// If a count differs.
    pub(super) fn check_step(&self) {
        if !self.checks_each_step {
            return;
        }
        self.recount();
        let access = ACCESSES[self.counts.borrow().checked_steps as usize % ACCESSES.len()];
        for cpu in self.bench.cpus().iter() {
            self.check_tlb(cpu, access);
        }
        self.counts.borrow_mut().checked_steps += 1;
    }

    /// Counts everything again.
    fn recount(&self) {
        let spaces: Vec<_> = self.processes().iter().map(|process| process.space.clone()).collect();
        let devices = self.devices.borrow();
        let mut pins = Pins::new();
        // A large folio counts the pins of all its pages.
        let (mut known, mut by_folio) = (Pins::new(), Pins::new());
        self.lab.on(CpuId::new(0), |mm| {
            for page in devices.iter().flat_map(|device| device.pages().iter()).filter(|page| page.is_pinned()) {
                *pins.entry(page.pfn()).or_default() += 1;
                *by_folio.entry(mm.tlb().frames().folio(page.pfn()).pfn()).or_default() += 1;
            }
            recount::check_with_pins(mm, &spaces, &pins);
            mm.snapshot(&mut |record| {
                if let SnapshotRecord::Pinned(pinned) = record {
                    known.insert(pinned.pfn, pinned.pins);
                }
            });
        });
        assert_eq!(known, by_folio, "the pins of each folio: the memory manager's, and the devices'");
        // Fork may leave VMAs separate that differed only in their locks.
        if spaces.iter().any(|space| space.map().read().totals().locked > 0) {
            self.has_locked.set(true);
        }
        if !self.has_locked.get() {
            spaces.iter().for_each(|space| recount::check_merged(space));
        }
    }

    /// Makes every access that `cpu` can make without a fault, and compares it with the tables.
    fn check_tlb(&self, cpu: CpuId, access: Access) {
        let Some(process) = self.running(cpu) else { return };
        for page in self.window.all_pages() {
            let Ok(reached) = self.sim().access(cpu, page, access, 1) else { continue };
            let leaf = self.lab.on(cpu, |mm| recount::leaf(mm, &process.space, page));
            if leaf.is_none_or(|leaf| leaf.page_at(page) != reached.pfn || !leaf.rights().allow(access)) {
                let message =
                    format!("CPU {cpu}: {access} {page} reaches {}, and the tables have {leaf:?}", reached.pfn);
                self.bench.report(CheckFinding::Reported(message));
                return;
            }
            self.complete_access(cpu, &process, page, access, reached.pfn);
        }
    }
}
