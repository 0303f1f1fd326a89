//! Linux and ours in step: each operation on both sides, and what they saw compared.

use super::cast::Cast;
use super::linux::Linux;
use super::meant::{self, Past, Unlike, left_by};
use super::ours::Ours;
use super::seen::Seen;
use super::{AgainstError, Compared, Difference, maps};
use crate::random::{Mode, Operation, Program, Syscall, Window};
use pagewright_model::spec::ExclusiveCall;
use pagewright_types::{Access, Errno, PAGE_SIZE};

/// Both sides.
pub(super) struct Pair {
    linux: Linux,
    ours: Ours,
    cast: Cast,
    stores: u64,
    /// Whether the program can't go on, because the two sides are left in a state that is not the
    /// same.
    cut_short: bool,
    /// What the program has done that makes a difference later.
    past: Past,
    done: Compared,
}

/// What both sides saw.
pub(super) struct Answers {
    pub(super) linux: Seen,
    pub(super) ours: Seen,
}

impl Pair {
    pub(super) fn start() -> Result<Self, AgainstError> {
        let linux = Linux::start()?;
        let ours = Ours::start(linux.host())?;
        let done = Compared { lacks: linux.lacks().to_vec(), ..Compared::default() };
        Ok(Self { linux, ours, cast: Cast::new(), stores: 0, cut_short: false, past: Past::default(), done })
    }

    /// What was compared.
    pub(super) fn done(self) -> Compared {
        self.done
    }

    pub(super) fn operations(&self) -> u64 {
        self.done.operations
    }

    pub(super) fn programs(&self) -> u64 {
        self.done.programs
    }

    pub(super) fn begin(&mut self) -> Result<(), AgainstError> {
        self.cast = Cast::new();
        (self.cut_short, self.past) = (false, Past::default());
        self.linux.begin()?;
        self.ours.begin()
    }

    /// Ends what is left on both sides, and says what is not given back here.
    pub(super) fn finish(&mut self) -> Result<Option<String>, AgainstError> {
        self.linux.finish()?;
        Ok(self.ours.finish())
    }

    /// Runs a program on both sides, up to the first difference.
    pub(super) fn run(&mut self, program: &Program) -> Result<Option<Difference>, AgainstError> {
        self.begin()?;
        let (calm, others) = program.steps();
        let mut difference = None;
        for step in calm.iter().chain(&others) {
            difference = self.step(step.operation)?;
            if difference.is_some() || self.cut_short {
                break;
            }
        }
        if self.cut_short {
            self.done.cut_short += 1;
        } else if difference.is_none() {
            difference = self.look_everywhere(program.seed)?;
        }
        let left = self.finish()?.map(Difference::Left);
        self.done.programs += 1;
        Ok(difference.or(left))
    }

    /// What every process shows in the end: its mappings, and a cell of each page.
    fn look_everywhere(&mut self, seed: u64) -> Result<Option<Difference>, AgainstError> {
        let window = Window::of(Mode::Linux);
        for place in 0..self.cast.live().len() {
            self.cast.switch(place);
            let (addr, pages) = window.with_neighbours();
            for call in [Syscall::Maps, Syscall::Usage, Syscall::Pages { addr, pages }] {
                let seen = self.compare(Operation::Syscall(call))?;
                if seen.is_some() {
                    return Ok(seen);
                }
            }
            for (index, page) in window.all().enumerate() {
                let va = page.add((seed.wrapping_add(index as u64) % 3) * 8);
                let seen = self.compare(Operation::Access { va, access: Access::Read })?;
                if seen.is_some() {
                    return Ok(seen);
                }
            }
        }
        Ok(None)
    }

    fn step(&mut self, operation: Operation) -> Result<Option<Difference>, AgainstError> {
        if let Operation::Switch { to } = operation {
            self.cast.switch(to);
            return Ok(None);
        }
        if self.is_possible(&operation)? {
            return self.compare(operation);
        }
        self.done.left_out += 1;
        Ok(None)
    }

    /// Whether an operation can be compared.
    fn is_possible(&mut self, operation: &Operation) -> Result<bool, AgainstError> {
        match operation {
            Operation::Fork => {
                let alike = self.are_cut_alike((0, u64::MAX))?;
                self.past.forks(alike);
                Ok(self.cast.may_fork())
            }
            Operation::Exit { .. } => Ok(self.cast.may_exit()),
            Operation::Syscall(call) if self.done.lacks.iter().any(|lack| lack.is_needed_by(call)) => Ok(false),
            Operation::Syscall(call) if !self.past.allows(call) => Ok(false),
            Operation::Syscall(Syscall::Protect { prot, .. }) if prot & meant::PROT_GROWSDOWN != 0 => {
                self.are_cut_alike((0, u64::MAX))
            }
            Operation::Protect { addr, len, .. } | Operation::Syscall(Syscall::Protect { addr, len, .. })
                if self.past.limits_data() =>
            {
                self.are_cut_alike((addr.raw(), addr.raw().saturating_add(*len)))
            }
            // It may store its answer where it asks, and asks mapping by mapping.
            Operation::Syscall(Syscall::ResidentInto { addr, len, .. }) => {
                self.are_cut_alike((addr.raw(), addr.raw().saturating_add(*len)))
            }
            // Whether two mappings are one matters to no other call.
            Operation::Syscall(Syscall::Exclusive(ExclusiveCall::Remap { addr, old_len, .. })) => {
                let end = addr.raw().saturating_add(*old_len).saturating_add(PAGE_SIZE);
                self.are_cut_alike((addr.raw(), end))
            }
            Operation::Switch { .. }
            | Operation::Lazy
            | Operation::Kernel(_)
            | Operation::Starve { .. }
            | Operation::Roam { .. } => Ok(false),
            Operation::Syscall(_)
            | Operation::Map { .. }
            | Operation::Unmap { .. }
            | Operation::Protect { .. }
            | Operation::DontNeed { .. }
            | Operation::Break { .. }
            | Operation::Truncate { .. }
            | Operation::Access { .. } => Ok(true),
        }
    }

    /// Whether the running process's mappings have the same borders on both sides, from `start` to
    /// `end`.
    fn are_cut_alike(&mut self, part: (u64, u64)) -> Result<bool, AgainstError> {
        let (process, maps) = (self.cast.running(), Operation::Syscall(Syscall::Maps));
        let linux = self.linux.call(process, &maps, 0, &[])?;
        let ours = self.ours.call(process, &maps, 0, &[]);
        let (Seen::Maps(linux), Seen::Maps(ours)) = (linux, ours) else { unreachable!("both show mappings") };
        Ok(maps::are_cut_alike(&linux, &ours, part))
    }

    /// Does an operation on both sides, as far as it goes: the processes are those that there are
    /// afterwards.
    pub(super) fn answers(&mut self, operation: Operation) -> Result<Answers, AgainstError> {
        if let Operation::Switch { to } = operation {
            self.cast.switch(to);
            return Ok(Answers { linux: Seen::Done, ours: Seen::Done });
        }
        let process = self.cast.running();
        // Unique, and a breakpoint if it is run.
        self.stores += 1;
        let value = self.stores << 8 | 0xcc;
        if let Operation::Access { va, access } = operation {
            let linux = self.linux.access(process, va, access, value)?;
            return Ok(Answers { linux, ours: self.ours.access(process, va, access, value) });
        }
        if let Operation::Fork = operation {
            let answers = Answers { linux: self.linux.fork_process(process)?, ours: self.ours.fork_process(process) };
            if (&answers.linux, &answers.ours) == (&Seen::Done, &Seen::Done) {
                self.cast.forked();
            }
            return Ok(answers);
        }
        if let Operation::Exit { .. } = operation {
            self.cast.exited();
            return Ok(Answers { linux: self.linux.exit_process(process)?, ours: self.ours.exit_process(process) });
        }
        let live = self.cast.live();
        let linux = self.linux.call(process, &operation, value, live)?;
        Ok(Answers { linux, ours: self.ours.call(process, &operation, value, live) })
    }

    /// Whether what both saw is the same, as far as it is to be.
    fn agree(&self, operation: &Operation, answers: &Answers) -> bool {
        let residence = matches!(operation, Operation::Syscall(Syscall::Exclusive(ExclusiveCall::Resident { .. })));
        match (&answers.linux, &answers.ours) {
            (Seen::Maps(linux), Seen::Maps(ours)) => maps::agree(linux, ours, self.past.cuts_unlike()),
            (Seen::Usage(linux), Seen::Usage(ours)) => linux.agrees(ours, self.past.looked()),
            (Seen::Pages(_), Seen::Pages(_)) if self.past.hides_residence() || !self.past.looked().files => true,
            (Seen::Bytes(linux, _), Seen::Bytes(ours, _)) if residence && self.past.hides_residence() => linux == ours,
            (linux, ours) => linux == ours,
        }
    }

    /// Does an operation on both sides, compares what they saw, and makes alike what the call left
    /// unlike.
    fn compare(&mut self, operation: Operation) -> Result<Option<Difference>, AgainstError> {
        let seen = match self.compare_one(operation)? {
            Ok(seen) => seen,
            Err(difference) => return Ok(Some(difference)),
        };
        match left_by(&operation, &seen) {
            None => {}
            Some(Unlike::Unmapped(addr, len)) => match self.compare_one(Operation::Unmap { addr, len })? {
                // A part of it is sealed, so nothing could be unmapped, and Linux may have unmapped
                // other parts before.
                Ok(seen) => self.cut_short |= seen == Seen::Failed(Errno::EPERM.number()),
                Err(difference) => return Ok(Some(difference)),
            },
            Some(Unlike::Shorter) => self.cut_short = true,
        }
        Ok(None)
    }

    /// Does an operation on both sides; what they saw, or how that differs.
    fn compare_one(&mut self, operation: Operation) -> Result<Result<Seen, Difference>, AgainstError> {
        let process = self.cast.running();
        let answers = self.answers(operation)?;
        self.done.count(&operation, &answers.linux);
        let splices = matches!(operation, Operation::Syscall(Syscall::Splice { .. }));
        if splices && answers.linux != answers.ours && self.past.hides_presence() {
            // What is there can be had whatever its mapping allows: the two pipes are not the same.
            self.cut_short = true;
            return Ok(Ok(answers.linux));
        }
        if !self.agree(&operation, &answers) {
            let Answers { linux, ours } = answers;
            return Ok(Err(Difference::Seen { operation, process, linux, ours }));
        }
        self.past.remember(&operation, &answers.linux);
        Ok(Ok(answers.linux))
    }

    /// Our side fetches as a processor does that asks for the right to execute first.
    pub(super) fn fetch_plainly(&mut self) {
        self.ours.fetch_plainly();
    }
}

impl Compared {
    fn count(&mut self, operation: &Operation, seen: &Seen) {
        self.operations += 1;
        if let Operation::Access { access, .. } = operation {
            match seen {
                Seen::Signal(signal) => *self.signals.entry(*signal).or_default() += 1,
                Seen::Value(_)
                | Seen::Failed(_)
                | Seen::Bytes(..)
                | Seen::Maps(_)
                | Seen::Usage(_)
                | Seen::Pages(_)
                | Seen::Done => {
                    self.accesses[*access as usize] += 1;
                }
            }
        } else {
            *self.calls.entry((operation.name(), seen.errno())).or_default() += 1;
        }
    }
}
