//! What threads and processes used: CPU time, faults, switches (`struct rusage`).
//!
//! A thread notes what it uses ([`Thread::noted`]), and [`Scheduler::account`] adds that to the
//! thread and to its process, at each tick and when the thread leaves its CPU.
//!
//! Not guaranteed: a split of CPU time between user mode and kernel better than ticks measure it;
//! shared and swapped sizes, which Linux does not count either; blocks of files, which are in
//! memory.

use crate::memory::mm;
use crate::task::{Scheduler, TaskId, Thread};
use pagewright_hal::time;
use pagewright_mm::fault::FaultCounts;

const NS: u64 = 1_000_000_000;

/// What a thread or a process used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// CPU time in ns.
    pub(crate) cpu_ns: u64,
    /// The ticks that met it in user mode and in the kernel.
    user_ticks: u64,
    kernel_ticks: u64,
    minor_faults: u64,
    major_faults: u64,
    /// How often a thread left its CPU because it waited, and because it was preempted.
    pub(crate) waited: u64,
    pub(crate) preempted: u64,
    /// The largest resident set in bytes, of spaces that have ended.
    peak_rss: u64,
}

/// Until when what a thread used on its CPU is accounted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accounted {
    ns: u64,
    /// The faults of the CPU.
    faults: FaultCounts,
}

impl Usage {
    /// CPU time in user mode and in the kernel, split as the ticks met it (`cputime_adjust`).
    pub(crate) fn user_and_kernel_ns(&self) -> (u64, u64) {
        let ticks = self.user_ticks + self.kernel_ticks;
        let kernel = u128::from(self.cpu_ns) * u128::from(self.kernel_ticks) / u128::from(ticks.max(1));
        (self.cpu_ns - kernel as u64, kernel as u64)
    }

    /// Adds what another thread or process used.
    pub(crate) fn add(&mut self, other: &Self) {
        self.cpu_ns += other.cpu_ns;
        self.user_ticks += other.user_ticks;
        self.kernel_ticks += other.kernel_ticks;
        self.minor_faults += other.minor_faults;
        self.major_faults += other.major_faults;
        self.waited += other.waited;
        self.preempted += other.preempted;
        self.peak_rss = self.peak_rss.max(other.peak_rss);
    }

    /// Notes the peak of an address space that ends, or that is still there.
    pub(crate) fn note_peak(&mut self, bytes: u64) {
        self.peak_rss = self.peak_rss.max(bytes);
    }

    /// `struct rusage`.
    pub(crate) fn bytes(&self) -> [u8; 144] {
        let (user, kernel) = self.user_and_kernel_ns();
        let time = |ns: u64| [ns / NS, ns % NS / 1000];
        let [user, kernel] = [time(user), time(kernel)];
        let mut bytes = [0; 144];
        let words = [
            (0, user[0]),
            (8, user[1]),
            (16, kernel[0]),
            (24, kernel[1]),
            (32, self.peak_rss >> 10),
            (64, self.minor_faults),
            (72, self.major_faults),
            (128, self.waited),
            (136, self.preempted),
        ];
        for (at, word) in words {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

impl Accounted {
    fn now() -> Self {
        Self { ns: time::now_ns(), faults: mm().faults_of_this_cpu() }
    }
}

impl Thread {
    /// Begins a slice on this CPU, whose ticks and faults so far were not this thread's.
    pub(crate) fn begin_slice(&mut self) {
        time::take_ticks();
        self.accounted = Accounted::now();
    }
}

impl Scheduler {
    /// Adds to a thread and to its process what it used since the last time.
    ///
    /// The thread runs on this CPU. Its timers of CPU time expire.
    pub(crate) fn account(&mut self, thread: &mut Thread) {
        let (now, then) = (Accounted::now(), thread.accounted);
        let mut more = core::mem::take(&mut thread.noted);
        (more.user_ticks, more.kernel_ticks) = time::take_ticks();
        more.cpu_ns = now.ns.saturating_sub(then.ns);
        more.minor_faults = now.faults.minor - then.faults.minor;
        more.major_faults = now.faults.major - then.faults.major;
        thread.accounted = now;
        thread.usage.add(&more);
        self.process(thread.process).usage.add(&more);
        self.expire_cpu_timers(thread);
    }

    /// What a process used, with the peak of its present address space.
    pub(crate) fn usage_of(&mut self, process: TaskId) -> Usage {
        let process = self.process(process);
        let mut usage = process.usage;
        if let Some(space) = process.space.upgrade() {
            usage.note_peak(space.0.rss().peak_bytes());
        }
        usage
    }
}
