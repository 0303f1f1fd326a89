//! Runs each operation on both sides and compares the observations.

use super::known_differences::{self, FailedCallEffect, History, failed_call_effect};
use super::linux::Linux;
use super::observation::Observation;
use super::ours::Ours;
use super::process_list::ProcessList;
use super::{AgainstError, LinuxComparison, LinuxDifference, maps};
use crate::random::{Operation, RandomProgram, Syscall, Window};
use pagewright_model::spec::{ExclusiveCall, MmapPlacement, RangeCall};
use pagewright_types::{Access, Errno, Level, PAGE_SIZE};

/// Both sides.
pub(super) struct Pair {
    linux: Linux,
    ours: Ours,
    processes: ProcessList,
    store_count: u64,
    /// Whether forks share page tables on our side.
    shares: bool,
    /// Whether the program must end early, because the states of the two sides differ.
    cut_short: bool,
    /// What the program has done that affects later observations on one side only.
    history: History,
    counts: LinuxComparison,
}

/// The observations of both sides.
pub(super) struct BothResults {
    pub(super) linux: Observation,
    pub(super) ours: Observation,
}

impl Pair {
    pub(super) fn start() -> Result<Self, AgainstError> {
        let linux = Linux::start()?;
        let ours = Ours::start(linux.host())?;
        let counts = LinuxComparison { missing: linux.missing().to_vec(), ..LinuxComparison::default() };
        let (processes, history) = (ProcessList::new(), History::default());
        Ok(Self { linux, ours, processes, store_count: 0, shares: true, cut_short: false, history, counts })
    }

    /// The counts of everything that was compared.
    pub(super) fn into_counts(self) -> LinuxComparison {
        self.counts
    }

    pub(super) fn operations(&self) -> u64 {
        self.counts.operations
    }

    pub(super) fn programs(&self) -> u64 {
        self.counts.programs
    }

    /// Starts the first process of a program on both sides.
    pub(super) fn begin(&mut self) -> Result<(), AgainstError> {
        self.processes = ProcessList::new();
        (self.cut_short, self.history) = (false, History::of(self.shares));
        self.linux.begin()?;
        self.ours.begin(self.shares)
    }

    /// Ends the program's processes on both sides; returns what our side leaks.
    pub(super) fn finish(&mut self) -> Result<Option<String>, AgainstError> {
        self.linux.finish()?;
        Ok(self.ours.finish())
    }

    /// Runs a program on both sides, up to the first difference.
    pub(super) fn run(&mut self, program: &RandomProgram) -> Result<Option<LinuxDifference>, AgainstError> {
        self.begin()?;
        let (setup, body) = program.steps();
        let mut difference = None;
        for step in setup.iter().chain(&body) {
            difference = self.step(step.operation)?;
            if difference.is_some() || self.cut_short {
                break;
            }
        }
        if self.cut_short {
            self.counts.cut_short += 1;
        } else if difference.is_none() {
            difference = self.compare_final_state(program)?;
        }
        let leak = self.finish()?.map(LinuxDifference::Leak);
        self.counts.programs += 1;
        Ok(difference.or(leak))
    }

    /// Compares what procfs shows of each process, and a cell of each page.
    fn compare_final_state(&mut self, program: &RandomProgram) -> Result<Option<LinuxDifference>, AgainstError> {
        let window = Window::of(program.shape);
        for index in 0..self.processes.live().len() {
            self.processes.switch(index);
            let (addr, pages) = window.with_neighbours();
            for call in [Syscall::ShowMaps, Syscall::ShowSmaps, Syscall::ShowPagemap { addr, pages }] {
                let difference = self.compare(Operation::Syscall(call))?;
                if difference.is_some() {
                    return Ok(difference);
                }
            }
            for (index, page) in window.all_pages().enumerate() {
                let va = page.add((program.seed.wrapping_add(index as u64) % 3) * 8);
                let difference = self.compare(Operation::Access { va, access: Access::Read })?;
                if difference.is_some() {
                    return Ok(difference);
                }
            }
        }
        Ok(None)
    }

    fn step(&mut self, operation: Operation) -> Result<Option<LinuxDifference>, AgainstError> {
        if let Operation::Switch { to } = operation {
            self.processes.switch(to);
            return Ok(None);
        }
        if self.can_compare(&operation)? {
            return self.compare(operation);
        }
        self.counts.skipped += 1;
        Ok(None)
    }

    /// Whether an operation can be compared.
    fn can_compare(&mut self, operation: &Operation) -> Result<bool, AgainstError> {
        match operation {
            Operation::Fork => {
                let same_borders = self.have_same_borders((0, u64::MAX))?;
                self.history.record_fork(same_borders);
                Ok(self.processes.may_fork())
            }
            Operation::Exit { .. } => Ok(self.processes.may_exit()),
            _ if is_aligned_by_kernel(operation) => Ok(false),
            Operation::Syscall(call) if self.counts.missing.iter().any(|feature| feature.is_needed_by(call)) => {
                Ok(false)
            }
            Operation::Syscall(call) if !self.history.can_compare(call) => Ok(false),
            Operation::Syscall(Syscall::Mprotect { prot, .. }) if prot & known_differences::PROT_GROWSDOWN != 0 => {
                self.have_same_borders((0, u64::MAX))
            }
            Operation::Range(RangeCall::Mprotect { addr, len, .. })
            | Operation::Syscall(Syscall::Mprotect { addr, len, .. })
                if self.history.limits_data() =>
            {
                self.have_same_borders((addr.raw(), addr.raw().saturating_add(*len)))
            }
            // It reads VMA by VMA, and may store its vector to pages that it has yet to read.
            Operation::Syscall(Syscall::MincoreInto { addr, len, .. }) => {
                self.have_same_borders((addr.raw(), addr.raw().saturating_add(*len)))
            }
            // VMA borders matter to no other call.
            Operation::Syscall(Syscall::Exclusive(ExclusiveCall::Remap { addr, old_len, .. })) => {
                let end = addr.raw().saturating_add(*old_len).saturating_add(PAGE_SIZE);
                self.have_same_borders((addr.raw(), end))
            }
            Operation::Switch { .. }
            | Operation::RunKernelThread
            | Operation::Kernel(_)
            | Operation::FailAllocation { .. }
            | Operation::AccessMany { .. } => Ok(false),
            Operation::Syscall(_)
            | Operation::Mmap { .. }
            | Operation::Range(_)
            | Operation::Truncate { .. }
            | Operation::Access { .. } => Ok(true),
        }
    }

    /// Whether the running process has the same VMA borders on both sides, from start to end.
    fn have_same_borders(&mut self, part: (u64, u64)) -> Result<bool, AgainstError> {
        let (process, maps) = (self.processes.running(), Operation::Syscall(Syscall::ShowMaps));
        let linux = self.linux.call(process, &maps, 0, &[])?;
        let ours = self.ours.call(process, &maps, 0, &[]);
        let (Observation::Maps(linux), Observation::Maps(ours)) = (linux, ours) else {
            unreachable!("both show mappings")
        };
        Ok(maps::have_same_borders(&linux, &ours, part))
    }

    /// Runs an operation on both sides.
    pub(super) fn run_on_both(&mut self, operation: Operation) -> Result<BothResults, AgainstError> {
        if let Operation::Switch { to } = operation {
            self.processes.switch(to);
            return Ok(BothResults { linux: Observation::Done, ours: Observation::Done });
        }
        let process = self.processes.running();
        // Unique, and a breakpoint (`int3`) if it is executed.
        self.store_count += 1;
        let value = self.store_count << 8 | 0xcc;
        if let Operation::Access { va, access } = operation {
            let linux = self.linux.access(process, va, access, value)?;
            return Ok(BothResults { linux, ours: self.ours.access(process, va, access, value) });
        }
        if let Operation::Fork = operation {
            let results =
                BothResults { linux: self.linux.fork_process(process)?, ours: self.ours.fork_process(process) };
            if (&results.linux, &results.ours) == (&Observation::Done, &Observation::Done) {
                self.processes.add_child();
            }
            return Ok(results);
        }
        if let Operation::Exit { .. } = operation {
            self.processes.remove_running();
            return Ok(BothResults { linux: self.linux.exit_process(process)?, ours: self.ours.exit_process(process) });
        }
        let live = self.processes.live();
        let linux = self.linux.call(process, &operation, value, live)?;
        Ok(BothResults { linux, ours: self.ours.call(process, &operation, value, live) })
    }

    /// Whether the observations are the same, except for known differences.
    fn agree(&self, operation: &Operation, results: &BothResults) -> bool {
        let residence = matches!(operation, Operation::Syscall(Syscall::Exclusive(ExclusiveCall::Resident { .. })));
        let reads_pipe = matches!(operation, Operation::Syscall(Syscall::ReadPipe));
        match (&results.linux, &results.ours) {
            (Observation::Maps(linux), Observation::Maps(ours)) => {
                maps::agree(linux, ours, self.history.borders_may_differ())
            }
            (Observation::Usage(linux), Observation::Usage(ours)) => {
                linux.agrees(ours, self.history.compared_figures())
            }
            (Observation::Pages(_), Observation::Pages(_))
                if self.history.residence_may_differ() || !self.history.compared_figures().files =>
            {
                true
            }
            (Observation::Bytes(linux, _), Observation::Bytes(ours, _))
                if residence && self.history.residence_may_differ() || reads_pipe && self.history.pipe_may_differ() =>
            {
                linux == ours
            }
            (linux, ours) => linux == ours,
        }
    }

    /// Runs an operation on both sides and compares; undoes the effect of a call that failed.
    fn compare(&mut self, operation: Operation) -> Result<Option<LinuxDifference>, AgainstError> {
        let observed = match self.compare_one(operation)? {
            Ok(observed) => observed,
            Err(difference) => return Ok(Some(difference)),
        };
        match failed_call_effect(&operation, &observed) {
            None => {}
            Some(FailedCallEffect::Unmapped(addr, len)) => {
                match self.compare_one(Operation::Range(RangeCall::Munmap { addr, len }))? {
                    // A part is sealed, so munmap has failed; but Linux may have unmapped other
                    // parts in the failed call.
                    Ok(observed) => self.cut_short |= observed == Observation::Failed(Errno::EPERM.number()),
                    Err(difference) => return Ok(Some(difference)),
                }
            }
            Some(FailedCallEffect::Shorter) => self.cut_short = true,
        }
        Ok(None)
    }

    /// Runs an operation on both sides; returns the observation, or the difference.
    fn compare_one(&mut self, operation: Operation) -> Result<Result<Observation, LinuxDifference>, AgainstError> {
        let process = self.processes.running();
        let before = match self.can_compare_faults(process, &operation) {
            true => Some(self.minor_faults(process)?),
            false => None,
        };
        let results = self.run_on_both(operation)?;
        self.counts.count(&operation, &results.linux);
        let splices = matches!(operation, Operation::Syscall(Syscall::Vmsplice { .. }));
        if splices && results.linux != results.ours && self.history.presence_may_differ() {
            // vmsplice takes a mapped page whatever its VMA allows, so the pipes may differ now.
            self.cut_short = true;
            return Ok(Ok(results.linux));
        }
        if !self.agree(&operation, &results) {
            let BothResults { linux, ours } = results;
            return Ok(Err(LinuxDifference::Result { operation, process, linux, ours }));
        }
        self.history.record(&operation, &results.linux);
        if let Some(before) = before
            && !self.history.faults_may_differ(&operation)
        {
            let after = self.minor_faults(process)?;
            let [linux, ours] = [0, 1].map(|side| Observation::Faults(after[side] - before[side]));
            if linux != ours {
                return Ok(Err(LinuxDifference::Result { operation, process, linux, ours }));
            }
            self.counts.faults_compared += 1;
        }
        Ok(Ok(results.linux))
    }

    /// Whether the minor faults of an operation can be compared.
    fn can_compare_faults(&mut self, process: usize, operation: &Operation) -> bool {
        !self.history.faults_may_differ(operation)
            && match operation {
                Operation::Access { va, .. } => self.ours.is_private_memory(process, *va),
                _ => true,
            }
    }

    /// The minor faults of both sides so far.
    fn minor_faults(&self, process: usize) -> Result<[u64; 2], AgainstError> {
        Ok([self.linux.minor_faults(process)?, self.ours.minor_faults()])
    }

    /// Makes forks of our side copy page tables, as Linux's do, in the programs that follow.
    pub(super) fn copy_page_tables(&mut self) {
        self.shares = false;
    }

    /// Makes our side check the right to execute before it faults a page in for a fetch.
    pub(super) fn fetch_plainly(&mut self) {
        self.ours.fetch_plainly();
    }
}

impl LinuxComparison {
    fn count(&mut self, operation: &Operation, observed: &Observation) {
        self.operations += 1;
        if let Operation::Access { access, .. } = operation {
            match observed {
                Observation::Signal(signal) => *self.signals.entry(*signal).or_default() += 1,
                Observation::Value(_)
                | Observation::Failed(_)
                | Observation::Bytes(..)
                | Observation::Maps(_)
                | Observation::Usage(_)
                | Observation::Pages(_)
                | Observation::Faults(_)
                | Observation::Done => {
                    self.accesses[*access as usize] += 1;
                }
            }
        } else {
            *self.calls.entry((operation.name(), observed.errno())).or_default() += 1;
        }
    }
}

/// Whether the kernel chooses the address of an operation's mapping, and aligns it for huge pages.
///
/// Both sides do. The distance of their addresses is no multiple of 2 MiB, so they leave different
/// gaps.
fn is_aligned_by_kernel(operation: &Operation) -> bool {
    let (maymove, fixed, map_fixed) = (1, 2, 0x10_0010);
    let len = match *operation {
        Operation::Mmap { place: MmapPlacement::Anywhere, len, .. } => len,
        Operation::Syscall(Syscall::Mmap { flags, len, .. }) if flags & map_fixed == 0 => len,
        Operation::Syscall(Syscall::Exclusive(ExclusiveCall::Remap { flags, new_len, .. }))
            if flags & (maymove | fixed) == maymove =>
        {
            new_len
        }
        _ => return false,
    };
    len > 0 && len.checked_next_multiple_of(PAGE_SIZE).is_some_and(|len| len.is_multiple_of(Level::PMD.span()))
}
