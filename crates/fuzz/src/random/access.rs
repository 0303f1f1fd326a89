//! Accesses, made as a processor makes them: translate, fault, try again.
//!
//! The reference memory checks each access at the moment at which it reaches memory.

use super::generator::below;
use super::program_run::{Process, ProgramRun};
use pagewright_arch::Isa;
use pagewright_check::CheckFinding;
use pagewright_mm::FaultError;
use pagewright_model::spec::FaultSignal;
use pagewright_types::{Access, CpuId, Pfn, VirtAddr};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::sync::atomic::{AtomicU64, Ordering};

/// Limit of the faults of one access.
///
/// Another CPU may unmap the page between a fault and the next try, but programs are short.
const MAX_FAULTS: u32 = 64;

/// Signals of one operation after which it accesses only pages that it could access before.
const MAX_SIGNALS: u32 = 24;

fn fault_signal(error: &FaultError) -> FaultSignal {
    match error {
        FaultError::NotMapped { .. } | FaultError::Guarded { .. } => FaultSignal::NotMapped,
        FaultError::NotAllowed { .. } => FaultSignal::NotAllowed,
        FaultError::PastEnd { .. } | FaultError::Device { .. } | FaultError::TooManyHolders { .. } => {
            FaultSignal::PastEnd
        }
        FaultError::OutOfMemory(_) => FaultSignal::NoMemory,
    }
}

impl<I: Isa> ProgramRun<I> {
    /// Accesses the cell at `va` on `cpu`, which runs `process`.
    ///
    /// Returns `false` if the access got a signal.
    #[inline]
    pub(super) fn access(&self, cpu: CpuId, process: &Process<I>, va: VirtAddr, access: Access) -> bool {
        match self.sim().access(cpu, va, access, 1) {
            Ok(found) => {
                self.complete_access(cpu, process, va, access, found.pfn);
                true
            }
            Err(_) => self.fault(cpu, process, va, access),
        }
    }

    /// Serves the fault of the first try, and tries again.
    #[cold]
    fn fault(&self, cpu: CpuId, process: &Process<I>, va: VirtAddr, access: Access) -> bool {
        for _ in 0..MAX_FAULTS {
            let served = self.serve_fault(cpu, process, va, access);
            if let Err(signal) = served {
                self.counts.borrow_mut().count_signal(signal);
                self.bench.note(cpu, format_args!("{access} {va}: {signal}"));
                return false;
            }
            if let Ok(found) = self.sim().access(cpu, va, access, 1) {
                self.complete_access(cpu, process, va, access, found.pfn);
                return true;
            }
        }
        let message = format!("CPU {cpu}: {access} {va} still faults after {MAX_FAULTS} faults were served");
        self.bench.report(CheckFinding::Reported(message));
        false
    }

    /// Serves one fault.
    fn serve_fault(&self, cpu: CpuId, process: &Process<I>, va: VirtAddr, access: Access) -> Result<(), FaultSignal> {
        let refused = self.sim().refused_allocations();
        let fault = self.uses_spec.then(|| self.spec.borrow_mut().fault_begins(process.id(), va, access));
        let served = self.lab.on(cpu, |mm| mm.fault(&process.space, va, access));
        let served = served.map(drop).map_err(|error| fault_signal(&error));
        if let Some(fault) = fault {
            let mut spec = self.spec.borrow_mut();
            spec.set_memory_may_fail(self.sim().refused_allocations() > refused);
            let verdict = spec.fault_ends(self.cpu_step(cpu), fault, served);
            drop(spec);
            self.judge(verdict);
        }
        served
    }

    /// Loads or stores the cell in frame `pfn`; the reference memory checks the value.
    #[inline]
    pub(super) fn complete_access(&self, cpu: CpuId, process: &Process<I>, va: VirtAddr, access: Access, pfn: Pfn) {
        let cell = &self.sim().ram()[((pfn.base().raw() + va.page_offset()) / 8) as usize];
        let (step, id) = (self.cpu_step(cpu), process.id());
        if !self.uses_spec {
            if access == Access::Write {
                cell.store(self.fresh_value(), Ordering::Relaxed);
            }
            return self.counts.borrow_mut().count_access(access);
        }
        let verdict = match access {
            Access::Read => self.spec.borrow_mut().load(step, id, va, cell.load(Ordering::Relaxed)),
            Access::Write => self.store(cell, |value| self.spec.borrow_mut().store(step, id, va, value)),
            Access::Exec => self.spec.borrow_mut().fetch(step, id, va),
        };
        self.counts.borrow_mut().count_access(access);
        self.judge(verdict);
    }

    #[inline]
    fn store<T>(&self, cell: &AtomicU64, record: impl FnOnce(u64) -> T) -> T {
        let value = self.fresh_value();
        cell.store(value, Ordering::Relaxed);
        record(value)
    }

    /// Accesses random cells of a range of pages.
    ///
    /// It does not repeat a kind of access to a page that got a signal. After [`MAX_SIGNALS`]
    /// signals it accesses only pages that it could access before.
    pub(super) fn access_many(&self, cpu: CpuId, (start, pages): (VirtAddr, u64), times: u32, seed: u64) {
        let Some(process) = self.current_process(cpu) else { return };
        let mut random = Pcg64::seed_from_u64(seed);
        let pages = pages.min(128);
        let (mut refused, mut signals) = ([0u128; 3], 0);
        let mut reached: Vec<(u64, Access)> = Vec::new();
        for _ in 0..times {
            let bits = random.next_u64();
            let (page, access) = if signals < MAX_SIGNALS {
                (below(&mut random, pages), random_access(bits))
            } else if reached.is_empty() {
                return;
            } else {
                reached[below(&mut random, reached.len() as u64) as usize]
            };
            if refused[access as usize] >> page & 1 == 1 {
                continue;
            }
            let va = self.window.page_of_range(start, page).add((bits & 511) * 8);
            if !self.access(cpu, &process, va, access) {
                refused[access as usize] |= 1 << page;
                signals += 1;
            } else if signals < MAX_SIGNALS {
                reached.push((page, access));
            }
        }
    }
}

/// Mostly loads, nearly as many stores, few fetches.
fn random_access(bits: u64) -> Access {
    match bits >> 32 & 31 {
        0..17 => Access::Read,
        17..31 => Access::Write,
        _ => Access::Exec,
    }
}
