//! Threads and processes: the run queue, and the sleepers with their reasons.
//!
//! A [`Thread`] is owned by the CPU that runs it, by the run queue, or by the sleepers. Its process
//! and its signals, which other CPUs read while it runs, are in [`Scheduler`], under one lock.
//!
//! Protocol of sleeping: a call decides under the lock that it must wait, and returns the lock with
//! its reason ([`CallStop::Sleep`]). The CPU adds the thread to the sleepers before it releases the
//! lock. So a waker either comes before the decision or finds the sleeper. A signal, or the end of
//! the process, can arrive while the thread still runs and there is no sleeper to wake. A thread
//! with one pending does not sleep ([`Scheduler::put_to_sleep`]).
//!
//! Not guaranteed: fairness between processes. There is one run queue ([`crate::run_queue`]).

use crate::call::MessageProgress;
use crate::credentials::Credentials;
use crate::errno::Errno;
use crate::file::{DescriptorTable, FsContext, OpenFile};
use crate::memory::SpaceHandle;
use crate::pipe::PipeEnd;
use crate::process::{ExitStatus, Process};
use crate::run_queue::{RunQueue, Scheduling};
use crate::signal::{PendingSignals, SigActions, SignalCheck, SignalSet, count_stop};
use crate::usage::{Accounted, Usage};
pub(crate) use crate::wait_reason::{CallRestart, WaitReason};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;
use pagewright_hal::UserContext;
use pagewright_mm::user::FutexKey;
use pagewright_plant::plant;
use pagewright_types::VirtAddr;
use spin::{Mutex, MutexGuard};

/// The number of a thread, or of the process whose first thread has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId(pub(crate) u32);

/// The longest name of a thread in bytes (`TASK_COMM_LEN`, less the zero byte).
pub(crate) const NAME_MAX: usize = 15;

/// The first process, whose end powers the machine off.
pub(crate) const INIT: TaskId = TaskId(1);

/// How a woken thread continues its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// The call is made again.
    Again,
    /// The call returns this value.
    Return(u64),
    /// A signal is pending and the call would still wait.
    ///
    /// The call fails, or restarts after the handler if the call and the handler allow it.
    Interrupted { restart: CallRestart },
}

/// Why a system call does not return a value now.
pub(crate) enum CallStop {
    /// The call fails.
    Error(Errno),
    /// The call must wait.
    ///
    /// The lock under which it decided so is still held.
    Sleep {
        scheduler: SchedulerGuard,
        wait: WaitReason,
        /// In ns since boot.
        ///
        /// From then on, the call returns `at_deadline`.
        deadline: Option<u64>,
        at_deadline: u64,
    },
    /// The thread goes to the end of the run queue; then the call returns the value.
    Yield(u64),
    /// The registers already hold the result.
    Done,
    /// The thread ends.
    Exit(ExitStatus),
    /// The process ends.
    ExitProcess(ExitStatus),
}

impl<E: Into<Errno>> From<E> for CallStop {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// The result of a system call.
pub(crate) type SyscallResult = Result<u64, CallStop>;
/// The scheduler, locked.
pub(crate) type SchedulerGuard = MutexGuard<'static, Scheduler>;

/// One thread.
pub(crate) struct Thread {
    pub(crate) id: TaskId,
    /// The number that it was made with, which recordings use and `execve` does not change.
    pub(crate) first_id: TaskId,
    pub(crate) process: TaskId,
    pub(crate) context: UserContext,
    pub(crate) space: Arc<SpaceHandle>,
    pub(crate) files: Arc<Mutex<DescriptorTable>>,
    pub(crate) fs: Arc<Mutex<FsContext>>,
    pub(crate) actions: Arc<Mutex<SigActions>>,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) scheduling: Scheduling,
    /// Its memory policy while no CPU runs it (`set_mempolicy`).
    pub(crate) policy: pagewright_mm::policy::MemPolicy,
    /// The signals that it blocks.
    pub(crate) blocked: SignalSet,
    /// The mask to restore when a call with a temporary one ends (`saved_sigmask`).
    pub(crate) saved_blocked: Option<SignalSet>,
    /// Its last look for signals that found none.
    pub(crate) signal_check: SignalCheck,
    /// The alternate signal stack (`sigaltstack`): start and length.
    pub(crate) signal_stack: (u64, u64),
    /// The word that the end of the thread clears, and on which it wakes one waiter.
    pub(crate) clear_child_tid: VirtAddr,
    /// The word that gets the number of the thread before it first runs.
    pub(crate) set_child_tid: VirtAddr,
    /// The number and the first argument of the current call.
    pub(crate) call: (u64, u64),
    /// Bytes that the current call moved before it slept.
    pub(crate) bytes_moved: usize,
    /// What `sendmmsg` or `recvmmsg` did before it slept.
    pub(crate) messages: Option<MessageProgress>,
    /// The end of a FIFO that waits in `open` for the other one, and that one's opens before.
    pub(crate) opening: Option<(PipeEnd, u64)>,
    /// The words of a `futex_waitv` that sleeps.
    pub(crate) words: Vec<FutexKey>,
    /// How it continues after it slept.
    pub(crate) resume: Option<Resume>,
    /// The deadline of the current call, once it has slept.
    pub(crate) deadline: Option<u64>,
    /// What it used, and until when; what it used since then.
    pub(crate) usage: Usage,
    pub(crate) accounted: Accounted,
    pub(crate) noted: Usage,
}

impl Thread {
    /// The open file behind a descriptor, to be accessed (`fdget`).
    ///
    /// # Errors
    /// `EBADF`, also for a file that was opened with `O_PATH`.
    pub(crate) fn open_file(&self, number: u64) -> Result<Arc<OpenFile>, Errno> {
        let open = self.named_file(number)?;
        if open.is_path() { Err(Errno::EBADF) } else { Ok(open) }
    }

    /// The open file behind a descriptor, which may only name it (`fdget_raw`).
    pub(crate) fn named_file(&self, number: u64) -> Result<Arc<OpenFile>, Errno> {
        Ok(self.files.lock().get(number)?.open.clone())
    }

    /// The limit of descriptors of its process (`RLIMIT_NOFILE`).
    pub(crate) fn descriptor_limit(&self) -> u64 {
        // INV-KERNEL-DESCRIPTORS: every call that makes a descriptor asks here.
        plant!(DescriptorLimitIgnored; crate::file::NR_OPEN, scheduler().process(self.process).limits.descriptors())
    }

    /// Adds a descriptor at the lowest free number, and returns the number.
    ///
    /// The scheduler is not locked.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub(crate) fn add_descriptor(&self, open: &Arc<OpenFile>, close_on_exec: bool) -> Result<u64, Errno> {
        let limit = self.descriptor_limit();
        self.files.lock().add(open, close_on_exec, 0, limit)
    }

    /// The deadline of the current call, which waits for at most `timeout` ns after its first try.
    pub(crate) fn deadline_within(&self, timeout: Option<u64>, now: u64) -> Option<u64> {
        self.deadline.or(timeout.map(|timeout| now.saturating_add(timeout)))
    }
}

/// A thread that waits.
pub(crate) struct Sleeper {
    pub(crate) thread: Box<Thread>,
    pub(crate) wait: WaitReason,
    deadline: Option<u64>,
    at_deadline: u64,
}

/// The part of a thread that other CPUs read.
pub(crate) struct ThreadEntry {
    pub(crate) process: TaskId,
    /// The name that it chose (`PR_SET_NAME`).
    pub(crate) name: Option<String>,
    /// Signals sent to this thread (`tgkill`).
    pub(crate) pending: PendingSignals,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) scheduling: Scheduling,
    /// The head of the list of locks to release when it ends (`set_robust_list`); 0 for none.
    pub(crate) robust_list: VirtAddr,
    /// The lock that it got from an owner that ended, until it has stored its number there.
    pub(crate) inherited_lock: Option<FutexKey>,
}

/// The processes, the run queue and the sleepers.
pub(crate) struct Scheduler {
    pub(crate) processes: BTreeMap<TaskId, Process>,
    /// The threads that have not ended.
    pub(crate) threads: BTreeMap<TaskId, ThreadEntry>,
    pub(crate) queue: RunQueue,
    pub(crate) asleep: BTreeMap<TaskId, Sleeper>,
    /// The last number given to a thread.
    last_id: u32,
    /// When a timer of real time expires next, in ns since boot.
    pub(crate) next_timer: u64,
}

static SCHEDULER: Mutex<Scheduler> = Mutex::new(Scheduler {
    processes: BTreeMap::new(),
    threads: BTreeMap::new(),
    queue: RunQueue::new(),
    asleep: BTreeMap::new(),
    last_id: 0,
    next_timer: u64::MAX,
});

/// Locks the scheduler.
pub(crate) fn scheduler() -> SchedulerGuard {
    SCHEDULER.lock()
}

impl Scheduler {
    /// Chooses the number of a new thread: `wanted`, or one that no thread has had.
    ///
    /// # Errors
    /// `EEXIST` if a thread or a process has the number that is wanted.
    pub(crate) fn choose_id(&mut self, wanted: Option<TaskId>) -> Result<TaskId, Errno> {
        let is_taken = |id: &TaskId| self.threads.contains_key(id) || self.processes.contains_key(id);
        if let Some(wanted) = wanted {
            return if is_taken(&wanted) { Err(Errno::EEXIST) } else { Ok(wanted) };
        }
        let mut id = TaskId(self.last_id + 1);
        while is_taken(&id) {
            id.0 += 1;
        }
        self.last_id = id.0;
        Ok(id)
    }

    /// The process that a descriptor names, unless it was reaped.
    pub(crate) fn process_of(&self, handle: &Arc<TaskId>) -> Option<&Process> {
        self.processes.get(handle).filter(|process| Arc::ptr_eq(&process.handle, handle))
    }

    /// Adds a thread to the sleepers, unless a signal or the end of its process is pending.
    ///
    /// Linux checks that in `schedule` (`signal_pending_state`). No wait is without an end if the
    /// process is to end (`TASK_KILLABLE`).
    pub(crate) fn put_to_sleep(
        &mut self,
        mut thread: Box<Thread>,
        wait: WaitReason,
        deadline: Option<u64>,
        at_deadline: u64,
    ) {
        self.leave_cpu(&mut thread);
        // A wait that signals interrupt ends below.
        if !wait.is_interruptible()
            && wait != WaitReason::Stopped
            && let Some(signal) = self.pending_end(&thread)
        {
            self.end_process(thread.process, ExitStatus::Signal(signal));
        }
        let exits = plant!(EndNotSeenAtSleep; false, self.must_exit(&thread).is_some());
        let interrupted = wait.is_interruptible() && self.is_interrupted(&thread);
        if exits || plant!(SignalNotSeenAtSleep; false, interrupted) {
            thread.resume = Some(Resume::Interrupted { restart: wait.restart(deadline) });
            self.make_ready(thread);
        } else {
            let process = thread.process;
            self.asleep.insert(thread.id, Sleeper { thread, wait, deadline, at_deadline });
            self.complete_stop(process);
        }
    }

    /// Wakes at most `most` sleepers that `which` picks, and returns how many.
    pub(crate) fn wake(
        &mut self,
        most: usize,
        resume: Resume,
        mut which: impl FnMut(&Thread, WaitReason) -> bool,
    ) -> usize {
        self.wake_each(most, |sleeper| which(&sleeper.thread, sleeper.wait).then_some(resume))
    }

    /// Wakes at most `most` sleepers for which `resume_of` says how they continue.
    ///
    /// Returns how many.
    fn wake_each(&mut self, most: usize, mut resume_of: impl FnMut(&Sleeper) -> Option<Resume>) -> usize {
        let (mut woken, mut last) = (0, TaskId(0));
        while woken < most {
            let mut later = self.asleep.range((Bound::Excluded(last), Bound::Unbounded));
            let picked = later.find_map(|(id, sleeper)| Some((*id, resume_of(sleeper)?)));
            let Some((id, resume)) = picked else { break };
            self.wake_one(id, resume);
            (woken, last) = (woken + 1, id);
        }
        woken
    }

    /// Wakes at most `most` waiters of a word, and returns how many (`futex_wake`).
    ///
    /// The bit set of a waiter intersects `bitset`. A waiter of several words gets the index of
    /// this one.
    pub(crate) fn wake_futex(&mut self, key: FutexKey, bitset: u32, most: usize) -> usize {
        self.wake_each(most, |sleeper| {
            let index = match sleeper.wait {
                WaitReason::Futex(word, mine) => (word == key && mine & bitset != 0).then_some(0),
                // INV-KERNEL-WORDS.
                WaitReason::FutexAny => {
                    let index = sleeper.thread.words.iter().position(|word| *word == key);
                    plant!(WordIndexLost; index.map(|_| 0), index)
                }
                _ => None,
            };
            index.map(|index| Resume::Return(index as u64))
        })
    }

    /// Wakes one interruptible sleeper that `which` picks, for a signal.
    ///
    /// As in Linux, the sleeper first checks whether its wait is over: a thread in `wait4` gets its
    /// child even though `SIGCHLD` arrived too.
    pub(crate) fn interrupt(&mut self, which: impl Fn(&Thread) -> bool) {
        self.wake(1, Resume::Again, |thread, wait| wait.is_interruptible() && which(thread));
    }

    /// Wakes a thread, if it waits.
    pub(crate) fn wake_one(&mut self, id: TaskId, resume: Resume) {
        if let Some(mut sleeper) = self.asleep.remove(&id) {
            sleeper.thread.resume = Some(resume);
            self.make_ready(sleeper.thread);
        }
    }

    /// The name of a thread, or of the process whose first thread has this number.
    ///
    /// It is that of its program unless the thread chose another one.
    pub(crate) fn name_of(&self, id: TaskId) -> String {
        let entry = self.threads.get(&id);
        let chosen = entry.and_then(|entry| entry.name.clone());
        let process = self.processes.get(&entry.map_or(id, |entry| entry.process));
        let of_program = || process.map(|process| process.name().chars().take(NAME_MAX).collect()).unwrap_or_default();
        chosen.unwrap_or_else(of_program)
    }

    /// Whether `which` picks a sleeper.
    pub(crate) fn any_sleeper(&self, which: impl Fn(&Thread) -> bool) -> bool {
        self.asleep.values().any(|sleeper| which(&sleeper.thread))
    }

    /// Changes how a sleeper is scheduled, if there is one with this number.
    pub(crate) fn set_scheduling_of_sleeper(&mut self, id: TaskId, new: Scheduling) {
        if let Some(sleeper) = self.asleep.get_mut(&id) {
            sleeper.thread.scheduling = new;
        }
    }

    /// The credentials of a thread, or of a process.
    pub(crate) fn credentials_of(&self, id: TaskId) -> Option<Arc<Credentials>> {
        let of_thread = self.threads.get(&id).map(|entry| &entry.credentials);
        of_thread.or_else(|| self.processes.get(&id).map(|process| &process.credentials)).cloned()
    }

    /// What the sleepers wait for.
    pub(crate) fn waits(&self) -> impl Iterator<Item = WaitReason> {
        self.asleep.values().map(|sleeper| sleeper.wait)
    }

    /// Moves at most `most` sleepers from one word to another, and returns how many.
    pub(crate) fn requeue(&mut self, from: FutexKey, to: FutexKey, most: usize) -> usize {
        let mut moved = 0;
        for sleeper in self.asleep.values_mut() {
            let word = match &mut sleeper.wait {
                WaitReason::Futex(key, _) => (*key == from).then_some(key),
                WaitReason::FutexAny => sleeper.thread.words.iter_mut().find(|word| **word == from),
                _ => None,
            };
            if let Some(word) = word.filter(|_| moved < most) {
                *word = to;
                moved += 1;
            }
        }
        moved
    }

    /// Expires timers, and wakes the sleepers whose deadline has passed.
    pub(crate) fn wake_expired(&mut self, now: u64) {
        self.expire_timers(now);
        self.wake_each(usize::MAX, |sleeper| {
            sleeper.deadline.filter(|deadline| *deadline <= now)?;
            // `poll` stores an empty result for each descriptor; a transfer returns what it has
            // moved.
            Some(match sleeper.wait {
                WaitReason::Poll | WaitReason::Transfer => Resume::Again,
                _ => Resume::Return(sleeper.at_deadline),
            })
        });
    }

    /// Wakes every thread that waits for a pipe, a counter or a socket, or polls.
    pub(crate) fn wake_transfers(&mut self) {
        self.wake(usize::MAX, Resume::Again, |_, wait| matches!(wait, WaitReason::Transfer | WaitReason::Poll));
    }

    /// The process with this number.
    ///
    /// # Panics
    /// When it has been reaped. A process with a running thread has not.
    pub(crate) fn process(&mut self, id: TaskId) -> &mut Process {
        match self.processes.get_mut(&id) {
            Some(process) => process,
            None => panic!("process {} has been reaped", id.0),
        }
    }

    /// Tells every thread of a process to end.
    pub(crate) fn end_process(&mut self, id: TaskId, end: ExitStatus) {
        let process = self.process(id);
        if process.group_exit.is_none() {
            process.group_exit = Some(end);
            count_stop();
        }
        self.wake(usize::MAX, Resume::Again, |thread, _| thread.process == id);
        // Threads that run on other CPUs notice at their next interrupt, at the latest the tick.
    }
}

/// Whether a thread may be in the run queue.
///
/// Does not wait for the lock: interrupts may be disabled here, and its owner may wait for this
/// CPU.
pub(crate) fn may_be_ready() -> bool {
    SCHEDULER.try_lock().is_none_or(|scheduler| scheduler.has_ready())
}
