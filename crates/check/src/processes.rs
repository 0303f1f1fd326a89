//! Several processes run the schedules of one search.
//!
//! Foreign code may have statics, which would race between threads. A process that is forked has
//! its own copies, and the programs and the set-up of the check besides.
//!
//! ```text
//!   process 1:  schedule 16, 18, 20 …  ──record──▶ pipe ┐
//!   process 2:  schedule 17, 19, 21 …  ──record──▶ pipe ┴▶ this process reads 16, 17, 18 … in order
//! ```
//!
//! **INV-CHECK-PROCESSES** A search has the same result in any number of processes: the same
//! finding in the same schedule, and the same counts. Otherwise a seed would not name a search.
//!
//! The schedules are a function of the seed and of the first few runs, which this process makes
//! before it forks; and it takes the records in the order of the schedules, so what it counts and
//! where it stops is as if it had made the runs itself. A process that ends early costs time only:
//! this one runs the rest of its schedules.
//!
//! Not guaranteed: that a forked process gets on if another thread of this process held a lock of
//! foreign code at the fork. Run such tests with `--test-threads=1`.

use crate::search::Strategies;
use crate::testbench::{Attempt, RunDetail};
use host::{ChildProcess, end_process, fork};
use pagewright_model::{Antecedent, Tally};
use pagewright_sim::explore::Chooser;
use std::io::{self, BufReader, BufWriter, PipeReader, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a search counts of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunRecord {
    pub(crate) steps: u32,
    pub(crate) trace: u64,
    pub(crate) pointer_stores: u64,
    pub(crate) found: bool,
    pub(crate) tally: Tally,
}

impl RunRecord {
    /// The numbers before the tally.
    const HEAD: usize = 4;
    const BYTES: usize = (Self::HEAD + Antecedent::COUNT) * 8;

    pub(crate) fn of(run: &Attempt) -> Self {
        let (steps, trace, tally) = (run.report.steps, run.report.trace, run.tally.clone());
        Self { steps, trace, pointer_stores: run.pointer_stores, found: !run.findings.is_empty(), tally }
    }

    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let head = [u64::from(self.steps), self.trace, self.pointer_stores, u64::from(self.found)];
        let counts = self.tally.iter().map(|(_, count)| count);
        head.into_iter().chain(counts).try_for_each(|number| to.write_all(&number.to_le_bytes()))
    }

    fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut bytes = [0; Self::BYTES];
        from.read_exact(&mut bytes)?;
        let (numbers, _) = bytes.as_chunks::<8>();
        let mut numbers = numbers.iter().map(|number| u64::from_le_bytes(*number));
        let mut next = || numbers.next().unwrap_or_default();
        let (steps, trace, pointer_stores, found) = (next() as u32, next(), next(), next() != 0);
        Ok(Self { steps, trace, pointer_stores, found, tally: Antecedent::ALL.iter().copied().zip(numbers).collect() })
    }
}

/// Processes that run schedules.
pub(crate) struct Processes {
    /// In the order of their next schedules.
    children: Vec<(ChildProcess, BufReader<PipeReader>)>,
}

impl Processes {
    /// Forks `count` processes, which run the schedules from that of `strategies` to `end`.
    ///
    /// # Errors
    /// When the host refuses.
    pub(crate) fn start(
        count: u32,
        strategies: &Strategies,
        end: u32,
        attempt: &mut dyn FnMut(&mut dyn Chooser, RunDetail) -> Attempt,
    ) -> io::Result<Self> {
        let next = strategies.next_index();
        let mut processes = Self { children: Vec::new() };
        for number in 0..count {
            let (reader, writer) = io::pipe()?;
            match fork()? {
                None => {
                    let mut own = strategies.clone();
                    let mut run = || -> io::Result<()> {
                        let mut to = BufWriter::new(&writer);
                        for index in next..end {
                            let strategy = own.next();
                            if (index - next) % count == number {
                                let record = RunRecord::of(&attempt(&mut *strategy.chooser(), RunDetail::Quick));
                                record.write(&mut to)?;
                                if record.found {
                                    break;
                                }
                            }
                        }
                        to.flush()
                    };
                    // What goes wrong goes wrong again in the process that reads.
                    let _ = catch_unwind(AssertUnwindSafe(&mut run));
                    end_process();
                }
                Some(child) => processes.children.push((child, BufReader::new(reader))),
            }
        }
        Ok(processes)
    }

    /// The record of the next schedule; `None` if its process has ended.
    pub(crate) fn next_record(&mut self) -> Option<RunRecord> {
        let (_, from) = self.children.first_mut()?;
        let record = RunRecord::read(from).ok();
        self.children.rotate_left(1);
        record
    }
}

#[cfg(unix)]
mod host {
    use nix::sys::signal::{Signal, kill, raise};
    use nix::sys::wait::waitpid;
    use nix::unistd::Pid;
    use std::io;

    /// A forked process, which ends when this is dropped.
    pub(super) struct ChildProcess(Pid);

    impl Drop for ChildProcess {
        fn drop(&mut self) {
            let _ = kill(self.0, Signal::SIGKILL);
            let _ = waitpid(self.0, None);
        }
    }

    /// Forks this process; `None` in the child.
    pub(super) fn fork() -> io::Result<Option<ChildProcess>> {
        Ok(match fork::fork()? {
            fork::Fork::Child => None,
            fork::Fork::Parent(child) => Some(ChildProcess(Pid::from_raw(child))),
        })
    }

    /// Ends this process without the clean-up that its parent does, too.
    pub(super) fn end_process() -> ! {
        let _ = raise(Signal::SIGKILL);
        unreachable!("SIGKILL cannot be ignored")
    }
}

#[cfg(not(unix))]
mod host {
    use std::io;

    /// There is none: this host does not fork.
    pub(super) enum ChildProcess {}

    pub(super) fn fork() -> io::Result<Option<ChildProcess>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn end_process() -> ! {
        std::process::abort()
    }
}
